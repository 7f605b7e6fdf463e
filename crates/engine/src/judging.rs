//! The tool call judge of one client request: which calls of its replies are released, blocked or dropped, and the
//! record of that. Shared by whole and streamed replies; knows neither spans nor sockets.

mod answers;
mod rules;
#[cfg(test)]
pub(crate) mod tests;
mod waiting;
pub mod wrapper;

pub use self::answers::AnswerTools;

use self::rules::CallRules;
#[cfg(test)]
pub(crate) use self::tests::held as holding_tests;
pub(crate) use self::waiting::{Awaited, WaitingCall};
use self::waiting::{Past, WaitingCalls};
use self::wrapper::Wrapped;
use crate::confirm::held::shown;
use crate::confirm::{ask, leaves_markup_open, plain_words};
use crate::effects::EffectResult;
use bytes::Bytes;
use dialects::codec::KnownIds;
use dialects::markup::ToolNames;
use dialects::variant::PlannedRequest;
use model::account::SCOPES;
use model::assembled::Assembled;
use model::identity::Hash;
use model::plan::approval::{ApprovalDecision, Decided, HeldCall, Question, Unaskable, Unasked};
use model::plan::decision::{Decision, KnownPart};
use model::plan::{Clarification, Extends, Reason, ReasonKind, Usage};
use model::record::{Action, On, shown_actions};
use policies::about::Confirming;
use policies::set::{Judge, Ruling};
use serde_json::Value;

/// The action of a policy whose limit was waited for.
const WAITED: &str = "waited";

/// One judged call, for the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    pub tool: String,
    /// As the upstream gave it; empty where it gave none.
    pub id: String,
    pub decision: Decision,
    /// Every policy that objected, also in observe mode.
    pub objections: Vec<(&'static str, Reason)>,
    /// What else was done to it, also in observe mode: the policy and the name of the action.
    pub acts: Vec<(&'static str, &'static str)>,
    /// The tool whose cut result it asks for.
    pub re_request: Option<String>,
    /// It was let through because it could not be judged.
    pub unjudged: bool,
}

impl Judged {
    /// What policies did to the call, also in observe mode.
    pub fn actions(&self) -> impl Iterator<Item = Action> {
        let objections = self.objections.iter().map(|(policy, _)| (*policy, "blocked"));
        let done = self.acts.iter().copied().chain(objections);
        done.map(|(policy, action)| Action { policy, action: action.into(), count: 1, on: On::Reply })
    }
}

/// A text among a call's arguments that a policy wrote anew, for the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RewordedCall {
    pub tool: String,
    pub policy: &'static str,
    pub before: String,
    pub after: String,
}

/// The names of the members that a JSON Schema of an object declares.
fn parameter_names(schema: &[u8]) -> Vec<String> {
    let schema: Value = serde_json::from_slice(schema).unwrap_or_default();
    let combined =
        ["allOf", "anyOf", "oneOf"].into_iter().filter_map(|name| schema[name].as_array()).flatten();
    let objects = std::iter::once(&schema).chain(combined);
    objects.filter_map(|schema| schema["properties"].as_object()).flat_map(|it| it.keys().cloned()).collect()
}

/// The judge of one client request's calls, with its record.
pub struct Judging {
    rules: CallRules,
    /// Calls that cannot be judged pass, also where policies restrict calls.
    pass_unjudged: bool,
    waiting: WaitingCalls,
    /// What approvals of this client request extend.
    extended: Extends,
    pub record: Vec<Judged>,
    /// What was done since the head of the client's stream went out, beside what was done to calls.
    late: Vec<Action>,
    /// What was written anew, of calls that run or that a person is asked about.
    pub reworded: Vec<RewordedCall>,
    /// The ids that no blocked call may repeat.
    known_ids: KnownIds,
    /// The parameters of the tools that the request declares, from the final-answer request on.
    parameters: Vec<(String, Vec<String>)>,
}

impl Judging {
    /// A judge that decides by the policies of `judge` and always releases `answers`.
    pub fn new(judge: Judge, answers: AnswerTools, observe: bool) -> Self {
        Self {
            rules: CallRules::new(judge, answers, observe),
            pass_unjudged: false,
            waiting: WaitingCalls::default(),
            extended: Extends::default(),
            record: Vec::new(),
            late: Vec::new(),
            reworded: Vec::new(),
            known_ids: KnownIds::default(),
            parameters: Vec::new(),
        }
    }

