//! Summaries asked for: one question for a batch, however many requests wait for it, and a decision pinned when the
//! answer came or the time was over. A late answer is kept for the next batch. What is asked and what becomes of it in
//! the request is the core's affair.

mod place;

pub use place::PlaceError;
pub(crate) use place::Places;

use super::body::UpBody;
use super::drain::Drain;
use super::handler::AppState;
use super::read::{Patience, read_body};
use crate::ledger::summaries::Pins;
use crate::policy::plan::SummaryWanted;
use crate::rewrite::summary::{Answer, answer};
use crate::telemetry::outcome::SummaryResult;
use crate::transcript::identity::Hash;
use crate::transcript::summaries::Summaries as _;
use bytes::Bytes;
use hyper::http::Request;
use hyper::http::request::Parts;
use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// Questions under way at once; what comes beyond is cleared without a summary.
const MOST_RUNNING: usize = 64;
/// The longest answer that is read.
const MOST_BYTES: u64 = 256 * 1024;

/// What becomes of questions.
pub struct Summariser {
    pub(crate) pins: Arc<Pins>,
    places: Places,
    /// By the batch: told when it is decided. A std mutex, held for a look-up.
    running: Arc<Mutex<HashMap<Hash, watch::Receiver<bool>>>>,
    drain: Drain,
}

/// What a request finds that wants a summary.
enum Entry {
    /// It is decided.
    Decided,
    /// Nobody can be asked now.
    Closed,
    /// The question is under way.
    Asked(watch::Receiver<bool>),
    /// It has to ask, and to tell when it is decided.
    Asks(watch::Sender<bool>, watch::Receiver<bool>),
}

impl Summariser {
    /// Nothing asked yet, at these places; the drain ends every question.
    pub fn new(pins: Pins, places: Places, drain: Drain) -> Self {
        Self { pins: Arc::new(pins), places, running: Arc::default(), drain }
    }

    /// The same decisions and questions, with other places for the next ones.
    pub fn at(&self, places: Places) -> Self {
        let (pins, running, drain) = (Arc::clone(&self.pins), Arc::clone(&self.running), self.drain.clone());
        Self { pins, places, running, drain }
    }

    fn enter(&self, batch: Hash) -> Entry {
        let mut running = self.running();
        // Decisions are pinned before questions are taken out, so none is missed.
        if self.pins.pinned(batch).is_some() {
            return Entry::Decided;
        }
        if let Some(asked) = running.get(&batch) {
            return Entry::Asked(asked.clone());
        }
        if running.len() >= MOST_RUNNING || self.drain.is_begun() {
            return Entry::Closed;
        }
        let (tell, told) = watch::channel(false);
        running.insert(batch, told.clone());
        Entry::Asks(tell, told)
    }

    fn running(&self) -> MutexGuard<'_, HashMap<Hash, watch::Receiver<bool>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AppState {
    /// The batch's summary, if it is decided that it has one. Returns after `wait` at the latest.
    pub(crate) async fn summarise(
        self: &Arc<Self>,
        wanted: &SummaryWanted,
        parts: &Parts,
        question: Bytes,
    ) -> Option<Arc<str>> {
        self.decide(wanted, parts, question).await;
        self.summaries.pins.pinned(wanted.batch)?.summary()
    }

    /// Returns when it is decided whether the batch has a summary, after `wait` at the latest.
    async fn decide(self: &Arc<Self>, wanted: &SummaryWanted, parts: &Parts, question: Bytes) {
        let until = Instant::now() + wanted.terms.wait;
        let mut told = match self.summaries.enter(wanted.batch) {
            Entry::Decided => return,
            Entry::Closed => {
                self.telemetry.metrics.count_summary(SummaryResult::Failed);
                self.summaries.pins.decide(wanted, None);
                return;
            }
            Entry::Asked(told) => told,
            Entry::Asks(tell, told) => {
                let (gateway, wanted) = (Arc::clone(self), wanted.clone());
                let request = self.summaries.places.post(&wanted.terms.place, parts, question);
                let guard = self.summaries.drain.guard();
                tokio::spawn(async move {
                    gateway.ask(&wanted, request, &tell).await;
                    gateway.summaries.running().remove(&wanted.batch);
                    drop(guard);
                });
                told
            }
        };
        if !wanted.terms.wait.is_zero() {
            let _ = timeout_at(until, told.wait_for(|decided| *decided)).await;
        }
        // Whatever became of the question: this request goes on now, and what it sends must stay.
        self.summaries.pins.decide(wanted, None);
    }

    /// Asks until the answer is there, the time is over or the process is to end; decides when `wait` is over at the
    /// latest.
    async fn ask(&self, wanted: &SummaryWanted, request: Request<UpBody>, tell: &watch::Sender<bool>) {
        let began = Instant::now();
        let mut answer = Box::pin(self.answer_of(wanted, request));
        let in_time = async {
            // A timer would wait for its next tick.
            let wait = Some(wanted.terms.wait).filter(|wait| !wait.is_zero())?;
            timeout_at(began + wait, &mut answer).await.ok()
        };
        let in_time = tokio::select! {
            () = self.summaries.drain.begun() => Some(None),
            in_time = in_time => in_time,
        };
        let is_late = in_time.is_none();
        let text = in_time.flatten();
        let is_first = self.summaries.pins.decide(wanted, text.as_ref());
        tell.send_replace(true);
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

    /// The answer, where it comes until `end`.
    async fn late(
        &self,
        end: Instant,
        answer: impl Future<Output = Option<Arc<str>>> + Send,
    ) -> Option<Arc<str>> {
        tokio::select! {
            () = self.summaries.drain.begun() => None,
            late = timeout_at(end, answer) => late.ok().flatten(),
        }
    }

    async fn answer_of(&self, wanted: &SummaryWanted, request: Request<UpBody>) -> Option<Arc<str>> {
        let upstream = self.summaries.places.upstream(&wanted.terms.place).unwrap_or(&self.upstream);
        let response = upstream.send(request).await.ok()?;
        if !response.status().is_success() {
            return None;
        }
        let timeout = wanted.terms.timeout;
        let patience = Patience { pause: timeout, whole: timeout };
        let body = read_body(&mut response.into_body(), None, MOST_BYTES, patience).await.ok()?;
        let Answer { text, usage } = answer(&body, wanted.terms.words);
        self.telemetry.metrics.count_summary_tokens(usage.prompt, usage.completion);
        text
    }
}
