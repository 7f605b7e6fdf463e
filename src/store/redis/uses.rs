//! Quota uses as a mergeable set: replicas report them in any order; there is one entry for each use, and the highest
//! value of every number counts. The same rules as in one process's memory: several tries of one request count once.
//! Allows and forbids nothing.

use super::records::Use;
use crate::conversation::identity::Hash;
use crate::store::spent::{AGAIN_WITHIN_MS, MOST_TRIES, MOST_USES};
use crate::store::{Quota, Spent};
use std::collections::BTreeMap;

/// How many entries of a quota are read, the newest first: enough for all of its calls, and one more for the present
/// request. Replicas that do not know of each other yet may write one use in several entries, until it is written
/// anew.
pub(super) fn most_read(calls: usize) -> usize {
    (calls.min(MOST_USES) + 1) * MOST_TRIES as usize
}

/// The uses of one quota that a process knows, by the request and how often it was sent anew.
#[derive(Clone, Debug, Default)]
pub(super) struct Uses(BTreeMap<(Hash, u32), Use>);

/// What has to be written for other replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) added: Use,
    /// The entries that this change replaces.
    pub(super) gone: Vec<Use>,
    /// How long a use counts, in ms.
    pub(super) window_ms: u64,
}

impl Uses {
    /// Registers a request at `now_ms`: returns the uses by others, as known to this process and the `shared` state
    /// store, and what has to be written if the request came before.
    pub(super) fn come(
        &mut self,
        shared: &[Use],
        (request, now_ms): (Hash, u64),
        quota: Quota,
    ) -> (Vec<u64>, Option<Change>) {
        self.forget(now_ms, quota.window_ms);
        let (tries, others): (Vec<Use>, Vec<Use>) = shared.iter().partition(|it| it.request == request);
        tries.iter().for_each(|it| self.learn(*it));
        let change = self.come_again(request, now_ms).map(|added| {
            let mut change = self.put(added, quota.window_ms);
            let is_older = |it: &&Use| it.nth == added.nth && **it != added && !change.gone.contains(*it);
            let older: Vec<Use> = tries.iter().filter(is_older).copied().collect();
            change.gone.extend(older);
            change
        });
        if others.is_empty() {
            return (self.spent(request), change);
        }
        let mut all = self.clone();
        others.into_iter().for_each(|it| all.learn(it));
        (all.spent(request), change)
    }

    /// Adds what a request brought; of its tries the one with the most calls counts. `None`: nothing has to be written.
    pub(super) fn add(&mut self, spent: &Spent) -> Option<Change> {
        self.forget(spent.at_ms, spent.window_ms);
        let (request, at_ms) = (spent.request, spent.at_ms);
        let calls = u32::try_from(spent.calls).unwrap_or(u32::MAX);
        let added = match self.last(request) {
            Some(known) if known.is_open() && known.calls >= calls => return None,
            Some(known) if known.is_open() => Use { calls, ..known },
            known => Use { request, nth: known.map_or(0, |known| known.nth + 1), at_ms, tries: 1, calls },
        };
        let change = self.put(added, spent.window_ms);
        self.bound();
        Some(change)
    }

    /// How many are known.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The request's use if it is a retry: with another try, or closed, so that it counts from now on.
    fn come_again(&self, request: Hash, now_ms: u64) -> Option<Use> {
        let known = self.last(request).filter(Use::is_open)?;
        let is_try = known.tries < MOST_TRIES && now_ms.saturating_sub(known.at_ms) < AGAIN_WITHIN_MS;
        Some(Use { tries: if is_try { known.tries + 1 } else { MOST_TRIES + 1 }, ..known })
    }

    /// When calls were handed out, except for earlier tries of `request`.
    fn spent(&self, request: Hash) -> Vec<u64> {
        let own = self.last(request).filter(Use::is_open);
        let others = self.0.values().filter(|it| Some(**it) != own);
        let mut spent: Vec<u64> =
            others.flat_map(|it| std::iter::repeat_n(it.at_ms, it.calls as usize)).collect();
        spent.sort_unstable();
        spent
    }

    fn last(&self, request: Hash) -> Option<Use> {
        self.0.range((request, 0)..=(request, u32::MAX)).next_back().map(|(_, it)| *it)
    }

    fn learn(&mut self, other: Use) {
        let known = self.0.entry((other.request, other.nth)).or_insert(other);
        known.at_ms = known.at_ms.max(other.at_ms);
        known.tries = known.tries.max(other.tries);
        known.calls = known.calls.max(other.calls);
    }

    fn put(&mut self, added: Use, window_ms: u64) -> Change {
        let gone = self.0.insert((added.request, added.nth), added);
        Change { added, gone: gone.into_iter().collect(), window_ms }
    }

    fn forget(&mut self, now_ms: u64, window_ms: u64) {
        self.0.retain(|_, it| now_ms.saturating_sub(it.at_ms) < window_ms);
    }

    /// Drops the oldest of too many.
    fn bound(&mut self) {
        while self.0.len() > MOST_USES {
            let oldest = self.0.iter().min_by_key(|(_, it)| it.at_ms).map(|(key, _)| *key);
            oldest.and_then(|key| self.0.remove(&key));
        }
    }
}

