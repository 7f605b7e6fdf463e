//! `quota`: what a caller may use within a window, over all its conversations, counted once however often it is sent.

use crate::support::client::Request;
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::responses::Output;
use crate::support::responses_kit::{Talk as Responses, input, may_call, url as responses_url};
use crate::support::scripted::{Recorded, Scripted};
use crate::support::talk::{Form, Said, Talk, in_both_forms, search, text};
use serde_json::{Value, json};

const TWO: &str = "[policy.quota.limits]\nsearches = { tools = [\"search*\"], calls = 2, per = \"5h\" }\n";

/// A model that searches unless it was refused, with the same arguments for the same question.
fn upstream() -> Scripted {
    Scripted::start(|nth, request| search_for(nth, "this", request))
}

/// The model searches for `what`, unless it was refused.
fn search_for(nth: usize, what: &str, request: &Recorded) -> Reply {
    if request.json()["messages"].to_string().contains("RATE_LIMIT") {
        return text("No more for today.", request);
    }
    Reply::speech(
        request,
        &Speech::calls(&[(&format!("call_{nth}"), "search", &json!({"q": what}).to_string())]),
    )
}

/// The `nth` conversation of a caller.
fn conversation(form: Form, nth: usize) -> Talk {
    let mut talk = Talk::new(form);
    talk.messages[0]["content"] = json!(format!("Question {nth}"));
    talk
}

fn ask_as(program: &Toolrein, caller: &str, talk: &Talk) -> Said {
    let request = Request::new("POST", &program.chat_url(), talk.body().to_string());
    let request = request.header("content-type", "application/json").header("authorization", caller);
    Said::read(request.send(), talk.form)
}

#[test]
fn a_new_conversation_begins_no_new_quota_and_another_caller_has_its_own() {
    in_both_forms(|form| {
        let upstream = upstream();
        let program = Toolrein::before(&upstream, TWO);
        for nth in 0..2 {
            assert_eq!(ask_as(&program, "Bearer sk-a", &conversation(form, nth)).calls.len(), 1);
        }
        let over = ask_as(&program, "Bearer sk-a", &conversation(form, 2));
        over.assert_coherent(form);
        assert_eq!((over.calls.len(), over.text.as_str()), (0, "No more for today."));
        let shown = upstream.requests().last().unwrap().json()["messages"][2]["content"].clone();
        let error = serde_json::from_str::<Value>(shown.as_str().unwrap()).unwrap()["error"].clone();
        assert_eq!(
            (&error["type"], &error["used"], &error["limit"]),
            (&json!("RATE_LIMIT"), &json!(2), &json!(2))
        );
        assert_eq!(error["window_ms"], 18_000_000);
        let wait = error["retry_after_ms"].as_u64().unwrap();
        assert!((17_000_000..=18_000_000).contains(&wait), "{wait}");
        assert_eq!(ask_as(&program, "Bearer sk-b", &conversation(form, 2)).calls.len(), 1, "another caller");
        // The memory of one process: another one counts anew.
        let other = Toolrein::before(&upstream, TWO);
        assert_eq!(ask_as(&other, "Bearer sk-a", &conversation(form, 3)).calls.len(), 1);
        upstream.assert_clean();
    });
}

#[test]
fn a_client_that_sends_the_same_again_is_charged_once_and_may_have_its_last_call_again() {
    in_both_forms(|form| {
        let upstream = upstream();
        let program = Toolrein::before(&upstream, TWO);
        let ask = |nth| ask_as(&program, "Bearer sk-a", &conversation(form, nth)).calls.len();
        assert_eq!([ask(0), ask(0), ask(0)], [1; 3], "three tries of one request");
        assert_eq!(ask(1), 1, "are one call");
        assert_eq!(ask(1), 1, "whose answer may be lost as well");
        assert_eq!(ask(2), 0);
        assert_eq!(ask(0), 0, "who asks a fourth time asks anew");
    });
}

