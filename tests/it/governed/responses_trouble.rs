//! Failures on the Responses API: streams that are cut, clients that leave, re-asks that fail, and forms of the path;
//! and how the log and the metrics report them.

use crate::governed::talk::{BOTH, GENEROUS, budget, log_line};
use crate::support::client::Request;
use crate::support::program::Toolrein;
use crate::support::reply::{Gate, Reply};
use crate::support::responses::{Output, event, events};
use crate::support::responses_kit::{Talk, tool, url};
use crate::support::scripted::Scripted;
use serde_json::{Value, json};

const BLOCKS_G: &str = "[policy.allow]\nexcept = [\"g\"]\n";

fn talk(stream: bool) -> Talk {
    Talk::new(stream).with_tools(json!([tool("f"), tool("g")]))
}

fn is_whole(text: &str) -> bool {
    text.contains("response.completed") || text.contains("response.incomplete")
}

/// Whether sequence numbers rise by one from event to event.
fn is_dense(text: &str) -> bool {
    events(text).iter().enumerate().all(|(at, event)| event["sequence_number"] == at)
}

#[test]
fn a_stream_that_is_cut_never_ends_as_if_it_were_whole() {
    let all = Output::new(0).thinks().call("b", "g", "{}").says("one two").call("a", "f", "{}");
    let all = all.events(&talk(true).body);
    for cut in 1..all.len() {
        for by_connection in BOTH {
            for settings in [GENEROUS, BLOCKS_G] {
                let reply = Reply::stream(all[..cut].iter().map(event));
                let upstream = Scripted::queue([if by_connection { reply.cut_after(cut) } else { reply }]);
                let toolrein = Toolrein::before(&upstream, settings);
                let got = Request::post(&url(&toolrein), talk(true).body.to_string()).send();
                let text = got.text();
                assert!(!is_whole(&text), "after {cut}: {text}");
                assert_eq!(got.cut, by_connection, "after {cut}");
                assert!(is_dense(&text), "after {cut}: {text}");
                let own = events(&text).into_iter().filter(|event| event["type"] == "error");
                for error in own {
                    assert_eq!(error["request_id"].as_str(), got.header("x-toolrein-request-id"), "{text}");
                }
                if settings == BLOCKS_G {
                    assert!(!text.contains("call_b") && !text.contains("fc_b"), "after {cut}: {text}");
                }
            }
        }
    }
}

#[test]
fn a_re_ask_that_fails_ends_the_stream_as_failed_and_a_whole_reply_with_the_refusal() {
    for stream in BOTH {
        let upstream = Scripted::start(|nth, request| match nth {
            0 => Output::new(0).thinks().call("b", "g", "{}").reply(request),
            _ => Reply::error(429, "requests", "rate_limit_exceeded", "slow down"),
        });
        let toolrein = Toolrein::before(&upstream, BLOCKS_G);
        let got = Request::post(&url(&toolrein), talk(stream).body.to_string()).send();
        let text = got.text();
        assert!(text.contains("slow down") && !text.contains("call_b") && !is_whole(&text), "{text}");
        if !stream {
            assert_eq!(got.status, 429);
            continue;
        }
        assert!(is_dense(&text), "{text}");
        let [.., error, end] = &events(&text)[..] else { panic!("{text}") };
        assert_eq!((&error["type"], &error["message"]), (&json!("error"), &json!("slow down")));
        assert_eq!((&end["type"], &end["response"]["id"]), (&json!("response.failed"), &json!("resp_0")));
        assert_eq!(end["response"]["error"]["code"], "rate_limit_exceeded");
    }
}

#[test]
fn a_client_that_leaves_lets_the_upstream_go() {
    let events = Output::text(0, "one two").events(&talk(true).body);
    for held in [3, 5, 7] {
        let reply = Reply::stream(events.iter().map(event)).held_after(held, &Gate::shut());
        let upstream = Scripted::queue([reply]);
        let toolrein = Toolrein::before(&upstream, GENEROUS);
        let mut stream = Request::post(&url(&toolrein), talk(true).body.to_string()).open();
        stream.until("response.output_item.added");
        stream.hang_up();
        upstream.wait_for_hang_up(0);
        toolrein.wait_for_metric("toolrein_client_gone_total", 1.0);
        toolrein.wait_for_metric("toolrein_streams_open", 0.0);
        assert_eq!(log_line(&toolrein, 0)["client_gone"], true);
    }
}

