//! Cases of the cap on the history: which turns are dropped when, what stays, what the model reads about it.

use super::super::cases::{plan_of, plan_together, policy};
use super::super::compact::Compact;
use super::*;
use crate::conversation::Transcript;
use crate::conversation::memo::NoMemo;
use crate::plan::Change;
use crate::policy::cases::somebody;
use crate::policy::set::{PolicySet, Rule};
use serde_json::{Value, json};
use std::sync::Arc;

fn capped(tokens: u64) -> Arc<dyn Rule> {
    policy::<History>(&format!("max_tokens = {tokens}\ndown_to = 0.5"))
}

fn say(role: &str, words: usize) -> Value {
    json!({"role": role, "content": "word ".repeat(words)})
}

/// So many turns of about `words` tokens, each with a call, after a system message.
fn turns(count: usize, words: usize) -> Vec<Value> {
    let mut messages = vec![say("system", 10)];
    for at in 0..count {
        messages.push(say("user", 10));
        messages.push(json!({"role": "assistant", "tool_calls": [
            {"id": format!("c{at}"), "type": "function", "function": {"name": "look", "arguments": "{}"}}]}));
        messages.push(
            json!({"role": "tool", "tool_call_id": format!("c{at}"), "content": "word ".repeat(words)}),
        );
        messages.push(say("assistant", 10));
    }
    messages.push(say("user", 10));
    messages
}

fn body(messages: &[Value]) -> String {
    json!({"model": "m", "messages": messages}).to_string()
}

fn ranges(plan: &Plan) -> Vec<Range<usize>> {
    plan.dropped.iter().map(|dropped| dropped.messages.clone()).collect()
}

/// The positions and texts of notices.
fn notices(plan: &Plan) -> Vec<(usize, String)> {
    let notice = |edit: &crate::plan::Edit| match &edit.change {
        Change::Notice { text, .. } => Some((edit.message, text.clone())),
        _ => None,
    };
    plan.edits.iter().filter_map(notice).collect()
}

#[test]
fn the_oldest_turns_are_dropped_whole_and_announced_by_one_notice() {
    let plan = plan_of(&capped(5_000), &body(&turns(6, 1_000)));
    // Turns of a thousand and fifty tokens: in the fifth it is full, and two of them stay.
    assert_eq!(ranges(&plan), [1..5, 5..9, 9..13]);
    let shown = notices(&plan);
    assert_eq!((shown.len(), shown[0].0), (1, 13));
    assert!(
        shown[0].1.starts_with("[toolrein] The 3 oldest turns of this conversation (12 messages)"),
        "{shown:?}"
    );
    assert!(plan_of(&capped(9_000), &body(&turns(6, 1_000))).is_empty());
}

#[test]
fn the_operators_texts_say_what_was_dropped() {
    let own = "max_tokens = 5000\ndown_to = 0.5\ntexts.dropped = \"{oldest} weg ({turns}, {messages}).\"\n\
               texts.one = \"Eine\"\ntexts.several = \"{turns} Runden\"";
    let shown = notices(&plan_of(&policy::<History>(own), &body(&turns(6, 1_000))));
    assert_eq!(shown[0].1, "3 Runden weg (3, 12).");
}

#[test]
fn dropped_turns_stay_dropped_and_more_are_dropped_when_the_cap_is_reached_again() {
    let messages = turns(20, 1_000);
    let all = plan_of(&capped(5_000), &body(&messages));
    let mut batches: Vec<usize> = all.dropped.iter().map(|dropped| dropped.decided).collect();
    batches.dedup();
    assert!((5..=9).contains(&batches.len()), "{batches:?}");
    for count in (1..messages.len()).filter(|count| messages[*count]["role"] == "assistant") {
        let known = plan_of(&capped(5_000), &body(&messages[..count]));
        let before = all.dropped.iter().filter(|dropped| dropped.decided <= count);
        assert_eq!(known.dropped, before.cloned().collect::<Vec<_>>(), "with {count} messages");
    }
    let last = notices(&all).pop().unwrap();
    assert!(last.1.contains(&format!("The {} oldest turns", all.dropped.len())), "{last:?}");
}

#[test]
fn system_messages_and_the_running_turn_stay() {
    let mut messages = turns(3, 2_000);
    messages.insert(3, say("system", 10));
    let plan = plan_of(&capped(1_000), &body(&messages));
    assert_eq!(ranges(&plan), [1..3, 4..6, 6..10, 10..14]);
    let running = [say("system", 5), say("user", 5_000), say("user", 5_000)];
    assert!(plan_of(&capped(1_000), &body(&running)).is_empty());
}

#[test]
fn without_a_number_the_cap_is_a_share_of_the_context_window() {
    let with =
        |window: u32| policy::<History>(&format!("context_window = {window}\nshare = 0.5\ndown_to = 0.5"));
    assert!(plan_of(&with(20_000), &body(&turns(6, 1_000))).is_empty());
    assert_eq!(ranges(&plan_of(&with(10_000), &body(&turns(6, 1_000)))).len(), 3);
}

#[test]
fn a_cap_in_characters_drops_turns_whatever_the_tokens_are_and_stays() {
    let of = |chars: u64| policy::<History>(&format!("max_chars = {chars}\ndown_to = 0.5"));
    // Turns of five thousand characters and a hundred.
    let messages = turns(6, 1_000);
    assert!(plan_of(&of(35_000), &body(&messages)).is_empty());
    let plan = plan_of(&of(25_000), &body(&messages));
    assert_eq!(ranges(&plan), [1..5, 5..9, 9..13]);
    assert!(notices(&plan)[0].1.contains("The 3 oldest turns"), "{:?}", notices(&plan));
    for count in (1..messages.len()).filter(|count| messages[*count]["role"] == "assistant") {
        let known = plan_of(&of(25_000), &body(&messages[..count]));
        let before = plan.dropped.iter().filter(|dropped| dropped.decided <= count);
        assert_eq!(known.dropped, before.cloned().collect::<Vec<_>>(), "with {count} messages");
    }
}

