//! Whether a value in a program or a template is an expression and not a literal: a variable, a path of names, a call, a
//! mask. A secret may look like a name too; so a name counts as one only where it looks written by a person.

/// Whether a value is the name of another, as in a template, or a mask.
pub(super) fn is_variable(text: &str) -> bool {
    let within = |open: char, close: char| text.strip_prefix(open).and_then(|rest| rest.strip_suffix(close));
    if text.starts_with("***") || text.chars().all(|char| char == 'x') {
        return true;
    }
    if let Some(name) = text.strip_prefix('$') {
        return name.starts_with(['{', '(']) || is_path(name);
    }
    if let Some(name) = text.strip_prefix('%') {
        // Not `%23`, a character of an address.
        return name.starts_with('(') || name.strip_suffix('%').is_some_and(is_name);
    }
    within('{', '}').is_some_and(|inner| inner.starts_with('{') || is_words(inner) || is_call(inner))
        || within('<', '>').is_some_and(is_words)
}

/// Whether a value without quotes is an expression: a path of names, a call, a comparison, the next option of a command.
pub(super) fn is_code(text: &str) -> bool {
    let text = text.trim_end_matches(['.', ',', ';', ':']);
    if let Some(option) = text.strip_prefix("--") {
        return is_words(option);
    }
    let is_operand = |text: &str| is_path(text) || is_call(text);
    if let Some(compared) = text.strip_prefix('=') {
        return is_operand(compared);
    }
    if text.contains("==") {
        return text.split("==").all(is_operand);
    }
    let text = text.trim_start_matches(['*', '&', '!']);
    (text.contains('.') || text.contains("::")) && is_path(text) || is_call(text)
}

/// Whether a name that a person would give begins `text`, followed by the sign of an assignment: the next setting.
pub(super) fn begins_setting(text: &str) -> bool {
    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let length = text.bytes().take(LONGEST_NAME).take_while(|byte| is_of_name(byte)).count();
    length > 1 && text[length..].starts_with(['=', ':']) && is_words(&text[..length])
}

/// Longest name of a setting that is looked for, in bytes.
const LONGEST_NAME: usize = 32;
/// Most digits at the end of a name that a person gave: a number or a year.
const MOST_DIGITS: usize = 4;

/// Names with dots between them; one is enough.
fn is_path(text: &str) -> bool {
    parts(text).all(is_name)
}

fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.split('.').flat_map(|part| part.split("::")).map(|part| part.trim_end_matches('?'))
}

/// A call or an element: `name(`, `path.of.names[`. What is in its brackets may be cut off.
fn is_call(text: &str) -> bool {
    let Some((called, rest)) = text.split_once(['(', '[']) else { return false };
    let is_identifier = |part: &str| {
        part.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let called = called.trim_end_matches(['!', '?']);
    let after = rest.rsplit_once([')', ']']).map_or("", |(_, after)| after);
    let goes_on = after.starts_with(|char: char| char.is_ascii_alphanumeric());
    // A method is one whatever its name (`base64.b64encode(`).
    !goes_on && (is_name(called) || parts(called).count() > 1 && parts(called).all(is_identifier))
}

/// An identifier whose words a person could have written.
fn is_name(text: &str) -> bool {
    let is_identifier = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let starts = text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    is_identifier && starts && text.split('_').filter(|word| !word.is_empty()).all(is_word)
}

/// Words with separators between them.
pub(super) fn is_words(text: &str) -> bool {
    let separators = ['_', '-', ' ', '.', ':'];
    let mut words = text.split(separators).filter(|word| !word.is_empty()).peekable();
    words.peek().is_some() && words.all(is_word)
}

/// Letters, then a few digits. Capital letters begin words of two letters and more (`userToken2`), which chance seldom
/// makes.
fn is_word(text: &str) -> bool {
    let letters = text.trim_end_matches(|char: char| char.is_ascii_digit());
    let is_spelled = letters.bytes().all(|byte| byte.is_ascii_alphabetic());
    let bytes = letters.as_bytes();
    let begins = |pair: &[u8]| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase();
    let starts = bytes.windows(2).enumerate().filter(|(_, pair)| begins(pair)).map(|(at, _)| at + 1);
    let ends = starts.clone().chain([bytes.len()]);
    let are_words = std::iter::once(0).chain(starts).zip(ends).all(|(start, end)| end - start > 1);
    let is_one = letters.len() <= 1;
    is_spelled && (is_one || are_words) && text.len() - letters.len() <= MOST_DIGITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinguished_from_random_strings() {
        for (text, is) in [
            ("password_1", true),
            ("OPENAI_API_KEY", true),
            ("userToken12", true),
            ("HTTPServer2", true),
            ("_x", true),
            ("sha256", true),
            ("aB3dE5gH7jK", false),
            ("aBcdEfghIjk", false),
            ("winter20245", false),
            ("3abc", false),
            ("b64encode", false),
            ("", false),
        ] {
            assert_eq!(is_name(text), is, "{text}");
        }
    }

    #[test]
    fn the_next_setting_is_recognised_by_its_name_and_separator() {
        for (text, is) in [
            ("Database=x", true),
            ("top_p: 1", true),
            ("dE5(gH)", false),
            ("9=x", false),
            ("a=x", false),
            ("aB3dE5=x", false),
            ("", false),
            (&"a".repeat(50), false),
        ] {
            assert_eq!(begins_setting(text), is, "{text}");
        }
    }
}
