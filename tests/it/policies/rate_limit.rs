//! `rate_limit.wait`: a call whose window opens soon is held until then and released; what would have to wait longer is
//! blocked, and nothing is counted that did not go out.

use crate::support::client::{Connection, Request};
use crate::support::program::Toolrein;
use crate::support::reply::{Gate, Reply, Speech};
use crate::support::responses::Output;
use crate::support::responses_kit::{Talk as Responses, url};
use crate::support::scripted::{Recorded, Scripted};
use crate::support::talk::{Form, Said, Talk, in_both_forms, text};
use crate::support::until;
use serde_json::json;
use std::time::{Duration, Instant};

const WAITED: &str = "toolrein_actions_total{policy=\"rate_limit\",action=\"waited\"}";
const BLOCKED: &str = "toolrein_actions_total{policy=\"rate_limit\",action=\"blocked\"}";
const CALLS: [(&str, &str, &str); 4] =
    [("a", "search", "{\"q\":1}"), ("b", "search", "{\"q\":2}"), ("c", "fetch", "{}"), ("d", "search", "{}")];

/// One search in `per`, and no other limit.
fn settings(per: &str, wait: &str) -> String {
    format!(
        "[policy.rate_limit]\ntools = {{ search = {{ calls = 1, per = \"{per}\" }} }}\nwait = \"{wait}\"\n"
    )
}

/// Makes all calls at once, and answers where it is shown that one was blocked.
fn calls(_: usize, request: &Recorded) -> Reply {
    match request.json()["messages"].to_string().contains("RATE_LIMIT") {
        true => text("As you like.", request),
        false => Reply::speech(request, &Speech::calls(&CALLS)),
    }
}

/// The same on the Responses API.
fn responses_calls(nth: usize, request: &Recorded) -> Reply {
    match request.json()["input"].to_string().contains("RATE_LIMIT") {
        true => Output::text(nth, "As you like.").reply(request),
        false => Output::calls(nth, &CALLS).reply(request),
    }
}

fn ids(said: &Said) -> Vec<&str> {
    said.calls.iter().map(|(id, ..)| id.as_str()).collect()
}

#[test]
fn calls_are_held_each_for_its_time_and_go_out_in_their_order() {
    in_both_forms(|form| {
        let upstream = Scripted::start(calls);
        let program = Toolrein::before(&upstream, &settings("300ms", "20s"));
        let begun = Instant::now();
        let said = Talk::new(form).ask(&program);
        assert!(begun.elapsed() >= Duration::from_millis(600), "{:?}", begun.elapsed());
        said.assert_coherent(form);
        assert_eq!(ids(&said), ["a", "b", "c", "d"], "{}", said.response.text());
        assert_eq!(said.calls[1].2, "{\"q\":2}");
        assert_eq!(upstream.requests().len(), 1, "nobody is asked again");
        program.wait_for_metric(WAITED, 2.0);
        assert_eq!(program.metric(BLOCKED), 0.0);
        assert_eq!(program.metric("toolrein_tool_calls_total{tool=\"search\",verdict=\"allow\"}"), 3.0);
    });
}

#[test]
fn calls_are_delayed_and_released_in_order_on_the_responses_api() {
    for stream in [false, true] {
        let upstream = Scripted::start(responses_calls);
        let program = Toolrein::before(&upstream, &settings("300ms", "20s"));
        let begun = Instant::now();
        let answer = Responses::new(stream).with_tools(json!([tool("search"), tool("fetch")])).ask(&program);
        assert!(begun.elapsed() >= Duration::from_millis(600), "{:?}", begun.elapsed());
        assert_eq!(answer.kinds(), ["function:a", "function:b", "function:c", "function:d"]);
        assert_eq!(answer.items()[1]["arguments"], "{\"q\":2}");
        assert_eq!(upstream.requests().len(), 1);
        program.wait_for_metric(WAITED, 2.0);
    }
}

fn tool(name: &str) -> serde_json::Value {
    crate::support::responses_kit::tool(name)
}

