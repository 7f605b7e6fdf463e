//! Connections to the upstream: TCP and TLS within one time limit, and a note on each of whether it
//! has served before and whether the upstream has spoken since we last wrote.
//!
//! It keeps no pool and sends no request; the note is what `upstream` tells a stale connection by.

use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::{Connection as _, HttpConnector};
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
use tokio::net::TcpStream;
use tower_service::Service as _;

pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Silence on an open connection after which the kernel asks whether the other side still lives.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);

/// Which protocols are offered to an `https` upstream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Offer {
    Http1,
    Http1And2,
}

/// Makes connections.
pub(super) struct Connector {
    inner: HttpsConnector<HttpConnector>,
    within: Duration,
}

/// Name lookup, TCP and TLS together took too long.
#[derive(Debug, thiserror::Error)]
#[error("no connection within {0:?}")]
pub(super) struct ConnectTimeout(Duration);

/// One connection, as hyper takes it.
pub(super) type Conn = TokioIo<Noted>;

/// One connection with its note. Wrapped twice, since only tokio's buffers tell safely how much was read.
pub(super) struct Noted {
    stream: TokioIo<MaybeHttpsStream<TokioIo<TcpStream>>>,
    note: Note,
}

/// What is known of one connection; shared by the connection and who keeps it.
#[derive(Clone, Default)]
pub(super) struct Note(Arc<Flags>);

#[derive(Default)]
struct Flags {
    served: AtomicBool,
    silent: AtomicBool,
}

impl Connector {
    pub(super) fn new(tls: ClientConfig, offer: Offer, within: Duration) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(TCP_KEEPALIVE));
        let builder =
            HttpsConnector::<HttpConnector>::builder().with_tls_config(tls).https_or_http().enable_http1();
        let inner = match offer {
            Offer::Http1 => builder.wrap_connector(tcp),
            Offer::Http1And2 => builder.enable_http2().wrap_connector(tcp),
        };
        Self { inner, within }
    }

    /// A new connection to the host of `address`.
    pub(super) async fn connect(&self, address: hyper::http::Uri) -> Result<Conn, BoxError> {
        let mut inner = self.inner.clone();
        let connecting = async {
            poll_fn(|context| inner.poll_ready(context)).await?;
            inner.call(address).await
        };
        match tokio::time::timeout(self.within, connecting).await {
            Ok(stream) => Ok(TokioIo::new(Noted { stream: TokioIo::new(stream?), note: Note::default() })),
            Err(_) => Err(ConnectTimeout(self.within).into()),
        }
    }
}

impl Note {
    /// A response came on it.
    pub(super) fn mark_served(&self) {
        self.0.served.store(true, Ordering::Relaxed);
    }

    /// It has served before, and since our last write the upstream has said nothing: if it broke now,
    /// the upstream had most likely closed it before our request arrived.
    pub(super) fn looks_stale(&self) -> bool {
        self.0.served.load(Ordering::Relaxed) && self.0.silent.load(Ordering::Relaxed)
    }

    fn heard(&self) {
        self.0.silent.store(false, Ordering::Relaxed);
    }

    fn said(&self) {
        self.0.silent.store(true, Ordering::Relaxed);
    }
}

impl Noted {
    pub(super) fn note(&self) -> Note {
        self.note.clone()
    }

    /// Whether HTTP/2 was agreed on in the TLS handshake.
    pub(super) fn speaks_http2(&self) -> bool {
        self.stream.inner().connected().is_negotiated_h2()
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
