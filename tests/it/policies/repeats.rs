//! A model that repeats the very call that was just blocked: it has read why, so the next request is the one for its final
//! answer, in both dialects and forms.

use crate::policies::progress::Dialect;
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::responses::Output;
use crate::support::responses_kit;
use crate::support::scripted::{Recorded, Scripted};
use crate::support::talk::{Form, Talk, in_both_forms, text};
use serde_json::json;

/// The requests that the upstream got for one client request of a model that calls `calls` in turn, the last of them
/// for ever, whatever it reads; and what the client got.
fn asked(calls: &'static [(&'static str, &'static str)], dialect: Dialect, stream: bool) -> (usize, String) {
    let upstream = Scripted::start(move |nth: usize, request: &Recorded| {
        let is_final = request.json()["tool_choice"] == "none" || request.json()["tools"].is_null();
        let (tool, arguments) = calls[nth.min(calls.len() - 1)];
        let id = format!("call_{nth}");
        match dialect {
            Dialect::Chat if is_final => text("I stop.", request),
            Dialect::Chat => Reply::speech(request, &Speech::calls(&[(&id, tool, arguments)])),
            Dialect::Responses if is_final => Output::text(nth, "I stop.").reply(request),
            Dialect::Responses => Output::calls(nth, &[(&nth.to_string(), tool, arguments)]).reply(request),
        }
    });
    let program = Toolrein::before(&upstream, "[policy.allow]\nexcept = [\"fetch\"]\n");
    let said = match dialect {
        Dialect::Chat => {
            let talk = Talk::new(if stream { Form::Streamed } else { Form::Whole });
            let said = talk.ask(&program);
            said.assert_coherent(talk.form);
            assert!(said.calls.is_empty());
            said.text
        }
        Dialect::Responses => {
            let tools = json!([responses_kit::tool("search"), responses_kit::tool("fetch")]);
            responses_kit::Talk::new(stream).with_tools(tools).ask(&program).said()
        }
    };
    upstream.assert_clean();
    (upstream.requests().len(), said)
}

#[test]
fn a_model_that_repeats_the_call_that_was_just_blocked_is_asked_for_its_answer_at_once() {
    for dialect in [Dialect::Chat, Dialect::Responses] {
        for stream in [false, true] {
            for (calls, requests) in [
                (&[("fetch", r#"{"u":1,"v":2}"#)][..], 3),
                (&[("fetch", r#"{"u":1,"v":2}"#), ("fetch", r#"{ "v": 2, "u": 1.0 }"#)], 3),
                (&[("fetch", r#"{"u":1}"#), ("fetch", r#"{"u":2}"#), ("fetch", r#"{"u":1}"#)], 4),
                // Other calls are other tries.
                (
                    &[
                        ("fetch", r#"{"u":1}"#),
                        ("fetch", r#"{"u":2}"#),
                        ("fetch", r#"{"u":3}"#),
                        ("fetch", r#"{"u":4}"#),
                        ("fetch", r#"{"u":5}"#),
                    ],
                    5,
                ),
            ] {
                let found = asked(calls, dialect, stream);
                assert_eq!(found, (requests, "I stop.".to_owned()), "{calls:?} {dialect:?} {stream}");
            }
        }
    }
}

/// A model whose every reply makes the calls `made`.
fn asked_in_parallel(made: &'static [(&'static str, &'static str)], dialect: Dialect, stream: bool) -> usize {
    let upstream = Scripted::start(move |nth: usize, request: &Recorded| {
        let is_final = request.json()["tool_choice"] == "none" || request.json()["tools"].is_null();
        let ids: Vec<String> = (0..made.len()).map(|at| format!("call_{nth}x{at}")).collect();
        let calls: Vec<_> =
            ids.iter().zip(made).map(|(id, (tool, arguments))| (id.as_str(), *tool, *arguments)).collect();
        match dialect {
            Dialect::Chat if is_final => text("I stop.", request),
            Dialect::Chat => Reply::speech(request, &Speech::calls(&calls)),
            Dialect::Responses if is_final => Output::text(nth, "I stop.").reply(request),
            Dialect::Responses => Output::calls(nth, &calls).reply(request),
        }
    });
    let policies = "[policy.allow]\nexcept = [\"fetch\"]\n[policy.confirm]\ntools = [\"pay\"]\n";
    let program = Toolrein::before(&upstream, policies);
    let said = match dialect {
        Dialect::Chat => Talk::new(if stream { Form::Streamed } else { Form::Whole }).ask(&program).text,
        Dialect::Responses => {
            let tools = json!(["fetch", "pay"].map(responses_kit::tool));
            responses_kit::Talk::new(stream).with_tools(tools).ask(&program).said()
        }
    };
    assert_eq!(said, "I stop.", "{made:?} {dialect:?} {stream}");
    upstream.assert_clean();
    upstream.requests().len()
}

#[test]
fn a_model_that_repeats_a_blocked_call_beside_one_that_needs_an_approval_is_asked_for_its_answer() {
    for dialect in [Dialect::Chat, Dialect::Responses] {
        for stream in [false, true] {
            for made in [
                &[("fetch", "{\"u\":1}"), ("pay", "{\"u\":1}")][..],
                &[("pay", "{\"u\":1}"), ("fetch", "{\"u\":1}")],
                &[("pay", "{\"u\":1}"), ("fetch", "{\"u\":1}"), ("pay", "{\"u\":2}")],
            ] {
                assert_eq!(asked_in_parallel(made, dialect, stream), 3, "{made:?} {dialect:?} {stream}");
            }
        }
    }
}

#[test]
fn a_call_that_was_blocked_in_the_request_before_is_not_asked_about_again() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| {
            let calls = [("fetch", "{\"u\":1}"), ("search", "{\"q\":1}"), ("fetch", "{\"u\":1}")];
            match calls.get(nth) {
                Some((tool, arguments)) if request.json()["tool_choice"] != "none" => {
                    Reply::speech(request, &Speech::calls(&[(&format!("call_{nth}xK3p9"), tool, arguments)]))
                }
                _ => text("I stop.", request),
            }
        });
        let program = Toolrein::before(&upstream, "[policy.allow]\nexcept = [\"fetch\"]\n");
        let mut talk = Talk::new(form);
        let said = talk.ask(&program);
        assert_eq!(said.calls.len(), 1, "search, after fetch was blocked");
        talk.add(&said);
        let said = talk.ask(&program);
        assert_eq!((said.text.as_str(), said.calls.len()), ("I stop.", 0));
        let requests = upstream.requests();
        assert_eq!(requests.len(), 4);
        assert_eq!(requests[3].json()["tool_choice"], "none");
    });
}
