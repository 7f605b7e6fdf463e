//! The simulated upstream over real sockets: each model's replies, streamed and whole, what is refused and in
//! which words, and the demonstration itself.

use super::{Places, Stats, Upstream, curl_line, run, serve};
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A running upstream and a client for it.
struct Served {
    upstream: Arc<Upstream>,
    address: SocketAddr,
    client: Client<HttpConnector, Full<Bytes>>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Served {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let upstream = Arc::new(Upstream::new(Duration::ZERO));
        let (stop, stopped) = oneshot::channel();
        let shutdown = async {
            let _ = stopped.await;
        };
        let task = tokio::spawn(serve(listener, upstream.clone(), shutdown));
        Self { upstream, address, client: Client::builder(TokioExecutor::new()).build_http(), stop, task }
    }

    async fn send(&self, method: Method, path: &str, body: String) -> (StatusCode, String, String) {
        let uri = format!("http://{}{path}", self.address);
        let request = Request::builder().method(method).uri(uri).body(Full::new(Bytes::from(body))).unwrap();
        let response = self.client.request(request).await.unwrap();
        let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, kind, String::from_utf8(body.to_vec()).unwrap())
    }

    /// A whole reply.
    async fn ask(&self, body: Value) -> Value {
        let (status, kind, text) = self.send(Method::POST, "/v1/chat/completions", body.to_string()).await;
        assert_eq!((status, kind.as_str()), (StatusCode::OK, "application/json"), "{text}");
        serde_json::from_str(&text).unwrap()
    }

    /// The chunks of a streamed reply, which ends with `[DONE]`.
    async fn stream(&self, mut body: Value) -> Vec<Value> {
        body["stream"] = json!(true);
        let (status, kind, text) = self.send(Method::POST, "/v1/chat/completions", body.to_string()).await;
        assert_eq!((status, kind.as_str()), (StatusCode::OK, "text/event-stream; charset=utf-8"), "{text}");
        let mut events: Vec<&str> =
            text.split_terminator("\n\n").map(|event| event.strip_prefix("data: ").unwrap()).collect();
        assert_eq!(events.pop(), Some("[DONE]"));
        events.into_iter().map(|event| serde_json::from_str(event).unwrap()).collect()
    }

    /// A refusal: its status and its error object.
    async fn refused(&self, body: Value) -> (u16, Value) {
        let (status, kind, text) = self.send(Method::POST, "/v1/chat/completions", body.to_string()).await;
        assert_eq!(kind, "application/json");
        let mut body: Value = serde_json::from_str(&text).unwrap();
        (status.as_u16(), body["error"].take())
    }
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn chat(model: &str, messages: Vec<Value>) -> Value {
    json!({"model": model, "messages": messages})
}

fn with_tools(model: &str, messages: Vec<Value>, names: &[&str]) -> Value {
    let tool = |name: &&str| {
        let parameter = if *name == "urlReader" { "url" } else { "query" };
        json!({"type": "function", "function": {"name": name, "parameters":
            {"type": "object", "properties": {parameter: {"type": "string"}}, "required": [parameter]}}})
    };
    let tools: Vec<Value> = names.iter().map(tool).collect();
    json!({"model": model, "messages": messages, "tools": tools})
}

/// The first choice's calls as (name, arguments).
fn calls(reply: &Value) -> Vec<(String, Value)> {
    let calls = reply["choices"][0]["message"]["tool_calls"].as_array().into_iter().flatten();
    let read = |call: &Value| {
        let function = &call["function"];
        assert!(call["id"].as_str().unwrap().starts_with("call_") && call["type"] == "function", "{call}");
        let arguments = serde_json::from_str(function["arguments"].as_str().unwrap()).unwrap();
        (function["name"].as_str().unwrap().to_owned(), arguments)
    };
    calls.map(read).collect()
}

fn content(reply: &Value) -> &str {
    reply["choices"][0]["message"]["content"].as_str().unwrap_or_else(|| panic!("no text: {reply}"))
}

