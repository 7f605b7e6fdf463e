//! Replies of the Messages API that no upstream made: approved calls or a text in the model's place, and recorded replies for
//! replays.

use super::reply::block::own_value;
use super::reply::convert::{stream_of, whole_of};
use crate::repair::{harmless_arguments, is_object};
use crate::reply::Form;
use crate::{Handed, RecordedReply};
use bytes::Bytes;
use model::assembled::Assembled;
use model::message::Message;
use model::plan::approval::Confirmation;
use wire::body::Span;
use wire::json::quote;

/// The beginning of the ids of toolrein's own messages.
const OWN_ID: &str = "msg_toolrein";

/// A reply with the approved calls, whole or as a stream. The calls are those that were shown, with the members that the
/// upstream gave them, under new ids: the model's history has the blocked calls under the old ones.
pub fn approved(form: Form, confirmation: &Confirmation, handed: &Handed<'_>) -> Bytes {
    let calls = confirmation.calls.iter().enumerate();
    let calls: Vec<String> = calls.map(|(at, call)| tool_use(call, &handed.new_id(&call.id(), at))).collect();
    reply(form, &calls.join(","), "tool_use", handed)
}

/// A reply that is this text alone.
pub fn says(form: Form, text: &str, handed: &Handed<'_>) -> Bytes {
    let block = format!(r#"{{"type":"text","text":{}}}"#, quote(text));
    reply(form, &block, "end_turn", handed)
}

fn reply(form: Form, content: &str, reason: &str, handed: &Handed<'_>) -> Bytes {
    let (id, model) = (handed.question, quote(handed.model));
    let whole: Bytes = format!(
        r#"{{"id":"{OWN_ID}{id}","type":"message","role":"assistant","model":{model},"content":[{content}],"stop_reason":"{reason}","stop_sequence":null,"usage":{{"input_tokens":0,"output_tokens":0}}}}"#
    )
    .into();
    match form {
        Form::Whole => whole,
        Form::Streamed => stream_of(&whole).unwrap_or_default().concat().into(),
    }
}

/// A call under this id, written from what the person was shown.
fn tool_use(call: &Assembled, id: &str) -> String {
    let arguments = call.arguments();
    let input = if is_object(&arguments) { arguments } else { harmless_arguments(&arguments) };
    let extra = call.extra.iter().map(|(key, value)| {
        format!(r#","{}":{}"#, String::from_utf8_lossy(key), String::from_utf8_lossy(value))
    });
    let (id, name, extra) = (quote(id), quote(&call.name()), extra.collect::<String>());
    format!(r#"{{"type":"tool_use","id":{id},"name":{name},"input":{input}{extra}}}"#)
}

/// A whole reply that makes one call.
pub fn reply_with_call(name: &str, arguments: &str) -> Bytes {
    let input = if is_object(arguments) { arguments.to_owned() } else { quote(arguments) };
    let name = quote(name);
    format!(
        r#"{{"type":"message","role":"assistant","content":[{{"type":"tool_use","id":"toolu_proposed","name":{name},"input":{input}}}],"stop_reason":"tool_use","stop_sequence":null}}"#
    )
    .into()
}

/// The reply that made these messages of the request `body`, whole, with the recorded bytes of its blocks.
pub fn recorded_reply(body: &[u8], messages: &[&Message]) -> Bytes {
    let mut spans: Vec<Span> = messages.iter().map(|message| message.span).collect();
    spans.dedup();
    let blocks: Vec<Bytes> = spans.iter().map(|span| blocks_of(span.of(body))).collect();
    let blocks: Vec<Bytes> = blocks.into_iter().filter(|blocks| !blocks.is_empty()).collect();
    let has_calls = messages.iter().any(|message| !message.calls.is_empty());
    let reason = if has_calls { "tool_use" } else { "end_turn" };
    message(&blocks, &quote(reason))
}

/// What a reply, whole or a stream, adds to the conversation: one message of the assistant.
pub fn reply_items(reply: &Bytes) -> RecordedReply {
    let is_whole = reply.trim_ascii_start().starts_with(b"{");
    let whole = if is_whole { Some(reply.clone()) } else { whole_of(reply) };
    let Some((whole, content)) = whole.and_then(|whole| Some((whole.clone(), value_of(&whole, b"content")?)))
    else {
        return RecordedReply::default();
    };
    let finish = value_of(&whole, b"stop_reason").and_then(|reason| serde_json::from_slice(&reason).ok());
    let finish = finish.map(|reason: String| match reason.as_str() {
        "end_turn" => "stop".to_owned(),
        "max_tokens" => "length".to_owned(),
        "tool_use" => "tool_call".to_owned(),
        "refusal" => "content_filter".to_owned(),
        _ => reason,
    });
    let item = [br#"{"role":"assistant","content":"#, &content[..], b"}"].concat();
    RecordedReply { id: None, items: vec![item.into()], finish }
}

/// The whole reply that adds this to the conversation.
pub fn whole_reply(reply: &RecordedReply) -> Bytes {
    let reason = match reply.finish.as_deref() {
        Some("stop") => quote("end_turn"),
        Some("length") => quote("max_tokens"),
        Some("tool_call") => quote("tool_use"),
        Some("content_filter") => quote("refusal"),
        Some(other) => quote(other),
        None => "null".to_owned(),
    };
    let blocks: Vec<Bytes> = reply.items.iter().map(|item| blocks_of(item)).collect();
    message(&blocks, &reason)
}

fn message(blocks: &[Bytes], reason: &str) -> Bytes {
    let content = blocks.join(&b","[..]);
    let end = format!(r#"],"stop_reason":{reason},"stop_sequence":null}}"#);
    [br#"{"type":"message","role":"assistant","content":["#, &content[..], end.as_bytes()].concat().into()
}

/// The blocks of a message of the assistant, or of a part of one, with commas.
fn blocks_of(message: &[u8]) -> Bytes {
    let content = own_value(message, b"content").unwrap_or(message).trim_ascii();
    if content.starts_with(b"\"") {
        return [br#"{"type":"text","text":"#, content, b"}"].concat().into();
    }
    let inner = content.strip_prefix(b"[").and_then(|content| content.strip_suffix(b"]"));
    Bytes::copy_from_slice(inner.unwrap_or(content).trim_ascii())
}

fn value_of(object: &Bytes, name: &[u8]) -> Option<Bytes> {
    own_value(object, name).map(|value| object.slice_ref(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::identity::{Hash, HashKey};
    use serde_json::{Value, json};

    fn handed(key: &HashKey) -> Handed<'_> {
        Handed { question: Hash(7), key, model: "m \"1\"", created: 1, usage: false }
    }

    fn value(reply: &Bytes) -> Value {
        serde_json::from_slice(reply).unwrap()
    }

    #[test]
    fn a_text_or_approved_calls_are_the_same_message_whole_and_as_a_stream() {
        let key = HashKey::fixed(1);
        let call = Assembled {
            id: b"toolu_abcdefghi".to_vec(),
            name: b"pay".to_vec(),
            arguments: br#"{\"to\":\"a\"}"#.to_vec(),
            extra: vec![(b"caller".to_vec(), br#"{"type":"direct"}"#.to_vec())],
            ..Assembled::default()
        };
        let confirmation = Confirmation { calls: vec![call], ..Confirmation::default() };
        for (reason, of) in [
            ("end_turn", &(|form| says(form, "So \"it\" is.", &handed(&key))) as &dyn Fn(Form) -> Bytes),
            ("tool_use", &|form| approved(form, &confirmation, &handed(&key))),
        ] {
            let whole = value(&of(Form::Whole));
            assert_eq!((&whole["stop_reason"], &whole["model"]), (&reason.into(), &"m \"1\"".into()));
            assert!(whole["id"].as_str().unwrap().starts_with("msg_toolrein"), "{whole}");
            assert_eq!(whole["usage"], json!({"input_tokens": 0, "output_tokens": 0}));
            let stream = of(Form::Streamed);
            assert_eq!(value(&whole_of(&stream).unwrap()), whole);
            let text = String::from_utf8_lossy(&stream);
            assert_eq!(text.matches("event: content_block_delta").count(), 1, "{text}");
        }
        let whole = value(&approved(Form::Whole, &confirmation, &handed(&key)));
        let call = &whole["content"][0];
        assert_eq!((&call["input"], &call["caller"]), (&json!({"to": "a"}), &json!({"type": "direct"})));
        let id = call["id"].as_str().unwrap();
        assert!(id.starts_with("toolu_abc") && id != "toolu_abcdefghi", "{id}");
    }

    #[test]
    fn a_recorded_reply_is_one_message_however_it_came_and_becomes_a_reply_again() {
        let content = json!([{"type": "text", "text": "A"}, {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}}]);
        for (reason, finish) in [
            ("tool_use", "tool_call"),
            ("end_turn", "stop"),
            ("max_tokens", "length"),
            ("pause_turn", "pause_turn"),
        ] {
            let whole = json!({"id": "msg_1", "type": "message", "role": "assistant", "content": content,
                "stop_reason": reason, "stop_sequence": null, "usage": {"output_tokens": 1}});
            let whole: Bytes = whole.to_string().into();
            let stream = stream_of(&whole).unwrap().concat().into();
            for reply in [whole, stream] {
                let read = reply_items(&reply);
                assert_eq!(read.finish.as_deref(), Some(finish));
                assert_eq!(value(&read.items[0]), json!({"role": "assistant", "content": content}));
                let again = value(&whole_reply(&read));
                assert_eq!((&again["content"], &again["stop_reason"]), (&content, &reason.into()));
            }
        }
        let error = Bytes::from_static(br#"{"type":"error","error":{"type":"api_error","message":"x"}}"#);
        assert!(reply_items(&error).items.is_empty());
    }

    #[test]
    fn the_reply_that_made_a_message_has_its_blocks_as_they_were_recorded() {
        for (content, blocks) in [
            (r#"[ {"type":"text", "text":"caf\u00e9"} ]"#, r#"{"type":"text", "text":"caf\u00e9"}"#),
            (r#""Hi""#, r#"{"type":"text","text":"Hi"}"#),
        ] {
            let message = format!(r#"{{"role":"assistant","content":{content}}}"#);
            assert_eq!(blocks_of(message.as_bytes()), blocks);
        }
        let call = r#"{"type":"tool_use","id":"a","name":"f","input":{}}"#;
        assert_eq!(blocks_of(call.as_bytes()), call, "a block alone");
        assert_eq!(value(&reply_with_call("f", "{\"a\":1}"))["content"][0]["input"], json!({"a": 1}));
        assert_eq!(value(&reply_with_call("f", "{\"a\":"))["content"][0]["input"], "{\"a\":");
    }
}
