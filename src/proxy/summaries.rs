//! Requests for summaries, deduplicated: one question for each batch, however many requests wait for it. The decision
//! is pinned when the answer arrives or the time is over; a late answer is kept for the next batch. The core decides
//! what is asked and how the request uses it.

mod endpoints;
mod questions;

pub use endpoints::ModelEndpointError;
pub(crate) use endpoints::ModelEndpoints;

use super::body::UpBody;
use super::drain::Drain;
use super::handler::AppState;
use super::read::{Patience, read_body};
use crate::store::answers::ModelAnswers;
use crate::store::summaries::Pins;
use bytes::Bytes;
use dialects::summary::{Answer, answer};
use hyper::http::request::Parts;
use hyper::http::{Request, StatusCode};
use model::identity::Hash;
use model::plan::{ModelEndpoint, SummaryWanted};
use model::record::SummaryResult;
use model::summaries::Summaries as _;
use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout_at};

/// The limit on concurrent questions; batches beyond it are cleared without a summary.
const MOST_RUNNING: usize = 64;
/// The longest answer that is read.
const MOST_BYTES: u64 = 256 * 1024;
/// Statuses of client errors that may pass.
const PASSING: [StatusCode; 3] =
    [StatusCode::REQUEST_TIMEOUT, StatusCode::CONFLICT, StatusCode::TOO_MANY_REQUESTS];

/// Asks for summaries.
pub struct Summariser {
    pub(crate) pins: Arc<Pins>,
    endpoints: ModelEndpoints,
    /// By batch: becomes true when the batch is decided. A std mutex, held for a look-up.
    running: Arc<Mutex<HashMap<Hash, watch::Receiver<bool>>>>,
    /// The answers to questions about calls.
    answers: Arc<ModelAnswers>,
    /// Limits how many of these questions are asked at once.
    asking: Arc<Semaphore>,
    drain: Drain,
}

/// The state of a batch for a request that wants its summary.
enum Entry {
    /// It is decided.
    Decided,
    /// No question can be asked now.
    Closed,
    /// The question is in flight.
    Running(watch::Receiver<bool>),
    /// This request asks, and announces when the batch is decided.
    Starts(watch::Sender<bool>, watch::Receiver<bool>),
}

impl Summariser {
    /// No questions yet; they go to these endpoints, and the drain ends every question.
    pub fn new(pins: Pins, answers: ModelAnswers, endpoints: ModelEndpoints, drain: Drain) -> Self {
        let asking = Arc::new(Semaphore::new(MOST_RUNNING));
        let (pins, answers) = (Arc::new(pins), Arc::new(answers));
        Self { pins, endpoints, running: Arc::default(), answers, asking, drain }
    }

    /// The same decisions and questions, with other endpoints for the next questions.
    pub fn at(&self, endpoints: ModelEndpoints) -> Self {
        let (pins, running, drain) = (Arc::clone(&self.pins), Arc::clone(&self.running), self.drain.clone());
        let (answers, asking) = (Arc::clone(&self.answers), Arc::clone(&self.asking));
        Self { pins, endpoints, running, answers, asking, drain }
    }

    fn enter(&self, batch: Hash) -> Entry {
        let mut running = self.running();
        // Decisions are pinned before questions are taken out, so none is missed.
        if self.pins.pinned(batch).is_some() {
            return Entry::Decided;
        }
        if let Some(decided) = running.get(&batch) {
            return Entry::Running(decided.clone());
        }
        if running.len() >= MOST_RUNNING || self.drain.is_started() {
            return Entry::Closed;
        }
        let (announce, decided) = watch::channel(false);
        running.insert(batch, decided.clone());
        Entry::Starts(announce, decided)
    }

    fn running(&self) -> MutexGuard<'_, HashMap<Hash, watch::Receiver<bool>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AppState {
    /// The batch's summary, if it is decided that it has one. Ready after `wait` at the latest.
    pub(crate) fn summarise(
        self: &Arc<Self>,
        wanted: SummaryWanted,
        parts: &Parts,
        question: Bytes,
    ) -> impl Future<Output = Option<Arc<str>>> + Send + use<> {
        let until = Instant::now() + wanted.terms.wait;
        let (decided, app) = (self.decided(&wanted, parts, question), Arc::clone(self));
        async move {
            if let Some(mut decided) = decided {
                if !wanted.terms.wait.is_zero() {
                    let _ = timeout_at(until, decided.wait_for(|is_decided| *is_decided)).await;
                }
                // Whatever became of the question: this request goes on now, and later ones must send the same.
                app.summaries.pins.decide(&wanted, None);
            }
            app.summaries.pins.pinned(wanted.batch)?.summary()
        }
    }

