//! Blocked calls on the Responses API: final answers, what the client gets of a reply of which a part is blocked, and
//! what the model gets back afterwards.

use crate::governed::talk::{BOTH, budget};
use crate::support::program::Toolrein;
use crate::support::reply::Reply;
use crate::support::responses::{Output, events};
use crate::support::responses_kit::{Talk, error_type, input, may_call, sent, tool};
use crate::support::scripted::{Recorded, Scripted};
use serde_json::{Value, json};

/// Reasons, and then calls `f` so many times at once, if calls are allowed.
fn calling(calls: usize) -> impl Fn(usize, &Recorded) -> Reply + Send + Sync + 'static {
    move |nth, request| {
        let mut output = Output::new(nth).thinks();
        for call in 0..calls {
            output = output.call(&format!("{nth}_{call}"), "f", "{\"a\":2}");
        }
        if may_call(request) { output } else { Output::new(nth).thinks().says("Done without.") }
            .reply(request)
    }
}

#[test]
fn a_budget_that_is_used_up_ends_in_one_final_answer() {
    for stream in BOTH {
        let upstream = Scripted::start(calling(2));
        let toolrein = Toolrein::before(&upstream, &budget(1));
        let mut talk = Talk::new(stream);
        talk.called("old", "{}", &json!("r"));
        let answer = talk.ask(&toolrein);
        assert_eq!(answer.said(), "Done without.");
        let requests = upstream.requests().len();
        assert_eq!(requests, 2, "one, and the final answer at once");
        let thoughts = (0..requests).map(|nth| format!("reasoning:rs_{nth}_0"));
        assert_eq!(answer.kinds(), thoughts.chain(["assistant".to_owned()]).collect::<Vec<_>>());
        assert_eq!((&answer.end["id"], &answer.end["status"]), (&json!("resp_0"), &json!("completed")));
        let usage = &answer.end["usage"];
        assert_eq!((&usage["input_tokens"], &usage["total_tokens"]), (&json!(40), &json!(50)));
        assert_eq!(usage["output_tokens_details"]["reasoning_tokens"], 4);
        assert_eq!(answer.end["tool_choice"], "auto", "as the first reply echoed it");
        assert!(
            !answer.text().contains("call_0_0") && !answer.text().contains("fc_0_0"),
            "{}",
            answer.text()
        );
        let last = upstream.request(requests - 1);
        assert_eq!(
            (&last.json()["tool_choice"], &last.json()["tools"]),
            (&json!("none"), &talk.body["tools"])
        );
        let names = sent(&upstream, 1);
        let expected = ["reasoning:rs_0_0", "function:0_0", "function:0_1", "=0_0", "=0_1"];
        assert_eq!(names[4..], expected, "after the notice: {names:?}");
        assert_eq!(error_type(&input(&upstream.request(1))[7]), "BUDGET_EXCEEDED");
        // The next turn puts all of it back between the replies.
        talk.go_on(&answer).say("go on").ask(&toolrein);
        let shown_last = input(&last);
        assert_eq!(input(&upstream.request(requests))[..shown_last.len()], shown_last);
        assert_eq!(
            sent(&upstream, requests)[shown_last.len()..],
            ["reasoning:rs_1_0", "assistant", "user", "developer"]
        );
        upstream.assert_clean();
    }
}

#[test]
fn a_re_asked_reply_that_needs_no_edit_still_reaches_the_client() {
    // No id, no time, no usage: nothing of the second reply has to be edited.
    let call =
        json!({"type": "function_call", "id": "fc", "call_id": "c", "name": "wipe_disk", "arguments": "{}"});
    let text = json!({"type": "output_text", "text": "Fine.", "annotations": []});
    let message = json!({"type": "message", "id": "m", "role": "assistant", "content": [text]});
    for (head, ending) in [
        (json!({}), json!({})),
        (json!({"id": "resp_1", "created_at": 1, "model": "gpt-5"}), json!({"status": "completed"})),
    ] {
        let with = |output: &Value| {
            let mut reply = head.clone();
            reply["output"] = json!([output]);
            reply.as_object_mut().unwrap().extend(ending.as_object().unwrap().clone());
            reply
        };
        let replies = [Reply::json(200, &with(&call)), Reply::json(200, &with(&message))];
        let upstream = Scripted::queue(replies);
        let toolrein = Toolrein::before(&upstream, "[policy.allow]\nexcept = [\"wipe*\"]\n");
        let answer = Talk::new(false).with_tools(json!([tool("f"), tool("wipe_disk")])).ask(&toolrein);
        assert_eq!(answer.end, with(&message), "{}", answer.text());
    }
}

