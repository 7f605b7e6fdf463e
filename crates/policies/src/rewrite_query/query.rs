//! Rules that tidy a query: fillers go, the year comes. What is left is a part of the query as it was written, and at most
//! the year after it.

use super::fillers::without_fillers;
use super::plain::{is_plain, words_in};
use super::recency::needs_year;

/// Years that are added. Recordings without times are replayed as if it was 1970; and one that is not known as a year would
/// be added again and again.
const CREDIBLE: std::ops::RangeInclusive<u64> = 2020..=2199;

/// What is done to queries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) year: bool,
    pub(super) fillers: bool,
    /// Queries of fewer words are left alone.
    pub(super) min_words: usize,
}

impl Rules {
    /// Whether they concern `query` at all.
    pub(super) fn concern(self, query: &str) -> bool {
        is_plain(query) && words_in(query) >= self.min_words
    }
}

/// `query` as it should be; `None` where it is so already.
pub(super) fn tidy(query: &str, rules: Rules, year: u64) -> Option<String> {
    let mut tidied = step(query, rules, year)?;
    // Each step removes words or adds the year, which is added once.
    while let Some(next) = step(&tidied, rules, year) {
        tidied = next;
    }
    Some(tidied)
}

fn step(query: &str, rules: Rules, year: u64) -> Option<String> {
    if !rules.concern(query) {
        return None;
    }
    let kept = if rules.fillers { without_fillers(query) } else { query };
    if rules.year && CREDIBLE.contains(&year) && needs_year(kept) {
        let words = kept.trim_start_matches([' ', '¿', '¡']);
        let words = words.trim_end_matches(|letter: char| !letter.is_alphanumeric());
        return Some(format!("{words} {year}"));
    }
    (kept != query).then(|| kept.to_owned())
}
