//! Repair of a broken history: a missing result becomes an honest synthetic one, a result without a call a user's message,
//! and arguments that are no JSON object are wrapped in one. The rest of the history keeps its bytes.

use super::flatten::flat_results;
use crate::conversation::call::{Arguments, ToolCall};
use crate::conversation::message::Message;
use crate::conversation::request::Request;
use crate::dialect::repair::{
    BrokenGroup, Pairing, UNKNOWN_CALL, broken_groups, sound_arguments, unknown_result,
};
use crate::dialect::variant::Repairs;
use crate::wire::body::Span;
use crate::wire::json::{decode, quote};
use crate::wire::splice::{Rope, Splices};
use bytes::Bytes;
use std::collections::HashMap;

/// Calls and results of chat completions: those of the deprecated form have no ids and need no other.
pub struct Pairs;

impl Pairing for Pairs {
    fn wants_result(&self, call: &ToolCall) -> bool {
        !call.legacy
    }

    fn wants_call(&self, _result: &Message) -> bool {
        true
    }
}

/// What is broken in a history, as far as `of` asks.
pub fn broken(request: &Request, body: &[u8], of: Repairs) -> Repairs {
    crate::dialect::repair::broken(request, body, &Pairs, of, true)
}

/// The request with its history repaired; `None` if it cannot be read.
pub fn repaired(body: &Bytes, repairs: Repairs) -> Option<Rope> {
    let request = super::parse(body).ok()?;
    let mut splices = Splices::default();
    if repairs.arguments {
        for call in request.messages.iter().flat_map(|message| &message.calls) {
            if let (Some(place), Some(sound)) = (place_of(&call.arguments), sound_arguments(call, body, true))
            {
                splices.replace(place, sound);
            }
        }
    }
    if repairs.pairs {
        for group in broken_groups(&request, body, &Pairs) {
            repair(&group, &request, body, &mut splices);
        }
    }
    Some(splices.apply(body))
}

/// The span of arguments, with the quotation marks of a string.
fn place_of(arguments: &Arguments) -> Option<Span> {
    match arguments {
        Arguments::Text(text) => Some(text.quoted()),
        Arguments::Value(span) | Arguments::Null(span) => Some(*span),
        Arguments::Absent => None,
    }
}

/// Puts the synthetic results after the other ones of their group, and the texts of results without a call after them:
/// nothing may come between a call and its results.
fn repair(group: &BrokenGroup, request: &Request, body: &[u8], splices: &mut Splices) {
    let BrokenGroup { first, end, unanswered, orphans } = group;
    let messages = &request.messages;
    let calls: &[ToolCall] = first.checked_sub(1).map_or(&[], |at| &messages[at].calls);
    let mut added: Vec<Vec<u8>> = unanswered.iter().map(|at| synthetic(&calls[*at], body)).collect();
    added.extend(orphans.iter().map(|at| as_text(&messages[*at], body)));
    if orphans.is_empty() {
        let after = messages[end - 1].span.end;
        return added.into_iter().for_each(|message| {
            splices.insert(after, Bytes::from_static(b","));
            splices.insert(after, message);
        });
    }
    let kept = (*first..*end)
        .filter(|at| orphans.binary_search(at).is_err())
        .map(|at| messages[at].span.of(body).to_vec());
    let all: Vec<Vec<u8>> = kept.chain(added).collect();
    let span = Span { start: messages[*first].span.start, end: messages[end - 1].span.end };
    splices.replace(span, all.join(&b","[..]));
}

