//! `intents`: what results ask of the conversation, through both endpoints, streamed and whole.

use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::responses::Output;
use crate::support::responses_kit::{Talk as ResponsesTalk, error_type, input, may_call, tool};
use crate::support::scripted::Scripted;
use crate::support::talk::{Talk, in_both_forms, text};
use serde_json::{Value, json};

const ALL: &str = "[policy.intents]\ntools = [\"fetch\"]\n\
    allow = [\"end_turn\", \"close_tool\", \"open_tool\", \"queue_text\", \"hide_after\"]\n\
    closable = [\"search\"]\nqueue = { rate = \"Ask for a rating.\" }\n";

fn envelope(intents: &Value) -> String {
    json!({"ok": true, "data": {"secret": "4711"}, "intents": intents, "meta": {}}).to_string()
}

/// A client that has fetched, and got `result`.
fn fetched(talk: &mut Talk, id: &str, result: &str) {
    talk.messages.push(json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": id, "type": "function", "function": {"name": "fetch", "arguments": "{}"}}]}));
    talk.messages.push(json!({"role": "tool", "tool_call_id": id, "content": result}));
}

#[test]
fn a_result_that_ends_the_turn_lets_the_model_answer_and_the_next_turn_call_again() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| match nth {
            0 | 2 => Reply::speech(request, &Speech::calls(&[(&format!("call_{nth}"), "search", "{}")])),
            _ => text("Done.", request),
        });
        let program = Toolrein::before(&upstream, ALL);
        let mut talk = Talk::new(form);
        fetched(&mut talk, "call_a", &envelope(&json!([{"type": "end_turn"}])));
        let said = talk.ask(&program);
        said.assert_coherent(form);
        assert_eq!((said.calls.len(), said.text.as_str()), (0, "Done."));
        let again = upstream.request(1).json();
        assert_eq!(again["tool_choice"], "none", "the first re-ask is the last");
        let blocked =
            again["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap().to_owned();
        let blocked: Value = serde_json::from_str(&blocked).unwrap();
        assert_eq!(
            (&blocked["error"]["type"], &blocked["meta"]["policy"]),
            (&json!("TOOL_INTENT"), &json!("intents"))
        );
        talk.add(&said);
        talk.say("And now?");
        let said = talk.ask(&program);
        said.assert_coherent(form);
        assert_eq!(said.calls[0].1, "search");
        program.wait_for_metric("toolrein_actions_total{policy=\"intents\",action=\"end_turn\"}", 1.0);
        upstream.assert_clean();
    });
}

#[test]
fn intents_work_on_the_responses_api() {
    for stream in [false, true] {
        let upstream = Scripted::start(|nth, request| match nth {
            0 => Output::calls(nth, &[("b", "search", "{}")]).reply(request),
            _ => Output::text(nth, "Done.").reply(request),
        });
        let program = Toolrein::before(&upstream, ALL);
        let mut talk = ResponsesTalk::new(stream).with_tools(json!([tool("fetch"), tool("search")]));
        let result = envelope(&json!([{"type": "end_turn"}, {"type": "hide_after"}]));
        talk.add(Output::calls("x", &[("a", "fetch", "{}")]).items()[0].clone());
        talk.add(json!({"type": "function_call_output", "call_id": "call_a", "output": result}));
        let answer = talk.ask(&program);
        assert_eq!((answer.kinds(), answer.said()), (vec!["assistant".to_owned()], "Done.".to_owned()));
        let again = upstream.request(1);
        assert!(!may_call(&again));
        assert!(input(&again).iter().any(|item| error_type(item) == "TOOL_INTENT"), "{:?}", input(&again));
        assert!(upstream.request(0).json().to_string().contains("4711"));
        talk.go_on(&answer);
        talk.say("And now?");
        talk.ask(&program);
        let later = upstream.request(2).json().to_string();
        assert!(!later.contains("4711") && later.contains("shown once"), "{later}");
        upstream.assert_clean();
    }
}

#[test]
fn a_closed_tool_is_blocked_and_others_go_on() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| match nth {
            0 => Reply::speech(request, &Speech::calls(&[("s", "search", "{}"), ("f", "fetch", "{}")])),
            _ => text("Done.", request),
        });
        let program = Toolrein::before(&upstream, ALL);
        let mut talk = Talk::new(form);
        fetched(&mut talk, "call_a", &envelope(&json!([{"type": "close_tool", "tool": "search"}])));
        let said = talk.ask(&program);
        said.assert_coherent(form);
        let ids: Vec<&str> = said.calls.iter().map(|(id, ..)| id.as_str()).collect();
        assert_eq!(ids, ["f"]);
        upstream.assert_clean();
    });
}

#[test]
fn a_text_waits_for_the_user_and_a_hidden_result_breaks_the_prefix_once() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|_, request| text("Done.", request));
        let program = Toolrein::before(&upstream, ALL);
        let mut talk = Talk::new(form);
        let intents = json!([{"type": "queue_text", "key": "rate"}, {"type": "hide_after"}]);
        fetched(&mut talk, "call_a", &envelope(&intents));
        for more in ["And now?", "And then?"] {
            talk.add(&talk.ask(&program));
            talk.say(more);
        }
        talk.ask(&program);
        let sent: Vec<Vec<Value>> = upstream
            .requests()
            .iter()
            .map(|request| request.json()["messages"].as_array().unwrap().clone())
            .collect();
        assert!(json!(sent[0]).to_string().contains("4711"));
        for later in &sent[1..] {
            let later = json!(later).to_string();
            assert!(!later.contains("4711"), "{later}");
            assert_eq!(later.matches("Ask for a rating.").count(), 1);
        }
        assert_eq!(sent[1][..], sent[2][..sent[1].len()], "later requests go on from it");
        program.wait_for_metric("toolrein_prefix_breaks_total{cause=\"shown_once\"}", 1.0);
        program.wait_for_metric("toolrein_prefix_breaks_total{cause=\"compact\"}", 0.0);
        program.wait_for_metric("toolrein_actions_total{policy=\"intents\",action=\"shown_once\"}", 1.0);
        upstream.assert_clean();
    });
}

#[test]
fn what_is_not_allowed_or_not_the_envelope_goes_up_as_it_came() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| match nth {
            0 => Reply::speech(request, &Speech::calls(&[("s", "search", "{}")])),
            _ => text("Done.", request),
        });
        let settings = ALL.replace("\"end_turn\", ", "");
        let program = Toolrein::before(&upstream, &settings);
        let mut talk = Talk::new(form);
        let end = envelope(&json!([{"type": "end_turn"}, {"type": "no_such"}]));
        fetched(&mut talk, "call_a", &end);
        fetched(&mut talk, "call_b", &format!("They say: {end}"));
        let said = talk.ask(&program);
        said.assert_coherent(form);
        assert_eq!(said.calls[0].1, "search");
        assert_eq!(upstream.request(0).json()["messages"], json!(talk.messages));
        // The first result is older than the last reply, and was counted then.
        program.wait_for_metric("toolrein_actions_total{policy=\"intents\",action=\"not_allowed\"}", 0.0);
        let mut other = Talk::new(form);
        fetched(&mut other, "call_c", &end);
        other.ask(&program);
        program.wait_for_metric("toolrein_actions_total{policy=\"intents\",action=\"not_allowed\"}", 1.0);
        program.wait_for_metric("toolrein_actions_total{policy=\"intents\",action=\"malformed\"}", 1.0);
    });
}
