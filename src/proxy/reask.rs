//! A whole reply on its way to the client: read within bounds, judged, and, where every call of a choice was
//! withheld, asked for again until there is an answer. Sequences the asking; the judging is the core's.

use super::body::{BodyError, ReplyBody};
use super::clock::ms_at;
use super::coding;
use super::error::ProxyError;
use super::exchange::Exchange;
use super::memory::{Pool, Reserved};
use super::respond::error_response;
use super::sniff;
use super::upstream::Retried;
use crate::rewrite::choice::is_served;
use crate::rewrite::judging::Judging;
use crate::rewrite::other_form::whole_of;
use crate::rewrite::reply::WholeJudge;
use crate::telemetry::outcome::Fallback;
use crate::wire::body::Fault;
use crate::wire::error::{UpstreamError, may_be_in_200, parse, parse_in_200};
use crate::wire::reply::{Form, Reply, may_be_reply};
use bytes::{Bytes, BytesMut};
use futures_util::{FutureExt as _, StreamExt as _, stream};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Frame, Incoming};
use hyper::http::header::CONTENT_TYPE;
use hyper::http::response::Parts;
use hyper::http::{HeaderMap, HeaderValue, Response};
use std::time::Duration;
use tokio::time::timeout;

/// A reply that was read as far as its bound allows. In a box wherever it goes, since it goes through many hands.
pub(crate) struct Read {
    head: Parts,
    pieces: Vec<Bytes>,
    /// Small ones behind these.
    small: BytesMut,
    trailers: Option<HeaderMap>,
    /// What is left of a reply over the bound, or of a stream.
    rest: Option<Incoming>,
    /// It is a stream of events under another name.
    is_events: bool,
    /// The body decoded, where it came whole and can be decoded.
    decoded: Option<Bytes>,
    /// The decoded body and what it is, where that was read to tell it from an error.
    reply: Option<(Bytes, Reply)>,
    /// The memory that the pieces take.
    reserved: Reserved,
}

impl Exchange {
    /// Sends the present form of the request.
    pub(crate) async fn send(&mut self) -> Result<Response<Incoming>, ProxyError> {
        let sent = self.send_request().await;
        self.record.upstream_time();
        let mut response = sent?;
        if response.extensions_mut().remove::<Retried>().is_some() {
            self.record.outcome.fallbacks.push(Fallback::Stale);
        }
        // Ours is the client's version, whatever the upstream spoke.
        *response.version_mut() = hyper::http::Version::HTTP_11;
        Ok(response)
    }

    /// Reads a whole reply.
    pub(crate) fn read(
        &mut self,
        response: Response<Incoming>,
    ) -> impl Future<Output = Result<Box<Read>, ProxyError>> {
        let (head, body) = response.into_parts();
        // Here, so that the future carries no more than a pointer.
        self.read_on(Read::begin(head), body)
    }

    async fn read_on(&mut self, mut read: Box<Read>, mut body: Incoming) -> Result<Box<Read>, ProxyError> {
        let settings = &self.gateway.config;
        let (limit, idle) = (settings.limits.reply_bytes, settings.upstream.idle_timeout);
        let (mut unknown, mut size, mut waited) = (read.is_success(), 0, false);
        while !body.is_end_stream() {
            // Most frames are here already: no timer is made for them.
            let frame = match body.frame().now_or_never() {
                Some(frame) => frame,
                None => {
                    waited = true;
                    Box::pin(timeout(idle, body.frame())).await.map_err(|_| self.gateway.timed_out(idle))?
                }
            };
            let Some(frame) = frame else { break };
            match frame.map_err(|error| self.gateway.cut(&error))?.into_data() {
                Ok(data) => {
                    size += data.len();
                    read.add(data);
                }
                Err(frame) => read.trailers = frame.into_trailers().ok(),
            }
            if unknown {
                read.gather();
                let told = read.is_stream();
                // White space alone may come for as long as it likes.
                unknown = told.is_none() && size < SNIFFED_BYTES;
                read.is_events = told == Some(true);
            }
            let fits = self.gateway.memory.replies.reach(&mut read.reserved, size);
            if !fits && !self.is_observing() {
                return Err(ProxyError::NoMemory);
            }
            if size > limit || read.is_events || !fits {
                read.rest = Some(body);
                break;
            }
        }
        read.gather();
        if waited {
            self.record.upstream_time();
        }
        if read.rest.is_none() && !read.decode(limit, &self.gateway.memory.replies) && !self.is_observing() {
            return Err(ProxyError::NoMemory);
        }
        Ok(read)
    }

