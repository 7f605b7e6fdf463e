//! `duplicates`: an action that succeeded is not repeated, even after a restart; a retrieval is answered from its
//! earlier result; an action that may have been done is checked first.

use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::responses::Output;
use crate::support::responses_kit::{self, error_type, input, may_call, tool};
use crate::support::scripted::{Recorded, Scripted};
use crate::support::talk::{Talk, in_both_forms, text};
use serde_json::{Value, json};

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

const ORDER: &str = r#"{"item":"tea"}"#;

/// A model that orders, orders again whatever came of it, and checks where it is shown how.
fn orders_again(nth: usize, request: &Recorded) -> Reply {
    let last = last_content(request);
    let call = |tool: &str, arguments: &str| {
        Reply::speech(request, &Speech::calls(&[(&format!("call_{nth}"), tool, arguments)]))
    };
    match () {
        () if last.contains("Check first with get_order") => call("get_order", "{}"),
        () if last.contains("ordered") => text("It is ordered.", request),
        () => call("create_order", ORDER),
    }
}

#[test]
fn an_order_that_timed_out_is_checked_before_it_is_made_again() {
    in_both_forms(|form| {
        let upstream = Scripted::start(orders_again);
        let program = Toolrein::before(&upstream, "[policy.duplicates]\n");
        let mut talk = Talk::new(form);
        let declared = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}});
        talk.members["tools"] = json!([declared("create_order"), declared("get_order")]);
        let mut made = Vec::new();
        for result in ["Error: Read timed out.", "no order found", "ordered"] {
            let said = talk.ask(&program);
            said.assert_coherent(form);
            made.push(said.calls[0].1.clone());
            talk.add(&said);
            talk.messages.last_mut().unwrap()["content"] = json!(result);
        }
        assert_eq!(
            made,
            ["create_order", "get_order", "create_order"],
            "the second order was made after a check"
        );
        assert_eq!(talk.ask(&program).text, "It is ordered.");
        let envelope: Value = serde_json::from_str(&last_content(&upstream.request(2))).unwrap();
        assert_eq!(envelope["error"]["type"], "DUPLICATE");
        assert_eq!(envelope["error"]["retryable"], true);
        program.wait_for_metric("toolrein_actions_total{policy=\"duplicates\",action=\"blocked\"}", 1.0);
        upstream.assert_clean();
    });
}

#[test]
fn an_order_that_timed_out_is_checked_on_the_responses_api_too() {
    for stream in [false, true] {
        let upstream = Scripted::start(|nth, request| {
            let items = input(request);
            let last = items.last().unwrap();
            let (id, output) = (nth.to_string(), Output::new(nth));
            let calls = may_call(request);
            match last["output"].as_str().unwrap_or_default() {
                said if said.contains("Check first with get_order") => output.call(&id, "get_order", "{}"),
                "ordered" => output.says("It is ordered."),
                _ if calls => output.call(&id, "create_order", ORDER),
                _ => output.says("I stop."),
            }
            .reply(request)
        });
        let program = Toolrein::before(&upstream, "[policy.duplicates]\n");
        let mut talk =
            responses_kit::Talk::new(stream).with_tools(json!([tool("create_order"), tool("get_order")]));
        let mut made = Vec::new();
        for result in ["Error: Read timed out.", "no order found", "ordered"] {
            let answer = talk.ask(&program);
            made.push(answer.items()[0]["name"].as_str().unwrap().to_owned());
            talk.go_on(&answer);
            let items = talk.body["input"].as_array_mut().unwrap();
            items.last_mut().unwrap()["output"] = json!(result);
        }
        assert_eq!(made, ["create_order", "get_order", "create_order"]);
        assert_eq!(talk.ask(&program).said(), "It is ordered.");
        assert_eq!(error_type(input(&upstream.request(2)).last().unwrap()), "DUPLICATE");
        upstream.assert_clean();
    }
}

#[test]
fn an_order_of_unknown_outcome_is_never_made_again_where_the_operator_says_so() {
    in_both_forms(|form| {
        let upstream = Scripted::start(again("fetch", "DUPLICATE"));
        let settings = "[policy.duplicates]\ntools = [\"fetch\"]\nafter_unknown = \"block\"\ntexts = { unknown = \"{tool}: no.\" }\n";
        let program = Toolrein::before(&upstream, settings);
        let mut talk = Talk::new(form);
        let said = talk.ask(&program);
        talk.add(&said);
        talk.messages.last_mut().unwrap()["content"] = json!("Error: [Errno 104] Connection reset by peer");
        let said = talk.ask(&program);
        assert_eq!((said.text.as_str(), said.calls.len()), ("It is done.", 0));
        assert!(last_content(&upstream.request(2)).contains("fetch: no."));
    });
}