#[test]
fn of_parallel_calls_the_released_one_goes_out_and_the_next_request_gets_the_others_back() {
    for stream in BOTH {
        for (order, expected) in [
            (["f", "g", "f"], vec!["reasoning:rs_0_0", "function:0", "function:1", "function:2"]),
            (["g", "f", "g"], vec!["reasoning:rs_0_0", "function:0", "function:1", "function:2"]),
        ] {
            let upstream = Scripted::start(move |nth, request| match nth {
                0 => {
                    let call =
                        |output: Output, at: usize| output.call(&at.to_string(), order[at], "{\"a\":1}");
                    (0..3).fold(Output::new(0).thinks(), call).says("Well.").reply(request)
                }
                _ => Output::text(nth, "ok").reply(request),
            });
            let toolrein = Toolrein::before(&upstream, "[policy.allow]\nexcept = [\"g\"]\n");
            let mut talk = Talk::new(stream).with_tools(json!([tool("f"), tool("g")]));
            let answer = talk.ask(&toolrein);
            assert_eq!(upstream.requests().len(), 1, "not asked again");
            let released = order.iter().filter(|name| **name == "f").count();
            assert_eq!(answer.items().len(), 2 + released, "{:?}", answer.kinds());
            assert!(!answer.text().contains("\"name\":\"g\"") || answer.text().contains("tools"));
            talk.go_on(&answer).ask(&toolrein);
            let names = sent(&upstream, 1);
            assert_eq!(names[1..5], expected, "{names:?}");
            assert_eq!(names[5], "assistant", "{names:?}");
            assert_eq!(names.iter().filter(|name| name.starts_with('=')).count(), 3, "{names:?}");
            upstream.assert_clean();
            // And again, byte for byte in the same place.
            let before = input(&upstream.request(1));
            talk.add(json!({"role": "assistant", "content": "ok"})).say("more").ask(&toolrein);
            assert_eq!(input(&upstream.request(2))[..before.len()], before);
            upstream.assert_clean();
        }
    }
}

#[test]
fn a_client_that_drops_ids_and_reasoning_gets_the_blocked_call_back_too() {
    for stream in BOTH {
        let upstream = Scripted::start(move |nth, request| match nth {
            0 => Output::new(0).thinks().call("a", "f", "{}").call("b", "g", "{}").reply(request),
            _ => Output::text(nth, "ok").reply(request),
        });
        let toolrein = Toolrein::before(&upstream, "[policy.allow]\nexcept = [\"g\"]\n");
        let mut talk = Talk::new(stream).with_tools(json!([tool("f"), tool("g")]));
        talk.ask(&toolrein);
        talk.add(json!({"type": "function_call", "call_id": "call_a", "name": "f", "arguments": "{ }"}));
        talk.add(json!({"type": "function_call_output", "call_id": "call_a", "output": "r"})).ask(&toolrein);
        let input = input(&upstream.request(1));
        let blocked = input.iter().find(|item| item["call_id"] == "call_b").expect("it is back");
        // The call's reasoning is gone, so that the upstream would refuse the call under its own id.
        assert_eq!(blocked["id"], Value::Null, "{blocked}");
        upstream.assert_clean();
    }
}

