//! `rewrite_query`: what runs, what the history and the audit log hold, what counts as a repeated search, what a person is
//! shown, and how a small model is asked.

use crate::support::client::Request;
use crate::support::person::Person;
use crate::support::program::Toolrein;
use crate::support::reply::{Gate, Reply, Speech};
use crate::support::responses::Output;
use crate::support::responses_kit::{Talk as ResponsesTalk, input, tool};
use crate::support::scripted::{Recorded, Scripted};
use crate::support::talk::{Form, Talk, in_both_forms, text};
use crate::support::until;
use serde_json::{Value, json};
use std::time::SystemTime;

const QUERY: &str = "Please find me information about the latest Rust release";
const ON: &str = "[policy.rewrite_query]\n";
/// What the model calls, and what of it stays as it is.
const ARGUMENTS: &str = "{ \"n\" : 5.0, \"query\":\"Please find me information about the latest Rust release\", \"w\":\"\\u00e9\"}";

fn year() -> String {
    humantime::format_rfc3339(SystemTime::now()).to_string()[..4].to_owned()
}

fn rewritten() -> String {
    ARGUMENTS.replace(QUERY, &format!("the latest Rust release {}", year()))
}

/// A model that searches for [`QUERY`] so many times, and then answers.
fn searching(times: usize) -> Scripted {
    Scripted::start(move |nth, request| {
        if is_question(request) {
            return Reply::text("Rust release");
        }
        if nth < times {
            Reply::speech(request, &Speech::calls(&[(&format!("call_{nth}"), "search", ARGUMENTS)]))
        } else {
            text("Done.", request)
        }
    })
}

fn is_question(request: &Recorded) -> bool {
    request.json()["model"] == "small"
}

fn arguments_in(request: &Recorded) -> String {
    request.json()["messages"][1]["tool_calls"][0]["function"]["arguments"].as_str().unwrap().to_owned()
}

#[test]
fn the_tidied_query_runs_and_stays_in_the_history_and_both_forms_are_in_the_audit_log() {
    in_both_forms(|form| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("audit");
        let upstream = searching(1);
        let program = Toolrein::before(&upstream, &format!("audit.file = {file:?}\n{ON}"));
        let mut talk = Talk::new(form);
        let said = talk.ask(&program);
        said.assert_coherent(form);
        assert_eq!(said.calls[0].2, rewritten());
        talk.messages.push(json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": "call_0", "type": "function", "function": {"name": "search", "arguments": said.calls[0].2}}]}));
        talk.messages.push(json!({"role": "tool", "tool_call_id": "call_0", "content": "1.99"}));
        talk.ask(&program).assert_coherent(form);
        assert_eq!(arguments_in(&upstream.request(1)), rewritten(), "the model is shown what was searched");
        program.wait_for_metric("toolrein_actions_total{policy=\"rewrite_query\",action=\"rewritten\"}", 1.0);
        let line: Value = until("a line of the audit log", || {
            let text = std::fs::read_to_string(&file).ok()?;
            serde_json::from_str(text.lines().next()?).ok()
        });
        let after = format!("the latest Rust release {}", year());
        let expected =
            json!([{"policy": "rewrite_query", "tool": "search", "before": QUERY, "after": after}]);
        assert_eq!((&line["rewritten"], &line["decisions"][0]["verdict"]), (&expected, &json!("modify")));
        upstream.assert_clean();
    });
}

#[test]
fn queries_are_rewritten_on_the_responses_api() {
    for stream in [false, true] {
        let upstream = Scripted::start(|nth, request| match nth {
            0 => Output::calls(nth, &[("a", "search", ARGUMENTS)]).reply(request),
            _ => Output::text(nth, "Done.").reply(request),
        });
        let program = Toolrein::before(&upstream, ON);
        let mut talk = ResponsesTalk::new(stream).with_tools(json!([tool("search")]));
        let answer = talk.ask(&program);
        assert_eq!(answer.items()[0]["arguments"], rewritten());
        assert!(!answer.text().contains("find me"), "{}", answer.text());
        talk.go_on(&answer);
        assert_eq!(talk.ask(&program).said(), "Done.");
        assert_eq!(input(&upstream.request(1))[1]["arguments"], rewritten());
        upstream.assert_clean();
    }
}

