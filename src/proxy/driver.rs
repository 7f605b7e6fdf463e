//! The driver of an exchange: sockets, timers, and the effects that it starts. It does what the exchange asks
//! and reports to it what happened; it decides nothing. One state machine per request, without a task of its own:
//! dropped with the client's connection, it cancels the upstream request and records the client's.

use super::body::{ReplyBody, UpBody};
use super::clock::ms_at;
use super::coding;
use super::conversation_lock::ConversationGuard;
use super::decoder::Decoder;
use super::effects::RunningEffects;
use super::error::ProxyError;
use super::handler::AppState;
use super::head::Head;
use super::headers::retain;
use super::record::{Record, upstream_id, write_head};
use super::recording::Recording;
use super::respond::error_response;
use super::steps;
use super::stream::{FromUpstream, Streaming, is_stream};
use super::upstream::{EndsByClosing, Retried};
use super::whole::Read;
use crate::config::Mode;
use crate::telemetry::metrics::StreamGuard;
use bytes::Bytes;
use engine::{Accepts, Answer, Closed, Exchange, Input, Now, Outgoing, Output, WholeReply};
use hyper::body::Incoming;
use hyper::http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use hyper::http::response::Parts;
use hyper::http::{HeaderValue, Response, Version};
use model::identity::Hash;
use model::record::Published;
use model::summaries::Pin;
use std::sync::Arc;
use tokio::time::Instant;

/// See the module's documentation.
pub(super) struct Driver {
    pub(super) app: Arc<AppState>,
    pub(super) exchange: Exchange,
    pub(super) record: Record,
    head: Head,
    /// The upstream's whole replies, by their numbers.
    replies: Vec<Read>,
    /// What the exchange waits for, beside the upstream.
    pub(super) effects: RunningEffects,
    /// The lock on the conversation, where its requests go one at a time.
    pub(super) guard: Option<ConversationGuard>,
    /// The reply has gone out, or is about to.
    pub(super) answered: bool,
    /// How much of the request record the readers of events have seen.
    published: Published,
    /// Where requests are recorded.
    recording: Option<Box<Recording>>,
    /// The key of the request's bytes, of its caller.
    request_key: Hash,
}

impl Driver {
    pub(super) fn new(
        app: Arc<AppState>,
        exchange: Exchange,
        record: Record,
        head: Head,
        request_key: Hash,
    ) -> Box<Self> {
        Box::new(Self {
            app,
            exchange,
            record,
            head,
            replies: Vec::new(),
            effects: RunningEffects::default(),
            guard: None,
            answered: false,
            published: Published::default(),
            recording: None,
            request_key,
        })
    }

    /// Has the request and its reply recorded, if there is a `recording`.
    pub(super) fn recorded_by(mut self: Box<Self>, recording: Option<Box<Recording>>) -> Box<Self> {
        self.recording = recording;
        self
    }

    /// Adds the next bytes that the client gets to the recording, without their content coding.
    pub(super) fn copy(&mut self, bytes: &[u8]) {
        if let Some(recording) = &mut self.recording {
            recording.add(self.exchange.record(), bytes);
        }
    }

    /// Drives the exchange until there is a reply for the client.
    pub(super) async fn run(mut self: Box<Self>) -> Response<ReplyBody> {
        loop {
            let Some(output) = self.exchange.poll() else {
                match self.next_result().await {
                    Some(input) => self.give(input),
                    // Nothing is awaited, and an exchange without outputs should have answered.
                    None => return self.fail(&ProxyError::Internal { detail: "no reply".to_owned() }),
                }
                continue;
            };
            self.begin_step(&output);
            match output {
                Output::Answer(answer) => return self.answer(answer),
                Output::BeginStream { own: true } => {
                    return self.stream(own_head(), |driver| Streaming::new(driver, FromUpstream::Nothing));
                }
                Output::BeginStreamOf(id) => return self.stream_of(id),
                Output::Send(outgoing) => {
                    self.record.own_time();
                    if let Some(start) = self.send(outgoing).await {
                        return self.begin(start).await;
                    }
                }
                other => self.perform(other),
            }
        }
    }

