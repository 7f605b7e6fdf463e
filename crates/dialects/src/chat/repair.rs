//! Repair of a broken history: a missing result becomes an honest synthetic one, a result without a call a user's message,
//! arguments that are no JSON object are wrapped in one, refused names and ids of calls are replaced, pictures leave the
//! results, and missing reasoning becomes a blank. The rest of the history keeps its bytes.

use super::flatten::flat_results;
use super::reasoning;
use crate::names_by_id::NamesById;
use crate::repair::{
    BrokenGroup, Pairing, PartsForm, UNKNOWN_CALL, broken_groups, move_pictures, rename_calls,
    sound_arguments, unknown_result,
};
use bytes::Bytes;
use model::adaptation::{Adaptation, Adaptations};
use model::call::{Arguments, ToolCall};
use model::message::Message;
use model::request::Request;
use wire::body::Span;
use wire::json::{decode, quote};
use wire::splice::{Rope, Splices};

/// Calls and results of chat completions: those of the deprecated form have no ids and need no other.
pub struct Pairs;

impl Pairing for Pairs {
    fn wants_result(&self, call: &ToolCall) -> bool {
        !call.legacy
    }

    fn wants_call(&self, _result: &Message) -> bool {
        true
    }

    fn may_rename(&self, _call: &ToolCall) -> bool {
        true
    }
}

