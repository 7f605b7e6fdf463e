//! What a model refuses counts for the caller whose request met it, and for all callers once two have met it. It is
//! logged once, counted, shown by the health page, and tried again.

use crate::support::client::{Request, Response, get};
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::responses::Output;
use crate::support::scripted::{Recorded, Scripted};
use crate::support::talk::{Form, Talk, in_both_forms};
use crate::support::until;
use serde_json::{Value, json};

/// As OpenRouter says it where an account's settings exclude every provider that takes tools.
const NO_ENDPOINTS: &str =
    "No endpoints found that support tool use. To learn more, visit the documentation.";

fn no_tools() -> Reply {
    Reply::error(404, "invalid_request_error", "404", NO_ENDPOINTS)
}

fn has_tools(request: &Recorded) -> bool {
    request.json().get("tools").is_some()
}

/// Of the caller with this key.
fn is_of(request: &Recorded, key: &str) -> bool {
    request.header("authorization") == Some(format!("Bearer {key}").as_str())
}

fn ask(url: &str, key: &str, body: &Value) -> Response {
    let request = Request::new("POST", url, body.to_string()).header("content-type", "application/json");
    let response = request.header("authorization", &format!("Bearer {key}")).send();
    assert_eq!(response.status, 200, "{}", response.text());
    response
}

fn chat(program: &Toolrein, key: &str, form: Form) -> Response {
    ask(&program.chat_url(), key, &Talk::new(form).body())
}

/// Whether each request had tools.
fn sent(upstream: &Scripted) -> Vec<bool> {
    upstream.requests().iter().map(has_tools).collect()
}

#[test]
fn one_callers_refusal_leaves_the_tools_of_all_others() {
    in_both_forms(|form| {
        let upstream =
            Scripted::start(|_, request| match is_of(request, "sk-team-1") && has_tools(request) {
                true => no_tools(),
                false => Reply::speech(request, &Speech::text("Fine.")),
            });
        let program = Toolrein::before(&upstream, "");
        for _ in 0..3 {
            chat(&program, "sk-team-1", form);
        }
        assert_eq!(sent(&upstream), [true, false, false, false], "remembered for the caller");
        for key in ["sk-team-2", "sk-team-", "sk-team-11", "SK-TEAM-1"] {
            for _ in 0..5 {
                chat(&program, key, form);
            }
        }
        assert_eq!(sent(&upstream)[4..], [true; 20]);
    });
}

#[test]
fn over_the_responses_api_too_and_what_it_refuses_is_not_held_against_chat_completions() {
    let upstream = Scripted::start(|_, request| match is_of(request, "sk-1") && has_tools(request) {
        true => no_tools(),
        false if request.path.contains("responses") => Output::text("resp_1", "Fine.").reply(request),
        false => Reply::speech(request, &Speech::text("Fine.")),
    });
    let program = Toolrein::before(&upstream, "");
    let url = format!("{}/responses", program.base_url());
    let tools = json!([{"type": "function", "name": "search", "parameters": {"type": "object"}}]);
    for stream in [false, true] {
        let body = json!({"model": "gpt-4o", "input": "Hello.", "tools": tools, "stream": stream});
        ["sk-1", "sk-1", "sk-2"].iter().for_each(|key| drop(ask(&url, key, &body)));
    }
    assert_eq!(sent(&upstream), [true, false, false, true, false, false, true]);
    chat(&program, "sk-1", Form::Whole);
    assert_eq!(sent(&upstream)[7..], [true, false], "another path is another endpoint");
}

#[test]
fn what_two_callers_have_met_counts_for_all_is_logged_once_counted_and_shown() {
    let upstream = Scripted::start(|_, request| match has_tools(request) {
        true => no_tools(),
        false => Reply::speech(request, &Speech::text("Without.")),
    });
    let program = Toolrein::before(&upstream, "");
    for key in ["sk-1", "sk-1", "sk-2", "sk-3", "sk-4"] {
        chat(&program, key, Form::Whole);
    }
    assert_eq!(sent(&upstream), [true, false, false, true, false, false, false]);
    let series = |name: &str, callers: &str| {
        format!(
            "toolrein_model_refusals{name}_total{{callers=\"{callers}\",kind=\"tools\",model=\"gpt-4o\"}}"
        )
    };
    program.wait_for_metric(&series("_avoided", "all"), 2.0);
    program.wait_for_metric(&series("_avoided", "one"), 1.0);
    program.wait_for_metric(&series("", "one"), 1.0);
    program.wait_for_metric(&series("", "all"), 1.0);
    let health = get(&format!("{}/api/health", program.admin_url())).json();
    let shown = |callers: &str| {
        let rows = health["refusals"].as_array().unwrap();
        let row = rows.iter().find(|row| row["callers"] == callers).unwrap();
        assert_eq!((&row["model"], &row["kind"]), (&json!("gpt-4o"), &json!("tools")));
        assert!(row["cost"].as_str().unwrap().contains("the model can call nothing"), "{row}");
        (row["met"].as_u64().unwrap(), row["avoided"].as_u64().unwrap())
    };
    assert_eq!((shown("one"), shown("all")), ((1, 1), (1, 2)));
    let logs = program.stop();
    let told = |whom: &str| {
        let is_so = |line: &&String| line.contains("the model can call nothing") && line.contains(whom);
        logs.iter().filter(is_so).count()
    };
    assert_eq!((told("the caller whose request met it"), told("all callers")), (1, 1), "{logs:#?}");
    assert!(!logs.concat().contains("sk-1"));
}

