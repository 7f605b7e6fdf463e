//! Sixteen bytes looked at together by arithmetic: quicker than a search of the standard kind where what is sought is near.

/// Bytes that are looked at together, in two halves.
pub(crate) const PIECE: usize = 2 * HALF;
const HALF: usize = size_of::<u64>();

const ONES: u64 = u64::MAX / 0xff;
const HIGHEST: u64 = ONES << 7;

/// How many bytes are before the first backslash; all, if there is none.
#[inline]
pub(crate) fn before_backslash(piece: &[u8; PIECE]) -> usize {
    first(piece, |half| marks(half, b'\\'))
}

/// How many bytes are before the first backslash or quote; all, if there is none.
#[inline]
pub(crate) fn before_escape_or_end(piece: &[u8; PIECE]) -> usize {
    first(piece, |half| marks(half, b'\\') | marks(half, b'"'))
}

/// The highest bit of the first byte that is `sought`, perhaps those of some after it, and of none before it.
#[inline]
fn marks(half: u64, sought: u8) -> u64 {
    // What is sought is 0 here. Subtracting 1 from every byte borrows at the first 0 first.
    let bytes = half ^ (ONES * u64::from(sought));
    bytes.wrapping_sub(ONES) & !bytes & HIGHEST
}

/// How many bytes are before the first that has a mark; all, if none has.
#[inline]
fn first(piece: &[u8; PIECE], marks: impl Fn(u64) -> u64) -> usize {
    let (halves, _) = piece.as_chunks::<HALF>();
    let mut before = 0;
    for half in halves {
        let marks = marks(u64::from_le_bytes(*half));
        if marks != 0 {
            return before + (marks.trailing_zeros() / u8::BITS) as usize;
        }
        before += HALF;
    }
    before
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_of_the_bytes_that_are_sought_is_found(
            piece in prop::array::uniform16(prop::sample::select(&b"\\\"a\x00\x01\xff[]!#\x5d"[..]))
        ) {
            let before = |is: &dyn Fn(u8) -> bool| piece.iter().position(|byte| is(*byte)).unwrap_or(PIECE);
            prop_assert_eq!(before_backslash(&piece), before(&|byte| byte == b'\\'));
            prop_assert_eq!(before_escape_or_end(&piece), before(&|byte| matches!(byte, b'\\' | b'"')));
        }
    }
}
