//! Wrapper calls: `multi_tool_use.parallel` and `parallel`, whose arguments hold the calls that clients run instead
//! (LiteLLM's client library and the Vercel AI SDK do; OpenAI's models write it now and then). Each inner call is
//! judged, and a blocked one blocks all.

use super::{Judged, Judging};
use crate::conversation::assembled::Assembled;
use crate::conversation::names::dispatch_form;
use crate::plan::decision::Decision;
use crate::plan::{Reason, ReasonKind};
use crate::policy::conditions::is_certain;
use crate::policy::set::Ruling;
use serde_json::Value;

/// The name by which clients recognise wrapper calls, without its namespace.
const NAME: &str = "parallel";
/// Most calls in a wrapper: as many as OpenAI allows in a message.
const MOST_CALLS: usize = 128;
/// The policy that objects to a wrapper whose calls cannot be read.
const UNREADABLE: &str = "arguments";

/// The inner calls of a wrapper, and its arguments, which are written again where a policy changes an inner call.
pub(super) struct Wrapped {
    arguments: Value,
    calls: Vec<Inner>,
}

struct Inner {
    name: String,
    arguments: String,
    /// Its index in the list.
    place: usize,
}

/// Whether a call of the tool `name` may be a wrapper.
pub(super) fn is_name(name: &str) -> bool {
    dispatch_form(name) == NAME
}

/// The inner calls of a call of the tool `name` with these `arguments`; `None` if it is an ordinary call.
pub(super) fn calls(name: &str, arguments: &str) -> Option<Wrapped> {
    if !is_name(name) {
        return None;
    }
    let readable = serde_json::from_str::<Value>(arguments).ok();
    // Where a member occurs twice, programs differ in which one they read.
    let Some(arguments) = readable.filter(|value| !value.is_object() || is_certain(arguments)) else {
        // Some clients may accept such arguments nevertheless.
        return Some(Wrapped { arguments: Value::Null, calls: Vec::new() });
    };
    let inner = |(place, call): (usize, &Value)| {
        let name = call.get("recipient_name")?.as_str()?;
        let arguments = call.get("parameters").map_or_else(|| "{}".to_owned(), ToString::to_string);
        Some(Inner { name: name.strip_prefix("functions.").unwrap_or(name).to_owned(), arguments, place })
    };
    let calls: Vec<Inner> =
        arguments.get("tool_uses")?.as_array()?.iter().enumerate().filter_map(inner).collect();
    (!calls.is_empty()).then_some(Wrapped { arguments, calls })
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
    let wrapped = calls(&call.name(), &call.arguments());
    let inner = wrapped.map(|wrapped| wrapped.calls).unwrap_or_default().into_iter();
    let made = inner.map(|Inner { name, arguments, place }| Made {
        id: format!("{}_{place}", call.id()),
        name,
        arguments,
    });
    made.collect()
}

impl Judging {
    /// Decides on a wrapper call.
    pub(super) fn decide_wrapper(
        &mut self,
        choice: u32,
        now_ms: u64,
        call: &Assembled,
        wrapped: Wrapped,
    ) -> Decision {
        let (name, id) = (call.name(), call.id());
        let Wrapped { mut arguments, calls } = wrapped;
        let checkpoint = self.judge.checkpoint(choice);
        let is_readable = (1..=MOST_CALLS).contains(&calls.len());
        let mut block = (!is_readable).then(|| (UNREADABLE, unreadable()));
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
        let own = self.judge.objections_to_reading(choice, &name, None, now_ms);
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
fn rewrite(arguments: &mut Value, calls: &[Inner], rulings: &[Ruling]) -> bool {
    let mut is_changed = false;
    for (call, ruling) in calls.iter().zip(rulings) {
        if let Some((_, text)) = &ruling.rewritten
            && let (Some(inner), Ok(value)) =
                (arguments["tool_uses"].get_mut(call.place), serde_json::from_str(text))
        {
            inner["parameters"] = value;
            is_changed = true;
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