    /// Sets the request's body, whose calls have ids that no blocked call may repeat.
    pub fn set_body(&mut self, body: Bytes) {
        self.known_ids.body = body;
    }

    /// As [`Self::set_body`], where a body is set already: an equal one that takes less memory.
    pub fn replace_body(&mut self, body: &Bytes) {
        if !self.known_ids.body.is_empty() {
            self.known_ids.body = body.clone();
        }
    }

    /// Adds a hidden exchange that the model sees before the next reply.
    pub fn add_hidden(&mut self, exchange: Bytes) {
        self.known_ids.hidden.push(exchange);
    }

    /// The ids that no blocked call may repeat.
    pub fn known_ids(&self) -> &KnownIds {
        &self.known_ids
    }

    /// Sets what was done to the request since the head of the client's stream went out.
    pub(super) fn set_late_actions(&mut self, late: &[Action]) {
        self.late = late.to_vec();
    }

    /// Lets calls pass that cannot be judged, also where policies restrict calls.
    #[must_use]
    pub fn passing_unjudged(mut self, pass: bool) -> Self {
        self.pass_unjudged = pass;
        self
    }

    /// Allows asking a person, under `token`, about calls that need approval.
    #[must_use]
    pub fn with_token(mut self, token: Option<String>) -> Self {
        self.rules.token = token;
        self
    }

    /// The tool that a call of `name` means, and its canonical arguments.
    pub(super) fn call_name(&self, name: &str, arguments: &str) -> (String, Hash) {
        (self.rules.judge.meant(name).into_owned(), self.rules.judge.arguments_hash(arguments))
    }

    /// See [`Judge::approve`].
    pub fn approve(&mut self, approved: Option<Extends>) {
        self.rules.judge.approve(approved);
    }

    /// Reads which parameters the tools of the request have, by which calls in the text of a final answer are recognised.
    pub fn read_parameters(&mut self, planned: &PlannedRequest<'_>) {
        if self.parameters.is_empty() {
            let read = planned.tools().filter_map(|(tool, bytes)| {
                let (name, schema) = (tool.full_name(bytes)?, tool.parameters?);
                Some((name.into_owned(), parameter_names(schema.of(bytes))))
            });
            self.parameters = read.collect();
        }
    }

    /// The model is asked for its final answer: only answers are released.
    pub fn land(&mut self) {
        self.rules.landing = true;
    }

    /// The model is asked for another choice, which may call tools.
    pub fn go_on(&mut self) {
        self.rules.landing = false;
    }

    /// The extensions that approvals of this client request have bought, by scope: at most one of each.
    pub fn bought(&self) -> [u32; SCOPES] {
        self.extended.map(u32::from)
    }

    fn extend(&mut self, extends: Extends) {
        self.extended = both(self.extended, extends);
    }

    /// Why an approved call is blocked after all.
    fn changed(&self) -> Reason {
        let message = self.rules.judge.confirming().map(Confirming::changed).unwrap_or_default();
        Reason::new(ReasonKind::Validation, message).retryable()
    }

    /// What the conversation has used of each limit, by policy.
    pub fn usage(&self, now_ms: u64) -> Vec<(&'static str, Usage)> {
        self.rules.judge.usage(now_ms)
    }

    /// See [`CallRules::needs_arguments`].
    pub fn needs_arguments(&mut self, choice: u32, name: &str) -> bool {
        self.rules.needs_arguments(choice, name)
    }

    /// Whether nothing may reach the client unjudged.
    pub fn is_strict(&self) -> bool {
        self.rules.confirms()
            || (!self.rules.observe && self.rules.judge.restricts_calls() && !self.pass_unjudged)
    }

    /// Whether observe mode is on: everything is decided and nothing changed.
    pub fn observes(&self) -> bool {
        self.rules.observe
    }

    /// Whether the model was asked for its final answer.
    pub fn is_landing(&self) -> bool {
        self.rules.landing
    }

    /// Whether the request declares a tool of this name.
    pub fn declares(&self, name: &str) -> bool {
        self.rules.judge.declares_name(name)
    }

