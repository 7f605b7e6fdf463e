//! The first characters of a JSON string, for callers that need no more of a long one. Cuts no character in two.

use super::body::{Span, Str};
use super::json::decode;
use std::borrow::Cow;

/// The first `characters` of a string, decoded. Looks at no more bytes than these take.
pub fn first_characters(text: Str, body: &[u8], characters: usize) -> Cow<'_, str> {
    let raw = text.raw(body);
    let mut end = 0;
    for _ in 0..characters {
        end += raw.get(end..).map_or(0, character_bytes);
    }
    let start = text.span.range().start;
    decode(Str { span: Span::new(start, start + end.min(raw.len())), ..text }, body)
}

/// How many characters a string has, each escape one. It must have no half of a surrogate pair.
pub fn characters(raw: &[u8]) -> usize {
    let (mut at, mut count) = (0, 0);
    while at < raw.len() {
        at += character_bytes(&raw[at..]);
        count += 1;
    }
    count
}

/// How many bytes the first character of a string takes, escapes as written.
fn character_bytes(raw: &[u8]) -> usize {
    match raw {
        [] => 0,
        // Half of a pair, whose other half follows.
        [b'\\', b'u', b'd' | b'D', b'8'..=b'9' | b'a'..=b'b' | b'A'..=b'B', ..] => 12,
        [b'\\', b'u', ..] => 6,
        [b'\\', ..] => 2,
        [first, ..] => first.leading_ones().max(1) as usize,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_escape_is_one_character_and_so_is_a_pair_of_surrogates() {
        for (raw, count) in [
            ("", 0),
            ("abc", 3),
            (r"a\nb", 3),
            (r"\\\\", 2),
            (r#"\\\""#, 2),
            (r"\u4e2d\ud83d\ude00x", 3),
            ("é中😀", 3),
        ] {
            assert_eq!(characters(raw.as_bytes()), count, "{raw}");
        }
    }
}
