//! Tests of calls that are held until a limit allows them: in their order, within the bound, and counted when they go
//! out.

use super::held::{held, judging};
use crate::judging::*;
use model::plan::decision::KnownPart;
use wire::json::escape_into;

/// One call in two seconds; a client request waits for at most five.
const SLOW: &str = "[rate_limit]\ndefault = { calls = 1, per = \"2s\" }\nwait = \"5s\"\n";

fn call(name: &str, n: u64) -> Assembled {
    let mut call = Assembled::default();
    escape_into(name, &mut call.name);
    escape_into(&format!("{{\"n\":{n}}}"), &mut call.arguments);
    call
}

/// What happens to a call of `name` at `now_ms`: the wait in ms, or the decision.
fn decide(judging: &mut Judging, (choice, name): (u32, &str), now_ms: u64) -> String {
    let call = call(name, now_ms);
    if let Some(decision) = judging.block_by_name(choice, &call, now_ms) {
        return word(&decision);
    }
    let decision = judging.decide(choice, &call, KnownPart::Whole, now_ms);
    match (&decision, judging.waiting().last()) {
        (Decision::Hold { id }, Some(WaitingCall { number, awaited: Awaited::Time { ms, .. }, .. }))
            if id == number =>
        {
            format!("{ms}")
        }
        _ => word(&decision),
    }
}

fn word(decision: &Decision) -> String {
    match decision {
        Decision::Block { reason, .. } => reason.kind.as_str().to_owned(),
        other => format!("{other:?}"),
    }
}

#[test]
fn each_call_waits_its_own_time_and_all_together_no_longer_than_allowed() {
    let mut judging = judging(SLOW);
    for (name, now_ms, expected) in [
        ("f", 10_000, "Release"),
        ("f", 10_000, "2000"),
        ("g", 10_000, "Release"),
        ("f", 10_500, "3500"),
        // At 16.0 s: after six seconds.
        ("f", 10_500, "RATE_LIMIT"),
        // Within the time that is waited for anyway.
        ("g", 10_500, "1500"),
        // Nothing was waited for between 14.0 and 15.9 s; of the five seconds one is left.
        ("g", 15_900, "Release"),
        ("g", 15_900, "RATE_LIMIT"),
        ("f", 15_900, "100"),
        ("g", 17_000, "900"),
        ("g", 17_900, "RATE_LIMIT"),
    ] {
        assert_eq!(decide(&mut judging, (0, name), now_ms), expected, "{name} {now_ms}");
    }
}

#[test]
fn a_delayed_call_is_released_on_time_or_blocked_uncounted_if_interrupted() {
    let mut judging = judging(SLOW);
    for _ in 0..2 {
        decide(&mut judging, (0, "f"), 10_000);
    }
    assert_eq!(judging.finish_effect(0, &EffectResult::Slept(true)), Some(Decision::Release));
    let judged = judging.record.last().unwrap();
    assert_eq!((judged.acts.as_slice(), judged.objections.len()), ([("rate_limit", WAITED)].as_slice(), 0));
    assert_eq!(decide(&mut judging, (0, "f"), 11_000), "3000");
    let blocked = judging.finish_effect(1, &EffectResult::Slept(false)).unwrap();
    let Decision::Block { policy: "rate_limit", reason } = blocked else { panic!("{blocked:?}") };
    assert!(reason.retryable && reason.message.contains("can be called again in 3 s"), "{reason:?}");
    assert_eq!(judging.record.last().unwrap().objections.len(), 1);
    assert_eq!(judging.finish_effect(1, &EffectResult::Slept(true)), None, "once");
    assert_eq!(decide(&mut judging, (0, "f"), 13_900), "RATE_LIMIT", "nothing waits any more");
    assert_eq!(decide(&mut judging, (0, "f"), 14_000), "Release", "the blocked one does not count");
}

#[test]
fn a_call_that_may_have_to_wait_is_awaited_whole() {
    let mut judging = judging(SLOW);
    let mut alone = |now_ms| judging.needs_name_alone(0, &call("f", 0), now_ms);
    assert!(alone(10_000));
    decide(&mut judging, (0, "f"), 10_000);
    let mut alone = |now_ms| judging.needs_name_alone(0, &call("f", 0), now_ms);
    assert!(!alone(11_000) && alone(12_000));
}

#[test]
fn a_call_is_delayed_only_if_no_other_rule_blocks_it_and_each_choice_separately() {
    let closed = format!("{SLOW}[turn_limits]\ntools = {{ closed = 1 }}\n");
    let mut judging = judging(&closed);
    assert_eq!(decide(&mut judging, (0, "f"), 10_000), "Release");
    assert_eq!(decide(&mut judging, (1, "f"), 10_000), "Release");
    assert_eq!(decide(&mut judging, (1, "f"), 10_000), "2000");
    assert_eq!(decide(&mut judging, (0, "closed"), 10_000), "Release");
    assert_eq!(decide(&mut judging, (0, "closed"), 10_000), "RATE_LIMIT", "and used up for the turn");
    judging.land();
    assert_eq!(judging.decide(0, &call("f", 1), KnownPart::Whole, 10_000), Decision::Drop);
    let mut observing = super::held::judging(SLOW);
    observing.rules.observe = true;
    for _ in 0..2 {
        let decision = observing.decide(0, &call("f", 1), KnownPart::Whole, 10_000);
        assert_eq!(decision, Decision::Release);
    }
}

#[test]
fn a_call_that_also_needs_approval_is_not_delayed_by_the_rate_limit() {
    let both = format!("{SLOW}[confirm]\ntools = [\"pay\"]\nform = \"held\"\n");
    let mut judging = judging(&both);
    assert!(matches!(judging.decide(0, &call("pay", 1), KnownPart::Whole, 10_000), Decision::Hold { .. }));
    assert_eq!(decide(&mut judging, (0, "pay"), 10_000), "RATE_LIMIT");
    assert_eq!(held(&judging).len(), 1);
}
