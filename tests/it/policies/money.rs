//! `budget` where money, tokens or requests of a conversation or a day are limited: the turn in which they are used up gets
//! one final answer, and further requests are refused. What is counted when a request is sent, and corrected by its reply.

use crate::support::client::{Connection, Request, Response};
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::responses::Output;
use crate::support::responses_kit::{Talk as Responses, may_call, url as responses_url};
use crate::support::scripted::{Recorded, Scripted};
use crate::support::talk::{Form, Said, Talk, in_both_forms, text};
use serde_json::{Value, json};

/// Limits that two replies of the scripted model use up (20 tokens and 5, $0.0001), and what a refusal says is used.
const TWO: [(&str, &str); 3] = [
    ("spend_usd = 0.0002", "$0.0002 of $0.0002 spent in this conversation"),
    ("billed_tokens = 50", "50 of 50 billed tokens of this conversation used"),
    ("conversation = { requests = 2 }", "2 of 2 model requests of this conversation used"),
];

fn budget(limits: &str) -> String {
    format!("[policy.budget]\ntool_calls = 0\n{limits}\n")
}

/// A model that calls a tool for as long as it may.
fn stubborn(nth: usize, request: &Recorded) -> Reply {
    if !may_call(request) {
        return text("This is what I know.", request);
    }
    let id = format!("call_Ae2Y4fDJmxZkQhWq8LbTz{nth:03}");
    Reply::speech(request, &Speech::calls(&[(&id, "search", "{\"q\":1}")]))
}

fn post(program: &Toolrein, body: &str, headers: &[(&str, &str)]) -> Response {
    let request = Request::new("POST", &program.chat_url(), body).header("content-type", "application/json");
    let own = headers.iter().any(|(name, _)| *name == "authorization");
    let request = if own { request } else { request.header("authorization", "Bearer sk-test") };
    headers.iter().fold(request, |request, (name, value)| request.header(name, value)).send()
}

fn ask(program: &Toolrein, talk: &Talk, headers: &[(&str, &str)]) -> Said {
    Said::read(post(program, &talk.body().to_string(), headers), talk.form)
}

/// Asserts that the budget refuses, and returns its words.
fn refused(response: &Response) -> String {
    let error = response.json()["error"].clone();
    assert_eq!((response.status, &error["code"]), (400, &json!("budget_exceeded")), "{}", response.text());
    error["message"].as_str().unwrap().to_owned()
}

const WITH_AND_WITHOUT_ID: [&[(&str, &str)]; 2] = [&[], &[("x-toolrein-conversation", "mine")]];

#[test]
fn plain_chat_ends_where_the_conversations_money_is_used_up() {
    in_both_forms(|form| {
        for ((limit, used), headers) in TWO.iter().flat_map(|limit| WITH_AND_WITHOUT_ID.map(|it| (limit, it)))
        {
            let upstream =
                Scripted::start(|nth, request: &Recorded| text(&format!("Answer {nth}."), request));
            let program = Toolrein::before(&upstream, &budget(limit));
            let mut talk = Talk::new(form);
            for nth in 0..2 {
                let said = ask(&program, &talk, headers);
                assert_eq!(said.text, format!("Answer {nth}."), "{limit}");
                talk.add(&said);
                talk.say("And now?");
            }
            for _ in 0..3 {
                let words = refused(&ask(&program, &talk, headers).response);
                let expected = format!(
                    "The budget of this conversation is used up: {used}. A new conversation begins with a new budget."
                );
                assert_eq!(words, expected, "{headers:?}");
                talk.say("Please.");
            }
            assert_eq!(upstream.requests().len(), 2, "{limit} {headers:?}");
        }
    });
}

