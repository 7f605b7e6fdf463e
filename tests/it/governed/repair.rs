//! Broken histories and tools that are refused in streams alone, on the Responses API.

use crate::governed::talk::BOTH;
use crate::support::client::Request;
use crate::support::program::Toolrein;
use crate::support::reply::Reply;
use crate::support::responses::{Output, flaws};
use crate::support::responses_kit::{Talk, input, name, sent, url};
use crate::support::scripted::{Recorded, Scripted};
use mock::strict_responses::violations;
use serde_json::{Value, json};

const STREAMS: &str = "ValidationException: This model doesn't support tool use in streaming mode.";

/// An upstream that refuses what OpenAI refuses.
fn strict() -> Scripted {
    Scripted::start(|nth, request| match violations(&request.body).first() {
        None => Output::text(nth, "Fine.").reply(request),
        Some(violation) => Reply::error(400, "invalid_request_error", "bad", violation),
    })
}

fn names(request: &Recorded) -> Vec<String> {
    input(request).iter().map(name).collect()
}

#[test]
fn calls_without_outputs_and_outputs_without_calls_are_repaired_once_and_then_at_once() {
    for stream in BOTH {
        let upstream = strict();
        let toolrein = Toolrein::before(&upstream, "");
        let mut talk = Talk::new(stream);
        talk.called("1", "{}", &json!("r"));
        talk.add(Output::calls("x", &[("2", "f", "{}")]).items()[0].clone());
        talk.say("Go on.");
        talk.add(json!({"type": "function_call_output", "call_id": "call_9", "output": "lost"}));
        let answer = talk.ask(&toolrein);
        assert_eq!(answer.said(), "Fine.");
        let repaired = sent(&upstream, 1);
        assert_eq!(repaired, ["user", "function:1", "=1", "function:2", "=2", "user", "user"]);
        let items = input(&upstream.request(1));
        assert!(items[4]["output"].as_str().unwrap().contains("RESULT_UNKNOWN"), "{}", items[4]);
        assert!(items[6]["content"][0]["text"].as_str().unwrap().ends_with("lost"), "{}", items[6]);
        talk.go_on(&answer).say("And?");
        assert_eq!(talk.ask(&toolrein).said(), "Fine.");
        assert_eq!(upstream.requests().len(), 3, "repaired at once");
        assert_eq!(input(&upstream.request(2))[..items.len()], items, "the history is a prefix");
        let healthy = Talk::new(stream);
        healthy.ask(&toolrein);
        assert_eq!(upstream.request(3).body, healthy.body.to_string().as_bytes());
        toolrein.wait_for_metric("toolrein_fallbacks_total{kind=\"repaired_pairs\"}", 1.0);
    }
}

