//! Open connections of a port that has few places: when all are taken, the one that idles is closed for the next one, so
//! that connections which ask nothing keep nobody out. Accepts nothing and serves nothing.

use super::Asked;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::AbortHandle;

/// The open connections, the oldest first. A std mutex: held for looking through them, never across an await.
#[derive(Debug, Default)]
pub(super) struct OpenConnections(Mutex<Vec<Open>>);

/// A connection, and the task that serves it.
#[derive(Debug)]
struct Open {
    asked: Arc<Asked>,
    task: AbortHandle,
}

impl OpenConnections {
    /// A connection was accepted.
    pub(super) fn add(&self, asked: Arc<Asked>, task: AbortHandle) {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|connection| !connection.task.is_finished());
        open.push(Open { asked, task });
    }

    /// Closes the oldest connection that has asked nothing yet, else the oldest on which no request is being answered.
    pub(super) fn close_an_idle_one(&self) {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|connection| !connection.task.is_finished());
        let has_not_asked = |connection: &Open| !connection.asked.yet.load(Ordering::Relaxed);
        let is_idle = |connection: &Open| !connection.asked.answering.load(Ordering::Relaxed);
        let found = open.iter().position(has_not_asked).or_else(|| open.iter().position(is_idle));
        if let Some(at) = found {
            open.remove(at).task.abort();
        }
    }
}
