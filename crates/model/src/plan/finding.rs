//! What a policy finds in a request and others use: policies after it, the engine, reports. A finding changes nothing.

use super::Plan;
use std::sync::Arc;

/// What a policy finds at an item.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// The `text`-th string of text of the item may hold instructions that do not come from the user.
    Instructions { text: usize },
    /// The share of a budget that is left after the item, 0 to 1; of several the least counts.
    BudgetLeft(f64),
    /// The item asks again for a cut result of this tool, by another call.
    ReRequest { tool: Arc<str> },
    /// The operator's name for the state that the conversation is in.
    State(Arc<str>),
    /// For each counted thing, how much the model is shown to have left from now on.
    AmountsLeft(Vec<(Arc<str>, u64)>),
    /// The policy must read all items of the conversation, and cannot go on from a copy of an earlier state. Reported before
    /// the first item.
    AllItemsNeeded,
}

impl Finding {
    /// Whether it is [`Self::Instructions`].
    pub fn is_instructions(&self) -> bool {
        matches!(self, Self::Instructions { .. })
    }
}

impl Plan {
    /// Reports a finding at the event being read.
    pub fn report(&mut self, finding: Finding) {
        self.findings.push((self.at.message, finding));
    }

    /// What policies before this one have found at the event being read, the newest first.
    pub fn findings_here(&self) -> impl Iterator<Item = &Finding> {
        let here = self.at.message;
        let newest = self.findings.iter().rev().take_while(move |(message, _)| *message == here);
        newest.map(|(_, finding)| finding)
    }

    /// All findings in the order in which they were reported, each with the position of its item.
    pub fn findings(&self) -> impl DoubleEndedIterator<Item = (usize, &Finding)> {
        self.findings.iter().map(|(message, finding)| (*message, finding))
    }

    /// Removes the findings for which this is true.
    pub fn forget_findings(&mut self, is_forgotten: impl Fn(&Finding) -> bool) {
        self.findings.retain(|(_, finding)| !is_forgotten(finding));
    }
}
