//! What a whole reply has, and how the members of a request change it.

use super::*;

#[test]
fn a_whole_reply_has_every_member_that_anthropic_sends() {
    let simulated = Simulated::new();
    let body = demo("demo-chat", &[user(&json!("Hello there"))], &[]);
    let reply = simulated.ask(&body);
    assert!(reply["id"].as_str().unwrap().starts_with("msg_"), "{reply}");
    let expected = json!({"type": "message", "role": "assistant", "model": "demo-chat", "stop_reason": "end_turn",
        "stop_sequence": null});
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(reply.get(name), Some(value), "{name}");
    }
    let text = said(&reply);
    assert!(text.contains("Hello there"), "{reply}");
    assert_eq!(reply["content"], json!([{"type": "text", "text": text}]));
    let input = body.to_string().len().div_ceil(4);
    let usage = json!({"input_tokens": input, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
        "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
        "output_tokens": text.len().div_ceil(4), "service_tier": "standard"});
    assert_eq!(reply["usage"], usage);
}

#[test]
fn calls_are_parallel_unless_the_request_forbids_it() {
    let simulated = Simulated::new();
    let mut body =
        demo("demo-chat", &[user(&json!("Use urlReader, then searchAll."))], &["searchAll", "urlReader"]);
    let reply = simulated.ask(&body);
    assert_eq!(reply["stop_reason"], "tool_use");
    let names: Vec<&str> = calls(&reply).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["searchAll", "urlReader"]);
    assert_eq!(said(&reply), "I will use searchAll and urlReader.");
    let blocks = reply["content"].as_array().unwrap();
    assert_eq!(blocks[2]["input"], json!({"url": "https://example.com/page"}));
    assert!(blocks[1]["id"].as_str().unwrap().starts_with("toolu_"));
    assert_ne!(blocks[1]["id"], blocks[2]["id"]);
    let single =
        with(body.clone(), "tool_choice", json!({"type": "auto", "disable_parallel_tool_use": true}));
    assert_eq!(calls(&simulated.ask(&single)).len(), 1);
    go_on(&mut body, &reply, "found");
    let answer = simulated.ask(&body);
    assert_eq!(answer["stop_reason"], "end_turn");
    assert!(said(&answer).contains("2 tool results with 10 characters"), "{answer}");
}

#[test]
fn the_choice_of_tools_is_followed() {
    let simulated = Simulated::new();
    let body = demo("demo-chat", &[user(&json!("Hello"))], &["searchAll", "urlReader"]);
    for (choice, expected) in [
        (json!({"type": "auto"}), vec![]),
        (json!({"type": "any"}), vec!["searchAll"]),
        (json!({"type": "tool", "name": "urlReader"}), vec!["urlReader"]),
    ] {
        let reply = simulated.ask(&with(body.clone(), "tool_choice", choice.clone()));
        let names: Vec<&str> = calls(&reply).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, expected, "{choice}");
        // A forced call comes without a text.
        assert_eq!(said(&reply).is_empty(), !expected.is_empty(), "{choice}");
    }
    let runaway = demo("demo-runaway", &[user(&json!("find bicycles"))], &["searchAll"]);
    assert_eq!(calls(&simulated.ask(&runaway)).len(), 1);
    let none = simulated.ask(&with(runaway, "tool_choice", json!({"type": "none"})));
    assert_eq!((calls(&none).len(), &none["stop_reason"]), (0, &json!("end_turn")));
}

#[test]
fn thinking_comes_first_where_it_is_asked_for_and_without_text_where_that_is_omitted() {
    let simulated = Simulated::new();
    let body = demo("demo-runaway", &[user(&json!("q"))], &["searchAll"]);
    for (thinking, has_block, has_text) in [
        (json!({"type": "disabled"}), false, false),
        (json!({"type": "adaptive"}), true, true),
        (json!({"type": "adaptive", "display": "omitted"}), true, false),
        (json!({"type": "enabled", "budget_tokens": 1024}), true, true),
    ] {
        let reply = simulated.ask(&with(body.clone(), "thinking", thinking.clone()));
        let first = &reply["content"][0];
        assert_eq!(first["type"] == "thinking", has_block, "{thinking}");
        assert_eq!(first["thinking"].as_str().is_some_and(|text| !text.is_empty()), has_text, "{thinking}");
        assert_eq!(first["signature"].is_string(), has_block, "{thinking}");
    }
}

#[test]
fn a_text_ends_at_its_bound_or_at_a_stop_sequence() {
    let simulated = Simulated::new();
    let body = demo("demo-chat", &[user(&json!("q"))], &[]);
    let short = simulated.ask(&with(body.clone(), "max_tokens", json!(3)));
    assert_eq!((said(&short).as_str(), &short["stop_reason"]), ("This is the", &json!("max_tokens")));
    let warm = simulated.ask(&with(body.clone(), "max_tokens", json!(0)));
    assert_eq!((&warm["content"], &warm["stop_reason"]), (&json!([]), &json!("max_tokens")));
    let empty = simulated.ask(&with(body.clone(), "stop_sequences", json!([""])));
    assert_eq!((said(&empty).is_empty(), &empty["stop_reason"]), (false, &json!("end_turn")));
    let stopped = simulated.ask(&with(body, "stop_sequences", json!(["model", "simulated"])));
    assert_eq!(
        (said(&stopped).as_str(), &stopped["stop_reason"], &stopped["stop_sequence"]),
        ("This is the ", &json!("stop_sequence"), &json!("simulated"))
    );
}

#[test]
fn an_answer_fits_the_schema_that_was_asked_for() {
    let simulated = Simulated::new();
    let schema =
        json!({"type": "object", "properties": {"count": {"type": "integer"}, "kind": {"enum": ["x"]}}});
    let format = json!({"type": "json_schema", "schema": schema});
    let body = demo("demo-chat", &[user(&json!("q"))], &[]);
    for body in
        [with(body.clone(), "output_config", json!({"format": format})), with(body, "output_format", format)]
    {
        let answer: Value = serde_json::from_str(&said(&simulated.ask(&body))).unwrap();
        assert_eq!(answer, json!({"count": 1, "kind": "x"}));
    }
}

#[test]
fn counting_needs_no_bound_and_checks_the_conversation() {
    let simulated = Simulated::new();
    let mut body = demo("demo-chat", &[user(&json!("q"))], &[]);
    body.as_object_mut().unwrap().remove("max_tokens");
    let Ok(Form::Whole(count)) = simulated.send(MessagesEndpoint::Count, &body) else { panic!("refused") };
    assert_eq!(count, json!({"input_tokens": body.to_string().len().div_ceil(4)}));
    assert_eq!(simulated.refused(&body).message, "max_tokens: Field required");
    let thinking = json!({"type": "thinking", "thinking": "", "signature": "EqQBCgIYAhIM"});
    body["messages"]
        .as_array_mut()
        .unwrap()
        .extend([assistant(&json!([thinking, text("a")])), user(&json!("q"))]);
    let refused = simulated.send(MessagesEndpoint::Count, &body).err().unwrap();
    assert_eq!(refused.message, "messages.1.content.0: Invalid `signature` in `thinking` block");
}
