//! Wrapper calls, which contain several calls: these are judged, counted and remembered as calls of their own.

use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::responses::Output;
use crate::support::responses_kit::Talk as Responses;
use crate::support::scripted::{Recorded, Scripted};
use crate::support::talk::{Form, Talk, in_both_forms, text};
use serde_json::{Value, json};

/// The model calls these tools by one call.
fn wrapped(tools: &[&str], request: &Recorded) -> Reply {
    let uses: Vec<_> = tools
        .iter()
        .map(|tool| json!({"recipient_name": format!("functions.{tool}"), "parameters": {"q": tool}}))
        .collect();
    let arguments = json!({ "tool_uses": uses }).to_string();
    Reply::speech(request, &Speech::calls(&[("call_parallel", "multi_tool_use.parallel", &arguments)]))
}

#[test]
fn one_forbidden_inner_call_blocks_the_wrapper_call_and_the_model_reads_which() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| match nth {
            0 => wrapped(&["search", "fetch"], request),
            _ => text("Then without.", request),
        });
        let program = Toolrein::before(&upstream, "[policy.allow]\nexcept = [\"fetch\"]\n");
        let said = Talk::new(form).ask(&program);
        said.assert_coherent(form);
        assert_eq!((said.calls.len(), said.text.as_str()), (0, "Then without."));
        let asked = upstream.request(1).json();
        let result =
            asked["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap().to_owned();
        assert!(result.contains("MODE_RESTRICTED") && result.contains("fetch"), "{result}");
    });
}

#[test]
fn an_allowed_wrapper_call_is_forwarded_and_each_inner_call_is_counted() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|_, request| wrapped(&["search", "fetch", "search"], request));
        let limits = "[policy.turn_limits]\ncalls = 3\n[policy.quota.limits]\nall = { tools = [\"*\"], calls = 4, per = \"1h\" }\n";
        let program = Toolrein::before(&upstream, limits);
        let said = Talk::new(form).ask(&program);
        assert_eq!(said.calls.len(), 1, "{}", said.response.text());
        program.wait_for_metric("toolrein_tool_calls_total{tool=\"search\"}", 2.0);
        program.wait_for_metric("toolrein_tool_calls_total{tool=\"fetch\"}", 1.0);
        // Three of four are used: three more in one call are too many.
        let mut other = Talk::new(form);
        other.members["seed"] = json!(7);
        let again = other.ask(&program);
        assert_eq!(again.calls.len(), 0, "{}", again.response.text());
    });
}

#[test]
fn inner_calls_of_a_wrapper_call_count_against_the_turn_limit() {
    let upstream = Scripted::start(|nth, request| match nth {
        0 => wrapped(&["search", "fetch", "search"], request),
        _ => text("Enough.", request),
    });
    let program = Toolrein::before(&upstream, "[policy.turn_limits]\ncalls = 2\n");
    let said = Talk::new(Form::Whole).ask(&program);
    assert_eq!((said.calls.len(), said.text.as_str()), (0, "Enough."));
}

/// A conversation of a client that keeps wrapper calls as they came: the model made this one, and got one result.
fn talk_after(form: Form, name: &str, arguments: &Value) -> Talk {
    let mut talk = Talk::new(form);
    let call = json!({"id": "call_w", "type": "function", "function": {"name": name, "arguments": arguments.to_string()}});
    talk.messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
    talk.messages.push(json!({"role": "tool", "tool_call_id": "call_w", "content": "nothing"}));
    let tool = json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}});
    talk.members["tools"].as_array_mut().unwrap().push(tool);
    talk
}

/// A wrapper call with a call of each of these tools, in the form of each kind of wrapper: its name and its arguments.
fn wrappers(tools: &[&str]) -> Vec<(&'static str, Value)> {
    let list = |name: &str, arguments: &str| {
        let calls = tools.iter().map(|tool| json!({name: tool, arguments: {"q": "x"}}));
        calls.collect::<Vec<_>>()
    };
    let function = |tool: &&str| json!({"function": {"name": tool, "arguments": "{\"q\":\"x\"}"}});
    vec![
        ("multi_tool_use.parallel", json!({"tool_uses": list("recipient_name", "parameters")})),
        ("parallel", json!({"tool_uses": list("recipient_name", "parameters")})),
        ("batch", json!({"tool_calls": list("tool", "parameters")})),
        ("BatchTool", json!({"description": "d", "invocations": list("tool_name", "input")})),
        ("batch_tool", json!({"tool_calls": tools.iter().map(function).collect::<Vec<_>>()})),
    ]
}