#[test]
fn a_request_that_is_sent_again_uses_the_quota_for_every_call_that_it_did_not_bring_before() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request: &Recorded| search_for(nth, &nth.to_string(), request));
        let five = TWO.replace("calls = 2", "calls = 5");
        let program = Toolrein::before(&upstream, &five);
        // The very same bytes, each time with another call of the model.
        let calls = (0..8).map(|_| ask_as(&program, "Bearer sk-a", &conversation(form, 0)).calls.len());
        assert_eq!(calls.collect::<Vec<_>>(), [1, 1, 1, 1, 1, 0, 0, 0]);
    });
}

#[test]
fn the_same_call_with_a_new_one_beside_it_uses_the_quota_for_the_new_one_alone() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request: &Recorded| {
            let is_refused = request.json()["messages"].to_string().contains("RATE_LIMIT");
            let (first, other) = (format!("a_{nth}"), format!("b_{nth}"));
            let calls = [(first.as_str(), "search", "{\"q\": 1}"), (other.as_str(), "search", "{\"q\":2}")];
            match nth {
                _ if is_refused => text("No more for today.", request),
                0 => Reply::speech(request, &Speech::calls(&calls[..1])),
                1 => Reply::speech(request, &Speech::calls(&calls)),
                // Another tool, with the same arguments.
                _ => Reply::speech(request, &Speech::calls(&[(&first, "searchAll", "{\"q\":1}"), calls[0]])),
            }
        });
        let program = Toolrein::before(&upstream, TWO);
        let ask = || {
            let said = ask_as(&program, "Bearer sk-a", &conversation(form, 0));
            said.calls.into_iter().map(|(_, name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(ask(), ["search"]);
        assert_eq!(ask(), ["search", "search"], "the first one is not charged again, so the second one fits");
        assert_eq!(ask(), ["search"], "another tool is another call");
        assert_eq!(
            ask_as(&program, "Bearer sk-a", &conversation(form, 1)).calls.len(),
            0,
            "and elsewhere nothing fits"
        );
    });
}

#[test]
fn the_same_call_in_another_conversation_uses_the_quota() {
    in_both_forms(|form| {
        let upstream = upstream();
        let program = Toolrein::before(&upstream, TWO);
        let calls = (0..3).map(|nth| ask_as(&program, "Bearer sk-a", &conversation(form, nth)).calls.len());
        assert_eq!(calls.collect::<Vec<_>>(), [1, 1, 0]);
    });
}

#[test]
fn on_the_responses_api_a_request_that_is_sent_again_uses_the_quota_for_every_other_call() {
    for (varies, expected) in [(true, [1, 1, 0, 0]), (false, [1, 1, 1, 0])] {
        for stream in [false, true] {
            let upstream = Scripted::start(move |nth, request| {
                let output = Output::new(nth);
                let is_refused = request.json()["input"].to_string().contains("RATE_LIMIT");
                let arguments = json!({"q": if varies { nth } else { 0 }}).to_string();
                match is_refused || !may_call(request) {
                    true => output.says("No more for today.").reply(request),
                    false => output.call(&nth.to_string(), "search", &arguments).reply(request),
                }
            });
            let two = TWO.replace("calls = 2", &format!("calls = {}", if varies { 2 } else { 1 }));
            let program = Toolrein::before(&upstream, &two);
            let talk =
                Responses::new(stream).with_tools(json!([crate::support::responses_kit::tool("search")]));
            let calls = expected.map(|_| {
                talk.ask(&program).kinds().iter().filter(|kind| kind.starts_with("function")).count()
            });
            assert_eq!(calls, expected, "{varies} {stream}");
        }
    }
}

#[test]
fn calls_of_one_reply_count_in_their_order() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|_, request| {
            let calls = [("a", "search", "{}"), ("b", "searchAll", "{}"), ("c", "search", "{\"n\":1}")];
            crate::support::reply::Reply::speech(request, &crate::support::reply::Speech::calls(&calls))
        });
        let program = Toolrein::before(&upstream, TWO);
        let said = ask_as(&program, "Bearer sk-a", &conversation(form, 0));
        let ids: Vec<&str> = said.calls.iter().map(|(id, ..)| id.as_str()).collect();
        assert_eq!(ids, ["a", "b"], "all tools of a quota share it");
    });
}