    /// Judges a whole reply and asks again for as long as that is needed.
    pub(crate) fn judge_whole(
        &mut self,
        mut read: Box<Read>,
        judging: Judging,
    ) -> impl Future<Output = Response<ReplyBody>> {
        let strict = judging.is_strict();
        // Here rather than within the future, which then does not carry the judging but a pointer.
        let judge = self.judge(&mut read, judging).inspect_err(|why| self.record.unjudged(why));
        async move {
            let mut judge = match judge {
                Ok(judge) => judge,
                Err(why) if strict => return self.fail(&ProxyError::ReplyUnjudged { why }),
                Err(_) => return self.pass_on(read),
            };
            if judge.is_ambiguous() {
                self.record.unjudged("ambiguous");
            }
            if judge.is_unsafe() {
                return self.fail(&ProxyError::ReplyUnjudged { why: "ambiguous" });
            }
            if judge.is_open()
                && let Err(response) = Box::pin(self.settle(&mut judge)).await
            {
                return response;
            }
            self.answer(read, judge)
        }
    }

    /// Waits for people's words and asks again until no choice is left all of whose calls were withheld; what the
    /// client gets instead if that fails.
    async fn settle(&mut self, judge: &mut WholeJudge) -> Result<(), Response<ReplyBody>> {
        loop {
            self.hear(judge).await;
            let Some((choice, round)) = judge.pending().filter(|_| !self.is_observing()) else {
                return Ok(());
            };
            // At once: the asking may fail, and the client may leave meanwhile.
            self.tell_judged(judge);
            let served = is_served(judge.choices(), choice);
            self.ask_again((choice, served), round, &mut judge.judging);
            self.record.own_time();
            let again = self.ask_whole().await?;
            if judge.continue_with(choice, &again, ms_at(self.record.lap())).is_err() {
                return Err(self.fail(&self.gateway.unreadable()));
            }
        }
    }

    /// The judged reply for the client.
    fn answer(&mut self, mut read: Box<Read>, mut judge: Box<WholeJudge>) -> Response<ReplyBody> {
        judge.tell = self.tell();
        // Written first: what the client reads, our own words included, is what it sends back.
        let written = judge.write();
        self.remember(judge.choices());
        self.tell_judged(&mut judge);
        if let Some(changed) = written {
            coding::describe_no_bytes(&mut read.head.headers);
            read.pieces = vec![changed];
        }
        self.pass_on(read)
    }

    /// The judge of a reply; what stands in the way if there is none.
    fn judge(&self, read: &mut Read, judging: Judging) -> Result<Box<WholeJudge>, &'static str> {
        if read.rest.is_some() {
            return Err("reply_too_long");
        }
        let now_ms = ms_at(self.record.lap());
        if let Some((body, reply)) = read.reply.take() {
            return Ok(WholeJudge::judge(reply, body, judging, now_ms));
        }
        let body = read.decoded.clone().ok_or("unreadable_coding")?;
        WholeJudge::read(&body, judging, now_ms).map_err(|fault| match fault {
            Fault::Crowded => "reply_too_long",
            _ => "not_json",
        })
    }

    /// The reply to asking again; what the client gets instead if that fails.
    async fn ask_whole(&mut self) -> Result<Bytes, Response<ReplyBody>> {
        loop {
            let response = self.send().await.map_err(|error| self.fail(&error))?;
            let status = response.status();
            let mut read = self.read(response).await.map_err(|error| self.fail(&error))?;
            let limit = self.gateway.config.limits.reply_bytes;
            read.read_stream(limit, self.gateway.config.upstream.idle_timeout).await;
            if !read.make_whole(limit, &self.gateway.memory.replies) {
                return Err(self.fail(&ProxyError::NoMemory));
            }
            // An error that says nothing of its status is a refusal of what was asked.
            let refused = read.error().map(|(status, _)| status);
            let refused = refused.map(|status| if status < 400 { 400 } else { status });
            if self.lands_bare(refused.unwrap_or(status.as_u16())) {
                continue;
            }
            return match read.decoded.clone() {
                Some(body) if (status.is_success() && refused.is_none()) || read.may_hold_calls() => {
                    Ok(std::mem::take(&mut read.reserved).keep(body))
                }
                // Too long, or in a coding that cannot be read: it would go to the client unjudged.
                None if status.is_success() => Err(self.fail(&self.gateway.unreadable())),
                _ if read.may_be_another_readers() => Err(self.fail(&self.gateway.unreadable())),
                _ => Err(self.pass_on(read)),
            };
        }
    }

    /// The reply for the client, with what the record tells in its head.
    pub(crate) fn pass_on(&mut self, read: Box<Read>) -> Response<ReplyBody> {
        let Read { mut head, mut pieces, trailers, rest, reserved, .. } = *read;
        reserved.keep_all(&mut pieces);
        self.tell_end(head.status.as_u16());
        if !self.is_observing() {
            self.record.write_head(&mut head.headers, self.identity.explicit.as_deref());
        }
        self.record.outcome.reply_bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
        self.record.answers();
        let body = match (rest, trailers) {
            (None, None) => ReplyBody::rope(pieces),
            (rest, trailers) => {
                let idle = self.gateway.config.upstream.idle_timeout;
                with_rest(pieces, (rest, idle), trailers)
            }
        };
        Response::from_parts(head, body)
    }

    /// An error of ours for the client.
    pub(crate) fn fail(&mut self, error: &ProxyError) -> Response<ReplyBody> {
        let mut response = error_response(error);
        self.record.outcome.error = Some(error.code());
        self.tell_end(error.status().as_u16());
        self.record.write_head(response.headers_mut(), self.identity.explicit.as_deref());
        response
    }

    /// The line to the person, where the answer comes without the tools that the client offered.
    pub(crate) fn tell(&self) -> Option<String> {
        (!self.bare && self.gateway.tells_person(&self.request, &self.pass)).then(|| TELL.to_owned())
    }

    pub(crate) fn tell_judged(&mut self, judge: &mut WholeJudge) {
        self.record.judged(&mut judge.judging, ms_at(self.record.lap()));
        self.billed(judge.usage().unwrap_or_default());
    }

    fn tell_end(&mut self, status: u16) {
        self.record.outcome.status = status;
        self.record.end();
    }
}