#[test]
fn a_wrapper_call_in_the_history_counts_as_the_calls_within_it() {
    in_both_forms(|form| {
        for (name, arguments) in wrappers(&["search", "search", "fetch"]) {
            let upstream =
                Scripted::start(|_, request| match request.json().to_string().contains("call_s") {
                    false => Reply::speech(request, &Speech::calls(&[("call_s", "search", "{\"q\":\"y\"}")])),
                    true => text("Enough.", request),
                });
            for (settings, calls) in [
                ("[policy.turn_limits]\ncalls = 3\n", 0),
                ("[policy.turn_limits]\ncalls = 4\n", 1),
                ("[policy.turn_limits]\ntools = { search = 2 }\n", 0),
                ("[policy.turn_limits]\ntools = { search = 3 }\n", 1),
                ("[policy.budget]\ntool_calls = 3\n", 0),
                ("[policy.budget]\ntool_calls = 4\n", 1),
            ] {
                let program = Toolrein::before(&upstream, settings);
                let said = talk_after(form, name, &arguments).ask(&program);
                assert_eq!(said.calls.len(), calls, "{name} {settings}: {}", said.response.text());
            }
        }
    });
}

#[test]
fn a_call_within_a_wrapper_that_a_policy_forbids_blocks_every_kind_of_wrapper() {
    in_both_forms(|form| {
        for (name, arguments) in wrappers(&["search", "fetch"]) {
            let said_arguments = arguments.to_string();
            let upstream = Scripted::start(move |nth, request| match nth {
                0 => Reply::speech(request, &Speech::calls(&[("call_x", name, &said_arguments)])),
                _ => text("Then without.", request),
            });
            let program = Toolrein::before(&upstream, "[policy.allow]\nexcept = [\"fetch\"]\n");
            let said = talk_after(form, name, &json!({})).ask(&program);
            assert_eq!((said.calls.len(), said.text.as_str()), (0, "Then without."), "{name}");
        }
    });
}

#[test]
fn a_batch_tool_whose_list_names_no_tool_is_an_ordinary_call() {
    in_both_forms(|form| {
        let arguments =
            json!({"items": [{"name": "Alice", "input": "x"}, {"name": "Bob", "input": "y"}]}).to_string();
        let upstream = Scripted::start(move |_, request| {
            Reply::speech(request, &Speech::calls(&[("call_x", "batch", &arguments)]))
        });
        let program = Toolrein::before(&upstream, "[policy.allow]\n[policy.turn_limits]\ncalls = 2\n");
        let said = talk_after(form, "batch", &json!({"items": [{"name": "Carol"}]})).ask(&program);
        assert_eq!(said.calls.len(), 1, "{}", said.response.text());
    });
}

#[test]
fn a_wrapper_call_that_is_repeated_is_a_loop() {
    in_both_forms(|form| {
        let (name, arguments) = wrappers(&["search", "fetch"]).remove(0);
        let said_arguments = arguments.to_string();
        let upstream = Scripted::start(move |nth, request| match nth {
            0 => Reply::speech(request, &Speech::calls(&[("call_w9", name, &said_arguments)])),
            _ => text("Enough.", request),
        });
        let program = Toolrein::before(&upstream, "[policy.loops]\nnotice = 3\nblock = 5\n");
        let mut talk = talk_after(form, name, &arguments);
        let round = talk.messages[1..].to_vec();
        for nth in 1..8 {
            let mut again = round.clone();
            again[0]["tool_calls"][0]["id"] = json!(format!("call_{nth}"));
            again[1]["tool_call_id"] = json!(format!("call_{nth}"));
            talk.messages.extend(again);
        }
        let said = talk.ask(&program);
        assert_eq!((said.calls.len(), said.text.as_str()), (0, "Enough."), "{}", said.response.text());
    });
}

#[test]
fn a_wrapper_call_in_the_history_of_a_response_counts_as_the_calls_within_it() {
    for stream in [false, true] {
        for (limit, calls) in [(2, 0), (3, 1)] {
            let upstream =
                Scripted::start(|_, request| match request.json().to_string().contains("call_s") {
                    false => Output::calls("one", &[("s", "f", "{}")]).reply(request),
                    true => Output::text("two", "Enough.").reply(request),
                });
            let program = Toolrein::before(&upstream, &format!("[policy.turn_limits]\ncalls = {limit}\n"));
            let uses = json!({"tool_uses": [{"recipient_name": "functions.f", "parameters": {}}, {"recipient_name": "f"}]});
            let mut talk = Responses::new(stream);
            talk.add(
                json!({"type": "function_call", "id": "fc_w", "call_id": "call_w", "status": "completed",
                "name": "multi_tool_use.parallel", "arguments": uses.to_string()}),
            );
            talk.add(json!({"type": "function_call_output", "call_id": "call_w", "output": "r"}));
            let answer = talk.ask(&program);
            let made = answer.items().iter().filter(|item| item["type"] == "function_call").count();
            assert_eq!(made, calls, "{limit}: {}", answer.text());
        }
    }
}

