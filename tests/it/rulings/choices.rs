//! Ruling 6: several choices in one reply.

use crate::support::client::{Response, post};
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::{Recorded, Scripted};
use crate::support::talk::{Form, Talk, in_both_forms};
use serde_json::{Value, json};

/// A reply whose choice 0 says something and whose choice 1 calls.
fn two(request: &Recorded) -> Reply {
    let call = json!([{"index": 0, "id": "a", "type": "function", "function": {"name": "search", "arguments": "{}"}}]);
    if request.json()["stream"] != true {
        return Reply::json(
            200,
            &json!({"id": "c1", "object": "chat.completion", "created": 1, "model": "m", "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "one"}, "finish_reason": "stop"},
            {"index": 1, "message": {"role": "assistant", "content": null, "tool_calls": call}, "finish_reason": "tool_calls"},
        ], "usage": {"total_tokens": 3}}),
        );
    }
    let chunk = |index: u32, delta: Value, finish: Value| {
        json!({"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [{"index": index, "delta": delta, "finish_reason": finish}]})
    };
    Reply::events(&[
        chunk(0, json!({"role": "assistant", "content": "one"}), Value::Null),
        chunk(1, json!({"role": "assistant", "tool_calls": call}), Value::Null),
        chunk(0, json!({}), json!("stop")),
        chunk(1, json!({}), json!("tool_calls")),
    ])
}

/// What each choice says.
fn texts(response: &Response, form: Form) -> Vec<String> {
    let mut texts = vec![String::new(), String::new()];
    let (chunks, member) = match form {
        Form::Whole => (vec![response.json()], "message"),
        Form::Streamed => (response.chunks(), "delta"),
    };
    for choice in chunks.iter().flat_map(|chunk| chunk["choices"].as_array().unwrap()) {
        let at = choice["index"].as_u64().unwrap() as usize;
        texts[at] += choice[member]["content"].as_str().unwrap_or_default();
        assert!(choice[member].get("tool_calls").is_none());
    }
    texts
}

#[test]
fn a_wholly_blocked_choice_is_asked_for_again_alone_and_answers_under_its_own_index() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| match nth {
            0 => two(request),
            _ => crate::support::talk::text("two", request),
        });
        let program = Toolrein::before(&upstream, "[policy.budget]\ncontext_tokens = 1\n");
        let mut talk = Talk::new(form);
        talk.members["n"] = json!(2);
        let response = post(&program.chat_url(), talk.body().to_string());
        assert_eq!(texts(&response, form), ["one", "two"], "{}", response.text());
        let asked = upstream.request(1).json();
        assert_eq!((&asked["n"], asked["messages"].as_array().unwrap().len()), (&json!(1), 3));
        assert_eq!(upstream.requests().len(), 2);
        upstream.assert_clean();
    });
}

#[test]
fn each_choice_that_stays_silent_gets_the_sentence() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| match nth {
            0 => silent(request),
            _ => crate::support::talk::search(nth, request),
        });
        let program = Toolrein::before(&upstream, "reask.max = 0\n[policy.budget]\ncontext_tokens = 1\n");
        let mut talk = Talk::new(form);
        talk.members["n"] = json!(2);
        let response = post(&program.chat_url(), talk.body().to_string());
        for text in texts(&response, form) {
            assert!(text.starts_with("I could not finish this"), "{}", response.text());
        }
    });
}

/// A reply whose two choices both call.
fn silent(request: &Recorded) -> Reply {
    let call = json!([{"index": 0, "id": "a", "type": "function", "function": {"name": "search", "arguments": "{}"}}]);
    let choice = |index: u32, member: &str| json!({"index": index, member: {"role": "assistant", "content": null, "tool_calls": call}, "finish_reason": "tool_calls"});
    let body = |choices: Value, object: &str| json!({"id": "c1", "object": object, "created": 1, "model": "m", "choices": choices});
    if request.json()["stream"] == true {
        return Reply::events(&[
            body(json!([choice(0, "delta")]), "chat.completion.chunk"),
            body(json!([choice(1, "delta")]), "chat.completion.chunk"),
        ]);
    }
    Reply::json(200, &body(json!([choice(0, "message"), choice(1, "message")]), "chat.completion"))
}

/// A reply in which choice 0 calls `search`, and choice 1 a tool of toolrein's.
fn search_and_read_more(request: &Recorded) -> Reply {
    let call = |name: &str, arguments: &str| json!([{"index": 0, "id": "a", "type": "function", "function": {"name": name, "arguments": arguments}}]);
    let calls = [call("search", "{}"), call("read_more", r#"{"call":1,"search":"x"}"#)];
    let choice = |index: usize, member: &str| json!({"index": index, member: {"role": "assistant", "content": null, "tool_calls": calls[index]}, "finish_reason": "tool_calls"});
    let body = |choices: Value, object: &str| json!({"id": "c1", "object": object, "created": 1, "model": "m", "choices": choices});
    if request.json()["stream"] == true {
        let chunk = |index| body(json!([choice(index, "delta")]), "chat.completion.chunk");
        return Reply::events(&[chunk(0), chunk(1)]);
    }
    Reply::json(200, &body(json!([choice(0, "message"), choice(1, "message")]), "chat.completion"))
}

#[test]
fn the_final_answer_of_one_choice_ends_no_other() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| match nth {
            0 => search_and_read_more(request),
            // Choice 0 is asked for its final answer; choice 1 has its text and goes on.
            1 => crate::support::talk::text("one", request),
            _ => Reply::speech(request, &Speech::calls(&[("f", "fetch", "{}")])),
        });
        let tables =
            "reask.max = 0\n[policy.allow]\nexcept = [\"search\"]\n[policy.truncate]\n[policy.read_more]\n";
        let program = Toolrein::before(&upstream, tables);
        let mut talk = Talk::new(form);
        talk.members["n"] = json!(2);
        let response = post(&program.chat_url(), talk.body().to_string());
        let choices = upstream
            .requests()
            .iter()
            .map(|request| request.json()["tool_choice"].clone())
            .collect::<Vec<_>>();
        assert_eq!(choices, [Value::Null, json!("none"), Value::Null], "{}", response.text());
        let chunks = match form {
            Form::Whole => vec![response.json()],
            Form::Streamed => response.chunks(),
        };
        let calls = chunks.iter().flat_map(|chunk| chunk["choices"].as_array().unwrap()).filter(|choice| {
            let member = if form == Form::Whole { "message" } else { "delta" };
            choice["index"] == 1 && choice[member]["tool_calls"][0]["function"]["name"] == "fetch"
        });
        assert_eq!(calls.count(), 1, "{}", response.text());
        upstream.assert_clean();
    });
}
