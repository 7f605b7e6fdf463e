//! The token estimate: how many tokens a text is, judged by the classes of its characters.
//!
//! Gives one number per text, the same for a JSON string as written and for its decoded text, and adds such numbers. It
//! holds no vocabulary and learns nothing: ratios per model, billed usage and what counts as a message belong to its
//! callers. Estimates are fixed point, so sums depend neither on order nor on the machine.
//!
//! Every character costs what the table `COST` says for its class and the classes of the two characters before it.
//! The table is a rule (`cost`) with constants fitted to o200k counts of 9 MB of agents' messages, tool results, call
//! arguments, tool schemas, source code and prose in 24 languages. Because a cost looks back only, a longer text never
//! counts less than its beginning.

mod bound;

pub use bound::most_json;

use std::iter::Sum;
use std::ops::{Add, AddAssign};

/// The framing of a message: 3 tokens of separators and 1 for the role, as OpenAI's cookbook ("How to count tokens
/// with tiktoken") counts them for gpt-4o and its successors.
pub const MESSAGE_OVERHEAD: Estimate = Estimate(400);

/// The framing of a tool definition: 7 tokens, the same cookbook's `func_init` for gpt-4o.
pub const TOOL_SCHEMA: Estimate = Estimate(700);

/// An estimated number of tokens, kept in hundredths of a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Estimate(u64);

impl Estimate {
    /// No tokens.
    pub const ZERO: Self = Self(0);

    /// An estimate of so many whole tokens.
    pub const fn of_tokens(tokens: u32) -> Self {
        Self(tokens as u64 * 100)
    }

    /// The inverse of [`hundredths`](Self::hundredths).
    pub const fn of_hundredths(hundredths: u64) -> Self {
        Self(hundredths)
    }

    /// An upper bound for the messages of a request, from the number of their bytes.
    pub const fn most_of(bytes: usize) -> Self {
        Self((bytes as u64).saturating_mul(MOST_OF_A_BYTE))
    }

    /// Whole tokens, rounded up.
    pub const fn tokens(self) -> u64 {
        self.0.div_ceil(100)
    }

    /// Hundredths of a token: the exact value.
    pub const fn hundredths(self) -> u64 {
        self.0
    }

    /// This estimate times a factor in percent (100 leaves it as it is), rounded down to a hundredth of a token.
    pub const fn scaled(self, factor_percent: u32) -> Self {
        Self(self.0.saturating_mul(factor_percent as u64) / 100)
    }

    /// The estimate of `bytes` where `counted` of them have this estimate.
    pub const fn in_proportion(self, bytes: usize, counted: usize) -> Self {
        Self(self.0.saturating_mul(bytes as u64) / counted as u64)
    }

    /// The difference of this estimate and another, at least nothing.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for Estimate {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Estimate {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Estimate {
    fn sum<I: Iterator<Item = Self>>(estimates: I) -> Self {
        estimates.fold(Self::ZERO, Add::add)
    }
}

/// Estimates a JSON string from its bytes between the quotes, escapes as written. Accepts any bytes: a broken escape
/// counts as its characters, a byte that is not UTF-8 as one odd character.
pub fn estimate_json(raw: &[u8]) -> Estimate {
    Scan::new().read(raw, true)
}

/// Estimates plain text.
pub fn estimate_text(text: &str) -> Estimate {
    Scan::new().read(text.as_bytes(), false)
}

// Classes of characters, three bits each, so that three of them index `COST`.
const LOWER: u8 = 0; // also every letter outside ASCII
const UPPER: u8 = 1;
const DIGIT: u8 = 2;
const SPACE: u8 = 3;
const NEWLINE: u8 = 4; // also tabs and the other controls
const PUNCT: u8 = 5; // also ideographs and symbols outside ASCII: none of them joins a word
const JOINER: u8 = 6; // `_` and `'`: tokenizers glue them to the letters that follow
const BACKSLASH: u8 = 7;

/// The state of an estimate within a text.
struct Scan {
    /// The classes of the last two characters.
    before: u16,
    cost: u64,
}

impl Scan {
    /// The beginning of a text counts as the beginning of a line.
    fn new() -> Self {
        Self { before: 0o11 * NEWLINE as u16, cost: 0 }
    }

