//! One round trip to the shared state store with all that one request needs: the commands, and the parsing of their
//! answers. Sends nothing; what cannot be read is left out and counted.

use super::accounts::{Grown, add_part, ask_for_parts};
use super::names::Names;
use super::records::{Kind, Record, SeenMarker};
use super::stops::STOPS;
use super::transaction::Transaction;
use crate::memory::MOST_OVERFLOWS;
use crate::spent::MOST_USES;
use crate::tallies::Part;
use ::redis::{FromRedisValue as _, Pipeline, Value, cmd, pipe};
use model::account::Carried;
use model::identity::Hash;
use model::pins::{MOST_PINS, Pinned};
use model::plan::approval::Confirmation;
use model::released::{MOST_RELEASES, Release};
use model::store::{Evidence, KnownEvidence, Overflow, SentExchanges, StoreQuery};
use model::store::{HiddenExchange, MOST_AT_ONE_KEY, MOST_EVIDENCE};
use model::uses::{MOST_TRIES, Use};
use std::sync::Arc;

/// How many entries of a quota are read, the newest first: enough for all of its calls, and one more for the present
/// request. Replicas that do not know of each other yet may write one use in several entries, until it is written
/// anew.
pub(super) fn most_read(calls: usize) -> usize {
    (calls.min(MOST_USES) + 1) * MOST_TRIES as usize
}

/// The look-up.
pub(super) struct Trip<'a> {
    pub(super) names: &'a Names,
    pub(super) query: &'a StoreQuery,
    /// What is added to this process's part of each sum, in the same order.
    pub(super) ahead: &'a [Grown],
}

/// What was found, in the order asked.
#[derive(Default)]
pub(super) struct Found {
    pub(super) released: Vec<Vec<Release>>,
    pub(super) sent_exchanges: Vec<Option<SentExchanges>>,
    pub(super) asked: Option<Confirmation>,
    pub(super) approved: Vec<bool>,
    pub(super) rounds: Vec<Vec<HiddenExchange>>,
    pub(super) model: KnownEvidence,
    pub(super) repeated: bool,
    pub(super) overflows: Vec<Overflow>,
    pub(super) pinned: Vec<Pinned>,
    /// The uses of each quota.
    pub(super) uses: Vec<Vec<Use>>,
    /// The accounts as of each reply.
    pub(super) carried: Vec<Option<Arc<Carried>>>,
    /// The parts of each sum.
    pub(super) parts: Vec<Vec<Part>>,
    /// The end of each stop, in ms since the epoch; `None` outside: the state store did not answer that.
    pub(super) stops: Vec<Option<Option<u64>>>,
    /// Records that are not ours.
    pub(super) unreadable: u64,
    /// Whether the request's key could be written: else the refusal's code; `None` if it was there already.
    pub(super) written: Option<Result<(), String>>,
    /// Why the commands of the transaction ran each by itself, where they did.
    pub(super) apart: Option<String>,
}

