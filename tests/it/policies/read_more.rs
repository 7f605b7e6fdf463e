//! `read_more`: the model reads cut results without the client, which sees one reply and never learns of the tool.

use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::{Recorded, Scripted};
use crate::support::talk::{Form, Talk, in_both_forms, text};
use serde_json::{Value, json};

const SETTINGS: &str = "[policy.truncate]\n[policy.read_more]\n";

/// A build log of 200 KB with one line that matters, far from both ends.
fn log() -> String {
    let line = |n: usize| {
        if n == 2_500 {
            "undefined reference to `frobnicate`\n".to_owned()
        } else {
            format!("[{n}] compiling the part number {n} of it, in order\n")
        }
    };
    (0..4_500).map(line).collect()
}

fn reads(request: &Recorded, calls: &[(&str, &str)]) -> Reply {
    let calls: Vec<(&str, &str, &str)> =
        calls.iter().map(|(id, arguments)| (*id, "read_more", *arguments)).collect();
    Reply::speech(request, &Speech::calls(&calls))
}

/// A conversation that has called `fetch` and got the log.
fn built(form: Form) -> Talk {
    let mut talk = Talk::new(form);
    talk.messages.push(json!({ "role": "assistant", "content": null, "tool_calls": [
        { "id": "c1", "type": "function", "function": { "name": "fetch", "arguments": "{}" } }] }));
    talk.messages.push(json!({ "role": "tool", "tool_call_id": "c1", "content": log() }));
    talk
}

fn messages(request: &Recorded) -> Vec<Value> {
    request.json()["messages"].as_array().unwrap().clone()
}

/// The bytes of the member `tools`.
fn tools(request: &Recorded) -> String {
    let body = String::from_utf8(request.body.to_vec()).unwrap();
    let start = body.find("\"tools\":").unwrap();
    let end = start + body[start..].find("}]").unwrap();
    body[start..].chars().take(end - start).collect::<String>() + "}]"
}

fn declared(request: &Recorded) -> Vec<String> {
    let names = request.json()["tools"].as_array().unwrap().clone();
    names.iter().map(|tool| tool["function"]["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_line_that_was_cut_is_found_and_the_client_sees_one_answer() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| match nth {
            0 => reads(request, &[("r1", r#"{"call":1,"search":"undefined reference"}"#)]),
            _ => text("It is `frobnicate`.", request),
        });
        let program = Toolrein::before(&upstream, SETTINGS);
        let mut talk = built(form);
        let said = talk.ask(&program);
        said.assert_coherent(form);
        assert_eq!((said.text.as_str(), said.calls.len()), ("It is `frobnicate`.", 0));

        let shown = messages(&upstream.request(0))[2]["content"].as_str().unwrap().to_owned();
        assert!(shown.len() < 17_000 && !shown.contains("[2499] "), "{} bytes", shown.len());
        assert!(shown.contains("; to see more, use read_more with call 1]"));
        let asked = messages(&upstream.request(1));
        assert_eq!(asked[3]["tool_calls"][0]["function"]["name"], "read_more");
        assert_eq!(
            asked[4]["content"],
            "[toolrein: the result of call 1 (fetch): 1 of 4500 lines holds \"undefined reference\"]\n\
             …\n2499: [2498] compiling the part number 2498 of it, in order\n\
             2500: [2499] compiling the part number 2499 of it, in order\n\
             2501: undefined reference to `frobnicate`\n\
             2502: [2501] compiling the part number 2501 of it, in order\n\
             2503: [2502] compiling the part number 2502 of it, in order\n"
        );
        program.wait_for_metric("toolrein_actions_total{policy=\"read_more\",action=\"answered\"}", 1.0);
        program.wait_for_metric("toolrein_truncation_re_requests_total{tool=\"fetch\"}", 1.0);
        program.wait_for_metric("toolrein_tool_calls_total{tool=\"read_more\",verdict=\"answer\"}", 1.0);

        talk.add(&said);
        talk.say("Thanks.");
        talk.ask(&program).assert_coherent(form);
        let next = messages(&upstream.request(2));
        assert_eq!(next[..5], asked[..5], "the round is put back at its place");
        assert_eq!(next.len(), 7);
        for nth in 0..3 {
            assert_eq!(declared(&upstream.request(nth)), ["search", "fetch", "read_more"]);
            assert_eq!(tools(&upstream.request(nth)), tools(&upstream.request(0)));
        }
        upstream.assert_clean();
    });
}

#[test]
fn beside_another_call_it_is_answered_in_the_next_request() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| match nth {
            0 => Reply::speech(
                request,
                &Speech::calls(&[
                    ("r1", "read_more", r#"{"call":1,"lines":"2501"}"#),
                    ("s1", "search", "{}"),
                ]),
            ),
            _ => text("Done.", request),
        });
        let program = Toolrein::before(&upstream, SETTINGS);
        let mut talk = built(form);
        let said = talk.ask(&program);
        said.assert_coherent(form);
        let names: Vec<&str> = said.calls.iter().map(|(_, name, _)| name.as_str()).collect();
        assert_eq!(names, ["search"]);
        talk.add(&said);
        let said = talk.ask(&program);
        assert_eq!(said.text, "Done.");
        let next = messages(&upstream.request(1));
        assert_eq!(next.len(), 7);
        assert_eq!(next[3]["tool_calls"][0]["id"], "r1");
        assert!(next[4]["content"].as_str().unwrap().ends_with("]\nundefined reference to `frobnicate`\n"));
        assert_eq!(next[5]["tool_calls"][0]["id"], "s1");
        upstream.assert_clean();
    });
}

