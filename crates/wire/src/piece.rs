//! Sixteen bytes looked at together by arithmetic: quicker than a search of the standard kind where what is sought is near.

/// Bytes that are looked at together.
pub(crate) const PIECE: usize = 16;

const ONES: u128 = u128::MAX / 0xff;
const HIGHEST: u128 = ONES << 7;

/// How many bytes are before the first backslash; all, if there is none.
pub(crate) fn before_backslash(piece: &[u8; PIECE]) -> usize {
    first(marks(piece, b'\\'))
}

/// How many bytes are before the first backslash or quote; all, if there is none.
pub(crate) fn before_escape_or_end(piece: &[u8; PIECE]) -> usize {
    first(marks(piece, b'\\') | marks(piece, b'"'))
}

/// The highest bit of the first byte that is `sought`, perhaps those of some after it, and of none before it.
fn marks(piece: &[u8; PIECE], sought: u8) -> u128 {
    // What is sought is 0 here. Subtracting 1 from every byte borrows at the first 0 first.
    let bytes = u128::from_le_bytes(*piece) ^ (ONES * u128::from(sought));
    bytes.wrapping_sub(ONES) & !bytes & HIGHEST
}

fn first(marks: u128) -> usize {
    (marks.trailing_zeros() / u8::BITS) as usize
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
