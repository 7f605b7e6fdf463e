//! `confirm`: a call runs after a person's approval, once, as it was shown; without one never.

use crate::policies::twofold;
use crate::support::client::{Request, Response};
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::responses::Output;
use crate::support::responses_kit::{self, input, tool};
use crate::support::scripted::{Recorded, Scripted};
use crate::support::talk::{Form, Said, Talk, in_both_forms, text};
use serde_json::{Value, json};
use std::time::Duration;

const FETCH: &str = "[policy.confirm]\ntools = [\"fetch\"]\n";
/// Arguments in an unusual form that must survive byte for byte.
const ARGUMENTS: &str = "{\"url\" :\"//a/\\u00e9\", \"n\": 1.5}";

/// Calls `fetch` whenever the user has just asked for it, else reports the outcome.
fn fetches(_nth: usize, request: &Recorded) -> Reply {
    let body = request.json();
    let last = body["messages"].as_array().unwrap().last().unwrap().clone();
    match last["content"].as_str().unwrap() {
        "What is new?" | "Again" => {
            Reply::speech(request, &Speech::calls(&[("call_fetch0001", "fetch", ARGUMENTS)]))
        }
        _ => text("As you like.", request),
    }
}

fn roles(messages: &Value) -> Vec<String> {
    messages.as_array().unwrap().iter().map(|it| it["role"].as_str().unwrap().to_owned()).collect()
}

fn token(said: &Said) -> String {
    said.text.split("reply with `").nth(1).expect(&said.text).split('`').next().unwrap().to_owned()
}

/// A conversation in which the question has just been put.
fn asked(program: &Toolrein, form: Form) -> (Talk, Said) {
    let mut talk = Talk::new(form);
    let said = talk.ask(program);
    said.assert_coherent(form);
    assert_eq!((said.calls.len(), said.finishes.as_slice()), (0, ["stop".to_owned()].as_slice()));
    talk.add(&said);
    (talk, said)
}

fn answered(program: &Toolrein, form: Form, yes: impl Fn(&Said) -> String) -> (Talk, Said) {
    let (mut talk, said) = asked(program, form);
    talk.say(&yes(&said));
    let said = talk.ask(program);
    said.assert_coherent(form);
    (talk, said)
}

fn send(program: &Toolrein, talk: &Talk, headers: &[(&str, &str)]) -> Response {
    let mut request = Request::new("POST", &program.chat_url(), talk.body().to_string());
    for (name, value) in headers {
        request = request.header(name, value);
    }
    request.header("content-type", "application/json").send()
}

#[test]
fn the_user_is_asked_and_an_approved_call_is_handed_out_without_asking_the_model() {
    in_both_forms(|form| {
        for word in [None, Some("yes"), Some(" APPROVE\n")] {
            let upstream = Scripted::start(fetches);
            let program = Toolrein::before(&upstream, FETCH);
            let (mut talk, said) =
                answered(&program, form, |asked| word.map_or_else(|| token(asked), str::to_owned));
            assert_eq!(upstream.requests().len(), 1, "the model was not asked");
            assert_eq!(said.calls.len(), 1, "{}", said.response.text());
            let (id, name, arguments) = &said.calls[0];
            assert_eq!((name.as_str(), arguments.as_str()), ("fetch", ARGUMENTS));
            assert!(id.starts_with("call_fetch") || id.starts_with("call_fet"), "{id}");
            assert_eq!(said.finishes, ["tool_calls"]);
            assert_eq!(said.usage["total_tokens"], 0);
            assert_eq!(said.response.header("x-toolrein-actions"), Some("confirm=approved"));
            talk.add(&said);
            let done = talk.ask(&program);
            done.assert_coherent(form);
            assert_eq!(done.text, "As you like.");
            let sent = upstream.request(1).json()["messages"].clone();
            let expected = ["user", "assistant", "tool", "assistant", "user", "assistant", "tool"];
            assert_eq!(roles(&sent), expected);
            let refusal: Value = serde_json::from_str(sent[2]["content"].as_str().unwrap()).unwrap();
            assert_eq!(refusal["error"]["type"], "CONFIRMATION_REQUIRED");
            assert_ne!(sent[1]["tool_calls"][0]["id"], sent[5]["tool_calls"][0]["id"]);
            upstream.assert_clean();
        }
    });
}

