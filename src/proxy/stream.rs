//! A streamed reply on its way to the client: the driver's part, which waits for the upstream, for people and for the
//! client, with back-pressure and within bounds of time and memory. The exchange decides what the client gets. A
//! compressed stream is decoded piece by piece as the client reads it, and reaches the client decoded; in observe mode
//! the client gets the bytes as they came, and a decoded copy is judged.

use super::body::{BodyError, ReplyBody, UpBody};
use super::coding;
use super::decoder::Decoder;
use super::driver::Driver;
use super::error::ProxyError;
use super::handler::AppState;
use super::memory::Reserved;
use super::record::upstream_id;
use super::upstream::EndsByClosing;
use super::wait::DeadlineTimer;
use super::whole::Read;
use crate::telemetry::metrics::StreamGuard;
use bytes::Bytes;
use engine::{Answer, Break, Input, Output, WholeReply};
use futures_util::Stream;
use hyper::body::{Body as _, Frame, Incoming};
use hyper::http::header::CONTENT_TYPE;
use hyper::http::response::Parts;
use hyper::http::{HeaderMap, Response};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::task::coop::consume_budget;
use tokio::time::Instant;

/// A reservation that is larger than needed is made smaller below so many bytes.
const LITTLE_BYTES: usize = 8 * 1024;

/// Whether the reply is a stream of events.
pub(super) fn is_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map_or(b"".as_slice(), |kind| kind.as_bytes());
    kind.get(..17).is_some_and(|start| start.eq_ignore_ascii_case(b"text/event-stream"))
}

/// What the stream awaits from the upstream.
pub(super) enum FromUpstream {
    Nothing,
    /// Its body, and when its silence becomes too long.
    Reading(Incoming, Instant),
    /// The reply to a re-ask.
    Asking(Pin<Box<dyn Future<Output = Reask> + Send>>),
}

/// A request in the middle of a stream that was answered, or could not be.
pub(super) struct Reask {
    /// The upstream's id of the request, if there is a reply that names it.
    upstream_id: Option<String>,
    reply: ReaskReply,
}

/// The reply to a re-ask.
pub(super) enum ReaskReply {
    Stream {
        body: Incoming,
        /// `None` where it is not compressed.
        decoder: Option<Decoder>,
        ends_by_closing: bool,
    },
    Whole(WholeReply),
    Failed(ProxyError),
}

/// How the upstream's body ends.
#[derive(Clone, Copy)]
enum BodyEnd {
    Whole,
    Cut,
    /// It was silent for too long.
    TooSilent,
}

impl FromUpstream {
    /// A body, and when its silence becomes too long.
    pub(super) fn reading(body: Incoming, deadline: Instant) -> Self {
        Self::Reading(body, deadline)
    }
}

/// The streamed reply.
pub(super) struct Streaming {
    driver: Box<Driver>,
    from: FromUpstream,
    /// For the next time at which something is due.
    timer: DeadlineTimer,
    /// It was set, and nothing has happened since.
    is_timed: bool,
    /// Decodes the upstream's body; `None` where that is not compressed.
    decoder: Option<Box<Decoder>>,
    /// In observe mode: compressed bytes that go to the client as they came.
    coded: VecDeque<Bytes>,
    trailers: Option<Box<HeaderMap>>,
    /// What the exchange answers instead of this stream, before its head was sent.
    answer: Option<Box<Answer>>,
    /// The reservation for the memory in use.
    reserved: Reserved,
    _open: StreamGuard,
}

impl Streaming {
    pub(super) fn new(driver: Box<Driver>, from: FromUpstream) -> Self {
        let open = driver.app.telemetry.metrics.stream_opened();
        Self {
            driver,
            from,
            timer: DeadlineTimer::default(),
            is_timed: false,
            decoder: None,
            coded: VecDeque::new(),
            trailers: None,
            answer: None,
            reserved: Reserved::default(),
            _open: open,
        }
    }

