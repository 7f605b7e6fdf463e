//! Pinned summary decisions: whether a batch of cleared results has a summary, and which one. Each batch is decided
//! once, and the decision is kept within a bound and a lifetime; so are summaries that came too late for their batch.
//! Sends no requests. A summary that was evicted only breaks one cached prefix.

use model::identity::Hash;
use model::plan::SummaryWanted;
use model::summaries::{Pin, Summaries};
use state::cache::{Cache, ENTRY_BYTES, weighed};
use std::sync::Arc;
use std::time::Duration;

/// The memory limit for all of them: some thousand summaries.
const BYTES: u64 = 16 << 20;

/// See the module's documentation.
pub struct Pins {
    kept: Cache<Pin>,
    late: Cache<Arc<str>>,
}

impl Pins {
    /// No decisions yet; each is kept for `lifetime`.
    pub fn new(lifetime: Duration) -> Self {
        let weigh = |pin: &Pin| match pin {
            Pin::Cleared => ENTRY_BYTES,
            Pin::Summary(text) => ENTRY_BYTES + text.len(),
        };
        let weigh_text = |text: &Arc<str>| ENTRY_BYTES + text.len();
        Self { kept: weighed(BYTES, lifetime, weigh), late: weighed(BYTES, lifetime, weigh_text) }
    }

    /// Decides for `batch`; the first decision stays. Returns whether this is the first.
    pub fn pin(&self, batch: Hash, pin: Pin) -> bool {
        self.kept.entry(batch).or_insert(pin).is_fresh()
    }

    /// Decides for the wanted batch: by the `text` that came for it, and by the one that came too late for the batch
    /// before. Returns whether this is the first decision, which stays.
    pub fn decide(&self, wanted: &SummaryWanted, text: Option<&Arc<str>>) -> bool {
        let late = wanted.earlier.and_then(|earlier| self.late(earlier));
        let pin = match (late, text) {
            (None, None) => Pin::Cleared,
            (None, Some(text)) => Pin::Summary(Arc::clone(text)),
            (Some(late), None) => Pin::Summary(late),
            (Some(late), Some(text)) => Pin::Summary(format!("{late}\n\n{text}").into()),
        };
        self.pin(wanted.batch, pin)
    }

    /// Keeps a summary that came after its `batch` was decided.
    pub fn keep_late(&self, batch: Hash, summary: Arc<str>) {
        self.late.insert(batch, summary);
    }

    /// The summary that came after its `batch` was decided.
    pub fn late(&self, batch: Hash) -> Option<Arc<str>> {
        self.late.get(&batch)
    }
}

impl Summaries for Pins {
    fn pinned(&self, batch: Hash) -> Option<Pin> {
        self.kept.get(&batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pins() -> Pins {
        Pins::new(Duration::from_secs(3_600))
    }

    #[test]
    fn the_first_decision_about_a_batch_is_kept() {
        let pins = pins();
        let batch = Hash(1);
        assert_eq!(pins.pinned(batch), None);
        assert!(pins.pin(batch, Pin::Cleared));
        assert!(!pins.pin(batch, Pin::Summary("late".into())));
        assert_eq!(pins.pinned(batch), Some(Pin::Cleared));
        pins.pin(Hash(2), Pin::Summary("in time".into()));
        pins.pin(Hash(2), Pin::Cleared);
        assert_eq!(pins.pinned(Hash(2)), Some(Pin::Summary("in time".into())));
    }

    #[test]
    fn a_late_summary_is_kept_beside_the_decision() {
        let pins = pins();
        pins.pin(Hash(1), Pin::Cleared);
        pins.keep_late(Hash(1), "late".into());
        assert_eq!((pins.pinned(Hash(1)), pins.late(Hash(1)).as_deref()), (Some(Pin::Cleared), Some("late")));
        assert_eq!(pins.late(Hash(2)), None);
    }

    #[test]
    fn the_total_memory_of_summaries_is_bounded() {
        let pins = pins();
        let text: Arc<str> = "x".repeat(2_400).into();
        for at in 0..20_000 {
            pins.pin(Hash(at << 96 | at), Pin::Summary(Arc::clone(&text)));
        }
        pins.kept.run_pending_tasks();
        assert!(pins.kept.weighted_size() <= BYTES && pins.kept.entry_count() * 2_700 > BYTES / 2);
    }
}
