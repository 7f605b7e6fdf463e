//! The treatment of a client request, for a recording, beyond its request record: the hidden exchanges, and the texts of toolrein
//! that the model read. Plain data; no decision uses it.

use super::{Inspection, Phase};
use bytes::Bytes;
use model::plan::{Change, Refusal};

/// What was done to one client request, beside what its record says.
#[derive(Clone, Debug, Default)]
pub struct Treatment {
    /// The hidden exchanges, each with the number of its choice: items of the history, joined by commas.
    pub hidden: Vec<(u32, Bytes)>,
    /// The notices that are new in the request, each with its policy.
    pub notices: Vec<(&'static str, String)>,
    /// Why a policy refused the request.
    pub refusal: Option<Refusal>,
}

impl Inspection<'_> {
    /// What was done so far; complete once the exchange is closed.
    pub fn treatment(&self) -> Treatment {
        let plan = self.plan();
        let new = plan.effective_edits().filter(|edit| edit.decided >= self.0.core.new_from);
        let notices = new.filter_map(|edit| match &edit.change {
            Change::Notice { text, .. } => Some((edit.policy, text.clone())),
            _ => None,
        });
        let hidden = match &self.0.phase {
            Phase::Running(running) | Phase::Ended(running) => running.hidden(),
            _ => Vec::new(),
        };
        Treatment { hidden, notices: notices.collect(), refusal: plan.refusal.clone() }
    }
}