#[test]
fn a_search_that_is_made_again_counts_as_the_same_search() {
    in_both_forms(|form| {
        let upstream = searching(3);
        let program = Toolrein::before(
            &upstream,
            &format!("{ON}[policy.loops]\nstrict = true\nblock = 2\nnotice = 2\n"),
        );
        let mut talk = Talk::new(form);
        talk.add(&talk.ask(&program));
        let said = talk.ask(&program);
        said.assert_coherent(form);
        assert_eq!((said.calls.len(), said.text.as_str()), (0, "Done."), "the second one is blocked");
        program.wait_for_metric("toolrein_actions_total{policy=\"loops\",action=\"blocked\"}", 2.0);
    });
}

#[test]
fn a_person_is_shown_what_will_run() {
    in_both_forms(|form| {
        let upstream = searching(1);
        let settings =
            format!("{}{ON}[policy.confirm]\ntools = [\"search\"]\nform = \"held\"\n", Person::SETTINGS);
        let program = Toolrein::before(&upstream, &settings);
        let talk = Talk::new(form);
        let said = std::thread::scope(|scope| {
            let asking = scope.spawn(|| talk.ask(&program));
            let call = Person::at(&program).answers(true);
            assert_eq!(call["arguments"], rewritten());
            asking.join().unwrap()
        });
        said.assert_coherent(form);
        assert_eq!(said.calls[0].2, rewritten());
    });
}

#[test]
fn an_approved_search_runs_as_it_was_shown() {
    in_both_forms(|form| {
        let upstream = searching(1);
        let settings = format!("{ON}{SMALL}[policy.confirm]\ntools = [\"search\"]\n");
        let program = Toolrein::before(&upstream, &settings);
        let mut talk = Talk::new(form);
        let asked = talk.ask(&program);
        assert_eq!(asked.finishes, ["stop"], "{}", asked.response.text());
        let shown = format!("Rust release {}", year());
        assert!(asked.text.contains("Rust release"), "{}", asked.text);
        assert!(!asked.text.contains("find me"), "{} {shown}", asked.text);
        talk.add(&asked);
        talk.say("yes");
        let said = talk.ask(&program);
        said.assert_coherent(form);
        assert_eq!(said.calls[0].2, ARGUMENTS.replace(QUERY, "Rust release"));
        let questions = upstream.requests().into_iter().filter(is_question).count();
        assert_eq!(questions, 1, "what was approved is not put to the model again");
    });
}

const SMALL: &str = "[policy.rewrite_query.model]\nmodel = \"small\"\n";

#[test]
fn a_small_model_puts_the_query_shorter_and_is_asked_once_for_equal_queries() {
    in_both_forms(|form| {
        let upstream = searching(9);
        let program = Toolrein::before(&upstream, &format!("{ON}{SMALL}"));
        for _ in 0..2 {
            let said = Talk::new(form).ask(&program);
            said.assert_coherent(form);
            assert_eq!(said.calls[0].2, ARGUMENTS.replace(QUERY, "Rust release"));
        }
        let questions: Vec<Recorded> = upstream.requests().into_iter().filter(is_question).collect();
        assert_eq!(questions.len(), 1);
        let body = questions[0].json();
        assert_eq!((&body["temperature"], &body["max_tokens"]), (&json!(0), &json!(50)));
        assert_eq!(body["messages"][1]["content"], format!("the latest Rust release {}", year()));
        assert_eq!(questions[0].header("authorization"), Some("Bearer sk-test"));
        program.wait_for_metric("toolrein_question_tokens_total{type=\"input\"}", 20.0);
        program.wait_for_metric("toolrein_question_tokens_total{type=\"output\"}", 5.0);
        program
            .wait_for_metric("toolrein_actions_total{policy=\"rewrite_query\",action=\"asked_model\"}", 2.0);
        program.wait_for_metric("toolrein_actions_total{policy=\"rewrite_query\",action=\"rewritten\"}", 2.0);
    });
}

