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
use super::record::{note_sent, upstream_id};
use super::upstream::EndsByClosing;
use super::wait::{Step, wait};
use super::whole::Read;
use crate::telemetry::metrics::StreamGuard;
use bytes::Bytes;
use engine::{Answer, Break, Input, Output, WholeReply};
use hyper::body::{Frame, Incoming};
use hyper::http::header::CONTENT_TYPE;
use hyper::http::response::Parts;
use hyper::http::{HeaderMap, Response};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, timeout_at};

/// How long a stream may stay open after `[DONE]`: servers end it at once, some proxies never do.
const AFTER_DONE: Duration = Duration::from_secs(2);

/// After how many bytes of a stream the kept memory is counted again.
const COUNTED_EVERY: usize = 8 * 1024;

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
    /// Decodes the upstream's body; `None` where that is not compressed.
    decoder: Option<Box<Decoder>>,
    /// In observe mode: compressed bytes that go to the client as they came.
    coded: VecDeque<Bytes>,
    trailers: Option<HeaderMap>,
    /// What the exchange answers instead of this stream, before its head was sent.
    answer: Option<Answer>,
    /// A frame that was ready when the head was sent.
    first: Option<Result<Frame<Bytes>, BodyError>>,
    /// When the client last got something.
    shown: Instant,
    /// The reservation for the memory in use.
    reserved: Reserved,
    /// Bytes that came since the memory was counted last.
    uncounted: usize,
    _open: StreamGuard,
}

impl Streaming {
    pub(super) fn new(driver: Box<Driver>, from: FromUpstream) -> Self {
        let open = driver.app.telemetry.metrics.stream_opened();
        Self {
            driver,
            from,
            decoder: None,
            coded: VecDeque::new(),
            trailers: None,
            answer: None,
            first: None,
            shown: Instant::now(),
            reserved: Reserved::default(),
            uncounted: 0,
            _open: open,
        }
    }

    /// Adds the `decoder` of the upstream's body and the pieces that have been read.
    pub(super) fn with_body(mut self, decoder: Option<Decoder>, pieces: Vec<Bytes>) -> Self {
        self.decoder = decoder.map(Box::new);
        pieces.into_iter().for_each(|piece| self.take(piece));
        self
    }

    /// The stream with this head, which goes out with the first event, or when the client has waited for a heartbeat's
    /// interval; or the answer that the exchange gives instead.
    pub(super) async fn after_head(mut self, mut head: Parts) -> Response<ReplyBody> {
        let due = Instant::now() + self.driver.app.config.limits.keepalive_comment;
        match timeout_at(due, self.next()).await {
            Ok(first) => self.first = first,
            Err(_) => self.driver.give(Input::HeadDue),
        }
        if let Some(answer) = self.answer.take() {
            return self.driver.answer_instead(answer, head);
        }
        self.driver.write_stream_head(&mut head);
        self.into_response(head)
    }

    pub(super) fn into_response(self, head: Parts) -> Response<ReplyBody> {
        let frames = futures_util::stream::unfold(Box::new(self), |mut streaming| async move {
            let frame = streaming.next().await?;
            Some((frame, streaming))
        });
        Response::from_parts(head, ReplyBody::from_stream(frames))
    }

