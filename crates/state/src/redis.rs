//! The state store that replicas share, in a Redis. This process's own memory is a write-through cache in front of it,
//! so that its own facts are there at once and it goes on alone while the Redis is away. Combines what both know;
//! decides nothing.
//!
//! Shared are release times, hidden exchanges, what models refuse, questions to people and which requests took their
//! calls, lasting approvals, uses of quotas, accounts, overflows, bills of histories, stops, and which requests were seen
//! before. Learned rates stay in the process, and so does what is bound to a client's connection.

mod accounts;
mod breaker;
mod link;
mod names;
pub mod records;
mod reservations;
mod stops;
mod transaction;
mod trip;
mod writer;

use self::accounts::{Grown, outdated};
pub use self::link::ConnectError;
use self::link::{Away, Link};
use self::names::{Lifetimes, Names};
use self::records::StoreKeys;
use self::trip::{Reader, Trip};
use self::writer::{Queue, Update, queue};
use super::StateStore;
use super::cache::{Cache, weighed};
use super::claims::ClaimRecord;
use super::memory::{Bounds, Memory};
use super::spent::Uses;
use super::stops::{Listed, StopError};
use super::tallies::{Part, kept_for, sum};
use crate::observer::{Observer, Unobserved};
use ::redis::{Client, Pipeline, Value, pipe};
use model::account::Tally;
use model::fact::{Answers, Batch, RecordKind, Writes};
use model::identity::Hash;
use model::plan::approval::Confirmation;
use model::store::{CallReservation, CallReservationResult, Claim, Stop};
use model::store_health::StoreOp;
use model::uses::Use;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle, unconstrained};
use tokio::time::timeout;

/// The address, and the settings of what is kept there.
pub struct Settings {
    /// `redis://` or `rediss://`, credentials included.
    pub url: String,
    /// What all replicas derive from the secret that they share.
    pub keys: StoreKeys,
    /// The prefix of every key.
    pub prefix: String,
    /// The timeout of one round trip.
    pub timeout: Duration,
    pub bounds: Bounds,
    /// Whether these bytes may go into a request as a hidden exchange. Others count as unreadable.
    pub is_hidden_exchange: fn(&[u8]) -> bool,
}

/// The address is invalid. Its text is left out, since it may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not the address of a Redis, such as redis://host:6379/0")]
pub struct AddressError;

/// See the module's documentation.
pub struct Redis {
    local: Memory,
    /// The uses of quotas that this process knows.
    uses: Cache<Arc<Uses>>,
    link: Arc<Link>,
    names: Names,
    queue: Queue,
    /// Held while a part grows and is queued: its states are written in the order in which they were, since each write
    /// removes the state before. A std mutex: nothing waits under it.
    growing: Mutex<()>,
    ending: watch::Sender<bool>,
    keeper: AbortHandle,
    // A std mutex: held for an assignment.
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

impl Redis {
    /// Checks the form of an address; connects to nothing.
    ///
    /// # Errors
    /// The address is invalid.
    pub fn check_address(url: &str) -> Result<(), AddressError> {
        Client::open(url).map(drop).map_err(|_| AddressError)
    }

    /// A state store at this address, to which it connects in the background.
    ///
    /// # Errors
    /// The address is invalid.
    pub fn open(settings: Settings, observer: Arc<dyn Observer>) -> Result<Self, AddressError> {
        let Settings { url, keys, prefix, timeout, bounds, is_hidden_exchange } = settings;
        let client = Client::open(url).map_err(|_| AddressError)?;
        let link = Arc::new(Link::new(client, &prefix, timeout, observer));
        let lifetimes =
            Lifetimes { facts: bounds.lifetime, sums: kept_for(bounds.lifetime), refusals: bounds.refusals };
        let names = Names::new(prefix, &keys, lifetimes, is_hidden_exchange);
        let kept = Arc::clone(&link);
        let keeper = tokio::spawn(async move { kept.keep().await }).abort_handle();
        let (ending, is_ending) = watch::channel(false);
        let (queue, writer) = queue(Arc::clone(&link), names.clone(), is_ending);
        let writer = Mutex::new(Some(tokio::spawn(writer.run())));
        let uses = weighed(bounds.calls, bounds.lifetime, |uses: &Arc<Uses>| uses.len());
        let (local, growing) = (Memory::new(&bounds), Mutex::new(()));
        Ok(Self { local, uses, link, names, queue, growing, ending, keeper, writer })
    }

