//! The same packages on the Responses API, and the agent frameworks that use it by default: their tool loops, and models
//! that never stop calling.

use super::support::player::Player;
use super::support::program::Toolrein;
use super::support::reply::{Gate, Reply};
use super::support::responses::{Output, event};
use super::support::scripted::{Recorded, Scripted};
use super::{Client, GENEROUS, cancelled, runaway, unchanged};
use serde_json::{Value, json};

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
    tool_loops_with_parallel_calls_end,
    structured_output_is_parsed,
    refusals_keep_class_message_code_and_type,
    a_broken_stream_raises,
    cancelling_a_stream_reaches_the_upstream,
    giving_up_before_an_answer_reaches_the_upstream,
    runaway_models_end_with_text,
    stubborn_runaway_models_end_with_text,
    the_agents_sdk_ends_its_tool_loop,
    a_runaway_model_in_the_agents_sdk_ends_with_text,
    tool_loops_with_history_upstream_end,
    runaway_models_with_history_upstream_end_with_text,
);

#[test]
fn the_ai_sdk_ends_its_tool_loop() {
    for form in ["tools-whole", "tools-streamed"] {
        unchanged(Client::Node, ("ai", form), weather);
    }
}

#[test]
fn a_runaway_model_in_the_ai_sdk_ends_with_text() {
    for form in ["runaway-whole", "runaway-streamed"] {
        runaway(Client::Node, ("ai", form), obedient);
    }
}

/// Frameworks of Python that call this API, by default or by one option.
const FRAMEWORKS: [&str; 3] = ["langchain_agent", "pydantic_agent", "litellm_agent"];

#[test]
fn the_frameworks_of_python_end_their_tool_loops() {
    for framework in FRAMEWORKS {
        for form in ["tools-whole", "tools-streamed"] {
            unchanged(Client::Python, (framework, form), weather);
        }
    }
}

#[test]
fn runaway_models_in_the_frameworks_of_python_end_with_text() {
    for framework in FRAMEWORKS {
        for form in ["runaway-whole", "runaway-streamed"] {
            runaway(Client::Python, (framework, form), obedient);
        }
    }
}

