//! The token estimate: how many tokens a text is, judged by the classes of its characters.
//!
//! Responsible for one number per text, the same for a JSON string as written and for the text that it spells, and for
//! adding such numbers. It holds no vocabulary and learns nothing: ratios per model, billed usage and what counts as a
//! message belong to its callers. Estimates are fixed point, so sums depend neither on order nor on the machine.
//!
//! Every character costs what the table `COST` says for its class and the classes of the three characters before it.
//! The table is a rule (`cost`) with constants fitted to o200k counts of 9 MB of agents' messages, tool results, call
//! arguments, tool schemas, source code and prose in 24 languages. Because a cost looks back only, a longer text never
//! counts less than its beginning.

use std::iter::Sum;
use std::ops::{Add, AddAssign};

/// What framing adds to a message beside its text: 3 tokens of separators and 1 for the role, as OpenAI's cookbook
/// ("How to count tokens with tiktoken") counts them for gpt-4o and its successors.
pub const MESSAGE_OVERHEAD: Estimate = Estimate(400);

/// What framing adds to a tool definition beside its JSON: 7 tokens, the same cookbook's `func_init` for gpt-4o.
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

    /// What this estimate has beyond another, or nothing.
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

/// Estimates a JSON string from its bytes between the quotes, escapes as written. Any bytes will do: a broken escape
/// counts as the characters that it is made of, a byte that is not UTF-8 as one odd character.
pub fn estimate_json(raw: &[u8]) -> Estimate {
    Scan::new().read(raw, true)
}

/// Estimates plain text.
pub fn estimate_text(text: &str) -> Estimate {
    Scan::new().read(text.as_bytes(), false)
}

// Classes of characters, three bits each, so that four of them index `COSTS`.
const LOWER: u8 = 0; // also every letter outside ASCII
const UPPER: u8 = 1;
const DIGIT: u8 = 2;
const SPACE: u8 = 3;
const NEWLINE: u8 = 4; // also tabs and the other controls
const PUNCT: u8 = 5; // also ideographs and symbols outside ASCII: none of them joins a word
const JOINER: u8 = 6; // `_` and `'`: tokenizers glue them to the letters that follow
const BACKSLASH: u8 = 7;

/// What a class costs behind itself, for those that JSON escapes in two bytes: the same for all three, since
/// `read_block` counts such a character twice and takes this off.
const RUN: u8 = 20;

/// Bytes read at once, in loops of this fixed length, which compile to vector instructions.
const BLOCK: usize = 64;

/// Classes collected before their costs are added up.
const ROOM: usize = 8 * BLOCK;

type Block = [u8; BLOCK];

/// A text read up to some place.
struct Scan {
    /// Classes of the characters read, their costs not yet added.
    classes: [u8; ROOM],
    filled: usize,
    /// The two classes before those.
    before: u16,
    cost: u64,
    /// How many classes of `RUN` too many were collected.
    doubled: u64,
}

impl Scan {
    /// The beginning of a text is like the beginning of a line.
    fn new() -> Self {
        Self { classes: [SPACE; ROOM], filled: 0, before: pair([NEWLINE; 2]), cost: 0, doubled: 0 }
    }

    fn read(mut self, bytes: &[u8], json: bool) -> Estimate {
        let mut at = 0;
        while at < bytes.len() {
            if self.filled > ROOM - BLOCK {
                self.settle();
            }
            let rest = &bytes[at..];
            let read = match rest.first_chunk() {
                Some(block) => self.read_block(block, BLOCK, json),
                None => {
                    let mut block = [0; BLOCK];
                    block[..rest.len()].copy_from_slice(rest);
                    self.read_block(&block, rest.len(), json)
                }
            };
            at += if read > 0 { read } else { self.read_slowly(rest, json) };
        }
        self.finish()
    }

    /// Reads the ASCII and the simple escapes at the beginning of a block, of which so many bytes count, and says how many
    /// bytes that was: perhaps none.
    #[inline(always)]
    fn read_block(&mut self, block: &Block, length: usize, json: bool) -> usize {
        let mut read = length;
        if any(block, |byte| byte >= 0x80) {
            read = block.iter().position(|&byte| byte >= 0x80).unwrap_or(length);
            if read < BLOCK / 4 {
                return 0;
            }
        }
        if json && any(block, |byte| byte == b'\\') {
            return self.read_escaped(block, read);
        }
        self.write(block, read);
        read
    }

