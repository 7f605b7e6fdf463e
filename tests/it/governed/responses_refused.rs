//! Refusals on the Responses API: histories that fail for ever, forced choices, and what toolrein itself wrote into a
//! request: the list of allowed tools with which it hides others, and one call at a time.

use crate::governed::talk::BOTH;
use crate::support::client::Request;
use crate::support::program::Toolrein;
use crate::support::reply::Reply;
use crate::support::responses::Output;
use crate::support::responses_kit::{Talk, input, tool, url};
use crate::support::scripted::{Recorded, Scripted};
use serde_json::{Value, json};

fn refuse(message: &str) -> Reply {
    Reply::error(400, "invalid_request_error", "bad", message)
}

fn function_call(id: &str, name: &str, arguments: &str) -> Value {
    json!({"type": "function_call", "call_id": id, "name": name, "arguments": arguments})
}

fn output(id: &str, output: &Value) -> Value {
    json!({"type": "function_call_output", "call_id": id, "output": output})
}

/// A history that an upstream refuses with `refusal` unless `accepts` its items: repaired by the second request, and at
/// once from then on, as a prefix.
fn repaired(history: &[Value], refusal: &'static str, accepts: fn(&[Value]) -> bool) {
    for stream in BOTH {
        let upstream = Scripted::start(move |nth, request| match accepts(&input(request)) {
            true => Output::text(nth, "Fine.").reply(request),
            false => refuse(refusal),
        });
        let toolrein = Toolrein::before(&upstream, "");
        let mut talk = Talk::new(stream);
        for item in history {
            talk.add(item.clone());
        }
        let answer = talk.ask(&toolrein);
        assert_eq!((answer.said(), upstream.requests().len()), ("Fine.".to_owned(), 2), "{refusal}");
        talk.go_on(&answer).say("And?");
        assert_eq!(talk.ask(&toolrein).said(), "Fine.");
        assert_eq!(upstream.requests().len(), 3, "remembered: {refusal}");
        let (first, next) = (input(&upstream.request(1)), input(&upstream.request(2)));
        assert_eq!(next[..first.len()], first, "{refusal}");
    }
}

#[test]
fn the_line_that_no_tools_were_used_comes_first_in_the_stream_and_in_its_last_event() {
    for stream in BOTH {
        for thinks in [false, true] {
            let upstream = Scripted::start(move |nth, request| {
                let output = if thinks { Output::new(nth).thinks() } else { Output::new(nth) };
                match request.json()["tools"].is_null() {
                    true => output.says("Without tools, then.").says("So be it.").reply(request),
                    false => refuse("Tool use with function calling is unsupported"),
                }
            });
            let toolrein = Toolrein::before(&upstream, "upstream.tools_unsupported_tell = \"text\"\n");
            let mut talk = Talk::new(stream);
            let answer = talk.ask(&toolrein);
            let said =
                "(This model does not support tools. It answered without them.)Without tools, then.So be it.";
            assert_eq!(answer.said(), said, "{}", answer.text());
            let reasoning = if thinks { &["reasoning:rs_1_0"][..] } else { &[] };
            assert_eq!(answer.kinds(), [&["assistant"][..], reasoning, &["assistant"; 2][..]].concat());
            if stream {
                let events = crate::support::responses::events(&answer.text());
                let done = events.iter().filter(|event| event["type"] == "response.output_item.done");
                let mut streamed: Vec<(u64, Value)> = done
                    .map(|event| (event["output_index"].as_u64().unwrap(), event["item"]["id"].clone()))
                    .collect();
                streamed.sort_by_key(|(index, _)| *index);
                let listed: Vec<Value> = answer.items().iter().map(|item| item["id"].clone()).collect();
                let streamed: Vec<Value> = streamed.into_iter().map(|(_, id)| id).collect();
                assert_eq!(streamed, listed, "{}", answer.text());
            }
            // The client sends the items back in this order, and the conversation goes on.
            talk.go_on(&answer).say("And now?");
            talk.ask(&toolrein);
        }
    }
}

fn names_are_accepted(items: &[Value]) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let calls = items.iter().filter(|item| item["type"] == "function_call");
    let mut names = calls.filter_map(|item| item["name"].as_str());
    names.all(|name| !name.is_empty() && name.bytes().all(is_part))
}

#[test]
fn calls_with_refused_names_are_sent_once_more_with_accepted_ones() {
    let history = [
        function_call("a", "", "{}"),
        output("a", &json!("one")),
        function_call("b", "browser.tabs.open", "{}"),
        output("b", &json!("two")),
    ];
    for refusal in [
        "Invalid 'input[1].name': empty string. Expected a string with minimum length 1, but got an empty string instead.",
        "Value at 'messages.2.member.content.1.member.toolUse.name' failed to satisfy constraint: Member must satisfy \
         regular expression pattern: [a-zA-Z0-9_-]+",
    ] {
        repaired(&history, refusal, names_are_accepted);
    }
}

