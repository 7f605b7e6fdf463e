//! What a result holds beside its texts, as JSON values of the body: an output that is an object, parts of other kinds, and
//! members such as the reason of an approval.

use model::View;
use model::message::Content;
use wire::body::{Span, Str};
use wire::json::decode_bytes;
use wire::members::members_of;

/// Members that say what a result is and which call it answers, and declarations of tools.
const OF_THE_PROTOCOL: [&[u8]; 8] =
    [b"type", b"id", b"call_id", b"approval_request_id", b"role", b"name", b"status", b"tools"];

/// The values beside the texts of `view`, which is a result, in order.
pub(super) fn values_beside_texts(view: &View<'_>) -> Vec<Span> {
    let mut values = Vec::new();
    let content = &view.message.content;
    let answered = view.message.tool_call_id.map(Str::quoted);
    for member in members_of(view.body, view.message.span) {
        match content {
            _ if OF_THE_PROTOCOL.contains(&&*decode_bytes(member.key, view.body)) => {}
            _ if answered == Some(member.value) => {}
            Content::Text(text) if text.quoted() == member.value => {}
            Content::Parts { span, parts } if *span == member.value => {
                values.extend(parts.iter().filter(|part| part.text.is_none()).map(|part| part.span));
            }
            _ => values.push(member.value),
        }
    }
    values.retain(|span| span.of(view.body).iter().any(|byte| matches!(byte, b'"' | b'0'..=b'9')));
    values
}
