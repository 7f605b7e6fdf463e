//! A response as server-sent events, in the order that OpenAI keeps: the response opens, each item opens, grows and
//! closes before the next, and the last event repeats the whole response. There is no `[DONE]`.

use super::super::ids::Ids;
use super::super::reply::{fragments, words};
use super::reply::Reply;
use bytes::Bytes;
use serde_json::{Value, json};

impl Reply {
    /// The events of the streamed response.
    pub(super) fn events(&self) -> Vec<Bytes> {
        let mut events = Events { events: Vec::new(), padding: self.padding.clone() };
        for kind in ["response.created", "response.in_progress"] {
            events.push(kind, json!({"response": self.unfinished()}));
        }
        for (index, item) in self.output.iter().enumerate() {
            events.push("response.output_item.added", json!({"item": opened(item), "output_index": index}));
            if item["type"] == "function_call" {
                events.arguments(index, item);
            } else {
                events.text(index, item);
            }
            events.push("response.output_item.done", json!({"item": item, "output_index": index}));
        }
        let last = if self.is_cut { "response.incomplete" } else { "response.completed" };
        events.push(last, json!({"response": self.whole()}));
        events.events
    }
}

/// The item as it is announced: without what its events will add.
fn opened(item: &Value) -> Value {
    let mut opened = item.clone();
    opened["status"] = json!("in_progress");
    if item["type"] == "function_call" {
        opened["arguments"] = json!("");
    } else {
        opened["content"] = json!([]);
    }
    opened
}

/// Events so far.
struct Events {
    events: Vec<Bytes>,
    /// The source of padding, where deltas are padded.
    padding: Option<Ids>,
}

impl Events {
    fn push(&mut self, kind: &str, members: Value) {
        let mut data = json!({"type": kind});
        if let (Value::Object(data), Value::Object(members)) = (&mut data, members) {
            data.extend(members);
        }
        if kind.ends_with(".delta")
            && let Some(ids) = &mut self.padding
        {
            data["obfuscation"] = json!(ids.padding());
        }
        data["sequence_number"] = json!(self.events.len());
        self.events.push(Bytes::from(format!("event: {kind}\ndata: {data}\n\n")));
    }

    /// What lies between a call's `added` and `done`.
    fn arguments(&mut self, index: usize, item: &Value) {
        let arguments = item["arguments"].as_str().unwrap_or_default();
        for piece in fragments(arguments) {
            let members = json!({"delta": piece, "item_id": item["id"], "output_index": index});
            self.push("response.function_call_arguments.delta", members);
        }
        let members = json!({"arguments": arguments, "item_id": item["id"], "output_index": index});
        self.push("response.function_call_arguments.done", members);
    }

    /// What lies between a message's `added` and `done`: one part of text.
    fn text(&mut self, index: usize, item: &Value) {
        let part = &item["content"][0];
        let text = part["text"].as_str().unwrap_or_default();
        let at = |key: &str, value: Value| {
            let mut members = json!({"content_index": 0, "item_id": item["id"], "output_index": index});
            members[key] = value;
            members
        };
        let mut empty = part.clone();
        empty["text"] = json!("");
        self.push("response.content_part.added", at("part", empty));
        for word in words(text) {
            let mut members = at("delta", json!(word));
            members["logprobs"] = json!([]);
            self.push("response.output_text.delta", members);
        }
        let mut members = at("text", json!(text));
        members["logprobs"] = json!([]);
        self.push("response.output_text.done", members);
        self.push("response.content_part.done", at("part", part.clone()));
    }
}
