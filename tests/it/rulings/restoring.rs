//! Ruling 1: hidden exchanges are put back before the assistant message that ended the reply they belong to.

use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::{Recorded, Scripted};
use crate::support::talk::{Form, Talk, in_both_forms, search, text};
use serde_json::{Value, json};

const ONE_SEARCH: &str = "[policy.rate_limit]\ntools = { search = { calls = 1, per = \"1h\" } }\n";

#[test]
fn a_partly_blocked_reply_gets_its_blocked_calls_back_in_the_next_request() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| match nth {
            0 => {
                let calls =
                    [("a", "search", "{\"q\":1}"), ("b", "search", "{\"q\":2}"), ("c", "fetch", "{\"u\":1}")];
                Reply::speech(request, &Speech { text: "I look.".into(), ..Speech::calls(&calls) })
            }
            _ => text("Done.", request),
        });
        let program = Toolrein::before(&upstream, ONE_SEARCH);
        let mut talk = Talk::new(form);
        let said = talk.ask(&program);
        said.assert_coherent(form);
        let names: Vec<&str> = said.calls.iter().map(|(id, ..)| id.as_str()).collect();
        assert_eq!((names, said.text.as_str()), (vec!["a", "c"], "I look."));
        talk.add(&said);
        talk.ask(&program).assert_coherent(form);
        let sent = upstream.request(1).json()["messages"].clone();
        let roles: Vec<&str> =
            sent.as_array().unwrap().iter().map(|message| message["role"].as_str().unwrap()).collect();
        assert_eq!(roles, ["user", "assistant", "tool", "assistant", "tool", "tool"]);
        assert_eq!(sent[1]["tool_calls"][0]["id"], "b");
        let envelope: Value = serde_json::from_str(sent[2]["content"].as_str().unwrap()).unwrap();
        assert_eq!(envelope["ok"], false);
        assert_eq!(envelope["error"]["type"], "RATE_LIMIT");
        assert_eq!(envelope["error"]["used"], 1);
        assert_eq!(envelope["error"]["limit"], 1);
        assert_eq!(envelope["error"]["window_ms"], 3_600_000);
        assert!(envelope["error"]["retry_after_ms"].as_u64().unwrap() <= 3_600_000);
        assert_eq!(envelope["meta"], json!({"by": "toolrein", "policy": "rate_limit"}));
        assert_eq!(sent[3]["tool_calls"].as_array().unwrap().len(), 2);
        upstream.assert_clean();
    });
}

#[test]
fn hidden_exchanges_are_restored_before_the_text_that_followed_them() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| match nth {
            0 => search(0, request),
            1 | 2 => search(nth, request),
            3 => text("Here it is.", request),
            _ => text("You are welcome.", request),
        });
        let program = Toolrein::before(&upstream, ONE_SEARCH);
        let mut talk = Talk::new(form);
        let first = talk.ask(&program);
        talk.add(&first);
        let second = talk.ask(&program);
        second.assert_coherent(form);
        assert_eq!(second.text, "Here it is.");
        talk.add(&second);
        talk.say("Thanks");
        talk.ask(&program);
        let asked_last = upstream.request(3).json()["messages"].clone();
        let sent = upstream.request(4).json()["messages"].clone();
        let (before, sent) = (asked_last.as_array().unwrap(), sent.as_array().unwrap());
        assert_eq!(&sent[..before.len()], before, "the model sees what it saw, so its cache still fits");
        assert_eq!(sent[before.len()]["content"], "Here it is.");
        upstream.assert_clean();
    });
}

#[test]
fn what_the_model_said_beside_a_hidden_call_is_in_later_requests_once() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| match nth {
            0 => {
                let calls = Speech::calls(&[("x", "search", "{}")]);
                Reply::speech(request, &Speech { text: "I look.".into(), ..calls })
            }
            _ => text("Nothing there.", request),
        });
        let program = Toolrein::before(&upstream, "[policy.budget]\ncontext_tokens = 1\n");
        let mut talk = Talk::new(form);
        let said = talk.ask(&program);
        assert_eq!(said.text, "I look.\n\nNothing there.");
        talk.add(&said);
        talk.say("Why?");
        talk.ask(&program);
        let (before, after) = (messages_of(&upstream, 1), messages_of(&upstream, 2));
        assert_eq!(after[..before.len()], before);
        assert_eq!(json!(after).to_string().matches("I look.").count(), 1, "{after:?}");
        let hidden = after.iter().find(|message| message["tool_calls"].is_array()).unwrap();
        assert_eq!(hidden["content"], Value::Null, "no provider refuses that");
        upstream.assert_clean();
    });
}

#[test]
fn a_reply_that_the_client_changed_gets_nothing_back_and_that_is_counted() {
    let upstream =
        Scripted::start(|nth, request| if nth < 2 { search(nth, request) } else { text("Fine.", request) });
    let program = Toolrein::before(&upstream, ONE_SEARCH);
    let mut talk = Talk::new(Form::Whole);
    let first = talk.ask(&program);
    talk.add(&first);
    let second = talk.ask(&program);
    talk.add(&second);
    talk.messages.last_mut().unwrap()["content"] = json!("something else");
    talk.say("And?");
    talk.ask(&program);
    let sent = upstream.request(3).json()["messages"].clone();
    assert_eq!(sent, json!(talk.messages), "nothing is put back");
    program.wait_for_metric("toolrein_lost_hidden_exchanges_total", 1.0);
    assert_eq!(program.metric("toolrein_prefix_breaks_total{cause=\"store\"}"), 1.0);
    upstream.assert_clean();
}

