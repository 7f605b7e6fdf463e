//! The ledger that replicas share, in a Redis. This process's own memory stands before it, so that what it told is there
//! at once and it goes on alone while the Redis is away. Adds up what both know; decides nothing.
//!
//! Shared are release times, hidden rounds, what models refuse, questions to people and who took their calls, uses of
//! quotas, overflows, bills of histories, stops, and which requests came before. Learned rates stay in the process, and so does
//! what is bound to a client's connection.

mod link;
mod names;
pub mod records;
mod stops;
mod tell;
mod trip;
mod uses;

use self::link::Link;
use self::names::Names;
use self::records::{Kind, Taken, Use};
use self::tell::{Queue, Told, queue};
use self::trip::{Found, Reader, Trip};
use self::uses::{Change, Uses};
use super::cache::{update, weighed};
use super::memory::{Bounds, MOST_OVERFLOWS, Memory};
use super::pending::Standing;
use super::stops::{Listed, StopError};
use super::{Ask, Claim, Facts, Ledger, News, Spent, Stop};
use crate::conversation::identity::{Hash, HashKey};
use crate::conversation::released::{Release, Releases, with};
use crate::exchange::store::MOST_AT_ONE_PLACE;
use crate::plan::approval::Confirmation;
use crate::telemetry::ledger::LedgerOp;
use crate::telemetry::metrics::Metrics;
use ::redis::{Client, Value, pipe};
use moka::sync::Cache;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::timeout;

/// How it is reached, and what is kept there.
pub struct Settings {
    /// `redis://` or `rediss://`, credentials included.
    pub url: String,
    /// The secret that all replicas have.
    pub key: HashKey,
    /// What every key begins with.
    pub prefix: String,
    /// How long one trip may take.
    pub timeout: Duration,
    pub bounds: Bounds,
}

/// The address is none. Says nothing of it, since it may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is no address of a Redis, such as redis://host:6379/0")]
pub struct AddressError;

/// See the file's head.
pub struct Redis {
    local: Memory,
    /// What this process knows of quotas.
    uses: Cache<Hash, Arc<Uses>>,
    link: Arc<Link>,
    names: Names,
    queue: Queue,
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
    /// A ledger at this address, which is connected to in the background.
    ///
    /// # Errors
    /// The address is none.
    pub fn open(settings: Settings, metrics: Arc<Metrics>) -> Result<Self, AddressError> {
        let Settings { url, key, prefix, timeout, bounds } = settings;
        let client = Client::open(url).map_err(|_| AddressError)?;
        let link = Arc::new(Link::new(client, timeout, metrics));
        let names = Names::new(prefix, key, bounds.lifetime, bounds.refusals);
        let kept = Arc::clone(&link);
        let keeper = tokio::spawn(async move { kept.keep().await }).abort_handle();
        let (ending, is_ending) = watch::channel(false);
        let (queue, writer) = queue(Arc::clone(&link), names.clone(), is_ending);
        let writer = Mutex::new(Some(tokio::spawn(writer.run())));
        let uses = weighed(bounds.calls, bounds.lifetime, |uses: &Arc<Uses>| uses.len());
        Ok(Self { local: Memory::new(&bounds), uses, link, names, queue, ending, keeper, writer })
    }

    /// Waits until the address was tried once, be it there or not.
    pub async fn is_tried(&self, within: Duration) {
        let _ = timeout(within, self.link.is_tried()).await;
    }

    /// Tells what waits to be told, as long as the ledger answers, and ends.
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

    fn tell(&self, told: Told) {
        if !self.queue.put(told) {
            self.link.count(LedgerOp::Record, 1);
        }
    }

