//! The live blocks of a recording, as plain data: arguments, rule, how much of the limit was used, the sentence that
//! the model read, and what it did next. Pairs what was recorded; decides nothing.

use super::facts::{LiveBlock, Rule};
use crate::replay::live::{Live, LiveCall, LiveLimit, LiveObjection, Said, SaidCall};
use serde_json::Value;

/// The calls of live requests that were not simply released, and refused requests, in order.
pub(super) fn blocks(live: &[Live]) -> Vec<LiveBlock> {
    let mut blocks = Vec::new();
    for (at, one) in live.iter().enumerate() {
        let later = live.get(at + 1);
        blocks.extend(refused(one));
        for call in one.calls.iter().filter(|call| call.verdict != "allow" || !call.objections.is_empty()) {
            blocks.push(block(one, call, later));
        }
    }
    blocks
}

fn block(live: &Live, call: &LiveCall, later: Option<&Live>) -> LiveBlock {
    let is_it = |said: &SaidCall| said.id == call.id && (said.tool == call.tool || !call.id.is_empty());
    let said_in = live.said.iter().position(|said| said.calls.iter().any(is_it));
    let said = said_in.and_then(|at| live.said[at].calls.iter().find(|said| is_it(said)));
    // If the call was blocked beside other calls, the model reads its result in the next request, together with the
    // results of those calls.
    let next = match said_in {
        Some(at) if at < live.reasks => live.said.get(at + 1),
        Some(_) => later.and_then(|later| later.said.first()),
        // No recording has the exchange, so what the client got is what came after it.
        None => live.said.last(),
    };
    LiveBlock {
        time: live.time.clone(),
        request_id: live.request_id.clone(),
        message: live.history,
        mode: live.mode.clone(),
        tool: Some(call.tool.clone()),
        verdict: call.verdict.clone(),
        arguments: said.map(|said| said.arguments.clone()),
        rules: call.objections.iter().map(|objection| rule(live, call, objection)).collect(),
        read: said.and_then(|said| said.result.as_deref()).map(sentence),
        next: next.and_then(described),
    }
}

fn refused(live: &Live) -> Option<LiveBlock> {
    let refusal = live.refusal.as_ref()?;
    let rule = Rule {
        policy: refusal.policy.clone(),
        reason: refusal.code.clone(),
        message: refusal.message.clone(),
        used: None,
        limit: None,
    };
    Some(LiveBlock {
        time: live.time.clone(),
        request_id: live.request_id.clone(),
        message: live.history,
        mode: live.mode.clone(),
        tool: None,
        verdict: "refuse".to_owned(),
        arguments: None,
        rules: vec![rule],
        read: None,
        next: None,
    })
}

/// The rule with its limit: that of the tool, else that of all.
fn rule(live: &Live, call: &LiveCall, objection: &LiveObjection) -> Rule {
    let of = |tool: &str| {
        let is_its =
            |limit: &&LiveLimit| limit.policy.as_ref() == Some(&objection.policy) && limit.tool == tool;
        live.limits.iter().find(is_its)
    };
    let limit = of(&call.tool).or_else(|| of("*"));
    Rule {
        policy: objection.policy.clone(),
        reason: objection.reason.clone(),
        message: objection.message.clone(),
        used: limit.map(|limit| limit.used),
        limit: limit.map(|limit| limit.limit),
    }
}

/// The sentence in a result of toolrein's; the whole result where it is none.
fn sentence(result: &str) -> String {
    let read: Option<Value> = serde_json::from_str(result).ok();
    let message = read.as_ref().and_then(|read| read["error"]["message"].as_str());
    message.unwrap_or(result).to_owned()
}

/// What the model said, in a line; `None` where nothing is known of it.
fn described(said: &Said) -> Option<String> {
    if said.calls.is_empty() {
        return (!said.text.is_empty()).then(|| format!("answered: {}", said.text));
    }
    let calls = said.calls.iter().map(|call| format!("{}({})", call.tool, call.arguments));
    Some(format!("called {}", calls.collect::<Vec<_>>().join(", ")))
}
