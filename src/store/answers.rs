//! Answers of other models about calls, kept within a bound and a lifetime. Sends no requests. An answer that was
//! evicted is only asked for again.

use model::identity::Hash;
use state::cache::{Cache, ENTRY_BYTES, weighed};
use std::sync::Arc;
use std::time::Duration;

/// The memory limit for all of them: some ten thousand short answers.
const BYTES: u64 = 4 << 20;

/// See the module's documentation.
pub struct ModelAnswers(Cache<Arc<str>>);

impl ModelAnswers {
    /// A store without answers; each answer is kept for `lifetime`.
    pub fn new(lifetime: Duration) -> Self {
        Self(weighed(BYTES, lifetime, |answer: &Arc<str>| ENTRY_BYTES + answer.len()))
    }

    /// The answer to the question `key`.
    pub fn find(&self, key: Hash) -> Option<Arc<str>> {
        self.0.get(&key)
    }

    /// Keeps the answer to the question `key`.
    pub fn keep(&self, key: Hash, answer: Arc<str>) {
        self.0.insert(key, answer);
    }
}
