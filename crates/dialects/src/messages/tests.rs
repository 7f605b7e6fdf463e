//! Requests of the Messages API: what is read of them, and what is written. The cases are synthetic; the recorded traffic is
//! read in `tests/eval`.

use super::*;
use crate::variant::{Asking, Placement};
use model::adaptation::Adaptation;
use model::call::Arguments;
use model::message::{Content, Role};
use model::plan::{Change, Edit, Plan, ToolsEdit};
use model::request::Choice;
use model::source::ItemId;
use serde_json::{Value, json};

fn bytes(body: &Value) -> Bytes {
    Bytes::from(body.to_string())
}

fn plain() -> Variant {
    Variant::plain(Placement::Suffix)
}

/// The request as it is written, parsed again.
fn sent(body: &Bytes, plan: &Plan, restored: &[(usize, Bytes)], variant: &Variant) -> Value {
    let request = parse(body).unwrap();
    let planned = PlannedRequest { restored, ..PlannedRequest::new(body, &request, plan) };
    let out = write(&planned, variant).join();
    parse(&out).unwrap();
    serde_json::from_slice(&out).unwrap()
}

fn notice(index: usize, text: &str) -> Edit {
    let change = Change::Notice { text: text.to_owned(), word: "notice" };
    Edit { item: ItemId::of_client(index), decided: index, policy: "p", change }
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn thinking(signature: &str) -> Value {
    json!({"type": "thinking", "thinking": "", "signature": signature})
}

fn call(id: &str) -> Value {
    json!({"type": "tool_use", "id": id, "name": "f", "input": {"x": 1}})
}

fn result(id: &str) -> Value {
    json!({"type": "tool_result", "tool_use_id": id, "content": "r"})
}

fn blocked(id: &str) -> Value {
    json!({"type": "tool_result", "tool_use_id": id, "is_error": true, "content": "{\"ok\":false}"})
}

fn said(blocks: &[Value]) -> Value {
    json!({"role": "assistant", "content": blocks})
}

fn answered(blocks: &[Value]) -> Value {
    json!({"role": "user", "content": blocks})
}

fn conversation(messages: &[Value]) -> Bytes {
    bytes(
        &json!({"model": "m", "max_tokens": 9, "messages": messages, "tools": [{"name": "f", "input_schema": {}}]}),
    )
}

/// The stored form of one reply with blocked calls.
fn exchange(content: &[Value], shown: &[usize], results: &[Value]) -> Bytes {
    let reply = json!({"role": "assistant", "content": content, "shown": shown});
    format!("{reply},{}", answered(results)).into()
}

#[test]
fn notices_of_a_result_and_of_the_text_after_it_are_one_text_in_the_result() {
    let result = |content: &Value| {
        let mut result = json!({"type": "tool_result", "tool_use_id": "a"});
        if !content.is_null() {
            result["content"] = content.clone();
        }
        result
    };
    let mut plan = Plan::default();
    plan.edits = vec![notice(0, "one"), notice(1, "two")];
    for (content, expected) in [
        (json!(null), json!("one\n\ntwo")),
        (json!(""), json!("one\n\ntwo")),
        (json!([]), json!([text("one\n\ntwo")])),
        (json!("r"), json!("r\n\none\n\ntwo")),
    ] {
        let body = json!({"messages": [{"role": "user", "content": [result(&content), text("go on")]}]});
        let message = &sent(&bytes(&body), &plan, &[], &plain())["messages"][0];
        assert_eq!(message["content"], json!([result(&expected), text("go on")]), "{content}");
    }
}

#[test]
fn a_notice_in_a_result_without_content_is_inside_of_it_also_after_white_space() {
    let body = Bytes::from_static(
        br#"{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"a"}, {"type":"tool_result","tool_use_id":"b"}]}]}"#,
    );
    let mut plan = Plan::default();
    plan.edits = vec![notice(1, "n")];
    let message = &sent(&body, &plan, &[], &plain())["messages"][0];
    let second = json!({"content": "n", "type": "tool_result", "tool_use_id": "b"});
    assert_eq!(message["content"], json!([{"type": "tool_result", "tool_use_id": "a"}, second]));
}

#[test]
fn each_result_is_an_item_and_text_after_results_is_one_more() {
    let body = conversation(&[
        user("q"),
        said(&[thinking("s"), text("see"), call("a"), call("b")]),
        answered(&[result("a"), result("b"), text("<system-reminder>"), json!({"type": "image"})]),
        json!({"role": "system", "content": "now"}),
    ]);
    let request = parse(&body).unwrap();
    let roles: Vec<Role> = request.messages.iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool, Role::Tool, Role::User, Role::System]);
    let reply = &request.messages[1];
    assert!(reply.reasons && reply.content.texts().count() == 1);
    assert_eq!(reply.calls.len(), 2);
    assert!(matches!(reply.calls[0].arguments, Arguments::Value(span) if span.of(&body) == br#"{"x":1}"#));
    let results: Vec<&[u8]> = request.messages[2..4].iter().map(|item| item.span.of(&body)).collect();
    assert_eq!(results, [result("a").to_string().as_bytes(), result("b").to_string().as_bytes()]);
    let Content::Parts { parts, .. } = &request.messages[4].content else { panic!("parts") };
    assert_eq!(parts.iter().map(|part| part.text.is_some()).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn the_members_of_a_request_are_read() {
    let body = bytes(&json!({
        "system": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}],
        "model": "claude", "max_tokens": 77, "stream": true, "tool_choice": {"type": "tool", "name": "f"},
        "thinking": {"type": "adaptive"}, "output_config": {"format": {"type": "json_schema"}},
        "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}},
            {"type": "bash_20250124", "name": "bash"}, {"type": "mcp_toolset", "mcp_server_name": "crm"}],
        "messages": [user("q"), {"role": "system", "content": [{"type": "tool_addition",
            "tool_definition": {"name": "late", "input_schema": {}}}]}],
    }));
    let request = parse(&body).unwrap();
    assert_eq!(request.instructions.len(), 2);
    assert_eq!((request.output_limit, request.stream, request.structured), (Some(77), true, true));
    assert_eq!((request.choice, request.forced_tool.as_deref()), (Choice::Forced, Some("f")));
    assert!(request.binds_reasoning && request.declares_tools && request.takes_more_tools);
    let names: Vec<Option<String>> =
        request.tools.iter().map(|tool| tool.full_name(&body).map(|name| name.into_owned())).collect();
    let name = |name: &str| Some(name.to_owned());
    assert_eq!(names, [name("f"), name("bash"), None, name("late")]);
    assert!(request.declares_elsewhere, "of a server only its name is known");
    for (thinking, binds) in [("enabled", false), ("adaptive", true), ("disabled", true)] {
        let body = bytes(&json!({"thinking": {"type": thinking, "budget_tokens": 1024}, "messages": []}));
        assert_eq!(parse(&body).unwrap().binds_reasoning, binds, "{thinking}");
    }
}

