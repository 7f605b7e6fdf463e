//! A reply in the form of the Messages API: the message with its content blocks. `stream` writes the same as events.

use super::prompt_cache::CacheUsage;
use super::request::MessageRequest;
use crate::ids::Ids;
use crate::model::Said;
use crate::reply::words;
use crate::request::Choice;
use crate::tokens;
use serde_json::{Value, json};

/// A message, ready to be written in either form.
pub(super) struct MessageReply {
    pub id: String,
    model: &'static str,
    /// The finished blocks.
    pub content: Vec<Value>,
    pub stop_reason: &'static str,
    /// The stop sequence that ended the text; else null.
    pub stop_sequence: Value,
    usage: Value,
    /// Thinking blocks of the request that were dropped.
    transformations: Vec<Value>,
    /// The source of the padding of events.
    pub padding: Ids,
}

impl MessageReply {
    /// The reply to `request` with the content `said`. `cached` is the part of its prompt that was in the cache.
    pub(super) fn new(request: &MessageRequest, said: &Said, cached: CacheUsage) -> Self {
        let chat = &request.chat;
        let mut ids = chat.ids.clone();
        let id = ids.message();
        let mut content: Vec<Value> = thinking(request, said).into_iter().collect();
        let (mut stop_reason, mut stop_sequence) = ("end_turn", Value::Null);
        match said {
            Said::Text(answer) => {
                let max =
                    chat.max_tokens.map_or(usize::MAX, |max| usize::try_from(max).unwrap_or(usize::MAX));
                let pieces = words(answer);
                if pieces.len() > max {
                    stop_reason = "max_tokens";
                }
                let mut answer: String = pieces.into_iter().take(max).collect();
                if let Some((end, sequence)) = first_stop(&answer, &request.body["stop_sequences"]) {
                    (stop_reason, stop_sequence) = ("stop_sequence", json!(sequence));
                    answer.truncate(end);
                }
                content.extend(text(&answer));
            }
            Said::Calls(calls) => {
                stop_reason = "tool_use";
                // A forced call has no text before it.
                if matches!(chat.choice, Choice::Auto) {
                    content.extend(text(&announcement(calls)));
                }
                content.extend(calls.iter().map(|(name, input)| {
                    json!({"type": "tool_use", "id": ids.tool_use(), "name": name, "input": input,
                        "caller": {"type": "direct"}})
                }));
            }
        }
        let usage = usage(chat.bytes, cached, content.iter().map(tokens_of).sum::<u64>().max(1));
        Self {
            id,
            model: chat.model.name(),
            content,
            stop_reason,
            stop_sequence,
            usage,
            transformations: request.transformations.clone(),
            padding: ids,
        }
    }

    /// The finished message.
    pub(super) fn whole(&self) -> Value {
        let mut message = self.opened();
        message["content"] = json!(self.content);
        message["stop_reason"] = json!(self.stop_reason);
        message["stop_sequence"] = self.stop_sequence.clone();
        message["usage"] = self.usage.clone();
        message
    }

    /// The message before its first block.
    pub(super) fn opened(&self) -> Value {
        let mut message = json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": [],
            "stop_reason": null,
            "stop_sequence": null,
            "usage": self.usage
        });
        message["usage"]["output_tokens"] = json!(1);
        if !self.transformations.is_empty() {
            message["input_transformations"] = json!(self.transformations);
        }
        message
    }

    /// The usage of the end of a stream: cumulative.
    pub(super) fn final_usage(&self) -> Value {
        let names =
            ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens"];
        names.into_iter().map(|name| (name.to_owned(), self.usage[name].clone())).collect()
    }
}

/// The thinking block with which the reply begins, where the request asks for thinking.
fn thinking(request: &MessageRequest, said: &Said) -> Option<Value> {
    let body = &request.body;
    if matches!(body["thinking"]["type"].as_str(), None | Some("disabled")) {
        return None;
    }
    let thought = match said {
        _ if body["thinking"]["display"] == "omitted" => String::new(),
        Said::Text(_) => "I know enough to answer.".to_owned(),
        Said::Calls(calls) => format!("I do not know enough yet. {}", announcement(calls)),
    };
    Some(json!({"type": "thinking", "thinking": thought, "signature": request.signer.sign(&thought)}))
}

/// The text before calls of tools.
fn announcement(calls: &[(String, Value)]) -> String {
    let names: Vec<&str> = calls.iter().map(|(name, _)| name.as_str()).collect();
    format!("I will use {}.", names.join(" and "))
}

/// A block with this text; none without text, since no request may have an empty one.
fn text(text: &str) -> Option<Value> {
    (!text.trim().is_empty()).then(|| json!({"type": "text", "text": text}))
}

/// Where the first of the stop sequences begins in `text`, and the sequence.
fn first_stop<'a>(text: &str, sequences: &'a Value) -> Option<(usize, &'a str)> {
    let sequences = sequences.as_array().into_iter().flatten().filter_map(Value::as_str);
    let found = sequences.filter(|sequence| !sequence.is_empty());
    found.filter_map(|sequence| Some((text.find(sequence)?, sequence))).min()
}

/// An estimate of what a block costs as output.
fn tokens_of(block: &Value) -> u64 {
    let texts = [&block["text"], &block["thinking"], &block["name"]];
    let input = block.get("input").map_or(0, |input| input.to_string().len());
    tokens(texts.into_iter().filter_map(Value::as_str).map(str::len).sum::<usize>() + input)
}

/// The usage of a request of `bytes`: `input_tokens` counts what is neither read from the cache nor written to it.
fn usage(bytes: usize, cached: CacheUsage, output: u64) -> Value {
    let (read, created) = (tokens(cached.read_bytes), tokens(cached.created_bytes));
    json!({
        "input_tokens": tokens(bytes).saturating_sub(read + created),
        "cache_creation_input_tokens": created,
        "cache_read_input_tokens": read,
        "cache_creation": {"ephemeral_5m_input_tokens": created, "ephemeral_1h_input_tokens": 0},
        "output_tokens": output,
        "service_tier": "standard"
    })
}
