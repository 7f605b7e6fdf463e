//! Values that their names call secret: what follows `password =`, `"api_key":` and their like, and looks random. Found in
//! time linear in the text.

use super::checks::is_random;
use super::expressions::{begins_setting, is_code, is_variable};
pub use model::plan::work::step;
use regex::Regex;
use std::ops::Range;
use std::sync::LazyLock;
use wire::decoded::unescaped;

/// How names end that call their value secret.
pub(super) const NAMES: &str = r"(?:api[_-]?key|secret[_-]?key|access[_-]?key(?:[_-]?id)?|private[_-]?key|encryption[_-]?key|client[_-]?secret|(?:auth|access|refresh|session|bot|api)[_-]?token|secret|password|passwd|passphrase|pwd|token)s?";
/// What comes between a name and its value: quotes, with the backslashes of documents in documents, the sign of an
/// assignment, and the beginning of a list.
const ASSIGNED: &str = r#"[\x22'\\]{0,8}(?:\s\([a-z ]{1,24}\))?(?:\s{0,4}(?::=|=>|=|:)|\s{1,4}->\s)\s{0,4}(?:\[\s{0,4}|-\s{1,4})?"#;
/// A name as the option of a command, and what comes before its value: blanks, or a comma between words in quotes.
const OPTION: &str = r#"--?(?:[a-z0-9]{1,16}[_-]){0,3}"#;
const OF_OPTION: &str = r#"(?:\s{1,4}|[\x22'\\]{1,8}\s{0,4},\s{0,4})"#;
/// A name as an element, and as the name of a field whose value is another attribute.
const ELEMENT: &str = r"<(?:[a-z0-9]{1,16}[:_.-]){0,3}";
const OF_ELEMENT: &str = r"(?:\s[^<>]{0,64})?>";
const FIELD: &str = r#"\b(?:name|id)=[\\\x22']{0,4}(?:[a-z0-9]{1,16}[\[:_.-]){0,3}"#;
const OF_FIELD: &str = r#"[\]\\\x22']{0,5}[^<>\n]{0,80}?\svalue\s?=\s?"#;
/// Short options for passwords, of the commands that have them, and a name with a password.
const SHORT_OPTION: &str = r#"\b(?:(?:mysql|mariadb|mongo)[a-z]{0,8}|sshpass|(?:docker|podman) login|ldapsearch)\b[^\n|;&]{0,160}?\s-[pw]\s?|\bredis-cli\b[^\n|;&]{0,160}?\s-a\s|\bcurl\b[^\n|;&]{0,240}?\s(?:-u|--user)[\s=]?[\x22'\\]{0,4}[^\s:\x22']{1,64}:"#;
/// What is between two values of a list.
const NEXT: &str = r#"^[\x22'`\\]{0,8}\s{0,4}(?:,\s{0,8}|\n\s{0,16}-\s{1,4})"#;
/// Words before `token` that make it one for the next page of a list, which the program must get back.
const OF_PAGES: [&str; 7] = ["page", "next", "continuation", "sync", "cursor", "start", "end"];

/// A pattern that does not compile finds nothing; a test holds that it does.
pub(super) static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let options = format!("{OPTION}{NAMES}{OF_OPTION}|{ELEMENT}{NAMES}{OF_ELEMENT}|{FIELD}{NAMES}{OF_FIELD}");
    Regex::new(&format!("(?i)(?:{options}|{NAMES}{ASSIGNED})")).ok()
});
/// The option of a command, up to its value.
pub(super) static COMMAND: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(SHORT_OPTION).ok());
/// An option for a secret at the beginning of a word, with its value or without.
pub(super) static ARGUMENT: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(&format!("^(?i){OPTION}{NAMES}(?:=|$)")).ok());
/// The beginning of the next value of a list.
pub(super) static NEXT_VALUE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(NEXT).ok());
/// A name alone.
pub(super) static NAME: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(&format!("(?i){NAMES}$")).ok());

/// A longer name is none, in bytes.
const LONGEST_NAME: usize = 128;
/// A shorter value is none, in bytes.
const SHORTEST: usize = 8;
/// How much of a value shows what it is, in bytes. What was looked at is looked at again after the next name, so this
/// bounds the work.
const JUDGED: usize = 256;
/// Least entropy of a character of a random value, in bits.
const LEAST_BITS: f64 = 3.0;
/// Most characters of quotes before a value, with the backslashes of a document in a document.
const MOST_QUOTES: usize = 8;

/// Whether the member of a document with this name has a secret as its value.
pub(super) fn is_secret_name(name: &str) -> bool {
    let may_be = name.len() <= LONGEST_NAME && ends_like_secret(name);
    let found = NAME.as_ref().filter(|_| may_be).and_then(|pattern| pattern.find(name));
    found.is_some_and(|found| !is_of_pages(&name[..found.start()], found.as_str()))
}

