//! The judge of one reply: combines every policy's verdict on each of its calls. Each choice is judged on its own.
//! Knows the order of policies and nothing of what they do.

mod open;
mod passed;
mod readings;

use super::{Fold, Folds, PolicySet, Ruling};
use crate::RequestView;
use crate::about::Confirming;
use model::account::SCOPES;
use model::calls::canonical_hash;
use model::identity::{Hash, HashKey};
use model::names::DeclaredNames;
use model::plan::placeholders::Placeholders;
use model::plan::{
    CallEffect, CallResults, Extends, ModelQuestion, OpenTools, Plan, Proposed, Reason, ReasonKind,
    Reservation, ReservationResult, Reworded, Usage, Verdict, envelope,
};
use open::is_open;
use passed::PassedCall;
use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

/// See the module.
pub struct Judge {
    folds: Folds,
    /// The folds after each choice's calls, by choice index.
    choices: Vec<(u32, Folds)>,
    key: HashKey,
    /// The tools that the request declares.
    declared: Arc<[String]>,
    /// The same in order; made at the first call.
    names: OnceLock<DeclaredNames<String>>,
    /// More may be declared where toolrein does not see them.
    declares_elsewhere: bool,
    /// See [`Request::hosts_shell`](model::request::Request::hosts_shell).
    pub hosts_shell: bool,
    /// The tools of ours, each with the index of the fold that alone judges its calls.
    own: Vec<(&'static str, usize)>,
    confirming: Option<Arc<Confirming>>,
    /// Other models may be asked about calls, or toolrein may run their tools.
    waits_for_others: bool,
    /// Limits over several conversations may count calls.
    reserves: bool,
    /// Shared, since it is read while the folds are in use.
    results: Arc<CallResults>,
    longest_wait_ms: u64,
    /// The values that the model must not read, and the index of the fold that puts them back into calls.
    hidden: Option<(Arc<Placeholders>, usize)>,
    /// A person has approved the calls that follow, and that these limits are extended for them.
    approved: Option<Extends>,
    /// See [`PolicySet::restricts_calls`] and [`Plan::restrict_calls`].
    restricts: bool,
    /// The calls that were let through, where one may have to be judged again.
    passed: Vec<PassedCall>,
    /// The number of the next of them.
    next_passed: u32,
}

impl Judge {
    /// The judge of the reply to the request `request`, which `folds` have read.
    pub(super) fn new(set: &PolicySet, request: &RequestView<'_>, folds: Folds, plan: &Plan) -> Self {
        let place = |policy: &str| set.names().position(|name| name == policy);
        Self {
            folds,
            choices: Vec::new(),
            key: request.transcript.identity.key.clone(),
            declared: Arc::clone(&request.names),
            names: OnceLock::new(),
            declares_elsewhere: request.transcript.request.declares_elsewhere,
            hosts_shell: request.transcript.request.hosts_shell,
            own: plan.own_tools().filter_map(|(name, policy)| Some((name, place(policy)?))).collect(),
            confirming: set.confirming.clone(),
            waits_for_others: set.waits_for_others,
            reserves: set.reserves_calls,
            results: Arc::default(),
            longest_wait_ms: set.longest_wait_ms,
            hidden: plan
                .hidden_values()
                .and_then(|(policy, values)| Some((Arc::clone(values), place(policy)?))),
            approved: None,
            restricts: set.restricts_calls() || plan.restricts_calls(),
            passed: Vec::new(),
            next_passed: 0,
        }
    }

    /// Whether the arguments of a call of the tool `name` in `choice` must be known before all policies can judge it.
    pub fn needs_arguments(&mut self, choice: u32, name: &str) -> bool {
        let name = &*self.meant(name).into_owned();
        if self.owns(name) {
            return true;
        }
        // A person who is asked while the reply waits is shown the whole call.
        let asks = self.confirming().and_then(Confirming::hold_ms).is_some();
        // Whether arguments are needed does not depend on the time.
        let results = &CallResults::default();
        let open = OpenTools::all();
        let call = Proposed { name, arguments: None, arguments_hash: None, now_ms: 0, results, open };
        let needs = |verdict| match verdict {
            Verdict::NeedsArguments => true,
            Verdict::Pending(CallEffect::Approve(_)) => asks,
            _ => false,
        };
        self.folds_of(choice).iter().any(|fold| needs(fold.judge(&call)))
    }

    /// Whether hidden values may be put back into a call of the tool `name`, so that its arguments must be known.
    pub fn restores(&mut self, choice: u32, name: &str) -> bool {
        let Some((_, fold)) = self.hidden else { return false };
        let name = &*self.meant(name).into_owned();
        let results = Arc::clone(&self.results);
        let (results, open) = (&*results, OpenTools::all());
        let call = Proposed { name, arguments: None, arguments_hash: None, now_ms: 0, results, open };
        self.folds_of(choice)[fold].judge(&call) == Verdict::NeedsArguments
    }

