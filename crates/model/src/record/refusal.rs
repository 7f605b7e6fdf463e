//! A model's refusal that a request met or avoided, as recorded: plain data.

use crate::adaptation::Adaptation;

/// For whom a remembered refusal counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefusalScope {
    /// For the caller whose request met it.
    OneCaller,
    /// For all: two callers have met it.
    AllCallers,
}

impl RefusalScope {
    /// As in labels and fields.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OneCaller => "one",
            Self::AllCallers => "all",
        }
    }
}

/// A refusal that a request met or avoided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusalNote {
    /// What avoids it.
    pub kind: Adaptation,
    pub scope: RefusalScope,
    /// The request met it, so that it is remembered from now on. Otherwise it was known, and the request was sent in
    /// another form at once.
    pub is_new: bool,
}