    /// Whether a call of the conversation before this reply has this id. `false` where the upstream keeps the conversation: it
    /// knows its calls by their own ids.
    pub fn has_call_id(&self, id: &str) -> bool {
        self.known_ids.has(id)
    }

    /// The tools whose calls the model may write: those that are declared, and those that it has called.
    pub fn known_tools(&self) -> ToolNames {
        let called = self.record.iter().map(|judged| judged.tool.clone());
        ToolNames::new(self.rules.judge.declared().iter().cloned().chain(called))
            .with_parameters(&self.parameters)
    }

    /// Whether the request declares no shell that the client runs.
    pub fn hosts_shell(&self) -> bool {
        self.rules.judge.hosts_shell
    }

    /// Whether nothing can follow the name of `call` as it is now: the request declares such a tool, and none whose
    /// name goes on from it.
    pub fn is_complete_name(&self, call: &Assembled) -> bool {
        self.rules.judge.is_complete(&call.name())
    }

    /// Whether the name of `call`, to which no policy objected, is enough to decide on it.
    pub fn needs_name_alone(&mut self, choice: u32, call: &Assembled, now_ms: u64) -> bool {
        let may_stand_for_others =
            call.has_other_names() && call.other_names().iter().any(|name| wrapper::may_hold_calls(name));
        // A call that may be held must be complete first, because it is held as a whole.
        !may_stand_for_others
            && !self.needs_arguments(choice, &call.name())
            && !self.may_have_to_wait(choice, &call.name(), now_ms)
    }

    /// Blocks `call` if a policy objects to it by its name alone.
    pub fn block_by_name(&mut self, choice: u32, call: &Assembled, now_ms: u64) -> Option<Decision> {
        let name = call.name();
        let is_open =
            self.rules.answers.is_by_name(&name) || self.rules.judge.owns(&name) || wrapper::is_name(&name);
        if self.rules.observe || self.rules.landing || is_open {
            return None;
        }
        let mut objections = self.rules.judge.objections_by_name(choice, &name, now_ms);
        self.rules.answers.exempt(&mut objections);
        if self.wait_for(&objections, now_ms).is_some() {
            return None;
        }
        let (policy, reason) = objections.iter().find(|(_, reason)| !reason.needs_approval())?.clone();
        let decision = Decision::Block { policy, reason: self.rules.shown(choice, &reason, now_ms) };
        self.note(name, call.id(), decision.clone(), objections, Vec::new());
        Some(decision)
    }

    /// Whether a policy objects to a name under which a client may run `call`, which the client has seen in part;
    /// `renamed`: its own name is not the one that was judged.
    pub fn objects_to_new_name(&mut self, choice: u32, renamed: bool, call: &Assembled, now_ms: u64) -> bool {
        let (mut names, arguments) = (call.other_names(), call.arguments());
        names.extend(renamed.then(|| call.name()));
        names.iter().any(|name| {
            if wrapper::needs_no_declaration(name) {
                return true;
            }
            let needs_more =
                self.rules.judge.declares(name) && self.needs_arguments(choice, name) && !call.is_whole();
            needs_more || !self.rules.objections_to_name(choice, name, Some(&arguments), now_ms).is_empty()
        })
    }

    /// Decides on `call`; `known` says how much of it has come.
    pub fn decide(&mut self, choice: u32, call: &Assembled, known: KnownPart, now_ms: u64) -> Decision {
        self.decide_with((choice, now_ms), call, known, Past::default(), None)
    }

