//! The forms of a hidden value: its placeholder, its place in a JSON document, and what a program gets back.

use crate::conversation::identity::{Domain, Hash, HashKey};
use crate::wire::json::unescape;
use std::borrow::Cow;
use std::ops::Range;

/// How every placeholder begins.
pub(super) const OPENS: char = '[';
/// What the model reads where a text holds more values than are counted.
pub(super) const REST: &str =
    "[toolrein: the rest is left out, since it holds too much secret or personal data]";
/// What it reads in place of a value that is too short for a placeholder of its own.
pub(super) const SHORT: &str = "[hidden]";

/// Digits of a placeholder's hash: as few as are hardly ever equal; more where they are.
const DIGITS: [usize; 4] = [8, 12, 16, 32];

/// The placeholder of `value`, which its rule calls `label`, in the conversations that begin with `root`; the `longer`-th
/// choice. `None`: there is no longer one. Made under the secret `key`, so that nobody can try values.
pub(super) fn placeholder(
    key: &HashKey,
    root: Hash,
    (label, value): (&str, &str),
    longer: usize,
) -> Option<String> {
    let digits = *DIGITS.get(longer)?;
    let hash = key.hash(Domain::Placeholder, &[&root.0.to_le_bytes(), value.as_bytes()]).to_hex();
    Some(format!("[{}_{}]", label.to_ascii_uppercase(), &hash[..digits]))
}

/// Whether a pattern may have this name: it is a part of placeholders.
pub(super) fn is_name(name: &str) -> bool {
    (1..=32).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Where a value is in a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Position {
    /// Within a string of a JSON document.
    pub(super) in_string: bool,
    /// A JSON number by itself: a placeholder needs quotes.
    pub(super) is_number: bool,
}

/// The places of values in one text, asked for in order.
pub(super) struct Positions<'a> {
    text: &'a str,
    is_json: bool,
    /// Read so far.
    at: usize,
    in_string: bool,
}

impl Position {
    /// The places in `text`.
    pub(super) fn in_text(text: &str) -> Positions<'_> {
        let is_json = text.trim_start().starts_with(['{', '[']);
        Positions { text, is_json, at: 0, in_string: false }
    }
}

impl Positions<'_> {
    /// The place of the value in `range`, which is after those asked for before.
    pub(super) fn at(&mut self, range: Range<usize>) -> Position {
        if !self.is_json {
            return Position::default();
        }
        let bytes = self.text.as_bytes();
        while let Some(next) =
            bytes.get(self.at..range.start).and_then(|rest| memchr::memchr2(b'"', b'\\', rest))
        {
            let at = self.at + next;
            let is_escape = bytes[at] == b'\\';
            self.in_string ^= !is_escape;
            self.at = at + if is_escape { 2 } else { 1 };
        }
        self.at = self.at.max(range.start);
        let before = self.text[..range.start].trim_end().bytes().next_back();
        let after = self.text[range.end..].trim_start().bytes().next();
        let is_whole =
            matches!(before, Some(b':' | b',' | b'[')) && matches!(after, Some(b',' | b']' | b'}'));
        let is_digits = self.text[range].bytes().all(|byte| byte.is_ascii_digit());
        Position { in_string: self.in_string, is_number: !self.in_string && is_whole && is_digits }
    }
}

/// What a program gets for the value that is `written` so: within a JSON string without escapes.
pub(super) fn restored_value<'a>(written: &'a str, place: &Position) -> Cow<'a, str> {
    if place.in_string && written.contains('\\') {
        return unescape(written.as_bytes()).into();
    }
    // A key as programs print it, in one line.
    if written.starts_with("-----BEGIN ") && !written.contains('\n') && written.contains("\\n") {
        return written.replace("\\n", "\n").into();
    }
    written.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_a_document_needs_quotes_and_nothing_else_does() {
        for (text, is_number, in_string) in [
            (r#"{"a":"\"",  "b": 4111 , "c":1}"#, true, false),
            (r#"[4111]"#, true, false),
            (r#"{"a":"x: 4111, y"}"#, false, true),
            (r#"{"a":"\\","b":"4111"}"#, false, true),
            ("n: 4111, m", false, false),
            ("[info] 4111 is", false, false),
        ] {
            let start = text.find("4111").unwrap();
            let place = Position::in_text(text).at(start..start + 4);
            assert_eq!(place, Position { in_string, is_number }, "{text}");
        }
    }

    #[test]
    fn a_placeholder_depends_on_the_secret_the_conversation_and_the_value() {
        let of =
            |seed, root, value| placeholder(&HashKey::fixed(seed), Hash(root), ("email", value), 0).unwrap();
        let one = of(1, 1, "a@b.de");
        assert_eq!(one, of(1, 1, "a@b.de"));
        assert!(one.starts_with("[EMAIL_") && one.len() == 16, "{one}");
        for other in [of(2, 1, "a@b.de"), of(1, 2, "a@b.de"), of(1, 1, "b@b.de")] {
            assert_ne!(one, other);
        }
        assert_eq!(placeholder(&HashKey::fixed(1), Hash(1), ("email", "a"), DIGITS.len()), None);
    }

    #[test]
    fn a_restored_value_is_unescaped_where_a_program_expects_that() {
        let place = |in_string| Position { in_string, is_number: false };
        for (written, in_string, value) in [
            (r"a\/b\u0040c", true, "a/b@c"),
            (r"a\/b", false, r"a\/b"),
            (r"-----BEGIN PRIVATE KEY-----\nMII", false, "-----BEGIN PRIVATE KEY-----\nMII"),
        ] {
            assert_eq!(restored_value(written, &place(in_string)), value);
        }
    }
}
