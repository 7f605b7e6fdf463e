//! The memo of what was derived from messages: a bounded LRU cache in this process's memory.

use super::cache::{Cache, ENTRY_BYTES, weighed};
use model::identity::Hash;
use model::memo::{DerivedValue, Memo};
use std::time::Duration;

/// A cache of what was derived from messages, up to a number of bytes.
pub struct MemoCache(Cache<(DerivedValue, usize)>);

impl MemoCache {
    /// An empty cache that keeps up to `bytes`.
    pub fn new(bytes: u64) -> Self {
        // What is derived from bytes never changes.
        Self(weighed(bytes, Duration::MAX, |(_, weight)| weight + ENTRY_BYTES))
    }
}

impl Memo for MemoCache {
    fn find(&self, key: Hash) -> Option<DerivedValue> {
        self.0.get(&key).map(|(value, _)| value)
    }

    fn keep(&self, key: Hash, value: DerivedValue, weight: usize) {
        self.0.insert(key, (value, weight));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_derived_once_is_not_derived_again() {
        let memo: &dyn Memo = &MemoCache::new(10_000);
        let mut computed = 0;
        for _ in 0..3 {
            memo.derive(Hash(1), || {
                computed += 1;
                Hash(2)
            });
        }
        assert_eq!(computed, 1);
    }
}