    /// Performs an output that needs no waiting.
    pub(super) fn perform(&mut self, output: Output) {
        match output {
            Output::Start(id, effect) => self.start(id, effect),
            Output::Cancel(id) => self.effects.cancel(id),
            Output::Store(news) => self.app.store.record(*news),
            Output::SummariesLost(batches) => {
                // From now on these batches are shown as cleared, whatever was decided before.
                batches.into_iter().for_each(|batch| {
                    self.app.summaries.pins.pin(batch, Pin::Cleared);
                });
            }
            Output::Dismiss => self.guard = None,
            _ => {}
        }
    }

    /// Begins the step that an output asks for, where a trace is kept.
    pub(super) fn begin_step(&mut self, output: &Output) {
        if let Some(trace) = self.record.trace.as_deref_mut() {
            steps::begin(trace, self.exchange.record(), output, &self.app);
        }
    }

    /// Reports to the exchange what happened.
    pub(super) fn give(&mut self, input: Input) {
        if let Some(trace) = self.record.trace.as_deref_mut() {
            steps::end(trace, &input);
        }
        let now = self.now();
        self.exchange.handle(input, now);
        if let Some(trace) = self.record.trace.as_deref_mut() {
            trace.calls_decided(self.exchange.record().judged.len());
        }
        self.publish();
    }

    /// Shows the readers of the event stream what is new, where there are some.
    fn publish(&mut self) {
        let live = &self.app.telemetry.live;
        if live.events().has_readers() {
            let calls = self.exchange.inspect().judged_from(self.published.calls);
            live.happened(self.exchange.record(), &mut self.published, &calls);
        }
    }

    pub(super) fn now(&self) -> Now {
        let at = self.record.split();
        Now { at, ms: ms_at(at) }
    }

    /// Whether any effect has not ended.
    pub(super) fn waits(&self) -> bool {
        !self.effects.is_empty()
    }

    /// What of the client's request is sent again.
    pub(super) fn head(&mut self) -> &mut Head {
        &mut self.head
    }

    /// The request for the upstream.
    pub(super) fn request(&mut self, outgoing: &Outgoing) -> hyper::http::Request<UpBody> {
        let trace = steps::traceparent(self.record.trace.as_deref());
        self.head.request(&outgoing.pieces, trace.as_ref())
    }

    /// Sends the request and gives the exchange its reply; a stream is returned unread.
    async fn send(&mut self, outgoing: Outgoing) -> Option<StreamStart> {
        let started = self.record.split().into();
        let trace = steps::traceparent(self.record.trace.as_deref());
        let (head, upstream) = (&mut self.head, &self.app.upstream);
        // In a box, or every future around it would reserve room for it and be as expensive to move.
        let sent =
            Box::pin(upstream.send_made(|| head.request(&outgoing.pieces, trace.as_ref()), started)).await;
        self.record.upstream_time();
        if let Some(id) = sent.as_ref().ok().and_then(|response| upstream_id(response.headers())) {
            self.give(Input::UpstreamId(id));
        }
        let mut response = match sent {
            Ok(response) => response,
            Err(error) => {
                self.give(Input::NotSent(error));
                return None;
            }
        };
        let (app, head) = (&self.app, &mut self.head);
        let refuses = || {
            let came = head.came();
            app.refuses_unjudged(&came.headers, &came.uri)
        };
        let here = match app.config.mode {
            Mode::Enforce => app.upstream.keep_here(&mut response, refuses),
            _ => Ok(()),
        };
        if let Err(error) = here {
            self.give(Input::NotSent(error));
            return None;
        }
        if response.extensions_mut().remove::<Retried>().is_some() {
            self.give(Input::Resent);
        }
        // To the client the version is the client's, whatever the upstream spoke.
        *response.version_mut() = Version::HTTP_11;
        let is_events = response.status().is_success() && is_stream(response.headers());
        let accepts = outgoing.accepts;
        let ends_by_closing = response.extensions().get::<EndsByClosing>().is_some();
        let decoder = coding::decoder(response.headers(), self.app.config.limits.reply_bytes);
        if accepts == Accepts::Streams && is_events {
            if let Ok(decoder) = decoder {
                let (head, body) = response.into_parts();
                return Some(StreamStart { head, pieces: Vec::new(), body, decoder, ends_by_closing });
            }
            self.take(Read::unread(response));
            return None;
        }
        let may_stream = accepts != Accepts::WholeReplies;
        match Read::read(response, may_stream, &self.app, Some(&mut self.record)).await {
            Ok(mut read) => {
                if let Some((head, pieces, body)) = read.take_stream() {
                    // Its first bytes were decoded, or it would not be known to be a stream.
                    let decoder = decoder.unwrap_or_default();
                    return Some(StreamStart { head, pieces, body, decoder, ends_by_closing });
                }
                self.take(read);
            }
            Err(error) => self.give(Input::NotSent(error)),
        }
        None
    }

