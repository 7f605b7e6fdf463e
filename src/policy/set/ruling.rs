//! The combined decision of all policies on one call, as data.

use crate::plan::{Extends, Reason};

/// The combined decision of all policies on one call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ruling {
    /// Every objection, in registry order; the first gives the reason.
    pub objections: Vec<(&'static str, Reason)>,
    /// What the model reads as the call's result, where the client need not make it: the first policy's.
    pub answer: Option<(&'static str, String)>,
    /// The call's new arguments, with the policy that wrote them last.
    pub rewritten: Option<(&'static str, String)>,
    /// The call is one of a tool of ours.
    pub own: bool,
    /// The tool whose cut result the call asks for.
    pub re_request: Option<String>,
    /// What a person's approval of the call extends.
    pub extends: Extends,
}

impl Ruling {
    /// Whether the client may see the call.
    pub fn is_allowed(&self) -> bool {
        self.objections.is_empty() && self.answer.is_none()
    }

    /// Whether the lack of a person's approval is the only objection.
    pub fn needs_approval_alone(&self) -> bool {
        !self.objections.is_empty() && self.objections.iter().all(|(_, reason)| reason.needs_approval())
    }
}
