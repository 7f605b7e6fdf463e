//! The readiness of the process: starting, ready, then draining, never back. It only holds the state; the proxy does
//! the draining.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

const STARTING: u8 = 0;
const READY: u8 = 1;
const DRAINING: u8 = 2;

/// A handle on the process's readiness. Clones share it.
#[derive(Clone, Debug)]
pub struct Readiness(Arc<AtomicU8>);

impl Readiness {
    /// The readiness of a starting process.
    pub fn starting() -> Self {
        Self(Arc::new(AtomicU8::new(STARTING)))
    }

    /// Marks the process as ready, unless it drains already.
    pub fn open(&self) {
        self.0.fetch_max(READY, Ordering::Relaxed);
    }

    /// Marks the process as draining, for good.
    pub fn drain(&self) {
        self.0.store(DRAINING, Ordering::Relaxed);
    }

    /// Whether requests are taken.
    pub fn is_ready(&self) -> bool {
        self.0.load(Ordering::Relaxed) == READY
    }

    /// The state in one line.
    pub(super) fn word(&self) -> &'static str {
        match self.0.load(Ordering::Relaxed) {
            STARTING => "starting\n",
            READY => "ready\n",
            _ => "draining\n",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draining_process_never_becomes_ready_again() {
        let readiness = Readiness::starting();
        let other = readiness.clone();
        assert!(!other.is_ready());
        readiness.open();
        assert!(other.is_ready());
        other.drain();
        readiness.open();
        assert!(!readiness.is_ready());
    }
}
