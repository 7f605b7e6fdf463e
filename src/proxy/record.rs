//! The request record of one client request while it runs: filled in on the way and recorded once at the end, also
//! where the client leaves early. Decides nothing.

use super::error::ProxyError;
use super::recording::Recorded;
use super::refusals::warn_once;
use super::request_id::{COMMON_REQUEST_ID, id_of};
use super::spelling::Governed;
use super::ungoverned::warn_calls_as_text_once;
use crate::telemetry::Telemetry;
use crate::telemetry::spans::{Spans, Trace};
use engine::text_agents::CALLS_AS_TEXT;
use hyper::http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Uri};
use model::record::{Endpoint, Published, RequestRecord, Route, Times, actions_header, shown};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

/// Headers of traces. Parsed names: a look-up costs a third.
static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
static TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
/// The other header by which upstreams name a request, beside [`COMMON_REQUEST_ID`]: Anthropic's.
static OTHER_REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
/// The response header that lists the actions of policies.
const ACTIONS: &str = "x-toolrein-actions";
/// The request header by which a client asks to read in the stream itself what acted on the reply.
static EVENTS: HeaderName = HeaderName::from_static("x-toolrein-events");
/// Longest value of a client's header that is kept for the log.
const MAX_HEADER_BYTES: usize = 128;

/// The data of a request record; none while the request's exchange has them, and nothing may read or change them here.
#[derive(Default)]
pub(crate) struct RecordData(Option<Box<RequestRecord>>);

/// The reply as the client was sent it, which the exchange does not know.
#[derive(Default)]
pub(super) struct ClientReply {
    pub(super) status: u16,
    /// Of its body.
    pub(super) bytes: u64,
    error: Option<Box<ProxyError>>,
}

impl RecordData {
    /// Gives the data to an exchange.
    pub(super) fn lend(&mut self) -> Box<RequestRecord> {
        self.0.take().unwrap_or_default()
    }
}

impl Deref for RecordData {
    type Target = RequestRecord;

    fn deref(&self) -> &RequestRecord {
        debug_assert!(self.0.is_some(), "the exchange has the record");
        static NONE: LazyLock<RequestRecord> = LazyLock::new(RequestRecord::default);
        self.0.as_deref().unwrap_or(&NONE)
    }
}

impl DerefMut for RecordData {
    fn deref_mut(&mut self) -> &mut RequestRecord {
        debug_assert!(self.0.is_some(), "the exchange has the record");
        self.0.get_or_insert_default()
    }
}

/// A request record that is recorded when it is dropped, so that no way to end a request loses it.
pub(crate) struct Record {
    pub(crate) data: RecordData,
    /// What of it the exchange does not know.
    pub(super) reply: ClientReply,
    telemetry: Arc<Telemetry>,
    started: Instant,
    /// When the current section of the request's time began.
    section_start: Instant,
    ended: bool,
    times: Times,
    /// What was done for the request and when, where its trace is kept.
    pub(super) trace: Option<Box<Trace>>,
    /// The request as it is to be recorded, if it is.
    pub(super) recorded: Option<Box<Recorded>>,
}

impl Record {
    /// The record of the request with these `headers` and `extensions`, which hold its id.
    pub(crate) fn begin(
        telemetry: &Arc<Telemetry>,
        route: Route,
        headers: &HeaderMap,
        extensions: &Extensions,
        mode: &'static str,
    ) -> Self {
        let mut data = Box::new(RequestRecord::new(route));
        data.mode = mode;
        data.request_id = id_of(extensions).to_owned();
        data.traceparent = text(headers, &TRACEPARENT);
        let is_traced = route.is_governed() && telemetry.spans.is_on();
        let trace = if is_traced { begin_trace(&telemetry.spans, headers) } else { None };
        data.is_traced = trace.is_some();
        let started = Instant::now();
        Self {
            data: RecordData(Some(data)),
            reply: ClientReply::default(),
            telemetry: Arc::clone(telemetry),
            started,
            section_start: started,
            ended: false,
            times: Times::default(),
            trace,
            recorded: None,
        }
    }

    /// What the request asks for; `governed`: the endpoint that its path leads to, however it is written.
    pub(super) fn asks_for(&mut self, method: &Method, uri: &Uri, governed: Option<Governed>) {
        self.data.method = method.as_str().to_owned();
        self.data.path = shown(uri.path()).into_owned();
        self.data.endpoint = match governed {
            Some(Governed::ChatCompletions) => Endpoint::ChatCompletions,
            Some(Governed::Responses) => Endpoint::Responses,
            Some(Governed::Messages) => Endpoint::Messages,
            Some(Governed::CountTokens) => Endpoint::CountTokens,
            None => Endpoint::of(uri.path()),
        };
    }

    /// A request is sent to the upstream.
    pub(crate) fn sends(&mut self) {
        self.data.upstream_requests += 1;
    }