#[test]
fn anything_else_goes_to_the_model_with_the_refusal_in_its_history() {
    in_both_forms(|form| {
        for answer in ["no", "yes, but later", "K7PQ3M", ""] {
            let upstream = Scripted::start(fetches);
            let program = Toolrein::before(&upstream, FETCH);
            let (_, said) = answered(&program, form, |_| answer.to_owned());
            assert_eq!((said.text.as_str(), said.calls.len()), ("As you like.", 0), "{answer}");
            let sent = upstream.request(1).json()["messages"].clone();
            assert_eq!(roles(&sent), ["user", "assistant", "tool", "assistant", "user"]);
            assert!(sent[2]["content"].as_str().unwrap().contains("CONFIRMATION_REQUIRED"));
            upstream.assert_clean();
        }
    });
}

#[test]
fn a_repeated_approval_does_not_run_the_call_again() {
    in_both_forms(|form| {
        let upstream = Scripted::start(fetches);
        let program = Toolrein::before(&upstream, FETCH);
        let (mut talk, first) = answered(&program, form, token);
        assert_eq!(first.calls.len(), 1);
        // At least as long as clients wait before they retry.
        std::thread::sleep(Duration::from_millis(400));
        let retried = talk.ask(&program);
        assert_eq!(retried.calls, first.calls, "who lost the answer gets the very same");
        for _ in 0..2 {
            assert_eq!(talk.ask(&program).text, "As you like.", "once: then the approval is used up");
        }
        talk.messages.last_mut().unwrap()["content"] = json!("yes");
        assert!(talk.ask(&program).calls.is_empty(), "another yes to the same question");
        talk.messages.last_mut().unwrap()["content"] = json!(token_in(&talk).to_lowercase());
        assert!(talk.ask(&program).calls.is_empty(), "the token once more");
    });
}

fn token_in(talk: &Talk) -> String {
    let text = talk.messages[1]["content"].as_str().unwrap();
    text.split("reply with `").nth(1).unwrap().split('`').next().unwrap().to_owned()
}

#[test]
fn an_ambiguous_call_is_handed_out_exactly_as_it_was_shown() {
    in_both_forms(|form| {
        for call in twofold::CALLS {
            let upstream = Scripted::start(move |_, request| twofold::reply(request, call));
            let program = Toolrein::before(&upstream, FETCH);
            let (_, said) = answered(&program, form, |asked| {
                assert!(asked.text.contains("ann") && !asked.text.contains("mallory"), "{}", asked.text);
                token(asked)
            });
            twofold::assert_only_ann(&said, call);
        }
    });
}

#[test]
fn the_history_after_an_approval_holds_no_id_twice() {
    in_both_forms(|form| {
        for id in ["call_1", "functions.fetch:0", "0", "a", "call_Ae2Y4fDJmxZkQhWq8LbTzR1c"] {
            let upstream = Scripted::start(move |nth, request| match nth {
                0 => Reply::speech(request, &Speech::calls(&[(id, "fetch", "{}")])),
                _ => text("Done.", request),
            });
            let program = Toolrein::before(&upstream, FETCH);
            let (mut talk, said) = answered(&program, form, token);
            assert_eq!(said.calls.len(), 1);
            talk.add(&said);
            talk.ask(&program).assert_coherent(form);
            let sent = upstream.request(1).json()["messages"].clone();
            let calls =
                sent.as_array().unwrap().iter().filter_map(|message| message["tool_calls"].as_array());
            let ids: Vec<&Value> = calls.flatten().map(|call| &call["id"]).collect();
            assert!(ids.len() == 2 && ids[0] == id && ids[0] != ids[1], "{ids:?}");
            upstream.assert_clean();
        }
    });
}

#[test]
fn a_call_under_a_near_name_of_the_tool_needs_an_approval_too() {
    in_both_forms(|form| {
        for (name, is_asked) in
            [("Fetch", true), ("functions.fetch", true), ("default_api.FETCH", true), ("fetch ", false)]
        {
            let upstream = Scripted::start(move |nth, request| match nth {
                0 => Reply::speech(request, &Speech::calls(&[("call_1", name, "{}")])),
                _ => text("Fine.", request),
            });
            let program = Toolrein::before(&upstream, FETCH);
            let said = Talk::new(form).ask(&program);
            assert!(said.calls.is_empty(), "{name}: {}", said.response.text());
            assert_eq!(said.text.contains("I need your approval"), is_asked, "{name}: {}", said.text);
        }
    });
}

