//! The policies: what toolrein decides about a conversation's tools. Each has its own file and is a fold over the
//! conversation's events. None names another, reads a clock or changes bytes; what one policy does for another is
//! passed as typed facts in the [`Plan`].
//!
//! To add one: write `NAME.rs` with a type that is a [`Policy`] and with its cases, add the two lines that are marked
//! below, its table in `proxy.toml`, its page `docs/policies/NAME.md`, and its row in the README's table. Nothing else.

pub mod about;
mod allow;
pub mod approvals;
mod arguments;
mod ask_user;
mod budget;
#[cfg(test)]
pub(crate) mod cases;
mod compact;
mod compile;
pub mod conditions;
mod confirm;
mod context;
mod definitions;
mod duplicates;
pub mod endpoint;
mod fresh;
mod history;
mod hosts;
mod injection;
mod instructions;
mod intents;
mod kill;
mod loops;
mod min_conversation;
#[cfg(test)]
mod near;
mod path;
pub mod pattern;
pub mod period;
mod quota;
mod rate_limit;
mod read_more;
pub mod redact;
mod request;
mod rewrite_query;
#[cfg(test)]
mod scenario;
mod scripts;
mod serial;
pub mod set;
mod states;
mod taint;
pub mod texts;
mod truncate;
mod turn_limits;
// First line of a new policy: `mod NAME;`.

use about::About;
use model::Event;
use model::fact::{Answers, Batch};
use model::identity::{Hash, Identity};
use model::plan::{Plan, Proposed, Usage, Verdict};
use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use serde_json::Value;
use set::{Rule, RuleOf};
use std::sync::Arc;
use texts::Text;

pub use request::{DeclaredTool, RequestView};

/// Every policy, in the order in which they speak: the first that objects to a call gives the reason.
pub const REGISTRY: &[Entry] = &[
    // First, since its reason ends the turn.
    Entry::of::<kill::Kill>(),
    // Before whatever looks at arguments: what runs is what is counted, compared, checked and shown.
    Entry::of::<rewrite_query::RewriteQuery>(),
    // Before whatever reads the arguments of calls and the texts of results, but for what may show them to a model.
    Entry::of::<redact::Redact>(),
    Entry::of::<budget::Budget>(),
    Entry::of::<rate_limit::RateLimit>(),
    Entry::of::<quota::Quota>(),
    Entry::of::<loops::Loops>(),
    // After whatever keeps a budget.
    Entry::of::<ask_user::AskUser>(),
    Entry::of::<turn_limits::TurnLimits>(),
    Entry::of::<allow::Allow>(),
    Entry::of::<states::States>(),
    Entry::of::<arguments::Arguments>(),
    Entry::of::<duplicates::Duplicates>(),
    Entry::of::<serial::Serial>(),
    Entry::of::<min_conversation::MinConversation>(),
    Entry::of::<fresh::Fresh>(),
    Entry::of::<injection::Injection>(),
    // After whatever flags results.
    Entry::of::<taint::Taint>(),
    Entry::of::<intents::Intents>(),
    // After what keeps results from the model, before what cuts them.
    Entry::of::<read_more::ReadMore>(),
    Entry::of::<definitions::Definitions>(),
    // After whatever else objects: nobody is asked about a call that does not run anyway.
    Entry::of::<confirm::Confirm>(),
    Entry::of::<truncate::Truncate>(),
    // Second line of a new policy, here: `Entry::of::<NAME::TYPE>(),`.
    // These two need what the others have planned, and so come last.
    Entry::of::<compact::Compact>(),
    Entry::of::<history::History>(),
];