impl Use {
    /// Whether another try of its request may belong to it.
    fn is_open(&self) -> bool {
        self.tries <= MOST_TRIES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::spent::Uses as OfOneProcess;
    use proptest::prelude::*;

    /// What replicas share, as the Redis keeps it: the entries of one quota; a look-up reads the newest.
    #[derive(Default)]
    struct Shared(Vec<Use>);

    impl Shared {
        fn hear(&mut self, change: Option<Change>) {
            let Some(Change { added, gone, .. }) = change else { return };
            self.0.retain(|it| !gone.contains(it) && *it != added);
            self.0.push(added);
        }

        fn read(&self, now_ms: u64, quota: Quota) -> Vec<Use> {
            let mut inside = self.0.clone();
            inside.retain(|it| now_ms.saturating_sub(it.at_ms) < quota.window_ms);
            inside.sort_unstable_by_key(|it| std::cmp::Reverse(it.at_ms));
            inside.truncate(most_read(quota.calls));
            inside
        }
    }

    fn quota(calls: usize, window_ms: u64) -> Quota {
        Quota { name: Hash(0), calls, window_ms }
    }

    fn spent(request: Hash, calls: usize, (at_ms, window_ms): (u64, u64)) -> Spent {
        Spent { quota: Hash(0), request, calls, at_ms, window_ms }
    }

    proptest! {
        #[test]
        fn uses_count_among_replicas_as_they_would_in_one_process(
            minutes in 5..30u64,
            steps in proptest::collection::vec((0..5u128, 0..3usize, 1..400_000u64, 0..3usize), 0..40)
        ) {
            let quota = quota(100, minutes * 60_000);
            let (mut memory, mut shared, mut now_ms) = (OfOneProcess::default(), Shared::default(), 1);
            let mut replicas = [(); 3].map(|()| Uses::default());
            for (request, calls, pause_ms, replica) in steps {
                now_ms += pause_ms;
                let (request, replica) = (Hash(request), &mut replicas[replica]);
                let mut expected = memory.before(request, now_ms);
                expected.retain(|at_ms| now_ms - at_ms < quota.window_ms);
                let (found, change) = replica.come(&shared.read(now_ms, quota), (request, now_ms), quota);
                prop_assert_eq!(found, expected);
                shared.hear(change);
                now_ms += 1;
                if calls > 0 {
                    let spent = spent(request, calls, (now_ms, quota.window_ms));
                    memory.add(&spent);
                    shared.hear(replica.add(&spent));
                }
            }
        }
    }

    #[test]
    fn retries_of_a_request_do_not_evict_uses_of_a_quota() {
        let day = 86_400_000;
        let quota = quota(1_000, day);
        let (mut known, mut shared) = (Uses::default(), Shared::default());
        for nth in 0..1_000u64 {
            let request = Hash(u128::from(nth) + 1);
            for at_ms in (nth * 10..).step_by(2).take(3) {
                shared.hear(known.come(&[], (request, at_ms), quota).1);
                shared.hear(known.add(&spent(request, 1, (at_ms + 1, day))));
            }
        }
        assert_eq!((known.len(), shared.0.len()), (1_000, 1_000));
        let (found, _) = Uses::default().come(&shared.read(30_000, quota), (Hash(0), 30_000), quota);
        assert_eq!(found.len(), 1_000);
    }

    #[test]
    fn an_unchanged_use_is_not_written_to_the_store() {
        let hour = 3_600_000;
        let mut known = Uses::default();
        assert!(known.come(&[], (Hash(1), 5), quota(9, hour)).1.is_none(), "new");
        assert!(known.add(&spent(Hash(1), 2, (6, hour))).is_some());
        for calls in [1, 2] {
            assert!(known.add(&spent(Hash(1), calls, (7, hour))).is_none(), "{calls}");
        }
        assert!(known.add(&spent(Hash(1), 3, (8, hour))).is_some(), "more");
        let added: Vec<bool> =
            (9..14).map(|at_ms| known.come(&[], (Hash(1), at_ms), quota(9, hour)).1.is_some()).collect();
        assert_eq!(added, [true, true, true, false, false], "after the fourth try it is closed");
    }

    #[test]
    fn a_use_written_by_two_replicas_at_once_is_merged_into_one() {
        let quota = quota(9, 3_600_000);
        let [one, other] = [5, 7].map(|at_ms| Use { request: Hash(1), nth: 0, at_ms, tries: 1, calls: 1 });
        let (found, _) = Uses::default().come(&[one, other], (Hash(2), 8), quota);
        assert_eq!(found, [7]);
        let (found, change) = Uses::default().come(&[one, other], (Hash(1), 8), quota);
        let change = change.unwrap();
        assert!(found.is_empty());
        assert_eq!((change.added, change.gone), (Use { tries: 2, ..other }, vec![other, one]));
    }

    #[test]
    fn the_largest_quota_fits_and_the_oldest_of_more_are_forgotten() {
        let day = 86_400_000;
        let mut known = Uses::default();
        for at_ms in 0..MOST_USES as u64 + 5 {
            known.0.insert(
                (Hash(at_ms.into()), 0),
                Use { request: Hash(at_ms.into()), nth: 0, at_ms, tries: 1, calls: 1 },
            );
        }
        known.bound();
        let (found, _) = known.come(&[], (Hash(u128::MAX), 20_000), quota(MOST_USES, day));
        assert_eq!((found.len(), found.first()), (crate::policy::about::MOST_COUNTED, Some(&5)));
    }
}
