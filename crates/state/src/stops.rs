//! Stops: the conversations and callers that a person has stopped, as far as this process knows. A bounded map with an
//! end for each entry. It refuses new stops when full, since no stop may be evicted for another. Does not enforce stops
//! itself.

use model::Stopped;
use model::store::Stop;
use std::collections::HashMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The most stops at once. Each is a person's decision, so more are a mistake or an attack.
pub const MOST_STOPS: usize = 1_000;

/// Why a stop was not done as requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopError {
    /// It holds in this process alone: the shared state store did not take it.
    Away,
    /// There are [`MOST_STOPS`] already.
    Full,
}

/// What is stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// Each with its end, in ms since the epoch.
    pub stops: Vec<(Stop, u64)>,
    /// The list is complete; else the shared state store did not answer.
    pub whole: bool,
}

/// See the module's documentation.
pub(super) struct Stops {
    // A std lock: held for look-ups, never across an await. Every request reads.
    known: RwLock<HashMap<Stop, KnownStop>>,
    lifetime_ms: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct KnownStop {
    until_ms: u64,
    /// The shared state store has it too, and so knows when it ends.
    is_shared: bool,
}

impl Stops {
    /// No stops. Each will last for `lifetime_ms`.
    pub(super) fn new(lifetime_ms: u64) -> Self {
        Self { known: RwLock::default(), lifetime_ms }
    }

    /// The first of these that is stopped at `now_ms`.
    pub(super) fn find(&self, stops: &[Stop], now_ms: u64) -> Option<Stopped> {
        let known = self.read();
        if known.is_empty() {
            return None;
        }
        let is_stopped = |stop: &&Stop| known.get(*stop).is_some_and(|known| known.until_ms > now_ms);
        stops.iter().find(is_stopped).map(|stop| stop.what)
    }

    /// Stops it in this process, and returns until when.
    pub(super) fn add(&self, stop: Stop, now_ms: u64) -> Result<u64, StopError> {
        let until_ms = now_ms.saturating_add(self.lifetime_ms);
        let mut known = self.write();
        known.retain(|_, known| known.until_ms > now_ms);
        if known.len() >= MOST_STOPS && !known.contains_key(&stop) {
            return Err(StopError::Full);
        }
        known.insert(stop, KnownStop { until_ms, is_shared: false });
        Ok(until_ms)
    }

    /// Takes over what the shared state store says about a stop: its end, or that there is none. A stop that only this
    /// process knows stays.
    pub(super) fn learn(&self, stop: &Stop, until_ms: Option<u64>) {
        let said = until_ms.map(|until_ms| KnownStop { until_ms, is_shared: true });
        let own = self.read().get(stop).copied();
        if own == said || (said.is_none() && own.is_some_and(|own| !own.is_shared)) {
            return;
        }
        let mut known = self.write();
        match said {
            Some(said) if known.len() < MOST_STOPS || own.is_some() => known.insert(stop.clone(), said),
            Some(_) => None,
            None => known.remove(stop),
        };
    }

    /// Ends the stop; returns whether there was one.
    pub(super) fn remove(&self, stop: &Stop) -> bool {
        self.write().remove(stop).is_some()
    }

    /// All at `now_ms`, in no order.
    pub(super) fn list(&self, now_ms: u64) -> Vec<(Stop, u64)> {
        self.listed(now_ms, |_| true)
    }

    /// The stops that only this process knows.
    pub(super) fn unshared(&self, now_ms: u64) -> Vec<(Stop, u64)> {
        self.listed(now_ms, |known| !known.is_shared)
    }

    fn listed(&self, now_ms: u64, is_wanted: impl Fn(&KnownStop) -> bool) -> Vec<(Stop, u64)> {
        let known = self.read();
        let alive = known.iter().filter(|(_, known)| known.until_ms > now_ms && is_wanted(known));
        alive.map(|(stop, known)| (stop.clone(), known.until_ms)).collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, HashMap<Stop, KnownStop>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<Stop, KnownStop>> {
        self.known.write().unwrap_or_else(PoisonError::into_inner)
    }
}
