//! One round trip to the shared state store with all that one request needs: the commands, and the parsing of their
//! answers. Sends nothing; what cannot be read is left out and counted.

use super::accounts::{Grown, add_part, ask_for_parts};
use super::names::Names;
use super::records::SeenMarker;
use super::stops::STOPS;
use super::transaction::Transaction;
use crate::spent::MOST_USES;
use crate::tallies::Part;
use ::redis::{FromRedisValue as _, Pipeline, Value, cmd, pipe};
use model::fact::{Batch, FactQuery, Record, RecordKind, Retention, Writes};
use model::identity::Hash;
use model::uses::{MOST_TRIES, Use};

/// How many entries of a quota are read, the newest first: enough for all tries of all of its calls, and of one more for the
/// present request.
pub(super) fn most_read(calls: usize) -> usize {
    (calls.min(MOST_USES) + 1) * MOST_TRIES as usize
}

/// The look-up.
pub(super) struct Trip<'a> {
    pub(super) names: &'a Names,
    pub(super) batch: &'a Batch,
    /// What is added to this process's part of each sum, in the same order.
    pub(super) ahead: &'a [Grown],
}

/// What was found, in the order asked.
#[derive(Default)]
pub(super) struct Found {
    /// The bodies under each key of the facts.
    facts: Vec<Vec<Vec<u8>>>,
    pub(super) repeated: bool,
    /// The uses of each quota.
    pub(super) uses: Vec<Vec<Use>>,
    /// The parts of each sum.
    pub(super) parts: Vec<Vec<Part>>,
    /// The end of each stop, in ms since the epoch; `None` outside: the state store did not answer that.
    pub(super) stops: Vec<Option<Option<u64>>>,
    /// Records that are not ours.
    pub(super) unreadable: u64,
    /// Whether the request's key could be written: else the refusal's code; `None` if it was not, or was there already.
    pub(super) written: Option<Result<(), String>>,
    /// Why the commands of the transaction ran each by itself, where they did.
    pub(super) apart: Option<String>,
}

/// Whether each key of such facts holds one value.
fn is_single(query: &dyn FactQuery) -> bool {
    query.rules().retention.is_single()
}

/// The keys of facts.
fn keys(query: &dyn FactQuery) -> impl Iterator<Item = (RecordKind, Hash)> + '_ {
    let kind = query.rules().kind;
    (0..query.count()).map(move |index| (kind, query.key(index)))
}