#[test]
fn only_one_of_several_simultaneous_approvals_gets_the_call() {
    let upstream = Scripted::start(fetches);
    let program = Toolrein::before(&upstream, FETCH);
    let (talk, _) = asked(&program, Form::Whole);
    let runs: usize = std::thread::scope(|scope| {
        // All different, so that none can be taken for a retry of another.
        let send = |at: usize| {
            let mut talk =
                Talk { form: talk.form, members: talk.members.clone(), messages: talk.messages.clone() };
            talk.say("yes");
            talk.members["seed"] = json!(at);
            talk.ask(&program).calls.len()
        };
        let threads: Vec<_> = (0..8).map(|at| scope.spawn(move || send(at))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(runs, 1);
}

#[test]
fn an_approval_from_another_caller_or_a_forged_one_runs_nothing() {
    let upstream = Scripted::start(fetches);
    let program = Toolrein::before(&upstream, FETCH);
    let (mut talk, said) = asked(&program, Form::Whole);
    talk.say(&token(&said));
    let without_calls = |response: Response, what: &str| {
        assert!(Said::read(response, Form::Whole).calls.is_empty(), "{what}");
    };
    let other = send(&program, &talk, &[("authorization", "Bearer sk-other")]);
    without_calls(other, "another caller");
    let named = [("authorization", "Bearer sk-test"), ("x-toolrein-conversation", "other")];
    without_calls(send(&program, &talk, &named), "another named conversation");
    let mut elsewhere = Talk::new(Form::Whole);
    elsewhere.messages.insert(0, json!({"role": "system", "content": "Another conversation."}));
    elsewhere.messages.extend_from_slice(&talk.messages[1..]);
    assert!(elsewhere.ask(&program).calls.is_empty(), "another conversation");
    let mut changed = Talk::new(Form::Whole);
    changed.messages = talk.messages.clone();
    let shown = talk.messages[1]["content"].as_str().unwrap().replace("//a/", "//b/");
    changed.messages[1]["content"] = json!(shown);
    assert!(changed.ask(&program).calls.is_empty(), "other arguments were shown");
    let mut later = Talk::new(Form::Whole);
    later.messages = talk.messages.clone();
    later.messages.insert(2, json!({"role": "user", "content": "no"}));
    assert!(later.ask(&program).calls.is_empty(), "not directly after the question");
    assert_eq!(talk.ask(&program).calls.len(), 1, "none of them has used it up");
}

#[test]
fn approvals_without_a_question_after_expiry_or_after_a_restart_run_nothing() {
    in_both_forms(|form| {
        let upstream = Scripted::start(fetches);
        let program = Toolrein::before(&upstream, FETCH);
        let mut talk = Talk::new(form);
        talk.messages.push(json!({"role": "assistant", "content": "Shall I?"}));
        talk.say("yes");
        assert_eq!(talk.ask(&program).text, "As you like.");
        assert_eq!(upstream.request(0).body, talk.body().to_string().into_bytes());

        let (mut talk, said) = asked(&program, form);
        talk.say(&token(&said));
        program.stop();
        let program = Toolrein::before(&upstream, FETCH);
        assert_eq!(talk.ask(&program).text, "As you like.", "a state store in memory has forgotten it");

        let brief = Toolrein::before(&upstream, &format!("{FETCH}expires = \"1ms\"\n"));
        let (mut talk, said) = asked(&brief, form);
        talk.say(&token(&said));
        std::thread::sleep(Duration::from_millis(2));
        let late = talk.ask(&brief);
        late.assert_coherent(form);
        assert!(
            late.text.starts_with("This approval came too late: the question was open for 1ms."),
            "{}",
            late.text
        );
        assert!(late.calls.is_empty() && late.finishes == ["stop"]);
        let asked = upstream.requests().len();
        talk.add(&late);
        talk.say("Oh.");
        assert_eq!(talk.ask(&brief).text, "As you like.");
        assert_eq!(upstream.requests().len(), asked + 1, "the model was not asked about the late approval");
        let sent = upstream.requests().last().unwrap().json()["messages"].to_string();
        assert!(sent.contains("came too late"), "and it reads of it: {sent}");
        brief.wait_for_metric("toolrein_confirmations_total{outcome=\"expired\"}", 1.0);
    });
}

#[test]
fn limits_judge_an_approved_call_too() {
    in_both_forms(|form| {
        let upstream = Scripted::start(fetches);
        let limit = "[policy.rate_limit]\ntools = { fetch = { calls = 1, per = \"1h\" } }\n";
        let program = Toolrein::before(&upstream, &format!("{FETCH}{limit}"));
        let (mut talk, said) = answered(&program, form, token);
        talk.add(&said);
        let done = talk.ask(&program);
        talk.add(&done);
        talk.say("Again");
        let refused = talk.ask(&program);
        assert!(!refused.text.contains("approval") && refused.calls.is_empty(), "nobody is asked in vain");
        let messages = upstream.requests().last().unwrap().json()["messages"].clone();
        let last = messages.as_array().unwrap().last().unwrap();
        assert!(last["content"].as_str().unwrap().contains("RATE_LIMIT"), "the handed-out call counts");
        upstream.assert_clean();
    });
}

#[test]
fn an_approved_call_that_a_policy_now_blocks_is_explained_to_the_model() {
    in_both_forms(|form| {
        // Both calls fit when they are shown; of one reply only one may run.
        let upstream = Scripted::start(|nth, request| match nth {
            0 => {
                let calls = [("call_fetch0001", "fetch", "{}"), ("call_fetch0002", "fetch", "{\"n\":2}")];
                Reply::speech(request, &Speech::calls(&calls))
            }
            _ => text("Fine.", request),
        });
        let program = Toolrein::before(&upstream, &format!("{FETCH}[policy.serial]\ntools = [\"fetch\"]\n"));
        let (mut talk, said) = answered(&program, form, token);
        assert_eq!(said.calls.len(), 1, "{}", said.response.text());
        talk.add(&said);
        talk.ask(&program).assert_coherent(form);
        let sent = upstream.request(1).json()["messages"].to_string();
        assert!(sent.contains("TURN_LOCKED") && sent.contains("CONFIRMATION_REQUIRED"));
        upstream.assert_clean();
    });
}

#[test]
fn beside_other_calls_the_model_is_asked_to_call_again_alone() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| match nth {
            0 => Reply::speech(request, &Speech::calls(&[("a", "search", "{}"), ("b", "fetch", "{}")])),
            1 => Reply::speech(request, &Speech::calls(&[("c", "fetch", "{}")])),
            _ => text("Fine.", request),
        });
        let program = Toolrein::before(&upstream, FETCH);
        let mut talk = Talk::new(form);
        let said = talk.ask(&program);
        said.assert_coherent(form);
        assert_eq!(said.calls.len(), 1);
        assert_eq!(said.calls[0].1, "search");
        talk.add(&said);
        let asked = talk.ask(&program);
        asked.assert_coherent(form);
        assert!(upstream.request(1).json()["messages"].to_string().contains("Make it again alone"));
        talk.add(&asked);
        talk.say(&token(&asked));
        assert_eq!(talk.ask(&program).calls.len(), 1, "after calls as well");
        upstream.assert_clean();
    });
}

