//! Cases of the cap on the history: which turns are dropped when, what stays, what the model reads about it.

use super::super::cases::{plan_of, plan_together, policy, read_knowing};
use super::super::compact::Compact;
use super::*;
use crate::set::Rule;
use model::message::Role;
use model::plan::Change;
use model::testing::{SampleItem, SampleRequest, assistant, call, reply, result, system, user};
use std::sync::Arc;

fn capped(tokens: u64) -> Arc<dyn Rule> {
    policy::<History>(&format!("max_tokens = {tokens}\ndown_to = 0.5"))
}

fn words(count: usize) -> String {
    "word ".repeat(count)
}

/// A turn of about `tokens` tokens, with a call.
fn turn(nth: usize, tokens: usize) -> [SampleItem; 4] {
    let id = format!("c{nth}");
    let looks = reply([call(&id, "look", "{}")]);
    [user(&words(10)), looks, result(&id, &words(tokens)), assistant(&words(10))]
}

/// So many turns of about `tokens` tokens, each with a call, after a system message.
fn turns(count: usize, tokens: usize) -> Vec<SampleItem> {
    let turns = (0..count).flat_map(|nth| turn(nth, tokens));
    std::iter::once(system(&words(10))).chain(turns).chain([user(&words(10))]).collect()
}

fn ranges(plan: &Plan) -> Vec<Range<usize>> {
    plan.dropped.iter().map(|dropped| dropped.messages.clone()).collect()
}

/// The positions and texts of notices.
fn notices(plan: &Plan) -> Vec<(usize, String)> {
    let notice = |edit: &model::plan::Edit| match &edit.change {
        Change::Notice { text, .. } => Some((edit.item.index, text.clone())),
        _ => None,
    };
    plan.edits.iter().filter_map(notice).collect()
}

#[test]
fn the_oldest_turns_are_dropped_whole_and_announced_by_one_notice() {
    let plan = plan_of(&capped(5_000), &SampleRequest::new(&turns(6, 1_000)));
    // Turns of a thousand and fifty tokens: in the fifth it is full, and two of them stay.
    assert_eq!(ranges(&plan), [1..5, 5..9, 9..13]);
    let shown = notices(&plan);
    assert_eq!((shown.len(), shown[0].0), (1, 13));
    assert!(
        shown[0].1.starts_with("[toolrein] The 3 oldest turns of this conversation (12 messages)"),
        "{shown:?}"
    );
    assert!(plan_of(&capped(9_000), &SampleRequest::new(&turns(6, 1_000))).is_empty());
}

#[test]
fn the_operators_texts_say_what_was_dropped() {
    let own = "max_tokens = 5000\ndown_to = 0.5\ntexts.dropped = \"{oldest} weg ({turns}, {messages}).\"\n\
               texts.one = \"Eine\"\ntexts.several = \"{turns} Runden\"";
    let shown = notices(&plan_of(&policy::<History>(own), &SampleRequest::new(&turns(6, 1_000))));
    assert_eq!(shown[0].1, "3 Runden weg (3, 12).");
}

#[test]
fn dropped_turns_stay_dropped_and_more_are_dropped_when_the_cap_is_reached_again() {
    let messages = turns(20, 1_000);
    let all = plan_of(&capped(5_000), &SampleRequest::new(&messages));
    let mut batches: Vec<usize> = all.dropped.iter().map(|dropped| dropped.decided).collect();
    batches.dedup();
    assert!((5..=9).contains(&batches.len()), "{batches:?}");
    for count in (1..messages.len()).filter(|count| messages[*count].role() == Role::Assistant) {
        let known = plan_of(&capped(5_000), &SampleRequest::new(&messages[..count]));
        let before = all.dropped.iter().filter(|dropped| dropped.decided <= count);
        assert_eq!(known.dropped, before.cloned().collect::<Vec<_>>(), "with {count} messages");
    }
    let last = notices(&all).pop().unwrap();
    assert!(last.1.contains(&format!("The {} oldest turns", all.dropped.len())), "{last:?}");
}

#[test]
fn system_messages_and_the_running_turn_stay() {
    let mut messages = turns(3, 2_000);
    messages.insert(3, system(&words(10)));
    let plan = plan_of(&capped(1_000), &SampleRequest::new(&messages));
    assert_eq!(ranges(&plan), [1..3, 4..6, 6..10, 10..14]);
    let running = [system(&words(5)), user(&words(5_000)), user(&words(5_000))];
    assert!(plan_of(&capped(1_000), &SampleRequest::new(&running)).is_empty());
}

#[test]
fn without_a_number_the_cap_is_a_share_of_the_context_window() {
    let with =
        |window: u32| policy::<History>(&format!("context_window = {window}\nshare = 0.5\ndown_to = 0.5"));
    assert!(plan_of(&with(20_000), &SampleRequest::new(&turns(6, 1_000))).is_empty());
    assert_eq!(ranges(&plan_of(&with(10_000), &SampleRequest::new(&turns(6, 1_000)))).len(), 3);
}

