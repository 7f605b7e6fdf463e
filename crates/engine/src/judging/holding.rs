//! Held calls, which wait for a person's decision or until a limit allows them: they count against limits as if they
//! were made, and are settled by the decision or when their time has come. Holds data; waits for nothing.

use super::asking::AskedCall;
use super::{Judged, Judging};
use crate::confirm::held::shown;
use crate::confirm::plain_words;
use model::account::SCOPES;
use model::assembled::Assembled;
use model::identity::Hash;
use model::plan::Reason;
use model::plan::approval::{ApprovalDecision, HeldCall};
use model::plan::decision::Decision;
use policies::about::Confirming;
use policies::set::{Ruling, longest_wait};

/// The held calls, and the earlier decisions in this client request.
#[derive(Default)]
pub(super) struct Holding {
    pub(super) waiting: Vec<Waiting>,
    /// The calls that wait for another model's answer.
    pub(super) asking: Vec<AskedCall>,
    /// The declined tools with their arguments and the person's words: these are not asked about twice.
    pub(super) declined: Vec<(String, Hash, Option<String>)>,
    /// The person's words about the call of this number, before it is settled.
    pub(super) words: Option<(u32, String)>,
    /// Why no person can be asked any more.
    pub(super) silent: Option<ApprovalDecision>,
    /// No call waits for its time any more.
    pub(super) hurries: bool,
    /// For how long the client has waited for calls whose time was to come, in ms, and until when it still does.
    waited_ms: u64,
    waits_until_ms: u64,
    next: u32,
}

