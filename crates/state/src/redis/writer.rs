//! The asynchronous write queue of the shared state store: bounded, with one task that writes updates in batches. Every
//! command is idempotent, so what may not have arrived is sent again. No request waits for it.

use super::accounts::{Grown, add_part, remove_part};
use super::link::{Away, Link, REFUSING};
use super::names::Names;
use super::trip::most_read;
use crate::spent::{Change, MOST_USES};
use crate::tallies::Part;
use ::redis::{Pipeline, Value, pipe};
use model::fact::{FactWrites, RecordKind, Retention, Writes};
use model::identity::Hash;
use model::store_health::StoreOp;
use model::uses::Use;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

/// The most updates that are queued while the state store is away; further ones stay local to this process.
const MOST_WAITING: usize = 10_000;
const MOST_WAITING_BYTES: usize = 16 << 20;
/// The most updates in one batch.
const BATCH: usize = 64;
/// The timeout of one batch: hidden exchanges are large, and nobody waits.
const WRITE_WITHIN: Duration = Duration::from_secs(1);
/// A single update that timed out this often is dropped: more often than it takes to give a link up, so that the link
/// has come back meanwhile.
const MOST_TIMES_SLOW: u32 = 10;
/// The pause before a retry while the state store is full or loading.
const PAUSE: Duration = Duration::from_millis(500);
/// Transient refusals: memory or a disk is full, the server is loading or failing over.
const PASSING: [&str; 8] =
    ["OOM", "MISCONF", "LOADING", MOVED_ON, "BUSY", "TRYAGAIN", "MASTERDOWN", "NOREPLICAS"];
/// Another server became the primary: the address leads there, this connection does not.
const MOVED_ON: &str = "READONLY";

/// What one request brought.
#[derive(Default)]
pub(super) struct Update {
    pub(super) writes: Writes,
    /// By quota.
    pub(super) changes: Vec<(Hash, Change)>,
    /// Uses of quotas by calls that were not handed out, by quota.
    pub(super) returned: Vec<(Hash, Use)>,
    /// Parts of sums.
    pub(super) grown: Vec<Grown>,
    /// States of parts that are still stored beside a later one.
    pub(super) left_over: Vec<(Hash, Part)>,
}

/// The result of writing.
enum Written {
    /// Everything was written or refused for good.
    All,
    /// To be sent again.
    NotAll,
    /// To be sent again, in smaller parts.
    TooSlow,
    /// The process ends.
    End,
}

/// The sending side of the queue.
pub(super) struct Queue {
    sender: mpsc::Sender<Update>,
    bytes: Arc<AtomicUsize>,
}

/// The task that writes the queue out.
pub(super) struct Writer {
    waiting: mpsc::Receiver<Update>,
    bytes: Arc<AtomicUsize>,
    link: Arc<Link>,
    names: Names,
    ending: watch::Receiver<bool>,
}

impl Queue {
    /// Queues an update; false if there is no room.
    pub(super) fn put(&self, update: Update) -> bool {
        let bytes = update.bytes();
        if self.bytes.load(Ordering::Relaxed) + bytes > MOST_WAITING_BYTES {
            return false;
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let is_in = self.sender.try_send(update).is_ok();
        if !is_in {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        is_in
    }
}

/// A queue and its writer, which ends once `ending` is true and the queue is empty.
pub(super) fn queue(link: Arc<Link>, names: Names, ending: watch::Receiver<bool>) -> (Queue, Writer) {
    let (sender, waiting) = mpsc::channel(MOST_WAITING);
    let bytes = Arc::<AtomicUsize>::default();
    let writer = Writer { waiting, bytes: Arc::clone(&bytes), link, names, ending };
    (Queue { sender, bytes }, writer)
}

impl Writer {
    /// Writes until the end.
    pub(super) async fn run(mut self) {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            let is_open = !self.waiting.is_closed();
            tokio::select! {
                count = self.waiting.recv_many(&mut batch, BATCH) => if count == 0 { return },
                _ = self.ending.wait_for(|is_ending| *is_ending), if is_open => {
                    self.waiting.close();
                    continue;
                }
            }
            self.write(&batch).await;
            let bytes: usize = batch.iter().map(Update::bytes).sum();
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            batch.clear();
        }
    }

    async fn write(&mut self, batch: &[Update]) {
        let (mut rest, mut at_once, mut times_slow) = (batch, batch.len(), 0);
        while !rest.is_empty() {
            let (part, later) = rest.split_at(at_once.min(rest.len()));
            match self.send(part).await {
                Written::All => rest = later,
                Written::End => return self.link.count(StoreOp::Record, rest.len() as u64),
                Written::TooSlow if part.len() > 1 => at_once = part.len() / 2,
                Written::TooSlow => times_slow += 1,
                Written::NotAll => {}
            }
            if times_slow == MOST_TIMES_SLOW {
                self.link.count(StoreOp::Record, 1);
                (rest, times_slow) = (later, 0);
            }
        }
    }

    /// Sends `part` once.
    async fn send(&mut self, part: &[Update]) -> Written {
        let mut commands = pipe();
        part.iter().for_each(|update| update.commands(&self.names, &mut commands));
        if commands.is_empty() {
            return Written::All;
        }
        if !self.is_up().await {
            return Written::End;
        }
        let answers = match self.link.ask_within(&commands, StoreOp::Record, WRITE_WITHIN).await {
            Ok(answers) => answers,
            Err(Away::TooSlow) => return Written::TooSlow,
            Err(Away::Gone) => return Written::NotAll,
        };
        let refused = answers.iter().filter_map(|answer| match answer {
            Value::ServerError(error) => Some(error.code()),
            _ => None,
        });
        let refused: Vec<&str> = refused.collect();
        self.link.count(StoreOp::Record, refused.len() as u64);
        // These codes say more about the cause than others that come with them.
        let cause = refused.iter().find(|code| REFUSING.contains(code)).or(refused.first());
        self.link.heard_of_writes(cause.copied());
        if refused.contains(&MOVED_ON) {
            self.link.give_up(MOVED_ON);
        }
        let passes = refused.iter().any(|code| PASSING.contains(code));
        if !passes || *self.ending.borrow() {
            return Written::All;
        }
        let _ = timeout(PAUSE, self.ending.wait_for(|is_ending| *is_ending)).await;
        Written::NotAll
    }

    /// Waits until the state store is there; false if the process ends first.
    async fn is_up(&mut self) -> bool {
        tokio::select! {
            biased;
            () = self.link.rises() => true,
            _ = self.ending.wait_for(|is_ending| *is_ending) => false,
        }
    }
}

impl Update {
    fn bytes(&self) -> usize {
        let facts: usize = self.writes.facts().map(FactWrites::size).sum();
        size_of::<Self>()
            + facts
            + 2 * size_of::<Change>() * self.changes.len()
            + 2 * size_of::<Use>() * self.returned.len()
            + size_of::<Grown>() * self.grown.len()
            + size_of::<(Hash, Part)>() * self.left_over.len()
    }

