//! Real clients against the running program: the `openai` packages of Python and Node here, those of the Responses API and of
//! the Messages API in their modules. Each scenario of `tests/clients/` plays once straight against the upstream and once
//! through toolrein, and must neither notice nor cause a difference. Runaway models are played through toolrein alone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail by panicking")]

#[path = "clients/messages.rs"]
mod messages;
#[path = "clients/plays.rs"]
mod plays;
#[path = "clients/responses.rs"]
mod responses;
mod support;

use serde_json::{Value, json};
use support::player::{Client, Play, Player};
use support::program::Toolrein;
use support::reply::{Gate, Reply, Speech};
use support::scripted::{Recorded, Scripted};

/// Policies that look at everything and have no cause to act.
const GENEROUS: &str = r#"
[policy.budget]
[policy.rate_limit]
default = { calls = 60, per = "60s" }
[policy.truncate]
"#;

/// Policies that end a loop after few calls.
const TIGHT: &str = "[policy.budget]\ntool_calls = 4\n";

/// Four calls let through, then one reply blocked, three re-asks, one without choice, one without tools.
const MOST_REQUESTS: usize = 10;

/// One test for each client, so that a failure names both.
macro_rules! with_each_client {
    ($($scenario:ident),* $(,)?) => {
        mod python { $(#[test] fn $scenario() { super::$scenario(super::Client::Python); })* }
        mod node { $(#[test] fn $scenario() { super::$scenario(super::Client::Node); })* }
    };
}

with_each_client!(
    a_whole_text_arrives,
    a_streamed_text_arrives,
    a_tool_loop_with_parallel_calls_ends,
    a_streamed_tool_loop_with_parallel_calls_ends,
    a_tool_loop_by_the_stream_helper_ends,
    structured_output_is_parsed,
    refusals_keep_class_message_code_and_type,
    retries_arrive_as_the_package_sends_them,
    a_broken_stream_raises,
    cancelling_a_stream_reaches_the_upstream,
    giving_up_before_an_answer_reaches_the_upstream,
    a_runaway_model_ends_with_text,
    a_streamed_runaway_model_ends_with_text,
    a_runaway_model_in_the_stream_helper_ends_with_text,
    a_stubborn_runaway_model_ends_with_text,
    a_streamed_stubborn_runaway_model_ends_with_text,
);

#[test]
fn the_tool_runner_of_node_ends() {
    unchanged(Client::Node, ("tools", "runner"), weather);
}

#[test]
fn a_runaway_model_in_the_tool_runner_of_node_ends_with_text() {
    runaway(Client::Node, ("runaway", "runner"), obedient);
}

fn a_whole_text_arrives(client: Client) {
    unchanged(client, ("text", ""), |_, request| {
        let reply = Reply::speech(request, &Speech::text("It is in Zürich."));
        reply.header("x-request-id", "req_1").header("set-cookie", "a=1").header("set-cookie", "b=2")
    });
}

fn a_streamed_text_arrives(client: Client) {
    // Seven bytes at a time: events and the two bytes of the umlaut are cut anywhere.
    unchanged(client, ("stream", ""), |_, request| {
        Reply::speech(request, &Speech::text("It is in Zürich.")).in_pieces_of(7)
    });
}

fn a_tool_loop_with_parallel_calls_ends(client: Client) {
    unchanged(client, ("tools", "whole"), weather);
}

fn a_streamed_tool_loop_with_parallel_calls_ends(client: Client) {
    unchanged(client, ("tools", "streamed"), weather);
}

fn a_tool_loop_by_the_stream_helper_ends(client: Client) {
    unchanged(client, ("tools", "helper"), weather);
}

fn structured_output_is_parsed(client: Client) {
    unchanged(client, ("structured", ""), |_, request| {
        let format = &request.json()["response_format"];
        assert_eq!(
            (&format["type"], &format["json_schema"]["name"]),
            (&json!("json_schema"), &json!("City"))
        );
        Reply::speech(request, &Speech::text(r#"{"name":"Bern","people":134000}"#))
    });
}

fn refusals_keep_class_message_code_and_type(client: Client) {
    unchanged(client, ("refusals", ""), |_, request| {
        let status = request.json()["model"].as_str().unwrap().to_owned();
        let (kind, code, message) =
            (format!("type_{status}"), format!("code_{status}"), format!("message of {status}"));
        let refusal = Reply::error(status.parse().unwrap(), &kind, &code, &message);
        refusal.header("x-request-id", &format!("req_{status}"))
    });
}

fn retries_arrive_as_the_package_sends_them(client: Client) {
    unchanged(client, ("retries", ""), |_, request| match request.header("x-stainless-retry-count") {
        Some("0") => Reply::error(500, "server", "down", "down").header("retry-after-ms", "5"),
        Some("1") => Reply::error(429, "requests", "rate", "slow down").header("retry-after-ms", "5"),
        _ => Reply::text("at last"),
    });
}

fn a_broken_stream_raises(client: Client) {
    unchanged(client, ("broken", ""), |_, request| {
        let chunks = Speech::text("one two three").chunks(false);
        if request.json()["model"] == "cut" {
            return Reply::events(&chunks).cut_after(2);
        }
        let error =
            json!({"error": {"message": "the model fell over", "type": "server_error", "code": null}});
        Reply::events(&[chunks[0].clone(), chunks[1].clone(), error])
    });
}

fn cancelling_a_stream_reaches_the_upstream(client: Client) {
    cancelled(client, ("cancel", "streamed"), |_, _| {
        Reply::events(&Speech::text("one two").chunks(false)).held_after(2, &Gate::shut())
    });
}

fn giving_up_before_an_answer_reaches_the_upstream(client: Client) {
    cancelled(client, ("cancel", "waiting"), |_, _| Reply::silence());
}

fn a_runaway_model_ends_with_text(client: Client) {
    runaway(client, ("runaway", "whole"), obedient);
}

fn a_streamed_runaway_model_ends_with_text(client: Client) {
    runaway(client, ("runaway", "streamed"), obedient);
}

fn a_runaway_model_in_the_stream_helper_ends_with_text(client: Client) {
    runaway(client, ("runaway", "helper"), obedient);
}

fn a_stubborn_runaway_model_ends_with_text(client: Client) {
    runaway(client, ("runaway", "whole"), stubborn);
}

fn a_streamed_stubborn_runaway_model_ends_with_text(client: Client) {
    runaway(client, ("runaway", "streamed"), stubborn);
}

/// Plays it straight and through toolrein: the upstream must see the same requests, to the byte.
fn unchanged(client: Client, play: Play<'_>, script: fn(usize, &Recorded) -> Reply) {
    let straight = Scripted::start(script);
    Player::start(client, play, &straight.base_url()).finish();
    let upstream = Scripted::start(script);
    let toolrein = Toolrein::before(&upstream, GENEROUS);
    Player::start(client, play, &toolrein.base_url()).finish();
    assert_same_requests(&straight, &upstream);
    upstream.assert_clean();
    toolrein.stop();
}

/// The upstream behind toolrein got what the one without it got, to the byte.
fn assert_same_requests(straight: &Scripted, upstream: &Scripted) {
    let (expected, seen) = (straight.requests(), upstream.requests());
    assert_eq!(seen.len(), expected.len(), "requests at the upstream");
    for (expected, seen) in expected.iter().zip(&seen) {
        assert_eq!((&seen.method, &seen.path), (&expected.method, &expected.path));
        assert_eq!(String::from_utf8_lossy(&seen.body), String::from_utf8_lossy(&expected.body));
        assert_eq!(end_to_end(seen), end_to_end(expected));
    }
}

/// The headers that must survive: all but those of one hop, and the codings, of which a governed request may ask
/// for fewer (what toolrein cannot read).
fn end_to_end(request: &Recorded) -> Vec<&(String, String)> {
    let of_one_hop = ["host", "connection", "accept-encoding"];
    let mut headers: Vec<_> =
        request.headers.iter().filter(|(name, _)| !of_one_hop.contains(&name.as_str())).collect();
    headers.sort();
    headers
}

/// The client gives up on its first request; the upstream must learn of it while the client lives.
fn cancelled(client: Client, play: Play<'_>, script: fn(usize, &Recorded) -> Reply) {
    let upstream = Scripted::start(script);
    let toolrein = Toolrein::before(&upstream, GENEROUS);
    let mut player = Player::start(client, play, &toolrein.base_url());
    upstream.wait_for_hang_up(0);
    assert!(player.is_running(), "the client's process still lives");
    player.finish();
    toolrein.stop();
}

/// A client without a limit of its own meets a model that calls for ever.
fn runaway(client: Client, play: Play<'_>, model: fn(usize, &Recorded) -> Reply) {
    let upstream = Scripted::start(model);
    let toolrein = Toolrein::before(&upstream, TIGHT);
    Player::start(client, play, &toolrein.base_url()).finish();
    let requests = upstream.requests().len();
    assert!((5..=MOST_REQUESTS).contains(&requests), "{requests} requests at the upstream");
    upstream.assert_clean();
    toolrein.stop();
}

/// Two rounds of calls, then the answer; which comes next is read off the conversation.
fn weather(_: usize, request: &Recorded) -> Reply {
    let body = request.json();
    let results = body["messages"].as_array().unwrap().iter().filter(|message| message["role"] == "tool");
    let speech = match results.count() {
        0 => Speech::calls(&[("call_1", "weather", r#"{"city":"Rome"}"#)]),
        1 => Speech::calls(&[
            ("call_2", "weather", r#"{"city":"Oslo"}"#),
            ("call_3", "weather", r#"{"city":"Bern"}"#),
        ]),
        _ => Speech::text("Clear everywhere."),
    };
    Reply::speech(request, &speech)
}

/// Calls a tool for as long as calls are allowed.
fn obedient(nth: usize, request: &Recorded) -> Reply {
    let body = request.json();
    if body["tool_choice"] == "none" || body["tools"] == Value::Null {
        return Reply::speech(request, &Speech::text("I could not find it."));
    }
    stubborn(nth, request)
}

/// Calls a tool whatever it is asked.
fn stubborn(nth: usize, request: &Recorded) -> Reply {
    Reply::speech(request, &Speech::calls(&[(&format!("call_{nth}"), "search", "{}")]))
}
