//! Thinking blocks and the conversation that they are bound to.

use super::super::sign;
use super::*;

/// The wording for a block at `path`.
fn other_conversation(path: &str) -> String {
    format!(
        "{path}: Invalid `signature` in `thinking` block. The block is bound to a different conversation. Remove the \
         block, or set `thinking.block_binding.prefix_mismatch_behavior` to \"drop_block\"."
    )
}

const SETTING: &str =
    " That setting requires the `anthropic-beta: thinking-binding-controls-2026-08-01` header.";
const CONTROLS: &str = "thinking-binding-controls-2026-08-01";
const MODIFIED: &str = "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. \
    These blocks must remain as they were in the original response.";

/// Appends the reply `blocks`, before them a thinking block that is signed for `body`.
fn reply(body: &mut Value, thinking: &str, blocks: &[Value]) {
    let signature = sign(body, thinking);
    let mut content = vec![json!({"type": "thinking", "thinking": thinking, "signature": signature})];
    content.extend_from_slice(blocks);
    push(body, assistant(&json!(content)));
}

fn push(body: &mut Value, message: Value) {
    body["messages"].as_array_mut().unwrap().push(message);
}

/// A conversation of three replies, each with thinking.
fn conversation() -> Value {
    let mut body = request(&[user(&json!("find bicycles"))]);
    body["system"] = json!("Be brief.");
    body["thinking"] = json!({"type": "enabled", "budget_tokens": 1024});
    reply(&mut body, "first", &[text("I will search."), call("toolu_1")]);
    push(&mut body, user(&json!([result("toolu_1")])));
    reply(&mut body, "", &[call("toolu_2")]);
    push(&mut body, user(&json!([result("toolu_2")])));
    reply(&mut body, "third", &[text("An answer.")]);
    push(&mut body, user(&json!("more")));
    body
}

fn changed(change: impl Fn(&mut Value)) -> Value {
    let mut body = conversation();
    change(&mut body);
    body
}

#[test]
fn a_changed_prefix_is_refused_at_the_first_block_after_it() {
    let cases: Vec<(&str, Value)> = vec![
        ("messages.1.content.0", changed(|body| body["system"] = json!("Be long."))),
        ("messages.1.content.0", changed(|body| drop(body["system"].take()))),
        ("messages.1.content.0", changed(|body| body["tools"][0]["description"] = json!("Finds."))),
        ("messages.1.content.0", changed(|body| body["tools"] = json!([]))),
        ("messages.1.content.0", changed(|body| body["messages"][0]["content"] = json!("find bikes"))),
        ("messages.3.content.0", changed(|body| body["messages"][1]["content"][1]["text"] = json!("Hm."))),
        (
            "messages.3.content.0",
            changed(|body| body["messages"][1]["content"][2]["input"]["query"] = json!("r")),
        ),
        ("messages.3.content.0", changed(|body| body["messages"][2]["content"][0]["content"] = json!("fou"))),
        (
            "messages.3.content.0",
            changed(|body| {
                let content = body["messages"][2]["content"].as_array_mut().unwrap();
                content.push(text("a notice"));
            }),
        ),
        ("messages.3.content.0", changed(|body| body["messages"][2]["content"][0]["is_error"] = json!(true))),
        (
            "messages.5.content.0",
            changed(|body| body["messages"][4]["content"][0]["content"] = json!([text("found"), text("x")])),
        ),
        (
            "messages.5.content.0",
            changed(|body| drop(body["messages"][3]["content"].as_array_mut().unwrap().remove(0))),
        ),
    ];
    assert_eq!(violations_of("", &conversation()), Vec::<String>::new());
    for (path, mut body) in cases {
        // The rule for an open loop is another one.
        body["thinking"] = json!({"type": "disabled"});
        assert_eq!(violations_of("", &body), [other_conversation(path) + SETTING], "{body:#}");
        assert_eq!(violations_of(CONTROLS, &body), [other_conversation(path)]);
    }
}

