//! Summaries asked for: one question for a batch, however many requests wait for it, and a decision pinned when the
//! answer came or the time was over. What is asked and what becomes of it in the request is the core's affair.

use super::body::UpBody;
use super::caller::CREDENTIALS;
use super::handler::Gateway;
use super::read::read_body;
use crate::ledger::summaries::{Pin, Pins};
use crate::policy::plan::SummaryWanted;
use crate::rewrite::summary::answer;
use crate::transcript::identity::Hash;
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use hyper::http::header::CONTENT_TYPE;
use hyper::http::request::Parts;
use hyper::http::{HeaderValue, Method, Request};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::timeout;

/// Questions under way at once; what comes beyond is cleared without a summary.
const MOST_RUNNING: usize = 64;
/// The longest answer that is read.
const MOST_BYTES: u64 = 256 * 1024;

/// A question under way, up to its decision.
type Asking = BoxFuture<'static, ()>;

/// What becomes of questions.
pub struct Summariser {
    pub(crate) pins: Arc<Pins>,
    /// By the batch. Held weakly: when everybody who waits has left, the question is given up. A std mutex, held for
    /// a look-up.
    running: Mutex<HashMap<Hash, WeakShared<Asking>>>,
}

impl Summariser {
    /// Nothing asked yet; decisions are kept for `lifetime`.
    pub fn new(lifetime: Duration) -> Self {
        Self { pins: Arc::new(Pins::new(lifetime)), running: Mutex::default() }
    }

    /// The question for `batch` that is under way, else a new one. `None` where there is nothing to wait for.
    fn join(&self, batch: Hash, begin: impl FnOnce() -> Asking) -> Option<Shared<Asking>> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if self.pins.find(batch).is_some() {
            return None;
        }
        if let Some(asking) = running.get(&batch).and_then(WeakShared::upgrade) {
            return Some(asking);
        }
        if running.len() >= MOST_RUNNING {
            running.retain(|_, asking| asking.upgrade().is_some());
        }
        if running.len() >= MOST_RUNNING {
            self.pins.pin(batch, Pin::Cleared);
            return None;
        }
        let asking = begin().shared();
        running.extend(asking.downgrade().map(|weak| (batch, weak)));
        Some(asking)
    }

    fn decide(&self, batch: Hash, pin: Pin) {
        self.pins.pin(batch, pin);
        self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&batch);
    }
}

impl Gateway {
    /// Returns when it is decided whether the batch has a summary, after `wanted.wait` at the latest.
    pub(crate) async fn summarise(self: &Arc<Self>, wanted: &SummaryWanted, parts: &Parts, question: Bytes) {
        let begin = || {
            let (gateway, wanted) = (Arc::clone(self), wanted.clone());
            let request = post(parts, question);
            async move { gateway.decide_summary(&wanted, request).await }.boxed()
        };
        if let Some(asking) = self.summaries.join(wanted.batch, begin) {
            asking.await;
        }
    }

    async fn decide_summary(&self, wanted: &SummaryWanted, request: Request<UpBody>) {
        let (pin, result) = match timeout(wanted.wait, self.ask_summary(wanted, request)).await {
            Ok(Some(text)) => (Pin::Summary(text), "made"),
            Ok(None) => (Pin::Cleared, "failed"),
            Err(_) => (Pin::Cleared, "late"),
        };
        self.telemetry.metrics.count_summary(result);
        self.summaries.decide(wanted.batch, pin);
    }

    async fn ask_summary(&self, wanted: &SummaryWanted, request: Request<UpBody>) -> Option<Arc<str>> {
        let response = self.upstream.send(request).await.ok()?;
        if !response.status().is_success() {
            return None;
        }
        let body = read_body(response.into_body(), None, MOST_BYTES, wanted.wait).await.ok()?;
        answer(&body, wanted.words)
    }
}

/// The question as the caller would send it: to the same path, with the same credentials and no other header.
fn post(parts: &Parts, question: Bytes) -> Request<UpBody> {
    let mut request = Request::new(UpBody::rope(vec![question]));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = parts.uri.clone();
    let headers = request.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for name in CREDENTIALS {
        for value in parts.headers.get_all(name) {
            headers.append(name, value.clone());
        }
    }
    request
}