#[test]
fn a_model_that_insists_is_asked_three_times_and_then_answers() {
    for stream in BOTH {
        let upstream = Scripted::start(|nth, request| match may_call(request) {
            true => Output::new(nth)
                .says("I try.")
                .call(&nth.to_string(), "g", &format!(r#"{{"q":"word {nth}"}}"#))
                .reply(request),
            false => Output::text(nth, "I gave up.").reply(request),
        });
        let toolrein = Toolrein::before(&upstream, "reask.max = 3\n[policy.allow]\nexcept = [\"g\"]\n");
        let mut talk = Talk::new(stream).with_tools(json!([tool("f"), tool("g")]));
        let answer = talk.ask(&toolrein);
        assert!(answer.said().ends_with("I gave up."), "{}", answer.said());
        let requests = upstream.requests().len();
        assert_eq!(requests, 5, "one, three re-asks, one final answer");
        assert_eq!(answer.items().len(), requests, "{:?}", answer.kinds());
        assert_eq!(answer.end["usage"]["total_tokens"], 25 * requests);
        assert_eq!(upstream.request(4).json()["tool_choice"], "none");
        talk.go_on(&answer).say("go on").ask(&toolrein);
        assert_eq!(input(&upstream.request(requests))[..13], input(&upstream.request(4))[..13]);
        assert_eq!(sent(&upstream, requests)[13..], ["assistant", "user"]);
        upstream.assert_clean();
    }
}

#[test]
fn a_model_that_calls_even_in_its_final_answer_ends_with_an_honest_sentence() {
    for stream in BOTH {
        let upstream = Scripted::start(|nth, request| {
            Output::calls(nth, &[(&nth.to_string(), "f", "{}")]).reply(request)
        });
        let toolrein = Toolrein::before(&upstream, &budget(1));
        let mut talk = Talk::new(stream);
        talk.called("old", "{}", &json!("r"));
        let answer = talk.ask(&toolrein);
        assert_eq!(answer.kinds(), ["assistant"], "{}", answer.text());
        assert!(answer.said().len() > 10);
        assert!((2..6).contains(&upstream.requests().len()));
        let before = upstream.requests().len();
        // toolrein's own message goes back without the id that the upstream never gave.
        talk.go_on(&answer).say("go on").ask(&toolrein);
        assert!(upstream.requests().len() > before);
        upstream.assert_clean();
    }
}

#[test]
fn no_event_of_a_blocked_call_arrives_wherever_the_upstream_puts_it() {
    let request = Talk::new(true).body;
    let all = Output::new(0)
        .call("secret", "g", "{\"p\":\"paris\"}")
        .call("a", "f", "{\"p\":\"berlin\"}")
        .events(&request);
    let of_blocked =
        |event: &Value| event["output_index"] == 0 && !event["type"].as_str().unwrap().ends_with("added");
    let only = |keep: &dyn Fn(&Value) -> bool| -> Vec<Value> {
        all.iter().filter(|event| keep(event)).cloned().collect()
    };
    let kind_is = |event: &Value, kind: &str| event["type"].as_str().unwrap().ends_with(kind);
    let streams = [
        only(&|_| true),
        // Only added and deltas; only done; only in the last event.
        only(&|event| !(of_blocked(event) && (kind_is(event, ".done")))),
        only(&|event| event["output_index"] != 0 || kind_is(event, "output_item.done")),
        only(&|event| event["output_index"] != 0),
        only(&|event| !kind_is(event, ".delta")),
        only(&|event| !kind_is(event, "arguments.done")),
    ];
    for (nth, stream) in streams.into_iter().enumerate() {
        for by_arguments in BOTH {
            let policy = match by_arguments {
                true => {
                    "[policy.arguments]\nstrict = true\n[policy.duplicates]\ntools = [\"f\"]\n[policy.allow]\nexcept = [\"g\"]\n"
                }
                false => "[policy.allow]\nexcept = [\"g\"]\n",
            };
            let sse: Vec<String> = stream.iter().map(crate::support::responses::event).collect();
            let upstream = Scripted::start(move |_, _| Reply::stream(sse.clone()));
            let toolrein = Toolrein::before(&upstream, policy);
            let talk = Talk::new(true).with_tools(json!([tool("f"), tool("g")]));
            let response = crate::support::client::post(
                &crate::support::responses_kit::url(&toolrein),
                talk.body.to_string(),
            );
            let text = response.text();
            for trace in ["secret", "paris"] {
                assert!(!text.contains(trace), "stream {nth}: {trace} in {text}");
            }
            assert!(text.contains("berlin"), "stream {nth}: {text}");
            let end = events(&text).last().cloned().unwrap();
            assert_eq!(end["type"], "response.completed", "stream {nth}: {text}");
            assert_eq!(end["response"]["output"].as_array().map(Vec::len), Some(1));
        }
    }
}

/// Calls these tools by one call, if it may call.
fn wrapping(tools: &'static [&'static str]) -> impl Fn(usize, &Recorded) -> Reply + Send + Sync + 'static {
    move |nth, request| {
        let uses =
            tools.iter().map(|tool| json!({"recipient_name": format!("functions.{tool}"), "parameters": {}}));
        let arguments = json!({"tool_uses": uses.collect::<Value>()}).to_string();
        let output = Output::new(nth);
        if may_call(request) {
            output.call(&nth.to_string(), "parallel", &arguments)
        } else {
            output.says("Done.")
        }
        .reply(request)
    }
}

#[test]
fn one_forbidden_call_within_a_wrapper_call_blocks_it() {
    for stream in BOTH {
        let upstream = Scripted::start(|nth, request| match nth {
            0 => wrapping(&["f", "g"])(nth, request),
            _ => Output::text(nth, "Then without.").reply(request),
        });
        let toolrein = Toolrein::before(&upstream, "[policy.allow]\nexcept = [\"g\"]\n");
        let talk = Talk::new(stream).with_tools(json!([tool("f"), tool("g"), tool("parallel")]));
        let answer = talk.ask(&toolrein);
        assert_eq!((answer.said(), answer.kinds().len()), ("Then without.".to_owned(), 1));
        assert!(!answer.text().contains("recipient_name"), "{}", answer.text());
        let result = input(&upstream.request(1)).pop().unwrap();
        assert_eq!(error_type(&result), "MODE_RESTRICTED");
        assert!(result["output"].as_str().unwrap().contains("g"), "{result}");
    }
}

