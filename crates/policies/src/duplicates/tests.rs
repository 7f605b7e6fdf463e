//! Cases of `duplicates`, and the same verdicts as a plain reference.

use super::super::cases::{built, policy, read_all};
use super::super::scenario::{
    Made, NOW_MS, Step, call_at, calls, items, marking, passes, problem, random, random_reply, read, says,
    turns, user, verdicts,
};
use super::*;
use crate::set::{Judge, Rule};
use model::plan::work::assert_linear;
use model::plan::{Change, ReasonKind};
use model::testing::SampleRequest;
use proptest::prelude::*;

const ON: &str = "tools = [\"pay*\"]";
const ONE: &str = r#"{"to":"ann","sum":5}"#;
const ONE_RESPELLED: &str = r#"{ "sum" : 5, "to":"\u0061nn" }"#;
const TWO: &str = r#"{"to":"bob","sum":5}"#;

fn paid(result: &str) -> Step {
    calls(&[("pay", ONE, result)])
}

fn may_pay(table: &str, scenario: &[Step], arguments: &str) -> bool {
    passes::<Duplicates>(table, scenario, &[("pay", arguments)])[0]
}

#[test]
fn as_shipped_actions_are_found_behind_the_name_of_their_service_and_what_looks_is_none() {
    let repeats = |tool: &'static str| {
        let scenario = [user("q"), calls(&[(tool, ONE, "done")])];
        passes::<Duplicates>("", &scenario, &[(tool, ONE)])[0]
    };
    for tool in ["create_order", "calendar_create_event", "gmail_send_message", "kb.send", "pay", "mail_send"]
    {
        assert!(!repeats(tool), "{tool}");
    }
    for tool in ["get_order", "check_payment", "list_orders", "kb_search", "get_sender", "find_books"] {
        assert!(repeats(tool), "{tool}");
    }
}