    /// Adds the `decoder` of the upstream's body and the pieces that have been read.
    pub(super) fn with_body(mut self, decoder: Option<Decoder>, pieces: Vec<Bytes>) -> Self {
        self.decoder = decoder.map(Box::new);
        pieces.into_iter().for_each(|piece| self.take(piece));
        self
    }

    /// The stream with this head, which goes out when the exchange begins the stream; or the answer that the exchange gives
    /// instead.
    pub(super) async fn after_head(mut self, mut head: Parts) -> Response<ReplyBody> {
        poll_fn(|context| {
            while !self.has_begun() {
                ready!(self.poll_proceed(context));
            }
            Poll::Ready(())
        })
        .await;
        if let Some(answer) = self.answer.take() {
            return self.driver.answer_instead(*answer, head);
        }
        self.driver.write_stream_head(&mut head);
        self.into_response(head)
    }

    /// Does what the exchange wants until it begins the stream or answers instead; false if that has not come yet.
    fn has_begun(&mut self) -> bool {
        while let Some(output) = self.driver.exchange.poll() {
            self.driver.begin_step(&output);
            match output {
                Output::BeginStream { .. } => return true,
                Output::Answer(answer) => {
                    self.answer = Some(Box::new(answer));
                    return true;
                }
                other => self.perform(other),
            }
        }
        false
    }

    /// Performs an output that gives the client nothing.
    fn perform(&mut self, output: Output) {
        match output {
            Output::Send(outgoing) => {
                let request = self.driver.request(&outgoing);
                let asking = ask(Arc::clone(&self.driver.app), request);
                // The rest of the earlier reply is discarded.
                self.decoder = None;
                self.from = FromUpstream::Asking(Box::pin(asking));
            }
            Output::Held(bytes) => self.reserve(bytes),
            Output::Done => {
                self.driver.answered = true;
                self.from = FromUpstream::Nothing;
            }
            other => self.driver.perform(other),
        }
    }

    pub(super) fn into_response(self, head: Parts) -> Response<ReplyBody> {
        Response::from_parts(head, ReplyBody::from_stream(self))
    }

