//! Calls where a dialect's reader does not look and some client may: in lines that are no data, and in members that the
//! protocol does not have, such as an envelope around a reply. They cannot be judged in their place.

use memchr::memchr_iter;
use serde_json::{Map, Value};

/// How the calls of a dialect are recognised wherever they are.
pub struct CallSigns {
    /// What the text of every call has one of, in lower case: the ends of names, with the quotes after them.
    pub words: &'static [&'static str],
    /// Whether an object with these members is a call, or a reply that holds one.
    pub is_call: fn(&Map<String, Value>) -> bool,
}

impl CallSigns {
    /// Whether a call may be in `text`: it has one of the words, be it in escapes.
    pub fn may_be_in(&self, text: &[u8]) -> bool {
        self.are_named_in(text) || memchr_iter(b'\\', text).any(|at| text[at..].starts_with(b"\\u00"))
    }

    /// Some parsers ignore the case of names.
    fn are_named_in(&self, text: &[u8]) -> bool {
        memchr_iter(b'"', text).any(|at| self.end(&text[..=at]))
    }

    /// Whether one of the words is the end of `text`, which ends with a quote.
    pub fn end(&self, text: &[u8]) -> bool {
        // The letter before the quote excludes nearly every text.
        let Some(last) = text.iter().nth_back(1).map(u8::to_ascii_lowercase) else { return false };
        let words = self.words.iter().map(|word| word.as_bytes());
        let mut of_last = words.filter(|word| word.iter().nth_back(1) == Some(&last));
        of_last.any(|word| ends_with(text, word))
    }

    /// Whether the JSON `text` holds a call; what cannot be parsed does where it has one of the words.
    pub fn are_in(&self, text: &[u8]) -> bool {
        self.may_be_in(text)
            && serde_json::from_slice(text)
                .map_or_else(|_| self.are_named_in(text), |value| self.hold(&value))
    }

    fn hold(&self, value: &Value) -> bool {
        match value {
            Value::Object(members) => {
                (self.is_call)(members) || members.values().any(|value| self.hold(value))
            }
            Value::Array(items) => items.iter().any(|item| self.hold(item)),
            _ => false,
        }
    }

    /// Whether one of these lines of an event holds a call, whatever comes before it in the line. A call may be spread over
    /// lines: then none of them is JSON.
    pub fn are_in_lines<'a>(&self, lines: impl Iterator<Item = &'a [u8]>) -> bool {
        let lines: Vec<&[u8]> = lines.filter(|line| !line.is_empty()).collect();
        let has_object = lines.iter().any(|line| line.contains(&b'{'));
        lines.iter().filter(|line| self.may_be_in(line)).any(|line| {
            let start = line.iter().position(|byte| matches!(byte, b'{' | b'['));
            match start.and_then(|start| serde_json::from_slice(&line[start..]).ok()) {
                Some(value) => self.hold(&value),
                None => self.are_named_in(line) || has_object,
            }
        })
    }
}

/// Whether `text` ends with `word`, in any case of its letters.
fn ends_with(text: &[u8], word: &[u8]) -> bool {
    text.len().checked_sub(word.len()).is_some_and(|at| text[at..].eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNS: CallSigns =
        CallSigns { words: &["_call\""], is_call: |members| members.get("type") == Some(&"a_call".into()) };

    #[test]
    fn a_call_is_found_at_any_depth_in_any_case_and_in_escapes() {
        for text in [
            r#"{"type":"a_call"}"#,
            r#"[[{"x":{"type":"a_call"}}]]"#,
            r#"{"type":"\u0061_call"}"#,
            r#"{"type":"A_CALL" broken"#,
        ] {
            assert!(SIGNS.are_in(text.as_bytes()), "{text}");
        }
        for text in [r#"{"type":"text","text":"a \"a_call\""}"#, r#"{"type":"b_call"}"#, "a_call", "[]"] {
            assert!(!SIGNS.are_in(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn a_call_is_found_in_a_line_of_any_field_and_over_several_lines() {
        for lines in [
            "Data: {\"type\":\"a_call\"}",
            "data : [{\"type\":\"a_call\"}]",
            ": ping\n{\n\"type\":\n\"a_call\"}",
            "{\n\"type\":\"\\u0061_call\"\n}",
        ] {
            assert!(SIGNS.are_in_lines(lines.split('\n').map(str::as_bytes)), "{lines}");
        }
        for lines in ["event: a_call", ": {\"type\":\"b_call\"}", "id: caf\\u00e9", ""] {
            assert!(!SIGNS.are_in_lines(lines.split('\n').map(str::as_bytes)), "{lines}");
        }
    }
}