    /// Reads a block of JSON. Both bytes of an escape are read as the character meant, since to drop one of them would
    /// take branches at every few bytes.
    #[inline(never)]
    fn read_escaped(&mut self, block: &Block, length: usize) -> usize {
        let mut escaped = [0; BLOCK + 1];
        let mut neighbours = 0;
        for at in 0..BLOCK {
            escaped[at + 1] = if block[at] == b'\\' { 0xFF } else { 0 };
        }
        for at in 0..BLOCK {
            neighbours |= escaped[at] & escaped[at + 1];
        }
        if neighbours != 0 {
            for at in 0..BLOCK {
                escaped[at + 1] &= !escaped[at];
            }
        }
        let (mut unusual, mut meant) = (0, [0; BLOCK + 1]);
        for at in 0..BLOCK {
            unusual |= if block[at] == b'u' { escaped[at] } else { 0 };
            let letter = if block[at] >= b'a' { escaped[at] } else { 0 };
            meant[at] = block[at] & !letter | b'\n' & letter;
        }
        if unusual != 0 {
            return 0;
        }
        let mut twice = [0; BLOCK];
        for (at, twice) in twice.iter_mut().enumerate() {
            *twice = meant[at] & !escaped[at + 1] | meant[at + 1] & escaped[at + 1];
        }
        let read = length - usize::from(escaped[length] & 1);
        let mut doubled = 0;
        for (at, escaped) in escaped[..BLOCK].iter().enumerate() {
            doubled += if at < read { escaped & 1 } else { 0 };
        }
        self.doubled += u64::from(doubled);
        self.write(&twice, read);
        read
    }

    #[inline(always)]
    fn write(&mut self, block: &Block, length: usize) {
        if let Some(classes) = self.classes[self.filled..].first_chunk_mut::<BLOCK>() {
            for at in 0..BLOCK {
                classes[at] = class(block[at]);
            }
            self.filled += length;
        }
    }

    /// Reads whole characters, half a block's worth or a little more, and says how many bytes that was.
    #[inline(never)]
    fn read_slowly(&mut self, bytes: &[u8], json: bool) -> usize {
        let mut at = 0;
        while at < bytes.len().min(BLOCK / 2) {
            let rest = &bytes[at..];
            let (code, length) = if json { decode_json(rest) } else { decode_utf8(rest) };
            let (class, extra) = match u8::try_from(code) {
                Ok(byte @ 0..0x80) => (class(byte), 0),
                _ => beyond_ascii(code),
            };
            self.classes[self.filled] = class;
            self.filled += 1;
            self.cost += u64::from(extra);
            at += length;
        }
        at
    }

    /// Adds up the costs of the classes collected, but for the last few.
    #[inline(never)]
    fn settle(&mut self) {
        let (blocks, rest) = self.classes[..self.filled].as_chunks::<BLOCK>();
        for block in blocks {
            self.cost += costs_of(block, &mut self.before);
        }
        let left = rest.len();
        self.classes.copy_within(self.filled - left..self.filled, 0);
        self.filled = left;
    }

    /// Adds up the rest, filled up with spaces, of which only the first two cost anything.
    fn finish(mut self) -> Estimate {
        self.settle();
        if let Some(block) = self.classes.first_chunk_mut::<BLOCK>() {
            block[self.filled..].fill(SPACE);
            let [earlier, last] = match self.filled {
                0 => [(self.before >> 3) as u8, (self.before & 7) as u8],
                1 => [(self.before & 7) as u8, block[0]],
                filled => [block[filled - 2], block[filled - 1]],
            };
            let mut spaces = u64::from(cost(earlier, last, SPACE));
            if self.filled < BLOCK - 1 {
                spaces += u64::from(cost(last, SPACE, SPACE));
            }
            self.cost += costs_of(block, &mut self.before) - spaces;
        }
        Estimate(self.cost - self.doubled * u64::from(RUN))
    }
}

fn any(block: &Block, holds: impl Fn(u8) -> bool) -> bool {
    block.iter().fold(false, |found, &byte| found | holds(byte))
}

