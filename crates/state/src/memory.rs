//! The state store in this process's memory: bounded LRU caches.
//! Nothing here outlives the process or is shared with another.

use super::StateStore;
use super::cache::{Cache, ENTRY_BYTES, update, weighed};
use super::claims::Claims;
use super::recent::Recent;
use super::spent::{Change, MOST_USES, Uses};
use super::stops::{Listed, StopError, Stops};
use super::tables::Tables;
use super::tallies::{OwnParts, Part};
use model::Now;
use model::account::Tally;
use model::fact::{Answers, Batch, Writes};
use model::identity::Hash;
use model::plan::ReservationResult;
use model::plan::approval::Confirmation;
use model::store::{CallReservation, CallReservationResult, Claim, Quota, QuotaCall, Stop};
use model::uses::Use;
use moka::Entry;
use moka::ops::compute::Op;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How much is kept and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The most calls whose release time is kept.
    pub calls: u64,
    /// The most bytes of hidden exchanges.
    pub hidden_exchange_bytes: u64,
    /// The most conversations that are counted.
    pub conversations: u64,
    /// How long a fact is kept.
    pub lifetime: Duration,
    /// How long the refusals of a model are kept.
    pub refusals: Duration,
}

/// See the module's documentation.
pub struct Memory {
    facts: Tables,
    requests: Recent<()>,
    conversations: Recent<()>,
    /// The claims of questions to people.
    claims: Cache<Claims>,
    spent: Cache<Arc<Uses>>,
    parts: OwnParts,
    pub(super) stops: Stops,
    started: Instant,
}

impl Memory {
    /// An empty state store.
    pub fn new(bounds: &Bounds) -> Self {
        let (lifetime, conversations) = (bounds.lifetime, bounds.conversations);
        let lifetime_ms = millis(lifetime);
        Self {
            facts: Tables::new(bounds),
            requests: Recent::new(conversations, lifetime_ms),
            conversations: Recent::new(conversations, lifetime_ms),
            // Lighter than any question, so that a claim outlasts its question: an approval is used once.
            claims: weighed(bounds.hidden_exchange_bytes, lifetime, |_| ENTRY_BYTES),
            // The largest quota must fit however few calls are kept otherwise.
            spent: weighed(bounds.calls.max(MOST_USES as u64), lifetime, |uses: &Arc<Uses>| uses.len()),
            parts: OwnParts::new(conversations, lifetime),
            stops: Stops::new(lifetime_ms),
            started: Instant::now(),
        }
    }

    /// Monotonic time of this store, in ms, independent of the system's clock.
    fn ms_at(&self, moment: Instant) -> u64 {
        millis(moment.saturating_duration_since(self.started))
    }

    /// Whether `claim` gets its calls here.
    pub(super) fn take(&self, claim: Claim) -> bool {
        // A question that was evicted meanwhile stays so.
        let Some(question) = self.asked(claim.question) else { return false };
        let mut is_taken = false;
        // Atomic, so that of two claims at once only one succeeds.
        self.claims.entry(claim.question).and_compute_with(|known| {
            let (claims, is_given) = Claims::take(known.map(Entry::into_value), &claim, question.expires_ms);
            is_taken = is_given;
            claims.map_or(Op::Nop, Op::Put)
        });
        is_taken
    }

    /// The question under this key.
    pub(super) fn asked(&self, question: Hash) -> Option<Arc<Confirmation>> {
        let at = Instant::now();
        let mut batch = Batch::new(Now { at, ms: 0 });
        let ticket = batch.ask([question]);
        self.facts.answer(&mut batch, self.ms_at(at));
        Answers { facts: batch.facts, ..Answers::default() }.records(&ticket).pop()
    }

    /// Answers what this process knows of facts in `batch`; the rest of the answers has no uses of quotas and no sums.
    pub(super) fn own_answers(&self, batch: &mut Batch) -> Answers {
        let now_ms = self.ms_at(batch.now.at);
        self.facts.answer(batch, now_ms);
        if let Some(conversation) = batch.conversation {
            self.conversations.see(conversation, now_ms);
        }
        Answers {
            repeated: batch.request.is_some_and(|request| self.requests.see(request, now_ms)),
            stopped: self.stops.find(&batch.stops, batch.now.ms),
            ..Answers::default()
        }
    }

    /// The uses of a quota within its window.
    fn spent(&self, quota: &Quota, now_ms: u64) -> Vec<Use> {
        let known = self.spent.get(&quota.name);
        known.map_or_else(Vec::new, |uses| uses.known(&[], now_ms, quota.window_ms))
    }