#[test]
fn bodies_that_parsers_read_differently_are_not_read() {
    for body in [
        r#"{"messages":[{"role":"user","role":"assistant"}]}"#,
        r#"{"messages":[],"messages":[]}"#,
        r#"{"messages":[],"Tools":[],"tools":[]}"#,
        r#"{"messages":{}}"#,
        r#"{"messages":["q"]}"#,
        r#"{"prompt":"q"}"#,
        "[]",
    ] {
        assert!(parse(body.as_bytes()).is_err(), "{body}");
    }
    let twice = br#"{"messages":[{"role":"assistant","content":[{"type":"text","type":"tool_use"}]}]}"#;
    assert!(parse(twice).unwrap().odd, "a block that is two blocks is never edited");
}

#[test]
fn a_request_that_is_read_from_a_checkpoint_reads_the_same_wherever_its_prefix_ends() {
    let mut messages = vec![user("q")];
    for at in 0..6 {
        let (one, two) = (format!("a{at}"), format!("b{at}"));
        messages.push(said(&[text("see"), call(&one), call(&two)]));
        messages.push(answered(&[result(&one), result(&two), text("note")]));
    }
    let body = conversation(&messages);
    let plain =
        |request: Request| format!("{:?}", Request { checkpoint: None, known_tools: None, ..request });
    let whole = plain(parse(&body).unwrap());
    for bytes in (0..body.len()).step_by(7) {
        let first = request::resume(&body, None, |_| bytes).unwrap();
        let Some(checkpoint) = first.checkpoint.clone() else { continue };
        assert!(checkpoint.bytes() <= bytes);
        let again = request::resume(&body, Some(&checkpoint), |_| 0).unwrap();
        assert_eq!(plain(again), whole, "{bytes}");
    }
}

