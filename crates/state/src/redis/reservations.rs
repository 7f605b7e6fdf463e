//! Reservations in the shared state store: each call is added first, and then all that counts is read, in one transaction.
//! So of all who reserve at once, each sees exactly those before it; whoever finds no room takes its call out again, which
//! others may see for a moment as one call too many. While the state store is away, this process counts for itself.

use super::accounts::{Grown, add_part, ask_for_parts};
use super::transaction::Transaction;
use super::trip::{Reader, most_read};
use super::writer::{Update, add_change};
use super::{Redis, now_ms};
use crate::cache::update;
use crate::memory::{reserve_use, reserved_call, reserved_use};
use crate::spent::{Change, Uses, times_of};
use crate::tallies::{Part, sum};
use ::redis::{Pipeline, Value, pipe};
use model::account::{Kind, Sums, Tally};
use model::fact::{Batch, RecordKind};
use model::identity::Hash;
use model::store::{CallReservation, CallReservationResult, QuotaCall};
use model::store_health::StoreOp;
use model::uses::Use;
use std::sync::{Arc, PoisonError};

/// A reservation on its way.
enum ReservationAttempt {
    /// An entry of a quota that counts.
    Use(Change),
    /// An entry by which an earlier use hands its call out again.
    Again(Change),
    /// One call more in the own part of a sum, after so many in it.
    Call { own: u64, grown: Box<Grown> },
}

/// The answers to the commands of several reservations, and how many commands each has.
struct Answers<'a> {
    reader: Reader<'a>,
    lengths: std::vec::IntoIter<usize>,
}

impl Redis {
    /// See [`StateStore::reserve`](crate::StateStore::reserve).
    pub(super) async fn reserve_shared(
        &self,
        reservations: &[CallReservation],
    ) -> Vec<CallReservationResult> {
        let mut done: Vec<Option<CallReservationResult>> = vec![None; reservations.len()];
        // A call that an earlier use does not hand out again counts: then there is a second trip.
        for may_repeat in [true, false] {
            let open: Vec<usize> = (0..done.len()).filter(|index| done[*index].is_none()).collect();
            if open.is_empty() {
                break;
            }
            let wanted: Vec<&CallReservation> = open.iter().map(|index| &reservations[*index]).collect();
            let (tried, mut answers) = self.try_all(&wanted, may_repeat).await;
            for (index, tried) in open.into_iter().zip(tried) {
                let reservation = &reservations[index];
                done[index] = match &mut answers {
                    Some(answers) => self.settle(reservation, tried, answers),
                    None => Some(self.reserve_alone(reservation, tried)),
                };
            }
            self.link.count(StoreOp::Unreadable, answers.map_or(0, |answers| answers.reader.unreadable));
        }
        // Each ends at the latest in the second trip.
        done.into_iter().map(|reserved| reserved.unwrap_or_else(|| reserved_call(Err(0), true))).collect()
    }

    fn try_one(&self, reservation: &CallReservation, may_repeat: bool) -> ReservationAttempt {
        match reservation {
            CallReservation::Quota { call, .. } => {
                let again = call.again.filter(|_| may_repeat).and_then(|again| Change::again(call, again));
                again.map_or_else(|| ReservationAttempt::Use(Change::asking(call)), ReservationAttempt::Again)
            }
            CallReservation::Sum { key, .. } => {
                let (before, after) = self.local.add_to_part(*key, &Tally::counted(Sums::ONE_CALL));
                let own = before.map_or(0, |part| part.tally.used().get(Kind::Calls));
                ReservationAttempt::Call {
                    own,
                    grown: Box::new(Grown { key: *key, before, after, at_ms: now_ms() }),
                }
            }
        }
    }

    /// Adds all calls that are `wanted`, and reads what counts; `None`: the state store did not take them.
    async fn try_all(
        &self,
        wanted: &[&CallReservation],
        may_repeat: bool,
    ) -> (Vec<ReservationAttempt>, Option<Answers<'_>>) {
        let (mut tried, mut lengths) = (Vec::new(), Vec::new());
        let answers = self.send_in_order(StoreOp::Reserve, || {
            let mut commands = pipe();
            commands.cmd("MULTI");
            for reservation in wanted {
                let (before, new) = (commands.len(), self.try_one(reservation, may_repeat));
                self.commands(reservation, &new, &mut commands);
                lengths.push(commands.len() - before);
                tried.push(new);
            }
            commands.cmd("EXEC");
            commands
        });
        let answers = answers.await.ok();
        (tried, answers.and_then(|answers| self.executed(answers, lengths)))
    }

