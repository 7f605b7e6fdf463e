//! Each action is counted once, in the request that brought it.

use crate::governed::talk::{BOTH, GENEROUS, after, budget, calling, chat, log_line, long_text, question};
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::Scripted;
use serde_json::{Value, json};

const SHORTENED: &str = "toolrein_actions_total{policy=\"truncate\",action=\"shortened\"}";
const TRUNCATE: &str = "[policy.truncate]\nmax_chars = 1000\n";

fn requests(toolrein: &Toolrein, count: u32) {
    toolrein.wait_for_metric("toolrein_requests_total{endpoint=\"chat_completions\"}", count.into());
}

#[test]
fn an_identical_body_sent_again_counts_once_though_the_first_failed() {
    for stream in BOTH {
        let upstream = Scripted::start(|nth, request| match nth {
            0 => Reply::error(500, "server", "down", "down"),
            _ => Reply::speech(request, &Speech::text("ok")),
        });
        let toolrein = Toolrein::before(&upstream, TRUNCATE);
        let long = long_text(3000);
        let body = after(&[&long], stream);
        let statuses = [500, 200, 200];
        for (nth, status) in statuses.into_iter().enumerate() {
            let reply = chat(&toolrein, &body);
            assert_eq!(reply.status, status);
            assert_eq!(
                reply.header("x-toolrein-actions"),
                Some("truncate=1, tokens_saved=613"),
                "each client is told"
            );
            requests(&toolrein, nth as u32 + 1);
            toolrein.wait_for_metric(SHORTENED, 1.0);
            // As it is written in the body, each line end two bytes.
            let bytes = json!(long).to_string().len() as f64 - 2.0;
            toolrein.wait_for_metric("toolrein_tool_result_bytes_sum{tool=\"f\"}", bytes);
            toolrein.wait_for_metric("toolrein_tool_result_bytes_count{tool=\"f\"}", 1.0);
            assert_eq!(log_line(&toolrein, nth)["repeated"] == true, nth > 0);
        }
        // The result is cut in the same way each time.
        let seen = upstream.requests();
        assert!(seen[0].body == seen[1].body && seen[1].body == seen[2].body);
        assert!(seen[0].body.len() < body.len());
    }
}

#[test]
fn a_history_that_is_sent_again_does_not_count_old_cuts_and_results_again() {
    let upstream = Scripted::start(|_, request| Reply::speech(request, &Speech::text("ok")));
    let toolrein = Toolrein::before(&upstream, TRUNCATE);
    let (long, other) = (long_text(3000), long_text(4000));
    for (nth, (results, cuts)) in [
        (vec!["a"], 0),
        (vec!["a", &long], 1),
        (vec!["a", &long, "b"], 1),
        (vec!["a", &long, "b", &other], 2),
    ]
    .into_iter()
    .enumerate()
    {
        chat(&toolrein, after(&results, nth % 2 == 1));
        requests(&toolrein, nth as u32 + 1);
        toolrein.wait_for_metric(SHORTENED, cuts.into());
        toolrein.wait_for_metric("toolrein_tool_result_bytes_count{tool=\"f\"}", nth as f64 + 1.0);
    }
    assert!(
        toolrein.metric("toolrein_policy_tokens_total{effect=\"removed\"}") > 1000.0,
        "saved anew in each request"
    );
}

#[test]
fn calls_are_counted_by_tool_and_verdict_in_the_reply_that_brought_them() {
    let upstream = Scripted::start(|nth, request| {
        if nth % 2 == 0 {
            return calling(3)(nth, request);
        }
        Reply::speech(request, &Speech::calls(&[("x", "submit", "{}")]))
    });
    let toolrein = Toolrein::before(&upstream, &budget(2));
    for (nth, stream) in BOTH.into_iter().enumerate() {
        // One call is used: one of three is left.
        chat(&toolrein, after(&["r"], stream));
        let times = nth as f64 + 1.0;
        toolrein.wait_for_metric("toolrein_tool_calls_total{tool=\"f\",verdict=\"allow\"}", times);
        toolrein.wait_for_metric("toolrein_tool_calls_total{tool=\"f\",verdict=\"block\"}", 2.0 * times);
        // Sent again with their results, they are not counted again; and an answer tool has no limit.
        chat(&toolrein, after(&["r", "r", "r"], stream));
        toolrein.wait_for_metric("toolrein_tool_calls_total{tool=\"submit\",verdict=\"allow\"}", times);
        toolrein.wait_for_metric("toolrein_tool_calls_total{tool=\"f\"}", 3.0 * times);
    }
}

#[test]
fn tokens_are_counted_as_billed_over_all_replies_of_a_request() {
    let usage = json!({"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110,
        "prompt_tokens_details": {"cached_tokens": 60}, "completion_tokens_details": {"reasoning_tokens": 4}});
    let upstream = Scripted::start(move |nth, request| {
        let mut speech = calling(1)(nth, request);
        if request.json()["stream"] != true {
            let mut body: Value = serde_json::from_slice(speech.pieces[0].data().unwrap()).unwrap();
            body["usage"] = usage.clone();
            speech = Reply::json(200, &body);
        } else {
            let last = json!({"id": "x", "object": "chat.completion.chunk", "choices": [], "usage": usage});
            let at = speech.pieces.len() - 1;
            let event = format!("data: {last}\n\n");
            speech.pieces.insert(at, crate::support::reply::Piece::Data(event.into()));
        }
        speech
    });
    for stream in BOTH {
        let toolrein = Toolrein::before(&upstream, &format!("reask.max = 0\n{}", budget(1)));
        let expect = |replies: f64| {
            for (series, each) in [
                ("toolrein_tokens_total{type=\"input\"}", 100.0),
                ("toolrein_tokens_total{type=\"output\"}", 10.0),
                ("toolrein_cached_tokens_total", 60.0),
                ("toolrein_reasoning_tokens_total", 4.0),
            ] {
                toolrein.wait_for_metric(series, replies * each);
            }
        };
        chat(&toolrein, question(stream));
        expect(1.0);
        // Blocked once, and then asked for the answer.
        let reply = chat(&toolrein, after(&["r"], stream));
        assert!(reply.text().contains("\"prompt_tokens\":200"), "{}", reply.text());
        expect(3.0);
        let line = log_line(&toolrein, 1);
        assert_eq!((&line["tokens_prompt"], &line["upstream_requests"]), (&200.into(), &2.into()));
    }
}

#[test]
fn the_time_of_a_tool_is_counted_from_its_release_to_its_result() {
    let upstream = Scripted::start(calling(1));
    let toolrein = Toolrein::before(&upstream, GENEROUS);
    for (nth, stream) in BOTH.into_iter().enumerate() {
        let reply = chat(&toolrein, question(stream).replace("\"q\"", &format!("\"q{nth}\"")));
        let id = format!("call_{}_0", 2 * nth);
        assert!(reply.text().contains(&id));
        let next = after(&["r"], stream).replace("old_0", &id).replace("{\\\"a\\\":1}", "{ \\\"a\\\": 2 }");
        chat(&toolrein, next.replace("\"q\"", &format!("\"q{nth}\"")));
        toolrein.wait_for_metric("toolrein_tool_seconds_count{tool=\"f\"}", nth as f64 + 1.0);
    }
}