impl Trip<'_> {
    /// The commands of the trip.
    pub(super) fn commands(&self) -> Pipeline {
        let (query, names) = (self.query, self.names);
        let mut commands = pipe();
        let single = self.single();
        if !single.is_empty() {
            let mut get = cmd("MGET");
            for about in single {
                get.arg(names.key(about));
            }
            commands.add_command(get);
        }
        // Also for calls that this process knows: another replica may have handed out an equal one since.
        let calls = query.calls.iter().map(|call| ((Kind::Released, *call), MOST_RELEASES));
        let places = query.places.iter().map(|place| ((Kind::HiddenExchanges, *place), MOST_AT_ONE_KEY));
        let evidence = self.evidence().map(|about| (about, MOST_EVIDENCE));
        for (about, most) in calls.chain(places).chain(evidence) {
            commands.cmd("LRANGE").arg(names.key(about)).arg(-(most as i64)).arg(-1);
        }
        let request = (Kind::Request, query.request);
        let seen = names.seals.seal(request, &SeenMarker);
        commands.cmd("SET").arg(names.key(request)).arg(seen).arg("NX").arg("PX").arg(names.ttl_ms);
        commands
            .cmd("LRANGE")
            .arg(names.key((Kind::Overflows, query.conversation)))
            .arg(-(MOST_OVERFLOWS as i64))
            .arg(-1);
        for quota in &query.quotas {
            let gone = format!("({}", query.now.ms.saturating_sub(quota.window_ms));
            let inside = commands.cmd("ZREVRANGEBYSCORE").arg(names.key((Kind::Quota, quota.name)));
            inside.arg("+inf").arg(gone).arg("LIMIT").arg(0).arg(most_read(quota.calls));
        }
        if let Some(pins) = query.pins {
            // Sorted by the time at which each was first seen.
            commands.cmd("ZRANGE").arg(names.key((Kind::Pins, pins))).arg(0).arg(MOST_PINS as i64 - 1);
        }
        // In one transaction: of all who add at once, each reads exactly what was added before it.
        if !self.ahead.is_empty() {
            commands.cmd("MULTI");
        }
        self.ahead.iter().for_each(|grown| add_part(names, grown, &mut commands));
        for key in &query.tallies {
            ask_for_parts(names, *key, &mut commands);
        }
        if !self.ahead.is_empty() {
            commands.cmd("EXEC");
        }
        for stop in &query.stops {
            for form in names.seals.forms(STOPS, stop) {
                commands.cmd("ZSCORE").arg(names.key(STOPS)).arg(form);
            }
        }
        commands
    }

    /// Parses the answers to [`Self::commands`].
    pub(super) fn read(&self, answers: Vec<Value>) -> Found {
        let query = self.query;
        let mut reader = Reader { names: self.names, answers: answers.into_iter(), unreadable: 0 };
        let single = self.single();
        let values = if single.is_empty() { Vec::new() } else { reader.list() };
        let mut values = single.into_iter().zip(values.into_iter().chain(std::iter::repeat(Value::Nil)));
        let mut found = Found::default();
        for (about, value) in values.by_ref().take(query.histories.len()) {
            found.sent_exchanges.push(reader.open(about, &value));
        }
        for (about, value) in values.by_ref().take(query.approved.len()) {
            found.approved.push(reader.open::<SeenMarker>(about, &value).is_some());
        }
        if query.answered.is_some() {
            found.asked = values.next().and_then(|(about, value)| reader.open(about, &value));
        }
        for (about, value) in values {
            found.carried.push(reader.open(about, &value));
        }
        for call in &query.calls {
            found.released.push(last(reader.all((Kind::Released, *call)), MOST_RELEASES));
        }
        for place in &query.places {
            let mut all: Vec<HiddenExchange> = reader.all((Kind::HiddenExchanges, *place));
            let count = all.len();
            all.retain(|exchange| (self.names.is_hidden_exchange)(&exchange.messages));
            reader.unreadable += (count - all.len()) as u64;
            let rounds = newest(all, |one, other| one == other);
            found.rounds.push(last(rounds, MOST_AT_ONE_KEY));
        }
        let [all, own] = self.evidence().map(|about| last(reader.all::<Evidence>(about), MOST_EVIDENCE));
        found.model = KnownEvidence { all, own };
        match reader.next() {
            Value::Okay => found.written = Some(Ok(())),
            Value::ServerError(error) => found.written = Some(Err(error.code().to_owned())),
            _ => found.repeated = true,
        }
        let overflows = newest(reader.all((Kind::Overflows, query.conversation)), |one, other| one == other);
        found.overflows = last(overflows, MOST_OVERFLOWS);
        for quota in &query.quotas {
            found.uses.push(reader.all((Kind::Quota, quota.name)));
        }
        found.pinned = query.pins.map_or_else(Vec::new, |pins| reader.all((Kind::Pins, pins)));
        if self.ahead.is_empty() {
            found.parts = query.tallies.iter().map(|key| reader.all((Kind::Tally, *key))).collect();
        } else {
            self.read_parts(&mut reader, &mut found);
        }
        // Each is asked for in two forms.
        found.stops = query.stops.iter().map(|_| Some(reader.score()?.max(reader.score()?))).collect();
        found.unreadable = reader.unreadable;
        found
    }

    /// Parses the answers to the transaction that adds parts of sums and reads them.
    fn read_parts(&self, reader: &mut Reader<'_>, found: &mut Found) {
        let mut added = pipe();
        self.ahead.iter().for_each(|grown| add_part(self.names, grown, &mut added));
        let commands = added.len() + self.query.tallies.len();
        let executed = match Transaction::read(&mut reader.answers, commands) {
            Transaction::Executed(executed) => executed,
            Transaction::Apart(executed, why) => {
                found.apart = Some(why);
                executed
            }
            Transaction::Refused(why) => {
                found.written = Some(Err(why.unwrap_or_default()));
                return;
            }
        };
        let mut executed = Reader { names: self.names, answers: executed.into_iter(), unreadable: 0 };
        executed.skip(added.len());
        found.parts = self.query.tallies.iter().map(|key| executed.all((Kind::Tally, *key))).collect();
        reader.unreadable += executed.unreadable;
    }

    /// The lists of evidence about the model.
    fn evidence(&self) -> [(Kind, Hash); 2] {
        [self.query.model.all, self.query.model.own].map(|key| (Kind::Evidence, key))
    }

    /// The kinds that are single values.
    fn single(&self) -> Vec<(Kind, Hash)> {
        let histories = self.query.histories.iter().map(|history| (Kind::History, *history));
        let approved = self.query.approved.iter().map(|name| (Kind::Approved, *name));
        let carried = self.query.carried.iter().map(|key| (Kind::Account, *key));
        let question = self.query.answered.map(|text| (Kind::Question, text));
        histories.chain(approved).chain(question).chain(carried).collect()
    }
}