#[test]
fn a_caller_whose_tools_are_accepted_keeps_them_whatever_others_meet() {
    in_both_forms(|form| {
        let takes = ["sk-paid", "sk-new"];
        let upstream = Scripted::start(move |_, request| {
            match has_tools(request) && !takes.iter().any(|key| is_of(request, key)) {
                true => no_tools(),
                false => Reply::speech(request, &Speech::text("Fine.")),
            }
        });
        let program = Toolrein::before(&upstream, "");
        for key in ["sk-paid", "sk-free-1", "sk-free-2", "sk-free-3"] {
            chat(&program, key, form);
        }
        let free = [true, false, true, false, false];
        assert_eq!(sent(&upstream), [&[true][..], &free].concat(), "two of three have met it");
        chat(&program, "sk-paid", form);
        assert!(sent(&upstream)[6]);
        chat(&program, "sk-new", form);
        assert!(sent(&upstream)[7], "refusals and a request that was accepted: nothing counts for all");
    });
}

#[test]
fn a_refusal_is_tried_again_and_ends_where_the_model_takes_tools_again() {
    let upstream = Scripted::start(|nth, request| match nth == 0 && has_tools(request) {
        true => no_tools(),
        false => Reply::speech(request, &Speech::text("Fine.")),
    });
    let program = Toolrein::before(&upstream, "upstream.remember = \"2s\"\n");
    chat(&program, "sk-1", Form::Whole);
    until("a request with tools", || {
        chat(&program, "sk-1", Form::Whole);
        sent(&upstream).last().copied().filter(|has_tools| *has_tools)
    });
    for _ in 0..3 {
        chat(&program, "sk-1", Form::Whole);
    }
    assert!(sent(&upstream).ends_with(&[true; 4]), "{:?}", sent(&upstream));
}

/// One form that a model refuses: a request of that form, whether a request has it, and the upstream's words.
struct Kind {
    name: &'static str,
    settings: &'static str,
    form: Form,
    members: Value,
    refused: fn(&Value) -> bool,
    words: &'static str,
}

fn has_late_system(body: &Value) -> bool {
    body["messages"].as_array().unwrap().iter().skip(1).any(|message| message["role"] == "system")
}

fn has_history(body: &Value) -> bool {
    body["messages"].as_array().unwrap().iter().any(|message| message["role"] == "tool")
}

fn kinds() -> Vec<Kind> {
    let none = || json!({});
    vec![
        Kind {
            name: "choice",
            settings: "",
            form: Form::Whole,
            members: json!({"tool_choice": "none"}),
            refused: |body| body.get("tool_choice").is_some(),
            words: "tool_choice is not supported by this model",
        },
        Kind {
            name: "forced choice",
            settings: "",
            form: Form::Whole,
            members: json!({"tool_choice": "required"}),
            refused: |body| body.get("tool_choice").is_some(),
            words: "Thinking mode does not support this tool_choice",
        },
        Kind {
            name: "history",
            settings: "",
            form: Form::Whole,
            members: json!({"tools": null}),
            refused: has_history,
            words: "This model does not support tool messages",
        },
        Kind {
            name: "placement",
            settings: "[policy.budget]\ntool_calls = 1\n",
            form: Form::Whole,
            members: none(),
            refused: has_late_system,
            words: "System message must be at the beginning.",
        },
        Kind {
            name: "streaming",
            settings: "",
            form: Form::Streamed,
            members: none(),
            refused: |body| body["stream"] == true,
            words: "This model doesn't support tool use in streaming mode.",
        },
        Kind {
            name: "usage",
            settings: "upstream.ask_usage = true\n",
            form: Form::Streamed,
            members: json!({"stream_options": null}),
            refused: |body| body["stream_options"].is_object(),
            words: "Unknown parameter: 'stream_options'",
        },
        Kind {
            name: "names in the history",
            settings: "",
            form: Form::Whole,
            members: none(),
            refused: |body| body["messages"][1]["tool_calls"][0]["function"]["name"] == "browser.open",
            words: "Invalid 'messages[1].tool_calls[0].function.name': string does not match pattern '^[a-zA-Z0-9_-]+$'.",
        },
    ]
}

#[test]
fn every_refusal_that_is_remembered_is_remembered_by_caller() {
    for Kind { name, settings, form, members, refused, words } in kinds() {
        let upstream = Scripted::start(move |_, request| match refused(&request.json()) {
            true => Reply::error(400, "invalid_request_error", "400", words),
            false => Reply::speech(request, &Speech::text("Fine.")),
        });
        let program = Toolrein::before(&upstream, settings);
        let mut talk = Talk::new(form);
        let called = if name.starts_with("names") { "browser.open" } else { "search" };
        talk.messages.push(json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": called, "arguments": "{}"}}]}));
        talk.messages.push(json!({"role": "tool", "tool_call_id": "a", "content": "found"}));
        let mut body = talk.body();
        for (member, value) in members.as_object().unwrap() {
            match value.is_null() {
                true => drop(body.as_object_mut().unwrap().remove(member)),
                false => body[member] = value.clone(),
            }
        }
        for key in ["sk-1", "sk-1", "sk-2", "sk-3"] {
            ask(&program.chat_url(), key, &body);
        }
        let sent: Vec<bool> = upstream.requests().iter().map(|request| refused(&request.json())).collect();
        let expected = [true, false, false, true, false, false];
        assert_eq!(sent, expected, "{name}: the second caller tries, and the third one need not");
    }
}
