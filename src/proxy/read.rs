//! Reading whole bodies into memory, bounded in size and in time, for requests and for replies. It does not decode or
//! look at the bytes.

use super::body::UpBody;
use super::error::ProxyError;
use super::memory::{Pool, Reserved};
use bytes::{Bytes, BytesMut};
use futures_util::FutureExt as _;
use http_body_util::BodyExt;
use hyper::body::Body;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Reserved at once for a declared length. A longer body grows as its bytes arrive.
const RESERVE_BYTES: u64 = 4 << 20;

/// The timeouts of reading a body.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// The longest pause.
    pub pause: Duration,
    /// The time for the whole body, counted from the first pause: a slow sender can keep every single pause short.
    pub whole: Duration,
}

/// Why a body could not be read whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// It is longer than the limit, as declared or as received; the pieces read so far.
    #[error("the body is too long")]
    TooLong(Vec<Bytes>),
    /// It, or a pause in it, took longer than is allowed.
    #[error("the body did not arrive in time")]
    Timeout,
    /// The connection broke.
    #[error("the body broke off")]
    Cut,
    /// All memory for bodies is taken; the pieces read so far.
    #[error("there is no memory for the body")]
    NoMemory(Vec<Bytes>),
}

/// Why a request is not governed.
#[derive(Debug)]
pub(super) enum Unread {
    /// It is answered with this error.
    Refused(ProxyError),
    /// It is not read whole, for the given reason, and goes up as it is: the part that was read, and the rest as it
    /// comes.
    Relayed(UpBody, &'static str),
    /// It is in a content coding that cannot be undone: the body as it came.
    Coded(Bytes),
}

impl From<ProxyError> for Unread {
    fn from(error: ProxyError) -> Self {
        Self::Refused(error)
    }
}

/// Reads a body whole: at most `limit` bytes, within `patience`.
///
/// `declared` is its length where the sender gave one. One buffer of that length is filled; a body that comes in one
/// frame is passed on without a copy. Trailers are dropped.
pub async fn read_body(
    body: &mut (impl Body<Data = Bytes> + Unpin),
    declared: Option<u64>,
    limit: u64,
    patience: Patience,
) -> Result<Bytes, ReadError> {
    read_within(body, declared, limit, patience, None).await
}

/// As [`read_body`], within the limit on the memory of all bodies. A body of declared length first waits for its
/// memory, for at most the given time; one of unknown length reserves more as it comes, or ends in an error.
pub(super) async fn read_within(
    body: &mut (impl Body<Data = Bytes> + Unpin),
    declared: Option<u64>,
    limit: u64,
    patience: Patience,
    memory: Option<(&Pool, Duration)>,
) -> Result<Bytes, ReadError> {
    let declared = declared.or_else(|| body.size_hint().exact());
    if declared.is_some_and(|length| length > limit) {
        return Err(ReadError::TooLong(Vec::new()));
    }
    let mut reserved = Reserved::default();
    if let Some(((memory, wait), length)) = memory.zip(declared) {
        let waited = memory.wait_for(length, wait).await;
        reserved = waited.ok_or_else(|| ReadError::NoMemory(Vec::new()))?;
    }
    // The reserved bytes are allocated at once, so that they are never moved.
    let most_at_once = if memory.is_some() { limit } else { RESERVE_BYTES };
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    let mut end = None;
    loop {
        if body.is_end_stream() {
            break;
        }
        // Most frames are already here, so no timer is made for them.
        let frame = match body.frame().now_or_never() {
            Some(frame) => frame,
            None => {
                let now = Instant::now();
                let end = *end.get_or_insert(now + patience.whole);
                timeout_at(end.min(now + patience.pause), body.frame())
                    .await
                    .map_err(|_| ReadError::Timeout)?
            }
        };
        let Some(frame) = frame else { break };
        let Ok(data) = frame.map_err(|_| ReadError::Cut)?.into_data() else { continue };
        let length = first.len() + whole.len() + data.len();
        if length as u64 > limit {
            return Err(ReadError::TooLong(vec![first, whole.freeze(), data]));
        }
        if memory.is_some_and(|(memory, _)| !memory.reach(&mut reserved, length)) {
            return Err(ReadError::NoMemory(vec![first, whole.freeze(), data]));
        }
        if first.is_empty() && whole.is_empty() {
            first = data;
            continue;
        }
        if whole.is_empty() {
            let reserve = declared.unwrap_or_default().min(most_at_once);
            whole.reserve(usize::try_from(reserve).unwrap_or_default().max(first.len() + data.len()));
            whole.extend_from_slice(&std::mem::take(&mut first));
        }
        whole.extend_from_slice(&data);
    }
    let whole = if whole.is_empty() { first } else { whole.freeze() };
    reserved.shrink(whole.len());
    Ok(reserved.keep(whole))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::body::{BodyError, ReplyBody};
    use futures_util::stream;
    use hyper::body::Frame;

    const IDLE: Patience = Patience { pause: Duration::from_secs(10), whole: Duration::from_secs(60) };

    fn body(parts: &[&'static str]) -> ReplyBody {
        let frames: Vec<_> =
            parts.iter().map(|part| Ok(Frame::data(Bytes::from_static(part.as_bytes())))).collect();
        ReplyBody::from_stream(stream::iter(frames))
    }

    #[tokio::test]
    async fn one_frame_is_handed_on_without_a_copy() {
        let sent = Bytes::from(vec![7; 64]);
        let read = read_body(&mut ReplyBody::full(sent.clone()), Some(64), 64, IDLE).await.unwrap();
        assert_eq!(read.as_ptr(), sent.as_ptr());
    }

    #[tokio::test]
    async fn several_frames_are_joined_in_order() {
        for declared in [None, Some(6)] {
            let read = read_body(&mut body(&["ab", "", "c", "def"]), declared, 6, IDLE).await;
            assert_eq!(read.unwrap(), "abcdef");
        }
        assert_eq!(read_body(&mut ReplyBody::empty(), None, 0, IDLE).await.unwrap(), "");
    }

    #[tokio::test]
    async fn a_body_over_the_limit_is_refused_declared_or_not() {
        let declared = read_body(&mut body(&["abc"]), Some(7), 6, IDLE).await;
        assert_eq!(declared, Err(ReadError::TooLong(Vec::new())), "nothing of it was read");
        for parts in [&["abcd", "efg"][..], &["ab", "cd", "efg", "h"], &["abcdefg"]] {
            let mut body = body(parts);
            let Err(ReadError::TooLong(read)) = read_body(&mut body, None, 6, IDLE).await else { panic!() };
            let rest = body.collect().await.unwrap().to_bytes();
            assert_eq!(
                [read.concat(), rest.to_vec()].concat(),
                parts.concat().as_bytes(),
                "none of it is lost"
            );
        }
    }

    #[tokio::test]
    async fn a_body_that_breaks_or_stops_is_an_error() {
        let frames = stream::iter([Err::<Frame<Bytes>, _>(BodyError::ClientCut)]);
        assert_eq!(read_body(&mut ReplyBody::from_stream(frames), None, 9, IDLE).await, Err(ReadError::Cut));
        let mut silent = ReplyBody::from_stream(stream::pending());
        let pause = Duration::from_millis(1);
        let read = read_body(&mut silent, None, 9, Patience { pause, ..IDLE }).await;
        assert_eq!(read, Err(ReadError::Timeout));
    }

    #[tokio::test]
    async fn a_body_that_drips_within_every_pause_is_given_up_in_the_end() {
        let drops = stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            Some((Ok(Frame::data(Bytes::from_static(b"x"))), ()))
        });
        let whole = Duration::from_millis(50);
        let read =
            read_body(&mut ReplyBody::from_stream(drops), None, 1 << 20, Patience { whole, ..IDLE }).await;
        assert_eq!(read, Err(ReadError::Timeout));
    }
}