#[test]
fn codex_ends_its_tool_loop() {
    // Its bodies hold random ids, so that they cannot be compared with those of a run without toolrein.
    let upstream = Scripted::start(|nth, request| {
        let outputs = String::from_utf8_lossy(&request.body).matches(r#""function_call_output""#).count();
        let done = Output::text(nth, "It is planned.");
        let output = if outputs == 0 { Output::new(nth).thinks().call("1", "get_goal", "{}") } else { done };
        output.reply(request)
    });
    let toolrein = Toolrein::before(&upstream, GENEROUS);
    Player::start(Client::Node, ("codex", "tools"), &toolrein.base_url()).finish();
    assert_eq!(upstream.requests().len(), 2, "the WebSocket that it tries first is refused here");
    upstream.assert_clean();
    toolrein.stop();
}

#[test]
fn a_runaway_model_in_codex_ends_with_text() {
    runaway(Client::Node, ("codex", "runaway"), |nth, request| {
        let body = request.json();
        if body["tool_choice"] == "none" {
            return Output::text(nth, "I could not find it.").reply(request);
        }
        Output::new(nth).thinks().call(&nth.to_string(), "get_goal", "{}").reply(request)
    });
}

/// The interfaces of the `openai` packages: `items` reads a stream by its complete items alone.
const FORMS: [&str; 4] = ["whole", "streamed", "items", "helper"];

fn a_whole_text_arrives(client: Client) {
    unchanged(client, ("responses_text", "whole"), |_, request| {
        Output::text(0, "It is in Zürich.").reply(request).header("x-request-id", "req_1")
    });
}

fn a_streamed_text_arrives(client: Client) {
    // Seven bytes at a time: events and the two bytes of the umlaut are cut anywhere.
    unchanged(client, ("responses_text", "streamed"), |nth, request| {
        Output::new(nth).thinks().says("It is in Zürich.").reply(request).in_pieces_of(7)
    });
}

fn tool_loops_with_parallel_calls_end(client: Client) {
    for form in FORMS {
        unchanged(client, ("responses_tools", form), weather);
    }
}

fn structured_output_is_parsed(client: Client) {
    unchanged(client, ("responses_structured", ""), |nth, request| {
        let format = &request.json()["text"]["format"];
        assert_eq!((&format["type"], &format["name"]), (&json!("json_schema"), &json!("City")));
        Output::text(nth, r#"{"name":"Bern","people":134000}"#).reply(request)
    });
}

fn refusals_keep_class_message_code_and_type(client: Client) {
    unchanged(client, ("responses_refusals", ""), |_, request| {
        let status = request.json()["model"].as_str().unwrap().to_owned();
        let (kind, code) = (format!("type_{status}"), format!("code_{status}"));
        Reply::error(status.parse().unwrap(), &kind, &code, &format!("message of {status}"))
    });
}

/// A stream that says "one " and ends there.
fn begun(request: &Recorded) -> Vec<Value> {
    let mut events = Output::text(0, "one two three").events(&request.json());
    events.truncate(5);
    events
}

fn a_broken_stream_raises(client: Client) {
    unchanged(client, ("responses_broken", ""), |_, request| {
        let mut events = begun(request);
        if request.json()["model"] == "cut" {
            return Reply::stream(events.iter().map(event)).cut_after(5);
        }
        let error =
            json!({"type": "server_error", "code": "x", "message": "the model fell over", "param": null});
        events.push(json!({"type": "error", "sequence_number": 5, "error": error}));
        Reply::stream(events.iter().map(event))
    });
}

fn cancelling_a_stream_reaches_the_upstream(client: Client) {
    cancelled(client, ("responses_cancel", "streamed"), |_, request| {
        Reply::stream(begun(request).iter().map(event)).held_after(5, &Gate::shut())
    });
}

fn giving_up_before_an_answer_reaches_the_upstream(client: Client) {
    cancelled(client, ("responses_cancel", "waiting"), |_, _| Reply::silence());
}

fn runaway_models_end_with_text(client: Client) {
    for form in FORMS {
        runaway(client, ("responses_runaway", form), obedient);
    }
}

fn stubborn_runaway_models_end_with_text(client: Client) {
    for form in FORMS {
        runaway(client, ("responses_runaway", form), stubborn);
    }
}

fn the_agents_sdk_ends_its_tool_loop(client: Client) {
    for form in ["tools-whole", "tools-streamed"] {
        unchanged(client, ("agents", form), weather);
    }
}

fn a_runaway_model_in_the_agents_sdk_ends_with_text(client: Client) {
    for form in ["runaway-whole", "runaway-streamed"] {
        runaway(client, ("agents", form), obedient);
    }
}

/// How the upstream keeps the history, and how a reply is requested.
const UPSTREAM_HISTORIES: [&str; 4] =
    ["previous-whole", "previous-streamed", "conversation-whole", "conversation-streamed"];

fn tool_loops_with_history_upstream_end(client: Client) {
    for form in UPSTREAM_HISTORIES {
        unchanged(client, ("responses_chain", &format!("tools-{form}")), |nth, request| {
            new_conversation(request).unwrap_or_else(|| weather(nth, request))
        });
    }
}

fn runaway_models_with_history_upstream_end_with_text(client: Client) {
    for form in UPSTREAM_HISTORIES {
        runaway(client, ("responses_chain", &format!("runaway-{form}")), |nth, request| {
            new_conversation(request).unwrap_or_else(|| obedient(nth, request))
        });
    }
}

/// The answer to a request for a new conversation.
fn new_conversation(request: &Recorded) -> Option<Reply> {
    let conversation = json!({"id": "conv_1", "object": "conversation", "created_at": 1, "metadata": {}});
    request.path.ends_with("/conversations").then(|| Reply::json(200, &conversation))
}

/// Two rounds of calls, then the answer; which comes next is read off the new outputs, which are as many where the
/// history is kept upstream.
fn weather(nth: usize, request: &Recorded) -> Reply {
    let body = request.json();
    let input = body["input"].as_array().unwrap();
    let outputs = input.iter().filter(|item| item["type"] == "function_call_output");
    let output = match outputs.count() {
        0 => Output::new(nth).thinks().call("1", "weather", r#"{"city":"Rome"}"#),
        1 => Output::calls(
            nth,
            &[("2", "weather", r#"{"city":"Oslo"}"#), ("3", "weather", r#"{"city":"Bern"}"#)],
        ),
        _ => Output::text(nth, "Clear everywhere."),
    };
    output.reply(request)
}

/// Calls for as long as it is allowed to.
fn obedient(nth: usize, request: &Recorded) -> Reply {
    let body = request.json();
    if body["tool_choice"] == "none" || body["tools"].as_array().is_none_or(Vec::is_empty) {
        return Output::text(nth, "I could not find it.").reply(request);
    }
    stubborn(nth, request)
}

/// Calls whatever it is asked, after some reasoning.
fn stubborn(nth: usize, request: &Recorded) -> Reply {
    Output::new(nth).thinks().call(&nth.to_string(), "search", "{}").reply(request)
}