    /// The answers to the commands of a transaction; `None`: it was refused.
    fn executed(&self, answers: Vec<Value>, lengths: Vec<usize>) -> Option<Answers<'_>> {
        let executed = match Transaction::read(&mut answers.into_iter(), lengths.iter().sum()) {
            Transaction::Executed(executed) => executed,
            Transaction::Apart(executed, why) => {
                self.link.refused_transaction(&why);
                executed
            }
            Transaction::Refused(why) => {
                self.link.count(StoreOp::Reserve, 1);
                self.link.heard_of_writes(why.as_deref());
                return None;
            }
        };
        let reader = Reader { names: &self.names, answers: executed.into_iter(), unreadable: 0 };
        Some(Answers { reader, lengths: lengths.into_iter() })
    }

    /// The commands of a reservation. The first one adds it; the last one reads what counts, unless an earlier use hands its
    /// call out again.
    fn commands(&self, reservation: &CallReservation, tried: &ReservationAttempt, commands: &mut Pipeline) {
        match (reservation, tried) {
            (CallReservation::Quota { call, .. }, ReservationAttempt::Again(change)) => {
                let about = (RecordKind::Quota, call.quota.name);
                let sealed = self.names.seals.seal(about, &change.added);
                // The entry of the try before stays: if it was removed, a request that has read it before could add this one
                // once more after it was replaced too.
                commands.cmd("ZADD").arg(self.names.key(about)).arg(change.added.at_ms).arg(sealed);
            }
            (CallReservation::Quota { call, .. }, ReservationAttempt::Use(change)) => {
                add_change(&self.names, call.quota.name, change, commands);
                let gone = format!("({}", call.at_ms.saturating_sub(call.quota.window_ms));
                let key = self.names.key((RecordKind::Quota, call.quota.name));
                let inside = commands.cmd("ZREVRANGEBYSCORE").arg(key).arg("+inf").arg(gone);
                inside.arg("LIMIT").arg(0).arg(most_read(call.quota.calls));
            }
            (CallReservation::Sum { key, .. }, ReservationAttempt::Call { grown, .. }) => {
                add_part(&self.names, grown, commands);
                ask_for_parts(&self.names, *key, commands);
            }
            _ => {}
        }
    }

    /// What became of a reservation by the `answers` to its commands; `None`: it is to be tried once more, as one that
    /// counts.
    fn settle(
        &self,
        reservation: &CallReservation,
        tried: ReservationAttempt,
        answers: &mut Answers<'_>,
    ) -> Option<CallReservationResult> {
        let length = answers.lengths.next().unwrap_or(0);
        let answers = &mut answers.reader;
        match (reservation, tried) {
            (CallReservation::Quota { call, .. }, ReservationAttempt::Again(change)) => {
                let is_first = answers.next() == Value::Int(1);
                answers.skip(length - 1);
                is_first.then(|| {
                    self.keep_use(call, &change);
                    reserved_use(Ok(change.added), false)
                })
            }
            (CallReservation::Quota { call, most }, ReservationAttempt::Use(change)) => {
                answers.skip(length - 1);
                let mut found: Vec<Use> = answers.all((RecordKind::Quota, call.quota.name));
                found.retain(|known| (known.call, known.nth) != (change.added.call, change.added.nth));
                let known = self.uses.get(&call.quota.name).unwrap_or_default();
                let times = times_of(&known.known(&found, call.at_ms, call.quota.window_ms));
                if times.len() < *most {
                    let granted = change.granted();
                    self.keep_use(call, &granted);
                    let added = granted.added;
                    let changes = vec![(call.quota.name, granted)];
                    self.queue_update(Update { changes, ..Update::default() });
                    return Some(reserved_use(Ok(added), false));
                }
                let returned = vec![(call.quota.name, change.added)];
                self.queue_update(Update { returned, ..Update::default() });
                Some(reserved_use(Err(times), false))
            }
            (CallReservation::Sum { key, most }, ReservationAttempt::Call { own, grown }) => {
                answers.skip(length - 1);
                let found: Vec<Part> = answers.all((RecordKind::Sum, *key));
                let others = sum(found.into_iter().filter(|part| part.of != grown.after.of));
                let used = own.saturating_add(others.used().get(Kind::Calls));
                if used < *most {
                    return Some(reserved_call(Ok(()), false));
                }
                self.take_call_back(*key);
                Some(reserved_call(Err(used), false))
            }
            _ => None,
        }
    }

    /// What becomes of a reservation while the state store is away. What it has taken all the same is taken back.
    fn reserve_alone(
        &self,
        reservation: &CallReservation,
        tried: ReservationAttempt,
    ) -> CallReservationResult {
        match (reservation, tried) {
            (CallReservation::Quota { call, most }, tried) => {
                let reserved = reserve_use(&self.uses, call, *most);
                let returned = match tried {
                    ReservationAttempt::Use(change) => vec![(call.quota.name, change.added)],
                    _ => Vec::new(),
                };
                let changes = reserved.iter().map(|change| (call.quota.name, change.clone())).collect();
                self.queue_update(Update { changes, returned, ..Update::default() });
                reserved_use(reserved.map(|change| change.added), true)
            }
            (CallReservation::Sum { most, .. }, ReservationAttempt::Call { own, grown }) if own < *most => {
                let _in_order = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
                self.queue_update(Update { grown: vec![*grown], ..Update::default() });
                reserved_call(Ok(()), true)
            }
            (CallReservation::Sum { key, .. }, ReservationAttempt::Call { own, .. }) => {
                self.take_call_back(*key);
                reserved_call(Err(own), true)
            }
            (CallReservation::Sum { .. }, _) => reserved_call(Err(0), true),
        }
    }

    /// Keeps an entry that the state store has taken, for the time when it is away, or has lost it.
    fn keep_use(&self, call: &QuotaCall, change: &Change) {
        update(&self.uses, call.quota.name, |known| {
            let mut uses = known.map(Arc::unwrap_or_clone).unwrap_or_default();
            uses.keep(change);
            Arc::new(uses)
        });
    }

    /// Takes one call out of this process's part of a sum.
    fn take_call_back(&self, key: Hash) {
        let _in_order = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, after) = self.local.add_to_part(key, &Tally::refund(Sums::ONE_CALL));
        let grown = vec![Grown { key, before, after, at_ms: now_ms() }];
        self.queue_update(Update { grown, ..Update::default() });
    }

    /// Adds calls of quotas that no reservation has counted, and removes those that were given back. Each is queued under
    /// the lock of its quota, so that the state store gets them in the order in which they are known here.
    pub(super) fn record_uses(&self, spent: Vec<QuotaCall>, returned: Vec<(Hash, Use)>) {
        for call in spent {
            update(&self.uses, call.quota.name, |known| {
                let mut uses = known.map(Arc::unwrap_or_clone).unwrap_or_default();
                let changes = vec![(call.quota.name, uses.add(&call))];
                self.queue_update(Update { changes, ..Update::default() });
                Arc::new(uses)
            });
        }
        for (quota, returned) in returned {
            update(&self.uses, quota, |known| {
                let mut uses = known.map(Arc::unwrap_or_clone).unwrap_or_default();
                uses.remove(&returned);
                self.queue_update(Update { returned: vec![(quota, returned)], ..Update::default() });
                Arc::new(uses)
            });
        }
    }

    /// Stores again the uses of this process that the state store has lost, as after a restart without its data. Those that
    /// it has meanwhile are the same bytes.
    pub(super) fn restore_uses(&self, batch: &Batch, shared: &[Vec<Use>]) {
        for (quota, shared) in batch.quotas.iter().zip(shared) {
            let lost = |known: &Uses| known.missing(shared, batch.now.ms, quota.window_ms);
            // Where as many were read as are read at most, older ones may be there all the same.
            let is_whole = shared.len() < most_read(quota.calls);
            if !is_whole || self.uses.get(&quota.name).is_none_or(|known| lost(&known).is_empty()) {
                continue;
            }
            update(&self.uses, quota.name, |known| {
                let known = known.unwrap_or_default();
                let changes = lost(&known).into_iter().map(|change| (quota.name, change)).collect();
                self.queue_update(Update { changes, ..Update::default() });
                known
            });
        }
    }
}
