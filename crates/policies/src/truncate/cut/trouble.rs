//! Signs of errors in a text: words and forms by which logs, compilers, test runners and APIs report errors. Finds
//! them in one pass and chooses which to keep within the available space. It does not judge whether a tool call
//! failed: a wrong sign costs a few characters of the space for errors and nothing else.

use regex::bytes::Regex;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::LazyLock;

/// How certain a sign is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// The word occurs: `could not open, error 2`.
    Likely,
    /// The word is where errors are reported: `error: …`, `ERROR`, `"status":"error"`, `exit code 1`.
    Certain,
}

/// One sign, at a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sign {
    pub(super) at: usize,
    pub(super) rank: Rank,
}

/// The signs of a text in order.
pub(super) struct Signs<'a> {
    bytes: &'a [u8],
    range: Range<usize>,
    at: usize,
}

impl<'a> Signs<'a> {
    /// Signs in `range`; what surrounds it serves as context.
    pub(super) fn within(bytes: &'a [u8], range: Range<usize>) -> Self {
        // One byte earlier: a form may be recognised by the newline before its line.
        Self { bytes, at: range.start.saturating_sub(1), range }
    }
}

impl Iterator for Signs<'_> {
    type Item = Sign;

    fn next(&mut self) -> Option<Sign> {
        let end = self.bytes.len().min(self.range.end + MARK_BYTES - 1);
        while let Some(mark) = MARKS.as_ref()?.find_at(&self.bytes[..end], self.at) {
            self.at = mark.end();
            if let Some(sign) = sign_around(self.bytes, mark.start())
                && self.range.contains(&sign.at)
            {
                return Some(sign);
            }
        }
        None
    }
}

/// Chooses what to keep within the available space: certain before likely, and of each the first and the last ones.
pub(super) struct Picks<T> {
    room: usize,
    certain: FirstAndLast<T>,
    likely: FirstAndLast<T>,
}

impl<T> Picks<T> {
    pub(super) fn new(room: usize) -> Self {
        // The likely ones get half as much: in a listing of source code they are mostly no errors.
        Self { room, certain: FirstAndLast::new(room / 2), likely: FirstAndLast::new(room / 4) }
    }

    /// Offers the next thing, in order.
    pub(super) fn offer(&mut self, rank: Rank, thing: T, cost: usize) {
        match rank {
            Rank::Certain => self.certain.offer(thing, cost),
            Rank::Likely => self.likely.offer(thing, cost),
        }
    }

    /// The chosen things, in no order; together they cost no more than the room.
    pub(super) fn into_chosen(self) -> Vec<T> {
        let mut left = self.room;
        let both = self.certain.into_outside_in().chain(self.likely.into_outside_in());
        let fits = both.filter(|(_, cost)| match left.checked_sub(*cost) {
            Some(rest) => {
                left = rest;
                true
            }
            None => false,
        });
        fits.map(|(thing, _)| thing).collect()
    }
}

/// The first things that fit into a room and the last ones that fit into another of the same size.
struct FirstAndLast<T> {
    room: usize,
    first: Vec<(T, usize)>,
    first_cost: usize,
    last: VecDeque<(T, usize)>,
    last_cost: usize,
}

impl<T> FirstAndLast<T> {
    fn new(room: usize) -> Self {
        Self { room, first: Vec::new(), first_cost: 0, last: VecDeque::new(), last_cost: 0 }
    }

    fn offer(&mut self, thing: T, cost: usize) {
        if self.last.is_empty() && self.first_cost + cost <= self.room {
            self.first_cost += cost;
            self.first.push((thing, cost));
            return;
        }
        self.last_cost += cost;
        self.last.push_back((thing, cost));
        // Never below one: a long thing may still fit into what the others leave.
        while self.last_cost > self.room && self.last.len() > 1 {
            self.last_cost -= self.last.pop_front().map_or(0, |(_, cost)| cost);
        }
    }

