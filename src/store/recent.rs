//! A bounded cache for a very large number of small values: release times of calls, a million of them by default. It is
//! sharded, and each shard has a lock and two generations; the older generation is dropped whole when the younger is
//! full, so that an entry needs no memory beside its value and its slot in a table. moka's would take twice as much,
//! more than is to spare (docs/performance.md).

use super::cache::IdentityHasher;
use crate::conversation::identity::Hash;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::mem::swap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many shards there are, where many values are kept.
const SHARDS: usize = 32;
/// The fewest values that are worth a shard of their own.
const LEAST_SHARD: u64 = 1024;

/// See the module's documentation.
pub(super) struct Recent<V> {
    /// A std mutex each: held for a look-up, never across an await.
    shards: Vec<Mutex<Shard<V>>>,
    /// The most values of one generation of a shard.
    most: usize,
    /// How long a value is kept after it was written, in ms.
    lifetime_ms: u64,
}

struct Shard<V> {
    young: Generation<V>,
    old: Generation<V>,
}

type Generation<V> = HashMap<Hash, Kept<V>, BuildHasherDefault<IdentityHasher>>;

struct Kept<V> {
    value: V,
    written_ms: u64,
}

impl<V: Clone> Recent<V> {
    /// An empty cache of up to `bound` values, each kept for `lifetime_ms`.
    pub(super) fn new(bound: u64, lifetime_ms: u64) -> Self {
        let shards = if bound >= SHARDS as u64 * LEAST_SHARD { SHARDS } else { 1 };
        let empty = || Shard { young: HashMap::default(), old: HashMap::default() };
        Self {
            shards: (0..shards).map(|_| Mutex::new(empty())).collect(),
            most: usize::try_from(bound / shards as u64 / 2).unwrap_or(usize::MAX),
            lifetime_ms,
        }
    }

    /// The value under `key`, if it is known at `now_ms`.
    pub(super) fn find(&self, key: &Hash, now_ms: u64) -> Option<V> {
        let mut shard = self.shard(key);
        if let Some(kept) = shard.young.get(key) {
            return self.is_alive(kept, now_ms).then(|| kept.value.clone());
        }
        let kept = shard.old.remove(key).filter(|kept| self.is_alive(kept, now_ms))?;
        let value = kept.value.clone();
        self.put(&mut shard, *key, kept);
        Some(value)
    }

    /// Replaces the value under `key` by the result of `next`.
    pub(super) fn update(&self, key: Hash, now_ms: u64, next: impl FnOnce(Option<V>) -> V) {
        let mut shard = self.shard(&key);
        let known = shard.young.remove(&key).or_else(|| shard.old.remove(&key));
        let known = known.filter(|kept| self.is_alive(kept, now_ms));
        let value = next(known.map(|kept| kept.value));
        self.put(&mut shard, key, Kept { value, written_ms: now_ms });
    }

    fn shard(&self, key: &Hash) -> MutexGuard<'_, Shard<V>> {
        // Other bits than those that the tables use.
        let at = (key.0 >> 96) as usize % self.shards.len();
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_alive(&self, kept: &Kept<V>, now_ms: u64) -> bool {
        now_ms.saturating_sub(kept.written_ms) < self.lifetime_ms
    }

    /// Keeps a value that is in neither generation.
    fn put(&self, shard: &mut Shard<V>, key: Hash, kept: Kept<V>) {
        if shard.young.len() >= self.most {
            // The older generation is dropped, and the younger one becomes the older.
            swap(&mut shard.young, &mut shard.old);
            // Its table is kept: the next generation will be as large.
            shard.young.clear();
        }
        shard.young.insert(key, kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_stays_and_what_is_not_is_forgotten() {
        for bound in [100, SHARDS as u64 * LEAST_SHARD] {
            let cache = Recent::new(bound, u64::MAX);
            let key = |at: u128| Hash(at << 96 | at);
            let many = 10 * u128::from(bound);
            for at in 0..many {
                cache.update(key(at), 0, |_| 1);
                assert_eq!(cache.find(&key(0), 0), Some(1), "{at}");
            }
            assert_eq!(cache.find(&key(1), 0), None);
            assert_eq!(cache.find(&key(many - 1), 0), Some(1));
            let known = |shard: &Mutex<Shard<i32>>| {
                let shard = shard.lock().unwrap();
                (shard.young.len() + shard.old.len()) as u64
            };
            let count: u64 = cache.shards.iter().map(known).sum();
            assert!((bound / 2..=bound).contains(&count), "{count}");
        }
    }

    #[test]
    fn a_value_dies_a_lifetime_after_it_was_written_however_often_it_is_asked_for() {
        let cache = Recent::new(100, 10);
        let count = |known: Option<u32>| known.map_or(7, |known| known + 1);
        cache.update(Hash(1), 5, count);
        assert_eq!(cache.find(&Hash(1), 14), Some(7));
        assert_eq!(cache.find(&Hash(1), 15), None);
        cache.update(Hash(1), 20, count);
        cache.update(Hash(1), 29, count);
        assert_eq!(cache.find(&Hash(1), 38), Some(8));
    }
}
