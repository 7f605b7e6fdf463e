//! What the reply pipeline asks of the judge: the decision on each call, by its name and by its arguments.

use super::holding::{WAITED, Waiting};
use super::{Judged, Judging, answered, wrapper};
use crate::confirm::{ask, leaves_markup_open};
use dialects::markup::ToolNames;
use model::assembled::Assembled;
use model::plan::Reason;
use model::plan::approval::{ApprovalDecision, HeldCall, Question, Unaskable, Unasked};
use model::plan::decision::{Decision, Known};
use model::record::actions_header;
use policies::set::Ruling;
use std::sync::Arc;

impl Judging {
    /// Whether nothing may reach the client unjudged.
    pub fn is_strict(&self) -> bool {
        self.confirms() || (!self.observe && self.judge.restricts_calls() && !self.pass_unjudged)
    }

    /// Whether observe mode is on: everything is decided and nothing changed.
    pub fn observes(&self) -> bool {
        self.observe
    }

    /// Whether the model was asked for its final answer.
    pub fn is_landing(&self) -> bool {
        self.landing
    }

    /// Whether the request declares a tool of this name.
    pub fn declares(&self, name: &str) -> bool {
        self.judge.declares_name(name)
    }

    /// Whether a call of the conversation before this reply has this id. `false` where the upstream keeps the conversation: it
    /// knows its calls by their own ids.
    pub fn has_call_id(&self, id: &str) -> bool {
        self.known_ids.has(id)
    }

    /// The tools whose calls the model may write: those that are declared, and those that it has called.
    pub fn known_tools(&self) -> ToolNames {
        let called = self.record.iter().map(|judged| judged.tool.clone());
        ToolNames::new(self.judge.declared().iter().cloned().chain(called)).with_parameters(&self.parameters)
    }

    /// Whether the request declares no shell that the client runs.
    pub fn hosts_shell(&self) -> bool {
        self.judge.hosts_shell
    }

    /// Whether nothing can follow the name of `call` as it is now: the request declares such a tool, and none whose
    /// name goes on from it.
    pub fn is_complete_name(&self, call: &Assembled) -> bool {
        self.judge.is_complete(&call.name())
    }

    /// Whether the name of `call`, to which no policy objected, is enough to decide on it.
    pub fn needs_name_alone(&mut self, choice: u32, call: &Assembled, now_ms: u64) -> bool {
        let may_stand_for_others =
            call.has_other_names() && call.other_names().iter().any(|name| wrapper::may_hold_calls(name));
        // A call that may be held must be complete first, because it is held as a whole.
        !may_stand_for_others
            && !self.needs_arguments(choice, &call.name())
            && !self.may_have_to_wait(choice, &call.name(), now_ms)
    }

    /// Blocks `call` if a policy objects to it by its name alone.
    pub fn block_by_name(&mut self, choice: u32, call: &Assembled, now_ms: u64) -> Option<Decision> {
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

    /// Whether a policy objects to a name under which a client may run `call`, which the client has seen in part;
    /// `renamed`: its own name is not the one that was judged.
    pub fn objects_to_new_name(&mut self, choice: u32, renamed: bool, call: &Assembled, now_ms: u64) -> bool {
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

    /// Decides on `call`; `known` says how much of it has come.
    pub fn decide(&mut self, choice: u32, call: &Assembled, known: Known, now_ms: u64) -> Decision {
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

    /// Lets a call through that could not be judged, unless it needs an approval.
    pub fn release_unjudged(&mut self, choice: u32, call: &Assembled) -> Decision {
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

    /// The question for a person about `calls`. `before`: the text before it in the same message, as the client has it.
    ///
    /// # Errors
    /// Why no person can be asked.
    pub fn question(&self, calls: &[Assembled], before: &str) -> Result<Question, Unasked> {
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

    /// What acted on the reply so far, in the spelling of the header `x-toolrein-actions`; `None` where nothing did.
    pub fn actions(&self) -> Option<String> {
        let done = self.record.iter().flat_map(Judged::actions);
        actions_header(&done.chain(self.late.iter().cloned()).collect::<Vec<_>>(), 0)
    }

    /// The calls that wait: for a person's decision, or until a limit allows them.
    pub fn held(&self) -> Vec<&HeldCall> {
        self.holding.waiting.iter().map(|waiting| &waiting.call).collect()
    }

    /// The numbers of the calls that wait for another model's answer.
    pub fn asking(&self) -> Vec<u32> {
        self.questions().map(|(id, _)| id).collect()
    }

    /// Takes the answer that the call of this number waits for, `None` where there is none, and returns what happens to
    /// it, which may be to wait again; `None` if it does not wait.
    pub fn answered(&mut self, id: u32, answer: Option<Arc<str>>) -> Option<Decision> {
        self.take_answer(id, answer)
    }

    /// Takes the decision on the waiting call of this number and returns what happens to it; `None` if it does not wait.
    pub fn settle(&mut self, id: u32, approval: ApprovalDecision) -> Option<Decision> {
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

    /// Settles all waiting calls, about which nobody can be asked: by their numbers, what happens to each, in order.
    pub fn settle_all(&mut self) -> Vec<(u32, Decision)> {
        let mut settled = Vec::new();
        for id in self.asking() {
            settled.extend(self.answered(id, None).map(|decision| (id, decision)));
        }
        // The calls that now wait for a person are included.
        let held: Vec<u32> = self.held().iter().map(|call| call.id).collect();
        for id in held {
            settled.extend(self.settle(id, ApprovalDecision::Unasked).map(|decision| (id, decision)));
        }
        settled
    }

    /// What acted on the reply, for a comment at the end of a stream; `None` where nothing did, or nothing may be changed.
    pub fn remark(&self) -> Option<String> {
        let actions = self.actions().filter(|_| !self.observe)?;
        Some(format!("toolrein {actions}"))
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