/// Most that is looked at to tell what a reply is.
const SNIFFED_BYTES: usize = 1024;
/// Pieces below this are copied.
const SMALL_PIECE_BYTES: usize = 2 * 1024;
/// How much of them is one piece then.
const GATHERED_BYTES: usize = 64 * 1024;
/// What the person reads where a model takes no tools.
const TELL: &str = "(This model cannot use tools; the answer is given without them.)";

impl Read {
    /// A reply of our own.
    pub(crate) fn own(body: Bytes) -> Box<Self> {
        let mut response = Response::new(());
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        let mut read = Self::begin(response.into_parts().0);
        read.decoded = Some(body.clone());
        read.pieces.push(body);
        read
    }

    /// A reply of which nothing but the head has come.
    fn begin(head: Parts) -> Box<Self> {
        let (pieces, small, is_events) = (Vec::with_capacity(1), BytesMut::new(), false);
        let (decoded, reply, reserved) = (None, None, Reserved::default());
        Box::new(Self {
            head,
            pieces,
            small,
            trailers: None,
            rest: None,
            is_events,
            decoded,
            reply,
            reserved,
        })
    }

    /// Adds a piece. Small ones are copied together: each keeps a buffer of hyper's and takes more memory than its bytes.
    fn add(&mut self, data: Bytes) {
        if data.len() >= SMALL_PIECE_BYTES || self.pieces.is_empty() {
            self.gather();
            return self.pieces.push(data);
        }
        self.small.extend_from_slice(&data);
        if self.small.len() >= GATHERED_BYTES {
            self.gather();
        }
    }

    /// Puts the small pieces behind the others.
    fn gather(&mut self) {
        if !self.small.is_empty() {
            self.pieces.push(std::mem::take(&mut self.small).freeze());
        }
    }

    /// Whether the body is a stream of events; `None` where too little has come to tell.
    fn is_stream(&self) -> Option<bool> {
        let start = match self.pieces.as_slice() {
            [only] => only.clone(),
            pieces => pieces.concat().into(),
        };
        let Some(start) = coding::decoded_start(&self.head.headers, start) else { return Some(false) };
        if start.starts_with(b"{") { Some(false) } else { sniff::is_events(&start) }
    }

    /// The stream that it is, if it is one: its head, what came of it, and the rest.
    pub(crate) fn take_stream(&mut self) -> Option<(Parts, Vec<Bytes>, Incoming)> {
        let rest = self.rest.take_if(|_| self.is_events)?;
        Some((self.head.clone(), std::mem::take(&mut self.pieces), rest))
    }

    /// Reads on to the end of a stream, as far as `limit` and a silence of `idle` allow.
    async fn read_stream(&mut self, limit: usize, idle: Duration) {
        let Some(mut body) = self.rest.take_if(|_| self.is_events) else { return };
        let mut size: usize = self.pieces.iter().map(Bytes::len).sum();
        while size <= limit {
            match Box::pin(timeout(idle, body.frame())).await {
                Ok(Some(Ok(frame))) => {
                    let data = frame.into_data().unwrap_or_default();
                    size += data.len();
                    self.pieces.push(data);
                }
                Ok(None) => return,
                Ok(Some(Err(_))) | Err(_) => break,
            }
        }
        // It is not whole.
        self.rest = Some(body);
    }

