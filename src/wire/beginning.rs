//! The beginning of a JSON string, for who reads no more of a long one. Reads; cuts no character in two.

use super::body::block::{BLOCK, any, behind_backslash, marks};
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
    let (blocks, rest) = raw.as_chunks::<BLOCK>();
    // No character begins in what the last block is filled up with.
    let mut last = [GOES_ON; BLOCK];
    last[..rest.len()].copy_from_slice(rest);
    let (mut open, mut count) = (0, 0);
    for (at, block) in blocks.iter().chain([&last]).enumerate() {
        count += begins(block);
        let slashes = if any(block, |byte| byte == b'\\') { marks(block, |byte| byte == b'\\') } else { 0 };
        let mut escaped = if slashes | open == 0 { 0 } else { behind_backslash(slashes, &mut open) };
        while escaped != 0 {
            let place = at * BLOCK + escaped.trailing_zeros() as usize;
            count = count.saturating_sub(raw.get(place..).map_or(0, spelled));
            escaped &= escaped - 1;
        }
    }
    count
}

/// A byte that goes on with a character.
const GOES_ON: u8 = 0x80;

/// Every byte but those that go on with a character.
#[inline(always)]
fn begins(block: &[u8; BLOCK]) -> usize {
    let count: u8 = block.iter().map(|byte| u8::from(byte & 0xC0 != GOES_ON)).sum();
    count.into()
}

/// By how many bytes an escape is longer than what it stands for, from what follows its backslash on. The one for the
/// first half of a pair answers for what the whole pair has too many.
fn spelled(rest: &[u8]) -> usize {
    match rest {
        [b'u', b'd' | b'D', b'8'..=b'9' | b'a'..=b'b' | b'A'..=b'B', ..] => 6,
        [b'u', ..] => 5,
        _ => 1,
    }
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

    /// The same, one character after the other.
    fn plainly(raw: &[u8]) -> usize {
        let (mut at, mut count) = (0, 0);
        while at < raw.len() {
            at += character_bytes(&raw[at..]);
            count += 1;
        }
        count
    }

    #[test]
    fn characters_are_counted_alike_wherever_they_stand() {
        for special in
            [r"\n", r"\\\\", r#"\\\""#, r"\u4e2d", r"\ud83d\ude00", r"\uD83D\uDE00", "é", "中文", "😀", ""]
        {
            for at in 0..2 * BLOCK + 2 {
                let raw = format!("{}{special}{special}{}", "a".repeat(at), "b\\t ".repeat(at % 40));
                assert_eq!(characters(raw.as_bytes()), plainly(raw.as_bytes()), "{raw}");
            }
        }
    }
}