#[test]
fn what_is_too_long_to_be_shown_is_refused_within_the_same_request() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| match nth {
            0 => Reply::speech(request, &Speech::calls(&[("a", "fetch", ARGUMENTS)])),
            _ => text("Fine.", request),
        });
        let program = Toolrein::before(&upstream, &format!("{FETCH}max_chars = 10\n"));
        let said = Talk::new(form).ask(&program);
        said.assert_coherent(form);
        assert_eq!(said.text, "Fine.");
        assert!(upstream.request(1).json()["messages"].to_string().contains("longer than the 10 characters"));
    });
}

#[test]
fn a_forced_call_needs_the_yes_too_and_an_answer_tool_does_not() {
    in_both_forms(|form| {
        let upstream = Scripted::start(fetches);
        let forced = |settings: &str| {
            let program = Toolrein::before(&upstream, settings);
            let mut talk = Talk::new(form);
            talk.members["tool_choice"] = json!("required");
            talk.ask(&program).calls.len()
        };
        assert_eq!(forced(FETCH), 0);
        assert_eq!(forced(&format!("reask.answer_tools = [\"fetch\"]\n{FETCH}")), 1);
    });
}

#[test]
fn only_the_first_choice_asks() {
    let upstream = Scripted::start(|nth, request| {
        if nth > 0 {
            return text("Fine.", request);
        }
        Reply::choices(&[("a", "fetch"), ("a", "fetch")])
    });
    let program = Toolrein::before(&upstream, FETCH);
    let mut talk = Talk::new(Form::Whole);
    talk.members["n"] = json!(2);
    let body = talk.ask(&program).response.json();
    let text = |at: usize| body["choices"][at]["message"]["content"].as_str().unwrap().to_owned();
    assert!(text(0).contains("I need your approval"), "{body}");
    assert_eq!(text(1), "Fine.");
}

