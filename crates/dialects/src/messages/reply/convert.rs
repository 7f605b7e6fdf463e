//! Conversion between the forms of a reply: a whole reply or a block as the events of a stream, a stream as a whole reply, and an
//! upstream's error as an event.

use super::block::{Block, Blocks, MOST_BLOCKS, NewMembers, elements, inside, own_value, set_members};
use super::event::{Event, EventKind};
use crate::error::{parse, parse_event};
use crate::lines::one_line;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use wire::body::Span;
use wire::json::{decode_bytes, escape_into};
use wire::members::members_of;
use wire::splice::Splices;
use wire::sse::{Piece, Splitter, parse_fields};

/// The members of a message that the event at the end of a stream has in its `delta`.
pub const AT_END: [&str; 5] =
    ["stop_reason", "stop_sequence", "stop_details", "container", "safeguard_results"];

/// An event with this data, which is on one line.
pub fn event(kind: &str, data: &[u8]) -> Bytes {
    [b"event: ", kind.as_bytes(), b"\ndata: ", data, b"\n\n"].concat().into()
}

/// The event that ends the block of this index.
pub fn stop_event(index: u64) -> Bytes {
    event("content_block_stop", format!(r#"{{"type":"content_block_stop","index":{index}}}"#).as_bytes())
}

/// The event with a piece of the text of the block of this index; `text`: escapes as in a JSON string.
pub fn text_event(index: &str, text: &[u8]) -> Bytes {
    let delta = [br#"{"type":"text_delta","text":""#, text, b"\"}"].concat();
    delta_event(index, &delta)
}

fn delta_event(index: &str, delta: &[u8]) -> Bytes {
    let head = format!(r#"{{"type":"content_block_delta","index":{index},"delta":"#);
    event("content_block_delta", &[head.as_bytes(), delta, b"}"].concat())
}

/// The event that ends a message, before the last one.
pub fn end_event(delta: &Value, usage: &Value) -> Bytes {
    let data = json!({"type": "message_delta", "delta": delta, "usage": usage});
    event("message_delta", data.to_string().as_bytes())
}

/// The last event of a stream.
pub fn last_event() -> Bytes {
    event("message_stop", br#"{"type":"message_stop"}"#)
}

/// The events that give the client the block `json` under this index, as providers stream it: what comes in deltas is empty in
/// the start. A call that a program makes is whole in the start.
pub fn block_events(index: u64, json: &Bytes) -> Vec<Bytes> {
    let json = one_line(json);
    let value = |name: &str| own_value(&json, name.as_bytes());
    let (mut emptied, mut deltas): (NewMembers<'_>, Vec<Vec<u8>>) = (Vec::new(), Vec::new());
    let mut stream = |member: &'static str, kind: &str, piece: &str| {
        if let Some(text) = value(member).and_then(inside).filter(|text| !text.is_empty()) {
            deltas.push([format!(r#"{{"type":"{kind}","{piece}":""#).as_bytes(), text, b"\"}"].concat());
            emptied.push((member.as_bytes(), b"\"\"".to_vec()));
        }
    };
    match value("type").and_then(inside) {
        Some(b"text") => {
            stream("text", "text_delta", "text");
            let list = value("citations").unwrap_or_default();
            let citations = elements(list, Span::new(0, list.len())).unwrap_or_default();
            for citation in &citations {
                let citation =
                    [br#"{"type":"citations_delta","citation":"#, citation.of(list), b"}"].concat();
                deltas.push(citation);
            }
            emptied.extend((!citations.is_empty()).then(|| (&b"citations"[..], b"[]".to_vec())));
        }
        Some(b"thinking") => {
            stream("thinking", "thinking_delta", "thinking");
            stream("signature", "signature_delta", "signature");
        }
        Some(kind @ (b"tool_use" | b"server_tool_use" | b"mcp_tool_use"))
            if !is_programmatic(value("caller")) =>
        {
            let input = value("input").unwrap_or(b"{}");
            // Some clients run no call whose arguments never came.
            if kind == b"tool_use" || input != b"{}" {
                let mut piece = inside(input).map_or_else(Vec::new, <[u8]>::to_vec);
                if piece.is_empty() {
                    escape_into(&String::from_utf8_lossy(input), &mut piece);
                }
                deltas.push([br#"{"type":"input_json_delta","partial_json":""#, &piece[..], b"\"}"].concat());
                emptied.push((b"input", b"{}".to_vec()));
            }
        }
        _ => {}
    }
    let mut splices = Splices::default();
    set_members(&mut splices, &json, Span::new(0, json.len()), emptied);
    let start = splices.apply(&json).join();
    let head = format!(r#"{{"type":"content_block_start","index":{index},"content_block":"#);
    let start = event("content_block_start", &[head.as_bytes(), &start, b"}"].concat());
    let deltas = deltas.iter().map(|delta| delta_event(&index.to_string(), delta));
    [start].into_iter().chain(deltas).chain([stop_event(index)]).collect()
}

/// Whether a `caller` is a program that runs at the provider.
fn is_programmatic(caller: Option<&[u8]>) -> bool {
    caller.is_some_and(|caller| !super::block::is_direct(caller))
}

/// A message without its content and its end, as the first event of a stream has it.
pub fn emptied(message: &Bytes) -> Bytes {
    let mut splices = Splices::default();
    let new = vec![
        (&b"content"[..], b"[]".to_vec()),
        (b"stop_reason", b"null".to_vec()),
        (b"stop_sequence", b"null".to_vec()),
    ];
    set_members(&mut splices, message, Span::new(0, message.len()), new);
    one_line(&splices.apply(message).join())
}

/// The event at the end of the message, where the message says how it ended.
pub fn end_of(message: &[u8]) -> Option<(Value, Value)> {
    let value = |name: &str| {
        let value = own_value(message, name.as_bytes())?;
        serde_json::from_slice::<Value>(value).ok().filter(|value| !value.is_null())
    };
    value("stop_reason")?;
    let delta = AT_END.iter().map(|name| ((*name).to_owned(), value(name)));
    let delta: Map<String, Value> = delta
        .filter(|(name, value)| value.is_some() || name == "stop_sequence")
        .map(|(name, value)| (name, value.unwrap_or_default()))
        .collect();
    Some((delta.into(), value("usage").unwrap_or_else(|| json!({"output_tokens": 0}))))
}

/// The events of a stream that says what the whole reply says; `None` if it has no content.
pub fn stream_of(whole: &Bytes) -> Option<Vec<Bytes>> {
    let content = content_of(whole)?;
    let head = [br#"{"type":"message_start","message":"#, &emptied(whole)[..], b"}"].concat();
    let mut events = vec![event("message_start", &head)];
    for (index, block) in (0..).zip(&content) {
        events.extend(block_events(index, &whole.slice(block.range())));
    }
    let (delta, usage) = end_of(whole).unwrap_or_else(|| {
        (json!({"stop_reason": null, "stop_sequence": null}), json!({"output_tokens": 0}))
    });
    let mut end = json!({"type": "message_delta", "delta": delta, "usage": usage});
    if let Some(management) = own_value(whole, b"context_management") {
        end["context_management"] = serde_json::from_slice(management).unwrap_or_default();
    }
    events.extend([event("message_delta", end.to_string().as_bytes()), last_event()]);
    Some(events)
}

/// The blocks of a message.
pub fn content_of(message: &[u8]) -> Option<Vec<Span>> {
    let members = members_of(message, Span::new(0, message.len()));
    let content = members.iter().rfind(|member| *decode_bytes(member.key, message) == *b"content")?;
    elements(message, content.value)
}

/// A whole reply as far as its events have come.
#[derive(Default)]
struct JoinedReply {
    message: Bytes,
    blocks: Blocks,
    /// What the last events say of the message.
    end: Vec<(Vec<u8>, Vec<u8>)>,
    usage: Option<Map<String, Value>>,
    is_over: bool,
    error: Option<Bytes>,
}

/// The whole reply in a stream, or the error that the stream reports; `None` if it has neither.
pub fn whole_of(stream: &Bytes) -> Option<Bytes> {
    let mut joined = JoinedReply::default();
    let mut splitter = Splitter::new(stream.len());
    let mut read = |piece: Piece| {
        let (Piece::Event(raw) | Piece::Oversized(raw)) = piece;
        joined.take(&raw);
    };
    splitter.push(stream.clone(), &mut read);
    splitter.finish().into_iter().for_each(read);
    joined.write()
}

impl JoinedReply {
    fn take(&mut self, raw: &Bytes) {
        let fields = parse_fields(raw);
        let data =
            fields.place.map_or_else(|| Bytes::copy_from_slice(&fields.data), |at| raw.slice(at.range()));
        let Ok(event) = Event::parse(fields.name, &data) else { return };
        match (event.kind, event.block, &event.delta) {
            (EventKind::MessageStart, ..) => self.begin(&event, &data),
            (EventKind::BlockStart, Some(block), _) => {
                self.blocks.push(Block::begin(event.number(), block, &data).0);
            }
            (EventKind::BlockDelta, _, Some(delta)) => {
                if let Some(at) = self.blocks.find(event.number()) {
                    self.blocks.change(at, |block| block.add(delta, &data));
                }
            }
            (EventKind::MessageDelta, ..) => self.end(&event, &data),
            (EventKind::MessageStop, ..) => self.is_over = true,
            (EventKind::Other, ..) => {
                let name = fields.name.and_then(|name| std::str::from_utf8(name).ok());
                let is_error = parse_event(name, fields.field, &data).is_some();
                self.error = self.error.take().or_else(|| is_error.then(|| one_line(&data)));
            }
            _ => {}
        }
    }

    fn begin(&mut self, event: &Event, data: &Bytes) {
        // What comes after a second head belongs to the first.
        if let Some(message) = event.message.filter(|_| self.message.is_empty()) {
            self.message = data.slice(message.range());
            let blocks = content_of(&self.message).unwrap_or_default();
            for block in blocks {
                self.blocks.push(Block::begin(None, block, &self.message).0);
            }
            self.is_over = own_value(&self.message, b"stop_reason").is_some_and(|reason| reason != b"null");
        }
    }

    fn end(&mut self, event: &Event, data: &Bytes) {
        self.is_over |= event.delta.as_ref().is_some_and(|delta| delta.stop_reason.is_some());
        let delta = event.delta.iter().flat_map(|delta| &delta.members);
        let top = members_of(data, Span::new(0, data.len()));
        let others = top.iter().filter(|member| {
            !matches!(&*decode_bytes(member.key, data), b"type" | b"delta" | b"usage" | b"index")
        });
        for member in delta.chain(others) {
            self.end.retain(|(name, _)| name[..] != *decode_bytes(member.key, data));
            let value = member.value.of(data).to_vec();
            self.end.push((decode_bytes(member.key, data).into_owned(), value));
        }
        let usage = event.usage.and_then(|usage| serde_json::from_slice::<Map<_, _>>(usage.of(data)).ok());
        // Usage is cumulative: the last report counts.
        self.usage.get_or_insert_default().extend(usage.unwrap_or_default());
    }

    fn write(mut self) -> Option<Bytes> {
        if let Some(error) = self.error {
            return Some(error);
        }
        if !self.is_over || self.message.is_empty() || self.blocks.all().len() > MOST_BLOCKS {
            return None;
        }
        let blocks: Vec<Bytes> = self.blocks.all().iter().map(Block::json).collect();
        let content = [b"[", &blocks.join(&b","[..])[..], b"]"].concat();
        let begun = own_value(&self.message, b"usage").map(serde_json::from_slice::<Map<_, _>>);
        let mut usage = begun.and_then(Result::ok).unwrap_or_default();
        usage.extend(self.usage.take().unwrap_or_default());
        let mut new: NewMembers<'_> = vec![(b"content", content)];
        new.extend(self.end.iter().map(|(name, value)| (&name[..], value.clone())));
        new.push((b"usage", Value::from(usage).to_string().into_bytes()));
        let mut splices = Splices::default();
        set_members(&mut splices, &self.message, Span::new(0, self.message.len()), new);
        Some(one_line(&splices.apply(&self.message).join()))
    }
}

/// The event that reports an upstream's error with this status and body: the error alone, since a client might run calls beside
/// it.
pub fn error_event(status: u16, body: &[u8]) -> Bytes {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    let data = if value["error"].is_object() {
        let mut data = json!({"type": "error", "error": value["error"]});
        if let Some(id) = value.get("request_id") {
            data["request_id"] = id.clone();
        }
        data
    } else {
        let error = parse(body).unwrap_or_default();
        let said = error.messages.join("; ");
        let message = if said.is_empty() { format!("The upstream answered {status}.") } else { said };
        json!({"type": "error", "error": {"type": "api_error", "message": message}})
    };
    event("error", data.to_string().as_bytes())
}
