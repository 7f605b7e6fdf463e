//! [`CallJudge`], the interface of the reply readers to the judge, implemented by [`Judging`].

use super::holding::{WAITED, Waiting};
use super::{Judged, Judging, answered, wrapper};
use crate::dialect::accepted::has_id;
use crate::dialect::judge::CallJudge;
use crate::dialect::markup::ToolNames;
use crate::exchange::confirm::{ask, leaves_markup_open};
use crate::telemetry::request_record::actions_header;
use model::assembled::Assembled;
use model::plan::Reason;
use model::plan::approval::{ApprovalDecision, HeldCall, Question, Unaskable, Unasked};
use model::plan::decision::{Decision, Known};
use policies::set::Ruling;
use std::sync::Arc;

impl CallJudge for Judging {
    fn is_strict(&self) -> bool {
        self.confirms() || (!self.observe && self.judge.restricts_calls() && !self.pass_unjudged)
    }

    fn observes(&self) -> bool {
        self.observe
    }

    fn is_landing(&self) -> bool {
        self.landing
    }

    fn declares(&self, name: &str) -> bool {
        self.judge.declares_name(name)
    }

    fn has_call_id(&self, id: &str) -> bool {
        has_id(&self.body, id) || self.hidden.iter().any(|exchange| has_id(exchange, id))
    }

    fn known_tools(&self) -> ToolNames {
        let called = self.record.iter().map(|judged| judged.tool.clone());
        ToolNames::new(self.judge.declared().iter().cloned().chain(called)).with_parameters(&self.parameters)
    }

    fn hosts_shell(&self) -> bool {
        self.judge.hosts_shell
    }

    fn is_complete_name(&self, call: &Assembled) -> bool {
        self.judge.is_complete(&call.name())
    }

    fn needs_name_alone(&mut self, choice: u32, call: &Assembled, now_ms: u64) -> bool {
        let may_stand_for_others =
            call.has_other_names() && call.other_names().iter().any(|name| wrapper::may_hold_calls(name));
        // A call that may be held must be complete first, because it is held as a whole.
        !may_stand_for_others
            && !self.needs_arguments(choice, &call.name())
            && !self.may_have_to_wait(choice, &call.name(), now_ms)
    }

    fn block_by_name(&mut self, choice: u32, call: &Assembled, now_ms: u64) -> Option<Decision> {
        let name = call.name();
        let is_open = self.answers.is_by_name(&name) || self.judge.owns(&name) || wrapper::is_name(&name);
        if self.observe || self.landing || is_open {
            return None;
        }
        let mut objections = self.judge.objections_by_name(choice, &name, now_ms);
        self.answers.exempt(&mut objections);
        if self.wait_for(&objections, now_ms).is_some() {
            return None;
        }
        let (policy, reason) = objections.iter().find(|(_, reason)| !reason.needs_approval())?.clone();
        let decision = Decision::Block { policy, reason: self.shown(choice, &reason, now_ms) };
        let (id, decided, acts, re_request) = (call.id(), decision.clone(), Vec::new(), None);
        self.record.push(Judged {
            tool: name,
            id,
            decision: decided,
            objections,
            acts,
            re_request,
            unjudged: false,
        });
        Some(decision)
    }

    fn objects_to_new_name(&mut self, choice: u32, renamed: bool, call: &Assembled, now_ms: u64) -> bool {
        let (mut names, arguments) = (call.other_names(), call.arguments());
        names.extend(renamed.then(|| call.name()));
        names.iter().any(|name| {
            if wrapper::needs_no_declaration(name) {
                return true;
            }
            let needs_more =
                self.judge.declares(name) && self.needs_arguments(choice, name) && !call.is_whole();
            needs_more || !self.objections_to_name(choice, name, Some(&arguments), now_ms).is_empty()
        })
    }

