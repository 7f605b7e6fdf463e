//! The results of the running turn, counted: searches and errors. Decides nothing.

use super::search::text_of;
use super::units::KnownUnits;
use super::words::{Words, hash_of};
use model::calls::Call;
use model::outcome::has_failed;
use model::{ToolResult, View};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::Arc;

/// Two queries with this share of common words are about the same topic.
const SAME_TOPIC: f64 = 0.75;
/// The most topics of a turn that are compared, and the most kinds of errors that are counted.
const MOST_TOPICS: usize = 64;
const MOST_ERRORS: usize = 256;
/// The part of an error that says which one it is, in bytes.
const ERROR_BYTES: usize = 400;
/// The most of a result that is compared with earlier ones.
const COMPARED: usize = 256 << 10;
/// Arguments that ask for more of the same results.
const PAGES: [&str; 8] = ["page", "offset", "cursor", "start", "skip", "page_token", "pageToken", "after"];

/// See the file's head.
#[derive(Clone, Default)]
pub(super) struct Turn {
    /// Search results in a row that are not good.
    pub(super) poor: usize,
    /// Search results in a row that bring little new, and how much of the last one was known, in percent.
    pub(super) stale: usize,
    pub(super) percent: usize,
    /// Failed results in a row.
    pub(super) failed: usize,
    /// The results with the most frequent error.
    pub(super) equal_errors: usize,
    pub(super) searches_reported: bool,
    pub(super) errors_reported: bool,
    pub(super) budget_reported: bool,
    topics: Vec<Topic>,
    known: KnownUnits,
    errors: HashMap<u64, usize>,
}

/// What one tool was asked for.
#[derive(Clone)]
struct Topic {
    tool: String,
    words: Arc<Words>,
    searches: usize,
}

/// A search that is answered.
pub(super) struct Search<'a> {
    pub(super) call: &'a Call,
    pub(super) query: Option<Words>,
    /// `None`: nothing says whether its result is good.
    pub(super) is_good: Option<bool>,
}

impl Turn {
    /// Adds whether a result is an error, and which.
    pub(super) fn add_outcome(&mut self, view: &View<'_>) {
        if !has_failed(view) {
            self.failed = 0;
            return;
        }
        self.failed += 1;
        // Numbers and times differ between equal errors.
        let text = text_of(view, ERROR_BYTES);
        let letters: String = text.chars().filter(|char| char.is_alphabetic()).collect();
        let error = hash_of(letters);
        if self.errors.len() < MOST_ERRORS || self.errors.contains_key(&error) {
            let count = self.errors.entry(error).or_default();
            *count += 1;
            self.equal_errors = self.equal_errors.max(*count);
        }
    }

    /// Adds a search with its result; `shared`: the share of known units from which on it brings little new.
    pub(super) fn add_search(&mut self, search: Search<'_>, result: &ToolResult<'_>, shared: f64) {
        let Search { call, query, is_good } = search;
        self.poor = match is_good {
            Some(true) => 0,
            Some(false) => self.poor + 1,
            None => self.poor,
        };
        match self.known.add(&text_of(&result.view, COMPARED)) {
            Some(share) if share >= shared => {
                self.stale += 1;
                self.percent = (share * 100.0) as usize;
            }
            Some(_) => self.stale = 0,
            None => {}
        }
        if let Some(words) = query.filter(|words| !words.is_empty() && !asks_for_more(call)) {
            self.add_topic(&call.name, words);
        }
    }

    fn add_topic(&mut self, tool: &str, words: Words) {
        let is_same = |known: &Words| known.likeness(&words) >= SAME_TOPIC || known.opens_like(&words);
        let is_it = |topic: &Topic| topic.tool == tool && is_same(&topic.words);
        if let Some(at) = self.topics.iter().position(is_it) {
            self.topics[at].searches += 1;
        } else if self.topics.len() < MOST_TOPICS {
            self.topics.push(Topic { tool: tool.to_owned(), words: Arc::new(words), searches: 1 });
        }
    }

    /// The searches for the topic that was searched most.
    pub(super) fn most_of_a_topic(&self) -> usize {
        self.topics.iter().map(|topic| topic.searches).max().unwrap_or(0)
    }
}

/// Whether a search asks for the next page of the results that it had.
fn asks_for_more(call: &Call) -> bool {
    let arguments: Map<String, Value> = serde_json::from_str(&call.arguments_text()).unwrap_or_default();
    let is_later = |value: &Value| match value {
        Value::Number(number) => number.as_f64().is_some_and(|number| number > 1.0),
        Value::String(text) => !matches!(text.trim(), "" | "0" | "1"),
        _ => false,
    };
    PAGES.iter().filter_map(|key| arguments.get(*key)).any(is_later)
}
