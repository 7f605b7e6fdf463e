//! Order: a request that the strictest provider accepts is still accepted after any rewriting, in every form in which
//! it may be sent.

use super::causality::{hidden_exchanges, recorded};
use super::generate::{Conversation, orderly};
use super::recordings::own_transcripts;
use super::world::{Facts, NOW_MS, SETS, STEADY, forms, lossy, low, policies, read};
use bytes::Bytes;
use dialects::CHAT;
use dialects::reply::{Form, Limits, Options};
use dialects::variant::Placement;
use engine::pipeline::ReplyPipeline;
use mock::strict::violations;
use policies::set::PolicySet;
use proptest::prelude::*;
use serde_json::{Value, json};

#[test]
fn a_request_that_a_strict_provider_accepts_is_accepted_in_every_form() {
    // Conversations that are out of order do not count: every case is one that the provider takes.
    let mut runner = proptest::test_runner::TestRunner::new(crate::laws::with_cases(50));
    let result = runner.run(&(orderly(), 0..SETS, any::<u16>()), |(talk, set, hidden)| {
        prop_assume!(violations(&talk.body()).is_empty());
        every_form_is_taken(&talk, policies(set), &hidden_exchanges(&talk, hidden))
            .map_err(TestCaseError::fail)
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn recorded_conversations_are_taken_in_every_form() {
    let mut taken = 0;
    for line in own_transcripts().lines() {
        let talk = recorded(&serde_json::from_str(line).unwrap());
        if violations(&talk.body()).is_empty() {
            taken += 1;
            if let Err(why) = every_form_is_taken(&talk, low(), &hidden_exchanges(&talk, 0x5555)) {
                panic!("{why}");
            }
        }
    }
    assert!(taken > 5, "only {taken} recorded conversations are in order");
}

fn every_form_is_taken(talk: &Conversation, policies: &PolicySet, facts: &Facts) -> Result<(), String> {
    let rounds = judged_rounds(talk, facts);
    let reading = read(&talk.body(), policies, facts);
    for placement in STEADY.into_iter().chain([Placement::Leading]) {
        for (form, pass) in forms(placement, &rounds) {
            let out = reading.write(&pass);
            let found = violations(&out);
            if !found.is_empty() {
                return Err(format!("{form}\n{found:?}\n{}\n{}", lossy(&talk.body()), lossy(&out)));
            }
        }
    }
    Ok(())
}

/// The hidden exchanges of a reply whose calls are all blocked.
fn judged_rounds(talk: &Conversation, facts: &Facts) -> Vec<Bytes> {
    let call = |at: usize, arguments: &str| json!({"id": format!("w{at}"), "type": "function", "function": {"name": "look", "arguments": arguments}});
    // So many that the limits are passed whatever the history holds.
    let calls: Vec<Value> = ["{}", "{\"a\":\"é\\n\"}", "", "{broken", "[1"]
        .iter()
        .enumerate()
        .map(|(at, a)| call(at, a))
        .collect();
    let reply = json!({"choices": [{"index": 0, "finish_reason": "tool_calls",
        "message": {"role": "assistant", "content": "I \u{e9} look", "reasoning_content": "hm", "tool_calls": calls}}]});
    let judging = read(&talk.body(), low(), facts).judging();
    let limits = Limits { event: 1 << 20, held: 1 << 20, reply: 1 << 20 };
    let mut judge = ReplyPipeline::new(judging, CHAT, Form::Whole, limits, Options::default());
    judge.push(reply.to_string().into(), NOW_MS, &mut Vec::new());
    judge.finish(NOW_MS, &mut Vec::new());
    judge.shown().iter().filter_map(|choice| choice.hidden_exchange()).collect()
}