#[test]
fn a_cap_in_characters_drops_turns_whatever_the_tokens_are_and_stays() {
    let of = |chars: u64| policy::<History>(&format!("max_chars = {chars}\ndown_to = 0.5"));
    // Turns of five thousand characters and a hundred.
    let messages = turns(6, 1_000);
    assert!(plan_of(&of(35_000), &SampleRequest::new(&messages)).is_empty());
    let plan = plan_of(&of(25_000), &SampleRequest::new(&messages));
    assert_eq!(ranges(&plan), [1..5, 5..9, 9..13]);
    assert!(notices(&plan)[0].1.contains("The 3 oldest turns"), "{:?}", notices(&plan));
    for count in (1..messages.len()).filter(|count| messages[*count].role() == Role::Assistant) {
        let known = plan_of(&of(25_000), &SampleRequest::new(&messages[..count]));
        let before = plan.dropped.iter().filter(|dropped| dropped.decided <= count);
        assert_eq!(known.dropped, before.cloned().collect::<Vec<_>>(), "with {count} messages");
    }
}

#[test]
fn characters_are_counted_as_the_model_reads_them() {
    let of = |chars: u64| policy::<History>(&format!("max_chars = {chars}\ndown_to = 0.5"));
    // Sixty-six characters each: two with escapes, one of more bytes.
    for text in ["\n\"\u{1}".repeat(22), "é".repeat(66), "\u{1f600}".repeat(66)] {
        let messages = [user(&text), assistant("ok"), user(&text), assistant("ok"), user("q")];
        let request = SampleRequest::new(&messages);
        assert!(plan_of(&of(138), &request).is_empty(), "{text}");
        assert!(!plan_of(&of(136), &request).is_empty(), "{text}");
    }
}

#[test]
fn what_was_dropped_for_a_request_that_was_too_long_is_dropped_for_later_ones() {
    let messages = turns(6, 1_000);
    let compact = || policy::<Compact>("context_window = 100000\nkeep = 5");
    let rules = || [compact(), capped(90_000)];
    let forced = plan_together(&rules(), &SampleRequest::new(&messages), true);
    assert_eq!((ranges(&forced).len(), forced.cleared().count()), (4, 1));
    let later_plan = |messages: &[SampleItem]| {
        let request = SampleRequest::new(messages);
        read_knowing(&rules(), &request, |transcript| transcript.overflows = vec![26]).0
    };
    assert_eq!(messages.len(), 26);
    let more = [messages.clone(), vec![assistant(&words(10)), user(&words(10))]].concat();
    for later in [&messages, &more] {
        let plan = later_plan(later);
        assert_eq!((plan.edits, plan.dropped), (forced.edits.clone(), forced.dropped.clone()));
    }
    let split = [messages, vec![user(&words(10))]].concat();
    assert_eq!(later_plan(&split).dropped, forced.dropped, "the client said more before it asked again");
}

#[test]
fn what_compaction_clears_is_not_dropped() {
    let compact = policy::<Compact>("context_window = 8000\ntrigger = 0.5\nkeep = 1\nmin_gain = 0");
    let plan = plan_together(&[compact, capped(5_000)], &SampleRequest::new(&turns(12, 1_000)), false);
    assert!(ranges(&plan).is_empty());
    assert!(!plan.edits.is_empty());
}

#[test]
fn after_an_overflow_half_of_the_context_is_freed() {
    let request = SampleRequest::new(&turns(6, 1_000));
    assert_eq!(ranges(&plan_together(&[capped(90_000)], &request, true)).len(), 4);
    let compact = policy::<Compact>("context_window = 100000\nkeep = 1");
    let plan = plan_together(&[compact, capped(90_000)], &request, true);
    assert_eq!((ranges(&plan).len(), plan.edits.len()), (0, 5), "clearing was enough");
}

#[test]
fn settings_that_mean_nothing_are_refused() {
    let config = Config { share: 0.0, down_to: 2.0, context_window: 0, ..Config::default() };
    let keys: Vec<String> = History::new(config).err().unwrap().into_iter().map(|error| error.key).collect();
    assert_eq!(keys, ["share", "down_to", "context_window"]);
}

/// The turns dropped of so many of a thousand tokens; the call of the turn `sealed` comes with the upstream's own record
/// of what came before.
fn dropped_around(count: usize, sealed: Option<usize>) -> Vec<Range<usize>> {
    let mut messages: Vec<SampleItem> = (0..count).flat_map(|nth| turn(nth, 1_000)).collect();
    messages.push(user(&words(10)));
    if let Some(nth) = sealed {
        messages[4 * nth + 1] = messages[4 * nth + 1].clone().sealing();
    }
    ranges(&plan_of(&capped(5_000), &SampleRequest::new(&messages)))
}

#[test]
fn nothing_is_dropped_across_the_upstreams_own_record_of_what_came_before() {
    assert_eq!(dropped_around(8, None)[0], 0..4, "a plain turn is dropped from the first one on");
    let dropped = dropped_around(8, Some(2));
    assert!(!dropped.is_empty());
    assert!(dropped.iter().all(|range| range.start >= 12), "{dropped:?}");
}

#[test]
fn what_was_dropped_before_a_record_came_stays_dropped() {
    let before = dropped_around(6, None);
    assert!(!before.is_empty());
    assert_eq!(dropped_around(8, Some(7))[..before.len()], before);
}
