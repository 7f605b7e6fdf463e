//! The retries that are recorded of a request. Decides nothing.

use crate::adaptation::Adaptation;

/// Why a request was sent to the upstream once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// In another form, since the upstream had refused it.
    Adapted(Adaptation),
    /// On a new connection, since the old one was stale.
    Stale,
    /// Without what the model thought, which the upstream had refused: how the conversation began is not known any more.
    Thinking,
}

impl Retry {
    /// As in labels and fields.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Adapted(adaptation) => adaptation.as_str(),
            Self::Stale => "stale",
            Self::Thinking => "thinking",
        }
    }
}