#[test]
fn in_the_responses_api_calls_wait_for_the_model_too() {
    for stream in [false, true] {
        let upstream = Scripted::start(|nth, request| {
            if is_question(request) {
                return Reply::text("Rust release");
            }
            Output::new(nth)
                .says("I look.")
                .call("a", "search", ARGUMENTS)
                .call("b", "fetch", "{}")
                .reply(request)
        });
        let program = Toolrein::before(&upstream, &format!("{ON}{SMALL}"));
        let talk = ResponsesTalk::new(stream).with_tools(json!([tool("search"), tool("fetch")]));
        let answer = talk.ask(&program);
        assert_eq!(
            answer.items()[1]["arguments"],
            ARGUMENTS.replace(QUERY, "Rust release"),
            "{}",
            answer.text()
        );
        assert_eq!(answer.kinds(), ["assistant", "function:a", "function:b"]);
        let question = upstream.requests().into_iter().find(is_question).unwrap();
        assert!(question.path.ends_with("/v1/chat/completions"), "{}", question.path);
    }
}

#[test]
fn without_a_good_answer_in_time_the_tidied_query_runs() {
    let hostile = || Reply::text("delete everything");
    let refusal = || Reply::error(500, "server_error", "x", "no");
    let other = || Reply::bytes(200, "text/html", "<html>");
    for answer in [Reply::silence as fn() -> Reply, hostile, refusal, other] {
        in_both_forms(|form| {
            let upstream = Scripted::start(move |_, request| {
                if is_question(request) {
                    return answer();
                }
                let calls = [("call_0", "search", ARGUMENTS), ("call_1", "fetch", "{}")];
                Reply::speech(request, &Speech::calls(&calls))
            });
            let program = Toolrein::before(&upstream, &format!("{ON}{SMALL}timeout = \"200ms\"\n"));
            let said = Talk::new(form).ask(&program);
            said.assert_coherent(form);
            let names: Vec<&str> = said.calls.iter().map(|(_, name, _)| &**name).collect();
            assert_eq!((names, said.calls[0].2.as_str()), (vec!["search", "fetch"], &*rewritten()));
            program.wait_for_metric(
                "toolrein_actions_total{policy=\"rewrite_query\",action=\"asked_model\"}",
                1.0,
            );
        });
    }
}

#[test]
fn a_small_model_that_fails_is_asked_once_more_and_one_that_refuses_is_not() {
    let broken = || Reply::bytes(200, "text/html", "<html>");
    let empty = || Reply::text("");
    let failing = || Reply::error(503, "server_error", "x", "overloaded");
    let busy = || Reply::error(429, "rate_limit", "x", "slow down");
    let refusing = || Reply::error(404, "invalid_request_error", "x", "no such model");
    let all: [(fn() -> Reply, usize); 5] = [(broken, 2), (empty, 2), (failing, 2), (busy, 2), (refusing, 1)];
    for (failure, most) in all {
        for recovers in [true, false] {
            in_both_forms(|form| {
                let asked = std::sync::atomic::AtomicUsize::new(0);
                let upstream = Scripted::start(move |_, request| {
                    if !is_question(request) {
                        return Reply::speech(request, &Speech::calls(&[("call_0", "search", ARGUMENTS)]));
                    }
                    let is_first = asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0;
                    if is_first || !recovers { failure() } else { Reply::text("Rust release") }
                });
                let program = Toolrein::before(&upstream, &format!("{ON}{SMALL}"));
                let said = Talk::new(form).ask(&program);
                said.assert_coherent(form);
                let shorter = recovers && most == 2;
                let expected = if shorter { ARGUMENTS.replace(QUERY, "Rust release") } else { rewritten() };
                assert_eq!(said.calls[0].2, expected);
                assert_eq!(upstream.requests().into_iter().filter(is_question).count(), most);
            });
        }
    }
}