    /// The commands for this update; all of them are idempotent.
    fn commands(&self, names: &Names, commands: &mut Pipeline) {
        for facts in self.writes.facts() {
            for index in 0..facts.count() {
                add_fact(names, facts, index, self.writes.seen_ms, commands);
            }
        }
        self.changes.iter().for_each(|(quota, change)| add_change(names, *quota, change, commands));
        self.returned.iter().for_each(|(quota, returned)| remove_use(names, *quota, returned, commands));
        self.grown.iter().for_each(|grown| add_part(names, grown, commands));
        self.left_over.iter().for_each(|(key, part)| remove_part(names, *key, part, commands));
    }
}

/// Adds a record to its fact. One that cannot be written stays local to this process.
fn add_fact(names: &Names, facts: &dyn FactWrites, index: usize, seen_ms: u64, commands: &mut Pipeline) {
    let rules = facts.rules();
    let ttl_ms = names.lifetime_ms(rules.lifetime);
    let Some(body) = facts.body(index).filter(|_| ttl_ms > 0) else { return };
    let about = (rules.kind, facts.key(index));
    let (key, sealed) = (names.key(about), names.seals.seal_body(about, &body));
    match rules.retention {
        Retention::Value => {
            commands.cmd("SET").arg(key).arg(sealed).arg("PX").arg(ttl_ms);
            return;
        }
        Retention::Once => {
            commands.cmd("SET").arg(key).arg(sealed).arg("NX").arg("PX").arg(ttl_ms);
            return;
        }
        // A record that is there already moves to the end.
        Retention::Last(most) => {
            commands.cmd("LREM").arg(&key).arg(0).arg(&sealed);
            commands.cmd("RPUSH").arg(&key).arg(sealed);
            commands.cmd("LTRIM").arg(&key).arg(-(most as i64)).arg(-1);
        }
        // The time at which a record was seen first stays; beyond the bound the first ones do.
        Retention::First(most) => {
            commands.cmd("ZADD").arg(&key).arg("NX").arg(seen_ms).arg(sealed);
            commands.cmd("ZREMRANGEBYRANK").arg(&key).arg(most as i64).arg(-1);
        }
    }
    commands.cmd("PEXPIRE").arg(key).arg(ttl_ms);
}

/// Removes a use of a quota.
pub(super) fn remove_use(names: &Names, quota: Hash, returned: &Use, commands: &mut Pipeline) {
    let about = (RecordKind::Quota, quota);
    commands.cmd("ZREM").arg(names.key(about)).arg(&names.seals.forms(about, returned)[..]);
}

/// Adds a use of a quota, or a further try of it, and removes what has left the window. A granted use takes the place of the entry
/// that asked for it.
pub(super) fn add_change(names: &Names, quota: Hash, change: &Change, commands: &mut Pipeline) {
    let about = (RecordKind::Quota, quota);
    let (key, added) = (names.key(about), &change.added);
    commands.cmd("ZADD").arg(&key).arg(added.at_ms).arg(names.seals.seal(about, added));
    if added.tries == 1 {
        remove_use(names, quota, &Use { tries: 0, ..*added }, commands);
    }
    let outside = added.at_ms.saturating_sub(change.window_ms);
    commands.cmd("ZREMRANGEBYSCORE").arg(&key).arg("-inf").arg(outside);
    let most = most_read(MOST_USES) as i64;
    commands.cmd("ZREMRANGEBYRANK").arg(&key).arg(0).arg(-most - 1);
    commands.cmd("PEXPIRE").arg(&key).arg(names.ttl_ms);
}