#[test]
fn the_turn_in_which_it_is_used_up_gets_one_final_answer_and_nothing_more() {
    in_both_forms(|form| {
        for ((limit, used), headers) in TWO.iter().flat_map(|limit| WITH_AND_WITHOUT_ID.map(|it| (limit, it)))
        {
            let upstream = Scripted::start(stubborn);
            let program = Toolrein::before(&upstream, &budget(limit));
            let mut talk = Talk::new(form);
            for _ in 0..2 {
                let said = ask(&program, &talk, headers);
                assert_eq!(said.calls.len(), 1, "{limit}");
                talk.add(&said);
            }
            let answered = ask(&program, &talk, headers);
            answered.assert_coherent(form);
            assert_eq!(
                (answered.calls.len(), answered.text.as_str()),
                (0, "This is what I know."),
                "{limit}"
            );
            assert_eq!(upstream.requests().len(), 3, "two calls, the final answer");
            assert_eq!(upstream.request(2).json()["tool_choice"], "none");
            // The very same request, the same turn with another end, and the next turn.
            refused(&ask(&program, &talk, headers).response);
            let mut other = Talk { messages: talk.messages.clone(), ..Talk::new(form) };
            other.say("Go on.");
            refused(&ask(&program, &other, headers).response);
            talk.add(&answered);
            talk.say("And now?");
            let words = refused(&ask(&program, &talk, headers).response);
            let name = used.split(' ').nth(2).unwrap();
            assert!(words.contains("this conversation") && words.contains(name), "{words}");
            assert_eq!(upstream.requests().len(), 3, "{limit} {headers:?}");
            upstream.assert_clean();
        }
    });
}

#[test]
fn on_the_responses_api_chat_ends_and_a_running_turn_gets_one_final_answer() {
    for (stream, calls) in [(false, false), (true, false), (false, true), (true, true)] {
        let upstream = Scripted::start(move |nth, request| {
            let output = Output::new(nth);
            let output = match calls && may_call(request) {
                true => output.call(&format!("{nth}"), "f", "{}"),
                false => output.says(&format!("Answer {nth}.")),
            };
            output.reply(request)
        });
        let program = Toolrein::before(&upstream, &budget("billed_tokens = 50"));
        let mut talk = Responses::new(stream);
        for _ in 0..2 + usize::from(calls) {
            let answer = talk.ask(&program);
            talk.go_on(&answer);
            if !calls {
                talk.say("And now?");
            }
        }
        if calls {
            assert_eq!(upstream.requests().len(), 3, "two calls, the final answer");
            talk.say("And now?");
        }
        let sent = upstream.requests().len();
        for _ in 0..2 {
            let words = refused(&Request::post(&responses_url(&program), talk.body.to_string()).send());
            assert!(words.contains("The budget of this conversation is used up"), "{words}");
        }
        assert_eq!(upstream.requests().len(), sent);
    }
}

#[test]
fn a_callers_day_refuses_new_conversations_and_says_when_it_begins_anew() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|_, request: &Recorded| text("Yes.", request));
        let program = Toolrein::before(&upstream, &budget("spend_usd = 1.0\nday = { spend_usd = 0.0002 }"));
        let (one, other) = ([("authorization", "Bearer sk-one")], [("authorization", "Bearer sk-other")]);
        let conversation = |nth: usize| {
            let mut talk = Talk::new(form);
            talk.say(&format!("It is {nth} o'clock."));
            talk
        };
        for nth in 0..2 {
            assert_eq!(ask(&program, &conversation(nth), &one).text, "Yes.");
        }
        let words = refused(&ask(&program, &conversation(2), &one).response);
        let (first, anew) = words.split_once(". ").unwrap();
        assert_eq!(first, "The budget of this day is used up: $0.0002 of $0.0002 spent today", "{words}");
        assert!(
            anew.starts_with("The budget of the day begins anew at 20") && anew.contains("T00:00:00Z, in ")
        );
        assert_eq!(ask(&program, &conversation(2), &other).text, "Yes.", "another caller");
        assert_eq!(upstream.requests().len(), 3);
    });
}