    fn into_outside_in(self) -> impl Iterator<Item = (T, usize)> {
        let mut first = self.first.into_iter();
        let mut last = self.last.into_iter().rev();
        let mut from_first = false;
        std::iter::from_fn(move || {
            from_first = !from_first;
            if from_first {
                first.next().or_else(|| last.next())
            } else {
                last.next().or_else(|| first.next())
            }
        })
    }
}

/// Where [`sign_around`] looks closer: four letters of each word that few other words have, as they are mostly written.
/// Literals of one length alone, so that they are searched by vector instructions.
const MARK_WORDS: &str = "rror|RROR|fail|Fail|FAIL|fata|Fata|FATA|gmen|GMEN|xcep|XCEP|exit|Exit|EXIT|aceb|ACEB|pani|Pani|PANI|CRIT|\\[too|\nE  ";
const MARK_BYTES: usize = 4;
static MARKS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(MARK_WORDS).ok());

/// What may follow a word's stem within the word: errors, failed, failure(s), failing, panicked.
const ENDINGS: [&[u8]; 7] = [b"", b"s", b"ed", b"ure", b"ures", b"ing", b"ked"];

/// The sign whose mark is at the byte `at`, if it is one.
fn sign_around(bytes: &[u8], at: usize) -> Option<Sign> {
    let mut mark = *bytes[at..].first_chunk::<MARK_BYTES>()?;
    mark.make_ascii_lowercase();
    match &mark {
        b"rror" => word(bytes, at.checked_sub(1)?, b"error"),
        b"fail" => word(bytes, at, b"fail"),
        b"fata" => word(bytes, at, b"fatal"),
        b"gmen" => segfault(bytes, at.checked_sub(2)?),
        b"xcep" => word(bytes, at.checked_sub(1)?, b"exception"),
        b"exit" => exit_code(bytes, at),
        b"aceb" => word(bytes, at.checked_sub(2)?, b"traceback"),
        b"pani" => word(bytes, at, b"panic"),
        b"crit" => certain_if(bytes[at..].starts_with(b"CRITICAL"), at),
        // An earlier marker of ours in the text: what it announces must not get lost.
        b"[too" => certain_if(bytes[at..].starts_with(b"[toolrein: cut "), at),
        // pytest's lines of explanation begin with an E.
        b"\ne  " => certain_if(bytes[at + 1..].starts_with(b"E   "), at + 1),
        _ => None,
    }
}

fn certain_if(holds: bool, at: usize) -> Option<Sign> {
    holds.then_some(Sign { at, rank: Rank::Certain })
}

/// The sign of a word that begins at `start` with `stem`, if it is there and says that something went wrong.
fn word(bytes: &[u8], start: usize, stem: &[u8]) -> Option<Sign> {
    let found = bytes.get(start..start + stem.len())?;
    if !found.eq_ignore_ascii_case(stem) {
        return None;
    }
    let mut end = start + stem.len();
    end += bytes[end..].iter().take_while(|byte| byte.is_ascii_alphabetic()).take(5).count();
    let ending = &bytes[start + stem.len()..end];
    if !ENDINGS.iter().any(|known| ending.eq_ignore_ascii_case(known)) {
        return None;
    }
    let is_path = bytes[..start].ends_with(b"::");
    let before = if is_path { b'.' } else { start.checked_sub(1).map_or(b' ', |at| bytes[at]) };
    let after = bytes.get(end).copied().unwrap_or(b' ');
    let value = assigned(&bytes[end..]);
    if !is_own_word(found, before, value.is_some())
        || is_name_or_code(after, &bytes[end..])
        || value.is_some_and(is_nothing)
        || follows_none(&bytes[..start])
    {
        return None;
    }
    let shouted = found.iter().all(u8::is_ascii_uppercase);
    let is_value = before == b'=' || (before == b'"' && after == b'"');
    let reported = value.is_some_and(|value| !matches!(value.first(), None | Some(b'\n' | b'\r')));
    let certain =
        shouted || is_value || reported || after == b'[' || names_itself(found, &bytes[end..], ending);
    Some(Sign { at: start, rank: if certain { Rank::Certain } else { Rank::Likely } })
}

