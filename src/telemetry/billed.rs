//! The metrics of what toolrein itself asks other models: summaries of cleared results, and questions about calls.

use super::families::{Counters, Maker};
use prometheus::Error;

/// Summaries that were requested.
pub(super) struct Summaries {
    pub(super) kinds: Counters,
    pub(super) tokens: Counters,
    /// The tokens of questions about calls.
    pub(super) question_tokens: Counters,
}

impl Summaries {
    pub(super) fn new(make: &Maker<'_>) -> Result<Self, Error> {
        Ok(Self {
            kinds: make.words(
                "toolrein_summaries_total",
                "Summaries of cleared results, by result: made, late and failed are requests to a model, pinned are \
                 requests that got an earlier summary, lost are batches whose summary is not known any more.",
                "kind",
            )?,
            tokens: make.words(
                "toolrein_summaries_tokens_total",
                "Tokens billed for summaries; included in no other count.",
                "type",
            )?,
            question_tokens: make.words(
                "toolrein_question_tokens_total",
                "Tokens billed for questions about calls to another model (rewrite_query); included in no other count.",
                "type",
            )?,
        })
    }
}
