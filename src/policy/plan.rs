//! What policies decide, as plain data: edits of events, verdicts on calls, a refusal of the request. Says
//! what shall be, never how bytes change.

use crate::transcript::identity::Hash;
use std::sync::Arc;

/// Everything that the policies want done to one request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    pub edits: Vec<Edit>,
    /// Tools that the model shall not be shown, with the policy that says so.
    pub hidden: Vec<(&'static str, String)>,
    /// The request shall not be sent, only answered with this.
    pub refusal: Option<Refusal>,
    /// Where the fold stands: set by the runner, so that a policy can edit only what it reads.
    at: Place,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Place {
    message: usize,
    policy: &'static str,
}

/// One change to one message, signed by its policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The message's place in the request.
    pub message: usize,
    pub policy: &'static str,
    pub change: Change,
}

/// What changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The text at place `text` among the message's strings of text is replaced.
    Shorten { text: usize, by: Arc<str>, gone_chars: usize },
    /// A text of ours that the model reads right after this message; `word` names it in headers and metrics.
    Notice { text: String, word: &'static str },
    /// Nothing changes; `word` is told in metrics and the log.
    Remark { word: &'static str },
}

impl Change {
    /// Tokens that the model need not read, estimated. 3.6 characters a token: between prose (4.2) and JSON (3.3), as
    /// measured on recorded results.
    pub fn saved_tokens(&self) -> u64 {
        match self {
            Self::Shorten { gone_chars, .. } => *gone_chars as u64 * 10 / 36,
            Self::Notice { .. } | Self::Remark { .. } => 0,
        }
    }
}

/// A request that a policy will not send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub policy: &'static str,
    /// A stable code for programs.
    pub code: &'static str,
    pub message: String,
}

impl Plan {
    /// Moves the fold to `message` and `policy`. The runner's; policies have no need of it.
    pub(super) fn stand_at(&mut self, message: usize, policy: &'static str) {
        self.at = Place { message, policy };
    }

    /// Replaces the `text`-th string of text of the event being read.
    pub fn shorten(&mut self, text: usize, by: Arc<str>, gone_chars: usize) {
        self.edit(Change::Shorten { text, by, gone_chars });
    }

    /// Lets the model read `text` right after the event being read.
    pub fn notice(&mut self, word: &'static str, text: String) {
        self.edit(Change::Notice { text, word });
    }

    /// Tells the operator, and nobody else, of the event being read.
    pub fn remark(&mut self, word: &'static str) {
        self.edit(Change::Remark { word });
    }

    /// Keeps the tool `name` from the model. To be a function of the configuration and the declared tools alone,
    /// so that `tools` stays the same through a conversation and the prompt's cache with it.
    pub fn hide(&mut self, name: &str) {
        if !self.hidden.iter().any(|(_, hidden)| hidden == name) {
            self.hidden.push((self.at.policy, name.to_owned()));
        }
    }

    /// Refuses the request; the first refusal counts.
    pub fn refuse(&mut self, code: &'static str, message: String) {
        let policy = self.at.policy;
        self.refusal.get_or_insert(Refusal { policy, code, message });
    }

    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.edits.is_empty() && self.hidden.is_empty() && self.refusal.is_none()
    }

    fn edit(&mut self, change: Change) {
        self.edits.push(Edit { message: self.at.message, policy: self.at.policy, change });
    }
}

/// A call that the model has just made, as far as it is known when it is judged.
#[derive(Clone, Copy, Debug)]
pub struct Proposed<'a> {
    pub name: &'a str,
    /// Its arguments as JSON text; `None` where it is judged by name.
    pub arguments: Option<&'a str>,
    /// Their hash, equal for every spelling of the same JSON, as in [`Call::arguments`](crate::transcript::calls::Call).
    pub arguments_hash: Option<Hash>,
    /// Now, in ms since the epoch.
    pub now_ms: u64,
}

/// A ruling on a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Allow,
    /// The client does not see the call; the model is told why.
    Withhold(Reason),
}

/// Why a call is withheld, in words that the model can act on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    pub kind: ReasonKind,
    pub message: String,
    /// The model may call again later.
    pub retryable: bool,
    /// Numbers with units in their names, for the model and for programs.
    pub numbers: Vec<(&'static str, u64)>,
}

/// The closed list of reasons, as the model reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasonKind {
    RateLimit,
    BudgetExceeded,
    LoopDetected,
    Validation,
    ModeRestricted,
    StateRestricted,
}

impl ReasonKind {
    /// As written in the envelope.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RateLimit => "RATE_LIMIT",
            Self::BudgetExceeded => "BUDGET_EXCEEDED",
            Self::LoopDetected => "LOOP_DETECTED",
            Self::Validation => "VALIDATION",
            Self::ModeRestricted => "MODE_RESTRICTED",
            Self::StateRestricted => "STATE_RESTRICTED",
        }
    }
}

/// How much of one limit a conversation has used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The tool; `*` for all together.
    pub tool: String,
    pub used: u64,
    pub limit: u64,
}
