//! SIMD-style bit masks of a block of a JSON string: which of its bytes are quotes or backslashes, and which follow a
//! backslash, all at once. Arithmetic alone; the scanner interprets it.

/// How many bytes of a string are looked at together.
pub(super) const BLOCK: usize = 64;

/// The quotes and backslashes of a block, by columns: see [`columns_of`]. Most of what the scanner asks of a block is
/// answered so, without bringing the bits into the order of the bytes: 110 instructions a block of escaped text instead
/// of 230.
pub(super) struct Columns {
    quotes: u64,
    slashes: u64,
}

impl Columns {
    #[inline(always)]
    pub(super) fn of(block: &[u8; BLOCK]) -> Self {
        Self {
            quotes: columns_of(block, |byte| byte == b'"'),
            slashes: columns_of(block, |byte| byte == b'\\'),
        }
    }

    /// Passes a block of a string in which it does not end and every escape is a usual one. Says whether
    /// the last byte is the backslash of an escape, as `open` says of the block before (one or none); `None` where the
    /// block takes a closer look.
    #[inline(always)]
    pub(crate) fn pass(&self, block: &[u8; BLOCK], open: u64) -> Option<u64> {
        let escaped = next_places(self.slashes) | open;
        if (escaped & self.slashes) | (self.quotes & !escaped) != 0 {
            return None;
        }
        let mut letters = escaped & !self.quotes;
        while letters != 0 {
            let bit = letters.trailing_zeros() as usize;
            letters &= letters - 1;
            if !IS_USUAL_ESCAPE[usize::from(block[bit % 8 * 8 + bit / 8])] {
                return None;
            }
        }
        Some(self.slashes >> (BLOCK - 1))
    }

    /// The quotes, and the backslashes, in the order of the bytes.
    #[inline(always)]
    pub(super) fn in_order(&self) -> (u64, u64) {
        (transposed(self.quotes), transposed(self.slashes))
    }
}

/// Whether a byte and the backslash before it are an escape that every JSON library writes in the same way.
pub(super) static IS_USUAL_ESCAPE: [bool; 256] = {
    let mut usual = [false; 256];
    let mut at = 0;
    while at < USUAL_ESCAPES.len() {
        usual[USUAL_ESCAPES[at] as usize] = true;
        at += 1;
    }
    usual
};
const USUAL_ESCAPES: &[u8] = br#""\nrt"#;

/// The positions after those in `columns`, within the block.
#[inline(always)]
fn next_places(columns: u64) -> u64 {
    // After the last column comes the first one of the next row.
    columns << 8 | (columns >> 55 & 0xFE)
}

/// One bit for each byte of the block for which `is` holds, by columns: each byte of the integer is a column of eight
/// bytes, its bits for the rows. Loops of fixed length, which compile to vector instructions: where a text has many
/// escapes, a call of `memchr2` for each costs more than all else.
#[inline(always)]
fn columns_of(block: &[u8; BLOCK], is: impl Fn(u8) -> bool) -> u64 {
    // Two rows of bits for each quarter, so that the four are put together by sixteens.
    let mut bits = [0; 16];
    for at in 0..bits.len() {
        let bit =
            |quarter: usize| if is(block[16 * quarter + at]) { 1 << (2 * quarter + at / 8) } else { 0_u8 };
        bits[at] = bit(0) | bit(1) | bit(2) | bit(3);
    }
    let (words, _) = bits.as_chunks::<8>();
    words.iter().fold(0, |union, word| union | u64::from_le_bytes(*word))
}

/// The positions right after the backslash of an escape, all at once: of a run of backslashes every second one is
/// itself escaped. `open` carries an escape over from block to block (Langdale and Lemire, Parsing Gigabytes of JSON
/// per Second, section 3.1.1).
#[inline(always)]
pub(super) fn after_backslash(slashes: u64, open: &mut u64) -> u64 {
    const EVEN: u64 = u64::MAX / 3;
    let slashes = slashes & !*open;
    let followers = slashes << 1 | *open;
    let (runs, overflow) = (slashes & !EVEN & !followers).overflowing_add(slashes);
    *open = u64::from(overflow);
    (EVEN ^ runs << 1) & followers
}

/// Eight by eight bits with rows and columns exchanged (Warren, Hacker's Delight, section 7-3).
#[inline(always)]
fn transposed(mut bits: u64) -> u64 {
    for (shift, mask) in
        [(7, 0x00AA_00AA_00AA_00AA), (14, 0x0000_CCCC_0000_CCCC), (28, 0x0000_0000_F0F0_F0F0)]
    {
        let moved = (bits ^ bits >> shift) & mask;
        bits ^= moved ^ moved << shift;
    }
    bits
}