    /// The same for a call with a `past`, which has waited under a `number`.
    fn decide_with(
        &mut self,
        (choice, now_ms): (u32, u64),
        call: &Assembled,
        known: KnownPart,
        mut past: Past,
        number: Option<u32>,
    ) -> Decision {
        let name = call.name();
        let arguments = (known != KnownPart::Name).then(|| call.arguments());
        let whole = known == KnownPart::Whole;
        let wrapped =
            arguments.as_deref().and_then(|text| self.rules.wrapped((choice, now_ms), call, text, whole));
        if let Some(calls) = wrapped {
            return self.decide_wrapper((choice, now_ms), call, calls, past, number);
        }
        self.rules.judge.set_reserved(past.reserved(0));
        let mut ruling = self.rules.ruling(choice, now_ms, call, arguments.as_deref());
        if !ruling.own {
            self.rules.answers.exempt(&mut ruling.objections);
        }
        if known == KnownPart::Cut {
            return self.decide_cut(call, ruling);
        }
        // An answer passes beyond every limit, so there is no action to report.
        let meant = self.rules.judge.meant(&name).into_owned();
        let is_answer = self.rules.answers.is_by_name(&meant)
            && !ruling.own
            && !self.rules.needs_approval_first(&meant, &ruling);
        let ruling = if is_answer { ruling.of_answer() } else { ruling };
        if whole && let Some((awaited, passed)) = self.awaited((choice, now_ms), call, &ruling) {
            if !matches!(awaited, Awaited::ModelAnswer { .. }) {
                self.note_reworded(&name, &ruling, &mut past);
            }
            return self.hold((choice, now_ms), call, (awaited, passed, 1), past, number);
        }
        self.note_reworded(&name, &ruling, &mut past);
        let acts = past.acts.iter().copied().chain(acts(&ruling)).collect();
        let is_own_answer =
            self.rules.landing && self.rules.answers.any && !ruling.own && ruling.objections.is_empty();
        let answers = is_answer || is_own_answer;
        let (decision, ruling) = self.rule_on(choice, now_ms, (&meant, call), (answers, &past), ruling);
        let Ruling { mut objections, re_request, extends, .. } = ruling;
        // What the model reads of a call that nobody has approved.
        if let (Decision::Block { reason, .. }, Some((_, objection))) = (&decision, objections.first_mut())
            && self.rules.holds()
            && objection.needs_approval()
        {
            objection.clone_from(reason);
        }
        let re_request = re_request.filter(|_| decision.is_hidden());
        if decision.is_released() {
            self.extend(extends);
            self.rules.counts_anew(choice);
        }
        let (id, decided) = (call.id(), decision.clone());
        let judged =
            Judged { tool: name, id, decision: decided, objections, acts, re_request, unjudged: false };
        self.record.push(judged);
        decision
    }

    /// Decides on a wrapper call, and notes the calls within it.
    fn decide_wrapper(
        &mut self,
        (choice, now_ms): (u32, u64),
        call: &Assembled,
        wrapped: Wrapped,
        past: Past,
        number: Option<u32>,
    ) -> Decision {
        let id = call.id();
        let (decision, calls) = self.rules.decide_wrapper((choice, now_ms), call, wrapped, &past);
        if decision.is_released() && !self.rules.observe {
            let reservations: Vec<_> = calls.iter().map(|(_, ruling)| ruling.reservations.clone()).collect();
            if reservations.iter().any(|of_call| !of_call.is_empty()) {
                let passed = calls.iter().filter_map(|(_, ruling)| ruling.passed);
                let (first, count) = (passed.clone().next(), passed.count());
                let awaited = (Awaited::Reservations(reservations), first, count);
                return self.hold((choice, now_ms), call, awaited, past, number);
            }
        }
        for (call, ruling) in calls {
            if decision.is_released() {
                self.note_reworded(&call.name, &ruling, &mut Past::default());
            }
            self.note(call.name, id.clone(), decision.clone(), ruling.objections, Vec::new());
        }
        decision
    }

    /// Lets a call through that could not be judged, unless it needs an approval.
    pub fn release_unjudged(&mut self, choice: u32, call: &Assembled) -> Decision {
        let tool = call.name();
        let mut objections = Vec::new();
        if self.rules.confirms() {
            objections = self.rules.judge.rule(choice, &tool, Some(&call.arguments()), 0).objections;
            objections.retain(|(_, reason)| reason.needs_approval());
        }
        let decision = match objections.first() {
            Some((policy, reason)) => Decision::Block { policy, reason: reason.clone() },
            None => Decision::Release,
        };
        let unjudged = decision.is_released();
        let (id, acts, re_request, decided) = (call.id(), Vec::new(), None, decision.clone());
        self.record.push(Judged { tool, id, decision: decided, objections, acts, re_request, unjudged });
        decision
    }