/// The action of a policy whose limit was waited for.
pub(super) const WAITED: &str = "waited";

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

    /// Takes a person's words about the call of this number, which is settled next.
    pub fn hear(&mut self, id: u32, words: &str) {
        self.holding.words = plain_words(words).map(|words| (id, words));
    }

    /// How long it waits, in ms.
    pub fn hold_ms(&self) -> u64 {
        self.judge.confirming().and_then(Confirming::hold_ms).unwrap_or(0)
    }

    /// Holds a call of `choice` that lacks nothing but an approval, or some time; `None` where it is not to be held.
    pub(super) fn hold_back(
        &mut self,
        choice: u32,
        now_ms: u64,
        call: &Assembled,
        ruling: &Ruling,
    ) -> Option<Decision> {
        let (policy, reason) = ruling.objections.first()?;
        if self.holds() && ruling.needs_approval_alone() {
            return Some(self.hold(choice, now_ms, call, policy, reason, ruling.clone()));
        }
        let wait_ms = self.wait_for(&ruling.objections, now_ms)?;
        self.hold_for(wait_ms, choice, now_ms, call, ruling)
    }

    /// For how many ms a call may be held at `now_ms` until no policy objects to it any more. All calls of a client
    /// request together wait no longer than the policies allow for one.
    pub(super) fn wait_for(&self, objections: &[(&'static str, Reason)], now_ms: u64) -> Option<u64> {
        let longest_ms = self.judge.longest_wait_ms();
        if longest_ms == 0 || self.observe || self.holding.hurries {
            return None;
        }
        let wait_ms = longest_wait(objections)?;
        let begins_ms = self.holding.waits_until_ms.max(now_ms);
        let more_ms = now_ms.saturating_add(wait_ms).saturating_sub(begins_ms);
        (self.holding.waited_ms.saturating_add(more_ms) <= longest_ms).then_some(wait_ms)
    }

    /// Whether a call of the tool `name` is to be held until its time has come, unless its arguments forbid it.
    pub(super) fn may_have_to_wait(&mut self, choice: u32, name: &str, now_ms: u64) -> bool {
        if self.judge.longest_wait_ms() == 0 {
            return false;
        }
        let objections = self.judge.objections_by_name(choice, name, now_ms);
        self.wait_for(&objections, now_ms).is_some()
    }

    /// Holds a call for so many ms; it counts as made when they have passed.
    fn hold_for(
        &mut self,
        wait_ms: u64,
        choice: u32,
        now_ms: u64,
        call: &Assembled,
        ruling: &Ruling,
    ) -> Option<Decision> {
        let at_ms = now_ms.saturating_add(wait_ms);
        let then = self.ruling(choice, at_ms, call, Some(&call.arguments()));
        if !then.is_allowed() {
            return None;
        }
        let begins_ms = self.holding.waits_until_ms.max(now_ms);
        self.holding.waited_ms += at_ms.saturating_sub(begins_ms);
        self.holding.waits_until_ms = at_ms.max(begins_ms);
        let fixed = then.rewritten.map(|(_, arguments)| arguments);
        let objections = ruling.objections.clone();
        Some(self.keep(choice, call, String::new(), Some(wait_ms), fixed, objections))
    }

    /// Keeps a call that limits have let through until it is settled. `shown`: to a person, if one is asked.
    fn keep(
        &mut self,
        choice: u32,
        call: &Assembled,
        shown: String,
        wait_ms: Option<u64>,
        fixed: Option<String>,
        objections: Vec<(&'static str, Reason)>,
    ) -> Decision {
        let id = self.holding.number();
        let (call_id, tool) = (call.id(), call.name());
        let arguments = fixed.clone().unwrap_or_else(|| call.arguments());
        let why = objections.iter().find_map(|(_, reason)| Some(reason.asks.as_ref()?.0.clone()));
        let objection = objections.first().map(|(policy, reason)| (*policy, reason.kind));
        self.holding.waiting.push(Waiting {
            choice,
            arguments: self.judge.arguments_hash(&arguments),
            passed: self.judge.passed(),
            objections,
            fixed: fixed.is_some(),
            call: HeldCall { id, call_id, tool, arguments, shown, why, objection, wait_ms },
        });
        Decision::Hold { id, arguments: fixed }
    }

    /// Holds a call of `choice` that lacks nothing but an approval; or blocks it, where no person can be asked about
    /// it.
    fn hold(
        &mut self,
        choice: u32,
        now_ms: u64,
        call: &Assembled,
        policy: &'static str,
        reason: &Reason,
        ruling: Ruling,
    ) -> Decision {
        let tool = call.name();
        let fixed = ruling.rewritten.map(|(_, arguments)| arguments);
        let arguments = fixed.clone().unwrap_or_else(|| call.arguments());
        let hash = self.judge.arguments_hash(&arguments);
        match self.askable(&tool, &arguments, call.custom, hash, reason) {
            Err(shown) => self.block(tool, call.id(), policy, *shown, ruling.objections),
            Ok(shown) => {
                self.judge.approve(Some([true; SCOPES]));
                self.judge.rule(choice, &tool, Some(&call.arguments()), now_ms);
                self.judge.approve(None);
                self.keep(choice, call, shown, None, fixed, ruling.objections)
            }
        }
    }

    /// The text that a person would be shown of the call.
    fn askable(
        &self,
        tool: &str,
        arguments: &str,
        custom: bool,
        hash: Hash,
        reason: &Reason,
    ) -> Result<String, Box<Reason>> {
        let declined = self.holding.declined.iter().find(|(name, seen, _)| name == tool && *seen == hash);
        let declined = declined.map(|(_, _, words)| (ApprovalDecision::Declined, words.as_deref()));
        if let Some((approval, words)) = declined.or(self.holding.silent.map(|silent| (silent, None))) {
            return Err(Box::new(self.refusal(approval, words, reason)));
        }
        let Some(confirming) = self.judge.confirming() else { return Err(Box::new(reason.clone())) };
        shown(tool, arguments, custom, confirming).map_err(|why| match confirming.unaskable(why) {
            Some(message) => Box::new(Reason { message, retryable: true, ..reason.clone() }),
            None => Box::new(reason.clone()),
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
        policy: &'static str,
        reason: &Reason,
        tool: &str,
        arguments: Option<String>,
    ) -> Decision {
        let alone = |confirming: &Confirming| confirming.alone(tool, reason);
        let reason = self.judge.confirming().map_or_else(|| reason.clone(), alone);
        Decision::Ask { policy, reason, arguments }
    }

    /// Blocks a call and notes it with the reason that the model is `shown`, in the place of the policy's first one.
    pub(super) fn block(
        &mut self,
        tool: String,
        id: String,
        policy: &'static str,
        shown: Reason,
        mut objections: Vec<(&'static str, Reason)>,
    ) -> Decision {
        if let Some((_, reason)) = objections.first_mut() {
            reason.clone_from(&shown);
        }
        let decision = Decision::Block { policy, reason: shown };
        self.note(tool, id, decision.clone(), objections, Vec::new());
        decision
    }

    pub(super) fn note(
        &mut self,
        tool: String,
        id: String,
        decision: Decision,
        objections: Vec<(&'static str, Reason)>,
        acts: Vec<(&'static str, &'static str)>,
    ) {
        self.record.push(Judged { tool, id, decision, objections, acts, re_request: None, unjudged: false });
    }
}

#[cfg(test)]
pub(crate) mod tests;
#[cfg(test)]
mod timed;
