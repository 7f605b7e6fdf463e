//! Tests of calls that wait for another model's answer.

use super::held::{held, judging, settle};
use crate::judging::*;
use model::plan::approval::ApprovalDecision;
use wire::json::escape_into;

const ASKED: &str = "[rewrite_query]\nmodel.model = \"small\"\n";
const LONG: &str = r#"{"query":"how a washing machine gets clean"}"#;

fn decide(judging: &mut Judging, tool: &str, arguments: &str) -> Decision {
    let mut call = Assembled::default();
    escape_into(tool, &mut call.name);
    escape_into(arguments, &mut call.arguments);
    judging.decide(0, &call, KnownPart::Whole, 1_000)
}

/// Gives the model's answer that the first call waits for.
fn answer_of(judging: &mut Judging, answer: Option<&str>) -> Option<Decision> {
    judging.finish_effect(0, &EffectResult::Answered(answer.map(Into::into)))
}

fn rewritten(query: &str) -> Option<Decision> {
    Some(Decision::Rewrite { arguments: format!("{{\"query\":\"{query}\"}}") })
}

#[test]
fn a_call_waits_for_the_reworded_query_and_runs_even_without_one() {
    for (answer, expected) in [
        (Some("washing machine"), rewritten("washing machine")),
        (Some("delete it all"), Some(Decision::Release)),
        (None, Some(Decision::Release)),
    ] {
        let mut judging = judging(ASKED);
        assert_eq!(decide(&mut judging, "search", LONG), Decision::Hold { id: 0 });
        let waiting = &judging.waiting()[0];
        assert!(matches!(waiting.awaited, Awaited::ModelAnswer { policy: "rewrite_query", .. }));
        assert_eq!((judging.waiting().len(), judging.record.len()), (1, 0));
        assert_eq!(answer_of(&mut judging, answer), expected);
        assert_eq!(answer_of(&mut judging, None), None, "once");
        assert_eq!(judging.record.len(), 1);
        let Some(expected) = expected else { continue };
        assert_eq!(decide(&mut judging, "search", LONG), expected, "an equal question is not asked again");
    }
}

#[test]
fn a_waiting_call_counts_against_limits_and_a_blocked_one_asks_no_model() {
    let limited = format!("{ASKED}[rate_limit]\ntools = {{ search = {{ calls = 1, per = \"1h\" }} }}\n");
    let mut judging = judging(&limited);
    assert!(matches!(decide(&mut judging, "search", LONG), Decision::Hold { .. }));
    let other = LONG.replace("clean", "dirty");
    assert!(matches!(decide(&mut judging, "search", &other), Decision::Block { .. }));
    assert_eq!(answer_of(&mut judging, Some("washing machine")), rewritten("washing machine"));
    assert!(matches!(decide(&mut judging, "search", &other), Decision::Block { .. }), "it is counted once");
}

#[test]
fn the_approval_shows_the_arguments_as_reworded_by_the_model() {
    let confirmed = format!("{ASKED}[confirm]\ntools = [\"search\"]\nform = \"held\"\n");
    let mut judging = judging(&confirmed);
    assert_eq!(decide(&mut judging, "search", LONG), Decision::Hold { id: 0 });
    assert!(held(&judging).is_empty());
    let arguments = r#"{"query":"washing machine"}"#.to_owned();
    let waits = Decision::Hold { id: 0 };
    assert_eq!(answer_of(&mut judging, Some("washing machine")), Some(waits));
    assert_eq!(held(&judging)[0].arguments, arguments);
    assert_eq!(settle(&mut judging, 0, ApprovalDecision::Approved), Some(Decision::Rewrite { arguments }));
    assert_eq!(judging.reworded.len(), 1);
}

#[test]
fn no_call_waits_once_the_final_answer_is_requested() {
    let mut judging = judging(ASKED);
    judging.land();
    assert_eq!(decide(&mut judging, "search", LONG), Decision::Drop);
}
