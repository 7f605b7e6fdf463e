//! The HTTP client for the upstream: hyper-util's with its connection pool, and the time limit of one request.
//!
//! It decides how connections are kept and how long to wait for the head of a response. `upstream` decides what is
//! sent, and whether it is sent again.

use super::body::UpBody;
use super::connect::{Connector, Note};
use super::hints::Hints;
use super::idle_timeout::UploadClock;
use hyper::body::Incoming;
use hyper::http::{Request, Response};
use hyper_util::client::legacy::connect::{CaptureConnection, capture_connection};
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// How long an unused connection is kept. Most servers keep theirs for 60 s and more; for those that do not (uvicorn: 5
/// s), the pool notices the close, or the request is sent once more.
const IDLE: Duration = Duration::from_secs(50);
/// HTTP/2: how much the upstream may send ahead on one stream, and on all of a connection.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;
/// HTTP/2: how long a response's head may be.
const HEADER_LIST_BYTES: u32 = 64 * 1024;
/// HTTP/2: silence after which a ping asks whether the connection is alive, and the time to answer it.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_WITHIN: Duration = Duration::from_secs(10);
/// How long hyper may take to report the end of a connection. It usually does so at once. After this time, and each time
/// twice as long after the request began, it is checked whether a request was left on a connection that has ended.
const REPORTED_WITHIN: Duration = Duration::from_millis(100);

/// Sends requests over connections that it makes and keeps.
pub(super) type UpstreamClient = Client<Connector, UpBody>;

/// How many unused connections a client keeps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    /// As many as were in use at once.
    All,
    /// None: every request has its own connection.
    None,
}

/// Why there is no response.
pub(super) enum SendError {
    /// No connection could be made, or it broke, or the request's own body did.
    Client(Error),
    /// The connection ended before it took the request, which was left in its queue.
    Left,
    /// The upstream did not answer in time.
    Timeout,
    /// Nothing but informational responses came, and too many of them.
    Hints,
}

/// The time limit for the upstream's first byte.
pub(super) struct FirstByte {
    /// When the request began to be sent.
    pub(super) began: Instant,
    /// From the last byte of the request, or from its sending where it is in memory.
    pub(super) within: Duration,
    /// The clock of a relayed upload: the time starts with the last chunk, since a long upload is not the upstream's
    /// silence.
    pub(super) upload: Option<Arc<UploadClock>>,
}

/// A client that connects by `connector`; `http2`: HTTP/2 is spoken without negotiation; `has_host`: every request has a
/// `host` already.
pub(super) fn client(connector: Connector, http2: bool, has_host: bool, keep: Keep) -> UpstreamClient {
    let mut builder = Client::builder(TokioExecutor::new());
    builder
        // `upstream` retries a request on a stale connection, once.
        .retry_canceled_requests(false)
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .set_host(!has_host)
        .http2_only(http2)
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .http2_max_header_list_size(HEADER_LIST_BYTES)
        .http2_keep_alive_interval(PING_EVERY)
        .http2_keep_alive_timeout(PING_WITHIN);
    if keep == Keep::None {
        builder.pool_max_idle_per_host(0);
    }
    builder.build(connector)
}

/// Sends a request and waits for the head of the response. Dropping the future closes or resets what it has opened.
pub(super) async fn send(
    client: &UpstreamClient,
    mut request: Request<UpBody>,
    first_byte: FirstByte,
) -> Result<Response<Incoming>, SendError> {
    let hints = Hints::of(&mut request);
    let connection = capture_connection(&mut request);
    tokio::select! {
        biased;
        response = client.request(request) => response.map_err(SendError::Client),
        () = hints.too_many() => Err(SendError::Hints),
        error = first_byte.watch(&connection) => Err(error),
    }
}

/// Whether the request was given to a connection that has ended since.
fn has_ended(connection: &CaptureConnection) -> bool {
    connection.connection_metadata().as_ref().is_some_and(|connection| Note::of(connection).has_ended())
}

impl FirstByte {
    /// Waits until the time is over, which an upload extends, or until hyper should have reported the end of the request's
    /// connection. Hyper reports nothing for a request that was queued while the connection emptied its queue for the last
    /// time (hyperium/hyper#4122).
    async fn watch(&self, connection: &CaptureConnection) -> SendError {
        let mut check = REPORTED_WITHIN;
        loop {
            sleep_until(self.end().min(self.began + check)).await;
            let now = Instant::now();
            if self.end() <= now {
                return SendError::Timeout;
            }
            if self.began + check <= now {
                check *= 2;
                if has_ended(connection) {
                    sleep(REPORTED_WITHIN).await;
                    return SendError::Left;
                }
            }
        }
    }

    /// When the time is over, as far as the upload has come.
    fn end(&self) -> Instant {
        let last = self.upload.as_ref().and_then(|upload| upload.last());
        last.map_or(self.began, |last| last.max(self.began)) + self.within
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_wait_for_the_first_byte_ends_when_its_time_is_over_and_not_when_the_connection_is_looked_at()
    {
        for within in [50, 150, 250].map(Duration::from_millis) {
            let connection = capture_connection(&mut Request::new(UpBody::Empty));
            let began = Instant::now();
            let over = FirstByte { began, within, upload: None }.watch(&connection).await;
            assert!(matches!(over, SendError::Timeout) && began.elapsed() >= within, "{within:?}");
        }
    }
}