/// What a block of classes costs behind the two classes in `before`, which become the block's last two.
#[inline(always)]
fn costs_of(block: &Block, before: &mut u16) -> u64 {
    let mut pairs = [0; BLOCK / 2 + 1];
    pairs[0] = *before;
    for (slot, two) in pairs[1..].iter_mut().zip(block.as_chunks::<2>().0) {
        *slot = pair(*two);
    }
    *before = pairs[BLOCK / 2];
    let mut fours = [0; BLOCK / 2];
    for at in 0..BLOCK / 2 {
        fours[at] = pairs[at] << 6 | pairs[at + 1];
    }
    fours.iter().map(|&four| u64::from(COSTS[usize::from(four & 0o7777)])).sum()
}

/// Two classes in one number.
#[inline(always)]
const fn pair(classes: [u8; 2]) -> u16 {
    let classes = u16::from_le_bytes(classes);
    (classes << 3 | classes >> 8) & 0o77
}

/// The class of an ASCII character. Sums of masks, so that it compiles to vector instructions.
#[inline(always)]
const fn class(byte: u8) -> u8 {
    const fn choose(condition: bool, class: u8) -> u8 {
        if condition { class ^ PUNCT } else { 0 }
    }
    PUNCT
        ^ choose(byte.wrapping_sub(b'a') < 26, LOWER)
        ^ choose(byte.wrapping_sub(b'A') < 26, UPPER)
        ^ choose(byte.wrapping_sub(b'0') < 10, DIGIT)
        ^ choose(byte == b' ', SPACE)
        ^ choose(byte < b' ', NEWLINE)
        ^ choose(byte == b'_' || byte == b'\'', JOINER)
        ^ choose(byte == b'\\', BACKSLASH)
}

/// What two characters cost, in hundredths of a token, by their classes and those of the two before them: four octal
/// digits, in reading order.
static COSTS: [u16; 4096] = costs();

const fn costs() -> [u16; 4096] {
    let mut table = [0; 4096];
    let mut four = 0;
    while four < 4096 {
        let [a, b, c, d] =
            [(four >> 9) as u8, (four >> 6 & 7) as u8, (four >> 3 & 7) as u8, (four & 7) as u8];
        table[four] = cost(a, b, c) as u16 + cost(b, c, d) as u16;
        four += 1;
    }
    table
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
        // One space belongs to the word behind it; more are one token, however many (indentation).
        (SPACE, SPACE) if earlier != SPACE => 45,
        (_, SPACE) => 0,
        (NEWLINE, NEWLINE) | (PUNCT, PUNCT) | (BACKSLASH, BACKSLASH) => RUN,
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
fn beyond_ascii(code: u32) -> (u8, u8) {
    match code {
        0xC0..=0xFF => (LOWER, 65),
        0x100..=0x24F => (LOWER, 165),
        0x250..=0x3FF => (LOWER, 18),
        0x400..=0x52F => (LOWER, 11),
        0x530..=0x8FF => (LOWER, 14),
        0x900..=0x97F => (LOWER, 3),
        0x980..=0xDFF => (LOWER, 18),
        0xE00..=0x1DFF => (LOWER, 28),
        0x1E00..=0x1EFF => (LOWER, 30),
        0x2000..=0x2BFF => (PUNCT, 15),
        0x3000..=0x303F | 0xFF00..=0xFFEF => (PUNCT, 100),
        0x3040..=0x30FF => (PUNCT, 36),
        0x3400..=0x9FFF => (PUNCT, 41),
        0xAC00..=0xD7AF => (PUNCT, 20),
        0x1_0000.. => (PUNCT, 120),
        _ => (PUNCT, 35),
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

/// Stands for a byte that is not UTF-8.
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
    let first = bytes[0];
    let length = match first {
        0..0x80 => return (u32::from(first), 1),
        0xC2..0xE0 => 2,
        0xE0..0xF0 => 3,
        0xF0..0xF5 => 4,
        _ => return (REPLACEMENT, 1),
    };
    match bytes.get(1..length) {
        Some(rest) if rest.iter().all(|byte| byte & 0xC0 == 0x80) => {
            let lead = u32::from(first & (0x7F >> length));
            (rest.iter().fold(lead, |code, byte| code << 6 | u32::from(byte & 0x3F)), length)
        }
        _ => (REPLACEMENT, 1),
    }
}