#[test]
fn a_wrapper_call_counts_its_calls_and_so_does_the_history_of_a_client_that_ran_them_one_by_one() {
    for stream in BOTH {
        let upstream = Scripted::start(wrapping(&["f", "f"]));
        let toolrein =
            Toolrein::before(&upstream, "[policy.rate_limit]\ndefault = { calls = 3, per = \"1h\" }\n");
        let mut talk = Talk::new(stream).with_tools(json!([tool("f"), tool("parallel")]));
        let answer = talk.ask(&toolrein);
        assert_eq!(answer.kinds().len(), 1, "{:?}", answer.kinds());
        toolrein.wait_for_metric("toolrein_tool_calls_total{tool=\"f\",verdict=\"allow\"}", 2.0);
        // Two of three calls are used, and two more in one wrapper call are too many. Clients name such calls by
        // their index.
        talk.called("0_0", "{}", &json!("r")).called("0_1", "{}", &json!("r"));
        let again = talk.ask(&toolrein);
        assert_eq!(again.said(), "Done.", "{}", again.text());
        assert!(!again.text().contains("recipient_name"), "{}", again.text());
    }
}

#[test]
fn as_shipped_a_tool_that_stays_empty_is_closed_and_an_undeclared_one_is_not_run() {
    for (stream, (name, reason)) in BOTH
        .into_iter()
        .flat_map(|stream| [("g", "NOT_FOUND"), ("f", "LOOP_DETECTED")].map(|it| (stream, it)))
    {
        let upstream = Scripted::start(move |nth, request| {
            let output = Output::new(nth).call(&format!("{nth}"), name, "{\"a\":9}");
            if may_call(request) { output } else { Output::new(nth).says("Nothing.") }.reply(request)
        });
        let toolrein = Toolrein::before(&upstream, "base = \"shipped\"\n");
        let mut talk = Talk::new(stream);
        for nth in 0..4 {
            talk.called(&format!("old{nth}"), &format!("{{\"a\":{nth}}}"), &json!("[]"));
        }
        let answer = talk.ask(&toolrein);
        assert_eq!(answer.said(), "Nothing.");
        // The only declared tool is closed, so the first re-ask is already for the final answer.
        assert_eq!(upstream.requests().len(), 2, "{name}");
        let last = input(&upstream.request(1));
        let outputs =
            last.iter().filter(|item| item["type"] == "function_call_output" && item["output"] != "[]");
        assert_eq!(outputs.map(error_type).collect::<Vec<_>>(), [reason], "{name}");
    }
}

#[test]
fn a_forbidden_call_outside_of_the_events_of_the_protocol_reaches_no_client() {
    let call = json!({"type": "function_call", "id": "fc_1", "call_id": "c", "status": "completed", "name": "wipe",
        "arguments": "{\"q\":\"SECRET\"}"});
    let whole = json!({"id": "resp_0", "object": "response", "status": "completed", "output": [call]});
    let data = |value: &Value| format!("data: {value}\n\n");
    let bodies = [
        whole.to_string(),
        format!("{whole}\n\ndata: [DONE]\n\n"),
        format!("\u{feff}{}\n\n", serde_json::to_string_pretty(&whole).unwrap()),
        format!(": ping\n\n{whole}\n\n"),
        format!("error: {whole}\n\n"),
        format!(
            "Data: {}\n\n",
            json!({"type": "response.output_item.done", "output_index": 0, "item": call})
        ),
        data(&whole),
        format!("event: response.completed\n{}", data(&whole)),
        data(&json!({ "output": [call] })),
        data(&call),
        format!("event: response.output_item.done\n{}", data(&call)),
        data(&json!({"type": "response.completed", "data": { "response": whole }})),
    ];
    for body in bodies {
        for before in ["", "data: {\"type\":\"response.in_progress\",\"response\":{\"id\":\"resp_0\"}}\n\n"] {
            let text = format!("{before}{body}");
            let reply = text.clone();
            let upstream = Scripted::start(move |nth, request| match nth {
                0 => Reply::stream([&reply]),
                _ => Output::text(nth, "Done.").reply(request),
            });
            let toolrein = Toolrein::before(&upstream, "[policy.allow]\nexcept = [\"wipe\"]\n");
            let talk = Talk::new(true).with_tools(json!([tool("f"), tool("wipe")]));
            let got = crate::support::client::post(
                &crate::support::responses_kit::url(&toolrein),
                talk.body.to_string(),
            );
            assert!(!got.text().contains("SECRET"), "{text}\n{}", got.text());
        }
    }
}