    fn read(mut self, bytes: &[u8], json: bool) -> Estimate {
        let mut at = 0;
        while at < bytes.len() {
            let byte = bytes[at];
            if byte < 0x80 && !(json && byte == b'\\') {
                self.add(CLASSES[usize::from(byte)]);
                at += 1;
            } else {
                let (code, length) = if json { decode_json(&bytes[at..]) } else { decode_utf8(&bytes[at..]) };
                let [class, extra] =
                    if code < 0x80 { [CLASSES[code as usize], 0] } else { beyond_ascii(code) };
                self.add(class);
                self.cost += u64::from(extra);
                at += length;
            }
        }
        Estimate(self.cost)
    }

    /// Adds a character of `class`.
    fn add(&mut self, class: u8) {
        let three = self.before << 3 | u16::from(class);
        self.cost += u64::from(COST[usize::from(three)]);
        self.before = three & 0o77;
    }
}

/// The class of an ASCII character.
const fn class(byte: u8) -> u8 {
    match byte {
        b'a'..=b'z' => LOWER,
        b'A'..=b'Z' => UPPER,
        b'0'..=b'9' => DIGIT,
        b' ' => SPACE,
        0..b' ' => NEWLINE,
        b'_' | b'\'' => JOINER,
        b'\\' => BACKSLASH,
        _ => PUNCT,
    }
}

static CLASSES: [u8; 1 << 8] = classes();

const fn classes() -> [u8; 1 << 8] {
    let mut table = [0; 1 << 8];
    let mut byte = 0;
    while byte < table.len() {
        table[byte] = class(byte as u8);
        byte += 1;
    }
    table
}

/// What a character costs, in hundredths of a token, by its class and those of the two before it: three octal digits,
/// in reading order.
static COST: [u8; 1 << 9] = cost_of_one();

const fn cost_of_one() -> [u8; 1 << 9] {
    let mut table = [0; 1 << 9];
    let mut three = 0;
    while three < table.len() {
        table[three] = cost((three >> 6) as u8, (three >> 3 & 7) as u8, (three & 7) as u8);
        three += 1;
    }
    table
}

/// The most that a text costs for each of its bytes. Two characters in a row never cost more than the dearest two of
/// the table, and those outside ASCII take two bytes or more for what they cost beyond that. The remainder (an odd
/// character, the framing of a message) is less than the cost of the quotes and braces around it.
const MOST_OF_A_BYTE: u64 = most_of_a_byte();

const fn most_of_a_byte() -> u64 {
    let (costs, mut most, mut four) = (cost_of_one(), 0, 0);
    // Four classes; the first two come before the two that are counted.
    while four < 1 << 12 {
        let two = costs[four >> 3] as u32 + costs[four & 0o777] as u32;
        if two.div_ceil(2) > most {
            most = two.div_ceil(2);
        }
        four += 1;
    }
    let (one, mut code) = (most, 0x80);
    while code <= 0x1_0000 {
        let bytes = if code < 0x800 { 2 } else { 3 };
        let dearest = (one + beyond_ascii(code)[1] as u32).div_ceil(bytes);
        if dearest > most {
            most = dearest;
        }
        code += 16;
    }
    most as u64
}

/// The rule: what a character costs, in hundredths of a token, by its class and those of the two before it. The first of
/// a run of one class pays for a token or a part of one, the others a little.
const fn cost(earlier: u8, previous: u8, class: u8) -> u8 {
    match (previous, class) {
        // A word, more where it is long. `\n` in code is one token with its backslash, `_id` with its underscore, and
        // often `.name` with its dot.
        (LOWER, LOWER) if earlier == LOWER => 4,
        (LOWER | UPPER | JOINER, LOWER) | (JOINER, UPPER) => 0,
        (LOWER, UPPER) => 80,
        (UPPER, UPPER) => 20,
        (BACKSLASH, LOWER | UPPER) => 40,
        (PUNCT, LOWER | UPPER) => 60,
        (DIGIT, LOWER | UPPER) => 120,
        (_, LOWER | UPPER) => 90,
        // Digits go in threes, and take no space in front with them as words do.
        (DIGIT, DIGIT) if earlier == DIGIT => 25,
        (DIGIT, DIGIT) => 0,
        (SPACE, DIGIT) => 200,
        (LOWER | UPPER, DIGIT) => 175,
        (_, DIGIT) => 120,
        // One space belongs to the word after it; a run of spaces is one token, however long (indentation).
        (SPACE, SPACE) if earlier != SPACE => 45,
        (_, SPACE) => 0,
        (NEWLINE, NEWLINE) | (PUNCT, PUNCT) | (BACKSLASH, BACKSLASH) => 20,
        // Newlines join punctuation in front of them.
        (PUNCT | JOINER | BACKSLASH, NEWLINE) => 0,
        (SPACE, NEWLINE) => 35,
        (_, NEWLINE) => 105,
        (PUNCT | JOINER, BACKSLASH) => 60,
        (_, BACKSLASH) => 80,
        (PUNCT | JOINER | BACKSLASH, JOINER) => 40,
        (_, JOINER) => 100,
        (JOINER | BACKSLASH, _) => 70,
        (SPACE | NEWLINE, _) => 120,
        (_, _) => 100,
    }
}

