//! What a plan says of summaries: which batches have one, of which nobody knows any more, and which could have one.
//! Plain data.

use crate::transcript::identity::Hash;
use std::sync::Arc;
use std::time::Duration;

/// What the policies know of the summaries of one conversation's batches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchSummaries {
    /// Batches that are told with a summary.
    pub told: usize,
    /// Batches of earlier requests of which no decision is known: it was forgotten, or never made here.
    pub lost: Vec<Hash>,
    /// A summary that the request's last batch could have.
    pub wanted: Option<SummaryWanted>,
}

/// A summary that is worth asking for before the request is sent. Without one the plan stands as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SummaryWanted {
    /// The name of what it is to be a summary of.
    pub batch: Hash,
    /// The name of the batch before, whose summary may have come too late for it.
    pub earlier: Option<Hash>,
    /// What is to be summarised: messages and places among their strings of text, oldest first.
    pub texts: Vec<(usize, usize)>,
    /// Who is asked, for how much, and how long that may take.
    pub terms: Arc<SummaryTerms>,
}

/// Who makes summaries, and within which bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SummaryTerms {
    pub model: String,
    /// How long a summary may be, in words.
    pub words: usize,
    /// How long a request may wait for one.
    pub wait: Duration,
    /// How long the model may take; what comes after `wait` is for the next batch.
    pub timeout: Duration,
    pub place: Place,
}

/// Where a model is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// What takes the place of the upstream's address. The caller's credentials never go there.
    pub url: Option<String>,
    /// The environment's variable that holds the key to be used in place of the caller's.
    pub key_env: Option<String>,
}
