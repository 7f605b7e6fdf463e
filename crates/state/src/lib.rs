//! The state store: facts that the transcript does not contain, such as when calls were handed out, which exchanges
//! were hidden from the client, what a model refuses, what histories cost, and what a person has stopped. Each fact has
//! a bound and a lifetime; losing one never breaks a conversation. Stores and finds; decides nothing.

pub mod cache;
pub mod claims;
pub mod memo;
pub mod memory;
pub mod observer;
pub mod random;
pub mod recent;
pub mod redis;
mod spent;
pub mod stops;
mod tables;
mod tallies;

use self::stops::{Listed, StopError};
use model::fact::{Answers, Batch, Writes};
use model::store::{CallReservation, CallReservationResult, Claim, Stop};
use std::future::Future;
use std::pin::Pin;

/// The place where facts are kept.
pub trait StateStore: Send + Sync {
    /// Answers a batch, in one round trip.
    fn look_up<'a>(&'a self, batch: Batch) -> Pin<Box<dyn Future<Output = Answers> + Send + 'a>>;

    /// Records what one request brought. Returns at once; every later look-up of this process finds it.
    fn record(&self, writes: Writes);

    /// Counts calls before they are handed out, in one trip: what became of each, in order. However many requests reserve
    /// at once, at whichever replica, no limit counts more calls than it allows.
    fn reserve<'a>(
        &'a self,
        reservations: &'a [CallReservation],
    ) -> Pin<Box<dyn Future<Output = Vec<CallReservationResult>> + Send + 'a>>;

    /// Claims the calls that a person has approved: true for one request alone, however many claim at once, and for a
    /// retry of that request. A shared state store must ensure this across all replicas.
    fn claim<'a>(&'a self, claim: Claim) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>>;

    /// Stops a conversation or a caller for the lifetime of a fact, from `now_ms` since the epoch on; returns the end,
    /// in ms since the epoch. An existing stop is prolonged.
    ///
    /// # Errors
    /// It is not stopped, or not at all replicas.
    fn stop<'a>(
        &'a self,
        stop: Stop,
        now_ms: u64,
    ) -> Pin<Box<dyn Future<Output = Result<u64, StopError>> + Send + 'a>>;

    /// Ends a stop; returns whether there was one.
    ///
    /// # Errors
    /// It may go on at other replicas.
    fn resume<'a>(&'a self, stop: Stop)
    -> Pin<Box<dyn Future<Output = Result<bool, StopError>> + Send + 'a>>;

    /// The stops at `now_ms` since the epoch.
    fn stops<'a>(&'a self, now_ms: u64) -> Pin<Box<dyn Future<Output = Listed> + Send + 'a>>;

    /// Conversations seen within the lifetime of a fact.
    fn conversations(&self) -> u64;
}
