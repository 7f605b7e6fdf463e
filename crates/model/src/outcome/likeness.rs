//! The likeness of two results of one tool: whether they are equal, or differ only in what changes by itself (times,
//! ids, cursors, ETags, counts of attempts), or in a few other numbers. Both texts are read in parallel, and the
//! first real difference ends the comparison, so that unlike results cost next to nothing. Decides nothing.
//!
//! Numbers that are the point of a result are real differences: measurements with a decimal point, percentages, `3 of 10`
//! and `3/10`, numbers beside words of progress (passed, failed, remaining), items of a list, and the numbers of a result
//! that says little else, such as a die, a counter or an id.

use smallvec::SmallVec;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// See the module; the smaller the difference, the greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Likeness {
    /// They differ.
    #[default]
    None,
    /// They differ in a few plain numbers, and perhaps in what changes by itself.
    ButForNumbers,
    /// They differ only in what changes by itself.
    ButForMarks,
    /// They are equal, byte for byte.
    Equal,
}

/// The likenesses of one result to a few earlier ones, for later requests with the same messages: as many as are asked about
/// in most conversations. Each is kept with the index of the earlier message, plus 1; 0 where there is none.
#[derive(Debug, Default)]
pub(crate) struct Likenesses([AtomicU64; 3]);

impl Likenesses {
    /// In the order of their numbers.
    const ALL: [Likeness; 4] =
        [Likeness::None, Likeness::ButForNumbers, Likeness::ButForMarks, Likeness::Equal];

    /// The likeness to the result in the message of this index, found out by `compare` if it is not known.
    pub(crate) fn to(&self, earlier: usize, compare: impl FnOnce() -> Likeness) -> Likeness {
        let count = Self::ALL.len() as u64;
        let name = earlier as u64 + 1;
        for kept in &self.0 {
            let known = kept.load(Ordering::Relaxed);
            if known / count == name {
                return Self::ALL[(known % count) as usize];
            }
            if known == 0 {
                let found = compare();
                kept.store(name * count + found as u64, Ordering::Relaxed);
                return found;
            }
        }
        compare()
    }

    pub(crate) fn copy(&self) -> Self {
        Self(self.0.each_ref().map(|kept| AtomicU64::new(kept.load(Ordering::Relaxed))))
    }
}

/// The most plain numbers in which results may differ: more are data.
const MOST_NUMBERS: usize = 3;
/// The fewest letters that must stay equal for a result to say something beside its numbers.
const FEWEST_LETTERS: usize = 20;
/// As [`FEWEST_LETTERS`], for results that differ in marks alone: marks are seldom the point of a result.
const FEWEST_BESIDE_MARKS: usize = 8;
/// The fewest letters of a text that says something: "ok".
const FEWEST_OF_WORD: usize = 2;
/// The shortest hexadecimal number that is an id.
const LEAST_HEX: usize = 16;
/// How far back the name of a value is looked for.
const LONGEST_NAME: usize = 48;

/// Parts of names whose values change by themselves, in lower case without separators.
const MARKS: [&str; 25] = [
    "etag",
    "cursor",
    "token",
    "timestamp",
    "datetime",
    "uuid",
    "nonce",
    "requestid",
    "traceid",
    "spanid",
    "correlationid",
    "sessionid",
    "elapsed",
    "duration",
    "took",
    "latency",
    "uptime",
    "attempt",
    "retries",
    "retry",
    "poll",
    "sequence",
    "checkedat",
    "fetchedat",
    "servedat",
];
/// Names of the kind of [`MARKS`] that other names contain.
const WHOLE_MARKS: [&str; 13] = [
    "time", "date", "seq", "tick", "ts", "tries", "try", "checks", "check", "age", "expires", "requests",
    "request",
];
/// Words that make the number beside them progress or an outcome, which is a real difference.
const PROGRESS: [&str; 17] = [
    "progress",
    "percent",
    "complete",
    "done",
    "remain",
    "left",
    "pass",
    "fail",
    "error",
    "warning",
    "position",
    "step",
    "total",
    "processed",
    "finished",
    "score",
    "page",
];
/// Words beside which clients count the turns of their agents: "step 7 of 50", "43 steps left".
const TURNS: [&str; 4] = ["step", "turn", "iteration", "round"];
/// Units of time that make a number a duration.
const UNITS: [&str; 15] = [
    "s",
    "ms",
    "us",
    "ns",
    "sec",
    "secs",
    "second",
    "seconds",
    "millisecond",
    "milliseconds",
    "min",
    "mins",
    "minute",
    "minutes",
    "h",
];

