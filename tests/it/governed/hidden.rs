//! Hidden exchanges in a stream: what is stored while the stream runs, and what later requests get back.

use crate::governed::talk::{budget, chat, question};
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::Scripted;
use serde_json::{Value, json};

fn chunk(choice: u64, delta: &Value, finish: Option<&str>) -> Value {
    let choice = json!({"index": choice, "delta": delta, "finish_reason": finish});
    json!({"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]})
}

fn call(nth: u64) -> Value {
    let function = json!({"name": "f", "arguments": format!("{{\"a\":{nth}}}")});
    json!({"tool_calls": [{"index": nth, "id": format!("c{nth}"), "type": "function", "function": function}]})
}

/// What is sent upstream when the client continues after this assistant message.
fn sent_after(toolrein: &Toolrein, upstream: &Scripted, first: &Value, message: Value) -> String {
    chat(toolrein, first.to_string());
    let count = upstream.requests().len();
    let mut next = first.clone();
    let messages = next["messages"].as_array_mut().unwrap();
    let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
    messages.push(message);
    let result = |call: &Value| json!({"role": "tool", "tool_call_id": call["id"], "content": "r"});
    messages.extend(calls.iter().map(result));
    messages.push(json!({"role": "user", "content": "go on"}));
    chat(toolrein, next.to_string());
    String::from_utf8(upstream.request(count).body).unwrap()
}

#[test]
fn a_blocked_call_comes_back_though_the_answer_behind_it_adds_nothing_to_the_text_before_it() {
    let upstream = Scripted::start(|nth, request| match nth {
        0 => Reply::events(&[
            chunk(0, &json!({"role": "assistant", "content": "I look."}), None),
            chunk(0, &call(0), None),
            chunk(0, &json!({}), Some("tool_calls")),
        ]),
        1 => Reply::speech(request, &Speech::text(" ")),
        _ => Reply::speech(request, &Speech::text("ok")),
    });
    let toolrein = Toolrein::before(&upstream, "[policy.allow]\nonly = [\"g\"]\n");
    let first: Value = serde_json::from_str(&question(true)).unwrap();
    let message = json!({"role": "assistant", "content": "I look."});
    let sent = sent_after(&toolrein, &upstream, &first, message);
    assert!(sent.contains("{\\\"a\\\":0}") && sent.contains("MODE_RESTRICTED"), "{sent}");
}

#[test]
fn a_blocked_call_comes_back_though_another_choice_was_finished_before_it_came() {
    let upstream = Scripted::start(|nth, request| match nth {
        0 => Reply::events(&[
            chunk(0, &json!({"role": "assistant", "content": "Well."}), None),
            chunk(1, &json!({"role": "assistant", "content": null}), None),
            chunk(1, &call(0), None),
            chunk(0, &json!({}), Some("stop")),
            chunk(1, &call(1), None),
            chunk(1, &json!({}), Some("tool_calls")),
        ]),
        _ => Reply::speech(request, &Speech::text("ok")),
    });
    let toolrein = Toolrein::before(&upstream, &budget(1));
    let mut first: Value = serde_json::from_str(&question(true)).unwrap();
    first["n"] = 2.into();
    let mut shown = call(0);
    shown["tool_calls"][0].as_object_mut().unwrap().remove("index");
    shown["role"] = "assistant".into();
    let sent = sent_after(&toolrein, &upstream, &first, shown);
    assert!(sent.contains("{\\\"a\\\":1}") && sent.contains("BUDGET_EXCEEDED"), "{sent}");
}
