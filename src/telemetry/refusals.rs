//! What requests met or avoided of a model's refusals: the data of the log line, the metrics and the dashboard, with what
//! each refusal costs. Decides nothing.

use super::fallback::Fallback;
use super::families::Maker;
use prometheus::{Error, IntCounterVec};

/// For whom a remembered refusal counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefusalScope {
    /// For the caller whose request met it.
    OneCaller,
    /// For all: two callers have met it.
    AllCallers,
}

impl RefusalScope {
    /// As in labels and fields.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OneCaller => "one",
            Self::AllCallers => "all",
        }
    }
}

/// A refusal that a request met or avoided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusalNote {
    /// The fallback that avoids it.
    pub kind: Fallback,
    pub scope: RefusalScope,
    /// The request met it, so that it is remembered from now on. Otherwise it was known, and the request was sent in
    /// another form at once.
    pub is_new: bool,
}

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