#[test]
fn a_request_that_nothing_changes_keeps_every_byte() {
    let body = Bytes::from_static(
        br#" {"messages" : [ {"content":"q","role":"user"} ,{"role":"user","content":[ {"type":"tool_result","tool_use_id":"x" , "content":[]} ]}],"x":1e2, "tools":[]}"#,
    );
    let (request, plan) = (parse(&body).unwrap(), Plan::default());
    assert_eq!(write(&PlannedRequest::new(&body, &request, &plan), &plain()).join(), body);
}

#[test]
fn a_notice_stands_inside_of_the_last_result_or_at_the_end_of_a_users_message() {
    let parts = json!([{"type": "image"}]);
    for (messages, index, expected) in [
        (json!([user("q")]), 0, json!([user("q\n\nn")])),
        (json!([answered(&[text("q")])]), 0, json!([answered(&[text("q"), text("n")])])),
        (
            json!([answered(&[result("a"), json!({"type": "tool_result", "tool_use_id": "b"}), text("t")])]),
            1,
            json!([answered(&[
                result("a"),
                json!({"type": "tool_result", "tool_use_id": "b", "content": "n"}),
                text("t")
            ])]),
        ),
        (
            json!([answered(&[
                json!({"type": "tool_result", "tool_use_id": "b", "content": parts}),
                text("t")
            ])]),
            1,
            json!([answered(&[
                json!({"type": "tool_result", "tool_use_id": "b", "content": [{"type": "image"}, text("n")]}),
                text("t")
            ])]),
        ),
        (json!([said(&[text("a")])]), 0, json!([said(&[text("a")])])),
    ] {
        let mut plan = Plan::default();
        plan.edits = vec![notice(index, "n")];
        let out = sent(&bytes(&json!({ "messages": messages })), &plan, &[], &plain());
        assert_eq!(out["messages"], expected);
    }
    let system = json!([{"type": "text", "text": "x-anthropic-billing-header: cc_version=2"}]);
    let body = json!({"system": system, "messages": [user("q"), said(&[text("a")]), user("r")]});
    let mut plan = Plan::default();
    plan.edits = vec![notice(0, "n"), notice(2, "n")];
    let out = sent(&bytes(&body), &plan, &[], &plain());
    assert_eq!(
        out["messages"],
        json!([user("q"), said(&[text("a")]), user("r\n\nn")]),
        "the first is Claude Code's"
    );
}

