//! Tests of the simulated Messages API: what is refused and how, and what the tests share.

mod binding;
mod corpus;
mod laws;
mod models;
mod refusals;
mod replies;
mod state;
mod streams;

use super::error::MessagesError;
use super::{MessagesEndpoint, RequestHead, join, violations};
use crate::Upstream;
use crate::server::Form;
use bytes::Bytes;
use hyper::http::{HeaderMap, HeaderValue, Method};
use serde_json::{Value, json};
use std::time::Duration;

/// The simulated upstream, without sockets.
struct Simulated(Upstream);

impl Simulated {
    fn new() -> Self {
        Self(Upstream::new(Duration::ZERO))
    }

    fn send(&self, endpoint: MessagesEndpoint, body: &Value) -> Result<Form, MessagesError> {
        let betas =
            "message-threads-2026-08-12, thinking-binding-controls-2026-08-01, inline-tools-2026-09-15";
        let headers = [("anthropic-version", "2023-06-01"), ("anthropic-beta", betas)];
        let headers: HeaderMap = headers
            .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)))
            .into_iter()
            .collect();
        self.0.answer(endpoint, &Method::POST, &headers, &Bytes::from(body.to_string()))
    }

    /// The message of a reply, streamed or whole.
    fn ask(&self, body: &Value) -> Value {
        match self.send(MessagesEndpoint::Create, body) {
            Ok(Form::Whole(message)) => message,
            Ok(Form::Events(events)) => join(&joined(&events)).unwrap(),
            Err(error) => panic!("{error:#?} for {body:#}"),
        }
    }

    fn refused(&self, body: &Value) -> MessagesError {
        self.send(MessagesEndpoint::Create, body).err().unwrap_or_else(|| panic!("not refused: {body:#}"))
    }

    fn events(&self, body: &Value) -> Vec<Bytes> {
        let body = with(body.clone(), "stream", json!(true));
        match self.send(MessagesEndpoint::Create, &body) {
            Ok(Form::Events(events)) => events,
            _ => panic!("no stream for {body:#}"),
        }
    }
}

fn joined(events: &[Bytes]) -> String {
    events.iter().map(|event| std::str::from_utf8(event).unwrap()).collect()
}

fn with(mut body: Value, member: &str, value: Value) -> Value {
    body[member] = value;
    body
}

/// A request to a simulated model with these messages and tools that search.
fn demo(model: &str, messages: &[Value], names: &[&str]) -> Value {
    let tool = |name: &&str| {
        let parameter = if *name == "urlReader" { "url" } else { "query" };
        json!({"name": name, "input_schema":
            {"type": "object", "properties": {parameter: {"type": "string"}}, "required": [parameter]}})
    };
    let body = json!({"model": model, "max_tokens": 4096, "messages": messages});
    if names.is_empty() { body } else { with(body, "tools", names.iter().map(tool).collect()) }
}

/// The calls of a message as names and inputs.
fn calls(message: &Value) -> Vec<(&str, &Value)> {
    let blocks = message["content"].as_array().unwrap().iter().filter(|block| block["type"] == "tool_use");
    blocks.map(|block| (block["name"].as_str().unwrap(), &block["input"])).collect()
}

/// The texts of a message, joined.
fn said(message: &Value) -> String {
    message["content"].as_array().unwrap().iter().filter_map(|block| block["text"].as_str()).collect()
}

/// Appends the reply, and a user message with a result for each of its calls.
fn go_on(body: &mut Value, reply: &Value, result: &str) {
    let calls = reply["content"].as_array().unwrap().iter().filter(|block| block["type"] == "tool_use");
    let results =
        calls.map(|call| json!({"type": "tool_result", "tool_use_id": call["id"], "content": result}));
    let results: Vec<Value> = results.collect();
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(assistant(&reply["content"]));
    if !results.is_empty() {
        messages.push(user(&json!(results)));
    }
}

/// The head of a request with these betas.
fn head(betas: &str) -> RequestHead {
    RequestHead::from_headers([("anthropic-version", "2023-06-01"), ("anthropic-beta", betas)])
}

fn user(content: &Value) -> Value {
    json!({"role": "user", "content": content})
}

fn assistant(content: &Value) -> Value {
    json!({"role": "assistant", "content": content})
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn call(id: &str) -> Value {
    json!({"type": "tool_use", "id": id, "name": "search", "input": {"query": "q"}})
}

fn result(id: &str) -> Value {
    json!({"type": "tool_result", "tool_use_id": id, "content": "found"})
}

/// A request with one tool, `search`, for these messages.
fn request(messages: &[Value]) -> Value {
    let schema =
        json!({"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]});
    json!({"model": "claude-sonnet-4-5", "max_tokens": 4096, "messages": messages,
        "tools": [{"name": "search", "description": "Searches.", "input_schema": schema}]})
}

/// A request that ends with the results of two parallel calls.
fn looped() -> Value {
    request(&[
        user(&json!("find bicycles")),
        assistant(&json!([text("I will search."), call("toolu_1"), call("toolu_2")])),
        user(&json!([result("toolu_1"), result("toolu_2")])),
    ])
}

fn violations_of(betas: &str, body: &Value) -> Vec<String> {
    violations(&head(betas), body.to_string().as_bytes())
}
