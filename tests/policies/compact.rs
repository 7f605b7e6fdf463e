//! `compact` and `history`: a full context is cleared once and stays so; a request that the upstream refuses for its
//! length is sent once more in a shorter form.

use crate::support::client::post;
use crate::support::program::Toolrein;
use crate::support::reply::Reply;
use crate::support::scripted::{Recorded, Scripted};
use crate::talk::{Form, Talk, in_both_forms, text};
use serde_json::{Value, json};

const SMALL: &str = "[policy.compact]\nmin_gain = 0\n[model.\"gpt-4o\"]\ncontext_window = 8000\n";
const SHIPPED: &str = "[policy.compact]\n";
const TOO_LONG: &str = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 \
                        tokens. Please reduce the length of the messages.";

/// A conversation that has read so many results of a thousand tokens.
fn having_read(form: Form, results: usize) -> Talk {
    let mut talk = Talk::new(form);
    for at in 0..results {
        read(&mut talk, at);
    }
    talk
}

fn read(talk: &mut Talk, at: usize) {
    let id = format!("c{at}");
    talk.messages.push(json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": id, "type": "function", "function": {"name": "fetch", "arguments": format!("{{\"n\":{at}}}")}}]}));
    let page = format!("page {at} {}", "word ".repeat(1_000));
    talk.messages.push(json!({"role": "tool", "tool_call_id": id, "content": page}));
}

fn messages(request: &Recorded) -> Vec<Value> {
    request.json()["messages"].as_array().unwrap().clone()
}

/// How many results are cleared.
fn cleared(request: &Recorded) -> usize {
    let is_cleared = |message: &&Value| {
        message["role"] == "tool"
            && message["content"].as_str().unwrap().starts_with("[toolrein: this old result")
    };
    messages(request).iter().filter(is_cleared).count()
}

/// Answers whatever is short enough.
fn of_small_context(request: &Recorded, refusal: Reply) -> Reply {
    if request.body.len() > 20_000 { refusal } else { text("Short enough.", request) }
}

fn refused() -> Reply {
    Reply::error(400, "invalid_request_error", "context_length_exceeded", TOO_LONG)
}

#[test]
fn a_full_context_is_cleared_once_told_and_counted_and_stays_as_it_is() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|_, request| text("Read.", request));
        let program = Toolrein::before(&upstream, SMALL);
        let mut talk = having_read(form, 7);
        let said = talk.ask(&program);
        said.assert_coherent(form);
        assert_eq!((said.text.as_str(), cleared(&upstream.request(0))), ("Read.", 5));
        assert!(said.response.header("x-toolrein-actions").unwrap().contains("compact=5"));
        talk.add(&said);
        talk.say("And?");
        let said = talk.ask(&program);
        let told = said.response.header("x-toolrein-actions").unwrap();
        assert!(told.starts_with("tokens_saved="), "nothing new: {told}");
        let (first, second) = (messages(&upstream.request(0)), messages(&upstream.request(1)));
        assert_eq!(first, second[..first.len()]);
        program.wait_for_metric("toolrein_prefix_breaks_total{cause=\"compact\"}", 1.0);
        program.wait_for_metric("toolrein_actions_total{policy=\"compact\",action=\"cleared\"}", 5.0);
        upstream.assert_clean();
    });
}

#[test]
fn a_request_that_is_too_long_is_sent_once_more_with_its_old_results_cleared() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|_, request| of_small_context(request, refused()));
        let program = Toolrein::before(&upstream, SHIPPED);
        let said = having_read(form, 6).ask(&program);
        said.assert_coherent(form);
        assert_eq!(said.text, "Short enough.");
        assert!(said.response.header("x-toolrein-actions").unwrap().contains("compact=4"));
        assert_eq!((upstream.requests().len(), cleared(&upstream.request(1))), (2, 4));
        program.wait_for_metric("toolrein_fallbacks_total{kind=\"overflow\"}", 1.0);
        program.wait_for_metric("toolrein_prefix_breaks_total{cause=\"overflow\"}", 1.0);
        upstream.assert_clean();
    });
}

#[test]
fn the_same_inside_a_200_body_and_at_the_head_of_a_stream() {
    for (form, refusal) in [
        (Form::Whole, Reply::error(200, "invalid_request_error", "bad", TOO_LONG)),
        (Form::Streamed, Reply::stream([format!("data: {{\"error\":{{\"message\":\"{TOO_LONG}\"}}}}\n\n")])),
    ] {
        let upstream = Scripted::start(move |_, request| of_small_context(request, refusal.clone()));
        let program = Toolrein::before(&upstream, SHIPPED);
        let said = having_read(form, 6).ask(&program);
        said.assert_coherent(form);
        assert_eq!((said.text.as_str(), upstream.requests().len()), ("Short enough.", 2));
    }
}

#[test]
fn the_error_is_passed_on_where_nothing_can_go_where_the_operator_wants_it_and_while_observing() {
    for (settings, results) in [
        (SHIPPED, 2),
        ("", 6),
        ("upstream.overflow = \"pass\"\n[policy.compact]\n", 6),
        ("mode = \"observe\"\n[policy.compact]\n", 6),
    ] {
        let upstream = Scripted::start(|_, _| refused());
        let program = Toolrein::before(&upstream, settings);
        let response = post(&program.chat_url(), having_read(Form::Whole, results).body().to_string());
        assert_eq!(response.json()["error"]["message"].as_str(), Some(TOO_LONG));
        assert_eq!((response.status, upstream.requests().len()), (400, 1), "{settings}");
    }
}

#[test]
fn a_request_that_is_still_too_long_is_not_tried_again() {
    let upstream = Scripted::start(|_, _| refused());
    let program = Toolrein::before(&upstream, SHIPPED);
    let response = post(&program.chat_url(), having_read(Form::Whole, 6).body().to_string());
    assert_eq!((response.status, upstream.requests().len()), (400, 2));
}

#[test]
fn the_oldest_turns_go_when_the_history_is_too_long() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|_, request| text("Yes.", request));
        let program = Toolrein::before(&upstream, "[policy.history]\nmax_tokens = 5000\ndown_to = 0.5\n");
        let mut talk = Talk::new(form);
        read(&mut talk, 0);
        for at in 1..5 {
            talk.messages.push(json!({"role": "assistant", "content": "Read."}));
            talk.say(&format!("Page {at}?"));
            read(&mut talk, at);
        }
        let said = talk.ask(&program);
        said.assert_coherent(form);
        let sent = messages(&upstream.request(0));
        assert_eq!(sent[0]["content"], "Page 3?");
        assert!(
            sent[1]["content"].as_str().unwrap().contains("The 3 oldest turns of this conversation"),
            "{}",
            sent[1]
        );
        assert!(said.response.header("x-toolrein-actions").unwrap().contains("history="));
        program.wait_for_metric("toolrein_prefix_breaks_total{cause=\"history\"}", 1.0);
        upstream.assert_clean();
    });
}