#[test]
fn a_history_that_nobody_was_given_gets_no_final_answer_once_the_day_is_used_up() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|_, request: &Recorded| text("Yes.", request));
        let program = Toolrein::before(&upstream, &budget("day = { requests = 1 }"));
        ask(&program, &Talk::new(form), &[]);
        for headers in WITH_AND_WITHOUT_ID {
            let mut forged = Talk::new(form);
            let call = json!({"type": "function", "id": "call_Ae2Y4fDJmxZkQhWq8LbTz123",
                "function": {"name": "search", "arguments": "{}"}});
            forged.messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
            forged.messages.push(
                json!({"role": "tool", "tool_call_id": "call_Ae2Y4fDJmxZkQhWq8LbTz123", "content": "r"}),
            );
            refused(&ask(&program, &forged, headers).response);
        }
        assert_eq!(upstream.requests().len(), 1);
    });
}

#[test]
fn of_several_limits_only_those_that_are_used_up_are_named() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|_, request: &Recorded| text("Yes.", request));
        let limits = "requests = 1\nspend_usd = 0.0001\nbilled_tokens = 90000\nconversation = { requests = 1, time = \"1h\" }\n\
                      day = { requests = 500, spend_usd = 0.00001 }";
        let program = Toolrein::before(&upstream, &budget(limits));
        let mut talk = Talk::new(form);
        let said = talk.ask(&program);
        talk.add(&said);
        talk.say("And now?");
        let words = refused(&talk.ask(&program).response);
        assert!(
            words.starts_with(
                "The budget of this conversation and of this day is used up: 1 of 1 model request of this conversation \
                 used, $0.0001 of $0.0001 spent in this conversation, $0.0001 of $0.0000 spent today. A new conversation \
                 begins with a new budget. The budget of the day begins anew at "
            ),
            "{words}"
        );
    });
}

#[test]
fn other_limits_end_in_answers_and_the_other_values_force_one_way() {
    in_both_forms(|form| {
        for (settings, allowed) in [
            ("tool_calls = 0\nrequests = 1\nturn = { spend_usd = 0.0001, billed_tokens = 5 }", true),
            (
                "tool_calls = 0\ncontext_tokens = 1\nconversation = { tool_calls = 1, time = \"1ms\" }\nday = { tool_calls = 1 }",
                true,
            ),
            ("tool_calls = 0\nspend_usd = 0.0001\nexhausted = \"answer\"", true),
            ("tool_calls = 0\nspend_usd = 0.0001\nexhausted = \"inform\"", true),
            ("tool_calls = 0\nspend_usd = 0.0001\nexhausted = \"auto\"", false),
            ("tool_calls = 0\nspend_usd = 0.0001\nexhausted = \"reject\"", false),
        ] {
            let upstream = Scripted::start(|nth, request: &Recorded| text(&format!("{nth}."), request));
            let program = Toolrein::before(&upstream, &format!("[policy.budget]\n{settings}\n"));
            let mut talk = Talk::new(form);
            for nth in 0..3 {
                let said = talk.ask(&program);
                let is_allowed = nth == 0 || allowed;
                assert_eq!(
                    said.response.status == 200,
                    is_allowed,
                    "{settings} {nth}: {}",
                    said.response.text()
                );
                if !is_allowed {
                    break;
                }
                talk.add(&said);
                talk.say("And now?");
            }
        }
    });
}

#[test]
fn a_final_answer_that_fails_for_the_upstreams_sake_may_be_asked_for_again() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request: &Recorded| match nth {
            1 => Reply::error(500, "server_error", "overloaded", "The server had an error."),
            0 => stubborn(nth, request),
            _ => text("This is what I know.", request),
        });
        let program = Toolrein::before(&upstream, &budget("conversation = { requests = 1 }"));
        let mut talk = Talk::new(form);
        let said = talk.ask(&program);
        talk.add(&said);
        assert_eq!(talk.ask(&program).response.status, 500);
        assert_eq!(talk.ask(&program).text, "This is what I know.");
        refused(&talk.ask(&program).response);
    });
}