/// A query and headers: forms of one key; all are counted for one caller.
const COUNTED: &[(&str, &[(&str, &str)])] = &[
    ("", &[("authorization", "Bearer sk-a other")]),
    ("", &[("authorization", "bEARER sk-a")]),
    ("", &[("authorization", "Bearer  sk-a")]),
    ("", &[("authorization", "Bearer\tsk-a\t")]),
    ("", &[("authorization", "Bearer Bearer sk-a")]),
    ("", &[("authorization", "Bearer sk-a,")]),
    ("", &[("authorization", "Bearer sk-a, bearer sk-a")]),
    ("", &[("authorization", "sk-a")]),
    ("", &[("authorization", "Token sk-a")]),
    ("", &[("Authorization", "Bearer sk-a"), ("AUTHORIZATION", "Bearer sk-a")]),
    ("", &[("authorization", "Bearer sk-a"), ("x-api-key", "sk-a")]),
    ("", &[("authorization", "Bearer sk-a"), ("x-api-key", "")]),
    ("", &[("authorization", "Bearer"), ("api-key", "sk-a")]),
    ("", &[("x_api_key", "sk-a")]),
    ("", &[("x-goog-api-key", " sk-a ")]),
    ("?key=sk-a", &[]),
    ("?api-version=1&%61pi-key=sk%2Da", &[]),
    ("?key=", &[("authorization", "Bearer sk-a")]),
    ("", &[("authorization", "Basic c2stYTo=")]),
    ("", &[("authorization", "basic c2stYTo")]),
    ("", &[("authorization", "Bearer sk-a"), ("cookie", "a=b"), ("x-request-id", "7")]),
    ("", &[("authorization", "Bearer sk-a"), ("proxy-authorization", "Bearer other")]),
];

/// The key and another one beside it.
const REFUSED: &[(&str, &[(&str, &str)])] = &[
    ("", &[("authorization", "Bearer sk-a"), ("x-api-key", "other")]),
    ("", &[("authorization", "Bearer sk-a"), ("api-key", "other")]),
    ("", &[("authorization", "Bearer sk-a"), ("x-goog-api-key", "other")]),
    ("", &[("authorization", "Bearer sk-a"), ("x_api_key", "other")]),
    ("", &[("authorization", "Bearer sk-a"), ("ocp-apim-subscription-key", "other")]),
    ("", &[("authorization", "Bearer other"), ("authorization", "Bearer sk-a")]),
    ("", &[("authorization", "Bearer sk-a, Bearer other")]),
    ("", &[("api-key", "sk-a"), ("api-key", "other")]),
    ("?key=other", &[("authorization", "Bearer sk-a")]),
    ("?a=b;api-key=other", &[("authorization", "Bearer sk-a")]),
    ("?%6bey=other&key=sk-a", &[]),
];

/// Two calls are used up by `Bearer sk-a`; then the same key comes in another spelling, or with a second credential beside
/// it. Each such request is counted for the same caller, or refused: none of them gets a third call.
#[test]
fn no_spelling_of_a_credential_and_no_credential_beside_it_escapes_a_quota() {
    let upstream = upstream();
    let program = Toolrein::before(&upstream, TWO);
    for nth in 0..2 {
        assert_eq!(ask_as(&program, "Bearer sk-a", &conversation(Form::Whole, nth)).calls.len(), 1);
    }
    let sent = |(query, headers): &(&str, &[(&str, &str)])| {
        let body = conversation(Form::Whole, 2).body().to_string();
        let request = Request::new("POST", &format!("{}{query}", program.chat_url()), body);
        let request = request.header("content-type", "application/json");
        headers.iter().fold(request, |request, (name, value)| request.header(name, value)).send()
    };
    for spelling in COUNTED {
        let reply = sent(spelling);
        assert_eq!(reply.status, 200, "{spelling:?}: {}", reply.text());
        assert_eq!(Said::read(reply, Form::Whole).calls.len(), 0, "{spelling:?}");
    }
    let before = upstream.requests().len();
    for spelling in REFUSED {
        let reply = sent(spelling);
        let error = &reply.json()["error"];
        assert_eq!((reply.status, &error["code"]), (400, &json!("ambiguous_credentials")), "{spelling:?}");
        assert_eq!(error["type"], "toolrein_error");
        let text = reply.text();
        assert!(!text.contains("sk-a") && !text.contains("other"), "no credential is repeated: {text}");
    }
    assert_eq!(upstream.requests().len(), before, "a refused request does not reach the upstream");
    let other = sent(&("", &[("authorization", "Bearer sk-b")]));
    assert_eq!(Said::read(other, Form::Whole).calls.len(), 1, "another key is another caller");
}

