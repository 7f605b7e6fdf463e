//! Verdicts: what a policy decides on one call of the model, and why, as plain data.

use crate::conversation::account::SCOPES;
use crate::conversation::identity::Hash;

/// A call that the model has just made, as far as it is known when it is judged.
#[derive(Clone, Copy, Debug)]
pub struct Proposed<'a> {
    pub name: &'a str,
    /// Its arguments as JSON text; `None` where it is judged by name.
    pub arguments: Option<&'a str>,
    /// Their hash, equal for every form of the same JSON, as in
    /// [`Call::arguments`](crate::conversation::calls::Call).
    pub arguments_hash: Option<Hash>,
    /// Now, in ms since the epoch.
    pub now_ms: u64,
}

/// A policy's decision on a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Allow,
    /// The client does not see the call; the model reads why.
    Block(Reason),
    /// The call needs a person's approval; without one it is blocked for this reason. The person is asked about the
    /// whole call.
    Ask(Reason),
    /// The client sees the call with these arguments instead, JSON text. Policies after this one judge the new ones.
    Modify(String),
    /// The client does not see the call; the model reads `content` as its result.
    Answer {
        content: String,
        /// The tool whose cut result the call asked for again.
        re_requests: Option<String>,
    },
    /// It depends on the arguments, which are not known yet. A call whose arguments can never be known is allowed.
    NeedsArguments,
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
    /// Numbers with units in their names, for the model and for programs.
    pub numbers: Vec<(&'static str, u64)>,
    /// Where a person is asked: what they read before the calls, and what their approval extends.
    pub asks: Option<(String, Extends)>,
}

/// The scopes whose limits an approval extends.
pub type Extends = [bool; SCOPES];

impl Reason {
    /// A reason for which the call must not be made again, without numbers.
    pub fn new(kind: ReasonKind, message: impl Into<String>) -> Self {
        let (retryable, is_final, numbers, asks) = (false, false, Vec::new(), None);
        Self { kind, message: message.into(), retryable, is_final, numbers, asks }
    }

    /// The same for a call that may be made again later.
    #[must_use]
    pub fn retryable(self) -> Self {
        Self { retryable: true, ..self }
    }

    /// The same for a reason that holds for every call of this turn.
    #[must_use]
    pub fn for_the_turn(self) -> Self {
        Self { is_final: true, ..self }
    }

    /// The same where an approval extends limits: `line` is shown to the person who is asked.
    #[must_use]
    pub fn extending(self, line: String, extends: Extends) -> Self {
        Self { asks: Some((line, extends)), ..self }
    }

    /// The same with `numbers`.
    #[must_use]
    pub fn with(self, numbers: Vec<(&'static str, u64)>) -> Self {
        Self { numbers, ..self }
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
    ModeRestricted,
    StateRestricted,
    ConfirmationRequired,
    Duplicate,
    StaleReference,
    ConversationTooShort,
    TurnLocked,
    Stopped,
}

impl ReasonKind {
    /// Whether it limits the number of calls, not which calls.
    pub fn is_limit(self) -> bool {
        matches!(self, Self::RateLimit | Self::BudgetExceeded | Self::LoopDetected | Self::TurnLocked)
    }

    /// As written in the envelope.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RateLimit => "RATE_LIMIT",
            Self::BudgetExceeded => "BUDGET_EXCEEDED",
            Self::LoopDetected => "LOOP_DETECTED",
            Self::Validation => "VALIDATION",
            Self::ModeRestricted => "MODE_RESTRICTED",
            Self::StateRestricted => "STATE_RESTRICTED",
            Self::ConfirmationRequired => "CONFIRMATION_REQUIRED",
            Self::Duplicate => "DUPLICATE",
            Self::StaleReference => "STALE_REFERENCE",
            Self::ConversationTooShort => "CONVERSATION_TOO_SHORT",
            Self::TurnLocked => "TURN_LOCKED",
            Self::Stopped => "STOPPED",
        }
    }
}
