//! Tests of held calls: what each decision does to them, and how limits count them.

use crate::judging::*;
use model::Transcript;
use model::identity::{HashKey, Identity};
use model::memo::NoMemo;
use model::plan::decision::KnownPart;
use policies::REGISTRY;
use policies::set::{PolicySet, Rule};
use std::sync::Arc;
use wire::json::escape_into;

/// A judge by the policies of `tables`, with a person who can be asked.
pub(crate) fn judging(tables: &str) -> Judging {
    judging_of(tables, br#"{"messages":[{"role":"user","content":"q"}]}"#)
}

/// The policies of `tables`.
pub(crate) fn policies(tables: &str) -> PolicySet {
    PolicySet::new(rules(tables))
}

/// The same before they are put together.
pub(crate) fn rules(tables: &str) -> Vec<Arc<dyn Rule>> {
    let mut root = toml::de::DeTable::parse(tables).unwrap();
    let rules = REGISTRY.iter().filter_map(|entry| {
        let table = root.get_mut().remove(entry.name)?;
        Some((entry.build)(toml::de::ValueDeserializer::from(table)).unwrap())
    });
    rules.collect()
}

/// As [`judging`], for the reply to the request `body`.
fn judging_of(tables: &str, body: &[u8]) -> Judging {
    let request = dialects::chat::parse(body).unwrap();
    let identity = Identity { key: HashKey::fixed(1), caller: Hash(1), explicit: None };
    let transcript = Transcript::read(request, body.to_vec(), identity, Arc::new(NoMemo));
    let judge = policies(tables).read(&transcript).1;
    Judging::new(judge, AnswerTools::default(), false).with_token(Some("K7PQ3M".to_owned()))
}

const HELD: &str = "[confirm]\ntools = [\"pay\"]\nform = \"held\"\n";

fn call(name: &str, arguments: &str) -> Assembled {
    let mut call = Assembled::default();
    escape_into(name, &mut call.name);
    escape_into(arguments, &mut call.arguments);
    call
}

fn decide(judging: &mut Judging, name: &str, arguments: &str) -> Decision {
    judging.decide(0, &call(name, arguments), KnownPart::Whole, 1_000)
}

/// Gives a person's decision on the call of this number.
pub(crate) fn settle(judging: &mut Judging, number: u32, decision: ApprovalDecision) -> Option<Decision> {
    judging.finish_effect(number, &EffectResult::Decided(decision.into()))
}

/// The calls that wait for a person.
pub(crate) fn held(judging: &Judging) -> Vec<&HeldCall> {
    let held = judging.waiting().iter().filter_map(|waiting| match &waiting.awaited {
        Awaited::Approval { call, .. } => Some(call),
        _ => None,
    });
    held.collect()
}

fn outcome(decision: Option<Decision>) -> String {
    match decision {
        Some(Decision::Block { reason, .. }) => format!("{}: {}", reason.kind.as_str(), reason.message),
        other => format!("{other:?}"),
    }
}

#[test]
fn a_held_call_keeps_its_arguments_as_sent_and_as_shown() {
    let mut judging = judging(HELD);
    assert_eq!(decide(&mut judging, "search", "{}"), Decision::Release);
    assert_eq!(decide(&mut judging, "pay", "{\"to\":\"\u{202e}x\"}"), Decision::Hold { id: 0 });
    let shown = held(&judging);
    assert_eq!((shown[0].tool.as_str(), shown[0].arguments.as_str()), ("pay", "{\"to\":\"\u{202e}x\"}"));
    assert_eq!(shown[0].shown, "{\n  \"to\": \"\\u202ex\"\n}");
    assert_eq!(judging.record.len(), 1, "it is recorded when it is settled");
    assert_eq!(settle(&mut judging, 0, ApprovalDecision::Approved), Some(Decision::Release));
    let judged = &judging.record[1];
    assert_eq!((judged.acts.as_slice(), judged.objections.len()), ([("confirm", "approved")].as_slice(), 0));
    assert_eq!(settle(&mut judging, 0, ApprovalDecision::Approved), None, "once");
    assert_eq!(held(&judging).len(), 0);
}

#[test]
fn every_decision_but_an_approval_blocks_the_call_and_says_why() {
    for (decision, why) in [
        (ApprovalDecision::Declined, "the user declined it"),
        (ApprovalDecision::Expired, "nobody answered in time"),
        (ApprovalDecision::Stopped, "nobody can be asked now"),
        (ApprovalDecision::Unasked, "nobody can be asked now"),
    ] {
        let mut judging = judging(HELD);
        decide(&mut judging, "pay", "{}");
        let outcome = outcome(settle(&mut judging, 0, decision));
        assert!(
            outcome.starts_with("CONFIRMATION_REQUIRED: The call was not run: ") && outcome.contains(why),
            "{outcome}"
        );
        let noted = &judging.record[0].objections;
        assert!(noted.len() == 1 && noted[0].1.message.contains(why), "what the model reads: {noted:?}");
    }
}

#[test]
fn a_declined_call_is_not_asked_about_again_unless_its_arguments_differ() {
    let mut judging = judging(HELD);
    decide(&mut judging, "pay", r#"{"to":"a","sum":1}"#);
    settle(&mut judging, 0, ApprovalDecision::Declined);
    let again = decide(&mut judging, "pay", r#"{"sum":1.0, "to":"a"}"#);
    assert!(outcome(Some(again)).contains("the user declined it"), "however it is written");
    assert_eq!(decide(&mut judging, "pay", r#"{"to":"b","sum":1}"#), Decision::Hold { id: 1 });
}

#[test]
fn after_an_unanswered_approval_nobody_is_asked_again() {
    for silent in [ApprovalDecision::Expired, ApprovalDecision::Stopped, ApprovalDecision::Unasked] {
        let mut judging = judging(HELD);
        decide(&mut judging, "pay", "{}");
        settle(&mut judging, 0, silent);
        let again = decide(&mut judging, "pay", "{\"other\":1}");
        assert!(matches!(again, Decision::Block { .. }), "{again:?}");
    }
}

#[test]
fn a_held_call_counts_against_limits_until_it_is_declined() {
    let limited = format!("{HELD}[rate_limit]\ntools = {{ pay = {{ calls = 1, per = \"1h\" }} }}\n");
    let mut judging = judging(&limited);
    assert!(matches!(decide(&mut judging, "pay", "{}"), Decision::Hold { .. }));
    let second = decide(&mut judging, "pay", "{\"n\":2}");
    assert!(outcome(Some(second)).starts_with("RATE_LIMIT"), "nobody is asked about what would not run");
    settle(&mut judging, 0, ApprovalDecision::Declined);
    assert!(
        matches!(decide(&mut judging, "pay", "{\"n\":3}"), Decision::Hold { .. }),
        "a denied call never counts"
    );
    settle(&mut judging, 1, ApprovalDecision::Approved);
    let fourth = decide(&mut judging, "pay", "{\"n\":4}");
    assert!(outcome(Some(fourth)).starts_with("RATE_LIMIT"), "an approved one does");
}

#[test]
fn declining_a_call_does_not_give_back_what_other_calls_used() {
    let limited = format!("{HELD}[rate_limit]\ndefault = {{ calls = 2, per = \"1h\" }}\n");
    let mut judging = judging(&limited);
    assert_eq!(decide(&mut judging, "search", "{}"), Decision::Release);
    assert!(matches!(decide(&mut judging, "pay", "{}"), Decision::Hold { .. }));
    assert_eq!(decide(&mut judging, "search", "{\"n\":2}"), Decision::Release);
    settle(&mut judging, 0, ApprovalDecision::Declined);
    let third = decide(&mut judging, "search", "{\"n\":3}");
    assert!(outcome(Some(third)).starts_with("RATE_LIMIT"));
}

#[test]
fn nobody_is_asked_about_what_cannot_be_shown() {
    let short = format!("{HELD}max_chars = 9\n");
    for (name, arguments, why) in
        [("pay", "{\"to\":\"somebody\"}", "longer than the 9 characters"), ("pay", "{\"to\"", "not JSON")]
    {
        let decision = decide(&mut judging(&short), name, arguments);
        assert!(outcome(Some(decision.clone())).contains(why), "{decision:?}");
    }
}

#[test]
fn calls_of_different_choices_wait_separately() {
    let mut judging = judging(HELD);
    for choice in [0, 1] {
        let decision = judging.decide(choice, &call("pay", "{}"), KnownPart::Whole, 0);
        assert_eq!(decision, Decision::Hold { id: choice });
    }
    settle(&mut judging, 1, ApprovalDecision::Approved);
    assert_eq!(judging.waiting().iter().map(|call| call.number).collect::<Vec<_>>(), [0]);
}

#[test]
fn no_call_is_held_if_nobody_can_be_asked_or_the_final_answer_is_due() {
    let mut alone = judging(HELD).with_token(None);
    assert!(matches!(decide(&mut alone, "pay", "{}"), Decision::Block { .. }));
    let mut landing = judging(HELD);
    landing.land();
    assert_eq!(decide(&mut landing, "pay", "{}"), Decision::Drop);
}

#[test]
fn arguments_are_needed_for_a_final_answer_that_must_be_a_call() {
    let mut judging = judging("[loops]\nstrict = true\n");
    judging.land();
    assert!(!judging.needs_arguments(0, "final_answer"), "a call that is dropped");
    judging.rules.answers.any = true;
    assert!(judging.needs_arguments(0, "final_answer"));
}

#[test]
fn an_approval_extends_only_the_limits_that_the_person_was_shown() {
    let chat = "[confirm]\ntools = [\"pay\"]\n[budget]\ntool_calls = 1\nexhausted = \"ask\"\n";
    for (extends, expected, bought) in
        [([false; 3], false, [0, 0, 0]), ([true, false, false], true, [1, 0, 0])]
    {
        let mut judging = judging(chat);
        judging.approve(Some(extends));
        assert_eq!(decide(&mut judging, "pay", "{\"n\":1}"), Decision::Release);
        let second = decide(&mut judging, "pay", "{\"n\":2}");
        assert_eq!((second.is_released(), judging.bought()), (expected, bought), "{second:?}");
        if let Decision::Ask { reason, .. } | Decision::Block { reason, .. } = second {
            assert_eq!(reason.kind.as_str(), "CONFIRMATION_REQUIRED");
        }
    }
}

#[test]
fn a_choice_that_cannot_ask_is_not_advised_to_make_its_call_again() {
    let mut judging = judging("[confirm]\ntools = [\"pay\"]\n");
    let Decision::Block { reason, .. } = judging.decide(1, &call("pay", "{}"), KnownPart::Whole, 1_000)
    else {
        panic!("it is blocked");
    };
    assert!(!reason.retryable && reason.message.contains("nobody can be asked"), "{reason:?}");
    assert!(matches!(decide(&mut judging, "pay", "{}"), Decision::Ask { .. }), "the first choice asks");
}

const TWO_TOOLS: &[u8] = br#"{"tools":[{"type":"function","function":{"name":"a"}},
    {"type":"function","function":{"name":"b"}}],"messages":[{"role":"user","content":"q"}]}"#;

#[test]
fn a_choice_with_all_tools_used_up_does_not_close_those_of_another_choice() {
    let mut judging = judging_of("[turn_limits]\ntools = { a = 1, b = 1 }\n", TWO_TOOLS);
    let mut ends_turn = |(choice, name): (u32, &str)| match judging.decide(
        choice,
        &call(name, "{}"),
        KnownPart::Whole,
        1_000,
    ) {
        Decision::Block { reason, .. } => Some(reason.is_final),
        other => (!other.is_released()).then_some(false),
    };
    let found = [(0, "a"), (0, "b"), (0, "a"), (1, "a"), (1, "a")].map(&mut ends_turn);
    assert_eq!(found, [None, None, Some(true), None, Some(false)]);
}

#[test]
fn whether_every_tool_is_closed_is_known_after_each_call_that_was_let_through() {
    let mut judging = judging_of("[turn_limits]\ntools = { a = 1, b = 1 }\n", TWO_TOOLS);
    let mut ends_turn = |name: &str| match decide(&mut judging, name, "{}") {
        Decision::Block { reason, .. } => Some(reason.is_final),
        other => (!other.is_released()).then_some(false),
    };
    let found = ["a", "a", "b", "a", "b"].map(&mut ends_turn);
    assert_eq!(found, [None, Some(false), None, Some(true), Some(true)]);
}

#[test]
fn the_last_call_of_a_limit_is_let_through_under_whatever_names_a_client_may_read_it() {
    let mut judging = judging_of("[turn_limits]\ncalls = 1\n", TWO_TOOLS);
    let mut renamed = call("a", "{}");
    renamed.before = vec![b"b".to_vec()];
    assert_eq!(judging.decide(0, &renamed, KnownPart::Whole, 1_000), Decision::Release);
    assert!(matches!(judging.decide(0, &renamed, KnownPart::Whole, 1_000), Decision::Block { .. }));
}

#[test]
fn the_approval_question_names_the_limit_that_the_approval_extends() {
    let chat = "[confirm]\ntools = [\"pay\"]\n[budget]\ntool_calls = 1\nexhausted = \"ask\"\n";
    let mut judging = judging(chat);
    assert_eq!(decide(&mut judging, "search", "{}"), Decision::Release);
    assert!(matches!(decide(&mut judging, "pay", "{}"), Decision::Ask { .. }));
    let question = judging.question(&[call("pay", "{}")], "").unwrap();
    assert!(question.text.contains("Your approval adds"), "{}", question.text);
    assert_eq!(question.extends.iter().filter(|extends| **extends).count(), 1);
}

#[test]
fn a_person_who_is_shown_a_call_reads_which_limit_the_approval_extends() {
    let mut judging = judging(&format!("{HELD}[budget]\ntool_calls = 1\nexhausted = \"ask\"\n"));
    assert_eq!(decide(&mut judging, "search", "{}"), Decision::Release);
    assert!(matches!(decide(&mut judging, "pay", "{}"), Decision::Hold { .. }));
    let why = held(&judging)[0].why.clone().unwrap_or_default();
    assert!(why.contains("Your approval adds"), "{why}");
}
