//! Limits over several conversations, under load at two programs that share a Redis: which is wiped, paused and killed
//! meanwhile.

use crate::server::{Server, is_connected, pair};
use crate::support::client::Request;
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::{Recorded, Scripted};
use crate::support::talk::{Form, Said, Talk, text};
use crate::support::until;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Six calls each.
const QUOTA: &str = "[policy.quota.limits]\nsearches = { tools = [\"search*\"], calls = 6, per = \"5h\" }\n";
const DAY: &str = "[policy.budget]\ntool_calls = 0\nday = { tool_calls = 6 }\n";
const CALLS: usize = 6;
/// Requests that are sent at once.
const AT_ONCE: usize = 100;

/// A model that calls as long as it may.
fn calls(nth: usize, request: &Recorded) -> Reply {
    call_with("{}", nth, request)
}

/// The same, with other arguments in each reply.
fn other_calls(nth: usize, request: &Recorded) -> Reply {
    call_with(&format!("{{\"q\":{nth}}}"), nth, request)
}

fn call_with(arguments: &str, nth: usize, request: &Recorded) -> Reply {
    let body = request.json();
    let messages = body["messages"].to_string();
    match messages.contains("RATE_LIMIT") || messages.contains("BUDGET") || body["tool_choice"] == "none" {
        true => text("Enough.", request),
        false => Reply::speech(request, &Speech::calls(&[(&format!("call_{nth}"), "search", arguments)])),
    }
}

static ASKED: AtomicUsize = AtomicUsize::new(0);

/// The number of calls that `caller` gets for `question`, the `nth` of several that are asked the programs in turn.
fn ask(programs: &[Toolrein; 2], caller: &str, question: &str, nth: usize) -> usize {
    let form = if nth % 4 < 2 { Form::Whole } else { Form::Streamed };
    let mut talk = Talk::new(form);
    talk.messages[0]["content"] = question.into();
    let request = Request::new("POST", &programs[nth % 2].chat_url(), talk.body().to_string());
    let request = request.header("content-type", "application/json");
    Said::read(request.header("authorization", &format!("Bearer {caller}")).send(), form).calls.len()
}

/// The calls that so many requests of `caller` get that are sent at once, every other one to the other program.
fn calls_at_once(programs: &[Toolrein; 2], caller: &str, requests: usize) -> usize {
    let ask = |nth: usize| {
        // An equal request would be a retry, which gets its call again.
        let question = ASKED.fetch_add(1, Ordering::Relaxed);
        ask(programs, caller, &format!("Question {question}"), nth)
    };
    std::thread::scope(|scope| {
        let asking: Vec<_> = (0..requests).map(|nth| scope.spawn(move || ask(nth))).collect();
        asking.into_iter().map(|asking| asking.join().unwrap()).sum()
    })
}

#[test]
fn two_replicas_hand_out_a_limit_exactly_however_many_requests_come_at_once() {
    for settings in [QUOTA, DAY] {
        let (server, upstream) = (Server::start(), Scripted::start(calls));
        let programs = pair(&server, &upstream, settings);
        for round in 0..10 {
            assert_eq!(calls_at_once(&programs, &format!("key-{round}"), AT_ONCE), CALLS, "round {round}");
        }
        for program in &programs {
            assert!(program.metric("toolrein_store_errors_total").abs() < 0.5);
        }
    }
}

/// Each call is handed out three times at most, and counts once.
#[test]
fn equal_requests_that_come_at_once_are_no_way_around_a_limit() {
    for settings in [QUOTA, DAY] {
        let (server, upstream) = (Server::start(), Scripted::start(calls));
        let programs = pair(&server, &upstream, settings);
        for sent_before in [false, true] {
            let caller = format!("key-{sent_before}");
            // A whole and a streamed reply are asked for by different bodies.
            let before: usize = (0..2)
                .map(|nth| ask(&programs, &caller, "q", 2 * nth))
                .take(2 * usize::from(sent_before))
                .sum();
            let given: usize = std::thread::scope(|scope| {
                let (programs, caller) = (&programs, &caller);
                let asking: Vec<_> =
                    (0..AT_ONCE).map(|nth| scope.spawn(move || ask(programs, caller, "q", nth))).collect();
                asking.into_iter().map(|asking| asking.join().unwrap()).sum()
            });
            let all = before + given;
            assert!((CALLS..=3 * CALLS).contains(&all), "{settings}: {before} before, {given} at once");
        }
    }
}

/// How many times a call was handed out, as the store has it.
fn hand_outs(server: &Server) -> usize {
    let keys = server.keys();
    let uses = keys.iter().filter(|key| key.starts_with("toolrein:q:"));
    uses.map(|key| server.ask::<usize>(&["ZCARD", key])).sum()
}

#[test]
fn a_request_that_is_sent_again_gets_the_same_call_without_counting_and_another_one_counts() {
    for settings in [QUOTA, DAY] {
        for (model, questions, expected) in [
            (other_calls as fn(usize, &Recorded) -> Reply, vec!["q"; 2 * CALLS], CALLS),
            (calls, [vec!["q"; 3], vec!["a", "b", "c", "d", "e", "f"]].concat(), CALLS + 2),
        ] {
            let (server, upstream) = (Server::start(), Scripted::start(model));
            let programs = pair(&server, &upstream, settings);
            let mut given = 0;
            for (nth, question) in questions.into_iter().enumerate() {
                // The form stays, and the programs take turns.
                given += ask(&programs, "key", question, 4 * nth + nth % 2);
                until("the store to have it", || (hand_outs(&server) == given).then_some(()));
            }
            assert_eq!(given, expected, "{settings}");
        }
    }
}

#[test]
fn a_store_that_pauses_under_load_overruns_no_limit() {
    let (server, upstream) = (Server::start(), Scripted::start(calls));
    let programs = pair(&server, &upstream, QUOTA);
    for round in 0..5 {
        let caller = format!("key-{round}");
        let given = std::thread::scope(|scope| {
            let load = scope.spawn(|| calls_at_once(&programs, &caller, AT_ONCE));
            for _ in 0..5 {
                server.freeze();
                std::thread::sleep(Duration::from_millis(20));
                server.thaw();
                std::thread::sleep(Duration::from_millis(20));
            }
            load.join().unwrap()
        });
        assert_eq!(given, CALLS, "round {round}");
    }
}

/// The documented rule: each program has what it has handed out itself, and stores that again.
#[test]
fn a_store_that_is_wiped_or_killed_under_load_costs_at_most_the_limit_at_each_replica() {
    for kills in [false, true] {
        let (mut server, upstream) = (Server::start(), Scripted::start(calls));
        let programs = pair(&server, &upstream, QUOTA);
        let mut given = 0;
        for round in 0..6 {
            given += std::thread::scope(|scope| {
                let load = scope.spawn(|| calls_at_once(&programs, "key", AT_ONCE / 2));
                std::thread::sleep(Duration::from_millis(10 * round));
                if kills {
                    server.stop();
                    server.start_again();
                } else {
                    server.ask::<()>(&["FLUSHALL"]);
                }
                load.join().unwrap()
            });
            programs.iter().for_each(is_connected);
        }
        // Once both have stored again what they have handed out, nothing more is.
        until("all uses to be stored again", || {
            given += calls_at_once(&programs, "key", 2);
            (hand_outs(&server) == given).then_some(())
        });
        assert!((CALLS..=2 * CALLS).contains(&given), "{given}, killed: {kills}");
        assert_eq!(calls_at_once(&programs, "key", 2), 0);
    }
}
