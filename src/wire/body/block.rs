//! A block of a JSON string as bits: which of its bytes are marks, and which stand behind a backslash, all at once.
//! Arithmetic alone; what a string is, the scanner knows.

/// How many bytes of a string are looked at together.
pub const BLOCK: usize = 64;

/// Whether `is` holds for any byte of the block.
#[inline(always)]
pub fn any(block: &[u8; BLOCK], is: impl Fn(u8) -> bool) -> bool {
    block.iter().fold(false, |found, &byte| found | is(byte))
}

/// One bit for each byte of the block for which `is` holds, the lowest for the first.
#[inline(always)]
pub fn marks(block: &[u8; BLOCK], is: impl Fn(u8) -> bool) -> u64 {
    transposed(columns_of(block, is))
}

/// One bit for each byte of the block for which `is` holds, by columns: each byte of the word stands for a column of
/// eight bytes, its bits for the rows. Loops of fixed length, which compile to vector instructions: where a text has
/// many escapes, a call of `memchr2` for each costs more than all else.
#[inline(always)]
pub(super) fn columns_of(block: &[u8; BLOCK], is: impl Fn(u8) -> bool) -> u64 {
    let mut bits = [0; BLOCK];
    for at in 0..BLOCK {
        bits[at] = if is(block[at]) { 1 << (at / 8) } else { 0 };
    }
    let (words, _) = bits.as_chunks::<8>();
    words.iter().fold(0, |union, word| union | u64::from_le_bytes(*word))
}

/// The places right behind the backslash of an escape, all at once: of a run of backslashes every second one is
/// itself escaped. `open` carries an escape over from block to block (Langdale and Lemire, Parsing Gigabytes of JSON
/// per Second, section 3.1.1).
pub fn behind_backslash(slashes: u64, open: &mut u64) -> u64 {
    const EVEN: u64 = u64::MAX / 3;
    let slashes = slashes & !*open;
    let followers = slashes << 1 | *open;
    let (runs, overflow) = (slashes & !EVEN & !followers).overflowing_add(slashes);
    *open = u64::from(overflow);
    (EVEN ^ runs << 1) & followers
}

/// Eight by eight bits with rows and columns exchanged (Warren, Hacker's Delight, section 7-3).
pub(super) fn transposed(mut bits: u64) -> u64 {
    for (shift, mask) in
        [(7, 0x00AA_00AA_00AA_00AA), (14, 0x0000_CCCC_0000_CCCC), (28, 0x0000_0000_F0F0_F0F0)]
    {
        let moved = (bits ^ bits >> shift) & mask;
        bits ^= moved ^ moved << shift;
    }
    bits
}
