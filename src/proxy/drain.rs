//! The drain: graceful shutdown, as two signals and a count of what is still open.
//!
//! Responsible for telling every accept loop, connection and stream that the end has begun, and for
//! knowing when the last of them is done or time is over. It closes nothing itself, and does not listen for signals.

use std::time::Duration;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// A cheap handle on the one drain of the process.
#[derive(Clone, Debug, Default)]
pub struct Drain {
    begun: CancellationToken,
    /// What is open is to be cut.
    over: CancellationToken,
    open: TaskTracker,
}

impl Drain {
    /// A drain that has not begun, with nothing open.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins the drain: no new connections, and idle ones are closed. Has no effect the second time.
    pub fn begin(&self) {
        self.open.close();
        self.begun.cancel();
    }

    /// Whether the drain has begun.
    pub fn is_begun(&self) -> bool {
        self.begun.is_cancelled()
    }

    /// Returns once the drain has begun.
    pub async fn begun(&self) {
        self.begun.cancelled().await;
    }

    /// Ends the drain before it is finished: connections are to be cut. Begins it where it has not begun: who waits for
    /// the beginning need not listen for this too.
    pub fn cut(&self) {
        self.begin();
        self.over.cancel();
    }

    /// Returns once connections are to be cut.
    pub async fn over(&self) {
        self.over.cancelled().await;
    }

    /// Counts one more connection, stream or task, until the guard is dropped.
    pub fn guard(&self) -> TaskTrackerToken {
        self.open.token()
    }

    /// How many guards are held.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Waits until the drain has begun and no guard is held. `false` if that took longer than `within`,
    /// counted from the call.
    pub async fn finished(&self, within: Duration) -> bool {
        timeout(within, self.open.wait()).await.is_ok()
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