    /// The question for a person about `calls`. `before`: the text before it in the same message, as the client has it.
    ///
    /// # Errors
    /// Why no person can be asked.
    pub fn question(&self, calls: &[Assembled], before: &str) -> Result<Question, Unasked> {
        match (&self.rules.token, self.rules.judge.confirming()) {
            (Some(token), Some(confirming)) => {
                let unasked = |why: Unaskable| Unasked(confirming.unaskable(why));
                let question = ask(calls, token, confirming, leaves_markup_open(before)).map_err(unasked)?;
                let mut lines = self.record.iter().rev().filter_map(|judged| match &judged.decision {
                    Decision::Ask { reason: Reason { asks: Some(asks), .. }, .. } => Some(asks),
                    _ => None,
                });
                // All calls of a reply are asked about for the same reason.
                Ok(match lines.next() {
                    Some((line, extends)) => {
                        let text = format!("{line}\n\n{}", question.text);
                        Question { text, extends: *extends, ..question }
                    }
                    None => question,
                })
            }
            _ => Err(Unasked(None)),
        }
    }

    /// What acted on the reply so far, each in the spelling of the header `x-toolrein-actions`.
    pub fn actions(&self) -> Vec<String> {
        let done = self.record.iter().flat_map(Judged::actions);
        shown_actions(&done.chain(self.late.iter().cloned()).collect::<Vec<_>>())
    }

    /// The calls that wait, in the order in which they began to wait.
    pub(crate) fn waiting(&self) -> &[WaitingCall] {
        self.waiting.calls()
    }

    /// The waiting call of this number.
    pub(crate) fn waiting_call(&self, number: u32) -> Option<&WaitingCall> {
        self.waiting().iter().find(|call| call.number == number)
    }

    /// Takes the result of the effect that the call of this number waits for, and judges the call again from the first
    /// policy, with the time at which it was judged before: the result is all that is new. Returns what happens to the
    /// call, which may be to wait for another effect; `None` if it does not wait.
    pub(crate) fn finish_effect(&mut self, number: u32, result: &EffectResult) -> Option<Decision> {
        let WaitingCall { choice, call, passed, calls, mut judged_ms, awaited, mut past, .. } =
            self.waiting.take(number)?;
        let later = passed.map(|passed| self.rules.judge.rewind(choice, passed, calls));
        self.rules.counts_anew(choice);
        match (awaited, result) {
            (Awaited::ModelAnswer { question, .. }, result) => {
                let answer = if let EffectResult::Answered(answer) = result { answer.clone() } else { None };
                self.rules.judge.learn(question, answer);
            }
            (Awaited::Time { policy, ms, .. }, EffectResult::Slept(true)) => {
                judged_ms = judged_ms.saturating_add(ms);
                past.acts.push((policy, WAITED));
            }
            // This call could not wait until its time came, so the next one cannot either.
            (Awaited::Time { .. }, _) => self.waiting.hurry(),
            (Awaited::Approval { policy, call, extends, .. }, EffectResult::Decided(decided)) => {
                self.take_decision((policy, call, extends), decided, &mut past);
            }
            (Awaited::Approval { .. }, _) => self.waiting.silence(ApprovalDecision::Unasked),
            (Awaited::Reservations(reservations), EffectResult::Reserved(results)) => {
                past.take_reserved(reservations, results);
            }
            (Awaited::Reservations(reservations), _) => past.take_reserved(reservations, &[]),
            (Awaited::ToolResult { .. }, result) => {
                past.executed =
                    Some(if let EffectResult::Executed(text) = result { text.clone() } else { None });
            }
        }
        let before = self.rules.judge.approved();
        self.approve(past.approved.as_ref().map(|(_, extends)| *extends).or(before));
        self.rules.judge.set_executed(past.executed.clone());
        let decision = self.decide_with((choice, judged_ms), &call, KnownPart::Whole, past, Some(number));
        self.rules.judge.set_executed(None);
        self.approve(before);
        later.into_iter().for_each(|later| self.rules.judge.replay(later));
        Some(decision)
    }

