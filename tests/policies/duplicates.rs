//! `duplicates`: an action that succeeded is not repeated, even after a restart; a retrieval is answered from its
//! earlier result.

use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::{Recorded, Scripted};
use crate::talk::{Talk, in_both_forms, text};
use serde_json::Value;

fn last_content(request: &Recorded) -> String {
    let body = request.json();
    let last = body["messages"].as_array().unwrap().last().unwrap().clone();
    last["content"].as_str().unwrap_or_default().to_owned()
}

/// A model that calls `tool` with the same arguments, written in two ways, until it reads `enough`.
fn again(tool: &'static str, enough: &'static str) -> impl Fn(usize, &Recorded) -> Reply + Send + Sync {
    move |nth, request| {
        if last_content(request).contains(enough) {
            return text("It is done.", request);
        }
        let arguments = [r#"{"to":"ann","sum":5}"#, r#"{ "sum": 5, "to": "ann" }"#][nth % 2];
        Reply::speech(request, &Speech::calls(&[(&format!("call_{nth}"), tool, arguments)]))
    }
}

#[test]
fn a_second_payment_is_blocked_with_the_first_ones_result_and_a_restart_changes_nothing() {
    in_both_forms(|form| {
        let upstream = Scripted::start(again("fetch", "DUPLICATE"));
        let settings = "[policy.duplicates]\ntools = [\"fetch\"]\n";
        let mut talk = Talk::new(form);
        {
            let program = Toolrein::before(&upstream, settings);
            let first = talk.ask(&program);
            first.assert_coherent(form);
            assert_eq!(first.calls.len(), 1);
            talk.add(&first);
            let second = talk.ask(&program);
            second.assert_coherent(form);
            assert_eq!((second.text.as_str(), second.calls.len()), ("It is done.", 0));
            program.wait_for_metric("toolrein_actions_total{policy=\"duplicates\",action=\"blocked\"}", 1.0);
        }
        let envelope: Value = serde_json::from_str(&last_content(&upstream.request(2))).unwrap();
        assert_eq!(envelope["error"]["type"], "DUPLICATE");
        assert_eq!(
            (&envelope["error"]["retryable"], &envelope["error"]["earlier_calls"]),
            (&false.into(), &1.into())
        );
        let message = envelope["error"]["message"].as_str().unwrap();
        assert!(message.ends_with("Its result was: fetch says so"), "{message}");

        let restarted = Toolrein::before(&upstream, settings);
        let resent = talk.ask(&restarted);
        assert_eq!((resent.text.as_str(), resent.calls.len()), ("It is done.", 0));
        assert_eq!(last_content(&upstream.request(4)), last_content(&upstream.request(2)));
        upstream.assert_clean();
    });
}

#[test]
fn what_was_read_before_is_answered_without_the_client() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| match nth {
            0 | 1 => again("search", "never")(nth, request),
            _ => text("Here it is.", request),
        });
        let program = Toolrein::before(&upstream, "[policy.duplicates]\nretrieval = [\"search\"]\n");
        let mut talk = Talk::new(form);
        let first = talk.ask(&program);
        assert_eq!(first.calls.len(), 1);
        talk.add(&first);
        let second = talk.ask(&program);
        second.assert_coherent(form);
        assert_eq!((second.text.as_str(), second.calls.len()), ("Here it is.", 0));
        let messages = upstream.request(2).json()["messages"].clone();
        let contents: Vec<&str> = messages
            .as_array()
            .unwrap()
            .iter()
            .filter(|message| message["role"] == "tool")
            .map(|message| message["content"].as_str().unwrap())
            .collect();
        assert_eq!(contents, ["search says so", "search says so"]);
        program.wait_for_metric("toolrein_actions_total{policy=\"duplicates\",action=\"answered\"}", 1.0);
        upstream.assert_clean();
    });
}
