//! Recorded replies, for replays: written again as an upstream would have sent them, and read as it sent them.

use super::reply::whole_of;
use crate::RecordedReply;
use bytes::Bytes;
use model::message::Message;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

/// The reply that made these messages of the request `body`, whole, with the recorded bytes of its calls.
pub fn recorded_reply(body: &[u8], messages: &[&Message]) -> Bytes {
    let mut reply = br#"{"choices":[{"index":0,"message":"#.to_vec();
    if let [message] = messages {
        reply.extend_from_slice(message.span.of(body));
    } else {
        reply.extend_from_slice(br#"{"role":"assistant","tool_calls":["#);
        for (nth, call) in messages.iter().flat_map(|message| &message.calls).enumerate() {
            let (before, after): (&[u8], &[u8]) =
                if call.legacy { (br#"{"type":"function","function":"#, b"}") } else { (b"", b"") };
            let comma: &[u8] = if nth > 0 { b"," } else { b"" };
            reply.extend([comma, before, call.span.of(body), after].concat());
        }
        reply.extend_from_slice(b"]}");
    }
    reply.extend_from_slice(br#","finish_reason":"tool_calls"}]}"#);
    reply.into()
}

/// A whole reply that makes one call.
pub fn reply_with_call(name: &str, arguments: &str) -> Bytes {
    let function = json!({"name": name, "arguments": arguments});
    let call = json!({"id": "call_proposed", "type": "function", "function": function});
    let message = json!({"role": "assistant", "content": null, "tool_calls": [call]});
    let choice = json!({"index": 0, "message": message, "finish_reason": "tool_calls"});
    json!({"object": "chat.completion", "choices": [choice]}).to_string().into()
}

#[derive(Deserialize)]
struct Completion {
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    message: Box<RawValue>,
    finish_reason: Option<String>,
}

/// What a reply, whole or a stream, adds to the conversation: the message of its first choice.
pub fn reply_items(reply: &Bytes) -> RecordedReply {
    let is_whole = reply.trim_ascii_start().starts_with(b"{");
    let whole = if is_whole { Some(reply.clone()) } else { whole_of(reply) };
    let read: Option<Completion> = whole.and_then(|whole| serde_json::from_slice(&whole).ok());
    let choice = read.and_then(|read| read.choices.into_iter().next());
    let Some(Choice { message, finish_reason }) = choice else { return RecordedReply::default() };
    let finish = finish_reason.map(|reason| match reason.as_str() {
        "tool_calls" | "function_call" => "tool_call".to_owned(),
        _ => reason,
    });
    RecordedReply { id: None, items: vec![message.get().to_owned().into()], finish }
}

/// The whole reply that adds this to the conversation: one choice with the message.
pub fn whole_reply(reply: &RecordedReply) -> Bytes {
    let mut whole = br#"{"choices":["#.to_vec();
    for (nth, item) in reply.items.iter().enumerate() {
        let comma: &[u8] = if nth > 0 { b"," } else { b"" };
        whole.extend([comma, br#"{"index":0,"message":"#, item, b"}"].concat());
    }
    whole.extend_from_slice(b"]}");
    whole.into()
}