/// The tier of a caller is that of its key: a web application's public one counts as none.
const TIERED: &str = "[tier.guest]\nkeys = [\"sha256:2a97516c354b68848cdbd8f54a226a0a55b21ed138e207ad6c5cbb9c00aa5aea\"]\n\
    [policy.quota.limits]\nsearches = { tools = [\"search*\"], calls = 3, per = \"5h\", tiers = { guest = 1 } }\n";

#[test]
fn guests_and_callers_with_a_key_have_quotas_of_their_own() {
    in_both_forms(|form| {
        let upstream = upstream();
        let program = Toolrein::before(&upstream, TIERED);
        for (caller, allowed) in [("", 1), ("Bearer demo", 1), ("Bearer sk-a", 3)] {
            let calls: Vec<usize> =
                (0..4).map(|nth| ask_as(&program, caller, &conversation(form, nth)).calls.len()).collect();
            let expected: Vec<usize> = (0..4).map(|nth| usize::from(nth < allowed)).collect();
            assert_eq!(calls, expected, "{caller}");
        }
        let shown = upstream.requests().last().unwrap().json()["messages"].to_string();
        assert!(shown.contains("\\\"remaining\\\":0") && shown.contains("\\\"reset_at\\\":\\\"2"), "{shown}");
        upstream.assert_clean();
    });
}

#[test]
fn a_turn_without_a_call_left_is_refused_where_the_operator_wants_that_and_says_until_when() {
    in_both_forms(|form| {
        let upstream = upstream();
        let reject = TWO.replace(
            "[policy.quota.limits]",
            "[policy.quota]\nexhausted = \"reject\"\n[policy.quota.limits]",
        );
        let program = Toolrein::before(&upstream, &reject);
        let narrow = |nth: usize| {
            let mut talk = conversation(form, nth);
            talk.members["tools"].as_array_mut().unwrap().truncate(1);
            talk
        };
        let mut first = narrow(0);
        for talk in [&first, &narrow(1)] {
            assert_eq!(ask_as(&program, "Bearer sk-a", talk).calls.len(), 1);
        }
        let refused = ask_as(&program, "Bearer sk-a", &narrow(2)).response;
        let error = refused.json()["error"].clone();
        assert_eq!((refused.status, &error["code"]), (429, &json!("quota_exhausted")), "{error}");
        assert_eq!(refused.header("x-should-retry"), Some("false"));
        let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!((17_000..=18_000).contains(&wait), "{wait}");
        assert_eq!((&error["used"], &error["limit"], &error["remaining"]), (&json!(2), &json!(2), &json!(0)));
        let reset_at = error["reset_at"].as_str().unwrap();
        assert!(reset_at.ends_with('Z') && error["message"].as_str().unwrap().contains(reset_at), "{error}");
        assert_eq!(upstream.requests().len(), 2);
        // A turn that has begun ends in an answer, and a caller whose tools are not all used up goes on.
        let said = Said {
            calls: vec![("call_0".into(), "search".into(), "{}".into())],
            ..ask_as(&program, "Bearer sk-b", &narrow(2))
        };
        first.add(&said);
        assert_eq!(ask_as(&program, "Bearer sk-a", &first).text, "No more for today.");
        assert_eq!(ask_as(&program, "Bearer sk-a", &conversation(form, 3)).text, "No more for today.");
    });
}

