//! Notice placement: inside a result, or at the end of a user's message. Never beside results: a text there teaches the model to
//! end its turn, and is refused beside results of calls that a program made.

use super::message::is_whole;
use bytes::Bytes;
use model::message::{Content, Message, Role};
use model::request::Request;
use wire::json::{decode, escaped};
use wire::splice::Splices;

/// How the first instruction of Claude Code begins where it is derived from the first user message.
const DERIVED: &str = "x-anthropic-billing-header";

/// Places `text` in the message of an item. Nothing is placed in a message that must not be edited.
pub fn place(message: &Message, text: &str, splices: &mut Splices) {
    if message.odd {
        return;
    }
    let text = escaped(text);
    match &message.content {
        Content::Text(content) => {
            let blank = if content.span.is_empty() { &b""[..] } else { br"\n\n" };
            splices.insert(content.span.end, [blank, &text].concat());
        }
        Content::Parts { span, parts } => {
            let comma = if parts.is_empty() { &b""[..] } else { b"," };
            splices.insert(span.end - 1, [comma, br#"{"type":"text","text":""#, &text, br#""}"#].concat());
        }
        Content::Null(span) => splices.replace(*span, [b"\"", &text[..], b"\""].concat()),
        Content::Absent => {
            let member: Bytes = [br#""content":""#, &text[..], br#"","#].concat().into();
            splices.insert(message.span.start + 1, member);
        }
        // A number or an object: the upstream will refuse it anyway.
        Content::Other(_) => {}
    }
}

/// The item in which a notice at the item `index` is written.
pub fn position(request: &Request, body: &[u8], index: usize) -> Option<usize> {
    let messages = &request.messages;
    let message = messages.get(index)?;
    match message.role {
        Role::Tool => Some(index),
        Role::User if is_whole(message) => (!is_fixed(request, body, index)).then_some(index),
        // Beside results, so inside of the last one before it.
        Role::User => messages[..index].iter().rposition(|before| before.role == Role::Tool),
        _ => None,
    }
}

/// Whether the upstream compares the message with an instruction that was derived from it.
fn is_fixed(request: &Request, body: &[u8], index: usize) -> bool {
    let first = request.messages.iter().position(|message| message.role == Role::User);
    let is_derived = |text| decode(text, body).starts_with(DERIVED);
    first == Some(index) && request.instructions.first().copied().is_some_and(is_derived)
}
