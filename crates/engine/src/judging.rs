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
use self::waiting::{AskedCall, Waiting, WaitingCalls};
use self::wrapper::Wrapped;
use crate::confirm::held::shown;
use crate::confirm::{ask, leaves_markup_open, plain_words};
use bytes::Bytes;
use dialects::codec::KnownIds;
use dialects::markup::ToolNames;
use dialects::variant::PlannedRequest;
use model::account::SCOPES;
use model::assembled::Assembled;
use model::identity::Hash;
use model::plan::approval::{ApprovalDecision, HeldCall, Question, Unaskable, Unasked};
use model::plan::decision::{Decision, KnownPart};
use model::plan::{Clarification, Extends, ModelQuestion, Reason, ReasonKind, Usage};
use model::record::{Action, On, shown_actions};
use policies::about::Confirming;
use policies::set::{Judge, Ruling};
use serde_json::Value;
use std::sync::Arc;

/// The action of a policy whose limit was waited for.
const WAITED: &str = "waited";

/// A question, with the policy that asks.
pub type AskedQuestion<'a> = (&'static str, &'a ModelQuestion);

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

    /// Notes what was written anew in a call of `tool`; returns all that was done to the call.
    fn note_acts(&mut self, tool: &str, ruling: &Ruling) -> Vec<(&'static str, &'static str)> {
        self.note_reworded(tool, ruling);
        acts(ruling)
    }

    /// The extensions that approvals of this client request have bought, by scope: at most one of each.
    pub fn bought(&self) -> [u32; SCOPES] {
        self.extended.map(u32::from)
    }

    fn extend(&mut self, extends: Extends) {
        self.extended = std::array::from_fn(|scope| self.extended[scope] || extends[scope]);
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
        let name = call.name();
        let arguments = (known != KnownPart::Name).then(|| call.arguments());
        let whole = known == KnownPart::Whole;
        let wrapped =
            arguments.as_deref().and_then(|text| self.rules.wrapped((choice, now_ms), call, text, whole));
        if let Some(calls) = wrapped {
            return self.decide_wrapper(choice, now_ms, call, calls);
        }
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
        if whole && let Some(hold) = self.ask_first(choice, now_ms, call, &ruling) {
            return hold;
        }
        let acts = self.note_acts(&name, &ruling);
        if whole
            && !self.rules.landing
            && ruling.answer.is_none()
            && let Some(decision) = self.hold_back(choice, now_ms, call, &ruling)
        {
            return decision;
        }
        let is_own_answer =
            self.rules.landing && self.rules.answers.any && !ruling.own && ruling.objections.is_empty();
        let answers = is_answer || is_own_answer;
        let (decision, ruling) = self.rule_on(choice, now_ms, &meant, answers, ruling);
        let Ruling { objections, re_request, extends, .. } = ruling;
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
    fn decide_wrapper(&mut self, choice: u32, now_ms: u64, call: &Assembled, wrapped: Wrapped) -> Decision {
        let id = call.id();
        let (decision, calls) = self.rules.decide_wrapper(choice, now_ms, call, wrapped);
        for (call, ruling) in calls {
            if decision.is_released() {
                self.note_reworded(&call.name, &ruling);
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

    /// The calls that wait: for a person's decision, or until a limit allows them.
    pub fn held(&self) -> Vec<&HeldCall> {
        self.waiting.held().collect()
    }

    /// The numbers of the calls that wait for another model's answer.
    pub fn asking(&self) -> Vec<u32> {
        self.questions().map(|(id, _)| id).collect()
    }

    /// Takes the answer that the call of this number waits for, `None` where there is none, and returns what happens to
    /// it, which may be to wait again; `None` if it does not wait. The call is judged with the time at which it was first
    /// judged: the policy now has all that it needs.
    pub fn answered(&mut self, id: u32, answer: Option<Arc<str>>) -> Option<Decision> {
        let AskedCall { choice, call, passed, question, now_ms, .. } = self.waiting.take_asked(id)?;
        self.rules.judge.take_back(choice, passed);
        self.rules.counts_anew(choice);
        self.rules.judge.learn(question, answer);
        Some(self.decide(choice, &call, KnownPart::Whole, now_ms))
    }

    /// Takes the decision on the waiting call of this number and returns what happens to it; `None` if it does not wait.
    pub fn settle(&mut self, id: u32, approval: ApprovalDecision) -> Option<Decision> {
        let Waiting { call, choice, arguments, passed, objections, fixed } = self.waiting.take(id)?;
        let (policy, reason) = objections.first()?;
        let (policy, waited) = (*policy, call.wait_ms.is_some());
        if approval == ApprovalDecision::Approved {
            let decision = match fixed {
                true => Decision::Rewrite { arguments: call.arguments },
                false => Decision::Release,
            };
            let asks = objections.iter().filter_map(|(_, reason)| Some(reason.asks.as_ref()?.1));
            asks.collect::<Vec<_>>().into_iter().for_each(|extends| self.extend(extends));
            let mut acts = vec![(policy, if waited { WAITED } else { approval.as_str() })];
            acts.extend(fixed.then_some((policy, "rewritten")));
            self.note(call.tool, call.call_id, decision.clone(), Vec::new(), acts);
            return Some(decision);
        }
        self.rules.judge.take_back(choice, passed);
        self.rules.counts_anew(choice);
        let words = self.waiting.take_words(id);
        let shown = match waited {
            true => self.rules.answers.advise(reason),
            false => self.refusal(approval, words.as_deref(), reason),
        };
        match approval {
            // This call could not wait until its time came, so the next one cannot either.
            _ if waited => self.waiting.hurry(),
            ApprovalDecision::Declined => self.waiting.decline(&call.tool, arguments, words),
            silent => self.waiting.silence(silent),
        }
        Some(self.block(call.tool, call.call_id, policy, shown, objections))
    }

    /// Settles all waiting calls, about which nobody can be asked: by their numbers, what happens to each, in order.
    pub fn settle_all(&mut self) -> Vec<(u32, Decision)> {
        let mut settled = Vec::new();
        for id in self.asking() {
            settled.extend(self.answered(id, None).map(|decision| (id, decision)));
        }
        // The calls that now wait for a person are included.
        let held: Vec<u32> = self.held().iter().map(|call| call.id).collect();
        for id in held {
            settled.extend(self.settle(id, ApprovalDecision::Unasked).map(|decision| (id, decision)));
        }
        settled
    }

    /// Decides on a call that is not held, and returns what is left of its ruling. `answers`: the call is an answer,
    /// which is exempt from every limit.
    fn rule_on(
        &mut self,
        choice: u32,
        now_ms: u64,
        meant: &str,
        answers: bool,
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
            (Some((policy, reason)), ..) => {
                Decision::Block { policy, reason: self.rules.shown(choice, reason, now_ms) }
            }
            (None, Some((_, content)), _) => answered(content, ruling.own, clarification),
            // The call that runs is the one that was shown.
            (None, None, Some((policy, _))) if self.rules.judge.is_approved() => {
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

    /// Takes a person's words about the call of this number, which is settled next.
    pub fn hear(&mut self, id: u32, words: &str) {
        self.waiting.hear(id, plain_words(words));
    }

    /// How long it waits, in ms.
    pub fn hold_ms(&self) -> u64 {
        self.rules.judge.confirming().and_then(Confirming::hold_ms).unwrap_or(0)
    }

    /// Holds a call of `choice` that lacks nothing but an approval, or some time; `None` where it is not to be held.
    fn hold_back(&mut self, choice: u32, now_ms: u64, call: &Assembled, ruling: &Ruling) -> Option<Decision> {
        let (policy, reason) = ruling.objections.first()?;
        if self.rules.holds() && ruling.needs_approval_alone() {
            return Some(self.hold(choice, now_ms, call, policy, reason, ruling.clone()));
        }
        let wait_ms = self.wait_for(&ruling.objections, now_ms)?;
        self.hold_for(wait_ms, choice, now_ms, call, ruling)
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
        let then = self.rules.ruling(choice, at_ms, call, Some(&call.arguments()));
        if !then.is_allowed() {
            return None;
        }
        self.waiting.count_wait(wait_ms, now_ms);
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
        let (call_id, tool) = (call.id(), call.name());
        let arguments = fixed.clone().unwrap_or_else(|| call.arguments());
        let why = objections.iter().find_map(|(_, reason)| Some(reason.asks.as_ref()?.0.clone()));
        let objection = objections.first().map(|(policy, reason)| (*policy, reason.kind));
        let hash = self.rules.judge.arguments_hash(&arguments);
        let passed = self.rules.judge.passed();
        let is_fixed = fixed.is_some();
        let id = self.waiting.hold(|id| Waiting {
            choice,
            arguments: hash,
            passed,
            objections,
            fixed: is_fixed,
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
        let hash = self.rules.judge.arguments_hash(&arguments);
        match self.askable(&tool, &arguments, call.custom, hash, reason) {
            Err(shown) => self.block(tool, call.id(), policy, *shown, ruling.objections),
            Ok(shown) => {
                self.rules.judge.approve(Some([true; SCOPES]));
                self.rules.judge.rule(choice, &tool, Some(&call.arguments()), now_ms);
                self.rules.judge.approve(None);
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
        if let Some((approval, words)) = self.waiting.refused_before(tool, hash) {
            return Err(Box::new(self.refusal(approval, words, reason)));
        }
        let Some(confirming) = self.rules.judge.confirming() else { return Err(Box::new(reason.clone())) };
        shown(tool, arguments, custom, confirming).map_err(|why| match confirming.unaskable(why) {
            Some(message) => Box::new(Reason { message, retryable: true, ..reason.clone() }),
            None => Box::new(reason.clone()),
        })
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

    /// Blocks a call and notes it with the reason that the model is `shown`, in the place of the policy's first one.
    fn block(
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

    /// Holds a call of `choice` about which another model is to be asked first; `None` where nothing is asked, or where
    /// the call does not run whatever the answer is.
    fn ask_first(&mut self, choice: u32, now_ms: u64, call: &Assembled, ruling: &Ruling) -> Option<Decision> {
        let (policy, question) = ruling.question.clone()?;
        let runs = ruling.is_allowed() || ruling.needs_approval_alone();
        // A call that a person has approved must run as it was shown.
        if !runs || self.rules.observe || self.rules.landing || self.rules.judge.is_approved() {
            return None;
        }
        if !ruling.is_allowed() {
            self.rules.judge.approve(Some([true; SCOPES]));
            self.rules.judge.rule(choice, &call.name(), Some(&call.arguments()), now_ms);
            self.rules.judge.approve(None);
        }
        let (call, passed) = (call.clone(), self.rules.judge.passed());
        let id = self.waiting.ask(|id| AskedCall { id, choice, call, passed, policy, question, now_ms });
        Some(Decision::Hold { id, arguments: None })
    }

    /// The questions that calls wait for, each with the call's number.
    pub fn questions(&self) -> impl Iterator<Item = (u32, AskedQuestion<'_>)> {
        self.waiting.asking().iter().map(|asked| (asked.id, (asked.policy, &asked.question)))
    }

    /// Notes the text that a policy wrote anew in a call of `tool`, unless the call is blocked.
    fn note_reworded(&mut self, tool: &str, ruling: &Ruling) {
        let runs = ruling.is_allowed() || ruling.needs_approval_alone();
        let reworded = ruling.reworded.clone().filter(|_| runs && !self.rules.landing);
        self.reworded.extend(reworded.map(|(policy, (before, after))| RewordedCall {
            tool: tool.to_owned(),
            policy,
            before,
            after,
        }));
    }
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
