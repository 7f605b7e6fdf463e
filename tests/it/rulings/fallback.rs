//! Fallbacks: what an upstream refuses is left out once, remembered, and reported. Forced answers are never touched.

use crate::support::client::post;
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::{Recorded, Scripted};
use crate::support::talk::{Form, Talk, in_both_forms, search, text};
use serde_json::json;

const NO_TOOLS: &str = "registry.ollama.ai/library/gemma:2b does not support tools";

fn refusing_tools(request: &Recorded) -> Reply {
    match request.json().get("tools") {
        Some(_) => Reply::error(400, "invalid_request_error", "bad", NO_TOOLS),
        None => text("Without tools, then.", request),
    }
}

fn with_all_five(form: Form) -> Talk {
    let mut talk = Talk::new(form);
    talk.members["tool_choice"] = json!("auto");
    talk.members["parallel_tool_calls"] = json!(true);
    talk
}

#[test]
fn a_model_without_tools_answers_once_without_them_and_that_is_remembered_and_reported() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|_, request| refusing_tools(request));
        let program = Toolrein::before(&upstream, "");
        let said = with_all_five(form).ask(&program);
        said.assert_coherent(form);
        assert_eq!(said.text, "Without tools, then.");
        assert!(said.response.header("x-toolrein-actions").unwrap().contains("tools_unsupported="));
        let retried = upstream.request(1).json();
        for member in ["tools", "tool_choice", "parallel_tool_calls"] {
            assert!(retried.get(member).is_none(), "{member}");
        }
        let notice = retried["messages"].as_array().unwrap().last().unwrap();
        assert_eq!(notice["role"], "system");
        assert!(notice["content"].as_str().unwrap().starts_with("[toolrein] No tools"));
        with_all_five(form).ask(&program);
        assert_eq!(upstream.requests().len(), 3, "the second request goes without tools at once");
        program.wait_for_metric("toolrein_fallbacks_total{kind=\"tools\"}", 1.0);
        upstream.assert_clean();
    });
}

#[test]
fn an_error_inside_a_200_body_or_at_the_head_of_a_stream_counts_too() {
    for (form, refusal) in [
        (Form::Whole, Reply::error(200, "invalid_request_error", "bad", NO_TOOLS)),
        (Form::Streamed, Reply::stream([format!("data: {{\"error\":{{\"message\":\"{NO_TOOLS}\"}}}}\n\n")])),
        (
            Form::Streamed,
            Reply::stream([
                format!("event: error\ndata: {{\"error\":{{\"message\":\"{NO_TOOLS}\"}}}}\n\n"),
                "data: [DONE]\n\n".into(),
            ]),
        ),
    ] {
        let upstream = Scripted::start(move |nth, request| match nth {
            0 => refusal.clone(),
            _ => refusing_tools(request),
        });
        let program = Toolrein::before(&upstream, "");
        let said = Talk::new(form).ask(&program);
        said.assert_coherent(form);
        assert_eq!(said.text, "Without tools, then.");
    }
}

#[test]
fn nothing_is_remembered_of_a_model_that_took_no_form_of_the_request() {
    in_both_forms(|form| {
        let error = |message: &str| match form {
            Form::Whole => Reply::error(200, "server_error", "bad", message),
            Form::Streamed => {
                Reply::stream([format!("data: {{\"error\":{{\"message\":\"{message}\"}}}}\n\n")])
            }
        };
        let (without, with) = (error("The server is overloaded."), error(NO_TOOLS));
        let upstream = Scripted::start(move |_, request| match request.json().get("tools") {
            Some(_) => with.clone(),
            None => without.clone(),
        });
        let program = Toolrein::before(&upstream, "");
        for _ in 0..2 {
            let response = post(&program.chat_url(), Talk::new(form).body().to_string());
            assert!(response.text().contains("overloaded"), "{}", response.text());
        }
        let has_tools = |request: &Recorded| request.json().get("tools").is_some();
        assert_eq!(upstream.requests().iter().map(has_tools).collect::<Vec<_>>(), [true, false, true, false]);
    });
}