#[test]
fn the_model_is_shown_what_is_left_where_the_operator_wants_that_and_finds_it_there_again() {
    in_both_forms(|form| {
        let upstream = Scripted::start(search);
        let settings =
            "[policy.quota]\nnotify = 2\nlimits = { all = { tools = [\"*\"], calls = 3, per = \"5h\" } }\n";
        let program = Toolrein::before(&upstream, settings);
        let mut talk = Talk::new(form);
        for _ in 0..3 {
            let said = talk.ask(&program);
            assert_eq!(said.calls.len(), 1);
            talk.add(&said);
        }
        talk.ask(&program);
        let sent: Vec<String> =
            (0..4).map(|nth| upstream.request(nth).json()["messages"].to_string()).collect();
        let counts = |needle: &str| sent.iter().map(|sent| sent.matches(needle).count()).collect::<Vec<_>>();
        assert_eq!(counts("2 of 3 calls of the user's quota"), [0, 1, 1, 1]);
        assert_eq!(counts("1 of 3 calls of the user's quota"), [0; 4]);
        assert_eq!(counts("[toolrein] 0 of 3 calls of the user's quota"), [0, 0, 0, 1]);
        for (before, after) in sent.iter().zip(&sent[1..]) {
            assert!(after.starts_with(before.trim_end_matches(']')), "the prompt cache holds");
        }
    });
}

#[test]
fn on_the_responses_api_a_quota_counts_tells_what_is_left_and_refuses_where_the_operator_says_so() {
    for stream in [false, true] {
        let upstream = Scripted::start(|nth, request| match may_call(request) {
            true => Output::calls(nth, &[(&nth.to_string(), "f", "{}")]).reply(request),
            false => Output::text(nth, "No more for today.").reply(request),
        });
        let limits = "[policy.quota.limits]\nf = { tools = [\"f\"], calls = 2, per = \"5h\" }\n";
        let ask = |program: &Toolrein, question: &str| {
            let mut talk = Responses::new(stream);
            talk.body["input"][0]["content"] = json!(question);
            talk.ask(program)
        };
        let program = Toolrein::before(&upstream, limits);
        for question in ["one", "two"] {
            assert_eq!(ask(&program, question).kinds().len(), 1);
        }
        assert_eq!(ask(&program, "three").said(), "No more for today.");
        let shown = input(upstream.requests().last().unwrap());
        let output = shown.iter().find(|item| item["type"] == "function_call_output").unwrap();
        let envelope: Value = serde_json::from_str(output["output"].as_str().unwrap()).unwrap();
        let error = &envelope["error"];
        assert_eq!((&error["type"], &error["remaining"]), (&json!("RATE_LIMIT"), &json!(0)), "{error}");
        assert!(error["reset_at"].as_str().unwrap().ends_with('Z'), "{error}");

        let rejecting =
            Toolrein::before(&upstream, &format!("[policy.quota]\nexhausted = \"reject\"\n{limits}"));
        for question in ["one", "two"] {
            ask(&rejecting, question);
        }
        let mut talk = Responses::new(stream);
        talk.body["input"][0]["content"] = json!("three");
        let refused = Request::post(&responses_url(&rejecting), talk.body.to_string()).send();
        assert_eq!((refused.status, &refused.json()["error"]["code"]), (429, &json!("quota_exhausted")));
    }
}

/// A quota that another conversation used up is no limit of the requests that call none of its tools.
#[test]
fn requests_that_call_no_tool_of_a_quota_are_not_in_its_utilization() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| match nth < 2 {
            true => search(nth, request),
            false => text("No tool is needed.", request),
        });
        let day = "[policy.budget]\nday = { tool_calls = 2 }\n";
        let program = Toolrein::before(&upstream, &format!("{TWO}{day}"));
        for nth in 0..7 {
            ask_as(&program, "Bearer sk-a", &conversation(form, nth));
        }
        program.wait_for_metric("toolrein_requests_total{endpoint=\"chat_completions\"}", 7.0);
        for policy in ["quota", "budget"] {
            let count = |end: &str| {
                program.metric(&format!("toolrein_limit_utilization{end}{{policy=\"{policy}\"}}"))
            };
            assert!((count("_count") - 2.0).abs() < 0.5, "{policy}: {}", program.metrics());
            assert!((count("_sum") - 1.5).abs() < 0.01, "{policy}: half of it, then all");
        }
    });
}