#[test]
fn observing_counts_what_would_be_refused_and_refuses_nothing() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|_, request: &Recorded| text("Yes.", request));
        let settings = format!("mode = \"observe\"\n{}", budget("spend_usd = 0.0001"));
        let program = Toolrein::before(&upstream, &settings);
        let mut talk = Talk::new(form);
        for _ in 0..3 {
            let said = talk.ask(&program);
            assert_eq!(said.text, "Yes.");
            talk.add(&said);
            talk.say("And now?");
        }
        program.wait_for_metric("toolrein_actions_total{policy=\"budget\",action=\"rejected\"}", 2.0);
    });
}

#[test]
fn a_person_approves_in_the_turn_whose_money_is_used_up_and_gets_the_final_answer() {
    in_both_forms(|form| {
        let upstream = Scripted::start(stubborn);
        let settings =
            format!("[policy.confirm]\ntools = [\"search\"]\n{}", budget("conversation = { requests = 1 }"));
        let program = Toolrein::before(&upstream, &settings);
        let mut talk = Talk::new(form);
        let asked = talk.ask(&program);
        assert!(asked.calls.is_empty() && !asked.text.is_empty());
        talk.add(&asked);
        talk.say("yes");
        // The call is not handed out beyond the limit: the model answers.
        let answered = talk.ask(&program);
        assert_eq!(answered.text, "This is what I know.");
        talk.add(&answered);
        talk.say("And now?");
        refused(&talk.ask(&program).response);
    });
}

#[test]
fn each_tier_has_the_money_of_its_profile() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|_, request: &Recorded| text("Yes.", request));
        let settings =
            "[profile.guests]\ntiers = [\"guest\"]\npolicy.budget.conversation = { requests = 1 }\n";
        let program = Toolrein::before(&upstream, settings);
        for (headers, allowed) in [(&[][..], 1), (&[("authorization", "Bearer sk-one")][..], 3)] {
            let mut talk = Talk::new(form);
            for nth in 0..3 {
                let request = Request::new("POST", &program.chat_url(), talk.body().to_string());
                let request = request.header("content-type", "application/json");
                let request =
                    headers.iter().fold(request, |request, (name, value)| request.header(name, value));
                let said = Said::read(request.send(), form);
                assert_eq!(said.response.status == 200, nth < allowed, "{headers:?} {nth}");
                if nth < allowed {
                    talk.add(&said);
                }
                talk.say("And now?");
            }
        }
    });
}

/// Sends requests whose clients leave before the reply, until one is refused; returns how many the upstream got.
fn sent_before_a_refusal(program: &Toolrein, upstream: &Scripted, requests: &[(String, String)]) -> usize {
    let is_refused = || program.logs().iter().any(|line| line.contains("\"error\":\"budget_exceeded\""));
    for (nth, (url, body)) in requests.iter().cycle().take(12).enumerate() {
        let mut connection = Connection::open(url);
        connection.write(&Request::post(url, body).header("x-toolrein-conversation", "mine").bytes());
        let is_sent =
            crate::support::until("the request to be sent or refused", || match upstream.requests().len() {
                sent if sent > nth => Some(true),
                _ => is_refused().then_some(false),
            });
        drop(connection);
        if !is_sent {
            return nth;
        }
        upstream.wait_for_hang_up(nth);
    }
    12
}

