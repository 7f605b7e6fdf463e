//! Repair of a broken history: a missing output becomes an honest synthetic one, an output without a call a user's message,
//! and arguments that are no JSON object are wrapped in one. The rest of the history keeps its bytes. Where the upstream
//! keeps the conversation, only the calls of its last reply are looked at, if they are known: what else seems to lack its
//! other half may have it there.

use super::item::{CallKind, ItemKind, parse_item};
use super::reply::written::synthetic_result;
use super::write::is_stateful;
use crate::conversation::assembled::Assembled;
use crate::conversation::call::{Arguments, ToolCall};
use crate::conversation::message::{Content, Message};
use crate::conversation::request::Request;
use crate::dialect::repair::{
    BrokenGroup, Pairing, UNKNOWN_CALL, broken_groups, sound_arguments, unknown_result,
};
use crate::dialect::variant::Repairs;
use crate::wire::body::{Scanner, Span};
use crate::wire::json::quote;
use crate::wire::splice::{Rope, Splices};
use bytes::Bytes;
use memchr::memmem::find;

/// Calls and results of the Responses API, by what the items of this body are.
struct Pairs<'a>(&'a [u8]);

impl Pairing for Pairs<'_> {
    fn wants_result(&self, call: &ToolCall) -> bool {
        let text = call.span.of(self.0);
        // A call that runs in the background gets its result later, if at all.
        let is_async = find(text, b"\"async\":true").is_some() || find(text, b"\"async\": true").is_some();
        !is_async && synthetic(call, self.0).is_some()
    }

    fn wants_call(&self, result: &Message) -> bool {
        find(result.span.of(self.0), b"_output\"").is_some()
    }
}

/// What is broken in a history, as far as `of` asks.
pub fn broken(request: &Request, body: &[u8], of: Repairs) -> Repairs {
    if !is_stateful(request, body) {
        return crate::dialect::repair::broken(request, body, &Pairs(body), of, false);
    }
    let arguments = Repairs { pairs: false, ..of };
    let found = crate::dialect::repair::broken(request, body, &Pairs(body), arguments, false);
    Repairs { pairs: of.pairs && !open_upstream(request, body).is_empty(), ..found }
}

/// Synthetic outputs for the calls of the upstream's last reply that this request leaves without one, as far as they are
/// known.
pub fn open_upstream(request: &Request, body: &[u8]) -> Vec<Bytes> {
    if request.upstream_history.is_none() {
        return Vec::new();
    }
    let groups = broken_groups(request, body, &Pairs(body));
    let Some(last) = groups.iter().find(|group| group.first == request.first_sent()) else {
        return Vec::new();
    };
    let calls: &[ToolCall] = last.first.checked_sub(1).map_or(&[], |at| &request.messages[at].calls);
    last.unanswered.iter().filter_map(|at| synthetic(&calls[*at], body)).collect()
}

/// The request with its history repaired; `None` if it cannot be read.
pub fn repaired(body: &Bytes, repairs: Repairs) -> Option<Rope> {
    let request = super::parse(body).ok()?;
    let mut splices = Splices::default();
    if repairs.arguments {
        for call in request.messages.iter().flat_map(|message| &message.calls) {
            if let (Arguments::Text(text), Some(sound)) = (call.arguments, sound_arguments(call, body, false))
            {
                splices.replace(text.quoted(), sound);
            }
        }
    }
    if repairs.pairs && !is_stateful(&request, body) {
        for group in broken_groups(&request, body, &Pairs(body)) {
            repair(&group, &request, body, &mut splices);
        }
    }
    Some(splices.apply(body))
}

/// Puts the synthetic outputs after the other ones of their group, and the texts of outputs without a call after them.
fn repair(group: &BrokenGroup, request: &Request, body: &[u8], splices: &mut Splices) {
    let BrokenGroup { first, end, unanswered, orphans } = group;
    let messages = &request.messages;
    let calls: &[ToolCall] = first.checked_sub(1).map_or(&[], |at| &messages[at].calls);
    let mut added: Vec<Bytes> = unanswered.iter().filter_map(|at| synthetic(&calls[*at], body)).collect();
    added.extend(orphans.iter().map(|at| Bytes::from(as_text(&messages[*at], body))));
    if orphans.is_empty() {
        let after = messages[end - 1].span.end;
        return added.into_iter().for_each(|item| {
            splices.insert(after, Bytes::from_static(b","));
            splices.insert(after, item);
        });
    }
    let kept = (*first..*end).filter(|at| orphans.binary_search(at).is_err());
    let kept = kept.map(|at| Bytes::copy_from_slice(messages[at].span.of(body)));
    let all: Vec<Bytes> = kept.chain(added).collect();
    let span = Span { start: messages[*first].span.start, end: messages[end - 1].span.end };
    splices.replace(span, all.join(&b","[..]));
}

/// The output of a call that has none; `None` for a call that needs none, or that no text can answer.
fn synthetic(call: &ToolCall, body: &[u8]) -> Option<Bytes> {
    let raw = call.span.of(body);
    let item = parse_item(&mut Scanner::new(raw)).ok()?;
    let ItemKind::Call(kind) = item.kind else { return None };
    if kind == CallKind::McpApproval {
        return None;
    }
    let known = Assembled { id: call.id?.raw(body).to_vec(), ..Assembled::default() };
    synthetic_result(kind, &known, Some(&Bytes::copy_from_slice(raw)), &unknown_result())
}