/// `error` alone, the last part of a camel-case name (`ValueError`), or of another name or path that has a value.
fn is_own_word(found: &[u8], before: u8, has_value: bool) -> bool {
    match before {
        b'_' | b'-' | b'.' | b'/' => has_value,
        _ if before.is_ascii_alphanumeric() => {
            found[0].is_ascii_uppercase() && (found[1].is_ascii_lowercase() || !before.is_ascii_uppercase())
        }
        _ => true,
    }
}

/// `error_handler`, `Error(`, `Error::new`, `error.rs`, `fail-fast`: about errors, but not an error.
fn is_name_or_code(after: u8, rest: &[u8]) -> bool {
    let then = rest.get(1).copied().unwrap_or(b' ');
    match after {
        b'_' | b'(' => true,
        b'.' | b'-' => then.is_ascii_alphanumeric(),
        b':' => then == b':',
        _ => after.is_ascii_digit(),
    }
}

/// What is assigned to the word that ends where `rest` begins: the rest after `:`, `=`, `":` and the blanks and the
/// quote that follow.
fn assigned(rest: &[u8]) -> Option<&[u8]> {
    let rest = rest.strip_prefix(b"\"").or_else(|| rest.strip_prefix(b"'")).unwrap_or(rest);
    let rest = rest.strip_prefix(b" ").unwrap_or(rest);
    let rest = rest.strip_prefix(b":").or_else(|| rest.strip_prefix(b"="))?;
    Some(rest.strip_prefix(b" ").unwrap_or(rest))
}

/// A value by which a log or an API says that there was no error.
fn is_nothing(value: &[u8]) -> bool {
    const WORDS: [&[u8]; 5] = [b"null", b"none", b"nil", b"false", b"undefined"];
    const EMPTY: [&[u8]; 4] = [b"\"\"", b"''", b"[]", b"{}"];
    let is_word = |word: &&[u8]| {
        let Some((start, rest)) = value.split_at_checked(word.len()) else { return false };
        // Not `error: null pointer`.
        let next = rest.strip_prefix(b" ").unwrap_or(rest).first();
        start.eq_ignore_ascii_case(word) && !next.is_some_and(u8::is_ascii_alphanumeric)
    };
    EMPTY.iter().any(|empty| value.starts_with(empty)) || WORDS.iter().any(is_word) || is_zero(value)
}

/// A zero that is not the start of a longer number.
fn is_zero(value: &[u8]) -> bool {
    value.first() == Some(&b'0')
        && !value.get(1).is_some_and(|next| next.is_ascii_alphanumeric() || *next == b'.')
}

/// `0 errors`, `no errors`, `without error`.
fn follows_none(before: &[u8]) -> bool {
    let Some(before) = before.strip_suffix(b" ") else { return false };
    let word = before.iter().rev().take(8).take_while(|byte| byte.is_ascii_alphanumeric()).count();
    let word = &before[before.len() - word..];
    [b"0" as &[u8], b"no", b"zero", b"without"].iter().any(|none| word.eq_ignore_ascii_case(none))
}

/// `Traceback (most recent call last)`, `panicked at`, `Exception in thread`.
fn names_itself(found: &[u8], rest: &[u8], ending: &[u8]) -> bool {
    match found[0] | 0x20 {
        b't' => rest.starts_with(b" (most recent"),
        b'p' => ending == b"ked" && rest.starts_with(b" at"),
        b'e' => rest.starts_with(b" in thread"),
        _ => false,
    }
}

fn segfault(bytes: &[u8], start: usize) -> Option<Sign> {
    const FORM: &[u8] = b"segmentation fault";
    certain_if(bytes.get(start..start + FORM.len())?.eq_ignore_ascii_case(FORM), start)
}

