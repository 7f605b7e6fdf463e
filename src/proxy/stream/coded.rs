//! Compressed event streams: what comes is decoded bit by bit as the client takes it, and judged decoded. The client gets
//! the decoded stream; while only observing it gets the bytes as they came, and the decoded copy is judged.

use super::Streaming;
use crate::proxy::body::BodyError;
use bytes::Bytes;
use tokio::time::Instant;

impl Streaming {
    /// Takes what came of the upstream's body.
    pub(super) fn take(&mut self, data: Bytes) {
        let observes = self.exchange.is_observing();
        let Some(decoder) = &mut self.decoder else { return self.push(&data) };
        if observes {
            self.out.push_back(data.clone());
        }
        decoder.push(data);
    }

    /// Judges the next piece that can be decoded; false if there is none.
    pub(super) fn decode(&mut self) -> bool {
        let Some(step) = self.decoder.as_mut().and_then(|decoder| decoder.step()) else { return false };
        match step {
            Ok(piece) if piece.is_empty() => {}
            Ok(piece) => {
                self.push(&piece);
                self.expect_more(Instant::from(self.exchange.record.lap()));
            }
            Err(_) if self.exchange.is_observing() => self.exchange.record.unjudged("unreadable_coding"),
            // All has been said.
            Err(_) if self.judge.is_done() => {}
            Err(error) => self.break_off(&self.exchange.gateway.cut(&error), BodyError::UpstreamCut),
        }
        true
    }

    /// Whether the upstream's body ended before its coding did.
    pub(super) fn ends_within_coding(&self) -> bool {
        let is_cut = self.decoder.as_ref().is_some_and(|decoder| decoder.finish().is_err());
        is_cut && !self.exchange.is_observing()
    }

    /// Whether the client gets the upstream's compressed bytes, of which a copy is judged.
    pub(super) fn passes_coded(&self) -> bool {
        self.decoder.is_some() && self.exchange.is_observing()
    }
}