#[test]
fn clients_that_leave_before_the_reply_are_not_free() {
    for stream in [false, true] {
        for (limit, expected) in [
            ("day = { requests = 3 }", 3..=3),
            ("conversation = { requests = 3 }", 3..=3),
            // An estimate of the prompt is counted: some ten tokens each.
            ("day = { billed_tokens = 40 }", 2..=6),
            ("billed_tokens = 40", 2..=6),
            ("spend_usd = 0.0001", 2..=6),
        ] {
            let upstream = Scripted::start(|_, _: &Recorded| Reply::silence());
            let program = Toolrein::before(&upstream, &budget(limit));
            let text = "one two three four five six";
            let chat =
                json!({"model": "gpt-4o", "stream": stream, "messages": [{"role": "user", "content": text}]});
            let responses = json!({"model": "gpt-4o", "stream": stream, "input": text});
            let mut requests = vec![(program.chat_url(), chat.to_string())];
            if limit.starts_with("day") {
                requests.push((responses_url(&program), responses.to_string()));
            }
            let sent = sent_before_a_refusal(&program, &upstream, &requests);
            assert!(expected.contains(&sent), "{limit} {stream}: {sent}");
            assert_eq!(upstream.requests().len(), sent);
        }
    }
}

#[test]
fn the_reply_corrects_the_estimate_and_an_upstream_that_refuses_bills_nothing() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request: &Recorded| match nth {
            0..4 => Reply::error(429, "rate_limit", "rate_limit_exceeded", "Slow down."),
            4 => Reply::error(401, "invalid_request_error", "invalid_api_key", "Who are you?"),
            _ => text("Yes.", request),
        });
        // The prompt is estimated at some thousand tokens, and billed with 20.
        let limits = "billed_tokens = 75\nconversation = { requests = 3, spend_usd = 0.0003 }";
        let program = Toolrein::before(&upstream, &budget(limits));
        let headers = [("x-toolrein-conversation", "mine")];
        let mut talk = Talk::new(form);
        talk.say(&"many words ".repeat(500));
        for nth in 0..5 {
            let status = if nth == 4 { 401 } else { 429 };
            assert_eq!(ask(&program, &talk, &headers).response.status, status);
        }
        for nth in 0..3 {
            let said = ask(&program, &talk, &headers);
            assert_eq!(said.text, "Yes.", "{nth}: {}", said.response.text());
            talk.add(&said);
            talk.say("And now?");
        }
        let words = refused(&ask(&program, &talk, &headers).response);
        assert!(
            words.contains("3 of 3 model requests of this conversation used, 75 of 75 billed tokens of this conversation used, $0.0003 of $0.0003"),
            "{words}"
        );
        program.wait_for_metric("toolrein_cost_usd_total{model=\"gpt-4o\"}", 0.0003);
    });
}

#[test]
fn requests_in_flight_count_for_those_that_come_after_them() {
    let upstream = Scripted::start(|_, _: &Recorded| Reply::silence());
    let program = Toolrein::before(&upstream, &budget("day = { requests = 3 }"));
    let body =
        |nth: usize| json!({"model": "gpt-4o", "messages": [{"role": "user", "content": format!("{nth}")}]});
    let open: Vec<Connection> = (0..3)
        .map(|nth| {
            let mut connection = Connection::open(&program.chat_url());
            connection.write(&Request::post(&program.chat_url(), body(nth).to_string()).bytes());
            upstream.request(nth);
            connection
        })
        .collect();
    refused(&Request::post(&program.chat_url(), body(3).to_string()).send());
    assert_eq!((upstream.requests().len(), open.len()), (3, 3));
}

#[test]
fn an_answer_without_usage_is_estimated_and_the_cost_agrees_with_the_metric() {
    let upstream = Scripted::start(|_, _: &Recorded| {
        let mut body = Speech::text("ok").whole();
        body.as_object_mut().unwrap().remove("usage");
        Reply::json(200, &body)
    });
    let program = Toolrein::before(&upstream, &budget("spend_usd = 1.0"));
    let mut talk = Talk::new(Form::Whole);
    talk.say(&"many words ".repeat(500));
    talk.ask(&program);
    let cost = |program: &Toolrein| program.metric("toolrein_cost_usd_total{model=\"gpt-4o\"}");
    crate::support::until("the cost", || (cost(&program) > 0.001).then_some(()));
    let line = crate::support::until("the log line", || {
        let mut lines =
            program.logs().into_iter().filter_map(|line| serde_json::from_str::<Value>(&line).ok());
        lines.find(|line| line["message"] == "request")
    });
    assert!((line["cost_usd"].as_f64().unwrap() - cost(&program)).abs() < 1e-9, "{line}");
}

