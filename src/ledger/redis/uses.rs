//! What happened to quotas, told by replicas in any order, folded into what counts. The same rules as in one process's
//! memory: several tries of one request count once. Allows and forbids nothing.

use super::records::{Event, Happened};
use crate::ledger::spent::{AGAIN_WITHIN_MS, MOST_TRIES};
use crate::transcript::identity::Hash;
use std::collections::{BTreeSet, HashMap};

/// What is kept of one quota's events.
pub(super) const MOST_EVENTS: usize = 10_000;

/// The events of one quota, each once, oldest first.
pub(super) type Events = BTreeSet<Event>;

/// What counts of a quota, as a request finds it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Standing {
    /// When calls were handed out, but for earlier tries of the request.
    pub(super) spent: Vec<u64>,
    /// The request came before, so that this is to be told.
    pub(super) is_again: bool,
}

struct Use {
    request: Hash,
    /// It takes no more tries.
    is_closed: bool,
    tries: u32,
    calls: u32,
    at_ms: u64,
}

/// Folds `events` for `request`, which comes at `now_ms`.
pub(super) fn standing(events: &Events, request: Hash, now_ms: u64) -> Standing {
    let mut uses = Uses::default();
    events.iter().for_each(|event| uses.add(event));
    let own = uses.open.get(&request).copied();
    uses.again(request, now_ms);
    let is_own = |at: usize| Some(at) == own && uses.uses.get(at).is_some_and(|it| !it.is_closed);
    let others = uses.uses.iter().enumerate().skip(uses.gone).filter(|(at, _)| !is_own(*at));
    let spent = others.flat_map(|(_, it)| std::iter::repeat_n(it.at_ms, it.calls as usize));
    Standing { spent: spent.collect(), is_again: own.is_some() }
}

/// Forgets the oldest of too many.
pub(super) fn bound(events: &mut Events) {
    while events.len() > MOST_EVENTS {
        events.pop_first();
    }
}

#[derive(Default)]
struct Uses {
    /// In the order of their times.
    uses: Vec<Use>,
    /// How many of them have left the window.
    gone: usize,
    /// Where the use stands that a request's next try belongs to.
    open: HashMap<Hash, usize>,
}

impl Uses {
    fn add(&mut self, event: &Event) {
        let Happened::Used { calls, window_ms } = event.what else {
            return self.again(event.request, event.at_ms);
        };
        self.forget(event.at_ms, window_ms);
        let known = self.open.get(&event.request).and_then(|at| self.uses.get_mut(*at));
        if let Some(known) = known {
            known.calls = known.calls.max(calls);
            return;
        }
        self.open.insert(event.request, self.uses.len());
        let Event { request, at_ms, .. } = *event;
        self.uses.push(Use { request, is_closed: false, tries: 1, calls, at_ms });
    }

    /// The request came again: another try, or anew.
    fn again(&mut self, request: Hash, at_ms: u64) {
        let Some(known) = self.open.get(&request).and_then(|at| self.uses.get_mut(*at)) else { return };
        let is_try = known.tries < MOST_TRIES && at_ms.saturating_sub(known.at_ms) < AGAIN_WITHIN_MS;
        known.tries += 1;
        if !is_try {
            known.is_closed = true;
            self.open.remove(&request);
        }
    }

    fn forget(&mut self, now_ms: u64, window_ms: u64) {
        while let Some(oldest) = self.uses.get(self.gone) {
            if now_ms.saturating_sub(oldest.at_ms) < window_ms {
                return;
            }
            if self.open.get(&oldest.request) == Some(&self.gone) {
                self.open.remove(&oldest.request);
            }
            self.gone += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::spent::{Spent, Uses as OfOneProcess};
    use proptest::prelude::*;

    const WINDOW_MS: u64 = 20 * 60_000;

    proptest! {
        #[test]
        fn events_count_as_they_would_in_one_process(
            steps in proptest::collection::vec((0..5u128, 0..3usize, 1..400_000u64), 0..40)
        ) {
            let (mut known, mut events, mut now_ms) = (OfOneProcess::default(), Events::new(), 1);
            for (request, calls, pause_ms) in steps {
                now_ms += pause_ms;
                let request = Hash(request);
                let is_again = known.knows(request);
                let shared = standing(&events, request, now_ms);
                prop_assert_eq!(&shared.spent, &known.before(request, now_ms));
                prop_assert_eq!(shared.is_again, is_again);
                if is_again {
                    events.insert(Event { at_ms: now_ms, request, what: Happened::Again });
                }
                now_ms += 1;
                if calls > 0 {
                    let spent = Spent { quota: Hash(0), request, calls, at_ms: now_ms, window_ms: WINDOW_MS };
                    known.add(&spent);
                    let what = Happened::Used { calls: calls as u32, window_ms: WINDOW_MS };
                    events.insert(Event { at_ms: now_ms, request, what });
                }
            }
        }
    }

    #[test]
    fn the_oldest_of_too_many_events_are_forgotten() {
        let event = |at_ms| Event { at_ms, request: Hash(1), what: Happened::Again };
        let mut events: Events = (0..MOST_EVENTS as u64 + 5).map(event).collect();
        bound(&mut events);
        assert_eq!((events.len(), events.first()), (MOST_EVENTS, Some(&event(5))));
    }
}