/// The assistant message of `reply` and one result for each of its calls.
fn group(reply: &Value, result: &str) -> Vec<Value> {
    let message = reply["choices"][0]["message"].clone();
    let calls = message["tool_calls"].as_array().unwrap().clone();
    let result = |call: &Value| json!({"role": "tool", "tool_call_id": call["id"], "content": result});
    [message].into_iter().chain(calls.iter().map(result)).collect()
}

/// The messages of a conversation in which the model made `rounds` replies with calls, and the last such reply.
async fn history(served: &Served, model: &str, rounds: usize) -> Vec<Value> {
    let mut messages = vec![user("find bicycles")];
    for _ in 0..rounds {
        let reply = served.ask(with_tools(model, messages.clone(), &["searchAll", "urlReader"])).await;
        messages.extend(group(&reply, "nothing"));
    }
    messages
}

/// What the chunks say when put together, as the message of a whole reply.
fn assembled(chunks: &[Value], choice: usize) -> Value {
    let mut message = json!({"content": null, "tool_calls": null});
    let mut finish = Value::Null;
    for part in chunks.iter().flat_map(|chunk| chunk["choices"].as_array().unwrap()) {
        if part["index"] != choice {
            continue;
        }
        let delta = &part["delta"];
        if let Some(text) = delta["content"].as_str() {
            message["content"] = json!(message["content"].as_str().unwrap_or_default().to_owned() + text);
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let index = call["index"].as_u64().unwrap() as usize;
            if message["tool_calls"][index].is_null() {
                let all = message["tool_calls"].as_array().cloned().unwrap_or_default();
                message["tool_calls"] = all.into_iter().chain([call.clone()]).collect();
                assert_eq!(call["function"]["arguments"], "");
                message["tool_calls"][index].as_object_mut().unwrap().remove("index");
                continue;
            }
            let so_far = &mut message["tool_calls"][index]["function"]["arguments"];
            *so_far =
                json!(so_far.as_str().unwrap().to_owned() + call["function"]["arguments"].as_str().unwrap());
        }
        finish = part["finish_reason"].clone();
    }
    message["finish_reason"] = finish;
    message
}

