//! Chains by `previous_response_id` in which replies were asked again: the upstream continues from its own last reply, and
//! every request is JSON.

use crate::governed::talk::BOTH;
use crate::support::client::post;
use crate::support::program::Toolrein;
use crate::support::responses::{Output, events};
use crate::support::responses_kit::{error_type, input, tool, url};
use crate::support::scripted::Scripted;
use serde_json::{Value, json};

/// Asks with what the client sends now, and returns the response.
fn ask(toolrein: &Toolrein, stream: bool, previous: Option<&str>, now: &Value) -> Value {
    let mut body = json!({"model": "gpt-5", "stream": stream, "input": now, "tools": [tool("f"), tool("g")]});
    if let Some(previous) = previous {
        body["previous_response_id"] = previous.into();
    }
    let response = post(&url(toolrein), body.to_string());
    assert_eq!(response.status, 200, "{}", response.text());
    match stream {
        true => events(&response.text()).pop().unwrap()["response"].clone(),
        false => response.json(),
    }
}

const FORBIDS: &str = "[policy.allow]\nexcept = [\"g\"]\n";

#[test]
fn a_chained_reply_that_was_asked_again_is_continued_by_one_that_is_asked_again_too() {
    for stream in BOTH {
        // Every other reply is a blocked call.
        let upstream = Scripted::start(|nth, request| match nth % 2 {
            0 => Output::new(nth).thinks().call(&nth.to_string(), "g", "{}").reply(request),
            _ => Output::text(nth, "Then without.").reply(request),
        });
        let toolrein = Toolrein::before(&upstream, FORBIDS);
        let mut known: Option<String> = None;
        for turn in 0..4 {
            let text = format!("question {turn}");
            let reply = ask(&toolrein, stream, known.as_deref(), &json!(text));
            assert_eq!(reply["id"], format!("resp_{}", 2 * turn), "the first reply's id is shown");
            known = reply["id"].as_str().map(str::to_owned);
            let (first, again) = (upstream.request(2 * turn), upstream.request(2 * turn + 1));
            let before = if turn == 0 { Value::Null } else { json!(format!("resp_{}", 2 * turn - 1)) };
            assert_eq!(
                first.json()["previous_response_id"],
                before,
                "{}",
                String::from_utf8_lossy(&first.body)
            );
            let body = String::from_utf8_lossy(&again.body);
            if turn > 0 {
                assert_eq!(again.json()["previous_response_id"], format!("resp_{}", 2 * turn), "{body}");
                assert_eq!(
                    input(&again).iter().map(error_type).collect::<Vec<_>>(),
                    ["MODE_RESTRICTED"],
                    "{body}"
                );
            }
            assert_eq!(upstream.requests().len(), 2 * turn + 2, "{body}");
        }
        upstream.assert_clean();
    }
}

#[test]
fn results_that_the_upstream_still_waits_for_are_sent_once_however_often_it_is_asked() {
    for stream in BOTH {
        let upstream = Scripted::start(|nth, request| match nth {
            // Of the first reply, one call is blocked and the other runs; the second is asked again twice.
            0 => Output::calls(0, &[("a", "f", "{}"), ("b", "g", "{}")]).reply(request),
            1 | 2 => Output::calls(nth, &[(&nth.to_string(), "g", "{}")]).reply(request),
            _ => Output::text(nth, "Fine.").reply(request),
        });
        let toolrein = Toolrein::before(&upstream, FORBIDS);
        let first = ask(&toolrein, stream, None, &json!("q"));
        let result = json!([{"type": "function_call_output", "call_id": "call_a", "output": "r"}]);
        ask(&toolrein, stream, first["id"].as_str(), &result);
        let ids = |nth: usize| -> Vec<Value> {
            input(&upstream.request(nth)).iter().map(|item| item["call_id"].clone()).collect()
        };
        assert_eq!(
            (ids(1), ids(2), ids(3)),
            (vec![json!("call_b"), json!("call_a")], vec![json!("call_1")], vec![json!("call_2")])
        );
        let previous: Vec<Value> =
            (1..4).map(|nth| upstream.request(nth).json()["previous_response_id"].clone()).collect();
        assert_eq!(previous, ["resp_0", "resp_1", "resp_2"]);
        upstream.assert_clean();
    }
}

#[test]
fn a_chain_that_goes_on_without_anything_new_gets_its_notice_as_valid_json() {
    for stream in BOTH {
        for now in [
            json!([]),
            json!("and?"),
            json!([{"type": "function_call_output", "call_id": "call_0", "output": "r"}]),
        ] {
            let upstream = Scripted::start(|nth, request| {
                Output::calls(nth, &[(&nth.to_string(), "f", "{}")]).reply(request)
            });
            let toolrein = Toolrein::before(
                &upstream,
                "[policy.budget]\ntool_calls = 4\nnotify_at = [0.1]\nnotify = \"every_result\"\n",
            );
            let first = ask(&toolrein, stream, None, &json!("q"));
            ask(&toolrein, stream, first["id"].as_str(), &now);
            let body = upstream.request(1).body;
            assert!(serde_json::from_slice::<Value>(&body).is_ok(), "{}", String::from_utf8_lossy(&body));
        }
    }
}