/// Whether the client gets the model's call of `outer` with these `arguments`, where the request declares `outer` and these
/// `tools` and the settings restrict some; on chat completions in this form, and on the Responses API.
fn gets_call(
    form: Form,
    settings: &str,
    (outer, arguments): (&'static str, &Value),
    tools: &[&str],
) -> [bool; 2] {
    let said_arguments = arguments.to_string();
    let upstream = Scripted::start(move |nth, request| {
        let body = request.json();
        match (body["messages"].is_array(), body.to_string().contains("call_x")) {
            (true, false) => Reply::speech(request, &Speech::calls(&[("call_x", outer, &said_arguments)])),
            (true, true) => text("Then without.", request),
            (false, false) => Output::calls(nth, &[("x", outer, &said_arguments)]).reply(request),
            (false, true) => Output::text(nth, "Then without.").reply(request),
        }
    });
    let program = Toolrein::before(&upstream, settings);
    let names = || std::iter::once(&outer).chain(tools).map(|name| name.to_string());
    let mut talk = Talk::new(form);
    let declared = |name: String| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}});
    talk.members["tools"] = names().map(declared).collect();
    let chat = !talk.ask(&program).calls.is_empty();
    let declared = names().map(|name| crate::support::responses_kit::tool(&name)).collect::<Value>();
    let talk = Responses::new(form == Form::Streamed).with_tools(declared);
    let answer = talk.ask(&program);
    [chat, answer.items().iter().any(|item| item["type"] == "function_call")]
}

const RESTRICTING: [&str; 2] =
    ["[policy.allow]\nexcept = [\"pay\"]\n", "[policy.confirm]\ntools = [\"pay\"]\n"];

#[test]
fn a_restricted_call_in_the_arguments_of_a_tool_that_runs_others_is_blocked() {
    let call = json!({"name": "pay", "arguments": {"to": "x"}});
    let list = json!([call]);
    in_both_forms(|form| {
        for (outer, arguments) in [
            ("batch", json!({"calls": list.to_string()})),
            ("batch", json!({"calls": [call.to_string()]})),
            (
                "multi_tool_use_parallel",
                json!({"tool_uses": [{"recipient_name": "functions.pay", "parameters": {"to": "x"}}]}),
            ),
            (
                "multi_tool_use-parallel",
                json!({"tool_uses": [{"recipient_name": "functions.pay", "parameters": {"to": "x"}}]}),
            ),
            ("run_batch", json!({"calls": list})),
            (
                "COMPOSIO_MULTI_EXECUTE_TOOL",
                json!({"tools": [{"tool_slug": "pay", "arguments": {"to": "x"}}]}),
            ),
            (
                "use_mcp_tool",
                json!({"server_name": "shop", "tool_name": "pay", "arguments": "{\"to\":\"x\"}"}),
            ),
            ("call_tool", json!({"tool_name": "pay"})),
        ] {
            for settings in RESTRICTING {
                let got = gets_call(form, settings, (outer, &arguments), &["pay", "look"]);
                assert_eq!(got, [false; 2], "{settings} {outer} {arguments}");
            }
        }
        // Nobody declares it, and the outer tool runs others by its name.
        let arguments = json!({"server_name": "shop", "tool_name": "pay", "arguments": {"to": "x"}});
        assert_eq!(gets_call(form, RESTRICTING[0], ("use_mcp_tool", &arguments), &["look"]), [false; 2]);
    });
}

#[test]
fn a_call_whose_arguments_only_mention_a_restricted_tool_goes_out() {
    in_both_forms(|form| {
        for (outer, arguments) in [
            ("create_user", json!({"name": "pay", "age": 3, "input": "x"})),
            ("create_users", json!({"users": [{"name": "pay"}, {"name": "look", "input": {"to": "x"}}]})),
            ("batch_delete", json!({"items": [{"name": "pay"}]})),
            ("search", json!({"q": "pay", "arguments": {"to": "x"}})),
            ("write_file", json!({"path": "a", "content": "Call pay: {\"name\":\"pay\",\"arguments\":{}}"})),
            ("write_file", json!({"path": "a.json", "content": "[{\"name\":\"pay\",\"arguments\":{}}]"})),
            (
                "register",
                json!({"tools": [{"name": "pay", "parameters": {"type": "object", "properties": {"to": {}}}}]}),
            ),
            (
                "update_plan",
                json!({"plan": {"then": {"tool": "mcp__shop__pay", "args": {"to": "x"}}}, "steps": [{"tool": "pay", "args": {}}]}),
            ),
            ("call_tool", json!({"tool_name": "look", "arguments": {"to": "pay"}})),
            ("batch", json!({"calls": [{"name": "look", "arguments": {"to": "pay"}}]})),
        ] {
            for settings in RESTRICTING {
                let got = gets_call(form, settings, (outer, &arguments), &["pay", "look"]);
                assert_eq!(got, [true; 2], "{settings} {outer} {arguments}");
            }
        }
    });
}