#[test]
fn what_cannot_be_judged_does_not_pass() {
    let upstream = Scripted::start(|_, request| {
        let call = "{\"id\":\"a\",\"choices\":[{\"index\":0,\"index\":0,\"delta\":{\"tool_calls\":[";
        match request.json()["stream"].as_bool() {
            Some(true) => Reply::stream([format!("data: {call}\n\n")]),
            _ => Reply::bytes(200, "application/json", call.to_owned()),
        }
    });
    let program = Toolrein::before(&upstream, FETCH);
    let whole = send(&program, &Talk::new(Form::Whole), &[]);
    assert_eq!(whole.status, 502);
    let streamed = send(&program, &Talk::new(Form::Streamed), &[]);
    assert!(streamed.cut && !streamed.text().contains("tool_calls"), "{}", streamed.text());
}

#[test]
fn a_stream_of_which_more_must_be_held_than_is_allowed_is_broken_off_before_the_call_that_needs_approval() {
    let upstream = Scripted::start(|nth, request| match nth {
        0 => {
            let long = format!("{{\"text\":\"{}\"}}", "x".repeat(5000));
            let mut chunks = Speech::calls(&[("a", "search", &long)]).chunks(false);
            chunks.splice(
                2..2,
                Speech::calls(&[("b", "fetch", &long)]).chunks(false).into_iter().skip(1).take(3).map(
                    |mut chunk| {
                        chunk["choices"][0]["delta"]["tool_calls"][0]["index"] = json!(1);
                        chunk["choices"][0]["finish_reason"] = Value::Null;
                        chunk
                    },
                ),
            );
            Reply::events(&chunks)
        }
        _ => text("Fine.", request),
    });
    let settings = format!(
        "limits.event_bytes = \"4KiB\"\nlimits.held_bytes = \"4KiB\"\n{FETCH}[policy.arguments]\nstrict = true\n"
    );
    let program = Toolrein::before(&upstream, &settings);
    let said = Talk::new(Form::Streamed).ask(&program);
    let text = said.response.text();
    assert!(said.calls.is_empty() && !text.contains("fetch"), "{text}");
    assert!(said.response.cut && text.contains("reply_unjudged") && text.contains("held_too_much"), "{text}");
}

#[test]
fn a_stream_without_a_finish_ends_in_the_question_all_the_same() {
    let upstream = Scripted::start(|_, _| {
        let mut chunks = Speech::calls(&[("a", "fetch", "{}")]).chunks(false);
        chunks.retain(|chunk| chunk["choices"][0]["finish_reason"].is_null());
        Reply::events(&chunks)
    });
    let program = Toolrein::before(&upstream, FETCH);
    let (mut talk, _) = asked(&program, Form::Streamed);
    talk.say("yes");
    let said = talk.ask(&program);
    said.assert_coherent(Form::Streamed);
    assert_eq!(said.calls.len(), 1);
}

#[test]
fn while_observing_nobody_is_asked() {
    in_both_forms(|form| {
        let upstream = Scripted::start(fetches);
        let program = Toolrein::before(&upstream, &format!("mode = \"observe\"\n{FETCH}"));
        let said = Talk::new(form).ask(&program);
        assert_eq!((said.calls.len(), said.text.as_str()), (1, ""));
    });
}

