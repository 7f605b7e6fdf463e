//! Ruling 3: a re-ask that the upstream refuses is sent once more with the hidden exchange as text, then as a request for the
//! final answer; at last toolrein says an honest sentence. One that is too long goes to a final answer with short results.
//! Any other failure of a re-ask is the client's.

use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::{Recorded, Scripted};
use crate::support::talk::{Talk, in_both_forms, search, text};
use serde_json::{Value, json};

/// `search` is closed, `fetch` is open.
const CLOSED: &str = "[policy.allow]\nexcept = [\"search\"]\n";

fn messages(request: &Recorded) -> Vec<Value> {
    request.json()["messages"].as_array().cloned().unwrap_or_default()
}

fn has_calls(request: &Recorded) -> bool {
    messages(request).iter().any(|message| !message["tool_calls"].is_null())
}

fn wants_answer(request: &Recorded) -> bool {
    let body = request.json();
    body["tool_choice"] == "none" || body.get("tools").is_none()
}

fn refusal() -> Reply {
    Reply::error(422, "invalid_request_error", "x", "unprocessable conversation")
}

#[test]
fn a_refused_re_ask_is_sent_once_more_with_the_exchange_as_text_and_so_it_stays() {
    in_both_forms(|form| {
        for status in [400, 404, 405, 422] {
            let upstream = Scripted::start(move |nth, request| match nth {
                0 => search(nth, request),
                _ if has_calls(request) => {
                    Reply::error(status, "invalid_request_error", "x", "no such thing")
                }
                _ => text("I know it.", request),
            });
            let program = Toolrein::before(&upstream, CLOSED);
            let mut talk = Talk::new(form);
            let said = talk.ask(&program);
            said.assert_coherent(form);
            assert_eq!((said.text.as_str(), said.finishes[0].as_str()), ("I know it.", "stop"));
            assert_eq!(upstream.requests().len(), 3, "one, a refused re-ask, and one as text");
            let last = upstream.request(2);
            assert!(!wants_answer(&last), "the tools stay open");
            let shown = messages(&last);
            assert!(shown[2]["content"].to_string().contains("MODE_RESTRICTED"), "{shown:?}");
            talk.add(&said);
            talk.say("And?");
            talk.ask(&program).assert_coherent(form);
            assert_eq!(messages(&upstream.request(3))[..shown.len()], shown[..], "what was accepted stays");
            upstream.assert_clean();
        }
    });
}

#[test]
fn a_re_ask_that_is_refused_as_text_too_becomes_a_request_for_the_final_answer() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| match nth {
            0 => search(nth, request),
            _ if wants_answer(request) => text("This is what I know.", request),
            _ => refusal(),
        });
        let program = Toolrein::before(&upstream, CLOSED);
        let said = Talk::new(form).ask(&program);
        said.assert_coherent(form);
        assert_eq!(said.text, "This is what I know.");
        assert_eq!(upstream.requests().len(), 4);
        upstream.assert_clean();
    });
}

#[test]
fn where_every_form_is_refused_an_honest_sentence_is_said_and_the_conversation_goes_on() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| match nth {
            0 => {
                let calls = Speech::calls(&[("call_0", "search", "{}")]);
                Reply::speech(request, &Speech { text: "I look.".into(), ..calls })
            }
            _ if messages(request).last().unwrap()["content"] == "And?" => text("Fine.", request),
            _ => refusal(),
        });
        let program = Toolrein::before(&upstream, CLOSED);
        let mut talk = Talk::new(form);
        let said = talk.ask(&program);
        said.assert_coherent(form);
        assert!(said.text.contains("I could not finish this"), "{}", said.text);
        assert_eq!((said.finishes[0].as_str(), said.calls.len()), ("stop", 0));
        assert_eq!(said.usage["total_tokens"], 25, "one reply was billed");
        assert!(upstream.requests().len() <= 5, "{}", upstream.requests().len());
        talk.add(&said);
        talk.say("And?");
        let next = talk.ask(&program);
        next.assert_coherent(form);
        assert_eq!(next.text, "Fine.");
        upstream.assert_clean();
    });
}