#[test]
fn calls_that_repeat_an_id_get_one_of_their_own_with_their_outputs() {
    let history = [
        function_call("terminal:0", "f", "{}"),
        output("terminal:0", &json!("one")),
        json!({"role": "user", "content": "Again."}),
        function_call("terminal:0", "f", "{}"),
        output("terminal:0", &json!("two")),
    ];
    repaired(&history, "Duplicate function_call_output for call_id 'terminal:0'.", |items| {
        let ids = |kind: &str| -> Vec<Value> {
            items.iter().filter(|item| item["type"] == kind).map(|item| item["call_id"].clone()).collect()
        };
        let (calls, outputs) = (ids("function_call"), ids("function_call_output"));
        assert_eq!(calls, outputs, "each output stays with its call");
        assert_eq!(calls[0], "terminal:0", "the first keeps its id");
        calls[0] != calls[1]
    });
}

#[test]
fn arguments_over_several_lines_and_pictures_in_outputs_are_repaired() {
    let history = [function_call("a", "f", "{\n\"q\": 1,\n\"text\": \"unfin"), output("a", &json!("no"))];
    repaired(&history, "Unterminated string starting at: line 3 column 9 (char 20)", |items| {
        let calls = items.iter().filter(|item| item["type"] == "function_call");
        let mut arguments = calls.filter_map(|call| call["arguments"].as_str());
        arguments.all(|text| serde_json::from_str::<Value>(text).is_ok())
    });
    let image = json!({"type": "input_image", "image_url": "data:image/png;base64,AA"});
    let history =
        [function_call("a", "f", "{}"), output("a", &json!([{"type": "input_text", "text": "see"}, image]))];
    repaired(&history, "input[2].output: image parts are not allowed in a function_call_output", |items| {
        let is_text = items[2]["output"].is_string();
        assert!(!is_text || items[3]["content"][1]["type"] == "input_image", "{}", items[3]);
        is_text
    });
}

#[test]
fn a_forced_choice_that_is_refused_goes_and_the_client_gets_its_call() {
    for stream in BOTH {
        let upstream = Scripted::start(|nth, request| match request.json().get("tool_choice") {
            Some(_) => refuse("Thinking mode does not support this tool_choice"),
            None => Output::new(nth).call("a", "f", "{}").reply(request),
        });
        let toolrein = Toolrein::before(&upstream, "");
        for (choice, requests) in [(json!("required"), 2), (json!({"type": "function", "name": "f"}), 3)] {
            let mut talk = Talk::new(stream);
            talk.body["tool_choice"] = choice;
            assert_eq!(talk.ask(&toolrein).kinds(), ["function:a"]);
            assert_eq!(upstream.requests().len(), requests);
            assert_eq!(upstream.request(requests - 1).json()["tools"], talk.body["tools"]);
        }
    }
}

fn declared(request: &Recorded) -> Vec<String> {
    let tools = request.json()["tools"].as_array().cloned().unwrap_or_default();
    let name = |tool: &Value| tool["name"].as_str().unwrap_or_default().to_owned();
    let inner = |tool: &Value| match tool["tools"].as_array() {
        Some(inner) => inner.iter().map(name).collect(),
        None => vec![name(tool)],
    };
    tools.iter().flat_map(inner).collect()
}

#[test]
fn where_a_list_of_allowed_tools_is_refused_hidden_tools_leave_the_declarations() {
    for refusal in [
        "litellm.BadRequestError: Invalid tool_choice: {'type': 'allowed_tools'}",
        "'dict' object has no attribute 'function'",
    ] {
        for stream in BOTH {
            let upstream = Scripted::start(move |nth, request| match request.json().get("tool_choice") {
                Some(_) => refuse(refusal),
                None => Output::text(nth, "Fine.").reply(request),
            });
            let toolrein =
                Toolrein::before(&upstream, "[policy.allow]\nexcept = [\"pay\", \"rm\"]\nhide = true\n");
            let tools = json!([tool("pay"), tool("f"), tool("rm"), tool("g")]);
            for requests in [2, 3] {
                let talk = Talk::new(stream).with_tools(tools.clone());
                assert_eq!(talk.ask(&toolrein).said(), "Fine.");
                assert_eq!(upstream.requests().len(), requests, "remembered");
                assert_eq!(declared(&upstream.request(requests - 1)), ["f", "g"]);
            }
            // With the last tool everything about tools goes.
            assert_eq!(Talk::new(stream).with_tools(json!([tool("pay")])).ask(&toolrein).said(), "Fine.");
            let bare = upstream.request(3).json();
            assert!(bare.get("tools").is_none() && bare.get("tool_choice").is_none(), "{bare}");
            toolrein.wait_for_metric("toolrein_fallbacks_total{kind=\"hidden_tools\"}", 1.0);
        }
    }
}

