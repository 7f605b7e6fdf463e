//! The wire formats of the demonstration's agent: chat completions, whole, the Responses API and the Messages API, streamed. On
//! each it sends the whole history each time.

use super::{messages, world};
use serde_json::{Value, json};

/// The endpoint that an agent asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/responses`.
    Responses,
    /// `/v1/messages`.
    Messages,
}

/// What a model answered.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Answer {
    /// What the history gains by it, as it came.
    pub items: Vec<Value>,
    /// The calls to run.
    pub calls: Vec<Call>,
    /// Whether there is a text that is not blank.
    pub speaks: bool,
}

/// A call to run.
#[derive(Debug, PartialEq)]
pub(super) struct Call {
    /// The id that its result names.
    pub id: String,
    pub name: String,
    /// JSON as text.
    pub arguments: String,
}

impl Endpoint {
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Responses => "/v1/responses",
            Self::Messages => "/v1/messages",
        }
    }

    /// The version of the API, which the Messages API wants in a header.
    pub(super) fn version(self) -> Option<&'static str> {
        (self == Self::Messages).then_some("2023-06-01")
    }

    /// The user's message.
    pub(super) fn question(text: &str) -> Value {
        json!({"role": "user", "content": text})
    }

    /// The body of a request that continues `history`.
    pub(super) fn body(self, model: &str, history: &[Value]) -> Value {
        match self {
            Self::Chat => json!({"model": model, "messages": history, "tools": world::tools()}),
            Self::Responses => {
                let mut tools = world::tools();
                for tool in tools.as_array_mut().into_iter().flatten() {
                    *tool = flat(tool["function"].take());
                }
                json!({"model": model, "input": history, "tools": tools, "store": false, "stream": true})
            }
            Self::Messages => {
                let tools = world::tools();
                let tools: Vec<Value> = tools.as_array().into_iter().flatten().map(custom).collect();
                json!({"model": model, "max_tokens": MAX_TOKENS, "messages": history, "tools": tools,
                    "thinking": {"type": "adaptive"}, "stream": true})
            }
        }
    }

    /// What the history gains by the results of one reply's calls: ids and texts.
    pub(super) fn results(self, results: Vec<(&str, String)>) -> Vec<Value> {
        let results = results.into_iter().map(|(id, text)| match self {
            Self::Chat => json!({"role": "tool", "tool_call_id": id, "content": text}),
            Self::Responses => json!({"type": "function_call_output", "call_id": id, "output": text}),
            Self::Messages => json!({"type": "tool_result", "tool_use_id": id, "content": text}),
        });
        match self {
            Self::Messages => vec![json!({"role": "user", "content": results.collect::<Vec<Value>>()})],
            Self::Chat | Self::Responses => results.collect(),
        }
    }

    /// Reads the body of a reply, or says what it lacks.
    pub(super) fn read(self, body: &[u8]) -> Result<Answer, &'static str> {
        match self {
            Self::Chat => read_completion(body),
            Self::Responses => read_events(body),
            Self::Messages => read_message(body),
        }
    }
}

/// The most tokens that a reply of the Messages API may have.
const MAX_TOKENS: u64 = 4_096;

/// A function tool as the Messages API has it.
fn custom(tool: &Value) -> Value {
    let function = &tool["function"];
    json!({"name": function["name"], "description": function["description"], "input_schema": function["parameters"]})
}

/// A function tool as the Responses API has it.
fn flat(function: Value) -> Value {
    let mut tool = json!({"type": "function"});
    if let (Value::Object(tool), Value::Object(members)) = (&mut tool, function) {
        tool.extend(members);
    }
    tool
}

fn read_completion(body: &[u8]) -> Result<Answer, &'static str> {
    let mut reply: Value = serde_json::from_slice(body).map_err(|_| "reply not JSON")?;
    let message = reply.pointer_mut("/choices/0/message").map(Value::take);
    let message = message.filter(Value::is_object).ok_or("reply without choice")?;
    let calls = message["tool_calls"].as_array().into_iter().flatten();
    let calls = calls.map(|call| Call::read(&call["id"], &call["function"])).collect();
    Ok(Answer { calls, speaks: is_text(&message["content"]), items: vec![message] })
}

/// Reads the items that the stream closed. A stream without its last event counts for nothing.
fn read_events(body: &[u8]) -> Result<Answer, &'static str> {
    let text = std::str::from_utf8(body).map_err(|_| "reply not text")?;
    let mut answer = Answer::default();
    for data in text.lines().filter_map(|line| line.strip_prefix("data:")) {
        let mut event: Value = serde_json::from_str(data).map_err(|_| "event not JSON")?;
        match event["type"].as_str() {
            Some("response.output_item.done") => answer.add(event["item"].take()),
            Some("response.completed" | "response.incomplete") => return Ok(answer),
            Some("response.failed" | "error") => return Err("reply failed"),
            _ => {}
        }
    }
    Err("reply broken off")
}

/// Reads a streamed message, all of whose blocks go back as they came.
fn read_message(body: &[u8]) -> Result<Answer, &'static str> {
    let text = std::str::from_utf8(body).map_err(|_| "reply not text")?;
    let mut message = messages::join(text)?;
    let content = message["content"].take();
    let blocks = || content.as_array().into_iter().flatten();
    let calls = blocks().filter(|block| block["type"] == "tool_use").map(|block| {
        let text = |member: &str| block[member].as_str().unwrap_or_default().to_owned();
        Call { id: text("id"), name: text("name"), arguments: block["input"].to_string() }
    });
    let speaks = blocks().any(|block| is_text(&block["text"]));
    Ok(Answer {
        calls: calls.collect(),
        speaks,
        items: vec![json!({"role": "assistant", "content": content})],
    })
}

impl Answer {
    fn add(&mut self, item: Value) {
        if item["type"] == "function_call" {
            self.calls.push(Call::read(&item["call_id"], &item));
        }
        let mut parts = item["content"].as_array().into_iter().flatten();
        self.speaks |= item["type"] == "message" && parts.any(|part| is_text(&part["text"]));
        self.items.push(item);
    }
}

impl Call {
    fn read(id: &Value, function: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Self { id: text(id), name: text(&function["name"]), arguments: text(&function["arguments"]) }
    }
}

fn is_text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.trim().is_empty())
}
