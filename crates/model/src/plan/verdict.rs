//! Verdicts: what a policy decides on one call of the model, and why, as plain data.

use super::{CallResults, ModelQuestion, Reservation, ToolRun};
use crate::account::SCOPES;
use crate::identity::Hash;
use std::fmt::{self, Debug, Formatter};

/// A call that the model has just made, as far as it is known when it is judged.
#[derive(Clone, Copy, Debug)]
pub struct Proposed<'a> {
    pub name: &'a str,
    /// Its arguments as JSON text; `None` where it is judged by name.
    pub arguments: Option<&'a str>,
    /// Their hash, equal for every form of the same JSON, as in
    /// [`Call::arguments`](crate::calls::Call).
    pub arguments_hash: Option<Hash>,
    /// Now, in ms since the epoch.
    pub now_ms: u64,
    /// What it has waited for, and what other calls of this request have.
    pub results: &'a CallResults,
    pub open: OpenTools<'a>,
}

/// Which tools may be called, as far as their names decide. Limits on the number of calls close none.
#[derive(Clone, Copy)]
pub struct OpenTools<'a>(Option<&'a dyn Fn(&str) -> bool>);

impl<'a> OpenTools<'a> {
    /// Every tool: where it does not matter.
    pub fn all() -> Self {
        Self(None)
    }

    /// Those for which `is_open` is true.
    pub fn new(is_open: &'a dyn Fn(&str) -> bool) -> Self {
        Self(Some(is_open))
    }

    /// Whether the tool `name` may be called.
    pub fn include(&self, name: &str) -> bool {
        self.0.is_none_or(|is_open| is_open(name))
    }
}

impl Debug for OpenTools<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("OpenTools")
    }
}

/// A policy's decision on a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Allow,
    /// The client does not see the call; the model reads why.
    Block(Reason),
    /// The call waits for this effect. Then it is judged again from the first policy, with the effect's result.
    Pending(CallEffect),
    /// The client sees the call with these arguments instead, JSON text. Policies after this one judge the new ones.
    Modify(String),
    /// As `Modify`, where one text among the arguments was rewritten.
    Reword(Reworded),
    /// The client does not see the call; the model reads `content` as its result.
    Answer {
        content: String,
        /// The tool whose cut result the call asked for again.
        re_requests: Option<String>,
    },
    /// For a call of a tool of ours: the reply ends in a question to the user, in the assistant's voice.
    Clarify(Clarification),
    /// The verdict depends on the arguments, which are not known yet. A call whose arguments can never be known is
    /// allowed.
    NeedsArguments,
}

/// What a call waits for, and what applies where that cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallEffect {
    /// The call would be allowed after so many ms. It is blocked for this reason where it cannot be held for as long.
    Sleep(u64, Reason),
    /// The call needs a person's approval; without one it is blocked for this reason. The person is asked about the
    /// whole call.
    Approve(Reason),
    /// Another model is asked. Without its answer the call has the arguments of `meanwhile`, or its own.
    AskModel { question: ModelQuestion, meanwhile: Option<Reworded> },
    /// toolrein runs the tool. Judged again, the call is answered by the same policy, also where the tool has failed.
    CallTool(ToolRun),
    /// A limit over several conversations counts the call. Judged again, the same policy allows or blocks it by what became
    /// of that.
    Reserve(Reservation),
}

/// Arguments in which one text was written anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reworded {
    /// All of them, JSON text.
    pub arguments: String,
    /// That text before and after, where it may be recorded.
    pub shown: Option<(String, String)>,
}

/// A question of the model to the user. It is put where no other call of its reply runs; then the turn ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clarification {
    /// What the user reads.
    pub question: String,
    /// What the model reads as the result of its call.
    pub asked: String,
    /// What it reads instead where the question is not put.
    pub put_off: Reason,
}

/// Why a call is blocked, in words that the model can act on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    pub kind: ReasonKind,
    pub message: String,
    /// The model may call again later.
    pub retryable: bool,
    /// It holds for every call of this turn, so asking the model for other calls is useless.
    pub is_final: bool,
    /// Numbers, for the model and for programs. `used` and `limit` are those of the limit that blocks; all others have
    /// their units in their names.
    pub numbers: Vec<(&'static str, u64)>,
    /// What is wrong with the call's arguments, where that is the reason.
    pub issues: Vec<Issue>,
    /// Points in time, in ms since the epoch; written as RFC 3339 in UTC.
    pub times: Vec<(&'static str, u64)>,
    /// After how many ms the reason no longer holds, where the call may be held until then.
    pub wait_ms: Option<u64>,
    /// Where a person is asked: what they read before the calls, and what their approval extends.
    pub asks: Option<(String, Extends)>,
}

/// One thing that is wrong with arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// Where, as one would write it in a program: `passengers[0].age`.
    pub path: String,
    pub message: String,
}

