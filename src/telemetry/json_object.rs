//! A JSON object that is written member by member: the form of what every request writes, such as its line in the log. Texts
//! from outside are bounded. Knows no output and no record.

use super::bounded;
use serde::Serialize;
use std::io::Write as _;
use std::time::SystemTime;

/// The object as far as it is written: each member ends in a comma. What is known when toolrein is compiled, such as the keys,
/// is put in line where it is written: a line has thirty members.
pub(super) struct JsonObject {
    written: Vec<u8>,
    /// The longest text, in characters.
    max_chars: usize,
}

impl JsonObject {
    /// An object without members, with room for so many `bytes`. Its texts have at most `max_chars` characters.
    pub(super) fn new(bytes: usize, max_chars: usize) -> Self {
        let mut written = Vec::with_capacity(bytes);
        written.push(b'{');
        Self { written, max_chars }
    }

    /// The whole object, which has a member.
    pub(super) fn end(mut self) -> Vec<u8> {
        self.written.pop();
        self.written.push(b'}');
        self.written
    }

    #[inline(always)]
    fn key(&mut self, key: &str) {
        self.written.push(b'"');
        self.written.extend_from_slice(key.as_bytes());
        self.written.extend_from_slice(b"\":");
    }

    #[inline(always)]
    pub(super) fn value(&mut self, key: &str, value: &impl Serialize) {
        self.key(key);
        self.write(value);
    }

    fn write(&mut self, value: &impl Serialize) {
        // Writing fails only where a key is not text, and our keys are text.
        let _ = serde_json::to_writer(&mut self.written, value);
        self.written.push(b',');
    }

    /// A value that is not zero or false.
    #[inline(always)]
    pub(super) fn if_any<T: Serialize + Default + PartialEq + Copy>(&mut self, key: &str, value: T) {
        if value != T::default() {
            self.value(key, &value);
        }
    }

    #[inline(always)]
    pub(super) fn if_known(&mut self, key: &str, value: Option<impl Serialize>) {
        if let Some(value) = value {
            self.value(key, &value);
        }
    }

    /// A word of toolrein's own, which has nothing to escape.
    #[inline(always)]
    pub(super) fn word(&mut self, key: &str, word: &'static str) {
        self.key(key);
        self.write_plain(word);
    }

    /// A text, bounded.
    #[inline(always)]
    pub(super) fn text(&mut self, key: &str, text: &str) {
        self.key(key);
        self.write_text(text);
    }

    #[inline(always)]
    pub(super) fn text_if_known(&mut self, key: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.text(key, text);
        }
    }

    /// A text, bounded, or `null`.
    #[inline(always)]
    pub(super) fn text_or_null(&mut self, key: &str, text: Option<&str>) {
        self.key(key);
        match text {
            Some(text) => self.write_text(text),
            None => self.written.extend_from_slice(b"null,"),
        }
    }

    fn write_text(&mut self, text: &str) {
        // Nearly every text is shown as it is, and has nothing to escape.
        if text.len() <= self.max_chars && bounded::is_plain_in_json(text) {
            self.write_plain(text);
        } else {
            self.write(&bounded::text(text, self.max_chars));
        }
    }

    fn write_plain(&mut self, text: &str) {
        self.written.push(b'"');
        self.written.extend_from_slice(text.as_bytes());
        self.written.extend_from_slice(b"\",");
    }

    pub(super) fn time(&mut self, key: &str, at: SystemTime) {
        self.key(key);
        // A clock that was never set may be before the epoch, which cannot be written.
        let at = humantime::format_rfc3339_micros(at.max(SystemTime::UNIX_EPOCH));
        // Writing to memory does not fail.
        let _ = write!(self.written, "\"{at}\",");
    }

    /// A list of `items`, if there are any, in the form that `value` gives them.
    pub(super) fn list<'a, T, V: Serialize>(
        &mut self,
        key: &str,
        items: &'a [T],
        value: impl FnOnce(&'a [T]) -> V,
    ) {
        if !items.is_empty() {
            self.value(key, &value(items));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_written_in_order_and_what_is_missing_is_left_out_or_null() {
        let mut object = JsonObject::new(0, 5);
        object.word("word", "own");
        object.text("text", "\"a\"\n\u{202e}é and more");
        object.text_if_known("unknown", None);
        object.text_or_null("null", None);
        object.text_or_null("known", Some("b"));
        object.if_any("zero", 0);
        object.if_any("one", 1);
        object.if_known("half", Some(0.5));
        object.if_known("none", None::<u8>);
        object.time("at", SystemTime::UNIX_EPOCH);
        object.list("empty", &[0; 0], |items| items.len());
        object.list("list", &[1, 2], |items| items);
        let expected = concat!(
            r#"{"word":"own","text":"\"a\"�…","null":null,"known":"b","one":1,"half":0.5,"#,
            r#""at":"1970-01-01T00:00:00.000000Z","list":[1,2]}"#
        );
        assert_eq!(String::from_utf8(object.end()).unwrap(), expected);
    }
}
