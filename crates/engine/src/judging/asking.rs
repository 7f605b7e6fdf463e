//! Calls that wait for another model's answer: held like those that wait for a person, counted meanwhile as if they were
//! made, and judged once more when the answer is known. Holds data; asks nobody.

use super::{Judging, RewordedCall};
use model::account::SCOPES;
use model::assembled::Assembled;
use model::plan::ModelQuestion;
use model::plan::decision::{Decision, Known};
use policies::set::Ruling;
use std::sync::Arc;

/// A call that waits.
pub(super) struct AskedCall {
    id: u32,
    choice: u32,
    call: Assembled,
    /// The number of calls that limits had let through, this one included.
    passed: usize,
    /// The policy that wants the answer.
    policy: &'static str,
    question: ModelQuestion,
    /// When it was judged first, and so is judged again.
    now_ms: u64,
}

/// A question, with the policy that asks.
pub type AskedQuestion<'a> = (&'static str, &'a ModelQuestion);

impl Judging {
    /// Holds a call of `choice` about which another model is to be asked first; `None` where nothing is asked, or where
    /// the call does not run whatever the answer is.
    pub(super) fn ask_first(
        &mut self,
        choice: u32,
        now_ms: u64,
        call: &Assembled,
        ruling: &Ruling,
    ) -> Option<Decision> {
        let (policy, question) = ruling.question.clone()?;
        let runs = ruling.is_allowed() || ruling.needs_approval_alone();
        // A call that a person has approved must run as it was shown.
        if !runs || self.observe || self.landing || self.judge.is_approved() {
            return None;
        }
        if !ruling.is_allowed() {
            self.judge.approve(Some([true; SCOPES]));
            self.judge.rule(choice, &call.name(), Some(&call.arguments()), now_ms);
            self.judge.approve(None);
        }
        let (id, call, passed) = (self.holding.number(), call.clone(), self.judge.passed());
        self.holding.asking.push(AskedCall { id, choice, call, passed, policy, question, now_ms });
        Some(Decision::Hold { id, arguments: None })
    }

    /// The questions that calls wait for, each with the call's number.
    pub fn questions(&self) -> impl Iterator<Item = (u32, AskedQuestion<'_>)> {
        self.holding.asking.iter().map(|asked| (asked.id, (asked.policy, &asked.question)))
    }

    /// Takes the answer for the call of this number and judges the call again, with the time at which it was first
    /// judged: the policy now has all that it needs.
    pub(super) fn take_answer(&mut self, id: u32, answer: Option<Arc<str>>) -> Option<Decision> {
        let at = self.holding.asking.iter().position(|asked| asked.id == id)?;
        let AskedCall { choice, call, passed, question, now_ms, .. } = self.holding.asking.remove(at);
        self.judge.take_back(choice, passed);
        self.counts_anew(choice);
        self.judge.learn(question, answer);
        Some(self.decide(choice, &call, Known::Whole, now_ms))
    }

    /// Notes the text that a policy wrote anew in a call of `tool`, unless the call is blocked.
    pub(super) fn note_reworded(&mut self, tool: &str, ruling: &Ruling) {
        let runs = ruling.is_allowed() || ruling.needs_approval_alone();
        let reworded = ruling.reworded.clone().filter(|_| runs && !self.landing);
        self.reworded.extend(reworded.map(|(policy, (before, after))| RewordedCall {
            tool: tool.to_owned(),
            policy,
            before,
            after,
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judging::holding_tests::judging;
    use model::plan::approval::ApprovalDecision;
    use wire::json::escape_into;

    const ASKED: &str = "[rewrite_query]\nmodel.model = \"small\"\n";
    const LONG: &str = r#"{"query":"how a washing machine gets clean"}"#;

    fn decide(judging: &mut Judging, tool: &str, arguments: &str) -> Decision {
        let mut call = Assembled::default();
        escape_into(tool, &mut call.name);
        escape_into(arguments, &mut call.arguments);
        judging.decide(0, &call, Known::Whole, 1_000)
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
            assert_eq!(decide(&mut judging, "search", LONG), Decision::Hold { id: 0, arguments: None });
            let questions: Vec<_> = judging.questions().map(|(id, (policy, _))| (id, policy)).collect();
            assert_eq!((questions, judging.record.len()), (vec![(0, "rewrite_query")], 0));
            assert_eq!(judging.answered(0, answer.map(Into::into)), expected);
            assert_eq!(judging.answered(0, None), None, "once");
            assert_eq!(judging.record.len(), 1);
            let Some(expected) = expected else { continue };
            assert_eq!(
                decide(&mut judging, "search", LONG),
                expected,
                "an equal question is not asked again"
            );
        }
    }

    #[test]
    fn a_waiting_call_counts_against_limits_and_a_blocked_one_asks_no_model() {
        let limited = format!("{ASKED}[rate_limit]\ntools = {{ search = {{ calls = 1, per = \"1h\" }} }}\n");
        let mut judging = judging(&limited);
        assert!(matches!(decide(&mut judging, "search", LONG), Decision::Hold { .. }));
        let other = LONG.replace("clean", "dirty");
        assert!(matches!(decide(&mut judging, "search", &other), Decision::Block { .. }));
        assert_eq!(judging.answered(0, Some("washing machine".into())), rewritten("washing machine"));
        assert!(
            matches!(decide(&mut judging, "search", &other), Decision::Block { .. }),
            "it is counted once"
        );
    }

    #[test]
    fn the_approval_shows_the_arguments_as_reworded_by_the_model() {
        let confirmed = format!("{ASKED}[confirm]\ntools = [\"search\"]\nform = \"held\"\n");
        let mut judging = judging(&confirmed);
        assert_eq!(decide(&mut judging, "search", LONG), Decision::Hold { id: 0, arguments: None });
        assert!(judging.held().is_empty());
        let arguments = r#"{"query":"washing machine"}"#.to_owned();
        let waits = Decision::Hold { id: 1, arguments: Some(arguments.clone()) };
        assert_eq!(judging.answered(0, Some("washing machine".into())), Some(waits));
        assert_eq!(judging.held()[0].arguments, arguments);
        assert_eq!(judging.settle(1, ApprovalDecision::Approved), Some(Decision::Rewrite { arguments }));
        assert_eq!(judging.reworded.len(), 1);
    }

    #[test]
    fn no_call_waits_once_the_final_answer_is_requested() {
        let mut judging = judging(ASKED);
        judging.land();
        assert_eq!(decide(&mut judging, "search", LONG), Decision::Drop);
    }
}
