//! The admin server's pages: metrics, health, the configuration in force, what this process has done, conversations, the
//! stream of events, stops and approvals. Public pages show no secret; pages that show a conversation or change anything
//! require the bearer token. The proxy module listens, accepts and writes.

mod answer;
mod attempts;
mod bearer;
mod code;
mod confirmations;
mod conversations;
mod dashboard;
mod difference;
mod events;
mod guard;
mod host;
mod overview;
mod pages;
pub mod readiness;
mod replay;
mod review;
mod shown;
mod stops;
mod validate;

pub use attempts::{Attempts, BETWEEN_ANSWERS};
pub use bearer::Bearer;
pub use overview::saved_usd;
pub use pages::Pages;
pub use review::Review;
pub use stops::StopScope;

use crate::config::Config;
use crate::store::held::HeldCalls;
use crate::telemetry::live::Live;
use crate::telemetry::metrics::Metrics;
use model::identity::HashKey;
use readiness::Readiness;
use state::StateStore;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// The value of [`Admin::reviews`].
pub const MOST_REVIEWS: usize = 2;

/// The state that the admin server shows. Cheap to clone.
#[derive(Clone)]
pub struct Admin {
    pub metrics: Arc<Metrics>,
    /// The configuration in force as JSON, secrets already hidden.
    pub config: Arc<str>,
    pub readiness: Readiness,
    /// Whether the server is bound to a loopback address: then host names other than `localhost` are refused.
    pub loopback: bool,
    /// Calls that wait for a person's decision.
    pub held: Arc<HeldCalls>,
    /// The state store, which keeps the stops.
    pub store: Arc<dyn StateStore>,
    /// The profiles in which stops have an effect.
    pub stop_scope: Arc<StopScope>,
    /// The token for protected pages; without it they do not exist.
    pub bearer: Option<Bearer>,
    /// Attempts with a wrong token.
    pub attempts: Arc<Attempts>,
    /// How long the body of a request may take.
    pub body_timeout: Duration,
    /// The configuration in force.
    pub settings: Arc<Config>,
    /// What happened since the start.
    pub live: Arc<Live>,
    /// Explains and replays conversations.
    pub review: Arc<dyn Review>,
    /// Explanations, replays and validations at once: each takes a processor.
    pub reviews: Arc<Semaphore>,
    /// The key of the hashes under which the state store keeps facts.
    pub key: HashKey,
    /// The upstream's name, which is part of some of them.
    pub upstream: Arc<str>,
}

#[cfg(test)]
mod tests;
