//! Whether a batch of cleared results has a summary, and which: decided once for each batch and kept, within a bound and
//! a lifetime. Asks nobody; a summary that is forgotten is a prefix that breaks, no more.

use super::recent::Recent;
use crate::transcript::identity::Hash;
use crate::transcript::summaries::Summaries;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What all of them may take: some thousand summaries.
const BYTES: u64 = 16 << 20;
/// What an entry costs beside its text, about.
const ENTRY_BYTES: usize = 150;

/// What was decided for one batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pin {
    /// It has none.
    Cleared,
    Summary(Arc<str>),
}

/// See the file's head.
pub struct Pins {
    kept: Recent<Pin>,
    started: Instant,
}

impl Pins {
    /// No decisions yet; each is kept for `lifetime`.
    pub fn new(lifetime: Duration) -> Self {
        let lifetime_ms = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
        let weigh = |pin: &Pin| match pin {
            Pin::Cleared => ENTRY_BYTES as u64,
            Pin::Summary(text) => (ENTRY_BYTES + text.len()) as u64,
        };
        Self { kept: Recent::new(BYTES, lifetime_ms, weigh), started: Instant::now() }
    }

    /// Decides for `batch`; the first decision stays.
    pub fn pin(&self, batch: Hash, pin: Pin) {
        self.kept.update(batch, self.now_ms(), |known| known.unwrap_or(pin));
    }

    /// What was decided for `batch`.
    pub fn find(&self, batch: Hash) -> Option<Pin> {
        self.kept.find(&batch, self.now_ms())
    }

    /// Time of its own, which no clock set anew moves.
    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl Summaries for Pins {
    fn pinned(&self, batch: Hash) -> Option<Arc<str>> {
        match self.find(batch)? {
            Pin::Cleared => None,
            Pin::Summary(text) => Some(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_decision_stays() {
        let pins = Pins::new(Duration::from_secs(3_600));
        let batch = Hash(1);
        assert_eq!(pins.find(batch), None);
        pins.pin(batch, Pin::Cleared);
        pins.pin(batch, Pin::Summary("late".into()));
        assert_eq!((pins.find(batch), pins.pinned(batch)), (Some(Pin::Cleared), None));
        pins.pin(Hash(2), Pin::Summary("in time".into()));
        pins.pin(Hash(2), Pin::Cleared);
        assert_eq!(pins.pinned(Hash(2)).as_deref(), Some("in time"));
    }
}
