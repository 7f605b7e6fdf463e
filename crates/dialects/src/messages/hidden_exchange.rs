//! The stored form of a hidden exchange, read: the replies whose calls were blocked, each with the synthetic results that
//! answered it. A reply holds all its blocks, also those that the client was shown, since only beside them is a blocked
//! call accepted again; its member `shown` says which ones these are, by their positions.

use super::block::{Block, BlockKind};
use super::message::{WireMessage, wire_messages};
use crate::names_by_id::NamesById;
use crate::short::{short_arguments, short_result};
use bytes::Bytes;
use model::message::{Content, Role};
use model::source::{Origin, Source};
use serde_json::{Map, Value, json};
use wire::body::{Scanner, Span};
use wire::json::{canonical, decode, decode_bytes};
use wire::members::members_of;

/// The member that says which blocks the client was shown.
pub const SHOWN: &str = "shown";

/// One reply of a hidden exchange, with the message that answered it.
#[derive(Debug, Default)]
pub struct HiddenReply {
    /// The blocks of the reply, in order.
    pub blocks: Vec<StoredBlock>,
    /// The blocks of the answer: results, or texts in their place.
    pub results: Vec<Bytes>,
}

/// A block of a stored reply.
#[derive(Debug)]
pub struct StoredBlock {
    /// As JSON.
    pub json: Bytes,
    /// Its spans in `json`.
    pub block: Block,
    /// The client has it.
    pub is_shown: bool,
}

impl HiddenReply {
    /// Whether the client was shown calls of the reply: it was not asked again, and the client answers these.
    pub fn is_partly_shown(&self) -> bool {
        self.blocks.iter().any(|block| block.is_shown && block.block.kind == BlockKind::Call)
    }
}

/// The rounds of a stored exchange, oldest first. What cannot be read is left out: it comes from the state store.
pub fn read(exchange: &Bytes) -> Vec<HiddenReply> {
    let mut rounds: Vec<HiddenReply> = Vec::new();
    let (body, messages) = messages_in(exchange);
    for message in &messages {
        let blocks = message.blocks().iter();
        if message.role == Role::Assistant {
            let shown = shown_blocks(message, &body);
            let blocks = blocks.enumerate().filter_map(|(at, block)| {
                stored_block(body.slice(block.span.range()), shown.contains(&(at as u64)))
            });
            rounds.push(HiddenReply { blocks: blocks.collect(), results: Vec::new() });
        } else if let Some(round) = rounds.last_mut() {
            round.results.extend(blocks.map(|block| body.slice(block.span.range())));
        }
    }
    rounds
}

fn stored_block(json: Bytes, is_shown: bool) -> Option<StoredBlock> {
    let block = super::block::parse_block(&mut Scanner::new(&json)).ok()?;
    Some(StoredBlock { json, block, is_shown })
}

/// The exchange as the messages of a body, with that body.
fn messages_in(exchange: &Bytes) -> (Bytes, Vec<WireMessage>) {
    let body: Bytes = [b"[", &exchange[..], b"]"].concat().into();
    let messages = wire_messages(&body, Span::new(0, body.len()));
    (body, messages)
}

fn shown_blocks(message: &WireMessage, body: &[u8]) -> Vec<u64> {
    let members = members_of(body, message.span);
    let shown = members.iter().find(|member| member.key.raw(body) == SHOWN.as_bytes());
    shown.and_then(|member| serde_json::from_slice(member.value.of(body)).ok()).unwrap_or_default()
}

/// Whether two blocks are one block of the model's, however a client writes it: by its id or signature, else by its text
/// or its members.
pub fn is_same_block(one: (&Block, &[u8]), other: (&Block, &[u8])) -> bool {
    let ((a, a_body), (b, b_body)) = (one, other);
    if a.kind != b.kind {
        return false;
    }
    let text = |block: &Block, body: &[u8]| block.text.map(|text| decode(text, body).trim().to_owned());
    let id = |block: &Block, body: &[u8]| {
        let id = block.call.id.or(block.answers);
        id.map(|id| decode(id, body).into_owned()).filter(|id| !id.is_empty())
    };
    match a.kind {
        BlockKind::Text => text(a, a_body) == text(b, b_body),
        BlockKind::Thinking => seal_of(a, a_body) == seal_of(b, b_body),
        _ => match (id(a, a_body), id(b, b_body)) {
            (Some(one), Some(other)) => one == other,
            (None, None) => canonical(a.span.of(a_body)) == canonical(b.span.of(b_body)),
            _ => false,
        },
    }
}

/// The signature of a thinking block, or its encrypted data.
fn seal_of(block: &Block, body: &[u8]) -> Option<Vec<u8>> {
    let members = members_of(body, block.span);
    let is_seal = |key: &[u8]| matches!(key, b"signature" | b"data");
    let seal = members.iter().find(|member| is_seal(&decode_bytes(member.key, body)))?;
    Some(canonical(seal.value.of(body)))
}

