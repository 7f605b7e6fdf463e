//! What an exchange asks of the state store and reports to it, as plain data. Whoever keeps it implements the trait in
//! `ledger`; what a fact means is the core's to say.

mod calls;
mod update;

pub use calls::CallNames;
pub use update::Answered;

use crate::rewrite::confirm::Confirmation;
use crate::rewrite::rounds::Round;
use crate::transcript::identity::{CallKey, Hash};
use crate::transcript::released::{Release, Releases};
use std::sync::Arc;
use std::time::Instant;

/// The most calls of one request that are looked up, the newest first: older ones are outside every window,
/// and a request of a million calls must not cost a million look-ups. The same for replies.
pub const MOST_LOOKED_UP: usize = 1024;

/// What one request wants to know.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Calls whose release time is wanted.
    pub calls: &'a [CallKey],
    /// Where hidden rounds may belong.
    pub places: &'a [Hash],
    /// The model at its upstream.
    pub model: Hash,
    /// The request's own name, to tell a repetition.
    pub request: Hash,
    pub conversation: Hash,
    /// Histories that may have been sent before.
    pub histories: &'a [Hash],
    /// The text to which the user has answered, where that may be a yes.
    pub answered: Option<Hash>,
    /// What the caller has used of these is wanted.
    pub quotas: &'a [Quota],
    /// The request's name, equal for equal bytes alone.
    pub bytes: Hash,
    /// Now, in ms since the epoch.
    pub now_ms: u64,
    /// The same by the clock that ages what is known, which nobody sets.
    pub now: Instant,
}

/// A quota of one caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Its name for this caller.
    pub name: Hash,
    /// How many it allows: no more need be known.
    pub calls: usize,
    /// How long a use counts, in ms.
    pub window_ms: u64,
}

/// A request that carries a yes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The name of the text that asked.
    pub anchor: Hash,
    /// The request's name, equal for equal bytes alone.
    pub request: Hash,
    /// Now, in ms since the epoch.
    pub now_ms: u64,
}

/// The answers, in the order asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// When each call was handed out, and behind what; `None` where that is not known.
    pub released: Vec<Option<Releases>>,
    pub rounds: Vec<Vec<Round>>,
    pub model: ModelFacts,
    /// The same request came before.
    pub repeated: bool,
    /// What that text asked, if it did.
    pub asked: Option<Arc<Confirmation>>,
    /// The name of the hidden exchanges that each history was sent with.
    pub sent_rounds: Vec<Option<u64>>,
    /// When calls of each quota were handed out, in ms since the epoch, but for earlier tries of the same request.
    pub spent: Vec<Vec<u64>>,
    /// Requests of the conversation that were refused for their length and taken in a shorter form.
    pub overflows: Vec<Overflow>,
    /// The ledger that replicas share did not answer: this is what this process knows.
    pub away: bool,
    /// It answered, but takes no news: what this process and others hand out, they do not learn of each other.
    pub unwritten: bool,
}

/// What a model at an upstream is known to refuse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelFacts {
    pub no_tools: bool,
    pub no_tool_choice: bool,
    /// Calls and results in the history.
    pub no_tool_history: bool,
    /// A system message that is not the first message.
    pub no_late_system: bool,
    /// To be asked for the usage of a stream.
    pub no_stream_options: bool,
}

impl ModelFacts {
    /// Everything.
    pub const ALL: Self = Self {
        no_tools: true,
        no_tool_choice: true,
        no_tool_history: true,
        no_late_system: true,
        no_stream_options: true,
    };

    /// What either knows.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            no_tools: self.no_tools || other.no_tools,
            no_tool_choice: self.no_tool_choice || other.no_tool_choice,
            no_tool_history: self.no_tool_history || other.no_tool_history,
            no_late_system: self.no_late_system || other.no_late_system,
            no_stream_options: self.no_stream_options || other.no_stream_options,
        }
    }
}

/// What one request brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// Calls handed to the client. Each time is kept, since ids repeat at some providers.
    pub released: Vec<(CallKey, Release)>,
    /// Rounds by their place; of equal ones one is kept.
    pub rounds: Vec<(Hash, Round)>,
    pub model: Option<(Hash, ModelFacts)>,
    /// Questions that were put, by the name of the text that holds each. What was told first stays.
    pub asked: Vec<(Hash, Confirmation)>,
    /// With which hidden exchanges the history was sent.
    pub sent: Option<SentRounds>,
    /// What quotas were used for.
    pub spent: Vec<Spent>,
    /// By the conversation: the request was refused for its length and taken in a shorter form.
    pub overflow: Option<(Hash, Overflow)>,
}

/// A request that was refused for its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflow {
    /// How many messages it had.
    pub messages: usize,
    /// The name of these.
    pub history: Hash,
}

/// With which hidden exchanges a history was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentRounds {
    /// The history's name.
    pub history: Hash,
    /// The name of the hidden exchanges that were put back in it; 0 where none were.
    pub rounds: u64,
}

impl News {
    /// Whether there is nothing to tell.
    pub fn is_empty(&self) -> bool {
        let told = self.released.is_empty() && self.rounds.is_empty() && self.asked.is_empty();
        let told = told && self.spent.is_empty() && self.overflow.is_none();
        told && self.model.is_none() && self.sent.is_none()
    }
}

/// Calls of one quota that a request brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spent {
    /// The quota's name for its caller.
    pub quota: Hash,
    /// The request's own name.
    pub request: Hash,
    pub calls: usize,
    /// In ms since the epoch.
    pub at_ms: u64,
    /// How long a use counts, in ms.
    pub window_ms: u64,
}
