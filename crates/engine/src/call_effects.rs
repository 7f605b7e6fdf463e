//! The effects that calls of one client request wait for: a person's decision, their time, another model, a tool. Has the
//! driver start them, and notes what became of each. The judge decides on the calls.

use super::approvals::approve_lastingly;
use super::effects::{ApprovalRequest, AskedModel, Effect, EffectId, EffectResult};
use super::{Core, confirm};
use crate::judging::{Awaited, Judging, WaitingCall};
use crate::reply_reports::ReplyReports;
use dialects::question::written;
use model::calls::arguments_hash;
use model::fact::Writes;
use model::identity::Hash;
use model::plan::ModelQuestion;
use model::plan::approval::{ApprovalDecision, Decided, HeldCall};
use model::record::{ApprovalRecord, Consent, JudgedCall, On, PolicyDecision, Verdict};
use model::store::{CallReservation, CallReservationResult, return_reservations};
use policies::about::Confirming;
use policies::pattern::any_concerns;
use std::sync::Arc;

/// See the module.
#[derive(Default)]
pub(super) struct CallEffects {
    started: Vec<StartedEffect>,
}

struct StartedEffect {
    id: EffectId,
    /// The calls that wait for it, each with what is reserved for it: reservations that begin together make one trip.
    calls: Vec<(u32, Vec<CallReservation>)>,
    /// A person is asked.
    is_approval: bool,
}

impl CallEffects {
    /// Starts the effects of calls that wait since the last time, and cancels those of calls that no longer wait.
    pub(super) fn start_new(
        &mut self,
        core: &mut Core,
        judging: &Judging,
        reports: &ReplyReports,
        now_ms: u64,
    ) {
        if self.started.is_empty() && judging.waiting().is_empty() {
            return;
        }
        let is_gone = |started: &mut StartedEffect| {
            started.calls.iter().all(|(number, _)| judging.waiting_call(*number).is_none())
        };
        for StartedEffect { id, is_approval, .. } in self.started.extract_if(.., is_gone) {
            core.record.confirmations.extend(is_approval.then_some(Consent::Unasked));
            core.cancel(id);
        }
        let mut reserving = Vec::new();
        for call in judging.waiting() {
            if self
                .started
                .iter()
                .flat_map(|started| &started.calls)
                .any(|(number, _)| *number == call.number)
            {
                continue;
            }
            if let Awaited::Reservations(reservations) = &call.awaited {
                let reservations = reservations.iter().flatten();
                let reservations = reservations.filter_map(|it| reports.reservation(core, it, now_ms));
                reserving.push((call.number, reservations.collect::<Vec<_>>()));
                continue;
            }
            let effect = effect_of(core, judging, call);
            let (is_approval, calls) =
                (matches!(effect, Effect::Approve(_)), vec![(call.number, Vec::new())]);
            self.started.push(StartedEffect { id: core.start(effect), calls, is_approval });
        }
        if !reserving.is_empty() {
            let all = reserving.iter().flat_map(|(_, reservations)| reservations).copied().collect();
            let id = core.start(Effect::Reserve(all));
            self.started.push(StartedEffect { id, calls: reserving, is_approval: false });
        }
    }

    /// Notes the result of an effect, and returns the numbers of the calls that waited for it, each with its result.
    pub(super) fn take_result(
        &mut self,
        core: &mut Core,
        judging: &Judging,
        reports: &mut ReplyReports,
        (id, result): (EffectId, EffectResult),
    ) -> Vec<(u32, EffectResult)> {
        let Some(position) = self.started.iter().position(|started| started.id == id) else {
            return Vec::new();
        };
        let calls = self.started.remove(position).calls;
        if let EffectResult::Reserved(results) = result {
            return split(core, judging, reports, calls, results);
        }
        let number = calls.first().map(|(number, _)| *number);
        let Some(call) = number.and_then(|number| judging.waiting_call(number)) else { return Vec::new() };
        match (&call.awaited, &result) {
            (Awaited::Approval { call, .. }, EffectResult::Decided(decided)) => {
                note_decision(core, reports.context(), call, decided);
            }
            (Awaited::ModelAnswer { policy, .. }, EffectResult::Answered(None)) => {
                core.record.act(On::Reply, policy, "unanswered", 1);
            }
            _ => {}
        }
        vec![(call.number, result)]
    }

    /// Notes the calls that still wait when the client leaves.
    pub(super) fn close(&mut self, core: &mut Core, judging: &Judging) {
        for call in judging.waiting() {
            core.record.judged.extend(left_call(call));
            let is_approval = matches!(call.awaited, Awaited::Approval { .. });
            core.record.confirmations.extend(is_approval.then_some(Consent::Left));
        }
        self.started.clear();
    }
}

/// The results of the reservations of each call that still waits. What was reserved for others is given back.
fn split(
    core: &mut Core,
    judging: &Judging,
    reports: &mut ReplyReports,
    calls: Vec<(u32, Vec<CallReservation>)>,
    results: Vec<CallReservationResult>,
) -> Vec<(u32, EffectResult)> {
    let mut results = results.into_iter();
    let mut split = Vec::new();
    for (number, reservations) in calls {
        let own: Vec<CallReservationResult> = results.by_ref().take(reservations.len()).collect();
        if judging.waiting_call(number).is_none() {
            core.store(return_reservations(&reservations, &own));
            continue;
        }
        reports.take_reserved(number, &reservations, &own);
        split.push((number, EffectResult::Reserved(own)));
    }
    split
}

