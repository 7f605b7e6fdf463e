//! The connector to the upstream: proxy, TCP and TLS within one time limit, and for each connection a note of whether it has
//! served before and whether the upstream has sent anything since our last write.
//!
//! It keeps no pool and sends no request; `upstream` recognises a stale connection by the note.

use super::forward_proxy::{Route, RouteStream};
use hyper::http::{Extensions, Uri};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::client::proxy::matcher::Intercept;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tower_service::Service;

pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Silence on an open connection after which the kernel probes whether the other side is still alive.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);

/// Which protocols are offered to an `https` upstream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Offer {
    Http1,
    Http1And2,
}

/// Makes connections to one address. Cheap to clone and small, since hyper-util does both with every request.
#[derive(Clone)]
pub(super) struct Connector(Arc<Destination>);

/// Where a connector connects to, and how.
struct Destination {
    inner: HttpsConnector<Route>,
    address: Uri,
    within: Duration,
}

/// Name lookup, TCP and TLS together took too long.
#[derive(Debug, thiserror::Error)]
#[error("no connection within {0:?}")]
pub(super) struct ConnectTimeout(Duration);

/// One connection, in the form that hyper takes.
pub(super) type Conn = TokioIo<Noted>;

/// One connection with its note. Wrapped twice, since only tokio's buffers reliably show how much was read.
pub(super) struct Noted {
    stream: TokioIo<MaybeHttpsStream<RouteStream>>,
    note: Note,
}

/// What is known about one connection; shared by the connection and its requests.
#[derive(Clone, Default)]
pub(super) struct Note(Arc<State>);

#[derive(Default)]
struct State {
    served: AtomicBool,
    silent: AtomicBool,
    ended: AtomicBool,
}

impl Connector {
    /// Connects to `address` within this time, through `proxy` where there is one.
    pub(super) fn new(
        address: Uri,
        tls: ClientConfig,
        offer: Offer,
        within: Duration,
        proxy: Option<&Intercept>,
    ) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(TCP_KEEPALIVE));
        let builder = |tls| {
            HttpsConnector::<HttpConnector>::builder().with_tls_config(tls).https_or_http().enable_http1()
        };
        let route = match proxy {
            Some(proxy) => Route::through(proxy, builder(tls.clone()).wrap_connector(tcp)),
            None => Route::Direct(tcp),
        };
        let inner = match offer {
            Offer::Http1 => builder(tls).wrap_connector(route),
            Offer::Http1And2 => builder(tls).enable_http2().wrap_connector(route),
        };
        Self(Arc::new(Destination { inner, address, within }))
    }
}

impl Service<Uri> for Connector {
    type Response = Conn;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Conn, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    /// Requests may name the address in short.
    fn call(&mut self, _: Uri) -> Self::Future {
        let to = Arc::clone(&self.0);
        Box::pin(async move {
            let mut inner = to.inner.clone();
            let connecting = async {
                poll_fn(|context| inner.poll_ready(context)).await?;
                inner.call(to.address.clone()).await
            };
            let connected = tokio::time::timeout(to.within, connecting).await;
            let stream = connected.map_err(|_| ConnectTimeout(to.within))??;
            Ok(TokioIo::new(Noted { stream: TokioIo::new(stream), note: Note::default() }))
        })
    }
}

impl Note {
    /// The note on a connection.
    pub(super) fn of(connection: &Connected) -> Self {
        let mut extensions = Extensions::new();
        connection.get_extras(&mut extensions);
        Self::taken_from(&mut extensions)
    }

    /// The note on the connection from which the response with these extensions came.
    pub(super) fn taken_from(extensions: &mut Extensions) -> Self {
        extensions.remove().unwrap_or_default()
    }

    /// A response has come from it.
    pub(super) fn mark_served(&self) {
        self.0.served.store(true, Ordering::Relaxed);
    }

    /// Whether it has served before, and the upstream has sent nothing since our last write: if it broke now, the
    /// upstream had most likely closed it before our request arrived.
    pub(super) fn looks_stale(&self) -> bool {
        self.0.served.load(Ordering::Relaxed) && self.0.silent.load(Ordering::Relaxed)
    }

    /// Whether the connection is closed.
    pub(super) fn has_ended(&self) -> bool {
        self.0.ended.load(Ordering::Relaxed)
    }

    fn heard(&self) {
        self.0.silent.store(false, Ordering::Relaxed);
    }

    fn said(&self) {
        self.0.silent.store(true, Ordering::Relaxed);
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.note.0.ended.store(true, Ordering::Relaxed);
    }
}

impl Connection for Noted {
    fn connected(&self) -> Connected {
        let connected = Connected::new().extra(self.note.clone());
        match self.stream.inner().connected().is_negotiated_h2() {
            true => connected.negotiated_h2(),
            false => connected,
        }
    }
}

impl AsyncRead for Noted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let filled = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > filled {
            self.note.heard();
        }
        read
    }
}

impl AsyncWrite for Noted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.note.said();
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.note.said();
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }
}
