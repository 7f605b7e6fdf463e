//! Each kind of call that a client of the Responses API runs: blocked and answered, asked about, and put back.

use crate::governed::talk::BOTH;
use crate::support::client::post;
use crate::support::person::Person;
use crate::support::program::Toolrein;
use crate::support::responses::Output;
use crate::support::responses_kit::{Answer, Talk, input, may_call, sent, tool};
use crate::support::scripted::Scripted;
use serde_json::{Value, json};

/// A kind of call: its tool, the name by which policies know it, the call, and the type of its output.
type Kind = (Value, &'static str, Value, &'static str);

/// Every kind of call, and a call of a function that tool search has found.
fn kinds() -> Vec<Kind> {
    let found = json!({"type": "function_call", "id": "fc_a", "call_id": "call_a", "name": "g", "namespace": "g",
        "arguments": "{}", "status": "completed"});
    let deferred =
        json!({"type": "function", "name": "g", "parameters": {"type": "object"}, "defer_loading": true});
    let mut kinds = kinds_by_type();
    kinds.push((deferred, "g", found, "function_call_output"));
    kinds
}

fn kinds_by_type() -> Vec<Kind> {
    let with = |mut call: Value, more: Value| {
        call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        call["status"] = "completed".into();
        call
    };
    let call =
        |kind: &str, id: &str, more: Value| with(json!({"type": kind, "id": id, "call_id": "call_a"}), more);
    vec![
        (
            tool("g"),
            "g",
            call("function_call", "fc_a", json!({"name": "g", "arguments": "{\"x\":1}"})),
            "function_call_output",
        ),
        (
            json!({"type": "custom", "name": "g"}),
            "g",
            call("custom_tool_call", "ctc_a", json!({"name": "g", "input": "print(\"é\")\n"})),
            "custom_tool_call_output",
        ),
        (
            json!({"type": "namespace", "name": "crm", "description": "d", "tools": [tool("g")]}),
            "crm.g",
            call("function_call", "fc_a", json!({"name": "g", "namespace": "crm", "arguments": "{}"})),
            "function_call_output",
        ),
        (
            json!({"type": "local_shell"}),
            "local_shell",
            call(
                "local_shell_call",
                "lsh_a",
                json!({"action": {"type": "exec", "command": ["ls"], "env": {}}}),
            ),
            "local_shell_call_output",
        ),
        (
            json!({"type": "shell"}),
            "shell",
            call("shell_call", "sh_a", json!({"action": {"commands": ["ls"]}})),
            "shell_call_output",
        ),
        (
            json!({"type": "apply_patch"}),
            "apply_patch",
            call(
                "apply_patch_call",
                "apc_a",
                json!({"operation": {"type": "create_file", "path": "a", "diff": "+a\n"}}),
            ),
            "apply_patch_call_output",
        ),
        (
            json!({"type": "tool_search", "execution": "client"}),
            "tool_search",
            call("tool_search_call", "tsc_a", json!({"execution": "client", "arguments": {"goal": "x"}})),
            "tool_search_output",
        ),
    ]
}

#[test]
fn every_kind_of_call_is_blocked_answered_and_put_back() {
    for stream in BOTH {
        for (declared, name, call, output) in kinds() {
            let made = call.clone();
            let upstream = Scripted::start(move |nth, request| match nth {
                0 => Output::new(0).thinks().item(made.clone()).reply(request),
                _ => Output::text(nth, "ok").reply(request),
            });
            let toolrein = Toolrein::before(&upstream, &format!("[policy.allow]\nexcept = [\"{name}\"]\n"));
            let mut talk = Talk::new(stream).with_tools(json!([tool("f"), declared]));
            let answer = talk.ask(&toolrein);
            assert_eq!(answer.said(), "ok", "{name}");
            assert!(!answer.text().contains("call_a"), "{name}: {}", answer.text());
            let items = input(&upstream.request(1));
            assert_eq!(items[2], call, "{name}");
            assert_eq!((&items[3]["type"], items[3].get("caller")), (&json!(output), None), "{name}");
            let text = items[3].to_string();
            assert!(text.contains("MODE_RESTRICTED") || output == "tool_search_output", "{name}: {text}");
            upstream.assert_clean();
            talk.go_on(&answer).say("more").ask(&toolrein);
            assert_eq!(input(&upstream.request(2))[..4], items[..4], "{name}");
            upstream.assert_clean();
            toolrein.wait_for_metric("toolrein_tool_calls_total{verdict=\"block\"}", 1.0);
        }
    }
}

