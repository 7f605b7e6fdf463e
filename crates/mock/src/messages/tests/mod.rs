//! Tests of the simulated Messages API: what is refused and how, and what the tests share.

mod binding;
mod corpus;
mod refusals;

use super::{RequestHead, violations};
use serde_json::{Value, json};

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