#[test]
fn the_role_of_a_text_a_caller_and_a_citation_count() {
    let mut body = request(&[user(&json!("q")), json!({"role": "system", "content": "s"})]);
    body["model"] = json!("claude-opus-5");
    let mut citing = text("I will search.");
    citing["citations"] = json!([{"type": "char_location", "cited_text": "c"}]);
    reply(&mut body, "a", &[citing, call("toolu_1")]);
    push(&mut body, user(&json!([result("toolu_1")])));
    reply(&mut body, "b", &[text("An answer.")]);
    push(&mut body, user(&json!("more")));
    assert_eq!(violations_of("", &body), Vec::<String>::new());
    let changed = |change: fn(&mut Value)| {
        let mut changed = body.clone();
        change(&mut changed);
        violations_of(CONTROLS, &changed)
    };
    let of_user = changed(|body| body["messages"][1]["role"] = json!("user"));
    assert_eq!(of_user, [other_conversation("messages.1.content.0")]);
    for found in [
        changed(|body| {
            body["messages"][2]["content"][2]["caller"] = json!({"type": "code_execution_20260120"});
        }),
        changed(|body| {
            body["messages"][2]["content"][1]["citations"][0]["cited_text"] = json!("d");
        }),
    ] {
        assert_eq!(found, [other_conversation("messages.4.content.0")]);
    }
}

#[test]
fn what_is_no_content_may_change() {
    for body in [
        changed(|body| body["messages"][0]["content"] = json!([text("find bicycles")])),
        changed(|body| body["messages"][2]["content"][0]["content"] = json!([text("found")])),
        changed(|body| body["messages"][2]["content"][0]["is_error"] = json!(false)),
        changed(|body| body["messages"][2]["content"][0]["cache_control"] = json!({"type": "ephemeral"})),
        changed(|body| body["messages"][1]["content"][2]["caller"] = json!({"type": "direct"})),
        changed(|body| body["messages"][1]["content"][1]["citations"] = Value::Null),
        changed(|body| body["tools"][0]["cache_control"] = json!({"type": "ephemeral"})),
        changed(|body| {
            body["system"] =
                json!([{"text": "Be brief.", "type": "text", "cache_control": {"type": "ephemeral"}}]);
        }),
        changed(|body| {
            let deferred = json!({"name": "d", "defer_loading": true, "input_schema": {"type": "object"}});
            body["tools"].as_array_mut().unwrap().push(deferred);
        }),
        changed(|body| body["tool_choice"] = json!({"type": "none"})),
        changed(|body| body["max_tokens"] = json!(2000)),
        changed(|body| body["metadata"] = json!({"user_id": "u"})),
        // Thinking may go from the beginning, from the end, and all of it.
        changed(|body| drop(body["messages"][1]["content"].as_array_mut().unwrap().remove(0))),
        changed(|body| drop(body["messages"][5]["content"].as_array_mut().unwrap().remove(0))),
        changed(|body| {
            for index in [1, 3, 5] {
                body["messages"][index]["content"].as_array_mut().unwrap().remove(0);
            }
        }),
    ] {
        assert_eq!(violations_of("", &body), Vec::<String>::new(), "{body:#}");
    }
}

#[test]
fn a_deferred_tool_counts_from_the_reference_on() {
    let deferred = |description: &str| json!({"name": "d", "description": description, "defer_loading": true, "input_schema": {"type": "object"}});
    let mut body = request(&[user(&json!("q"))]);
    body["tools"].as_array_mut().unwrap().push(deferred("one"));
    reply(&mut body, "a", &[call("toolu_1")]);
    let mut found = result("toolu_1");
    found["content"] = json!([{"type": "tool_reference", "tool_name": "d"}]);
    push(&mut body, user(&json!([found])));
    reply(&mut body, "b", &[text("An answer.")]);
    push(&mut body, user(&json!("more")));
    assert_eq!(violations_of("", &body), Vec::<String>::new());
    body["tools"][1] = deferred("two");
    assert_eq!(violations_of(CONTROLS, &body), [other_conversation("messages.3.content.0")]);
}

