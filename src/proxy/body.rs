//! The bodies that the proxy sends: to the upstream (`UpBody`) and to the client (`ReplyBody`).
//!
//! They pass frames on without copying, with exact lengths where these are known, with trailers, and with an idle
//! timeout. Nothing is read into memory here (that is `read`), and the bytes are not interpreted.

use super::Served;
use super::headers::strip_own;
use super::idle_timeout::{IdleTimeout, UploadClock};
use bytes::Bytes;
use futures_util::{Stream, stream};
use hyper::body::Incoming;
use hyper::body::{Body, Frame, SizeHint};
use std::any::Any;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::ready;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Sleep, sleep};

/// How long a body waits before it breaks off, so that earlier bytes are written out first. When a body fails, hyper
/// drops what it has not written yet, and over HTTP/2 another task does the writing.
const BREAK_PAUSE: Duration = Duration::from_millis(10);

/// Why a body ended early. The receiver sees a broken body, never a clean end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The client's connection broke while its request was read.
    #[error("the client went away before its request was whole")]
    ClientCut,
    /// The upstream's connection broke while its response was read.
    #[error("the upstream broke off in the middle of its response")]
    UpstreamCut,
    /// Nothing came for longer than is allowed.
    #[error("nothing was received for too long")]
    IdleTimeout,
}

/// Slices that make up one body of known length, sent in order without being joined.
#[derive(Debug, Clone, Default)]
pub struct Rope {
    parts: VecDeque<Bytes>,
    left: u64,
}

impl Rope {
    fn new(parts: Vec<Bytes>) -> Self {
        let mut parts = VecDeque::from(parts);
        parts.retain(|part| !part.is_empty());
        let left = parts.iter().map(|part| part.len() as u64).sum();
        Self { parts, left }
    }

    fn next(&mut self) -> Option<Bytes> {
        let part = self.parts.pop_front()?;
        self.left -= part.len() as u64;
        Some(part)
    }
}

/// The body of a request to the upstream. The variants are boxed, since hyper keeps room for 32 requests with every
/// connection.
#[derive(Debug)]
pub enum UpBody {
    /// No body.
    Empty,
    /// Bytes in memory; `content-length` is exact.
    Rope(Box<Rope>),
    /// The client's body, chunk by chunk as it arrives, with trailers.
    Relay(Box<IdleTimeout>),
    /// As [`Self::Relay`], after the part of the body that has already been read.
    Continued { read: Box<Rope>, rest: Box<IdleTimeout> },
}

impl UpBody {
    /// The slices, one after the other.
    pub fn rope(parts: Vec<Bytes>) -> Self {
        Self::Rope(Box::new(Rope::new(parts)))
    }

    /// The client's body as it comes; breaks with [`BodyError::IdleTimeout`] after `idle` of silence.
    pub fn relay(body: Incoming, idle: Duration) -> Self {
        if body.is_end_stream() {
            Self::Empty
        } else {
            Self::Relay(Box::new(IdleTimeout::upload(body, idle)))
        }
    }

    /// A body whose first part has been `read`, followed by the rest as it comes; breaks after `idle` of silence.
    pub fn continued(read: Vec<Bytes>, rest: Incoming, idle: Duration) -> Self {
        Self::Continued { read: Box::new(Rope::new(read)), rest: Box::new(IdleTimeout::upload(rest, idle)) }
    }

    /// A second copy of the body that shares its bytes; `None` for a relayed body, which cannot be sent twice.
    pub fn try_clone(&self) -> Option<Self> {
        match self {
            Self::Empty => Some(Self::Empty),
            Self::Rope(rope) => Some(Self::Rope(rope.clone())),
            Self::Relay(_) | Self::Continued { .. } => None,
        }
    }

    pub(super) fn upload_clock(&self) -> Option<Arc<UploadClock>> {
        match self {
            Self::Relay(body) | Self::Continued { rest: body, .. } => body.upload_clock(),
            Self::Empty | Self::Rope(_) => None,
        }
    }
}

impl Body for UpBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Rope(rope) => Poll::Ready(rope.next().map(|part| Ok(Frame::data(part)))),
            Self::Relay(body) => body.poll_frame(context),
            Self::Continued { read, rest } => match read.next() {
                Some(part) => Poll::Ready(Some(Ok(Frame::data(part)))),
                None => rest.poll_frame(context),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Rope(rope) => rope.left == 0,
            Self::Relay(body) => body.is_end_stream(),
            Self::Continued { read, rest } => read.left == 0 && rest.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Rope(rope) => SizeHint::with_exact(rope.left),
            Self::Relay(body) => body.size_hint(),
            Self::Continued { read, rest } => {
                let rest = rest.size_hint();
                let mut hint = SizeHint::new();
                hint.set_lower(read.left + rest.lower());
                rest.upper().into_iter().for_each(|upper| hint.set_upper(read.left + upper));
                hint
            }
        }
    }
}

type FrameStream = Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, BodyError>> + Send>>;

/// The body of a response to the client. Before it breaks off, all earlier bytes are written out.
pub struct ReplyBody {
    reply: Reply,
    /// Dropped with the body.
    served: Option<Served>,
    breaking: Option<(BodyError, Pin<Box<Sleep>>)>,
}

enum Reply {
    Rope(Rope),
    Relay {
        body: IdleTimeout,
        /// Dropped with the body, however that ends.
        _guard: Box<dyn Any + Send>,
    },
    Stream(FrameStream),
}

impl ReplyBody {
    /// No body.
    pub fn empty() -> Self {
        Self::of(Reply::Rope(Rope::default()))
    }