/// The scopes whose limits an approval extends.
pub type Extends = [bool; SCOPES];

impl Reason {
    /// A reason for which the call must not be made again, without numbers.
    pub fn new(kind: ReasonKind, message: impl Into<String>) -> Self {
        let (message, numbers, issues, times) = (message.into(), Vec::new(), Vec::new(), Vec::new());
        let (retryable, is_final, wait_ms, asks) = (false, false, None, None);
        Self { kind, message, retryable, is_final, numbers, issues, times, wait_ms, asks }
    }

    /// The same reason, for a call that may be made again later.
    #[must_use]
    pub fn retryable(self) -> Self {
        Self { retryable: true, ..self }
    }

    /// The same reason, for every call of this turn.
    #[must_use]
    pub fn for_the_turn(self) -> Self {
        Self { is_final: true, ..self }
    }

    /// The same reason, where an approval extends limits: `line` is shown to the person who is asked.
    #[must_use]
    pub fn extending(self, line: String, extends: Extends) -> Self {
        Self { asks: Some((line, extends)), ..self }
    }

    /// The same reason, with `numbers`.
    #[must_use]
    pub fn with(self, numbers: Vec<(&'static str, u64)>) -> Self {
        Self { numbers, ..self }
    }

    /// The same reason, with what is wrong with the arguments.
    #[must_use]
    pub fn about(self, issues: Vec<Issue>) -> Self {
        Self { issues, ..self }
    }

    /// The same reason, with a point in time, in ms since the epoch.
    #[must_use]
    pub fn at(mut self, name: &'static str, ms: u64) -> Self {
        self.times.push((name, ms));
        self
    }

    /// Whether the reason closes the tool, instead of delaying the call or limiting the number of calls. A limit that
    /// does not open again with time allows no call at all.
    pub fn closes_tool(&self) -> bool {
        let is_count = self.kind.is_limit() && self.kind != ReasonKind::RateLimit;
        !self.retryable && !self.needs_approval() && !is_count
    }

    /// Whether a person's approval is all that is missing.
    pub fn needs_approval(&self) -> bool {
        self.kind == ReasonKind::ConfirmationRequired
    }
}

/// The closed list of reasons, as the model reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasonKind {
    RateLimit,
    BudgetExceeded,
    LoopDetected,
    Validation,
    /// No tool has the name.
    NotFound,
    ModeRestricted,
    StateRestricted,
    ConfirmationRequired,
    Duplicate,
    StaleReference,
    ConversationTooShort,
    TurnLocked,
    Stopped,
    ToolIntent,
    ToolUntrusted,
    Clarification,
}

impl ReasonKind {
    /// Whether it limits the number of calls, not which calls.
    pub fn is_limit(self) -> bool {
        matches!(self, Self::RateLimit | Self::BudgetExceeded | Self::LoopDetected | Self::TurnLocked)
    }

    /// Whether it says which calls may run, by a rule: it is no limit, no fault of the call, and nothing that is known.
    pub fn restricts(self) -> bool {
        let is_other = matches!(
            self,
            Self::Validation | Self::NotFound | Self::Duplicate | Self::StaleReference | Self::Clarification
        );
        !self.is_limit() && !is_other
    }

    /// As written in the envelope.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RateLimit => "RATE_LIMIT",
            Self::BudgetExceeded => "BUDGET_EXCEEDED",
            Self::LoopDetected => "LOOP_DETECTED",
            Self::Validation => "VALIDATION",
            Self::NotFound => "NOT_FOUND",
            Self::ModeRestricted => "MODE_RESTRICTED",
            Self::StateRestricted => "STATE_RESTRICTED",
            Self::ConfirmationRequired => "CONFIRMATION_REQUIRED",
            Self::Duplicate => "DUPLICATE",
            Self::StaleReference => "STALE_REFERENCE",
            Self::ConversationTooShort => "CONVERSATION_TOO_SHORT",
            Self::TurnLocked => "TURN_LOCKED",
            Self::Stopped => "STOPPED",
            Self::ToolIntent => "TOOL_INTENT",
            Self::ToolUntrusted => "TOOL_UNTRUSTED",
            Self::Clarification => "CLARIFICATION",
        }
    }
}