#[test]
fn what_would_wait_too_long_in_sum_is_blocked_and_the_model_reads_why() {
    in_both_forms(|form| {
        let upstream = Scripted::start(calls);
        let program = Toolrein::before(&upstream, &settings("2s", "3s"));
        let mut talk = Talk::new(form);
        let said = talk.ask(&program);
        said.assert_coherent(form);
        assert_eq!(ids(&said), ["a", "b", "c"], "{}", said.response.text());
        talk.add(&said);
        assert_eq!(talk.ask(&program).text, "As you like.");
        let sent = upstream.request(1).json()["messages"].to_string();
        assert!(sent.contains("search was called 2 times within 2s, 1 is allowed"), "{sent}");
        upstream.assert_clean();
    });
    for stream in [false, true] {
        let upstream = Scripted::start(responses_calls);
        let program = Toolrein::before(&upstream, &settings("1h", "3s"));
        let mut talk = Responses::new(stream).with_tools(json!([tool("search"), tool("fetch")]));
        let answer = talk.ask(&program);
        assert_eq!(answer.kinds(), ["function:a", "function:c"]);
        assert_eq!(talk.go_on(&answer).ask(&program).said(), "As you like.");
        assert_eq!(program.metric(WAITED), 0.0);
    }
}

#[test]
fn a_stream_is_kept_alive_and_a_call_goes_out_when_it_may_though_more_is_to_come() {
    let gate = Gate::shut();
    let held = gate.clone();
    let upstream = Scripted::start(move |_, request| {
        // All calls, but not the end of the last one.
        let pieces = Speech::calls(&CALLS).chunks(false).len();
        Reply::speech(request, &Speech::calls(&CALLS)).held_after(pieces - 3, &held)
    });
    let settings = format!("limits.keepalive_comment = \"20ms\"\n{}", settings("500ms", "20s"));
    let program = Toolrein::before(&upstream, &settings);
    let body = Talk::new(Form::Streamed).body().to_string();
    let mut stream = Request::post(&program.chat_url(), body).open();
    let so_far = stream.until(": toolrein waits\n: toolrein waits\n");
    assert!(so_far.contains("\"id\":\"a\"") && !so_far.contains("\"id\":\"b\""), "{so_far}");
    stream.until("\"id\":\"b\"");
    gate.open();
    let said = Said::read(stream.rest(), Form::Streamed);
    said.assert_coherent(Form::Streamed);
    assert_eq!(ids(&said), ["a", "b", "c", "d"]);
}

#[test]
fn a_responses_stream_is_kept_alive_by_its_own_event() {
    let upstream = Scripted::start(responses_calls);
    let settings = format!("limits.keepalive_comment = \"20ms\"\n{}", settings("500ms", "20s"));
    let program = Toolrein::before(&upstream, &settings);
    let talk = Responses::new(true).with_tools(json!([tool("search"), tool("fetch")]));
    let answer = talk.ask(&program);
    assert_eq!(answer.items().len(), 4);
    let beats = answer.text().matches("event: response.in_progress").count();
    assert!(beats > 3, "{}", answer.text());
}

#[test]
fn a_delayed_call_is_not_counted_if_its_client_disconnects() {
    in_both_forms(|form| {
        let upstream = Scripted::start(crate::support::talk::search);
        let program = Toolrein::before(&upstream, &settings("1m", "2m"));
        let mut talk = Talk::new(form);
        let said = talk.ask(&program);
        assert_eq!(said.calls.len(), 1);
        talk.add(&said);
        let request = Request::post(&program.chat_url(), talk.body().to_string());
        match form {
            Form::Streamed => {
                let mut stream = request.open();
                stream.until("assistant");
                stream.hang_up();
            }
            Form::Whole => {
                let mut connection = Connection::open(&program.chat_url());
                connection.write(&request.bytes());
                until("the second reply", || (upstream.requests().len() == 2).then_some(()));
                drop(connection);
            }
        }
        program.wait_for_metric("toolrein_client_gone_total", 1.0);
        assert_eq!(program.metric("toolrein_tool_calls_total{tool=\"search\",verdict=\"allow\"}"), 1.0);
        assert_eq!(program.metric(WAITED), 0.0);
        assert_eq!(program.metric("toolrein_confirmations_total{outcome=\"left\"}"), 0.0, "nobody was asked");
    });
}

