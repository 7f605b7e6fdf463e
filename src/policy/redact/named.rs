//! Values that their names call secret: what follows `password =`, `"api_key":` and their like, and looks random. Found in
//! time linear in the text.

use super::checks::is_random;
use super::expressions::{begins_setting, is_code, is_variable};
use crate::plan::work::step;
use regex::Regex;
use std::ops::Range;
use std::sync::LazyLock;

/// A name and the sign of an assignment.
const NAMED: &str = r#"(?i)(?:api[_-]?key|secret[_-]?key|access[_-]?key(?:[_-]?id)?|private[_-]?key|encryption[_-]?key|client[_-]?secret|(?:auth|access|refresh|session|bot|api)[_-]?token|secret|password|passwd|passphrase|pwd|token)[\x22'\\]{0,3}\s{0,4}(?::=|=>|=|:)\s{0,4}"#;

/// A pattern that does not compile finds nothing; a test holds that it does.
pub(super) static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(NAMED).ok());

/// A shorter value is none, in bytes.
const SHORTEST: usize = 8;
/// How much of a value shows what it is, in bytes. What was looked at is looked at again after the next name, so this
/// bounds the work.
const JUDGED: usize = 256;
/// Least entropy of a character of a random value, in bits.
const LEAST_BITS: f64 = 3.0;
/// Most characters of quotes before a value, with the backslashes of a document in a document.
const MOST_QUOTES: usize = 3;

/// The values, in order.
pub(super) fn named(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            let name = PATTERN.as_ref()?.find_at(text, from)?;
            from = name.end();
            let quotes = text[from..].bytes().take(MOST_QUOTES).take_while(|byte| b"\"'`\\".contains(byte));
            let start = from + quotes.count();
            let is_quoted = start > from;
            let is_path = !is_quoted && name.as_str().ends_with(':') && text[start..].starts_with(':');
            if is_path || !is_secret(&text[start..], is_quoted) {
                continue;
            }
            from = start + length(&text[start..], is_quoted);
            return Some(start..from);
        }
    })
}

/// Whether a secret begins `text`, by its first bytes.
fn is_secret(text: &str, is_quoted: bool) -> bool {
    let begins = &text[..text.floor_char_boundary(JUDGED)];
    let value = &begins[..length(begins, is_quoted)];
    value.len() >= SHORTEST
        && is_random(value, LEAST_BITS)
        && !is_variable(value)
        && (is_quoted || !is_code(value))
}

/// How long the value is that begins `text`, in bytes.
fn length(text: &str, is_quoted: bool) -> usize {
    let is_end = |char: char| char.is_whitespace() || matches!(char, '"' | '\'' | '`' | '\\');
    if is_quoted {
        return text.find(is_end).unwrap_or(text.len());
    }
    let bytes = text.as_bytes();
    let end = bytes.iter().enumerate().position(|(at, byte)| {
        step();
        let is_part = byte.is_ascii_alphanumeric() || b"_+/=.~!@#$%^&*,():;?-".contains(byte);
        !is_part || matches!(byte, b',' | b';') && begins_setting(&text[at + 1..])
    });
    without_punctuation(&text[..end.unwrap_or(text.len())]).len()
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