/// The class of a character outside ASCII, and what it costs beyond that, in hundredths of a token.
const fn beyond_ascii(code: u32) -> [u8; 2] {
    match code {
        0xC0..=0xFF => [LOWER, 65],
        0x100..=0x24F => [LOWER, 165],
        0x250..=0x3FF => [LOWER, 18],
        0x400..=0x52F => [LOWER, 11],
        0x530..=0x8FF => [LOWER, 14],
        0x900..=0x97F => [LOWER, 3],
        0x980..=0xDFF => [LOWER, 18],
        0xE00..=0x1DFF => [LOWER, 28],
        0x1E00..=0x1EFF => [LOWER, 30],
        0x2000..=0x2BFF => [PUNCT, 15],
        0x3000..=0x303F | 0xFF00..=0xFFEF => [PUNCT, 100],
        0x3040..=0x30FF => [PUNCT, 36],
        0x3400..=0x9FFF => [PUNCT, 41],
        0xAC00..=0xD7AF => [PUNCT, 20],
        0x1_0000.. => [PUNCT, 120],
        _ => [PUNCT, 35],
    }
}

/// What follows a backslash in JSON, but for `u`: the character meant.
const fn simple_escape(byte: u8) -> Option<u8> {
    match byte {
        b'"' | b'\\' | b'/' => Some(byte),
        b'b' => Some(8),
        b'f' => Some(12),
        b'n' => Some(b'\n'),
        b'r' => Some(b'\r'),
        b't' => Some(b'\t'),
        _ => None,
    }
}

/// Represents a byte that is not UTF-8.
const REPLACEMENT: u32 = 0xFFFD;

/// The first character of a JSON string, escaped or not, and the bytes that it takes. `bytes` is not empty.
fn decode_json(bytes: &[u8]) -> (u32, usize) {
    match bytes {
        [b'\\', b'u', rest @ ..] => match (hex(rest), rest.get(4..)) {
            (Some(high @ 0xD800..0xDC00), Some([b'\\', b'u', rest @ ..])) => match hex(rest) {
                Some(low @ 0xDC00..0xE000) => (0x1_0000 + (((high - 0xD800) << 10) | (low - 0xDC00)), 12),
                _ => (high, 6),
            },
            (Some(code), _) => (code, 6),
            (None, _) => (u32::from(b'\\'), 1),
        },
        [b'\\', next, ..] => match simple_escape(*next) {
            Some(meant) => (u32::from(meant), 2),
            None => (u32::from(b'\\'), 1),
        },
        _ => decode_utf8(bytes),
    }
}

fn hex(bytes: &[u8]) -> Option<u32> {
    let digits = bytes.first_chunk::<4>()?;
    digits.iter().try_fold(0, |code, &byte| Some(code << 4 | char::from(byte).to_digit(16)?))
}

