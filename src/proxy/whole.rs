//! A whole reply of the upstream: read within bounds of size, time and memory, decoded to be judged, and kept as it
//! came. Knows nothing of its content.

use super::body::{BodyError, ReplyBody};
use super::error::ProxyError;
use super::handler::AppState;
use super::memory::{Pool, Reserved};
use super::record::Record;
use super::{coding, stream};
use bytes::{Bytes, BytesMut};
use futures_util::{FutureExt as _, StreamExt as _, stream as streams};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Frame, Incoming};
use hyper::http::header::CONTENT_TYPE;
use hyper::http::response::Parts;
use hyper::http::{HeaderMap, HeaderValue, Response, StatusCode};
use std::time::Duration;
use tokio::time::timeout;
use wire::sniff;

/// A reply, read as far as its bounds allow. Boxed wherever it goes, since it is moved often.
pub(crate) struct Read {
    pub(super) head: Parts,
    pieces: Vec<Bytes>,
    /// Small pieces that follow these.
    small: BytesMut,
    trailers: Option<HeaderMap>,
    /// The unread rest of a reply over the bound, or of a stream.
    rest: Option<Incoming>,
    /// The body is an event stream under another content type.
    is_events: bool,
    /// The decoded body, where it came whole and can be decoded.
    decoded: Option<Bytes>,
    /// The reservation for the memory of the pieces.
    reserved: Reserved,
}

/// The most that is read to detect what a reply is.
const SNIFFED_BYTES: usize = 1024;
/// Pieces below this are copied.
const SMALL_PIECE_BYTES: usize = 2 * 1024;
/// The size at which gathered small pieces become one piece.
const GATHERED_BYTES: usize = 64 * 1024;

impl Read {
    /// Reads a reply: to its end, or as far as its bounds allow, or, where it `may_stream`, until it turns out to be a
    /// stream of events.
    pub(crate) async fn read(
        response: Response<Incoming>,
        may_stream: bool,
        app: &AppState,
        record: Option<&mut Record>,
    ) -> Result<Box<Self>, ProxyError> {
        let (head, mut body) = response.into_parts();
        let mut read = Self::begin(head);
        let observes = app.is_observing();
        let (limit, idle) = (app.config.limits.reply_bytes, app.config.upstream.idle_timeout);
        let (mut unknown, mut size, mut waited) = (may_stream && read.head.status.is_success(), 0, false);
        while !body.is_end_stream() {
            // Most frames are already here, so no timer is made for them.
            let frame = match body.frame().now_or_never() {
                Some(frame) => frame,
                None => {
                    waited = true;
                    Box::pin(timeout(idle, body.frame())).await.map_err(|_| app.timed_out(idle))?
                }
            };
            let Some(frame) = frame else { break };
            match frame.map_err(|error| app.cut(&error))?.into_data() {
                Ok(data) => {
                    size += data.len();
                    read.add(data);
                }
                Err(frame) => read.trailers = frame.into_trailers().ok(),
            }
            if unknown {
                read.gather();
                let is_stream = read.is_stream();
                // White space alone may come for as long as it likes.
                unknown = is_stream.is_none() && size < SNIFFED_BYTES;
                read.is_events = is_stream == Some(true);
            }
            let fits = app.memory.replies.reach(&mut read.reserved, size);
            if !fits && !observes {
                return Err(ProxyError::NoMemory);
            }
            if size > limit || read.is_events || !fits {
                read.rest = Some(body);
                break;
            }
        }
        read.gather();
        if let Some(record) = record.filter(|_| waited) {
            record.upstream_time();
        }
        if read.rest.is_none() && !read.decode(limit, &app.memory.replies).await && !observes {
            return Err(ProxyError::NoMemory);
        }
        Ok(read)
    }

    /// A stream that toolrein cannot decode, unread.
    pub(crate) fn unread(response: Response<Incoming>) -> Box<Self> {
        let (head, body) = response.into_parts();
        let mut read = Self::begin(head);
        read.rest = Some(body);
        read
    }

    /// The head and the body of an unread reply.
    pub(crate) fn into_unread(mut self) -> Result<(Parts, Incoming), Box<Self>> {
        match self.rest.take_if(|_| self.pieces.is_empty()) {
            Some(body) => Ok((self.head, body)),
            None => Err(Box::new(self)),
        }
    }

    /// Its status and its decoded body, or why there is none.
    pub(crate) fn to_judge(&self) -> (u16, Result<Bytes, &'static str>) {
        let why = if coding::is_coded(&self.head.headers) { "unreadable_coding" } else { "reply_too_long" };
        let body = match &self.rest {
            Some(_) => Err(why),
            None => self.decoded.clone().ok_or("unreadable_coding"),
        };
        (self.head.status.as_u16(), body)
    }

