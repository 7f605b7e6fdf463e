//! A streamed reply on its way to the client: each chunk is judged as it arrives and handed on at once; further
//! replies to asking again join the same stream. One task-free state machine per stream: dropped with the
//! client's connection, it cancels the upstream.

mod asked;
mod coded;
mod rejoined;
mod wait;

use self::asked::{Asked, ask, error_data};
use self::rejoined::rejoined;
use self::wait::{Step, wait};
use super::alarm::Alarm;
use super::body::{BodyError, ReplyBody};
use super::clock::ms_at;
use super::coding;
use super::error::ProxyError;
use super::exchange::Exchange;
use super::headers::retain;
use super::memory::Reserved;
use super::record::label;
use super::upstream::EndsByClosing;
use crate::rewrite::choice::is_served;
use crate::rewrite::confirm::held::Word;
use crate::rewrite::judging::Judging;
use crate::rewrite::stream::{Ending, StreamJudge, StreamLimits};
use crate::telemetry::metrics::StreamGuard;
use crate::wire::coding::{CodingError, Decoder};
use crate::wire::error::{own_error_body, parse};
use crate::wire::sse::write_event;
use crate::wire::usage::Usage;
use bytes::Bytes;
use hyper::body::Frame;
use hyper::body::Incoming;
use hyper::http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use hyper::http::response::Parts;
use hyper::http::{HeaderMap, HeaderValue, Response};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, timeout_at};

/// How long a stream that said `[DONE]` may stay open: servers end it at once, some proxies never do.
const AFTER_DONE: Duration = Duration::from_secs(2);

/// After how many bytes of a stream it is counted what is kept of it.
const COUNTED_EVERY: usize = 8 * 1024;

/// Whether the reply is a stream of events.
pub(crate) fn is_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map_or(b"".as_slice(), |kind| kind.as_bytes());
    kind.get(..17).is_some_and(|start| start.eq_ignore_ascii_case(b"text/event-stream"))
}

/// Whether the reply to who `asked` for a stream, or did not, is one by its head. Whoever did not waits for the whole
/// anyway: there, the first bytes decide.
pub(crate) fn begins<B>(asked: bool, response: &Response<B>) -> bool {
    asked && response.status().is_success() && is_stream(response.headers())
}

/// The streamed reply for the client. Its head goes out at once.
pub(crate) fn answer(
    exchange: Box<Exchange>,
    judging: Judging,
    response: Response<Incoming>,
) -> Response<ReplyBody> {
    let (head, body) = response.into_parts();
    answer_begun(exchange, judging, (head, Vec::new(), body))
}

/// The same for a stream of which these pieces have come.
pub(crate) fn answer_begun(
    mut exchange: Box<Exchange>,
    judging: Judging,
    (mut head, pieces, body): (Parts, Vec<Bytes>, Incoming),
) -> Response<ReplyBody> {
    let gateway = Arc::clone(&exchange.gateway);
    exchange.let_go();
    exchange.record.outcome.status = head.status.as_u16();
    exchange.record.outcome.streamed = true;
    if !exchange.is_observing() {
        exchange.record.write_head(&mut head.headers, exchange.identity.explicit.as_deref());
    }
    let open = gateway.telemetry.metrics.stream_opened();
    let idle = gateway.config.upstream.idle_timeout;
    let Ok(decoder) = coding::decoder(&head.headers) else {
        exchange.record.unjudged("unreadable_coding");
        if judging.is_strict() {
            return exchange.fail(&ProxyError::ReplyUnjudged { why: "unreadable_coding" });
        }
        let tell = |(exchange, _): &mut (Box<Exchange>, StreamGuard), length| exchange.record.passes(length);
        return Response::from_parts(head, ReplyBody::relay_told(body, idle, (exchange, open), tell));
    };
    match &decoder {
        _ if exchange.is_observing() => {}
        Some(_) => coding::describe_no_bytes(&mut head.headers),
        // What acts may change the length. Not `remove`, which moves another header to the gap.
        None => retain(&mut head.headers, |name, _| *name != CONTENT_LENGTH),
    }
    let phase = Phase::Reading(body, Instant::now() + idle, Alarm::default());
    let mut streaming = Streaming::new(exchange, judging, (phase, open));
    streaming.ends_by_closing = head.extensions.get::<EndsByClosing>().is_some();
    streaming.decoder = decoder.map(Box::new);
    for piece in pieces {
        streaming.take(piece);
    }
    streamed(head, streaming)
}

