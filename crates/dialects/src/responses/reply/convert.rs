//! Conversion between the forms of a reply: a whole reply as the events of a stream, a stream as a whole reply, and
//! an upstream's error as an event.

use super::event::{Class, Event};
use super::last::Last;
use super::written::{call_events, message_events};
use crate::error::parse;
use crate::responses::item::{ItemKind, parse_item};
use bytes::Bytes;
use serde_json::{Map, Value, json};
use wire::body::{Kind, MAX_DEPTH, Scanner};
use wire::json::decode;
use wire::sse::{Piece, Splitter, parse_fields};

/// The whole reply in a stream; `None` if it has none.
pub fn whole_of(stream: &Bytes) -> Option<Bytes> {
    let (mut items, mut whole): (Vec<Value>, Option<Value>) = (Vec::new(), None);
    let mut read = |piece: Piece| {
        let (Piece::Event(raw) | Piece::Oversized(raw)) = piece;
        let fields = parse_fields(&raw);
        let data = &fields.data;
        let Ok(event) = Event::parse_named(fields.name, data) else { return };
        let Some(value) = value_of(data) else { return };
        match event.class(data) {
            Class::Life { ended: true } => whole = Some(value["response"].clone()),
            Class::Done => items.push(value["item"].clone()),
            _ => {}
        }
    };
    let mut splitter = Splitter::new(stream.len());
    splitter.push(stream.clone(), &mut read);
    if let Some(piece) = splitter.finish() {
        read(piece);
    }
    let mut whole = whole?;
    let members = whole.as_object_mut()?;
    if members.get("output").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        members.insert("output".to_owned(), items.into());
    }
    Some(whole.to_string().into())
}

/// A whole response as a stream.
pub fn stream_of_response(response: &Bytes) -> Bytes {
    let events = Last::of_body(response).and_then(|last| stream_of(&last));
    events.map(|events| events.concat().into()).unwrap_or_default()
}

/// The events of a stream that says what the whole reply `last` says; `None` if it is nested too deep.
pub(super) fn stream_of(last: &Last) -> Option<Vec<Bytes>> {
    let whole = value_of(last.response()).filter(Value::is_object)?;
    let mut begun = whole.clone();
    (begun["status"], begun["output"], begun["usage"]) = ("in_progress".into(), json!([]), Value::Null);
    let life = |kind: &str, response: &Value| json!({"type": kind, "response": response});
    let mut events = vec![life("response.created", &begun), life("response.in_progress", &begun)];
    let items = whole["output"].as_array().cloned().unwrap_or_default();
    for (at, item) in items.iter().enumerate() {
        let (at, text) = (at as u64, item.to_string());
        match parse_item(&mut Scanner::new(text.as_bytes())).map(|item| item.kind) {
            Ok(ItemKind::Call(kind)) => events.extend(call_events(kind, text.as_bytes(), at)),
            Ok(ItemKind::Message(_)) if has_one_part(item) => {
                events.extend(message_events(item, at));
            }
            _ => events.extend(["added", "done"].map(|step| {
                json!({"type": format!("response.output_item.{step}"), "output_index": at, "item": item})
            })),
        }
    }
    let end = match whole["status"].as_str() {
        Some("incomplete") => "response.incomplete",
        Some("failed") => "response.failed",
        _ => "response.completed",
    };
    events.push(life(end, &whole));
    let numbered = events.into_iter().enumerate().map(|(at, mut event)| {
        event["sequence_number"] = at.into();
        let kind = event["type"].as_str().unwrap_or_default();
        format!("event: {kind}\ndata: {event}\n\n").into()
    });
    Some(numbered.collect())
}

/// `text` as a value. What serde_json refuses is replaced: half a surrogate pair by U+FFFD, and a number that JSON does
/// not have by null. `None` if it is nested too deep.
fn value_of(text: &[u8]) -> Option<Value> {
    let strict = serde_json::from_slice(text).ok();
    strict.or_else(|| tolerant_value(&mut Scanner::tolerant(text), MAX_DEPTH))
}

/// The next value of `scanner`, with at most `levels` of nesting.
fn tolerant_value(scanner: &mut Scanner<'_>, levels: u32) -> Option<Value> {
    let (kind, below) = (scanner.peek().ok()?, levels.checked_sub(1)?);
    match kind {
        Kind::String => {
            let text = scanner.string().ok()?;
            Some(decode(text, scanner.text()).into())
        }
        Kind::Array => {
            scanner.array().ok()?;
            let mut items = Vec::new();
            while scanner.element().ok()? {
                items.push(tolerant_value(scanner, below)?);
            }
            Some(items.into())
        }
        Kind::Object => {
            scanner.object().ok()?;
            let mut members = Map::new();
            while let Some(key) = scanner.member().ok()? {
                let key = decode(key, scanner.text()).into_owned();
                members.insert(key, tolerant_value(scanner, below)?);
            }
            Some(members.into())
        }
        _ => {
            let span = scanner.skip_kind(kind).ok()?;
            Some(serde_json::from_slice(span.of(scanner.text())).unwrap_or_default())
        }
    }
}

/// Whether the content of a message is a single part, which is an object.
fn has_one_part(message: &Value) -> bool {
    message["content"].as_array().is_some_and(|parts| matches!(&parts[..], [part] if part.is_object()))
}

/// The event that reports an upstream's error with this status and body.
pub fn error_event(status: u16, body: &[u8]) -> Bytes {
    let error = parse(body).unwrap_or_default();
    let message =
        error.messages.first().cloned().unwrap_or_else(|| format!("The upstream answered {status}."));
    let code = error.code.unwrap_or_else(|| "server_error".to_owned());
    let data = json!({"type": "error", "code": code, "message": message, "param": error.param, "sequence_number": 0});
    format!("event: error\ndata: {data}\n\n").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_becomes_a_whole_reply_also_where_serde_json_refuses_it_or_only_the_event_line_names_its_type()
    {
        let end = |line: &str, kind: &str| {
            format!("{line}data: {{{kind}\"response\":{{\"id\":\"r \\ud83d\",\"output\":[]}}}}\n\n")
        };
        for stream in [end("", "\"type\":\"response.completed\","), end("event: response.completed\n", "")] {
            let whole = whole_of(&stream.clone().into()).unwrap_or_default();
            let whole: Value = serde_json::from_slice(&whole).unwrap_or_default();
            assert_eq!(whole["id"], "r \u{fffd}", "{stream}");
        }
    }

    #[test]
    fn a_whole_reply_that_serde_json_refuses_becomes_a_stream_all_the_same() {
        let part = r#"{"type":"output_text","text":"Fine \ud83d"}"#;
        let message = format!(r#"{{"type":"message","id":"m","role":"assistant","content":[{part}]}}"#);
        let whole = format!("\u{feff}{{\"id\":\"r\",\"temperature\":NaN,\"output\":[{message}]}}");
        let stream = stream_of_response(&whole.into());
        let text = String::from_utf8(stream.to_vec()).unwrap();
        assert!(text.contains("\"delta\":\"Fine \u{fffd}\""), "{text}");
        assert!(
            text.contains("\"temperature\":null") && text.contains("event: response.completed"),
            "{text}"
        );
        let whole = whole_of(&stream).unwrap();
        assert!(String::from_utf8_lossy(&whole).contains("Fine \u{fffd}"), "{whole:?}");
        let deep = format!("{{\"id\":NaN,\"output\":[],\"x\":{}1{}}}", "[".repeat(200), "]".repeat(200));
        assert!(stream_of_response(&deep.into()).is_empty());
    }
}