#[test]
fn a_refusal_that_goes_to_the_client_is_no_sign_that_the_model_takes_the_request() {
    // In the head of a stream, and as a body with the status 200: by its form alone the reply is a success.
    for form in [Form::Whole, Form::Streamed] {
        let refusal = match form {
            Form::Whole => Reply::error(200, "invalid_request_error", "bad", NO_TOOLS),
            Form::Streamed => {
                Reply::stream([format!("data: {{\"error\":{{\"message\":\"{NO_TOOLS}\"}}}}\n\n")])
            }
        };
        let upstream = Scripted::start(move |_, request| match request.json().get("tools") {
            Some(_) => refusal.clone(),
            None => text("Without tools, then.", request),
        });
        let program = Toolrein::before(&upstream, "");
        assert_eq!(Talk::new(form).ask(&program).text, "Without tools, then.");
        let mut forced = Talk::new(form);
        forced.members["tool_choice"] = json!("required");
        let response = post(&program.chat_url(), forced.body().to_string());
        assert!(response.text().contains(NO_TOOLS), "{}", response.text());
        assert_eq!(Talk::new(form).ask(&program).text, "Without tools, then.");
        let has_tools = |request: &Recorded| request.json().get("tools").is_some();
        let sent: Vec<bool> = upstream.requests().iter().map(has_tools).collect();
        assert_eq!(sent, [true, false, true, false], "{form:?}: the refusal is still known");
    }
}

#[test]
fn other_errors_and_an_operator_who_wants_them_passed_on_see_the_refusal() {
    let upstream = Scripted::start(|_, request| refusing_tools(request));
    let program = Toolrein::before(&upstream, "upstream.tools_unsupported = \"pass\"\n");
    let response = post(&program.chat_url(), Talk::new(Form::Whole).body().to_string());
    assert_eq!((response.status, response.json()["error"]["message"].as_str()), (400, Some(NO_TOOLS)));
    let upstream = Scripted::start(|_, _| {
        Reply::error(
            400,
            "invalid_request_error",
            "bad",
            "Invalid schema for function 'search': missing properties",
        )
    });
    let program = Toolrein::before(&upstream, "");
    assert_eq!(post(&program.chat_url(), Talk::new(Form::Whole).body().to_string()).status, 400);
    assert_eq!(upstream.requests().len(), 1);
}

#[test]
fn a_forced_answer_is_never_asked_for_without_its_tool() {
    for choice in [json!("required"), json!({"type": "function", "function": {"name": "search"}})] {
        let upstream = Scripted::start(|_, request| refusing_tools(request));
        let program = Toolrein::before(&upstream, "");
        let mut talk = Talk::new(Form::Whole);
        talk.members["tool_choice"] = choice;
        let response = post(&program.chat_url(), talk.body().to_string());
        assert_eq!((response.status, upstream.requests().len()), (400, 1));
    }
}

#[test]
fn a_refused_choice_is_dropped_alone() {
    in_both_forms(|form| {
        let refused = "tool_choice is not supported by this model";
        let upstream = Scripted::start(move |_, request| match request.json().get("tool_choice") {
            Some(_) => Reply::error(400, "invalid_request_error", "bad", refused),
            None => text("Fine.", request),
        });
        let program = Toolrein::before(&upstream, "");
        let said = with_all_five(form).ask(&program);
        assert_eq!(said.text, "Fine.");
        let retried = upstream.request(1).json();
        assert!(retried.get("tools").is_some() && retried.get("tool_choice").is_none());
    });
}