#[test]
fn a_message_of_the_clients_is_split_into_the_replies_that_it_came_from() {
    let r1 = [thinking("s1"), text("Let me look."), call("h")];
    let hidden = |shown: &[usize]| exchange(&r1, shown, &[blocked("h")]);
    let two = answered(&[blocked("h")]);
    for (client, stored, expected) in [
        // The client was shown nothing of the reply.
        (
            vec![thinking("s2"), text("Done.")],
            hidden(&[]),
            vec![said(&r1), two.clone(), said(&[thinking("s2"), text("Done.")])],
        ),
        // It was shown what came before the call.
        (
            vec![thinking("s1"), text("Let me look."), thinking("s2"), text("Done.")],
            hidden(&[0, 1]),
            vec![said(&r1), two.clone(), said(&[thinking("s2"), text("Done.")])],
        ),
        // It drops what the model thinks, and spells texts in its own way.
        (
            vec![json!({"text": " Let me look.", "type": "text", "citations": null}), text("Done.")],
            hidden(&[0, 1]),
            vec![
                said(&[json!({"text": " Let me look.", "type": "text", "citations": null}), call("h")]),
                two,
                said(&[text("Done.")]),
            ],
        ),
    ] {
        let body = conversation(&[user("q"), said(&client), user("r")]);
        let out = sent(&body, &Plan::default(), &[(1, stored.clone())], &plain());
        let mut all = vec![user("q")];
        all.extend(expected);
        all.push(user("r"));
        assert_eq!(out["messages"], json!(all));
        assert!(may_restore(&body, 1, &stored));
    }
}

fn may_restore(body: &Bytes, position: usize, exchange: &Bytes) -> bool {
    write::may_restore(&parse(body).unwrap(), body, position, exchange)
}

#[test]
fn a_client_that_joins_the_texts_of_two_replies_gets_nothing_back() {
    let stored = exchange(&[thinking("s1"), text("Let me look."), call("h")], &[0, 1], &[blocked("h")]);
    let thought = json!([thinking("s1"), thinking("s2"), text("Let me look.\n\nDone.")]);
    for content in [json!("Let me look.\n\nDone."), json!([text("Let me look.\n\nDone.")]), thought] {
        let body = conversation(&[user("q"), json!({"role": "assistant", "content": content})]);
        assert!(!may_restore(&body, 1, &stored), "{content}");
    }
}

#[test]
fn a_reply_after_which_the_model_said_nothing_ends_with_its_results() {
    let stored = exchange(&[text("Let me look."), call("h")], &[0], &[blocked("h")]);
    let body = conversation(&[user("q"), said(&[text("Let me look.")]), user("r")]);
    let out = sent(&body, &Plan::default(), &[(1, stored)], &plain());
    let reply = said(&[text("Let me look."), call("h")]);
    assert_eq!(out["messages"], json!([user("q"), reply, answered(&[blocked("h")]), user("r")]));
}

#[test]
fn a_blocked_call_beside_others_goes_back_to_its_place_and_its_result_among_theirs() {
    let reply = [thinking("s"), call("a"), call("h"), call("b"), call("i")];
    let stored = exchange(&reply, &[0, 1, 3], &[blocked("h"), blocked("i")]);
    let client = [thinking("s"), call("a"), call("b")];
    let body = conversation(&[user("q"), said(&client), answered(&[result("a"), result("b"), text("note")])]);
    let out = sent(&body, &Plan::default(), &[(1, stored.clone())], &plain());
    let results = [result("a"), blocked("h"), result("b"), blocked("i"), text("note")];
    assert_eq!(out["messages"], json!([user("q"), said(&reply), answered(&results)]));
    // A reply before it was blocked as a whole.
    let first = exchange(&[text("Hm."), call("x")], &[0], &[blocked("x")]);
    let both: Bytes = [&first[..], b",", &stored[..]].concat().into();
    let client = [text("Hm."), thinking("s"), call("a"), call("b")];
    let body = conversation(&[user("q"), said(&client), answered(&[result("b"), result("a")])]);
    let out = sent(&body, &Plan::default(), &[(1, both)], &plain());
    let results = [result("b"), blocked("i"), result("a"), blocked("h")];
    assert_eq!(
        out["messages"],
        json!([
            user("q"),
            said(&[text("Hm."), call("x")]),
            answered(&[blocked("x")]),
            said(&reply),
            answered(&results)
        ])
    );
}

