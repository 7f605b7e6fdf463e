//! Judging calls by name: when a name is complete, when the name alone blocks a call, and which other names a client
//! may assemble for a call whose name comes in pieces.

use super::{Judged, Judging};
use model::assembled::Assembled;
use model::plan::decision::Decision;
use model::plan::{Reason, ReasonKind};
use policies::set::Ruling;

/// The result of the last check whether any tool is open to a choice.
pub(super) struct OpenTool {
    pub(super) choice: u32,
    /// The index of a tool that was open.
    pub(super) nth: usize,
    /// Whether any tool was open.
    pub(super) is_any: bool,
}

impl Judging {
    /// The ruling of all policies on `call`, under every name that a client may assemble for it.
    pub(super) fn ruling(
        &mut self,
        choice: u32,
        now_ms: u64,
        call: &Assembled,
        arguments: Option<&str>,
    ) -> Ruling {
        let name = call.name();
        if !call.has_other_names() || self.observe {
            return self.judge.rule(choice, &name, arguments, now_ms);
        }
        // Before the call itself counts: whatever its name, it is one call.
        let names = call.other_names();
        let objections =
            names.iter().flat_map(|name| self.objections_to_name(choice, name, arguments, now_ms));
        let objections: Vec<_> = objections.collect();
        if objections.is_empty() {
            return self.judge.rule(choice, &name, arguments, now_ms);
        }
        let checkpoint = self.judge.checkpoint(choice);
        let mut ruling = self.judge.rule(choice, &name, arguments, now_ms);
        if ruling.is_allowed() {
            self.judge.go_back(choice, checkpoint);
            ruling.objections = objections;
        }
        ruling
    }

    pub(super) fn objections_to_name(
        &mut self,
        choice: u32,
        name: &str,
        arguments: Option<&str>,
        now_ms: u64,
    ) -> Vec<(&'static str, model::plan::Reason)> {
        if self.landing || self.answers.is_by_name(name) {
            return Vec::new();
        }
        let mut objections = self.judge.objections_to_reading(choice, name, arguments, now_ms);
        self.answers.exempt(&mut objections);
        objections
    }

    /// `reason` as the model is shown it. Where every tool is closed, the reason holds for every call of the turn,
    /// and the model is asked for its final answer at once.
    pub(super) fn shown(&mut self, choice: u32, reason: &Reason, now_ms: u64) -> Reason {
        let reason = self.answers.advise(reason);
        if self.closes_all(choice, now_ms) { reason.for_the_turn() } else { reason }
    }

    /// Whether every tool is closed that is no answer. Calls that are allowed may close more tools, so this is checked again after each
    /// of them. The check starts with the tool that was open the last time, so that the other tools are tried only
    /// when that one has closed.
    fn closes_all(&mut self, choice: u32, now_ms: u64) -> bool {
        let Some(tools) = self.judge.all_tools() else { return false };
        let known = self.open_tools.iter().position(|known| known.choice == choice);
        let at = known.unwrap_or_else(|| {
            self.open_tools.push(OpenTool { choice, nth: 0, is_any: true });
            self.open_tools.len() - 1
        });
        let OpenTool { nth, is_any, .. } = self.open_tools[at];
        if !is_any {
            return true;
        }
        let mut others = (nth..tools.len()).chain(0..nth.min(tools.len()));
        let open = others.find(|nth| tools.get(*nth).is_some_and(|name| !self.closes(choice, name, now_ms)));
        let known = &mut self.open_tools[at];
        (known.nth, known.is_any) = (open.unwrap_or(nth), open.is_some());
        open.is_none()
    }

    /// Whether a policy objects to the tool, whatever the arguments are, for a reason that does not pass with time.
    fn closes(&mut self, choice: u32, name: &str, now_ms: u64) -> bool {
        if self.answers.any {
            return false;
        }
        // The final-answer request forces it, so it needs no earlier re-ask.
        if self.answers.is_by_name(name) {
            return true;
        }
        let mut objections = self.judge.objections_by_name(choice, name, now_ms);
        self.answers.exempt(&mut objections);
        objections.iter().any(|(_, reason)| !reason.retryable && !reason.needs_approval())
    }

    /// The number of counted calls of `choice` has changed, so the check for an open tool must run again.
    pub(super) fn counts_anew(&mut self, choice: u32) {
        self.open_tools
            .iter_mut()
            .filter(|known| known.choice == choice)
            .for_each(|known| known.is_any = true);
    }

    /// Decides on a call that is incomplete because the reply was cut. It passes as it came, so that the client sees
    /// where the reply ends, unless there is an objection besides its arguments, or it calls a tool of ours, which the
    /// client does not know; a re-ask would be cut again.
    pub(super) fn decide_cut(&mut self, call: &Assembled, mut ruling: Ruling) -> Decision {
        let tool = call.name();
        ruling.objections.retain(|(_, reason)| reason.kind != ReasonKind::Validation);
        let decision = match ruling.objections.is_empty() {
            _ if self.observe => Decision::Release,
            true if !ruling.own && (!self.landing || self.answers.includes(&tool)) => Decision::Release,
            _ => Decision::Drop,
        };
        let (decided, objections) = (decision.clone(), ruling.objections);
        self.record.push(Judged {
            tool,
            id: call.id(),
            decision: decided,
            objections,
            acts: Vec::new(),
            re_request: None,
            unjudged: false,
        });
        decision
    }
}
