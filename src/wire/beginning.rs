//! The beginning of a JSON string, for who reads no more of a long one. Reads; cuts no character in two.

use super::body::{Span, Str};
use super::json::decode;
use std::borrow::Cow;

/// The first `characters` of a string, decoded: no more bytes are looked at than these take.
pub fn beginning(text: Str, body: &[u8], characters: usize) -> Cow<'_, str> {
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
    // Every byte but those that go on with a character.
    let written = raw.iter().filter(|byte| *byte & 0xc0 != 0x80).count();
    let (mut spelled, mut at) = (0, 0);
    // Escapes lie so close in code and JSON that a search for each would cost more than a look at every byte.
    while let Some(byte) = raw.get(at) {
        let bytes = if *byte == b'\\' { character_bytes(&raw[at..]) } else { 1 };
        // All bytes of an escape but one.
        spelled += bytes - 1;
        at += bytes;
    }
    written - spelled
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
