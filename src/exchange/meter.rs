//! What one request's prompt is going to cost, and what it did: foretold before it is sent, compared with the
//! upstream's `usage` afterwards, and told to the ledger for the requests to come. Changes no byte.

use crate::exchange::store::{Cost, Facts};
use crate::rewrite::sent::Sent;
use crate::telemetry::outcome::Foretold;
use crate::transcript::identity::Hash;
use crate::transcript::prompt::{Anchor, Histories, Prediction, Size};
use crate::wire::usage::Usage;

/// See the file's head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    model: Hash,
    conversation: Hash,
    history: Hash,
    edits: Hash,
    rounds: u64,
    /// See [`Sent::keeps_rounds`].
    pub(crate) keeps_rounds: bool,
    size: Size,
    prediction: Prediction,
}

impl Meter {
    /// Foretells the cost of what is sent. `facts` answer for the earlier ones of `histories`, in their order.
    pub(crate) fn read(
        sent: Sent<'_>,
        histories: &Histories,
        facts: &Facts,
        (model, conversation): (Hash, Hash),
    ) -> Self {
        let (size, prediction) = sent.foretell(histories, &facts.anchors, facts.ratio);
        Self {
            model,
            conversation,
            history: histories.whole,
            edits: sent.edits_before(sent.transcript.request.messages.len()),
            rounds: sent.rounds_before(sent.transcript.request.messages.len()),
            keeps_rounds: sent.keeps_rounds(histories, &facts.anchors),
            size,
            prediction,
        }
    }

    /// For the record, before anything is billed.
    pub(crate) fn foretold(&self) -> Foretold {
        Foretold { tokens: self.prediction.tokens, basis: self.prediction.basis.as_str(), billed: 0 }
    }

    /// For the ledger, with what the upstream told.
    pub(crate) fn cost(&self, usage: Usage) -> Cost {
        let Usage { prompt, completion, .. } = usage;
        let anchor = Anchor { size: self.size, prompt, completion, edits: self.edits, rounds: self.rounds };
        Cost { model: self.model, conversation: self.conversation, history: self.history, anchor }
    }
}
