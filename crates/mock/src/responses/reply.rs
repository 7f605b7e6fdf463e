//! A response in OpenAI's wire format: the object with its output items and the members that repeat the request.
//! `stream` writes the same as events.

use super::super::ids::Ids;
use super::super::model::Said;
use super::super::reply::words;
use super::super::tokens;
use super::request::Create;
use serde_json::{Value, json};

/// A response, ready to be written in either form.
pub(super) struct Reply {
    id: String,
    created: u64,
    model: &'static str,
    /// The request without its input.
    request: Value,
    /// The finished items.
    pub output: Vec<Value>,
    usage: Value,
    /// Whether `max_output_tokens` cut the answer.
    pub is_cut: bool,
    /// The source of the padding of deltas, where it is wanted.
    pub padding: Option<Ids>,
}

impl Reply {
    /// The response to `create` with the content `said`.
    pub(super) fn new(create: &Create, said: &Said) -> Self {
        let chat = &create.chat;
        let mut ids = chat.ids.clone();
        let (id, created) = (ids.item("resp"), ids.created());
        let (output, is_cut) = match said {
            Said::Text(text) => {
                let pieces = words(text);
                let max =
                    chat.max_tokens.map_or(usize::MAX, |max| usize::try_from(max).unwrap_or(usize::MAX));
                let is_cut = pieces.len() > max;
                let text: String = pieces.into_iter().take(max).collect();
                (vec![message(&ids.item("msg"), &text, is_cut)], is_cut)
            }
            Said::Calls(calls) => (calls.iter().map(|call| function_call(call, &mut ids)).collect(), false),
        };
        let usage = usage(tokens(chat.bytes), output.iter().map(tokens_of).sum::<u64>().max(1));
        let padding = create.obfuscated.then_some(ids);
        let request = create.request.clone();
        Self { id, created, model: chat.model.name(), request, output, usage, is_cut, padding }
    }

    /// The finished response.
    pub(super) fn whole(&self) -> Value {
        let mut body = self.unfinished();
        body["status"] = json!(if self.is_cut { "incomplete" } else { "completed" });
        if self.is_cut {
            body["incomplete_details"] = json!({"reason": "max_output_tokens"});
        } else {
            body["completed_at"] = json!(self.created + 1);
        }
        body["output"] = json!(self.output);
        body["usage"] = self.usage.clone();
        body
    }

    /// The response before its first item.
    pub(super) fn unfinished(&self) -> Value {
        let echo = |key: &str, default: Value| match &self.request[key] {
            Value::Null => default,
            given => given.clone(),
        };
        json!({
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": "in_progress",
            "background": false,
            "completed_at": null,
            "error": null,
            "incomplete_details": null,
            "instructions": self.request["instructions"],
            "max_output_tokens": self.request["max_output_tokens"],
            "max_tool_calls": self.request["max_tool_calls"],
            "model": self.model,
            "output": [],
            "parallel_tool_calls": echo("parallel_tool_calls", json!(true)),
            "previous_response_id": self.request["previous_response_id"],
            "prompt_cache_key": self.request["prompt_cache_key"],
            "reasoning": echo("reasoning", json!({"effort": null, "summary": null})),
            "safety_identifier": self.request["safety_identifier"],
            "service_tier": "default",
            "store": echo("store", json!(true)),
            "temperature": echo("temperature", json!(1.0)),
            "text": echo("text", json!({"format": {"type": "text"}, "verbosity": "medium"})),
            "tool_choice": echo("tool_choice", json!("auto")),
            "tools": echo("tools", json!([])),
            "top_logprobs": 0,
            "top_p": echo("top_p", json!(1.0)),
            "truncation": echo("truncation", json!("disabled")),
            "usage": null,
            "user": self.request["user"],
            "metadata": echo("metadata", json!({}))
        })
    }
}

fn message(id: &str, text: &str, is_cut: bool) -> Value {
    json!({
        "id": id,
        "type": "message",
        "status": if is_cut { "incomplete" } else { "completed" },
        "content": [{"type": "output_text", "annotations": [], "logprobs": [], "text": text}],
        "role": "assistant"
    })
}

fn function_call((name, arguments): &(String, Value), ids: &mut Ids) -> Value {
    json!({
        "id": ids.item("fc"),
        "type": "function_call",
        "status": "completed",
        "arguments": arguments.to_string(),
        "call_id": ids.call(),
        "name": name
    })
}

/// An estimate of what an item of output costs.
fn tokens_of(item: &Value) -> u64 {
    let texts = [&item["name"], &item["arguments"], &item["content"][0]["text"]];
    tokens(texts.into_iter().filter_map(Value::as_str).map(str::len).sum())
}

fn usage(input: u64, output: u64) -> Value {
    json!({
        "input_tokens": input,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": input + output
    })
}
