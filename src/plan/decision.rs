//! What is decided on the calls of a reply, as plain data.

use super::Reason;

/// What happens to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The client sees it.
    Release,
    /// The client sees it with these arguments, JSON text.
    Rewrite { arguments: String },
    /// The client does not see it, the model is told why.
    Withhold { policy: &'static str, reason: Reason },
    /// The client does not see it until a person has said yes; what they are shown are the new arguments, if any.
    Ask { policy: &'static str, reason: Reason, arguments: Option<String> },
    /// Nobody sees it until a person's word has come for the call of this number among those that wait; what the
    /// client is to see then are the new arguments, if any.
    Hold { id: u32, arguments: Option<String> },
    /// The client does not see it, the model reads this as its result.
    Answer {
        content: String,
        /// By a tool of ours, which keeps a bound of its own.
        own: bool,
    },
    /// It came although the model was asked for a final answer: nobody sees it.
    Drop,
}

impl Decision {
    /// Whether the client sees the call.
    pub fn is_released(&self) -> bool {
        matches!(self, Self::Release | Self::Rewrite { .. })
    }

    /// Whether the model, and nobody else, gets a result of ours for the call.
    pub fn is_hidden(&self) -> bool {
        matches!(self, Self::Withhold { .. } | Self::Ask { .. } | Self::Answer { .. })
    }
}

/// How much of a call is known where it is decided on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Its name.
    Name,
    /// All of it.
    Whole,
    /// All that came of it before the reply was cut: its arguments may be half of what the model meant.
    Cut,
}

/// What is next for a choice, none of whose calls the client saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The model may make other calls.
    OtherCalls,
    /// It may go on as often as it likes: tools of ours gave all the answers, and these keep bounds of their own.
    Served,
    /// It is to give its final answer: a call was blocked for a reason that holds for every call of the turn.
    FinalAnswer,
}
