//! The scanner for injected instructions: returns a score and the kinds of findings. A pure function of the text, in
//! time linear in its length. Decides nothing, and keeps no word of the text.

use super::escapes::{decoded, from_base64};
use super::fold::fold;
use super::rules::{Kind, matches, next_anchor};
use super::window::settle;
use std::borrow::Cow;
use wire::hidden_unicode::{overrides_direction, strip};

/// Of a longer text the beginning and the end are scanned, half of this each.
const MOST_BYTES: usize = 4 << 20;
/// How often decoded text is decoded again.
const DEEPEST: usize = 3;
/// The bytes that are scanned around a position where a rule might match. A rule sees no further.
const BEFORE: usize = 512;
const AFTER: usize = 1024;
/// Positions nearer than this to the last are in its window.
const STEP: usize = 640;
/// The number of invisible characters from which on a text hides something; two may be an accident.
const SMUGGLED: usize = 3;
/// The same where they are written as escapes, as in source code that handles them.
const SMUGGLED_ESCAPED: usize = 12;
/// The number of single zero-width characters between letters from which on words are split on purpose.
const SPLITS: usize = 12;

/// The findings in a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// The weight of the findings at the heaviest position.
    pub score: u32,
    kinds: u8,
}

impl Findings {
    /// Whether something of `kind` was found.
    pub fn has(self, kind: Kind) -> bool {
        self.kinds & 1 << kind as u8 != 0
    }

    fn add(&mut self, kind: Kind, weight: u32) {
        self.score += weight;
        self.kinds |= 1 << kind as u8;
    }

    /// The heavier of two positions.
    fn or(self, other: Self) -> Self {
        if other.score > self.score { other } else { self }
    }
}

/// Scans `text`.
pub fn scan(text: &str) -> Findings {
    let (head, tail) = ends(text);
    let findings = Scan::of(head);
    if tail.is_empty() { findings } else { findings.or(Scan::of(tail)) }
}

/// The beginning and the end of a text too long to be scanned.
fn ends(text: &str) -> (&str, &str) {
    if text.len() <= MOST_BYTES {
        return (text, "");
    }
    let head = text.floor_char_boundary(MOST_BYTES / 2);
    let tail = text.ceil_char_boundary(text.len() - MOST_BYTES / 2);
    (&text[..head], &text[tail..])
}

struct Scan {
    /// Bytes that may still be decoded: base64 within escapes within base64 must not multiply.
    budget: usize,
    findings: Findings,
}

impl Scan {
    fn of(text: &str) -> Findings {
        let mut scan = Self { budget: 2 * text.len(), findings: Findings::default() };
        scan.layer(text, 0);
        scan.findings
    }

    /// Scans `text`, then what is encoded in it.
    fn layer(&mut self, text: &str, depth: usize) {
        let folded = if text.is_ascii() { Cow::Borrowed(text) } else { Cow::Owned(fold(text)) };
        let mut findings = words(folded.as_bytes());
        if !text.is_ascii() && hides_characters(text, depth) {
            findings.add(Kind::Invisible, 3);
        }
        self.findings = self.findings.or(findings);
        if depth == DEEPEST {
            return;
        }
        for inner in [decoded(text), from_base64(text.as_bytes())].into_iter().flatten() {
            if let Some(left) = self.budget.checked_sub(inner.len()) {
                self.budget = left;
                self.layer(&inner, depth + 1);
            }
        }
    }
}

/// The heaviest position of a folded text.
fn words(text: &[u8]) -> Findings {
    let mut heaviest = Findings::default();
    let mut from = 0;
    while let Some(found) = next_anchor(text, from) {
        let window = found.saturating_sub(BEFORE)..text.len().min(found + AFTER);
        heaviest = heaviest.or(weigh(&text[window.clone()], window.start == 0));
        from = text.len().min(found + STEP);
    }
    heaviest
}

fn weigh(window: &[u8], is_first: bool) -> Findings {
    // A text begins as a paragraph does.
    let mut settled = if is_first { b"\n\n".to_vec() } else { Vec::new() };
    settled.extend_from_slice(&settle(window));
    let mut findings = Findings::default();
    for (kind, weight) in matches(&settled) {
        findings.add(kind, weight);
    }
    findings
}

fn hides_characters(text: &str, depth: usize) -> bool {
    let smuggled = strip(text).map_or(0, |(_, gone)| gone);
    let is_smuggled = smuggled >= if depth == 0 { SMUGGLED } else { SMUGGLED_ESCAPED };
    is_smuggled || depth == 0 && overrides_direction(text) || splits(text) >= SPLITS
}

/// Single zero-width characters between two letters of ASCII.
fn splits(text: &str) -> usize {
    let bytes = text.as_bytes();
    let splits = |at: usize| {
        matches!(&bytes[at..], [0xe2, 0x80, 0x8b..=0x8d, next, ..] | [0xe2, 0x81, 0xa0, next, ..] | [0xef, 0xbb, 0xbf, next, ..]
            if next.is_ascii_alphabetic())
            && at > 0
            && bytes[at - 1].is_ascii_alphabetic()
    };
    memchr::memchr2_iter(0xe2, 0xef, bytes).filter(|at| splits(*at)).count()
}
