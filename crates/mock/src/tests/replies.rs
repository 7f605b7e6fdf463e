//! Replies on the wire: members, chunks, choices, forms.

use super::super::Stats;
use super::*;

#[tokio::test]
async fn a_whole_reply_has_every_member_that_openai_sends() {
    let served = Served::start().await;
    let body = chat("demo-chat", &[user("Hello there")]);
    let bytes = body.to_string().len() as u64;
    let reply = served.ask(body).await;
    assert!(reply["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert_eq!((&reply["object"], &reply["model"]), (&json!("chat.completion"), &json!("demo-chat")));
    assert!(reply["created"].is_u64() && reply["system_fingerprint"].as_str().unwrap().starts_with("fp_"));
    let choice = &reply["choices"][0];
    assert_eq!((&choice["index"], &choice["finish_reason"]), (&json!(0), &json!("stop")));
    assert_eq!(
        (&choice["message"]["role"], &choice["message"]["refusal"]),
        (&json!("assistant"), &Value::Null)
    );
    assert!(content(&reply).contains("Hello there"), "{reply}");
    let usage = &reply["usage"];
    assert_eq!(usage["prompt_tokens"], bytes.div_ceil(4));
    assert_eq!(usage["completion_tokens"], content(&reply).len().div_ceil(4));
    let sum = usage["prompt_tokens"].as_u64().unwrap() + usage["completion_tokens"].as_u64().unwrap();
    assert_eq!(usage["total_tokens"], sum);
    assert_eq!(
        served.upstream.stats()["demo-chat"],
        Stats { requests: 1, request_bytes: bytes, prompt_tokens: bytes.div_ceil(4) }
    );
}

#[tokio::test]
async fn a_stream_gives_the_role_once_then_pieces_then_the_reason_and_no_usage_unasked() {
    let served = Served::start().await;
    let chunks = served.stream(with_tools("demo-runaway", &[user("q")], &["searchAll"])).await;
    let first = &chunks[0]["choices"][0]["delta"];
    assert_eq!((&first["role"], &first["content"]), (&json!("assistant"), &Value::Null));
    assert_eq!(first["tool_calls"][0]["function"], json!({"name": "searchAll", "arguments": ""}));
    assert!(chunks.len() > 4, "{chunks:?}");
    for (place, chunk) in chunks.iter().enumerate() {
        assert_eq!((&chunk["object"], &chunk["id"]), (&json!("chat.completion.chunk"), &chunks[0]["id"]));
        assert_eq!(chunk["choices"][0]["delta"].get("role").is_some(), place == 0);
        assert_eq!(chunk["choices"][0]["finish_reason"].is_null(), place + 1 < chunks.len());
        assert_eq!(chunk.get("usage"), None);
    }
    let last = &chunks[chunks.len() - 1]["choices"][0];
    assert_eq!((&last["delta"], &last["finish_reason"]), (&json!({}), &json!("tool_calls")));
}

#[tokio::test]
async fn usage_is_sent_in_a_chunk_of_its_own_if_it_was_requested() {
    let served = Served::start().await;
    let mut body = chat("demo-chat", &[user("q")]);
    body["stream_options"] = json!({"include_usage": true});
    let mut chunks = served.stream(body).await;
    let last = chunks.pop().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert!(last["usage"]["total_tokens"].as_u64().unwrap() > 10);
    assert!(chunks.iter().all(|chunk| chunk.get("usage") == Some(&Value::Null)));
}

#[tokio::test]
async fn several_choices_have_indices_and_call_ids_of_their_own() {
    let served = Served::start().await;
    let mut body = with_tools("demo-runaway", &[user("q")], &["searchAll"]);
    body["n"] = json!(3);
    let whole = served.ask(body.clone()).await;
    let choices = whole["choices"].as_array().unwrap();
    let mut ids: Vec<&str> =
        choices.iter().map(|choice| choice["message"]["tool_calls"][0]["id"].as_str().unwrap()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((ids.len(), &choices[2]["index"]), (3, &json!(2)));
    let chunks = served.stream(body).await;
    for choice in 0..3 {
        assert_eq!(assembled(&chunks, choice)["tool_calls"][0]["function"]["name"], "searchAll");
    }
}

#[tokio::test]
async fn answers_take_the_form_and_the_length_that_were_asked_for() {
    let served = Served::start().await;
    let mut body = chat("demo-chat", &[user("answer in JSON")]);
    body["response_format"] = json!({"type": "json_object"});
    let reply = served.ask(body.clone()).await;
    assert!(serde_json::from_str::<Value>(content(&reply)).unwrap()["answer"].is_string());
    let schema =
        json!({"type": "object", "properties": {"count": {"type": "integer"}, "kind": {"enum": ["x"]}}});
    body["response_format"] = json!({"type": "json_schema", "json_schema": {"name": "n", "schema": schema}});
    let reply = served.ask(body).await;
    assert_eq!(serde_json::from_str::<Value>(content(&reply)).unwrap(), json!({"count": 1, "kind": "x"}));
    let mut short = chat("demo-chat", &[user("q")]);
    short["max_completion_tokens"] = json!(3);
    let reply = served.ask(short).await;
    assert_eq!((content(&reply), &reply["choices"][0]["finish_reason"]), ("This is the", &json!("length")));
}

#[tokio::test]
async fn the_same_request_gets_the_same_bytes_and_another_gets_other_ids() {
    let served = Served::start().await;
    let other = Served::start().await;
    for stream in [false, true] {
        let mut body = with_tools("demo-runaway", &[user("q")], &["searchAll"]);
        body["stream"] = json!(stream);
        let first = served.send(Method::POST, "/v1/chat/completions", body.to_string()).await;
        assert_eq!(first, served.send(Method::POST, "/v1/chat/completions", body.to_string()).await);
        assert_eq!(first, other.send(Method::POST, "/v1/chat/completions", body.to_string()).await);
    }
    let ids = [
        served.ask(chat("demo-chat", &[user("a")])).await["id"].clone(),
        served.ask(chat("demo-chat", &[user("b")])).await["id"].clone(),
    ];
    assert_ne!(ids[0], ids[1]);
}

#[tokio::test]
async fn every_model_gives_the_same_answer_streamed_and_whole() {
    let served = Served::start().await;
    let ask = |model: &str, tools: bool| {
        let messages = vec![user("use searchAll and urlReader on größe")];
        if tools { with_tools(model, &messages, &["searchAll", "urlReader"]) } else { chat(model, &messages) }
    };
    for (model, tools) in [
        ("demo-chat", false),
        ("demo-chat", true),
        ("demo-runaway", false),
        ("demo-runaway", true),
        ("demo-polite", true),
        ("demo-stuck", true),
        ("demo-no-tools", false),
        ("demo-strict", true),
    ] {
        let whole = served.ask(ask(model, tools)).await;
        let chunks = served.stream(ask(model, tools)).await;
        let streamed = assembled(&chunks, 0);
        let choice = &whole["choices"][0];
        assert_eq!(streamed["content"], choice["message"]["content"], "{model}");
        assert_eq!(streamed["finish_reason"], choice["finish_reason"], "{model}");
        let functions = |calls: &Value| -> Vec<Value> {
            calls.as_array().into_iter().flatten().map(|call| call["function"].clone()).collect()
        };
        assert_eq!(
            functions(&streamed["tool_calls"]),
            functions(&choice["message"]["tool_calls"]),
            "{model}"
        );
        assert_eq!(functions(&streamed["tool_calls"]).is_empty(), !tools, "{model}");
    }
}