    /// Adds what the shared ledger knows.
    async fn add_shared(&self, ask: Ask<'_>, facts: &mut Facts) {
        let trip = Trip { names: &self.names, ask };
        let Ok(answers) = self.link.ask(&trip.commands(), LedgerOp::LookUp).await else {
            facts.away = true;
            return self.count_spent(ask, &[], facts);
        };
        let found = trip.read(answers);
        self.link.count(LedgerOp::Unreadable, found.unreadable);
        if let Some(written) = &found.written {
            self.link.count(LedgerOp::Record, written.is_err().into());
            facts.unwritten = self.link.heard_of_writes(written.as_ref().err().map(String::as_str));
        }
        self.count_spent(ask, &found.uses, facts);
        self.add_stops(ask, &found.stops, facts);
        self.remember_releases((ask.calls, &facts.released), &found.released);
        merge(facts, found);
    }

    /// What others told is known while the ledger is away too.
    fn remember_releases(&self, (calls, own): (&[Hash], &[Option<Releases>]), found: &[Vec<Release>]) {
        let of_each = calls.iter().zip(own).zip(found);
        let new = of_each.flat_map(|((call, own), found)| {
            let own = own.as_deref().unwrap_or_default();
            found.iter().filter(|release| !own.contains(release)).map(|release| (*call, *release))
        });
        let news = News { released: new.collect(), ..News::default() };
        if !news.is_empty() {
            self.local.record(news);
        }
    }

    /// What was used of quotas, by what this process and the `shared` ledger know.
    fn count_spent(&self, ask: Ask<'_>, shared: &[Vec<Use>], facts: &mut Facts) {
        let mut changes = Vec::new();
        for (at, quota) in ask.quotas.iter().enumerate() {
            let shared = shared.get(at).map_or(&[][..], Vec::as_slice);
            let come = |uses: &mut Uses| uses.come(shared, (ask.bytes, ask.now_ms), *quota);
            // Who used nothing takes no room.
            let is_known = !shared.is_empty() || self.uses.contains_key(&quota.name);
            let (spent, change) =
                if is_known { self.with_uses(quota.name, come) } else { (Vec::new(), None) };
            facts.spent.push(spent);
            changes.extend(change.map(|change| (quota.name, change)));
        }
        if !changes.is_empty() {
            self.tell(Told { news: News::default(), changes });
        }
    }

    /// What `change` says to the uses of a quota. Under a lock, so that of two requests at once one comes first.
    fn with_uses<T: Default>(&self, quota: Hash, change: impl FnOnce(&mut Uses) -> T) -> T {
        let mut said = T::default();
        update(&self.uses, quota, |known| {
            let mut uses = known.map(Arc::unwrap_or_clone).unwrap_or_default();
            said = change(&mut uses);
            Arc::new(uses)
        });
        said
    }

    /// Whether the shared ledger gives `claim` its calls. Not while it is away: then nobody knows who else asks.
    async fn claim_shared(&self, claim: Claim) -> Option<Arc<Confirmation>> {
        let (asked, claimed) = ((Kind::Asked, claim.anchor), (Kind::Claimed, claim.anchor));
        let taken = Taken { request: claim.request, at_ms: claim.now_ms };
        let (names, mut commands) = (&self.names, pipe());
        commands.cmd("GET").arg(names.key(asked));
        let sealed = names.seals.seal(claimed, &taken);
        commands.cmd("SET").arg(names.key(claimed)).arg(sealed).arg("NX").arg("PX").arg(names.ttl_ms);
        commands.cmd("GET").arg(names.key(claimed));
        let Ok(answers) = self.link.ask(&commands, LedgerOp::Claim).await else { return None };
        let mut reader = Reader { names, answers: answers.into_iter(), unreadable: 0 };
        let question = reader.next();
        let question = reader.open::<Confirmation>(asked, &question).map(Arc::new);
        let (is_first, taken) = (reader.next(), reader.next());
        let first = match is_first {
            Value::Okay => Some(None),
            Value::Nil => reader.open::<Taken>(claimed, &taken).map(Some),
            // It was not written down, so another may come.
            Value::ServerError(error) => {
                self.link.heard_of_writes(Some(error.code()));
                None
            }
            _ => None,
        };
        self.link.count(LedgerOp::Unreadable, reader.unreadable);
        let first = first.map(|taken| {
            taken.map(|Taken { request, at_ms }| (Claim { request, now_ms: at_ms, ..claim }, at_ms))
        });
        if first.is_none() {
            self.link.count(LedgerOp::Claim, 1);
        }
        let question = question.or_else(|| self.local.asked(claim.anchor))?;
        let mut standing = Standing::taken(Arc::clone(&question), first?);
        let is_again = standing.is_taken();
        let is_given = standing.take(claim) && (!is_again || self.is_first_repeat(claim).await);
        is_given.then_some(question)
    }

