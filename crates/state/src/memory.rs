//! The state store in this process's memory: bounded LRU caches.
//! Nothing here outlives the process or is shared with another.

use super::StateStore;
use super::cache::{Cache, ENTRY_BYTES, update, weighed};
use super::pending::PendingApproval;
use super::recent::Recent;
use super::spent::{Change, MOST_USES, Uses};
use super::stops::{Listed, StopError, Stops};
use super::tallies::{OwnParts, Part};
use bytes::Bytes;
use model::account::{Carried, Tally};
use model::identity::Hash;
use model::pins::{MOST_PINS, Pinned};
use model::plan::ReservationResult;
use model::plan::approval::Confirmation;
use model::released::{Releases, with};
use model::store::{
    CallReservation, CallReservationResult, Claim, Evidence, Facts, KnownEvidence, NewPins, News, Overflow,
    Quota, QuotaCall, Stop, StoreQuery,
};
use model::store::{HiddenExchange, MOST_AT_ONE_KEY, add_evidence};
use model::uses::Use;
use moka::Entry;
use moka::ops::compute::Op;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most overflows kept for one conversation, the newest: each made room for a good while.
pub(super) const MOST_OVERFLOWS: usize = 32;
/// The most lists of evidence about models: one for each model, and one for each of its callers.
const MOST_EVIDENCE_LISTS: u64 = 10_000;

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
    released: Recent<Releases>,
    rounds: Cache<Arc<Vec<HiddenExchange>>>,
    requests: Recent<()>,
    conversations: Recent<()>,
    asked: Cache<PendingApproval>,
    /// Approvals that hold for the rest of their conversations.
    approved: Recent<()>,
    spent: Cache<Arc<Uses>>,
    /// The accounts of conversations as of each reply.
    carried: Cache<Arc<Carried>>,
    parts: OwnParts,
    overflows: Recent<Arc<Vec<Overflow>>>,
    pub(super) stops: Stops,
    /// What requests showed of models.
    evidence: Recent<Arc<Vec<Evidence>>>,
    pinned: Cache<Arc<Vec<Pinned>>>,
    sent_exchanges: Recent<u64>,
    histories: Cache<Bytes>,
    started: Instant,
}

impl Memory {
    /// An empty state store.
    pub fn new(bounds: &Bounds) -> Self {
        let (lifetime, conversations) = (bounds.lifetime, bounds.conversations);
        let lifetime_ms = millis(lifetime);
        Self {
            released: Recent::new(bounds.calls, lifetime_ms),
            rounds: weighed(bounds.hidden_exchange_bytes, lifetime, |rounds: &Arc<Vec<HiddenExchange>>| {
                rounds.iter().map(|round| round.messages.len() + ENTRY_BYTES).sum()
            }),
            requests: Recent::new(conversations, lifetime_ms),
            conversations: Recent::new(conversations, lifetime_ms),
            asked: weighed(bounds.hidden_exchange_bytes, lifetime, |pending: &PendingApproval| {
                pending.confirmation.size() + ENTRY_BYTES
            }),
            approved: Recent::new(bounds.calls, lifetime_ms),
            // The largest quota must fit however few calls are kept otherwise.
            spent: weighed(bounds.calls.max(MOST_USES as u64), lifetime, |uses: &Arc<Uses>| uses.len()),
            carried: weighed(bounds.hidden_exchange_bytes, lifetime, |carried: &Arc<Carried>| {
                carried.size() + ENTRY_BYTES
            }),
            parts: OwnParts::new(conversations, lifetime),
            stops: Stops::new(lifetime_ms),
            overflows: Recent::new(conversations, lifetime_ms),
            evidence: Recent::new(MOST_EVIDENCE_LISTS, millis(bounds.refusals)),
            pinned: weighed(bounds.hidden_exchange_bytes, lifetime, |pins: &Arc<Vec<Pinned>>| {
                pins.len() * size_of::<Pinned>() + ENTRY_BYTES
            }),
            sent_exchanges: Recent::new(conversations, lifetime_ms),
            histories: weighed(bounds.hidden_exchange_bytes, lifetime, |known: &Bytes| {
                known.len() + ENTRY_BYTES
            }),
            started: Instant::now(),
        }
    }