    /// Goes on with what has come, or waits for what happens next.
    fn poll_proceed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.decode() {
            self.is_timed = false;
            // A little compressed data decodes to a lot: yield to other tasks.
            return pin!(consume_budget()).poll(context);
        }
        ready!(self.poll_event(context));
        self.is_timed = false;
        Poll::Ready(())
    }

    /// A frame that goes to the client now.
    fn shown(&mut self, bytes: Bytes) -> Frame<Bytes> {
        self.driver.record.first_byte();
        self.driver.record.reply.bytes += bytes.len() as u64;
        Frame::data(bytes)
    }

    /// Waits for what happens next and reports it to the exchange: the end of an effect, bytes of the upstream, or a time.
    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<()> {
        // A call that waits goes out when it may, however long the upstream takes for what follows it.
        let waits = self.driver.waits();
        if waits {
            let result = pin!(self.driver.next_result()).poll(context);
            if let Poll::Ready(result) = result {
                result.into_iter().for_each(|input| self.driver.give(input));
                return Poll::Ready(());
            }
        }
        match &mut self.from {
            FromUpstream::Nothing if waits => {}
            FromUpstream::Nothing => {
                // An exchange that awaits nothing should have ended; this reply must not look complete.
                let error = ProxyError::Internal { detail: "the exchange ended without a reply".to_owned() };
                self.driver.give(Input::Cut(error, Break::Upstream));
                return Poll::Ready(());
            }
            FromUpstream::Reading(body, _) => {
                if let Poll::Ready(frame) = Pin::new(body).poll_frame(context) {
                    self.driver.record.mark_idle();
                    match frame {
                        Some(Ok(frame)) => self.take_frame(frame),
                        Some(Err(_)) => self.end_as(BodyEnd::Cut),
                        None => self.end_as(BodyEnd::Whole),
                    }
                    return Poll::Ready(());
                }
            }
            FromUpstream::Asking(asking) => {
                if let Poll::Ready(reask) = asking.as_mut().poll(context) {
                    self.take_reask(reask);
                    return Poll::Ready(());
                }
            }
        }
        self.poll_time(context)
    }

    /// Waits for the next time at which something is due: the upstream was silent for too long, or the exchange goes on.
    fn poll_time(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.is_timed && self.timer.waits_for(context) {
            return Poll::Pending;
        }
        let tick = self.driver.exchange.deadline().map(Instant::from);
        let silence =
            if let FromUpstream::Reading(_, deadline) = &self.from { Some(*deadline) } else { None };
        let until = match (tick, silence) {
            (Some(tick), Some(silence)) => tick.min(silence),
            (Some(only), None) | (None, Some(only)) => only,
            (None, None) => return Poll::Pending,
        };
        self.is_timed = true;
        ready!(self.timer.poll(until, context));
        let is_silent = silence.is_some_and(|deadline| deadline <= Instant::now());
        self.driver.record.mark_idle();
        if is_silent {
            self.end_as(BodyEnd::TooSilent);
        } else {
            self.driver.give(Input::Tick);
        }
        Poll::Ready(())
    }

    /// Takes a frame of the upstream's body.
    fn take_frame(&mut self, frame: Frame<Bytes>) {
        let now = Instant::from(self.driver.record.split());
        match frame.into_data() {
            Ok(data) => self.take(data),
            Err(frame) => self.trailers = frame.into_trailers().ok().map(Box::new),
        }
        self.expect_more(now);
    }

    /// The upstream's body has ended in this way.
    fn end_as(&mut self, end: BodyEnd) {
        let app = &self.driver.app;
        match end {
            BodyEnd::Whole => match &mut self.decoder {
                Some(decoder) => decoder.end(),
                None => self.end(Input::End),
            },
            BodyEnd::Cut => {
                let error = app.cut(&"the connection broke");
                self.end(Input::Cut(error, Break::Upstream));
            }
            BodyEnd::TooSilent => {
                let error = app.timed_out(app.config.upstream.idle_timeout);
                self.end(Input::Cut(error, Break::Idle));
            }
        }
    }

    /// Takes a piece of the upstream's body.
    fn take(&mut self, data: Bytes) {
        let Some(decoder) = &mut self.decoder else { return self.judge(data) };
        if self.driver.app.is_observing() {
            self.coded.push_back(data.clone());
        }
        decoder.push(data);
    }

    /// Has the next decoded piece judged; false if there is none.
    fn decode(&mut self) -> bool {
        let Some(decoder) = self.decoder.as_mut().filter(|_| matches!(self.from, FromUpstream::Reading(..)))
        else {
            return false;
        };
        let app = &self.driver.app;
        match decoder.decode() {
            Some(Ok(piece)) => {
                self.judge(piece);
                let now = self.driver.record.split().into();
                self.expect_more(now);
            }
            // The client gets everything, whatever it is.
            Some(Err(_)) if app.is_observing() => {
                self.driver.give(Input::Undecodable);
            }
            Some(Err(error)) => {
                let error = app.cut(&error);
                self.end(Input::Cut(error, Break::Upstream));
            }
            None if decoder.has_ended() => self.end(Input::End),
            None => return false,
        }
        true
    }

    /// Whether the client gets the upstream's compressed bytes, while a copy is judged.
    fn passes_coded(&self) -> bool {
        self.decoder.is_some() && self.driver.app.is_observing()
    }

    fn judge(&mut self, data: Bytes) {
        self.driver.give(Input::Bytes(data));
        self.driver.record.own_time();
    }

    /// Sets how long the upstream may be silent from `now` on.
    fn expect_more(&mut self, now: Instant) {
        if let FromUpstream::Reading(_, deadline) = &mut self.from {
            *deadline = now + self.driver.app.config.upstream.idle_timeout;
        }
    }

    /// Nothing more comes of the upstream's body, which `input` says.
    fn end(&mut self, input: Input) {
        self.from = FromUpstream::Nothing;
        self.driver.give(input);
    }

    fn take_reask(&mut self, Reask { upstream_id, reply }: Reask) {
        self.driver.record.mark_idle();
        if let Some(id) = upstream_id {
            self.driver.give(Input::UpstreamId(id));
        }
        self.from = FromUpstream::Nothing;
        match reply {
            ReaskReply::Stream { body, decoder, ends_by_closing } => {
                self.decoder = decoder.map(Box::new);
                let idle = self.driver.app.config.upstream.idle_timeout;
                self.from = FromUpstream::reading(body, Instant::now() + idle);
                self.driver.give(Input::StreamBegins { ends_by_closing });
            }
            ReaskReply::Whole(reply) => self.driver.give(Input::Reply(reply)),
            ReaskReply::Failed(error) => self.driver.give(Input::NotSent(error)),
        }
    }

    /// Counts the memory in use against the bound on all bodies; `kept`: what the exchange holds of the stream.
    fn reserve(&mut self, kept: usize) {
        let decoding = self.decoder.as_ref().map_or(0, |decoder| decoder.kept_bytes());
        let kept = kept + decoding;
        let fits = self.driver.app.memory.replies.reach(&mut self.reserved, kept);
        if kept < LITTLE_BYTES {
            self.reserved.shrink(kept);
        }
        if !fits && !self.driver.app.is_observing() {
            self.driver.give(Input::NoMemory);
        }
    }
}

