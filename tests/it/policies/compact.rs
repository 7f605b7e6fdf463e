//! `compact` and `history`: a full context is cleared once and stays so; a request that the upstream refuses for its
//! length is sent once more in a shorter form.

use crate::support::client::post;
use crate::support::program::Toolrein;
use crate::support::reply::Reply;
use crate::support::scripted::{Recorded, Scripted};
use crate::support::talk::{Form, Said, Talk, in_both_forms, text};
use serde_json::{Value, json};

const SMALL: &str = "[policy.compact]\nmin_gain = 0\n[model.\"gpt-4o\"]\ncontext_window = 8000\n";
const SHIPPED: &str = "[policy.compact]\n";
const TOO_LONG: &str = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 \
                        tokens. Please reduce the length of the messages.";

/// A conversation that has read so many results of a thousand tokens.
pub fn having_read(form: Form, results: usize) -> Talk {
    let mut talk = Talk::new(form);
    for at in 0..results {
        read(&mut talk, at);
    }
    talk
}

pub fn read(talk: &mut Talk, at: usize) {
    let id = format!("c{at}");
    talk.messages.push(json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": id, "type": "function", "function": {"name": "fetch", "arguments": format!("{{\"n\":{at}}}")}}]}));
    let page = format!("page {at} {}", "word ".repeat(1_000));
    talk.messages.push(json!({"role": "tool", "tool_call_id": id, "content": page}));
}

pub fn messages(request: &Recorded) -> Vec<Value> {
    request.json()["messages"].as_array().unwrap().clone()
}

/// How many results are cleared.
pub fn cleared(request: &Recorded) -> usize {
    let is_cleared = |message: &&Value| {
        message["role"] == "tool"
            && message["content"].as_str().unwrap().starts_with("[toolrein: this old result")
    };
    messages(request).iter().filter(is_cleared).count()
}

/// Asserts that the earlier changes to the history are repeated, and no others are made.
pub fn assert_nothing_new(said: &Said) {
    let shown = said.response.header("x-toolrein-actions").unwrap();
    assert!(shown.starts_with("tokens_saved=") && !shown.contains(','), "nothing new: {shown}");
}

/// A model that answers every request that is short enough.
fn of_small_context(request: &Recorded, refusal: Reply) -> Reply {
    if request.body.len() > 20_000 { refusal } else { text("Short enough.", request) }
}

fn refused() -> Reply {
    Reply::error(400, "invalid_request_error", "context_length_exceeded", TOO_LONG)
}

#[test]
fn a_full_context_is_cleared_once_reported_and_counted_and_stays_as_it_is() {
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
        assert_nothing_new(&said);
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
fn an_overflow_error_in_a_200_body_or_at_the_start_of_a_stream_is_retried() {
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
        ("conversation.holdout = 1.0\n[policy.compact]\n", 6),
    ] {
        let upstream = Scripted::start(|_, _| refused());
        let program = Toolrein::before(&upstream, settings);
        let response = post(&program.chat_url(), having_read(Form::Whole, results).body().to_string());
        assert_eq!(response.json()["error"]["message"].as_str(), Some(TOO_LONG));
        assert_eq!((response.status, upstream.requests().len()), (400, 1), "{settings}");
    }
}

/// Sends a request, and another one when more is known, in one conversation.
fn overflowed(form: Form, program: &Toolrein) -> Talk {
    let mut talk = having_read(form, 6);
    let said = talk.ask(program);
    said.assert_coherent(form);
    assert_eq!(said.text, "Short enough.");
    talk.add(&said);
    talk.say("And?");
    talk
}

#[test]
fn what_was_cleared_for_a_request_that_was_too_long_is_cleared_at_once_from_then_on() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|_, request| of_small_context(request, refused()));
        let program = Toolrein::before(&upstream, SHIPPED);
        let mut talk = overflowed(form, &program);
        for _ in 0..3 {
            let said = talk.ask(&program);
            assert_eq!(said.text, "Short enough.");
            assert_nothing_new(&said);
            talk.add(&said);
            talk.say("And?");
        }
        let requests = upstream.requests();
        // Only the first request was refused.
        assert_eq!(requests.len(), 5);
        for pair in requests[1..].windows(2) {
            let (shorter, longer) = (messages(&pair[0]), messages(&pair[1]));
            assert_eq!(shorter, longer[..shorter.len()]);
        }
        program.wait_for_metric("toolrein_overflows_remembered_total", 3.0);
        program.wait_for_metric("toolrein_fallbacks_total{kind=\"overflow\"}", 1.0);
        program.wait_for_metric("toolrein_prefix_breaks_total", 1.0);
        upstream.assert_clean();
    });
}