    /// The result of sending: the head of a response, or an error before which the request may not have been sent.
    pub(crate) fn sent(&mut self, came: Result<&HeaderMap, &ProxyError>) {
        match came {
            Ok(headers) => self.data.upstream_request_ids.extend(upstream_id(headers)),
            Err(error) if !error.is_sent() => {
                self.data.upstream_requests = self.data.upstream_requests.saturating_sub(1);
            }
            Err(_) => {}
        }
    }

    /// The client gets toolrein's own error, while an exchange has the data.
    pub(super) fn fail(&mut self, error: &ProxyError) {
        self.reply.status = error.status();
        self.reply.error = Some(Box::new(error.clone()));
    }

    /// Takes the record of an exchange, which knows all but what the client was sent.
    pub(super) fn take(&mut self, exchange: Box<RequestRecord>, published: Published) {
        let ClientReply { status, bytes, error } = std::mem::take(&mut self.reply);
        let mut data = exchange;
        (data.status, data.reply_bytes, data.published) = (status, bytes, published);
        if let Some(error) = error.filter(|_| data.error.is_none()) {
            error.note_in(&mut data);
        }
        self.data = RecordData(Some(data));
    }

    /// A section of toolrein's own work has ended.
    pub(crate) fn own_time(&mut self) {
        let passed = self.lapped();
        self.times.overhead += passed;
    }

    /// toolrein's own work has ended, and the reply goes out whole.
    pub(crate) fn answers(&mut self) {
        self.own_time();
        let passed = self.section_start.saturating_duration_since(self.started);
        self.times.first_byte.get_or_insert(passed);
        self.times.total = passed;
    }

    /// A section of waiting for the upstream has ended.
    pub(crate) fn upstream_time(&mut self) {
        let passed = self.lapped();
        self.times.upstream += passed;
    }

    /// A section of waiting for the client or for a person has ended.
    pub(crate) fn mark_idle(&mut self) {
        self.section_start = Instant::now();
    }

    /// When the current section began: as good as now where the section before it involved no waiting.
    pub(crate) fn split(&self) -> Instant {
        self.section_start
    }

    fn lapped(&mut self) -> Duration {
        let now = Instant::now();
        now.saturating_duration_since(std::mem::replace(&mut self.section_start, now))
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
                self.data.reply_bytes += length as u64;
            }
            None => self.end(),
        }
    }

    /// The request has ended.
    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    /// The current time.
    pub(crate) fn now(&self) -> Instant {
        Instant::now()
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.data.client_gone = !self.ended;
        if self.times.total.is_zero() {
            self.times.total = self.started.elapsed();
        }
        self.data.times = self.times;
        if self.data.unjudged.contains(&CALLS_AS_TEXT) {
            warn_calls_as_text_once();
        }
        warn_once(&self.data);
        self.telemetry.record(&self.data, self.trace.as_deref());
        if let Some(recorded) = self.recorded.take() {
            recorded.push(&self.data);
        }
    }
}

/// The upstream's id of a request, by the head of its reply.
pub(crate) fn upstream_id(headers: &HeaderMap) -> Option<String> {
    text(headers, &COMMON_REQUEST_ID).or_else(|| text(headers, &OTHER_REQUEST_ID))
}

/// Writes the actions and the conversation's id to the reply's head.
pub(crate) fn write_head(data: &RequestRecord, headers: &mut HeaderMap) {
    let acted = actions_header(&data.actions, data.tokens.saved);
    if let Some(value) = acted.as_deref().and_then(|acted| HeaderValue::from_str(acted).ok()) {
        headers.insert(ACTIONS, value);
    }
    let is_shown = data.names_conversation || acted.is_some();
    let conversation = data.conversation.as_deref().filter(|_| is_shown);
    if let Some(value) = conversation.and_then(|name| HeaderValue::from_bytes(name.as_bytes()).ok()) {
        headers.insert(&super::caller::CONVERSATION, value);
    }
}

/// Whether the client wants to read in the stream itself what acted on the reply: `x-toolrein-events: true`, or `1`.
pub(super) fn wants_report(headers: &HeaderMap) -> bool {
    let is_on = |value: &HeaderValue| value == "1" || value.as_bytes().eq_ignore_ascii_case(b"true");
    headers.get(&EVENTS).is_some_and(is_on)
}

/// The trace of a request with these headers. By the W3C's text, two `traceparent` are none, and several `tracestate` are
/// one list.
fn begin_trace(spans: &Spans, headers: &HeaderMap) -> Option<Box<Trace>> {
    let is_single = headers.get_all(&TRACEPARENT).iter().count() == 1;
    let parent = text(headers, &TRACEPARENT).filter(|_| is_single);
    let states = headers.get_all(&TRACESTATE).iter().filter_map(|state| state.to_str().ok());
    spans.begin(parent.as_deref(), Some(&states.collect::<Vec<_>>().join(",")))
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let value = headers.get(name)?.to_str().ok()?;
    (value.len() <= MAX_HEADER_BYTES).then(|| value.to_owned())
}
