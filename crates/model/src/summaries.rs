//! Summaries that another model made of old results, kept by batch. Only the interface: asking for summaries and
//! keeping them belongs to the shell.

use super::identity::Hash;
use std::sync::Arc;

/// What was decided for one batch of cleared results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pin {
    /// It has no summary.
    Cleared,
    Summary(Arc<str>),
}

impl Pin {
    /// The summary that was decided on.
    pub fn summary(self) -> Option<Arc<str>> {
        if let Self::Summary(summary) = self { Some(summary) } else { None }
    }
}

/// The decisions of this process. A decision on a batch stays the same as long as it is remembered.
pub trait Summaries: Send + Sync {
    /// The decision on the results named `batch`; `None` where none is remembered.
    fn pinned(&self, batch: Hash) -> Option<Pin>;
}

/// No model is asked for summaries: every batch counts as cleared.
pub struct NoSummaries;

impl Summaries for NoSummaries {
    fn pinned(&self, _batch: Hash) -> Option<Pin> {
        Some(Pin::Cleared)
    }
}
