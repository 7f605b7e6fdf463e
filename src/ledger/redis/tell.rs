//! Telling the shared ledger what requests brought: a queue with a bound, and one task that writes it down in batches.
//! Every command may be sent twice, so what did not arrive for sure is sent again. No request waits for it.

use super::link::{Away, Link, REFUSING};
use super::names::Names;
use super::records::{Kind, one_by_one};
use super::uses::{Change, most_read};
use crate::ledger::News;
use crate::ledger::memory::MOST_OVERFLOWS;
use crate::ledger::spent::MOST_USES;
use crate::rewrite::confirm::Confirmation;
use crate::rewrite::rounds::MOST_AT_ONE_PLACE;
use crate::telemetry::ledger::LedgerOp;
use crate::transcript::identity::Hash;
use crate::transcript::released::MOST_RELEASES;
use ::redis::{Pipeline, Value, pipe};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

/// What may wait to be told while the ledger is away: beyond, it is known to this process alone.
const MOST_WAITING: usize = 10_000;
const MOST_WAITING_BYTES: usize = 16 << 20;
/// What is told at once.
const BATCH: usize = 64;
/// How long that may take: rounds are large, and nobody waits.
const TOLD_WITHIN: Duration = Duration::from_secs(1);
/// A record alone that took longer so often is given up: more often than a link is given up for, so that it has come back
/// meanwhile.
const MOST_TIMES_SLOW: u32 = 10;
/// The pause before a ledger that is full, or loading, is told again.
const PAUSE: Duration = Duration::from_millis(500);
/// Refusals that pass: memory is full, a disk is, it loads or is being handed over.
const PASSING: [&str; 8] =
    ["OOM", "MISCONF", "LOADING", MOVED_ON, "BUSY", "TRYAGAIN", "MASTERDOWN", "NOREPLICAS"];
/// Another server was made the one to write to: the address leads there, this connection does not.
const MOVED_ON: &str = "READONLY";

/// What one request brought.
pub(super) struct Told {
    pub(super) news: News,
    /// By the quota.
    pub(super) changes: Vec<(Hash, Change)>,
}

/// What became of telling.
enum Heard {
    /// Refused for good is told too.
    All,
    /// It is to be told again.
    NotAll,
    /// The same, and less at once.
    TooSlow,
    /// The process ends.
    End,
}

/// Where requests put what they brought.
pub(super) struct Queue {
    sender: mpsc::Sender<Told>,
    bytes: Arc<AtomicUsize>,
}

/// Writes it down.
pub(super) struct Writer {
    waiting: mpsc::Receiver<Told>,
    bytes: Arc<AtomicUsize>,
    link: Arc<Link>,
    names: Names,
    ending: watch::Receiver<bool>,
}

impl Queue {
    /// Puts it there; false if there is no room.
    pub(super) fn put(&self, told: Told) -> bool {
        let bytes = told.bytes();
        if self.bytes.load(Ordering::Relaxed) + bytes > MOST_WAITING_BYTES {
            return false;
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let is_in = self.sender.try_send(told).is_ok();
        if !is_in {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        is_in
    }
}

/// A queue and its writer, which ends once `ending` says so and nothing waits.
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
            let bytes: usize = batch.iter().map(Told::bytes).sum();
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            batch.clear();
        }
    }

    async fn write(&mut self, batch: &[Told]) {
        let (mut rest, mut at_once, mut times_slow) = (batch, batch.len(), 0);
        while !rest.is_empty() {
            let (part, later) = rest.split_at(at_once.min(rest.len()));
            match self.tell(part).await {
                Heard::All => rest = later,
                Heard::End => return self.link.count(LedgerOp::Record, rest.len() as u64),
                Heard::TooSlow if part.len() > 1 => at_once = part.len() / 2,
                Heard::TooSlow => times_slow += 1,
                Heard::NotAll => {}
            }
            if times_slow == MOST_TIMES_SLOW {
                self.link.count(LedgerOp::Record, 1);
                (rest, times_slow) = (later, 0);
            }
        }
    }

    /// Tells `part` once.
    async fn tell(&mut self, part: &[Told]) -> Heard {
        let mut commands = pipe();
        part.iter().for_each(|told| told.commands(&self.names, &mut commands));
        if commands.is_empty() {
            return Heard::All;
        }
        if !self.is_up().await {
            return Heard::End;
        }
        let answers = match self.link.ask_within(&commands, LedgerOp::Record, TOLD_WITHIN).await {
            Ok(answers) => answers,
            Err(Away::TooSlow) => return Heard::TooSlow,
            Err(Away::Gone) => return Heard::NotAll,
        };
        let refused = answers.iter().filter_map(|answer| match answer {
            Value::ServerError(error) => Some(error.code()),
            _ => None,
        });
        let refused: Vec<&str> = refused.collect();
        self.link.count(LedgerOp::Record, refused.len() as u64);
        // One of these says more than others that come with it.
        let cause = refused.iter().find(|code| REFUSING.contains(code)).or(refused.first());
        self.link.heard_of_writes(cause.copied());
        if refused.contains(&MOVED_ON) {
            self.link.give_up(MOVED_ON);
        }
        let passes = refused.iter().any(|code| PASSING.contains(code));
        if !passes || *self.ending.borrow() {
            return Heard::All;
        }
        let _ = timeout(PAUSE, self.ending.wait_for(|is_ending| *is_ending)).await;
        Heard::NotAll
    }

    /// Waits until the ledger is there; false if the end comes first.
    async fn is_up(&mut self) -> bool {
        tokio::select! {
            biased;
            () = self.link.rises() => true,
            _ = self.ending.wait_for(|is_ending| *is_ending) => false,
        }
    }
}

