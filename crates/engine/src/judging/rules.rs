//! What the policies say of a call of a reply, under every name that a client may assemble for it and for the calls within
//! it, with the exceptions of the request: answers stay allowed. Records nothing and holds no call.

use super::answers::AnswerTools;
use super::waiting::Past;
use super::wrapper::{
    MOST_CALLS, UNREADABLE, Wrapped, declared_arguments, is_name, may_hold_calls, objection, read, rewrite,
    unreadable,
};
use model::assembled::Assembled;
use model::plan::Reason;
use model::plan::decision::Decision;
use model::wrapper::{
    EmbeddedCall, InnerCall, WrappedCallCount, WrapperKind, embedded_calls, inner_calls, wrapped_call_count,
    wrapper_kind,
};
use policies::about::Confirming;
use policies::set::{Judge, Ruling};
use serde_json::Value;

/// See the file's head.
pub(super) struct CallRules {
    pub(super) judge: Judge,
    pub(super) answers: AnswerTools,
    /// Observe mode: decide and record, but release everything.
    pub(super) observe: bool,
    /// What is judged is a final answer: calls that are not the answer are dropped. Choices are asked again one after
    /// the other, each for itself.
    pub(super) landing: bool,
    /// The token with which the user may approve calls of this reply, in the conversation; without it no person can be
    /// asked.
    pub(super) token: Option<String>,
    /// For each choice with a blocked call, whether any tool is open to it.
    open_tools: Vec<OpenTool>,
}

/// The result of the last check whether any tool is open to a choice.
struct OpenTool {
    choice: u32,
    /// The index of a tool that was open.
    nth: usize,
    /// Whether any tool was open.
    is_any: bool,
}

impl CallRules {
    /// The rules of `judge`, which always allow `answers`.
    pub(super) fn new(judge: Judge, answers: AnswerTools, observe: bool) -> Self {
        Self { judge, answers, observe, landing: false, token: None, open_tools: Vec::new() }
    }

    /// Whether a reply waits for a person's decision on calls that need one.
    pub(super) fn holds(&self) -> bool {
        let waits = self.judge.confirming().and_then(Confirming::hold_ms).is_some();
        waits && !self.observe && self.token.is_some()
    }

    /// Whether some calls need a person's approval.
    pub(super) fn confirms(&self) -> bool {
        !self.observe && self.judge.confirming().is_some()
    }

