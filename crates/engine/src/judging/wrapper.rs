//! Wrapper calls: `multi_tool_use.parallel` and batch tools, whose arguments hold the calls that clients run instead
//! (LiteLLM's client library, the Vercel AI SDK and coding agents do; OpenAI's models write the first now and then). Each
//! inner call is judged and counted in the wrapper's place, and a blocked one blocks all. So does a call that a rule
//! restricts anywhere in the arguments of a tool that runs others by its name.

use super::{Judged, Judging};
use model::assembled::Assembled;
use model::plan::decision::Decision;
use model::plan::{Reason, ReasonKind};
use model::wrapper::{
    EmbeddedCall, InnerCall, WrappedCallCount, WrapperKind, embedded_calls, inner_calls, wrapped_call_count,
    wrapper_kind,
};
use policies::conditions::is_certain;
use policies::set::Ruling;
use serde_json::Value;

/// Most calls in a wrapper: as many as OpenAI allows in a message.
const MOST_CALLS: usize = 128;
/// The policy that objects to a wrapper whose calls cannot be read.
const UNREADABLE: &str = "arguments";

/// The inner calls of a wrapper, and its arguments, which are written again where a policy changes an inner call.
pub(super) struct Wrapped {
    name: String,
    arguments: Value,
    calls: Vec<InnerCall>,
}

/// Whether a call of the tool `name` may be a wrapper.
pub(super) fn is_name(name: &str) -> bool {
    wrapper_kind(name).is_some()
}

/// Whether the arguments of a call of `name` may hold calls.
pub(super) fn may_hold_calls(name: &str) -> bool {
    is_name(name) || wrapped_call_count(name).is_some()
}

/// Whether clients expand calls of `name` although no request declares such a tool.
pub(super) fn needs_no_declaration(name: &str) -> bool {
    wrapper_kind(name) == Some(WrapperKind::Parallel)
}

/// The arguments of a wrapper call; `None` where programs may read them in several ways.
fn read(arguments: &str) -> Option<Value> {
    let value: Value = serde_json::from_str(arguments).ok()?;
    // Where a member occurs twice, programs differ in which one they read; and some read a string as JSON again.
    let is_unambiguous = if value.is_object() { is_certain(arguments) } else { !value.is_string() };
    is_unambiguous.then_some(value)
}

/// A call that a client expands a wrapper to.
pub struct Made {
    /// As LiteLLM's client library gives it: the id of the wrapper, and its index there.
    pub id: String,
    pub name: String,
    /// JSON text.
    pub arguments: String,
}

/// The calls that clients expand `call` to, if it is a wrapper.
pub fn made_of(call: &Assembled) -> Vec<Made> {
    let arguments = wrapper_kind(&call.name()).and_then(|_| read(&call.arguments()));
    let inner = arguments.as_ref().map(inner_calls).unwrap_or_default().into_iter();
    let made = inner.map(|InnerCall { name, arguments, index, .. }| Made {
        id: format!("{}_{index}", call.id()),
        name,
        arguments,
    });
    made.collect()
}

impl Judging {
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

    /// Decides on a wrapper call.
    pub(super) fn decide_wrapper(
        &mut self,
        choice: u32,
        now_ms: u64,
        call: &Assembled,
        wrapped: Wrapped,
    ) -> Decision {
        let id = call.id();
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
        for call in calls.iter().take(MOST_CALLS) {
            let mut ruling = self.judge.rule(choice, &call.name, Some(&call.arguments), now_ms);
            if self.answers.is_by_name(&call.name) && !ruling.own {
                ruling = ruling.of_answer();
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
        for (call, ruling) in calls.into_iter().zip(rulings) {
            if decision.is_released() {
                self.note_reworded(&call.name, &ruling);
            }
            let (decision, objections) = (decision.clone(), ruling.objections);
            let (id, acts, re_request, unjudged) = (id.clone(), Vec::new(), None, false);
            self.record.push(Judged {
                tool: call.name,
                id,
                decision,
                objections,
                acts,
                re_request,
                unjudged,
            });
        }
        decision
    }
}

/// The arguments by which the wrapper itself is judged: those of a batch tool, which the request declares with a schema.
fn declared_arguments<'a>(name: &str, arguments: &'a str) -> Option<&'a str> {
    Some(arguments).filter(|_| !needs_no_declaration(name))
}

/// Why an inner call is not run as it is, with the policy that objects.
fn objection(name: &str, ruling: &Ruling) -> Option<(&'static str, Reason)> {
    if let Some((policy, reason)) = ruling.objections.first() {
        return Some((policy, reason.clone()));
    }
    let (policy, _) = ruling.answer.as_ref()?;
    if let Some(clarification) = &ruling.clarification {
        return Some((policy, clarification.put_off.clone()));
    }
    if ruling.own {
        let message =
            format!("The calls were not run: {name} cannot be called together with others. Call it alone.");
        return Some((policy, Reason::new(ReasonKind::Validation, message).retryable()));
    }
    let message = format!(
        "The calls were not run: the result of the call of {name} is known. Make the others without it."
    );
    Some((policy, Reason::new(ReasonKind::Duplicate, message).retryable()))
}

/// Writes the inner arguments that policies changed into `arguments`; returns whether there were any.
fn rewrite(arguments: &mut Value, calls: &[InnerCall], rulings: &[Ruling]) -> bool {
    let mut is_changed = false;
    for (call, ruling) in calls.iter().zip(rulings) {
        if let Some((_, text)) = &ruling.rewritten {
            is_changed |= call.rewrite(arguments, text);
        }
    }
    is_changed
}

fn unreadable() -> Reason {
    let message = format!(
        "The calls were not run: the arguments are not JSON with 1 to {MOST_CALLS} calls. Make the calls one by one."
    );
    Reason::new(ReasonKind::Validation, message).retryable()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_of_our_own_tool_is_to_be_made_alone() {
        let ruling = Ruling { own: true, answer: Some(("read_more", "{}".to_owned())), ..Ruling::default() };
        let (_, reason) = objection("read_more", &ruling).unwrap();
        assert!(reason.retryable && reason.message.contains("Call it alone"), "{reason:?}");
    }
}
