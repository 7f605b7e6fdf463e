//! Ruling 2: what a rate limit counts.

use crate::support::client::Request;
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::Scripted;
use crate::support::talk::{Talk, in_both_forms, search};

const TWO_SEARCHES: &str =
    "reask.max = 0\n[policy.rate_limit]\ntools = { search = { calls = 2, per = \"1h\" } }\n";

#[test]
fn a_retried_request_counts_no_call_twice() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| search(nth.saturating_sub(2), request));
        let program = Toolrein::before(&upstream, TWO_SEARCHES);
        let mut talk = Talk::new(form);
        for _ in 0..3 {
            let said = talk.ask(&program);
            assert_eq!(said.calls.len(), 1, "the same request again, as clients do after a timeout");
        }
        talk.add(&talk.ask(&program));
        assert_eq!(talk.ask(&program).calls.len(), 1, "one call in the history, one more is allowed");
    });
}

#[test]
fn calls_that_the_client_never_echoes_do_not_count() {
    let upstream = Scripted::start(search);
    let program = Toolrein::before(&upstream, TWO_SEARCHES);
    let talk = Talk::new(crate::support::talk::Form::Whole);
    for _ in 0..5 {
        assert_eq!(talk.ask(&program).calls.len(), 1);
    }
}

#[test]
fn parallel_calls_of_one_reply_are_judged_in_order() {
    in_both_forms(|form| {
        let calls =
            [("a", "search", "{\"q\":1}"), ("b", "search", "{\"q\":2}"), ("c", "search", "{\"q\":3}")];
        let upstream = Scripted::start(move |_, request| Reply::speech(request, &Speech::calls(&calls)));
        let program = Toolrein::before(&upstream, TWO_SEARCHES);
        let said = Talk::new(form).ask(&program);
        said.assert_coherent(form);
        let ids: Vec<&str> = said.calls.iter().map(|(id, ..)| id.as_str()).collect();
        assert_eq!(ids, ["a", "b"]);
    });
}

#[test]
fn equal_calls_of_two_callers_do_not_share_a_window() {
    let upstream = Scripted::start(|_, request| search(0, request));
    let program = Toolrein::before(&upstream, TWO_SEARCHES);
    let mut talk = Talk::new(crate::support::talk::Form::Whole);
    let said = talk.ask(&program);
    talk.add(&said);
    let more = talk.ask(&program);
    talk.add(&more);
    assert!(talk.ask(&program).calls.is_empty(), "two are used up");
    let other = Request::new("POST", &program.chat_url(), talk.body().to_string())
        .header("authorization", "Bearer sk-other")
        .send();
    assert!(other.json()["choices"][0]["message"]["tool_calls"].is_array(), "old calls of unknown time");
}

#[test]
fn calls_whose_ids_the_client_has_invented_count_also_after_it_has_trimmed_its_history() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| {
            let arguments = format!("{{\"q\":{nth}}}");
            Reply::speech(request, &Speech::calls(&[("", "search", &arguments)]))
        });
        let program = Toolrein::before(&upstream, TWO_SEARCHES);
        let mut talk = Talk::new(form);
        talk.messages.push(serde_json::json!({"role": "assistant", "content": "Nothing yet."}));
        talk.say("Look again.");
        for nth in 0..2 {
            let mut said = talk.ask(&program);
            assert_eq!(said.calls.len(), 1, "call {nth}");
            said.calls[0].0 = format!("invented_{nth}");
            talk.add(&said);
        }
        // So that both are known by their new ids.
        assert!(talk.ask(&program).calls.is_empty(), "two are used up");
        talk.messages.drain(..2);
        assert!(talk.ask(&program).calls.is_empty(), "they still are, after another beginning");
    });
}