    /// Adds a call of a quota, where there is room: see [`Uses::reserve`].
    fn reserve_use(&self, call: &QuotaCall, most: usize) -> Result<Change, Vec<u64>> {
        reserve_use(&self.spent, call, most)
    }

    /// Adds a call to this process's part of a sum, where there is room: see [`OwnParts::reserve`].
    pub(super) fn reserve_call(
        &self,
        key: Hash,
        others: u64,
        most: u64,
    ) -> Result<(Option<Part>, Part), u64> {
        self.parts.reserve(key, others, most)
    }

    /// This process's part of a sum.
    pub(super) fn part(&self, key: Hash) -> Option<Part> {
        self.parts.part(key)
    }

    /// Adds what a request counts `ahead` to this process's part of a sum; returns the part before, and after, where there
    /// is anything to add.
    pub(super) fn count_ahead(&self, key: Hash, ahead: &Tally) -> (Option<Part>, Option<Part>) {
        if *ahead == Tally::default() {
            return (self.part(key), None);
        }
        let (before, after) = self.add_to_part(key, ahead);
        (before, Some(after))
    }

    /// Adds `tally` to this process's part of a sum; returns the part before and after.
    pub(super) fn add_to_part(&self, key: Hash, tally: &Tally) -> (Option<Part>, Part) {
        self.parts.add(key, tally)
    }
}

/// Adds a call to the uses of its quota, where there is room: see [`Uses::reserve`].
pub(super) fn reserve_use(
    uses: &Cache<Arc<Uses>>,
    call: &QuotaCall,
    most: usize,
) -> Result<Change, Vec<u64>> {
    let mut reserved = Err(Vec::new());
    update(uses, call.quota.name, |known| {
        let mut uses = known.map(Arc::unwrap_or_clone).unwrap_or_default();
        reserved = uses.reserve(call, most);
        Arc::new(uses)
    });
    reserved
}

/// What became of a reservation by a quota, `alone`: in this process.
pub(super) fn reserved_use(result: Result<Use, Vec<u64>>, alone: bool) -> CallReservationResult {
    match result {
        Ok(counted) => {
            CallReservationResult { reserved: ReservationResult::Granted { alone }, counted: Some(counted) }
        }
        Err(times) => CallReservationResult {
            reserved: ReservationResult::UsedUp { used: times.len() as u64, times },
            counted: None,
        },
    }
}

/// The same for a sum, which holds so many calls where there is no room.
pub(super) fn reserved_call(result: Result<(), u64>, alone: bool) -> CallReservationResult {
    let reserved = match result {
        Ok(()) => ReservationResult::Granted { alone },
        Err(used) => ReservationResult::UsedUp { used, times: Vec::new() },
    };
    CallReservationResult { reserved, counted: None }
}