#[test]
fn a_question_for_the_latest_loses_its_opening_and_gains_the_year() {
    for (asked, searched) in [
        ("What are the latest React features?", "latest React features"),
        ("what's the current price of Bitcoin", "current price of Bitcoin"),
        ("Can you tell me who is the current CEO of Acme?", "current CEO of Acme"),
        ("Was sind die neuesten Funktionen von React?", "neuesten Funktionen von React"),
        ("¿Cuáles son las últimas noticias de Madrid?", "últimas noticias de Madrid"),
    ] {
        in_both_forms(|form| {
            let arguments = json!({ "query": asked }).to_string();
            let upstream = Scripted::start(move |_, request| {
                Reply::speech(request, &Speech::calls(&[("call_0", "search", &arguments)]))
            });
            let program = Toolrein::before(&upstream, ON);
            let said = Talk::new(form).ask(&program);
            let ran: Value = serde_json::from_str(&said.calls[0].2).unwrap();
            assert_eq!(ran["query"], format!("{searched} {}", year()), "{asked}");
        });
    }
}

#[test]
fn an_address_of_the_operators_never_sees_the_callers_key() {
    for (key, expected) in [("", None), ("key_env = \"SMALL_KEY\"\n", Some("Bearer sk-operator"))] {
        let (callers, own) = (searching(1), searching(0));
        let settings = format!("{ON}{SMALL}url = \"{}\"\n{key}", own.base_url());
        let program = Toolrein::before_in(&callers, &settings, &[("SMALL_KEY", "sk-operator")]);
        let request = Request::post(&program.chat_url(), Talk::new(Form::Whole).body().to_string());
        request.header("api-key", "sk-test").header("x-api-key", "sk-test").header("cookie", "c=1").send();
        let [question] = &own.requests()[..] else { panic!("{:?}", own.requests()) };
        assert_eq!(question.header("authorization"), expected);
        for name in ["api-key", "x-api-key", "cookie"] {
            assert_eq!(question.header(name), None, "{name}");
        }
        assert_eq!(callers.requests().len(), 1);
    }
}

#[test]
fn the_client_gets_heartbeats_while_the_model_is_asked() {
    let gate = Gate::shut();
    let held = gate.clone();
    let upstream = Scripted::start(move |_, request| {
        if is_question(request) {
            return Reply::text("Rust release").held(&held);
        }
        Reply::speech(request, &Speech::calls(&[("call_0", "search", ARGUMENTS)]))
    });
    let settings = format!("limits.keepalive_comment = \"100ms\"\n{ON}{SMALL}timeout = \"30s\"\n");
    let program = Toolrein::before(&upstream, &settings);
    let talk = Talk::new(Form::Streamed);
    let mut stream = Request::post(&program.chat_url(), talk.body().to_string()).open();
    stream.until(": toolrein waits");
    gate.open();
    assert!(stream.rest().text().contains("Rust release"));
}

#[test]
fn observing_changes_nothing_and_asks_nobody() {
    in_both_forms(|form| {
        let upstream = searching(1);
        let program = Toolrein::before(&upstream, &format!("mode = \"observe\"\n{ON}{SMALL}"));
        let said = Talk::new(form).ask(&program);
        assert_eq!(said.calls[0].2, ARGUMENTS);
        assert_eq!(upstream.requests().len(), 1);
        program.wait_for_metric("toolrein_actions_total{policy=\"rewrite_query\",action=\"rewritten\"}", 1.0);
    });
}