    /// Whether the request that took the calls comes again for the first time, at any replica.
    async fn is_first_repeat(&self, claim: Claim) -> bool {
        let (about, names) = ((Kind::Repeated, claim.anchor), &self.names);
        let taken = Taken { request: claim.request, at_ms: claim.now_ms };
        let mut commands = pipe();
        let sealed = names.seals.seal(about, &taken);
        commands.cmd("SET").arg(names.key(about)).arg(sealed).arg("NX").arg("PX").arg(names.ttl_ms);
        let answers = self.link.ask(&commands, LedgerOp::Claim).await.unwrap_or_default();
        answers.first() == Some(&Value::Okay)
    }
}

impl Ledger for Redis {
    fn look_up<'a>(&'a self, ask: Ask<'a>) -> Pin<Box<dyn Future<Output = Facts> + Send + 'a>> {
        Box::pin(async move {
            let mut facts = self.local.look_up(Ask { quotas: &[], ..ask }).await;
            self.add_shared(ask, &mut facts).await;
            facts
        })
    }

    fn record(&self, mut news: News) {
        let spent = std::mem::take(&mut news.spent);
        let change =
            |spent: &Spent| Some((spent.quota, self.with_uses(spent.quota, |uses| uses.add(spent))?));
        let changes: Vec<(Hash, Change)> = spent.iter().filter_map(change).collect();
        self.local.record(news.clone());
        self.tell(Told { news, changes });
    }

    fn claim<'a>(&'a self, claim: Claim) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>> {
        Box::pin(async move {
            let Some(question) = self.claim_shared(claim).await else { return false };
            // Here too, so that a ledger that was wiped since gives nothing out twice.
            let asked = vec![(claim.anchor, Arc::unwrap_or_clone(question))];
            self.local.record(News { asked, ..News::default() });
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

/// Adds what was found to what this process knows. Where both know something else, the shared ledger's counts, so that
/// all replicas go by the same.
fn merge(facts: &mut Facts, found: Found) {
    for (known, shared) in
        facts.released.iter_mut().zip(found.released).filter(|(_, shared)| !shared.is_empty())
    {
        let own = known.take().unwrap_or_default();
        *known = Some(shared.into_iter().fold(own, |own, release| with(&own, release)));
    }
    for (known, shared) in facts.rounds.iter_mut().zip(found.rounds) {
        add_own(known, shared, |own, other| own == other, MOST_AT_ONE_PLACE);
    }
    facts.model = facts.model.and(found.model);
    facts.repeated |= found.repeated;
    facts.asked = found.asked.map(Arc::new).or(facts.asked.take());
    for (known, shared) in facts.sent_rounds.iter_mut().zip(found.sent_rounds) {
        *known = shared.map(|sent| sent.rounds).or(*known);
    }
    add_own(&mut facts.overflows, found.overflows, |own, other| own == other, MOST_OVERFLOWS);
}

/// Puts what is `shared` before what only this process knows: that is what it has just told. The last ones stay.
fn add_own<T>(known: &mut Vec<T>, shared: Vec<T>, is_same: impl Fn(&T, &T) -> bool, most: usize) {
    known.retain(|own| !shared.iter().any(|other| is_same(own, other)));
    known.splice(..0, shared);
    let surplus = known.len().saturating_sub(most);
    known.drain(..surplus);
}