    /// The declared tool that a call of `name` means; `name` itself where there is none.
    pub fn meant<'a>(&'a self, name: &'a str) -> Cow<'a, str> {
        self.names().meant(name).unwrap_or(name).into()
    }

    fn names(&self) -> &DeclaredNames<String> {
        self.names.get_or_init(|| DeclaredNames::new(self.declared.iter().cloned()))
    }

    /// See [`PolicySet::confirming`].
    pub fn confirming(&self) -> Option<&Confirming> {
        self.confirming.as_deref()
    }

    /// The longest that calls are held: see [`EngineService::HoldCalls`](crate::about::EngineService::HoldCalls).
    pub fn longest_wait_ms(&self) -> u64 {
        self.longest_wait_ms
    }

    /// Whether a person has approved the calls that follow: then no policy objects for lack of approval, unless a limit
    /// would have to be extended that is not among these.
    pub fn approve(&mut self, approved: Option<Extends>) {
        self.approved = approved;
    }

    /// What [`Self::approve`] has set.
    pub fn approved(&self) -> Option<Extends> {
        self.approved
    }

    /// See [`Self::approve`].
    pub fn is_approved(&self) -> bool {
        self.approved.is_some()
    }

    /// Judges the next call of `choice`: a call of the tool `name` with `arguments`, where they are known.
    pub fn rule(&mut self, choice: u32, name: &str, arguments: Option<&str>, now_ms: u64) -> Ruling {
        let mut ruling = self.rule_openly(choice, name, arguments, now_ms);
        if let Some((hidden, _)) = &self.hidden {
            ruling.hide(hidden);
        }
        ruling
    }

    /// The same; hidden values may occur in what the model reads of it.
    fn rule_openly(&mut self, choice: u32, name: &str, arguments: Option<&str>, now_ms: u64) -> Ruling {
        let (key, approved) = (self.key.clone(), self.approved);
        let results = Arc::clone(&self.results);
        let results = &*results;
        let name = &*self.meant(name).into_owned();
        let mut arguments_hash = arguments.map(|text| canonical_hash(text, &key));
        let mut arguments = arguments.map(Cow::Borrowed);
        if let Some(owner) = self.owner(name) {
            return self.rule_own(owner, choice, name, arguments.as_deref(), now_ms);
        }
        let mut ruling = Ruling::default();
        let restoring = self.hidden.as_ref().map(|(_, fold)| *fold);
        let folds = self.folds_of(choice);
        let is_open = |tool: &str| is_open(folds, tool, now_ms);
        for (at, fold) in folds.iter().enumerate() {
            let open = OpenTools::new(&is_open);
            let call =
                Proposed { name, arguments: arguments.as_deref(), arguments_hash, now_ms, results, open };
            let new_arguments = match fold.judge(&call) {
                Verdict::Answer { content, .. } => {
                    ruling.answer.get_or_insert((fold.name(), content));
                    None
                }
                Verdict::Modify(text) => Some(text),
                Verdict::Reword(reworded) => Some(ruling.note(fold.name(), reworded)),
                Verdict::Pending(CallEffect::AskModel { question, meanwhile }) => {
                    ruling.question.get_or_insert((fold.name(), question));
                    meanwhile.map(|reworded| ruling.note(fold.name(), reworded))
                }
                Verdict::Pending(CallEffect::CallTool(run)) => {
                    ruling.tool_run.get_or_insert((fold.name(), run));
                    None
                }
                Verdict::Pending(CallEffect::Reserve(reservation)) => {
                    ruling.reservations.push(reservation);
                    None
                }
                Verdict::Pending(CallEffect::Approve(reason)) if covers(approved, &reason) => {
                    let extends = reason.asks.map_or([false; SCOPES], |(_, extends)| extends);
                    ruling.extends = std::array::from_fn(|scope| ruling.extends[scope] || extends[scope]);
                    None
                }
                other => {
                    ruling.objections.extend(objection(&**fold, other, approved));
                    None
                }
            };
            if let Some(text) = new_arguments {
                arguments_hash = Some(canonical_hash(&text, &key));
                arguments = Some(Cow::Owned(text.clone()));
                if restoring == Some(at) {
                    ruling.restored = Some((fold.name(), text.clone()));
                }
                ruling.rewritten = Some((fold.name(), text));
            }
        }
        // A call that toolrein has run counts as one that the client makes.
        let has_run = ruling.objections.is_empty() && results.executed().is_some();
        if ruling.is_allowed() || has_run {
            let open = OpenTools::all();
            let call =
                Proposed { name, arguments: arguments.as_deref(), arguments_hash, now_ms, results, open };
            for fold in folds {
                fold.release(&call);
            }
            ruling.passed = self.keep_passed(choice, &call);
        }
        ruling
    }

