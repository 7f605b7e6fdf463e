//! Protocol upgrades (WebSocket): a tunnel of bytes both ways, once the upstream has agreed.
//!
//! It does the handshake, bounds silence and passes the end of either side on. It does not interpret the tunnelled
//! bytes.

use super::body::{ReplyBody, UpBody};
use super::connection_limit::ConnectionPermit;
use super::error::ProxyError;
use super::headers::{self, strip_response};
use super::relay::reply;
use super::respond::error_response;
use super::upstream::Upstream;
use futures_util::future::try_join;
use hyper::body::Incoming;
use hyper::http::header::{CONNECTION, UPGRADE};
use hyper::http::{HeaderValue, Request, Response, StatusCode};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use std::io;
use std::sync::Mutex;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::time::{Instant, sleep_until};

/// The size of a read, each way. WebSocket messages of the Realtime API are a few KiB.
const BUFFER_BYTES: usize = 16 * 1024;

/// Asks the upstream for the upgrade that the client wants. On 101 the two are joined in their own task, which holds
/// `guard`; any other response is relayed.
pub(super) async fn upgrade(
    mut request: Request<Incoming>,
    upstream: &Upstream,
    idle: Duration,
    guard: impl Send + 'static,
) -> Response<ReplyBody> {
    let protocol = headers::offered(request.headers());
    let protocol = protocol.unwrap_or_else(|| HeaderValue::from_static("websocket"));
    let client = hyper::upgrade::on(&mut request);
    let permit = request.extensions_mut().remove::<ConnectionPermit>();
    let request = request.map(|body| UpBody::relay(body, idle));
    let mut response = match upstream.send_upgrade(request, protocol.clone()).await {
        Ok(response) => response,
        Err(error) => return error_response(&error),
    };
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        strip_response(response.headers_mut());
        return reply(response, idle, guard);
    }
    let agreed = response.headers().get(UPGRADE).cloned();
    let Some(agreed) = agreed.filter(|agreed| headers::is_offered(agreed, &protocol)) else {
        return error_response(&ProxyError::UpstreamCut {
            host: upstream.name().to_owned(),
            detail: "it switched to a protocol that was not offered".into(),
        });
    };
    let server = hyper::upgrade::on(&mut response);
    tokio::spawn(async move {
        if let Err(error) = tunnel(client, server, idle).await {
            tracing::debug!(%error, "a tunnel ended early");
        }
        drop((guard, permit));
    });
    strip_response(response.headers_mut());
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    response.headers_mut().insert(UPGRADE, agreed);
    response.map(|_| ReplyBody::empty())
}

async fn tunnel(client: OnUpgrade, server: OnUpgrade, idle: Duration) -> io::Result<()> {
    let waiting = tokio::time::timeout(idle, try_join(client, server)).await;
    let (client, server) = waiting.map_err(|_| silence())?.map_err(io::Error::other)?;
    join(TokioIo::new(client), TokioIo::new(server), idle).await
}

/// Copies both ways until both sides have ended, one fails, or both were silent for `idle`.
async fn join(client: TokioIo<Upgraded>, server: TokioIo<Upgraded>, idle: Duration) -> io::Result<()> {
    // A std mutex: locked for one assignment, never across an await.
    let last = Mutex::new(Instant::now());
    let (client_read, client_write) = split(client);
    let (server_read, server_write) = split(server);
    let both = try_join(copy(client_read, server_write, &last), copy(server_read, client_write, &last));
    tokio::select! {
        ended = both => ended.map(|_| ()),
        () = watch(&last, idle) => Err(silence()),
    }
}

/// Copies one way; at the end signals to the other side that no more comes.
async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    last: &Mutex<Instant>,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        touch(last);
        to.write_all(&buffer[..count]).await?;
        to.flush().await?;
        touch(last);
    }
}

/// Returns when nothing has moved for `idle`.
async fn watch(last: &Mutex<Instant>, idle: Duration) {
    loop {
        let until = read(last) + idle;
        if until <= Instant::now() {
            return;
        }
        sleep_until(until).await;
    }
}

fn touch(last: &Mutex<Instant>) {
    *last.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Instant::now();
}

fn read(last: &Mutex<Instant>) -> Instant {
    *last.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn silence() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "nothing moved for too long")
}
