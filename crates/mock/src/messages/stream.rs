//! A message as server-sent events, in Anthropic's order: the message opens; each block opens, grows and closes before the next;
//! the stop reason and the usage end it. There is no `[DONE]`.
//!
//! Source: 367 recorded streams, for the ping and the padding within the data too.

use super::reply::MessageReply;
use crate::ids::Ids;
use crate::reply::{fragments, words};
use bytes::Bytes;
use serde_json::{Value, json};

impl MessageReply {
    /// The events of the streamed message.
    pub(super) fn events(&self) -> Vec<Bytes> {
        let mut events = Events { events: Vec::new(), padding: self.padding.clone() };
        events.push("message_start", json!({"message": self.opened()}));
        for (index, block) in self.content.iter().enumerate() {
            events.push("content_block_start", json!({"index": index, "content_block": opened(block)}));
            if index == 0 {
                events.push("ping", json!({}));
            }
            for delta in deltas(block) {
                events.push("content_block_delta", json!({"index": index, "delta": delta}));
            }
            events.push("content_block_stop", json!({"index": index}));
        }
        let delta = json!({"stop_reason": self.stop_reason, "stop_sequence": self.stop_sequence});
        events.push("message_delta", json!({"delta": delta, "usage": self.final_usage()}));
        events.push("message_stop", json!({}));
        events.events
    }
}

/// The block as its start has it: without what its deltas will add.
fn opened(block: &Value) -> Value {
    let mut opened = block.clone();
    for member in ["text", "thinking", "signature"] {
        if !block[member].is_null() {
            opened[member] = json!("");
        }
    }
    if block["type"] == "tool_use" {
        opened["input"] = json!({});
    }
    opened
}

/// What is between the start and the stop of a block.
fn deltas(block: &Value) -> Vec<Value> {
    let text = |member: &str| block[member].as_str().unwrap_or_default();
    match block["type"].as_str() {
        Some("tool_use") => {
            let input = block["input"].to_string();
            let is_empty = block["input"].as_object().is_some_and(serde_json::Map::is_empty);
            let pieces = if is_empty { Vec::new() } else { fragments(&input) };
            let all = [""].into_iter().chain(pieces);
            all.map(|piece| json!({"type": "input_json_delta", "partial_json": piece})).collect()
        }
        Some("thinking") => {
            let thought = words(text("thinking")).into_iter();
            let deltas = thought.map(|word| json!({"type": "thinking_delta", "thinking": word}));
            deltas.chain([json!({"type": "signature_delta", "signature": text("signature")})]).collect()
        }
        _ => {
            words(text("text")).into_iter().map(|word| json!({"type": "text_delta", "text": word})).collect()
        }
    }
}

/// Events so far.
struct Events {
    events: Vec<Bytes>,
    padding: Ids,
}

impl Events {
    fn push(&mut self, kind: &str, members: Value) {
        let mut data = json!({"type": kind});
        if let (Value::Object(data), Value::Object(members)) = (&mut data, members) {
            data.extend(members);
        }
        let mut data = data.to_string();
        if kind != "ping" {
            // Spaces within the object hide how long the text is.
            let spaces = " ".repeat(self.padding.padding().len());
            data.insert_str(data.len() - 1, &spaces);
        }
        self.events.push(Bytes::from(format!("event: {kind}\ndata: {data}\n\n")));
    }
}
