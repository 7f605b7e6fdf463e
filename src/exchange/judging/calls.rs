//! [`CallJudge`], the interface of the reply readers to the judge, implemented by [`Judging`].

use super::Judging;
use crate::conversation::assembled::Assembled;
use crate::dialect::judge::CallJudge;
use crate::plan::approval::{ApprovalDecision, HeldCall, Question, Unaskable};
use crate::plan::decision::{Decision, Known};

impl CallJudge for Judging {
    fn is_strict(&self) -> bool {
        Self::is_strict(self)
    }

    fn observes(&self) -> bool {
        Self::observes(self)
    }

    fn is_landing(&self) -> bool {
        Self::is_landing(self)
    }

    fn is_complete_name(&self, call: &Assembled) -> bool {
        Self::is_complete_name(self, call)
    }

    fn needs_name_alone(&mut self, choice: u32, call: &Assembled) -> bool {
        Self::needs_name_alone(self, choice, call)
    }

    fn block_by_name(&mut self, choice: u32, call: &Assembled, now_ms: u64) -> Option<Decision> {
        Self::block_by_name(self, choice, call, now_ms)
    }

    fn objects_to_new_name(&mut self, of: (u32, bool), call: &Assembled, now_ms: u64) -> bool {
        Self::objects_to_new_name(self, of, call, now_ms)
    }

    fn decide(&mut self, choice: u32, call: &Assembled, known: Known, now_ms: u64) -> Decision {
        Self::decide(self, choice, call, known, now_ms)
    }

    fn release_unjudged(&mut self, choice: u32, call: &Assembled) -> Decision {
        Self::release_unjudged(self, choice, call)
    }

    fn question(&self, calls: &[Assembled]) -> Result<Question, Unaskable> {
        Self::question(self, calls)
    }

    fn acts(&self) -> Vec<(&'static str, &'static str)> {
        let done = self.record.iter().flat_map(|judged| {
            let blocked = match &judged.decision {
                Decision::Block { policy, .. } | Decision::Ask { policy, .. } => Some((*policy, "blocked")),
                _ => None,
            };
            blocked.into_iter().chain(judged.acts.iter().copied())
        });
        done.collect()
    }

    fn held(&self) -> Vec<&HeldCall> {
        Self::held(self).collect()
    }

    fn settle(&mut self, id: u32, decision: ApprovalDecision) -> Option<Decision> {
        Self::settle(self, id, decision)
    }
}