    fn decide(&mut self, choice: u32, call: &Assembled, known: Known, now_ms: u64) -> Decision {
        let name = call.name();
        let arguments = (known != Known::Name).then(|| call.arguments());
        let whole = known == Known::Whole;
        let wrapped = arguments.as_deref().and_then(|text| self.wrapped((choice, now_ms), call, text, whole));
        if let Some(calls) = wrapped {
            return self.decide_wrapper(choice, now_ms, call, calls);
        }
        let mut ruling = self.ruling(choice, now_ms, call, arguments.as_deref());
        if !ruling.own {
            self.answers.exempt(&mut ruling.objections);
        }
        if known == Known::Cut {
            return self.decide_cut(call, ruling);
        }
        // An answer passes beyond every limit, so there is no action to report.
        let meant = self.judge.meant(&name).into_owned();
        let is_answer =
            self.answers.is_by_name(&meant) && !ruling.own && !self.needs_approval_first(&meant, &ruling);
        let ruling = if is_answer { ruling.of_answer() } else { ruling };
        if whole && let Some(hold) = self.ask_first(choice, now_ms, call, &ruling) {
            return hold;
        }
        let acts = self.note_acts(&name, &ruling);
        if whole
            && !self.landing
            && ruling.answer.is_none()
            && let Some(decision) = self.hold_back(choice, now_ms, call, &ruling)
        {
            return decision;
        }
        let is_own_answer = self.landing && self.answers.any && !ruling.own && ruling.objections.is_empty();
        let answers = is_answer || is_own_answer;
        let (decision, ruling) = self.rule_on(choice, now_ms, &meant, answers, ruling);
        let Ruling { objections, re_request, extends, .. } = ruling;
        let re_request = re_request.filter(|_| decision.is_hidden());
        if decision.is_released() {
            self.extend(extends);
            self.counts_anew(choice);
        }
        let (id, decided) = (call.id(), decision.clone());
        let judged =
            Judged { tool: name, id, decision: decided, objections, acts, re_request, unjudged: false };
        self.record.push(judged);
        decision
    }

    fn release_unjudged(&mut self, choice: u32, call: &Assembled) -> Decision {
        let tool = call.name();
        let mut objections = Vec::new();
        if self.confirms() {
            objections = self.judge.rule(choice, &tool, Some(&call.arguments()), 0).objections;
            objections.retain(|(_, reason)| reason.needs_approval());
        }
        let decision = match objections.first() {
            Some((policy, reason)) => Decision::Block { policy, reason: reason.clone() },
            None => Decision::Release,
        };
        let unjudged = decision.is_released();
        let (id, acts, re_request, decided) = (call.id(), Vec::new(), None, decision.clone());
        self.record.push(Judged { tool, id, decision: decided, objections, acts, re_request, unjudged });
        decision
    }

    fn question(&self, calls: &[Assembled], before: &str) -> Result<Question, Unasked> {
        match (&self.token, self.judge.confirming()) {
            (Some(token), Some(confirming)) => {
                let unasked = |why: Unaskable| Unasked(confirming.unaskable(why));
                let question = ask(calls, token, confirming, leaves_markup_open(before)).map_err(unasked)?;
                let mut lines = self.record.iter().rev().filter_map(|judged| match &judged.decision {
                    Decision::Ask { reason: Reason { asks: Some(asks), .. }, .. } => Some(asks),
                    _ => None,
                });
                // All calls of a reply are asked about for the same reason.
                Ok(match lines.next() {
                    Some((line, extends)) => {
                        let text = format!("{line}\n\n{}", question.text);
                        Question { text, extends: *extends, ..question }
                    }
                    None => question,
                })
            }
            _ => Err(Unasked(None)),
        }
    }

    fn actions(&self) -> Option<String> {
        let done = self.record.iter().flat_map(Judged::actions);
        actions_header(&done.chain(self.late.iter().cloned()).collect::<Vec<_>>(), 0)
    }

    fn held(&self) -> Vec<&HeldCall> {
        self.holding.waiting.iter().map(|waiting| &waiting.call).collect()
    }