/// A policy: configured once, then run over every transcript.
pub trait Policy: Sized + Send + Sync + 'static {
    /// Its table `[policy.NAME]`, its metric label and its audit label.
    const NAME: &'static str;
    /// One line for `toolrein policies`.
    const SUMMARY: &'static str;
    /// What it acts on, where that is less than the requests that toolrein governs: a clause of `toolrein check`.
    const SCOPE: Option<&'static str> = None;
    /// What the model and people read of it; the operator may replace each (`texts` in its table).
    const TEXTS: &'static [Text] = &[];
    /// Its settings as written in the file; unknown keys are refused.
    type Config: DeserializeOwned;
    /// The fold's state of one conversation, rebuilt for each request and forked for each choice of its reply.
    type State: Default + Clone + Send + Sync + 'static;

    /// The settings of the shipped table `shipped` that the operator's table `own`, as written, overrules although it
    /// does not repeat them: each as the key of an inner table and the key in it.
    fn overruled(_own: &Value, _shipped: &Value) -> Vec<[String; 2]> {
        Vec::new()
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// Every problem found, each with its key.
    fn new(config: Self::Config) -> Result<Self, Vec<ConfigError>>;

    /// See [`About`].
    fn about(&self) -> About {
        About::default()
    }

    /// Asks the state store for what the policy needs to know of the request, in the one trip that all make, and gives a
    /// state that keeps the tickets; `None`: it needs nothing.
    fn ask(&self, _request: &FactKeys<'_>, _batch: &mut Batch) -> Option<Self::State> {
        None
    }

    /// Receives what the state store knows, where the policy has asked: before [`Self::open`], and not where there is no
    /// state store, as in some replays.
    fn receive(&self, _answers: &Answers, _state: &mut Self::State) {}

    /// Receives what the request declares, before the first event.
    fn open(&self, _request: &RequestView<'_>, _state: &mut Self::State, _plan: &mut Plan) {}

    /// Receives the next event; may edit that event through `plan`, and no other. A user's approval of calls begins no
    /// turn: that in which it was asked for goes on.
    fn read(&self, _event: &Event<'_>, _state: &mut Self::State, _plan: &mut Plan) {}

    /// Receives the whole request after its last event.
    fn close(&self, _state: &Self::State, _plan: &mut Plan) {}

    /// Judges a call that the model has just made: by its name as soon as that is known, and once more with its
    /// arguments where any policy needs them. A call that is blocked by name stays blocked. Calls of a tool that the
    /// policy has made its own ([`ToolsEdit::Own`](model::plan::ToolsEdit::Own)) are judged by no other policy.
    fn judge(&self, _call: &Proposed<'_>, _state: &Self::State) -> Verdict {
        Verdict::Allow
    }

    /// Every policy has let the call through, or this policy has answered a call of its own tool.
    fn release(&self, _call: &Proposed<'_>, _state: &mut Self::State) {}

    /// What the conversation has used of this policy's limits, per tool.
    fn usage(&self, _state: &Self::State, _now_ms: u64) -> Vec<Usage> {
        Vec::new()
    }
}

/// What the keys of a policy's facts are made of.
pub struct FactKeys<'a> {
    /// The caller, and the key of all hashes.
    pub identity: &'a Identity,
    /// See [`Transcript::conversation`](model::Transcript::conversation).
    pub conversation: Hash,
    /// The conversation as logs show it: see [`Identity::conversation_id`].
    pub conversation_id: &'a str,
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
    /// A key is unknown or a value has the wrong type; the error knows its position in the file.
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
    /// See [`Policy::SCOPE`].
    pub scope: Option<&'static str>,
    /// See [`Policy::TEXTS`].
    pub texts: &'static [Text],
    /// See [`Policy::overruled`].
    pub overruled: Overruled,
    /// Builds the policy from its table.
    pub build: Build,
}

/// The scope of policies that change what was sent before.
pub const OF_WHOLE_HISTORIES: Option<&str> = Some(
    "requests that hold the whole history: not with previous_response_id or a conversation upstream, and never \
     across a compaction, a program or an MCP item",
);

/// See [`Policy::overruled`].
pub type Overruled = fn(&Value, &Value) -> Vec<[String; 2]>;

/// How a policy is built from its table in the file.
pub type Build = fn(toml::de::ValueDeserializer<'_>) -> Result<Arc<dyn Rule>, BuildError>;

impl Entry {
    /// The entry of the policy `P`.
    pub const fn of<P: Policy>() -> Self {
        Self {
            name: P::NAME,
            summary: P::SUMMARY,
            scope: P::SCOPE,
            texts: P::TEXTS,
            overruled: P::overruled,
            build: build::<P>,
        }
    }
}

fn build<P: Policy>(table: toml::de::ValueDeserializer<'_>) -> Result<Arc<dyn Rule>, BuildError> {
    let config = P::Config::deserialize(table).map_err(BuildError::Read)?;
    let policy = P::new(config).map_err(BuildError::Checked)?;
    Ok(Arc::new(RuleOf::new(policy)))
}
