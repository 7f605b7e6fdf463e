//! What another model made of old results, kept by a name of these. Only the interface: who asks for summaries, and
//! keeps what came of it, belongs to the shell.

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

/// The decisions of this process. What is told of a batch once, it is told for as long as it is remembered.
pub trait Summaries: Send + Sync {
    /// What was decided for the results named `batch`; `None` where nobody remembers a decision.
    fn pinned(&self, batch: Hash) -> Option<Pin>;
}
