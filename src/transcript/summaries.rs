//! What another model made of old results, kept by a name of these. Only the interface: who asks for summaries, and
//! keeps what came of it, belongs to the shell.

use super::identity::Hash;
use std::sync::Arc;

/// The summaries that were made in time. What is told of a batch once, it is told for as long as it is remembered.
pub trait Summaries: Send + Sync {
    /// The summary of the results named `batch`, where these are to have one.
    fn pinned(&self, batch: Hash) -> Option<Arc<str>>;
}
