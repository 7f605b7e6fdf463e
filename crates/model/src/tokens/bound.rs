//! An upper bound of the token estimate, from a few comparisons for each byte: for callers that only need to know
//! whether a text fits. Never less than the estimate.

use super::Estimate;

/// More than [`estimate_json`](super::estimate_json), found in a tenth of its time: for callers that only need to
/// know whether a text fits. About two or three times as much for prose and code. `raw` is UTF-8.
pub fn most_json(raw: &[u8]) -> Estimate {
    // The first byte may be a digit.
    let first = raw.first().map_or(0, |_| MOST_OF_ANY);
    let (before, after) = (raw, raw.get(1..).unwrap_or_default());
    let chunks = before.chunks(MOST_CHUNK).zip(after.chunks(MOST_CHUNK));
    let sum: u64 = chunks.map(|(before, after)| most_of_chunk(before, after)).sum();
    Estimate((first + sum) * MOST_UNIT)
}

/// The unit of what follows, in hundredths of a token.
const MOST_UNIT: u64 = 4;
/// Bytes that are processed together.
const LANES: usize = 16;
/// Bytes whose counts the lanes of 8 bits hold.
const MOST_CHUNK: usize = LANES * u8::MAX as usize;

/// The sum of what the bytes `after` cost at most, each after its counterpart in `before`.
fn most_of_chunk(before: &[u8], after: &[u8]) -> u64 {
    // Loops of fixed length, which compile to vector instructions.
    let [mut pairs, mut spaces, mut doubles, mut digits] = [[0_u8; LANES]; 4];
    let ((before, _), (after, rest)) = (before.as_chunks::<LANES>(), after.as_chunks::<LANES>());
    for (before, after) in before.iter().zip(after) {
        for at in 0..LANES {
            let (before, byte) = (before[at], after[at]);
            pairs[at] += u8::from(is_lower(before) & is_lower(byte));
            spaces[at] += u8::from(byte == b' ');
            doubles[at] += u8::from((before == b' ') & (byte == b' '));
            digits[at] += u8::from(is_digit(byte));
        }
    }
    let sum = |counts: [u8; LANES]| counts.iter().map(|count| u64::from(*count)).sum::<u64>();
    let (pairs, spaces, doubles, digits) = (sum(pairs), sum(spaces), sum(doubles), sum(digits));
    let others = (LANES * after.len()) as u64 - pairs - spaces - digits;
    // Too few for the exact bytes before them.
    let rest = rest.len() as u64 * MOST_OF_ANY;
    pairs * MOST_OF_PAIR + doubles * MOST_OF_DOUBLE + digits * MOST_OF_ANY + others * MOST_OF_OTHER + rest
}

fn is_lower(byte: u8) -> bool {
    byte.wrapping_sub(b'a') < 26
}

fn is_digit(byte: u8) -> bool {
    byte.wrapping_sub(b'0') < 10
}

/// No byte costs more: the dearest of those that are not distinguished is a letter of two bytes after a digit, 285
/// hundredths.
const MOST_OF_ANY: u64 = 50;
/// Any other byte, but for a space after something else, which costs nothing. The byte before it may be of another class than
/// it looks, if it is part of an escape, so a word after `\n` is one more; the two bytes of the escape count for three.
const MOST_OF_OTHER: u64 = 36;
/// A small letter after another.
const MOST_OF_PAIR: u64 = 1;
/// A space after another.
const MOST_OF_DOUBLE: u64 = 12;