#[test]
fn tool_history_goes_as_text_where_the_upstream_refuses_it() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|_, request| {
            let body = request.json();
            let messages = body["messages"].as_array().unwrap().clone();
            if body.get("tools").is_some() {
                return Reply::error(400, "invalid_request_error", "bad", NO_TOOLS);
            }
            if messages.iter().any(|message| message["role"] == "tool") {
                let text = "Messages with role 'tool' are not supported by this model";
                return Reply::error(400, "invalid_request_error", "bad", text);
            }
            text("As text, then.", request)
        });
        let program = Toolrein::before(&upstream, "");
        let mut talk = Talk::new(form);
        talk.messages.push(json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "search", "arguments": "{\"q\":1}"}}]}));
        talk.messages.push(json!({"role": "tool", "tool_call_id": "a", "content": "found"}));
        let said = talk.ask(&program);
        said.assert_coherent(form);
        assert_eq!(said.text, "As text, then.");
        let flat = upstream.request(2).json()["messages"].to_string();
        assert!(flat.contains("[called search with") && flat.contains("[result of search]"), "{flat}");
        assert_eq!(upstream.requests().len(), 3);
    });
}

#[test]
fn a_model_without_tools_that_calls_is_asked_again_in_text() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| {
            let body = request.json();
            if body.get("tools").is_some() {
                return refusing_tools(request);
            }
            if body.to_string().contains("tool_calls") {
                let misses =
                    "The toolConfig field must be defined when using toolUse and toolResult content blocks.";
                return Reply::error(400, "invalid_request_error", "bad", misses);
            }
            if nth == 1 { search(nth, request) } else { text("Without tools, then.", request) }
        });
        let program = Toolrein::before(&upstream, "[policy.budget]\ncontext_tokens = 1\ntool_calls = 0\n");
        let mut talk = Talk::new(form);
        let said = talk.ask(&program);
        said.assert_coherent(form);
        assert_eq!(said.text, "Without tools, then.");
        assert!(upstream.request(2).json().to_string().contains("[called search"));
        talk.add(&said);
        talk.say("And?");
        assert_eq!(talk.ask(&program).text, "Without tools, then.", "what is put back goes as text too");
        upstream.assert_clean();
    });
}

#[test]
fn a_refused_late_system_message_is_placed_once_more_as_a_suffix_and_remembered() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|_, request| {
            let messages = request.json()["messages"].as_array().unwrap().clone();
            if messages.iter().skip(1).any(|message| message["role"] == "system") {
                return Reply::error(
                    400,
                    "BadRequestError",
                    "400",
                    "System message must be at the beginning.",
                );
            }
            Reply::speech(request, &Speech::text("Seen."))
        });
        let program = Toolrein::before(&upstream, "[policy.budget]\ntool_calls = 1\n");
        let mut talk = Talk::new(form);
        talk.messages.push(json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "search", "arguments": "{}"}}]}));
        talk.messages.push(json!({"role": "tool", "tool_call_id": "a", "content": "found"}));
        assert_eq!(talk.ask(&program).text, "Seen.");
        let second = upstream.request(1).json()["messages"][2]["content"].as_str().unwrap().to_owned();
        assert!(second.starts_with("found\n\n[toolrein] Budget: 1 of 1 tool call"), "{second}");
        assert_eq!(talk.ask(&program).text, "Seen.");
        assert_eq!(upstream.requests().len(), 3, "remembered");
        program.wait_for_metric("toolrein_prefix_breaks_total{cause=\"placement\"}", 1.0);
    });
}

#[test]
fn the_answer_says_so_to_the_person_where_the_operator_wants_that() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|_, request| refusing_tools(request));
        let program = Toolrein::before(&upstream, "upstream.tools_unsupported_tell = \"text\"\n");
        for _ in 0..2 {
            let said = Talk::new(form).ask(&program);
            said.assert_coherent(form);
            assert_eq!(
                said.text,
                "(This model does not support tools. It answered without them.)\n\nWithout tools, then."
            );
        }
    });
}

#[test]
fn while_observing_a_refusal_is_passed_on() {
    let upstream = Scripted::start(|_, request| refusing_tools(request));
    let program = Toolrein::before(&upstream, "mode = \"observe\"\n");
    let response = post(&program.chat_url(), Talk::new(Form::Whole).body().to_string());
    assert_eq!((response.status, upstream.requests().len()), (400, 1));
    program.wait_for_metric("toolrein_fallbacks_total{kind=\"tools\"}", 1.0);
}

