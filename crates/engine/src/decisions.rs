//! The calls of one client request that wait: for a person, for their time, or for another model's answer. Has the driver
//! ask, and notes what became of each. The judge decides on the calls; a decision that comes after its call is gone counts
//! for nothing.

use super::{ApprovalRequest, AskedModel, Core, Output};
use crate::confirm::plain_words;
use crate::judging::Judging;
use crate::store::News;
use dialects::question::written;
use model::calls::arguments_hash;
use model::identity::Hash;
use model::plan::ModelQuestion;
use model::plan::approval::{ApprovalDecision, Decided, HeldCall};
use model::record::{ApprovalRecord, Consent, JudgedCall, On, Said, Verdict};
use policies::about::Confirming;
use policies::pattern::any_concerns;
use std::sync::Arc;

/// See the module.
#[derive(Default)]
pub(super) struct PendingDecisions {
    /// The calls that wait for a person or for their time, for the record if the client leaves.
    held: Vec<(u32, JudgedCall)>,
    /// The calls that wait for another model's answer, each with the policy that asks.
    asking: Vec<(u32, &'static str)>,
}

impl PendingDecisions {
    /// Asks people about newly held calls, or has their time awaited, and withdraws what concerns calls that the judge no
    /// longer holds.
    pub(super) fn ask_people(&mut self, core: &mut Core, judging: &Judging) {
        if self.held.is_empty() && judging.held().is_empty() {
            return;
        }
        let is_held = |id: u32| judging.held().iter().any(|call| call.id == id);
        for (id, call) in self.held.extract_if(.., |(id, _)| !is_held(*id)) {
            core.record.confirmations.extend(consent(&call, Consent::Unasked));
            core.output(Output::WithdrawApproval(id));
        }
        for call in judging.held() {
            if self.held.iter().any(|(id, _)| *id == call.id) {
                continue;
            }
            // Without a decision, one that waits for its time is not made.
            let verdict = if call.wait_ms.is_some() { Verdict::Block } else { Verdict::Ask };
            let (tool, id) = (call.tool.clone(), call.call_id.clone());
            let said = call.objection.map(|(policy, reason)| Said { policy, reason: reason.as_str() });
            let (said, unjudged, is_spoken) = (said.into_iter().collect(), false, false);
            self.held
                .push((call.id, JudgedCall { tool, id, verdict, unjudged, said, is_spoken, message: None }));
            core.output(match call.wait_ms {
                Some(ms) => Output::Wait { id: call.id, ms },
                None => {
                    let confirming = core.policies().confirming();
                    let webhook = confirming.and_then(|confirming| confirming.webhook.clone());
                    let (call, hold_ms) = (call.clone(), judging.hold_ms());
                    Output::AskApproval(Box::new(ApprovalRequest { call, hold_ms, webhook }))
                }
            });
        }
    }

    /// Has other models asked about calls that were held since.
    pub(super) fn ask_models(&mut self, core: &mut Core, judging: &Judging) {
        for (id, (policy, question)) in judging.questions() {
            if self.asking.iter().any(|(known, _)| *known == id) {
                continue;
            }
            self.asking.push((id, policy));
            core.record.act(On::Reply, policy, "asked_model", 1);
            let key = core.question_key(question);
            // Values that were put back into the call are kept from this model too.
            let values = core.plan.hidden_values();
            let hidden = values.and_then(|(_, values)| values.hide_in(&question.text, usize::MAX));
            let asked = hidden.map(|text| ModelQuestion { text, ..question.clone() });
            let (terms, question) =
                (Arc::clone(&question.terms), written(asked.as_ref().unwrap_or(question)));
            core.output(Output::AskModel(AskedModel { id, key, terms, question }));
        }
    }

    /// Notes that a question was answered, or not.
    pub(super) fn note_answer(&mut self, core: &mut Core, id: u32, is_answered: bool) {
        for (_, policy) in self.asking.extract_if(.., |(known, _)| *known == id) {
            if !is_answered {
                core.record.act(On::Reply, policy, "unanswered", 1);
            }
        }
    }

    /// Notes a decision; false if no call waits for it.
    pub(super) fn take_decision(
        &mut self,
        core: &mut Core,
        judging: &mut Judging,
        context: Hash,
        id: u32,
        decided: &Decided,
    ) -> bool {
        let Some(at) = self.held.iter().position(|(held, _)| *held == id) else { return false };
        let (_, call) = self.held.remove(at);
        let outcome = match decided.decision {
            ApprovalDecision::Approved => Consent::Approved,
            ApprovalDecision::Declined => Consent::Declined,
            ApprovalDecision::Expired => Consent::Expired,
            ApprovalDecision::Stopped => Consent::Stopped,
            ApprovalDecision::Unasked => Consent::Unasked,
        };
        if let Some(outcome) = consent(&call, outcome) {
            core.record.confirmations.push(outcome);
            let words = |text: &Option<Arc<str>>| text.as_deref().and_then(plain_words);
            let (approver, reason) = (words(&decided.approver), words(&decided.reason));
            core.record.approvals.push(ApprovalRecord { tool: call.tool, outcome, approver, reason });
            keep_decision(core, judging, context, (id, decided));
        }
        true
    }