    /// Waits until the first attempt to connect has ended, successful or not.
    pub async fn is_tried(&self, within: Duration) {
        let _ = timeout(within, self.link.is_tried()).await;
    }

    /// Whether there is a Redis Cluster at the address, as the last attempt to connect found.
    pub fn is_cluster(&self) -> bool {
        self.link.is_cluster()
    }

    /// Tries whether the server at an address can be used, without keeping a connection.
    ///
    /// # Errors
    /// The address is invalid, nothing answers there, or what answers cannot be used.
    pub async fn probe(url: String, prefix: &str, within: Duration) -> Result<(), ConnectError> {
        let client = Client::open(url).map_err(|_| ConnectError::Other(AddressError.to_string()))?;
        Link::new(client, prefix, within, Arc::new(Unobserved)).connect().await.map(drop)
    }

    /// Writes the queued updates, as long as the state store answers, and ends.
    pub async fn finish(&self, within: Duration) {
        self.ending.send_replace(true);
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer {
            let abort = writer.abort_handle();
            if timeout(within, writer).await.is_err() {
                abort.abort();
            }
        }
        self.keeper.abort();
    }

    /// The answers to the commands that `prepare` makes. What it adds to this process's parts of sums reaches the state store
    /// in the order in which it was added: commands are sent in the order in which they are polled first.
    async fn send_in_order(
        &self,
        op: StoreOp,
        prepare: impl FnOnce() -> Pipeline,
    ) -> Result<Vec<Value>, Away> {
        let mut prepare = Some(prepare);
        let mut sending = None;
        poll_fn(|context| {
            if let Some(prepare) = prepare.take() {
                let _in_order = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
                let commands = prepare();
                // A task that has used up its budget would not be queued by its first poll.
                let asking = Box::pin(unconstrained(async move { self.link.ask(&commands, op).await }));
                return sending.insert(asking).as_mut().poll(context);
            }
            sending.as_mut().map_or(Poll::Ready(Err(Away::Gone)), |sending| sending.as_mut().poll(context))
        })
        .await
    }

    fn queue_update(&self, update: Update) {
        if !self.queue.put(update) {
            self.link.count(StoreOp::Record, 1);
        }
    }

    /// Adds what the shared state store knows.
    fn add_shared(
        &self,
        batch: &mut Batch,
        ahead: &[Grown],
        shared: Result<Vec<Value>, Away>,
        answers: &mut Answers,
    ) {
        let Ok(shared) = shared else {
            answers.away = true;
            if !ahead.is_empty() {
                self.queue_update(Update { grown: ahead.to_vec(), ..Update::default() });
            }
            return self.count_spent(batch, &[], answers);
        };
        let mut found = Trip { names: &self.names, batch, ahead }.read(shared);
        let news = found.merge_into(batch);
        if !news.is_empty() {
            self.local.record(news);
        }
        self.link.count(StoreOp::Unreadable, found.unreadable);
        found.apart.iter().for_each(|why| self.link.refused_transaction(why));
        if let Some(written) = &found.written {
            self.link.count(StoreOp::Record, written.is_err().into());
            answers.unwritten = self.link.heard_of_writes(written.as_ref().err().map(String::as_str));
        }
        answers.repeated |= found.repeated;
        self.count_spent(batch, &found.uses, answers);
        self.restore_uses(batch, &found.uses);
        self.add_stops(batch, &found.stops, answers);
        self.add_parts(batch, ahead, &found.parts, answers);
    }