#[test]
fn a_function_that_tool_search_has_found_is_a_declared_tool() {
    // As OpenAI answers: the namespace of a plain function that was loaded late is its own name.
    let call = json!({"type": "function_call", "id": "fc_a", "call_id": "call_a", "name": "g", "namespace": "g",
        "arguments": "{}", "status": "completed"});
    let mut deferred = tool("g");
    deferred["defer_loading"] = true.into();
    let search = json!({"type": "tool_search", "execution": "client"});
    let found = json!({"type": "tool_search_output", "call_id": "call_s", "execution": "client", "status": "completed",
        "tools": [tool("g")]});
    for stream in BOTH {
        for (tools, items) in [
            (json!([deferred, {"type": "tool_search"}]), vec![]),
            (
                json!([search]),
                vec![
                    json!({"type": "tool_search_call", "call_id": "call_s", "execution": "client",
                "status": "completed", "arguments": {"goal": "g"}}),
                    found.clone(),
                ],
            ),
        ] {
            let reply = call.clone();
            let upstream =
                Scripted::start(move |_, request| Output::new(0).item(reply.clone()).reply(request));
            let toolrein = Toolrein::before(&upstream, "[policy.allow]\n");
            let mut talk = Talk::new(stream).with_tools(tools);
            for item in items {
                talk.add(item);
            }
            let answer = talk.ask(&toolrein);
            assert_eq!(answer.end["output"], json!([call]), "{}", answer.text());
        }
    }
}

#[test]
fn an_approval_that_a_provider_asks_for_is_refused_in_the_clients_place() {
    for stream in BOTH {
        let asks = json!({"type": "mcp_approval_request", "id": "mcpr_1", "name": "roll", "server_label": "dice", "arguments": "{}"});
        let upstream = Scripted::start(move |nth, request| match nth {
            0 => Output::new(0).item(asks.clone()).reply(request),
            _ => Output::text(nth, "ok").reply(request),
        });
        let toolrein = Toolrein::before(&upstream, "[policy.allow]\nexcept = [\"dice.*\"]\n");
        let mcp = json!({"type": "mcp", "server_label": "dice", "server_url": "https://x.example", "require_approval": "always"});
        let answer = Talk::new(stream).with_tools(json!([mcp])).ask(&toolrein);
        assert_eq!(answer.kinds(), ["assistant"], "{}", answer.text());
        let items = input(&upstream.request(1));
        assert_eq!(items[1]["id"], "mcpr_1");
        assert_eq!(
            (&items[2]["approval_request_id"], &items[2]["approve"]),
            (&json!("mcpr_1"), &json!(false))
        );
        assert!(items[2]["reason"].as_str().unwrap().contains("MODE_RESTRICTED"));
        upstream.assert_clean();
    }
}

#[test]
fn an_approval_request_is_handed_out_as_it_came_and_the_clients_answer_to_it_is_the_only_one() {
    let asks = json!({"type": "mcp_approval_request", "id": "mcpr_1", "name": "pay", "server_label": "shop",
        "arguments": "{\"q\":1}"});
    let mcp = json!({"type": "mcp", "server_label": "shop", "server_url": "https://x.example"});
    for (stream, chained, approve) in
        BOTH.into_iter().flat_map(|stream| BOTH.map(|chained| (stream, chained, stream != chained)))
    {
        let said = format!("stream {stream}, chained {chained}");
        let made = asks.clone();
        let upstream = Scripted::start(move |nth, request| match nth {
            0 => Output::new(0).thinks().item(made.clone()).reply(request),
            _ => Output::text(nth, "done").reply(request),
        });
        let toolrein = Toolrein::before(&upstream, "[policy.confirm]\ntools = [\"pay\"]\n");
        let mut talk = Talk::new(stream).with_tools(json!([mcp]));
        let go_on = |talk: &mut Talk, answer: &Answer| {
            if chained {
                talk.body["input"] = json!([]);
                talk.body["previous_response_id"] = answer.end["id"].clone();
            } else {
                talk.go_on(answer);
            }
        };
        let question = talk.ask(&toolrein);
        assert!(question.said().contains("`shop.pay`"), "{said}: {}", question.text());
        go_on(&mut talk, &question);
        let approved = talk.say("yes").ask(&toolrein);
        assert_eq!(approved.items(), std::slice::from_ref(&asks), "{said}: {}", approved.text());
        assert_eq!(upstream.requests().len(), 1, "{said}: the model was not asked");
        go_on(&mut talk, &approved);
        let answer =
            json!({"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": approve});
        let last = talk.add(answer.clone()).ask(&toolrein);
        assert_eq!(last.said(), "done", "{said}: {}", last.text());
        let request = upstream.request(1);
        let names = sent(&upstream, 1);
        let expected: &[&str] = match chained {
            true => &["user", "mcp_approval_response"],
            false => {
                let asked = ["user", "reasoning:rs_0_0", "mcp_approval_request:mcpr_1"];
                &[&asked[..], &["assistant", "user", "mcp_approval_response"]].concat()
            }
        };
        assert_eq!(names, expected, "{said}");
        assert_eq!(input(&request).last(), Some(&answer), "{said}");
        let previous = if chained { json!("resp_0") } else { Value::Null };
        assert_eq!(request.json()["previous_response_id"], previous, "{said}");
        upstream.assert_clean();
        // The history stays as it was sent.
        go_on(&mut talk, &last);
        talk.say("more").ask(&toolrein);
        if !chained {
            assert_eq!(input(&upstream.request(2))[..names.len()], input(&request)[..], "{said}");
        }
        upstream.assert_clean();
    }
}