const LARGE: &str =
    "[policy.confirm]\n[policy.confirm.when]\nfetch = [{ argument = \"amount\", above = 100 }]\n";

#[test]
fn only_calls_that_meet_a_condition_need_a_person() {
    in_both_forms(|form| {
        for (arguments, is_asked) in [
            (r#"{"amount":5}"#, false),
            (r#"{"amount":100}"#, false),
            (r#"{"amount":500}"#, true),
            (r#"{"amount":5,"amount":500}"#, true),
            (r#"{"amount":500,"amount":5}"#, true),
            (r#"{"amount":"1e3"}"#, true),
            (r#"{"Amount":5}"#, false),
            (r#"{}"#, true),
        ] {
            let upstream = Scripted::start(move |_, request| {
                Reply::speech(request, &Speech::calls(&[("call_1", "fetch", arguments)]))
            });
            let program = Toolrein::before(&upstream, LARGE);
            let said = Talk::new(form).ask(&program);
            said.assert_coherent(form);
            assert_eq!(said.text.contains("I need your approval"), is_asked, "{arguments}: {}", said.text);
            let released = said.calls.iter().map(|(_, _, arguments)| arguments.as_str()).next();
            assert_eq!(released, (!is_asked).then_some(arguments), "byte for byte");
        }
    });
}

#[test]
fn conditions_hold_on_the_responses_api_and_within_wrapper_calls() {
    for stream in [false, true] {
        let upstream = Scripted::start(|nth, request| {
            let arguments = [r#"{"amount":5}"#, r#"{"amount":500}"#][nth.min(1)];
            Output::new(nth).call(&nth.to_string(), "f", arguments).reply(request)
        });
        let settings = LARGE.replace("fetch", "f");
        let program = Toolrein::before(&upstream, &settings);
        let mut talk = responses_kit::Talk::new(stream);
        let small = talk.ask(&program);
        assert_eq!(small.kinds(), ["function:0"]);
        talk.go_on(&small);
        let large = talk.ask(&program);
        assert!(large.said().contains("I need your approval"), "{}", large.text());
        talk.go_on(&large).say("yes");
        assert_eq!(talk.ask(&program).items()[0]["arguments"], r#"{"amount":500}"#);
        assert_eq!(upstream.requests().len(), 2);
    }
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| match nth {
            0 => {
                let twice = r#"{"tool_uses":[{"recipient_name":"functions.fetch","parameters":{"amount":500,"amount":5}}]}"#;
                Reply::speech(request, &Speech::calls(&[("call_0", "multi_tool_use.parallel", twice)]))
            }
            1 => {
                let wrapped =
                    r#"{"tool_uses":[{"recipient_name":"functions.fetch","parameters":{"amount":500}}]}"#;
                Reply::speech(request, &Speech::calls(&[("call_1", "multi_tool_use.parallel", wrapped)]))
            }
            _ => text("Fine.", request),
        });
        let program = Toolrein::before(&upstream, LARGE);
        assert!(Talk::new(form).ask(&program).calls.is_empty());
    });
}

#[test]
fn a_late_approval_is_answered_on_the_responses_api_too() {
    for stream in [false, true] {
        let upstream = Scripted::start(|nth, request| Output::new(nth).call("1", "f", "{}").reply(request));
        let settings =
            "[policy.confirm]\ntools = [\"f\"]\nexpires = \"1ms\"\ntexts = { lapsed = \"Zu spät.\" }\n";
        let program = Toolrein::before(&upstream, settings);
        let mut talk = responses_kit::Talk::new(stream);
        let asked = talk.ask(&program);
        talk.go_on(&asked).say("yes");
        std::thread::sleep(Duration::from_millis(2));
        let late = talk.ask(&program);
        assert_eq!((late.said().as_str(), late.kinds()), ("Zu spät.", vec!["assistant".to_owned()]));
        assert_eq!(upstream.requests().len(), 1);
    }
}

const REMEMBERED: &str = "[policy.confirm]\ntools = [\"fetch\"]\nremember = \"conversation\"\n";

/// Calls `fetch` with the arguments that the user's last message is, else says so.
fn fetches_as_asked(nth: usize, request: &Recorded) -> Reply {
    let body = request.json();
    let last = body["messages"].as_array().unwrap().last().unwrap().clone();
    let said = last["content"].as_str().unwrap_or_default().to_owned();
    match last["role"] == "user" && said.starts_with('{') {
        true => Reply::speech(request, &Speech::calls(&[(&format!("call_fetch{nth:04}"), "fetch", &said)])),
        false => text("As you like.", request),
    }
}

/// A conversation in which `arguments` were approved, and the call was answered.
fn approved(program: &Toolrein, form: Form, arguments: &str) -> Talk {
    let mut talk = Talk::new(form);
    talk.messages[0]["content"] = json!(arguments);
    let asked = talk.ask(program);
    assert!(asked.text.contains("I need your approval"), "{}", asked.text);
    talk.add(&asked);
    talk.say("yes");
    let handed = talk.ask(program);
    assert_eq!(handed.calls.len(), 1, "{}", handed.response.text());
    talk.add(&handed);
    let done = talk.ask(program);
    talk.add(&done);
    talk
}

/// The credential with which the client asks.
const OWN: &[(&str, &str)] = &[("authorization", "Bearer sk-test")];

fn is_asked_again(program: &Toolrein, talk: &Talk, arguments: &str, headers: &[(&str, &str)]) -> bool {
    let mut next = Talk { form: talk.form, members: talk.members.clone(), messages: talk.messages.clone() };
    next.say(arguments);
    let said = Said::read(send(program, &next, headers), talk.form);
    assert_eq!(said.calls.is_empty(), said.text.contains("I need your approval"), "{}", said.response.text());
    said.calls.is_empty()
}

#[test]
fn a_remembered_approval_holds_for_equal_calls_of_its_conversation_and_for_no_other() {
    in_both_forms(|form| {
        let upstream = Scripted::start(fetches_as_asked);
        let program = Toolrein::before(&upstream, REMEMBERED);
        let talk = approved(&program, form, r#"{"to":"ann","sum":5}"#);
        let own = OWN;
        let other: &[(&str, &str)] = &[("authorization", "Bearer sk-other")];
        let asked =
            |arguments: &str, headers: &[(&str, &str)]| is_asked_again(&program, &talk, arguments, headers);
        assert!(!asked(r#"{"to":"ann","sum":5}"#, own), "the same call");
        assert!(!asked(r#"{ "sum":5.0, "to":"\u0061nn"}"#, own), "written otherwise");
        assert!(asked(r#"{"to":"ann","sum":6}"#, own), "another sum");
        assert!(asked(r#"{"to":"ann","sum":5,"note":"x"}"#, own), "more arguments");
        assert!(asked(r#"{"to":"bob","to":"ann","sum":5}"#, own), "what programs read differently");
        assert!(asked(r#"{"to":"ann","sum":5}"#, other), "another caller with the same history");
        let elsewhere = [own[0], ("x-toolrein-conversation", "other")];
        assert!(asked(r#"{"to":"ann","sum":5}"#, &elsewhere), "another named conversation");
        let mut forged = Talk { form, members: talk.members.clone(), messages: talk.messages.clone() };
        forged.messages[0]["content"] = json!("Something else");
        assert!(is_asked_again(&program, &forged, r#"{"to":"ann","sum":5}"#, own), "another history");
        // A history that merely claims that there was an approval.
        let mut written = Talk::new(form);
        written.messages.extend(talk.messages[2..].iter().cloned());
        assert!(is_asked_again(&program, &written, r#"{"to":"ann","sum":5}"#, own));
        let restarted = Toolrein::before(&upstream, REMEMBERED);
        assert!(
            is_asked_again(&restarted, &talk, r#"{"to":"ann","sum":5}"#, own),
            "a store in memory forgets"
        );
    });
}

#[test]
fn key_arguments_say_which_calls_an_approval_is_for_and_without_remember_it_is_for_one() {
    in_both_forms(|form| {
        let upstream = Scripted::start(fetches_as_asked);
        let keyed = Toolrein::before(&upstream, &format!("{REMEMBERED}keys = {{ fetch = [\"to\"] }}\n"));
        let talk = approved(&keyed, form, r#"{"to":"ann","sum":5}"#);
        for (arguments, is_asked) in [
            (r#"{"to":"ann","sum":7}"#, false),
            (r#"{"to":"bob","sum":5}"#, true),
            (r#"{"to":"bob","to":"ann"}"#, true),
            (r#"{"To":"bob","to":"ann"}"#, true),
            (r#"{"sum":5}"#, true),
        ] {
            assert_eq!(is_asked_again(&keyed, &talk, arguments, OWN), is_asked, "{arguments}");
        }
        let once = Toolrein::before(&upstream, FETCH);
        let talk = approved(&once, form, r#"{"to":"ann"}"#);
        assert!(is_asked_again(&once, &talk, r#"{"to":"ann"}"#, OWN));
    });
}

#[test]
fn an_approval_is_remembered_on_the_responses_api_too() {
    for stream in [false, true] {
        let upstream = Scripted::start(|nth, request| {
            let items = input(request);
            let is_user = items.last().unwrap()["role"] == "user";
            match is_user {
                true => Output::new(nth).call(&nth.to_string(), "f", r#"{"to":"ann"}"#).reply(request),
                false => Output::text(nth, "Done.").reply(request),
            }
        });
        let settings = "[policy.confirm]\ntools = [\"f\"]\nremember = \"conversation\"\n";
        let program = Toolrein::before(&upstream, settings);
        let mut talk = responses_kit::Talk::new(stream).with_tools(json!([tool("f")]));
        let asked = talk.ask(&program);
        talk.go_on(&asked).say("yes");
        let handed = talk.ask(&program);
        assert_eq!(handed.items()[0]["name"], "f");
        talk.go_on(&handed);
        let done = talk.ask(&program);
        talk.go_on(&done).say("Again");
        assert_eq!(talk.ask(&program).items()[0]["name"], "f", "nobody is asked again");
    }
}

#[test]
fn the_question_is_the_operators_text() {
    in_both_forms(|form| {
        let upstream = Scripted::start(fetches);
        let texts =
            "texts = { question = \"Darf ich?\\n{calls}\\nSag {token}.\", asked = \"Wird gefragt.\" }\n";
        let program = Toolrein::before(&upstream, &format!("{FETCH}{texts}"));
        let mut talk = Talk::new(form);
        let said = talk.ask(&program);
        assert!(said.text.starts_with("Darf ich?\n\n`fetch`\n```json\n{"), "{}", said.text);
        talk.add(&said);
        let token = said.text.rsplit("Sag ").next().unwrap().trim_end_matches('.').to_owned();
        talk.say(&token);
        let handed = talk.ask(&program);
        assert_eq!(handed.calls.len(), 1);
        talk.add(&handed);
        talk.ask(&program);
        assert!(upstream.requests().last().unwrap().json()["messages"].to_string().contains("Wird gefragt."));
    });
}

#[test]
fn an_approved_call_is_reserved_when_it_is_handed_out_and_blocked_where_nothing_is_left() {
    const LIMITS: [&str; 2] = [
        "[policy.quota.limits]\nfetches = { tools = [\"fetch\"], calls = 1, per = \"5h\" }\n",
        "[policy.budget]\ntool_calls = 0\nday = { tool_calls = 1 }\n",
    ];
    in_both_forms(|form| {
        for limit in LIMITS {
            let upstream = Scripted::start(fetches);
            let program = Toolrein::before(&upstream, &format!("{FETCH}{limit}"));
            let approved = |question: &str| {
                let mut talk = Talk::new(form);
                talk.members["user"] = json!(question);
                let said = talk.ask(&program);
                talk.add(&said);
                talk.say(&token(&said));
                talk
            };
            // Both are asked about while one call is left.
            let [first, second] = ["first", "second"].map(approved);
            let said = first.ask(&program);
            said.assert_coherent(form);
            assert_eq!(said.calls.len(), 1, "{limit} {}", said.response.text());
            let said = second.ask(&program);
            said.assert_coherent(form);
            assert_eq!((said.calls.len(), said.text.as_str()), (0, "As you like."), "{limit}");
            upstream.assert_clean();
        }
    });
}