#[test]
fn a_signature_belongs_to_its_text_and_is_not_altered() {
    let wrong = "messages.1.content.0: Invalid `signature` in `thinking` block";
    let altered = changed(|body| {
        let signature = body["messages"][1]["content"][0]["signature"].as_str().unwrap().to_owned();
        let (start, last) = signature.split_at(signature.len() - 1);
        let digit = if last == "0" { "1" } else { "0" };
        body["messages"][1]["content"][0]["signature"] = json!(format!("{start}{digit}"));
    });
    assert_eq!(violations_of("", &altered), [wrong]);
    let longer = changed(|body| {
        let signature = body["messages"][1]["content"][0]["signature"].as_str().unwrap().to_owned();
        body["messages"][1]["content"][0]["signature"] = json!(signature + "0");
    });
    assert_eq!(violations_of("", &longer), [wrong]);
    let earlier = changed(|body| body["messages"][1]["content"][0]["thinking"] = json!("other"));
    assert_eq!(violations_of("", &earlier), [wrong]);
    let latest = changed(|body| body["messages"][5]["content"][0]["thinking"] = json!("other"));
    assert_eq!(violations_of("", &latest), [format!("messages.5.content.0: {MODIFIED}")]);
    let foreign = changed(|body| body["messages"][1]["content"][0]["signature"] = json!("EqQBCgIYAhIM"));
    assert_eq!(violations_of("", &foreign), Vec::<String>::new(), "recorded signatures pass");
}

#[test]
fn removing_a_call_between_two_thinking_blocks_modifies_the_latest_message() {
    let mut body = request(&[user(&json!("q"))]);
    reply(&mut body, "a", &[call("toolu_1")]);
    let second = json!({"type": "thinking", "thinking": "b", "signature": sign(&body, "b")});
    let content = body["messages"][1]["content"].as_array_mut().unwrap();
    content.extend([second, call("toolu_2")]);
    push(&mut body, user(&json!([result("toolu_1"), result("toolu_2")])));
    assert_eq!(violations_of("", &body), Vec::<String>::new());
    body["messages"][1]["content"].as_array_mut().unwrap().remove(1);
    body["messages"][2]["content"].as_array_mut().unwrap().remove(0);
    assert_eq!(violations_of("", &body), [format!("messages.1.content.1: {MODIFIED}")]);
}

#[test]
fn thinking_that_was_removed_from_the_middle_or_put_back_breaks_the_run() {
    let without = |index: usize| {
        changed(|body| {
            body["messages"][index]["content"].as_array_mut().unwrap().remove(0);
            body["thinking"] = json!({"type": "disabled"});
        })
    };
    assert_eq!(violations_of(CONTROLS, &without(3)), [other_conversation("messages.5.content.0")]);
    // All thinking was removed before the last reply; later the second block came back.
    let mut body = conversation();
    let removed: Vec<Value> =
        [1, 3, 5].map(|index| body["messages"][index]["content"].as_array_mut().unwrap().remove(0)).into();
    reply(&mut body, "fourth", &[text("Another answer.")]);
    push(&mut body, user(&json!("more")));
    assert_eq!(violations_of(CONTROLS, &body), Vec::<String>::new());
    body["messages"][3]["content"].as_array_mut().unwrap().insert(0, removed[1].clone());
    assert_eq!(violations_of(CONTROLS, &body), [other_conversation("messages.7.content.0")]);
}

#[test]
fn a_request_may_ask_for_blocks_of_another_conversation_to_be_dropped() {
    let mut body = changed(|body| body["system"] = json!("Be long."));
    body["thinking"]["block_binding"] = json!({"prefix_mismatch_behavior": "drop_block"});
    assert_eq!(violations_of(CONTROLS, &body), Vec::<String>::new());
    assert_eq!(violations_of("", &body).len(), 2, "the setting and the block, without the header");
}

#[test]
fn a_compaction_takes_the_place_of_what_was_before() {
    let mut body = conversation();
    let removed = body["messages"][5]["content"].as_array_mut().unwrap().remove(0);
    push(&mut body, assistant(&json!([{"type": "compaction", "content": "A summary."}])));
    push(&mut body, user(&json!("go on")));
    reply(&mut body, "after", &[text("I go on.")]);
    push(&mut body, user(&json!("more")));
    assert_eq!(violations_of("", &body), Vec::<String>::new());
    body["messages"][5]["content"].as_array_mut().unwrap().insert(0, removed);
    assert_eq!(violations_of("", &body), Vec::<String>::new(), "the run begins after it");
    body["messages"][0]["content"] = json!("find bikes");
    assert_eq!(violations_of("", &body), Vec::<String>::new(), "what is before it is ignored");
    body["messages"].as_array_mut().unwrap().drain(..7);
    assert_eq!(violations_of("", &body), Vec::<String>::new(), "only what follows the newest compaction");
}