/// The calls of a request's items that have an output.
fn answered(request: &Recorded) -> Vec<String> {
    let outputs =
        input(request).into_iter().filter(|item| item["type"].as_str().unwrap().ends_with("_output"));
    outputs.map(|item| item["call_id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn open_calls_of_a_conversation_that_is_not_known_are_answered_as_unknown_as_its_upstream_names_them() {
    for (stream, key) in BOTH.into_iter().zip(["previous_response_id", "conversation"]) {
        let upstream = Scripted::start(|nth, request| {
            let (given, open) = (answered(request), ["call_10", "call_1"]);
            match open.into_iter().find(|id| !given.iter().any(|known| known == id)) {
                None => Output::text(nth, "Fine.").reply(request),
                Some(id) => {
                    let refusal = format!("No tool output found for function call {id}.");
                    Reply::error(400, "invalid_request_error", "bad", &refusal)
                }
            }
        });
        let toolrein = Toolrein::before(&upstream, "");
        let mut talk = Talk::new(stream);
        talk.body[key] = "resp_1".into();
        talk.body["input"] = "Go on.".into();
        let answer = talk.ask(&toolrein);
        assert_eq!(answer.said(), "Fine.");
        let last = upstream.request(2);
        assert_eq!(
            (answered(&last), last.json()[key].as_str()),
            (vec!["call_10".into(), "call_1".into()], Some("resp_1"))
        );
        let items = input(&last);
        assert!(items[0]["output"].as_str().unwrap().contains("RESULT_UNKNOWN"), "{}", items[0]);
        assert_eq!((&items[2]["role"], &items[2]["content"]), (&json!("user"), &json!("Go on.")));
        toolrein.wait_for_metric("toolrein_fallbacks_total{kind=\"repaired_pairs\"}", 2.0);
    }
}

#[test]
fn a_refusal_that_the_answer_to_the_open_call_does_not_end_reaches_the_client_after_one_try() {
    let custom = "No tool output found for custom tool call call_1.";
    for (refusal, requests) in [(custom, 2), ("No tool output found for function call call_9.", 1)] {
        for stream in BOTH {
            let upstream =
                Scripted::start(move |_, _| Reply::error(400, "invalid_request_error", "bad", refusal));
            let toolrein = Toolrein::before(&upstream, "");
            let mut talk = Talk::new(stream);
            talk.body["previous_response_id"] = "resp_1".into();
            let output = json!({"type": "function_call_output", "call_id": "call_9", "output": "r"});
            talk.body["input"] = json!([output]);
            let got = Request::post(&url(&toolrein), talk.body.to_string()).send();
            assert_eq!((got.status, upstream.requests().len()), (400, requests), "{}", got.text());
            assert!(got.text().contains(refusal), "{}", got.text());
            if let Some(last) = upstream.requests().get(1) {
                assert_eq!(input(last)[0]["type"], "custom_tool_call_output");
                assert_eq!(input(last)[1], output);
            }
        }
    }
}

#[test]
fn an_open_call_is_not_answered_where_the_client_sends_its_history_or_the_setting_forbids_it() {
    let refusal = "No tool output found for function call call_1.";
    for (settings, key) in [("", "user"), ("upstream.broken_history = \"pass\"\n", "previous_response_id")] {
        let upstream =
            Scripted::start(move |_, _| Reply::error(400, "invalid_request_error", "bad", refusal));
        let toolrein = Toolrein::before(&upstream, settings);
        let mut talk = Talk::new(false);
        talk.body[key] = "resp_1".into();
        let got = Request::post(&url(&toolrein), talk.body.to_string()).send();
        assert_eq!((got.status, upstream.requests().len()), (400, 1), "{}", got.text());
    }
}

#[test]
fn the_setting_pass_passes_the_refusal_on() {
    for stream in BOTH {
        let upstream = strict();
        let toolrein = Toolrein::before(&upstream, "upstream.broken_history = \"pass\"\n");
        let mut talk = Talk::new(stream);
        talk.add(json!({"type": "function_call_output", "call_id": "call_9", "output": "lost"}));
        let got = Request::post(&url(&toolrein), talk.body.to_string()).send();
        assert_eq!((got.status, upstream.requests().len()), (400, 1));
        assert_eq!(names(&upstream.request(0)), ["user", "=9"]);
    }
}

#[test]
fn tools_that_are_refused_in_streams_are_asked_for_whole_and_the_client_gets_a_stream() {
    let upstream = Scripted::start(|nth, request| match request.json()["stream"] == true {
        true => Reply::error(400, "invalid_request_error", "bad", STREAMS),
        false => Output::new(nth).thinks().says("Look:").call("a", "f", "{\"q\":1}").reply(request),
    });
    let toolrein = Toolrein::before(&upstream, "");
    for requests in [2, 3] {
        let answer = Talk::new(true).ask(&toolrein);
        assert_eq!(answer.response.header("content-type"), Some("text/event-stream"));
        let kinds = answer.kinds();
        assert!(kinds[0].starts_with("reasoning"), "{kinds:?}");
        assert_eq!(kinds[1..], ["assistant", "function:a"]);
        assert_eq!(flaws(&answer.text()), Vec::<String>::new());
        assert!(answer.end["usage"]["total_tokens"].is_u64());
        assert_eq!(upstream.requests().len(), requests, "remembered");
        let last: Value = upstream.request(requests - 1).json();
        assert_eq!(last["stream"], false);
    }
    toolrein.wait_for_metric("toolrein_fallbacks_total{kind=\"streaming\"}", 1.0);
}
