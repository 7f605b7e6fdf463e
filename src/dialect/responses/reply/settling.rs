//! Held calls of a reply, settled: by a person's decision, by another model's answer, or because nobody can be asked.
//! The judge decides; this brings its decisions to the items.

use super::ReplyJudge;
use super::items::{self, set};
use crate::dialect::judge::{CallJudge, settle_all};
use bytes::Bytes;
use model::plan::approval::ApprovalDecision;
use model::plan::decision::Decision;
use std::sync::Arc;

impl<J: CallJudge> ReplyJudge<J> {
    pub(super) fn settle_one(&mut self, id: u32, decision: ApprovalDecision) {
        if let Some(decision) = self.judging.settle(id, decision) {
            self.settle_call(id, decision);
        }
    }

    /// Takes the answer that a held call waits for, and gives out what waited for it.
    pub(super) fn answer_call(&mut self, id: u32, answer: Option<Arc<str>>, out: &mut Vec<Bytes>) {
        // A question to a person comes before the rest, when all calls are decided on.
        if !matches!(self.answer_one(id, answer), Some(Decision::Ask { .. })) {
            self.drain(out);
        }
    }

    /// Settles all held calls: nobody can be asked about them.
    pub(super) fn settle_all(&mut self) {
        for (id, decision) in settle_all(&mut self.judging) {
            self.settle_call(id, decision);
        }
    }

    fn answer_one(&mut self, id: u32, answer: Option<Arc<str>>) -> Option<Decision> {
        let decision = self.judging.answered(id, answer)?;
        self.settle_call(id, decision.clone());
        Some(decision)
    }

    /// Takes the decision on the call that waited under the number `id`.
    fn settle_call(&mut self, id: u32, decision: Decision) {
        let waits = |call: &&mut items::Call| matches!(&call.decision, Some(Decision::Hold { id: own, .. }) if *own == id);
        if let Some(call) = self.items.iter_mut().filter_map(|item| item.call.as_mut()).find(waits) {
            // The call that runs must be the one that was decided on, so toolrein writes it.
            call.differs = true;
            set(call, decision);
        }
        self.update();
    }

    /// Whether a call is blocked for which no result can be written.
    pub(super) fn has_unanswerable(&self) -> bool {
        let is_hidden =
            |call: &items::Call| call.decision.as_ref().is_some_and(|decision| decision.is_hidden());
        let calls = self.items.iter().filter_map(|item| item.call.as_ref());
        calls.filter(|call| is_hidden(call)).any(|call| call.kind == super::super::item::CallKind::Computer)
    }
}
