//! The tool call judge of one client request: which calls of its replies are released, blocked or dropped, and the
//! record of that. Shared by whole and streamed replies; knows neither spans nor sockets.

mod asking;
mod calls;
mod holding;
mod names;
pub mod wrapper;

use self::holding::Holding;
#[cfg(test)]
pub(crate) use self::holding::tests as holding_tests;
use self::names::OpenTool;
use bytes::Bytes;
use dialects::codec::KnownIds;
use model::account::SCOPES;
use model::identity::Hash;
use model::plan::decision::Decision;
use model::plan::{Clarification, Extends, Reason, ReasonKind, Usage};
use model::record::{Action, On};
use model::request::{Choice, Request};
use policies::about::Confirming;
use policies::pattern::{Pattern, any_fits};
use policies::set::{Judge, Ruling};
use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;

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

/// Answer tools: some clients need a call as their answer, so these calls stay allowed beyond every limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerTools {
    /// Name patterns from the configuration.
    pub named: Arc<[Pattern]>,
    /// The request forces a call and declares no tool with such a name: any call is its answer.
    pub any: bool,
    /// The tool that the request itself names as the one to be called.
    pub forced: Option<String>,
    /// The answers among the tools that the request declares.
    pub declared: Vec<String>,
}

impl AnswerTools {
    /// Which calls are answers to `request`, where the operator `named` some.
    pub fn of(request: &Request, body: &[u8], named: &Arc<[Pattern]>) -> Self {
        let names = request.tools.iter().filter_map(|tool| tool.full_name(body));
        let answers = names.filter(|name| any_fits(named, name));
        let declared: Vec<String> = answers.map(Cow::into_owned).collect();
        let any = request.choice == Choice::Forced && declared.is_empty();
        let forced = request.forced_tool.clone().filter(|_| any);
        Self { named: Arc::clone(named), any, forced, declared }
    }

    /// Whether a call of the tool `name` is an answer.
    pub fn includes(&self, name: &str) -> bool {
        self.any || any_fits(&self.named, name)
    }

    /// The tool that a final-answer request forces: the first of the declared answers, or the one that the request
    /// itself forces. `None` where a text, or any call, is the answer.
    pub fn last(&self) -> Option<&str> {
        self.declared.first().or(self.forced.as_ref()).map(String::as_str)
    }

    /// Whether the operator, or the caller who forces it, has named `name` as an answer tool.
    fn is_by_name(&self, name: &str) -> bool {
        any_fits(&self.named, name) || self.forced.as_deref() == Some(name)
    }

    /// Removes objections that would keep the model from answering at all: where the request forces a call, limits on
    /// the number of calls do not apply. Rules on which calls are allowed hold for forced calls too.
    fn exempt(&self, objections: &mut Vec<(&'static str, Reason)>) {
        if self.any {
            objections.retain(|(_, reason)| !reason.kind.is_limit());
        }
    }

    /// Adds for the model how to answer, where only a call is an answer.
    fn advise(&self, reason: &Reason) -> Reason {
        let mut reason = reason.clone();
        if !self.declared.is_empty() {
            reason.message.push_str(&format!(" To answer, call {}.", self.declared.join(" or ")));
        }
        reason
    }
}

/// The names of the members that a JSON Schema of an object declares.
fn parameter_names(schema: &[u8]) -> Vec<String> {
    let schema: Value = serde_json::from_slice(schema).unwrap_or_default();
    let combined =
        ["allOf", "anyOf", "oneOf"].into_iter().filter_map(|name| schema[name].as_array()).flatten();
    let objects = std::iter::once(&schema).chain(combined);
    objects.filter_map(|schema| schema["properties"].as_object()).flat_map(|it| it.keys().cloned()).collect()
}

/// The judge with its mode, its exceptions and its record.
pub struct Judging {
    judge: Judge,
    answers: AnswerTools,
    /// Observe mode: decide and record, but release everything.
    observe: bool,
    /// What is judged is a final answer: calls that are not the answer are dropped. Choices are asked again one after
    /// the other, each for itself.
    landing: bool,
    /// The token with which the user may approve calls of this reply, in the conversation; without it no person can be
    /// asked.
    token: Option<String>,
    /// Calls that cannot be judged pass, also where policies restrict calls.
    pass_unjudged: bool,
    holding: Holding,
    /// For each choice with a blocked call, whether any tool is open to it.
    open_tools: Vec<OpenTool>,
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
        let (token, holding, record, open_tools) = (None, Holding::default(), Vec::new(), Vec::new());
        let extended = Extends::default();
        Self {
            judge,
            answers,
            observe,
            landing: false,
            token,
            pass_unjudged: false,
            holding,
            open_tools,
            extended,
            record,
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
        self.token = token;
        self
    }

