//! The calls that a judge has let through, where one of them may have to be taken back: it was held, and then not
//! released. Kept only where calls are held: for a person's decision, for another model's answer, or until a limit allows
//! them.

use super::{Folds, Judge};
use crate::about::Confirming;
use model::identity::Hash;
use model::plan::{OpenTools, Proposed};

/// A call that was let through, as the folds received it.
pub(super) struct Passed {
    choice: u32,
    name: String,
    arguments: Option<String>,
    arguments_hash: Option<Hash>,
    now_ms: u64,
}

impl Judge {
    /// A call that was let through is not made after all: the counts of `choice` are computed again without it. `nth`
    /// is [`Self::passed`] right after it was let through.
    pub fn take_back(&mut self, choice: u32, nth: usize) {
        let Some(at) = nth.checked_sub(1).filter(|at| *at < self.passed.len()) else { return };
        // Its entry stays, so that the indexes of others do.
        self.passed[at].choice = u32::MAX;
        let mut folds: Folds = self.folds.iter().map(|fold| fold.fork()).collect();
        for passed in self.passed.iter().filter(|passed| passed.choice == choice) {
            let Passed { name, arguments, arguments_hash, now_ms, .. } = passed;
            let (arguments_hash, now_ms) = (*arguments_hash, *now_ms);
            let answers = &*self.answers;
            let (arguments, open) = (arguments.as_deref(), OpenTools::all());
            let call = Proposed { name, arguments, arguments_hash, now_ms, answers, open };
            match self.owner(name) {
                Some(owner) => folds[owner].release(&call),
                None => folds.iter_mut().for_each(|fold| fold.release(&call)),
            }
        }
        self.choices.retain(|(index, _)| *index != choice);
        self.choices.push((choice, folds));
    }

    /// How many calls were let through, where they may have to be taken back.
    pub fn passed(&self) -> usize {
        self.passed.len()
    }

    pub(super) fn keep_passed(&mut self, choice: u32, call: &Proposed<'_>) {
        let waits = self.confirming().and_then(Confirming::hold_ms).is_some() || self.longest_wait_ms > 0;
        if !waits && !self.asks_models {
            return;
        }
        let (name, arguments) = (call.name.to_owned(), call.arguments.map(str::to_owned));
        let (arguments_hash, now_ms) = (call.arguments_hash, call.now_ms);
        self.passed.push(Passed { choice, name, arguments, arguments_hash, now_ms });
    }
}
