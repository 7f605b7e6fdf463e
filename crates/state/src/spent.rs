//! Quota accounting: which calls were handed out to a caller, as a set that replicas merge. They report in any order; there is
//! one entry for each call, and the highest value of every number counts. A reservation adds an entry where there is room.

use crate::random::random_bytes;
use model::identity::Hash;
use model::store::QuotaCall;
use model::uses::Use;
use std::collections::{BTreeMap, HashSet};

/// The most uses kept of one quota: the largest quota that the configuration allows fits.
pub(super) const MOST_USES: usize = model::uses::MOST_COUNTED;

/// The uses of one quota that a process knows, by the call and the number that distinguishes equal calls.
#[derive(Clone, Debug, Default)]
pub(super) struct Uses(BTreeMap<(Hash, u32), Use>);

/// What has to be written for other replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) added: Use,
    /// How long a use counts, in ms.
    pub(super) window_ms: u64,
}

impl Change {
    /// The entry of a call that counts. Its number is random: equal calls may be handed out at once, at other replicas too.
    pub(super) fn counting(call: &QuotaCall) -> Self {
        let QuotaCall { quota, call, request, at_ms, .. } = *call;
        let nth = u32::from_le_bytes(random_bytes());
        let added = Use { call, request, nth, at_ms, tries: 1, calls: 1 };
        Self { added, window_ms: quota.window_ms }
    }

    /// As [`Self::counting`], before it is known whether there is room: equal requests may not be handed out the call by it.
    pub(super) fn asking(call: &QuotaCall) -> Self {
        let change = Self::counting(call);
        Self { added: Use { tries: 0, ..change.added }, ..change }
    }

    /// The same entry, once there was room.
    pub(super) fn granted(self) -> Self {
        Self { added: Use { tries: 1, ..self.added }, ..self }
    }

    /// The entry by which `again`, an earlier use of the call, hands it out once more; `None` where that has been done as
    /// often as it may.
    pub(super) fn again(call: &QuotaCall, again: Use) -> Option<Self> {
        let added = Use { tries: again.tries.saturating_add(1), ..again };
        again.is_open(call.at_ms).then_some(Self { added, window_ms: call.quota.window_ms })
    }
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

    /// Adds a call that was handed out, whatever the quota allows.
    pub(super) fn add(&mut self, call: &QuotaCall) -> Change {
        let change = self.again(call).unwrap_or_else(|| Change::counting(call));
        self.keep(&change);
        change
    }

    /// Adds a call where fewer than `most` calls are known here within the quota's window.
    ///
    /// # Errors
    /// There is no room. Gives when these calls were handed out, in ms since the epoch, oldest first.
    pub(super) fn reserve(&mut self, call: &QuotaCall, most: usize) -> Result<Change, Vec<u64>> {
        let again = self.again(call);
        let change = match again {
            Some(again) => again,
            None => {
                let times = times_of(&self.known(&[], call.at_ms, call.quota.window_ms));
                if times.len() >= most {
                    return Err(times);
                }
                Change::counting(call)
            }
        };
        self.keep(&change);
        Ok(change)
    }

    /// The change by which an earlier use hands the call out once more, where there is one that may. What is known here of
    /// that use prevails: another request may have had it since.
    fn again(&self, call: &QuotaCall) -> Option<Change> {
        let again = call.again?;
        let known = self.0.get(&(again.call, again.nth)).filter(|known| known.tries > again.tries);
        Change::again(call, known.copied().unwrap_or(again))
    }

    /// Keeps an entry that the shared state store has taken, and forgets those that have left the window.
    pub(super) fn keep(&mut self, change: &Change) {
        let now_ms = change.added.at_ms;
        self.0.retain(|_, known| now_ms.saturating_sub(known.at_ms) < change.window_ms);
        self.0.insert((change.added.call, change.added.nth), change.added);
        self.bound();
    }

    /// Removes the entry of a call that was not handed out after all.
    pub(super) fn remove(&mut self, returned: &Use) {
        self.0.remove(&(returned.call, returned.nth));
    }

