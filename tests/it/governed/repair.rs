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

#[test]
fn an_output_whose_call_the_upstream_keeps_is_not_repaired() {
    let refusal = "No tool output found for function call call_1.";
    for stream in BOTH {
        let upstream =
            Scripted::start(move |_, _| Reply::error(400, "invalid_request_error", "bad", refusal));
        let toolrein = Toolrein::before(&upstream, "");
        let mut talk = Talk::new(stream);
        talk.body["previous_response_id"] = "resp_1".into();
        talk.body["input"] = json!([{"type": "function_call_output", "call_id": "call_9", "output": "r"}]);
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