    /// Makes a stream that was read to its end the whole reply that was asked for; false if there is no `memory` for it.
    fn make_whole(&mut self, limit: usize, memory: &Pool) -> bool {
        if self.rest.is_some() {
            return true;
        }
        if self.decoded.is_none() && !self.decode(limit, memory) {
            return false;
        }
        let events = self.decoded.as_ref().filter(|body| sniff::is_events(body) == Some(true));
        if let Some(whole) = events.and_then(whole_of) {
            coding::describe_no_bytes(&mut self.head.headers);
            self.head.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            (self.pieces, self.is_events) = (vec![whole.clone()], false);
            self.decoded = Some(whole);
        }
        true
    }

    /// The error that the reply is, whatever its status says. A reply in which a client could find a call is none, as
    /// clients that do not look for errors run it.
    pub(crate) fn error(&mut self) -> Option<(u16, UpstreamError)> {
        if self.rest.is_some() {
            return None;
        }
        let status = self.head.status;
        let body = self.decoded.clone()?;
        let reply = Reply::read(&body, Form::Whole);
        let may_hold_calls = match &reply {
            Ok(reply) => reply.may_hold_calls(),
            Err(_) => status.is_success() && may_be_reply(&body),
        };
        let error = match &reply {
            _ if may_hold_calls => None,
            // A status that refuses says so without words too.
            _ if !status.is_success() => Some(parse(&body).unwrap_or_default()),
            Ok(reply) if !may_be_in_200(reply, &body) => None,
            _ => parse_in_200(&body),
        };
        self.reply = reply.ok().map(|reply| (body, reply));
        let error = error?;
        Some((error.status.filter(|_| status.is_success()).unwrap_or(status.as_u16()), error))
    }

    /// Whether the reply, whose status says that it is an error, cannot be read here and may be one with choices for a more
    /// tolerant reader, or a stream. Held against errors before.
    pub(crate) fn may_be_another_readers(&self) -> bool {
        let is_unread = !self.is_success() && self.reply.is_none();
        is_unread && self.decoded.as_ref().is_some_and(|body| may_be_reply(body))
    }

    /// Whether a client could find a call in the reply, which was held against errors before.
    pub(crate) fn may_hold_calls(&self) -> bool {
        self.reply.as_ref().is_some_and(|(_, reply)| reply.may_hold_calls())
    }

    /// Whether the upstream says that all went well.
    pub(crate) fn is_success(&self) -> bool {
        self.head.status.is_success()
    }

    /// Joins the pieces and decodes them, each once; false if there is no `memory` for the copies.
    fn decode(&mut self, limit: usize, memory: &Pool) -> bool {
        let size: usize = self.pieces.iter().map(Bytes::len).sum();
        if self.pieces.len() != 1 {
            if !memory.reach(&mut self.reserved, 2 * size) {
                return false;
            }
            self.pieces = vec![self.pieces.concat().into()];
        }
        let decoded = coding::decode(&self.head.headers, &self.pieces[0], limit);
        let copied = match &decoded {
            Some(decoded) if decoded.as_ptr() != self.pieces[0].as_ptr() => decoded.len(),
            _ => 0,
        };
        let fits = memory.reach(&mut self.reserved, size + copied);
        self.reserved.shrink(size + copied);
        self.decoded = decoded.filter(|_| fits);
        fits
    }
}

/// A body of what was read, what is left (within `idle` of silence each time), and trailers.
fn with_rest(
    pieces: Vec<Bytes>,
    (rest, idle): (Option<Incoming>, Duration),
    trailers: Option<HeaderMap>,
) -> ReplyBody {
    let read = stream::iter(pieces.into_iter().map(Frame::data).map(Ok));
    let left = stream::unfold(rest, move |rest| async move {
        let mut body = rest?;
        match timeout(idle, body.frame()).await {
            Ok(Some(Ok(frame))) => Some((Ok(frame), Some(body))),
            Ok(Some(Err(_))) => Some((Err(BodyError::UpstreamCut), None)),
            Ok(None) => None,
            Err(_) => Some((Err(BodyError::IdleTimeout), None)),
        }
    });
    let end = stream::iter(trailers).map(|trailers| Ok(Frame::trailers(trailers)));
    ReplyBody::from_stream(read.chain(left).chain(end))
}
