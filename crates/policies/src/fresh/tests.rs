//! Cases of `fresh`, and the same verdicts as a plain reference.

use super::super::cases::{Conversation, policy};
use super::super::scenario::{
    NOW_MS, Step, call_at, calls, marking, passes, problem, random, random_reply, read, user, verdicts,
};
use super::*;
use model::plan::{Change, Reason, ReasonKind};
use model::testing::{self, SampleRequest};
use proptest::prelude::*;

const C1: &str = r#"{"card_id":"c1"}"#;
const C2: &str = r#"{"card_id":"c2"}"#;

/// The rule of the tutoring flow, with further keys.
fn rule(further: &str) -> String {
    format!(
        "rules = [{{ tool = \"award\", argument = \"card_id\", from = \"show\", path = \"card.id\"{further} }}]"
    )
}

fn card(id: &str) -> String {
    format!(r#"{{"card":{{"id":"{id}","text":"?"}}}}"#)
}

fn shown(id: &str) -> Step {
    calls(&[("show", "{}", &card(id))])
}

fn asked(result: &str) -> Step {
    calls(&[("search", "{}", result)])
}

fn may_award(table: &str, scenario: &[Step], arguments: &str) -> bool {
    passes::<Fresh>(table, scenario, &[("award", arguments)])[0]
}

fn reason(table: &str, scenario: &[Step], arguments: &str) -> Reason {
    verdicts::<Fresh>(table, scenario, &[("award", arguments)]).remove(0).unwrap()
}

#[test]
fn an_argument_must_be_the_newest_value() {
    for (what, scenario, arguments, allowed) in [
        ("the newest", vec![user("q"), shown("c1")], C1, true),
        ("one before it", vec![user("q"), shown("c1"), shown("c2")], C1, false),
        ("the newest of two", vec![user("q"), shown("c1"), shown("c2")], C2, true),
        ("made up", vec![user("q"), shown("c1")], r#"{"card_id":"c7"}"#, false),
        ("given by another tool", vec![user("q"), shown("c1"), asked(&card("c2"))], C2, false),
        (
            "then the source failed",
            vec![user("q"), shown("c1"), calls(&[("show", "{}", "Error: none")])],
            C1,
            true,
        ),
        ("then it gave no value", vec![user("q"), shown("c1"), calls(&[("show", "{}", "{}")])], C1, true),
        (
            "an earlier turn",
            vec![user("q"), shown("c1"), super::super::scenario::says("?"), user("x")],
            C1,
            true,
        ),
        ("not given at all", vec![user("q"), shown("c1")], r#"{"points":3}"#, true),
        ("null", vec![user("q"), shown("c1")], r#"{"card_id":null}"#, true),
    ] {
        assert_eq!(may_award(&rule(""), &scenario, arguments), allowed, "{what}");
    }
}

#[test]
fn an_argument_may_be_any_of_the_newest_values_of_one_reply() {
    let table =
        "rules = [{ tool = \"open*\", argument = \"ids[*]\", from = \"list\", path = \"hits[*].id\" }]";
    let list = |ids: &str| calls(&[("list", "{}", &format!(r#"{{"hits":[{ids}]}}"#))]);
    let both = calls(&[
        ("list", "{}", r#"{"hits":[{"id":1}]}"#),
        ("list", r#"{"more":1}"#, r#"{"hits":[{"id":2}]}"#),
    ]);
    for (scenario, ids, allowed) in [
        (vec![list(r#"{"id":1},{"id":"2"}"#)], r#"["1",2]"#, true),
        (vec![list(r#"{"id":1},{"id":"2"}"#)], "[1,3]", false),
        (vec![list(r#"{"id":1}"#), list(r#"{"id":2}"#)], "[1]", false),
        (vec![both], "[1,2]", true),
    ] {
        let arguments = format!(r#"{{"ids":{ids}}}"#);
        assert_eq!(passes::<Fresh>(table, &scenario, &[("open_all", &arguments)]), [allowed], "{ids}");
    }
}

#[test]
fn a_source_called_in_the_same_reply_must_answer_first() {
    let scenario = [user("q"), shown("c1")];
    let reply = [("award", C1), ("show", "{}"), ("award", C1), ("search", C1)];
    let verdicts = verdicts::<Fresh>(&rule(""), &scenario, &reply);
    assert_eq!(verdicts.iter().map(Option::is_none).collect::<Vec<_>>(), [true, true, false, true]);
    let reason = verdicts[2].as_ref().unwrap();
    assert!(reason.retryable && reason.message.contains("Call award again when you have it"), "{reason:?}");
}

#[test]
fn without_any_value_yet_the_model_must_call_the_source_first() {
    let scenarios = [vec![user("q")], vec![user("q"), calls(&[("show", "{}", "Error: no cards")])]];
    for scenario in scenarios {
        let reason = reason(&rule(""), &scenario, C1);
        assert_eq!((reason.kind, reason.retryable), (ReasonKind::StaleReference, true));
        assert!(
            reason.message.ends_with("no result of it has given one yet. Call show first."),
            "{reason:?}"
        );
        assert!(may_award(&format!("unknown = \"pass\"\n{}", rule("")), &scenario, C1));
    }
}

#[test]
fn a_value_becomes_stale_after_too_many_calls() {
    let table = rule(", max_calls = 2");
    let scenario = |calls: usize| {
        let mut scenario = vec![user("q"), shown("c1")];
        scenario.extend((0..calls).map(|_| asked("x")));
        scenario
    };
    assert!(may_award(&table, &scenario(2), C1));
    assert_eq!(reason(&table, &scenario(3), C1).numbers, [("calls_since", 3), ("max_calls", 2)]);
    let reply = [("search", "{}"), ("award", C1), ("search", "{}"), ("award", C1)];
    assert_eq!(
        passes::<Fresh>(&table, &scenario(1), &reply),
        [true, true, true, false],
        "those of this reply too"
    );
    let beside =
        [user("q"), calls(&[("show", "{}", &card("c1")), ("a", "{}", ""), ("b", "{}", ""), ("c", "{}", "")])];
    assert!(!may_award(&table, &beside, C1), "later calls of its own reply count");
}

#[test]
fn a_value_becomes_stale_with_time_and_one_of_unknown_time_is_stale() {
    let table = rule(", max_age = \"10s\"");
    let at = |released_ms| [user("q"), call_at(("show", "{}", &card("c1")), released_ms)];
    assert!(may_award(&table, &at(NOW_MS - 10_000), C1));
    let old = reason(&table, &at(NOW_MS - 10_001), C1);
    assert_eq!(old.numbers, [("age_ms", 10_001), ("max_age_ms", 10_000)]);
    assert!(old.message.contains("older than 10s. Call show again"), "{}", old.message);
    assert_eq!(reason(&table, &[user("q"), shown("c1")], C1).numbers, [("max_age_ms", 10_000)]);
}

#[test]
fn a_call_with_a_value_that_is_later_than_expected_runs_and_is_reported_with_its_result() {
    let table = rule(", late = \"30s\"");
    for (later, arguments, reported) in
        [(30_000, C1, false), (30_001, C1, true), (90_000, C1, true), (90_000, "{}", false)]
    {
        let before = [user("q"), call_at(("show", "{}", &card("c1")), 1_000)];
        assert!(may_award(&table, &before, arguments), "{later}");
        let [question, show] = before;
        let scenario = [question, show, call_at(("award", arguments, "ok"), 1_000 + later)];
        let plan = read(&[policy::<Fresh>(&table)], &scenario).0;
        let remarks = plan.edits.iter().filter(|edit| {
            matches!(edit.change, model::plan::Change::Remark { word: "late", .. }) && edit.item.index == 4
        });
        assert_eq!(remarks.count(), usize::from(reported), "{later} {arguments}");
    }
}

#[test]
fn the_model_reads_what_is_current() {
    let stale = reason(&rule(""), &[user("q"), shown("c1"), shown("c2")], C1);
    let expected = "card_id is \"c1\", but show last gave \"c2\". Use what is current, or call show again.";
    assert!(stale.message.ends_with(expected), "{}", stale.message);
    let table = "rules = [{ tool = \"award\", argument = \"card_id\", from = \"show\", path = \"[*]\" }]";
    let many = calls(&[("show", "{}", "[1,2,3,4,5,6,7]")]);
    let message = reason(table, &[many], C1).message;
    assert!(message.contains(r#"last gave "1", "2", "3", "4", "5" and 2 more"#), "{message}");
    let long = format!("[\"{}\"]", "x".repeat(500));
    let message = reason(table, &[calls(&[("show", "{}", &long)])], C1).message;
    assert!(message.contains("xxx...\"") && message.len() < 400, "{message}");
}

#[test]
fn what_was_kept_from_the_model_is_not_quoted() {
    let hides =
        marking("c2", |plan| plan.edit(Change::BlockText { text: 0, by: "gone".into(), gone_chars: 6 }));
    let mut judge = read(&[hides, policy::<Fresh>(&rule(""))], &[user("q"), shown("c2")]).1;
    let reason = judge.rule(0, "award", Some(C1), NOW_MS).objections.remove(0).1;
    assert!(reason.message.contains("that is not what show gave last"), "{}", reason.message);
}

#[test]
fn every_rule_must_hold_and_other_tools_are_not_looked_at() {
    let table = "rules = [
        { tool = \"award\", argument = \"card_id\", from = \"show\", path = \"card.id\" },
        { tool = \"a*\", argument = \"round\", from = \"start\", path = \"round\" },
    ]";
    let scenario = [user("q"), shown("c1"), calls(&[("start", "{}", "{\"round\":3}")])];
    for (arguments, allowed) in [
        (r#"{"card_id":"c1","round":3}"#, true),
        (r#"{"card_id":"c1","round":2}"#, false),
        (r#"{"card_id":"c2","round":3}"#, false),
    ] {
        assert_eq!(may_award(table, &scenario, arguments), allowed, "{arguments}");
    }
    let mut judge = read(&[policy::<Fresh>(table)], &scenario).1;
    assert!(judge.needs_arguments(0, "ask") && !judge.needs_arguments(0, "show"));
}

#[test]
fn incomplete_rules_are_refused_with_their_number() {
    let wrong = "rules = [
        { tool = \"a\", argument = \"x\", from = \"b\", path = \"y\" },
        { tool = \"a\", argument = \"\", from = \"\", path = \"y\" },
    ]";
    assert_eq!(
        problem::<Fresh>(wrong),
        "rules: rule 2: from: expected a name or a pattern, found an empty one"
    );
}

/// The values of the newest reply that gave any, and the calls since.
fn newest(scenario: &[Step]) -> Option<(Vec<&'static str>, u64)> {
    let value = |text: &str| ["c1", "c2"].into_iter().find(|id| text == card(id));
    let mut since = 0;
    for step in scenario.iter().rev() {
        let Step::Calls(made) = step else { continue };
        let mut values = Vec::new();
        let mut after = None;
        for (at, call) in made.iter().enumerate() {
            if let Some(id) = call.result.as_deref().and_then(value).filter(|_| call.tool == "show") {
                values.push(id);
                after = Some((made.len() - at - 1) as u64);
            }
        }
        if let Some(after) = after {
            return Some((values, since + after));
        }
        since += made.len() as u64;
    }
    None
}

proptest! {
    #[test]
    fn random_conversations_get_the_verdicts_of_a_plain_search(
        scenario in random(
            &["show", "search", "award"],
            &["{}"],
            &["Error: no", r#"{"card":{"id":"c1","text":"?"}}"#, r#"{"card":{"id":"c2","text":"?"}}"#, "{}"],
        ),
        reply in random_reply(&["show", "award", "search"], &[C1, C2]),
        max_calls in 0..4u64,
    ) {
        let mut made = 0;
        let mut coming = false;
        let mut expected = Vec::new();
        for (tool, arguments) in &reply {
            let allowed = *tool != "award" || newest(&scenario).is_some_and(|(values, since)| {
                let is_newest = values.iter().any(|id| arguments.contains(id));
                is_newest && !coming && (max_calls == 0 || since + made <= max_calls)
            });
            made += u64::from(allowed);
            coming |= *tool == "show";
            expected.push(allowed);
        }
        let table = rule(&format!(", max_calls = {max_calls}"));
        prop_assert_eq!(passes::<Fresh>(&table, &scenario, &reply), expected, "{:?}", scenario);
    }
}

/// A conversation with this system message, in which the source gave this, if anything.
fn request_with(system: &str, given: Option<&str>) -> SampleRequest {
    let mut messages = vec![testing::system(system), testing::user("Award card c9!")];
    if let Some(given) = given {
        messages.extend([testing::reply([testing::call("s", "show", "{}")]), testing::result("s", given)]);
    }
    SampleRequest::new(&messages)
}

#[test]
fn before_any_result_a_value_named_by_the_system_messages_is_accepted() {
    let table = format!("{}\nunknown = \"named\"", rule(""));
    let both = "rules = [{ tool = \"award\", argument = \"card_id\", from = \"show\", path = \"card.id\" }, \
                { tool = \"award\", argument = \"card_id\", from = \"show\", path = \"card_id\" }]\nunknown = \"named\"";
    for (what, table, system, given, arguments, allowed) in [
        ("named", table.as_str(), "Card c1 is on the table.", None, C1, true),
        ("named in quotes", &table, "The card is \"c1\".", None, C1, true),
        ("a number", &table, "Card 17.", None, r#"{"card_id":17}"#, true),
        ("not named", &table, "Card c1 is on the table.", None, C2, false),
        ("named by the user alone", &table, "Teach.", None, r#"{"card_id":"c9"}"#, false),
        ("part of a longer name", &table, "Cards c10, xc1 and c1-b.", None, C1, false),
        ("no argument", &table, "Teach.", None, "{}", true),
        ("a result has named another", &table, "Card c1.", Some(r#"{"card":{"id":"c2"}}"#), C1, false),
        ("a result has named it", &table, "Card c1.", Some(r#"{"card":{"id":"c2"}}"#), C2, true),
        ("a result in another form", both, "Card c1.", Some(r#"{"card_id":"c2"}"#), C2, true),
        ("stale by a result in another form", both, "Card c1.", Some(r#"{"card_id":"c2"}"#), C1, false),
    ] {
        let mut conversation = Conversation::over(&policy::<Fresh>(table), &request_with(system, given));
        let ruling = conversation.judge("award", arguments, NOW_MS);
        assert_eq!(ruling.is_allowed(), allowed, "{what}");
        if what == "not named" {
            let message = &ruling.objections[0].1.message;
            assert!(
                message
                    .contains("card_id is \"c2\", which neither a result of show nor the instructions name")
            );
        }
    }
}
