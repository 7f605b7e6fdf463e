//! Notice placement: after a message as a `system` message of its own, at the end of the message's text, or in the
//! leading system message. Never between a call and its results.

use super::message::is_developer;
use crate::variant::Placement;
use bytes::Bytes;
use model::message::{Content, Message, Role};
use model::request::Request;
use wire::json::{escape_into, escaped};
use wire::splice::Splices;

/// Places `text` at the message `index`. Nothing is placed in a message that must not be edited.
pub fn place(
    request: &Request,
    body: &[u8],
    index: usize,
    text: &str,
    placement: Placement,
    splices: &mut Splices,
) {
    let message = &request.messages[index];
    match placement {
        Placement::System => {
            let mut out = b",".to_vec();
            system_message(role(request, body), text, &mut out);
            splices.insert(message.span.end, out);
        }
        Placement::Suffix => suffix(message, text, splices),
        Placement::Leading => match request.messages.first() {
            Some(first) if first.role == Role::System && !first.odd => suffix(first, text, splices),
            Some(first) => {
                let mut out = Vec::new();
                system_message(role(request, body), text, &mut out);
                out.push(b',');
                splices.insert(first.span.start, out);
            }
            None => {}
        },
    }
}

/// The role of the client's own instructions: some models accept only `developer`.
fn role(request: &Request, body: &[u8]) -> &'static str {
    let first = request.messages.iter().find(|message| message.role == Role::System);
    if first.is_some_and(|message| is_developer(message, body)) { "developer" } else { "system" }
}

fn system_message(role: &str, text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(format!(r#"{{"role":"{role}","content":""#).as_bytes());
    escape_into(text, out);
    out.extend_from_slice(br#""}"#);
}

/// Adds `text` to the message's text, whatever form its content has.
fn suffix(message: &Message, text: &str, splices: &mut Splices) {
    if message.odd {
        return;
    }
    let escaped = escaped(text);
    match &message.content {
        Content::Text(content) => {
            splices.insert(content.span.end, after_blank_line(escaped, content.span.is_empty()));
        }
        Content::Parts { span, parts } => match parts.iter().rev().find_map(|part| part.text) {
            Some(last) => splices.insert(last.span.end, after_blank_line(escaped, last.span.is_empty())),
            None => {
                let comma = if parts.is_empty() { "" } else { "," };
                let part = [comma.as_bytes(), br#"{"type":"text","text":""#, &escaped, br#""}"#].concat();
                splices.insert(span.end - 1, part);
            }
        },
        Content::Null(span) => splices.replace(*span, [b"\"", escaped.as_slice(), b"\""].concat()),
        Content::Absent => {
            let member = [br#""content":""#, escaped.as_slice(), br#"","#].concat();
            splices.insert(message.span.start + 1, member);
        }
        // A number or an object: the upstream will refuse it anyway.
        Content::Other(_) => {}
    }
}

fn after_blank_line(escaped: Vec<u8>, first: bool) -> Bytes {
    if first { escaped.into() } else { [br"\n\n", escaped.as_slice()].concat().into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(messages: &str, index: usize, placement: Placement) -> String {
        let body = Bytes::from(format!(r#"{{"messages":[{messages}]}}"#));
        let request = crate::chat::parse(&body).unwrap();
        let mut splices = Splices::default();
        place(&request, &body, index, "n\"n", placement, &mut splices);
        let out = splices.apply(&body).join();
        crate::chat::parse(&out).unwrap();
        let text = String::from_utf8(out.to_vec()).unwrap();
        text[r#"{"messages":["#.len()..text.len() - 2].to_owned()
    }

    #[test]
    fn a_suffix_finds_the_text_in_every_form_of_content() {
        for (message, expected) in [
            (r#"{"role":"tool","content":"r"}"#, r#"{"role":"tool","content":"r\n\nn\"n"}"#),
            (r#"{"role":"tool","content":""}"#, r#"{"role":"tool","content":"n\"n"}"#),
            (r#"{"role":"tool","content":null}"#, r#"{"role":"tool","content":"n\"n"}"#),
            (r#"{"role":"tool"}"#, r#"{"content":"n\"n","role":"tool"}"#),
            (
                r#"{"role":"tool","content":[]}"#,
                r#"{"role":"tool","content":[{"type":"text","text":"n\"n"}]}"#,
            ),
            (
                r#"{"role":"tool","content":[{"type":"text","text":"a"},{"type":"image_url"}]}"#,
                r#"{"role":"tool","content":[{"type":"text","text":"a\n\nn\"n"},{"type":"image_url"}]}"#,
            ),
            (
                r#"{"role":"tool","content":[{"type":"image_url"}]}"#,
                r#"{"role":"tool","content":[{"type":"image_url"},{"type":"text","text":"n\"n"}]}"#,
            ),
            (r#"{"role":"tool","content":"\ud800"}"#, r#"{"role":"tool","content":"\ud800"}"#),
            (r#"{"role":"tool","content":7}"#, r#"{"role":"tool","content":7}"#),
        ] {
            assert_eq!(placed(message, 0, Placement::Suffix), expected);
        }
    }

    #[test]
    fn a_system_message_follows_the_message_it_belongs_to() {
        let messages = r#"{"role":"tool","content":"r"},{"role":"user","content":"u"}"#;
        assert_eq!(
            placed(messages, 0, Placement::System),
            r#"{"role":"tool","content":"r"},{"role":"system","content":"n\"n"},{"role":"user","content":"u"}"#
        );
    }

    #[test]
    fn a_system_message_has_the_role_of_the_first_one_of_the_client() {
        for (first, expected) in [
            (r#"{"content":"s","role":"developer"},"#, "developer"),
            (r#"{"role":"developer"},{"role":"system"},"#, "developer"),
            (r#"{"role":"system"},{"role":"developer"},"#, "system"),
            (r#"{"role":"user","content":"developer"},"#, "system"),
        ] {
            let messages = format!(r#"{first}{{"role":"user"}}"#);
            let notice = format!(r#"{{"role":"{expected}","content":"n\"n"}}"#);
            let last = messages.matches("},").count();
            assert_eq!(placed(&messages, last, Placement::System), format!("{messages},{notice}"));
        }
        let messages = r#"{"role":"user"},{"role":"developer"}"#;
        let leading = format!(r#"{{"role":"developer","content":"n\"n"}},{messages}"#);
        assert_eq!(placed(messages, 1, Placement::Leading), leading);
    }

    #[test]
    fn a_leading_notice_joins_the_first_system_message_or_becomes_it() {
        assert_eq!(
            placed(r#"{"role":"system","content":"s"},{"role":"user"}"#, 1, Placement::Leading),
            r#"{"role":"system","content":"s\n\nn\"n"},{"role":"user"}"#
        );
        assert_eq!(
            placed(r#"{"role":"user"}"#, 0, Placement::Leading),
            r#"{"role":"system","content":"n\"n"},{"role":"user"}"#
        );
    }
}