#[test]
fn a_re_ask_that_fails_for_the_caller_or_for_load_is_reported() {
    in_both_forms(|form| {
        let overloaded = || Reply::error(400, "overloaded_error", "overloaded_error", "Overloaded");
        let failures: [fn() -> Reply; 4] = [
            || Reply::error(401, "authentication_error", "invalid_api_key", "Wrong key"),
            || Reply::error(402, "billing_error", "billing", "No credit"),
            || Reply::error(429, "rate_limit_error", "slow_down", "Too many requests"),
            || Reply::error(503, "server_error", "busy", "Busy"),
        ];
        for fail in failures {
            let upstream =
                Scripted::start(move |nth, request| if nth == 0 { search(nth, request) } else { fail() });
            let program = Toolrein::before(&upstream, CLOSED);
            let response =
                crate::support::client::post(&program.chat_url(), Talk::new(form).body().to_string());
            assert!(response.text().contains("\"error\""), "{}", response.text());
            assert_eq!(upstream.requests().len(), 2, "nothing else is tried");
        }
        let upstream =
            Scripted::start(move |nth, request| if nth == 0 { search(nth, request) } else { overloaded() });
        let program = Toolrein::before(&upstream, CLOSED);
        let response = crate::support::client::post(&program.chat_url(), Talk::new(form).body().to_string());
        assert!(response.text().contains("Overloaded"), "{}", response.text());
    });
}

/// A model whose context holds requests of `most` bytes.
fn bounded(most: usize, request: &Recorded) -> Option<Reply> {
    let message =
        "This model's maximum context length is 4096 tokens. However, your messages resulted in 5120 tokens.";
    (request.body.len() > most)
        .then(|| Reply::error(400, "invalid_request_error", "context_length_exceeded", message))
}

/// A call with arguments of many characters.
fn long_call(nth: usize, request: &Recorded) -> Reply {
    let arguments = json!({ "q": "word ".repeat(2_000) }).to_string();
    Reply::speech(request, &Speech::calls(&[(&format!("call_{nth}"), "search", &arguments)]))
}

#[test]
fn a_re_ask_that_is_longer_than_the_context_becomes_a_final_answer_request_with_short_results() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| {
            bounded(4_000, request).unwrap_or_else(|| match nth {
                0 => long_call(nth, request),
                _ => text("This is what I know.", request),
            })
        });
        let program = Toolrein::before(&upstream, CLOSED);
        let mut talk = Talk::new(form);
        let said = talk.ask(&program);
        said.assert_coherent(form);
        assert_eq!(said.text, "This is what I know.");
        assert_eq!(upstream.requests().len(), 3, "one, a re-ask that is too long, and the final answer");
        let last = upstream.request(2);
        assert_eq!(last.json()["tool_choice"], "none");
        let shown = messages(&last);
        let envelope: Value = serde_json::from_str(shown[2]["content"].as_str().unwrap()).unwrap();
        assert_eq!(envelope["error"]["type"], "MODE_RESTRICTED");
        assert_eq!(said.usage["total_tokens"], 25 * 2);
        talk.add(&said);
        talk.say("And?");
        talk.ask(&program).assert_coherent(form);
        assert_eq!(messages(&upstream.request(3))[..shown.len()], shown[..], "the short form stays");
        upstream.assert_clean();
    });
}

#[test]
fn a_request_that_fitted_ends_in_an_honest_sentence_where_no_re_ask_fits() {
    in_both_forms(|form| {
        let first = Talk::new(form).body().to_string().len();
        let upstream = Scripted::start(move |nth, request| {
            bounded(first + 20, request).unwrap_or_else(|| search(nth, request))
        });
        let program = Toolrein::before(&upstream, CLOSED);
        let said = Talk::new(form).ask(&program);
        said.assert_coherent(form);
        assert!(said.text.starts_with("I could not finish this"), "{}", said.text);
        assert_eq!(said.finishes, ["stop"]);
        assert!(upstream.requests().len() <= 3, "{}", upstream.requests().len());
    });
}
