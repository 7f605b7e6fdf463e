//! The open connections of a port with a low connection limit. At the limit an idle connection is closed to make room
//! for the next one, so that connections without requests cannot block others. Accepts nothing and serves nothing.

use super::ConnectionActivity;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::AbortHandle;

/// The open connections, the oldest first. A std mutex: held for looking through them, never across an await.
#[derive(Debug, Default)]
pub(super) struct OpenConnections(Mutex<Vec<Open>>);

/// A connection, and the task that serves it.
#[derive(Debug)]
struct Open {
    activity: Arc<ConnectionActivity>,
    task: AbortHandle,
}

impl OpenConnections {
    /// A connection was accepted.
    pub(super) fn add(&self, activity: Arc<ConnectionActivity>, task: AbortHandle) {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|connection| !connection.task.is_finished());
        open.push(Open { activity, task });
    }

    /// Closes the oldest connection that has sent no request yet, else the oldest on which no request is being
    /// answered.
    pub(super) fn close_an_idle_one(&self) {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|connection| !connection.task.is_finished());
        let has_not_asked = |connection: &Open| !connection.activity.has_request();
        let is_idle = |connection: &Open| connection.activity.is_between_answers();
        let found = open.iter().position(has_not_asked).or_else(|| open.iter().position(is_idle));
        if let Some(at) = found {
            open.remove(at).task.abort();
        }
    }
}
