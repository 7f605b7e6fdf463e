//! Conversations that go on after a reply that toolrein made itself, where the upstream keeps them: approved calls, late
//! approvals, the honest sentence, and final answers whose calls were dropped. The upstream stores what it was sent and what
//! it said, knows no id but its own, and refuses a chain in which a call lacks its output or reasoning what follows it.

use crate::governed::talk::BOTH;
use crate::support::program::Toolrein;
use crate::support::reply::Reply;
use crate::support::responses::Output;
use crate::support::responses_kit::{Answer, Talk, tool};
use crate::support::scripted::{Recorded, Scripted};
use mock::strict_responses;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// How the client goes on: from the last reply, or in a conversation.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Chain {
    Previous,
    Conversation,
}

const CHAINS: [Chain; 2] = [Chain::Previous, Chain::Conversation];

/// An upstream that keeps every reply; `model` says what it answers to all items of the conversation.
fn keeping(model: impl Fn(usize, &[Value], &Recorded) -> Reply + Send + Sync + 'static) -> Scripted {
    let kept: Mutex<BTreeMap<String, Vec<Value>>> = Mutex::default();
    Scripted::start(move |nth, request| {
        let body = request.json();
        let mut kept = kept.lock().unwrap();
        let previous = body["previous_response_id"].as_str();
        let mut items = match previous.or(body["conversation"].as_str()) {
            Some(id) => match kept.get(id) {
                Some(items) => items.clone(),
                None if previous.is_none() => Vec::new(),
                None => {
                    return refused(
                        "previous_response_not_found",
                        &format!("Previous response with id '{id}' not found."),
                    );
                }
            },
            None => Vec::new(),
        };
        match &body["input"] {
            Value::String(text) => items.push(json!({"role": "user", "content": text})),
            input => items.extend(input.as_array().cloned().unwrap_or_default()),
        }
        let whole = json!({"model": "m", "input": items});
        let found = strict_responses::violations(whole.to_string().as_bytes());
        if !found.is_empty() {
            return refused("invalid_value", &found.join("; "));
        }
        let reply = model(nth, &items, request);
        if reply.status == 200 {
            items.extend(said(&reply));
            let conversation = body["conversation"].as_str().map(str::to_owned);
            for id in [Some(format!("resp_{nth}")), conversation].into_iter().flatten() {
                kept.insert(id, items.clone());
            }
        }
        reply
    })
}

fn refused(code: &str, message: &str) -> Reply {
    Reply::error(400, "invalid_request_error", code, message)
}

/// The items of a reply.
fn said(reply: &Reply) -> Vec<Value> {
    let bytes = crate::governed::talk::bytes_of(reply);
    let text = String::from_utf8(bytes).unwrap();
    let response = match reply.streamed {
        true => crate::support::responses::events(&text).pop().unwrap()["response"].take(),
        false => serde_json::from_str(&text).unwrap_or_default(),
    };
    response["output"].as_array().cloned().unwrap_or_default()
}

/// A client that sends only what is new.
struct Client<'a> {
    toolrein: &'a Toolrein,
    talk: Talk,
    chain: Chain,
}

impl<'a> Client<'a> {
    fn new(toolrein: &'a Toolrein, stream: bool, chain: Chain) -> Self {
        let mut talk = Talk::new(stream).with_tools(json!([tool("f"), tool("g")]));
        if chain == Chain::Conversation {
            talk.body["conversation"] = "conv_1".into();
        }
        Self { toolrein, talk, chain }
    }

    fn send(&mut self, input: Value) -> Answer {
        self.talk.body["input"] = input;
        let answer = self.talk.ask(self.toolrein);
        assert!(!answer.text().contains("\"type\":\"error\""), "{}", answer.text());
        assert_eq!(answer.end["status"], "completed", "{}", answer.text());
        if self.chain == Chain::Previous {
            self.talk.body["previous_response_id"] = answer.end["id"].clone();
        }
        answer
    }

    fn say(&mut self, text: &str) -> Answer {
        self.send(json!([{"role": "user", "content": text}]))
    }

