//! Flattening of the tool history to plain text, for upstreams that refuse it: the calls of a reply become an
//! assistant's message, their results a user's message, and the reasoning before them goes.

use crate::names_by_id::NamesById;
use model::message::{Message, Role};
use model::request::Request;
use wire::body::Span;
use wire::json::{decode, quote};
use wire::splice::Splices;

/// Rewrites every call and result of `request`.
pub fn flatten(request: &Request, body: &[u8], splices: &mut Splices) {
    let mut names = NamesById::default();
    let mut at = 0;
    while at < request.messages.len() {
        let message = &request.messages[at];
        if message.role == Role::Assistant && !message.calls.is_empty() {
            names = NamesById::new(message.calls.iter().map(|call| (text(call.id, body), name(call, body))));
            splices.replace(message.span, said("assistant", &calls(message, body)));
        }
        let group = request.messages[at..].iter().take_while(|message| message.role == Role::Tool).count();
        if let [first, ..] = &request.messages[at..at + group] {
            let results = &request.messages[at..at + group];
            let end = results.last().unwrap_or(first).span.end;
            let lines: Vec<String> = results.iter().map(|result| line(result, &mut names, body)).collect();
            splices.replace(Span { start: first.span.start, end }, said("user", &lines.join("\n\n")));
        }
        at += group.max(1);
    }
}

fn said(role: &str, text: &str) -> String {
    format!(r#"{{"type":"message","role":"{role}","content":{}}}"#, quote(text))
}

fn calls(message: &Message, body: &[u8]) -> String {
    let mut lines: Vec<String> =
        message.content.texts().map(|text| decode(text, body).into_owned()).collect();
    lines.retain(|line| !line.trim().is_empty());
    let call = |call| format!("[called {} with {}]", name(call, body), call.arguments.text(body));
    lines.extend(message.calls.iter().map(call));
    lines.join("\n\n")
}

fn line(result: &Message, names: &mut NamesById, body: &[u8]) -> String {
    let name = names.take(&text(result.tool_call_id, body)).unwrap_or_else(|| "a tool".to_owned());
    let texts: Vec<_> = result.content.texts().map(|text| decode(text, body)).collect();
    format!("[result of {name}]\n{}", texts.join("\n"))
}

fn name(call: &model::call::ToolCall, body: &[u8]) -> String {
    call.full_name(body).unwrap_or_default().into_owned()
}

fn text(string: Option<wire::body::Str>, body: &[u8]) -> String {
    string.map_or(String::new(), |string| decode(string, body).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn calls_and_results_become_text_and_their_reasoning_goes() {
        let body = Bytes::from_static(
            br#"{"input":[{"role":"user","content":"q"},{"type":"reasoning","id":"rs_1","summary":[]},{"type":"function_call","id":"fc_1","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"r"}]}"#,
        );
        let request = crate::responses::parse(&body).unwrap();
        let mut splices = Splices::default();
        flatten(&request, &body, &mut splices);
        assert_eq!(
            splices.apply(&body).join(),
            r#"{"input":[{"role":"user","content":"q"},{"type":"message","role":"assistant","content":"[called f with {}]"},{"type":"message","role":"user","content":"[result of f]\nr"}]}"#
        );
    }

    #[test]
    fn outputs_of_calls_with_the_same_id_are_named_in_the_order_of_the_calls() {
        let call = |name: &str| {
            format!(r#"{{"type":"function_call","call_id":"0","name":"{name}","arguments":"{{}}"}}"#)
        };
        let output =
            |text: &str| format!(r#"{{"type":"function_call_output","call_id":"0","output":"{text}"}}"#);
        let items = [call("f"), call("g"), output("one"), output("two")].join(",");
        let body = Bytes::from(format!(r#"{{"input":[{items}]}}"#));
        let request = crate::responses::parse(&body).unwrap();
        let mut splices = Splices::default();
        flatten(&request, &body, &mut splices);
        let flat = String::from_utf8(splices.apply(&body).join().to_vec()).unwrap();
        assert!(flat.contains(r"[result of f]\none\n\n[result of g]\ntwo"), "{flat}");
    }
}