/// The likeness of two texts as written in a request.
pub(super) fn of(one: &[u8], other: &[u8]) -> Likeness {
    if one == other {
        return Likeness::Equal;
    }
    let mut walk = Walk { one, other, at: (0, 0), marks: 0, numbers: 0, masked_letters: 0 };
    while walk.skip_equal() {
        if !walk.pass_difference() {
            return Likeness::None;
        }
    }
    walk.result()
}

/// Whether two texts differ in these numbers alone: where the first has the one of a pair, the second has the other. A text
/// without a word is the number, such as a die's.
pub(super) fn are_equal_but_for(one: &[u8], other: &[u8], numbers: &[(i64, i64)]) -> bool {
    if letters(one) < FEWEST_OF_WORD {
        return false;
    }
    let mut walk = Walk { one, other, at: (0, 0), marks: 0, numbers: 0, masked_letters: 0 };
    let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<i64>().ok();
    while walk.skip_equal() {
        let (first, second) = (token(one, walk.at.0), token(other, walk.at.1));
        let pair = number(&one[first.clone()]).zip(number(&other[second.clone()]));
        if !pair.is_some_and(|pair| numbers.contains(&pair)) || (first.end, second.end) == walk.at {
            return false;
        }
        walk.at = (first.end, second.end);
    }
    true
}

/// Whether two texts differ in counts of turns alone, and each count is higher by one.
pub(super) fn differ_in_counts_of_turns(one: &[u8], other: &[u8]) -> bool {
    let mut walk = Walk { one, other, at: (0, 0), marks: 0, numbers: 0, masked_letters: 0 };
    let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<u32>().ok();
    while walk.skip_equal() {
        let (first, second) = (token(one, walk.at.0), token(other, walk.at.1));
        let pair = number(&one[first.clone()]).zip(number(&other[second.clone()]));
        let (before, after) = (name_before(one, first.start), word_after(&one[first.end..]));
        let (before, after) = (plain_name(before), plain_name(after));
        let counts_turns = TURNS.iter().any(|word| holds(&before, word) || holds(&after, word));
        if !counts_turns || pair.is_none_or(|(a, b)| a.abs_diff(b) != 1) {
            return false;
        }
        walk.at = (first.end, second.end);
    }
    true
}

struct Walk<'a> {
    one: &'a [u8],
    other: &'a [u8],
    /// How far both are read.
    at: (usize, usize),
    marks: usize,
    numbers: usize,
    masked_letters: usize,
}

impl Walk<'_> {
    /// Moves on to the next difference, if there is one.
    fn skip_equal(&mut self) -> bool {
        let (one, other) = (&self.one[self.at.0..], &self.other[self.at.1..]);
        let equal = common_beginning(one, other);
        self.at = (self.at.0 + equal, self.at.1 + equal);
        equal < one.len() || equal < other.len()
    }

    /// Passes the differing tokens at this position, if they may differ.
    fn pass_difference(&mut self) -> bool {
        let (one, other) = (token(self.one, self.at.0), token(self.other, self.at.1));
        let (a, b) = (&self.one[one.clone()], &self.other[other.clone()]);
        if a.is_empty() || b.is_empty() {
            return false;
        }
        let name = name_before(self.one, one.start);
        let mut ends = (one.end, other.end);
        if is_mark_name(name) {
            // Opaque up to its end, such as base64.
            ends = (value_end(self.one, one.end), value_end(self.other, other.end));
            self.marks += 1;
        } else if is_mark(a, self.one, one.end) && is_mark(b, self.other, other.end) {
            self.marks += 1;
        } else if is_integer(a) && is_integer(b) && self.is_plain(&one, name) {
            self.numbers += 1;
        } else {
            return false;
        }
        self.masked_letters += letters(&self.one[one.start..ends.0]);
        // If the reading position did not advance, the difference comes after the token and does not belong to it.
        let goes_on = ends != self.at;
        self.at = ends;
        goes_on && self.numbers <= MOST_NUMBERS
    }

    /// Whether the number at `place` is neither progress nor one of a list.
    fn is_plain(&self, place: &Range<usize>, name: &[u8]) -> bool {
        let before = self.one[..place.start].trim_ascii_end();
        let after = &self.one[place.end..];
        let is_listed = before.last().is_some_and(|byte| *byte == b'[')
            || (before.ends_with(b",") && before.iter().rev().nth(1).is_some_and(u8::is_ascii_digit));
        let is_share = after.starts_with(b"%") || after.starts_with(b"/") || before.ends_with(b"/");
        let is_money = before.last().is_some_and(|byte| *byte == b'$' || !byte.is_ascii());
        !(is_listed || is_share || is_money || is_progress(name) || is_progress(word_after(after)))
    }

    fn result(&self) -> Likeness {
        let rest = letters(self.one).saturating_sub(self.masked_letters);
        match (self.numbers, self.marks) {
            (0, _) if rest >= FEWEST_BESIDE_MARKS => Likeness::ButForMarks,
            (1.., _) if rest >= FEWEST_LETTERS => Likeness::ButForNumbers,
            _ => Likeness::None,
        }
    }
}

