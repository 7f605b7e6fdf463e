//! The history as text, for upstreams that refuse calls and results in it: a call becomes a text block of the assistant's, a
//! result a text block of the user's. What the model thought beside its calls is left out, since it is accepted beside them
//! alone.

use super::block::{Block, BlockKind};
use super::hidden_exchange::result_text;
use super::message::{WireMessage, wire_messages};
use crate::names_by_id::NamesById;
use bytes::Bytes;
use model::message::{Content, Role};
use model::request::Request;
use wire::json::{decode, quote};
use wire::splice::Splices;

/// Writes the calls and results of the messages as texts.
pub fn flatten(request: &Request, body: &Bytes, splices: &mut Splices) {
    let messages = wire_messages(body, request.messages_span);
    let mut names = NamesById::default();
    for message in &messages {
        if message.role == Role::Assistant {
            flatten_reply(message, body, splices);
            names = names_of(message, body);
        } else if message.role == Role::User {
            let results = message.blocks().iter().filter(|block| block.kind == BlockKind::Result);
            results.for_each(|block| splices.replace(block.span, result_blocks(block, &mut names, body)));
        }
    }
    // A declaration in the middle of a conversation is one of tools that the request does not have.
    let declares = |message: &WireMessage| {
        let is_declaration = |block: &Block| block.kind == BlockKind::ToolAddition;
        message.role == Role::System
            && !message.blocks().is_empty()
            && message.blocks().iter().all(is_declaration)
    };
    splices.remove_items(&messages, |message| message.span, declares);
}

fn names_of(message: &WireMessage, body: &[u8]) -> NamesById {
    let text = |string: Option<_>| string.map_or(String::new(), |string| decode(string, body).into_owned());
    let calls = message.blocks().iter().filter(|block| block.kind == BlockKind::Call);
    NamesById::new(calls.map(|block| (text(block.call.id), text(block.call.name))))
}

fn flatten_reply(message: &WireMessage, body: &[u8], splices: &mut Splices) {
    let blocks = message.blocks();
    if !blocks.iter().any(|block| block.kind == BlockKind::Call) {
        return;
    }
    for block in blocks.iter().filter(|block| block.kind == BlockKind::Call) {
        let name = block.call.full_name(body).unwrap_or_default();
        let said = format!("[called {name} with {}]", block.call.arguments.text(body));
        splices.replace(block.span, text_block(&said));
    }
    splices.remove_items(blocks, |block| block.span, |block| block.kind == BlockKind::Thinking);
}

/// A result as blocks: a text with its own texts, and its other parts where a user's message may hold them.
fn result_blocks(block: &Block, names: &mut NamesById, body: &[u8]) -> String {
    let name = block.answers.and_then(|id| names.take(&decode(id, body)));
    let name = name.unwrap_or_else(|| "a tool".to_owned());
    let mut out = text_block(&format!("[result of {name}]\n{}", result_text(&block.content, body)));
    if let Content::Parts { parts, .. } = &block.content {
        let others = parts.iter().filter(|part| part.text.is_none()).map(|part| part.span.of(body));
        for other in others.filter(|part| memchr::memmem::find(part, b"\"source\"").is_some()) {
            out.push(',');
            out.push_str(&String::from_utf8_lossy(other));
        }
    }
    out
}

/// A text as a block.
pub fn text_block(text: &str) -> String {
    format!(r#"{{"type":"text","text":{}}}"#, quote(text))
}
