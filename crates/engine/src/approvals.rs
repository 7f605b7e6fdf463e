//! Approvals of earlier requests, as a request looks them up: the question that its last message may answer, and calls
//! whose approval lasts for the rest of the conversation.

use super::Core;
use super::store::MOST_LOOKED_UP;
use crate::confirm::{Answer, answer};
use crate::restore::HiddenPosition;
use model::Transcript;
use model::fact::{Answers, Batch, Ticket, Writes};
use model::identity::Hash;
use model::plan::approval::Confirmation;
use model::store::ApprovedCall;
use policies::pattern::any_concerns;
use std::sync::Arc;

/// See the module.
pub(super) struct ApprovalLookUp {
    /// The user's possible answer to toolrein's question.
    pub(super) answer: Option<Answer>,
    question: Ticket<Arc<Confirmation>>,
    /// The indexes of the calls whose approvals are looked up.
    calls: Vec<usize>,
    approved: Ticket<ApprovedCall>,
}

impl ApprovalLookUp {
    /// Asks for what the user may have answered, and for the approvals of the newest calls.
    pub(super) fn ask(
        core: &Core,
        transcript: &Transcript,
        positions: &[HiddenPosition],
        batch: &mut Batch,
    ) -> Self {
        let may_answer = core.asks_approval() && !core.request.has_odd_text;
        let answer = may_answer.then(|| answer(transcript, positions)).flatten();
        let (calls, keys): (_, Vec<Hash>) = lasting_approvals(core, transcript);
        let question = batch.ask(answer.as_ref().map(|answer| answer.question));
        Self { answer, question, calls, approved: batch.ask(keys) }
    }

    /// The question that the user may have answered.
    pub(super) fn asked(&self, answers: &Answers) -> Option<Arc<Confirmation>> {
        answers.records(&self.question).into_iter().next()
    }

    /// Marks the calls that have been approved.
    pub(super) fn mark_approved(&self, transcript: &mut Transcript, answers: &Answers) {
        for (at, approved) in self.calls.iter().zip(answers.find(&self.approved)) {
            transcript.calls.calls[*at].approved = approved.is_some();
        }
    }
}

/// The calls of these keys are approved for the rest of the conversation.
pub(super) fn approve_lastingly(keys: &[Hash], writes: &mut Writes) {
    writes.extend(keys.iter().map(|key| (*key, ApprovedCall)));
}

/// The indexes of the newest calls for which an earlier approval may be known, and its keys.
fn lasting_approvals(core: &Core, transcript: &Transcript) -> (Vec<usize>, Vec<Hash>) {
    let confirming = core.policies().confirming().filter(|_| core.asks_approval());
    let Some(tools) = confirming.map(|it| &it.remembered).filter(|tools| !tools.is_empty()) else {
        return (Vec::new(), Vec::new());
    };
    let calls = transcript.newest_calls(MOST_LOOKED_UP).filter(|call| any_concerns(tools, &call.name));
    calls.map(|call| (call.ordinal - 1, core.identity.approval(call.key, call.context))).unzip()
}
