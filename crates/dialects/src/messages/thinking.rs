//! Thinking left out of a history: where the upstream would refuse it, since it is bound to another beginning of the
//! conversation. It is left out from the start on, since thinking after a gap would be refused too.

use super::block::BlockKind;
use super::message::wire_messages;
use bytes::Bytes;
use model::message::Role;
use model::request::Request;
use wire::body::{Scanner, Span};
use wire::splice::{Rope, Splices};

/// How many blocks of thinking the first `items` items of the request hold.
pub fn count_blocks(request: &Request, body: &[u8], items: usize, is_kept: impl Fn(usize) -> bool) -> usize {
    let messages = request.messages.iter().enumerate().take(items);
    let kept = messages.filter(|(at, message)| message.reasons && is_kept(*at));
    kept.map(|(_, message)| blocks_in(message.span, body)).sum()
}

fn blocks_in(message: Span, body: &[u8]) -> usize {
    let Ok(message) = super::message::parse_message(&mut Scanner::within(body, message)) else { return 0 };
    message.blocks().iter().filter(|block| block.kind == BlockKind::Thinking).count()
}

/// The body without its first `most` blocks of thinking, and without messages that held nothing else; `None` if it cannot be
/// read.
pub fn without_thinking(body: &Bytes, most: usize) -> Option<Rope> {
    let request = super::parse(body).ok()?;
    let messages = wire_messages(body, request.messages_span);
    let mut left = most;
    let mut splices = Splices::default();
    let mut empty = Vec::new();
    for (at, message) in messages.iter().enumerate().filter(|(_, message)| message.role == Role::Assistant) {
        let is_thinking = |at: &usize| message.blocks()[*at].kind == BlockKind::Thinking;
        let gone: Vec<usize> = (0..message.blocks().len()).filter(is_thinking).take(left).collect();
        left -= gone.len();
        if gone.len() == message.blocks().len() && !gone.is_empty() {
            empty.push(at);
            continue;
        }
        let blocks: Vec<(usize, Span)> =
            message.blocks().iter().map(|block| block.span).enumerate().collect();
        splices.remove_items(&blocks, |(_, span)| *span, |(at, _)| gone.binary_search(at).is_ok());
    }
    let numbered: Vec<(usize, Span)> = messages.iter().map(|message| message.span).enumerate().collect();
    splices.remove_items(&numbered, |(_, span)| *span, |(at, _)| empty.binary_search(at).is_ok());
    Some(splices.apply(body))
}
