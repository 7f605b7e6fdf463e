//! Transparency: what no policy changes reaches the upstream byte for byte, and where a policy acts only the spans
//! that it named change.

use super::generate::{Conversation, any_order, orderly};
use super::generate_messages;
use super::recordings::{Kind, own_messages, own_of};
use super::world::{Facts, Reading, SETS, guarded, lossy, low, policies, read, read_in, shipped};
use bytes::Bytes;
use dialects::variant::{Placement, Variant};
use dialects::{CHAT, MESSAGES};
use model::message::Content;
use model::plan::Change;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;

const PLACEMENTS: [Placement; 3] = [Placement::System, Placement::Suffix, Placement::Leading];

proptest! {
    #![proptest_config(crate::laws::with_cases(120))]

    #[test]
    fn a_request_that_no_policy_touched_is_sent_as_it_came(talk in any_order(), set in 0..SETS) {
        let reading = read(&talk.body(), policies(set), &Facts::default());
        if reading.plan.is_empty() {
            for placement in PLACEMENTS {
                prop_assert_eq!(reading.write(&Variant::plain(placement)), talk.body());
            }
        }
    }

    #[test]
    fn where_a_policy_acts_everything_else_stays_as_it_came(talk in any_order(), set in 1..3_usize) {
        let reading = read(&talk.body(), policies(set), &Facts::default());
        for placement in PLACEMENTS {
            only_named_spans_change(&reading, placement)?;
        }
    }

    #[test]
    fn a_request_of_the_messages_api_changes_only_where_a_policy_acts(
        talk in generate_messages::any_order(),
        set in 0..SETS,
    ) {
        let reading = read(&talk.body(), policies(set), &Facts::default());
        for placement in PLACEMENTS {
            if reading.plan.is_empty() {
                prop_assert_eq!(reading.write(&Variant::plain(placement)), talk.body());
            } else if (1..3).contains(&set) {
                only_named_spans_change(&reading, placement)?;
            }
        }
    }

    #[test]
    fn shortened_json_is_still_json(talk in orderly()) {
        let reading = read(&talk.body(), low(), &Facts::default());
        for edit in &reading.plan.edits {
            let Change::Shorten { text, by, gone_chars } = &edit.change else { continue };
            let place = reading.request.messages[edit.item.index].content.texts().nth(*text).unwrap();
            let original = wire::json::decode(place, &reading.body);
            prop_assert!(by.chars().count() <= 300 && *gone_chars > 0);
            let is_json = |text: &str| serde_json::from_str::<serde_json::Value>(text).is_ok();
            if is_json(&original) {
                prop_assert!(is_json(by), "{} became {}", original, by);
            }
        }
    }
}

#[test]
fn recorded_requests_are_touched_by_no_shipped_policy() {
    let of_messages = own_messages().into_iter().filter(|one| one.kind == Kind::Request);
    let all = own_of(Kind::Request).into_iter().map(|one| (CHAT, one));
    for (dialect, recording) in all.chain(of_messages.map(|one| (MESSAGES, one))) {
        let body = Bytes::from(recording.bytes);
        let reading = read_in(dialect, &body, shipped(), &Facts::default());
        assert_eq!(reading.plan.edits, [], "{}", recording.name);
        assert_eq!(reading.write(&Variant::plain(Placement::System)), body, "{}", recording.name);
    }
}

#[test]
fn the_generated_conversations_give_every_policy_something_to_do() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut shortened, mut noticed, mut untouched) = (0, 0, 0);
    for _ in 0..100 {
        let talk: Conversation = orderly().new_tree(&mut runner).unwrap().current();
        let edits = read(&talk.body(), low(), &Facts::default()).plan.edits;
        shortened += usize::from(edits.iter().any(|edit| matches!(edit.change, Change::Shorten { .. })));
        noticed += usize::from(edits.iter().any(|edit| matches!(edit.change, Change::Notice { .. })));
        untouched += usize::from(edits.is_empty());
    }
    assert!(shortened > 10 && noticed > 10 && untouched > 10, "{shortened} {noticed} {untouched}");
}

#[test]
fn the_guarded_sets_flag_clean_block_and_make_room() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut seen = std::collections::BTreeMap::new();
    for _ in 0..200 {
        let talk: Conversation = orderly().new_tree(&mut runner).unwrap().current();
        for set in guarded() {
            let facts = Facts { summaries: true, ..Facts::default() };
            let plan = read(&talk.body(), set, &facts).plan;
            for edit in &plan.edits {
                *seen.entry(edit.change.word().into_owned()).or_insert(0) += 1;
            }
            *seen.entry("declared".to_owned()).or_insert(0) += plan.declared.len();
            *seen.entry("dropped".to_owned()).or_insert(0) += plan.dropped.len();
        }
    }
    for word in
        ["annotated", "stripped", "text_blocked", "shortened", "cleared", "summarised", "declared", "dropped"]
    {
        assert!(seen.get(word).is_some_and(|count| *count > 2), "{word}: {seen:?}");
    }
}

/// Aligns what is sent with what came, by the slices of the original in it.
fn only_named_spans_change(reading: &Reading, placement: Placement) -> Result<(), TestCaseError> {
    let rope = reading.rope(&Variant::plain(placement));
    let base = reading.body.as_ptr() as usize;
    let mut at = 0;
    let mut gone = Vec::new();
    let mut added = Vec::new();
    for piece in rope.pieces() {
        let place = (piece.as_ptr() as usize).checked_sub(base).filter(|place| *place < reading.body.len());
        match place {
            Some(place) => {
                prop_assert!(place >= at, "a span of the original was moved");
                if place > at {
                    gone.push(at..place);
                }
                at = place + piece.len();
            }
            None => added.extend_from_slice(piece),
        }
    }
    prop_assert_eq!(at, reading.body.len(), "the end is missing");
    let named = replaceable(reading);
    for range in gone {
        prop_assert!(named.contains(&range), "{} is gone", lossy(&reading.body[range]));
    }
    prop_assert!(!reading.plan.edits.is_empty() || added.is_empty());
    Ok(())
}

/// The spans that edits may replace: texts to be shortened or hidden, and null content that gets a notice.
fn replaceable(reading: &Reading) -> Vec<std::ops::Range<usize>> {
    let spans = reading.plan.edits.iter().filter_map(|edit| {
        let content = &reading.request.messages[edit.item.index].content;
        match (&edit.change, content) {
            (Change::Shorten { text, .. } | Change::Point { text, .. } | Change::Hide { text, .. }, _) => {
                content.texts().nth(*text).map(|text| text.span.range())
            }
            (Change::Notice { .. }, Content::Null(span)) => Some(span.range()),
            _ => None,
        }
    });
    spans.collect()
}
