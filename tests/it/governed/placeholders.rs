//! Placeholders: servers that write every member of a message send calls without a name and without arguments beside
//! texts and calls (Snowflake Cortex, DeepSeek, builds of GLM). They are no calls: they pass as they came, nothing counts
//! them, and the model is not asked again. A name that comes later makes one a call.

use crate::governed::talk::{BOTH, budget, bytes_of, chat, log_line, question};
use crate::support::client::Request;
use crate::support::program::Toolrein;
use crate::support::reply::{Gate, Reply, Speech};
use crate::support::responses::{Output, event};
use crate::support::responses_kit::{Talk, url};
use crate::support::scripted::Scripted;
use serde_json::{Value, json};

const SHIPPED: &str = "base = \"shipped\"\n";

/// Members of a message, each with a placeholder.
fn placeholders() -> Vec<(&'static str, Value)> {
    let element = |element: Value| ("tool_calls", json!([element]));
    vec![
        ("function_call", json!({"name": "", "arguments": ""})),
        ("function_call", json!({"name": "", "arguments": "{}"})),
        ("function_call", json!({"name": null, "arguments": null})),
        ("function_call", json!({})),
        element(json!({"id": "", "type": "function", "function": {"name": "", "arguments": ""}})),
        element(json!({"index": 0, "id": null, "type": "", "function": {"name": null, "arguments": null}})),
        element(
            json!({"index": 0, "id": "call_0", "type": "function", "function": {"name": "", "arguments": ""}}),
        ),
        element(json!({"id": "call_0", "type": "function", "function": {"name": "", "arguments": "{}"}})),
        element(json!({"id": "", "function": {"name": "", "arguments": {}}})),
        element(json!({"id": "", "type": "custom", "custom": {"name": "", "input": ""}})),
        element(
            json!({"id": "", "function": {"name": "", "arguments": ""}, "custom": {"name": "", "input": ""}}),
        ),
        element(json!({"id": "", "name": "", "arguments": ""})),
        element(json!({})),
        element(Value::Null),
    ]
}

/// The bytes that a chat client gets for a question, if the upstream answers with `reply`; and what the upstream got.
fn answered(settings: &str, stream: bool, reply: Reply) -> (String, usize) {
    let upstream = Scripted::start(move |_, _| reply.clone());
    let toolrein = Toolrein::before(&upstream, settings);
    let got = chat(&toolrein, question(stream));
    assert_eq!(got.header("x-toolrein-actions"), None, "{}", got.text());
    (got.text(), upstream.requests().len())
}

/// The text `Good morning`, with this member in each message or delta.
fn text_with(name: &str, member: &Value, stream: bool) -> Reply {
    let speech = Speech::text("Good morning");
    if !stream {
        let mut body = speech.whole();
        body["choices"][0]["message"][name] = member.clone();
        return Reply::json(200, &body);
    }
    let mut chunks = speech.chunks(false);
    for chunk in &mut chunks {
        chunk["choices"][0]["delta"][name] = member.clone();
    }
    Reply::events(&chunks)
}

#[test]
fn a_text_with_placeholders_beside_it_passes_as_it_came_as_shipped() {
    for stream in BOTH {
        for (name, member) in placeholders() {
            let reply = text_with(name, &member, stream);
            let expected = String::from_utf8(bytes_of(&reply)).unwrap();
            assert_eq!(answered(SHIPPED, stream, reply), (expected, 1), "{name}: {member}");
        }
    }
}

