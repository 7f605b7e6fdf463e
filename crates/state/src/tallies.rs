//! Sums that several processes add to (a grow-only counter): each process reports its own part, which only grows, and
//! the sum is that of all parts. So reports may be repeated, and arrive in any order. Adds; limits nothing.

use super::cache::{Cache, counted, update};
use crate::random::random_key;
use model::account::{Kind, Sums, Tally};
use model::identity::{Domain, Hash, HashKey};
use moka::Entry;
use moka::ops::compute::Op;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The most parts of one sum that count, the newest: a process that starts anew begins a new part.
pub(super) const MOST_PARTS: usize = 64;
/// The sums of a day are needed for a day, however short other facts are kept.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// How long sums are kept, where other facts are kept for `lifetime`.
pub(super) fn kept_for(lifetime: Duration) -> Duration {
    lifetime.max(DAY)
}

/// The part of one adder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// The name of this part. A part that was forgotten is started again under another name, so that it does not
    /// look older than what was already reported of it.
    pub(super) of: Hash,
    pub(super) tally: Tally,
}

/// This process's parts.
pub(super) struct OwnParts {
    parts: Cache<Part>,
    key: HashKey,
    started: AtomicU64,
}

impl OwnParts {
    /// Up to `bound` parts.
    pub(super) fn new(bound: u64, lifetime: Duration) -> Self {
        Self { parts: counted(bound, kept_for(lifetime)), key: random_key(), started: AtomicU64::new(0) }
    }

    /// The own part of the sum `key`.
    pub(super) fn part(&self, key: Hash) -> Option<Part> {
        self.parts.get(&key)
    }

    /// Adds to it; returns the part before, if there was one, and after.
    pub(super) fn add(&self, key: Hash, added: &Tally) -> (Option<Part>, Part) {
        let (mut before, mut after) = (None, Part { of: Hash::default(), tally: *added });
        update(&self.parts, key, |known| {
            before = known;
            after = match known {
                Some(known) => Part { tally: known.tally.plus(added), ..known },
                None => Part { of: self.new_name(), tally: *added },
            };
            after
        });
        (before, after)
    }

    /// Adds one call to the own part of the sum `key` where all parts together hold fewer than `most` calls. `others`: the
    /// calls in the parts of others. Returns the part before, if there was one, and after.
    ///
    /// # Errors
    /// There is no room. Gives how many calls the sum holds.
    pub(super) fn reserve(&self, key: Hash, others: u64, most: u64) -> Result<(Option<Part>, Part), u64> {
        let mut reserved = Err(0);
        self.parts.entry(key).and_compute_with(|known| {
            let before = known.map(Entry::into_value);
            let own = before.map_or(0, |part| part.tally.used().get(Kind::Calls));
            let used = others.saturating_add(own);
            if used >= most {
                reserved = Err(used);
                return Op::Nop;
            }
            let one = Tally::counted(Sums::ONE_CALL);
            let after = match before {
                Some(part) => Part { tally: part.tally.plus(&one), ..part },
                None => Part { of: self.new_name(), tally: one },
            };
            reserved = Ok((before, after));
            Op::Put(after)
        });
        reserved
    }

    fn new_name(&self) -> Hash {
        let nth = self.started.fetch_add(1, Ordering::Relaxed);
        self.key.hash(Domain::Account, &[&nth.to_le_bytes()])
    }
}

/// The sum of all parts. Of several states of one part the latest counts.
pub(super) fn sum(parts: impl Iterator<Item = Part>) -> Tally {
    let mut known: Vec<Part> = Vec::new();
    for part in parts {
        match known.iter_mut().find(|known| known.of == part.of) {
            Some(known) => known.tally = known.tally.later(&part.tally),
            None => known.push(part),
        }
    }
    known.iter().fold(Tally::default(), |sum, part| sum.plus(&part.tally))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn calls(count: u64) -> Tally {
        Tally { sums: Sums::default().with(Kind::Calls, count), ..Tally::default() }
    }

    proptest! {
        #[test]
        fn the_sum_of_reported_parts_is_the_same_in_any_order(
            adds in prop::collection::vec((0..3_usize, 0..9_u64), 0..30),
            order in prop::collection::vec(any::<prop::sample::Index>(), 0..60),
        ) {
            let adders = [(); 3].map(|()| OwnParts::new(10, DAY));
            let mut reported = Vec::new();
            for (adder, count) in &adds {
                reported.push(adders[*adder].add(Hash(1), &calls(*count)).1);
            }
            if !reported.is_empty() {
                let repeated: Vec<Part> = order.iter().map(|at| *at.get(&reported)).collect();
                reported.extend(repeated);
                reported.reverse();
            }
            let added = adds.iter().map(|(_, count)| count).sum();
            prop_assert_eq!(sum(reported.into_iter()), calls(added));
        }
    }

    #[test]
    fn a_forgotten_part_starts_a_new_part_beside_the_reported_one() {
        let adder = OwnParts::new(10, DAY);
        let (_, first) = adder.add(Hash(1), &calls(5));
        adder.parts.invalidate(&Hash(1));
        let (before, second) = adder.add(Hash(1), &calls(2));
        assert_eq!(before, None);
        assert_eq!(sum([first, second].into_iter()), calls(7));
    }
}