#[test]
fn a_stop_ends_the_wait_and_the_client_gets_its_reply() {
    in_both_forms(|form| {
        let upstream = Scripted::start(calls);
        let mut program = Toolrein::before(&upstream, &settings("1m", "2m"));
        let mut connection = Connection::open(&program.chat_url());
        let talk = Talk::new(form);
        connection.write(&Request::post(&program.chat_url(), talk.body().to_string()).bytes());
        until("the reply", || (upstream.requests().len() == 1).then_some(()));
        program.terminate();
        let said = Said::read(connection.response().rest(), form);
        said.assert_coherent(form);
        assert_eq!(ids(&said), ["a", "c"], "{}", said.response.text());
        assert!(program.wait().success());
    });
}

#[test]
fn an_upstream_that_breaks_off_releases_nothing_that_waits() {
    let upstream = Scripted::start(|_, request| {
        let pieces = Speech::calls(&CALLS).chunks(false).len();
        Reply::speech(request, &Speech::calls(&CALLS)).cut_after(pieces - 3)
    });
    let program = Toolrein::before(&upstream, &settings("1m", "2m"));
    let reply =
        Request::post(&program.chat_url(), Talk::new(Form::Streamed).body().to_string()).open().rest();
    assert!(reply.cut && reply.text().contains("upstream_cut"), "{}", reply.text());
    assert!(!reply.text().contains("\"id\":\"b\""), "{}", reply.text());
}

#[test]
fn while_observing_nothing_waits() {
    in_both_forms(|form| {
        let upstream = Scripted::start(calls);
        let program = Toolrein::before(&upstream, &format!("mode = \"observe\"\n{}", settings("1m", "2m")));
        assert_eq!(ids(&Talk::new(form).ask(&program)), ["a", "b", "c", "d"]);
        program.wait_for_metric(BLOCKED, 2.0);
        assert_eq!(program.metric(WAITED), 0.0);
    });
    let upstream = Scripted::start(responses_calls);
    let program = Toolrein::before(&upstream, &format!("mode = \"observe\"\n{}", settings("1m", "2m")));
    let body = Responses::new(false).body.to_string();
    assert_eq!(Request::post(&url(&program), body).send().json()["output"].as_array().unwrap().len(), 4);
}

#[test]
fn a_default_below_a_shipped_pattern_holds_for_the_tools_of_that_pattern() {
    in_both_forms(|form| {
        for (settings, ran) in [
            ("[policy.rate_limit]\ndefault = { calls = 2, per = \"60s\" }\n", 2),
            (
                "[policy.rate_limit]\ndefault = { calls = 2, per = \"60s\" }\n\
                 tools = { \"*search*\" = { calls = 3, per = \"60s\" } }\n",
                3,
            ),
            ("", 6),
        ] {
            let upstream =
                Scripted::start(|_, request| match request.json().to_string().contains("RATE_LIMIT") {
                    true => text("As you like.", request),
                    false => {
                        let ids: Vec<String> = (0..6).map(|nth| format!("{nth}")).collect();
                        let arguments: Vec<String> =
                            (0..6).map(|nth| format!("{{\"q\":\"{nth}\"}}")).collect();
                        let calls: Vec<_> = (0..6)
                            .map(|nth| (ids[nth].as_str(), "search", arguments[nth].as_str()))
                            .collect();
                        Reply::speech(request, &Speech::calls(&calls))
                    }
                });
            let program = Toolrein::before(&upstream, &format!("base = \"shipped\"\n{settings}"));
            assert_eq!(Talk::new(form).ask(&program).calls.len(), ran, "{settings}");
        }
    });
}
