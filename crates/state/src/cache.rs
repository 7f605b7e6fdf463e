//! LRU caches with a weight limit and a time to live, by moka, keyed by hashes. Knows nothing of their values.

use model::identity::Hash;
use moka::ops::compute::Op;
use moka::policy::EvictionPolicy;
use std::hash::{BuildHasherDefault, Hasher};
use std::time::Duration;

/// About what an entry costs beside its value.
pub const ENTRY_BYTES: usize = 300;
/// Longer times to live count as unlimited. moka allows no more than 1,000 years.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);

/// A cache of values by keyed hashes.
pub type Cache<V> = moka::sync::Cache<Hash, V, BuildHasherDefault<IdentityHasher>>;

/// A cache of values whose weights, given by `weigh`, add up to at most `bound`; each is kept for `lifetime` after it
/// was written.
pub fn weighed<V: Clone + Send + Sync + 'static>(
    bound: u64,
    lifetime: Duration,
    weigh: impl Fn(&V) -> usize + Send + Sync + 'static,
) -> Cache<V> {
    moka::sync::Cache::builder()
        .max_capacity(bound)
        .time_to_live(lifetime.min(LONGEST))
        .eviction_policy(EvictionPolicy::lru())
        .weigher(move |_, value| u32::try_from(weigh(value)).unwrap_or(u32::MAX))
        .build_with_hasher(BuildHasherDefault::default())
}

/// A cache of up to `bound` values, each kept for `lifetime` after it was written.
pub fn counted<V: Clone + Send + Sync + 'static>(bound: u64, lifetime: Duration) -> Cache<V> {
    weighed(bound, lifetime, |_| 1)
}

/// Replaces the value under `key` by the result of `next`, atomically.
pub fn update<V: Clone + Send + Sync + 'static>(
    cache: &Cache<V>,
    key: Hash,
    next: impl FnOnce(Option<V>) -> V,
) {
    cache.entry(key).and_compute_with(|known| Op::Put(next(known.map(|entry| entry.into_value()))));
}

/// The hasher for keys that are keyed hashes already: nobody outside can choose two of equal low halves.
#[derive(Default)]
pub struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u128(&mut self, number: u128) {
        self.0 = number as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_evicts_the_least_recently_used_entries_and_bounds_its_weight() {
        let cache = weighed(1_000, Duration::MAX, |value: &usize| *value);
        cache.insert(Hash(0), 1_001);
        cache.run_pending_tasks();
        assert_eq!(cache.get(&Hash(0)), None, "heavier than all may be");
        for key in 1..100 {
            update(&cache, Hash(key), |known| known.unwrap_or(100));
            cache.run_pending_tasks();
            assert_eq!(cache.get(&Hash(1)), Some(100), "{key}");
            assert!(cache.weighted_size() <= 1_000);
        }
        assert_eq!((cache.get(&Hash(2)), cache.get(&Hash(99))), (None, Some(100)));
    }

    #[test]
    fn updates_at_once_come_one_after_the_other() {
        let cache = counted::<u64>(10, Duration::MAX);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        update(&cache, Hash(1), |known| known.unwrap_or(0) + 1);
                    }
                });
            }
        });
        assert_eq!(cache.get(&Hash(1)), Some(4_000));
    }
}
