//! Notice placement in a request of the Responses API: after an item as a `developer` message of its own, or at the end
//! of the item's text. Never between a call and its results, or between reasoning and the item after it.

use crate::variant::Placement;
use bytes::Bytes;
use model::message::{Content, Message, Role};
use model::request::Request;
use wire::body::Span;
use wire::json::{escaped, quote};
use wire::splice::Splices;

/// Places `text` at the message `index`. Returns the item to be appended to the input, where the input is a text that
/// no item can follow yet. Nothing is placed in an item that must not be edited.
pub fn place(
    request: &Request,
    body: &[u8],
    index: usize,
    text: &str,
    placement: Placement,
    splices: &mut Splices,
) -> Option<Bytes> {
    let is_text = request.messages_span.of(body).starts_with(b"\"");
    match placement {
        Placement::System if is_text => return Some(developer_message(text)),
        Placement::System => {
            let end = request.messages[index].span.end;
            splices.insert(end, [b",", &developer_message(text)[..]].concat());
        }
        Placement::Suffix => suffix(&request.messages[index], text, splices),
        Placement::Leading => match request.messages.first() {
            Some(first) if first.role == Role::System || is_text => suffix(first, text, splices),
            Some(first) => splices.insert(first.span.start, [&developer_message(text)[..], b","].concat()),
            None => {}
        },
    }
    None
}

/// Places `text` after the items at `span`, which the client only refers to: nothing can be added to them.
pub fn place_after(span: Span, text: &str, placement: Placement, splices: &mut Splices) {
    if placement == Placement::System {
        splices.insert(span.end, [b",", &developer_message(text)[..]].concat());
    }
}

fn developer_message(text: &str) -> Bytes {
    let text = quote(text);
    let content = format!(r#"[{{"type":"input_text","text":{text}}}]"#);
    format!(r#"{{"type":"message","role":"developer","content":{content}}}"#).into()
}

/// Adds `text` to the text of a message or of a result.
fn suffix(message: &Message, text: &str, splices: &mut Splices) {
    if message.odd {
        return;
    }
    let escaped = escaped(text);
    let separated = |is_empty: bool| {
        let blank_line: &[u8] = if is_empty { b"" } else { br"\n\n" };
        [blank_line, escaped.as_slice()].concat()
    };
    match &message.content {
        Content::Text(content) => splices.insert(content.span.end, separated(content.span.is_empty())),
        Content::Parts { span, parts } => match parts.iter().rev().find_map(|part| part.text) {
            Some(last) => splices.insert(last.span.end, separated(last.span.is_empty())),
            None => {
                let comma = if parts.is_empty() { "" } else { "," };
                let part =
                    [comma.as_bytes(), br#"{"type":"input_text","text":""#, &escaped, br#""}"#].concat();
                splices.insert(span.end - 1, part);
            }
        },
        // A screenshot, or a result without text: the upstream would refuse another type.
        Content::Absent | Content::Null(_) | Content::Other(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(input: &str, placement: Placement) -> String {
        let body: Bytes = format!(r#"{{"input":{input}}}"#).into();
        let request = crate::responses::parse(&body).unwrap();
        let mut splices = Splices::default();
        let last = request.messages.len() - 1;
        let added = place(&request, &body, last, "n\"n", placement, &mut splices);
        assert_eq!(added.is_some(), input.starts_with('"') && placement == Placement::System);
        let out = splices.apply(&body).join();
        crate::responses::parse(&out).unwrap();
        let text = String::from_utf8(out.to_vec()).unwrap();
        text[r#"{"input":"#.len()..text.len() - 1].to_owned()
    }

    #[test]
    fn a_suffix_finds_the_text_of_messages_and_of_outputs() {
        for (input, expected) in [
            (r#""q""#, r#""q\n\nn\"n""#),
            (r#"[{"role":"user","content":"q"}]"#, r#"[{"role":"user","content":"q\n\nn\"n"}]"#),
            (
                r#"[{"type":"function_call_output","call_id":"c","output":"r"}]"#,
                r#"[{"type":"function_call_output","call_id":"c","output":"r\n\nn\"n"}]"#,
            ),
            (
                r#"[{"type":"function_call_output","call_id":"c","output":[{"type":"input_image"}]}]"#,
                r#"[{"type":"function_call_output","call_id":"c","output":[{"type":"input_image"},{"type":"input_text","text":"n\"n"}]}]"#,
            ),
            (
                r#"[{"type":"shell_call_output","call_id":"c","output":[{"stdout":"r","stderr":""}]}]"#,
                r#"[{"type":"shell_call_output","call_id":"c","output":[{"stdout":"r\n\nn\"n","stderr":""}]}]"#,
            ),
            (
                r#"[{"type":"computer_call_output","call_id":"c","output":{"type":"computer_screenshot"}}]"#,
                r#"[{"type":"computer_call_output","call_id":"c","output":{"type":"computer_screenshot"}}]"#,
            ),
        ] {
            assert_eq!(placed(input, Placement::Suffix), expected);
        }
    }

    #[test]
    fn a_developer_message_follows_the_item_that_it_belongs_to() {
        let item = r#"{"type":"function_call_output","call_id":"c","output":"r"}"#;
        let notice =
            r#"{"type":"message","role":"developer","content":[{"type":"input_text","text":"n\"n"}]}"#;
        assert_eq!(placed(&format!("[{item}]"), Placement::System), format!("[{item},{notice}]"));
        assert_eq!(placed(&format!("[{item}]"), Placement::Leading), format!("[{notice},{item}]"));
    }
}
