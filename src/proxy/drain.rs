//! The drain, which is graceful shutdown: two signals and a count of what is still open.
//!
//! It notifies every accept loop, connection and stream that the shutdown has started, and knows when the last of them
//! is done or the time is over. It closes nothing itself, and does not listen for signals.

use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// A cheap handle on the one drain of the process.
#[derive(Clone, Debug, Default)]
pub struct Drain(Arc<State>);

#[derive(Debug, Default)]
struct State {
    started: CancellationToken,
    /// Open connections are to be cut.
    over: CancellationToken,
    open: TaskTracker,
}

impl Drain {
    /// A drain that has not started, with nothing open.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts the drain: no new connections, and idle ones are closed. Has no effect the second time.
    pub fn begin(&self) {
        self.0.open.close();
        self.0.started.cancel();
    }

    /// Whether the drain has started.
    pub fn is_started(&self) -> bool {
        self.0.started.is_cancelled()
    }

    /// Returns once the drain has started.
    pub async fn started(&self) {
        self.0.started.cancelled().await;
    }

    /// Ends the drain early: connections are to be cut. Also starts a drain that has not started, so that waiting for
    /// the start is enough.
    pub fn cut(&self) {
        self.begin();
        self.0.over.cancel();
    }

    /// Returns once connections are to be cut.
    pub async fn over(&self) {
        self.0.over.cancelled().await;
    }

    /// Counts one more connection, stream or task, until the guard is dropped.
    pub fn guard(&self) -> TaskTrackerToken {
        self.0.open.token()
    }

    /// How many guards are held.
    pub fn open(&self) -> usize {
        self.0.open.len()
    }

    /// Waits until the drain has started and no guard is held. `false` if that took longer than `within`, counted from
    /// the call.
    pub async fn finished(&self, within: Duration) -> bool {
        timeout(within, self.0.open.wait()).await.is_ok()
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
        assert!(!drain.is_started());
        drain.begin();
        drain.started().await;
        assert!(drain.is_started() && drain.finished(SHORT).await);
    }
}