/// How many bytes two texts share at their beginning.
fn common_beginning(one: &[u8], other: &[u8]) -> usize {
    let blocks = std::iter::zip(one.as_chunks::<16>().0, other.as_chunks::<16>().0);
    let equal = 16 * blocks.take_while(|(a, b)| a == b).count();
    equal + std::iter::zip(&one[equal..], &other[equal..]).take_while(|(a, b)| a == b).count()
}

fn letters(text: &[u8]) -> usize {
    text.iter().filter(|byte| byte.is_ascii_alphabetic()).count()
}

/// The token around `at`: letters, digits and what joins them in times and ids.
fn token(text: &[u8], at: usize) -> Range<usize> {
    let is_digit = |at: Option<usize>| at.and_then(|at| text.get(at)).is_some_and(u8::is_ascii_digit);
    let belongs = |at: usize| match text[at] {
        b'.' | b':' => is_digit(at.checked_sub(1)) && is_digit(Some(at + 1)),
        byte => IS_OF_TOKEN[usize::from(byte)],
    };
    let mut start = at.min(text.len());
    while start > 0 && belongs(start - 1) {
        start -= 1;
    }
    // The letter of an escape such as `\n` does not belong to the token.
    if start > 0 && text[start - 1] == b'\\' && start < at {
        start += 1;
    }
    let mut end = at.min(text.len());
    while end < text.len() && belongs(end) {
        end += 1;
    }
    start..end
}

/// Whether a byte belongs to tokens, whatever is beside it.
static IS_OF_TOKEN: [bool; 256] = {
    let (mut belongs, mut byte) = ([false; 256], 0);
    while byte < belongs.len() {
        belongs[byte] = matches!(byte as u8, b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'_' | b'-' | b'+');
        byte += 1;
    }
    belongs
};

/// The name before a value, of up to [`LONGEST_NAME`] bytes: a member's, or the word before `:`, `=` or white space.
fn name_before(text: &[u8], start: usize) -> &[u8] {
    let before = &text[start.saturating_sub(LONGEST_NAME)..start];
    let before = before.trim_ascii_end();
    let stripped = trim_end(before, b"\\\"'#(=: ");
    let length = stripped
        .iter()
        .rev()
        .take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
        .count();
    let name = &stripped[stripped.len() - length..];
    // The letter of an escape such as `\n` before the name does not belong to the name.
    let is_escaped = stripped.len() > length && stripped[stripped.len() - length - 1] == b'\\';
    if is_escaped { name.get(1..).unwrap_or_default() } else { name }
}

/// A name in lower case, letters and digits alone.
fn plain_name(name: &[u8]) -> SmallVec<[u8; 64]> {
    let mut plain = SmallVec::<[u8; 64]>::from_slice(name);
    plain.retain(|byte| byte.is_ascii_alphanumeric());
    plain.make_ascii_lowercase();
    plain
}

fn trim_end<'a>(text: &'a [u8], bytes: &[u8]) -> &'a [u8] {
    let end = text.iter().rposition(|byte| !bytes.contains(byte)).map_or(0, |last| last + 1);
    &text[..end]
}

/// The word after a number.
fn word_after(text: &[u8]) -> &[u8] {
    let text = text.strip_prefix(b" ").unwrap_or(text);
    let text = &text[..text.len().min(LONGEST_NAME)];
    let length = text.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
    &text[..length]
}

fn is_mark_name(name: &[u8]) -> bool {
    // A name holds a word only if it has all of its letters, and few names have those of any word.
    let letters = letter_set(name);
    let may_hold = MARK_LETTERS.iter().any(|mark| mark & !letters == 0);
    if !(may_hold || WHOLE_MARK_LETTERS.contains(&letters)) {
        return false;
    }
    let name = &*plain_name(name);
    WHOLE_MARKS.iter().any(|mark| mark.as_bytes() == name) || MARKS.iter().any(|mark| holds(name, mark))
}

