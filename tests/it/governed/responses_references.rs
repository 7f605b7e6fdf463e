//! Requests of the Responses API that only refer to earlier items: a referenced call counts as the call that it is.

use crate::governed::talk::BOTH;
use crate::support::client::post;
use crate::support::program::Toolrein;
use crate::support::responses::Output;
use crate::support::responses_kit::{Talk, may_call, url};
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