/// The result of a call that has none.
fn synthetic(call: &ToolCall, body: &[u8]) -> Vec<u8> {
    let id = call.id.map(|id| decode(id, body).into_owned()).unwrap_or_default();
    let (id, text) = (quote(&id), quote(&unknown_result()));
    format!(r#"{{"role":"tool","tool_call_id":{id},"content":{text}}}"#).into_bytes()
}

/// A result without a call as a user's message.
fn as_text(result: &Message, body: &[u8]) -> Vec<u8> {
    let id = result.tool_call_id.map(|id| decode(id, body).into_owned()).unwrap_or_default();
    let named = HashMap::from([(id, UNKNOWN_CALL.to_owned())]);
    flat_results(std::slice::from_ref(result), &named, body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const ALL: Repairs = Repairs { pairs: true, arguments: true };

    fn repaired_as(messages: &Value, repairs: Repairs) -> Vec<Value> {
        let body = Bytes::from(json!({ "model": "m", "messages": messages }).to_string());
        let out = repaired(&body, repairs).unwrap().join();
        let request = crate::dialect::chat::parse(&out).unwrap();
        assert!(!broken(&request, &out, repairs).any(), "nothing is left to repair");
        assert_eq!(repaired(&out, repairs).unwrap().join(), out, "once is enough");
        serde_json::from_slice::<Value>(&out).unwrap()["messages"].as_array().unwrap().clone()
    }

    fn call(id: &str) -> Value {
        json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}})
    }

    fn calls(ids: &[&str]) -> Value {
        json!({"role": "assistant", "content": null, "tool_calls": ids.iter().map(|id| call(id)).collect::<Vec<_>>()})
    }

    fn result(id: &str) -> Value {
        json!({"role": "tool", "tool_call_id": id, "content": format!("result \"{id}\"")})
    }

    fn user(text: &str) -> Value {
        json!({"role": "user", "content": text})
    }

    /// The kind of each message: `?` is a synthetic result, `!` a result that became text.
    fn shape(messages: &[Value]) -> String {
        let word = |message: &Value| {
            let text = message["content"].as_str().unwrap_or_default();
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            match message["role"].as_str().unwrap() {
                "assistant" if message["tool_calls"].is_array() => "calls".to_owned(),
                "tool" if text.contains("RESULT_UNKNOWN") => format!("{id}?"),
                "tool" => id.to_owned(),
                "user" if text.starts_with("[result of") => {
                    format!("!{}", &text[text.len() - 2..text.len() - 1])
                }
                role => role.to_owned(),
            }
        };
        messages.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn calls_without_results_and_results_without_calls_are_repaired_in_place() {
        for (messages, expected) in [
            (json!([user("q"), calls(&["a"]), result("a")]), "user calls a"),
            (json!([user("q"), calls(&["a"])]), "user calls a?"),
            (json!([user("q"), calls(&["a", "b"]), result("b")]), "user calls b a?"),
            (json!([calls(&["a"]), user("go on")]), "calls a? user"),
            (json!([calls(&["a"]), user("q"), result("a")]), "calls a? user !a"),
            (json!([calls(&["a"]), calls(&["b"]), result("b")]), "calls a? calls b"),
            (json!([result("x"), result("y"), user("q")]), "!x !y user"),
            (json!([user("q"), result("x")]), "user !x"),
            (json!([calls(&["a", "b"]), result("x"), result("b"), result("b")]), "calls b a? !x !b"),
            (json!([calls(&["", ""]), result(""), result("")]), "calls  "),
            (json!([]), ""),
        ] {
            let out = repaired_as(&messages, ALL);
            assert_eq!(shape(&out), expected, "{messages}");
        }
    }

    #[test]
    fn valid_histories_and_disabled_repairs_leave_the_messages_unchanged() {
        for (messages, repairs) in [
            (json!([user("q"), calls(&["a", "b"]), result("b"), result("a"), user("x")]), ALL),
            (json!([calls(&["a"])]), Repairs { pairs: false, arguments: true }),
            (
                json!([{"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
                    {"role": "function", "name": "f", "content": "r"}, user("q")]),
                ALL,
            ),
            (
                json!([{"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}, user("q")]),
                ALL,
            ),
        ] {
            assert_eq!(json!(repaired_as(&messages, repairs)), messages);
        }
    }

    #[test]
    fn arguments_that_are_no_object_are_wrapped_and_still_shown() {
        for (arguments, expected) in [
            (json!("{\"q\":1}"), json!({"q": 1})),
            (json!("{\"q\":"), json!({"invalid_arguments": "{\"q\":"})),
            (json!("2"), json!({"invalid_arguments": "2"})),
            (json!("not \"json\""), json!({"invalid_arguments": "not \"json\""})),
            (json!(""), json!({})),
            (json!({"q": 1}), json!({"q": 1})),
            (json!(["a"]), json!({"invalid_arguments": "[\"a\"]"})),
            (Value::Null, json!({})),
        ] {
            let mut asking = calls(&["a"]);
            asking["tool_calls"][0]["function"]["arguments"] = arguments.clone();
            let out = repaired_as(&json!([asking, result("a")]), ALL);
            let text = out[0]["tool_calls"][0]["function"]["arguments"].as_str().unwrap();
            assert_eq!(serde_json::from_str::<Value>(text).unwrap(), expected, "{arguments}");
        }
        let custom = json!([{"role": "assistant", "content": null, "tool_calls": [
            {"id": "a", "type": "custom", "custom": {"name": "f", "input": "free text"}}]}, result("a")]);
        assert_eq!(json!(repaired_as(&custom, ALL)), custom);
    }

    #[test]
    fn the_repaired_history_stays_a_prefix_as_the_conversation_grows() {
        let all = [
            user("q"),
            calls(&["a", "b"]),
            result("b"),
            result("x"),
            user("go on"),
            result("a"),
            calls(&["c"]),
            user("well?"),
            result("c"),
            json!({"role": "assistant", "content": "done"}),
            user("thanks"),
        ];
        // A group is complete, as far as it ever is, once something else follows it.
        let ends = [1, 5, 8, 10, 11];
        for pair in ends.windows(2) {
            let shorter = repaired_as(&json!(&all[..pair[0]]), ALL);
            let longer = repaired_as(&json!(&all[..pair[1]]), ALL);
            assert_eq!(longer[..shorter.len()], shorter, "{pair:?}");
        }
    }
}
