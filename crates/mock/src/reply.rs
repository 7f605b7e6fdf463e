//! A reply in OpenAI's wire format: one JSON object, or the equivalent stream of chunks. Writes what the model said;
//! decides nothing.

use super::model::Said;
use super::request::{Chat, Choice};
use super::tokens;
use bytes::Bytes;
use serde_json::{Map, Value, json};

const FINGERPRINT: &str = "fp_70011e1de0";

/// A reply, ready to be written in either form.
pub(super) struct Reply {
    id: String,
    created: u64,
    model: &'static str,
    choices: Vec<Spoken>,
    usage: Value,
    include_usage: bool,
}

/// One choice.
struct Spoken {
    content: Option<String>,
    calls: Vec<Called>,
    finish: &'static str,
}

struct Called {
    id: String,
    name: String,
    arguments: String,
}

impl Reply {
    /// The reply to `chat` with the content `said`.
    pub(super) fn new(chat: &Chat, said: &Said) -> Self {
        let mut ids = chat.ids.clone();
        let (id, created) = (ids.completion(), ids.created());
        let choices: Vec<Spoken> = (0..chat.n).map(|_| Spoken::new(chat, said, || ids.call())).collect();
        let completion: u64 = choices.iter().map(Spoken::tokens).sum();
        let usage = usage(tokens(chat.bytes), completion);
        Self { id, created, model: chat.model.name(), choices, usage, include_usage: chat.include_usage }
    }

    /// The body of a reply that is not streamed.
    pub(super) fn whole(&self) -> Value {
        let choices: Vec<Value> =
            self.choices.iter().enumerate().map(|(index, spoken)| spoken.whole(index)).collect();
        let mut body = self.envelope("chat.completion", Value::Array(choices));
        body.insert("usage".to_owned(), self.usage.clone());
        Value::Object(body)
    }

    /// The events of a streamed reply, `[DONE]` included. The choices come one after the other.
    pub(super) fn events(&self) -> Vec<Bytes> {
        let mut chunks = Vec::new();
        for (index, spoken) in self.choices.iter().enumerate() {
            let mut push = |delta: Value, finish: Option<&str>| {
                let choice =
                    json!([{"index": index, "delta": delta, "logprobs": null, "finish_reason": finish}]);
                chunks.push(self.chunk(choice, Value::Null));
            };
            spoken.deltas().into_iter().for_each(|delta| push(delta, None));
            push(json!({}), Some(spoken.finish));
        }
        if self.include_usage {
            chunks.push(self.chunk(json!([]), self.usage.clone()));
        }
        let events = chunks.iter().map(|chunk| Bytes::from(format!("data: {chunk}\n\n")));
        events.chain([Bytes::from_static(b"data: [DONE]\n\n")]).collect()
    }

    /// Every chunk has a member `usage` where usage was asked for, and none has it otherwise.
    fn chunk(&self, choices: Value, usage: Value) -> Value {
        let mut chunk = self.envelope("chat.completion.chunk", choices);
        if self.include_usage {
            chunk.insert("usage".to_owned(), usage);
        }
        Value::Object(chunk)
    }

    fn envelope(&self, object: &str, choices: Value) -> Map<String, Value> {
        let members = [
            ("id", json!(self.id)),
            ("object", json!(object)),
            ("created", json!(self.created)),
            ("model", json!(self.model)),
            ("service_tier", json!("default")),
            ("system_fingerprint", json!(FINGERPRINT)),
            ("choices", choices),
        ];
        members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

impl Spoken {
    fn new(chat: &Chat, said: &Said, mut id: impl FnMut() -> String) -> Self {
        match said {
            Said::Text(text) => {
                let pieces = words(text);
                let max =
                    chat.max_tokens.map_or(usize::MAX, |max| usize::try_from(max).unwrap_or(usize::MAX));
                let finish = if pieces.len() > max { "length" } else { "stop" };
                let content = pieces.into_iter().take(max).collect();
                Self { content: Some(content), calls: Vec::new(), finish }
            }
            Said::Calls(calls) => {
                let called = |(name, arguments): &(String, Value)| Called {
                    id: id(),
                    name: name.clone(),
                    arguments: arguments.to_string(),
                };
                // A call that was forced by name ends with "stop" at OpenAI.
                let forced = matches!(chat.choice, Choice::Named(_));
                let finish = if forced { "stop" } else { "tool_calls" };
                Self { content: None, calls: calls.iter().map(called).collect(), finish }
            }
        }
    }

    fn whole(&self, index: usize) -> Value {
        let mut message = json!({"role": "assistant", "content": self.content});
        if !self.calls.is_empty() {
            message["tool_calls"] = self.calls.iter().map(|call| call.json(&call.arguments)).collect();
        }
        message["refusal"] = Value::Null;
        message["annotations"] = json!([]);
        json!({"index": index, "message": message, "logprobs": null, "finish_reason": self.finish})
    }

    /// The deltas except the last, empty one: the role first, with the first call's head where there is a
    /// call.
    fn deltas(&self) -> Vec<Value> {
        let mut deltas = Vec::new();
        if let Some(content) = &self.content {
            deltas.push(json!({"role": "assistant", "content": "", "refusal": null}));
            deltas.extend(words(content).into_iter().map(|word| json!({"content": word})));
        }
        for (index, call) in self.calls.iter().enumerate() {
            let head = json!([indexed(index, &call.json(""))]);
            deltas.push(match index {
                0 => json!({"role": "assistant", "content": null, "tool_calls": head, "refusal": null}),
                _ => json!({"tool_calls": head}),
            });
            let pieces = fragments(&call.arguments).into_iter();
            deltas
                .extend(pieces.map(
                    |piece| json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}),
                ));
        }
        deltas
    }

    fn tokens(&self) -> u64 {
        let calls = self.calls.iter().map(|call| call.name.len() + call.arguments.len());
        tokens(self.content.as_ref().map_or(0, String::len) + calls.sum::<usize>()).max(1)
    }
}

impl Called {
    fn json(&self, arguments: &str) -> Value {
        json!({"id": self.id, "type": "function", "function": {"name": self.name, "arguments": arguments}})
    }
}

/// A call with its index in front, as deltas have it.
fn indexed(index: usize, call: &Value) -> Value {
    let mut out = json!({"index": index});
    for key in ["id", "type", "function"] {
        out[key] = call[key].clone();
    }
    out
}

fn usage(prompt: u64, completion: u64) -> Value {
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": 0, "audio_tokens": 0,
            "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0
        }
    })
}

/// The words of a text, each with the space before it.
pub(super) fn words(text: &str) -> Vec<&str> {
    pieces(text, |_, next| next == ' ')
}

/// Arguments cut where letters meet punctuation, much as tokens are.
pub(super) fn fragments(arguments: &str) -> Vec<&str> {
    pieces(arguments, |last, next| last.is_alphanumeric() != next.is_alphanumeric())
}

/// `text` cut between all characters where `cut` holds; nothing of it is lost.
fn pieces(text: &str, cut: impl Fn(char, char) -> bool) -> Vec<&str> {
    let mut pieces = Vec::new();
    let (mut start, mut last) = (0, None);
    for (at, next) in text.char_indices() {
        if last.is_some_and(|last| cut(last, next)) {
            pieces.push(&text[start..at]);
            start = at;
        }
        last = Some(next);
    }
    if start < text.len() {
        pieces.push(&text[start..]);
    }
    pieces
}
