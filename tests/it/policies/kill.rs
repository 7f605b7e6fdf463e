//! `kill`: conversations and callers that are stopped at once.

use crate::support::client::Request;
use crate::support::person::Person;
use crate::support::program::{ADMIN_TOKEN, Toolrein};
use crate::support::scripted::Scripted;
use crate::support::talk::{Form, Said, Talk, in_both_forms, search, text};
use crate::support::until;
use serde_json::{Value, json};

/// The SHA-256 of the caller's key, which is `abc`.
const TIER: &str =
    "[tier.free]\nkeys = [\"sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"]\n";

/// Asks with this header.
fn ask(talk: &Talk, program: &Toolrein, (header, value): (&str, &str)) -> Said {
    let request = Request::new("POST", &program.chat_url(), talk.body().to_string());
    let request = request.header("content-type", "application/json").header(header, value);
    Said::read(request.send(), talk.form)
}

/// A model that searches until only an answer is accepted.
fn searcher() -> Scripted {
    Scripted::start(|nth, request| match request.json()["tool_choice"] == "none" {
        true => text("It was stopped.", request),
        false => search(nth, request),
    })
}

/// The model made a call, read that it was blocked, and gave its final answer at once: the last two of `count` requests.
fn assert_stopped(said: &Said, form: Form, (upstream, count): (&Scripted, usize)) {
    said.assert_coherent(form);
    assert_eq!((said.text.as_str(), said.calls.len()), ("It was stopped.", 0));
    let requests = upstream.requests();
    assert_eq!(requests.len(), count, "the first re-ask is for the final answer");
    let messages = requests[count - 1].json()["messages"].clone();
    let envelope: Value =
        serde_json::from_str(messages.as_array().unwrap().last().unwrap()["content"].as_str().unwrap())
            .unwrap();
    let error = &envelope["error"];
    assert_eq!((&error["type"], &error["retryable"]), (&"STOPPED".into(), &false.into()), "{envelope}");
    upstream.assert_clean();
}

#[test]
fn what_the_configuration_stops_runs_no_call_and_others_go_on() {
    in_both_forms(|form| {
        for (settings, header) in [
            ("[policy.kill]\nconversations = [\"7f3a\"]\n", ("x-toolrein-conversation", "7f3a")),
            (&*format!("{TIER}[policy.kill]\ncallers = [\"free\"]\n"), ("authorization", "Bearer abc")),
        ] {
            let upstream = searcher();
            let program = Toolrein::before(&upstream, settings);
            let talk = Talk::new(form);
            assert_eq!(talk.ask(&program).calls.len(), 1, "others go on");
            assert_stopped(&ask(&talk, &program, header), form, (&upstream, 3));
        }
    });
}

/// Asks a page of the admin port with its token.
fn at_the_port(program: &Toolrein, method: &str, path: &str) -> Value {
    let request = Request::new(method, &format!("{}{path}", program.admin_url()), "");
    let response = request.header("authorization", &format!("Bearer {ADMIN_TOKEN}")).send();
    assert_eq!(response.status, 200, "{}", response.text());
    response.json()
}

/// The `field` of the first request's log line.
fn logged(program: &Toolrein, field: &str) -> String {
    until("a log line", || {
        let lines = program.logs();
        let mut lines = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.find_map(|line| line[field].as_str().map(str::to_owned))
    })
}

#[test]
fn a_stop_set_at_the_admin_port_blocks_calls_until_it_is_deleted() {
    in_both_forms(|form| {
        for (kind, field) in [("conversations", "conversation"), ("callers", "caller")] {
            let upstream = searcher();
            let program = Toolrein::before(&upstream, &format!("{}[policy.kill]\n", Person::SETTINGS));
            let mut talk = Talk::new(form);
            let said = talk.ask(&program);
            assert_eq!(said.calls.len(), 1);
            talk.add(&said);
            let id = logged(&program, field);
            let path = format!("/api/{kind}/{id}/stop");
            let stopped = at_the_port(&program, "POST", &path);
            assert_eq!((&stopped["id"], &stopped["stopped"]), (&json!(id), &json!(true)));
            assert_stopped(&talk.ask(&program), form, (&upstream, 3));
            assert_eq!(at_the_port(&program, "GET", "/api/stops")["data"][0]["id"], json!(id));
            assert_eq!(at_the_port(&program, "DELETE", &path)["stopped"], false);
            assert_eq!(talk.ask(&program).calls.len(), 1, "it goes on");
        }
    });
}

#[test]
fn where_a_profile_has_the_policy_off_the_admin_port_says_so() {
    let settings = format!("{}[policy.kill]\n[profile.loose]\noff = [\"kill\"]\n", Person::SETTINGS);
    let program = Toolrein::before(&searcher(), &settings);
    let stopped = at_the_port(&program, "POST", "/api/conversations/7f3a/stop");
    assert_eq!(stopped["not_in_profiles"], json!(["loose"]));
}
