//! Facts that a transcript cannot tell: when calls were handed out, which rounds the client was not shown,
//! what a model refuses, what histories cost, what a person has stopped. Each has a bound and a lifetime; losing one never breaks a conversation. Stores and
//! finds; decides nothing.

mod cache;
pub mod held;
pub mod memory;
mod pending;
pub mod recent;
pub mod redis;
mod spent;
pub mod stops;
pub mod summaries;

pub use crate::exchange::store::{
    Answered, Ask, CallNames, Claim, Facts, MOST_LOOKED_UP, ModelFacts, News, Overflow, Quota, SentRounds,
    Spent, Stop,
};

use self::stops::{Listed, StopError};
use std::future::Future;
use std::pin::Pin;

/// Where facts are kept.
pub trait Ledger: Send + Sync {
    /// Everything that one request needs, in one trip.
    fn look_up<'a>(&'a self, ask: Ask<'a>) -> Pin<Box<dyn Future<Output = Facts> + Send + 'a>>;

    /// Learns what one request brought. Returns at once; what it tells is there for every later look-up of
    /// this process.
    fn record(&self, news: News);

    /// Takes the calls that a person has said yes to: true for one request alone, however many ask at once, and for
    /// that request where it comes again. A ledger that replicas share must hold this among all of them.
    fn claim<'a>(&'a self, claim: Claim) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>>;

    /// Stops a conversation or a caller for the lifetime of a fact, from `now_ms` since the epoch on: until when, in ms
    /// since the epoch. A stop that is there already is prolonged.
    ///
    /// # Errors
    /// It is not stopped, or not at all replicas.
    fn stop<'a>(
        &'a self,
        stop: Stop,
        now_ms: u64,
    ) -> Pin<Box<dyn Future<Output = Result<u64, StopError>> + Send + 'a>>;

    /// Ends a stop: whether there was one.
    ///
    /// # Errors
    /// It may go on at other replicas.
    fn resume<'a>(&'a self, stop: Stop)
    -> Pin<Box<dyn Future<Output = Result<bool, StopError>> + Send + 'a>>;

    /// What is stopped at `now_ms` since the epoch.
    fn stops<'a>(&'a self, now_ms: u64) -> Pin<Box<dyn Future<Output = Listed> + Send + 'a>>;

    /// Conversations seen within the lifetime of a fact.
    fn conversations(&self) -> u64;
}
