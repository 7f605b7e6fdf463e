//! Stops in the shared state store: one sorted set, each member a sealed record, its score the end of the stop in ms
//! since the epoch. A look-up asks for two scores, and a list reads the set. Unlike other facts they are written while
//! somebody waits, who learns whether all replicas have the stop.

use super::Redis;
use crate::stops::{Listed, MOST_STOPS, StopError};
use ::redis::{FromRedisValue as _, Pipeline, Value, pipe};
use model::fact::{Answers, Batch, RecordKind};
use model::identity::Hash;
use model::store::Stop;
use model::store_health::StoreOp;
use std::time::Duration;

/// The key of the set.
pub(super) const STOPS: (RecordKind, Hash) = (RecordKind::Stops, Hash(0));
/// The timeout: somebody waits, but no model and no program.
const WRITE_WITHIN: Duration = Duration::from_secs(1);

impl Redis {
    pub(super) async fn stop_shared(&self, stop: Stop, now_ms: u64) -> Result<u64, StopError> {
        let until_ms = self.local.stops.add(stop.clone(), now_ms)?;
        let (key, names, mut commands) = (self.names.key(STOPS), &self.names, pipe());
        commands.cmd("ZREMRANGEBYSCORE").arg(&key).arg("-inf").arg(now_ms);
        commands.cmd("ZADD").arg(&key).arg(until_ms).arg(names.seals.seal(STOPS, &stop));
        commands.cmd("PEXPIRE").arg(&key).arg(names.ttl_ms);
        commands.cmd("ZCARD").arg(&key);
        let answers = self.written(&commands).await?;
        if matches!(answers.last(), Some(Value::Int(count)) if *count > MOST_STOPS as i64) {
            self.resume_shared(&stop).await?;
            return Err(StopError::Full);
        }
        self.local.stops.learn(&stop, Some(until_ms));
        Ok(until_ms)
    }

    pub(super) async fn resume_shared(&self, stop: &Stop) -> Result<bool, StopError> {
        let was_here = self.local.stops.remove(stop);
        let mut commands = pipe();
        let forms = self.names.seals.forms(STOPS, stop);
        commands.cmd("ZREM").arg(self.names.key(STOPS)).arg(&forms[..]);
        let answers = self.written(&commands).await?;
        Ok(was_here || matches!(answers.first(), Some(Value::Int(removed)) if *removed > 0))
    }

    /// All stops, or, while the state store is away, those that this process knows.
    pub(super) async fn list_shared(&self, now_ms: u64) -> Listed {
        let mut commands = pipe();
        let inside = commands.cmd("ZRANGEBYSCORE").arg(self.names.key(STOPS)).arg(format!("({now_ms}"));
        inside.arg("+inf").arg("WITHSCORES").arg("LIMIT").arg(0).arg(MOST_STOPS);
        let answers = self.link.ask_within(&commands, StoreOp::LookUp, WRITE_WITHIN).await;
        let members = answers.ok().and_then(|answers| {
            Vec::<(Vec<u8>, f64)>::from_redis_value(answers.into_iter().next().unwrap_or_default()).ok()
        });
        let Some(members) = members else {
            return Listed { stops: self.local.stops.list(now_ms), whole: false };
        };
        let count = members.len();
        let open = |(sealed, until_ms): (Vec<u8>, f64)| {
            Some((self.names.seals.open::<Stop>(STOPS, &sealed)?, until_ms as u64))
        };
        let mut stops: Vec<(Stop, u64)> = members.into_iter().filter_map(open).collect();
        self.link.count(StoreOp::Unreadable, (count - stops.len()) as u64);
        let own = self.local.stops.unshared(now_ms).into_iter();
        let own: Vec<_> = own.filter(|(own, _)| !stops.iter().any(|(stop, _)| stop == own)).collect();
        stops.extend(own);
        Listed { stops, whole: true }
    }

    /// Adds what the shared state store says about the requested stops.
    pub(super) fn add_stops(&self, batch: &Batch, said: &[Option<Option<u64>>], answers: &mut Answers) {
        let mut shared = None;
        for (stop, said) in batch.stops.iter().zip(said) {
            let Some(until_ms) = said else { continue };
            let until_ms = until_ms.filter(|until_ms| *until_ms > batch.now.ms);
            self.local.stops.learn(stop, until_ms);
            shared = shared.or(until_ms.map(|_| stop.what));
        }
        answers.stopped = shared.or_else(|| self.local.stops.find(&batch.stops, batch.now.ms));
    }

    /// The answers to `commands`, if all of them were accepted.
    async fn written(&self, commands: &Pipeline) -> Result<Vec<Value>, StopError> {
        let asked = self.link.ask_within(commands, StoreOp::Record, WRITE_WITHIN).await;
        let answers = asked.map_err(|_| StopError::Away)?;
        let refused = answers.iter().find_map(|answer| match answer {
            Value::ServerError(error) => Some(error.code().to_owned()),
            _ => None,
        });
        let Some(code) = refused else { return Ok(answers) };
        self.link.count(StoreOp::Record, 1);
        self.link.heard_of_writes(Some(&code));
        Err(StopError::Away)
    }
}
