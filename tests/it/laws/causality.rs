//! Causality: the model's input of a conversation is a byte prefix of its input of the continuation, so that
//! providers' prompt caches keep hitting.

use super::generate::{Conversation, any_order, orderly};
use super::generate_messages;
use super::recordings::own_transcripts;
use super::world::{
    Facts, Reading, SETS, STEADY, adaptations_of_tools, identity, lossy, making_room, messages_of, policies,
    read,
};
use dialects::dialect_of;
use dialects::variant::Variant;
use engine::restore::{hidden_positions, text_key_of};
use model::Transcript;
use model::fact::RecordList;
use model::memo::NoMemo;
use model::released::{Release, hidden_digest};
use model::request::Request;
use model::store::HiddenExchange;
use policies::set::PolicySet;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use serde_json::Value;
use std::sync::Arc;

proptest! {
    #![proptest_config(crate::laws::with_cases(80))]

    #[test]
    fn a_shorter_history_is_a_prefix_of_a_longer_one(talk in orderly(), set in 0..SETS, hidden in any::<u16>()) {
        let facts = hidden_exchanges(&talk, hidden);
        for flat in [false, true] {
            each_cut_is_a_prefix(&talk, policies(set), &facts, flat).map_err(TestCaseError::fail)?;
        }
    }

    #[test]
    fn a_shorter_history_is_a_prefix_also_after_overflows(
        talk in orderly(),
        set in 3..SETS,
        hidden in any::<u16>(),
        refused in any::<u8>(),
    ) {
        let mut facts = hidden_exchanges(&talk, hidden);
        facts.overflows = overflows(&talk, refused);
        each_cut_is_a_prefix(&talk, policies(set), &facts, false).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn a_shorter_history_is_a_prefix_of_a_longer_one_in_the_messages_api(
        talk in generate_messages::orderly(),
        set in 0..SETS,
        hidden in any::<u16>(),
        refused in any::<u8>(),
    ) {
        let mut facts = hidden_exchanges(&talk, hidden);
        for flat in [false, true] {
            each_cut_is_a_prefix(&talk, policies(set), &facts, flat).map_err(TestCaseError::fail)?;
        }
        facts.overflows = overflows(&talk, refused);
        each_cut_is_a_prefix(&talk, policies(set), &facts, false).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn a_shorter_history_is_a_prefix_in_any_order_of_messages_in_the_messages_api(
        talk in generate_messages::any_order(),
        set in 0..SETS,
    ) {
        each_cut_is_a_prefix(&talk, policies(set), &Facts::default(), false).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn a_shorter_history_is_a_prefix_in_any_order_of_messages(talk in any_order(), set in 0..SETS) {
        each_cut_is_a_prefix(&talk, policies(set), &Facts::default(), false).map_err(TestCaseError::fail)?;
    }
}

#[test]
fn a_shorter_recorded_conversation_is_a_prefix_of_a_longer_one() {
    // `make test-fast` tries every fifth.
    let every = if std::env::var_os("FAST").is_some() { 5 } else { 1 };
    for line in own_transcripts().lines().step_by(every) {
        let talk = recorded(&serde_json::from_str(line).unwrap());
        for set in 1..SETS {
            let facts = hidden_exchanges(&talk, 0xa5a5);
            if let Err(why) = each_cut_is_a_prefix(&talk, policies(set), &facts, set == 1) {
                panic!("{why}");
            }
        }
    }
}

/// A recorded history as a request.
pub fn recorded(line: &Value) -> Conversation {
    let messages = line["messages"].as_array().unwrap().iter().map(Value::to_string).collect();
    let before = format!("{{\"model\":{},\"messages\":[", line["model"]);
    let after = if line["tools"].is_array() && line["tools"] != Value::Array(vec![]) {
        format!("],\"tools\":{}}}", line["tools"])
    } else {
        "]}".to_owned()
    };
    Conversation { before, messages, between: ",".to_owned(), after }
}

fn each_cut_is_a_prefix(
    talk: &Conversation,
    policies: &PolicySet,
    facts: &Facts,
    flat: bool,
) -> Result<(), String> {
    for placement in STEADY {
        for adapted in adaptations_of_tools(flat) {
            let variant = Variant::plain(placement).with(adapted);
            let mut shorter: Option<(usize, Vec<u8>)> = None;
            for count in talk.cuts() {
                let reading = read(&talk.first(count), policies, facts);
                let longer = messages_of(&reading.write(&variant));
                if let Some((before, shorter)) = &shorter
                    && !longer.starts_with(shorter)
                    && breaks(&reading, *before) == [0, 0]
                {
                    let (shorter, longer) = (lossy(shorter), lossy(&longer));
                    return Err(format!(
                        "{variant:?}\n{before} items: {shorter}\n{count} messages: {longer}"
                    ));
                }
                shorter = Some((reading.request.messages.len(), longer));
            }
        }
    }
    Ok(())
}

/// How many items those of the requests have that were refused for their length: each has a bit.
fn overflows(talk: &Conversation, refused: u8) -> Vec<usize> {
    let cuts = talk.cuts().into_iter().enumerate();
    let refused = cuts.filter(|(at, _)| refused >> (at % 8) & 1 == 1);
    refused.map(|(_, cut)| items_of(&talk.first(cut)).messages.len()).collect()
}

fn items_of(body: &[u8]) -> Request {
    dialect_of(body).read(body).unwrap()
}

/// How often the prefix breaks for a reason after the request of `before` items: old results cleared, turns dropped.
fn breaks(reading: &Reading, before: usize) -> [usize; 2] {
    let mut cleared: Vec<usize> = reading.plan.cleared().map(|edit| edit.decided).collect();
    let mut dropped: Vec<usize> = reading.plan.dropped.iter().map(|dropped| dropped.decided).collect();
    [&mut cleared, &mut dropped].map(|decided| {
        decided.retain(|decided| *decided > before);
        decided.dedup();
        decided.len()
    })
}

#[test]
fn the_exceptions_are_counted_by_cause_and_few() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut requests, mut broken) = (0, [0, 0]);
    for at in 0..300 {
        let talk = orderly().new_tree(&mut runner).unwrap().current();
        let mut before = 0;
        for count in talk.cuts() {
            let reading = read(&talk.first(count), making_room()[at % 2], &Facts::default());
            let found = breaks(&reading, before);
            broken = [broken[0] + found[0], broken[1] + found[1]];
            requests += 1;
            before = count;
        }
    }
    assert!(broken[0] > 3 && broken[1] > 0, "cleared, dropped: {broken:?} in {requests} requests");
    assert!(broken[0] + broken[1] < requests / 3, "{broken:?} in {requests} requests");
}

/// A state store that knows a hidden exchange before each assistant message whose bit is set, and summaries.
pub fn hidden_exchanges(talk: &Conversation, bits: u16) -> Facts {
    let (body, identity) = (talk.body(), identity(1));
    let request = items_of(&body);
    let transcript = Transcript::read(request, body.to_vec(), identity.clone(), Arc::new(NoMemo));
    let mut facts = Facts { summaries: true, ..Facts::default() };
    for (at, place) in hidden_positions(&transcript, 1024).into_iter().enumerate() {
        if bits >> (at % 16) & 1 == 0 {
            continue;
        }
        let first = transcript.calls.made_by(place.message).first();
        let message_key = first.map_or_else(|| text_key_of(&transcript, place), |call| call.key);
        // A call that was blocked, a question to the user, or a part of a result that was read again.
        let (tool, answer) = if at % 2 == 0 {
            ("look", r#"{\"ok\":false}"#.to_owned())
        } else if at % 3 == 0 {
            let asked = "[toolrein: the user is asked; their answer is the next user message]";
            ("ask_for_clarification", asked.to_owned())
        } else {
            ("read_more", "more words ".repeat(60))
        };
        let messages = if !generate_messages::wrote(talk) {
            format!(
                r#"{{"role":"assistant","content":null,"tool_calls":[{{"id":"h{at}","type":"function","function":{{"name":"{tool}","arguments":"{{}}"}}}}]}},{{"role":"tool","tool_call_id":"h{at}","content":"{answer}"}}"#
            )
        } else {
            format!(
                r#"{{"role":"assistant","content":[{{"type":"thinking","thinking":"","signature":"h{at}"}},{{"type":"tool_use","id":"h{at}","name":"{tool}","input":{{}}}}]}},{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"h{at}","content":"{answer}"}}]}}"#
            )
        };
        let hidden = hidden_digest(messages.as_bytes(), &identity.key);
        let release = Release { context: place.name, hidden, at_ms: 0 };
        facts.released.extend(first.map(|call| (call.key, Arc::new(RecordList::from([release])))));
        facts
            .rounds
            .entry(place.name)
            .or_default()
            .push(HiddenExchange { message_key, messages: messages.into() });
    }
    facts
}