#[test]
fn where_a_list_of_allowed_tools_turns_calls_into_text_hidden_tools_leave_the_declarations() {
    for prose in ["", "I look it up.\n"] {
        let markup =
            format!("{prose}<tool_call>\n{{\"name\": \"f\", \"arguments\": {{\"q\": 1}}}}\n</tool_call>");
        let upstream = Scripted::start(move |nth, request| match request.json().get("tool_choice") {
            Some(_) => Output::text(nth, &markup).reply(request),
            None => Output::text(nth, "Fine.").reply(request),
        });
        let toolrein = Toolrein::before(&upstream, "[policy.allow]\nexcept = [\"pay\"]\nhide = true\n");
        for requests in [2, 3] {
            let talk = Talk::new(false).with_tools(json!([tool("pay"), tool("f")]));
            assert_eq!(talk.ask(&toolrein).said(), "Fine.");
            assert_eq!(upstream.requests().len(), requests, "remembered");
            assert_eq!(declared(&upstream.request(requests - 1)), ["f"]);
        }
    }
}

#[test]
fn an_answer_about_markup_to_a_request_with_a_list_of_allowed_tools_passes() {
    for said in ["Write `<tool_call>{\"name\": \"f\"}</tool_call>`.", "Fine."] {
        let upstream = Scripted::start(move |nth, request| Output::text(nth, said).reply(request));
        let toolrein = Toolrein::before(&upstream, "[policy.allow]\nexcept = [\"pay\"]\nhide = true\n");
        let talk = Talk::new(false).with_tools(json!([tool("pay"), tool("f")]));
        assert_eq!(talk.ask(&toolrein).said(), said);
        assert_eq!(upstream.requests().len(), 1);
    }
}

#[test]
fn hidden_tools_of_a_namespace_leave_it_where_no_choice_can_name_them() {
    let upstream = Scripted::start(|nth, request| match request.json().get("tool_choice") {
        Some(_) => refuse("Unknown tool_choice"),
        None => Output::text(nth, "Fine.").reply(request),
    });
    let toolrein = Toolrein::before(&upstream, "[policy.allow]\nexcept = [\"pay\"]\nhide = true\n");
    Talk::new(false).with_tools(json!([tool("pay"), tool("f")])).ask(&toolrein);
    let crm =
        json!({"type": "namespace", "name": "crm", "description": "d", "tools": [tool("list"), tool("pay")]});
    Talk::new(false).with_tools(json!([tool("pay"), crm, tool("f")])).ask(&toolrein);
    assert_eq!(declared(&upstream.request(2))[..1], ["list"]);
    assert_eq!(declared(&upstream.request(2)).last().unwrap(), "f");
}

#[test]
fn a_refused_parallel_tool_calls_of_toolrein_is_taken_back_and_remembered() {
    for stream in BOTH {
        let upstream = Scripted::start(|nth, request| match request.json().get("parallel_tool_calls") {
            Some(_) => refuse("Unknown parameter: 'parallel_tool_calls'."),
            None => Output::text(nth, "Fine.").reply(request),
        });
        let toolrein = Toolrein::before(&upstream, "[policy.serial]\n");
        for requests in [2, 3] {
            assert_eq!(Talk::new(stream).ask(&toolrein).said(), "Fine.");
            assert_eq!(upstream.requests().len(), requests);
        }
    }
}

#[test]
fn every_item_that_toolrein_writes_into_a_history_has_a_type() {
    let upstream = Scripted::start(|nth, request| {
        let is_call = |item: &Value| item["type"].as_str().is_some_and(|kind| kind.contains("_call"));
        match input(request).iter().any(is_call) {
            true => refuse("Tool messages are not supported"),
            false => Output::text(nth, "Fine.").reply(request),
        }
    });
    let toolrein = Toolrein::before(&upstream, "");
    let mut talk = Talk::new(false);
    talk.called("1", "{}", &json!("r"));
    assert_eq!(talk.ask(&toolrein).said(), "Fine.");
    let written = input(&upstream.request(1)).split_off(1);
    assert!(written.len() == 2 && written.iter().all(|item| item["type"] == "message"), "{written:?}");
}

#[test]
fn a_refusal_that_stays_reaches_the_client_as_it_came() {
    for stream in BOTH {
        let upstream = Scripted::start(|_, _| refuse("Unknown tool_choice: allowed_tools"));
        let toolrein = Toolrein::before(&upstream, "[policy.allow]\nexcept = [\"pay\"]\nhide = true\n");
        let talk = Talk::new(stream).with_tools(json!([tool("pay"), tool("f")]));
        let got = Request::post(&url(&toolrein), talk.body.to_string()).send();
        assert_eq!((got.status, upstream.requests().len()), (400, 2));
        assert!(got.text().contains("Unknown tool_choice: allowed_tools"));
        // Nothing was learned from it.
        Request::post(&url(&toolrein), talk.body.to_string()).send();
        assert_eq!(upstream.request(2).body, upstream.request(0).body);
    }
}
