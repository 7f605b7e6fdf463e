//! Looks at 16 or 64 bytes of JSON text together, by vector instructions: which of them are quotes or backslashes. Quicker than
//! a search where the next one is near.

use wide::u8x16;

/// Bytes that are looked at together.
pub(crate) const PIECE: usize = u8x16::LANES as usize;
/// Bytes of a string with escapes that are looked at together: one bit of an integer for each.
pub(crate) const BLOCK: usize = u64::BITS as usize;

/// How many bytes are before the first backslash; all, if there is none.
#[inline]
pub(crate) fn before_backslash(piece: &[u8; PIECE]) -> usize {
    first(equal_to(piece, b'\\'))
}

/// In so many pieces a backslash or quote is near. A search of the standard kind costs as much as eight of them before it begins.
const NEAR: usize = 8;

/// How many bytes are before the first backslash or quote; `None` where none is near.
#[inline]
pub(crate) fn near_escape_or_end(text: &[u8]) -> Option<usize> {
    let (pieces, _) = text.as_chunks();
    let mut before = 0;
    for piece in pieces.iter().take(NEAR) {
        let within = first(equal_to(piece, b'\\') | equal_to(piece, b'"'));
        before += within;
        if within < PIECE {
            return Some(before);
        }
    }
    None
}

/// One bit for each byte of the block, the lowest for the first: set where it is `byte`.
#[inline]
pub(crate) fn positions_of(byte: u8, block: &[u8; BLOCK]) -> u64 {
    let (pieces, _) = block.as_chunks();
    let bits_of = |index: usize| u64::from(equal_to(&pieces[index], byte).to_bitmask()) << (index * PIECE);
    bits_of(0) | bits_of(1) | bits_of(2) | bits_of(3)
}

/// All bits of each byte that is `byte`.
#[inline]
fn equal_to(piece: &[u8; PIECE], byte: u8) -> u8x16 {
    u8x16::from(*piece).simd_eq(u8x16::splat(byte))
}

/// How many bytes are before the first that is set; all, if none is.
#[inline]
fn first(set: u8x16) -> usize {
    (set.to_bitmask() | 1 << PIECE).trailing_zeros() as usize
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
        }

        #[test]
        fn an_escape_or_end_is_found_where_it_is_near(
            plain in 0_usize..200,
            first in prop::sample::select(&b"\\\""[..]),
            rest in 0_usize..40,
        ) {
            let text = [vec![0xe9; plain], vec![first], vec![b'"'; rest]].concat();
            let whole_pieces = text.len() / PIECE * PIECE;
            let is_near = plain < whole_pieces.min(NEAR * PIECE);
            prop_assert_eq!(near_escape_or_end(&text), is_near.then_some(plain));
        }

        #[test]
        fn each_byte_of_a_block_that_is_sought_has_its_bit(
            block in prop::collection::vec(prop::sample::select(&b"\"\\na\xe9"[..]), BLOCK)
        ) {
            let block: [u8; BLOCK] = block.try_into().unwrap();
            for sought in [b'"', b'\\', b'n'] {
                let positions = positions_of(sought, &block);
                for (index, byte) in block.into_iter().enumerate() {
                    prop_assert_eq!(positions >> index & 1 == 1, byte == sought);
                }
            }
        }
    }
}