    /// Gives the exchange a whole reply.
    fn take(&mut self, read: Box<Read>) {
        let (status, body) = read.to_judge();
        let id = u32::try_from(self.replies.len()).unwrap_or(u32::MAX);
        self.replies.push(*read);
        self.give(Input::Reply(WholeReply { id, status, body }));
    }

    /// The reply to the client: a stream that starts at once.
    async fn begin(mut self: Box<Self>, start: StreamStart) -> Response<ReplyBody> {
        let StreamStart { mut head, pieces, body, decoder, ends_by_closing } = start;
        self.head.shrink();
        self.give(Input::StreamBegins { ends_by_closing });
        // The exchange begins the client's stream at once, or with its first event.
        let has_begun = self.exchange.poll().is_some();
        match &decoder {
            _ if self.app.is_observing() => {}
            Some(_) => coding::describe_no_bytes(&mut head.headers),
            // Policies may change the length. Not `remove`, which moves another header into the gap.
            None => retain(&mut head.headers, |name, _| *name != CONTENT_LENGTH),
        }
        let idle = self.app.config.upstream.idle_timeout;
        let from = FromUpstream::reading(body, Instant::now() + idle);
        if !has_begun {
            // In a box, so that nearly all requests, which are others, need not reserve room for it.
            return Box::pin(Streaming::new(self, from).with_body(decoder, pieces).after_head(head)).await;
        }
        self.stream(head, |driver| Streaming::new(driver, from).with_body(decoder, pieces))
    }

    /// The reply to the client: a stream under the head of the upstream's whole reply.
    fn stream_of(mut self: Box<Self>, id: u32) -> Response<ReplyBody> {
        if id as usize >= self.replies.len() {
            return self.fail(&ProxyError::Internal { detail: "an unknown reply".to_owned() });
        }
        let head = self.replies.swap_remove(id as usize).into_stream_head();
        self.stream(head, |driver| Streaming::new(driver, FromUpstream::Nothing))
    }

    fn stream(
        mut self: Box<Self>,
        mut head: Parts,
        streaming: impl FnOnce(Box<Self>) -> Streaming,
    ) -> Response<ReplyBody> {
        self.write_stream_head(&mut head);
        streaming(self).into_response(head)
    }

    /// Notes and completes the head of a stream.
    pub(super) fn write_stream_head(&mut self, head: &mut Parts) {
        self.record.reply.status = head.status.as_u16();
        self.write_head(head);
    }

    /// The whole reply to the client instead of a stream whose head was not sent.
    pub(super) fn answer_instead(self: Box<Self>, answer: Answer, head: Parts) -> Response<ReplyBody> {
        match answer {
            Answer::Restated { id: None, status, body } => {
                let mut read = Read::with_head(head);
                read.restate(status, body);
                self.respond(*read)
            }
            other => self.answer(other),
        }
    }