/// How many of eight requests of one conversation, each with a prompt of about 1,000 tokens and an answer of about as many,
/// pass a budget before it is used up, where every reply reports `usage`.
fn passed_with(form: Form, usage: Option<Value>) -> usize {
    let upstream = Scripted::start(move |_, request: &Recorded| {
        // One chunk, since the words have no spaces between them.
        let speech = Speech::text(&"many\nwords\n".repeat(500));
        match (&usage, request.json()["stream"] == true) {
            (usage, false) => {
                let mut body = speech.whole();
                body.as_object_mut().unwrap().remove("usage");
                usage.iter().for_each(|usage| body["usage"] = usage.clone());
                Reply::json(200, &body)
            }
            (usage, true) => {
                let mut chunks = speech.chunks(false);
                let end = |usage: &Value| json!({"id": "x", "object": "chat.completion.chunk", "choices": [], "usage": usage});
                chunks.extend(usage.iter().map(end));
                Reply::events(&chunks)
            }
        }
    });
    let program = Toolrein::before(&upstream, &budget("spend_usd = 0.05\nbilled_tokens = 1000000"));
    let headers = [("x-toolrein-conversation", "mine")];
    let passes = (0..8).filter(|nth| {
        let mut talk = Talk::new(form);
        talk.say(&format!("{nth} {}", "many words ".repeat(500)));
        ask(&program, &talk, &headers).response.status == 200
    });
    let passes = passes.count();
    assert_eq!(upstream.requests().len(), passes);
    passes
}

#[test]
fn a_number_of_tokens_that_no_reply_has_is_estimated_as_if_it_were_missing() {
    in_both_forms(|form| {
        let without = passed_with(form, None);
        assert!((2..8).contains(&without), "{without}");
        for number in [json!(u64::from(u32::MAX)), json!(u64::MAX), json!(1e300), json!(-5), json!("NaN")] {
            let both = json!({"prompt_tokens": number, "completion_tokens": 0, "total_tokens": number});
            assert_eq!(passed_with(form, Some(both)), without, "{number}");
        }
        // The other number counts as it is reported: here it alone uses up the budget, or nearly nothing of it.
        let dear = json!({"prompt_tokens": u64::MAX, "completion_tokens": 900_000});
        assert_eq!(passed_with(form, Some(dear)), 1);
        let no_completion = json!({"prompt_tokens": "1", "completion_tokens": u64::MAX, "total_tokens": 1});
        let cheap = json!({"prompt_tokens": "1", "completion_tokens": "1", "total_tokens": "2"});
        assert!((2..8).contains(&passed_with(form, Some(no_completion))));
        assert_eq!(passed_with(form, Some(cheap)), 8);
    });
}

#[test]
fn the_first_request_after_a_limit_is_for_the_final_answer_and_may_be_sent_without_tools() {
    let limits = [
        "spend_usd = 0.0001",
        "billed_tokens = 25",
        "conversation = { requests = 1 }",
        "day = { requests = 1 }",
        "day = { spend_usd = 0.0001 }",
        "day = { billed_tokens = 25 }",
    ];
    in_both_forms(|form| {
        for limit in limits {
            for refuses in [false, true] {
                let upstream = Scripted::start(move |nth, request: &Recorded| {
                    let body = request.json();
                    let is_refused = refuses && body["tool_choice"] == "none" && body.get("tools").is_some();
                    match is_refused {
                        true => Reply::json(
                            400,
                            &json!({"error": {"message": "tool_choice none is not supported"}}),
                        ),
                        false => stubborn(nth, request),
                    }
                });
                let program = Toolrein::before(&upstream, &budget(limit));
                let mut talk = Talk::new(form);
                let said = ask(&program, &talk, &[]);
                assert_eq!(said.calls.len(), 1, "{limit}");
                talk.add(&said);
                let answered = ask(&program, &talk, &[]);
                answered.assert_coherent(form);
                assert_eq!(answered.text, "This is what I know.", "{limit} {}", answered.response.text());
                match refuses {
                    false => assert_eq!(upstream.requests().len(), 2, "{limit}"),
                    // After what may have been refused of it, such as the form of a notice.
                    true => {
                        assert!(upstream.requests().len() <= 5, "{limit}");
                        assert!(upstream.requests().last().unwrap().json().get("tools").is_none(), "{limit}");
                    }
                }
                refused(&ask(&program, &talk, &[]).response);
            }
        }
    });
}