impl Stream for Streaming {
    type Item = Result<Frame<Bytes>, BodyError>;

    /// The next frame for the client.
    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if let Some(bytes) = this.coded.pop_front() {
                return Poll::Ready(Some(Ok(this.shown(bytes))));
            }
            while let Some(output) = this.driver.exchange.poll() {
                this.driver.begin_step(&output);
                match output {
                    Output::Emit(bytes) => {
                        this.driver.copy(&bytes);
                        if !this.passes_coded() {
                            return Poll::Ready(Some(Ok(this.shown(bytes))));
                        }
                    }
                    Output::BreakOff(how) => {
                        this.driver.answered = true;
                        return Poll::Ready(Some(Err(match how {
                            Break::Upstream => BodyError::UpstreamCut,
                            Break::Idle => BodyError::IdleTimeout,
                        })));
                    }
                    other => this.perform(other),
                }
            }
            if this.driver.answered {
                return Poll::Ready(this.trailers.take().map(|trailers| Ok(Frame::trailers(*trailers))));
            }
            ready!(this.poll_proceed(context));
        }
    }
}

/// Sends `request` in the middle of a stream, and reads a reply that is not a stream.
async fn ask(app: Arc<AppState>, request: hyper::http::Request<UpBody>) -> Reask {
    match app.upstream.send(request).await {
        Ok(response) => Reask {
            upstream_id: upstream_id(response.headers()),
            reply: read_reask_reply(&app, response).await,
        },
        Err(error) => Reask { upstream_id: None, reply: ReaskReply::Failed(error) },
    }
}

/// The reply to a re-ask: a stream that is not read yet, or a whole one.
async fn read_reask_reply(app: &Arc<AppState>, response: Response<Incoming>) -> ReaskReply {
    let is_events = response.status().is_success() && is_stream(response.headers());
    let decoder = coding::decoder(response.headers(), app.config.limits.reply_bytes);
    if let Ok(decoder) = decoder
        && is_events
    {
        let ends_by_closing = response.extensions().get::<EndsByClosing>().is_some();
        return ReaskReply::Stream { body: response.into_body(), decoder, ends_by_closing };
    }
    match Read::read(response, false, app, None).await {
        Ok(read) => {
            let (status, body) = read.to_judge();
            ReaskReply::Whole(WholeReply { id: u32::MAX, status, body })
        }
        Err(error) => ReaskReply::Failed(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_recognised_by_its_content_type_in_any_spelling() {
        for (kind, expected) in [
            ("text/event-stream", true),
            ("text/event-stream;charset=UTF-8", true),
            ("Text/Event-Stream; charset=utf-8", true),
            ("application/json", false),
            ("text/event", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, hyper::http::HeaderValue::from_static(kind));
            assert_eq!(is_stream(&headers), expected, "{kind}");
        }
        assert!(!is_stream(&HeaderMap::new()));
    }
}
