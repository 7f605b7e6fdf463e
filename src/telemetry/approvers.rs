//! Metrics of people's decisions by who decided, and of the notifications to them. Names come from outside, so only the
//! first ones get series of their own.

use super::bounded;
use super::families::{Counters, Maker};
use model::record::{ApprovalRecord, WebhookResult};
use prometheus::{Error, IntCounterVec};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// The most people with their own series.
const MOST: usize = 100;
/// The series of all others.
const OTHER: &str = "other";

/// See the module.
pub(super) struct Approvers {
    decisions: IntCounterVec,
    webhooks: Counters,
    // A std mutex: held for a look-up, once for each decision of a person.
    seen: Mutex<BTreeSet<String>>,
}

impl Approvers {
    /// Registers the families.
    pub(super) fn new(make: &Maker<'_>) -> Result<Self, Error> {
        let decisions = make.counters(
            "toolrein_approver_decisions_total",
            "Decisions on calls by the approver that the admin port was given (the first 100, then other), and outcome.",
            &["approver", "outcome"],
        )?;
        let webhooks = make.words(
            "toolrein_webhook_total",
            "Notifications about calls that wait for a person: delivered, refused (a status that does not change), failed \
             (after all retries), dropped (too many at once).",
            "result",
        )?;
        Ok(Self { decisions, webhooks, seen: Mutex::default() })
    }

    /// Counts the outcome of a notification.
    pub(super) fn count_webhook(&self, result: WebhookResult) {
        self.webhooks.add(result.as_str(), 1);
    }

    /// Counts a decision whose approver is known.
    pub(super) fn count(&self, approval: &ApprovalRecord) {
        let Some(approver) = &approval.approver else { return };
        let name = bounded::name(approver);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = seen.contains(&*name) || (seen.len() < MOST && seen.insert(name.clone().into_owned()));
        let label = if is_known { &*name } else { OTHER };
        self.decisions.with_label_values(&[label, approval.outcome.as_str()]).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::record::Consent;
    use prometheus::Registry;

    #[test]
    fn a_hundred_people_have_series_of_their_own() {
        let approvers = Approvers::new(&Maker(&Registry::new())).unwrap();
        for at in 0..300 {
            let approver = Some(format!("person {at}\n"));
            approvers.count(&ApprovalRecord {
                tool: "f".into(),
                outcome: Consent::Approved,
                approver,
                reason: None,
            });
        }
        let count = |name: &str| approvers.decisions.with_label_values(&[name, "approved"]).get();
        assert_eq!((count("person_7_"), count("other")), (1, 200));
    }
}