/// How many calls callers get who send so many requests of different conversations at once.
fn calls_at_once(programs: &[&Toolrein], caller: &str, form: Form, requests: usize) -> usize {
    std::thread::scope(|scope| {
        let ask = |nth: usize| {
            let program = programs[nth % programs.len()];
            scope.spawn(move || ask_as(program, caller, &conversation(form, nth)).calls.len())
        };
        let asked: Vec<_> = (0..requests).map(ask).collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).sum()
    })
}

#[test]
fn requests_at_once_get_as_many_calls_as_the_quota_has_and_not_one_more() {
    in_both_forms(|form| {
        let upstream = upstream();
        let program = Toolrein::before(&upstream, &TWO.replace("calls = 2", "calls = 6"));
        for round in 0..5 {
            let caller = format!("Bearer sk-{round}");
            assert_eq!(calls_at_once(&[&program], &caller, form, 100), 6, "round {round}");
        }
    });
}

#[test]
fn parallel_calls_choices_and_calls_in_a_wrapper_are_reserved_each() {
    let calls = |nth: usize| {
        let one = |n: usize| json!({"recipient_name": "functions.search", "parameters": {"q": format!("{nth} {n}")}});
        json!({"tool_uses": [one(1), one(2)]}).to_string()
    };
    in_both_forms(|form| {
        let upstream = Scripted::start(move |nth, request: &Recorded| {
            if request.json()["messages"].to_string().contains("RATE_LIMIT") {
                return text("No more for today.", request);
            }
            let id = format!("call_{nth}");
            Reply::speech(request, &Speech::calls(&[(&id, "multi_tool_use.parallel", &calls(nth))]))
        });
        let program = Toolrein::before(&upstream, &TWO.replace("calls = 2", "calls = 7"));
        // Each wrapper is two calls, so three fit, and the seventh call is in a wrapper that does not.
        assert_eq!(calls_at_once(&[&program], "Bearer sk-a", form, 20), 3);
        let said = ask_as(&program, "Bearer sk-a", &conversation(form, 99));
        assert_eq!(said.text, "No more for today.");
    });
}

#[test]
fn on_the_responses_api_requests_at_once_get_as_many_calls_as_a_quota_or_a_day_has() {
    let day = "[policy.budget]\ntool_calls = 0\nday = { tool_calls = 6 }\n".to_owned();
    let quota = "[policy.quota.limits]\nf = { tools = [\"f\"], calls = 6, per = \"5h\" }\n".to_owned();
    for stream in [false, true] {
        for limits in [&day, &quota] {
            let upstream = Scripted::start(|nth, request| match may_call(request) {
                // Two at once, so that the last one of some replies finds no room.
                true => Output::calls(
                    nth,
                    &[(&format!("a{nth}"), "f", "{\"n\":1}"), (&format!("b{nth}"), "f", "{\"n\":2}")],
                )
                .reply(request),
                false => Output::text(nth, "No more for today.").reply(request),
            });
            let program = Toolrein::before(&upstream, limits);
            let calls: usize = std::thread::scope(|scope| {
                let ask = |nth: usize| {
                    let program = &program;
                    scope.spawn(move || {
                        let mut talk = Responses::new(stream);
                        talk.body["input"][0]["content"] = json!(format!("Question {nth}"));
                        let kinds = talk.ask(program).kinds();
                        kinds.iter().filter(|kind| kind.starts_with("function")).count()
                    })
                };
                let asked: Vec<_> = (0..40).map(ask).collect();
                asked.into_iter().map(|asked| asked.join().unwrap()).sum()
            });
            assert_eq!(calls, 6, "{limits} {stream}");
        }
    }
}
