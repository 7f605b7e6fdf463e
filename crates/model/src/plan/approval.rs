//! Approvals as plain data: the question to a person, the calls that wait for the answer, and the effect of each
//! decision on them.

mod body;

use super::decision::Decision;
use super::{Extends, Reason};
use crate::assembled::Assembled;
use std::sync::Arc;

/// A question to a person.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// Its text.
    pub text: String,
    /// The number of calls that it asks approval for: the first ones of the reply. 0: it is the model's own question.
    pub calls: usize,
    /// What the model reads of its calls meanwhile.
    pub put_off: String,
    pub token: String,
    pub words: Vec<String>,
    /// The limits that an approval extends, as its text says.
    pub extends: Extends,
    /// How long it stays open, in ms.
    pub expires_ms: u64,
}

/// Nobody can be asked about a call. Holds what the model reads about that, if it is more than why an approval is
/// needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unasked(pub Option<String>);

impl Question {
    /// The question that ends a reply whose calls were decided on in this way: a question about these calls
    /// (`approval`), if all of them need an approval; otherwise the model's own question, if no call of the reply
    /// runs or waits.
    pub fn of(
        decisions: &[Option<Decision>],
        approval: impl FnOnce() -> Result<Self, Unasked>,
    ) -> Option<Result<Self, Unasked>> {
        let needs_approval = |decision: &Option<Decision>| matches!(decision, Some(Decision::Ask { .. }));
        if !decisions.is_empty() && decisions.iter().all(needs_approval) {
            return Some(approval());
        }
        let is_over = |decision: &Option<Decision>| {
            decision.as_ref().is_some_and(|decision| decision.is_hidden() || *decision == Decision::Drop)
        };
        let own = decisions.iter().find_map(|decision| match decision {
            Some(Decision::Clarify { question, .. }) => Some(question.clone()),
            _ => None,
        });
        own.filter(|_| decisions.iter().all(is_over)).map(|text| Ok(Self { text, ..Self::default() }))
    }

    /// Whether a person answers it by approving calls.
    pub fn is_approval(&self) -> bool {
        self.calls > 0
    }
}

/// Why nobody can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unaskable {
    /// Nobody is there to be asked.
    Nobody,
    /// The arguments are longer than the limit, in characters.
    TooLong { most: usize },
    /// The arguments are not JSON, or the tool's name is not valid.
    Unreadable,
}

/// Calls that wait for a person's approval. Stored under the key of the message that asked, and so bound to caller,
/// conversation and that very text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confirmation {
    pub token: String,
    pub words: Vec<String>,
    /// As they were shown.
    pub calls: Vec<Assembled>,
    /// The limits that the approval extends, as the question says.
    pub extends: Extends,
    /// When the question expires, in ms since the epoch.
    pub expires_ms: u64,
}

/// What the model reads as the result of a call that needs approval, where a person was to be asked: `reason`, or what
/// the question says of it.
pub fn put_off(reason: &Reason, question: Option<&Result<Question, Unasked>>) -> Reason {
    match question {
        Some(Ok(question)) => {
            Reason { message: question.put_off.clone(), retryable: false, ..reason.clone() }
        }
        Some(Err(Unasked(Some(message)))) => {
            Reason { message: message.clone(), retryable: true, ..reason.clone() }
        }
        Some(Err(Unasked(None))) | None => reason.clone(),
    }
}

impl Confirmation {
    /// The stored form of `question` about `calls` at `now_ms`.
    pub fn new(question: &Question, calls: &[Assembled], now_ms: u64) -> Self {
        Self {
            token: question.token.clone(),
            words: question.words.clone(),
            calls: calls.to_vec(),
            extends: question.extends,
            expires_ms: now_ms.saturating_add(question.expires_ms),
        }
    }

    /// Whether `text` is an approval: the token or one of the words, and nothing else.
    pub fn is_approved_by(&self, text: &str) -> bool {
        let said = text.trim().to_lowercase();
        said == self.token.to_lowercase() || self.words.contains(&said)
    }

    /// Its size in bytes.
    pub fn size(&self) -> usize {
        self.token.len() + self.calls.iter().map(Assembled::size).sum::<usize>()
    }
}

/// A call that waits for a person, as the person is shown it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldCall {
    /// As the upstream gave it; empty where it gave none.
    pub call_id: String,
    pub tool: String,
    /// Byte for byte as the program would get them.
    pub arguments: String,
    /// The arguments for people: a line for each value, nothing invisible.
    pub shown: String,
    /// What else an approval does, in a line, where it does more than release the call.
    pub why: Option<String>,
}

/// A decision on a call that waited, and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    pub decision: ApprovalDecision,
    /// The person or system that decided, as given with the answer.
    pub approver: Option<Arc<str>>,
    /// Why, in the person's words.
    pub reason: Option<Arc<str>>,
}

impl From<ApprovalDecision> for Decided {
    fn from(decision: ApprovalDecision) -> Self {
        Self { decision, approver: None, reason: None }
    }
}

/// The decision on a call that waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalDecision {
    Approved,
    Declined,
    /// Nobody answered in time.
    Expired,
    /// toolrein is shutting down.
    Stopped,
    /// Nobody could be asked: too many wait, or the reply cannot be kept.
    Unasked,
}

impl ApprovalDecision {
    /// Its name in metrics and the log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Declined => "declined",
            Self::Expired => "expired",
            Self::Stopped => "stopped",
            Self::Unasked => "unasked",
        }
    }
}