/// A time in ms.
pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl StateStore for Memory {
    fn look_up<'a>(&'a self, mut batch: Batch) -> Pin<Box<dyn Future<Output = Answers> + Send + 'a>> {
        let answers = self.own_answers(&mut batch);
        let sum =
            |key: &Hash| self.count_ahead(*key, &batch.ahead).0.map(|part| part.tally).unwrap_or_default();
        let spent = batch.quotas.iter().map(|quota| self.spent(quota, batch.now.ms)).collect();
        let sums = batch.sums.iter().map(sum).collect();
        Box::pin(ready(Answers { spent, sums, facts: batch.facts, ..answers }))
    }

    fn reserve<'a>(
        &'a self,
        reservations: &'a [CallReservation],
    ) -> Pin<Box<dyn Future<Output = Vec<CallReservationResult>> + Send + 'a>> {
        let reserve = |reservation: &CallReservation| match *reservation {
            CallReservation::Quota { call, most } => {
                reserved_use(self.reserve_use(&call, most).map(|change| change.added), false)
            }
            CallReservation::Sum { key, most } => {
                reserved_call(self.reserve_call(key, 0, most).map(drop), false)
            }
        };
        Box::pin(ready(reservations.iter().map(reserve).collect()))
    }

    fn record(&self, writes: Writes) {
        self.facts.write(&writes, self.ms_at(Instant::now()));
        for call in writes.spent {
            update(&self.spent, call.quota.name, |known| {
                let mut uses = known.map(Arc::unwrap_or_clone).unwrap_or_default();
                uses.add(&call);
                Arc::new(uses)
            });
        }
        for (quota, returned) in writes.returned {
            update(&self.spent, quota, |known| {
                let mut uses = known.map(Arc::unwrap_or_clone).unwrap_or_default();
                uses.remove(&returned);
                Arc::new(uses)
            });
        }
        for (key, tally) in writes.tallied {
            self.add_to_part(key, &tally);
        }
    }

    fn claim<'a>(&'a self, claim: Claim) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>> {
        Box::pin(ready(self.take(claim)))
    }

    fn stop<'a>(
        &'a self,
        stop: Stop,
        now_ms: u64,
    ) -> Pin<Box<dyn Future<Output = Result<u64, StopError>> + Send + 'a>> {
        Box::pin(ready(self.stops.add(stop, now_ms)))
    }

    fn resume<'a>(
        &'a self,
        stop: Stop,
    ) -> Pin<Box<dyn Future<Output = Result<bool, StopError>> + Send + 'a>> {
        Box::pin(ready(Ok(self.stops.remove(&stop))))
    }

    fn stops<'a>(&'a self, now_ms: u64) -> Pin<Box<dyn Future<Output = Listed> + Send + 'a>> {
        Box::pin(ready(Listed { stops: self.stops.list(now_ms), whole: true }))
    }

    fn conversations(&self) -> u64 {
        self.conversations.count(self.ms_at(Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn store() -> Memory {
        Memory::new(&Bounds {
            calls: 100,
            hidden_exchange_bytes: 100_000,
            conversations: 100,
            lifetime: Duration::from_secs(3600),
            refusals: Duration::from_secs(3600),
        })
    }

    #[test]
    fn an_approval_is_used_once_however_few_calls_are_kept() {
        let store = store();
        let claim = |question, request| Claim { question: Hash(question), request: Hash(request), now_ms: 1 };
        for question in 0..150 {
            let asked = Confirmation { expires_ms: 2, ..Confirmation::default() };
            store.record(Writes::from_fact(Hash(question), Arc::new(asked)));
            assert!(store.take(claim(question, 1)));
            store.claims.run_pending_tasks();
        }
        assert!((0..150).all(|question| !store.take(claim(question, 2))));
    }

    #[test]
    fn the_largest_quota_is_kept_however_few_calls_are() {
        let store = store();
        let quota = Quota { name: Hash(7), calls: MOST_USES, window_ms: 1_000_000 };
        for at_ms in 0..MOST_USES as u64 {
            store.record(used(&quota, Hash(u128::from(at_ms) + 100), at_ms));
        }
        let spent = store.spent(&quota, MOST_USES as u64);
        assert_eq!((spent.len(), spent.first().map(|first| first.at_ms)), (MOST_USES, Some(0)));
    }

    fn used(quota: &Quota, call: Hash, at_ms: u64) -> Writes {
        let spent = QuotaCall { quota: *quota, call, request: Hash(9), again: None, at_ms };
        Writes { spent: vec![spent], ..Writes::default() }
    }

    #[test]
    fn no_use_of_a_quota_is_lost_where_several_are_added_at_once() {
        let store = store();
        let quota = Quota { name: Hash(7), calls: 1_000, window_ms: 1_000_000 };
        std::thread::scope(|scope| {
            for thread in 0..4_u128 {
                let (store, quota) = (&store, &quota);
                scope.spawn(move || {
                    for call in 0..200 {
                        store.record(used(quota, Hash(1_000 * (thread + 1) + call), 1));
                    }
                });
            }
        });
        assert_eq!(store.spent(&quota, 2).len(), 800);
    }

    #[test]
    fn as_many_calls_are_reserved_as_a_limit_allows_however_many_ask_at_once() {
        let store = store();
        let quota = Quota { name: Hash(7), calls: 6, window_ms: 1_000_000 };
        let granted = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4_u128 {
                let (store, quota, granted) = (&store, &quota, &granted);
                scope.spawn(move || {
                    for nth in 0..25 {
                        let (call, request) = (Hash(1_000 * thread + nth), Hash(9));
                        let call = QuotaCall { quota: *quota, call, request, again: None, at_ms: 1 };
                        let both = [
                            CallReservation::Quota { call, most: 6 },
                            CallReservation::Sum { key: Hash(8), most: 9 },
                        ];
                        let reserved = store.reserve(&both).now_or_never().unwrap();
                        let are_granted = reserved
                            .iter()
                            .map(|it| matches!(it.reserved, ReservationResult::Granted { .. }));
                        granted.fetch_add(are_granted.filter(|is| *is).count(), Ordering::Relaxed);
                    }
                });
            }
        });
        let sum = store.part(Hash(8)).unwrap().tally.used().get(model::account::Kind::Calls);
        assert_eq!((granted.into_inner(), store.spent(&quota, 2).len(), sum), (15, 6, 9));
    }
}