    /// The uses of quotas, as known to this process and to the `shared` state store.
    fn count_spent(&self, batch: &Batch, shared: &[Vec<Use>], answers: &mut Answers) {
        for (at, quota) in batch.quotas.iter().enumerate() {
            let shared = shared.get(at).map_or(&[][..], Vec::as_slice);
            let known = self.uses.get(&quota.name).unwrap_or_default();
            answers.spent.push(known.known(shared, batch.now.ms, quota.window_ms));
        }
    }

    /// The sums of this process's own parts and of those that others have reported, as they were before this request.
    fn add_parts(&self, batch: &Batch, ahead: &[Grown], found: &[Vec<Part>], answers: &mut Answers) {
        let mut left_over = Vec::new();
        for (nth, ((key, tally), found)) in batch.sums.iter().zip(&mut answers.sums).zip(found).enumerate() {
            // What this process has added since is no part of that.
            let added = ahead.get(nth);
            let own = added.map_or_else(|| self.local.part(*key), |added| added.before);
            let others = found.iter().filter(|part| added.is_none_or(|added| part.of != added.after.of));
            *tally = sum(others.copied().chain(own));
            left_over.extend(outdated(found).map(|part| (*key, part)));
        }
        if !left_over.is_empty() {
            self.queue_update(Update { left_over, ..Update::default() });
        }
    }

    /// Whether the shared state store gives `claim` its calls. Not while it is away: then it is unknown who else asks.
    async fn claim_shared(&self, claim: Claim) -> Option<Arc<Confirmation>> {
        let (asked, claimed) =
            ((RecordKind::Question, claim.question), (RecordKind::Claimed, claim.question));
        let (names, mut commands) = (&self.names, pipe());
        commands.cmd("GET").arg(names.key(asked));
        let sealed = names.seals.seal(claimed, &ClaimRecord::new(&claim));
        commands.cmd("SET").arg(names.key(claimed)).arg(sealed).arg("NX").arg("PX").arg(names.ttl_ms);
        commands.cmd("GET").arg(names.key(claimed));
        let Ok(answers) = self.link.ask(&commands, StoreOp::Claim).await else { return None };
        let mut reader = Reader { names, answers: answers.into_iter(), unreadable: 0 };
        let question = reader.next();
        let question = reader.open::<Arc<Confirmation>>(asked, &question);
        let (is_first, taken) = (reader.next(), reader.next());
        // `None` inside: this claim is the first.
        let before = match is_first {
            Value::Okay => Some(None),
            Value::Nil => reader.open::<ClaimRecord>(claimed, &taken).map(Some),
            // It was not stored, so another request may claim them too.
            Value::ServerError(error) => {
                self.link.heard_of_writes(Some(error.code()));
                None
            }
            _ => None,
        };
        self.link.count(StoreOp::Unreadable, reader.unreadable);
        if before.is_none() {
            self.link.count(StoreOp::Claim, 1);
        }
        let question = question.or_else(|| self.local.asked(claim.question))?;
        let is_given = match before? {
            None => claim.now_ms < question.expires_ms,
            Some(taken) => taken.may_be_repeated_by(&claim) && self.is_first_repeat(claim).await,
        };
        is_given.then_some(question)
    }

    /// Whether the request that took the calls is retried for the first time, at any replica.
    async fn is_first_repeat(&self, claim: Claim) -> bool {
        let (about, names) = ((RecordKind::Repeated, claim.question), &self.names);
        let mut commands = pipe();
        let sealed = names.seals.seal(about, &ClaimRecord::new(&claim));
        commands.cmd("SET").arg(names.key(about)).arg(sealed).arg("NX").arg("PX").arg(names.ttl_ms);
        let answers = self.link.ask(&commands, StoreOp::Claim).await.unwrap_or_default();
        answers.first() == Some(&Value::Okay)
    }
}

/// What a look-up has added to this process's parts of sums. It is taken back when this is dropped before the look-up has
/// ended: nobody knows of it then.
struct CountedAhead<'a> {
    store: &'a Redis,
    grown: Vec<Grown>,
    ahead: Tally,
}

