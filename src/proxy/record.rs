//! The record of one client request while it runs: filled in on the way, told once at the end, also where the
//! client leaves before the end. Decides nothing.

use super::error::ProxyError;
use crate::telemetry::Telemetry;
use crate::telemetry::endpoint::{Endpoint, shown};
use crate::telemetry::outcome::{Outcome, Route, Times, actions_header};
use hyper::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Headers by which clients name a request. Names that are parsed already: a third of the cost of a look-up.
static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// Under which upstreams name a request, beside [`REQUEST_ID`]: Anthropic's.
static OTHER_REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
/// What acted, for the client.
const ACTIONS: &str = "x-toolrein-actions";
/// Longest value of a client's header that is kept for the log.
const MAX_HEADER_BYTES: usize = 128;

/// An outcome that is recorded when it is dropped: nothing that ends a request can lose it.
pub(crate) struct Record {
    /// In a box, since it is large and goes from hand to hand.
    pub(crate) outcome: Box<Outcome>,
    telemetry: Telemetry,
    started: Instant,
    /// When the part of the path that is under way began.
    lap: Instant,
    ended: bool,
    times: Times,
}

impl Record {
    /// The record of the request with these `headers`.
    pub(crate) fn begin(
        telemetry: &Telemetry,
        route: Route,
        headers: &HeaderMap,
        mode: &'static str,
    ) -> Self {
        let mut outcome = Box::new(Outcome::new(route));
        outcome.mode = mode;
        outcome.request_id = text(headers, &REQUEST_ID).unwrap_or_else(next_id);
        outcome.traceparent = text(headers, &TRACEPARENT);
        let started = Instant::now();
        Self {
            outcome,
            telemetry: telemetry.clone(),
            started,
            lap: started,
            ended: false,
            times: Times::default(),
        }
    }

    /// What the request asks for.
    pub(crate) fn asks_for(&mut self, method: &Method, uri: &Uri) {
        self.outcome.method = method.as_str().to_owned();
        self.outcome.path = shown(uri.path()).into_owned();
        self.outcome.endpoint = match self.outcome.route {
            // However its path is spelled.
            Route::Chat => Endpoint::ChatCompletions,
            Route::Relay | Route::Upgrade => Endpoint::of(uri.path()),
        };
    }

    /// The upstream is sent a request.
    pub(crate) fn sends(&mut self) {
        self.outcome.upstream_requests += 1;
    }

    /// What came of it: the head of a response, or an error before which it may not have been sent.
    pub(crate) fn sent(&mut self, came: Result<&HeaderMap, &ProxyError>) {
        note_sent(&mut self.outcome, came);
    }

    /// A part of the path has ended that was our own work.
    pub(crate) fn own_time(&mut self) {
        let passed = self.lapped();
        self.times.overhead += passed;
    }

    /// Our own work has ended, and the reply goes out whole.
    pub(crate) fn answers(&mut self) {
        self.own_time();
        let passed = self.lap.saturating_duration_since(self.started);
        self.times.first_byte.get_or_insert(passed);
        self.times.total = passed;
    }

    /// A part has ended in which the upstream was waited for.
    pub(crate) fn upstream_time(&mut self) {
        let passed = self.lapped();
        self.times.upstream += passed;
    }

    /// A part has ended in which the client or a person was waited for.
    pub(crate) fn rested(&mut self) {
        self.lap = Instant::now();
    }

    /// When the part under way began: as good as now where no part before it was waited for.
    pub(crate) fn lap(&self) -> Instant {
        self.lap
    }

    fn lapped(&mut self) -> Duration {
        let now = Instant::now();
        now.saturating_duration_since(std::mem::replace(&mut self.lap, now))
    }

    /// The first byte of the reply's body goes out.
    pub(crate) fn first_byte(&mut self) {
        let started = self.started;
        self.times.first_byte.get_or_insert_with(|| started.elapsed());
    }

    /// A piece of a body of this length goes out; `None`: the body has ended.
    pub(crate) fn passes(&mut self, length: Option<usize>) {
        match length {
            Some(length) => {
                self.first_byte();
                self.outcome.reply_bytes += length as u64;
            }
            None => self.end(),
        }
    }

    /// The request has come to its end.
    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    /// Now, whatever is under way.
    pub(crate) fn now(&self) -> Instant {
        Instant::now()
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.outcome.client_gone = !self.ended;
        if self.times.total.is_zero() {
            self.times.total = self.started.elapsed();
        }
        self.outcome.times = self.times;
        self.telemetry.record(&self.outcome);
    }
}

/// What came of sending a request: the head of a response, or an error before which it may not have been sent.
pub(crate) fn note_sent(outcome: &mut Outcome, came: Result<&HeaderMap, &ProxyError>) {
    match came {
        Ok(headers) => {
            let id = text(headers, &REQUEST_ID).or_else(|| text(headers, &OTHER_REQUEST_ID));
            outcome.upstream_request_id = id.or(outcome.upstream_request_id.take());
        }
        Err(error) if !error.is_sent() => {
            outcome.upstream_requests = outcome.upstream_requests.saturating_sub(1);
        }
        Err(_) => {}
    }
}

/// What acted and in which conversation, reported in the reply's head.
pub(crate) fn write_head(outcome: &Outcome, headers: &mut HeaderMap, explicit: Option<&str>) {
    let acted = actions_header(&outcome.actions, outcome.tokens.saved);
    if let Some(value) = acted.as_deref().and_then(|acted| HeaderValue::from_str(acted).ok()) {
        headers.insert(ACTIONS, value);
    }
    let conversation = explicit.or(outcome.conversation.as_deref().filter(|_| acted.is_some()));
    if let Some(value) = conversation.and_then(|name| HeaderValue::from_str(name).ok()) {
        headers.insert(&super::caller::CONVERSATION, value);
    }
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let value = headers.get(name)?.to_str().ok()?;
    (value.len() <= MAX_HEADER_BYTES).then(|| value.to_owned())
}

/// A name for a request that came without one, unique in this process.
fn next_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("tr-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}
