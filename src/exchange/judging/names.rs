//! Judging calls by name: when a name is complete, when the name alone blocks a call, and which other names a client
//! may assemble for a call whose name comes in pieces.

use super::{Judged, Judging, wrapper};
use crate::conversation::assembled::Assembled;
use crate::plan::ReasonKind;
use crate::plan::decision::Decision;
use crate::policy::set::Ruling;

impl Judging {
    /// Whether nothing can follow the name of `call` as it is now: the request declares such a tool, and none whose
    /// name goes on from it.
    pub fn is_complete_name(&self, call: &Assembled) -> bool {
        self.judge.is_complete(&call.name())
    }

    /// Whether the name of `call`, to which no policy objected, is enough to decide on it.
    pub fn needs_name_alone(&mut self, choice: u32, call: &Assembled) -> bool {
        let may_stand_for_others =
            call.has_other_names() && call.other_names().iter().any(|name| wrapper::is_name(name));
        !may_stand_for_others && !self.needs_arguments(choice, &call.name())
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
        let (policy, reason) = objections.iter().find(|(_, reason)| !reason.needs_approval())?.clone();
        let decision = Decision::Block { policy, reason: self.answers.advise(&reason) };
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
    pub fn objects_to_new_name(
        &mut self,
        (choice, renamed): (u32, bool),
        call: &Assembled,
        now_ms: u64,
    ) -> bool {
        let (mut names, arguments) = (call.other_names(), call.arguments());
        names.extend(renamed.then(|| call.name()));
        names.iter().any(|name| {
            if wrapper::is_name(name) {
                return true;
            }
            let needs_more =
                self.judge.declares(name) && self.needs_arguments(choice, name) && !call.is_whole();
            needs_more || !self.objections_to_name(choice, name, Some(&arguments), now_ms).is_empty()
        })
    }

    /// The ruling of all policies on `call`, under every name that a client may assemble for it.
    pub(super) fn ruling(
        &mut self,
        (choice, now_ms): (u32, u64),
        call: &Assembled,
        arguments: Option<&str>,
    ) -> Ruling {
        let name = call.name();
        if !call.has_other_names() || self.observe {
            return self.judge.rule(choice, &name, arguments, now_ms);
        }
        let checkpoint = self.judge.checkpoint(choice);
        let mut ruling = self.judge.rule(choice, &name, arguments, now_ms);
        if ruling.is_allowed() {
            let names = call.other_names();
            let objections =
                names.iter().flat_map(|name| self.objections_to_name(choice, name, arguments, now_ms));
            ruling.objections = objections.collect();
            if !ruling.is_allowed() {
                self.judge.go_back(choice, checkpoint);
            }
        }
        ruling
    }

    fn objections_to_name(
        &mut self,
        choice: u32,
        name: &str,
        arguments: Option<&str>,
        now_ms: u64,
    ) -> Vec<(&'static str, crate::plan::Reason)> {
        if self.landing || self.answers.is_by_name(name) {
            return Vec::new();
        }
        let mut objections = self.judge.objections_to_reading(choice, name, arguments, now_ms);
        self.answers.exempt(&mut objections);
        objections
    }

    /// Decides on a call that is incomplete because the reply was cut. It passes as it came, so that the client sees
    /// where the reply ends, unless there is an objection besides its arguments; a re-ask would be cut again.
    pub(super) fn decide_cut(&mut self, call: &Assembled, mut ruling: Ruling) -> Decision {
        let tool = call.name();
        ruling.objections.retain(|(_, reason)| reason.kind != ReasonKind::Validation);
        let decision = match ruling.objections.is_empty() {
            _ if self.observe => Decision::Release,
            true if !self.landing || self.answers.includes(&tool) => Decision::Release,
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
