//! Quota accounting: when calls were handed out to a caller, each with the request that brought it, so that a client
//! that retries a request is not charged twice. Counts; allows and forbids nothing.

use crate::conversation::identity::Hash;
use crate::exchange::store::Spent;

/// Within this time an equal request is a retry by a client that lost the answer: the openai packages wait ten minutes
/// for one.
pub(super) const AGAIN_WITHIN_MS: u64 = 15 * 60_000;
/// The tries of one request that count once: the openai packages make three. After that, it counts as a new request.
pub(super) const MOST_TRIES: u32 = 3;
/// The most uses kept of one quota: each brought a call, so the largest quota that the configuration allows fits.
pub(super) const MOST_USES: usize = crate::policy::about::MOST_COUNTED;

/// The uses of one quota, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Uses(Vec<Use>);

#[derive(Clone, Debug)]
struct Use {
    /// `None`: no further tries belong to this use.
    request: Option<Hash>,
    tries: u32,
    calls: usize,
    at_ms: u64,
}

impl Uses {
    /// When calls were handed out, except for an earlier try of `request`, which gets one more try.
    pub(super) fn before(&mut self, request: Hash, now_ms: u64) -> Vec<u64> {
        for known in self.0.iter_mut().filter(|known| known.request == Some(request)) {
            let is_again = known.tries < MOST_TRIES && now_ms.saturating_sub(known.at_ms) < AGAIN_WITHIN_MS;
            known.tries += 1;
            known.request = known.request.filter(|_| is_again);
        }
        let others = self.0.iter().filter(|known| known.request != Some(request));
        others.flat_map(|known| std::iter::repeat_n(known.at_ms, known.calls)).collect()
    }

    /// Whether an earlier try of `request` is known.
    pub(super) fn knows(&self, request: Hash) -> bool {
        self.0.iter().any(|known| known.request == Some(request))
    }

    /// Adds what a request brought; of its tries the one with the most calls counts, at the time of the first.
    pub(super) fn add(&mut self, spent: &Spent) {
        self.0.retain(|known| spent.at_ms.saturating_sub(known.at_ms) < spent.window_ms);
        match self.0.iter_mut().find(|known| known.request == Some(spent.request)) {
            Some(known) => known.calls = known.calls.max(spent.calls),
            None => {
                let (request, calls, at_ms) = (Some(spent.request), spent.calls, spent.at_ms);
                self.0.push(Use { request, tries: 1, calls, at_ms });
            }
        }
        let surplus = self.0.len().saturating_sub(MOST_USES);
        self.0.drain(..surplus);
    }

    /// How many uses are kept.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;

    fn spent(request: u128, calls: usize, at_ms: u64) -> Spent {
        Spent { quota: Hash(1), request: Hash(request), calls, at_ms, window_ms: 5 * HOUR }
    }

    #[test]
    fn every_call_of_every_other_request_counts() {
        let mut uses = Uses::default();
        uses.add(&spent(1, 2, 10));
        uses.add(&spent(2, 1, 20));
        assert_eq!(uses.before(Hash(3), 30), [10, 10, 20]);
    }

    #[test]
    fn a_request_that_comes_again_is_not_charged_twice_and_its_largest_answer_counts() {
        let mut uses = Uses::default();
        for (calls, at_ms) in [(1, 10), (2, 20), (1, 30)] {
            assert!(uses.before(Hash(1), at_ms).is_empty(), "{at_ms}");
            uses.add(&spent(1, calls, at_ms));
            uses.add(&spent(1, calls, at_ms));
        }
        assert_eq!(uses.before(Hash(2), 40), [10, 10]);
    }

    #[test]
    fn a_fourth_try_and_one_after_a_quarter_of_an_hour_are_requests_of_their_own() {
        let mut uses = Uses::default();
        uses.add(&spent(1, 1, 10));
        assert_eq!([uses.before(Hash(1), 20).len(), uses.before(Hash(1), 30).len()], [0, 0]);
        assert_eq!(uses.before(Hash(1), 40), [10], "the fourth");
        uses.add(&spent(1, 1, 40));
        assert_eq!(uses.before(Hash(2), 50), [10, 40]);
        assert_eq!(uses.before(Hash(1), 40 + AGAIN_WITHIN_MS), [10, 40], "too late");
    }

    #[test]
    fn what_has_left_the_window_is_forgotten_and_no_caller_keeps_more_than_the_bound() {
        let mut uses = Uses::default();
        uses.add(&spent(1, 1, 0));
        uses.add(&spent(2, 1, 5 * HOUR));
        assert_eq!(uses.len(), 1);
        (0..2 * MOST_USES as u128).for_each(|request| uses.add(&spent(10 + request, 1, 5 * HOUR)));
        assert_eq!(uses.len(), MOST_USES);
    }
}
