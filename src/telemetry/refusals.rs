//! What requests met or avoided of a model's refusals: the metrics. Decides nothing.

use super::families::Maker;
use model::record::RefusalNote;
use prometheus::{Error, IntCounterVec};

/// Counts refusals that were met or avoided.
pub(super) struct RefusalMetrics {
    met: IntCounterVec,
    avoided: IntCounterVec,
}

impl RefusalMetrics {
    pub(super) fn new(make: &Maker<'_>) -> Result<Self, Error> {
        Ok(Self {
            met: make.counters(
                "toolrein_model_refusals_total",
                "Requests whose refusal is remembered, by model, kind as in toolrein_fallbacks_total, and callers for whom \
                 it counts: one, all.",
                &["model", "kind", "callers"],
            )?,
            avoided: make.counters(
                "toolrein_model_refusals_avoided_total",
                "Requests that were sent in another form at once, since the model is known to refuse their own, by the \
                 same labels; of kind tools: without their tools.",
                &["model", "kind", "callers"],
            )?,
        })
    }

    pub(super) fn count(&self, model: &str, note: RefusalNote) {
        let family = if note.is_new { &self.met } else { &self.avoided };
        family.with_label_values(&[model, note.kind.as_str(), note.scope.as_str()]).inc();
    }
}