/// The messages of the exchange as a history has them, joined by commas.
pub fn messages_of(exchange: &Bytes) -> Bytes {
    let rounds = read(exchange).into_iter();
    let messages =
        rounds.map(|round| message_pair(round.blocks.iter().map(|block| &block.json), &round.results));
    messages.collect::<Vec<_>>().join(",").into()
}

fn message_pair<'a>(blocks: impl Iterator<Item = &'a Bytes>, results: &[Bytes]) -> String {
    let blocks: Vec<_> = blocks.map(|block| String::from_utf8_lossy(block)).collect();
    let results: Vec<_> = results.iter().map(|result| String::from_utf8_lossy(result)).collect();
    let (blocks, results) = (blocks.join(","), results.join(","));
    format!(r#"{{"role":"assistant","content":[{blocks}]}},{{"role":"user","content":[{results}]}}"#)
}

/// The items of the exchange that the client does not have.
pub fn source(exchange: &Bytes) -> Option<Source> {
    let rounds = read(exchange);
    let hidden = rounds.iter().map(|round| {
        let blocks = round.blocks.iter().filter(|block| !block.is_shown);
        message_pair(blocks.map(|block| &block.json), &round.results)
    });
    let hidden = hidden.collect::<Vec<_>>().join(",");
    let body: Bytes = format!(r#"{{"messages":[{hidden}]}}"#).into();
    let request = super::parse(&body).ok()?;
    Some(Source::new(Origin::Blocked, body, request.messages))
}

/// The exchange with its blocked calls and their results as texts. What the model thought before a call is left out:
/// providers want it beside the call.
pub fn plain_exchange(exchange: &Bytes) -> Bytes {
    rewrite(exchange, |reply, results| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let calls = reply.iter().filter(|(block, _)| block["type"] == "tool_use");
        let mut names = NamesById::new(calls.map(|(block, _)| (text(&block["id"]), text(&block["name"]))));
        reply.retain(|(block, is_shown)| *is_shown || !is_thinking(block));
        for (block, _) in
            reply.iter_mut().filter(|(block, is_shown)| !is_shown && block["type"] == "tool_use")
        {
            let said = format!("[called {} with {}]", text(&block["name"]), block["input"]);
            *block = json!({"type": "text", "text": said});
        }
        for result in results.iter_mut().filter(|result| result["type"] == "tool_result") {
            let name = names.take(&text(&result["tool_use_id"])).unwrap_or_else(|| "a tool".to_owned());
            let said = format!("[result of {name}]\n{}", text(&result["content"]));
            *result = json!({"type": "text", "text": said});
        }
    })
}

/// The exchange with short arguments and results, and without what the model thought that the client was not shown.
pub fn short_exchange(exchange: &Bytes) -> Bytes {
    rewrite(exchange, |reply, results| {
        reply.retain(|(block, is_shown)| *is_shown || !is_thinking(block));
        for (block, _) in
            reply.iter_mut().filter(|(block, is_shown)| !is_shown && block["type"] == "tool_use")
        {
            let short = serde_json::from_str(&short_arguments(&block["input"].to_string()));
            block["input"] = short.unwrap_or_else(|_| json!({}));
        }
        for result in results {
            if let Some(Value::String(text)) = result.get_mut("content") {
                *text = short_result(text);
            }
        }
    })
}

fn is_thinking(block: &Value) -> bool {
    matches!(block["type"].as_str(), Some("thinking" | "redacted_thinking"))
}

/// The exchange with the blocks of each reply, each with whether the client was shown it, and those of its answer changed.
fn rewrite(exchange: &Bytes, change: impl Fn(&mut Vec<(Value, bool)>, &mut Vec<Value>)) -> Bytes {
    let value = |json: &Bytes| serde_json::from_slice::<Value>(json).unwrap_or_default();
    let rounds = read(exchange).into_iter().map(|round| {
        let mut reply: Vec<(Value, bool)> =
            round.blocks.iter().map(|block| (value(&block.json), block.is_shown)).collect();
        let mut results: Vec<Value> = round.results.iter().map(value).collect();
        change(&mut reply, &mut results);
        let shown: Vec<usize> = (0..reply.len()).filter(|at| reply[*at].1).collect();
        let content: Vec<Value> = reply.into_iter().map(|(block, _)| block).collect();
        let mut assistant = Map::new();
        assistant.insert("role".to_owned(), "assistant".into());
        assistant.insert("content".to_owned(), content.into());
        assistant.insert(SHOWN.to_owned(), shown.into());
        format!("{},{}", Value::Object(assistant), json!({"role": "user", "content": results}))
    });
    rounds.collect::<Vec<_>>().join(",").into()
}

/// The text of a result, for a history without calls; its other parts are left out.
pub fn result_text(content: &Content, body: &[u8]) -> String {
    content.texts().map(|text| decode(text, body)).collect::<Vec<_>>().join("\n")
}