impl CountedAhead<'_> {
    /// Adds it, and returns the commands of the look-up.
    fn add(&mut self, batch: &Batch) -> Pipeline {
        let add = |key: &Hash| match self.store.local.count_ahead(*key, &batch.ahead) {
            (before, Some(after)) => Some(Grown { key: *key, before, after, at_ms: now_ms() }),
            _ => None,
        };
        self.grown = batch.sums.iter().filter_map(add).collect();
        Trip { names: &self.store.names, batch, ahead: &self.grown }.commands()
    }
}

impl Drop for CountedAhead<'_> {
    fn drop(&mut self) {
        let refund = Tally::refund(self.ahead.sums);
        let tallied: Vec<_> = self.grown.drain(..).map(|grown| (grown.key, refund)).collect();
        if !tallied.is_empty() {
            self.store.record(Writes { tallied, ..Writes::default() });
        }
    }
}

impl StateStore for Redis {
    fn look_up<'a>(&'a self, mut batch: Batch) -> Pin<Box<dyn Future<Output = Answers> + Send + 'a>> {
        Box::pin(async move {
            let mut answers = self.local.own_answers(&mut batch);
            let mut ahead = CountedAhead { store: self, grown: Vec::new(), ahead: batch.ahead };
            let shared = self.send_in_order(StoreOp::LookUp, || ahead.add(&batch)).await;
            let own = batch.sums.iter().enumerate().map(|(nth, key)| {
                ahead.grown.get(nth).map_or_else(|| self.local.part(*key), |grown| grown.before)
            });
            answers.sums = own.map(|part| part.map(|part| part.tally).unwrap_or_default()).collect();
            self.add_shared(&mut batch, &ahead.grown, shared, &mut answers);
            ahead.grown.clear();
            Answers { facts: batch.facts, ..answers }
        })
    }

    fn record(&self, mut writes: Writes) {
        self.record_uses(std::mem::take(&mut writes.spent), std::mem::take(&mut writes.returned));
        let tallied = std::mem::take(&mut writes.tallied);
        self.local.record(writes.clone());
        if tallied.is_empty() {
            return self.queue_update(Update { writes, ..Update::default() });
        }
        let _in_order = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let grown = tallied.iter().map(|(key, tally)| {
            let (before, after) = self.local.add_to_part(*key, tally);
            Grown { key: *key, before, after, at_ms: now_ms() }
        });
        let grown = grown.collect();
        self.queue_update(Update { writes, grown, ..Update::default() });
    }

    fn reserve<'a>(
        &'a self,
        reservations: &'a [CallReservation],
    ) -> Pin<Box<dyn Future<Output = Vec<CallReservationResult>> + Send + 'a>> {
        Box::pin(self.reserve_shared(reservations))
    }

    fn claim<'a>(&'a self, claim: Claim) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>> {
        Box::pin(async move {
            let Some(question) = self.claim_shared(claim).await else { return false };
            // Recorded here too, so that nothing is given out twice if the state store was wiped since.
            self.local.record(Writes::from_fact(claim.question, question));
            self.local.take(claim)
        })
    }

    fn stop<'a>(
        &'a self,
        stop: Stop,
        now_ms: u64,
    ) -> Pin<Box<dyn Future<Output = Result<u64, StopError>> + Send + 'a>> {
        Box::pin(self.stop_shared(stop, now_ms))
    }

    fn resume<'a>(
        &'a self,
        stop: Stop,
    ) -> Pin<Box<dyn Future<Output = Result<bool, StopError>> + Send + 'a>> {
        Box::pin(async move { self.resume_shared(&stop).await })
    }

    fn stops<'a>(&'a self, now_ms: u64) -> Pin<Box<dyn Future<Output = Listed> + Send + 'a>> {
        Box::pin(self.list_shared(now_ms))
    }

    fn conversations(&self) -> u64 {
        self.local.conversations()
    }
}

/// Now, in ms since the epoch: the order in which parts of sums grew.
fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