    /// Takes a person's decision on a call.
    fn take_decision(
        &mut self,
        (policy, call, extends): (&'static str, HeldCall, Extends),
        decided: &Decided,
        past: &mut Past,
    ) {
        match decided.decision {
            ApprovalDecision::Approved => {
                past.acts.push((policy, decided.decision.as_str()));
                past.approved = Some((call.arguments, extends));
            }
            ApprovalDecision::Declined => {
                let words = decided.reason.as_deref().and_then(plain_words);
                let arguments = self.rules.judge.arguments_hash(&call.arguments);
                self.waiting.decline(&call.tool, arguments, words);
            }
            silent => self.waiting.silence(silent),
        }
    }

    /// Settles all waiting calls, whose effects cannot be had: by their numbers, what happens to each, in order.
    pub fn settle_all(&mut self) -> Vec<(u32, Decision)> {
        let mut settled = Vec::new();
        // A call that then waits for another effect is settled again. Each kind of effect fails once.
        while let Some(call) = self.waiting().first() {
            let (number, failure) = (call.number, call.awaited.failure());
            settled.extend(self.finish_effect(number, &failure).map(|decision| (number, decision)));
        }
        settled
    }

    /// Decides on a call that is not held, and returns what is left of its ruling. `answers`: the call is an answer,
    /// which is exempt from every limit.
    fn rule_on(
        &mut self,
        choice: u32,
        now_ms: u64,
        (meant, call): (&str, &Assembled),
        (answers, past): (bool, &Past),
        mut ruling: Ruling,
    ) -> (Decision, Ruling) {
        let needs_approval = ruling.needs_approval_alone();
        let (answer, clarification) = (ruling.answer.take(), ruling.clarification.take());
        let (rewritten, restored) = (ruling.rewritten.take(), ruling.restored.take());
        let decision = match (ruling.objections.first(), answer, rewritten) {
            _ if self.rules.observe => Decision::Release,
            _ if answers => {
                restored.map_or(Decision::Release, |(_, arguments)| Decision::Rewrite { arguments })
            }
            _ if self.rules.landing => Decision::Drop,
            (Some((policy, reason)), None, rewritten)
                if needs_approval && choice == 0 && self.rules.token.is_some() && !self.rules.holds() =>
            {
                self.ask(policy, reason, meant, rewritten.map(|(_, arguments)| arguments))
            }
            // Only the first choice can ask: making the call again would not help.
            (Some((policy, reason)), ..) if needs_approval && choice != 0 && !self.rules.holds() => {
                Decision::Block { policy, reason: self.refusal(ApprovalDecision::Unasked, None, reason) }
            }
            (Some((policy, reason)), None, _) if needs_approval && self.rules.holds() => {
                let refusal = self.askable(call, &ruling, reason).err();
                Decision::Block { policy, reason: refusal.map_or_else(|| reason.clone(), |refusal| *refusal) }
            }
            (Some((policy, reason)), ..) => {
                Decision::Block { policy, reason: self.rules.shown(choice, reason, now_ms) }
            }
            (None, Some((_, content)), _) => {
                answered(content, ruling.own || past.executed.is_some(), clarification)
            }
            // The call that runs is the one that was shown.
            (None, None, Some((policy, arguments)))
                if self.rules.judge.is_approved() && !past.approves(&arguments) =>
            {
                Decision::Block { policy, reason: self.changed() }
            }
            (None, None, Some((_, arguments))) => Decision::Rewrite { arguments },
            (None, None, None) => Decision::Release,
        };
        (decision, ruling)
    }

    /// Decides on a call that is incomplete because the reply was cut. It passes as it came, so that the client sees
    /// where the reply ends, unless there is an objection besides its arguments, or it calls a tool of ours, which the
    /// client does not know; a re-ask would be cut again.
    fn decide_cut(&mut self, call: &Assembled, mut ruling: Ruling) -> Decision {
        let tool = call.name();
        ruling.objections.retain(|(_, reason)| reason.kind != ReasonKind::Validation);
        let decision = match ruling.objections.is_empty() {
            _ if self.rules.observe => Decision::Release,
            true if !ruling.own && (!self.rules.landing || self.rules.answers.includes(&tool)) => {
                Decision::Release
            }
            _ => Decision::Drop,
        };
        self.note(tool, call.id(), decision.clone(), ruling.objections, Vec::new());
        decision
    }

    /// How long it waits, in ms.
    pub fn hold_ms(&self) -> u64 {
        self.rules.judge.confirming().and_then(Confirming::hold_ms).unwrap_or(0)
    }

    /// What a call of `choice` has to wait for, with the number under which it counts as made meanwhile; `None` where it is
    /// decided on now.
    fn awaited(
        &mut self,
        (choice, now_ms): (u32, u64),
        call: &Assembled,
        ruling: &Ruling,
    ) -> Option<(Awaited, Option<u32>)> {
        if self.rules.observe || self.rules.landing {
            return None;
        }
        if let Some((policy, question)) = &ruling.question
            && (ruling.is_allowed() || ruling.needs_approval_alone())
            // A call that a person has approved must run as it was shown.
            && !self.rules.judge.is_approved()
        {
            let passed = if ruling.is_allowed() {
                ruling.passed
            } else {
                self.count_as_approved((choice, now_ms), call)
            };
            return Some((Awaited::ModelAnswer { policy, question: question.clone() }, passed));
        }
        if let Some((_, run)) = ruling.tool_run.filter(|_| ruling.is_allowed()) {
            let arguments = ruling.rewritten.as_ref().map(|(_, arguments)| arguments.clone());
            let arguments = arguments.unwrap_or_else(|| call.arguments());
            return Some((Awaited::ToolResult { run, arguments }, ruling.passed));
        }
        // Last: nothing is counted that is not handed out.
        if ruling.is_allowed() && !ruling.reservations.is_empty() {
            return Some((Awaited::Reservations(vec![ruling.reservations.clone()]), ruling.passed));
        }
        let (policy, reason) = ruling.objections.first().filter(|_| ruling.answer.is_none())?;
        if self.rules.holds() && ruling.needs_approval_alone() {
            let call_to_show = self.askable(call, ruling, reason).ok()?;
            let wanted = ruling.objections.iter().filter_map(|(_, reason)| Some(reason.asks.as_ref()?.1));
            let extends = wanted.fold(Extends::default(), both);
            let passed = self.count_as_approved((choice, now_ms), call);
            return Some((
                Awaited::Approval { policy, kind: reason.kind, call: call_to_show, extends },
                passed,
            ));
        }
        let ms = self.wait_for(&ruling.objections, now_ms)?;
        let then = self.rules.ruling(choice, now_ms.saturating_add(ms), call, Some(&call.arguments()));
        if !then.is_allowed() {
            return None;
        }
        self.waiting.count_wait(ms, now_ms);
        Some((Awaited::Time { policy, kind: reason.kind, ms }, then.passed))
    }

    /// Counts a call that lacks nothing but an approval as made.
    fn count_as_approved(&mut self, (choice, now_ms): (u32, u64), call: &Assembled) -> Option<u32> {
        let before = self.rules.judge.approved();
        self.approve(Some([true; SCOPES]));
        let ruling = self.rules.judge.rule(choice, &call.name(), Some(&call.arguments()), now_ms);
        self.approve(before);
        ruling.passed
    }

    /// Lets a call wait that counts as made under the number `passed`.
    fn hold(
        &mut self,
        (choice, judged_ms): (u32, u64),
        call: &Assembled,
        (awaited, passed, calls): (Awaited, Option<u32>, usize),
        past: Past,
        number: Option<u32>,
    ) -> Decision {
        let id = number.unwrap_or_else(|| self.waiting.number());
        let call = call.clone();
        self.waiting.add(WaitingCall { number: id, choice, call, passed, calls, judged_ms, awaited, past });
        Decision::Hold { id }
    }

    /// For how many ms a call may be held at `now_ms` until no policy objects to it any more. All calls of a client
    /// request together wait no longer than the policies allow for one.
    fn wait_for(&self, objections: &[(&'static str, Reason)], now_ms: u64) -> Option<u64> {
        if self.rules.observe {
            return None;
        }
        self.waiting.wait_for(objections, self.rules.judge.longest_wait_ms(), now_ms)
    }

    /// Whether a call of the tool `name` is to be held until its time has come, unless its arguments forbid it.
    fn may_have_to_wait(&mut self, choice: u32, name: &str, now_ms: u64) -> bool {
        if self.rules.judge.longest_wait_ms() == 0 {
            return false;
        }
        let objections = self.rules.judge.objections_by_name(choice, name, now_ms);
        self.wait_for(&objections, now_ms).is_some()
    }

    /// The call as a person would be shown it.
    ///
    /// # Errors
    /// What the model reads where no person can be asked about it.
    fn askable(&self, call: &Assembled, ruling: &Ruling, reason: &Reason) -> Result<HeldCall, Box<Reason>> {
        let tool = call.name();
        let arguments =
            ruling.rewritten.as_ref().map_or_else(|| call.arguments(), |(_, arguments)| arguments.clone());
        let hash = self.rules.judge.arguments_hash(&arguments);
        if let Some((approval, words)) = self.waiting.refused_before(&tool, hash) {
            return Err(Box::new(self.refusal(approval, words, reason)));
        }
        let Some(confirming) = self.rules.judge.confirming() else { return Err(Box::new(reason.clone())) };
        let shown = shown(&tool, &arguments, call.custom, confirming);
        let shown = shown.map_err(|why| match confirming.unaskable(why) {
            Some(message) => Box::new(Reason { message, retryable: true, ..reason.clone() }),
            None => Box::new(reason.clone()),
        })?;
        let why = ruling.objections.iter().find_map(|(_, reason)| Some(reason.asks.as_ref()?.0.clone()));
        Ok(HeldCall { call_id: call.id(), tool, arguments, shown, why })
    }

    /// What the model reads of a call that was not approved, with the person's `words`.
    fn refusal(&self, approval: ApprovalDecision, words: Option<&str>, reason: &Reason) -> Reason {
        let confirming = self.rules.judge.confirming();
        confirming.map_or_else(|| reason.clone(), |confirming| confirming.refusal(approval, words, reason))
    }

    /// The decision to ask the user about a call of `tool`, in the conversation; the model reads how to make it so that
    /// this is possible.
    fn ask(&self, policy: &'static str, reason: &Reason, tool: &str, arguments: Option<String>) -> Decision {
        let alone = |confirming: &Confirming| confirming.alone(tool, reason);
        let reason = self.rules.judge.confirming().map_or_else(|| reason.clone(), alone);
        Decision::Ask { policy, reason, arguments }
    }

    fn note(
        &mut self,
        tool: String,
        id: String,
        decision: Decision,
        objections: Vec<(&'static str, Reason)>,
        acts: Vec<(&'static str, &'static str)>,
    ) {
        self.record.push(Judged { tool, id, decision, objections, acts, re_request: None, unjudged: false });
    }

    /// Notes the text that a policy wrote anew in a call of `tool`, once, unless the call is blocked.
    fn note_reworded(&mut self, tool: &str, ruling: &Ruling, past: &mut Past) {
        let runs = ruling.is_allowed() || ruling.needs_approval_alone();
        if !runs || self.rules.landing || std::mem::replace(&mut past.is_noted, true) {
            return;
        }
        self.reworded.extend(ruling.reworded.clone().map(|(policy, (before, after))| RewordedCall {
            tool: tool.to_owned(),
            policy,
            before,
            after,
        }));
    }
}

/// What either of the two extends.
fn both(one: Extends, other: Extends) -> Extends {
    std::array::from_fn(|scope| one[scope] || other[scope])
}

/// The decision on a call whose result is `content`: one of the policy's own tool (`own`), or a question to the user.
fn answered(content: String, own: bool, clarification: Option<Clarification>) -> Decision {
    match clarification {
        Some(Clarification { question, asked, .. }) => {
            Decision::Clarify { question, asked, put_off: content }
        }
        None => Decision::Answer { content, own },
    }
}

/// What was done to a call besides objecting to it.
fn acts(ruling: &Ruling) -> Vec<(&'static str, &'static str)> {
    let action = if ruling.clarification.is_some() { "asked" } else { "answered" };
    let answered = ruling.answer.as_ref().map(|(policy, _)| (*policy, action));
    let restored = ruling.restored.as_ref().map(|(policy, _)| (*policy, "restored"));
    let is_other = |policy: &&str| restored.is_none_or(|(restoring, _)| restoring != *policy);
    let rewritten = ruling.rewritten.as_ref().map(|(policy, _)| *policy).filter(is_other);
    let done = answered.or(rewritten.map(|policy| (policy, "rewritten")));
    let done = restored.into_iter().chain(done).filter(|_| ruling.objections.is_empty());
    done.into_iter().collect()
}