#[test]
fn a_second_overflow_of_the_conversation_is_remembered_beside_the_first() {
    let upstream = Scripted::start(|_, request| of_small_context(request, refused()));
    let program = Toolrein::before(&upstream, SHIPPED);
    let mut talk = overflowed(Form::Whole, &program);
    for at in 6..9 {
        read(&mut talk, at);
    }
    for _ in 0..2 {
        let said = talk.ask(&program);
        talk.add(&said);
        talk.say("And?");
    }
    let requests = upstream.requests();
    // Two of each kind: one that is refused and shortened, then one that is shortened from the start.
    assert_eq!(requests.len(), 5);
    assert_eq!(requests.iter().map(cleared).collect::<Vec<_>>(), [0, 4, 4, 7, 7]);
    program.wait_for_metric("toolrein_fallbacks_total{kind=\"overflow\"}", 2.0);
}

#[test]
fn turns_dropped_for_a_request_that_was_too_long_stay_dropped() {
    let upstream = Scripted::start(|_, request| of_small_context(request, refused()));
    let program = Toolrein::before(&upstream, "[policy.history]\n");
    let mut talk = Talk::new(Form::Whole);
    for at in 0..6 {
        read(&mut talk, at);
        talk.messages.push(json!({"role": "assistant", "content": "Read."}));
        talk.say(&format!("Page {at}?"));
    }
    for _ in 0..2 {
        let said = talk.ask(&program);
        talk.add(&said);
        talk.say("And?");
    }
    let requests = upstream.requests();
    assert_eq!(requests.len(), 3);
    let (first, second) = (messages(&requests[1]), messages(&requests[2]));
    assert_eq!(first, second[..first.len()]);
    program.wait_for_metric("toolrein_overflows_remembered_total", 1.0);
}

#[test]
fn without_its_store_the_next_request_is_refused_and_shortened_again() {
    let upstream = Scripted::start(|_, request| of_small_context(request, refused()));
    let talk = overflowed(Form::Whole, &Toolrein::before(&upstream, SHIPPED));
    let program = Toolrein::before(&upstream, SHIPPED);
    assert_eq!(talk.ask(&program).text, "Short enough.");
    assert_eq!(upstream.requests().len(), 4);
    program.wait_for_metric("toolrein_overflows_remembered_total", 0.0);
    program.wait_for_metric("toolrein_fallbacks_total{kind=\"overflow\"}", 1.0);
}

#[test]
fn another_model_or_history_is_not_shortened_for_it() {
    let upstream = Scripted::start(|_, request| of_small_context(request, refused()));
    let program = Toolrein::before(&upstream, SHIPPED);
    let talk = overflowed(Form::Whole, &program);
    let mut elsewhere = Talk { members: talk.members.clone(), messages: talk.messages.clone(), ..talk };
    elsewhere.members["model"] = json!("gpt-4.1");
    elsewhere.ask(&program);
    elsewhere.members["model"] = json!("gpt-4o");
    elsewhere.messages[2]["content"] = json!("changed ".repeat(100));
    elsewhere.ask(&program);
    assert_eq!(upstream.requests().len(), 6, "each was refused first");
}

#[test]
fn a_request_that_is_still_too_long_is_not_tried_again() {
    let upstream = Scripted::start(|_, _| refused());
    let program = Toolrein::before(&upstream, SHIPPED);
    let response = post(&program.chat_url(), having_read(Form::Whole, 6).body().to_string());
    assert_eq!((response.status, upstream.requests().len()), (400, 2));
}

#[test]
fn the_oldest_turns_go_when_the_history_has_too_many_characters() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|_, request| text("Yes.", request));
        let program = Toolrein::before(&upstream, "[policy.history]\nmax_chars = 30000\ndown_to = 0.5\n");
        let mut talk = Talk::new(form);
        read(&mut talk, 0);
        for at in 1..6 {
            talk.messages.push(json!({"role": "assistant", "content": "Read."}));
            talk.say(&format!("Page {at}?"));
            read(&mut talk, at);
        }
        for _ in 0..2 {
            let said = talk.ask(&program);
            said.assert_coherent(form);
            talk.add(&said);
            talk.say("And?");
        }
        let requests = upstream.requests();
        let (first, second) = (messages(&requests[0]), messages(&requests[1]));
        assert_eq!(first[0]["content"], "Page 4?");
        assert!(first[1]["content"].as_str().unwrap().contains("The 4 oldest turns of this conversation"));
        assert_eq!(first, second[..first.len()]);
        program.wait_for_metric("toolrein_prefix_breaks_total{cause=\"history\"}", 1.0);
        upstream.assert_clean();
    });
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