/// Whether the number beside this word is progress or an outcome.
fn is_progress(word: &[u8]) -> bool {
    let letters = letter_set(word);
    if letters != letter_set(b"of") && !PROGRESS_LETTERS.iter().any(|word| word & !letters == 0) {
        return false;
    }
    let word = plain_name(word);
    *word == *b"of" || PROGRESS.iter().any(|progress| holds(&word, progress))
}

/// The letters of each of [`WHOLE_MARKS`].
static WHOLE_MARK_LETTERS: [u32; WHOLE_MARKS.len()] = letter_sets(WHOLE_MARKS);
/// The letters of each of [`MARKS`].
static MARK_LETTERS: [u32; MARKS.len()] = letter_sets(MARKS);
/// The letters of each of [`PROGRESS`].
static PROGRESS_LETTERS: [u32; PROGRESS.len()] = letter_sets(PROGRESS);

const fn letter_sets<const WORDS: usize>(words: [&str; WORDS]) -> [u32; WORDS] {
    let (mut sets, mut at) = ([0; WORDS], 0);
    while at < WORDS {
        sets[at] = letter_set(words[at].as_bytes());
        at += 1;
    }
    sets
}

/// The letters in `text`, one bit for each, small or capital.
const fn letter_set(text: &[u8]) -> u32 {
    let (mut set, mut at) = (0, 0);
    while at < text.len() {
        let small = text[at] | 0x20;
        if small.is_ascii_lowercase() {
            set |= 1 << (small - b'a');
        }
        at += 1;
    }
    set
}

fn holds(name: &[u8], word: &str) -> bool {
    name.windows(word.len()).any(|part| part == word.as_bytes())
}

/// The end of an opaque value: before white space, a quote or what separates members.
fn value_end(text: &[u8], from: usize) -> usize {
    let ends = |byte: &u8| {
        byte.is_ascii_whitespace() || matches!(byte, b'"' | b'\\' | b',' | b'}' | b']' | b';' | b'\'')
    };
    text[from..].iter().position(ends).map_or(text.len(), |end| from + end)
}

fn is_integer(token: &[u8]) -> bool {
    token.len() <= 9 && !token.is_empty() && token.iter().all(u8::is_ascii_digit)
}

/// Whether a token changes by itself, by its form: a time, a date, a duration, a uuid, a long hexadecimal number.
fn is_mark(token: &[u8], text: &[u8], end: usize) -> bool {
    // Times and durations begin with a digit, and the others are long.
    if token.len() < LEAST_HEX && !token.first().is_some_and(u8::is_ascii_digit) {
        return false;
    }
    is_uuid(token) || is_hex(token) || is_time(token) || is_epoch(token) || is_duration(token, text, end)
}