    /// Whether a call must be whole to be decided on. While observing, all must.
    pub(super) fn needs_arguments(&mut self, choice: u32, name: &str) -> bool {
        if self.observe || is_name(name) {
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
        let may_hold_calls = self.judge.restricts_calls() && may_hold_calls(name);
        may_hold_calls || self.judge.needs_arguments(choice, name)
    }

    /// Whether a forced call needs a person's approval. A caller's `tool_choice` says what to call, not that a person
    /// agrees; tools that the operator named stay allowed.
    pub(super) fn needs_approval_first(&self, name: &str, ruling: &Ruling) -> bool {
        self.confirms()
            && !self.is_operators(name)
            && ruling.objections.iter().any(|(_, reason)| reason.needs_approval())
    }

    pub(super) fn is_operators(&self, name: &str) -> bool {
        self.answers.named.iter().any(|pattern| pattern.matches(name))
    }

    /// The ruling of all policies on `call`, under every name that a client may assemble for it.
    pub(super) fn ruling(
        &mut self,
        choice: u32,
        now_ms: u64,
        call: &Assembled,
        arguments: Option<&str>,
    ) -> Ruling {
        let name = call.name();
        if !call.has_other_names() || self.observe {
            return self.judge.rule(choice, &name, arguments, now_ms);
        }
        // Before the call itself counts: whatever its name, it is one call.
        let names = call.other_names();
        let objections =
            names.iter().flat_map(|name| self.objections_to_name(choice, name, arguments, now_ms));
        let objections: Vec<_> = objections.collect();
        if objections.is_empty() {
            return self.judge.rule(choice, &name, arguments, now_ms);
        }
        let checkpoint = self.judge.checkpoint(choice);
        let mut ruling = self.judge.rule(choice, &name, arguments, now_ms);
        if ruling.is_allowed() {
            self.judge.go_back(choice, checkpoint);
            ruling.objections = objections;
        }
        ruling
    }

    pub(super) fn objections_to_name(
        &mut self,
        choice: u32,
        name: &str,
        arguments: Option<&str>,
        now_ms: u64,
    ) -> Vec<(&'static str, Reason)> {
        if self.landing || self.answers.is_by_name(name) {
            return Vec::new();
        }
        let mut objections = self.judge.objections_to_reading(choice, name, arguments, now_ms);
        self.answers.exempt(&mut objections);
        objections
    }

    /// `reason` as the model is shown it. Where every tool is closed, the reason holds for every call of the turn,
    /// and the model is asked for its final answer at once.
    pub(super) fn shown(&mut self, choice: u32, reason: &Reason, now_ms: u64) -> Reason {
        let reason = self.answers.advise(reason);
        if self.closes_all(choice, now_ms) { reason.for_the_turn() } else { reason }
    }

    /// Whether every tool is closed that is no answer. Calls that are allowed may close more tools, so this is checked
    /// again after each of them. The check starts with the tool that was open the last time, so that the other tools are tried only
    /// when that one has closed.
    fn closes_all(&mut self, choice: u32, now_ms: u64) -> bool {
        let Some(tools) = self.judge.all_tools() else { return false };
        let known = self.open_tools.iter().position(|known| known.choice == choice);
        let at = known.unwrap_or_else(|| {
            self.open_tools.push(OpenTool { choice, nth: 0, is_any: true });
            self.open_tools.len() - 1
        });
        let OpenTool { nth, is_any, .. } = self.open_tools[at];
        if !is_any {
            return true;
        }
        let mut others = (nth..tools.len()).chain(0..nth.min(tools.len()));
        let open = others.find(|nth| tools.get(*nth).is_some_and(|name| !self.closes(choice, name, now_ms)));
        let known = &mut self.open_tools[at];
        (known.nth, known.is_any) = (open.unwrap_or(nth), open.is_some());
        open.is_none()
    }

    /// Whether a policy objects to the tool, whatever the arguments are, for a reason that does not pass with time.
    fn closes(&mut self, choice: u32, name: &str, now_ms: u64) -> bool {
        if self.answers.any {
            return false;
        }
        // The final-answer request forces it, so it needs no earlier re-ask.
        if self.answers.is_by_name(name) {
            return true;
        }
        let mut objections = self.judge.objections_by_name(choice, name, now_ms);
        self.answers.exempt(&mut objections);
        objections.iter().any(|(_, reason)| !reason.retryable && !reason.needs_approval())
    }

    /// The number of counted calls of `choice` has changed, so the check for an open tool must run again.
    pub(super) fn counts_anew(&mut self, choice: u32) {
        self.open_tools
            .iter_mut()
            .filter(|known| known.choice == choice)
            .for_each(|known| known.is_any = true);
    }

    /// The inner calls of `call`, if it is a wrapper call under one of the names that a client may read, or its arguments
    /// hold calls that a rule restricts.
    pub(super) fn wrapped(
        &mut self,
        (choice, now_ms): (u32, u64),
        call: &Assembled,
        arguments: &str,
        is_whole: bool,
    ) -> Option<Wrapped> {
        let by_name = self.wrapped_by_name((choice, now_ms), call, arguments, is_whole);
        if !self.judge.restricts_calls() || by_name.as_ref().is_some_and(|known| known.calls.is_empty()) {
            return by_name;
        }
        let unwritten = |calls| Wrapped { name: call.name(), arguments: Value::Null, calls };
        let Some(within) = self.restricted_within((choice, now_ms), call, arguments, is_whole) else {
            return Some(unwritten(Vec::new()));
        };
        let Some(mut wrapped) = by_name else {
            return (!within.is_empty()).then(|| unwritten(within));
        };
        let value = |text: &str| serde_json::from_str::<Value>(text).ok();
        let is_same = |one: &InnerCall, other: &InnerCall| {
            one.name == other.name && value(&one.arguments) == value(&other.arguments)
        };
        let is_new = |inner: &InnerCall| !wrapped.calls.iter().any(|known| is_same(known, inner));
        let new: Vec<InnerCall> = within.into_iter().filter(is_new).collect();
        wrapped.calls.extend(new);
        Some(wrapped)
    }

    /// The calls in the arguments of `call` that a rule restricts, where the tool runs calls of others by one of its names. A
    /// plan, a file or a ticket that another tool writes may describe calls, and nobody runs them. `None`: the arguments
    /// cannot be read, or clients differ in what they read.
    fn restricted_within(
        &mut self,
        (choice, now_ms): (u32, u64),
        call: &Assembled,
        arguments: &str,
        is_whole: bool,
    ) -> Option<Vec<InnerCall>> {
        let names = std::iter::once(call.name()).chain(call.other_names());
        let counts = names.filter(|name| !self.judge.owns(name)).filter_map(|name| wrapped_call_count(&name));
        let counts: Vec<WrappedCallCount> = counts.collect();
        if counts.is_empty() {
            return Some(Vec::new());
        }
        let found = read(arguments).and_then(|read| embedded_calls(&read));
        // Arguments that are still coming are looked at once more when they are whole.
        let Some(found) = found else { return (!is_whole).then(Vec::new) };
        let mut restricted: Vec<InnerCall> = Vec::new();
        for EmbeddedCall { name, arguments } in found {
            let may_run = arguments.is_some() || counts.contains(&WrappedCallCount::One);
            let arguments = arguments.unwrap_or_else(|| "{}".to_owned());
            if may_run && !self.judge.restrictions(choice, &name, &arguments, now_ms).is_empty() {
                restricted.push(InnerCall::alone(name, arguments));
            }
        }
        restricted.truncate(MOST_CALLS);
        Some(restricted)
    }

    /// The inner calls of `call`, if it is a wrapper call under one of the names that a client may read. Of a batch tool,
    /// inner calls that name no tool are its own arguments.
    fn wrapped_by_name(
        &mut self,
        (choice, now_ms): (u32, u64),
        call: &Assembled,
        arguments: &str,
        is_whole: bool,
    ) -> Option<Wrapped> {
        let names = std::iter::once(call.name()).chain(call.other_names());
        let kinds = names.filter_map(|name| Some((wrapper_kind(&name)?, name)));
        for (kind, name) in kinds {
            let is_parallel = kind == WrapperKind::Parallel;
            let Some(read) = read(arguments) else {
                // Some clients may accept such arguments nevertheless.
                let may_hide_calls = is_parallel || (is_whole && self.judge.restricts_calls());
                let unread = Wrapped { name, arguments: Value::Null, calls: Vec::new() };
                return may_hide_calls.then_some(unread);
            };
            let mut calls = inner_calls(&read);
            calls.retain(|inner| is_parallel || self.may_run(choice, now_ms, inner));
            // A client that has no such tool can only expand it.
            let must_be_wrapper = is_parallel && self.judge.restricts_calls() && !self.judge.declares(&name);
            if !calls.is_empty() || must_be_wrapper {
                return Some(Wrapped { name, arguments: read, calls });
            }
        }
        None
    }

    /// Whether a client may run `inner`: its tool is declared, or a policy names it.
    fn may_run(&mut self, choice: u32, now_ms: u64, inner: &InnerCall) -> bool {
        let (name, arguments) = (&inner.name, Some(&*inner.arguments));
        self.judge.declares(name)
            || !self.judge.objections_to_reading(choice, name, arguments, now_ms).is_empty()
    }

    /// Decides on a wrapper call; also gives its inner calls, each with what the policies say of it.
    pub(super) fn decide_wrapper(
        &mut self,
        (choice, now_ms): (u32, u64),
        call: &Assembled,
        wrapped: Wrapped,
        past: &Past,
    ) -> (Decision, Vec<(InnerCall, Ruling)>) {
        let Wrapped { name, mut arguments, calls } = wrapped;
        let checkpoint = self.judge.checkpoint(choice);
        // A wrapper within a wrapper is not read: a client may expand both.
        let is_readable =
            (1..=MOST_CALLS).contains(&calls.len()) && !calls.iter().any(|call| is_name(&call.name));
        let is_readable =
            is_readable && !(self.judge.restricts_calls() && calls.iter().any(|call| call.is_ambiguous));
        let mut block = (!is_readable).then(|| (UNREADABLE, unreadable()));
        // Before the inner calls count: the wrapper is no call beside them.
        let whole = call.arguments();
        let own = self.judge.objections_to_reading(choice, &name, declared_arguments(&name, &whole), now_ms);
        let mut rulings: Vec<Ruling> = Vec::new();
        for (index, call) in calls.iter().take(MOST_CALLS).enumerate() {
            self.judge.set_reserved(past.reserved(index));
            let mut ruling = self.judge.rule(choice, &call.name, Some(&call.arguments), now_ms);
            if self.answers.is_by_name(&call.name) && !ruling.own {
                ruling = Ruling { passed: ruling.passed, ..ruling.of_answer() };
            }
            self.answers.exempt(&mut ruling.objections);
            block = block.or_else(|| objection(&call.name, &ruling));
            rulings.push(ruling);
        }
        let block = block.or_else(|| own.into_iter().next());
        let is_changed = rewrite(&mut arguments, &calls, &rulings);
        let decision = match block {
            _ if self.observe => Decision::Release,
            _ if self.landing => Decision::Drop,
            Some((policy, reason)) => Decision::Block { policy, reason: self.shown(choice, &reason, now_ms) },
            None if is_changed => Decision::Rewrite { arguments: arguments.to_string() },
            None => Decision::Release,
        };
        if decision.is_released() {
            self.counts_anew(choice);
        } else {
            self.judge.go_back(choice, checkpoint);
        }
        (decision, calls.into_iter().zip(rulings).collect())
    }
}