#[test]
fn an_answer_tool_that_is_offered_keeps_all_tools() {
    let upstream = Scripted::start(|_, request| refusing_tools(request));
    let program = Toolrein::before(&upstream, "");
    let mut talk = Talk::new(Form::Whole);
    talk.members["tools"]
        .as_array_mut()
        .unwrap()
        .push(json!({"type": "function", "function": {"name": "final_answer"}}));
    assert_eq!(post(&program.chat_url(), talk.body().to_string()).status, 400);
    assert_eq!(upstream.requests().len(), 1);
}

#[test]
fn what_one_deployment_refuses_is_not_held_against_another() {
    let upstream = Scripted::start(|_, request| {
        let refuses = request.path.contains("/small/") && request.json().get("tools").is_some();
        if refuses { refusing_tools(request) } else { text("Here.", request) }
    });
    let program = Toolrein::before(&upstream, "");
    let mut talk = Talk::new(Form::Whole);
    talk.members.as_object_mut().unwrap().remove("model");
    for deployment in ["small", "big"] {
        let url = format!("{}/openai/deployments/{deployment}/chat/completions", program.origin());
        assert_eq!(post(&url, talk.body().to_string()).status, 200);
    }
    assert!(upstream.requests().last().unwrap().json().get("tools").is_some());
}

#[test]
fn where_a_choice_is_refused_the_landing_goes_without_tools_at_once() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| {
            let body = request.json();
            if body.get("tool_choice").is_some() {
                return Reply::error(
                    400,
                    "invalid_request_error",
                    "bad",
                    "tool_choice is not supported by this model",
                );
            }
            if body.get("tools").is_some() {
                crate::support::talk::search(nth, request)
            } else {
                text("So be it.", request)
            }
        });
        let program = Toolrein::before(&upstream, "reask.max = 0\n[policy.budget]\ncontext_tokens = 1\n");
        let said = with_all_five(form).ask(&program);
        said.assert_coherent(form);
        assert_eq!(said.text, "So be it.", "and no line to the person that the model takes no tools");
        assert_eq!(upstream.requests().len(), 3, "refused, asked without choice, landed");
    });
}

#[test]
fn a_request_without_tools_is_never_sent_again_without_them() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|_, _| Reply::error(400, "invalid_request_error", "bad", NO_TOOLS));
        let program = Toolrein::before(&upstream, "");
        let mut talk = Talk::new(form);
        talk.members.as_object_mut().unwrap().remove("tools");
        let response = post(&program.chat_url(), talk.body().to_string());
        assert_eq!((response.status, upstream.requests().len()), (400, 1));
    });
}

#[test]
fn a_template_that_takes_users_and_assistants_alone_gets_the_tool_history_as_text() {
    in_both_forms(|form| {
        for refusal in [
            "Only user and assistant roles are supported!",
            "Invalid value: 'tool'. Supported values are: 'system', 'assistant', 'user', and 'function'.",
        ] {
            let upstream = Scripted::start(move |_, request| {
                let messages = request.json()["messages"].as_array().unwrap().clone();
                match messages.iter().any(|message| message["role"] == "tool") {
                    true => Reply::error(400, "BadRequestError", "bad", refusal),
                    false => text("As text, then.", request),
                }
            });
            let program = Toolrein::before(&upstream, "");
            let mut talk = Talk::new(form);
            talk.messages.push(json!({"role": "assistant", "content": null, "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "search", "arguments": "{}"}}]}));
            talk.messages.push(json!({"role": "tool", "tool_call_id": "a", "content": "found"}));
            for requests in [2, 3] {
                assert_eq!(talk.ask(&program).text, "As text, then.");
                assert_eq!(upstream.requests().len(), requests, "remembered: {refusal}");
            }
        }
    });
}