#[test]
fn a_successful_call_is_not_repeated_and_a_failed_one_may_be_retried() {
    for (what, scenario, arguments, allowed) in [
        ("never done", vec![user("q")], ONE, true),
        ("done", vec![user("q"), paid("ok")], ONE, false),
        ("done, written otherwise", vec![user("q"), paid("ok")], ONE_RESPELLED, false),
        ("done with an empty result", vec![user("q"), paid("")], ONE, false),
        ("done to somebody else", vec![user("q"), paid("ok")], TWO, true),
        ("failed", vec![user("q"), paid("Error: no route")], ONE, true),
        ("failed in JSON", vec![user("q"), paid(r#"{"ok":false}"#)], ONE, true),
        ("failed, then done", vec![user("q"), paid("Error: no"), paid("ok")], ONE, false),
        ("done, then failed", vec![user("q"), paid("ok"), paid("Error: no")], ONE, false),
        ("done in an earlier turn", vec![user("q"), paid("ok"), says("Paid."), user("more")], ONE, false),
        ("another tool", vec![user("q"), calls(&[("pay_back", ONE, "ok")])], ONE, true),
    ] {
        assert_eq!(may_pay(ON, &scenario, arguments), allowed, "{what}");
    }
}

#[test]
fn a_call_that_nobody_answered_may_be_made_again_in_a_later_reply() {
    let Step::Calls(mut made) = paid("") else { unreachable!() };
    made[0].result = None;
    assert!(may_pay(ON, &[user("q"), Step::Calls(made), says("Hm."), user("and?")], ONE));
}

#[test]
fn the_same_call_twice_in_one_reply_is_made_once() {
    let reply = [("pay", ONE), ("pay", TWO), ("pay", ONE_RESPELLED), ("search", ONE), ("search", ONE)];
    let verdicts = verdicts::<Duplicates>(ON, &[user("q")], &reply);
    let allowed: Vec<bool> = verdicts.iter().map(Option::is_none).collect();
    assert_eq!(allowed, [true, true, false, true, true]);
    let message = &verdicts[2].as_ref().unwrap().message;
    assert!(message.contains("comes before it in the same reply"), "{message}");
}

#[test]
fn key_arguments_alone_say_what_a_call_does() {
    let table = "tools = []\nkeys = { create_order = [\"order.id\"], \"note*\" = [\"a\", \"b\"] }";
    for (earlier, now, allowed) in [
        (r#"{"order":{"id":7},"note":"x"}"#, r#"{"order":{"id":7},"note":"y"}"#, false),
        (r#"{"order":{"id":7}}"#, r#"{"order":{"id":"7"}}"#, false),
        (r#"{"order":{"id":7}}"#, r#"{"order":{"id":8}}"#, true),
        (r#"{"order":{"id":7}}"#, r#"{"note":"x"}"#, true),
        (r#"{"note":"x"}"#, r#"{"note":"x"}"#, false),
        (r#"{"note":"x"}"#, r#"{"note":"y"}"#, true),
        ("not json", "not json", false),
    ] {
        let scenario = [user("q"), calls(&[("create_order", earlier, "made")])];
        let found = passes::<Duplicates>(table, &scenario, &[("create_order", now)]);
        assert_eq!(found, [allowed], "{earlier} {now}");
    }
    let scenario = [user("q"), calls(&[("note_down", r#"{"a":1,"b":2}"#, "ok")])];
    let reply = [("note_down", r#"{"a":2,"b":1}"#), ("note_down", r#"{"b":2,"a":1,"c":3}"#)];
    assert_eq!(passes::<Duplicates>(table, &scenario, &reply), [true, false]);
    let reason = verdicts::<Duplicates>(table, &scenario, &reply[1..]).remove(0).unwrap();
    assert!(reason.message.contains("with the same a, b before"), "{}", reason.message);
}

#[test]
fn a_success_counts_within_its_window_and_one_of_unknown_time_in_its_turn() {
    let table = "tools = [\"pay\"]\nwindow = \"60s\"";
    let at = |released_ms| call_at(("pay", ONE, "ok"), released_ms);
    for (what, scenario, allowed) in [
        ("just inside", vec![user("q"), at(NOW_MS - 59_999)], false),
        ("just outside", vec![user("q"), at(NOW_MS - 60_000)], true),
        ("outside, then inside", vec![user("q"), at(1), at(NOW_MS - 5)], false),
        ("unknown, this turn", vec![user("q"), paid("ok")], false),
        ("unknown, an earlier turn", vec![user("q"), paid("ok"), says("Paid."), user("more")], true),
        ("inside, an earlier turn", vec![user("q"), at(NOW_MS - 5), says("Paid."), user("more")], false),
        ("a clock that ran backwards", vec![user("q"), at(NOW_MS + 500_000)], false),
    ] {
        assert_eq!(may_pay(table, &scenario, ONE), allowed, "{what}");
    }
}

#[test]
fn the_model_reads_the_earlier_result_or_the_head_of_a_long_one() {
    let long = "x".repeat(700);
    for (result, quoted) in [
        ("receipt 17", "Its result was: receipt 17"),
        (" ", "Its result was empty."),
        (&long, "x... [200 more characters]"),
    ] {
        let scenario = [user("q"), paid("Error: no"), paid(result)];
        let reason = verdicts::<Duplicates>(ON, &scenario, &[("pay", ONE)]).remove(0).unwrap();
        assert_eq!((reason.kind, reason.retryable), (ReasonKind::Duplicate, false));
        assert_eq!(reason.numbers, [("earlier_calls", 1)]);
        assert!(reason.message.ends_with(quoted), "{}", reason.message);
        assert!(reason.message.chars().count() < 800);
    }
}

#[test]
fn a_result_that_was_kept_from_the_model_is_not_quoted() {
    let hides =
        marking("secret", |plan| plan.edit(Change::BlockText { text: 0, by: "gone".into(), gone_chars: 6 }));
    let notes = marking("secret", |plan| plan.remark("flagged"));
    let scenario = [user("q"), paid("the secret word")];
    for (before, quoted) in [(hides, false), (notes, true)] {
        let mut judge = read(&[before, policy::<Duplicates>(ON)], &scenario).1;
        let reason = judge.rule(0, "pay", Some(ONE), NOW_MS).objections.remove(0).1;
        assert_eq!(reason.message.contains("secret"), quoted, "{}", reason.message);
    }
}

/// What a call of `tool` is answered with, if it is.
fn answer(table: &str, scenario: &[Step], released: &[&str], tool: &str) -> Option<String> {
    let rule = policy::<Duplicates>(table);
    let mut judge = read(&[rule], scenario).1;
    for tool in released {
        assert!(judge.rule(0, tool, Some("{}"), NOW_MS).is_allowed());
    }
    judge.rule(0, tool, Some(ONE), NOW_MS).answer.map(|(_, text)| text)
}

#[test]
fn retrieval_is_answered_from_the_earlier_result_while_nothing_can_have_changed_it() {
    let table = "tools = [\"pay\"]\nretrieval = [\"read*\"]";
    let read = |result| calls(&[("read", ONE, result)]);
    let long = "x".repeat(LONGEST_ANSWER + 1);
    for (what, scenario, released, expected) in [
        ("read before", vec![user("q"), read("five")], vec![], Some("five")),
        ("read twice before", vec![user("q"), read("five"), read("six")], vec![], Some("six")),
        (
            "other reading between",
            vec![user("q"), read("five"), calls(&[("read_all", "{}", "1")])],
            vec![],
            Some("five"),
        ),
        ("never read", vec![user("q")], vec![], None),
        ("failed", vec![user("q"), read("Error: no")], vec![], None),
        ("empty", vec![user("q"), read(" ")], vec![], None),
        ("long", vec![user("q"), read(&long)], vec![], None),
        ("an earlier turn", vec![user("q"), read("five"), says("5"), user("again")], vec![], None),
        ("an action between", vec![user("q"), read("five"), paid("ok")], vec![], None),
        (
            "any other tool between",
            vec![user("q"), read("five"), calls(&[("write", "{}", "ok")])],
            vec![],
            None,
        ),
        (
            "an action beside it",
            vec![user("q"), calls(&[("read", ONE, "five"), ("pay", TWO, "ok")])],
            vec![],
            None,
        ),
        ("an action before it in the reply", vec![user("q"), read("five")], vec!["pay"], None),
        ("reading before it in the reply", vec![user("q"), read("five")], vec!["read_all"], Some("five")),
    ] {
        assert_eq!(answer(table, &scenario, &released, "read").as_deref(), expected, "{what}");
    }
    assert_eq!(answer("tools = [\"pay\"]", &[user("q"), read("five")], &[], "read"), None, "off as shipped");
}

#[test]
fn settings_that_contradict_themselves_are_refused() {
    for (table, expected) in [
        ("tools = [\"\"]", "tools: expected names or patterns, found an empty one"),
        ("tools = [\"a\"]\nretrieval = [\"a\"]", "retrieval: `a` is in `tools` as well"),
        ("keys = { a = [] }", "keys.a: expected at least one argument"),
        ("checks = { a = [] }", "checks.a: expected at least one tool"),
        ("checks = { a = [\"\"] }", "checks.a: expected names or patterns, found an empty one"),
        (
            "texts = { verify = \"{cheks}\" }",
            "texts.verify: there is no placeholder {cheks} in this text; expected {tool}, {keys}, {checks}",
        ),
        (
            "keys = { a = [\"b..c\"] }",
            "keys.a: expected a path such as \"card.id\" or \"cards[*].id\", found \"b..c\"",
        ),
    ] {
        assert_eq!(problem::<Duplicates>(table), expected);
    }
}

/// Whether `now` repeats one of `earlier`, found by comparing it with each.
fn repeats(earlier: &[(usize, &Made)], turn: usize, now: (&str, &str), window_ms: u64) -> bool {
    let canonical = |text: &str| wire::json::canonical(text.as_bytes());
    earlier.iter().any(|(of_turn, call)| {
        let same = call.tool == now.0 && canonical(&call.arguments) == canonical(now.1);
        let succeeded = call.result.as_ref().is_some_and(|text| !text.starts_with("Error"));
        let recent =
            window_ms == 0 || call.released_ms.map_or(*of_turn == turn, |at| NOW_MS - at < window_ms);
        same && succeeded && recent
    })
}

proptest! {
    #[test]
    fn random_conversations_get_the_verdicts_of_a_plain_search(
        scenario in random(&["pay", "pay_back", "search"], &[ONE, ONE_RESPELLED, TWO], &["ok", "Error: no", ""]),
        reply in random_reply(&["pay", "search"], &[ONE, ONE_RESPELLED, TWO]),
        window in prop::sample::select(&[0u64, 1, 500][..]),
    ) {
        // A reply at the very end that was not answered in full is not judged again.
        let mut scenario = scenario;
        if matches!(scenario.last(), Some(Step::Calls(made)) if made.iter().any(|call| call.result.is_none())) {
            scenario.push(says("Hm."));
        }
        let of_step = turns(&scenario);
        let turn = of_step.last().copied().unwrap_or(0);
        let made = scenario.iter().zip(&of_step).filter_map(|(step, turn)| match step {
            Step::Calls(made) => Some(made.iter().map(|call| (*turn, call))),
            _ => None,
        });
        let earlier: Vec<(usize, &Made)> = made.flatten().collect();
        let mut released: Vec<Vec<u8>> = Vec::new();
        let expected: Vec<bool> = reply
            .iter()
            .map(|(tool, arguments)| {
                let name = wire::json::canonical(arguments.as_bytes());
                let again = repeats(&earlier, turn, (tool, arguments), window * 1000) || released.contains(&name);
                let allowed = *tool == "search" || !again;
                released.extend((*tool == "pay" && allowed).then_some(name));
                allowed
            })
            .collect();
        let table = format!("{ON}\nwindow = \"{window}s\"");
        prop_assert_eq!(passes::<Duplicates>(&table, &scenario, &reply), expected, "{:?}", scenario);
    }
}

#[test]
fn calls_without_their_key_arguments_are_compared_by_all_they_have_or_never_the_same() {
    let keys = "tools = []\nkeys = { pay = [\"order\"] }";
    for (keyless, arguments, allowed) in [
        ("", ONE, false),
        ("\nkeyless = \"compare\"", ONE, false),
        ("\nkeyless = \"pass\"", ONE, true),
        ("\nkeyless = \"pass\"", r#"{"order":1}"#, true),
    ] {
        assert_eq!(
            may_pay(&format!("{keys}{keyless}"), &[user("q"), paid("ok")], arguments),
            allowed,
            "{keyless}"
        );
    }
    let keyed = r#"{"order":1}"#;
    let scenario = [user("q"), calls(&[("pay", keyed, "ok")])];
    assert!(
        !may_pay(&format!("{keys}\nkeyless = \"pass\""), &scenario, keyed),
        "one with its keys is compared by them"
    );
}

/// The judge of a request that declares `tools`.
fn judge_of(rules: &[Arc<dyn Rule>], tools: &[&str], scenario: &[Step]) -> Judge {
    let request = SampleRequest::new(&items(scenario));
    let request = tools.iter().fold(request, |request, name| request.declaring(name, "{}"));
    read_all(rules, &request).1
}

/// A request with these tools, in which `pay_bill` timed out and what follows came after.
fn after_a_time_limit(table: &str, tools: &[&str], after: &[Step]) -> Option<model::plan::Reason> {
    let mut scenario = vec![user("q"), calls(&[("pay_bill", ONE, "Error: Read timed out.")])];
    scenario.extend_from_slice(after);
    let mut judge = judge_of(&[policy::<Duplicates>(table)], tools, &scenario);
    judge.rule(0, "pay_bill", Some(ONE_RESPELLED), NOW_MS).objections.pop().map(|(_, reason)| reason)
}

#[test]
fn a_call_of_unknown_outcome_must_be_checked_before_it_is_repeated() {
    let tools = ["pay_bill", "get_bill", "list_bills", "search"];
    let checked = |result| calls(&[("get_bill", r#"{"id":1}"#, result)]);
    for (what, after, allowed) in [
        ("at once", vec![], false),
        ("checked", vec![checked("open")], true),
        ("checked in a later turn", vec![says("Hm."), user("and?"), checked("open")], true),
        ("checked with nothing found", vec![checked("[]")], true),
        ("a check that failed", vec![checked("Error: no")], false),
        ("a check that timed out", vec![checked("Request timed out.")], false),
        ("something else was looked up", vec![calls(&[("search", "{}", "x")])], false),
        ("the user spoke", vec![says("Hm."), user("again")], false),
        ("paid otherwise", vec![calls(&[("pay_bill", TWO, "ok")])], false),
        (
            "checked, and unknown once more",
            vec![checked("open"), calls(&[("pay_bill", ONE, "Error: socket hang up")])],
            false,
        ),
        ("checked, and done", vec![checked("open"), calls(&[("pay_bill", ONE, "ok")])], false),
    ] {
        assert_eq!(after_a_time_limit(ON, &tools, &after).is_none(), allowed, "{what}");
    }
    let reason = after_a_time_limit(ON, &tools, &[]).unwrap();
    assert_eq!((reason.kind, reason.retryable), (ReasonKind::Duplicate, true));
    assert!(reason.message.contains("Check first with get_bill or list_bills."), "{}", reason.message);
}

#[test]
fn where_no_tool_can_check_the_user_is_asked() {
    let tools = ["pay_bill", "search"];
    let reason = after_a_time_limit(ON, &tools, &[]).unwrap();
    assert!(reason.message.contains("ask the user before you make the call again"), "{}", reason.message);
    assert!(after_a_time_limit(ON, &tools, &[calls(&[("search", "{}", "x")])]).is_some());
    assert_eq!(after_a_time_limit(ON, &tools, &[says("Shall I?"), user("yes")]), None);
}

#[test]
fn the_operator_configures_which_tool_checks_and_what_happens() {
    let tools = ["pay_bill", "get_bill", "journal"];
    let by = |tool| vec![calls(&[(tool, "{}", "x")])];
    let own = format!("{ON}\nchecks = {{ \"pay*\" = [\"journal\"] }}");
    for (table, after, allowed) in [
        (own.clone(), by("journal"), true),
        (own, by("get_bill"), false),
        (format!("{ON}\nafter_unknown = \"block\""), by("get_bill"), false),
        (format!("{ON}\nafter_unknown = \"pass\""), vec![], true),
    ] {
        assert_eq!(after_a_time_limit(&table, &tools, &after).is_none(), allowed, "{table}");
    }
    let mine = format!("{ON}\ntexts = {{ verify = \"{{tool}}? {{checks}}!\" }}");
    assert_eq!(after_a_time_limit(&mine, &tools, &[]).unwrap().message, "pay_bill? get_bill!");
}

#[test]
fn a_check_in_the_same_reply_comes_too_late() {
    let scenario = [user("q"), calls(&[("pay", ONE, "timed out")])];
    let reply = [("list_payments", "{}"), ("pay", ONE)];
    assert_eq!(passes::<Duplicates>(ON, &scenario, &reply), [true, false]);
}

#[test]
fn only_tools_that_may_be_called_check_and_without_any_the_user_is_asked() {
    let all = ["pay_bill", "get_bill", "list_bills"];
    let forbids = |tools: &str| ("allow", format!("except = [{tools}]"));
    let both = "\"get_bill\", \"list_bills\"";
    let closed = "state.start = { tools = [\"pay_bill\", \"list_bills\"], final = true }".to_owned();
    let used_up = "tools = { get_bill = 1 }".to_owned();
    for ((name, table), tools, shown, later) in [
        (forbids("\"x\""), &all[..], "Check first with get_bill or list_bills.", false),
        (forbids("\"get_bill\""), &all, "Check first with list_bills.", false),
        (forbids(both), &all, "ask the user before", true),
        (("states", closed), &all, "Check first with list_bills.", false),
        (forbids("\"x\""), &all[..1], "ask the user before", true),
        (("turn_limits", used_up), &all[..2], "Check first with get_bill.", false),
    ] {
        let entry = crate::REGISTRY.iter().find(|entry| entry.name == name).unwrap();
        let rules = [built(entry, &table), policy::<Duplicates>(ON)];
        let mut scenario = vec![user("q"), calls(&[("pay_bill", ONE, "Error: Read timed out.")])];
        scenario.insert(1, calls(&[("get_bill", "{}", "none")]));
        let reason = |scenario: &[Step]| {
            let mut judge = judge_of(&rules, tools, scenario);
            judge.rule(0, "pay_bill", Some(ONE), NOW_MS).objections.pop().map(|(_, reason)| reason.message)
        };
        let now = reason(&scenario).unwrap();
        assert!(now.contains(shown), "{name} {table}: {now}");
        scenario.extend([says("Shall I?"), user("yes")]);
        assert_eq!(reason(&scenario).is_none(), later, "{name} {table}");
    }
}

#[test]
fn many_calls_of_unknown_outcome_are_judged_in_linear_time() {
    let arguments = |at: usize| format!("{{\"to\":{at}}}");
    assert_linear(100, |size| {
        let unknown = |at: usize| calls(&[("pay_bill", &arguments(at), "Error: Read timed out.")]);
        let mut scenario = vec![user("q")];
        scenario.extend((0..size).map(unknown));
        scenario.extend((0..size).map(|_| calls(&[("search", "{}", "x")])));
        let mut judge = judge_of(&[policy::<Duplicates>(ON)], &["pay_bill", "get_bill"], &scenario);
        for at in 0..size {
            let ruling = judge.rule(0, "pay_bill", Some(&arguments(at)), NOW_MS);
            assert!(!ruling.is_allowed());
        }
    });
    assert_linear(100, |size| {
        let mut scenario = vec![user("q")];
        scenario.extend((0..size).map(|_| calls(&[("pay_bill", ONE, "Error: Read timed out.")])));
        scenario.push(calls(&[("get_bill", "{}", "none")]));
        let mut judge = judge_of(&[policy::<Duplicates>(ON)], &["pay_bill", "get_bill"], &scenario);
        let allowed = (0..size).filter(|_| judge.rule(0, "pay_bill", Some(ONE), NOW_MS).is_allowed());
        assert_eq!(allowed.count(), 1);
    });
}