#[test]
fn a_call_with_placeholders_beside_it_is_one_call_and_passes_as_it_came() {
    let members = [
        ("function_call", json!({"name": "", "arguments": ""})),
        ("custom", json!({"name": "", "input": ""})),
        ("name", json!("")),
    ];
    for stream in BOTH {
        for (name, member) in &members {
            let within = *name != "function_call";
            let speech = Speech::calls(&[("call_1", "f", "{\"a\":1}")]);
            let reply = if stream {
                let mut chunks = speech.chunks(false);
                for delta in chunks.iter_mut().map(|chunk| &mut chunk["choices"][0]["delta"]) {
                    match delta.get("tool_calls") {
                        Some(_) if within => delta["tool_calls"][0][name] = member.clone(),
                        _ if !within => delta[name] = member.clone(),
                        _ => {}
                    }
                }
                Reply::events(&chunks)
            } else {
                let mut body = speech.whole();
                let message = &mut body["choices"][0]["message"];
                let holder = if within { &mut message["tool_calls"][0] } else { message };
                holder[name] = member.clone();
                Reply::json(200, &body)
            };
            let expected = String::from_utf8(bytes_of(&reply)).unwrap();
            let upstream = Scripted::queue([reply]);
            let settings = format!("{SHIPPED}[policy.turn_limits]\nenabled = true\ncalls = 1\n");
            let toolrein = Toolrein::before(&upstream, &settings);
            assert_eq!(chat(&toolrein, question(stream)).text(), expected, "{name}");
            let calls = log_line(&toolrein, 0)["tool_calls"].clone();
            assert_eq!(calls.as_array().map(Vec::len), Some(1), "{calls}");
        }
    }
}

#[test]
fn text_between_placeholders_goes_out_at_once() {
    for (name, member) in [
        ("function_call", json!({"name": "", "arguments": ""})),
        (
            "tool_calls",
            json!([{"index": 0, "id": "", "type": "function", "function": {"name": "", "arguments": ""}}]),
        ),
    ] {
        let gate = Gate::shut();
        let reply = text_with(name, &member, true).held_after(3, &gate);
        let upstream = Scripted::queue([reply]);
        let toolrein = Toolrein::before(&upstream, SHIPPED);
        let mut stream = Request::post(&toolrein.chat_url(), question(true)).open();
        stream.until("morning");
        gate.open();
        assert!(!stream.rest().cut);
    }
}

