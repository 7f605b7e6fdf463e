//! The tokeniser of error messages: lower-case words in a normal form.
//!
//! Separates words from paths (`tools[0].type`, `messages.2.role`, `llama3-groq-tool-use` are one word each, so that a
//! rule about `tools` does not see them) and marks where clauses end. Knows no meanings.

/// How much of one message is read. The upstream's own text comes first; what follows is often an echo of the request,
/// which must not be taken for the upstream's words.
const READ_BYTES: usize = 2 * 1024;

/// The end of a sentence: no pattern reaches across it.
pub(super) const STOP: &str = ".";
/// A comma, a brace or a line end: items of a list continue after it, a qualification does not.
pub(super) const COMMA: &str = ",";

/// Joined words are taken apart if they consist of these alone: `tool-use`, `function/tool`, but no model's name.
const PARTS: [&str; 18] = [
    "tool",
    "tools",
    "function",
    "functions",
    "call",
    "calls",
    "calling",
    "use",
    "choice",
    "enable",
    "auto",
    "parser",
    "support",
    "built",
    "in",
    "role",
    "message",
    "messages",
];

/// Names of members that must not be read as words: `tool_calls` is part of a message, tool calls are a feature.
const MEMBERS: [&str; 4] = ["tool_calls", "tool_call_id", "parallel_tool_calls", "function_call"];

/// The words of `text`, with a blank between any two.
pub(super) fn normalise(text: &str) -> String {
    let text = cut(text).to_lowercase();
    let mut out = String::with_capacity(text.len() + 16);
    let mut word = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let next = chars.peek().copied().unwrap_or(' ');
        if c.is_alphanumeric() || c == '_' || joins(c, next, &word) {
            word.push(c);
        } else if !is_apostrophe(c, next, &word) {
            flush(&mut word, &mut out);
            push(mark(c), &mut out);
        }
    }
    flush(&mut word, &mut out);
    out
}

/// The part of `text` that is read, without what it quotes: sentences of the user's in quotation marks, which must not
/// be taken for the upstream's own words. Values of members stay, since errors within errors are written so, but for
/// members that hold an input.
pub(super) fn without_quotes(text: &str) -> String {
    const WORDS: usize = 5;
    let text = cut(text);
    let (mut out, mut at) = (String::with_capacity(text.len()), 0);
    while let Some(c) = text[at..].chars().next() {
        let inside = at + c.len_utf8();
        let end = closing(c).filter(|_| !out.ends_with(char::is_alphanumeric));
        let end = end.and_then(|mark| end_of_quote(&text[inside..], mark));
        match end {
            Some(end) => {
                let quoted = &text[inside..inside + end];
                let is_long = quoted.split_whitespace().count() >= WORDS;
                let is_echo = member_before(&out).map_or(is_long, |member| INPUTS.contains(&member));
                // The kept part is searched too, since it may contain quotations.
                at = if is_echo { inside + end } else { inside };
                out.push(c);
            }
            None => {
                out.push(c);
                at = inside;
            }
        }
    }
    out
}

/// Members of validation errors that hold what was sent.
const INPUTS: [&str; 8] =
    ["input", "prompt", "content", "value", "input_value", "text", "failed_generation", "given"];

fn closing(c: char) -> Option<char> {
    match c {
        '"' | '\'' | '`' => Some(c),
        '“' => Some('”'),
        '‘' => Some('’'),
        '«' => Some('»'),
        _ => None,
    }
}

/// Where the quotation ends: at a mark that no letter follows, on the same line.
fn end_of_quote(text: &str, mark: char) -> Option<usize> {
    let line = text.split('\n').next().unwrap_or_default();
    let is_end = |at: usize| !line[at + mark.len_utf8()..].starts_with(char::is_alphanumeric);
    line.match_indices(mark).map(|(at, _)| at).find(|at| is_end(*at))
}

/// The member whose value follows `text`, if it ends with one: `{"message": `.
fn member_before(text: &str) -> Option<&str> {
    let key = text.trim_end().strip_suffix(':')?.trim_end().strip_suffix(['"', '\''])?;
    key.rsplit(['"', '\'']).next()
}

/// The part of `text` that is read.
pub(super) fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(READ_BYTES)]
}

/// Whether `c` belongs to the path or the name that was started.
fn joins(c: char, next: char, word: &str) -> bool {
    let goes_on = next.is_alphanumeric() || next == '_';
    !word.is_empty()
        && match c {
            '.' | '-' | '/' => goes_on,
            '[' => next.is_ascii_digit(),
            ']' => word.contains('['),
            _ => false,
        }
}

/// The apostrophe in `doesn't`, in any Unicode form.
fn is_apostrophe(c: char, next: char, word: &str) -> bool {
    matches!(c, '\'' | '’' | '`' | '´') && next == 't' && word.ends_with('n')
}

fn mark(c: char) -> &'static str {
    match c {
        '.' | '!' | '?' | ';' | '|' | '。' | '；' => STOP,
        ',' | '{' | '}' | '\n' | '，' | '、' => COMMA,
        ':' | '：' => ":",
        _ => "",
    }
}

fn flush(word: &mut String, out: &mut String) {
    let whole = word.strip_prefix("body.").unwrap_or(word);
    let is_path = whole.contains(['.', '[']) || MEMBERS.contains(&whole);
    let is_name = whole.contains(['-', '/']) && !whole.split(['-', '/']).all(|part| PARTS.contains(&part));
    if is_path || is_name {
        push(whole, out);
    } else {
        whole.split(['-', '/', '_']).for_each(|part| push(part, out));
    }
    word.clear();
}

fn push(word: &str, out: &mut String) {
    if !word.is_empty() {
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_texts_are_normalised_to_one_form() {
        for (text, words) in [
            ("This model doesn\u{2019}t support `tools`.", "this model doesnt support tools ."),
            ("This model doesn`t support \"tool_use\"", "this model doesnt support tool use"),
            ("tools/function-calling: no", "tools function calling : no"),
            ("parameters: ['tools', 'tool_choice']", "parameters : tools , tool choice"),
            ("requires --enable-auto-tool-choice", "requires enable auto tool choice"),
            ("body.tools: Extra inputs", "tools : extra inputs"),
        ] {
            assert_eq!(normalise(text), words);
        }
    }

    #[test]
    fn paths_and_names_stay_one_word() {
        for text in
            ["tools[0].function.name", "messages.2.role", "llama3-groq-tool-use", "a/tool-use", "tool_calls"]
        {
            assert_eq!(normalise(text), text);
        }
    }

    #[test]
    fn only_the_front_of_a_long_message_is_read() {
        assert!(normalise(&"é ".repeat(1 << 20)).len() <= READ_BYTES);
    }
}
