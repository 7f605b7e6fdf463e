//! Equivalence with the Messages API: the same agent conversation, written as chat completions and for Anthropic's Messages
//! API, gets the same plan and the same decision on every call, in whole replies and in streams.

use super::dialects::{CUSTOM, Output, Step, TOOLS, Talk, set, shape, talk, verdicts, without_sizes};
use super::world::{Facts, SETS, lossy, read_in};
use bytes::Bytes;
use dialects::messages::reply::convert::stream_of;
use dialects::reply::Form;
use dialects::{CHAT, MESSAGES};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Sets of policies that count no tokens: arguments are strings in chat completions and objects here, so their estimates
/// differ.
const WITHOUT_TOKENS: [usize; 5] = [0, 1, SETS - 1, SETS, SETS + 1];

/// The conversation as far as this API can have it: arguments are objects, no tool takes free text, and instructions are no
/// message.
fn common(mut talk: Talk) -> Talk {
    talk.system = None;
    for step in &mut talk.steps {
        let Step::Calls { calls, .. } = step else { continue };
        for call in calls {
            let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
            call.arguments = arguments.to_string();
            if call.tool == CUSTOM {
                call.tool = "weather";
            }
        }
    }
    talk
}

/// The client's request with the first `count` steps.
fn request(talk: &Talk, count: usize) -> Bytes {
    let mut messages = Vec::new();
    for (at, step) in talk.steps[..count].iter().enumerate() {
        if let Step::User(text) = step {
            let blocks = json!([{"type": "text", "text": text}]);
            let content = if talk.extras & 2 == 0 { text.clone().into() } else { blocks };
            messages.push(json!({"role": "user", "content": content}));
            continue;
        }
        messages.push(json!({"role": "assistant", "content": blocks(talk, at)}));
        let results = results(talk, at);
        if !results.is_empty() {
            messages.push(json!({"role": "user", "content": results}));
        }
    }
    let schema =
        json!({"type": "object", "properties": {"q": {"type": "integer"}, "limit": {"type": "integer"}}});
    let tools = TOOLS[..5].iter().map(|name| json!({"name": name, "input_schema": schema}));
    let tools: Vec<Value> = tools.collect();
    let mut body =
        json!({"model": "m", "max_tokens": 9, "messages": messages, "tools": tools, "stream": talk.stream});
    match talk.choice {
        1 => body["tool_choice"] = json!({"type": "any"}),
        2 => body["tool_choice"] = json!({"type": "tool", "name": "look"}),
        3 => body["tool_choice"] = json!({"type": "none"}),
        _ => {}
    }
    body.to_string().into()
}

/// What the model said at the step `at`. Only this API has the extras: thinking, a search of the provider's, and a caller.
fn blocks(talk: &Talk, at: usize) -> Vec<Value> {
    let (text, calls) = talk.said(at);
    let mut blocks = Vec::new();
    if talk.extras & 4 != 0 {
        blocks.push(json!({"type": "thinking", "thinking": "", "signature": format!("sig{at}==")}));
    }
    if talk.extras & 16 != 0 {
        let id = format!("srvtoolu_{at}");
        blocks.push(
            json!({"type": "server_tool_use", "id": id, "name": "web_search", "input": {"query": "q"}}),
        );
        blocks.push(json!({"type": "web_search_tool_result", "tool_use_id": id, "content": []}));
    }
    if !text.is_empty() {
        blocks.push(json!({"type": "text", "text": text}));
    }
    blocks.extend(calls.iter().enumerate().map(|(call, made)| {
        let input: Value = serde_json::from_str(&made.arguments).unwrap();
        let id = talk.id(at, call);
        let mut block = json!({"type": "tool_use", "id": id, "name": made.tool, "input": input});
        if talk.extras & 8 != 0 {
            block["caller"] = json!({"type": "direct"});
        }
        block
    }));
    blocks
}

/// The results of the calls of the step `at`, as blocks of one user message.
fn results(talk: &Talk, at: usize) -> Vec<Value> {
    let Step::Calls { calls, results, .. } = &talk.steps[at] else { return Vec::new() };
    let answers = results[..calls.len()].iter().enumerate();
    let blocks = answers.filter_map(|(call, result)| {
        let content = match result {
            Output::Missing => return None,
            Output::Text(text) => json!(text),
            Output::Image => {
                let source = json!({"type": "base64", "media_type": "image/png", "data": "x"});
                json!([{"type": "image", "source": source}])
            }
            Output::Parts(parts) => parts.iter().map(|text| json!({"type": "text", "text": text})).collect(),
        };
        Some(json!({"type": "tool_result", "tool_use_id": talk.id(at, call), "content": content}))
    });
    let mut blocks: Vec<Value> = blocks.collect();
    if let Some(last) = blocks.last_mut().filter(|_| talk.extras & 1 != 0) {
        last["cache_control"] = json!({"type": "ephemeral"});
    }
    blocks
}

/// The reply at the step `at`.
fn reply(talk: &Talk, at: usize, form: Form) -> Bytes {
    let reason = if talk.said(at).1.is_empty() { "end_turn" } else { "tool_use" };
    let whole = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": blocks(talk, at),
        "stop_reason": reason, "stop_sequence": null, "usage": {"input_tokens": 1, "output_tokens": 1},
    });
    let whole = Bytes::from(whole.to_string());
    if form == Form::Whole { whole } else { stream_of(&whole).unwrap().concat().into() }
}

/// Asserts that chat completions and the Messages API have the same.
fn equal<T: PartialEq + std::fmt::Debug>(
    what: &str,
    bodies: &[Bytes; 2],
    [chat, messages]: [T; 2],
) -> Result<(), TestCaseError> {
    let [one, other] = bodies.each_ref().map(|body| lossy(body));
    prop_assert!(chat == messages, "{what}:\n{chat:?}\n{messages:?}\n{one}\n{other}");
    Ok(())
}

proptest! {
    #![proptest_config(crate::laws::with_cases(150))]

    #[test]
    fn a_conversation_gets_the_same_from_every_policy_in_the_messages_api(
        talk in talk().prop_map(common),
        at in 0..WITHOUT_TOKENS.len(),
        overflow in any::<bool>(),
    ) {
        let policies = set(WITHOUT_TOKENS[at]);
        for count in talk.cuts() {
            let [chat, _] = talk.requests(count);
            let bodies = [chat, request(&talk, count)];
            let mut facts = Facts { summaries: true, ..Facts::default() };
            let read_both = |facts: &Facts| {
                [(CHAT, &bodies[0]), (MESSAGES, &bodies[1])]
                    .map(|(dialect, body)| read_in(dialect, body, policies, facts))
            };
            let shapes = read_both(&facts)
                .map(|reading| reading.request.messages.iter().map(shape).collect::<Vec<_>>());
            equal("messages", &bodies, shapes.clone())?;
            if overflow {
                facts.overflows = vec![shapes[0].len().div_ceil(2)];
            }
            equal("plan", &bodies, read_both(&facts).map(|reading| without_sizes(reading.plan)))?;
            equal("times", &bodies, read_both(&facts).map(|reading| reading.times))?;
            if count == talk.steps.len() {
                break;
            }
            for form in [Form::Whole, Form::Streamed] {
                let [chat, messages] = read_both(&facts);
                let [of_chat, _] = talk.replies(count, form);
                let of_messages = reply(&talk, count, form);
                let both = [verdicts(chat, &of_chat, form), verdicts(messages, &of_messages, form)];
                equal(&format!("verdicts, {form:?}"), &bodies, both)?;
            }
        }
    }
}