fn is_uuid(token: &[u8]) -> bool {
    token.len() == 36
        && token.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

fn is_hex(token: &[u8]) -> bool {
    token.len() >= LEAST_HEX
        && token.iter().all(u8::is_ascii_hexdigit)
        && token.iter().any(u8::is_ascii_alphabetic)
}

/// A date with or without a time, or a time of day.
fn is_time(token: &[u8]) -> bool {
    let fits = |(byte, expected): (&u8, &u8)| match expected {
        b'0' => byte.is_ascii_digit(),
        _ => byte == expected,
    };
    let begins_as = |shape: &[u8]| token.len() >= shape.len() && std::iter::zip(token, shape).all(fits);
    begins_as(b"0000-00-00") || begins_as(b"00:00") || begins_as(b"0:00")
}

/// Seconds since 1970 or parts of them, in this half of the century.
fn is_epoch(token: &[u8]) -> bool {
    let digits = token.split(|byte| *byte == b'.').next().unwrap_or_default();
    matches!(digits.len(), 10 | 13 | 16 | 19)
        && digits.iter().all(u8::is_ascii_digit)
        && digits.starts_with(b"1")
}

/// A number with a unit of time, joined or after a space.
fn is_duration(token: &[u8], text: &[u8], end: usize) -> bool {
    let digits = token.iter().take_while(|byte| byte.is_ascii_digit() || **byte == b'.').count();
    if digits == 0 {
        return false;
    }
    let is_unit = |word: &[u8]| UNITS.iter().any(|unit| word.eq_ignore_ascii_case(unit.as_bytes()));
    let joined = &token[digits..];
    if joined.is_empty() { is_unit(word_after(&text[end..])) } else { is_unit(joined) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn likeness(one: &str, other: &str) -> Likeness {
        let found = of(one.as_bytes(), other.as_bytes());
        assert_eq!(found, of(other.as_bytes(), one.as_bytes()), "{one} {other}");
        // As a string within JSON.
        let quoted = |text: &str| wire::json::quote(text);
        assert_eq!(of(quoted(one).as_bytes(), quoted(other).as_bytes()), found, "{one} {other}, quoted");
        found
    }

    #[test]
    fn numbers_that_repeat_those_of_the_arguments_are_no_difference() {
        for (one, other, numbers, expected) in [
            ("call 7 ok", "call 8 ok", &[(7, 8)][..], true),
            ("call 9 ok, 9 made", "call 10 ok, 10 made", &[(9, 10)], true),
            ("call 7 ok", "call 9 ok", &[(7, 8)], false),
            ("call 7 found 3", "call 8 found 4", &[(7, 8)], false),
            ("call 7 ok", "call 8 failed", &[(7, 8)], false),
            ("call 7", "call 7 ok", &[(7, 8)], false),
            ("x7", "x8", &[(7, 8)], false),
            ("7", "8", &[(7, 8)], false),
        ] {
            assert_eq!(
                are_equal_but_for(one.as_bytes(), other.as_bytes(), numbers),
                expected,
                "{one} {other}"
            );
        }
    }

    #[test]
    fn names_of_marks_are_those_that_hold_one() {
        let names = MARKS.iter().chain(&WHOLE_MARKS).flat_map(|mark| {
            let reversed: String = mark.chars().rev().collect();
            let (first, rest) = mark.split_at(1);
            let parted = format!("{}_{rest}", first.to_uppercase());
            let others = [format!("next{mark}2"), format!("{mark}s"), rest.to_owned(), reversed, parted];
            others.into_iter().chain([(*mark).to_owned()])
        });
        for name in names.chain(["".to_owned(), "42".to_owned(), "naïve".to_owned()]) {
            let plain = name.to_lowercase().replace('_', "");
            let holds_one = WHOLE_MARKS.contains(&&*plain) || MARKS.iter().any(|mark| plain.contains(mark));
            assert_eq!(is_mark_name(name.as_bytes()), holds_one, "{name}");
        }
    }

    #[test]
    fn texts_share_the_bytes_before_their_first_difference() {
        let text: Vec<u8> = (0..70).collect();
        for at in 0..text.len() {
            let mut other = text.clone();
            other[at] ^= 1;
            assert_eq!(common_beginning(&text, &other), at);
            assert_eq!(common_beginning(&text, &text[..at]), at);
        }
        assert_eq!(common_beginning(&text, &text), text.len());
    }

    #[test]
    fn results_that_differ_in_timestamps_cursors_or_etags_are_equal_but_for_marks() {
        for (one, other) in [
            (
                r#"{"items":["same"],"next_cursor":"eyJvIjoxMH0="}"#,
                r#"{"items":["same"],"next_cursor":"eyJvIjoyMDB9"}"#,
            ),
            ("ETag: \"33a64df5\"\nNothing has changed.", "ETag: \"9f2e-77\"\nNothing has changed."),
            ("No new messages at 12:00:01.", "No new messages at 12:00:59."),
            ("Still waiting (2026-11-24T11:00:01Z)", "Still waiting (2026-11-24T11:00:09.25Z)"),
            ("Build is running for 9 s", "Build is running for 12 s"),
            ("The same hits, in 0.31s", "The same hits, in 1.2s"),
            (r#"{"status":"pending","request_id":"r-17"}"#, r#"{"status":"pending","request_id":"r-201"}"#),
            (r#"{"status":"pending","attempt":1}"#, r#"{"status":"pending","attempt":2}"#),
            (r#"{"status": "pending", "ts": 1764000000}"#, r#"{"status": "pending", "ts": 1764000013}"#),
            ("Not ready yet, attempt 9", "Not ready yet, attempt 10"),
            (
                "Job 0b8e7d6c-1f2a-4c3d-9e8f-001122334455 queued",
                "Job 9b8e7d6c-1f2a-4c3d-9e8f-001122334459 queued",
            ),
        ] {
            assert_eq!(likeness(one, other), Likeness::ButForMarks, "{one}");
            assert_eq!(likeness(one, one), Likeness::Equal);
        }
    }

    #[test]
    fn results_that_differ_in_a_few_numbers_count_as_similar() {
        for (one, other) in [
            ("There are 3 unread messages in the inbox.", "There are 4 unread messages in the inbox."),
            (
                r#"{"state":"waiting for a worker","queue":8}"#,
                r#"{"state":"waiting for a worker","queue":11}"#,
            ),
            (
                "Server answered at 10:00, load of machine: 3, nothing new",
                "Server answered at 10:01, load of machine: 5, nothing new",
            ),
        ] {
            assert_eq!(likeness(one, other), Likeness::ButForNumbers, "{one}");
        }
    }

    #[test]
    fn results_whose_main_content_is_a_different_number_are_different() {
        for (one, other) in [
            ("4", "6"),
            ("You rolled a 4", "You rolled a 6"),
            ("Counter is now 3", "Counter is now 4"),
            (r#"{"roll":4}"#, r#"{"roll":6}"#),
            (
                r#"{"uuid":"0b8e7d6c-1f2a-4c3d-9e8f-001122334455"}"#,
                r#"{"uuid":"9b8e7d6c-1f2a-4c3d-9e8f-001122334455"}"#,
            ),
            ("12:00:01", "12:00:02"),
            (r#"{"status":"running","progress":10}"#, r#"{"status":"running","progress":20}"#),
            ("The download is at 10% of all the files", "The download is at 20% of all the files"),
            ("Compiled 3/10 of the files of the workspace", "Compiled 4/10 of the files of the workspace"),
            ("Row 3 of 10 of the table of all customers", "Row 4 of 10 of the table of all customers"),
            (
                "5 failed, 20 passed in 1.2s of the whole suite",
                "3 failed, 22 passed in 1.3s of the whole suite",
            ),
            (
                r#"{"page":1,"title":"All of our customers in Riga"}"#,
                r#"{"page":2,"title":"All of our customers in Riga"}"#,
            ),
            ("The temperature in Riga is 3.5 degrees today", "The temperature in Riga is 3.7 degrees today"),
            ("The price of this share in Zurich: $3", "The price of this share in Zurich: $4"),
            (
                r#"{"ids":[1,2,3],"kind":"customers of the shop"}"#,
                r#"{"ids":[4,5,6],"kind":"customers of the shop"}"#,
            ),
            ("Flight HAT001 leaves in the early morning", "Flight HAT002 leaves in the early morning"),
            ("one two three four five six seven", "one two three four five six eight"),
            ("a result that goes on", "a result that goes on and on"),
            ("größer als das andere Ergebnis", "größter als das andere Ergebnis"),
            ("a,1,2,3,4 and some words around it", "a,5,6,7,8 and some words around it"),
            ("", "x"),
        ] {
            assert_eq!(likeness(one, other), Likeness::None, "{one}");
        }
    }

    #[test]
    fn the_likeness_of_two_results_is_found_out_once_and_a_few_are_kept() {
        let (known, asked) = (Likenesses::default(), std::cell::Cell::new(0));
        let ask = |earlier: usize, found: Likeness| {
            let compare = || {
                asked.set(asked.get() + 1);
                found
            };
            (known.to(earlier, compare), known.copy().to(earlier, || found), asked.get())
        };
        for (nth, found) in Likenesses::ALL.into_iter().enumerate() {
            assert_eq!(ask(7 * nth, found), (found, found, nth + 1));
        }
        for (nth, found) in Likenesses::ALL.into_iter().enumerate() {
            let is_kept = nth < known.0.len();
            assert_eq!(ask(7 * nth, found), (found, found, if is_kept { 4 } else { 5 }), "{nth}");
        }
    }

    #[test]
    fn comparing_two_long_results_takes_one_pass() {
        let text = |end: &str| format!("{}{end}", "at 10:00:01 nothing new; ".repeat(20_000));
        assert_eq!(of(text("").as_bytes(), text("").replace(":01", ":02").as_bytes()), Likeness::ButForMarks);
        assert_eq!(of(text("a").as_bytes(), text("b").as_bytes()), Likeness::None);
        // No token is longer than its text is read for: one of a megabyte is passed once.
        let hex = |first: &str| format!("the same words {first}{}", "0f".repeat(500_000));
        assert_eq!(of(hex("a").as_bytes(), hex("b").as_bytes()), Likeness::ButForMarks);
    }
}