/// `exit code 1`, `exit status: 2`, `exited with code 3`, `"exit_code":4`; not with 0.
fn exit_code(bytes: &[u8], start: usize) -> Option<Sign> {
    const FORMS: [&[u8]; 6] =
        [b"exit code", b"exit status", b"exit_code", b"exitcode", b"exited with code", b"exited with status"];
    let rest = &bytes[start..];
    let form = FORMS
        .iter()
        .find(|form| rest.get(..form.len()).is_some_and(|found| found.eq_ignore_ascii_case(form)))?;
    let rest = &rest[form.len()..];
    let value = assigned(rest).or_else(|| rest.strip_prefix(b" "))?;
    let value = value.strip_prefix(b"-").unwrap_or(value);
    certain_if(value.first().is_some_and(u8::is_ascii_digit) && !is_zero(value), start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strongest(text: &str) -> Option<Rank> {
        Signs::within(text.as_bytes(), 0..text.len()).map(|sign| sign.rank).max()
    }

    #[test]
    fn lines_that_report_an_error_rank_as_certain() {
        for text in [
            "error: expected `;`",
            "error[E0432]: unresolved import",
            "src/a.c:4:1: fatal error: x.h: No such file",
            "2024-05-01 ERROR disk full",
            "level=error msg=boom",
            "ValueError: bad",
            "OSError: [Errno 2]",
            "java.lang.NullPointerException: null pointer",
            "Exception in thread \"main\"",
            "Traceback (most recent call last):",
            "thread 'main' panicked at src/main.rs:1",
            "panic: runtime error",
            "FAILED tests/a.py::b",
            "CRITICAL out of disk",
            "ok\nE   assert 1 == 2",
            "Segmentation fault (core dumped)",
            "Process exited with code 137",
            "exit status 2",
            "[Command finished with exit code 1]",
            "{\"exit_code\": 101}",
            "{\"status\":\"error\"}",
            "{\"error\": {\"code\": 5}}",
            "last_error: timeout",
            "3 failed: a, b, c",
            "[toolrein: cut 5 of 9 characters here]",
        ] {
            assert_eq!(strongest(text), Some(Rank::Certain), "{text}");
        }
    }

    #[test]
    fn lines_that_mention_an_error_rank_as_likely() {
        for text in [
            "could not open, error 5",
            "the build failed",
            "3 tests failed, 5 passed",
            "2 failures",
            "10 errors",
            "        except ValueError:",
            "there was an exception",
        ] {
            assert_eq!(strongest(text), Some(Rank::Likely), "{text}");
        }
    }

    #[test]
    fn lines_that_report_no_error_or_only_contain_the_word_have_no_rank() {
        for text in [
            "0 errors, 0 failed",
            "no errors",
            "completed without error",
            "errors: 0",
            "failed=0 ok=3",
            "{\"error\": null, \"errors\":[], \"is_error\":false, \"failure\":\"\"}",
            "exit code 0",
            "exit status: 0",
            "\"exit_code\":0",
            "mirror terror failover failsafe exceptional panicky",
            "raise ValueError(msg)",
            "use std::error::Error as _;",
            "src/errors.rs docs/exceptions.md nitpick-exceptions error_handler fail-fast",
            "def on_error(self): pass",
            "critical thinking",
            "profile default exit explicit peek",
        ] {
            assert_eq!(strongest(text), None, "{text}");
        }
    }

    #[test]
    fn signs_outside_the_range_are_context_only() {
        let text = b"error: a\nE   b\nerror: c";
        let within: Vec<usize> = Signs::within(text, 9..15).map(|sign| sign.at).collect();
        assert_eq!(within, [9]);
        assert_eq!(Signs::within(text, 3..9).count(), 0);
    }

    #[test]
    fn certain_lines_and_the_first_and_last_likely_lines_are_picked() {
        let mut picks = Picks::new(8);
        for n in 0..100 {
            picks.offer(if n % 10 == 5 { Rank::Certain } else { Rank::Likely }, n, 1);
        }
        let mut chosen = picks.into_chosen();
        chosen.sort_unstable();
        assert_eq!(chosen, [5, 15, 25, 35, 65, 75, 85, 95]);
    }

    #[test]
    fn a_long_line_is_picked_only_if_it_fits_by_itself() {
        for (cost, chosen) in [(8, vec!["long"]), (9, vec![])] {
            let mut picks = Picks::new(8);
            picks.offer(Rank::Certain, "long", cost);
            assert_eq!(picks.into_chosen(), chosen);
        }
    }
}