#[test]
fn thinking_stays_out_of_the_first_items_with_that_of_their_hidden_exchanges() {
    let stored = exchange(&[thinking("h"), call("x")], &[], &[blocked("x")]);
    let later = exchange(&[thinking("i"), call("y")], &[], &[blocked("y")]);
    let body = conversation(&[
        user("q"),
        said(&[thinking("s1"), text("one")]),
        user("r"),
        said(&[thinking("s2")]),
        user("t"),
        said(&[thinking("s3"), text("three")]),
        user("u"),
    ]);
    let variant = Variant { without_thinking: 4, ..plain() };
    let out = sent(&body, &Plan::default(), &[(1, stored), (5, later)], &variant);
    let expected = [
        user("q"),
        said(&[call("x")]),
        answered(&[blocked("x")]),
        said(&[text("one")]),
        user("r"),
        user("t"),
        said(&[thinking("i"), call("y")]),
        answered(&[blocked("y")]),
        said(&[thinking("s3"), text("three")]),
        user("u"),
    ];
    assert_eq!(out["messages"], json!(expected));
}

#[test]
fn a_final_answer_request_forbids_calls_and_keeps_the_tools() {
    let asking = |land| Variant {
        asking: Some(Asking { rounds: vec![exchange(&[call("h")], &[], &[blocked("h")])], land }),
        ..plain()
    };
    let body = conversation(&[user("q")]);
    let out = sent(&body, &Plan::default(), &[], &asking(true));
    assert_eq!((&out["tool_choice"], out["tools"].as_array().unwrap().len()), (&json!({"type": "none"}), 1));
    assert_eq!(out["messages"], json!([user("q"), said(&[call("h")]), answered(&[blocked("h")])]));
    let forced = bytes(&json!({"messages": [user("q")], "tools": [{"name": "f"}],
        "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": true}}));
    let out = sent(&forced, &Plan::default(), &[], &asking(false));
    assert_eq!(out["tool_choice"], json!({"type": "auto", "disable_parallel_tool_use": true}));
    let answer = Variant { answer: Some("f".to_owned()), ..asking(true) };
    let out = sent(&conversation(&[user("q")]), &Plan::default(), &[], &answer);
    assert_eq!(out["tool_choice"], json!({"name": "f", "type": "tool"}));
    for (thinking, forces) in [("adaptive", false), ("enabled", false), ("disabled", true)] {
        let body = bytes(
            &json!({"messages": [user("q")], "tools": [{"name": "f"}], "thinking": {"type": thinking}}),
        );
        let out = sent(&body, &Plan::default(), &[], &answer);
        assert_eq!(out["tool_choice"]["type"] == "tool", forces, "{thinking}");
    }
    let mut plan = Plan::default();
    plan.edit_tools(ToolsEdit::OneCallAtATime);
    let out = sent(&body, &plan, &[], &plain());
    assert_eq!(out["tool_choice"], json!({"type": "auto", "disable_parallel_tool_use": true}));
}

#[test]
fn dropped_turns_take_whole_messages_with_them() {
    let body = conversation(&[
        user("q"),
        said(&[call("a"), call("b")]),
        answered(&[result("a"), result("b"), text("note")]),
        said(&[text("one")]),
        user("r"),
    ]);
    let mut plan = Plan::default();
    plan.dropped = vec![model::plan::Dropped { policy: "p", messages: 0..6, decided: 6 }];
    let out = sent(&body, &plan, &[], &plain());
    assert_eq!(out["messages"], json!([user("r")]));
}

