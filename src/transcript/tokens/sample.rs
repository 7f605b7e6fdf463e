//! The token estimate of a long string from samples of it: for who wants to know about how much there is.
//! Responsible for what is read of a string, and for reading it in its place; what characters cost is the estimate's.

use super::{BLOCK, Estimate, Scan, estimate_json};

/// Strings of so many bytes are always counted whole.
const SHORT: usize = 4 * BLOCK;

/// The same as [`estimate_json`], of a long string from one block in so many, spread evenly over it. Every block is read
/// in its place: from the beginning of a character on, and behind the two characters that stand before it.
pub fn sample_json(raw: &[u8], one_in: usize) -> Estimate {
    if raw.len() <= SHORT || one_in <= 1 {
        return estimate_json(raw);
    }
    let pieces = (raw.len() / (BLOCK * one_in)).max(1);
    let part = raw.len() / pieces;
    let (mut scan, mut seen) = (Scan::new(), 0);
    for piece in 0..pieces {
        let at = piece * part + (part - BLOCK) / 2;
        seen += scan.read_piece(&raw[at + into_character(&raw[at - LONGEST..at], &raw[at..])..]);
    }
    Estimate(scan.cost.saturating_mul(raw.len() as u64) / (seen as u64).max(1))
}

impl Scan {
    /// Reads a block or so of JSON behind the first two characters, and says how many bytes that was.
    fn read_piece(&mut self, bytes: &[u8]) -> usize {
        let (before, mut at) = (self.cost, 0);
        for _ in 0..2 {
            at += if at < bytes.len() { self.read_character(&bytes[at..], true) } else { 0 };
        }
        self.cost = before;
        let start = at;
        while at < start + BLOCK / 2 {
            let Some(block) = bytes[at..].first_chunk() else { break };
            let read = self.read_block(block, BLOCK, true);
            at += if read > 0 { read } else { self.read_slowly(&bytes[at..], true) };
        }
        at - start
    }
}

/// Bytes of a character but for its last one, in the longest spelling that is looked for: `\u00e9`.
const LONGEST: usize = 5;

/// How many of the bytes `behind` still belong to a character, escaped or not, that begins in those `before`. Where that
/// cannot be told, as behind two backslashes, perhaps a few too many.
fn into_character(before: &[u8], behind: &[u8]) -> usize {
    let goes_on = behind.iter().take(3).take_while(|byte| (0x80..0xC0).contains(*byte)).count();
    let Some(slash) = before.iter().rposition(|byte| *byte == b'\\') else { return goes_on };
    let letter = before.get(slash + 1).or(behind.first());
    let length = if letter == Some(&b'u') { LONGEST + 1 } else { 2 };
    (slash + length).saturating_sub(before.len()).max(goes_on)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_sample_comes_near_the_whole() {
        let mixed = "word ".repeat(800) + &r#"{\"id\": 1}\n"#.repeat(300);
        for long in [
            &mixed,
            &"中文，字。".repeat(300),
            &r"\u4e2d\u6587\uff0c\u5b57".repeat(300),
            &r"\n\\".repeat(900),
        ] {
            for one_in in [2, 4, 9, 30] {
                let [sample, whole] = [sample_json(long.as_bytes(), one_in), estimate_json(long.as_bytes())]
                    .map(Estimate::tokens);
                assert!(sample.abs_diff(whole) < whole / 10, "{one_in} {sample} {whole} {}", &long[..15]);
            }
        }
    }

    #[test]
    fn a_short_string_is_counted_whole() {
        let short = "word, ".repeat(SHORT);
        for length in [0, 1, SHORT - 1, SHORT] {
            let short = &short.as_bytes()[..length];
            assert_eq!(sample_json(short, 9), estimate_json(short));
        }
        assert_ne!(sample_json(short.as_bytes(), 9), Estimate::ZERO);
    }

    #[test]
    fn a_sample_begins_with_a_whole_character() {
        for (before, behind, more) in [
            ("abcde", "fgh", 0),
            ("abcd\\", "nfg", 1),
            ("abc\\n", "fgh", 0),
            (r"\u00e", "9fg", 1),
            (r"abcd\", "u00e9f", 5),
            (r"abc\u", "00e9f", 4),
        ] {
            assert_eq!(into_character(before.as_bytes(), behind.as_bytes()), more, "{before} {behind}");
        }
        assert_eq!(into_character("a中".as_bytes(), &"文b".as_bytes()[1..]), 2);
    }

    proptest! {
        #[test]
        fn any_bytes_are_sampled_without_a_panic(
            bytes in prop::collection::vec(prop_oneof![Just(b'\\'), Just(b'u'), Just(b'8'), any::<u8>()], 0..2_000),
            one_in in 0_usize..40,
        ) {
            sample_json(&bytes, one_in);
        }
    }
}