    /// The tool that a call of `name` means, and its canonical arguments.
    pub(super) fn call_name(&self, name: &str, arguments: &str) -> (String, Hash) {
        (self.judge.meant(name).into_owned(), self.judge.arguments_hash(arguments))
    }

    /// Whether some calls need a person's approval.
    fn confirms(&self) -> bool {
        !self.observe && self.judge.confirming().is_some()
    }

    /// See [`Judge::approve`].
    pub fn approve(&mut self, approved: Option<Extends>) {
        self.judge.approve(approved);
    }

    /// Reads which parameters the tools of the request have, by which calls in the text of a final answer are recognised.
    pub fn read_parameters(&mut self, request: &Request, body: &[u8]) {
        if self.parameters.is_empty() {
            let tools =
                request.tools.iter().filter_map(|tool| Some((tool.full_name(body)?, tool.parameters?)));
            let read = tools.map(|(name, schema)| (name.into_owned(), parameter_names(schema.of(body))));
            self.parameters = read.collect();
        }
    }

    /// The model is asked for its final answer: only answers are released.
    pub fn land(&mut self) {
        self.landing = true;
    }

    /// The model is asked for another choice, which may call tools.
    pub fn go_on(&mut self) {
        self.landing = false;
    }

    /// Whether a call must be whole to be decided on. While observing, all must.
    pub fn needs_arguments(&mut self, choice: u32, name: &str) -> bool {
        if self.observe || wrapper::is_name(name) {
            return true;
        }
        if self.judge.restores(choice, name) {
            return true;
        }
        // A forced call may have to wait for an approval, and the person must see the whole call.
        let meant = self.judge.meant(name);
        let is_open = if self.holds() { self.is_operators(&meant) } else { self.answers.is_by_name(&meant) };
        // When asked for a final answer, the model may still have to answer with a call, and then the arguments
        // matter.
        if (self.landing && !self.answers.any) || (is_open && !self.judge.owns(name)) {
            return false;
        }
        let may_hold_calls = self.judge.restricts_calls() && wrapper::may_hold_calls(name);
        may_hold_calls || self.judge.needs_arguments(choice, name)
    }

    /// Whether a forced call needs a person's approval. A caller's `tool_choice` says what to call, not that a person
    /// agrees; tools that the operator named stay allowed.
    fn needs_approval_first(&self, name: &str, ruling: &Ruling) -> bool {
        self.confirms()
            && !self.is_operators(name)
            && ruling.objections.iter().any(|(_, reason)| reason.needs_approval())
    }

    fn is_operators(&self, name: &str) -> bool {
        self.answers.named.iter().any(|pattern| pattern.matches(name))
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
        let message = self.judge.confirming().map(Confirming::changed).unwrap_or_default();
        Reason::new(ReasonKind::Validation, message).retryable()
    }

    /// What the conversation has used of each limit, by policy.
    pub fn usage(&self, now_ms: u64) -> Vec<(&'static str, Usage)> {
        self.judge.usage(now_ms)
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