    /// Asks, unless the question is in flight; becomes true when it is decided whether the batch has a summary. `None`: it
    /// is decided.
    fn decided(
        self: &Arc<Self>,
        wanted: &SummaryWanted,
        parts: &Parts,
        question: Bytes,
    ) -> Option<watch::Receiver<bool>> {
        match self.summaries.enter(wanted.batch) {
            Entry::Decided => None,
            Entry::Closed => {
                self.telemetry.metrics.count_summary(SummaryResult::Failed);
                self.summaries.pins.decide(wanted, None);
                None
            }
            Entry::Running(decided) => Some(decided),
            Entry::Starts(announce, decided) => {
                let (app, wanted) = (Arc::clone(self), wanted.clone());
                let request = self.summaries.endpoints.post(&wanted.terms.endpoint, parts, question);
                let guard = self.summaries.drain.guard();
                tokio::spawn(async move {
                    app.ask(&wanted, request, &announce).await;
                    app.summaries.running().remove(&wanted.batch);
                    drop(guard);
                });
                Some(decided)
            }
        }
    }

    /// Asks until the answer arrives, the time is over or the process drains; decides when `wait` is over at the
    /// latest.
    async fn ask(&self, wanted: &SummaryWanted, request: Request<UpBody>, announce: &watch::Sender<bool>) {
        let began = Instant::now();
        let mut answer = Box::pin(self.answer_of(wanted, request));
        let in_time = async {
            // A timer would wait for its next tick.
            let wait = Some(wanted.terms.wait).filter(|wait| !wait.is_zero())?;
            timeout_at(began + wait, &mut answer).await.ok()
        };
        let in_time = tokio::select! {
            () = self.summaries.drain.started() => Some(None),
            in_time = in_time => in_time,
        };
        let is_late = in_time.is_none();
        let text = in_time.flatten();
        let is_first = self.summaries.pins.decide(wanted, text.as_ref());
        announce.send_replace(true);
        let result = match &text {
            None if !is_late => SummaryResult::Failed,
            Some(_) if is_first => SummaryResult::Made,
            _ => SummaryResult::Late,
        };
        self.telemetry.metrics.count_summary(result);
        let late = if is_late { self.late(began + wanted.terms.timeout, answer).await } else { text };
        if let Some(late) = late.filter(|_| result == SummaryResult::Late) {
            self.summaries.pins.keep_late(wanted.batch, late);
        }
    }

    /// The answer, if it arrives before `end`.
    async fn late(
        &self,
        end: Instant,
        answer: impl Future<Output = Option<Arc<str>>> + Send,
    ) -> Option<Arc<str>> {
        tokio::select! {
            () = self.summaries.drain.started() => None,
            late = timeout_at(end, answer) => late.ok().flatten(),
        }
    }

    async fn answer_of(&self, wanted: &SummaryWanted, request: Request<UpBody>) -> Option<Arc<str>> {
        let body = self.reply_of(&wanted.terms.endpoint, wanted.terms.timeout, request).await.ok()?;
        let Answer { text, usage } = answer(&body, wanted.terms.words);
        self.telemetry.metrics.count_summary_tokens(usage.prompt, usage.completion);
        text
    }

    /// The reply of the model at `endpoint`, if it comes whole within `timeout` and is no error.
    async fn reply_of(
        &self,
        endpoint: &ModelEndpoint,
        timeout: Duration,
        request: Request<UpBody>,
    ) -> Result<Bytes, NoReply> {
        let upstream = self.summaries.endpoints.upstream(endpoint).unwrap_or(&self.upstream);
        let response = upstream.send(request).await.map_err(|_| NoReply::Failed)?;
        let status = response.status();
        if !status.is_success() {
            let is_refused = status.is_client_error() && !PASSING.contains(&status);
            return Err(if is_refused { NoReply::Refused } else { NoReply::Failed });
        }
        let patience = Patience { pause: timeout, whole: timeout };
        let read = read_body(&mut response.into_body(), None, MOST_BYTES, patience).await;
        read.map_err(|_| NoReply::Failed)
    }
}

/// Why another model gave no reply.
enum NoReply {
    /// It refuses the question, and would refuse it again.
    Refused,
    /// It failed, which may pass.
    Failed,
}
