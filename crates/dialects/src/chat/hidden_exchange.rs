//! The writer of hidden exchanges: an assistant message with the blocked calls and a synthetic result for each, for the
//! re-ask and for every later request. Writes JSON; decides nothing.

use super::flatten::flatten;
use crate::repair::{harmless_arguments, is_object};
use crate::short::{short_arguments, short_result, short_text};
use bytes::Bytes;
use model::assembled::Assembled;
use model::source::{Origin, Source};
use serde_json::Value;
use wire::json::escape_into;
use wire::splice::Splices;

/// A call that the client was not shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    pub call: Assembled,
    /// The result that the model gets.
    pub result: String,
}

/// Members of an assistant message besides its calls, such as `reasoning_content`, that some providers want back: names
/// and JSON values, as written.
pub type Carried = [(Vec<u8>, Vec<u8>)];

/// The hidden exchange as messages joined by commas, without brackets. It has no text: the client was shown what the
/// model said beside its calls, and the visible answer that follows contains it. Providers refuse an empty text, and chat
/// templates differ on null; so the message has a null `content` where the model's reply `has_content`, and else none.
pub fn write_hidden_exchange(has_content: bool, carried: &Carried, blocked: &[Blocked]) -> Bytes {
    let mut out = br#"{"role":"assistant""#.to_vec();
    if has_content {
        out.extend_from_slice(br#","content":null"#);
    }
    for (key, value) in carried {
        out.extend_from_slice(b",\"");
        out.extend_from_slice(key);
        out.extend_from_slice(b"\":");
        out.extend_from_slice(value);
    }
    if let [Blocked { call, .. }] = blocked
        && call.legacy
    {
        out.extend_from_slice(br#","function_call":"#);
        write_function(call, &mut out);
    } else {
        write_calls(blocked, &mut out);
    }
    out.push(b'}');
    for blocked in blocked {
        write_result(blocked, &mut out);
    }
    #[cfg(any(test, feature = "testing"))]
    work::add(out.len());
    out.into()
}

/// The items of a hidden exchange.
pub fn source(exchange: &Bytes) -> Option<Source> {
    let body: Bytes = [BEFORE, exchange, AFTER].concat().into();
    let request = super::parse(&body).ok()?;
    Some(Source::new(Origin::Blocked, body, request.messages))
}

/// The hidden exchange as text: the calls as an assistant's message, the results as a user's message.
pub fn plain_exchange(exchange: &Bytes) -> Bytes {
    let body: Bytes = [BEFORE, exchange, AFTER].concat().into();
    let Ok(request) = super::parse(&body) else { return exchange.clone() };
    let mut splices = Splices::default();
    flatten(&request, &body, &mut splices);
    without_envelope(&splices.apply(&body).join())
}

/// The hidden exchange with short arguments, results and reasoning.
pub fn short_exchange(exchange: &Bytes) -> Bytes {
    let list = [b"[", &exchange[..], b"]"].concat();
    let Ok(mut messages) = serde_json::from_slice::<Vec<Value>>(&list) else { return exchange.clone() };
    for message in messages.iter_mut().filter_map(Value::as_object_mut) {
        let is_result = message.get("role").is_some_and(|role| role == "tool" || role == "function");
        for (name, value) in message.iter_mut() {
            match (name.as_str(), value) {
                ("content", Value::String(text)) if is_result => *text = short_result(text),
                ("function_call", call) => shorten_call(call),
                ("tool_calls", Value::Array(calls)) => calls.iter_mut().for_each(shorten_calls),
                (name, Value::String(text)) if name.starts_with("reasoning") => *text = short_text(text),
                _ => {}
            }
        }
    }
    let messages: Vec<String> = messages.iter().map(Value::to_string).collect();
    messages.join(",").into()
}

/// Shortens an element of `tool_calls`.
fn shorten_calls(call: &mut Value) {
    for kind in ["function", "custom"] {
        if let Some(call) = call.get_mut(kind) {
            shorten_call(call);
        }
    }
}

fn shorten_call(call: &mut Value) {
    if let Some(Value::String(text)) = call.get_mut("arguments") {
        *text = short_arguments(text);
    }
    if let Some(Value::String(text)) = call.get_mut("input") {
        *text = short_text(text);
    }
}

/// What surrounds a hidden exchange so that it can be read as a request.
const BEFORE: &[u8] = br#"{"messages":["#;
const AFTER: &[u8] = b"]}";

fn without_envelope(body: &Bytes) -> Bytes {
    body.slice(BEFORE.len()..body.len().saturating_sub(AFTER.len()))
}

/// Counts work, for the tests of growth.
#[cfg(any(test, feature = "testing"))]
pub mod work {
    use std::cell::Cell;

    thread_local! {
        static WRITTEN: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn add(bytes: usize) {
        WRITTEN.set(WRITTEN.get() + bytes);
    }

    /// Bytes of messages for the model that this thread has written.
    pub fn bytes_written() -> usize {
        WRITTEN.get()
    }
}

fn write_calls(blocked: &[Blocked], out: &mut Vec<u8>) {
    out.extend_from_slice(br#","tool_calls":["#);
    for (at, Blocked { call, .. }) in blocked.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"id\":\"");
        out.extend_from_slice(&call.id);
        let kind = if call.custom { "custom" } else { "function" };
        out.extend_from_slice(format!("\",\"type\":\"{kind}\",\"{kind}\":").as_bytes());
        write_function(call, out);
        for (key, value) in &call.extra {
            out.extend_from_slice(b",\"");
            out.extend_from_slice(key);
            out.extend_from_slice(b"\":");
            out.extend_from_slice(value);
        }
        out.push(b'}');
    }
    out.push(b']');
}

fn write_function(call: &Assembled, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"name\":\"");
    out.extend_from_slice(&call.name);
    out.extend_from_slice(if call.custom { b"\",\"input\":\"" } else { b"\",\"arguments\":\"" });
    if call.custom || is_object(&call.arguments()) {
        out.extend_from_slice(&call.arguments);
    } else {
        escape_into(&harmless_arguments(&call.arguments()), out);
    }
    out.extend_from_slice(b"\"}");
}

fn write_result(blocked: &Blocked, out: &mut Vec<u8>) {
    let Blocked { call, result } = blocked;
    if call.legacy {
        out.extend_from_slice(br#",{"role":"function","name":""#);
        out.extend_from_slice(&call.name);
    } else {
        out.extend_from_slice(br#",{"role":"tool","tool_call_id":""#);
        out.extend_from_slice(&call.id);
    }
    out.extend_from_slice(br#"","content":""#);
    escape_into(result, out);
    out.extend_from_slice(b"\"}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::plan::{Reason, ReasonKind, envelope};
    use serde_json::Value;

    fn blocked(arguments: &str) -> Blocked {
        let mut call = Assembled::default();
        (call.id, call.name) = (b"call_1".to_vec(), b"search".to_vec());
        call.arguments = arguments.as_bytes().to_vec();
        call.extra = vec![(b"extra_content".to_vec(), br#"{"s":"\u002b"}"#.to_vec())];
        let reason =
            Reason::new(ReasonKind::RateLimit, "wait").retryable().with(vec![("retry_after_ms", 41_000)]);
        Blocked { call, result: envelope("rate_limit", &reason) }
    }

    fn round(carried: &Carried, calls: &[Blocked]) -> Vec<Value> {
        let text = String::from_utf8(write_hidden_exchange(true, carried, calls).to_vec()).unwrap();
        serde_json::from_str(&format!("[{text}]")).unwrap()
    }

    #[test]
    fn a_hidden_exchange_is_the_calls_and_one_result_for_each() {
        let carried = [(b"reasoning_content".to_vec(), b"\"why\"".to_vec())];
        let messages = round(&carried, &[blocked(r#"{\"q\":1}"#), blocked("")]);
        assert_eq!(messages.len(), 3);
        assert_eq!(messages[0]["content"], Value::Null);
        assert_eq!(messages[0]["reasoning_content"], "why");
        assert_eq!(messages[0]["tool_calls"][0]["function"]["arguments"], r#"{"q":1}"#);
        assert_eq!(messages[0]["tool_calls"][0]["extra_content"]["s"], "+");
        assert_eq!(messages[0]["tool_calls"][1]["function"]["arguments"], "{}");
        let result: Value = serde_json::from_str(messages[1]["content"].as_str().unwrap()).unwrap();
        assert_eq!(
            result,
            serde_json::json!({"ok": false, "version": "1.0.0", "error": {"type": "RATE_LIMIT", "message": "wait",
                "retryable": true, "partialSideEffects": false, "retry_after_ms": 41_000},
                "meta": {"by": "toolrein", "policy": "rate_limit"}})
        );
        assert_eq!(messages[2]["tool_call_id"], "call_1");
    }

    #[test]
    fn broken_arguments_become_json_that_still_shows_them() {
        let messages = round(&[], &[blocked(r#"{\"q\":"#)]);
        let arguments = messages[0]["tool_calls"][0]["function"]["arguments"].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Value>(arguments).unwrap()["invalid_arguments"], r#"{"q":"#);
        assert_eq!(messages[0]["content"], Value::Null);
    }

    #[test]
    fn a_deprecated_call_is_answered_in_the_deprecated_form() {
        let mut old = blocked("{}");
        old.call.legacy = true;
        let messages = round(&[], &[old]);
        assert_eq!(messages[0]["function_call"]["name"], "search");
        assert_eq!((&messages[1]["role"], &messages[1]["name"]), (&"function".into(), &"search".into()));
    }
}
