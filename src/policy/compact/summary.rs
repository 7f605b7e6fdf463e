//! What style "summary" adds to a batch: its settings, the batch's name, and what is wanted where nothing was decided
//! yet. Asks nobody and waits for nobody.

use super::super::ConfigError;
use super::super::RequestFacts;
use super::super::period::Period;
use super::super::plan::SummaryWanted;
use super::marker::Old;
use crate::transcript::identity::{Domain, Hash, HashKey};
use crate::transcript::summaries::Summaries;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;

/// What may be asked for, in words.
const WORDS: std::ops::RangeInclusive<usize> = 20..=2_000;
/// The longest that a request may be held up for a summary.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// What the model reads of what was cleared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Style {
    /// A marker for each result.
    #[default]
    Clear,
    /// In the marker of the batch's newest result a summary of all of them, too.
    Summary,
}

/// `[policy.compact.summary]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The model that is asked, at the same upstream.
    model: String,
    /// The longest summary, in words.
    words: usize,
    /// The longest that a request waits for it; then the batch is cleared without.
    wait: Period,
}

impl Default for Settings {
    fn default() -> Self {
        Self { model: "gpt-4o-mini".to_owned(), words: 200, wait: Period(Duration::from_secs(5)) }
    }
}

impl Settings {
    /// What is wrong with them.
    pub(super) fn problems(&self) -> Vec<ConfigError> {
        let checks = [
            (!self.model.is_empty(), "summary.model", "expected the name of a model"),
            (WORDS.contains(&self.words), "summary.words", "expected 20 to 2000"),
            (
                !self.wait.0.is_zero() && self.wait.0 <= LONGEST_WAIT,
                "summary.wait",
                "expected more than 0, up to 60s",
            ),
        ];
        let wrong = checks.into_iter().filter(|(right, ..)| !right);
        wrong.map(|(_, key, problem)| ConfigError::new(key, problem)).collect()
    }

    /// What is asked for where nothing was decided yet.
    pub(super) fn wanted(&self, name: Hash, batch: &[&Old]) -> SummaryWanted {
        let texts = batch.iter().map(|old| (old.message, old.text)).collect();
        let Self { model, words, wait } = self;
        SummaryWanted { batch: name, texts, model: Arc::from(&**model), words: *words, wait: wait.0 }
    }
}

/// The summaries as the caller of one request may read them.
#[derive(Clone)]
pub(super) struct Pinned {
    known: Arc<dyn Summaries>,
    key: HashKey,
    principal: Hash,
}

impl Pinned {
    /// `None` where nobody keeps any.
    pub(super) fn open(request: &RequestFacts<'_>) -> Option<Self> {
        let known = Arc::clone(request.summaries?);
        Some(Self { known, key: request.key.clone(), principal: request.principal })
    }

    /// The name of `batch`: by whom it is asked for, how, and every text.
    pub(super) fn name(&self, batch: &[&Old], settings: &Settings) -> Hash {
        let extend = |name: Hash, old: &&Old| {
            let (name, text) = (name.0.to_le_bytes(), old.name.0.to_le_bytes());
            self.key.hash(Domain::Summary, &[&name, &text])
        };
        let (caller, words) = (self.principal.0.to_le_bytes(), settings.words.to_le_bytes());
        let asked = self.key.hash(Domain::Summary, &[&caller, settings.model.as_bytes(), &words]);
        batch.iter().fold(asked, extend)
    }

    /// The summary of the results named `batch`.
    pub(super) fn summary(&self, batch: Hash) -> Option<Arc<str>> {
        self.known.pinned(batch)
    }
}