    fn asking(&self) -> Vec<u32> {
        self.questions().map(|(id, _)| id).collect()
    }

    fn answered(&mut self, id: u32, answer: Option<Arc<str>>) -> Option<Decision> {
        self.take_answer(id, answer)
    }

    fn settle(&mut self, id: u32, approval: ApprovalDecision) -> Option<Decision> {
        let at = self.holding.waiting.iter().position(|waiting| waiting.call.id == id)?;
        let Waiting { call, choice, arguments, passed, objections, fixed } = self.holding.waiting.remove(at);
        let (policy, reason) = objections.first()?;
        let (policy, waited) = (*policy, call.wait_ms.is_some());
        if approval == ApprovalDecision::Approved {
            let decision = match fixed {
                true => Decision::Rewrite { arguments: call.arguments },
                false => Decision::Release,
            };
            let asks = objections.iter().filter_map(|(_, reason)| Some(reason.asks.as_ref()?.1));
            asks.collect::<Vec<_>>().into_iter().for_each(|extends| self.extend(extends));
            let mut acts = vec![(policy, if waited { WAITED } else { approval.as_str() })];
            acts.extend(fixed.then_some((policy, "rewritten")));
            self.note(call.tool, call.call_id, decision.clone(), Vec::new(), acts);
            return Some(decision);
        }
        self.judge.take_back(choice, passed);
        self.counts_anew(choice);
        let words = self.holding.words.take().filter(|(about, _)| *about == id).map(|(_, words)| words);
        let shown = match waited {
            true => self.answers.advise(reason),
            false => self.refusal(approval, words.as_deref(), reason),
        };
        match approval {
            // This call could not wait until its time came, so the next one cannot either.
            _ if waited => self.holding.hurries = true,
            ApprovalDecision::Declined => {
                self.holding.declined.push((call.tool.clone(), arguments, words));
            }
            silent => self.holding.silent = Some(silent),
        }
        Some(self.block(call.tool, call.call_id, policy, shown, objections))
    }
}

impl Judging {
    /// Decides on a call that is not held, and returns what is left of its ruling. `answers`: the call is an answer,
    /// which is exempt from every limit.
    fn rule_on(
        &mut self,
        choice: u32,
        now_ms: u64,
        meant: &str,
        answers: bool,
        mut ruling: Ruling,
    ) -> (Decision, Ruling) {
        let needs_approval = ruling.needs_approval_alone();
        let (answer, clarification) = (ruling.answer.take(), ruling.clarification.take());
        let (rewritten, restored) = (ruling.rewritten.take(), ruling.restored.take());
        let decision = match (ruling.objections.first(), answer, rewritten) {
            _ if self.observe => Decision::Release,
            _ if answers => {
                restored.map_or(Decision::Release, |(_, arguments)| Decision::Rewrite { arguments })
            }
            _ if self.landing => Decision::Drop,
            (Some((policy, reason)), None, rewritten)
                if needs_approval && choice == 0 && self.token.is_some() && !self.holds() =>
            {
                self.ask(policy, reason, meant, rewritten.map(|(_, arguments)| arguments))
            }
            // Only the first choice can ask: making the call again would not help.
            (Some((policy, reason)), ..) if needs_approval && choice != 0 && !self.holds() => {
                Decision::Block { policy, reason: self.refusal(ApprovalDecision::Unasked, None, reason) }
            }
            (Some((policy, reason)), ..) => {
                Decision::Block { policy, reason: self.shown(choice, reason, now_ms) }
            }
            (None, Some((_, content)), _) => answered(content, ruling.own, clarification),
            // The call that runs is the one that was shown.
            (None, None, Some((policy, _))) if self.judge.is_approved() => {
                Decision::Block { policy, reason: self.changed() }
            }
            (None, None, Some((_, arguments))) => Decision::Rewrite { arguments },
            (None, None, None) => Decision::Release,
        };
        (decision, ruling)
    }
}
