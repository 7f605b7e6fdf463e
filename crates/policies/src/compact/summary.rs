//! The summaries of style "summary": their settings, the batch's name, and the summary that is wanted where nothing
//! was decided yet. Asks nobody and waits for nobody.

use super::super::endpoint;
use super::super::period::Period;
use super::super::{ConfigError, RequestView};
use super::marker::Old;
use model::identity::{Domain, Hash, HashKey};
use model::plan::{SummaryBlank, SummaryTerms, SummaryWanted};
use model::summaries::{Pin, Summaries};
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;

/// The allowed lengths, in words.
const WORDS: std::ops::RangeInclusive<usize> = 20..=2_000;
/// The longest allowed `wait`.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The longest allowed `timeout`.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(600);

/// What replaces cleared results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Style {
    /// A marker for each result.
    #[default]
    Clear,
    /// In the marker of the batch's newest result also a summary of all of them.
    Summary,
}

/// `[policy.compact.summary]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The model that is asked.
    model: String,
    /// Its address; empty: the caller's upstream, asked with the caller's credentials.
    url: String,
    /// The environment variable that holds the key to ask with; empty: none of our own.
    key_env: String,
    /// The longest summary, in words.
    words: usize,
    /// The longest that a request waits for it; then the batch is cleared without.
    wait: Period,
    /// The longest that the model may take; what comes after `wait` is shown with the next batch.
    timeout: Period,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            model: "gpt-4o-mini".to_owned(),
            url: String::new(),
            key_env: String::new(),
            words: 200,
            wait: Period(Duration::from_secs(5)),
            timeout: Period(Duration::from_secs(30)),
        }
    }
}

impl Settings {
    /// What is wrong with them.
    pub(super) fn problems(&self) -> Vec<ConfigError> {
        let (wait, timeout) = (self.wait.0, self.timeout.0);
        let checks = [
            (!self.model.is_empty(), "summary.model", "expected the name of a model"),
            (WORDS.contains(&self.words), "summary.words", "expected 20 to 2000"),
            (wait <= LONGEST_WAIT, "summary.wait", "expected up to 60s"),
            (
                wait <= timeout && !timeout.is_zero() && timeout <= LONGEST_TIMEOUT,
                "summary.timeout",
                "expected at least summary.wait, more than 0, up to 10m",
            ),
        ];
        let wrong = checks.into_iter().filter(|(right, ..)| !right);
        let wrong = wrong.map(|(_, key, problem)| ConfigError::new(key, problem));
        wrong.chain(endpoint::problems("summary", &self.url, &self.key_env)).collect()
    }

    /// The same as terms for the request.
    pub(super) fn terms(&self) -> SummaryTerms {
        SummaryTerms {
            model: self.model.clone(),
            words: self.words,
            wait: self.wait.0,
            timeout: self.timeout.0,
            endpoint: endpoint::endpoint(&self.url, &self.key_env),
        }
    }
}

/// The summaries as one request's caller may read them.
#[derive(Clone)]
pub(super) struct Pinned {
    known: Arc<dyn Summaries>,
    key: HashKey,
    caller: Hash,
    terms: Arc<SummaryTerms>,
    /// The batch before the one to come.
    earlier: Option<Hash>,
}

impl Pinned {
    /// `None` where no summaries are kept.
    pub(super) fn open(request: &RequestView<'_>, terms: &Arc<SummaryTerms>) -> Option<Self> {
        let known = request.transcript.summaries.clone()?;
        let (key, terms) = (request.transcript.identity.key.clone(), Arc::clone(terms));
        Some(Self { known, key, caller: request.transcript.identity.caller, terms, earlier: None })
    }

    /// The name of `batch`: by whom and how it is asked for, after which batch, and every text. `None` where nothing
    /// of it may be summarised.
    pub(super) fn name(&self, batch: &[&Old]) -> Option<Hash> {
        batch.iter().find(|old| !old.suspicious)?;
        let extend = |name: Hash, old: &&Old| {
            let (name, text) = (name.0.to_le_bytes(), old.name.0.to_le_bytes());
            self.key.hash(Domain::Summary, &[&name, &text])
        };
        let (caller, words) = (self.caller.0.to_le_bytes(), self.terms.words.to_le_bytes());
        let place =
            [&self.terms.endpoint.url, &self.terms.endpoint.key_env].map(|at| at.as_deref().unwrap_or(""));
        let earlier = self.earlier.unwrap_or_default().0.to_le_bytes();
        let asked = [self.terms.model.as_bytes(), place[0].as_bytes(), place[1].as_bytes()];
        let asked = [&caller[..], &words, &earlier, asked[0], asked[1], asked[2]];
        Some(batch.iter().fold(self.key.hash(Domain::Summary, &asked), extend))
    }

    /// What was decided for the results named `batch`.
    pub(super) fn pin(&self, batch: Hash) -> Option<Pin> {
        self.known.pinned(batch)
    }

    /// The summary to ask for where nothing was decided yet, to go into `blank`. Flagged texts are left out: a
    /// summary would carry them past the lines around them.
    pub(super) fn wanted(&self, name: Hash, batch: &[&Old], blank: SummaryBlank) -> SummaryWanted {
        let plain = batch.iter().filter(|old| !old.suspicious);
        let texts = plain.map(|old| (old.message, old.text)).collect();
        SummaryWanted { batch: name, earlier: self.earlier, texts, terms: Arc::clone(&self.terms), blank }
    }

    /// The batch named `name` is done.
    pub(super) fn pass(&mut self, name: Option<Hash>) {
        self.earlier = name.or(self.earlier);
    }
}