/// What the driver is to do for a call that waits for anything but reservations.
fn effect_of(core: &mut Core, judging: &Judging, call: &WaitingCall) -> Effect {
    match &call.awaited {
        Awaited::Approval { call, .. } => {
            let webhook = core.policies().confirming().and_then(|confirming| confirming.webhook.clone());
            let (call, hold_ms) = (call.clone(), judging.hold_ms());
            Effect::Approve(Box::new(ApprovalRequest { call, hold_ms, webhook }))
        }
        Awaited::Time { ms, .. } => Effect::Sleep { ms: *ms },
        Awaited::Reservations(_) => Effect::Reserve(Vec::new()),
        Awaited::ToolResult { run, arguments } => {
            let (tool, arguments, timeout) = (call.call.name(), arguments.clone(), run.timeout);
            Effect::CallTool { tool, arguments, timeout }
        }
        Awaited::ModelAnswer { policy, question } => {
            core.record.act(On::Reply, policy, "asked_model", 1);
            let key = core.question_key(question);
            // Values that were put back into the call are kept from this model too.
            let values = core.plan.hidden_values();
            let hidden = values.and_then(|(_, values)| values.hide_in(&question.text, usize::MAX));
            let asked = hidden.map(|text| ModelQuestion { text, ..question.clone() });
            let (terms, question) =
                (Arc::clone(&question.terms), written(asked.as_ref().unwrap_or(question)));
            Effect::AskModel(AskedModel { key, terms, question })
        }
    }
}

/// Notes a person's decision, and keeps what an approval means to later calls.
fn note_decision(core: &mut Core, context: Hash, call: &HeldCall, decided: &Decided) {
    let outcome = match decided.decision {
        ApprovalDecision::Approved => Consent::Approved,
        ApprovalDecision::Declined => Consent::Declined,
        ApprovalDecision::Expired => Consent::Expired,
        ApprovalDecision::Stopped => Consent::Stopped,
        ApprovalDecision::Unasked => Consent::Unasked,
    };
    core.record.confirmations.push(outcome);
    let words = |text: &Option<Arc<str>>| text.as_deref().and_then(confirm::plain_words);
    let (approver, reason) = (words(&decided.approver), words(&decided.reason));
    core.record.approvals.push(ApprovalRecord { tool: call.tool.clone(), outcome, approver, reason });
    if outcome == Consent::Approved {
        remember_approval(core, context, call);
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
    let mut writes = Writes::default();
    approve_lastingly(&[identity.approval(key, context)], &mut writes);
    core.store(writes);
}

/// A call that waited for a person or for its time, for the record. Without a decision, one that waits for its time is not
/// made.
fn left_call(call: &WaitingCall) -> Option<JudgedCall> {
    let (verdict, policy, kind) = match &call.awaited {
        Awaited::Approval { policy, kind, .. } => (Verdict::Ask, *policy, *kind),
        Awaited::Time { policy, kind, .. } => (Verdict::Block, *policy, *kind),
        Awaited::ModelAnswer { .. } | Awaited::ToolResult { .. } | Awaited::Reservations(_) => return None,
    };
    let decision =
        PolicyDecision { policy, reason: kind.as_str(), is_objection: true, ..PolicyDecision::default() };
    let (tool, id, decisions) = (call.call.name(), call.call.id(), vec![decision]);
    Some(JudgedCall { tool, id, verdict, unjudged: false, decisions, is_spoken: false, new_arguments: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Output;
    use crate::core::testing::core;
    use crate::judging::holding_tests::judging;
    use crate::reply_reports::testing::reports;
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
        assert_eq!(decision, Decision::Hold { id: 0 });
        judging
    }

    /// The number of the approval that the driver is to start next.
    fn started(core: &mut Core) -> EffectId {
        match core.next_output() {
            Some(Output::Start(id, Effect::Approve(asked))) if asked.call.tool == "pay" => id,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_person_is_asked_once_about_each_held_call_and_a_decision_counts_once() {
        let (mut core, judging) = (core(BODY, PolicySet::default()), holding());
        let mut effects = CallEffects::default();
        effects.start_new(&mut core, &judging, &reports(), 1_000);
        effects.start_new(&mut core, &judging, &reports(), 1_000);
        let id = started(&mut core);
        assert!(core.next_output().is_none());
        let mut take = || {
            let approved = EffectResult::Decided(ApprovalDecision::Approved.into());
            let taken = effects.take_result(&mut core, &judging, &mut reports(), (id, approved));
            taken.into_iter().map(|(call, _)| call).collect::<Vec<u32>>()
        };
        assert_eq!([take(), take()], [vec![0], vec![]]);
        assert_eq!(core.record.confirmations, [Consent::Approved]);
    }

    #[test]
    fn a_question_about_a_call_that_is_gone_is_cancelled_and_its_result_is_not_awaited() {
        let mut core = core(BODY, PolicySet::default());
        let mut effects = CallEffects::default();
        effects.start_new(&mut core, &holding(), &reports(), 1_000);
        let id = started(&mut core);
        effects.start_new(&mut core, &judging(""), &reports(), 1_000);
        assert!(matches!(core.next_output(), Some(Output::Cancel(cancelled)) if cancelled == id));
        assert_eq!(core.record.confirmations, [Consent::Unasked]);
        assert!(!core.end_effect(id), "a decision that comes after that counts for nothing");
    }

    #[test]
    fn what_still_waits_when_the_client_leaves_is_recorded() {
        let (mut core, judging) = (core(BODY, PolicySet::default()), holding());
        let mut effects = CallEffects::default();
        effects.start_new(&mut core, &judging, &reports(), 1_000);
        effects.close(&mut core, &judging);
        assert_eq!(core.record.confirmations, [Consent::Left]);
        assert_eq!(core.record.judged[0].tool, "pay");
    }
}