    /// The same for a call of a tool of ours, whose policy has the index `owner`.
    fn rule_own(
        &mut self,
        owner: usize,
        choice: u32,
        name: &str,
        arguments: Option<&str>,
        now_ms: u64,
    ) -> Ruling {
        let arguments_hash = arguments.map(|text| self.arguments_hash(text));
        let (results, open) = (Arc::clone(&self.results), OpenTools::all());
        let call = Proposed { name, arguments, arguments_hash, now_ms, results: &results, open };
        let mut ruling = rule_alone(&mut *self.folds_of(choice)[owner], &call);
        if ruling.answer.is_some() {
            ruling.passed = self.keep_passed(choice, &call);
        }
        ruling
    }

    /// Takes the answer of another model to `question`; `None`: there is none.
    pub fn learn(&mut self, question: ModelQuestion, answer: Option<Arc<str>>) {
        Arc::make_mut(&mut self.results).learn(question, answer);
    }

    /// Sets what the tool gave that toolrein ran for the call which is judged next; the inner `None`: it failed.
    pub fn set_executed(&mut self, executed: Option<Option<Arc<str>>>) {
        Arc::make_mut(&mut self.results).set_executed(executed);
    }

    /// Sets what became of the reservations of the call that is judged next.
    pub fn set_reserved(&mut self, reserved: Vec<(Reservation, ReservationResult)>) {
        if self.reserves {
            Arc::make_mut(&mut self.results).set_reserved(reserved);
        }
    }

    /// The hash of arguments, equal for every form of the same JSON.
    pub fn arguments_hash(&self, arguments: &str) -> Hash {
        canonical_hash(arguments, &self.key)
    }

    /// Whether `name` is a tool of ours.
    pub fn owns(&self, name: &str) -> bool {
        self.owner(name).is_some()
    }

    /// What the conversation has used of each limit, by policy.
    pub fn usage(&self, now_ms: u64) -> Vec<(&'static str, Usage)> {
        // With the calls of the reply, where one has been judged.
        let folds = self.choices.first().map_or(&self.folds, |(_, folds)| folds);
        let mut named = Vec::new();
        for fold in folds {
            named.extend(fold.usage(now_ms).into_iter().map(|usage| (fold.name(), usage)));
        }
        named
    }

    /// The index of the fold that alone judges calls of the tool `name`, where it is one of ours.
    fn owner(&self, name: &str) -> Option<usize> {
        self.own.iter().find(|(own, _)| *own == name).map(|(_, owner)| *owner)
    }

    fn folds_of(&mut self, choice: u32) -> &mut Folds {
        let known = self.choices.iter().position(|(index, _)| *index == choice);
        let at = known.unwrap_or_else(|| {
            let forked = self.folds.iter().map(|fold| fold.fork()).collect();
            self.choices.push((choice, forked));
            self.choices.len() - 1
        });
        &mut self.choices[at].1
    }
}

impl Ruling {
    /// Notes a text that `policy` wrote anew; returns the arguments with it.
    fn note(&mut self, policy: &'static str, reworded: Reworded) -> String {
        self.reworded = reworded.shown.map(|shown| (policy, shown));
        reworded.arguments
    }
}

/// Whether what a person has `approved` is all that `reason` wants an approval for.
fn covers(approved: Option<Extends>, reason: &Reason) -> bool {
    let wanted = reason.asks.as_ref().map_or([false; SCOPES], |(_, extends)| *extends);
    approved.is_some_and(|shown| wanted.iter().zip(shown).all(|(wanted, shown)| !wanted || shown))
}

/// What `fold` objects by its verdict; what a person has `approved` is no objection.
fn objection(fold: &dyn Fold, verdict: Verdict, approved: Option<Extends>) -> Option<(&'static str, Reason)> {
    match verdict {
        Verdict::Block(reason) => Some((fold.name(), reason)),
        Verdict::Pending(CallEffect::Sleep(ms, reason)) => {
            Some((fold.name(), Reason { wait_ms: Some(ms), ..reason }))
        }
        Verdict::Pending(CallEffect::Approve(reason)) if !covers(approved, &reason) => {
            Some((fold.name(), Reason { kind: ReasonKind::ConfirmationRequired, ..reason }))
        }
        _ => None,
    }
}

/// The ruling on a call of the policy's own tool.
fn rule_alone(owner: &mut dyn Fold, call: &Proposed<'_>) -> Ruling {
    let mut ruling = Ruling { own: true, ..Ruling::default() };
    match owner.judge(call) {
        Verdict::Answer { content, re_requests } => {
            ruling.re_request = re_requests;
            ruling.answer = Some((owner.name(), content));
            owner.release(call);
        }
        Verdict::Clarify(clarification) => {
            ruling.answer = Some((owner.name(), envelope(owner.name(), &clarification.put_off)));
            ruling.clarification = Some(clarification);
            owner.release(call);
        }
        other => ruling.objections.extend(objection(owner, other, None)),
    }
    ruling
}