    /// Sends the output of each call of `answer`.
    fn run(&mut self, answer: &Answer) -> Answer {
        let calls = answer.items().iter().filter(|item| item["type"] == "function_call");
        let outputs: Vec<Value> = calls
            .map(|call| json!({"type": "function_call_output", "call_id": call["call_id"], "output": "ran"}))
            .collect();
        assert!(!outputs.is_empty(), "{}", answer.text());
        self.send(outputs.into())
    }
}

/// Calls `f` when the user asks for it, and reports what the last item is.
fn runs_f_when_asked(nth: usize, items: &[Value], request: &Recorded) -> Reply {
    let last = items.last().unwrap();
    let output = Output::new(nth);
    if last["role"] == "user" && last["content"].to_string().contains("run") {
        return output.thinks().call(&nth.to_string(), "f", "{\"a\":1}").reply(request);
    }
    let what = if last["output"] == "ran" { "It ran." } else { "As you like." };
    output.says(what).reply(request)
}

const CONFIRM: &str = "[policy.confirm]\ntools = [\"f\"]\n";

#[test]
fn an_approved_call_goes_on_over_several_turns() {
    for (stream, chain) in BOTH.into_iter().flat_map(|stream| CHAINS.map(|chain| (stream, chain))) {
        let upstream = keeping(runs_f_when_asked);
        let toolrein = Toolrein::before(&upstream, CONFIRM);
        let mut client = Client::new(&toolrein, stream, chain);
        for turn in 0..3 {
            let asked = client.say("run it");
            assert!(asked.said().contains("approval"), "{}", asked.text());
            let before = upstream.requests().len();
            let handed = client.say("yes");
            assert_eq!(upstream.requests().len(), before, "the model was not asked");
            assert_eq!(handed.kinds().len(), 1, "{:?}", handed.kinds());
            let done = client.run(&handed);
            assert_eq!(done.said(), "It ran.", "turn {turn}, {chain:?}");
            assert_eq!(client.say("And?").said(), "As you like.");
        }
        upstream.assert_clean();
    }
}

#[test]
fn a_declined_call_goes_on() {
    for (stream, chain) in BOTH.into_iter().flat_map(|stream| CHAINS.map(|chain| (stream, chain))) {
        let upstream = keeping(runs_f_when_asked);
        let toolrein = Toolrein::before(&upstream, CONFIRM);
        let mut client = Client::new(&toolrein, stream, chain);
        for _ in 0..2 {
            client.say("run it");
            assert_eq!(client.say("no").said(), "As you like.");
        }
        upstream.assert_clean();
    }
}

#[test]
fn a_late_approval_goes_on() {
    for (stream, chain) in BOTH.into_iter().flat_map(|stream| CHAINS.map(|chain| (stream, chain))) {
        let upstream = keeping(runs_f_when_asked);
        let toolrein = Toolrein::before(&upstream, &format!("{CONFIRM}expires = \"1ms\"\n"));
        let mut client = Client::new(&toolrein, stream, chain);
        for _ in 0..2 {
            client.say("run it");
            std::thread::sleep(std::time::Duration::from_millis(2));
            let late = client.say("yes");
            assert!(late.said().contains("too late"), "{}", late.text());
            assert_eq!(client.say("And now?").said(), "As you like.", "{chain:?}");
        }
        let sent = upstream.requests().last().unwrap().json().to_string();
        assert!(!sent.contains("msg_toolrein"), "{sent}");
        upstream.assert_clean();
    }
}

#[test]
fn a_budget_that_a_person_extends_goes_on() {
    for (stream, chain) in BOTH.into_iter().flat_map(|stream| CHAINS.map(|chain| (stream, chain))) {
        let upstream = keeping(|nth, items, request| {
            match items.iter().filter(|item| item["output"] == "ran").count() {
                0 | 1 => Output::new(nth).thinks().call(&nth.to_string(), "f", "{\"a\":1}").reply(request),
                _ => Output::text(nth, "It ran.").reply(request),
            }
        });
        let policy = "[policy.confirm]\ntools = []\n[policy.budget]\ntool_calls = 1\nexhausted = \"ask\"\n";
        let toolrein = Toolrein::before(&upstream, policy);
        let mut client = Client::new(&toolrein, stream, chain);
        let first = client.say("run it twice");
        let asked = client.run(&first);
        assert_eq!(asked.kinds().last().map(String::as_str), Some("assistant"), "{:?}", asked.kinds());
        let handed = client.say("yes");
        assert_eq!(client.run(&handed).said(), "It ran.", "{chain:?}");
        assert_eq!(client.say("And?").said(), "It ran.");
        upstream.assert_clean();
    }
}

