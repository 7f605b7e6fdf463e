//! What histories cost, by their names: a table of fixed size in which a newer entry takes an older one's place.
//! Keeps nothing for sure; a bill that is forgotten is estimated.

use crate::transcript::identity::Hash;
use crate::transcript::prompt::Anchor;
use std::sync::{Mutex, PoisonError};

/// Locks, so that requests seldom wait for each other.
const SHARDS: usize = 64;
/// Places of each: 65,536 histories in all, about 6 MB once all are in use. A conversation needs its last few.
const PLACES: usize = 1024;

/// See the file's head.
pub(super) struct Anchors {
    // A std mutex: held for one assignment. The places of a shard are made when the first of them is needed.
    shards: Vec<Mutex<Vec<(Hash, Anchor)>>>,
}

impl Anchors {
    pub(super) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }

    pub(super) fn find(&self, name: Hash) -> Option<Anchor> {
        let shard = self.shard(name)?.lock().unwrap_or_else(PoisonError::into_inner);
        shard.get(place(name)).filter(|(known, _)| *known == name).map(|(_, anchor)| *anchor)
    }

    pub(super) fn keep(&self, name: Hash, anchor: Anchor) {
        let Some(shard) = self.shard(name) else { return };
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        if shard.is_empty() {
            shard.resize(PLACES, Default::default());
        }
        if let Some((known, kept)) = shard.get_mut(place(name)) {
            // Sent again and cut off before its bill came: the bill is known.
            if *known != name || anchor.prompt > 0 {
                (*known, *kept) = (name, anchor);
            }
        }
    }

    fn shard(&self, name: Hash) -> Option<&Mutex<Vec<(Hash, Anchor)>>> {
        self.shards.get(name.0 as usize % SHARDS)
    }
}

fn place(name: Hash) -> usize {
    (name.0 >> 64) as usize % PLACES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_entry_takes_the_place_of_an_older_one_and_nothing_else() {
        let anchors = Anchors::new();
        let anchor = |prompt| Anchor { prompt, ..Anchor::default() };
        let (one, same_place, other) = (Hash(1), Hash(1 | 1024 << 64), Hash(2));
        for (name, prompt) in [(one, 10), (other, 20)] {
            anchors.keep(name, anchor(prompt));
        }
        let found = |name| anchors.find(name).map(|anchor| anchor.prompt);
        assert_eq!([one, same_place, other].map(found), [Some(10), None, Some(20)]);
        anchors.keep(one, anchor(0));
        assert_eq!(found(one), Some(10), "its bill is known");
        anchors.keep(same_place, anchor(30));
        assert_eq!([one, same_place, other].map(found), [None, Some(30), Some(20)]);
    }
}
