//! What was used of quotas, as replicas tell it in any order: one entry a use, of which the highest of every number
//! counts. The same rules as in one process's memory: several tries of one request count once. Allows and forbids nothing.

use super::records::Use;
use crate::ledger::spent::{AGAIN_WITHIN_MS, MOST_TRIES, MOST_USES};
use crate::ledger::{Quota, Spent};
use crate::transcript::identity::Hash;
use std::collections::BTreeMap;

/// What is read of a quota, the newest: so many uses bring all of its calls and one more for the request that asks.
/// Replicas that do not know of each other yet may tell one use in several entries, until it is told anew.
pub(super) fn most_read(calls: usize) -> usize {
    (calls.min(MOST_USES) + 1) * MOST_TRIES as usize
}

/// The uses of one quota that a process knows, by the request and how often it was asked anew.
#[derive(Clone, Debug, Default)]
pub(super) struct Uses(BTreeMap<(Hash, u32), Use>);

/// What others are to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) told: Use,
    /// What it stands in place of.
    pub(super) gone: Vec<Use>,
    /// How long a use counts, in ms.
    pub(super) window_ms: u64,
}

impl Uses {
    /// A request comes at `now_ms`: what others than itself have used by what this process and the `shared` ledger
    /// know, and what is to be told if it came before.
    pub(super) fn come(
        &mut self,
        shared: &[Use],
        (request, now_ms): (Hash, u64),
        quota: Quota,
    ) -> (Vec<u64>, Option<Change>) {
        self.forget(now_ms, quota.window_ms);
        let (tries, others): (Vec<Use>, Vec<Use>) = shared.iter().partition(|it| it.request == request);
        tries.iter().for_each(|it| self.learn(*it));
        let change = self.come_again(request, now_ms).map(|told| {
            let mut change = self.put(told, quota.window_ms);
            let is_older = |it: &&Use| it.nth == told.nth && **it != told && !change.gone.contains(*it);
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

    /// Adds what a request brought; of its tries the one that brought most counts. `None`: nothing that others have to
    /// be told.
    pub(super) fn add(&mut self, spent: &Spent) -> Option<Change> {
        self.forget(spent.at_ms, spent.window_ms);
        let (request, at_ms) = (spent.request, spent.at_ms);
        let calls = u32::try_from(spent.calls).unwrap_or(u32::MAX);
        let told = match self.last(request) {
            Some(known) if known.is_open() && known.calls >= calls => return None,
            Some(known) if known.is_open() => Use { calls, ..known },
            known => Use { request, nth: known.map_or(0, |known| known.nth + 1), at_ms, tries: 1, calls },
        };
        let change = self.put(told, spent.window_ms);
        self.bound();
        Some(change)
    }

    /// How many are known.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The request's use if it came again: with another try, or closed, so that it counts from now on.
    fn come_again(&self, request: Hash, now_ms: u64) -> Option<Use> {
        let known = self.last(request).filter(Use::is_open)?;
        let is_try = known.tries < MOST_TRIES && now_ms.saturating_sub(known.at_ms) < AGAIN_WITHIN_MS;
        Some(Use { tries: if is_try { known.tries + 1 } else { MOST_TRIES + 1 }, ..known })
    }

    /// When calls were handed out, but for earlier tries of `request`.
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

    fn put(&mut self, told: Use, window_ms: u64) -> Change {
        let gone = self.0.insert((told.request, told.nth), told);
        Change { told, gone: gone.into_iter().collect(), window_ms }
    }

    fn forget(&mut self, now_ms: u64, window_ms: u64) {
        self.0.retain(|_, it| now_ms.saturating_sub(it.at_ms) < window_ms);
    }

    /// Forgets the oldest of too many.
    fn bound(&mut self) {
        while self.0.len() > MOST_USES {
            let oldest = self.0.iter().min_by_key(|(_, it)| it.at_ms).map(|(key, _)| *key);
            oldest.and_then(|key| self.0.remove(&key));
        }
    }
}

impl Use {
    /// Another try of its request may belong to it.
    fn is_open(&self) -> bool {
        self.tries <= MOST_TRIES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::spent::Uses as OfOneProcess;
    use proptest::prelude::*;

    /// What replicas share, as the Redis keeps it: the entries of one quota, of which a look-up reads the newest.
    #[derive(Default)]
    struct Shared(Vec<Use>);

    impl Shared {
        fn hear(&mut self, change: Option<Change>) {
            let Some(Change { told, gone, .. }) = change else { return };
            self.0.retain(|it| !gone.contains(it) && *it != told);
            self.0.push(told);
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
    fn tries_take_no_room_so_they_push_no_uses_out() {
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
    fn what_changes_nothing_is_not_told() {
        let hour = 3_600_000;
        let mut known = Uses::default();
        assert!(known.come(&[], (Hash(1), 5), quota(9, hour)).1.is_none(), "new");
        assert!(known.add(&spent(Hash(1), 2, (6, hour))).is_some());
        for calls in [1, 2] {
            assert!(known.add(&spent(Hash(1), calls, (7, hour))).is_none(), "{calls}");
        }
        assert!(known.add(&spent(Hash(1), 3, (8, hour))).is_some(), "more");
        let told: Vec<bool> =
            (9..14).map(|at_ms| known.come(&[], (Hash(1), at_ms), quota(9, hour)).1.is_some()).collect();
        assert_eq!(told, [true, true, true, false, false], "after the fourth try it is closed");
    }

    #[test]
    fn one_use_that_replicas_told_at_once_is_one_and_is_told_as_one_from_then_on() {
        let quota = quota(9, 3_600_000);
        let [one, other] = [5, 7].map(|at_ms| Use { request: Hash(1), nth: 0, at_ms, tries: 1, calls: 1 });
        let (found, _) = Uses::default().come(&[one, other], (Hash(2), 8), quota);
        assert_eq!(found, [7]);
        let (found, change) = Uses::default().come(&[one, other], (Hash(1), 8), quota);
        let change = change.unwrap();
        assert!(found.is_empty());
        assert_eq!((change.told, change.gone), (Use { tries: 2, ..other }, vec![other, one]));
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
