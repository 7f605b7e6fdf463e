//! Repair of a broken history: a missing output becomes an honest synthetic one, an output without a call a user's message,
//! arguments that are no JSON object are wrapped in one, refused names and ids of calls are replaced, and pictures leave
//! the outputs. The rest of the history keeps its bytes. Where the upstream
//! keeps the conversation, only the calls of its last reply are looked at, if they are known: what else seems to lack its
//! other half may have it there.

use super::item::{CallKind, ItemKind, parse_item};
use super::reply::written::{result_of, synthetic_result};
use super::request::is_reference;
use super::write::is_stateful;
use crate::refusal::OpenCall;
use crate::repair::{
    BrokenGroup, Pairing, PartsForm, UNKNOWN_CALL, broken_groups, move_pictures, rename_calls,
    sound_arguments, unknown_result,
};
use crate::variant::PlannedRequest;
use bytes::Bytes;
use memchr::memmem::find;
use model::adaptation::{Adaptation, Adaptations};
use model::assembled::Assembled;
use model::call::{Arguments, ToolCall};
use model::message::{Content, Message, Role};
use model::request::Request;
use wire::body::{Scanner, Span};
use wire::json::quote;
use wire::splice::{Rope, Splices};

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

    /// Not of calls whose item is their id, or that are the provider's.
    fn may_rename(&self, call: &ToolCall) -> bool {
        let item = parse_item(&mut Scanner::new(call.span.of(self.0)));
        let kind = item.map(|item| item.kind).unwrap_or_default();
        matches!(kind, ItemKind::Call(CallKind::Function | CallKind::Custom))
            && find(call.span.of(self.0), b"\"call_id\"").is_some()
    }
}