#[test]
fn a_blocked_call_that_no_text_can_answer_refuses_the_reply() {
    for stream in BOTH {
        let call = json!({"type": "computer_call", "id": "cu_1", "call_id": "call_a", "status": "completed",
            "action": {"type": "click", "x": 1, "y": 2}, "pending_safety_checks": []});
        let upstream =
            Scripted::start(move |nth, request| Output::new(nth).item(call.clone()).reply(request));
        let toolrein = Toolrein::before(&upstream, "[policy.allow]\nexcept = [\"computer\"]\n");
        let tools = json!([{"type": "computer_use_preview", "display_width": 1, "display_height": 1, "environment": "mac"}]);
        let talk = Talk::new(stream).with_tools(tools);
        let reply = post(&crate::support::responses_kit::url(&toolrein), talk.body.to_string());
        assert!(
            !reply.text().contains("cu_1") && !reply.text().contains("response.completed"),
            "{}",
            reply.text()
        );
        assert!(reply.status == 502 || reply.text().contains("response.failed"), "{}", reply.text());
        assert_eq!(upstream.requests().len(), 1);
    }
}

#[test]
fn a_call_of_each_kind_goes_out_as_it_was_made_after_an_approval_in_the_conversation() {
    for stream in BOTH {
        for (declared, name, call, output) in kinds() {
            let made = call.clone();
            let upstream = Scripted::start(move |nth, request| match nth {
                0 => Output::new(0).item(made.clone()).reply(request),
                _ => Output::text(nth, "done").reply(request),
            });
            let settings = format!("[policy.confirm]\ntools = [\"{name}\"]\n");
            let toolrein = Toolrein::before(&upstream, &settings);
            let mut talk = Talk::new(stream).with_tools(json!([declared]));
            let question = talk.ask(&toolrein);
            assert_eq!(question.kinds(), ["assistant"], "{name}: {}", question.text());
            assert!(question.said().contains(&format!("`{name}`")), "{name}: {}", question.said());
            let approved = talk.go_on(&question).say("yes").ask(&toolrein);
            assert_eq!(upstream.requests().len(), 1, "{name}: the model was not asked");
            assert_eq!(approved.items().len(), 1, "{name}: {}", approved.text());
            let handed = &approved.items()[0];
            for (member, value) in call.as_object().unwrap() {
                let is_id = member == "id" || member == "call_id";
                assert_eq!(handed[member] == *value, !is_id, "{name}: {member} of {handed}");
            }
            let kind = call["id"].as_str().unwrap().split('_').next().unwrap();
            assert!(handed["id"].as_str().is_some_and(|id| id.starts_with(kind)), "{name}: {handed}");
            assert_eq!(handed.as_object().unwrap().len(), call.as_object().unwrap().len(), "{name}");
            let result = match output {
                "shell_call_output" => {
                    json!([{"stdout": "r", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}])
                }
                _ => json!("r"),
            };
            talk.add(handed.clone());
            talk.add(match output {
                "tool_search_output" => json!({"type": output, "call_id": handed["call_id"], "execution": "client", "tools": []}),
                "apply_patch_call_output" => json!({"type": output, "call_id": handed["call_id"], "status": "completed", "output": "r"}),
                "local_shell_call_output" => json!({"type": output, "id": handed["id"], "output": "r"}),
                _ => json!({"type": output, "call_id": handed["call_id"], "output": result}),
            });
            assert_eq!(talk.ask(&toolrein).said(), "done", "{name}");
            upstream.assert_clean();
        }
    }
}

#[test]
fn a_held_call_of_each_kind_goes_out_as_it_was_made_or_is_explained_to_the_model() {
    for stream in BOTH {
        for (declared, name, call, _) in kinds() {
            for approve in [true, false] {
                let made = call.clone();
                let upstream = Scripted::start(move |nth, request| match nth {
                    0 if may_call(request) => Output::new(0).thinks().item(made.clone()).reply(request),
                    _ => Output::text(nth, "As you like.").reply(request),
                });
                let policy = format!("[policy.confirm]\ntools = [\"{name}\"]\nform = \"held\"\n");
                let toolrein = Toolrein::before(&upstream, &format!("{}{policy}", Person::SETTINGS));
                let talk = Talk::new(stream).with_tools(json!([declared]));
                let person = Person::at(&toolrein);
                let answer = std::thread::scope(|scope| {
                    let asking = scope.spawn(|| talk.ask(&toolrein));
                    assert_eq!(person.answers(approve)["tool"], name);
                    asking.join().unwrap()
                });
                let expected = if approve { call.clone() } else { answer.items()[1].clone() };
                assert_eq!(answer.items()[1], expected, "{name}: {}", answer.text());
                assert_eq!(answer.said(), if approve { "" } else { "As you like." }, "{name}");
                upstream.assert_clean();
            }
        }
    }
}
