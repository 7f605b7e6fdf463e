//! Tests of the simulated upstream over real sockets, and what they share: a running upstream, a client, and
//! ways to build requests and to read replies. The cases are in the files below.

mod demonstration;
mod messages;
mod models;
mod refusals;
mod replies;
mod responses;
mod serving;

use super::{Upstream, serve};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::http::{Method, Request, StatusCode};
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

fn chat(model: &str, messages: &[Value]) -> Value {
    json!({"model": model, "messages": messages})
}

fn with_tools(model: &str, messages: &[Value], names: &[&str]) -> Value {
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

/// The messages of a conversation in which the model made `rounds` replies with calls, and the last such
/// reply.
async fn history(served: &Served, model: &str, rounds: usize) -> Vec<Value> {
    let mut messages = vec![user("find bicycles")];
    for _ in 0..rounds {
        let reply = served.ask(with_tools(model, &messages, &["searchAll", "urlReader"])).await;
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