    /// The next frame for the client.
    async fn next(&mut self) -> Option<Result<Frame<Bytes>, BodyError>> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        loop {
            if let Some(bytes) = self.coded.pop_front() {
                return Some(Ok(self.shown(bytes)));
            }
            while let Some(output) = self.driver.exchange.next_output() {
                self.driver.begin_step(&output);
                match output {
                    Output::Emit(bytes) => {
                        self.driver.copy(&bytes);
                        if !self.passes_coded() {
                            return Some(Ok(self.shown(bytes)));
                        }
                    }
                    Output::BreakOff(how) => {
                        self.driver.answered = true;
                        return Some(Err(match how {
                            Break::Upstream => BodyError::UpstreamCut,
                            Break::Idle => BodyError::IdleTimeout,
                        }));
                    }
                    Output::Send(outgoing) => {
                        let request = self.driver.request(&outgoing);
                        let asking = ask(Arc::clone(&self.driver.app), request);
                        // The rest of the earlier reply is discarded.
                        self.decoder = None;
                        self.from = FromUpstream::Asking(Box::pin(asking));
                    }
                    Output::Answer(answer) => {
                        self.answer = Some(answer);
                        return None;
                    }
                    Output::Done => {
                        self.driver.answered = true;
                        self.from = FromUpstream::Nothing;
                    }
                    other => self.driver.perform(other),
                }
            }
            if self.driver.answered {
                return self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers)));
            }
            if self.decode() {
                // A little compressed data decodes to a lot: yield to other tasks.
                consume_budget().await;
            } else {
                self.wait().await;
            }
        }
    }

    /// A frame that goes to the client now.
    fn shown(&mut self, bytes: Bytes) -> Frame<Bytes> {
        self.shown = self.driver.record.split().into();
        self.driver.record.first_byte();
        self.driver.exchange.record().reply_bytes += bytes.len() as u64;
        Frame::data(bytes)
    }

    /// Waits for what happens next and reports it to the exchange.
    async fn wait(&mut self) {
        let due = self.shown + self.driver.app.config.limits.keepalive_comment;
        // Everything that arrives may be hidden from the client: the arguments of a call under judgement can take
        // minutes.
        let hiding = self.driver.exchange.is_hiding();
        match &mut self.from {
            FromUpstream::Reading(..) if hiding && due <= Instant::now() => self.silence(),
            FromUpstream::Reading(body, deadline) if self.driver.waits() => {
                // A call that waits goes out when it may, however long the upstream takes for what follows it.
                let next = tokio::select! {
                    biased;
                    result = self.driver.next_result() => Err(result),
                    step = wait(body, *deadline, hiding.then_some(due)) => Ok(step),
                };
                match next {
                    Ok(step) => self.step(step),
                    Err(Some(input)) => self.driver.give(input),
                    Err(None) => {}
                }
            }
            FromUpstream::Reading(body, deadline) => {
                let step = wait(body, *deadline, hiding.then_some(due)).await;
                self.step(step);
            }
            FromUpstream::Asking(asking) => match timeout_at(due, asking).await {
                Ok(reask) => self.take_reask(reask),
                Err(_) => self.silence(),
            },
            FromUpstream::Nothing => match timeout_at(due, self.driver.next_result()).await {
                Ok(Some(input)) => self.driver.give(input),
                // An exchange that awaits nothing should have ended; this reply must not look complete.
                Ok(None) => {
                    let error =
                        ProxyError::Internal { detail: "the exchange ended without a reply".to_owned() };
                    self.driver.give(Input::Cut(error, Break::Upstream));
                }
                Err(_) => self.silence(),
            },
        }
    }

    fn silence(&mut self) {
        self.driver.record.mark_idle();
        self.shown = self.driver.record.split().into();
        self.driver.give(Input::Silence);
    }

    fn step(&mut self, step: Step) {
        self.driver.record.mark_idle();
        let app = Arc::clone(&self.driver.app);
        let idle = app.config.upstream.idle_timeout;
        match step {
            Step::Frame(frame) => {
                let now = Instant::from(self.driver.record.split());
                match frame.into_data() {
                    Ok(data) => self.take(data),
                    Err(frame) => self.trailers = frame.into_trailers().ok(),
                }
                self.expect_more(now);
            }
            Step::End => match &mut self.decoder {
                Some(decoder) => decoder.end(),
                None => self.end(Input::End),
            },
            Step::Silence => self.silence(),
            Step::Cut => self.end(Input::Cut(app.cut(&"the connection broke"), Break::Upstream)),
            Step::TooSilent => self.end(Input::Cut(app.timed_out(idle), Break::Idle)),
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
                self.driver.exchange.record().unjudged.push("unreadable_coding");
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
        let came = data.len();
        self.driver.give(Input::Bytes(data));
        self.reserve(came);
        self.driver.record.own_time();
    }

    /// Sets how long the upstream may be silent from `now` on.
    fn expect_more(&mut self, now: Instant) {
        let idle = self.driver.app.config.upstream.idle_timeout;
        let patience = if self.driver.exchange.is_done() { AFTER_DONE.min(idle) } else { idle };
        if let FromUpstream::Reading(_, deadline) = &mut self.from {
            *deadline = now + patience;
        }
    }

    /// The upstream's body has ended in this way.
    fn end(&mut self, input: Input) {
        self.from = FromUpstream::Nothing;
        self.driver.give(input);
    }

    fn take_reask(&mut self, Reask { upstream_id, reply }: Reask) {
        self.driver.record.mark_idle();
        self.driver.exchange.record().upstream_request_ids.extend(upstream_id);
        self.from = FromUpstream::Nothing;
        match reply {
            ReaskReply::Stream { body, decoder, ends_by_closing } => {
                self.decoder = decoder.map(Box::new);
                let idle = self.driver.app.config.upstream.idle_timeout;
                self.from = FromUpstream::reading(body, Instant::now() + idle);
                self.driver.give(Input::StreamBegins { ends_by_closing });
            }
            ReaskReply::Whole(reply) => self.driver.give(Input::Reply(reply)),
            ReaskReply::Failed(error) => {
                note_sent(self.driver.exchange.record(), Err(&error));
                self.driver.give(Input::NotSent(error));
            }
        }
    }

    /// Counts the memory in use against the bound on all bodies, after a piece of `came` bytes. Adding it up looks at
    /// every call, so it is done once in a while.
    fn reserve(&mut self, came: usize) {
        self.uncounted += came;
        if self.uncounted < COUNTED_EVERY {
            return;
        }
        self.uncounted = 0;
        let decoding = self.decoder.as_ref().map_or(0, |decoder| decoder.kept_bytes());
        let kept = self.driver.exchange.kept_bytes() + decoding;
        let fits = self.driver.app.memory.replies.reach(&mut self.reserved, kept);
        if kept < COUNTED_EVERY {
            self.reserved.shrink(kept);
        }
        if !fits && !self.driver.app.is_observing() {
            self.driver.give(Input::NoMemory);
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
