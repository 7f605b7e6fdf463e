//! What one request's prompt is going to cost, and what it did: foretold before it is sent, compared with the
//! upstream's `usage` afterwards, and told to the ledger for the requests to come. Changes no byte.

use crate::ledger::{Cost, Facts};
use crate::rewrite::sent::Sent;
use crate::telemetry::outcome::Foretold;
use crate::transcript::identity::Hash;
use crate::transcript::prompt::{Anchor, Histories, Prediction, Size, predict};
use crate::wire::usage::Usage;

/// See the file's head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    model: Hash,
    conversation: Hash,
    history: Hash,
    edits: Hash,
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
        let known = histories.earlier.iter().zip(&facts.anchors);
        let known = known.filter_map(|((end, _), anchor)| Some((*end, (*anchor)?)));
        let known: Vec<(usize, Anchor)> =
            known.filter(|(end, anchor)| sent.edits_before(*end) == anchor.edits).collect();
        // The newest that was billed; without a bill it still saves the counting.
        let best = known.iter().find(|(_, anchor)| anchor.prompt > 0).or(known.first());
        let size = best.map_or_else(
            || sent.size(),
            |(end, anchor)| {
                let messages = anchor.size.messages + sent.messages_from(*end);
                Size { tools: anchor.size.tools, messages }
            },
        );
        let earlier = best.map(|(end, anchor)| (anchor, sent.transcript.view(*end).tokens()));
        Self {
            model,
            conversation,
            history: histories.whole,
            edits: sent.edits_before(sent.transcript.request.messages.len()),
            size,
            prediction: predict(size, earlier, facts.ratio),
        }
    }

    /// For the record, before anything is billed.
    pub(crate) fn foretold(&self) -> Foretold {
        Foretold { tokens: self.prediction.tokens, basis: self.prediction.basis.as_str(), billed: 0 }
    }

    /// For the ledger, with what the upstream told.
    pub(crate) fn cost(&self, usage: Usage) -> Cost {
        let Usage { prompt, completion, .. } = usage;
        let anchor = Anchor { size: self.size, prompt, completion, edits: self.edits };
        Cost { model: self.model, conversation: self.conversation, history: self.history, anchor }
    }
}