    /// Monotonic time of this store, in ms, independent of the system's clock.
    fn ms_at(&self, moment: Instant) -> u64 {
        millis(moment.saturating_duration_since(self.started))
    }

    /// Whether `claim` gets its calls here.
    pub(super) fn take(&self, claim: Claim) -> bool {
        let mut taken = false;
        // Atomic, so that of two claims at once only one succeeds. A question that was evicted meanwhile stays so.
        self.asked.entry(claim.question).and_compute_with(|known| {
            let Some(mut pending) = known.map(Entry::into_value) else { return Op::Nop };
            taken = pending.take(claim);
            Op::Put(pending)
        });
        taken
    }

    /// The question under this key.
    pub(super) fn asked(&self, question: Hash) -> Option<Arc<Confirmation>> {
        Some(self.asked.get(&question)?.confirmation)
    }

    /// What this process knows, but for uses of quotas and for sums.
    pub(super) fn own_facts(&self, query: &StoreQuery) -> Facts {
        let now_ms = self.ms_at(query.now.at);
        let repeated = self.requests.see(query.request, now_ms);
        self.conversations.see(query.conversation, now_ms);
        let evidence = |key| self.evidence.find(key, now_ms).map_or_else(Vec::new, |list| list.to_vec());
        let rounds_at = |place| self.rounds.get(place).map_or_else(Vec::new, |rounds| rounds.to_vec());
        let is_approved = |name| self.approved.find(name, now_ms).is_some();
        let overflows = self.overflows.find(&query.conversation, now_ms);
        let pins = query.pins.and_then(|key| self.pinned.get(&key));
        Facts {
            released: query.calls.iter().map(|call| self.released.find(call, now_ms)).collect(),
            rounds: query.places.iter().map(rounds_at).collect(),
            model: KnownEvidence { all: evidence(&query.model.all), own: evidence(&query.model.own) },
            repeated,
            asked: query.answered.and_then(|text| self.asked(text)),
            approved: query.approved.iter().map(is_approved).collect(),
            sent_exchanges: query.histories.iter().map(|it| self.sent_exchanges.find(it, now_ms)).collect(),
            carried: query.carried.iter().map(|key| self.carried.get(key)).collect(),
            overflows: overflows.map_or_else(Vec::new, |all| all.to_vec()),
            pinned: pins.map_or_else(Vec::new, |pins| pins.to_vec()),
            stopped: self.stops.find(&query.stops, query.now.ms),
            ..Facts::default()
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

    fn add_overflow(&self, conversation: Hash, overflow: Overflow, now_ms: u64) {
        self.overflows.update(conversation, now_ms, |known| {
            let mut overflows = known.map_or_else(Vec::new, |known| known.to_vec());
            overflows.retain(|known| *known != overflow);
            overflows.push(overflow);
            let surplus = overflows.len().saturating_sub(MOST_OVERFLOWS);
            overflows.drain(..surplus);
            Arc::new(overflows)
        });
    }

    /// Different exchanges under one key are all kept: they show that conversations cannot be distinguished there.
    fn add_hidden_exchange(&self, place: Hash, round: &HiddenExchange) {
        update(&self.rounds, place, |known| {
            let mut rounds = known.map_or_else(Vec::new, |known| known.to_vec());
            rounds.retain(|known| known != round);
            rounds.push(round.clone());
            let surplus = rounds.len().saturating_sub(MOST_AT_ONE_KEY);
            rounds.drain(..surplus);
            Arc::new(rounds)
        });
    }
}

/// Adds the definitions that are not known yet, as long as there is room: the first ones count.
pub(super) fn add_pins(known: &mut Vec<Pinned>, new: impl IntoIterator<Item = Pinned>) {
    for pin in new {
        if known.len() < MOST_PINS && !known.contains(&pin) {
            known.push(pin);
        }
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

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl StateStore for Memory {
    fn look_up<'a>(&'a self, query: &'a StoreQuery) -> Pin<Box<dyn Future<Output = Facts> + Send + 'a>> {
        let sum =
            |key: &Hash| self.count_ahead(*key, &query.ahead).0.map(|part| part.tally).unwrap_or_default();
        Box::pin(ready(Facts {
            spent: query.quotas.iter().map(|quota| self.spent(quota, query.now.ms)).collect(),
            tallies: query.tallies.iter().map(sum).collect(),
            ..self.own_facts(query)
        }))
    }

    fn history<'a>(&'a self, name: Hash) -> Pin<Box<dyn Future<Output = Option<Bytes>> + Send + 'a>> {
        Box::pin(ready(self.histories.get(&name)))
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

    fn record(&self, news: News) {
        let now_ms = self.ms_at(Instant::now());
        for (call, release) in news.released {
            self.released.update(call, now_ms, |known| with(&known.unwrap_or_default(), release));
        }
        for (place, round) in news.rounds {
            self.add_hidden_exchange(place, &round);
        }
        for (text, confirmation) in news.asked {
            let new = || PendingApproval::new(Arc::new(confirmation));
            update(&self.asked, text, |known| known.unwrap_or_else(new));
        }
        for name in news.approved {
            self.approved.update(name, now_ms, |_| ());
        }
        for call in news.spent {
            update(&self.spent, call.quota.name, |known| {
                let mut uses = known.map(Arc::unwrap_or_clone).unwrap_or_default();
                uses.add(&call);
                Arc::new(uses)
            });
        }
        for (quota, returned) in news.returned {
            update(&self.spent, quota, |known| {
                let mut uses = known.map(Arc::unwrap_or_clone).unwrap_or_default();
                uses.remove(&returned);
                Arc::new(uses)
            });
        }
        for (key, carried) in news.carried {
            self.carried.insert(key, carried);
        }
        for (key, tally) in news.tallied {
            self.add_to_part(key, &tally);
        }
        for (key, evidence) in news.model {
            self.evidence.update(key, now_ms, |known| {
                let mut list = known.map_or_else(Vec::new, |known| known.to_vec());
                add_evidence(&mut list, evidence);
                Arc::new(list)
            });
        }
        if let Some(sent) = news.sent {
            self.sent_exchanges.update(sent.history, now_ms, |_| sent.rounds);
        }
        if let Some((conversation, overflow)) = news.overflow {
            self.add_overflow(conversation, overflow, now_ms);
        }
        if let Some(NewPins { key, pins, .. }) = news.pinned {
            update(&self.pinned, key, |known| {
                let mut all = known.map(Arc::unwrap_or_clone).unwrap_or_default();
                add_pins(&mut all, pins);
                Arc::new(all)
            });
        }
        if let Some((name, known)) = news.history {
            self.histories.insert(name, known);
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
    use model::Now;
    use model::adaptation::{Adaptation, Adaptations};
    use model::released::{NOTHING_HIDDEN, Release};
    use model::store::MOST_EVIDENCE;
    use model::store::ModelKeys;
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

    fn look_up(store: &Memory, calls: &[Hash], places: &[Hash], request: u128) -> Facts {
        let now = Now { at: Instant::now(), ms: 0 };
        let query = StoreQuery {
            calls: calls.to_vec(),
            places: places.to_vec(),
            model: ModelKeys { all: Hash(1), own: Hash(2) },
            histories: vec![Hash(5), Hash(6)],
            approved: vec![Hash(8), Hash(9)],
            ..StoreQuery::new(Hash(request), Hash(request), now)
        };
        store.look_up(&query).now_or_never().unwrap()
    }

    fn round(key: u128, text: &str) -> HiddenExchange {
        HiddenExchange { message_key: Hash(key), messages: Bytes::copy_from_slice(text.as_bytes()) }
    }

    #[test]
    fn the_latest_release_of_a_call_is_kept_per_conversation() {
        let store = store();
        let release = |context, at_ms| Release { context: Hash(context), hidden: NOTHING_HIDDEN, at_ms };
        for (context, at_ms) in [(7, 5), (8, 6), (7, 9), (7, 4)].into_iter().chain((10..20).map(|at| (9, at)))
        {
            let released = vec![(Hash(1), release(context, at_ms))];
            store.record(News { released, ..News::default() });
        }
        let known = look_up(&store, &[Hash(1), Hash(2)], &[], 0).released;
        assert_eq!(known[0].as_deref().unwrap(), [release(8, 6), release(7, 9), release(9, 19)]);
        assert_eq!(known[1], None);
        for context in 100..200 {
            let released = vec![(Hash(2), release(context, context as u64))];
            store.record(News { released, ..News::default() });
        }
        let known = look_up(&store, &[Hash(2)], &[], 0).released;
        let expected: Vec<Release> = (192..200).map(|at| release(at, at as u64)).collect();
        assert_eq!(known[0].as_deref().unwrap(), expected);
    }

    #[test]
    fn hidden_exchanges_are_found_at_their_place_without_duplicates() {
        let store = store();
        for (place, round) in
            [(1, round(7, "new")), (1, round(7, "old")), (1, round(8, "other")), (1, round(7, "new"))]
        {
            store.record(News { rounds: vec![(Hash(place), round)], ..News::default() });
        }
        let facts = look_up(&store, &[], &[Hash(1), Hash(2)], 0);
        assert_eq!(facts.rounds, [vec![round(7, "old"), round(8, "other"), round(7, "new")], vec![]]);
    }

    #[test]
    fn the_number_of_hidden_exchanges_at_one_place_is_bounded() {
        let store = store();
        for key in 0..200 {
            store.record(News { rounds: vec![(Hash(1), round(key, "x"))], ..News::default() });
        }
        let rounds = &look_up(&store, &[], &[Hash(1)], 0).rounds[0];
        assert_eq!(rounds.len(), MOST_AT_ONE_KEY);
        assert_eq!(rounds.last().unwrap().message_key, Hash(199));
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

    fn used(quota: &Quota, call: Hash, at_ms: u64) -> News {
        let spent = QuotaCall { quota: *quota, call, request: Hash(9), again: None, at_ms };
        News { spent: vec![spent], ..News::default() }
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

    #[test]
    fn evidence_about_models_is_kept_by_list_and_bounded() {
        let store = store();
        let of = |caller| Evidence {
            caller: Hash(caller),
            refused: Adaptation::Tools.into(),
            accepted: Adaptations::empty(),
            at_ms: 5,
        };
        for (list, caller) in [(1, 7), (1, 8), (2, 7), (1, 7)] {
            store.record(News { model: vec![(Hash(list), of(caller))], ..News::default() });
        }
        let known = look_up(&store, &[], &[], 0).model;
        assert_eq!((known.all, known.own), (vec![of(8), of(7)], vec![of(7)]));
        for caller in 0..100 {
            store.record(News { model: vec![(Hash(1), of(caller))], ..News::default() });
        }
        let known = look_up(&store, &[], &[], 0).model.all;
        assert_eq!((known.len(), known.last()), (MOST_EVIDENCE, Some(&of(99))));
    }

    #[test]
    fn an_approval_is_known_once_it_was_recorded() {
        let store = store();
        assert_eq!(look_up(&store, &[], &[], 0).approved, [false, false]);
        store.record(News { approved: vec![Hash(9)], ..News::default() });
        assert_eq!(look_up(&store, &[], &[], 0).approved, [false, true]);
    }

    #[test]
    fn a_request_is_repeated_when_it_comes_again() {
        let store = store();
        let seen: Vec<bool> =
            [1, 2, 1].iter().map(|request| look_up(&store, &[], &[], *request).repeated).collect();
        assert_eq!(seen, [false, false, true]);
    }

    #[test]
    fn the_newest_overflows_of_a_conversation_are_known_each_once() {
        let store = store();
        for messages in (0..100).chain([99]) {
            let overflow = Overflow { messages, history: Hash(messages as u128), most_chars: None };
            store.record(News { overflow: Some((Hash(3), overflow)), ..News::default() });
        }
        let known = look_up(&store, &[], &[], 3).overflows;
        assert_eq!((known.len(), known.last().unwrap().messages), (MOST_OVERFLOWS, 99));
        assert_eq!(look_up(&store, &[], &[], 4).overflows, []);
    }
}