    /// The entries that `shared` lacks and that count at `now_ms`: the shared state store has lost them.
    pub(super) fn missing(&self, shared: &[Use], now_ms: u64, window_ms: u64) -> Vec<Change> {
        let is_inside = |known: &&Use| now_ms.saturating_sub(known.at_ms) < window_ms;
        let stored: HashSet<(Hash, u32)> = shared.iter().map(|it| (it.call, it.nth)).collect();
        let lost = self.0.values().filter(is_inside).filter(|it| !stored.contains(&(it.call, it.nth)));
        lost.map(|known| Change { added: *known, window_ms }).collect()
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

/// When these calls were handed out, in ms since the epoch, in the order of the uses.
pub(super) fn times_of(uses: &[Use]) -> Vec<u64> {
    let of_each = uses.iter().map(|known| {
        let calls = usize::try_from(known.calls).unwrap_or(usize::MAX).min(MOST_USES);
        std::iter::repeat_n(known.at_ms, calls)
    });
    of_each.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::store::Quota;
    use model::uses::AGAIN_WITHIN_MS;

    const HOUR: u64 = 3_600_000;

    fn call(call: u128, at_ms: u64) -> QuotaCall {
        let quota = Quota { name: Hash(0), calls: 3, window_ms: 5 * HOUR };
        QuotaCall { quota, call: Hash(call), request: Hash(7), again: None, at_ms }
    }

    /// The same call, which `known` uses may hand out again.
    fn retried(uses: &Uses, nth: u128, at_ms: u64) -> QuotaCall {
        let known = uses.known(&[], at_ms, 5 * HOUR);
        let again = known.into_iter().find(|known| known.call == Hash(nth) && known.is_open(at_ms));
        QuotaCall { again, ..call(nth, at_ms) }
    }

    fn times(uses: &Uses, now_ms: u64) -> Vec<u64> {
        let known = uses.known(&[], now_ms, 5 * HOUR).into_iter();
        known.flat_map(|known| std::iter::repeat_n(known.at_ms, known.calls as usize)).collect()
    }

    #[test]
    fn every_call_counts_and_the_same_call_thrice_within_a_quarter_of_an_hour_counts_once() {
        let mut uses = Uses::default();
        for (nth, at_ms) in [(1, 10), (1, 10), (2, 20)] {
            uses.add(&call(nth, at_ms));
        }
        for at_ms in [30, 31, 40, 41] {
            let again = retried(&uses, 1, at_ms);
            assert!(again.again.is_some());
            uses.add(&again);
        }
        assert_eq!(times(&uses, 50), [10, 10, 20]);
        assert_eq!(retried(&uses, 1, 50).again, None, "a fourth time");
        uses.add(&call(1, 50));
        assert_eq!(times(&uses, 60), [10, 10, 20, 50], "counts anew");
        assert_eq!(retried(&uses, 2, 20 + AGAIN_WITHIN_MS).again, None, "too late");
    }

    #[test]
    fn a_use_that_another_request_has_handed_out_again_since_is_handed_out_no_more_often() {
        let mut uses = Uses::default();
        uses.add(&call(1, 10));
        // All have read the same.
        let retries = [retried(&uses, 1, 20); 5];
        let granted = retries.iter().filter(|retry| uses.reserve(retry, 2).is_ok()).count();
        assert_eq!((granted, times(&uses, 30)), (3, vec![10, 20]), "two of the use, and one that counts");
    }

    #[test]
    fn a_reservation_adds_calls_up_to_the_limit_within_the_window_and_one_given_back_makes_room() {
        let mut uses = Uses::default();
        let first = uses.reserve(&call(1, 10), 2).unwrap();
        uses.reserve(&call(1, 10), 2).unwrap();
        assert_eq!(uses.reserve(&call(2, 20), 2), Err(vec![10, 10]));
        assert!(uses.clone().reserve(&call(2, 10 + 5 * HOUR), 2).is_ok(), "the window has passed");
        uses.remove(&first.added);
        assert!(uses.reserve(&call(2, 20), 2).is_ok());
        assert_eq!((uses.reserve(&call(3, 20), 2), times(&uses, 30)), (Err(vec![10, 20]), vec![10, 20]));
    }

    #[test]
    fn what_has_left_the_window_is_forgotten_and_no_caller_keeps_more_than_the_bound() {
        let mut uses = Uses::default();
        uses.add(&call(1, 0));
        assert_eq!(times(&uses, 5 * HOUR), Vec::<u64>::new());
        uses.add(&call(2, 5 * HOUR));
        assert_eq!(uses.len(), 1);
        (0..MOST_USES as u128 + 5).for_each(|nth| {
            uses.add(&call(10 + nth, 5 * HOUR + nth as u64 + 1));
        });
        assert_eq!((uses.len(), times(&uses, 6 * HOUR).first()), (MOST_USES, Some(&(5 * HOUR + 6))));
    }

    #[test]
    fn what_the_shared_state_store_lacks_is_known() {
        let mut uses = Uses::default();
        let changes: Vec<Change> = (1..4).map(|nth| uses.add(&call(nth, nth as u64))).collect();
        assert_eq!(uses.missing(&[changes[1].added], 5 * HOUR + 2, 5 * HOUR), [changes[2].clone()]);
        assert_eq!(uses.missing(&[], 10, 5 * HOUR).len(), 3);
    }

    #[test]
    fn a_reservation_that_is_not_granted_yet_hands_out_nothing_again() {
        let asked = Change::asking(&call(1, 5));
        assert_eq!(Change::again(&call(1, 6), asked.added), None);
        assert!(Change::again(&call(1, 6), asked.granted().added).is_some());
    }

    #[test]
    fn a_use_that_two_replicas_wrote_is_one() {
        let written = |at_ms, tries| Use { call: Hash(1), request: Hash(7), nth: 0, at_ms, tries, calls: 1 };
        let mut uses = Uses::default();
        uses.add(&call(2, 6));
        let known = uses.known(&[written(5, 2), written(7, 1)], 8, HOUR);
        let found: Vec<_> = known.iter().map(|known| (known.at_ms, known.tries)).collect();
        assert_eq!(found, [(6, 1), (7, 2)]);
        // It is handed out again by a replica that has not written it.
        let change = uses.add(&QuotaCall { again: Some(known[1]), ..call(1, 9) });
        assert_eq!(change.added, written(7, 3));
        uses.add(&QuotaCall { again: Some(known[1]), ..call(1, 10) });
        assert_eq!(times(&uses, 10), [6, 7, 10], "no more often");
    }
}
