//! Whole responses: their members, and what they repeat of the request.

use super::*;

#[tokio::test]
async fn a_response_has_its_members_and_repeats_the_request() {
    let served = Served::start().await;
    let mut body = with_functions("demo-chat", &[user("Hello there")], &["searchAll"]);
    let bytes = body.to_string().len() as u64;
    let plain = served.create(body.clone()).await;
    assert!(plain["id"].as_str().unwrap().starts_with("resp_"));
    assert!(plain["created_at"].as_u64() < plain["completed_at"].as_u64(), "{plain}");
    assert_eq!([&plain["object"], &plain["model"]], [&json!("response"), &json!("demo-chat")]);
    assert_eq!([&plain["status"], &plain["error"]], [&json!("completed"), &Value::Null]);
    let message = &plain["output"][0];
    assert!(message["id"].as_str().unwrap().starts_with("msg_"), "{message}");
    assert_eq!(
        ["type", "role", "status"].map(|key| message[key].as_str().unwrap()),
        ["message", "assistant", "completed"]
    );
    assert!(text(&plain).contains("Hello there"), "{plain}");
    let usage = &plain["usage"];
    assert_eq!(usage["input_tokens"], bytes.div_ceil(4));
    assert_eq!(usage["output_tokens"], text(&plain).len().div_ceil(4));
    assert_eq!(usage["input_tokens_details"], json!({"cached_tokens": 0}));
    assert_eq!(usage["output_tokens_details"], json!({"reasoning_tokens": 0}));
    assert_eq!(served.upstream.stats()["demo-chat"].request_bytes, bytes);

    let given = json!({"instructions": "Be terse.", "tool_choice": "none", "parallel_tool_calls": false,
        "store": false, "metadata": {"a": "b"}, "truncation": "auto", "temperature": 0.5,
        "max_output_tokens": 400});
    let defaults = json!({"instructions": null, "tool_choice": "auto", "parallel_tool_calls": true,
        "store": true, "metadata": {}, "truncation": "disabled", "temperature": 1.0,
        "max_output_tokens": null});
    for (key, value) in given.as_object().unwrap() {
        assert_eq!(plain[key], defaults[key], "{key}");
        body[key] = value.clone();
    }
    let repeated = served.create(body.clone()).await;
    for key in given.as_object().unwrap().keys().chain([&"tools".to_owned()]) {
        assert_eq!(repeated[key], body[key], "{key}");
    }
}

#[tokio::test]
async fn calls_are_items_of_their_own_with_two_ids() {
    let served = Served::start().await;
    let tools = ["searchAll", "urlReader"];
    let body = with_functions("demo-chat", &[user("use searchAll and urlReader")], &tools);
    let response = served.create(body).await;
    let calls = response["output"].as_array().unwrap();
    assert_eq!(calls.len(), 2);
    for call in calls {
        assert_eq!([&call["type"], &call["status"]], [&json!("function_call"), &json!("completed")]);
        assert!(call["id"].as_str().unwrap().starts_with("fc_"), "{call}");
        assert!(call["call_id"].as_str().unwrap().starts_with("call_"), "{call}");
    }
    assert_eq!(calls[0]["arguments"], r#"{"query":"use searchAll and urlReader"}"#);
    assert_ne!(calls[0]["id"], calls[1]["id"]);
    assert_ne!(calls[0]["call_id"], calls[1]["call_id"]);
}

#[tokio::test]
async fn a_string_is_a_message_of_the_user_and_any_path_that_ends_in_responses_will_do() {
    let served = Served::start().await;
    let string = served.create(json!({"model": "demo-chat", "input": "Hello"})).await;
    assert!(text(&string).contains("\"Hello\""), "{string}");
    let body = json!({"model": "demo-chat", "input": "Hello"}).to_string();
    let (status, _, other) = served.send(Method::POST, "/openai/v1/responses", body).await;
    assert_eq!((status, serde_json::from_str::<Value>(&other).unwrap()), (StatusCode::OK, string));
}

#[tokio::test]
async fn answers_take_the_form_that_was_asked_for() {
    let served = Served::start().await;
    let mut body = input("demo-chat", &[user("answer in JSON")]);
    body["text"] = json!({"format": {"type": "json_object"}});
    let answer: Value = serde_json::from_str(text(&served.create(body.clone()).await)).unwrap();
    assert!(answer["answer"].is_string(), "{answer}");
    let schema = json!({"type": "object", "properties": {"count": {"type": "integer"}}});
    body["text"] = json!({"format": {"type": "json_schema", "name": "n", "schema": schema}});
    let answer: Value = serde_json::from_str(text(&served.create(body).await)).unwrap();
    assert_eq!(answer, json!({"count": 1}));
}

#[tokio::test]
async fn the_same_request_gets_the_same_bytes_and_another_gets_other_ids() {
    let served = Served::start().await;
    for stream in [false, true] {
        let mut body = with_functions("demo-runaway", &[user("q")], &["searchAll"]);
        body["stream"] = json!(stream);
        let first = served.send(Method::POST, PATH, body.to_string()).await;
        assert_eq!(first, served.send(Method::POST, PATH, body.to_string()).await);
    }
    let [a, b] = ["a", "b"].map(|question| served.create(input("demo-chat", &[user(question)])));
    assert_ne!(a.await["id"], b.await["id"]);
}
