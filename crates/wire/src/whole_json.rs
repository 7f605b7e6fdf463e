//! An incremental check whether the arguments of a streamed call are one complete JSON value yet, in constant time for
//! each byte. Goes by brackets and quotes alone, and does not validate the JSON.

use serde::de::IgnoredAny;

/// The longest number or literal that is taken for arguments.
const LONGEST_SCALAR: usize = 64;

/// What has come of a JSON text that is itself written within a JSON string, escapes and all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wholeness {
    /// Bytes of an escape of the outer string that is not complete: `\\`, or `\\u` and up to three digits.
    escape: Vec<u8>,
    /// Open objects and arrays.
    depth: usize,
    /// More was closed than opened, or something follows the value.
    broken: bool,
    within: Within,
    /// The beginning of a number or a literal outside of objects and lists.
    scalar: Vec<u8>,
    /// Something other than white space has come.
    started: bool,
    /// The value has ended.
    ended: bool,
}

/// What of the JSON text the next byte is part of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Within {
    #[default]
    Structure,
    String,
    /// Right after a backslash in a string.
    Escape,
    /// A number or a literal.
    Scalar,
}

impl Wholeness {
    /// Takes the next bytes, as written between the quotes of the outer string.
    pub fn push(&mut self, raw: &[u8]) {
        for byte in raw {
            self.byte(*byte);
        }
    }

    /// Whether one value has come, and nothing after it.
    pub fn is_whole(&self) -> bool {
        let ended = self.ended || (self.depth == 0 && self.within == Within::Scalar);
        let is_value = self.scalar.is_empty() || serde_json::from_slice::<IgnoredAny>(&self.scalar).is_ok();
        ended && is_value && !self.broken && self.escape.is_empty()
    }

    /// Whether nothing but white space has come.
    pub fn is_blank(&self) -> bool {
        !self.started && self.escape.is_empty()
    }

    /// One byte of the outer string: resolves its escapes.
    fn byte(&mut self, byte: u8) {
        match (self.escape.as_slice(), byte) {
            ([], b'\\') => self.escape.push(byte),
            ([], _) => self.character(byte),
            ([_], b'u') => self.escape.push(byte),
            ([_], _) => {
                self.escape.clear();
                self.character(match byte {
                    b'n' | b'r' | b't' | b'b' | b'f' => b' ',
                    other => other,
                });
            }
            ([_, _, digits @ ..], _) if digits.len() < 3 => self.escape.push(byte),
            ([_, _, digits @ ..], _) => {
                let code = digits.iter().chain([&byte]).try_fold(0_u32, |code, digit| {
                    char::from(*digit).to_digit(16).map(|digit| code * 16 + digit)
                });
                self.escape.clear();
                self.character(
                    code.and_then(|code| u8::try_from(code).ok()).filter(u8::is_ascii).unwrap_or(b'?'),
                );
            }
        }
    }

    /// One character of the JSON text; one beyond ASCII is given as any byte beyond ASCII.
    fn character(&mut self, byte: u8) {
        let is_space = byte.is_ascii_whitespace();
        self.started |= !is_space;
        match (self.within, byte) {
            (Within::Escape, _) | (Within::String, b'\\') => {
                self.within = if self.within == Within::Escape { Within::String } else { Within::Escape };
            }
            (Within::String, b'"') => {
                self.within = Within::Structure;
                self.ended |= self.depth == 0;
            }
            (Within::String, _) => {}
            (Within::Scalar, _) if !is_space && !b",:]}[{\"".contains(&byte) => self.add_scalar(byte),
            _ => self.structure(byte, is_space),
        }
    }

    fn structure(&mut self, byte: u8, is_space: bool) {
        if self.within == Within::Scalar {
            self.within = Within::Structure;
            self.ended |= self.depth == 0;
        }
        if is_space {
            return;
        }
        self.broken |= self.ended;
        match byte {
            b'"' => self.within = Within::String,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => match self.depth.checked_sub(1) {
                Some(depth) => {
                    self.depth = depth;
                    self.ended |= depth == 0;
                }
                None => self.broken = true,
            },
            b',' | b':' => self.broken |= self.depth == 0,
            _ => {
                self.within = Within::Scalar;
                self.add_scalar(byte);
            }
        }
    }

    fn add_scalar(&mut self, byte: u8) {
        // One byte more than a scalar may have, so that a longer one is no value.
        if self.depth == 0 && self.scalar.len() <= LONGEST_SCALAR {
            let is_too_long = self.scalar.len() == LONGEST_SCALAR;
            self.scalar.push(if is_too_long { b'?' } else { byte });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::escape_into;
    use proptest::prelude::*;

    fn read(text: &str, cut: usize) -> Wholeness {
        let mut raw = Vec::new();
        escape_into(text, &mut raw);
        let mut wholeness = Wholeness::default();
        let (left, right) = raw.split_at(cut.min(raw.len()));
        wholeness.push(left);
        wholeness.push(right);
        wholeness
    }

    #[test]
    fn a_value_is_whole_once_its_last_bracket_or_quote_has_come() {
        for (text, whole, blank) in [
            ("", false, true),
            (" \n", false, true),
            ("{", false, false),
            ("{}", true, false),
            ("{} \n", true, false),
            ("{\"a\":\"}\"", false, false),
            ("{\"a\":\"\\\"}\"}", true, false),
            ("[1,[2]]", true, false),
            ("\"a\"", true, false),
            ("12", true, false),
            ("null", true, false),
            ("-1.5e3", true, false),
            ("broken", false, false),
            ("{\"a\":broken}", true, false),
            ("{}{}", false, false),
            ("{}x", false, false),
            ("}", false, false),
        ] {
            for cut in 0..text.len() * 2 {
                let wholeness = read(text, cut);
                assert_eq!(
                    (wholeness.is_whole(), wholeness.is_blank()),
                    (whole, blank),
                    "{text:?} cut at {cut}"
                );
            }
        }
    }

    #[test]
    fn escaped_brackets_and_quotes_of_the_outer_string_count_as_what_they_are() {
        let mut wholeness = Wholeness::default();
        wholeness.push(br"\u007b\u0022a\u0022:1\u00");
        assert!(!wholeness.is_whole());
        wholeness.push(b"7D");
        assert!(wholeness.is_whole());
    }

    proptest! {
        #[test]
        fn every_json_value_is_whole_and_none_of_its_beginnings_is(
            text in r#"(\{"[a-z\\"{}]{0,4}"|\[1, )"#,
            value in prop::collection::vec(any::<String>(), 0..4),
        ) {
            let json = serde_json::to_string(&value).unwrap();
            prop_assert!(read(&json, 3).is_whole());
            for end in 1..json.len() {
                if json.is_char_boundary(end) {
                    prop_assert!(!read(&json[..end], 2).is_whole(), "{}", &json[..end]);
                }
            }
            prop_assert!(!read(&text, 1).is_whole() || serde_json::from_str::<serde_json::Value>(&text).is_ok());
        }
    }
}
