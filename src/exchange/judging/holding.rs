//! Held calls, which wait for a person's decision: they count against limits as if they were made, and are settled by
//! the decision. Holds data; waits for nothing.

use super::{Judged, Judging};
use crate::conversation::assembled::Assembled;
use crate::conversation::identity::Hash;
use crate::exchange::confirm::held::shown;
use crate::exchange::confirm::plain_words;
use crate::plan::Reason;
use crate::plan::approval::{ApprovalDecision, HeldCall};
use crate::plan::decision::Decision;
use crate::policy::about::Confirming;
use crate::policy::set::Ruling;

/// The held calls, and the earlier decisions in this client request.
#[derive(Default)]
pub(super) struct Holding {
    pub(super) waiting: Vec<Waiting>,
    /// The declined tools with their arguments and the person's words: these are not asked about twice.
    pub(super) declined: Vec<(String, Hash, Option<String>)>,
    /// The person's words about the call of this number, before it is settled.
    pub(super) words: Option<(u32, String)>,
    /// Why no person can be asked any more.
    pub(super) silent: Option<ApprovalDecision>,
    next: u32,
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

    /// Takes a person's words about the call of this number, which is settled next.
    pub fn hear(&mut self, id: u32, words: &str) {
        self.holding.words = plain_words(words).map(|words| (id, words));
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
        let (tool, id) = (call.name(), self.holding.next);
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
                self.holding.next += 1;
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
        let declined = self.holding.declined.iter().find(|(name, seen, _)| name == tool && *seen == hash);
        let declined = declined.map(|(_, _, words)| (ApprovalDecision::Declined, words.as_deref()));
        if let Some((approval, words)) = declined.or(self.holding.silent.map(|silent| (silent, None))) {
            return Err(self.refusal(approval, words, reason));
        }
        let Some(confirming) = self.judge.confirming() else { return Err(reason.clone()) };
        shown(tool, (arguments, custom), confirming).map_err(|why| match confirming.unaskable(why) {
            Some(message) => Reason { message, retryable: true, ..reason.clone() },
            None => reason.clone(),
        })
    }

    /// What the model reads of a call that was not approved, with the person's `words`.
    pub(super) fn refusal(&self, approval: ApprovalDecision, words: Option<&str>, reason: &Reason) -> Reason {
        let confirming = self.judge.confirming();
        confirming.map_or_else(|| reason.clone(), |confirming| confirming.refusal(approval, words, reason))
    }

    /// The decision to ask the user about a call of `tool`, in the conversation; the model reads how to make it so that
    /// this is possible.
    pub(super) fn ask(
        &self,
        (policy, reason): (&'static str, &Reason),
        tool: &str,
        arguments: Option<String>,
    ) -> Decision {
        let alone = |confirming: &Confirming| confirming.alone(tool, reason);
        let reason = self.judge.confirming().map_or_else(|| reason.clone(), alone);
        Decision::Ask { policy, reason, arguments }
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
