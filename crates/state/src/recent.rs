//! A bounded cache for a very large number of small values of one weight: release times of calls, a million of them
//! by default, and what is asked for and written with every request. It is sharded, and each shard has a lock and two
//! generations; the older generation is dropped whole when the younger is full, so that an entry needs no memory beside
//! its value and its slot in a table. moka would take twice the memory, and some 1,700 instructions to note that a key was
//! seen (docs/performance.md).

use super::cache::IdentityHasher;
use model::identity::Hash;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::mem::swap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many shards there are, where many values are kept.
const SHARDS: usize = 32;
/// The fewest values that are worth a shard of their own.
const LEAST_SHARD: u64 = 1024;

/// See the module's documentation.
pub struct Recent<V> {
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
    pub fn new(bound: u64, lifetime_ms: u64) -> Self {
        let shards = if bound >= SHARDS as u64 * LEAST_SHARD { SHARDS } else { 1 };
        let empty = || Shard { young: HashMap::default(), old: HashMap::default() };
        Self {
            shards: (0..shards).map(|_| Mutex::new(empty())).collect(),
            most: usize::try_from(bound / shards as u64 / 2).unwrap_or(usize::MAX),
            lifetime_ms,
        }
    }

    /// The value under `key`, if it is known at `now_ms`.
    pub fn find(&self, key: &Hash, now_ms: u64) -> Option<V> {
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
    pub fn update(&self, key: Hash, now_ms: u64, next: impl FnOnce(Option<V>) -> V) {
        let mut shard = self.shard(&key);
        let known = shard.young.remove(&key).or_else(|| shard.old.remove(&key));
        let known = known.filter(|kept| self.is_alive(kept, now_ms));
        let value = next(known.map(|kept| kept.value));
        self.put(&mut shard, key, Kept { value, written_ms: now_ms });
    }

    /// How many values are known at `now_ms`. Looks at each.
    pub fn count(&self, now_ms: u64) -> u64 {
        let alive = |shard: &Mutex<Shard<V>>| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let kept = shard.young.values().chain(shard.old.values());
            kept.filter(|kept| self.is_alive(kept, now_ms)).count() as u64
        };
        self.shards.iter().map(alive).sum()
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

impl Recent<()> {
    /// Whether `key` was seen before; marks it as seen at `now_ms`.
    pub fn see(&self, key: Hash, now_ms: u64) -> bool {
        let mut is_known = false;
        self.update(key, now_ms, |known| is_known = known.is_some());
        is_known
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
    fn a_key_is_known_once_it_was_seen_and_a_lifetime_after_it_was_last_seen() {
        let seen = Recent::new(100, 10);
        let known = [(1, 0), (2, 5), (1, 9), (1, 18), (2, 18)].map(|(key, at_ms)| seen.see(Hash(key), at_ms));
        assert_eq!(known, [false, false, true, true, false]);
        assert_eq!([18, 27, 28].map(|now_ms| seen.count(now_ms)), [2, 2, 0]);
    }

    #[test]
    fn updates_at_once_come_one_after_the_other() {
        let cache = Recent::new(10, u64::MAX);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        cache.update(Hash(1), 0, |known| known.unwrap_or(0) + 1);
                    }
                });
            }
        });
        assert_eq!(cache.find(&Hash(1), 0), Some(4_000));
    }

    #[test]
    fn a_value_expires_a_lifetime_after_its_last_write_even_if_it_is_read() {
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
