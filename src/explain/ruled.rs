//! The decision on each recorded call, looked up in the replay's observations. Makes no decisions.

use super::facts::{Made, Objection, Ruled};
use crate::replay::one::Observations;
use engine::judging::Judged;
use model::View;
use model::plan::decision::Decision;
use model::plan::envelope;
use std::collections::HashMap;
use wire::json::decode;

/// The result of a call that neither the client nor the model sees.
const DROPPED: &str = "dropped: the model had been asked for a final answer";

/// The rulings of one replay.
pub(super) struct Rulings<'a> {
    seen: &'a Observations,
    /// By message, and by position among its calls.
    judged: HashMap<(usize, usize), &'a Judged>,
}

impl<'a> Rulings<'a> {
    /// The rulings in `seen`.
    pub(super) fn new(seen: &'a Observations) -> Self {
        let judged = seen.calls.iter().map(|(message, position, judged)| ((*message, *position), judged));
        Self { seen, judged: judged.collect() }
    }

    /// The calls of a message.
    pub(super) fn of(&self, view: View<'_>) -> Vec<Made> {
        let calls = view.message.calls.iter().enumerate().map(|(position, call)| {
            let name = call.name.map_or("".into(), |name| decode(name, view.body));
            let judged = self.judged.get(&(view.index, position));
            let objections = judged.iter().flat_map(|judged| &judged.objections).map(|(policy, reason)| {
                Objection { policy, reason: reason.kind.as_str(), message: reason.message.clone() }
            });
            Made {
                tool: name.into_owned(),
                arguments: call.arguments.text(view.body).into_owned(),
                ruling: self.ruling(view.index, position),
                objections: objections.collect(),
            }
        });
        calls.collect()
    }

    /// The result that the model would have been shown for a call, where toolrein wrote it.
    pub(super) fn result_of(&self, message: usize, position: usize) -> Option<String> {
        match self.ruling(message, position) {
            Ruled::Blocked { result, .. } | Ruled::Answered { result, .. } => Some(result),
            _ => None,
        }
    }

    fn ruling(&self, message: usize, position: usize) -> Ruled {
        let Some(judged) = self.judged.get(&(message, position)) else {
            return self.unjudged(message);
        };
        let by = judged.acts.first().map_or("toolrein", |(policy, _)| policy);
        match &judged.decision {
            Decision::Release => Ruled::Released,
            Decision::Rewrite { arguments } => Ruled::Rewritten { by, new_arguments: arguments.clone() },
            Decision::Block { policy, reason } | Decision::Ask { policy, reason, .. } => {
                Ruled::Blocked { by: policy, result: envelope(policy, reason) }
            }
            Decision::Answer { content: result, .. } | Decision::Clarify { asked: result, .. } => {
                Ruled::Answered { by, result: result.clone() }
            }
            // In a replay no call waits.
            Decision::Hold { .. } => Ruled::Unjudged,
            Decision::Drop => Ruled::Blocked { by, result: DROPPED.to_owned() },
        }
    }

    /// A call after a refused request would never have been made.
    fn unjudged(&self, message: usize) -> Ruled {
        let refused = self.seen.refusals.iter().any(|(last, _)| last + 1 == message);
        if refused { Ruled::Refused } else { Ruled::Unjudged }
    }
}

impl Ruled {
    /// Whether the client does not see the call and is not answered either.
    pub(super) fn is_blocked(&self) -> bool {
        matches!(self, Self::Blocked { .. } | Self::Refused)
    }
}
