//! One call that stands for several: `multi_tool_use.parallel` and `parallel`, whose arguments hold the calls that
//! clients run in its place (LiteLLM's client library and the Vercel AI SDK do; OpenAI's models write it now and then).
//! Each of them is judged, and one that is blocked blocks all.

use super::{Decision, Judged, Judging};
use crate::policy::plan::{Reason, ReasonKind};
use crate::policy::set::Ruling;
use crate::transcript::names::dispatch_form;
use crate::wire::assemble::Assembled;
use serde_json::Value;

/// The name under which clients look for such calls, without its namespace.
const NAME: &str = "parallel";
/// Most calls in one: as many as OpenAI allows in a message.
const MOST_CALLS: usize = 128;
/// Who objects to a call whose calls cannot be read.
const UNREADABLE: &str = "arguments";

/// The calls within a call, and its arguments, to be written again where a policy changes one of them.
pub(super) struct Wrapped {
    arguments: Value,
    calls: Vec<Inner>,
}

struct Inner {
    name: String,
    arguments: String,
    /// Where it is in the list.
    place: usize,
}

/// Whether a call of the tool `name` may stand for several.
pub(super) fn is_name(name: &str) -> bool {
    dispatch_form(name) == NAME
}

/// The calls that a call of the tool `name` with these `arguments` stands for; `None` where it is an ordinary call.
pub(super) fn calls(name: &str, arguments: &str) -> Option<Wrapped> {
    if !is_name(name) {
        return None;
    }
    let Ok(arguments) = serde_json::from_str::<Value>(arguments) else {
        // Some readers may take it all the same.
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

/// A call that a client makes of another one.
pub struct Made {
    /// As LiteLLM's client library gives it: the id of the call that it was in, and its place there.
    pub id: String,
    pub name: String,
    /// JSON text.
    pub arguments: String,
}

/// The calls that clients make of `call`: those within it, if it stands for several.
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
    /// Decides on a call that stands for several.
    pub(super) fn decide_wrapper(
        &mut self,
        (choice, now_ms): (u32, u64),
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
                ruling = Ruling::default();
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
            Some((policy, reason)) => Decision::Withhold { policy, reason: self.answers.advise(&reason) },
            None if is_changed => Decision::Rewrite { arguments: arguments.to_string() },
            None => Decision::Release,
        };
        if !decision.is_released() {
            self.judge.go_back(choice, checkpoint);
        }
        for (call, ruling) in calls.into_iter().zip(rulings) {
            let (decision, objections) = (decision.clone(), ruling.objections);
            let (id, acts, regret, unjudged) = (id.clone(), Vec::new(), None, false);
            self.record.push(Judged { tool: call.name, id, decision, objections, acts, regret, unjudged });
        }
        decision
    }
}

/// Why a call within another is not run as it is, with the policy that says so.
fn objection(name: &str, ruling: &Ruling) -> Option<(&'static str, Reason)> {
    if let Some((policy, reason)) = ruling.objections.first() {
        return Some((policy, reason.clone()));
    }
    let (policy, _) = ruling.answer.as_ref()?;
    let message = format!(
        "The calls were not run: the result of the call of {name} is known. Make the others without it."
    );
    Some((policy, Reason::new(ReasonKind::Duplicate, message).retryable()))
}

/// Writes into `arguments` what policies made of the calls' own; whether there was any of it.
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
        "The calls were not run: the arguments are not JSON that holds 1 to {MOST_CALLS} calls. Make the calls one by one."
    );
    Reason::new(ReasonKind::Validation, message).retryable()
}