/// Reads answers in order.
pub(super) struct Reader<'a> {
    pub(super) names: &'a Names,
    pub(super) answers: std::vec::IntoIter<Value>,
    pub(super) unreadable: u64,
}

impl Reader<'_> {
    /// The next answer.
    pub(super) fn next(&mut self) -> Value {
        self.answers.next().unwrap_or_default()
    }

    /// The record in `value`.
    pub(super) fn open<R: Record>(&mut self, about: (Kind, Hash), value: &Value) -> Option<R> {
        let record = match value {
            Value::Nil => return None,
            Value::BulkString(bytes) => self.names.seals.open(about, bytes),
            _ => None,
        };
        self.unreadable += u64::from(record.is_none());
        record
    }

    /// The score of a member, `None` inside where there is none.
    fn score(&mut self) -> Option<Option<u64>> {
        let score = Option::<f64>::from_redis_value(self.next()).ok();
        self.unreadable += u64::from(score.is_none());
        Some(score?.map(|score| score as u64))
    }

    /// Passes so many answers.
    pub(super) fn skip(&mut self, count: usize) {
        self.answers.by_ref().take(count).for_each(drop);
    }

    fn list(&mut self) -> Vec<Value> {
        match self.next() {
            Value::Array(values) | Value::Set(values) => values,
            Value::Nil => Vec::new(),
            // A key of another type, for example.
            _ => {
                self.unreadable += 1;
                Vec::new()
            }
        }
    }

    /// The records in the next answer, a list.
    pub(super) fn all<R: Record>(&mut self, about: (Kind, Hash)) -> Vec<R> {
        let values = self.list();
        values.into_iter().filter_map(|value| self.open(about, &value)).collect()
    }
}

/// The items without those that are repeated (`again`) later.
fn newest<T>(items: Vec<T>, again: impl Fn(&T, &T) -> bool) -> Vec<T> {
    let mut kept: Vec<T> = Vec::new();
    for item in items {
        kept.retain(|earlier| !again(earlier, &item));
        kept.push(item);
    }
    kept
}

fn last<T>(mut items: Vec<T>, most: usize) -> Vec<T> {
    let surplus = items.len().saturating_sub(most);
    items.drain(..surplus);
    items
}
