//! Decisions on the calls of a reply, as plain data.

use super::approval::{Question, Unasked, put_off};
use super::envelope::error;
use super::{Reason, envelope, enveloped};

/// What happens to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The client sees it.
    Release,
    /// The client sees it with these arguments, JSON text.
    Rewrite { arguments: String },
    /// The client does not see it; the model reads why.
    Block { policy: &'static str, reason: Reason },
    /// The client does not see it until a person has approved it; the person is shown the new arguments, if any.
    Ask { policy: &'static str, reason: Reason, arguments: Option<String> },
    /// Nobody sees it until the effect has ended that the call of this number waits for; then it is decided on again.
    Hold { id: u32 },
    /// The client does not see it; the model reads this as its result.
    Answer {
        content: String,
        /// By a tool of ours, which has a limit of its own.
        own: bool,
    },
    /// The client does not see the call, but sees the question to the user that the call makes, unless another call
    /// of the reply runs. The model reads `asked` or `put_off` as its result.
    Clarify { question: String, asked: String, put_off: String },
    /// The call came although the model was asked for a final answer: neither the client nor the model sees it.
    Drop,
}

impl Decision {
    /// Whether the client sees the call.
    pub fn is_released(&self) -> bool {
        matches!(self, Self::Release | Self::Rewrite { .. })
    }

    /// Why the call is blocked, if it is.
    pub fn block_reason(&self) -> Option<&Reason> {
        if let Self::Block { reason, .. } = self { Some(reason) } else { None }
    }

    /// Whether the model, and nobody else, gets a result of ours for the call.
    pub fn is_hidden(&self) -> bool {
        matches!(self, Self::Block { .. } | Self::Ask { .. } | Self::Answer { .. } | Self::Clarify { .. })
    }

    /// What the model reads as the call's result, where that is hidden from the client; `question`: the one in which
    /// the reply ends, or why it ends in none.
    pub fn hidden_result(&self, question: Option<&Result<Question, Unasked>>) -> Option<String> {
        Some(match self {
            Self::Block { policy, reason } => envelope(policy, reason),
            Self::Ask { policy, reason, .. } => envelope(policy, &put_off(reason, question)),
            // Some providers refuse an empty text.
            Self::Answer { content, .. } if content.trim().is_empty() => EMPTY_ANSWER.to_owned(),
            Self::Answer { content, .. } => content.clone(),
            Self::Clarify { asked, .. } if matches!(question, Some(Ok(_))) => asked.clone(),
            Self::Clarify { put_off, .. } => put_off.clone(),
            Self::Release | Self::Rewrite { .. } | Self::Hold { .. } | Self::Drop => return None,
        })
    }
}

/// What the model reads where the result of a call is empty.
const EMPTY_ANSWER: &str = "(empty)";

/// The result of a call of the model that neither the client nor, until then, the model has seen: an upstream that keeps the
/// reply wants a result for every call, and reasoning must not be separated from the call after it.
pub fn dropped_result() -> String {
    let message = "The call was not run: it came where no more calls were run.";
    enveloped("final_answer", &error("NOT_RUN", message, false))
}

/// How much of a call is known when it is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownPart {
    /// Its name only.
    Name,
    /// All of it.
    Whole,
    /// What had come before the reply was cut: the arguments may be incomplete.
    Cut,
}

/// The next step for a choice whose calls were all hidden from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The model may make other calls.
    OtherCalls,
    /// It may continue without limit: tools of ours gave all the answers, and these have limits of their own.
    Served,
    /// It must give its final answer: a call was blocked for a reason that holds for every call of the turn.
    FinalAnswer,
}

impl Next {
    /// The next step after a reply with these decisions on its calls.
    pub fn of(decisions: &[Option<Decision>]) -> Self {
        let is_own =
            |decision: &Option<Decision>| matches!(decision, Some(Decision::Answer { own: true, .. }));
        let is_final = |decision: &Option<Decision>| matches!(decision, Some(Decision::Block { reason, .. }) if reason.is_final);
        if decisions.iter().any(is_final) {
            Self::FinalAnswer
        } else if !decisions.is_empty() && decisions.iter().all(is_own) {
            Self::Served
        } else {
            Self::OtherCalls
        }
    }
}