/// Whether a name may end as [`NAMES`] do: by its last two letters, before an `s`.
fn ends_like_secret(name: &str) -> bool {
    if !name.is_ascii() {
        return true;
    }
    let ends = |name: &[u8]| {
        let last = &name[name.len().saturating_sub(2)..];
        ["ey", "et", "en", "rd", "wd", "se"].iter().any(|end| last.eq_ignore_ascii_case(end.as_bytes()))
    };
    let bytes = name.as_bytes();
    let bytes = bytes.strip_suffix(b"s").or(bytes.strip_suffix(b"S")).unwrap_or(bytes);
    match bytes {
        [before @ .., b'i' | b'I', b'd' | b'D'] => {
            ends(before.strip_suffix(b"_").or(before.strip_suffix(b"-")).unwrap_or(before))
        }
        _ => ends(bytes),
    }
}

/// Whether a header or a member with this name lets its sender in, or says who it is.
pub(super) fn is_header(name: &str) -> bool {
    const HEADERS: [&str; 6] =
        ["authorization", "proxy-authorization", "cookie", "set-cookie", "auth", "_auth"];
    HEADERS.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Whether everything in a list or an object with this name is a secret. What is only called tokens is counted, traded
/// or drawn with.
pub(super) fn is_name_of_secrets(name: &str) -> bool {
    is_secret_name(name) && !name.eq_ignore_ascii_case("tokens")
}

/// Whether a member below a secret says what the secret is, by the last word of its name.
pub(super) fn describes_value(name: &str) -> bool {
    const WORDS: [&str; 17] = [
        "name",
        "type",
        "kind",
        "description",
        "title",
        "label",
        "status",
        "version",
        "url",
        "uri",
        "href",
        "path",
        "algorithm",
        "address",
        "symbol",
        "contract",
        "format",
    ];
    let last = name.rsplit(['_', '-', '.']).next().unwrap_or(name);
    // `tokenUrl`, but `TOKEN_URL`.
    let has_small = last.bytes().any(|byte| byte.is_ascii_lowercase());
    let start = last.rfind(|letter: char| has_small && letter.is_ascii_uppercase()).unwrap_or(0);
    WORDS.contains(&&*last[start..].to_ascii_lowercase())
}

/// Whether a member or an attribute with this name holds the value of what is described beside it.
pub(super) fn holds_value(name: &str) -> bool {
    const NAMES: [&str; 11] = [
        "value",
        "val",
        "v",
        "content",
        "secret",
        "plain",
        "plaintext",
        "data",
        "string",
        "stringvalue",
        "secretvalue",
    ];
    NAMES.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Whether a value below a name that calls it a secret may be one: it is no time, and no reference to something else.
pub(super) fn is_named_value(value: &str) -> bool {
    // A secret in Base64 may begin with a slash too; a path has more of them.
    let is_path = value.strip_prefix('/').is_some_and(|rest| rest.contains('/'));
    let is_reference = is_path
        || value.contains("://")
        || ["./", "../", "#/", "^"].iter().any(|start| value.starts_with(start));
    let is_of_time = |byte: u8| byte.is_ascii_digit() || b"-:.TZ+ ".contains(&byte);
    !(is_reference || (value.as_bytes().get(4) == Some(&b'-') && value.bytes().all(is_of_time)))
}

/// The range of a text, if all of it is a secret below a name that calls it one.
pub(super) fn find_secret_in(text: &str, range: Range<usize>) -> Option<Range<usize>> {
    let value = &text[range.clone()];
    (holds_secret(value) && is_named_value(value)).then_some(range)
}

/// Where the value begins in a string of a document that is an argument of a command: after `--password=`; the end of
/// `--password`, whose value is the next argument.
pub(super) fn value_of_argument(text: &str) -> Option<usize> {
    let begins = &text[..text.floor_char_boundary(LONGEST_NAME)];
    ARGUMENT.as_ref().filter(|_| text.starts_with('-'))?.find(begins).map(|option| option.end())
}

/// Whether any word of a string that a name calls secret looks random: then all of it is the secret. A message about a
/// password has plain words alone.
pub(super) fn holds_secret(text: &str) -> bool {
    text.split_whitespace().any(|word| is_secret(word, true))
}

/// Whether a name that goes on with `name` after `before` is that of a token for the next page.
fn is_of_pages(before: &str, name: &str) -> bool {
    let start = before.len().saturating_sub(16);
    let before = before[before.ceil_char_boundary(start)..].trim_end_matches(['_', '-']).to_ascii_lowercase();
    name.len() >= 5
        && name.as_bytes()[..5].eq_ignore_ascii_case(b"token")
        && OF_PAGES.iter().any(|word| before.ends_with(word))
}

/// The values, in order.
pub(super) fn named(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    let (mut from, mut is_listed) = (0, false);
    std::iter::from_fn(move || {
        loop {
            if let Some(next) = next_of_list(text, from).filter(|_| is_listed) {
                let value = value_at(text, next, "");
                is_listed = value.is_some();
                from = value.as_ref().map_or(next, |value| value.end);
                if value.is_some() {
                    return value;
                }
            }
            let name = PATTERN.as_ref()?.find_at(text, from)?;
            from = name.end();
            is_listed = name.as_str().trim_end().ends_with(['[', '-']);
            if names_a_page(&text[..name.end()], name.start()) {
                continue;
            }
            if let Some(value) = value_at(text, from, name.as_str()) {
                from = value.end;
                return Some(value);
            }
        }
    })
}

/// The passwords of commands, in order.
pub(super) fn of_commands(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    let pattern = COMMAND.as_ref().filter(|_| memchr::memmem::find(text.as_bytes(), b" -").is_some());
    let options = pattern.into_iter().flat_map(|pattern| pattern.find_iter(text));
    options.filter_map(|option| value_at(text, option.end(), ""))
}

/// Where the next value begins after the one that ends at `at`, in a list.
fn next_of_list(text: &str, at: usize) -> Option<usize> {
    NEXT_VALUE.as_ref()?.find(&text[at..]).map(|between| at + between.end())
}

/// Whether the name that goes on from `start` to the end of `text` is that of a token for the next page.
fn names_a_page(text: &str, start: usize) -> bool {
    let name = text[start..].to_ascii_lowercase();
    name.rfind("token").is_some_and(|at| is_of_pages(&text[..start + at], &text[start + at..]))
}

/// The secret that begins at `at` after `name`, if one does.
pub(super) fn value_at(text: &str, at: usize, name: &str) -> Option<Range<usize>> {
    if name.ends_with('>') && !name.ends_with("=>") {
        let content = &text[at..];
        let length = memchr::memchr2(b'<', b'\n', content.as_bytes()).unwrap_or(content.len());
        let judged = &content[..content.floor_char_boundary(length.min(JUDGED))];
        return holds_secret(judged).then(|| at..at + length);
    }
    // A dollar sign before quotes makes a shell resolve escapes.
    let is_shells = text[at..].starts_with("$'") || text[at..].starts_with("$\"");
    let opening = at + usize::from(is_shells);
    let quotes = opening_quotes(&text[opening..]);
    let start = if quotes > 0 { opening + quotes } else { at };
    if quotes == 0 && name.ends_with(':') && text[start..].starts_with(':') {
        return None;
    }
    let length = match quotes {
        0 => is_unquoted_secret(&text[start..]).then(|| unquoted_length(&text[start..])),
        _ => quoted_secret(&text[start..], &text[opening..start]),
    };
    length.map(|length| start..start + length)
}

/// How many characters of quotes begin `text`, with the backslashes before each. Backslashes after the last quote belong to the
/// value.
fn opening_quotes(text: &str) -> usize {
    let run = text.bytes().take(MOST_QUOTES).take_while(|byte| b"\"'`\\".contains(byte)).count();
    text.as_bytes()[..run].iter().rposition(|byte| *byte != b'\\').map_or(0, |last| last + 1)
}

/// How long the secret is that `text` begins with after the `opening` quotes, in bytes: up to the quote that closes them,
/// if there is one on the line, and otherwise one word.
fn quoted_secret(text: &str, opening: &str) -> Option<usize> {
    let begins = &text[..text.floor_char_boundary(JUDGED)];
    let word = begins.find(char::is_whitespace).unwrap_or(begins.len());
    let length = |text: &str| closed_length(text, opening).unwrap_or_else(|| word_length(text));
    let judged = &begins[..length(begins)];
    let is_one_word = is_secret(&judged[..judged.len().min(word)], true);
    (is_one_word || holds_secret(judged)).then(|| length(text))
}

/// How long the text is up to a quote like the last of `opening`, with as many backslashes before it; `None` if the line
/// ends before. One with more is a part of the value, and so is one that is doubled, or written as shells write it.
fn closed_length(text: &str, opening: &str) -> Option<usize> {
    let (quote, backslashes) =
        (*opening.as_bytes().last()?, opening.bytes().filter(|byte| *byte == b'\\').count());
    let bytes = text.as_bytes();
    let mut at = 0;
    loop {
        at += memchr::memchr2(quote, b'\n', &bytes[at..])?;
        step();
        if bytes[at] != quote {
            return None;
        }
        let before = bytes[..at].iter().rev().take_while(|byte| **byte == b'\\').count();
        let shell = [r"'\''", r#"'"'"'"#].iter().find(|quote| text[at..].starts_with(**quote));
        if let Some(shell) = shell.filter(|_| quote == b'\'') {
            at += shell.len();
        } else if backslashes == 0 && quote != b'`' && is_doubled(&bytes[at..]) {
            at += 2;
        } else if before % (2 * (backslashes + 1)) == backslashes {
            return Some(at - backslashes);
        } else {
            at += 1;
        }
    }
}

/// Whether two quotes begin `bytes` after which the value goes on.
fn is_doubled(bytes: &[u8]) -> bool {
    match bytes {
        [one, other, next, ..] => one == other && !next.is_ascii_whitespace() && !b",;:)]}\"'".contains(next),
        _ => false,
    }
}

/// How long the word is that begins `text`, whose quotes are not closed.
fn word_length(text: &str) -> usize {
    let is_end = |char: char| char.is_whitespace() || matches!(char, '"' | '\'' | '`' | '\\');
    text.find(is_end).unwrap_or(text.len())
}

/// Whether a secret without quotes begins `text`, by its first bytes.
fn is_unquoted_secret(text: &str) -> bool {
    let begins = &text[..text.floor_char_boundary(JUDGED)];
    is_secret(&begins[..unquoted_length(begins)], false)
}

/// Whether `value`, one word, is a secret, by its first bytes.
pub(super) fn is_secret(value: &str, is_quoted: bool) -> bool {
    let value = &value[..value.floor_char_boundary(JUDGED)];
    let is_one = |value: &str| {
        value.len() >= SHORTEST
            && is_random(value, LEAST_BITS)
            && !is_variable(value)
            && (is_quoted || !is_code(value))
    };
    // Escapes make a word longer and less random than what it means, which may look like code.
    is_one(value) || is_one(&unescaped(value))
}

/// How long the value without quotes is that begins `text`, in bytes.
fn unquoted_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        step();
        let is_part = byte.is_ascii_alphanumeric() || b"_+/=.~!@#$%^&*,():;?-".contains(byte);
        let begins_next = || matches!(byte, b',' | b';' | b'&') && begins_setting(&text[at + 1..]);
        at += match byte {
            b'\\' if is_escaped_part(&bytes[at + 1..]) => 2,
            _ if is_part && !begins_next() => 1,
            _ => break,
        };
    }
    without_punctuation(&text[..at.min(bytes.len())]).len()
}

/// Whether the byte that begins `rest`, after a backslash, is a part of a word as shells write it, and not the end of a line or of
/// a string of a document.
fn is_escaped_part(rest: &[u8]) -> bool {
    match rest {
        [b'"' | b'\'', next, ..] => !next.is_ascii_whitespace() && !b",:;]}".contains(next),
        [byte, ..] => byte.is_ascii_punctuation() && !matches!(byte, b'"' | b'\'') || *byte == b' ',
        [] => false,
    }
}

/// The value without what goes on in the text around it: a comma, a bracket that was opened before.
fn without_punctuation(mut value: &str) -> &str {
    let count = |bracket: u8| value.bytes().filter(|byte| *byte == bracket).count();
    let mut surplus = count(b')').saturating_sub(count(b'('));
    loop {
        value = value.trim_end_matches([',', ';']);
        match value.strip_suffix(')').filter(|_| surplus > 0) {
            Some(shorter) => (value, surplus) = (shorter, surplus - 1),
            None => return value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_a_secret_is_known_by_its_end() {
        for (name, is) in [
            ("password", true),
            ("DB_PASSWORDS", true),
            ("apiKey", true),
            ("aws_access_key_id", true),
            ("AccessKeyIds", true),
            ("access-key-ID", true),
            ("to\u{212a}en", true),
            ("token\u{17f}", true),
            ("passphrase", true),
            ("client_secrets", true),
            ("pwd", true),
            ("request_id", false),
            ("next_page_token", false),
            ("key", false),
            ("word", false),
            ("ids", false),
            ("", false),
        ] {
            assert_eq!(is_secret_name(name), is, "{name}");
        }
    }

    #[test]
    fn a_value_below_a_secret_may_be_one_unless_it_is_a_time_or_leads_elsewhere() {
        for (value, may_be) in [
            ("Xq7Zp2Lm9Rt4Vw8K", true),
            ("/Xq7Zp2Lm9Rt4Vw8K+aB3dE5gH7jK9==", true),
            ("/run/secrets/Xq7Zp2Lm9Rt4Vw8K", false),
            ("./Xq7Zp2Lm9Rt4Vw8K", false),
            ("#/definitions/Xq7Zp2Lm9Rt4Vw8K", false),
            ("https://example.com/Xq7Zp2Lm9Rt4Vw8K", false),
            ("2026-11-28T20:00:00Z", false),
        ] {
            assert_eq!(is_named_value(value), may_be, "{value}");
        }
    }
}
