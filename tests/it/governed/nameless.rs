//! Upstreams that give calls no ids, as Gemini's did, and clients that invent ids or number their calls anew in every
//! request: calls that come back under other ids are recognised as the calls that were handed out.

use crate::governed::talk::{BOTH, chat, question};
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::Scripted;
use serde_json::{Value, json};

/// The conversation after the model called `f` so many times, one call at a time, under ids that the client invented.
fn after(calls: usize, stream: bool) -> String {
    let mut body: Value = serde_json::from_str(&question(stream)).unwrap();
    let messages = body["messages"].as_array_mut().unwrap();
    for nth in 0..calls {
        let id = format!("invented_{nth}");
        let arguments = format!("{{\"a\":{nth}}}");
        let call = json!({"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}});
        messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": format!("r{nth}")}));
    }
    body.to_string()
}

#[test]
fn calls_without_ids_count_in_their_window_though_the_client_invents_ids() {
    for stream in BOTH {
        let upstream = Scripted::start(|_, request| {
            let messages = request.json()["messages"].as_array().unwrap().len();
            let arguments = format!("{{\"a\":{}}}", messages / 2);
            Reply::speech(request, &Speech::calls(&[("", "f", &arguments)]))
        });
        let settings = "reask.max = 0\n[policy.rate_limit]\ndefault = { calls = 3, per = \"1h\" }\n";
        let toolrein = Toolrein::before(&upstream, settings);
        for calls in 0..3 {
            let reply = chat(&toolrein, after(calls, stream));
            assert!(reply.text().contains("tool_calls\":[{"), "call {calls}: {}", reply.text());
        }
        let reply = chat(&toolrein, after(3, stream));
        assert!(!reply.text().contains("tool_calls\":[{"), "the fourth within the hour: {}", reply.text());
    }
}

#[test]
fn a_call_without_an_id_that_was_blocked_comes_back_beside_one_whose_id_was_invented() {
    for stream in BOTH {
        let upstream = Scripted::start(|nth, request| {
            let calls = [("", "f", "{\"a\":0}"), ("", "f", "{\"b\":0}")];
            Reply::speech(request, &if nth == 0 { Speech::calls(&calls) } else { Speech::text("ok") })
        });
        let settings = "[policy.budget]\ntool_calls = 1\nnotify_at = [1.0]\n";
        let toolrein = Toolrein::before(&upstream, settings);
        chat(&toolrein, question(stream));
        chat(&toolrein, after(1, stream));
        let seen = String::from_utf8(upstream.request(1).body).unwrap();
        assert!(seen.contains("{\\\"b\\\":0}") && seen.contains("BUDGET_EXCEEDED"), "{seen}");
    }
}

/// `calls` calls of `f`, each answered, under ids that begin with `prefix`.
fn numbered(prefix: &str, calls: usize, stream: bool) -> String {
    after(calls, stream).replace("invented_", prefix)
}

#[test]
fn calls_that_the_client_numbers_anew_in_every_request_count_in_their_window() {
    for stream in BOTH {
        let upstream = Scripted::start(|nth, request| {
            let messages = request.json()["messages"].as_array().unwrap().len();
            let arguments = format!("{{\"a\":{}}}", messages / 2);
            Reply::speech(request, &Speech::calls(&[(&format!("call_{nth}"), "f", &arguments)]))
        });
        let settings = "reask.max = 0\n[policy.rate_limit]\ndefault = { calls = 3, per = \"1h\" }\n";
        let toolrein = Toolrein::before(&upstream, settings);
        for calls in 0..3 {
            let reply = chat(&toolrein, numbered(&format!("request_{calls}_"), calls, stream));
            assert!(reply.text().contains("tool_calls\":[{"), "call {calls}: {}", reply.text());
        }
        for prefix in ["request_3_", "call_", "x"] {
            let reply = chat(&toolrein, numbered(prefix, 3, stream));
            assert!(
                !reply.text().contains("tool_calls\":[{"),
                "the fourth within the hour: {}",
                reply.text()
            );
        }
        // Another conversation with the same call at another place has its own window.
        let other = numbered("other_", 2, stream).replace("\"r0\"", "\"another result\"");
        let reply = chat(&toolrein, other);
        assert!(reply.text().contains("tool_calls\":[{"), "{}", reply.text());
    }
}
