//! Cases of `serial`, and the same verdicts as a plain reference.

use super::super::cases::{Conversation, declaring, plan_of, policy};
use super::super::scenario::{calls, passes, problem, random, random_reply, user, verdicts};
use super::*;
use model::plan::ReasonKind;
use proptest::prelude::*;

const CARDS: &str = "tools = [\"*card*\", \"award\"]";

#[test]
fn the_first_of_parallel_calls_passes_and_the_others_are_to_be_made_later() {
    for (reply, expected) in [
        (vec!["show_card", "award"], vec![true, false]),
        (vec!["award", "award", "show_card"], vec![true, false, false]),
        (vec!["search", "show_card", "search", "award"], vec![true, true, true, false]),
        (vec!["search", "search"], vec![true, true]),
    ] {
        let reply: Vec<(&str, &str)> = reply.into_iter().map(|tool| (tool, "{}")).collect();
        assert_eq!(passes::<Serial>(CARDS, &[user("q")], &reply), expected, "{reply:?}");
    }
    let reply = [("show_card", "{}"), ("award", "{}")];
    let reason = verdicts::<Serial>(CARDS, &[user("q")], &reply).remove(1).unwrap();
    assert_eq!((reason.kind, reason.retryable), (ReasonKind::TurnLocked, true));
    assert!(reason.message.contains("your call of show_card comes before it"), "{}", reason.message);
    assert!(reason.message.ends_with("Call it again when you have the result."));
}

#[test]
fn the_serial_lock_applies_per_reply_and_per_choice() {
    let scenario = [user("q"), calls(&[("award", "{}", "ok"), ("show_card", "{}", "c2")])];
    assert_eq!(passes::<Serial>("", &scenario, &[("award", "{}")]), [true]);
    let mut judge = super::super::scenario::read(&[policy::<Serial>("")], &scenario).1;
    assert!(judge.rule(0, "award", None, 0).is_allowed());
    assert!(judge.rule(1, "award", None, 0).is_allowed());
    assert!(!judge.rule(0, "award", None, 0).is_allowed());
}

#[test]
fn one_call_at_a_time_is_asked_for_where_every_declared_tool_is_serial() {
    for (table, tools, asked) in [
        ("", vec!["a", "b"], true),
        (CARDS, vec!["show_card", "award"], true),
        (CARDS, vec!["show_card", "search"], false),
        ("", vec![], false),
    ] {
        let tools: Vec<(&str, &str)> = tools.into_iter().map(|name| (name, "{}")).collect();
        let plan = plan_of(&policy::<Serial>(table), &declaring(&tools));
        assert_eq!(plan.one_at_a_time, asked, "{table} {tools:?}");
        assert!(plan.edits.is_empty() && plan.hidden.is_empty());
    }
}

#[test]
fn serial_ignores_other_tools_and_refuses_an_empty_name() {
    let mut talk = Conversation::new(&policy::<Serial>(CARDS));
    assert!(["search", "search"].iter().all(|tool| talk.judge(tool, "{}", 0).is_allowed()));
    assert!(!talk.needs_arguments("award"));
    assert_eq!(problem::<Serial>("tools = [\"\"]"), "tools: expected names or patterns, found an empty one");
}

proptest! {
    #[test]
    fn exactly_the_first_serial_call_of_a_reply_passes_whatever_was_before(
        scenario in random(&["award", "search"], &["{}"], &["ok", "Error: no"]),
        reply in random_reply(&["award", "show_card", "search"], &["{}"]),
    ) {
        let mut locked = false;
        let expected: Vec<bool> = reply
            .iter()
            .map(|(tool, _)| *tool == "search" || !std::mem::replace(&mut locked, true))
            .collect();
        prop_assert_eq!(passes::<Serial>(CARDS, &scenario, &reply), expected);
    }
}
