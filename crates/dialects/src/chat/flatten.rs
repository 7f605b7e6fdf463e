//! Flattening of the tool history to plain text, for upstreams that refuse it: calls become lines of the assistant's
//! text, results become user messages. The order stays; nothing else changes.

use crate::names_by_id::NamesById;
use model::message::{Content, Message, Role};
use model::request::Request;
use wire::body::Span;
use wire::json::{decode, escape_into};
use wire::splice::Splices;

/// Rewrites every call and result of `request`; true if there was any.
pub fn flatten(request: &Request, body: &[u8], splices: &mut Splices) -> bool {
    let mut calls = NamesById::default();
    let mut changed = false;
    let mut at = 0;
    while at < request.messages.len() {
        let message = &request.messages[at];
        if message.role == Role::Assistant && !message.calls.is_empty() {
            calls = names_by_id(message, body);
            splices.replace(message.span, flat_calls(message, body));
            changed = true;
        }
        let group = request.messages[at..].iter().take_while(|message| message.role == Role::Tool).count();
        if group > 0 {
            let results = &request.messages[at..at + group];
            let span = Span { start: results[0].span.start, end: results[group - 1].span.end };
            splices.replace(span, flat_results(results, &mut calls, body));
            changed = true;
        }
        at += group.max(1);
    }
    changed
}

fn names_by_id(message: &Message, body: &[u8]) -> NamesById {
    let text = |string: Option<_>| string.map_or(String::new(), |string| decode(string, body).into_owned());
    NamesById::new(message.calls.iter().map(|call| (text(call.id), text(call.name))))
}

/// The assistant's message with its calls as text.
fn flat_calls(message: &Message, body: &[u8]) -> Vec<u8> {
    let mut text: Vec<String> = message.content.texts().map(|text| decode(text, body).into_owned()).collect();
    text.retain(|text| !text.trim().is_empty());
    for call in &message.calls {
        let name = call.name.map_or("".into(), |name| decode(name, body));
        text.push(format!("[called {name} with {}]", call.arguments.text(body)));
    }
    let mut out = br#"{"role":"assistant","content":""#.to_vec();
    escape_into(&text.join("\n\n"), &mut out);
    out.extend_from_slice(b"\"}");
    out
}

/// The results of one group as one user message, since many templates want roles to alternate.
pub(super) fn flat_results(results: &[Message], calls: &mut NamesById, body: &[u8]) -> Vec<u8> {
    let only_text = results.iter().all(|result| match &result.content {
        Content::Parts { parts, .. } => parts.iter().all(|part| part.text.is_some()),
        _ => true,
    });
    let mut out = br#"{"role":"user","content":"#.to_vec();
    out.push(if only_text { b'"' } else { b'[' });
    for (at, result) in results.iter().enumerate() {
        let heading = format!("[result of {}]\n", name_of(result, calls, body));
        if only_text {
            if at > 0 {
                out.extend_from_slice(br"\n\n");
            }
            escape_into(&heading, &mut out);
            result.content.texts().for_each(|text| out.extend_from_slice(text.raw(body)));
        } else {
            if at > 0 {
                out.push(b',');
            }
            write_parts(result, &heading, body, &mut out);
        }
    }
    out.extend_from_slice(if only_text { b"\"}" } else { b"]}" });
    out
}

/// The parts of a result that is not all text, after a text part with its heading.
fn write_parts(result: &Message, heading: &str, body: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"type":"text","text":""#);
    escape_into(heading, out);
    if let Content::Text(text) = &result.content {
        out.extend_from_slice(text.raw(body));
    }
    out.extend_from_slice(b"\"}");
    if let Content::Parts { parts, .. } = &result.content {
        for part in parts {
            out.push(b',');
            out.extend_from_slice(part.span.of(body));
        }
    }
}

fn name_of(result: &Message, calls: &mut NamesById, body: &[u8]) -> String {
    let by_name = result.name.map(|name| decode(name, body).into_owned());
    let by_id = result.tool_call_id.and_then(|id| calls.take(&decode(id, body)));
    by_name.or(by_id).unwrap_or_else(|| "a tool".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn flat(messages: &str) -> serde_json::Value {
        let body = Bytes::from(format!(r#"{{"messages":{messages}}}"#));
        let request = crate::chat::parse(&body).unwrap();
        let mut splices = Splices::default();
        flatten(&request, &body, &mut splices);
        serde_json::from_slice::<serde_json::Value>(&splices.apply(&body).join()).unwrap()["messages"].take()
    }

    #[test]
    fn flattening_turns_calls_and_results_into_text_in_place() {
        let messages = flat(
            r#"[{"role":"user","content":"q"},
            {"role":"assistant","content":"Let me see.","tool_calls":[{"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}},{"id":"b","function":{"name":"g","arguments":"{}"}}]},
            {"role":"tool","tool_call_id":"b","content":"two \"q\""},{"role":"tool","tool_call_id":"a","content":[{"type":"text","text":"one"}]},
            {"role":"assistant","content":"done"}]"#,
        );
        assert_eq!(
            messages,
            serde_json::json!([
                {"role":"user","content":"q"},
                {"role":"assistant","content":"Let me see.\n\n[called f with {\"x\":1}]\n\n[called g with {}]"},
                {"role":"user","content":"[result of g]\ntwo \"q\"\n\n[result of f]\none"},
                {"role":"assistant","content":"done"}
            ])
        );
    }

    #[test]
    fn results_of_calls_with_the_same_id_are_named_in_the_order_of_the_calls() {
        let messages = flat(
            r#"[{"role":"assistant","tool_calls":[{"id":"0","function":{"name":"f","arguments":"{}"}},{"id":"0","function":{"name":"g","arguments":"{}"}}]},
            {"role":"tool","tool_call_id":"0","content":"one"},{"role":"tool","tool_call_id":"0","content":"two"}]"#,
        );
        assert_eq!(messages[1]["content"], "[result of f]\none\n\n[result of g]\ntwo");
    }

    #[test]
    fn images_in_results_stay_images() {
        let messages = flat(
            r#"[{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"shot"}}]},
            {"role":"tool","tool_call_id":"a","content":[{"type":"text","text":"see"},{"type":"image_url","image_url":{"url":"u"}}]}]"#,
        );
        assert_eq!(messages[1]["content"][2]["image_url"]["url"], "u");
        assert_eq!(messages[1]["content"][0]["text"], "[result of shot]\n");
    }
}