#[test]
fn a_name_that_comes_after_a_placeholder_makes_it_a_call_that_is_judged() {
    let piece =
        |member: Value| json!({"id": "c", "choices": [{"index": 0, "delta": member, "finish_reason": null}]});
    let calls = |function: Value| {
        piece(json!({"tool_calls": [{"index": 0, "id": "", "type": "function", "function": function}]}))
    };
    let legacy = |function: Value| piece(json!({ "function_call": function }));
    let with_id =
        |function: Value| piece(json!({"tool_calls": [{"index": 0, "id": "call_0", "function": function}]}));
    let forms: [&dyn Fn(Value) -> Value; 3] = [&calls, &legacy, &with_id];
    for form in forms {
        for arguments in ["", "{}"] {
            let first = [
                form(json!({"name": "", "arguments": arguments})),
                form(json!({"name": "evil", "arguments": "{\"a\":1}"})),
                json!({"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
            ];
            let replies = [Reply::events(&first), Reply::events(&Speech::text("Fine.").chunks(false))];
            let upstream = Scripted::queue(replies);
            let settings = "[policy.allow]\nexcept = [\"evil\"]\nundeclared = \"pass\"\n";
            let toolrein = Toolrein::before(&upstream, settings);
            let got = chat(&toolrein, question(true));
            assert!(!got.text().contains("evil"), "{}", got.text());
            assert_eq!(got.streamed_text(), "Fine.");
        }
    }
}

#[test]
fn what_is_left_beside_a_blocked_call_is_no_call_either() {
    for stream in BOTH {
        let speech = Speech::calls(&[("call_1", "f", "{\"a\":1}"), ("call_2", "", "")]);
        let first =
            if stream { Reply::events(&speech.chunks(false)) } else { Reply::json(200, &speech.whole()) };
        let upstream = Scripted::start(move |nth, request| match nth {
            0 => first.clone(),
            _ => Reply::speech(request, &Speech::text("Fine.")),
        });
        let settings = "[policy.allow]\nexcept = [\"f\"]\nundeclared = \"pass\"\n";
        let toolrein = Toolrein::before(&upstream, settings);
        let got = chat(&toolrein, question(stream));
        assert_eq!(upstream.requests().len(), 2, "all calls were blocked, so the model is asked again");
        assert!(!got.text().contains("call_2") && got.text().contains("Fine."), "{}", got.text());
    }
}

#[test]
fn placeholders_in_a_history_are_not_counted_and_pass_as_they_came() {
    for stream in BOTH {
        for (name, member) in placeholders() {
            let mut body: Value = serde_json::from_str(&question(stream)).unwrap();
            let messages = body["messages"].as_array_mut().unwrap();
            for _ in 0..3 {
                messages.push(json!({"role": "assistant", "content": "Good morning", name: member}));
            }
            let upstream = Scripted::start(|_, request| {
                Reply::speech(request, &Speech::calls(&[("call_1", "f", "{\"a\":1}")]))
            });
            let toolrein = Toolrein::before(&upstream, &budget(1));
            let got = chat(&toolrein, body.to_string());
            assert_eq!(String::from_utf8_lossy(&upstream.request(0).body), body.to_string());
            assert!(got.text().contains("call_1"), "{name}: {member}: {}", got.text());
        }
    }
}

#[test]
fn items_without_a_name_and_arguments_are_no_calls_on_responses() {
    let items = [
        json!({"id": "fc_0", "type": "function_call", "status": "completed", "call_id": "call_0", "name": "", "arguments": ""}),
        json!({"id": "fc_0", "type": "function_call", "status": "completed", "call_id": "", "name": "", "arguments": "{}"}),
        json!({"id": "ct_0", "type": "custom_tool_call", "status": "completed", "call_id": "call_0", "name": "", "input": ""}),
        json!({"id": "fc_0", "type": "function_call", "status": "completed", "call_id": "call_0"}),
    ];
    for stream in BOTH {
        for item in &items {
            let body = Talk::new(stream).body;
            let output = Output::new("1").says("Good morning.").item(item.clone());
            let reply = match stream {
                true => Reply::stream(output.events(&body).iter().map(event)),
                false => Reply::json(200, &output.whole(&body)),
            };
            let expected = String::from_utf8(bytes_of(&reply)).unwrap();
            let upstream = Scripted::start(move |_, _| reply.clone());
            let toolrein = Toolrein::before(&upstream, SHIPPED);
            let got = Request::post(&url(&toolrein), body.to_string()).send();
            assert_eq!((got.text(), upstream.requests().len()), (expected, 1), "{item}");
            // The client sends it back, and it counts as nothing.
            let mut talk = Talk::new(stream);
            talk.add(item.clone()).say("Go on.");
            let body = talk.body.to_string();
            Request::post(&url(&toolrein), body.as_str()).send();
            assert_eq!(String::from_utf8_lossy(&upstream.request(1).body), body);
        }
    }
}

#[test]
fn an_item_that_gets_its_name_when_it_is_complete_is_judged_on_responses() {
    let call = Output::calls("1", &[("0", "evil", "{\"a\":1}")]);
    let body = Talk::new(true).body;
    let mut events = call.events(&body);
    for event in events.iter_mut().filter(|event| event["type"] == "response.output_item.added") {
        event["item"]["name"] = "".into();
    }
    let first = Reply::stream(events.iter().map(event));
    let after = Reply::stream(Output::text("2", "Fine.").events(&body).iter().map(event));
    let upstream = Scripted::queue([first, after]);
    let settings = "[policy.allow]\nexcept = [\"evil\"]\nundeclared = \"pass\"\n";
    let toolrein = Toolrein::before(&upstream, settings);
    let got = Request::post(&url(&toolrein), body.to_string()).send();
    assert!(!got.text().contains("evil") && got.text().contains("Fine."), "{}", got.text());
}