/// Reasons and calls `f` without end, whatever it is asked for.
fn insists(nth: usize, items: &[Value], request: &Recorded) -> Reply {
    let last_said = items.iter().rev().find(|item| item["role"] == "user").unwrap();
    match last_said["content"].to_string().contains("stop") {
        true => Output::text(nth, "I stop.").reply(request),
        false => Output::new(nth).thinks().call(&nth.to_string(), "f", "{\"a\":1}").reply(request),
    }
}

const CLOSED: &str = "reask.max = 1\n[policy.allow]\nexcept = [\"f\"]\n";

#[test]
fn the_calls_of_a_final_answer_that_were_dropped_are_answered_in_the_next_request() {
    for (stream, chain) in BOTH.into_iter().flat_map(|stream| CHAINS.map(|chain| (stream, chain))) {
        let upstream = keeping(insists);
        let toolrein = Toolrein::before(&upstream, CLOSED);
        let mut client = Client::new(&toolrein, stream, chain);
        for _ in 0..2 {
            let answer = client.say("go");
            assert!(answer.said().starts_with("I could not finish this"), "{}", answer.text());
            assert!(!answer.text().contains("\"function_call\""), "{}", answer.text());
        }
        assert_eq!(client.say("stop").said(), "I stop.", "{chain:?}");
        upstream.assert_clean();
    }
}

#[test]
fn the_reasoning_before_a_dropped_call_is_accepted_where_the_client_sends_the_history() {
    for stream in BOTH {
        let upstream = keeping(insists);
        let toolrein = Toolrein::before(&upstream, CLOSED);
        let mut talk = Talk::new(stream).with_tools(json!([tool("f"), tool("g")]));
        let answer = talk.ask(&toolrein);
        talk.go_on(&answer).say("stop");
        let last = upstream.requests().len();
        assert_eq!(talk.ask(&toolrein).said(), "I stop.");
        upstream.assert_clean();
        let before = crate::support::responses_kit::input(&upstream.request(last));
        talk.add(json!({"role": "assistant", "content": "I stop."})).say("stop").ask(&toolrein);
        let after = crate::support::responses_kit::input(&upstream.request(last + 1));
        assert_eq!(after[..before.len()], before[..], "the same at the same place");
        upstream.assert_clean();
    }
}

#[test]
fn after_the_honest_sentence_the_conversation_goes_on_where_the_upstream_is() {
    for (stream, chain) in BOTH.into_iter().flat_map(|stream| CHAINS.map(|chain| (stream, chain))) {
        let upstream = keeping(|nth, items, request| {
            let said = |word: &str| items.last().unwrap()["content"].to_string().contains(word);
            match nth {
                0 => Output::text(0, "Hello.").reply(request),
                1 => Output::new(1).thinks().call("1", "f", "{}").reply(request),
                2 => Output::new(2).call("2", "f", "{}").reply(request),
                // Whatever the model is asked then is refused.
                _ if !said("and now") => refused("invalid_value", "That is not acceptable."),
                _ => Output::text(nth, "I am here.").reply(request),
            }
        });
        let toolrein = Toolrein::before(&upstream, CLOSED);
        let mut client = Client::new(&toolrein, stream, chain);
        assert_eq!(client.say("hi").said(), "Hello.");
        let answer = client.say("go");
        assert!(answer.said().starts_with("I could not finish this"), "{}", answer.text());
        assert!((4..=7).contains(&upstream.requests().len()), "{}", upstream.requests().len());
        if (stream, chain) == (false, Chain::Previous) {
            assert_eq!(answer.end["id"], "resp_2", "the head was not sent before");
        }
        assert_eq!(client.say("and now").said(), "I am here.", "{chain:?}");
        let next = upstream.requests().last().unwrap().json();
        if chain == Chain::Previous {
            assert_eq!(next["previous_response_id"], "resp_2", "the last reply that the upstream knows");
        }
        upstream.assert_clean();
    }
}