/// The first character of a text and the bytes that it takes. `bytes` is not empty.
fn decode_utf8(bytes: &[u8]) -> (u32, usize) {
    let code = |lead: u8, rest: &[u8]| {
        rest.iter().fold(u32::from(lead), |code, byte| code << 6 | u32::from(byte & 0x3F))
    };
    match *bytes {
        [one @ 0..0x80, ..] => (u32::from(one), 1),
        [lead @ 0xC2..0xE0, a @ 0x80..0xC0, ..] => (code(lead & 0x1F, &[a]), 2),
        [lead @ 0xE0..0xF0, a @ 0x80..0xC0, b @ 0x80..0xC0, ..] => (code(lead & 0xF, &[a, b]), 3),
        [lead @ 0xF0..0xF5, a @ 0x80..0xC0, b @ 0x80..0xC0, c @ 0x80..0xC0, ..] => {
            (code(lead & 0x7, &[a, b, c]), 4)
        }
        _ => (REPLACEMENT, 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same estimate by the rule alone, one character after the other.
    fn plainly(bytes: &[u8], json: bool) -> Estimate {
        let (mut at, mut earlier, mut previous, mut sum) = (0, NEWLINE, NEWLINE, 0);
        while at < bytes.len() {
            let rest = &bytes[at..];
            let (code, length) = if json { decode_json(rest) } else { decode_utf8(rest) };
            let is_ascii = code < 0x80;
            let [class, extra] = if is_ascii { [class(code as u8), 0] } else { beyond_ascii(code) };
            sum += u64::from(cost(earlier, previous, class)) + u64::from(extra);
            (earlier, previous) = (previous, class);
            at += length;
        }
        Estimate(sum)
    }

    /// Texts put together of pieces, long enough for several blocks, the same in every run.
    fn texts(pieces: &[&str]) -> Vec<String> {
        let mut state: u64 = 7;
        let mut next = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        (0..400).map(|length| (0..length).map(|_| pieces[next(pieces.len())]).collect()).collect()
    }

    #[test]
    fn token_estimates_equal_those_of_the_plain_rule_for_all_texts() {
        let plain = ["word", " ", "  ", "Camel", "x1", "12345", "\n\t", "{\"", "_id", "'s", "...", "a", "Z9"];
        let escaped = [r"\n", r"\\", r#"\""#, r"\/", r"\t", r"\u00e9", r"\ud83d\ude00", r"\u12", r"\q", r"\"];
        let wide = ["é", "ß", "中文", "。", "я", "한", "😀", "\u{7f}"];
        let mixed = |more: &[&'static str]| texts(&[&plain[..], more].concat());
        let all = [mixed(&[]), mixed(&escaped), mixed(&wide), texts(&escaped), texts(&wide)].concat();
        for text in &all {
            assert_eq!(estimate_json(text.as_bytes()), plainly(text.as_bytes(), true), "{text}");
            assert_eq!(estimate_text(text), plainly(text.as_bytes(), false), "{text}");
        }
    }

    #[test]
    fn no_text_costs_more_than_the_bound() {
        for text in ["a1", " 1", "ā1", "ā 1a", "\u{20}1x", "1ÿ", "😀1", "a\\", "中1"] {
            let text = format!("\"{}\"", text.repeat(500));
            let (counted, bound) = (estimate_text(&text), Estimate::most_of(text.len()));
            assert!(counted <= bound && bound.tokens() <= text.len() as u64 * 17 / 10, "{text} {counted:?}");
        }
        assert!(MESSAGE_OVERHEAD <= Estimate::most_of("{},".len()));
    }

    #[test]
    fn no_text_costs_more_than_the_closer_bound() {
        let plain = [
            "word", " ", "  ", "Camel", "x1", "1", "{", "_", "'s", ".", "a", "Z9", "ā", "ÿ", "中", "。", "😀",
        ];
        let escaped = [
            r"\n",
            r"\t",
            r"\\",
            r#"\""#,
            r"\/",
            r"\uffab",
            r"\uabcd",
            r"\u0020",
            r"\ud83d\ude00",
            r"\q",
            r"\u1",
            r"\",
        ];
        let mixed = [&plain[..], &escaped].concat();
        let pairs = mixed.iter().flat_map(|one| mixed.iter().map(move |two| one.to_string() + two));
        let repeated = pairs.map(|pair| pair.repeat(40));
        for text in repeated.chain(texts(&mixed)).chain(texts(&plain)) {
            let (counted, bound) = (estimate_json(text.as_bytes()), most_json(text.as_bytes()));
            assert!(counted <= bound, "{text} {counted:?} {bound:?}");
        }
        let prose = "So many words as a person writes. ".repeat(2_000);
        assert!(most_json(prose.as_bytes()).tokens() < 3 * estimate_text(&prose).tokens());
    }

    #[test]
    fn invalid_utf8_is_estimated_by_the_same_rule() {
        let bytes: Vec<u8> = (0..4_000_u32).map(|at| (at * at / 7 % 256) as u8).collect();
        for from in 0..200 {
            assert_eq!(estimate_json(&bytes[from..]), plainly(&bytes[from..], true));
        }
    }
}
