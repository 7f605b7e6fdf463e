//! The calls that a judge has let through, where one of them may have to be judged again: it waits for an effect, and the
//! calls after it are judged meanwhile as if it ran. Kept only where calls wait: for a person's decision, for another
//! model's answer, for a tool that toolrein runs, until a limit allows them, or until one has counted them.

use super::{Folds, Judge};
use crate::about::Confirming;
use model::identity::Hash;
use model::plan::{OpenTools, Proposed};
use std::sync::Arc;

/// A call that was let through, as the folds received it.
pub struct PassedCall {
    /// See [`Ruling::passed`](super::Ruling::passed).
    number: u32,
    choice: u32,
    name: String,
    arguments: Option<String>,
    arguments_hash: Option<Hash>,
    now_ms: u64,
}

impl Judge {
    /// Goes back to before the call of `choice` that was let through under this number, so that it can be judged again as
    /// the call that it was. A wrapper is so many `calls`. Returns the calls after them, which [`Self::replay`] counts again.
    pub fn rewind(&mut self, choice: u32, number: u32, calls: usize) -> Vec<PassedCall> {
        let is_it = |call: &PassedCall| call.number == number && call.choice == choice;
        let Some(position) = self.passed.iter().position(is_it) else { return Vec::new() };
        let is_own = |call: &mut PassedCall| call.choice == choice;
        let mut later: Vec<PassedCall> = self.passed.extract_if(position.., is_own).collect();
        later.drain(..calls.min(later.len()));
        let folds = self.folds.iter().map(|fold| fold.fork()).collect();
        self.choices.retain(|(index, _)| *index != choice);
        self.choices.push((choice, folds));
        let earlier: Vec<PassedCall> = self.passed.extract_if(.., is_own).collect();
        self.replay(earlier);
        later
    }

    /// Counts these calls, in their order.
    pub fn replay(&mut self, calls: Vec<PassedCall>) {
        for passed in calls {
            self.release(&passed);
            self.passed.push(passed);
        }
    }

    fn release(&mut self, passed: &PassedCall) {
        let results = Arc::clone(&self.results);
        let PassedCall { choice, name, arguments, arguments_hash, now_ms, .. } = passed;
        let (arguments, open) = (arguments.as_deref(), OpenTools::all());
        let (arguments_hash, now_ms, results) = (*arguments_hash, *now_ms, &*results);
        let call = Proposed { name, arguments, arguments_hash, now_ms, results, open };
        let owner = self.owner(name);
        let folds: &mut Folds = self.folds_of(*choice);
        match owner {
            Some(owner) => folds[owner].release(&call),
            None => folds.iter_mut().for_each(|fold| fold.release(&call)),
        }
    }

    /// Keeps a call that was let through, where it may have to be judged again; returns its number then.
    pub(super) fn keep_passed(&mut self, choice: u32, call: &Proposed<'_>) -> Option<u32> {
        let waits = self.confirming().and_then(Confirming::hold_ms).is_some() || self.longest_wait_ms > 0;
        if !waits && !self.waits_for_others && !self.reserves {
            return None;
        }
        let number = self.next_passed;
        self.next_passed += 1;
        let (name, arguments) = (call.name.to_owned(), call.arguments.map(str::to_owned));
        let (arguments_hash, now_ms) = (call.arguments_hash, call.now_ms);
        self.passed.push(PassedCall { number, choice, name, arguments, arguments_hash, now_ms });
        Some(number)
    }
}
