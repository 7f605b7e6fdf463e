//! Objections to calls that are not, or not yet, let through: a call whose name alone is known, one that a client may
//! read in another way, calls that are judged together. Queries the folds; only [`Judge::rule`] changes them.

use super::open::is_open;
use super::{Folds, Judge, objection};
use model::plan::{OpenTools, Proposed, Reason};
use std::sync::Arc;

/// Objections with the policies that raise them, in registry order.
pub type Objections = Vec<(&'static str, Reason)>;

/// The folds of a choice, saved to be restored.
pub struct Checkpoint {
    folds: Folds,
    passed: usize,
}

impl Judge {
    /// Whether calls that cannot be judged must not reach the client.
    pub fn restricts_calls(&self) -> bool {
        self.restricts
    }

    /// The tools that the request declares.
    pub fn declared(&self) -> &[String] {
        &self.declared
    }

    /// Whether the request declares the tool that a call of `name` means.
    pub fn declares(&self, name: &str) -> bool {
        self.names().meant(name).is_some()
    }

    /// Whether the request declares a tool of exactly this name.
    pub fn declares_name(&self, name: &str) -> bool {
        self.declared.iter().any(|tool| tool == name)
    }

    /// Whether `name` is that of a declared tool, and is not the beginning of another declared name.
    pub fn is_complete(&self, name: &str) -> bool {
        let goes_on = |tool: &String| tool != name && tool.starts_with(name);
        self.declares_name(name) && !self.declared.iter().any(goes_on)
    }

    /// The tools that the model may call, if toolrein knows all of them.
    pub fn all_tools(&self) -> Option<Arc<[String]>> {
        let is_known = !self.declares_elsewhere && self.own.is_empty();
        is_known.then(|| Arc::clone(&self.declared)).filter(|tools| !tools.is_empty())
    }

    /// The objections to a call of the tool `name` whatever its arguments are: more calls in the reply only use up
    /// limits.
    pub fn objections_by_name(&mut self, choice: u32, name: &str, now_ms: u64) -> Objections {
        self.objections(choice, name, None, now_ms)
    }

    /// The objections to a call of the tool `name` that is not made, but that a client may take another call for.
    /// Objections that any unknown name would meet do not count unless the tool is declared: no client has such a
    /// tool.
    pub fn objections_to_reading(
        &mut self,
        choice: u32,
        name: &str,
        arguments: Option<&str>,
        now_ms: u64,
    ) -> Objections {
        let mut objections = self.objections(choice, name, arguments, now_ms);
        if !self.declares(name) && !objections.is_empty() {
            let to_any = self.objections(choice, NO_TOOL, arguments, now_ms);
            objections.retain(|(policy, _)| !to_any.iter().any(|(other, _)| other == policy));
        }
        objections
    }

    /// The objections of the rules that decide which calls may run, and that name the tool `name`: those to a call of it that
    /// is within the arguments of another. Neither limits nor faults of its arguments are among them, nor what any name would
    /// meet that is not declared.
    pub fn restrictions(&mut self, choice: u32, name: &str, arguments: &str, now_ms: u64) -> Objections {
        let mut objections = self.objections(choice, name, Some(arguments), now_ms);
        objections.retain(|(_, reason)| reason.kind.restricts());
        if !self.declares(name) && !objections.is_empty() {
            let to_any = self.objections(choice, NO_TOOL, Some(arguments), now_ms);
            let is_general = |policy: &str, reason: &Reason| {
                to_any.iter().any(|(other, any)| *other == policy && any.kind == reason.kind)
            };
            objections.retain(|(policy, reason)| !is_general(policy, reason));
        }
        objections
    }

    fn objections(&mut self, choice: u32, name: &str, arguments: Option<&str>, now_ms: u64) -> Objections {
        let arguments_hash = arguments.map(|arguments| self.arguments_hash(arguments));
        let name = &*self.meant(name).into_owned();
        let results = Arc::clone(&self.results);
        let results = &*results;
        let approved = self.approved;
        let folds: &Folds = self.folds_of(choice);
        let is_open = |tool: &str| is_open(folds, tool, now_ms);
        let open = OpenTools::new(&is_open);
        let call = Proposed { name, arguments, arguments_hash, now_ms, results, open };
        folds.iter().filter_map(|fold| objection(&**fold, fold.judge(&call), approved)).collect()
    }

    /// Saves the state of the limits of `choice`.
    pub fn checkpoint(&mut self, choice: u32) -> Checkpoint {
        let folds = self.folds_of(choice).iter().map(|fold| fold.fork()).collect();
        Checkpoint { folds, passed: self.passed.len() }
    }

    /// Takes back every call of `choice` that was let through since.
    pub fn go_back(&mut self, choice: u32, checkpoint: Checkpoint) {
        *self.folds_of(choice) = checkpoint.folds;
        self.passed.truncate(checkpoint.passed);
    }
}

/// A name that no tool can have.
const NO_TOOL: &str = "\u{0}";
