//! Detection of the client's HTTP version by peeking at its first bytes in the socket, so that hyper does not need a
//! larger buffer to replay them. Consumes nothing and serves nothing.

use super::{CONNECTION_WINDOW, HEADER_LIST_BYTES, PING_EVERY, PING_WITHIN, STREAM_WINDOW, ServeSettings};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::TcpStream;

/// The server builders, by version.
pub(super) struct Builders {
    pub(super) http1: http1::Builder,
    /// Detects the version itself.
    pub(super) either: auto::Builder<TokioExecutor>,
}

impl Builders {
    pub(super) fn new(settings: &ServeSettings) -> Self {
        let mut http1 = http1::Builder::new();
        // No `date` of toolrein's own: responses pass as the upstream made them.
        http1.timer(TokioTimer::new()).header_read_timeout(settings.header_timeout).auto_date_header(false);
        let mut either = auto::Builder::new(TokioExecutor::new());
        either
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(settings.header_timeout)
            .auto_date_header(false);
        either
            .http2()
            .timer(TokioTimer::new())
            .auto_date_header(false)
            .max_header_list_size(HEADER_LIST_BYTES)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_WITHIN);
        Self { http1, either }
    }
}

/// Whether the client certainly speaks HTTP/1.1; waits for its first byte. No method begins as HTTP/2's preface does
/// (RFC 9113, section 3.4), but some share its first letter.
pub(super) async fn is_http1(stream: &TcpStream) -> bool {
    const PREFACE: &[u8] = b"PRI";
    let mut first = [0; PREFACE.len()];
    let count = stream.peek(&mut first).await.unwrap_or(0);
    first[..count] != PREFACE[..count]
}