    /// The body for the client without its content coding; nothing where that is not known.
    pub(crate) fn plain(&self) -> Vec<Bytes> {
        match &self.decoded {
            Some(decoded) => vec![decoded.clone()],
            None if self.rest.is_some() || coding::is_coded(&self.head.headers) => Vec::new(),
            None => self.pieces.clone(),
        }
    }

    /// An error with this status and body, under the head of another reply.
    pub(crate) fn restate(&mut self, status: u16, body: Bytes) {
        self.head.status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
        self.edit(vec![body]);
        let kind = self.head.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        if kind.is_none_or(|kind| memchr::memmem::find(kind, b"json").is_none()) {
            self.head.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        self.trailers = None;
    }

    /// The head of a stream of events instead of this reply.
    pub(crate) fn into_stream_head(mut self) -> Parts {
        coding::describe_no_bytes(&mut self.head.headers);
        self.head.headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        self.head
    }

    /// A reply with this head and no body.
    pub(crate) fn with_head(head: Parts) -> Box<Self> {
        Self::begin(head)
    }

    /// Replaces the body.
    pub(crate) fn edit(&mut self, pieces: Vec<Bytes>) {
        let headers = &mut self.head.headers;
        coding::describe_no_bytes(headers);
        if stream::is_stream(headers) {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        (self.pieces, self.rest, self.decoded) = (pieces, None, None);
    }

    /// The reply for the client, and how long it is as far as it was read.
    pub(crate) fn into_response(self, idle: Duration) -> (Response<ReplyBody>, u64) {
        let Self { head, mut pieces, trailers, rest, reserved, .. } = self;
        reserved.keep_all(&mut pieces);
        let bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
        let body = match (rest, trailers) {
            (None, None) => ReplyBody::rope(pieces),
            (rest, trailers) => with_rest(pieces, rest, idle, trailers),
        };
        (Response::from_parts(head, body), bytes)
    }

    /// A reply of toolrein's own.
    pub(crate) fn own(pieces: Vec<Bytes>) -> Box<Self> {
        let mut response = Response::new(());
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        let mut read = Self::begin(response.into_parts().0);
        read.pieces = pieces;
        read
    }

    /// A reply whose body has not been read yet.
    fn begin(head: Parts) -> Box<Self> {
        let (pieces, small, is_events) = (Vec::with_capacity(1), BytesMut::new(), false);
        let (decoded, reserved) = (None, Reserved::default());
        Box::new(Self { head, pieces, small, trailers: None, rest: None, is_events, decoded, reserved })
    }

    /// Adds a piece. Small ones are copied together: each would keep a buffer of hyper's and take more memory than its
    /// bytes.
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

    /// Appends the small pieces to the others.
    fn gather(&mut self) {
        if !self.small.is_empty() {
            self.pieces.push(std::mem::take(&mut self.small).freeze());
        }
    }

    /// Whether the body is an event stream; `None` while too little has come to decide.
    fn is_stream(&self) -> Option<bool> {
        let start = match self.pieces.as_slice() {
            [only] => only.clone(),
            pieces => pieces.concat().into(),
        };
        let Some(start) = coding::decoded_start(&self.head.headers, start) else { return Some(false) };
        if start.starts_with(b"{") { Some(false) } else { sniff::is_events(&start) }
    }

    /// The stream, if the reply is one: its head, the pieces read so far, and the rest.
    pub(crate) fn take_stream(&mut self) -> Option<(Parts, Vec<Bytes>, Incoming)> {
        let rest = self.rest.take_if(|_| self.is_events)?;
        Some((self.head.clone(), std::mem::take(&mut self.pieces), rest))
    }

    /// Joins the pieces and decodes them, each once; false if there is no `memory` for the copies.
    async fn decode(&mut self, limit: usize, memory: &Pool) -> bool {
        let size: usize = self.pieces.iter().map(Bytes::len).sum();
        if self.pieces.len() != 1 {
            if !memory.reach(&mut self.reserved, 2 * size) {
                return false;
            }
            self.pieces = vec![self.pieces.concat().into()];
        }
        let decoded = coding::decode(&self.head.headers, &self.pieces[0], limit).await;
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

/// A body of the pieces read, the rest (each wait bounded by `idle`), and trailers.
fn with_rest(
    pieces: Vec<Bytes>,
    rest: Option<Incoming>,
    idle: Duration,
    trailers: Option<HeaderMap>,
) -> ReplyBody {
    let read = streams::iter(pieces.into_iter().map(Frame::data).map(Ok));
    let left = streams::unfold(rest, move |rest| async move {
        let mut body = rest?;
        match timeout(idle, body.frame()).await {
            Ok(Some(Ok(frame))) => Some((Ok(frame), Some(body))),
            Ok(Some(Err(_))) => Some((Err(BodyError::UpstreamCut), None)),
            Ok(None) => None,
            Err(_) => Some((Err(BodyError::IdleTimeout), None)),
        }
    });
    let end = streams::iter(trailers).map(|trailers| Ok(Frame::trailers(trailers)));
    ReplyBody::from_stream(read.chain(left).chain(end))
}
