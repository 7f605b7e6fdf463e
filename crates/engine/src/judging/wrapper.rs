//! Wrapper calls: `multi_tool_use.parallel` and batch tools, whose arguments hold the calls that clients run instead
//! (LiteLLM's client library, the Vercel AI SDK and coding agents do; OpenAI's models write the first now and then). Each
//! inner call is judged and counted in the wrapper's place, and a blocked one blocks all. So does a call that a rule
//! restricts anywhere in the arguments of a tool that runs others by its name.

use model::assembled::Assembled;
use model::plan::{Reason, ReasonKind};
use model::wrapper::{InnerCall, WrapperKind, inner_calls, wrapped_call_count, wrapper_kind};
use policies::conditions::is_certain;
use policies::set::Ruling;
use serde_json::Value;

/// Most calls in a wrapper: as many as OpenAI allows in a message.
pub(super) const MOST_CALLS: usize = 128;
/// The policy that objects to a wrapper whose calls cannot be read.
pub(super) const UNREADABLE: &str = "arguments";

/// The inner calls of a wrapper, and its arguments, which are written again where a policy changes an inner call.
pub(super) struct Wrapped {
    pub(super) name: String,
    pub(super) arguments: Value,
    pub(super) calls: Vec<InnerCall>,
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
pub(super) fn read(arguments: &str) -> Option<Value> {
    let value: Value = serde_json::from_str(arguments).ok()?;
    // Where a member occurs twice, programs differ in which one they read; and some read a string as JSON again.
    let is_unambiguous = if value.is_object() { is_certain(arguments) } else { !value.is_string() };
    is_unambiguous.then_some(value)
}

/// A call that a client expands a wrapper to.
pub struct ExpandedCall {
    /// As LiteLLM's client library gives it: the id of the wrapper, and its index there.
    pub id: String,
    pub name: String,
    /// JSON text.
    pub arguments: String,
}

/// The calls that clients expand `call` to, if it is a wrapper.
pub fn expanded_calls(call: &Assembled) -> Vec<ExpandedCall> {
    let arguments = wrapper_kind(&call.name()).and_then(|_| read(&call.arguments()));
    let inner = arguments.as_ref().map(inner_calls).unwrap_or_default().into_iter();
    let made = inner.map(|InnerCall { name, arguments, index, .. }| ExpandedCall {
        id: format!("{}_{index}", call.id()),
        name,
        arguments,
    });
    made.collect()
}

/// The arguments by which the wrapper itself is judged: those of a batch tool, which the request declares with a schema.
pub(super) fn declared_arguments<'a>(name: &str, arguments: &'a str) -> Option<&'a str> {
    Some(arguments).filter(|_| !needs_no_declaration(name))
}

/// Why an inner call is not run as it is, with the policy that objects.
pub(super) fn objection(name: &str, ruling: &Ruling) -> Option<(&'static str, Reason)> {
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
pub(super) fn rewrite(arguments: &mut Value, calls: &[InnerCall], rulings: &[Ruling]) -> bool {
    let mut is_changed = false;
    for (call, ruling) in calls.iter().zip(rulings) {
        if let Some((_, text)) = &ruling.rewritten {
            is_changed |= call.rewrite(arguments, text);
        }
    }
    is_changed
}

pub(super) fn unreadable() -> Reason {
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
