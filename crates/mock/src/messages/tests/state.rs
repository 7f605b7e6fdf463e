//! What the upstream keeps between requests: the prompt cache and the threads.

use super::*;

fn cached(reply: &Value) -> (u64, u64) {
    let number = |name: &str| reply["usage"][name].as_u64().unwrap();
    (number("cache_read_input_tokens"), number("cache_creation_input_tokens"))
}

fn marked(text: &str) -> Value {
    json!([{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}])
}

#[test]
fn the_cache_reads_what_an_earlier_request_wrote_up_to_a_breakpoint() {
    let simulated = Simulated::new();
    let mut body = demo("demo-runaway", &[user(&marked("find bicycles"))], &["searchAll"]);
    body["system"] = json!("s".repeat(4_000));
    let first = simulated.ask(&body);
    let (read, written) = cached(&first);
    assert!(read == 0 && written > 1_000, "{first}");
    let again = simulated.ask(&body);
    assert_eq!(cached(&again), (written, 0));
    let sum =
        |reply: &Value| reply["usage"]["input_tokens"].as_u64().unwrap() + cached(reply).0 + cached(reply).1;
    assert_eq!(sum(&again), body.to_string().len().div_ceil(4) as u64);
    go_on(&mut body, &first, "nothing");
    body["messages"][0]["content"] = json!("find bicycles");
    body["messages"][2]["content"][0]["cache_control"] = json!({"type": "ephemeral"});
    let (read, added) = cached(&simulated.ask(&body));
    assert!(read == written && added > 0, "the breakpoint moved on: {read} of {written}, {added}");
    let automatic =
        with(demo("demo-stuck", &[user(&json!("q"))], &["searchAll"]), "cache_control", json!({}));
    assert_eq!(cached(&simulated.ask(&automatic)).0, 0);
    assert!(cached(&simulated.ask(&automatic)).0 > 0, "the automatic breakpoint is at the end");
    let unmarked = simulated.ask(&demo("demo-runaway", &[user(&json!("find bicycles"))], &["searchAll"]));
    assert_eq!(cached(&unmarked), (0, 0));
}

#[test]
fn a_change_voids_what_comes_after_it() {
    let simulated = Simulated::new();
    let mut body = demo("demo-runaway", &[user(&marked("find bicycles"))], &["searchAll"]);
    body["system"] = marked(&"s".repeat(4_000));
    let (_, written) = cached(&simulated.ask(&body));
    let chosen = with(body.clone(), "tool_choice", json!({"type": "none"}));
    let (read, added) = cached(&simulated.ask(&chosen));
    assert!(
        read > 1_000 && read < written && added > 0,
        "another choice voids the messages: {read}, {added}"
    );
    body["tools"][0]["description"] = json!("Searches.");
    assert_eq!(cached(&simulated.ask(&body)).0, 0, "another tool voids everything");
}

#[test]
fn a_thread_goes_on_with_the_new_messages_alone_and_once() {
    let simulated = Simulated::new();
    let mut create = demo("demo-polite", &[user(&json!("find bicycles"))], &["searchAll"]);
    create["system"] = json!("Be brief.");
    create["thread"] = json!({"type": "create"});
    create["thinking"] = json!({"type": "adaptive"});
    let first = simulated.ask(&create);
    let go_on_from = |reply: &Value, messages: Value| {
        json!({"model": "demo-polite", "max_tokens": 4096, "thinking": {"type": "adaptive"}, "messages": messages,
            "thread": {"type": "continue", "previous_message_id": reply["id"]}})
    };
    let id = first["content"].as_array().unwrap().last().unwrap()["id"].as_str().unwrap();
    let unknown = simulated.refused(&go_on_from(&first, json!([user(&json!([result("toolu_other")]))])));
    assert!(
        unknown.message.starts_with("messages.1: `tool_use` ids were found without"),
        "{}",
        unknown.message
    );
    let next = go_on_from(&first, json!([user(&json!([result(id)]))]));
    let second = simulated.ask(&next);
    let input = |reply: &Value| reply["usage"]["input_tokens"].as_u64().unwrap();
    assert!(input(&second) > input(&first), "the history counts: {second}");
    assert_eq!(calls(&second).len(), 1, "{second}");
    let twice = simulated.refused(&next);
    assert_eq!(
        (twice.status.as_u16(), &twice.details),
        (400, &json!({"error_code": "thread_already_continued"}))
    );
    let id = second["content"].as_array().unwrap().last().unwrap()["id"].as_str().unwrap();
    let mut stop = result(id);
    stop["content"] = json!("Answer now.");
    let third = simulated.ask(&go_on_from(&second, json!([user(&json!([stop]))])));
    assert!(said(&third).contains("2 tool results"), "the whole conversation is there: {third}");
}

#[test]
fn a_thread_that_is_unknown_or_of_another_model_is_refused() {
    let simulated = Simulated::new();
    let create = with(demo("demo-chat", &[user(&json!("q"))], &[]), "thread", json!({"type": "create"}));
    let reply = simulated.ask(&create);
    let thread = json!({"type": "continue", "previous_message_id": reply["id"]});
    let other = with(demo("demo-polite", &[user(&json!("q"))], &[]), "thread", thread.clone());
    assert_eq!(simulated.refused(&other).details, json!({"error_code": "thread_fingerprint_mismatch"}));
    let mut with_system = with(demo("demo-chat", &[user(&json!("q"))], &[]), "thread", thread.clone());
    with_system["system"] = json!("s");
    assert_eq!(simulated.refused(&with_system).details, json!({"error_code": "thread_fingerprint_mismatch"}));
    let mut created = create;
    created["thread"]["previous_message_id"] = json!("msg_1");
    let refused = simulated.refused(&created);
    assert_eq!(refused.message, "thread.create.previous_message_id: Extra inputs are not permitted");
    let mut unknown = with(demo("demo-chat", &[user(&json!("q"))], &[]), "thread", thread);
    unknown["thread"]["previous_message_id"] = json!("msg_unknown");
    let error = simulated.refused(&unknown);
    assert_eq!(
        (error.status.as_u16(), error.body("req_1")),
        (
            404,
            json!({"type": "error", "request_id": "req_1", "error": {"type": "not_found_error",
                "message": "Thread not found.", "details": {"error_code": "thread_not_found"}}})
        )
    );
}

#[test]
fn blocks_of_another_conversation_are_dropped_where_the_request_asks_for_it() {
    let simulated = Simulated::new();
    let mut body = demo("demo-runaway", &[user(&json!("q"))], &["searchAll"]);
    body["thinking"] = json!({"type": "adaptive"});
    let reply = simulated.ask(&body);
    go_on(&mut body, &reply, "nothing");
    body["system"] = json!("new");
    assert!(simulated.refused(&body).message.contains("The block is bound to a different conversation."));
    body["thinking"]["block_binding"] = json!({"prefix_mismatch_behavior": "drop_block"});
    let reply = simulated.ask(&body);
    let dropped = json!([{"type": "thinking_dropped", "path": "messages.1.content.0",
        "reason": "prefix_binding_mismatch"}]);
    assert_eq!(reply["input_transformations"], dropped);
}
