//! `serial`: one call at a time.

use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::Scripted;
use crate::support::talk::{Talk, in_both_forms, text};
use serde_json::Value;

#[test]
fn the_first_of_two_calls_runs_and_the_other_is_made_when_its_result_is_there() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| match nth {
            0 => Reply::speech(request, &Speech::calls(&[("a", "search", "{}"), ("b", "fetch", "{}")])),
            1 => Reply::speech(request, &Speech::calls(&[("c", "fetch", "{}")])),
            _ => text("Done.", request),
        });
        let program = Toolrein::before(&upstream, "[policy.serial]\n");
        let mut talk = Talk::new(form);
        for expected in ["a", "c", ""] {
            let said = talk.ask(&program);
            said.assert_coherent(form);
            let ids: Vec<&str> = said.calls.iter().map(|(id, ..)| id.as_str()).collect();
            assert_eq!(ids.concat(), expected);
            talk.add(&said);
        }
        for request in upstream.requests() {
            assert_eq!(request.json()["parallel_tool_calls"], false);
        }
        let messages = upstream.request(1).json()["messages"].clone();
        let envelope: Value = serde_json::from_str(messages[2]["content"].as_str().unwrap()).unwrap();
        assert_eq!(
            (&envelope["error"]["type"], &envelope["error"]["retryable"]),
            (&"TURN_LOCKED".into(), &true.into())
        );
        upstream.assert_clean();
    });
}

#[test]
fn where_another_tool_is_declared_the_request_stays_as_it_is() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|_, request| {
            Reply::speech(request, &Speech::calls(&[("a", "search", "{}"), ("b", "fetch", "{}")]))
        });
        let program = Toolrein::before(&upstream, "[policy.serial]\ntools = [\"fetch\"]\n");
        let talk = Talk::new(form);
        assert_eq!(talk.ask(&program).calls.len(), 2);
        assert_eq!(upstream.request(0).body, talk.body().to_string().into_bytes());
    });
}
