//! The drain: how the process stops without cutting anybody off.
//!
//! Responsible for telling every accept loop, connection and stream that the end has begun, and for
//! knowing when the last of them is done or time is over. It closes nothing itself, and does not listen for signals.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

/// A cheap handle on the one drain of the process.
#[derive(Clone, Debug)]
pub struct Drain(Arc<State>);

#[derive(Debug)]
struct State {
    begun: watch::Sender<bool>,
    /// What is open is to be cut.
    over: watch::Sender<bool>,
    /// Guards that are held. An atomic, since every request takes one.
    open: AtomicUsize,
    /// Told whenever the last guard is dropped.
    emptied: Notify,
}

/// One thing that is still going on. The drain is finished when the last guard is dropped.
#[derive(Debug)]
pub struct DrainGuard(Drain);

impl Drain {
    /// A drain that has not begun, with nothing open.
    pub fn new() -> Self {
        Self(Arc::new(State {
            begun: watch::Sender::new(false),
            over: watch::Sender::new(false),
            open: AtomicUsize::new(0),
            emptied: Notify::new(),
        }))
    }

    /// Begins the drain: no new connections, and idle ones are closed. Has no effect the second time.
    pub fn begin(&self) {
        self.0.begun.send_replace(true);
    }

    /// Whether the drain has begun.
    pub fn is_begun(&self) -> bool {
        *self.0.begun.borrow()
    }

    /// Returns once the drain has begun.
    pub async fn begun(&self) {
        // An error means that the sender is gone, and `self` holds it.
        let _ = self.0.begun.subscribe().wait_for(|begun| *begun).await;
    }

    /// Ends the drain before it is finished: connections are to be cut. Begins it where it has not begun: who waits for
    /// the beginning need not listen for this too.
    pub fn cut(&self) {
        self.begin();
        self.0.over.send_replace(true);
    }

    /// Returns once connections are to be cut.
    pub async fn over(&self) {
        // An error means that the sender is gone, and `self` holds it.
        let _ = self.0.over.subscribe().wait_for(|over| *over).await;
    }

    /// Counts one more connection, stream or task, until the guard is dropped.
    pub fn guard(&self) -> DrainGuard {
        self.0.open.fetch_add(1, Ordering::AcqRel);
        DrainGuard(self.clone())
    }

    /// How many guards are held.
    pub fn open(&self) -> usize {
        self.0.open.load(Ordering::Acquire)
    }

    /// Waits until the drain has begun and no guard is held. `false` if that took longer than `within`,
    /// counted from the call.
    pub async fn finished(&self, within: Duration) -> bool {
        let done = async {
            self.begun().await;
            self.emptied().await;
        };
        timeout(within, done).await.is_ok()
    }

    async fn emptied(&self) {
        loop {
            // Listening before looking: a guard dropped in between is not missed.
            let mut emptied = pin!(self.0.emptied.notified());
            emptied.as_mut().enable();
            if self.open() == 0 {
                return;
            }
            emptied.await;
        }
    }
}

impl Default for Drain {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for DrainGuard {
    fn drop(&mut self) {
        let state = &self.0.0;
        if state.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            state.emptied.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(1);
    const LONG: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn a_drain_is_finished_when_the_last_guard_is_dropped() {
        let drain = Drain::new();
        let (first, second) = (drain.guard(), drain.guard());
        drain.begin();
        assert!(!drain.finished(SHORT).await);
        drop(first);
        assert_eq!(drain.open(), 1);
        let waiting = tokio::spawn({
            let drain = drain.clone();
            async move { drain.finished(LONG).await }
        });
        drop(second);
        assert!(waiting.await.unwrap());
    }

    #[tokio::test]
    async fn a_drain_that_has_not_begun_is_not_finished() {
        let drain = Drain::new();
        assert!(!drain.finished(SHORT).await);
        assert!(!drain.is_begun());
        drain.begin();
        drain.begun().await;
        assert!(drain.is_begun() && drain.finished(SHORT).await);
    }
}
