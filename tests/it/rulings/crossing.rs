//! Conversations of one caller never mix, however the provider names its calls: a hidden exchange is put back in its
//! own conversation only.

use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::{Recorded, Scripted};
use crate::support::talk::{Form, Talk, in_both_forms, text};
use serde_json::{Value, json};

/// Ids as they repeat: Kimi's, Gemini's, and one that never changes.
const IDS: [&str; 3] = ["functions.fetch:0", "", "0"];
const ONE_SEARCH: &str = "[policy.rate_limit]\ntools = { search = { calls = 1, per = \"1h\" } }\n";

fn with_system(form: Form, system: &str) -> Talk {
    let mut talk = Talk::new(form);
    talk.messages.insert(0, json!({"role": "system", "content": system}));
    talk
}

fn with_image(form: Form, data: &str) -> Talk {
    let mut talk = Talk::new(form);
    let url = format!("data:image/png;base64,{data}");
    let parts =
        json!([{"type": "text", "text": "What is new?"}, {"type": "image_url", "image_url": {"url": url}}]);
    talk.messages[0]["content"] = parts;
    talk
}

fn talk_after(form: Form, said: &str) -> Talk {
    let mut talk = Talk::new(form);
    talk.messages.push(json!({"role": "assistant", "content": said}));
    talk.say("Go on.");
    talk
}

/// Pairs of conversations that differ in one thing.
fn pairs(form: Form) -> [[Talk; 2]; 3] {
    [
        [with_system(form, "You help A."), with_system(form, "You help B.")],
        [with_image(form, "AAAA"), with_image(form, "AAAB")],
        [talk_after(form, "A cat."), talk_after(form, "A dog.")],
    ]
}

fn last_sent(upstream: &Scripted) -> String {
    upstream.requests().last().unwrap().json()["messages"].to_string()
}

/// Calls `fetch`, and in the first reply also makes a search, which is blocked because an earlier search was made.
fn calls(id: &'static str) -> impl Fn(usize, &Recorded) -> Reply {
    move |nth, request| {
        let searches = [("s1", "search", "{}"), ("s2", "search", "{\"secret\":\"of the first\"}")];
        let fetch = (id, "fetch", "{\"u\":1}");
        match nth {
            0 => Reply::speech(request, &Speech::calls(&[fetch, searches[0], searches[1]])),
            1 => Reply::speech(request, &Speech::calls(&[fetch, searches[0]])),
            _ => text("Done.", request),
        }
    }
}

#[test]
fn a_call_of_the_same_id_tool_and_arguments_brings_nothing_of_another_conversation() {
    in_both_forms(|form| {
        for id in IDS {
            for [mut first, mut other] in pairs(form) {
                let upstream = Scripted::start(calls(id));
                let program = Toolrein::before(&upstream, ONE_SEARCH);
                let said = first.ask(&program);
                assert_eq!(said.calls.len(), 2);
                first.add(&said);
                let said = other.ask(&program);
                assert_eq!(said.calls.len(), 2);
                other.add(&said);
                other.ask(&program);
                assert_eq!(
                    last_sent(&upstream),
                    json!(other.messages).to_string(),
                    "{id}: nothing is put back"
                );
                first.ask(&program);
                assert!(last_sent(&upstream).contains("of the first"), "{id}: its own is");
            }
        }
    });
}

#[test]
fn a_text_brings_nothing_of_a_conversation_that_differs_in_an_image_or_an_earlier_answer() {
    in_both_forms(|form| {
        for [mut first, mut other] in pairs(form) {
            let upstream = Scripted::start(|nth, request| match nth {
                0 => Reply::speech(
                    request,
                    &Speech::calls(&[("x", "search", "{\"secret\":\"of the first\"}")]),
                ),
                _ => text("Sorry, no.", request),
            });
            let program = Toolrein::before(&upstream, "[policy.budget]\ncontext_tokens = 1\n");
            let said = first.ask(&program);
            assert_eq!(said.text, "Sorry, no.");
            first.add(&said);
            // Not answered through toolrein: nothing is known of it.
            other.messages.push(json!({"role": "assistant", "content": "Sorry, no."}));
            for talk in [&mut first, &mut other] {
                talk.say("Why?");
            }
            other.ask(&program);
            assert!(!last_sent(&upstream).contains("secret"));
            first.ask(&program);
            assert!(last_sent(&upstream).contains("secret"));
        }
    });
}

#[test]
fn no_hidden_exchange_is_restored_between_two_identical_conversations() {
    in_both_forms(|form| {
        for id in IDS {
            let upstream = Scripted::start(calls(id));
            let program = Toolrein::before(&upstream, ONE_SEARCH);
            let [mut first, mut other] = [Talk::new(form), Talk::new(form)];
            let said = first.ask(&program);
            first.add(&said);
            let said = other.ask(&program);
            other.add(&said);
            for talk in [&first, &other] {
                talk.ask(&program);
                let sent: Value = serde_json::from_str(&last_sent(&upstream)).unwrap();
                assert_eq!(sent, json!(talk.messages), "{id}");
            }
            program.wait_for_metric("toolrein_lost_hidden_exchanges_total", 1.0);
        }
    });
}
