//! The limit on informational responses (1xx) before a final response: counted, since an upstream could send them
//! without end. They are not passed on (hyper's server can send none), and no time is bounded here.

use super::body::UpBody;
use hyper::ext::on_informational;
use hyper::http::Request;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::sync::Notify;

/// The most informational responses to one request. Go's client takes 5; a server that reports every few seconds that
/// it is still processing (102) stays below this within any timeout in use.
pub(super) const MOST_HINTS: u32 = 256;

/// The count of one request.
#[derive(Default)]
pub(super) struct Hints {
    seen: AtomicU32,
    too_many: Notify,
}

impl Hints {
    /// Counts the informational responses to `request`.
    pub(super) fn of(request: &mut Request<UpBody>) -> Arc<Self> {
        let hints = Arc::new(Self::default());
        let counted = Arc::clone(&hints);
        on_informational(request, move |_| counted.count());
        hints
    }

    fn count(&self) {
        if self.seen.fetch_add(1, Ordering::Relaxed) >= MOST_HINTS {
            self.too_many.notify_one();
        }
    }

    /// Waits until there are too many.
    pub(super) async fn too_many(&self) {
        self.too_many.notified().await;
    }
}