    /// The whole reply to the client.
    fn answer(mut self: Box<Self>, answer: Answer) -> Response<ReplyBody> {
        let number = match &answer {
            Answer::AsItCame(id) | Answer::Edited(id, _) => Some(*id),
            Answer::Restated { id, .. } => Some(id.unwrap_or(u32::MAX)),
            Answer::Own(_) | Answer::Error(_) => None,
        };
        if number.is_some_and(|id| id as usize >= self.replies.len()) {
            return self.fail(&ProxyError::Internal { detail: "an unknown reply".to_owned() });
        }
        let read = match answer {
            Answer::Error(error) => return self.fail(&error),
            Answer::Own(pieces) => *Read::own(pieces),
            Answer::Restated { id, status, body } => {
                let mut read = self.replies.swap_remove(id.unwrap_or_default() as usize);
                read.restate(status, body);
                read
            }
            Answer::AsItCame(id) => self.replies.swap_remove(id as usize),
            Answer::Edited(id, pieces) => {
                let mut read = self.replies.swap_remove(id as usize);
                read.edit(pieces);
                read
            }
        };
        self.respond(read)
    }

    fn respond(mut self: Box<Self>, mut read: Read) -> Response<ReplyBody> {
        self.write_head(&mut read.head);
        self.record.reply.status = read.head.status.as_u16();
        let read = match read.into_unread() {
            Ok((head, body)) => return self.relay(head, body),
            Err(read) => read,
        };
        self.answered = true;
        read.plain().into_iter().for_each(|piece| self.copy(&piece));
        let (response, bytes) = read.into_response(self.app.config.upstream.idle_timeout);
        self.record.reply.bytes = bytes;
        self.record.answers();
        response
    }

    /// Passes on a stream that toolrein cannot decode. The request lasts as long as the stream.
    fn relay(self: Box<Self>, head: Parts, body: Incoming) -> Response<ReplyBody> {
        let open = self.app.telemetry.metrics.stream_opened();
        let idle = self.app.config.upstream.idle_timeout;
        let pass = |(driver, _): &mut (Box<Self>, StreamGuard), length: Option<usize>| match length {
            Some(length) => {
                driver.record.first_byte();
                driver.record.reply.bytes += length as u64;
            }
            None => driver.answered = true,
        };
        Response::from_parts(head, ReplyBody::relay_observed(body, idle, (self, open), pass))
    }

    fn fail(mut self: Box<Self>, error: &ProxyError) -> Response<ReplyBody> {
        let mut response = error_response(error);
        self.record.fail(error);
        write_head(self.exchange.record(), response.headers_mut());
        self.answered = true;
        response
    }

    fn write_head(&mut self, head: &mut Parts) {
        if self.app.is_observing() {
            return;
        }
        write_head(self.exchange.record(), &mut head.headers);
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let at = self.record.now();
        let Closed { record, writes, is_complete } = self.exchange.close(Now { at, ms: ms_at(at) });
        writes.into_iter().for_each(|news| self.app.store.record(news));
        self.record.take(record, self.published);
        let inspected = self.exchange.inspect();
        if let Some(recording) = self.recording.take() {
            let record = &mut self.record;
            let recorded = recording.close(&inspected, &record.data.judged, record.trace.as_deref_mut());
            record.recorded = Some(Box::new(recorded));
        }
        self.app.bill_equal(self.request_key, &self.record.data);
        if let Some(conversation) = &self.record.data.conversation {
            self.app.telemetry.live.keep_body(conversation, || inspected.whole_request());
        }
        if self.answered || is_complete {
            self.record.end();
        }
    }
}

/// A stream whose first bytes may have been read.
struct StreamStart {
    head: Parts,
    pieces: Vec<Bytes>,
    body: Incoming,
    /// `None` where the stream is not compressed.
    decoder: Option<Decoder>,
    ends_by_closing: bool,
}

/// The head of a stream of toolrein's own.
fn own_head() -> Parts {
    let mut head = Response::new(()).into_parts().0;
    head.headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    head.headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    head
}