const PARTS: PartsForm =
    PartsForm { head: r#"{"type":"message","role":"user","content":["#, text_type: "input_text" };

/// What is broken in the history of the request, as far as `of` asks.
pub fn broken(planned: &PlannedRequest<'_>, of: Adaptations) -> Adaptations {
    let PlannedRequest { request, body, .. } = *planned;
    if !is_stateful(request, body) {
        let others = of - Adaptation::Pairs;
        let found = crate::repair::broken(request, body, &Pairs(body), others, false);
        let has_groups = || !groups_to_repair(request, body).is_empty();
        return found | (of & Adaptation::Pairs).iter().filter(|_| has_groups()).collect::<Adaptations>();
    }
    // The upstream has calls with ids that are not known here.
    let others = of - (Adaptation::Pairs | Adaptation::RepeatedIds | Adaptation::IdForms);
    let found = crate::repair::broken(request, body, &Pairs(body), others, false);
    let is_open = || !open_upstream(planned).is_empty();
    found | (of & Adaptation::Pairs).iter().filter(|_| is_open()).collect::<Adaptations>()
}

/// The broken groups of a history. A reply with a reference is none, nor one with a reference among its outputs: calls and
/// outputs that seem to lack their other half may have it there.
fn groups_to_repair(request: &Request, body: &[u8]) -> Vec<BrokenGroup> {
    let refers = |message: &&Message| message.role == Role::Other && is_reference(message.span.of(body));
    let is_of_reply = |message: &&Message| message.role == Role::Assistant || refers(message);
    let mut groups = broken_groups(request, body, &Pairs(body));
    groups.retain(|group| {
        let (before, after) = (&request.messages[..group.first], &request.messages[group.end..]);
        let before = before.iter().rev().take_while(is_of_reply);
        let after = after.iter().take_while(|message| message.role == Role::Tool || is_of_reply(message));
        !before.chain(after).any(|message| refers(&message))
    });
    groups
}

/// Synthetic outputs for the calls of the upstream's last reply that this request leaves without one, as far as they are
/// known.
pub fn open_upstream(planned: &PlannedRequest<'_>) -> Vec<Bytes> {
    let record = planned.upstream.filter(|_| planned.request.continues.is_some());
    let Some(record) = record.and_then(|upstream| upstream.sources.first()) else { return Vec::new() };
    let reply = record.messages.last().filter(|last| last.role == Role::Assistant);
    let answers = planned.request.messages.iter().take_while(|message| message.role == Role::Tool);
    let items = reply.map(|reply| reply.span.of(&record.bytes)).into_iter();
    let items: Vec<&[u8]> = items.chain(answers.map(|answer| answer.span.of(planned.body))).collect();
    let joined = [br#"{"input":["#, &items.join(&b","[..])[..], b"]}"].concat();
    let Ok(read) = super::parse(&joined) else { return Vec::new() };
    let groups = broken_groups(&read, &joined, &Pairs(&joined));
    let Some(last) = groups.first().filter(|group| group.first == 1) else { return Vec::new() };
    last.unanswered.iter().filter_map(|at| synthetic(&read.messages[0].calls[*at], &joined)).collect()
}

/// The request with its history repaired; `None` if it cannot be read.
pub fn repaired(body: &Bytes, repairs: Adaptations) -> Option<Rope> {
    let mut rope = edited(body, |request, splices| repair_calls(request, body, repairs, splices))?;
    if repairs.contains(Adaptation::Pairs) {
        let body = rope.join();
        rope = edited(&body, |request, splices| {
            let groups = groups_to_repair(request, &body);
            for group in groups.iter().filter(|_| !is_stateful(request, &body)) {
                repair(group, request, &body, splices);
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
    let ids = Adaptation::RepeatedIds | Adaptation::IdForms;
    let of = if is_stateful(request, body) { repairs - ids } else { repairs };
    rename_calls(request, body, &Pairs(body), of, splices);
    let wraps = repairs.contains(Adaptation::Arguments);
    for call in request.messages.iter().flat_map(|message| &message.calls).filter(|_| wraps) {
        if let (Arguments::Text(text), Some(sound)) = (call.arguments, sound_arguments(call, body, false)) {
            splices.replace(text.quoted(), sound);
        }
    }
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

/// The output of a call that the upstream keeps. Only what its refusal says of the call is known.
pub fn unknown_output(call: &OpenCall) -> Option<Bytes> {
    let kind = if call.is_custom { CallKind::Custom } else { CallKind::Function };
    result_of(kind, &call.id, None, &unknown_result())
}

/// An output without a call as a user's message.
fn as_text(result: &Message, body: &[u8]) -> String {
    let heading = format!("[result of {UNKNOWN_CALL}]\n");
    let text = |text: &str| format!(r#"{{"type":"input_text","text":{}}}"#, quote(text));
    let mut parts = vec![text(&heading)];
    match &result.content {
        Content::Parts { parts: own, .. } => {
            parts.extend(own.iter().map(|part| match part.text {
                Some(said) => text(&wire::json::decode(said, body)),
                None => String::from_utf8_lossy(part.span.of(body)).into_owned(),
            }));
        }
        Content::Text(said) => {
            parts = vec![text(&format!("{heading}{}", wire::json::decode(*said, body)))];
        }
        _ => {}
    }
    format!(r#"{{"type":"message","role":"user","content":[{}]}}"#, parts.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::plan::Plan;
    use serde_json::{Value, json};

    const ALL: Adaptations = Adaptation::SUSPECTED_REPAIRS;

    fn repaired_as(body: &Value) -> Value {
        let body = Bytes::from(body.to_string());
        let out = repaired(&body, ALL).unwrap().join();
        let request = crate::responses::parse(&out).unwrap();
        let plan = Plan::default();
        let left = broken(&PlannedRequest::new(&out, &request, &plan), ALL);
        assert!(left.is_empty(), "nothing is left to repair");
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

    #[test]
    fn refused_names_and_repeated_ids_are_replaced_and_each_output_stays_with_its_call() {
        let named =
            |name: &str| json!({"type": "function_call", "call_id": "n", "name": name, "arguments": "{}"});
        let input = json!([
            call("t:0"),
            output("t:0"),
            user(),
            call("t:0"),
            output("t:0"),
            named("a.b"),
            output("n"),
            named(""),
            output("n")
        ]);
        let body = Bytes::from(json!({ "input": input }).to_string());
        let of = Adaptation::SUSPECTED_REPAIRS - Adaptation::IdForms;
        let out: Value = serde_json::from_slice(&repaired(&body, of).unwrap().join()).unwrap();
        let out = out["input"].as_array().unwrap();
        assert_eq!(out[..3], input.as_array().unwrap()[..3], "the first pair keeps its bytes");
        for (call, output) in [(3, 4), (5, 6), (7, 8)] {
            assert_eq!(out[call]["call_id"], out[output]["call_id"]);
        }
        assert!(out[3]["call_id"] != "t:0" && out[5]["call_id"] == "n" && out[7]["call_id"] != "n");
        assert_eq!(out[4]["output"], "result t:0");
        assert_eq!((&out[5]["name"], &out[7]["name"]), (&json!("a_b"), &json!("unknown_tool")));
        let chained = json!({"input": [call("t:0"), output("t:0"), call("t:0"), output("t:0")], "previous_response_id": "r"});
        let body = Bytes::from(chained.to_string());
        assert_eq!(repaired(&body, Adaptation::RepeatedIds.into()).unwrap().join(), body);
    }

    #[test]
    fn pictures_of_outputs_go_into_a_users_message_after_the_group() {
        let image = json!({"type": "input_image", "image_url": "data:image/png;base64,AA"});
        let shot = json!({"type": "function_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "see"}, image]});
        let out = repaired_as(&json!({"input": [call("a"), call("b"), shot, output("b"), user()]}));
        assert!(out["input"][2]["output"].as_str().unwrap().starts_with("see\n[an image"));
        assert_eq!(out["input"][3], output("b"));
        assert_eq!((&out["input"][4]["type"], &out["input"][4]["content"][1]), (&json!("message"), &image));
        assert_eq!(out["input"][5], user());
    }
}
