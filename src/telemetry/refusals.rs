//! What requests met or avoided of a model's refusals: the metrics, with what each refusal costs. Decides nothing.

use super::families::Maker;
use model::record::{Fallback, RefusalNote};
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

/// What it costs that a refusal is remembered.
pub fn cost_of(kind: Fallback) -> &'static str {
    match kind {
        Fallback::Tools => "requests are sent without their tools: the model can call nothing",
        Fallback::ToolChoice | Fallback::ForcedChoice => {
            "requests are sent without their choice of tool: the model may answer without a call"
        }
        Fallback::Flattened => "calls and results in the history are sent as plain text",
        Fallback::Streaming => {
            "streams with tools are sent as whole replies: nothing is shown before the end"
        }
        Fallback::Placement => "toolrein's notices are suffixes of other messages",
        Fallback::StreamOptions => "the usage of streams is not known where the client does not ask for it",
        Fallback::ParallelMember => "the model is not asked for one call at a time; more are still blocked",
        Fallback::HiddenTools => {
            "hidden tools are taken out of the declarations, which breaks the prompt cache"
        }
        Fallback::OwnTools => "the model is offered no tool of toolrein's (read_more, ask_user)",
        Fallback::Pairs
        | Fallback::Arguments
        | Fallback::Names
        | Fallback::RepeatedIds
        | Fallback::IdForms => "broken parts of histories are repaired",
        Fallback::Pictures => "pictures in results are moved to a user's message",
        Fallback::NoPictures => "pictures in results are replaced by notes",
        Fallback::Overflow | Fallback::Stale => "nothing is remembered",
    }
}