/// An output without a call as a user's message.
fn as_text(result: &Message, body: &[u8]) -> String {
    let heading = format!("[result of {UNKNOWN_CALL}]\n");
    let text = |text: &str| format!(r#"{{"type":"input_text","text":{}}}"#, quote(text));
    let mut parts = vec![text(&heading)];
    match &result.content {
        Content::Parts { parts: own, .. } => {
            parts.extend(own.iter().map(|part| match part.text {
                Some(said) => text(&crate::wire::json::decode(said, body)),
                None => String::from_utf8_lossy(part.span.of(body)).into_owned(),
            }));
        }
        Content::Text(said) => {
            parts = vec![text(&format!("{heading}{}", crate::wire::json::decode(*said, body)))];
        }
        _ => {}
    }
    format!(r#"{{"role":"user","content":[{}]}}"#, parts.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const ALL: Repairs = Repairs { pairs: true, arguments: true };

    fn repaired_as(body: &Value) -> Value {
        let body = Bytes::from(body.to_string());
        let out = repaired(&body, ALL).unwrap().join();
        let request = crate::dialect::responses::parse(&out).unwrap();
        assert!(!broken(&request, &out, ALL).any(), "nothing is left to repair");
        assert_eq!(repaired(&out, ALL).unwrap().join(), out, "once is enough");
        serde_json::from_slice(&out).unwrap()
    }

    fn call(id: &str) -> Value {
        json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"})
    }

    fn output(id: &str) -> Value {
        json!({"type": "function_call_output", "call_id": id, "output": format!("result {id}")})
    }

    fn user() -> Value {
        json!({"role": "user", "content": "q"})
    }

    /// The kind of each item: `?` is a synthetic output, `!` an output that became text.
    fn shape(body: &Value) -> String {
        let word = |item: &Value| {
            let id = item["call_id"].as_str().unwrap_or_default();
            let kind = item["type"].as_str().unwrap_or_default();
            let text = item["content"][0]["text"].as_str().unwrap_or_default();
            match kind {
                _ if text.starts_with("[result of") => format!("!{}", &text[text.len() - 1..]),
                "" => item["role"].as_str().unwrap().to_owned(),
                _ if kind.ends_with("_output") && item.to_string().contains("RESULT_UNKNOWN") => {
                    format!("={id}?")
                }
                _ if kind.ends_with("_output") => format!("={id}"),
                "reasoning" => kind.to_owned(),
                _ => id.to_owned(),
            }
        };
        body["input"].as_array().unwrap().iter().map(word).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn calls_without_outputs_and_outputs_without_calls_are_repaired_in_place() {
        let custom = json!({"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "x"});
        let shell = json!({"type": "shell_call", "call_id": "s", "action": {"commands": ["ls"]}});
        let reasoning = json!({"type": "reasoning", "id": "rs_1", "summary": []});
        for (input, expected) in [
            (json!([user(), call("a"), output("a")]), "user a =a"),
            (
                json!([user(), reasoning, call("a"), call("b"), output("b"), user()]),
                "user reasoning a b =b =a? user",
            ),
            (json!([user(), call("a"), user(), output("a")]), "user a =a? user !a"),
            (json!([output("x"), user()]), "!x user"),
            (json!([call("a"), output("a"), output("a"), user()]), "a =a !a user"),
            (json!([user(), custom, shell, user()]), "user c s =c? =s? user"),
        ] {
            assert_eq!(shape(&repaired_as(&json!({ "model": "m", "input": input }))), expected, "{input}");
        }
    }

    #[test]
    fn possibly_valid_histories_keep_every_byte() {
        let computer = json!({"type": "computer_call", "call_id": "c", "action": {"type": "click"}});
        let question = json!({"type": "mcp_approval_request", "id": "mcpr_1", "name": "f", "arguments": "{}", "server_label": "s"});
        let answer =
            json!({"type": "mcp_approval_response", "approval_request_id": "mcpr_0", "approve": true});
        let mut later = call("l");
        later["async"] = true.into();
        for body in [
            json!({"input": [output("x")], "previous_response_id": "resp_1"}),
            json!({"input": [output("x")], "conversation": "conv_1"}),
            json!({"input": [user(), call("a"), call("b"), output("b"), output("a"), user()]}),
            json!({"input": [computer, user(), question, user(), answer, later, user()]}),
            json!({"input": "q"}),
        ] {
            assert_eq!(repaired_as(&body), body);
        }
    }

    #[test]
    fn arguments_that_are_no_object_are_wrapped_and_images_in_outputs_stay() {
        let mut broken_call = call("a");
        broken_call["arguments"] = "{\"q\":".into();
        let image = json!({"type": "input_image", "image_url": "u"});
        let orphan = json!({"type": "function_call_output", "call_id": "x", "output":
            [{"type": "input_text", "text": "see"}, image]});
        let out = repaired_as(&json!({"input": [broken_call, output("a"), orphan]}));
        let arguments: Value = serde_json::from_str(out["input"][0]["arguments"].as_str().unwrap()).unwrap();
        assert_eq!(arguments, json!({"invalid_arguments": "{\"q\":"}));
        assert_eq!(out["input"][2]["content"][2], image);
        assert_eq!(out["input"][2]["content"][1]["text"], "see");
    }
}
