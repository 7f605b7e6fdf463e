//! Quota accounting: which calls were handed out to a caller, as a set that replicas merge. They report in any order; there is
//! one entry for each use, and the highest value of every number counts. Counts; allows and forbids nothing.

use engine::store::Spent;
use model::identity::Hash;
use model::uses::Use;
use std::collections::BTreeMap;

/// The most uses kept of one quota: the largest quota that the configuration allows fits.
pub(super) const MOST_USES: usize = policies::about::MOST_COUNTED;

/// The uses of one quota that a process knows, by the call and how often it was counted before.
#[derive(Clone, Debug, Default)]
pub(super) struct Uses(BTreeMap<(Hash, u32), Use>);

/// What has to be written for other replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) added: Use,
    /// The entry that this change replaces.
    pub(super) gone: Option<Use>,
    /// How long a use counts, in ms.
    pub(super) window_ms: u64,
}

impl Uses {
    /// The uses within the last `window_ms`, oldest first; `shared`: what other replicas have reported.
    pub(super) fn known(&self, shared: &[Use], now_ms: u64, window_ms: u64) -> Vec<Use> {
        let is_inside = |known: &Use| now_ms.saturating_sub(known.at_ms) < window_ms;
        let mut known: Vec<Use> = if shared.is_empty() {
            self.0.values().copied().filter(is_inside).collect()
        } else {
            let mut all = self.clone();
            shared.iter().for_each(|other| all.learn(*other));
            all.0.into_values().filter(is_inside).collect()
        };
        known.sort_unstable_by_key(|known| known.at_ms);
        known
    }

    fn learn(&mut self, other: Use) {
        let known = self.0.entry((other.call, other.nth)).or_insert(other);
        known.at_ms = known.at_ms.max(other.at_ms);
        known.tries = known.tries.max(other.tries);
        known.calls = known.calls.max(other.calls);
    }

    /// Adds what a request brought.
    pub(super) fn add(&mut self, spent: &Spent) -> Change {
        let Spent { call, request, at_ms, window_ms, calls, .. } = *spent;
        self.0.retain(|_, known| at_ms.saturating_sub(known.at_ms) < window_ms);
        if let Some(last) = spent.last {
            self.learn(last);
        }
        let last = self.0.range((call, 0)..=(call, u32::MAX)).next_back().map(|(_, known)| *known);
        let added = match last {
            Some(known) if spent.is_again => Use { tries: known.tries.saturating_add(1), ..known },
            // Beside those that were handed out again.
            Some(known) if known.is_open(at_ms) => {
                Use { calls: known.calls.saturating_add(calls), at_ms: known.at_ms.max(at_ms), ..known }
            }
            known => {
                let nth = known.map_or(0, |known| known.nth.saturating_add(1));
                Use { call, request, nth, at_ms, tries: 1, calls }
            }
        };
        let gone = self.0.insert((call, added.nth), added);
        self.bound();
        Change { added, gone, window_ms }
    }

    /// How many are kept.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Drops the oldest of too many.
    fn bound(&mut self) {
        while self.0.len() > MOST_USES {
            let oldest = self.0.iter().min_by_key(|(_, known)| known.at_ms).map(|(key, _)| *key);
            oldest.and_then(|key| self.0.remove(&key));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::uses::{AGAIN_WITHIN_MS, free_calls};

    const HOUR: u64 = 3_600_000;

    fn spent(call: u128, calls: u32, at_ms: u64) -> Spent {
        Spent {
            quota: Hash(0),
            call: Hash(call),
            request: Hash(7),
            last: None,
            is_again: false,
            calls,
            at_ms,
            window_ms: 5 * HOUR,
        }
    }

    fn again(call: u128, at_ms: u64) -> Spent {
        Spent { is_again: true, ..spent(call, 0, at_ms) }
    }

    fn times(uses: &Uses, now_ms: u64) -> Vec<u64> {
        let known = uses.known(&[], now_ms, 5 * HOUR).into_iter();
        known.flat_map(|known| std::iter::repeat_n(known.at_ms, known.calls as usize)).collect()
    }

    fn free(uses: &Uses, call: u128, now_ms: u64) -> u32 {
        free_calls(&uses.known(&[], now_ms, 5 * HOUR), (Hash(7), Hash(call)), now_ms)
    }

    #[test]
    fn every_call_counts_and_the_same_call_thrice_within_a_quarter_of_an_hour_counts_once() {
        let mut uses = Uses::default();
        uses.add(&spent(1, 2, 10));
        uses.add(&spent(2, 1, 20));
        assert_eq!((free(&uses, 1, 30), free(&uses, 2, 30), free(&uses, 3, 30)), (2, 1, 0));
        for at_ms in [30, 40] {
            assert_eq!(free(&uses, 1, at_ms), 2);
            uses.add(&again(1, at_ms));
        }
        assert_eq!((times(&uses, 50), free(&uses, 1, 50)), (vec![10, 10, 20], 0), "a fourth time");
        uses.add(&spent(1, 1, 50));
        assert_eq!((times(&uses, 60), free(&uses, 1, 60)), (vec![10, 10, 20, 50], 1), "counts anew");
        assert_eq!(free(&uses, 2, 20 + AGAIN_WITHIN_MS), 0, "too late");
        let elsewhere = free_calls(&uses.known(&[], 30, HOUR), (Hash(8), Hash(2)), 30);
        assert_eq!(elsewhere, 0, "of another request");
    }

    #[test]
    fn more_of_the_same_call_than_before_count() {
        let mut uses = Uses::default();
        uses.add(&spent(1, 1, 10));
        uses.add(&again(1, 20));
        uses.add(&spent(1, 2, 20));
        assert_eq!((times(&uses, 30), free(&uses, 1, 30)), (vec![20, 20, 20], 3));
    }

    #[test]
    fn what_has_left_the_window_is_forgotten_and_no_caller_keeps_more_than_the_bound() {
        let mut uses = Uses::default();
        uses.add(&spent(1, 1, 0));
        assert_eq!(times(&uses, 5 * HOUR), Vec::<u64>::new());
        uses.add(&spent(2, 1, 5 * HOUR));
        assert_eq!(uses.len(), 1);
        (0..MOST_USES as u128 + 5).for_each(|call| {
            uses.add(&spent(10 + call, 1, 5 * HOUR + call as u64 + 1));
        });
        assert_eq!((uses.len(), times(&uses, 6 * HOUR).first()), (MOST_USES, Some(&(5 * HOUR + 6))));
    }

    #[test]
    fn a_use_that_two_replicas_wrote_is_one() {
        let written = |at_ms, tries| Use { call: Hash(1), request: Hash(7), nth: 0, at_ms, tries, calls: 1 };
        let mut uses = Uses::default();
        uses.add(&spent(2, 1, 6));
        let known = uses.known(&[written(5, 2), written(7, 1)], 8, HOUR);
        let found: Vec<_> = known.iter().map(|known| (known.at_ms, known.tries)).collect();
        assert_eq!(found, [(6, 1), (7, 2)]);
        // It is handed out again by a replica that has not written it.
        let change = uses.add(&Spent { last: Some(known[1]), ..again(1, 9) });
        assert_eq!((change.added, change.gone), (written(7, 3), Some(written(7, 2))));
        let anew = uses.add(&Spent { last: Some(known[1]), ..spent(1, 1, 10) });
        assert_eq!((anew.added.nth, times(&uses, 10)), (1, vec![6, 7, 10]));
    }
}
