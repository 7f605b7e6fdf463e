//! The parts of the bodies of records: hashes of a fixed length, and decimal numbers.

use crate::identity::Hash;

/// Hexadecimal digits of a hash.
pub const DIGITS: usize = 32;

/// A decimal number without a sign.
pub fn parse_number(digits: &[u8]) -> Option<u64> {
    let is_plain = digits.iter().all(u8::is_ascii_digit);
    is_plain.then(|| std::str::from_utf8(digits).ok()?.parse().ok())?
}

/// A hash of [`DIGITS`] digits.
pub fn parse_hash(digits: &[u8]) -> Option<Hash> {
    let is_plain = digits.len() == DIGITS && digits.iter().all(u8::is_ascii_hexdigit);
    is_plain.then(|| u128::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok().map(Hash))?
}

/// The hash at the beginning of a body, and the rest.
pub fn split_hash(body: &[u8]) -> Option<(Hash, &[u8])> {
    let (hash, rest) = body.split_at_checked(DIGITS)?;
    Some((parse_hash(hash)?, rest))
}