#[tokio::test]
async fn a_whole_reply_has_every_member_that_openai_sends() {
    let served = Served::start().await;
    let body = chat("demo-chat", vec![user("Hello there")]);
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
async fn every_model_says_the_same_streamed_and_whole() {
    let served = Served::start().await;
    let ask = |model: &str, tools: bool| {
        let messages = vec![user("use searchAll and urlReader on größe")];
        if tools { with_tools(model, messages, &["searchAll", "urlReader"]) } else { chat(model, messages) }
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

#[tokio::test]
async fn a_stream_gives_the_role_once_then_pieces_then_the_reason_and_no_usage_unasked() {
    let served = Served::start().await;
    let chunks = served.stream(with_tools("demo-runaway", vec![user("q")], &["searchAll"])).await;
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
async fn usage_comes_in_a_chunk_of_its_own_where_it_was_asked_for() {
    let served = Served::start().await;
    let mut body = chat("demo-chat", vec![user("q")]);
    body["stream_options"] = json!({"include_usage": true});
    let mut chunks = served.stream(body).await;
    let last = chunks.pop().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert!(last["usage"]["total_tokens"].as_u64().unwrap() > 10);
    assert!(chunks.iter().all(|chunk| chunk.get("usage") == Some(&Value::Null)));
}

#[tokio::test]
async fn chat_calls_each_tool_that_the_user_names_once_a_turn() {
    let served = Served::start().await;
    let tools = ["searchAll", "urlReader", "other"];
    let mut messages = vec![user("Use `urlReader`, then SEARCHALL.")];
    let mut one_by_one = with_tools("demo-chat", messages.clone(), &tools);
    let reply = served.ask(one_by_one.clone()).await;
    let names: Vec<String> = calls(&reply).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["searchAll", "urlReader"]);
    assert_eq!(calls(&reply)[1].1, json!({"url": "https://example.com/page"}));
    one_by_one["parallel_tool_calls"] = json!(false);
    assert_eq!(calls(&served.ask(one_by_one).await).len(), 1);

    messages.extend(group(&reply, "found"));
    let answer = served.ask(with_tools("demo-chat", messages.clone(), &tools)).await;
    assert!(content(&answer).contains("2 tool results with 10 characters"), "{answer}");
    messages.extend([answer["choices"][0]["message"].clone(), user("again with searchAll")]);
    assert_eq!(calls(&served.ask(with_tools("demo-chat", messages, &tools)).await).len(), 1);
}

#[tokio::test]
async fn the_runaway_never_asks_the_same_twice_reads_a_page_at_times_and_answers_only_when_made_to() {
    let served = Served::start().await;
    let messages = history(&served, "demo-runaway", 30).await;
    let made = messages.iter().filter_map(|message| message["tool_calls"].as_array()).flatten();
    let mut made: Vec<String> = made.map(|call| call["function"].to_string()).collect();
    assert_eq!(made.iter().filter(|call| call.contains("urlReader")).count(), 5);
    made.sort();
    made.dedup();
    assert_eq!(made.len(), 30);
    let mut forced = with_tools("demo-runaway", messages.clone(), &["searchAll"]);
    forced["tool_choice"] = json!("none");
    for body in [forced, chat("demo-runaway", messages)] {
        let reply = served.ask(body).await;
        assert!(content(&reply).contains("30 tool results"), "{reply}");
    }
}

#[tokio::test]
async fn the_stuck_model_makes_one_and_the_same_call_of_the_first_tool() {
    let served = Served::start().await;
    let mut messages = vec![user("find bicycles")];
    let mut made = Vec::new();
    for _ in 0..5 {
        let reply = served.ask(with_tools("demo-stuck", messages.clone(), &["lookup", "other"])).await;
        made.extend(calls(&reply));
        messages.extend(group(&reply, "nothing"));
    }
    assert_eq!(made, vec![("lookup".to_owned(), json!({"query": "find bicycles"})); 5]);
}

#[tokio::test]
async fn the_polite_model_stops_when_the_newest_text_says_so_and_not_for_old_or_buried_words() {
    let served = Served::start().await;
    for (result, role, text, stops) in [
        ("nothing", "", "", false),
        ("nothing\n\n[toolrein] Budget: 5 of 10 tool calls", "", "", true),
        (r#"{"ok":false,"error":{"type":"BUDGET_EXCEEDED"}}"#, "", "", true),
        ("nothing", "system", "Answer now.", true),
        ("nothing", "user", "please give your final answer", true),
        (&format!("budget{}", "x".repeat(5_000)), "", "", false),
    ] {
        let mut messages = history(&served, "demo-polite", 2).await;
        messages.last_mut().unwrap()["content"] = json!(result);
        if !role.is_empty() {
            messages.push(json!({"role": role, "content": text}));
        }
        let reply = served.ask(with_tools("demo-polite", messages.clone(), &["searchAll"])).await;
        assert_eq!(calls(&reply).is_empty(), stops, "{result:.60} {role} {text}");
    }
    let mut messages = history(&served, "demo-polite", 2).await;
    messages[2]["content"] = json!("answer now");
    assert_eq!(calls(&served.ask(with_tools("demo-polite", messages, &["searchAll"])).await).len(), 1);
}

#[tokio::test]
async fn a_model_without_tools_refuses_them_in_ollamas_words_and_answers_without() {
    let served = Served::start().await;
    let expected = json!({"message": "demo-no-tools does not support tools", "type": "api_error", "param": null, "code": null});
    let mut legacy = chat("demo-no-tools", vec![user("q")]);
    legacy["functions"] = json!([{"name": "f"}]);
    for body in [with_tools("demo-no-tools", vec![user("q")], &["f"]), legacy] {
        assert_eq!(served.refused(body).await, (400, expected.clone()));
    }
    let reply = served.ask(chat("demo-no-tools", vec![user("q")])).await;
    assert!(content(&reply).contains("\"q\""));
}

#[tokio::test]
async fn the_strict_model_takes_a_system_message_at_the_beginning_alone() {
    let served = Served::start().await;
    let system = json!({"role": "system", "content": "s"});
    served.ask(chat("demo-strict", vec![system.clone(), user("q")])).await;
    let late = served.refused(chat("demo-strict", vec![user("q"), system.clone()])).await;
    let expected = json!({"message": "System message must be at the beginning.", "type": "BadRequestError", "param": null, "code": 400});
    assert_eq!(late, (400, expected));
    served.ask(chat("demo-polite", vec![user("q"), system])).await;
}

#[tokio::test]
async fn the_choice_of_tools_binds_the_model() {
    let served = Served::start().await;
    for (choice, called, finish) in [
        (json!("auto"), "", "stop"),
        (json!("none"), "", "stop"),
        (json!("required"), "one", "tool_calls"),
        (json!({"type": "function", "function": {"name": "two"}}), "two", "stop"),
        (
            json!({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools":
                [{"type": "function", "function": {"name": "two"}}]}}),
            "two",
            "tool_calls",
        ),
    ] {
        let mut body = with_tools("demo-chat", vec![user("q")], &["one", "two"]);
        body["tool_choice"] = choice;
        let reply = served.ask(body.clone()).await;
        let names: Vec<String> = calls(&reply).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names.concat(), called, "{body}");
        assert_eq!(reply["choices"][0]["finish_reason"], finish, "{body}");
    }
}

#[tokio::test]
async fn several_choices_have_indices_and_call_ids_of_their_own() {
    let served = Served::start().await;
    let mut body = with_tools("demo-runaway", vec![user("q")], &["searchAll"]);
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
    let mut body = chat("demo-chat", vec![user("answer in JSON")]);
    body["response_format"] = json!({"type": "json_object"});
    let reply = served.ask(body.clone()).await;
    assert!(serde_json::from_str::<Value>(content(&reply)).unwrap()["answer"].is_string());
    let schema =
        json!({"type": "object", "properties": {"count": {"type": "integer"}, "kind": {"enum": ["x"]}}});
    body["response_format"] = json!({"type": "json_schema", "json_schema": {"name": "n", "schema": schema}});
    let reply = served.ask(body).await;
    assert_eq!(serde_json::from_str::<Value>(content(&reply)).unwrap(), json!({"count": 1, "kind": "x"}));
    let mut short = chat("demo-chat", vec![user("q")]);
    short["max_completion_tokens"] = json!(3);
    let reply = served.ask(short).await;
    assert_eq!((content(&reply), &reply["choices"][0]["finish_reason"]), ("This is the", &json!("length")));
}

#[tokio::test]
async fn the_same_request_gets_the_same_bytes_and_another_gets_other_ids() {
    let served = Served::start().await;
    let other = Served::start().await;
    for stream in [false, true] {
        let mut body = with_tools("demo-runaway", vec![user("q")], &["searchAll"]);
        body["stream"] = json!(stream);
        let first = served.send(Method::POST, "/v1/chat/completions", body.to_string()).await;
        assert_eq!(first, served.send(Method::POST, "/v1/chat/completions", body.to_string()).await);
        assert_eq!(first, other.send(Method::POST, "/v1/chat/completions", body.to_string()).await);
    }
    let ids = [
        served.ask(chat("demo-chat", vec![user("a")])).await["id"].clone(),
        served.ask(chat("demo-chat", vec![user("b")])).await["id"].clone(),
    ];
    assert_ne!(ids[0], ids[1]);
}

#[tokio::test]
async fn what_openai_refuses_is_refused_in_its_words() {
    let served = Served::start().await;
    let with = |key: &str, value: Value| {
        let mut body = chat("demo-chat", vec![user("q")]);
        body[key] = value;
        body
    };
    let said = |message: Value| chat("demo-chat", vec![user("q"), message]);
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let many: Vec<Value> = (0..129).map(|_| json!({"type": "function", "function": {"name": "f"}})).collect();
    for (body, message, param, code) in [
        (json!({"messages": []}), "you must provide a model parameter", json!(null), json!(null)),
        (
            json!({"model": "demo-chat"}),
            "Missing required parameter: 'messages'.",
            json!("messages"),
            json!("missing_required_parameter"),
        ),
        (
            chat("demo-chat", vec![]),
            "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.",
            json!("messages"),
            json!("empty_array"),
        ),
        (
            json!({"model": "demo-chat", "messages": "q"}),
            "Invalid type for 'messages': expected an array of objects, but got a string instead.",
            json!("messages"),
            json!("invalid_type"),
        ),
        (
            said(json!({"role": "bot", "content": ""})),
            "Invalid value: 'bot'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and 'developer'.",
            json!("messages[1].role"),
            json!("invalid_value"),
        ),
        (
            said(json!({"role": "assistant", "content": null})),
            "Invalid value for 'content': expected a string, got null.",
            json!("messages.[1].content"),
            json!(null),
        ),
        (
            said(json!({"role": "assistant", "tool_calls": []})),
            "Invalid 'messages[1].tool_calls': empty array. Expected an array with minimum length 1, but got an empty array instead.",
            json!("messages[1].tool_calls"),
            json!("empty_array"),
        ),
        (
            said(json!({"role": "assistant", "tool_calls": [call("a")]})),
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. \
             The following tool_call_ids did not have response messages: a",
            json!("messages"),
            json!(null),
        ),
        (
            said(json!({"role": "tool", "tool_call_id": "a", "content": ""})),
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
            json!("messages.[1].role"),
            json!(null),
        ),
        (
            with("tools", json!([])),
            "Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead.",
            json!("tools"),
            json!("empty_array"),
        ),
        (
            with("tools", json!(many)),
            "Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length 129 instead.",
            json!("tools"),
            json!("array_above_max_length"),
        ),
        (
            with("tools", json!([{"type": "function", "function": {"name": "a.b"}}])),
            "Invalid 'tools[0].function.name': string does not match pattern. Expected a string that matches the pattern \
             '^[a-zA-Z0-9_-]+$'.",
            json!("tools[0].function.name"),
            json!("invalid_value"),
        ),
        (
            with("tool_choice", json!("none")),
            "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.",
            json!("tool_choice"),
            json!(null),
        ),
        (
            with("parallel_tool_calls", json!(true)),
            "Invalid value for 'parallel_tool_calls': 'parallel_tool_calls' is only allowed when 'tools' are specified.",
            json!("parallel_tool_calls"),
            json!(null),
        ),
        (
            with("stream_options", json!({"include_usage": true})),
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
            json!("stream_options"),
            json!(null),
        ),
        (
            with("n", json!(129)),
            "Invalid 'n': integer above maximum value. Expected a value <= 128, but got 129 instead.",
            json!("n"),
            json!("integer_above_max_value"),
        ),
        (
            with("response_format", json!({"type": "json_object"})),
            "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'.",
            json!("messages"),
            json!(null),
        ),
    ] {
        let (status, error) = served.refused(body).await;
        let expected =
            json!({"message": message, "type": "invalid_request_error", "param": param, "code": code});
        assert_eq!((status, error), (400, expected));
    }
}

#[tokio::test]
async fn bad_json_unknown_models_and_wrong_routes_get_openais_errors() {
    let served = Served::start().await;
    for body in ["{", "[]", "", "{\"model\":\"demo-chat\",\"messages\":[\"\u{fffd}"] {
        let (status, _, text) = served.send(Method::POST, "/v1/chat/completions", body.to_owned()).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert!(text.contains("We could not parse the JSON body of your request."), "{text}");
    }
    let (status, error) = served.refused(chat("gpt-9", vec![user("q")])).await;
    assert_eq!((status, &error["code"]), (404, &json!("model_not_found")));
    assert_eq!(error["message"], "The model `gpt-9` does not exist or you do not have access to it.");
    for (method, path, status, code) in [
        (Method::POST, "/v1/completions", 404, json!("unknown_url")),
        (Method::GET, "/", 404, json!("unknown_url")),
        (Method::GET, "/v1/chat/completions", 405, json!(null)),
        (Method::GET, "/v1/models/gpt-9", 404, json!("model_not_found")),
    ] {
        let (got, _, text) = served.send(method, path, String::new()).await;
        let body: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((got.as_u16(), &body["error"]["code"]), (status, &code), "{path}");
    }
    assert!(served.upstream.stats().is_empty());
}

#[tokio::test]
async fn the_models_are_listed_and_described() {
    let served = Served::start().await;
    let (_, _, text) = served.send(Method::GET, "/v1/models?limit=9", String::new()).await;
    let list: Value = serde_json::from_str(&text).unwrap();
    let names: Vec<&str> =
        list["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["demo-chat", "demo-runaway", "demo-polite", "demo-stuck", "demo-no-tools", "demo-strict"]
    );
    for (name, listed) in names.iter().zip(list["data"].as_array().unwrap()) {
        let (status, _, text) = served.send(Method::GET, &format!("/v1/models/{name}"), String::new()).await;
        assert_eq!((status, serde_json::from_str::<Value>(&text).unwrap()), (StatusCode::OK, listed.clone()));
    }
}

#[tokio::test]
async fn a_body_over_the_bound_is_refused_unread() {
    let served = Served::start().await;
    let body =
        format!("{{\"model\":\"demo-chat\",\"messages\":[],\"pad\":\"{}\"}}", "x".repeat(32 * 1024 * 1024));
    let request = Request::post(format!("http://{}/v1/chat/completions", served.address));
    let sent = served.client.request(request.body(Full::new(Bytes::from(body))).unwrap()).await;
    // The connection may be gone before the client has written all: then there is no response to read.
    if let Ok(response) = sent {
        assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
    }
    assert!(served.upstream.stats().is_empty());
}

#[tokio::test]
async fn http_2_without_tls_is_spoken_on_the_same_port() {
    let mut served = Served::start().await;
    served.client = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let chunks = served.stream(chat("demo-chat", vec![user("q")])).await;
    assert!(assembled(&chunks, 0)["content"].as_str().unwrap().contains("\"q\""));
}

#[tokio::test]
async fn the_shutdown_ends_idle_connections_and_frees_the_port() {
    let served = Served::start().await;
    served.ask(chat("demo-chat", vec![user("q")])).await;
    let silent = tokio::net::TcpStream::connect(served.address).await.unwrap();
    served.stop.send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(4), served.task)
        .await
        .expect("no need of the drain's limit")
        .unwrap();
    TcpListener::bind(served.address).await.unwrap();
    drop(silent);
}

#[tokio::test]
async fn the_demonstration_shows_no_difference_where_there_is_no_proxy() {
    let served = Served::start().await;
    let places = Places { direct: served.address, proxied: served.address };
    let mut out = Vec::new();
    run(places, &served.upstream, &mut out).await.unwrap();
    let text = String::from_utf8(out).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.iter().all(|line| line.chars().count() <= 100), "{text}");
    // Scene and way stand in the first 34 columns, what was measured behind them.
    let measured: Vec<&str> = lines[2..8].iter().map(|line| &line[34..]).collect();
    for pair in measured.chunks(2) {
        assert_eq!(pair[0], pair[1], "{text}");
    }
    assert!(measured[0].ends_with("gave up after 25 calls"), "{text}");
    assert!(measured[2].ends_with("answered"), "{text}");
    assert!(measured[4].ends_with("refused (HTTP 400)"), "{text}");
    assert_eq!(lines[9], "No difference: 1 of 3 scenes answered either way.");
    let stats = served.upstream.stats();
    assert_eq!(
        (stats["demo-runaway"].requests, stats["demo-chat"].requests, stats["demo-no-tools"].requests),
        (50, 4, 2)
    );
    assert!(stats["demo-chat"].request_bytes > 2 * 200 * 1024, "{stats:?}");
}

#[tokio::test]
async fn the_demonstration_survives_a_proxy_that_is_not_there() {
    let served = Served::start().await;
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let mut out = Vec::new();
    run(Places { direct: served.address, proxied: gone }, &served.upstream, &mut out).await.unwrap();
    let text = String::from_utf8(out).unwrap();
    assert_eq!(text.lines().filter(|line| line.ends_with("no connection")).count(), 3, "{text}");
}

#[tokio::test]
async fn the_line_for_the_shell_names_the_proxy_and_a_body_that_is_answered() {
    let served = Served::start().await;
    let line = curl_line("127.0.0.1:4242".parse().unwrap());
    assert!(line.starts_with("curl -N http://127.0.0.1:4242/v1/chat/completions "), "{line}");
    let body: Value = serde_json::from_str(line.split('\'').rev().nth(1).unwrap()).unwrap();
    served.stream(body).await;
}
