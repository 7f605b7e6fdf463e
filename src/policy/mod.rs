//! The policies: what toolrein decides about a conversation's tools. Each has a file of its own and is a fold over the
//! transcript's events. None names another, reads a clock or touches a byte; what one policy does for another travels as
//! typed facts in the [`Plan`].
//!
//! To add one: write `NAME.rs` with a type that is a [`Policy`] and with its cases, add the two lines that are marked
//! below, its table in `proxy.toml`, its page `docs/policies/NAME.md`, and its row in the README's table. Nothing else.

pub mod about;
mod allow;
mod arguments;
mod budget;
#[cfg(test)]
pub(crate) mod cases;
mod compact;
mod confirm;
mod context;
mod duplicates;
mod fresh;
mod history;
mod injection;
mod loops;
mod min_conversation;
#[cfg(test)]
mod near;
mod path;
pub mod pattern;
mod period;
pub mod plan;
mod quota;
mod rate_limit;
mod read_more;
mod request;
mod serial;
pub mod set;
mod states;
#[cfg(test)]
mod story;
mod taint;
mod truncate;
mod turn_limits;
mod work;
// First line of a new policy: `mod NAME;`.

use crate::transcript::Event;
use about::About;
use plan::{Plan, Proposed, Usage, Verdict};
use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use set::{Rule, RuleOf};
use std::sync::Arc;

pub use request::{DeclaredTool, RequestFacts};

/// Every policy, in the order in which they speak: the first that objects to a call gives the reason.
pub const REGISTRY: &[Entry] = &[
    Entry::of::<budget::Budget>(),
    Entry::of::<rate_limit::RateLimit>(),
    Entry::of::<quota::Quota>(),
    Entry::of::<loops::Loops>(),
    Entry::of::<turn_limits::TurnLimits>(),
    Entry::of::<allow::Allow>(),
    Entry::of::<states::States>(),
    Entry::of::<arguments::Arguments>(),
    Entry::of::<duplicates::Duplicates>(),
    Entry::of::<serial::Serial>(),
    Entry::of::<min_conversation::MinConversation>(),
    Entry::of::<fresh::Fresh>(),
    Entry::of::<injection::Injection>(),
    // Behind whatever flags results.
    Entry::of::<taint::Taint>(),
    // Behind what keeps results from the model, before what cuts them.
    Entry::of::<read_more::ReadMore>(),
    // Behind whatever else objects: nobody is asked about a call that does not run anyway.
    Entry::of::<confirm::Confirm>(),
    Entry::of::<truncate::Truncate>(),
    // Second line of a new policy, here: `Entry::of::<NAME::TYPE>(),`.
    // These two reckon with what the others have planned, and so come last.
    Entry::of::<compact::Compact>(),
    Entry::of::<history::History>(),
];

/// A policy: configured once, then run over every transcript.
pub trait Policy: Sized + Send + Sync + 'static {
    /// Its table `[policy.NAME]`, its metric label and its audit label.
    const NAME: &'static str;
    /// One line for `toolrein policies`.
    const SUMMARY: &'static str;
    /// Its settings as written in the file; unknown keys are refused.
    type Config: DeserializeOwned;
    /// What the fold remembers of one transcript, rebuilt for each request and forked for each choice of its reply.
    type State: Default + Clone + Send + Sync + 'static;

    /// Checks the settings.
    ///
    /// # Errors
    /// Every problem found, each with its key.
    fn new(config: Self::Config) -> Result<Self, Vec<ConfigError>>;

    /// What the settings amount to.
    fn about(&self) -> About {
        About::default()
    }

    /// Sees what the request declares, before the first event.
    fn open(&self, _request: &RequestFacts<'_>, _state: &mut Self::State, _plan: &mut Plan) {}

    /// Reads the next event; may edit that event through `plan`, and no other.
    fn read(&self, _event: &Event<'_>, _state: &mut Self::State, _plan: &mut Plan) {}

    /// Sees the whole request after its last event.
    fn close(&self, _state: &Self::State, _plan: &mut Plan) {}

    /// Judges a call that the model has just made: by its name as soon as that is known, and once more with its arguments
    /// where any policy needs them. What is blocked by name is blocked for good. Calls of a tool that the policy has made
    /// its own ([`Plan::own`]) are judged by nobody else.
    fn judge(&self, _call: &Proposed<'_>, _state: &Self::State) -> Verdict {
        Verdict::Allow
    }

    /// Learns that every policy has let the call through, or that it has answered one of a tool of its own.
    fn release(&self, _call: &Proposed<'_>, _state: &mut Self::State) {}

    /// What the conversation has used of this policy's limits, per tool.
    fn usage(&self, _state: &Self::State, _now_ms: u64) -> Vec<Usage> {
        Vec::new()
    }
}

/// One problem in a policy's settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct ConfigError {
    /// The key within the policy's table, dotted: `tools.search.calls`.
    pub key: String,
    /// What is wrong with it and what would be right.
    pub problem: String,
}

impl ConfigError {
    /// A problem with `key`.
    pub fn new(key: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { key: key.into(), problem: problem.into() }
    }
}

/// Why a policy could not be built from its table.
#[derive(Debug)]
pub enum BuildError {
    /// A key is unknown or a value has the wrong type; the error knows its place in the file.
    Read(toml::de::Error),
    /// The settings contradict a rule.
    Checked(Vec<ConfigError>),
}

/// A policy in the registry.
pub struct Entry {
    /// See [`Policy::NAME`].
    pub name: &'static str,
    /// See [`Policy::SUMMARY`].
    pub summary: &'static str,
    /// Builds the policy from its table.
    pub build: Build,
}

/// How a policy is built from its table in the file.
pub type Build = fn(toml::de::ValueDeserializer<'_>) -> Result<Arc<dyn Rule>, BuildError>;

impl Entry {
    /// The entry of the policy `P`.
    pub const fn of<P: Policy>() -> Self {
        Self { name: P::NAME, summary: P::SUMMARY, build: build::<P> }
    }
}

fn build<P: Policy>(table: toml::de::ValueDeserializer<'_>) -> Result<Arc<dyn Rule>, BuildError> {
    let config = P::Config::deserialize(table).map_err(BuildError::Read)?;
    let policy = P::new(config).map_err(BuildError::Checked)?;
    Ok(Arc::new(RuleOf::new(policy)))
}