impl Told {
    fn bytes(&self) -> usize {
        let rounds: usize = self.news.rounds.iter().map(|(_, round)| round.messages.len()).sum();
        let asked: usize = self.news.asked.iter().map(|(_, asked)| asked.size()).sum();
        let changes: usize = self.changes.iter().map(|(_, change)| 64 * (1 + change.gone.len())).sum();
        size_of::<Self>() + rounds + asked + 64 * self.news.released.len() + changes
    }

    /// Each of them may be sent twice.
    fn commands(&self, names: &Names, commands: &mut Pipeline) {
        let News { released, rounds, model, asked, sent, overflow, .. } = &self.news;
        for (call, release) in released {
            let about = (Kind::Released, *call);
            push_once(names, about, (names.seals.seal(about, release), MOST_RELEASES), commands);
        }
        for (place, round) in rounds {
            let about = (Kind::Rounds, *place);
            push_once(names, about, (names.seals.seal(about, round), MOST_AT_ONE_PLACE), commands);
        }
        if let Some((model, facts)) = model.as_ref().filter(|_| names.refusals_ms > 0) {
            let about = (Kind::Model, *model);
            for fact in one_by_one(*facts) {
                commands.cmd("SADD").arg(names.key(about)).arg(names.seals.seal(about, &fact));
            }
            commands.cmd("PEXPIRE").arg(names.key(about)).arg(names.refusals_ms);
        }
        for (text, confirmation) in asked {
            ask(names, *text, confirmation, commands);
        }
        if let Some(sent) = sent {
            let about = (Kind::History, sent.history);
            let sealed = names.seals.seal(about, sent);
            commands.cmd("SET").arg(names.key(about)).arg(sealed).arg("PX").arg(names.ttl_ms);
        }
        if let Some((conversation, overflow)) = overflow {
            let about = (Kind::Overflows, *conversation);
            push_once(names, about, (names.seals.seal(about, overflow), MOST_OVERFLOWS), commands);
        }
        self.changes.iter().for_each(|(quota, change)| tell_change(names, *quota, change, commands));
    }
}

/// What was told first stays.
fn set_once(names: &Names, about: (Kind, Hash), sealed: Vec<u8>, commands: &mut Pipeline) {
    commands.cmd("SET").arg(names.key(about)).arg(sealed).arg("NX").arg("PX").arg(names.ttl_ms);
}

/// Puts a record at the end of a list, of which the last `most` are kept. One that is there already moves.
fn push_once(names: &Names, about: (Kind, Hash), (sealed, most): (Vec<u8>, usize), commands: &mut Pipeline) {
    let key = names.key(about);
    commands.cmd("LREM").arg(&key).arg(0).arg(&sealed);
    commands.cmd("RPUSH").arg(&key).arg(sealed);
    commands.cmd("LTRIM").arg(&key).arg(-(most as i64)).arg(-1);
    commands.cmd("PEXPIRE").arg(&key).arg(names.ttl_ms);
}

/// A question that cannot be written down is known to this process alone.
fn ask(names: &Names, text: Hash, confirmation: &Confirmation, commands: &mut Pipeline) {
    use super::records::Record as _;
    if !confirmation.write().is_empty() {
        let about = (Kind::Asked, text);
        set_once(names, about, names.seals.seal(about, confirmation), commands);
    }
}

fn tell_change(names: &Names, quota: Hash, change: &Change, commands: &mut Pipeline) {
    let about = (Kind::Quota, quota);
    let (key, told) = (names.key(about), &change.told);
    commands.cmd("ZADD").arg(&key).arg(told.at_ms).arg(names.seals.seal(about, told));
    for gone in &change.gone {
        commands.cmd("ZREM").arg(&key).arg(names.seals.seal(about, gone));
    }
    let outside = told.at_ms.saturating_sub(change.window_ms);
    commands.cmd("ZREMRANGEBYSCORE").arg(&key).arg("-inf").arg(outside);
    let most = most_read(MOST_USES) as i64;
    commands.cmd("ZREMRANGEBYRANK").arg(&key).arg(0).arg(-most - 1);
    commands.cmd("PEXPIRE").arg(&key).arg(names.ttl_ms);
}