#[test]
fn reads_have_a_bound_of_their_own_and_take_nothing_from_others() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| match nth {
            0..5 => reads(request, &[(&format!("r{nth}"), &format!("{{\"call\":1,\"lines\":{nth}}}"))]),
            _ => text("Enough.", request),
        });
        let others = "[policy.budget]\ntool_calls = 2\n[policy.loops]\n[policy.turn_limits]\ncalls = 2\n[reask]\nmax = 1\n";
        let settings = format!("[policy.truncate]\n[policy.read_more]\nreads = 4\n{others}");
        let program = Toolrein::before(&upstream, &settings);
        let said = built(form).ask(&program);
        said.assert_coherent(form);
        assert_eq!((said.text.as_str(), said.calls.len()), ("Enough.", 0));
        let asked = messages(&upstream.request(5));
        let results: Vec<&str> = asked
            .iter()
            .filter(|message| message["role"] == "tool")
            .map(|message| message["content"].as_str().unwrap())
            .collect();
        assert_eq!(results.len(), 6);
        assert!(results[1..5].iter().all(|result| result.starts_with("[toolrein: the result of call 1 ")));
        let envelope: Value = serde_json::from_str(results[5]).unwrap();
        assert_eq!(
            (&envelope["error"]["type"], &envelope["meta"]["policy"]),
            (&json!("BUDGET_EXCEEDED"), &json!("read_more"))
        );
        assert_ne!(upstream.request(5).json()["tool_choice"], "none");
        upstream.assert_clean();
    });
}

#[test]
fn a_forced_choice_and_a_request_without_tools_get_no_tool_of_ours() {
    let upstream = Scripted::start(|_, request| text("Yes.", request));
    let program = Toolrein::before(&upstream, SETTINGS);
    let mut forced = Talk::new(Form::Whole);
    forced.members["tool_choice"] = json!("required");
    forced.ask(&program);
    assert_eq!(declared(&upstream.request(0)), ["search", "fetch"]);
    assert_eq!(upstream.request(0).json(), forced.body());
    let mut bare = Talk::new(Form::Whole);
    bare.members.as_object_mut().unwrap().remove("tools");
    bare.ask(&program);
    assert_eq!(upstream.request(1).json(), bare.body());
}

#[test]
fn nearly_the_same_call_after_a_cut_is_counted_once_as_re_request() {
    let upstream = Scripted::start(|_, request| text("Read.", request));
    let program = Toolrein::before(&upstream, "[policy.truncate]\n");
    let mut talk = built(Form::Whole);
    talk.messages.push(json!({ "role": "assistant", "content": null, "tool_calls": [
        { "id": "c2", "type": "function", "function": { "name": "fetch", "arguments": "{ }" } }] }));
    talk.messages.push(json!({ "role": "tool", "tool_call_id": "c2", "content": "short" }));
    let said = talk.ask(&program);
    talk.add(&said);
    talk.say("And?");
    talk.ask(&program);
    program.wait_for_metric("toolrein_requests_total{endpoint=\"chat_completions\",status=\"200\"}", 2.0);
    assert_eq!(program.metric("toolrein_truncation_re_requests_total{tool=\"fetch\"}"), 1.0);
}