#[test]
fn no_spelling_of_the_path_that_a_server_takes_for_it_escapes_the_policies() {
    let upstream = Scripted::start(|_, request| Output::calls(0, &[("b", "g", "{}")]).reply(request));
    let toolrein = Toolrein::before(&upstream, &format!("reask.max = 0\n{BLOCKS_G}"));
    let send = |path: &str| {
        let got = Request::post(&format!("{}{path}", toolrein.origin()), talk(false).body.to_string()).send();
        assert_eq!(upstream.requests().last().unwrap().path, path, "it goes up as the client spelled it");
        got.text()
    };
    for path in [
        "/v1/responses",
        "/responses",
        "/backend-api/codex/responses",
        "/openai/v1/responses?api-version=preview",
        "/v1/responses?beta=true",
        "/v1//responses",
        "/v1/responses/",
        "/v1/responses//",
        "/v1/./responses",
        "/v1/responses/.",
        "/v1/x/../responses",
        "/v1/responses/x/..",
        "/v1/%72esponses",
        "/v1%2Fresponses",
        "/v1/%2e/responses",
        "/v1/responses/?x",
        "/V1/Responses",
        "/v1/responses;a=b",
        "/v1/x/..;/responses;y",
        "/v1\\responses",
        "/v1%5Cresponses",
        "/v1%252Fresponses",
        "/v1/%252525252572esponses",
        "/v1/responses%3Fx",
        "/v1/responses%20",
    ] {
        assert!(!send(path).contains("call_b"), "{path}");
    }
    for path in ["/v1/responses-x", "/v1/response", "/v1/responses/.."] {
        assert!(send(path).contains("call_b"), "{path} is relayed");
    }
}

#[test]
fn the_log_line_and_the_metrics_are_those_of_chat_completions() {
    for (nth, stream) in BOTH.into_iter().enumerate() {
        let upstream = Scripted::start(|nth, request| {
            let calls = [("a", "f", "{}"), ("b", "f", "{}")];
            Output::calls(nth, &calls).reply(request).header("x-request-id", "up-9")
        });
        let toolrein = Toolrein::before(&upstream, &budget(1));
        let body = talk(stream).body.to_string();
        let request = Request::post(&url(&toolrein), &body).header("x-session-id", "talk");
        let got = request.header("x-request-id", "req-7").send();
        let line = log_line(&toolrein, 0);
        for (field, expected) in [
            ("request_id", json!("req-7")),
            ("conversation", json!("talk")),
            ("model", json!("gpt-5")),
            ("route", json!("responses")),
            ("endpoint", json!("responses")),
            ("status", json!(200)),
            ("path", json!("/v1/responses")),
            ("upstream_requests", json!(1)),
            ("upstream_request_ids", json!(["up-9"])),
            ("request_bytes", json!(body.len())),
            ("reply_bytes", json!(got.body.len())),
            ("tokens_prompt", json!(20)),
            ("tokens_completion", json!(5)),
            ("actions", json!([{"policy": "budget", "action": "blocked", "count": 1}])),
            (
                "tool_calls",
                json!([
                    {"name": "f", "id": "call_a", "verdict": "allow"},
                    {"name": "f", "id": "call_b", "verdict": "block", "policy": "budget",
                        "reason": "BUDGET_EXCEEDED", "used": 1, "limit": 1},
                ]),
            ),
        ] {
            assert_eq!(line[field], expected, "{field}, stream {nth}: {line}");
        }
        assert_eq!(line["streamed"] == true, stream);
        assert_eq!(line.get("client_gone"), None::<&Value>);
        for (series, value) in [
            ("toolrein_requests_total{endpoint=\"responses\",status=\"200\"}", 1.0),
            ("toolrein_tool_calls_total{verdict=\"allow\"}", 1.0),
            ("toolrein_tool_calls_total{verdict=\"block\"}", 1.0),
            ("toolrein_actions_total{policy=\"budget\",action=\"blocked\"}", 1.0),
        ] {
            toolrein.wait_for_metric(series, value);
        }
    }
}