    /// The whole body in one piece.
    pub fn full(body: Bytes) -> Self {
        Self::rope(vec![body])
    }

    /// The slices, one after the other.
    pub fn rope(parts: Vec<Bytes>) -> Self {
        Self::of(Reply::Rope(Rope::new(parts)))
    }

    /// The upstream's body: every frame as it arrives, trailers too. Breaks with
    /// [`BodyError::IdleTimeout`] after `idle` of silence; holds `guard` until it is dropped.
    pub fn relay(body: Incoming, idle: Duration, guard: impl Send + 'static) -> Self {
        Self::of(Reply::Relay { body: IdleTimeout::download(body, idle), _guard: Box::new(guard) })
    }

    /// As [`Self::relay`]; `observe` gets the length of each piece, and `None` at the proper end.
    pub(crate) fn relay_observed<G: Send + 'static>(
        body: Incoming,
        idle: Duration,
        mut guard: G,
        observe: fn(&mut G, Option<usize>),
    ) -> Self {
        if body.is_end_stream() {
            observe(&mut guard, None);
            return Self::relay(body, idle, guard);
        }
        let body = IdleTimeout::download(body, idle);
        Self::from_stream(stream::unfold((body, guard), move |(mut body, mut guard)| async move {
            let frame = poll_fn(|context| body.poll_frame(context)).await;
            if let Some(Ok(data)) = frame.as_ref().map(|frame| frame.as_ref().map(Frame::data_ref)) {
                observe(&mut guard, Some(data.map_or(0, Bytes::len)));
            }
            // A body of known length is not polled again after its last byte.
            if frame.is_none() || body.is_end_stream() {
                observe(&mut guard, None);
            }
            frame.map(|frame| (frame, (body, guard)))
        }))
    }

    /// Frames from a stream. An error breaks the body off visibly.
    pub fn from_stream(frames: impl Stream<Item = Result<Frame<Bytes>, BodyError>> + Send + 'static) -> Self {
        Self::of(Reply::Stream(Box::pin(frames)))
    }

    fn of(reply: Reply) -> Self {
        Self { reply, served: None, breaking: None }
    }

    /// Holds `served` until it is dropped.
    pub(super) fn hold(&mut self, served: Served) {
        self.served = Some(served);
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if this.breaking.is_none() {
            let mut polled = match &mut this.reply {
                Reply::Rope(rope) => Poll::Ready(rope.next().map(|part| Ok(Frame::data(part)))),
                Reply::Relay { body, .. } => body.poll_frame(context),
                Reply::Stream(frames) => frames.as_mut().poll_next(context),
            };
            match &mut polled {
                Poll::Ready(Some(Err(error))) => {
                    this.breaking = Some((*error, Box::pin(sleep(BREAK_PAUSE))));
                }
                Poll::Ready(Some(Ok(frame))) => {
                    frame.trailers_mut().into_iter().for_each(strip_own);
                    return polled;
                }
                Poll::Ready(None) | Poll::Pending => return polled,
            }
        }
        let Some((error, pause)) = &mut this.breaking else { return Poll::Ready(None) };
        ready!(pause.as_mut().poll(context));
        Poll::Ready(Some(Err(*error)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.reply {
            Reply::Rope(rope) => rope.left == 0,
            Reply::Relay { body, .. } => body.is_end_stream(),
            Reply::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.reply {
            Reply::Rope(rope) => SizeHint::with_exact(rope.left),
            Reply::Relay { body, .. } => body.size_hint(),
            Reply::Stream(_) => SizeHint::default(),
        }
    }
}

impl std::fmt::Debug for ReplyBody {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match &self.reply {
            Reply::Rope(_) => "rope",
            Reply::Relay { .. } => "relay",
            Reply::Stream(_) => "stream",
        };
        formatter.debug_tuple("ReplyBody").field(&kind).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    fn parts() -> Vec<Bytes> {
        ["ab", "", "cde"].map(Bytes::from_static_str).to_vec()
    }

    trait FromStaticStr {
        fn from_static_str(text: &'static str) -> Self;
    }

    impl FromStaticStr for Bytes {
        fn from_static_str(text: &'static str) -> Self {
            Self::from_static(text.as_bytes())
        }
    }

    #[tokio::test]
    async fn a_rope_knows_its_length_and_sends_its_slices_unjoined() {
        let mut body = UpBody::rope(parts());
        assert_eq!(body.size_hint().exact(), Some(5));
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(first, "ab");
        assert_eq!(body.size_hint().exact(), Some(3));
        let second = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(second, "cde");
        assert!(body.is_end_stream() && body.frame().await.is_none());
    }

    #[tokio::test]
    async fn a_cloned_rope_is_whole_though_the_first_was_sent() {
        let body = UpBody::rope(parts());
        let copy = body.try_clone().unwrap();
        assert_eq!(body.collect().await.unwrap().to_bytes(), "abcde");
        assert_eq!(copy.collect().await.unwrap().to_bytes(), "abcde");
    }

    #[tokio::test]
    async fn a_stream_that_fails_breaks_the_body_off() {
        let frames = [Ok(Frame::data(Bytes::from_static(b"x"))), Err(BodyError::UpstreamCut)];
        let body = ReplyBody::from_stream(stream::iter(frames));
        assert_eq!(body.collect().await.unwrap_err(), BodyError::UpstreamCut);
    }

    #[test]
    fn an_empty_body_ends_at_once() {
        assert!(ReplyBody::empty().is_end_stream() && UpBody::Empty.is_end_stream());
        assert!(UpBody::rope(Vec::new()).is_end_stream());
    }
}
