//! Conversations that the upstream keeps: `previous_response_id` against the simulated upstream, which stores responses
//! and refuses a chain in which any call lacks its result.

use crate::governed::talk::log_line;
use crate::support::client::{Request, Response};
use crate::support::program::{Toolrein, before};
use serde_json::{Value, json};

fn toolrein(policies: &str) -> Toolrein {
    Toolrein::start(&before("demo:", policies))
}

/// A tool that the simulated model calls for ever.
fn tools() -> Value {
    json!([{"type": "function", "name": "searchAll", "parameters": {"type": "object", "properties": {"query": {"type": "string"}}}}])
}

fn ask(toolrein: &Toolrein, previous: Option<&str>, input: &Value, caller: &str) -> Response {
    let mut body = json!({"model": "demo-runaway", "input": input, "tools": tools()});
    if let Some(previous) = previous {
        body["previous_response_id"] = previous.into();
    }
    let url = format!("{}/responses", toolrein.base_url());
    let request = Request::new("POST", &url, body.to_string()).header("content-type", "application/json");
    request.header("authorization", &format!("Bearer {caller}")).send()
}

/// The results for the calls of a reply.
fn results(reply: &Value) -> Vec<Value> {
    let calls = reply["output"].as_array().unwrap().iter().filter(|item| item["type"] == "function_call");
    let result = |(nth, call): (usize, &Value)| {
        let text = format!("result {nth} of {}", call["arguments"]);
        json!({"type": "function_call_output", "call_id": call["call_id"], "output": text})
    };
    calls.enumerate().map(result).collect()
}

/// Answers every call until the model makes none; returns the last reply and how many calls were made.
fn run(toolrein: &Toolrein, caller: &str) -> (Value, usize) {
    let mut reply = ask(toolrein, None, &json!("Use searchAll to find cats"), caller).json();
    let mut calls = 0;
    for _ in 0..30 {
        let results = results(&reply);
        if results.is_empty() {
            break;
        }
        calls += results.len();
        let id = reply["id"].as_str().unwrap().to_owned();
        let next = ask(toolrein, Some(&id), &results.into(), caller);
        assert_eq!(next.status, 200, "{}", next.text());
        reply = next.json();
    }
    (reply, calls)
}

const BUDGET: &str = "[policy.budget]\ntool_calls = 4\n";

#[test]
fn a_runaway_model_is_stopped_although_its_requests_show_no_history() {
    let toolrein = toolrein(BUDGET);
    let (last, calls) = run(&toolrein, "one");
    assert_eq!(calls, 4);
    let text = last["output"].as_array().unwrap().iter().find(|item| item["type"] == "message").unwrap();
    assert!(text["content"][0]["text"].as_str().is_some_and(|text| !text.is_empty()), "{last}");
    let line = log_line(&toolrein, 4);
    assert_eq!(line["limits"][0]["used"], 4, "{line}");
}

#[test]
fn the_client_continues_from_the_id_that_it_knows_after_the_model_was_asked_again() {
    let toolrein = toolrein(BUDGET);
    let (last, _) = run(&toolrein, "one");
    let id = last["id"].as_str().unwrap();
    // Sent twice: a chain may be forked, and a retry must give the same.
    for _ in 0..2 {
        let next = ask(&toolrein, Some(id), &json!("and now?"), "one");
        assert_eq!(next.status, 200, "no call of the chain lacks its result: {}", next.text());
        assert_eq!(results(&next.json()).len(), 1, "a new turn has a new budget");
    }
}

#[test]
fn an_id_of_another_caller_gives_no_access_to_what_is_known_of_its_conversation() {
    let toolrein = toolrein(BUDGET);
    let first = ask(&toolrein, None, &json!("Use searchAll to find cats"), "one").json();
    let results = Value::from(results(&first));
    for (nth, (caller, used)) in [("one", 2), ("other", 1)].into_iter().enumerate() {
        let reply = ask(&toolrein, first["id"].as_str(), &results, caller);
        assert_eq!(reply.status, 200, "{}", reply.text());
        let line = log_line(&toolrein, nth + 1);
        assert_eq!(line["limits"][0]["used"], used, "{line}");
    }
}

#[test]
fn a_conversation_that_is_not_known_is_governed_by_what_its_requests_show_and_counted() {
    let known = toolrein(BUDGET);
    let id = "resp_unknown";
    let refused = ask(&known, Some(id), &json!("and now?"), "one");
    assert_eq!(
        (refused.status, &refused.json()["error"]["code"]),
        (400, &json!("previous_response_not_found"))
    );
    known.wait_for_metric("toolrein_actions_total{policy=\"upstream_history\",action=\"unknown\"}", 1.0);
}

#[test]
fn a_conversation_that_is_not_known_is_refused_where_the_store_is_strict() {
    let toolrein = toolrein(&format!("{BUDGET}[store]\nstrict = true\n"));
    let refused = ask(&toolrein, Some("resp_unknown"), &json!("and now?"), "one");
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (400, &json!("history_unknown")));
    assert_eq!(ask(&toolrein, None, &json!("Use searchAll to find cats"), "one").status, 200);
}

#[test]
fn a_call_that_the_client_abandons_gets_an_honest_output_where_the_upstream_refuses_to_go_on_without() {
    let toolrein = toolrein("");
    let first = ask(&toolrein, None, &json!("Use searchAll to find cats"), "c").json();
    let (id, calls) = (first["id"].as_str().unwrap().to_owned(), results(&first).len());
    assert!(calls > 0);
    for _ in 0..2 {
        let next = ask(&toolrein, Some(&id), &json!("Never mind, what else is new?"), "c");
        assert_eq!(next.status, 200, "{}", next.text());
        assert!(next.header("x-toolrein-actions").unwrap_or_default().contains("broken_history=repaired"));
    }
    toolrein.wait_for_metric("toolrein_fallbacks_total{kind=\"repaired_pairs\"}", 1.0);
    // A complete chain is not changed, and one whose calls are not known here is repaired by what the refusal names.
    let answered = ask(&toolrein, Some(&id), &results(&first).into(), "c");
    assert_eq!(answered.status, 200);
    assert!(!answered.header("x-toolrein-actions").unwrap_or_default().contains("broken_history"));
    let unknown = ask(&toolrein, Some(&id), &json!("And?"), "another caller");
    assert_eq!(unknown.status, 200, "{}", unknown.text());
    assert!(unknown.header("x-toolrein-actions").unwrap_or_default().contains("broken_history=repaired"));
}