    /// Notes the calls that still wait when the client leaves.
    pub(super) fn close(&mut self, core: &mut Core) {
        for (_, call) in self.held.drain(..) {
            core.record.confirmations.extend(consent(&call, Consent::Left));
            core.record.judged.push(call);
        }
    }
}

/// Keeps what a decision means to later calls, and the person's words for the model.
fn keep_decision(core: &mut Core, judging: &mut Judging, context: Hash, (id, decided): (u32, &Decided)) {
    if decided.decision == ApprovalDecision::Approved {
        let held = judging.held().into_iter().find(|call| call.id == id).cloned();
        held.iter().for_each(|call| remember_approval(core, context, call));
    } else if let Some(words) = &decided.reason {
        judging.hear(id, words);
    }
}

/// Stores that a person has approved this call, where that holds for the rest of the conversation.
fn remember_approval(core: &mut Core, context: Hash, call: &HeldCall) {
    let is_remembered = |confirming: &Confirming| any_concerns(&confirming.remembered, &call.tool);
    if !core.policies().confirming().is_some_and(|confirming| is_remembered(confirming)) {
        return;
    }
    let (identity, memo) = (&core.identity, &*core.shared.memo);
    let arguments = arguments_hash(&call.arguments, identity, memo);
    let key = identity.call_key(identity.root(), call.call_id.as_bytes(), &call.tool, arguments);
    let approved = vec![identity.approval(key, context)];
    core.store(News { approved, ..News::default() });
}

/// The `outcome` for the record, where a person was asked about the call.
fn consent(call: &JudgedCall, outcome: Consent) -> Option<Consent> {
    (call.verdict == Verdict::Ask).then_some(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::testing::core;
    use crate::judging::tests::held::judging;
    use model::assembled::Assembled;
    use model::plan::decision::{Decision, KnownPart};
    use policies::set::PolicySet;
    use wire::json::escape_into;

    const BODY: &str = r#"{"messages":[{"role":"user","content":"q"}]}"#;

    /// A judge that holds one call for a person.
    fn holding() -> Judging {
        let mut judging = judging("[confirm]\ntools = [\"pay\"]\nform = \"held\"\n");
        let mut call = Assembled::default();
        escape_into("pay", &mut call.name);
        escape_into("{}", &mut call.arguments);
        let decision = judging.decide(0, &call, KnownPart::Whole, 1_000);
        assert_eq!(decision, Decision::Hold { id: 0, arguments: None });
        judging
    }

    #[test]
    fn a_person_is_asked_once_about_each_held_call_and_a_decision_counts_once() {
        let (mut core, mut judging) = (core(BODY, PolicySet::default()), holding());
        let mut pending = PendingDecisions::default();
        pending.ask_people(&mut core, &judging);
        pending.ask_people(&mut core, &judging);
        assert!(matches!(core.next_output(), Some(Output::AskApproval(asked)) if asked.call.id == 0));
        assert!(core.next_output().is_none());
        let approved = Decided::from(ApprovalDecision::Approved);
        let mut take = |id| pending.take_decision(&mut core, &mut judging, Hash(1), id, &approved);
        assert_eq!([take(7), take(0), take(0)], [false, true, false]);
        assert_eq!(core.record.confirmations, [Consent::Approved]);
    }

    #[test]
    fn a_question_about_a_call_that_is_gone_is_withdrawn() {
        let mut core = core(BODY, PolicySet::default());
        let mut pending = PendingDecisions::default();
        pending.ask_people(&mut core, &holding());
        core.take_outputs();
        pending.ask_people(&mut core, &judging(""));
        assert!(matches!(core.next_output(), Some(Output::WithdrawApproval(0))));
        assert_eq!(core.record.confirmations, [Consent::Unasked]);
    }

    #[test]
    fn what_still_waits_when_the_client_leaves_is_recorded() {
        let mut core = core(BODY, PolicySet::default());
        let mut pending = PendingDecisions::default();
        pending.ask_people(&mut core, &holding());
        pending.close(&mut core);
        assert_eq!(core.record.confirmations, [Consent::Left]);
        assert_eq!(core.record.judged[0].tool, "pay");
    }
}