#[test]
fn the_history_becomes_text_for_an_upstream_without_tools() {
    let body = conversation(&[
        user("q"),
        said(&[thinking("s"), text("see"), call("a")]),
        answered(&[
            json!({"type": "tool_result", "tool_use_id": "a", "content": [text("r"), {"type": "image", "source": {}}]}),
            text("note"),
        ]),
    ]);
    let variant = plain().with(Adaptation::Tools).with(Adaptation::Flattened);
    let out = sent(&body, &Plan::default(), &[], &variant);
    assert!(out["tools"].is_null());
    let texts = said(&[text("see"), text("[called f with {\"x\":1}]")]);
    let results = [text("[result of f]\nr"), json!({"type": "image", "source": {}}), text("note")];
    assert_eq!((&out["messages"][1], &out["messages"][2]), (&texts, &answered(&results)));
}

#[test]
fn calls_without_results_and_results_without_calls_are_repaired() {
    let repaired = |messages: &[Value]| {
        let body = conversation(messages);
        let out =
            sent(&body, &Plan::default(), &[], &plain().with(Adaptation::Pairs | Adaptation::Arguments));
        out["messages"].as_array().unwrap().clone()
    };
    let out = repaired(&[
        user("q"),
        said(&[call("a"), call("b")]),
        answered(&[result("x"), result("b"), text("t")]),
    ]);
    let blocks = out[2]["content"].as_array().unwrap();
    assert_eq!(blocks[0], result("b"));
    assert_eq!((&blocks[1]["tool_use_id"], &blocks[1]["is_error"]), (&json!("a"), &json!(true)));
    assert_eq!(blocks[2]["text"], "[result of a call that is not in this conversation]\nr");
    assert_eq!(blocks[3], text("t"));
    let out = repaired(&[user("q"), said(&[call("a")]), user("go on")]);
    assert_eq!((&out[2]["content"][0]["tool_use_id"], &out[3]), (&json!("a"), &user("go on")));
    let mut odd = call("a");
    odd["input"] = json!("{\"x\":1}");
    let out = repaired(&[said(&[odd]), answered(&[result("a")])]);
    assert_eq!(out[0]["content"][0]["input"], json!({"x": 1}));
}

#[test]
fn a_hidden_exchange_without_its_calls_or_shortened_keeps_what_the_client_was_shown() {
    let stored = exchange(&[thinking("s"), text("see"), call("h")], &[1], &[blocked("h")]);
    let plain_form = hidden_exchange::plain_exchange(&stored);
    let read = hidden_exchange::read(&plain_form);
    assert_eq!((read[0].blocks.len(), read[0].blocks[0].is_shown), (2, true));
    let all: Value = serde_json::from_slice(&[b"[", &plain_form[..], b"]"].concat()).unwrap();
    assert_eq!(all[0]["content"][1], text("[called f with {\"x\":1}]"));
    assert_eq!(all[1]["content"][0], text("[result of f]\n{\"ok\":false}"));
    let short = hidden_exchange::read(&hidden_exchange::short_exchange(&stored));
    assert_eq!(short[0].blocks.len(), 2, "what was thought and not shown is gone");
    let source = hidden_exchange::source(&stored).unwrap();
    assert_eq!(source.messages.len(), 2);
    assert_eq!(source.messages[0].content.texts().count(), 0, "the client has the text");
    assert_eq!(
        hidden_exchange::messages_of(&stored),
        Bytes::from(format!(
            "{},{}",
            said(&[thinking("s"), text("see"), call("h")]),
            answered(&[blocked("h")])
        ))
    );
}

#[test]
fn an_error_for_people_has_this_apis_shape_whatever_shape_the_upstreams_has() {
    let error = json!({"error": {"message": "Wait.", "type": null, "param": null, "code": "busy", "metadata": {"upstream": "x"}}});
    let body: Value = serde_json::from_slice(&Messages.error_for_people(503, bytes(&error))).unwrap();
    let expected = json!({"message": "Wait.", "type": "overloaded_error", "metadata": {"upstream": "x"}, "details": {"error_code": "busy"}});
    assert_eq!(body, json!({"type": "error", "error": expected}));
    let own = bytes(&json!({"type": "error", "error": {"type": "api_error", "message": "m"}}));
    assert_eq!(Messages.error_for_people(500, own.clone()), own);
}