const PARTS: PartsForm = PartsForm { head: r#"{"role":"user","content":["#, text_type: "text" };

/// What is broken in a history, as far as `of` asks.
pub fn broken(request: &Request, body: &[u8], of: Adaptations) -> Adaptations {
    let lacks_reasoning = of.contains(Adaptation::Reasoning) && reasoning::is_missing(request, body);
    let found = crate::repair::broken(request, body, &Pairs, of, true);
    if lacks_reasoning { found | Adaptation::Reasoning } else { found }
}

/// The request with its history repaired; `None` if it cannot be read.
pub fn repaired(body: &Bytes, repairs: Adaptations) -> Option<Rope> {
    let mut rope = edited(body, |request, splices| repair_calls(request, body, repairs, splices))?;
    if repairs.contains(Adaptation::Pairs) {
        let body = rope.join();
        rope = edited(&body, |request, splices| {
            for group in broken_groups(request, &body, &Pairs) {
                repair(&group, request, &body, splices);
            }
        })?;
    }
    if !repairs.is_disjoint(Adaptation::Pictures | Adaptation::NoPictures) {
        let body = rope.join();
        let left_out = repairs.contains(Adaptation::NoPictures);
        rope = edited(&body, |request, splices| move_pictures(request, &body, &PARTS, left_out, splices))?;
    }
    Some(rope)
}

/// The body with what `edit` replaces in it.
fn edited(body: &Bytes, edit: impl FnOnce(&Request, &mut Splices)) -> Option<Rope> {
    let request = super::parse(body).ok()?;
    let mut splices = Splices::default();
    edit(&request, &mut splices);
    Some(splices.apply(body))
}

fn repair_calls(request: &Request, body: &[u8], repairs: Adaptations, splices: &mut Splices) {
    rename_calls(request, body, &Pairs, repairs, splices);
    if repairs.contains(Adaptation::Reasoning) {
        reasoning::add_blanks(request, body, splices);
    }
    let wraps = repairs.contains(Adaptation::Arguments);
    for call in request.messages.iter().flat_map(|message| &message.calls).filter(|_| wraps) {
        if let (Some(place), Some(sound)) = (place_of(&call.arguments), sound_arguments(call, body, true)) {
            splices.replace(place, sound);
        }
    }
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
    let mut named = NamesById::new([(id, UNKNOWN_CALL.to_owned())]);
    flat_results(std::slice::from_ref(result), &mut named, body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const ALL: Adaptations = Adaptation::SUSPECTED_REPAIRS;
    /// Ids keep their places in these cases.
    fn pairs() -> Adaptations {
        Adaptation::Pairs | Adaptation::Arguments
    }

    fn repaired_as(messages: &Value, repairs: Adaptations) -> Vec<Value> {
        let body = Bytes::from(json!({ "model": "m", "messages": messages }).to_string());
        let out = repaired(&body, repairs).unwrap().join();
        let request = crate::chat::parse(&out).unwrap();
        assert!(broken(&request, &out, repairs).is_empty(), "nothing is left to repair");
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
            let out = repaired_as(&messages, pairs());
            assert_eq!(shape(&out), expected, "{messages}");
        }
    }

    #[test]
    fn valid_histories_and_disabled_repairs_leave_the_messages_unchanged() {
        for (messages, repairs) in [
            (json!([user("q"), calls(&["a", "b"]), result("b"), result("a"), user("x")]), ALL),
            (json!([calls(&["a"])]), ALL - Adaptation::Pairs),
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

    #[test]
    fn names_that_providers_refuse_are_replaced_in_calls_and_results() {
        let called = |name: &str| {
            json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": name, "arguments": "{}"}}]})
        };
        let answered =
            |name: &str| json!({"role": "tool", "tool_call_id": "a", "name": name, "content": "r"});
        for (name, expected) in [("browser.tabs.open", "browser_tabs_open"), ("", "unknown_tool"), ("f", "f")]
        {
            let out = repaired_as(&json!([called(name), answered(name)]), Adaptation::Names.into());
            assert_eq!(out, [called(expected), answered(expected)]);
        }
        let legacy = json!([{"role": "assistant", "function_call": {"name": "a.b", "arguments": "{}"}},
            {"role": "function", "name": "a.b", "content": "r"}]);
        let out = repaired_as(&legacy, ALL);
        assert_eq!((&out[0]["function_call"]["name"], &out[1]["name"]), (&json!("a_b"), &json!("a_b")));
    }

    #[test]
    fn the_second_call_with_an_id_gets_its_own_and_its_result_the_same() {
        let only = Adaptation::RepeatedIds.into();
        let history = json!([
            calls(&["t:0"]),
            result("t:0"),
            calls(&["t:0", "b", "b"]),
            result("b"),
            result("t:0"),
            result("b")
        ]);
        let out = repaired_as(&history, only);
        assert_eq!(out[..2], history.as_array().unwrap()[..2], "the first pair keeps its bytes");
        let id = |at: usize| out[2]["tool_calls"][at]["id"].as_str().unwrap().to_owned();
        let (new, kept, other) = (id(0), id(1), id(2));
        assert_eq!(kept, "b");
        assert!(new != "t:0" && other != "b" && new != other, "{new} {other}");
        let answered: Vec<&str> =
            out[3..].iter().map(|result| result["tool_call_id"].as_str().unwrap()).collect();
        assert_eq!(answered, ["b", &*new, &*other], "by the order of the calls");
        assert_eq!(out[4]["content"], "result \"t:0\"");
        let longer = json!([
            history[0],
            history[1],
            history[2],
            history[3],
            history[4],
            history[5],
            calls(&["t:0"]),
            result("t:0")
        ]);
        let longer = repaired_as(&longer, only);
        assert_eq!(longer[..6], out[..], "what was renumbered stays");
        assert_eq!(longer[6]["tool_calls"][0]["id"], longer[7]["tool_call_id"]);
        let forms = json!([calls(&["", "t:0", "ok"]), result("t:0"), result(""), result("ok")]);
        let out = repaired_as(&forms, Adaptation::IdForms.into());
        let ids: Vec<&Value> =
            out[0]["tool_calls"].as_array().unwrap().iter().map(|call| &call["id"]).collect();
        assert_eq!([&out[1]["tool_call_id"], &out[2]["tool_call_id"]], [ids[1], ids[0]]);
        assert_eq!(ids[2], "ok");
        assert!(ids[0].as_str().unwrap().len() == 9);
    }

    #[test]
    fn reasoning_that_is_missing_becomes_a_blank_and_what_is_there_stays() {
        let history = json!([
            user("q"),
            calls(&["a"]),
            result("a"),
            {"role": "assistant", "content": "one", "reasoning_content": null},
            {"role": "assistant", "content": "two", "reasoning_content": ""},
            {"role": "assistant", "content": "three", "reasoning_content": "I think."},
        ]);
        let out = repaired_as(&history, Adaptation::Reasoning.into());
        let thought: Vec<&Value> = out.iter().map(|message| &message["reasoning_content"]).collect();
        let (nothing, blank) = (Value::Null, json!(" "));
        assert_eq!(thought, [&nothing, &blank, &nothing, &blank, &blank, &json!("I think.")]);
        assert_eq!((&out[0], &out[2], &out[5]), (&history[0], &history[2], &history[5]));
        assert_eq!(json!(repaired_as(&history, ALL)), history, "only where it is named");
    }

    #[test]
    fn pictures_of_results_go_into_a_users_message_after_the_group_or_a_note_takes_their_place() {
        let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}});
        let shot =
            json!({"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "see"}, image]});
        let history = json!([calls(&["a", "b"]), shot, result("b"), user("well?")]);
        let out = repaired_as(&history, Adaptation::Pictures.into());
        assert_eq!(out.len(), 5);
        assert!(out[1]["content"].as_str().unwrap().starts_with("see\n[an image"), "{}", out[1]);
        assert_eq!((&out[2], &out[4]), (&history[2], &history[3]));
        assert_eq!((&out[3]["role"], &out[3]["content"][1]), (&json!("user"), &image));
        let out = repaired_as(&history, Adaptation::NoPictures.into());
        assert_eq!(out.len(), 4);
        assert!(out[1]["content"].as_str().unwrap().contains("an image was here"));
        let text = json!([calls(&["a"]), {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "see"}]}]);
        assert_eq!(json!(repaired_as(&text, ALL)), text);
    }
}
