//! `loops`: a model that makes one call for ever gets a notice, is stopped, and answers.

use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::{Recorded, Scripted};
use crate::support::talk::{Form, Talk, in_both_forms, text};
use serde_json::Value;

/// A model that makes the same call, written in one of two ways, until it reads that the call was not run.
fn stuck(nth: usize, request: &Recorded) -> Reply {
    let last = request.json()["messages"].as_array().unwrap().last().unwrap()["content"].clone();
    if last.as_str().is_some_and(|text| text.contains("LOOP_DETECTED")) {
        return text("It is what it is.", request);
    }
    let arguments = [r#"{"q":"a","page":1}"#, r#"{ "page": 1, "q": "a" }"#][nth % 2];
    Reply::speech(request, &Speech::calls(&[(&format!("call_{nth}"), "search", arguments)]))
}

#[test]
fn the_fifth_equal_call_is_blocked_and_the_model_answers_with_what_it_has() {
    in_both_forms(|form| {
        let upstream = Scripted::start(stuck);
        let program = Toolrein::before(&upstream, "[policy.loops]\n");
        let mut talk = Talk::new(form);
        for round in 0..4 {
            let said = talk.ask(&program);
            said.assert_coherent(form);
            assert_eq!(said.calls.len(), 1, "round {round}");
            talk.add(&said);
        }
        let said = talk.ask(&program);
        said.assert_coherent(form);
        assert_eq!((said.text.as_str(), said.calls.len()), ("It is what it is.", 0));

        let requests = upstream.requests();
        assert_eq!(requests.len(), 6, "five of the client's and one more after the call was blocked");
        let systems = |request: &Recorded| -> Vec<String> {
            let messages = request.json()["messages"].as_array().unwrap().clone();
            let system = messages.into_iter().filter(|message| message["role"] == "system");
            system.map(|message| message["content"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(systems(&requests[2]), [""; 0]);
        assert_eq!(systems(&requests[3]).len(), 1);
        assert!(systems(&requests[3])[0].starts_with("[toolrein] search was called 3 times in a row"));
        assert_eq!(systems(&requests[4])[0], systems(&requests[3])[0], "the same place says the same again");
        assert!(systems(&requests[4])[1].ends_with("The next time the call will not be run."));

        let messages = requests[5].json()["messages"].clone();
        let envelope: Value =
            serde_json::from_str(messages.as_array().unwrap().last().unwrap()["content"].as_str().unwrap())
                .unwrap();
        assert_eq!(envelope["error"]["type"], "LOOP_DETECTED");
        assert_eq!(envelope["error"]["retryable"], false);
        assert_eq!(
            (&envelope["error"]["rounds"], &envelope["error"]["calls_per_round"]),
            (&4.into(), &1.into())
        );
        assert!(envelope["error"]["message"].as_str().unwrap().contains("Use the result that you have"));
        program.wait_for_metric("toolrein_actions_total{policy=\"loops\",action=\"blocked\"}", 1.0);
        upstream.assert_clean();
    });
}

#[test]
fn a_new_question_begins_anew_and_the_strict_form_does_not_wait_for_the_fifth() {
    in_both_forms(|form| {
        let upstream = Scripted::start(stuck);
        let program = Toolrein::before(&upstream, "[policy.loops]\nstrict = true\n");
        let mut talk = Talk::new(form);
        for _ in 0..2 {
            for calls in [1, 1, 0] {
                let said = talk.ask(&program);
                said.assert_coherent(form);
                assert_eq!(said.calls.len(), calls);
                talk.add(&said);
            }
            talk.say("And again?");
        }
        upstream.assert_clean();
    });
}

/// A model that rewords its search for ever, until it reads that the call was not run.
fn rewording(nth: usize, request: &Recorded) -> Reply {
    let last = request.json()["messages"].as_array().unwrap().last().unwrap()["content"].clone();
    if last.as_str().is_some_and(|text| text.contains("LOOP_DETECTED")) {
        return text("There is nothing.", request);
    }
    let (id, arguments) = (format!("call_{nth}"), format!("{{\"q\":\"try {nth}\"}}"));
    Reply::speech(request, &Speech::calls(&[(&id, "search", &arguments)]))
}

/// With the shipped policies: how many calls of `model` ran before it answered, each with the result of `result`.
fn ran_as_shipped(form: Form, model: fn(usize, &Recorded) -> Reply, result: fn(usize) -> String) -> usize {
    let upstream = Scripted::start(model);
    let program = Toolrein::before(&upstream, "base = \"shipped\"\n");
    let mut talk = Talk::new(form);
    for round in 0..12 {
        let said = talk.ask(&program);
        said.assert_coherent(form);
        if said.calls.is_empty() {
            upstream.assert_clean();
            return round;
        }
        talk.add(&said);
        talk.messages.last_mut().unwrap()["content"] = result(round).into();
    }
    12
}

#[test]
fn as_shipped_the_fifth_empty_search_is_blocked_however_it_is_worded() {
    in_both_forms(|form| {
        assert_eq!(ran_as_shipped(form, rewording, |_| "{\"results\":[],\"total\":0}".to_owned()), 4);
        assert_eq!(ran_as_shipped(form, rewording, |nth| format!("[\"hit of search number {nth}\"]")), 12);
    });
}

#[test]
fn as_shipped_a_clock_or_a_cursor_does_not_hide_a_loop_and_progress_is_none() {
    in_both_forms(|form| {
        for (result, ran) in [
            ((|nth| format!("Nothing new at 10:00:{nth:02}.")) as fn(usize) -> String, 4),
            (|nth| format!("{{\"items\":[\"the same\"],\"next_cursor\":\"c{nth}\"}}"), 4),
            (|nth| format!("{{\"status\":\"running\",\"progress\":{nth}}}"), 12),
        ] {
            assert_eq!(ran_as_shipped(form, stuck, result), ran, "{}", result(1));
        }
    });
}