/// A stream of our own for the client, whose `events` are judged like an upstream's.
pub(crate) fn answer_own(
    mut exchange: Box<Exchange>,
    judging: Judging,
    events: &Bytes,
) -> Response<ReplyBody> {
    let mut head = Response::new(()).into_parts().0;
    head.headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    head.headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    exchange.record.outcome.status = head.status.as_u16();
    exchange.record.outcome.streamed = true;
    exchange.record.write_head(&mut head.headers, exchange.identity.explicit.as_deref());
    let open = exchange.gateway.telemetry.metrics.stream_opened();
    let mut streaming = Streaming::new(exchange, judging, (Phase::Over, open));
    streaming.push(events);
    streaming.finish();
    streamed(head, streaming)
}

fn streamed(head: Parts, streaming: Streaming) -> Response<ReplyBody> {
    let frames = futures_util::stream::unfold(Box::new(streaming), |mut streaming| async move {
        let frame = streaming.next().await?;
        Some((frame, streaming))
    });
    Response::from_parts(head, ReplyBody::from_stream(frames))
}

struct Streaming {
    exchange: Box<Exchange>,
    judge: StreamJudge,
    /// Decodes what comes of the upstream's body; `None` where that is not compressed.
    decoder: Option<Box<Decoder>>,
    phase: Phase,
    /// What the client gets next.
    out: VecDeque<Bytes>,
    /// Room for the pieces of a chunk while it is judged.
    judged: Vec<Bytes>,
    trailers: Option<HeaderMap>,
    /// How the stream breaks off behind what is still to go out.
    broken: Option<BodyError>,
    /// When the client got something last.
    shown: Instant,
    /// How many choices were finished when the ledger was told last.
    remembered: usize,
    /// See [`EndsByClosing`].
    ends_by_closing: bool,
    /// The memory that is taken by what is kept.
    reserved: Reserved,
    /// Bytes that came since that was counted.
    uncounted: usize,
    _open: StreamGuard,
}

enum Phase {
    /// The upstream's body, and when its silence becomes too long.
    Reading(Incoming, Instant, Alarm),
    Asking(Pin<Box<dyn Future<Output = Asked> + Send>>),
    /// The reply has ended, but for calls that wait for a person's word.
    Waiting,
    Over,
}

impl Streaming {
    fn new(exchange: Box<Exchange>, judging: Judging, (phase, open): (Phase, StreamGuard)) -> Self {
        let limits = &exchange.gateway.config.limits;
        let limits =
            StreamLimits { event: limits.event_bytes, held: limits.held_bytes, reply: limits.reply_bytes };
        let mut judge = StreamJudge::new(judging, limits, true);
        judge.cut_usage = exchange.pass.ask_usage;
        judge.tell = exchange.tell();
        Self {
            exchange,
            judge,
            decoder: None,
            phase,
            out: VecDeque::new(),
            judged: Vec::new(),
            trailers: None,
            broken: None,
            shown: Instant::now(),
            remembered: 0,
            ends_by_closing: false,
            reserved: Reserved::default(),
            uncounted: 0,
            _open: open,
        }
    }

