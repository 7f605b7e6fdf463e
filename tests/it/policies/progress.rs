//! What `loops` takes for progress, in both dialects and forms: pictures after the results and within them, jobs that
//! say that they run, arguments that differ in a counter alone.

use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::responses::Output;
use crate::support::responses_kit;
use crate::support::scripted::{Recorded, Scripted};
use crate::support::talk::{Form, Talk, text};
use serde_json::{Value, json};

const SHIPPED: &str = "base = \"shipped\"\n";
/// More rounds than any limit of `loops`, fewer than the shipped budget.
const ROUNDS: usize = 30;

/// An agent with one tool: its arguments and its results by round, as the content of a tool message, and the messages
/// that the client sends after a result.
#[derive(Clone, Copy)]
struct Agent {
    tool: &'static str,
    arguments: fn(usize) -> String,
    result: fn(usize) -> Value,
    after: fn(usize) -> Vec<Value>,
}

const AGENT: Agent =
    Agent { tool: "search", arguments: |_| "{}".to_owned(), result: |_| json!("ok"), after: |_| Vec::new() };

/// A part that is a picture, in either dialect; the `nth` one.
fn picture(dialect: Dialect, nth: usize) -> Value {
    match dialect {
        Dialect::Chat => {
            json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,iVBORw0{nth}")}})
        }
        Dialect::Responses => {
            json!({"type": "input_image", "image_url": format!("data:image/png;base64,iVBORw0{nth}")})
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Chat,
    Responses,
}

/// Pictures are written as `"PICTURE 7"` in the results and messages of an agent.
fn with_pictures(dialect: Dialect, value: Value) -> Value {
    match value {
        Value::String(text) => match text.strip_prefix("PICTURE ") {
            Some(nth) => picture(dialect, nth.parse().unwrap()),
            None => Value::String(text),
        },
        Value::Array(items) => items.into_iter().map(|item| with_pictures(dialect, item)).collect(),
        Value::Object(members) => Value::Object(
            members.into_iter().map(|(key, value)| (key, with_pictures(dialect, value))).collect(),
        ),
        other => other,
    }
}

/// The text part of a message.
fn words(dialect: Dialect, text: &str) -> Value {
    let kind = if dialect == Dialect::Chat { "text" } else { "input_text" };
    json!({"type": kind, "text": text})
}

/// How many calls of the agent ran, of at most `rounds`, and how many notices the last request had.
fn ran(agent: Agent, dialect: Dialect, stream: bool, rounds: usize) -> (usize, usize) {
    let upstream = Scripted::start(move |nth: usize, request: &Recorded| {
        let body = request.json();
        let is_over = body["tool_choice"] == "none" || request.json().to_string().contains("LOOP_DETECTED");
        let (id, arguments) = (format!("call_{nth}"), (agent.arguments)(nth));
        match dialect {
            Dialect::Chat if is_over => text("I stop.", request),
            Dialect::Chat => Reply::speech(request, &Speech::calls(&[(&id, agent.tool, &arguments)])),
            Dialect::Responses if is_over => Output::text(nth, "I stop.").reply(request),
            Dialect::Responses => {
                Output::calls(nth, &[(&nth.to_string(), agent.tool, &arguments)]).reply(request)
            }
        }
    });
    let program = Toolrein::before(&upstream, SHIPPED);
    let mut made = 0;
    match dialect {
        Dialect::Chat => {
            let mut talk = Talk::new(if stream { Form::Streamed } else { Form::Whole });
            let tool = json!({"type": "function", "function": {"name": agent.tool, "parameters": {"type": "object"}}});
            talk.members["tools"] = json!([tool]);
            while made < rounds {
                let said = talk.ask(&program);
                said.assert_coherent(talk.form);
                if said.calls.is_empty() {
                    break;
                }
                talk.add(&said);
                talk.messages.last_mut().unwrap()["content"] = with_pictures(dialect, (agent.result)(made));
                talk.messages.extend((agent.after)(made).into_iter().map(|it| with_pictures(dialect, it)));
                made += 1;
            }
        }
        Dialect::Responses => {
            let mut talk =
                responses_kit::Talk::new(stream).with_tools(json!([responses_kit::tool(agent.tool)]));
            while made < rounds {
                let answer = talk.ask(&program);
                let call = answer.items().iter().find(|item| item["type"] == "function_call").cloned();
                let Some(call) = call else { break };
                for item in answer.items() {
                    talk.add(item.clone());
                }
                let output = with_pictures(dialect, (agent.result)(made));
                let output = if output.is_null() { json!("") } else { output };
                talk.add(
                    json!({"type": "function_call_output", "call_id": call["call_id"], "output": output}),
                );
                for message in (agent.after)(made) {
                    talk.add(with_pictures(dialect, message));
                }
                made += 1;
            }
        }
    }
    upstream.assert_clean();
    let requests = upstream.requests();
    let last = requests.last().unwrap().json().to_string();
    (made, last.matches("[toolrein]").count())
}

/// Runs the agent in every dialect and form: `expected` calls run.
fn assert_ran(why: &str, agent: Agent, expected: usize) {
    for dialect in [Dialect::Chat, Dialect::Responses] {
        for stream in [false, true] {
            assert_eq!(
                ran(agent, dialect, stream, ROUNDS).0,
                expected,
                "{why}: {dialect:?}, streamed: {stream}"
            );
        }
    }
}

/// The same where all run and the model is told of no loop.
fn assert_undisturbed(why: &str, agent: Agent) {
    for dialect in [Dialect::Chat, Dialect::Responses] {
        for stream in [false, true] {
            let found = ran(agent, dialect, stream, 12);
            assert_eq!(found, (12, 0), "{why}: {dialect:?}, streamed: {stream}");
        }
    }
}

fn user(parts: &Value) -> Vec<Value> {
    vec![json!({"role": "user", "content": parts})]
}

#[test]
fn a_screenshot_agent_whose_pictures_follow_the_results_is_undisturbed() {
    let screenshot = Agent { tool: "screenshot", ..AGENT };
    for result in [
        (|_| json!("(see attached image)")) as fn(usize) -> Value,
        |_| json!("Screenshot taken."),
        |_| json!(""),
    ] {
        let after = |nth: usize| user(&json!([format!("PICTURE {nth}")]));
        assert_undisturbed("a picture alone", Agent { result, after, ..screenshot });
    }
    let after = |nth: usize| {
        vec![
            json!({"role": "user", "content": "Here is what the screen shows now."}),
            json!({"role": "user", "content": [format!("PICTURE {nth}")]}),
        ]
    };
    assert_undisturbed("a text and a picture", Agent { result: |_| json!("ok"), after, ..screenshot });
}

#[test]
fn a_screenshot_agent_whose_pictures_are_in_the_results_is_undisturbed() {
    let result = |nth: usize| json!([format!("PICTURE {nth}")]);
    let agent = Agent { tool: "screenshot", result, ..AGENT };
    for stream in [false, true] {
        assert_eq!(ran(agent, Dialect::Responses, stream, 12), (12, 0));
    }
    // Providers that take pictures in tool messages.
    let upstream = Scripted::start(|nth, request| {
        let id = format!("call_{nth}");
        Reply::speech(request, &Speech::calls(&[(&id, "screenshot", "{}")]))
    });
    let program = Toolrein::before(&upstream, SHIPPED);
    let mut talk = Talk::new(Form::Whole);
    talk.members["tools"] = json!([{"type": "function", "function": {"name": "screenshot"}}]);
    for round in 0..9 {
        let said = talk.ask(&program);
        assert_eq!(said.calls.len(), 1, "round {round}");
        talk.add(&said);
        let content = json!([words(Dialect::Chat, "The screen."), picture(Dialect::Chat, round)]);
        talk.messages.last_mut().unwrap()["content"] = content;
    }
}

#[test]
fn one_picture_again_and_again_is_a_loop_wherever_it_is() {
    let after = |_| user(&json!(["PICTURE 7"]));
    let agent = Agent { tool: "screenshot", result: |_| json!("(see attached image)"), after, ..AGENT };
    assert_ran("after the results", agent, 4);
    let agent = Agent { tool: "screenshot", result: |_| json!(["PICTURE 7"]), ..AGENT };
    for stream in [false, true] {
        assert_eq!(ran(agent, Dialect::Responses, stream, ROUNDS).0, 4);
    }
}

#[test]
fn a_word_of_the_client_s_after_each_result_hides_no_loop() {
    for (after, expected) in [
        ((|_| user(&json!("Respond with the next step."))) as fn(usize) -> Vec<Value>, 4),
        (|nth| user(&json!(format!("[reminder] It is 10:00:{nth:02}. Go on with the task."))), 4),
        (|nth| user(&json!(format!("[reminder] This is step {nth} of 50 of the whole task."))), 7),
        (|nth| user(&json!(format!("You have {} steps left.", 49 - nth))), 7),
    ] {
        assert_ran("a reminder", Agent { after, ..AGENT }, expected);
        assert_ran("an empty result and a reminder", Agent { after, result: |_| json!("[]"), ..AGENT }, 4);
    }
    let after = |nth: usize| {
        let said = ["A dog.", "Two cats on a wall.", "A horse that runs.", "Nobody.", "The door is open."];
        user(&json!(format!("Observation: {}", said[nth % said.len()])))
    };
    assert_undisturbed("observations", Agent { result: |_| json!(""), after, ..AGENT });
}

#[test]
fn waiting_for_a_job_that_says_that_it_runs_is_no_loop() {
    for result in [
        (|nth| json!(format!(r#"{{"job":"build-7","state":"running","elapsed_seconds":{}}}"#, 30 * nth)))
            as fn(usize) -> Value,
        |_| json!(r#"{"status":"IN_PROGRESS"}"#),
        |_| json!(r#"{"data":{"id":"op-1","done":false}}"#),
        |_| json!(r#"{"id":"x","results":[],"status":"queued"}"#),
        |_| json!(r#"{"queue_position":4,"retry_after":30}"#),
        |_| json!("Job build-7 is still running."),
        |nth| json!(format!("Status: PROVISIONING\nchecked at 10:00:{nth:02}")),
        |_| json!("Progress: 45%"),
        |_| json!("HTTP 202 Accepted; retry later (30)"),
        |nth| json!(format!(r#"{{"status":"active","updated_at":"2026-01-01T00:{nth:02}:07Z"}}"#)),
        |nth| json!(format!("De taak is nog bezig ({nth} s)")),
        |nth| json!(format!(r#"{{"estado":"en curso","segundos":{nth}}}"#)),
    ] {
        let agent = Agent { tool: "look", result, ..AGENT };
        assert_undisturbed(&result(1).to_string(), agent);
    }
}

#[test]
fn a_job_that_is_over_is_not_waited_for() {
    for (result, expected) in [
        (
            (|nth| match nth {
                0..6 => json!(format!(r#"{{"state":"running","elapsed_seconds":{nth}}}"#)),
                _ => json!(format!(r#"{{"state":"succeeded","elapsed_seconds":{nth}}}"#)),
            }) as fn(usize) -> Value,
            10,
        ),
        (|_| json!(r#"{"state":"failed","error":"no such job"}"#), 4),
        (|_| json!(r#"{"status":"completed","steps":[{"status":"pending"}]}"#), 4),
        (|_| json!("The build has finished."), 4),
    ] {
        assert_ran(&result(9).to_string(), Agent { tool: "look", result, ..AGENT }, expected);
    }
}

#[test]
fn a_model_that_asks_at_once_hundreds_of_times_is_stopped_nevertheless() {
    let upstream = Scripted::start(|nth, request| {
        if request.json().to_string().contains("LOOP_DETECTED") {
            return text("It still runs.", request);
        }
        let id = format!("call_{nth}");
        Reply::speech(request, &Speech::calls(&[(&id, "look", "{}")]))
    });
    let program = Toolrein::before(&upstream, "[policy.loops]\n");
    let mut talk = Talk::new(Form::Whole);
    talk.members["tools"] = json!([{"type": "function", "function": {"name": "look"}}]);
    let mut made = 0;
    loop {
        let said = talk.ask(&program);
        if said.calls.is_empty() {
            break;
        }
        talk.add(&said);
        talk.messages.last_mut().unwrap()["content"] = json!(r#"{"state":"running"}"#);
        made += 1;
        assert!(made < 200);
    }
    assert_eq!(made, 61);
    let told = upstream.requests().last().unwrap().json().to_string();
    assert!(told.contains("said each time that it is not finished"), "{told}");
}

#[test]
fn calls_that_differ_in_a_counter_a_nonce_or_a_time_alone_are_no_progress() {
    for (arguments, expected) in [
        ((|nth| format!(r#"{{"q":"a","attempt":{nth}}}"#)) as fn(usize) -> String, 4),
        (|nth| format!(r#"{{"note":"attempt {nth}"}}"#), 4),
        (|nth| format!(r#"{{"q":"a","nonce":"k{nth}x"}}"#), 4),
        (|nth| format!(r#"{{"timestamp":{}}}"#, 1_764_000_001 + 13 * nth), 4),
        (|nth| format!(r#"{{"request_id":"0b8e7d6c-1f2a-4c3d-9e8f-0011223344{nth:02}"}}"#), 4),
        (|nth| format!(r#"{{"n":{nth}}}"#), 7),
        (|nth| format!(r#"{{"k{nth}":1}}"#), 7),
        (|nth| format!(r#"{{"at":{}}}"#, 1_767_225_600 + 60 * nth), 7),
        (|nth| format!(r#"{{"q":"{}"}}"#, "!".repeat(nth + 1)), 7),
        (|nth| format!(r#"{{"q":"{}"}}"#, "🙂".repeat(nth + 1)), 7),
        (|nth| format!(r#"{{"q":"x{}"}}"#, " ".repeat(nth)), 4),
        (|nth| format!(r#"{{"note":"try number {nth}"}}"#), 4),
        (|nth| format!(r#"{{"q":"news since {}"}}"#, 1_764_000_001 + 13 * nth), 7),
        (|nth| format!(r#"{{"id":"0b8e7d6c-1f2a-4c3d-9e8f-0011223344{nth:02}"}}"#), 16),
    ] {
        let agent = Agent { tool: "look", arguments, ..AGENT };
        assert_ran(&arguments(1), agent, expected);
        assert_ran(&format!("{} and nothing", arguments(1)), Agent { result: |_| json!("[]"), ..agent }, 4);
    }
}

#[test]
fn a_result_that_repeats_the_counter_of_its_call_is_no_progress() {
    for result in [(|nth| json!(format!("call {nth} ok"))) as fn(usize) -> Value, |nth| {
        json!(format!(r#"{{"ok":true,"n":{nth}}}"#))
    }] {
        let agent = Agent { tool: "look", arguments: |nth| format!(r#"{{"n":{nth}}}"#), result, ..AGENT };
        assert_ran(&result(1).to_string(), agent, 7);
    }
}

#[test]
fn paging_scanning_and_work_item_by_item_are_progress() {
    for (tool, arguments, result) in [
        (
            "read",
            (|nth| format!(r#"{{"offset":{}}}"#, 10 * nth)) as fn(usize) -> String,
            (|nth| json!(format!("rows {} and more of the table", "abcdefghijkl".chars().nth(nth).unwrap())))
                as fn(usize) -> Value,
        ),
        ("read", |nth| format!(r#"{{"page":{nth}}}"#), |nth| json!(format!("[{nth}]"))),
        ("delete_row", |nth| format!(r#"{{"id":{nth}}}"#), |_| json!("Deleted.")),
        ("create_row", |nth| format!(r#"{{"n":{nth}}}"#), |_| json!("Created.")),
        (
            "delete_row",
            |nth| format!(r#"{{"id":"0b8e7d6c-1f2a-4c3d-9e8f-0011223344{nth:02}"}}"#),
            |_| json!("Deleted."),
        ),
        (
            "check_slot",
            |nth| format!(r#"{{"start":"2026-01-01T{:02}:{:02}:00Z"}}"#, 8 + nth / 2, 30 * (nth % 2)),
            |_| json!("taken"),
        ),
        ("look", |nth| format!(r#"{{"n":{nth}}}"#), |nth| json!(format!("row {}", 3 * nth + 1))),
        ("check_seat", |nth| format!(r#"{{"seat":{nth}}}"#), |_| json!("taken")),
        ("roll", |nth| format!(r#"{{"n":{nth}}}"#), |nth| json!(format!("{}", 7 * nth % 6))),
    ] {
        assert_undisturbed(&format!("{tool} {}", arguments(1)), Agent { tool, arguments, result, ..AGENT });
    }
}

fn page(nth: usize) -> String {
    format!("Current page: item {} of the list, button {nth}", nth * 37 % 11)
}

fn rows(nth: usize) -> String {
    format!("The page shows the rows to {}% of its height now.", 7 * nth)
}

#[test]
fn other_numbers_are_the_same_progress_after_a_result_as_within_it() {
    for (after, result) in [
        (
            (|nth| user(&json!(page(nth)))) as fn(usize) -> Vec<Value>,
            (|nth| json!(page(nth))) as fn(usize) -> Value,
        ),
        (|nth| user(&json!(rows(nth))), |nth| json!(rows(nth))),
    ] {
        assert_undisturbed("after the result", Agent { after, ..AGENT });
        assert_undisturbed("within it", Agent { result, ..AGENT });
    }
}
