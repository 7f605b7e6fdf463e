//! Replies of the Responses API that no upstream made: approved calls or a text in the model's place, and recorded
//! replies for replays.

use super::OWN_ID;
use super::item::CallKind;
use super::reply::convert::stream_of_response;
use super::reply::written::{judged_call, message};
use crate::Handed;
use crate::reply::Form;
use bytes::Bytes;
use model::assembled::Assembled;
use model::message::Message;
use model::plan::approval::Confirmation;
use serde_json::{Value, json};

/// A reply with the approved calls, whole or as a stream. The calls are those that were shown, with the members that the
/// upstream gave them, under new ids: the model's history has the blocked calls under the old ones.
pub fn approved(form: Form, confirmation: &Confirmation, handed: &Handed<'_>) -> Bytes {
    let calls = confirmation.calls.iter().enumerate();
    let output: Vec<Value> = calls.map(|(at, call)| item(call, at, handed)).collect();
    response(form, &output, handed)
}

/// A reply that is this text alone.
pub fn says(form: Form, text: &str, handed: &Handed<'_>) -> Bytes {
    response(form, &[message(&format!("{OWN_ID}{}", handed.question), text)], handed)
}

fn response(form: Form, output: &[Value], handed: &Handed<'_>) -> Bytes {
    let usage = json!({"input_tokens": 0, "output_tokens": 0, "total_tokens": 0,
        "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}});
    let response: Bytes = json!({"id": format!("resp_{}", handed.question), "object": "response",
        "created_at": handed.created, "status": "completed", "error": null, "incomplete_details": null,
        "model": handed.model, "output": output, "usage": usage})
    .to_string()
    .into();
    match form {
        Form::Whole => response,
        Form::Streamed => stream_of_response(&response),
    }
}

fn item(call: &Assembled, at: usize, handed: &Handed<'_>) -> Value {
    let member = |(key, value): &(Vec<u8>, Vec<u8>)| {
        Some((String::from_utf8(key.clone()).ok()?, serde_json::from_slice(value).ok()?))
    };
    let begun: Value = call.extra.iter().filter_map(member).collect::<serde_json::Map<_, _>>().into();
    let plain = if call.custom { CallKind::Custom } else { CallKind::Function };
    let kind = begun["type"].as_str().and_then(CallKind::of_type).unwrap_or(plain);
    let mut item: Value =
        serde_json::from_slice(&judged_call(kind, call, Some(&begun.to_string().into()))).unwrap_or_default();
    // The upstream finds an approval request by its id alone, so the request keeps it (see `approval_requests`).
    if kind == CallKind::McpApproval {
        return item;
    }
    item["call_id"] = handed.new_id(&call.id(), at).into();
    if let Some(id) = item["id"].as_str().map(|id| handed.new_id(id, at)) {
        item["id"] = id.into();
    }
    if let Some(status) = item.get_mut("status") {
        *status = "completed".into();
    }
    item
}

/// A whole reply that makes one call.
pub fn reply_with_call(name: &str, arguments: &str) -> Bytes {
    let call = json!({
        "type": "function_call", "id": "fc_proposed", "call_id": "call_proposed", "status": "completed",
        "name": name, "arguments": arguments,
    });
    json!({"object": "response", "status": "completed", "output": [call]}).to_string().into()
}

/// The reply that made these messages of the request `body`, with the recorded bytes of its calls.
pub fn recorded_reply(body: &[u8], messages: &[&Message]) -> Bytes {
    let spans: Vec<&[u8]> = messages.iter().map(|message| message.span.of(body)).collect();
    let items = spans.join(&b","[..]);
    [br#"{"object":"response","status":"completed","output":["#, items.as_slice(), b"]}"].concat().into()
}