    /// The next frame for the client.
    async fn next(&mut self) -> Option<Result<Frame<Bytes>, BodyError>> {
        loop {
            if let Some(bytes) = self.out.pop_front() {
                self.shown = self.exchange.record.lap().into();
                self.exchange.record.first_byte();
                self.exchange.record.outcome.reply_bytes += bytes.len() as u64;
                return Some(Ok(Frame::data(bytes)));
            }
            if let Some(broken) = self.broken.take() {
                self.phase = Phase::Over;
                self.exchange.record.end();
                return Some(Err(broken));
            }
            if self.decode() {
                // A little compressed is a lot decoded: others are to have their turn.
                consume_budget().await;
                continue;
            }
            let due = self.shown + self.exchange.gateway.config.limits.keepalive_comment;
            // What comes may all be for us: the arguments of a call that is not shown can take minutes.
            let hiding = self.judge.is_hiding() || self.exchange.reasks.count() > 0;
            match &mut self.phase {
                Phase::Reading(..) if hiding && due <= Instant::now() => self.comment(),
                Phase::Reading(body, deadline, alarm) => {
                    let step = wait((body, alarm), *deadline, hiding.then_some(due)).await;
                    self.step(step);
                }
                Phase::Asking(asking) => match timeout_at(due, asking).await {
                    Ok(asked) => self.asked(asked),
                    Err(_) => self.comment(),
                },
                Phase::Waiting => match timeout_at(due, self.exchange.word()).await {
                    Ok(Some((id, word))) => self.settle(id, word),
                    Ok(None) => self.finish(),
                    Err(_) => self.comment(),
                },
                Phase::Over => {
                    self.exchange.record.end();
                    return self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers)));
                }
            }
        }
    }

    /// Sets how long the upstream may be silent from `now` on.
    fn expect_more(&mut self, now: Instant) {
        let idle = self.exchange.gateway.config.upstream.idle_timeout;
        let patience = if self.judge.is_done() { AFTER_DONE.min(idle) } else { idle };
        if let Phase::Reading(_, deadline, _) = &mut self.phase {
            *deadline = now + patience;
        }
    }

    fn step(&mut self, step: Step) {
        self.exchange.record.rested();
        match step {
            Step::Frame(frame) => {
                let now = Instant::from(self.exchange.record.lap());
                match frame.into_data() {
                    Ok(data) => self.take(data),
                    Err(frame) => self.trailers = frame.into_trailers().ok(),
                }
                self.expect_more(now);
            }
            Step::End if self.ends_by_closing && !self.judge.is_whole() => {
                let error =
                    self.exchange.gateway.cut(&"the connection was closed before the stream had ended");
                self.break_off(&error, BodyError::UpstreamCut);
            }
            Step::End if self.ends_within_coding() && !self.judge.is_done() => {
                self.break_off(&self.exchange.gateway.cut(&CodingError::Truncated), BodyError::UpstreamCut);
            }
            Step::End => self.finish(),
            Step::Silence => self.comment(),
            // All has been said; that the connection ends badly is no loss.
            Step::Cut | Step::TooSilent if self.judge.is_done() => self.finish(),
            Step::Cut => {
                self.break_off(&self.exchange.gateway.cut(&"the connection broke"), BodyError::UpstreamCut);
            }
            Step::TooSilent => {
                let idle = self.exchange.gateway.config.upstream.idle_timeout;
                self.break_off(&self.exchange.gateway.timed_out(idle), BodyError::IdleTimeout);
            }
        }
    }

    /// Judges a piece of the stream.
    fn push(&mut self, data: &Bytes) {
        let mut out = std::mem::take(&mut self.judged);
        self.judge.push(data.clone(), ms_at(self.exchange.record.lap()), &mut out);
        if !self.asks_anew(&mut out) && !self.passes_coded() {
            rejoined(data, &mut out, &mut self.out);
        }
        out.clear();
        self.judged = out;
        if self.judge.spoiled {
            let why = self.judge.unjudged.last().map_or("unjudged", |why| label(*why));
            self.break_off(&ProxyError::ReplyUnjudged { why }, BodyError::UpstreamCut);
        }
        self.reserve(data.len());
        self.exchange.show_held(&self.judge.judging);
        self.tell_finished();
        self.exchange.record.own_time();
    }

    /// Counts what is kept against the bound on all bodies, behind a piece of `came` bytes. To add it up takes a look at
    /// every call, so that it is done once in a while.
    fn reserve(&mut self, came: usize) {
        self.uncounted += came;
        if self.uncounted < COUNTED_EVERY {
            return;
        }
        self.uncounted = 0;
        let decoding = self.decoder.as_ref().map_or(0, |decoder| decoder.kept_bytes());
        let kept = self.judge.kept_bytes() + decoding;
        let fits = self.exchange.gateway.memory.replies.reach(&mut self.reserved, kept);
        if kept < COUNTED_EVERY {
            self.reserved.shrink(kept);
        }
        if !fits && !self.exchange.is_observing() {
            self.break_off(&ProxyError::NoMemory, BodyError::UpstreamCut);
        }
    }

    /// Before the client can act on a finish, the ledger knows what it was handed.
    fn tell_finished(&mut self) {
        let finished = self.judge.choices().iter().filter(|choice| choice.finish_shown).count();
        let finished = finished + usize::from(self.judge.is_done());
        if finished > self.remembered {
            self.remembered = finished;
            self.exchange.remember(self.judge.choices());
            if self.judge.is_done() {
                self.exchange.billed(self.judge.total_usage().as_ref().map(Usage::read).unwrap_or_default());
            }
        }
        // Nor does the client's next request meet this one, however long the upstream takes to end its stream.
        let choices = self.judge.choices();
        if !choices.is_empty() && choices.iter().all(|choice| choice.finish_shown) {
            self.exchange.passage = None;
        }
    }

    /// A word has come on a call that waited.
    fn settle(&mut self, id: u32, word: Word) {
        self.exchange.record.rested();
        let mut out = Vec::new();
        self.judge.settle(id, word, &mut out);
        self.out.extend(out);
        self.tell_finished();
        if !self.judge.is_waiting() {
            self.finish();
        }
    }

    /// Where the first event is an error: true if another form of the request is asked instead. Else the error
    /// is put in its place in `out`.
    fn asks_anew(&mut self, out: &mut Vec<Bytes>) -> bool {
        let Some((error, raw, place)) = self.judge.take_head_error() else { return false };
        let again = match self.exchange.pass.asking {
            // An error that says nothing of its status is a refusal of what was asked.
            Some(_) => self.exchange.lands_bare(error.status.unwrap_or(400)),
            None => self.exchange.falls_back(error.status.unwrap_or(200), &error),
        };
        if !again {
            self.judge.fail();
            // No form was taken.
            self.exchange.tried.clear();
            out.insert(place, raw);
            return false;
        }
        self.judge.restart(true);
        self.judge.cut_usage = self.exchange.pass.ask_usage;
        self.judge.tell = self.exchange.tell();
        self.ask();
        true
    }

    /// The upstream's body has ended, or no call waits any more.
    fn finish(&mut self) {
        let mut out = Vec::new();
        let ending = self.judge.finish(ms_at(self.exchange.record.lap()), &mut out);
        if self.asks_anew(&mut out) {
            return;
        }
        if !self.passes_coded() {
            self.out.extend(out);
        }
        self.exchange.show_held(&self.judge.judging);
        match ending {
            Ending::Waits => self.phase = Phase::Waiting,
            Ending::Reask { choice, round } if !self.exchange.is_observing() => {
                let served = is_served(self.judge.choices(), choice);
                self.exchange.ask_again((choice, served), round, &mut self.judge.judging);
                self.judge.continue_with(choice);
                self.ask();
            }
            _ => {
                self.exchange.taken();
                self.exchange.remember(self.judge.choices());
                self.phase = Phase::Over;
            }
        }
    }

    /// Sends the present form of the request.
    fn ask(&mut self) {
        let request = self.exchange.request();
        // What is left of the reply before is of no concern.
        self.decoder = None;
        self.phase = Phase::Asking(Box::pin(ask(Arc::clone(&self.exchange.gateway), request)));
    }

    fn asked(&mut self, asked: Asked) {
        self.exchange.record.rested();
        match asked {
            Asked::Stream { body, decoder, ends_by_closing } => {
                (self.decoder, self.ends_by_closing) = (decoder, ends_by_closing);
                let idle = self.exchange.gateway.config.upstream.idle_timeout;
                self.phase = Phase::Reading(body, Instant::now() + idle, Alarm::default());
            }
            Asked::Whole(events) => {
                self.phase = Phase::Over;
                self.push(&events);
                if matches!(self.phase, Phase::Over) {
                    self.finish();
                }
            }
            Asked::Refused { status, .. } if self.exchange.lands_bare(status) => self.ask(),
            Asked::Refused { status, body } => {
                let error = parse(&body).unwrap_or_default();
                let falls_back =
                    self.exchange.pass.asking.is_none() && self.exchange.falls_back(status, &error);
                if falls_back {
                    return self.ask();
                }
                self.out.push_back(write_event(&error_data(status, &body)));
                self.exchange.record.outcome.error = Some("reask_failed");
                self.broken = Some(BodyError::UpstreamCut);
            }
            Asked::Failed(error) => self.break_off(&error, BodyError::UpstreamCut),
        }
    }

    /// Keeps the client's connection alive while it has to wait.
    fn comment(&mut self) {
        self.exchange.record.rested();
        self.shown = self.exchange.record.lap().into();
        if self.judge.at_boundary() {
            self.out.push_back(Bytes::from_static(b": toolrein waits\n\n"));
        }
    }

    /// Ends the stream visibly: an error event where one can stand, then a broken body.
    fn break_off(&mut self, error: &ProxyError, broken: BodyError) {
        if self.judge.at_boundary() {
            let data = own_error_body(&error.message(), error.code());
            self.out.push_back(write_event(data.as_bytes()));
        }
        self.exchange.record.outcome.error = Some(error.code());
        self.broken = Some(broken);
    }
}

impl Drop for Streaming {
    fn drop(&mut self) {
        if !matches!(self.phase, Phase::Over) {
            self.exchange.remember(self.judge.choices());
        }
        if self.judge.is_done() {
            self.exchange.record.end();
        }
        for why in &self.judge.unjudged {
            self.exchange.record.unjudged(label(*why));
        }
        let now_ms = self.exchange.gateway.now_ms();
        self.exchange.record.judged(&mut self.judge.judging, now_ms);
        self.exchange.billed(self.judge.total_usage().as_ref().map(Usage::read).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_told_by_its_content_type_in_any_spelling() {
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
