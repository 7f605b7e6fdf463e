//! A bounded map that forgets what was not asked for longest: two generations, and the older one is dropped whole
//! when the younger is full. Made for what every request asks for by the hundred: a look-up takes one lock, one
//! table and next to no time, where an exact order of use would have to be written down each time. Knows nothing
//! of what it keeps.

use crate::conversation::identity::Hash;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::mem::swap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Parts with a lock each, where many values are kept.
const SHARDS: usize = 32;
/// The least weight that is worth a part of its own.
const LEAST_SHARD: u64 = 1024;

/// See the file's head.
pub(super) struct Recent<V> {
    /// A std mutex each: held for a look-up, never across an await.
    shards: Vec<Mutex<Shard<V>>>,
    /// Most that one generation of a shard may weigh.
    most: u64,
    /// How long a value is kept since it was written, in ms.
    lifetime_ms: u64,
    weigh: fn(&V) -> u64,
}

struct Shard<V> {
    young: Generation<V>,
    old: Generation<V>,
    /// What the young ones weigh together.
    weight: u64,
}

type Generation<V> = HashMap<Hash, Kept<V>, BuildHasherDefault<AsItIs>>;

struct Kept<V> {
    value: V,
    written_ms: u64,
}

impl<V: Clone> Recent<V> {
    /// An empty map that keeps up to `bound`, as `weigh` says, each value for `lifetime_ms`. A value that weighs more
    /// than half of a part's share is not kept: for few heavy values see [`Self::of_heavy`].
    pub(super) fn new(bound: u64, lifetime_ms: u64, weigh: fn(&V) -> u64) -> Self {
        let shards = if bound >= SHARDS as u64 * LEAST_SHARD { SHARDS } else { 1 };
        Self::in_shards(shards, bound, lifetime_ms, weigh)
    }

    /// The same in one part, so that one value may weigh half of all.
    pub(super) fn of_heavy(bound: u64, lifetime_ms: u64, weigh: fn(&V) -> u64) -> Self {
        Self::in_shards(1, bound, lifetime_ms, weigh)
    }

    fn in_shards(shards: usize, bound: u64, lifetime_ms: u64, weigh: fn(&V) -> u64) -> Self {
        let empty = || Shard { young: HashMap::default(), old: HashMap::default(), weight: 0 };
        Self {
            shards: (0..shards).map(|_| Mutex::new(empty())).collect(),
            most: bound / shards as u64 / 2,
            lifetime_ms,
            weigh,
        }
    }

    /// The value under `key`, if it is known at `now_ms`.
    pub(super) fn find(&self, key: &Hash, now_ms: u64) -> Option<V> {
        let mut shard = self.shard(key);
        if let Some(kept) = shard.young.get(key) {
            return self.is_alive(kept, now_ms).then(|| kept.value.clone());
        }
        // Most keys of some kinds were never written: then there is nothing to move.
        let kept = if shard.old.is_empty() { None } else { shard.old.remove(key) };
        let kept = kept.filter(|kept| self.is_alive(kept, now_ms))?;
        let value = kept.value.clone();
        self.put(&mut shard, *key, kept);
        Some(value)
    }

    /// Puts what `next` makes of the value under `key` in its place; whether there was one.
    pub(super) fn update(&self, key: Hash, now_ms: u64, next: impl FnOnce(Option<V>) -> V) -> bool {
        let mut shard = self.shard(&key);
        let known = shard.take(&key, self.weigh).filter(|kept| self.is_alive(kept, now_ms));
        let was_known = known.is_some();
        let value = next(known.map(|kept| kept.value));
        self.put(&mut shard, key, Kept { value, written_ms: now_ms });
        was_known
    }

    /// How many values are known at `now_ms`. Looks at all of them.
    pub(super) fn count(&self, now_ms: u64) -> u64 {
        let alive = |shard: &Mutex<Shard<V>>| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let all = shard.young.values().chain(shard.old.values());
            all.filter(|kept| self.is_alive(kept, now_ms)).count() as u64
        };
        self.shards.iter().map(alive).sum()
    }

    fn shard(&self, key: &Hash) -> MutexGuard<'_, Shard<V>> {
        // Other bits than those that the tables go by.
        let at = (key.0 >> 96) as usize % self.shards.len();
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_alive(&self, kept: &Kept<V>, now_ms: u64) -> bool {
        now_ms.saturating_sub(kept.written_ms) < self.lifetime_ms
    }

    /// Keeps a value that is in neither generation.
    fn put(&self, shard: &mut Shard<V>, key: Hash, kept: Kept<V>) {
        let weight = (self.weigh)(&kept.value);
        if weight > self.most {
            return;
        }
        if shard.weight + weight > self.most {
            shard.turn();
        }
        shard.weight += weight;
        shard.young.insert(key, kept);
    }
}

impl<V> Shard<V> {
    fn take(&mut self, key: &Hash, weigh: fn(&V) -> u64) -> Option<Kept<V>> {
        if let Some(kept) = self.young.remove(key) {
            self.weight -= weigh(&kept.value);
            return Some(kept);
        }
        self.old.remove(key)
    }

    /// The old ones are forgotten, the young ones are the old.
    fn turn(&mut self) {
        swap(&mut self.young, &mut self.old);
        // Its table is kept: the next generation will be as large.
        self.young.clear();
        self.weight = 0;
    }
}

/// Keys are hashes already, under a secret.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
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

    const FOR_EVER: u64 = u64::MAX;

    fn counting(bound: u64) -> Recent<u32> {
        Recent::new(bound, FOR_EVER, |_| 1)
    }

    #[test]
    fn what_is_asked_for_stays_and_what_is_not_is_forgotten() {
        let map = counting(100);
        for key in 0..1000 {
            map.update(Hash(key), 0, |_| 1);
            assert_eq!(map.find(&Hash(0), 0), Some(1), "{key}");
        }
        assert_eq!(map.find(&Hash(1), 0), None);
        assert_eq!(map.find(&Hash(999), 0), Some(1));
        let count = map.count(0);
        assert!((50..=100).contains(&count), "{count}");
    }

    #[test]
    fn a_value_dies_a_lifetime_after_it_was_written_however_often_it_is_asked_for() {
        let map = Recent::new(100, 10, |_: &u32| 1);
        assert!(!map.update(Hash(1), 5, |known| known.map_or(7, |known| known + 1)));
        assert_eq!((map.find(&Hash(1), 14), map.count(14)), (Some(7), 1));
        assert_eq!((map.find(&Hash(1), 15), map.count(15)), (None, 0));
        assert!(!map.update(Hash(1), 20, |known| known.map_or(7, |known| known + 1)));
        assert!(map.update(Hash(1), 29, |known| known.map_or(7, |known| known + 1)));
        assert_eq!(map.find(&Hash(1), 38), Some(8));
    }

    #[test]
    fn the_weight_of_all_is_bounded_and_what_is_too_heavy_is_not_kept() {
        let map = Recent::new(1000, FOR_EVER, |value: &u64| *value);
        map.update(Hash(0), 0, |_| 501);
        assert_eq!(map.find(&Hash(0), 0), None);
        let bound = 64 * SHARDS as u64 * LEAST_SHARD;
        let map = Recent::new(bound, FOR_EVER, |value: &u64| *value);
        let key = |at: u128| Hash(at << 96 | at);
        for at in 0..100_000 {
            map.update(key(at), 0, |_| 100 + at as u64 % 7);
            map.update(key(at / 2), 0, |known| known.unwrap_or(50));
        }
        assert!(map.count(0) * 106 <= bound && map.count(0) * 50 > bound / 8);
    }
}