#[test]
fn characters_are_counted_as_the_model_reads_them() {
    let of = |chars: u64| policy::<History>(&format!("max_chars = {chars}\ndown_to = 0.5"));
    let turn = |text: &str| json!({"role": "user", "content": text});
    let says = json!({"role": "assistant", "content": "ok"});
    // Sixty-six characters each: two with escapes, one of more bytes.
    for text in ["\n\"\u{1}".repeat(22), "é".repeat(66), "\u{1f600}".repeat(66)] {
        let messages = body(&[turn(&text), says.clone(), turn(&text), says.clone(), turn("q")]);
        assert!(plan_of(&of(138), &messages).is_empty(), "{text}");
        assert!(!plan_of(&of(136), &messages).is_empty(), "{text}");
    }
}

#[test]
fn what_was_dropped_for_a_request_that_was_too_long_is_dropped_for_later_ones() {
    let messages = turns(6, 1_000);
    let compact = || policy::<Compact>("context_window = 100000\nkeep = 5");
    let rules = || [compact(), capped(90_000)];
    let forced = plan_together(&rules(), &body(&messages), true);
    assert_eq!((ranges(&forced).len(), forced.cleared().count()), (4, 1));
    let later_plan = |messages: &[Value]| {
        let body = body(messages);
        let (request, identity) = (crate::dialect::chat::parse(body.as_bytes()).unwrap(), somebody());
        let mut transcript = Transcript::read(&request, body.as_bytes(), &identity, &NoMemo);
        transcript.overflows = vec![26];
        PolicySet::new(rules().to_vec()).read(&transcript).0
    };
    assert_eq!(messages.len(), 26);
    let more = [messages.clone(), vec![say("assistant", 10), say("user", 10)]].concat();
    for later in [&messages, &more] {
        let plan = later_plan(later);
        assert_eq!((plan.edits, plan.dropped), (forced.edits.clone(), forced.dropped.clone()));
    }
    let split = [messages, vec![say("user", 10)]].concat();
    assert_eq!(later_plan(&split).dropped, forced.dropped, "the client said more before it asked again");
}

#[test]
fn what_compaction_clears_is_not_dropped() {
    let compact = policy::<Compact>("context_window = 8000\ntrigger = 0.5\nkeep = 1\nmin_gain = 0");
    let plan = plan_together(&[compact, capped(5_000)], &body(&turns(12, 1_000)), false);
    assert!(ranges(&plan).is_empty());
    assert!(!plan.edits.is_empty());
}

#[test]
fn after_an_overflow_half_of_the_context_is_freed() {
    let messages = body(&turns(6, 1_000));
    assert_eq!(ranges(&plan_together(&[capped(90_000)], &messages, true)).len(), 4);
    let compact = policy::<Compact>("context_window = 100000\nkeep = 1");
    let plan = plan_together(&[compact, capped(90_000)], &messages, true);
    assert_eq!((ranges(&plan).len(), plan.edits.len()), (0, 5), "clearing was enough");
}

#[test]
fn settings_that_mean_nothing_are_refused() {
    let config = Config { share: 0.0, down_to: 2.0, context_window: 0, ..Config::default() };
    let keys: Vec<String> = History::new(config).err().unwrap().into_iter().map(|error| error.key).collect();
    assert_eq!(keys, ["share", "down_to", "context_window"]);
}

/// A stateless request of the Responses API: so many turns of a thousand tokens, with `sealed` in the turn `at`.
fn responses(count: usize, at: usize, sealed: &Value) -> String {
    let mut input = Vec::new();
    for turn in 0..count {
        input.push(say("user", 10));
        input.extend((turn == at).then(|| sealed.clone()));
        input.push(json!({"type": "function_call", "call_id": format!("c{turn}"), "name": "look", "arguments": "{}"}));
        let output = "word ".repeat(1_000);
        input.push(json!({"type": "function_call_output", "call_id": format!("c{turn}"), "output": output}));
        input.push(json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "so"}]}));
    }
    input.push(say("user", 10));
    json!({"model": "m", "input": input}).to_string()
}

#[test]
fn nothing_is_dropped_across_the_upstreams_own_record_of_what_came_before() {
    let rules = [capped(5_000)];
    let messages = |sealed: &Value| ranges(&plan_together(&rules, &responses(8, 2, sealed), false));
    let reasoning = json!({"type": "reasoning", "id": "rs_1", "summary": []});
    assert_eq!(messages(&reasoning)[0], 0..4, "a plain turn is dropped from the first one on");
    for kind in ["compaction", "program", "mcp_list_tools", "mcp_call"] {
        let dropped = messages(&json!({"type": kind, "id": "x_1"}));
        assert!(!dropped.is_empty(), "{kind}");
        assert!(dropped.iter().all(|range| range.start >= 12), "{kind}: {dropped:?}");
    }
}

#[test]
fn what_was_dropped_before_a_record_came_stays_dropped() {
    let rules = [capped(5_000)];
    let dropped = |count, at| {
        let sealed = json!({"type": "compaction", "id": "x_1", "encrypted_content": "e"});
        ranges(&plan_together(&rules, &responses(count, at, &sealed), false))
    };
    let before = dropped(6, 7);
    assert!(!before.is_empty());
    assert_eq!(dropped(8, 7)[..before.len()], before);
}