/// So many conversations at once, of one caller and under one id: how many calls the client gets, and how many requests
/// were not refused.
fn at_once(program: &Toolrein, form: Form, round: usize, requests: usize) -> (usize, usize) {
    std::thread::scope(|scope| {
        let ask = |nth: usize| {
            let mut talk = Talk::new(form);
            talk.say(&format!("Question {nth} of round {round}"));
            scope.spawn(move || ask(program, &talk, &[("x-toolrein-conversation", "mine")]))
        };
        let asked: Vec<_> = (0..requests).map(ask).collect();
        let said: Vec<Said> = asked.into_iter().map(|asked| asked.join().unwrap()).collect();
        let answered = said.iter().filter(|said| said.response.status == 200).count();
        (said.iter().map(|said| said.calls.len()).sum(), answered)
    })
}

#[test]
fn requests_at_once_are_answered_up_to_the_limit_of_a_day_or_a_named_conversation() {
    in_both_forms(|form| {
        for limit in ["day = { requests = 6 }", "conversation = { requests = 6 }"] {
            let upstream = Scripted::start(|_, request: &Recorded| text("Yes.", request));
            let program = Toolrein::before(&upstream, &budget(limit));
            for round in 0..3 {
                let (_, answered) = at_once(&program, form, round, 60);
                assert!([0, 6].contains(&answered), "{limit}: {answered}");
            }
            assert_eq!(upstream.requests().len(), 6, "{limit}");
        }
    });
}

#[test]
fn money_that_requests_at_once_would_spend_is_reserved_by_an_estimate() {
    let upstream = Scripted::start(|_, request: &Recorded| text("Yes.", request));
    // A prompt of some ten tokens; a reply is billed with 25.
    let program = Toolrein::before(&upstream, &budget("day = { billed_tokens = 100 }"));
    let (_, answered) = at_once(&program, Form::Whole, 0, 100);
    assert!((1..=12).contains(&answered), "{answered}");
}

#[test]
fn calls_at_once_are_handed_out_up_to_the_limit_of_a_day_or_a_named_conversation() {
    in_both_forms(|form| {
        for limit in ["day = { tool_calls = 6 }", "conversation = { tool_calls = 6 }"] {
            let upstream = Scripted::start(stubborn);
            let program = Toolrein::before(&upstream, &budget(limit));
            let calls: Vec<usize> = (0..3).map(|round| at_once(&program, form, round, 60).0).collect();
            assert_eq!(calls, [6, 0, 0], "{limit}");
            upstream.assert_clean();
        }
    });
}

#[test]
fn a_retry_gets_its_call_again_although_the_limit_is_reached() {
    in_both_forms(|form| {
        let upstream = Scripted::start(stubborn);
        let program = Toolrein::before(&upstream, &budget("day = { tool_calls = 2 }"));
        let talk = |nth: usize| {
            let mut talk = Talk::new(form);
            talk.say(&format!("Question {nth}"));
            talk
        };
        let calls = [0, 1, 0, 1, 2].map(|nth| ask(&program, &talk(nth), &[]).calls.len());
        assert_eq!(calls, [1, 1, 1, 1, 0]);
    });
}
