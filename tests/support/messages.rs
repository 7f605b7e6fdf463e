//! Scripted replies of the Messages API: thinking with a signature that the strict validator accepts, texts and calls, as one
//! message or as the events that Anthropic sends.

use super::reply::Reply;
use super::responses::event;
use super::scripted::Recorded;
use serde_json::{Value, json};

/// A reply of a model.
#[derive(Clone, Debug)]
pub struct Message {
    id: String,
    thinks: bool,
    blocks: Vec<Value>,
}

impl Message {
    /// An empty reply; `name` makes its id unique.
    pub fn new(name: impl std::fmt::Display) -> Self {
        Self { id: format!("msg_{name}"), thinks: false, blocks: Vec::new() }
    }

    /// Begins with a thinking block.
    #[must_use]
    pub fn thinks(mut self) -> Self {
        self.thinks = true;
        self
    }

    /// Adds a text.
    #[must_use]
    pub fn says(mut self, text: &str) -> Self {
        self.blocks.push(json!({"type": "text", "text": text}));
        self
    }

    /// Adds a call with the id `toolu_ID`.
    #[must_use]
    pub fn calls(mut self, id: &str, tool: &str, input: &Value) -> Self {
        let id = format!("toolu_{id}");
        self.blocks.push(json!({"type": "tool_use", "id": id, "name": tool, "input": input}));
        self
    }

    /// The reply to this request, streamed if it asks for that.
    pub fn reply(&self, request: &Recorded) -> Reply {
        let body = request.json();
        let message = self.message(&body);
        if body["stream"] != true {
            return Reply::json(200, &message);
        }
        Reply::stream(events(&message).iter().map(event))
    }

    fn message(&self, request: &Value) -> Value {
        let mut content = self.blocks.clone();
        if self.thinks {
            let thinking = "The user wants to know it.";
            let signature = mock::messages::sign(request, thinking);
            content.insert(0, json!({"type": "thinking", "thinking": thinking, "signature": signature}));
        }
        let calls = self.blocks.iter().any(|block| block["type"] == "tool_use");
        json!({"id": self.id, "type": "message", "role": "assistant", "model": request["model"], "content": content,
            "stop_reason": if calls { "tool_use" } else { "end_turn" }, "stop_sequence": null,
            "usage": {"input_tokens": 20, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 5}})
    }
}

/// The events of a message, in Anthropic's order.
fn events(message: &Value) -> Vec<Value> {
    let mut opened = message.clone();
    let blocks = opened["content"].take();
    (opened["content"], opened["stop_reason"]) = (json!([]), Value::Null);
    let mut events = vec![json!({"type": "message_start", "message": opened}), json!({"type": "ping"})];
    for (index, block) in blocks.as_array().into_iter().flatten().enumerate() {
        let (begun, deltas) = begin(block);
        events.push(json!({"type": "content_block_start", "index": index, "content_block": begun}));
        let delta = |delta| json!({"type": "content_block_delta", "index": index, "delta": delta});
        events.extend(deltas.into_iter().map(delta));
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    let end = json!({"stop_reason": message["stop_reason"], "stop_sequence": null});
    events.push(json!({"type": "message_delta", "delta": end, "usage": message["usage"]}));
    events.push(json!({"type": "message_stop"}));
    events
}

/// A block as it begins, and its deltas.
fn begin(block: &Value) -> (Value, Vec<Value>) {
    let text = |member: &str| block[member].as_str().unwrap_or_default();
    let mut begun = block.clone();
    let deltas = match text("type") {
        "text" => {
            begun["text"] = "".into();
            let words = text("text").split_inclusive(' ');
            words.map(|word| json!({"type": "text_delta", "text": word})).collect()
        }
        "thinking" => {
            (begun["thinking"], begun["signature"]) = ("".into(), "".into());
            let thinking = json!({"type": "thinking_delta", "thinking": text("thinking")});
            vec![thinking, json!({"type": "signature_delta", "signature": text("signature")})]
        }
        _ => {
            begun["input"] = json!({});
            let input = block["input"].to_string();
            let (start, end) = input.split_at(input.len() / 2);
            let delta = |piece| json!({"type": "input_json_delta", "partial_json": piece});
            ["", start, end].map(delta).into()
        }
    };
    (begun, deltas)
}