impl Trip<'_> {
    /// The commands of the trip.
    pub(super) fn commands(&self) -> Pipeline {
        let (batch, names) = (self.batch, self.names);
        let mut commands = pipe();
        let mut single = batch.facts().filter(|query| is_single(*query)).flat_map(keys).peekable();
        if single.peek().is_some() {
            let mut get = cmd("MGET");
            for about in single {
                get.arg(names.key(about));
            }
            commands.add_command(get);
        }
        // Also what this process knows: another replica may have added something since.
        for query in batch.facts() {
            for about in keys(query) {
                match query.rules().retention {
                    Retention::Value | Retention::Once => {}
                    Retention::Last(most) => {
                        commands.cmd("LRANGE").arg(names.key(about)).arg(-(most as i64)).arg(-1);
                    }
                    // Sorted by the time at which each was first seen.
                    Retention::First(most) => {
                        commands.cmd("ZRANGE").arg(names.key(about)).arg(0).arg(most as i64 - 1);
                    }
                }
            }
        }
        if let Some(request) = batch.request {
            let about = (RecordKind::Request, request);
            let seen = names.seals.seal(about, &SeenMarker);
            commands.cmd("SET").arg(names.key(about)).arg(seen).arg("NX").arg("PX").arg(names.ttl_ms);
        }
        for quota in &batch.quotas {
            let gone = format!("({}", batch.now.ms.saturating_sub(quota.window_ms));
            let inside = commands.cmd("ZREVRANGEBYSCORE").arg(names.key((RecordKind::Quota, quota.name)));
            inside.arg("+inf").arg(gone).arg("LIMIT").arg(0).arg(most_read(quota.calls));
        }
        // In one transaction: of all who add at once, each reads exactly what was added before it.
        if !self.ahead.is_empty() {
            commands.cmd("MULTI");
        }
        self.ahead.iter().for_each(|grown| add_part(names, grown, &mut commands));
        for key in &batch.sums {
            ask_for_parts(names, *key, &mut commands);
        }
        if !self.ahead.is_empty() {
            commands.cmd("EXEC");
        }
        for stop in &batch.stops {
            for form in names.seals.forms(STOPS, stop) {
                commands.cmd("ZSCORE").arg(names.key(STOPS)).arg(form);
            }
        }
        commands
    }

    /// Parses the answers to [`Self::commands`].
    pub(super) fn read(&self, answers: Vec<Value>) -> Found {
        let batch = self.batch;
        let mut reader = Reader { names: self.names, answers: answers.into_iter(), unreadable: 0 };
        let has_single = batch.facts().filter(|query| is_single(*query)).flat_map(keys).next().is_some();
        let values = if has_single { reader.list() } else { Vec::new() };
        let (mut values, mut found) = (values.into_iter(), Found::default());
        for query in batch.facts() {
            for about in keys(query) {
                let values = match is_single(query) {
                    true => values.by_ref().take(1).collect(),
                    false => reader.list(),
                };
                let bodies = reader.bodies(about, values);
                found.facts.push(bodies);
            }
        }
        if batch.request.is_some() {
            match reader.next() {
                Value::Okay => found.written = Some(Ok(())),
                Value::ServerError(error) => found.written = Some(Err(error.code().to_owned())),
                _ => found.repeated = true,
            }
        }
        for quota in &batch.quotas {
            found.uses.push(reader.all((RecordKind::Quota, quota.name)));
        }
        if self.ahead.is_empty() {
            found.parts = batch.sums.iter().map(|key| reader.all((RecordKind::Sum, *key))).collect();
        } else {
            self.read_parts(&mut reader, &mut found);
        }
        // Each is asked for in two forms.
        found.stops = batch.stops.iter().map(|_| Some(reader.score()?.max(reader.score()?))).collect();
        found.unreadable = reader.unreadable;
        found
    }

    /// Parses the answers to the transaction that adds parts of sums and reads them.
    fn read_parts(&self, reader: &mut Reader<'_>, found: &mut Found) {
        let mut added = pipe();
        self.ahead.iter().for_each(|grown| add_part(self.names, grown, &mut added));
        let commands = added.len() + self.batch.sums.len();
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
        found.parts = self.batch.sums.iter().map(|key| executed.all((RecordKind::Sum, *key))).collect();
        reader.unreadable += executed.unreadable;
    }
}

impl Found {
    /// Adds the facts that were found to what this process knows. Returns what this process is to keep, for the time when the state
    /// store is away.
    pub(super) fn merge_into(&mut self, batch: &mut Batch) -> Writes {
        let (mut facts, mut news) = (std::mem::take(&mut self.facts).into_iter(), Writes::default());
        for query in batch.facts_mut() {
            for index in 0..query.count() {
                let bodies = facts.next().unwrap_or_default();
                self.unreadable += query.merge(index, &bodies, &mut news);
            }
        }
        news
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
    pub(super) fn open<R: Record>(&mut self, about: (RecordKind, Hash), value: &Value) -> Option<R> {
        let record = match value {
            Value::Nil => return None,
            Value::BulkString(bytes) => self.names.seals.open(about, bytes),
            _ => None,
        };
        self.unreadable += u64::from(record.is_none());
        record
    }

    /// The bodies of the records in `values`.
    fn bodies(&mut self, about: (RecordKind, Hash), values: Vec<Value>) -> Vec<Vec<u8>> {
        let (names, mut unreadable) = (self.names, 0);
        let open = |value| {
            let body = match value {
                Value::Nil => return None,
                Value::BulkString(bytes) => names.open_body(about, &bytes),
                _ => None,
            };
            unreadable += u64::from(body.is_none());
            body
        };
        let bodies = values.into_iter().filter_map(open).collect();
        self.unreadable += unreadable;
        bodies
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
    pub(super) fn all<R: Record>(&mut self, about: (RecordKind, Hash)) -> Vec<R> {
        let values = self.list();
        values.into_iter().filter_map(|value| self.open(about, &value)).collect()
    }
}
