//! The combined decision of all policies on one call, as data.

use model::plan::placeholders::Placeholders;
use model::plan::{Clarification, Extends, ModelQuestion, Reason, Reservation, ToolRun};

/// The combined decision of all policies on one call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ruling {
    /// Every objection, in registry order; the first gives the reason.
    pub objections: Vec<(&'static str, Reason)>,
    /// What the model reads as the call's result, where the client need not make it: the first policy's.
    pub answer: Option<(&'static str, String)>,
    /// The call's new arguments, with the policy that wrote them last.
    pub rewritten: Option<(&'static str, String)>,
    /// One of its texts before and after, with the policy that wrote it anew, where it may be recorded.
    pub reworded: Option<(&'static str, (String, String))>,
    /// What another model is to be asked before the call goes on, with the policy that wants it.
    pub question: Option<(&'static str, ModelQuestion)>,
    /// How toolrein runs the call's tool before the call goes on, with the policy that wants it.
    pub tool_run: Option<(&'static str, ToolRun)>,
    /// Which limits are to count the call before it goes on.
    pub reservations: Vec<Reservation>,
    /// As `rewritten`, where hidden values were put back into the arguments, before policies that came later changed them.
    pub restored: Option<(&'static str, String)>,
    /// The call is one of a tool of ours.
    pub own: bool,
    /// The call asks the user this, unless another call of its reply runs; `answer` is what the model reads in that case.
    pub clarification: Option<Clarification>,
    /// The tool whose cut result the call asks for.
    pub re_request: Option<String>,
    /// What a person's approval of the call extends.
    pub extends: Extends,
    /// The number under which the call was let through, where it may have to be judged again.
    pub passed: Option<u32>,
}

impl Ruling {
    /// Whether the client may see the call.
    pub fn is_allowed(&self) -> bool {
        self.objections.is_empty() && self.answer.is_none()
    }

    /// After how many ms no objection holds any more, where the call may be held until then.
    pub fn wait_ms(&self) -> Option<u64> {
        longest_wait(&self.objections)
    }

    /// What remains of it where no policy may object, since the call is an answer: the client gets the real values.
    #[must_use]
    pub fn of_answer(self) -> Self {
        Self { rewritten: self.restored.clone(), restored: self.restored, ..Self::default() }
    }

    /// Keeps hidden `values` out of what the model reads of it.
    pub(super) fn hide(&mut self, values: &Placeholders) {
        let texts = self.objections.iter_mut().map(|(_, reason)| &mut reason.message);
        let answer = self.answer.iter_mut().map(|(_, content)| content);
        for text in texts.chain(answer) {
            if let Some(hidden) = values.hide_in(text, usize::MAX) {
                *text = hidden;
            }
        }
    }

    /// Whether the lack of a person's approval is the only objection.
    pub fn needs_approval_alone(&self) -> bool {
        !self.objections.is_empty() && self.objections.iter().all(|(_, reason)| reason.needs_approval())
    }
}

/// After how many ms none of `objections` holds any more, where the call may be held until then.
pub fn longest_wait(objections: &[(&'static str, Reason)]) -> Option<u64> {
    let waits = objections.iter().map(|(_, reason)| reason.wait_ms);
    waits.reduce(|one, other| Some(one?.max(other?))).flatten()
}
