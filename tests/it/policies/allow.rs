//! `allow`: a tool that may not be called is blocked, hidden if asked to, and the model finds another way.

use crate::support::client::Request;
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::{Recorded, Scripted};
use crate::support::talk::{Form, Talk, in_both_forms, text};
use serde_json::{Value, json};

fn call(name: &str, request: &Recorded) -> Reply {
    Reply::speech(request, &Speech::calls(&[("a", name, "{}")]))
}

fn names(request: &Recorded) -> Vec<String> {
    let tools = request.json()["tools"].as_array().cloned().unwrap_or_default();
    tools.iter().map(|tool| tool["function"]["name"].as_str().unwrap().to_owned()).collect()
}

/// The envelope that the model read for the call in `request`'s last round.
fn envelope(request: &Recorded) -> Value {
    let body = request.json();
    let last = body["messages"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["role"], "tool");
    serde_json::from_str(last["content"].as_str().unwrap()).unwrap()
}

#[test]
fn a_denied_tool_is_blocked_and_the_model_takes_one_that_it_may_call() {
    in_both_forms(|form| {
        let upstream =
            Scripted::start(|nth, request| call(if nth == 0 { "fetch" } else { "search" }, request));
        let program = Toolrein::before(&upstream, "[policy.allow]\nexcept = [\"f*\"]\n");
        let said = Talk::new(form).ask(&program);
        said.assert_coherent(form);
        assert_eq!(said.calls, [("a".into(), "search".into(), "{}".into())]);
        assert!(!said.response.text().contains("fetch"), "{}", said.response.text());
        let shown = envelope(&upstream.request(1));
        assert_eq!(
            shown["error"],
            json!({
                "type": "MODE_RESTRICTED",
                "message": "The call was not run: fetch may not be called here. You may call: search.",
                "retryable": false,
                "partialSideEffects": false,
            })
        );
        assert_eq!(names(&upstream.request(0)), ["search", "fetch"], "nothing is hidden unless asked for");
        upstream.assert_clean();
    });
}

#[test]
fn a_hidden_tool_is_never_shown_and_tools_stay_the_same_through_a_conversation() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| match nth {
            0..3 => call("search", request),
            _ => text("Done.", request),
        });
        let program = Toolrein::before(&upstream, "[policy.allow]\nonly = [\"search\"]\nhide = true\n");
        let mut talk = Talk::new(form);
        for _ in 0..4 {
            let said = talk.ask(&program);
            said.assert_coherent(form);
            talk.add(&said);
        }
        for request in upstream.requests() {
            assert_eq!(names(&request), ["search"]);
        }
        upstream.assert_clean();
    });
}

#[test]
fn a_hidden_tool_that_is_called_all_the_same_is_blocked() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| match nth {
            0 => call("fetch", request),
            _ => text("Then I do without.", request),
        });
        let program = Toolrein::before(&upstream, "[policy.allow]\nexcept = [\"fetch\"]\nhide = true\n");
        let said = Talk::new(form).ask(&program);
        said.assert_coherent(form);
        assert_eq!((said.text.as_str(), said.calls.len()), ("Then I do without.", 0));
    });
}

#[test]
fn a_tool_that_nobody_declared_is_blocked() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| call(["browse", "search"][nth.min(1)], request));
        let program = Toolrein::before(&upstream, "[policy.allow]\n");
        let said = Talk::new(form).ask(&program);
        said.assert_coherent(form);
        assert_eq!(said.calls[0].1, "search");
        assert!(
            envelope(&upstream.request(1))["error"]["message"].as_str().unwrap().contains("search, fetch")
        );
    });
}

#[test]
fn the_allowed_calls_of_a_reply_go_through_beside_a_denied_one() {
    in_both_forms(|form| {
        let calls = [("a", "search", "{\"q\":1}"), ("b", "fetch", "{}"), ("c", "search", "{\"q\":2}")];
        let upstream = Scripted::start(move |_, request| Reply::speech(request, &Speech::calls(&calls)));
        let program = Toolrein::before(&upstream, "[policy.allow]\nonly = [\"search\"]\n");
        let said = Talk::new(form).ask(&program);
        said.assert_coherent(form);
        let ids: Vec<&str> = said.calls.iter().map(|(id, ..)| id.as_str()).collect();
        assert_eq!(ids, ["a", "c"]);
        assert_eq!(upstream.requests().len(), 1, "nothing to ask again");
    });
}

#[test]
fn a_forced_choice_keeps_its_tool() {
    let upstream = Scripted::start(|_, request| call("fetch", request));
    let program = Toolrein::before(&upstream, "[policy.allow]\nexcept = [\"fetch\"]\nhide = true\n");
    let mut talk = Talk::new(Form::Whole);
    talk.members["tool_choice"] = json!({"type": "function", "function": {"name": "fetch"}});
    assert_eq!(talk.ask(&program).calls.len(), 1);
    assert_eq!(names(&upstream.request(0)), ["search", "fetch"]);
}

#[test]
fn as_shipped_an_undeclared_tool_is_blocked_and_nothing_is_refused_for_it() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| call(["browse", "search"][nth.min(1)], request));
        let program = Toolrein::before(&upstream, "base = \"shipped\"\n");
        let said = Talk::new(form).ask(&program);
        said.assert_coherent(form);
        assert_eq!((said.calls.len(), said.calls[0].1.as_str()), (1, "search"));
        assert_eq!(upstream.requests().len(), 2);
        // A request without tools does not show which tools exist.
        let mut silent = Talk::new(form);
        silent.members.as_object_mut().unwrap().remove("tools");
        let upstream = Scripted::start(|_, request| call("browse", request));
        let program = Toolrein::before(&upstream, "base = \"shipped\"\n");
        assert_eq!(silent.ask(&program).calls[0].1, "browse");
        // Neither does a request with a tool of the provider's.
        let mut hosted = Talk::new(form);
        hosted.members["tools"].as_array_mut().unwrap().push(json!({"type": "web_search"}));
        assert_eq!(hosted.ask(&program).calls[0].1, "browse");
    });
}

#[test]
fn as_shipped_a_request_that_cannot_be_read_passes_and_with_a_list_it_is_refused() {
    let twice = r#"{"model":"m","messages":[],"messages":[{"role":"user","content":"q"}]}"#;
    for (list, status) in [("", 200), ("policy.allow.except = [\"x\"]\n", 400)] {
        let upstream = Scripted::start(|_, _| Reply::json(200, &Speech::text("ok").whole()));
        let program = Toolrein::before(&upstream, &format!("base = \"shipped\"\n{list}"));
        let response = Request::post(&program.chat_url(), twice).send();
        assert_eq!(response.status, status, "{list}: {}", response.text());
    }
}
