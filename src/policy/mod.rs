//! The policies: what toolrein decides about a conversation's tools. Each stands in a file of its own and is
//! a fold over the transcript's events; none names another, reads a clock or touches a byte.
//!
//! To add one: write `NAME.rs` with a type that is a [`Policy`], add the two lines marked below, its table in
//! `proxy.toml`, and its cases.

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

use crate::transcript::identity::{Hash, HashKey};
use crate::transcript::memo::Memo;
use crate::transcript::summaries::Summaries;
use crate::transcript::tokens::Estimate;
use crate::transcript::{Event, Transcript};
use crate::wire::message::{Message, Role};
use bytes::Bytes;
use plan::{Confirming, Counted, Plan, Proposed, SummaryPlace, Usage, Verdict};
use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use set::{Rule, RuleOf};
use std::borrow::Cow;
use std::sync::Arc;

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

/// How much of a call a policy must see before it can rule on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Evidence {
    /// It never rules on calls.
    Nothing,
    /// The tool's name.
    Name,
    /// The name and the whole arguments.
    Arguments,
}

/// A policy: configured once, then run over every transcript.
pub trait Policy: Sized + Send + Sync + 'static {
    /// Its table `[policy.NAME]`, its metric label and its audit label.
    const NAME: &'static str;
    /// One line for `toolrein policies`.
    const SUMMARY: &'static str;
    /// Whether it changes what the model is shown of the conversation, to make it smaller or safer: such policies
    /// leave the conversations alone that are held out for comparison.
    const EDITS_CONTEXT: bool = false;
    /// Whether it decides which tools may be called at all: a call that none of these policies has judged must not
    /// reach the client. Policies that only limit how often or how much (budgets, rates, loops) leave it off.
    const RESTRICTS_CALLS: bool = false;
    /// Its settings as written in the file; unknown keys are refused.
    type Config: DeserializeOwned;
    /// What the fold remembers of one transcript, rebuilt for each request.
    type State: Default + Clone + Send + Sync + 'static;

    /// Checks the settings.
    ///
    /// # Errors
    /// Every problem found, each with its key.
    fn new(config: Self::Config) -> Result<Self, Vec<ConfigError>>;

    /// The tools that the settings name, patterns left out.
    fn named_tools(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether it is of use only where streams tell their usage: with `ask_usage = "auto"` they are asked for it.
    fn needs_usage(&self) -> bool {
        false
    }

    /// What the settings amount to as a drawing in Mermaid, where that is easier to see than to read.
    fn diagram(&self) -> Option<String> {
        None
    }

    /// Whether no conversation can ever call the tool `name` while this policy is on.
    fn forbids(&self, _name: &str) -> bool {
        false
    }

    /// Whether it may shorten or clear what tools have given.
    fn cuts(&self) -> bool {
        false
    }

    /// How a person is asked about calls that are withheld for want of a yes, whichever policy wants it.
    fn confirming(&self) -> Option<Confirming> {
        None
    }

    /// What the ledger is to count for it, for each caller over all conversations.
    fn counted(&self) -> Vec<Counted> {
        Vec::new()
    }

    /// Where another model is asked for summaries.
    fn asks_for_summaries(&self) -> Option<SummaryPlace> {
        None
    }

    /// Sees what the request declares, before the first event.
    fn open(&self, _request: &RequestFacts<'_>, _state: &mut Self::State, _plan: &mut Plan) {}

    /// Reads the next event; may edit that event through `plan`, and no other.
    fn read(&self, _event: &Event<'_>, _state: &mut Self::State, _plan: &mut Plan) {}

    /// Sees the whole request after its last event.
    fn close(&self, _state: &Self::State, _plan: &mut Plan) {}

    /// Whether `name` is a tool of its own, which the client does not know: no other policy rules on its calls.
    fn owns(&self, _name: &str, _state: &Self::State) -> bool {
        false
    }

    /// How much it must see of a call of the tool `name` to rule on it.
    fn evidence(&self, _name: &str, _state: &Self::State) -> Evidence {
        Evidence::Nothing
    }

    /// Rules on a call that the model has just made.
    fn judge(&self, _call: &Proposed<'_>, _state: &Self::State) -> Verdict {
        Verdict::Allow
    }

    /// The tool whose cut result a call of a tool of its own asks for.
    fn regrets(&self, _call: &Proposed<'_>, _state: &Self::State) -> Option<String> {
        None
    }

    /// Learns that the call was let through by every policy, or that it answered one of a tool of its own.
    fn release(&self, _call: &Proposed<'_>, _state: &mut Self::State) {}

    /// What the conversation has used of this policy's limits, per tool.
    fn usage(&self, _state: &Self::State, _now_ms: u64) -> Vec<Usage> {
        Vec::new()
    }
}

/// What a request says beside its messages.
pub struct RequestFacts<'a> {
    /// The tools that it declares, in order.
    pub tools: Vec<DeclaredTool<'a>>,
    /// It takes another tool: it has a list `tools` with fewer than providers allow, and none in the deprecated form.
    pub takes_tools: bool,
    /// The reply must be a call.
    pub forced: bool,
    /// A policy that is on may cut results.
    pub cuts: bool,
    /// When calls of each thing that is counted for the caller were handed out, in ms since the epoch.
    pub spent: &'a [Vec<u64>],
    shared_body: Option<Bytes>,
    body: &'a [u8],
    /// Their estimated tokens.
    pub tools_tokens: Estimate,
    transcript: &'a Transcript<'a>,
    /// No more characters stand in its messages.
    pub most_chars: usize,
    /// See [`Transcript::context_window`](crate::transcript::Transcript::context_window).
    pub context_window: Option<u32>,
    /// See [`Transcript::overflowed`](crate::transcript::Transcript::overflowed).
    pub overflowed: bool,
    /// See [`Transcript::overflows`](crate::transcript::Transcript::overflows).
    pub overflows: &'a [usize],
    /// What was derived before, for what is costly to derive from a tool's declaration.
    pub memo: &'a dyn Memo,
    /// Names what is kept in the memo.
    pub key: &'a HashKey,
    /// The caller.
    pub principal: Hash,
    /// See [`Transcript::summaries`](crate::transcript::Transcript::summaries).
    pub summaries: Option<&'a Arc<dyn Summaries>>,
}

/// What a policy puts in the place of a result's text, or adds where it cuts it, is no more: a pointer or a marker.
const REPLACED: Estimate = Estimate::of_tokens(200);

impl RequestFacts<'_> {
    /// Whether no estimate of the whole request comes to more than `tokens`, nor one of its beginning, whatever is cut:
    /// for who need not count it then. Looks no closer than it must.
    pub fn fits(&self, tokens: u64) -> bool {
        let Transcript { request, hidden_rounds, token_factor, .. } = self.transcript;
        let most_of = |bytes| Estimate::most_of(bytes).scaled(*token_factor);
        if (self.tools_tokens + most_of(self.most_chars)).tokens() <= tokens {
            return true;
        }
        let hidden: usize = hidden_rounds.iter().map(|(_, round)| round.len()).sum();
        let replaced = |role| if role == Role::Tool { REPLACED } else { Estimate::ZERO };
        let mut most = self.tools_tokens + most_of(hidden);
        most += request.messages.iter().map(|message| replaced(message.role)).sum();
        // With the comma behind it: see `Estimate::most_of`.
        let bytes = |message: &Message| message.span.len() + 1;
        let mut unread: usize = request.messages.iter().map(bytes).sum();
        for (at, message) in request.messages.iter().enumerate() {
            if (most + most_of(unread)).tokens() <= tokens {
                return true;
            }
            unread -= bytes(message);
            most += self.transcript.view(at).most_tokens();
            if most.tokens() > tokens {
                return false;
            }
        }
        true
    }

    /// The request's bytes, for who keeps them: copied only where they are not shared.
    pub fn body(&self) -> Bytes {
        self.shared_body.clone().unwrap_or_else(|| Bytes::copy_from_slice(self.body))
    }
}

/// A tool that the model may call.
pub struct DeclaredTool<'a> {
    pub name: Cow<'a, str>,
    /// Its JSON Schema as written, where it has one.
    pub parameters: Option<&'a [u8]>,
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
    /// See [`Policy::RESTRICTS_CALLS`].
    pub restricts_calls: bool,
    /// Builds the policy from its table.
    pub build: Build,
}

/// How a policy is built from its table in the file.
pub type Build = fn(toml::de::ValueDeserializer<'_>) -> Result<Arc<dyn Rule>, BuildError>;

impl Entry {
    /// The entry of the policy `P`.
    pub const fn of<P: Policy>() -> Self {
        Self { name: P::NAME, summary: P::SUMMARY, restricts_calls: P::RESTRICTS_CALLS, build: build::<P> }
    }
}

fn build<P: Policy>(table: toml::de::ValueDeserializer<'_>) -> Result<Arc<dyn Rule>, BuildError> {
    let config = P::Config::deserialize(table).map_err(BuildError::Read)?;
    let policy = P::new(config).map_err(BuildError::Checked)?;
    Ok(Arc::new(RuleOf::new(policy)))
}
