//! Requests of the Responses API that only refer to earlier items: a referenced call counts as the call that it is.

use crate::governed::talk::BOTH;
use crate::support::client::post;
use crate::support::program::Toolrein;
use crate::support::responses::Output;
use crate::support::responses_kit::{Talk, may_call, tool, url};
use crate::support::scripted::Scripted;
use serde_json::{Value, json};

/// A model that calls the shell while it may.
fn upstream() -> Scripted {
    Scripted::start(|nth, request| {
        let call = json!({"type": "shell_call", "id": format!("sh_{nth}"), "call_id": format!("call_{nth}"),
            "status": "completed", "action": {"commands": ["ls"]}});
        match may_call(request) {
            true => Output::new(nth).thinks().item(call).reply(request),
            false => Output::text(nth, "Enough.").reply(request),
        }
    })
}

/// Runs an agent that refers to the items of earlier replies; returns how many calls it ran and its last text.
fn run(toolrein: &Toolrein, stream: bool, same: bool) -> (usize, String) {
    let mut talk = Talk::new(stream).with_tools(json!([{"type": "shell"}]));
    for ran in 0..12 {
        let answer = talk.ask(toolrein);
        let calls: Vec<Value> =
            answer.items().iter().filter(|item| item["type"] == "shell_call").cloned().collect();
        if calls.is_empty() {
            return (ran, answer.said());
        }
        // The type may be null or absent.
        for item in answer.items() {
            let id = &item["id"];
            talk.add(match ran % 3 {
                0 => json!({"type": null, "id": id}),
                1 => json!({"id": id}),
                _ => json!({"type": "item_reference", "id": id}),
            });
        }
        for call in calls {
            let out = if same { "the same".to_owned() } else { format!("other {ran}") };
            let output = json!([{"stdout": out, "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]);
            talk.add(json!({"type": "shell_call_output", "call_id": call["call_id"], "output": output}));
        }
    }
    (12, String::new())
}

#[test]
fn calls_that_a_request_refers_to_count_against_every_limit() {
    for stream in BOTH {
        for (policies, most) in [
            ("[policy.turn_limits]\ncalls = 2\n", 2),
            ("[policy.turn_limits]\ntools = { shell = 3 }\n", 3),
            ("[policy.budget]\ntool_calls = 2\n", 2),
            ("[policy.rate_limit]\ndefault = { calls = 2, per = \"1h\" }\n", 2),
        ] {
            let upstream = upstream();
            let toolrein = Toolrein::before(&upstream, policies);
            assert_eq!(run(&toolrein, stream, false), (most, "Enough.".to_owned()), "{policies}");
        }
        let upstream = upstream();
        let toolrein = Toolrein::before(&upstream, "[policy.loops]\nblock = 3\n");
        let (ran, said) = run(&toolrein, stream, true);
        assert_eq!((ran < 6, said), (true, "Enough.".to_owned()), "{ran} equal calls ran");
    }
}

#[test]
fn the_upstream_gets_the_references_as_they_came() {
    for stream in BOTH {
        let upstream = upstream();
        let toolrein = Toolrein::before(&upstream, "[policy.turn_limits]\ncalls = 9\n");
        let mut talk = Talk::new(stream).with_tools(json!([{"type": "shell"}]));
        let answer = talk.ask(&toolrein);
        for item in answer.items() {
            talk.add(json!({"type": "item_reference", "id": item["id"]}));
        }
        talk.add(json!({"type": "shell_call_output", "call_id": "call_0", "output": []}));
        talk.ask(&toolrein);
        assert_eq!(upstream.request(1).body, talk.body.to_string().into_bytes());
    }
}

#[test]
fn references_to_items_that_are_not_known_pass_and_are_counted() {
    let upstream = Scripted::start(|nth, request| Output::text(nth, "ok").reply(request));
    let toolrein = Toolrein::before(&upstream, "[policy.turn_limits]\ncalls = 9\n");
    let mut talk = Talk::new(false).with_tools(json!([{"type": "shell"}]));
    talk.add(json!({"type": "item_reference", "id": "sh_unknown"}));
    talk.add(json!({"type": "shell_call_output", "call_id": "call_0", "output": []}));
    talk.ask(&toolrein);
    assert_eq!(upstream.request(0).body, talk.body.to_string().into_bytes());
    toolrein.wait_for_metric("toolrein_actions_total{policy=\"upstream_history\",action=\"unknown\"}", 1.0);
    // Where the store is strict, what cannot be governed whole is refused.
    let strict = Toolrein::before(&upstream, "[policy.turn_limits]\ncalls = 9\n[store]\nstrict = true\n");
    let refused = post(&url(&strict), talk.body.to_string());
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (400, &json!("history_unknown")));
}

/// Adds the items of a reply as clients do that send calls of functions whole, and refer to what the model thought and
/// said.
fn refer(talk: &mut Talk, items: &[Value]) {
    for item in items {
        let is_whole = item["type"] == "function_call";
        talk.add(if is_whole { item.clone() } else { json!({"type": "item_reference", "id": item["id"]}) });
    }
}

#[test]
fn references_to_what_the_model_thought_and_said_are_known_and_a_strict_store_lets_them_pass() {
    for (stream, thinks) in BOTH.into_iter().flat_map(|stream| BOTH.map(|thinks| (stream, thinks))) {
        let upstream = Scripted::start(move |nth, request| {
            let output = if thinks { Output::new(nth).thinks() } else { Output::new(nth) };
            let output =
                if nth % 3 == 1 { output.call(&nth.to_string(), "f", "{}") } else { output.says("Said.") };
            output.reply(request)
        });
        let strict = "[policy.turn_limits]\ncalls = 9\n[store]\nstrict = true\n";
        let toolrein = Toolrein::before(&upstream, strict);
        let mut talk = Talk::new(stream);
        for nth in 0..6 {
            let answer = talk.ask(&toolrein);
            assert_eq!(upstream.request(nth).body, talk.body.to_string().into_bytes());
            refer(&mut talk, answer.items());
            match nth % 3 {
                1 => talk.add(
                    json!({"type": "function_call_output", "call_id": format!("call_{nth}"), "output": "r"}),
                ),
                _ => talk.say("More."),
            };
        }
        let unknown =
            toolrein.metric("toolrein_actions_total{policy=\"upstream_history\",action=\"unknown\"}");
        assert!(unknown < 0.5, "{unknown} references are unknown");
    }
}

#[test]
fn the_answer_to_a_question_is_taken_where_the_client_refers_to_the_question() {
    for (stream, asks_at) in BOTH.into_iter().flat_map(|stream| [0, 1].map(|asks_at| (stream, asks_at))) {
        let upstream = Scripted::start(move |nth, request| {
            let name = if nth == asks_at { "pay" } else { "f" };
            match nth > asks_at {
                true => Output::text(nth, "Paid.").reply(request),
                false => Output::calls(nth, &[(&nth.to_string(), name, "{}")]).reply(request),
            }
        });
        let toolrein = Toolrein::before(&upstream, "[policy.confirm]\ntools = [\"pay\"]\n");
        let mut talk = Talk::new(stream).with_tools(json!([tool("f"), tool("pay")]));
        if asks_at == 1 {
            let first = talk.ask(&toolrein);
            refer(&mut talk, first.items());
            talk.add(json!({"type": "function_call_output", "call_id": "call_0", "output": "r"}));
        }
        let question = talk.ask(&toolrein);
        assert_eq!(question.kinds(), ["assistant"]);
        refer(&mut talk, question.items());
        let approved = talk.say("yes").ask(&toolrein);
        assert_eq!(approved.items()[0]["name"], "pay", "{}", approved.text());
        refer(&mut talk, approved.items());
        let paid = &approved.items()[0];
        talk.add(json!({"type": "function_call_output", "call_id": paid["call_id"], "output": "paid"}));
        assert_eq!(talk.ask(&toolrein).said(), "Paid.");
        let sent = upstream.request(asks_at + 1).json().to_string();
        assert!(!sent.contains("item_reference"), "the upstream has no such item: {sent}");
    }
}

#[test]
fn an_approved_call_that_the_client_refers_to_goes_upstream_in_full() {
    let exit = json!({"type": "exit", "exit_code": 0});
    let shell = json!({"type": "shell_call", "id": "sh_0", "call_id": "call_0", "status": "completed",
        "action": {"commands": ["rm -r build"]}});
    let shell_output =
        json!({"type": "shell_call_output", "output": [{"stdout": "", "stderr": "", "outcome": exit}]});
    let local = json!({"type": "local_shell_call", "id": "lsh_0", "call_id": "call_0", "status": "completed",
        "action": {"type": "exec", "command": ["rm", "-r", "build"], "env": {}}});
    let local_output = json!({"type": "local_shell_call_output", "output": "{}"});
    for (stream, (tool, proposed, output, names_call)) in BOTH.into_iter().flat_map(|stream| {
        [
            (stream, ("shell", shell.clone(), shell_output.clone(), "call_id")),
            (stream, ("local_shell", local.clone(), local_output.clone(), "id")),
        ]
    }) {
        let call = proposed.clone();
        let upstream = Scripted::start(move |nth, request| match nth {
            0 => Output::new(nth).item(call.clone()).reply(request),
            _ => Output::text(nth, "Removed.").reply(request),
        });
        let settings = format!("[policy.confirm]\ntools = [\"{tool}\"]\n");
        let toolrein = Toolrein::before(&upstream, &settings);
        let mut talk = Talk::new(stream).with_tools(json!([{"type": tool}]));
        let question = talk.ask(&toolrein);
        refer(&mut talk, question.items());
        let approved = talk.say("yes").ask(&toolrein);
        refer(&mut talk, approved.items());
        let call = approved.items().iter().find(|item| item["type"] == proposed["type"]);
        let call = call.expect("the approved call");
        let mut output = output;
        output[names_call] = call[names_call].clone();
        let answer = talk.add(output).ask(&toolrein);
        refer(&mut talk, answer.items());
        talk.say("Thanks").ask(&toolrein);
        for nth in [1, 2] {
            let sent = upstream.request(nth).json();
            let input = sent["input"].as_array().unwrap();
            let is_call =
                |item: &&Value| item[names_call] == call[names_call] && item["action"] == proposed["action"];
            assert_eq!(input.iter().filter(is_call).count(), 1, "{sent}");
            let references = input.iter().filter(|item| item["type"] == "item_reference");
            let known = &answer.items()[0]["id"];
            assert!(references.into_iter().all(|item| item["id"] == *known), "{sent}");
        }
    }
}
