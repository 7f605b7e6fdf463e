//! The word pattern matcher of the refusal rules.
//!
//! Finds a pattern in a row of words. A pattern is a row of
//! - words, with alternatives: `unknown|unsupported`,
//! - `*.role`: a word that ends so,
//! - groups of phrases: `TOOLS`, `NOT`, defined in `groups`,
//! - `~`: any number of words that add nothing (`the`, `currently`, `parameter`), up to six,
//! - `…`: the same, and other items of a list: `supplied: temperature, ` before `tools`,
//! - `*`: up to eight words of the same sentence.
//!
//! Time is bounded: a pattern has at most three gaps of fixed width, so a search is linear in the words.

use super::groups::{FILLERS, GROUPS};
use super::words::{COMMA, STOP};

const FILLERS_AT_MOST: usize = 6;
const ITEMS_AT_MOST: usize = 24;
const ANY_AT_MOST: usize = 8;

/// Where `pattern` first matches, as the range of its words.
pub(super) fn find(pattern: &str, words: &[&str]) -> Option<(usize, usize)> {
    (0..words.len()).find_map(|start| Some((start, match_at(pattern, words, start)?)))
}

/// The end of the match of `pattern` that begins at `start`.
fn match_at(pattern: &str, words: &[&str], start: usize) -> Option<usize> {
    let (element, rest) = pattern.split_once(' ').unwrap_or((pattern, ""));
    let go_on = |at: usize| if rest.is_empty() { Some(at) } else { match_at(rest, words, at) };
    match element {
        "~" => over(words, start, FILLERS_AT_MOST, |at| FILLERS.contains(&words[at])).find_map(go_on),
        "…" => over(words, start, ITEMS_AT_MOST, |at| is_item(words, at)).find_map(go_on),
        "*" => over(words, start, ANY_AT_MOST, |at| words[at] != STOP).find_map(go_on),
        _ => ends(element, words, start).find_map(go_on),
    }
}

/// The positions that a gap at `start` may reach.
fn over(
    words: &[&str],
    start: usize,
    at_most: usize,
    is_part: impl Fn(usize) -> bool,
) -> impl Iterator<Item = usize> {
    let longest = (start..words.len()).take(at_most).take_while(|at| is_part(*at)).count();
    start..=start + longest
}

fn is_item(words: &[&str], at: usize) -> bool {
    let is_followed = words.get(at + 1) == Some(&COMMA) || words.get(at + 2) == Some(&COMMA);
    words[at] == COMMA || FILLERS.contains(&words[at]) || (is_followed && words[at] != STOP)
}

/// Where a word, a path or a group of phrases that begins at `start` may end.
fn ends(element: &str, words: &[&str], start: usize) -> impl Iterator<Item = usize> {
    let group = GROUPS.iter().find(|group| group.0 == element).map_or(&[] as &[&str], |group| group.1);
    let phrases = group.iter().filter_map(move |phrase| phrase_end(phrase, words, start));
    let is_word = words.get(start).is_some_and(|word| match element.strip_prefix('*') {
        Some(ending) => word.ends_with(ending),
        None => element.split('|').any(|known| known == *word),
    });
    phrases.chain((group.is_empty() && is_word).then_some(start + 1))
}

fn phrase_end(phrase: &str, words: &[&str], start: usize) -> Option<usize> {
    let mut at = start;
    for part in phrase.split(' ') {
        if words.get(at) != Some(&part) {
            return None;
        }
        at += 1;
    }
    Some(at)
}
