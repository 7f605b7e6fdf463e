//! Held calls, which wait for a person's decision: they count against limits as if they were made, and are settled by
//! the decision. Holds data; waits for nothing.

use super::asking::AskedCall;
use super::{Judged, Judging};
use crate::conversation::assembled::Assembled;
use crate::conversation::identity::Hash;
use crate::exchange::confirm::held::shown;
use crate::plan::Reason;
use crate::plan::approval::{ApprovalDecision, HeldCall, put_off};
use crate::plan::decision::Decision;
use crate::policy::about::Confirming;
use crate::policy::set::Ruling;

/// The held calls, and the earlier decisions in this client request.
#[derive(Default)]
pub(super) struct Holding {
    pub(super) waiting: Vec<Waiting>,
    /// The calls that wait for another model's answer.
    pub(super) asking: Vec<AskedCall>,
    /// The declined tools with their arguments: these are not asked about twice.
    pub(super) declined: Vec<(String, Hash)>,
    /// Why no person can be asked any more.
    pub(super) silent: Option<ApprovalDecision>,
    next: u32,
}

impl Holding {
    /// The number of the next call that waits, for whatever reason.
    pub(super) fn number(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }
}

pub(super) struct Waiting {
    pub(super) call: HeldCall,
    pub(super) choice: u32,
    pub(super) arguments: Hash,
    /// The number of calls that limits had let through, this one included.
    pub(super) passed: usize,
    pub(super) objections: Vec<(&'static str, Reason)>,
    /// An earlier policy has corrected the arguments.
    pub(super) fixed: bool,
}

impl Judging {
    /// Whether a reply waits for a person's decision on calls that need one.
    pub(super) fn holds(&self) -> bool {
        let waits = self.judge.confirming().and_then(Confirming::hold_ms).is_some();
        waits && !self.observe && self.token.is_some()
    }

    /// How long it waits, in ms.
    pub fn hold_ms(&self) -> u64 {
        self.judge.confirming().and_then(Confirming::hold_ms).unwrap_or(0)
    }

    /// Holds a call of `choice` that lacks nothing but an approval; or blocks it, where no person can be asked about
    /// it.
    pub(super) fn hold(
        &mut self,
        (choice, now_ms): (u32, u64),
        call: &Assembled,
        (policy, reason): (&'static str, &Reason),
        ruling: Ruling,
    ) -> Decision {
        let tool = call.name();
        let fixed = ruling.rewritten.map(|(_, arguments)| arguments);
        let arguments = fixed.clone().unwrap_or_else(|| call.arguments());
        let hash = self.judge.arguments_hash(&arguments);
        match self.askable(&tool, (&arguments, call.custom), hash, reason) {
            Err(reason) => {
                let decision = Decision::Block { policy, reason };
                self.note((tool, call.id()), decision.clone(), ruling.objections, Vec::new());
                decision
            }
            Ok(shown) => {
                self.judge.approve(true);
                self.judge.rule(choice, &tool, Some(&call.arguments()), now_ms);
                self.judge.approve(false);
                let id = self.holding.number();
                self.holding.waiting.push(Waiting {
                    call: HeldCall { id, call_id: call.id(), tool, arguments, shown },
                    choice,
                    arguments: hash,
                    passed: self.judge.passed(),
                    objections: ruling.objections,
                    fixed: fixed.is_some(),
                });
                Decision::Hold { id, arguments: fixed }
            }
        }
    }

    /// The text that a person would be shown of the call.
    fn askable(
        &self,
        tool: &str,
        (arguments, custom): (&str, bool),
        hash: Hash,
        reason: &Reason,
    ) -> Result<String, Reason> {
        let declined = self.holding.declined.iter().any(|(name, seen)| name == tool && *seen == hash);
        let said = declined.then_some(ApprovalDecision::Declined).or(self.holding.silent);
        if let Some(approval) = said {
            return Err(approval.refusal(reason));
        }
        let Some(confirming) = self.judge.confirming() else { return Err(reason.clone()) };
        shown(tool, (arguments, custom), confirming).map_err(|why| put_off(reason, Some(&Err(why))))
    }

    pub(super) fn note(
        &mut self,
        (tool, id): (String, String),
        decision: Decision,
        objections: Vec<(&'static str, Reason)>,
        acts: Vec<(&'static str, &'static str)>,
    ) {
        self.record.push(Judged { tool, id, decision, objections, acts, re_request: None, unjudged: false });
    }
}

#[cfg(test)]
pub(crate) mod tests;