#[test]
fn another_conversation_with_the_same_answer_gets_nothing_of_the_first() {
    let upstream = Scripted::start(|nth, request| match nth {
        0 => Reply::speech(request, &Speech::calls(&[("x", "fetch", "{}")])),
        _ => text("Fine.", request),
    });
    let program = Toolrein::before(
        &upstream,
        "[policy.rate_limit]\ntools = { fetch = { calls = 1, per = \"1h\" } }\n[policy.budget]\ncontext_tokens = 1\n",
    );
    let first = Talk::new(Form::Whole);
    let said = first.ask(&program);
    assert_eq!(said.text, "Fine.", "the call was blocked, the model answered");
    let mut other = Talk::new(Form::Whole);
    other.messages = vec![json!({"role": "user", "content": "Somebody else asks"})];
    other.messages.push(json!({"role": "assistant", "content": "Fine."}));
    other.say("Thanks");
    other.ask(&program);
    assert!(!String::from_utf8_lossy(&upstream.requests().last().unwrap().body).contains("tool_calls"));
}

#[test]
fn hidden_exchanges_are_restored_before_a_sentence_added_by_toolrein() {
    in_both_forms(|form| {
        let upstream = Scripted::start(search);
        let program = Toolrein::before(&upstream, "reask.max = 0\n[policy.budget]\ncontext_tokens = 1\n");
        let mut talk = Talk::new(form);
        let said = talk.ask(&program);
        talk.add(&said);
        talk.say("And now?");
        talk.ask(&program);
        let sent = upstream.request(2).json()["messages"].clone();
        let roles: Vec<&str> =
            sent.as_array().unwrap().iter().map(|message| message["role"].as_str().unwrap()).collect();
        assert_eq!(roles, ["user", "assistant", "tool", "assistant", "user"]);
        assert!(sent[3]["content"].as_str().unwrap().starts_with("I could not finish this"));
    });
}

#[test]
fn equal_questions_and_answers_in_two_conversations_share_nothing() {
    let upstream = Scripted::start(|nth, request| match nth {
        0 => Reply::speech(request, &Speech::calls(&[("x", "search", "{\"secret\":\"of the first\"}")])),
        _ => text("Sorry, no.", request),
    });
    let program = Toolrein::before(&upstream, "[policy.budget]\ncontext_tokens = 1\n");
    let conversation = |system: &str| {
        let mut talk = Talk::new(Form::Whole);
        talk.messages.insert(0, json!({"role": "system", "content": system}));
        talk
    };
    let said = conversation("You help A.").ask(&program);
    assert_eq!(said.text, "Sorry, no.");
    let mut other = conversation("You help B.");
    other.messages.push(json!({"role": "assistant", "content": said.text}));
    other.say("Why?");
    other.ask(&program);
    assert!(!String::from_utf8_lossy(&upstream.requests().last().unwrap().body).contains("secret"));
}

/// The messages of the `nth` sending.
fn messages_of(upstream: &Scripted, nth: usize) -> Vec<Value> {
    upstream.request(nth).json()["messages"].as_array().unwrap().clone()
}

#[test]
fn no_hidden_exchange_is_restored_if_two_answers_to_one_request_are_equal() {
    in_both_forms(|form| {
        let secret = |nth: usize, request: &Recorded| {
            let arguments = format!(r#"{{"secret":"round {nth}"}}"#);
            Reply::speech(request, &Speech::calls(&[("x", "search", &arguments)]))
        };
        let upstream = Scripted::start(move |nth, request| match nth {
            0 | 3 => secret(nth, request),
            _ => text("Sorry, no.", request),
        });
        let program = Toolrein::before(&upstream, "[policy.budget]\ncontext_tokens = 1\n");
        let mut talk = Talk::new(form);
        let said = talk.ask(&program);
        talk.add(&said);
        talk.say("Why?");
        let said = talk.ask(&program);
        // Sent once more by a client that lost the answer, or asked by somebody else of the same caller.
        assert_eq!(Talk::new(form).ask(&program).text, "Sorry, no.");
        talk.add(&said);
        talk.say("And now?");
        talk.ask(&program);
        assert!(json!(messages_of(&upstream, 2)).to_string().contains("round 0"));
        assert_eq!(messages_of(&upstream, 5), talk.messages, "nobody knows which of them it was");
        program.wait_for_metric("toolrein_prefix_breaks_total{cause=\"store\"}", 1.0);
        upstream.assert_clean();
    });
}

#[test]
fn a_hidden_exchange_of_an_equal_conversation_does_not_turn_up_after_an_answer_given_without_one() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| match nth {
            2 => Reply::speech(request, &Speech::calls(&[("x", "search", "{}")])),
            _ => text("Fine.", request),
        });
        let program = Toolrein::before(&upstream, "[policy.budget]\ncontext_tokens = 1\n");
        let mut talk = Talk::new(form);
        for turn in 0..4 {
            if turn == 2 {
                assert_eq!(Talk::new(form).ask(&program).text, "Fine.", "a call was blocked before");
            }
            let said = talk.ask(&program);
            talk.add(&said);
            talk.say("Go on.");
        }
        let (before, after) = (messages_of(&upstream, 1), messages_of(&upstream, 4));
        assert_eq!(after[..before.len()], before, "what was shown stays shown");
        program.wait_for_metric("toolrein_requests_total", 5.0);
        assert!(program.metric("toolrein_prefix_breaks_total").abs() < 0.5);
        upstream.assert_clean();
    });
}
