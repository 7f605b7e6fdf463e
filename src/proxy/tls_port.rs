//! TLS on the proxy's port: handshakes, bounded in time and in number. A reload replaces the certificates for the next
//! connection; connections that are open keep theirs.

use super::write_timeout::WriteTimeout;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::tls::Handshake;
use arc_swap::ArcSwap;
use rustls::ServerConfig;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The first byte of a TLS connection: the type of a handshake's record (RFC 8446, section 5.1).
const HANDSHAKE: u8 = 22;
/// For a client that speaks plain HTTP here. HTTP/1.0, so that it expects nothing more.
const USE_TLS: &[u8] = b"HTTP/1.0 400 Bad Request\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n\
    toolrein speaks TLS on this port: use https:// instead of http://\n";
/// How much of such a request is read, so that the answer is not lost when the connection is closed.
const DISCARDED_BYTES: usize = 16 * 1024;

/// See the module's documentation.
pub struct TlsPort {
    current: ArcSwap<Current>,
    /// One permit for each handshake.
    handshakes: Semaphore,
    metrics: Arc<Metrics>,
}

struct Current {
    acceptor: TlsAcceptor,
    within: Duration,
}

/// A client's connection after its handshake.
pub(super) struct Accepted {
    pub(super) stream: TlsStream<WriteTimeout<TcpStream>>,
    /// The client has agreed to speak HTTP/1.1; otherwise its first bytes say what it speaks.
    pub(super) is_http1: bool,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
enum HandshakeError {
    #[error("the client speaks plain HTTP")]
    Plain,
    #[error("the client sent nothing")]
    Left,
    #[error("it took too long")]
    Timeout,
    #[error(transparent)]
    Failed(#[from] io::Error),
}

impl TlsPort {
    /// At most `most` handshakes at once, each within `within`.
    pub fn new(server: Arc<ServerConfig>, within: Duration, most: usize, metrics: Arc<Metrics>) -> Self {
        let current = ArcSwap::from_pointee(Current { acceptor: server.into(), within });
        Self { current, handshakes: Semaphore::new(most.clamp(1, Semaphore::MAX_PERMITS)), metrics }
    }

    /// Takes other certificates, and another time limit, for connections from now on.
    pub fn replace(&self, server: Arc<ServerConfig>, within: Duration) {
        self.current.store(Arc::new(Current { acceptor: server.into(), within }));
    }

    /// The connection after its handshake; `None`: there is none. `stall` bounds its writes.
    pub(super) async fn accept(&self, stream: TcpStream, stall: Duration) -> Option<Accepted> {
        let current = self.current.load_full();
        let shaking = self.shake(&current.acceptor, stream, stall);
        let shaken = timeout(current.within, shaking).await.unwrap_or(Err(HandshakeError::Timeout));
        let result = match &shaken {
            Ok(_) => Some(Handshake::Done),
            Err(HandshakeError::Plain) => Some(Handshake::PlainHttp),
            Err(HandshakeError::Timeout) => Some(Handshake::Timeout),
            Err(HandshakeError::Failed(_)) => Some(Handshake::Failed),
            // The client left before the handshake, as port probes do.
            Err(HandshakeError::Left) => None,
        };
        if let Some(result) = result {
            self.metrics.tls().count_handshake(result);
        }
        shaken.inspect_err(|error| tracing::debug!(%error, "a TLS handshake failed")).ok()
    }

    async fn shake(
        &self,
        acceptor: &TlsAcceptor,
        mut stream: TcpStream,
        stall: Duration,
    ) -> Result<Accepted, HandshakeError> {
        let mut first = [0];
        let count = stream.peek(&mut first).await?;
        if count == 0 {
            return Err(HandshakeError::Left);
        }
        if first[0] != HANDSHAKE && first[0].is_ascii_uppercase() {
            refuse_plain(&mut stream).await?;
            return Err(HandshakeError::Plain);
        }
        // A client that has sent nothing takes no permit.
        let _permit = self.handshakes.acquire().await.map_err(io::Error::other)?;
        let stream = acceptor.accept(WriteTimeout::new(stream, stall)).await?;
        let is_http1 = stream.get_ref().1.alpn_protocol() == Some(b"http/1.1");
        Ok(Accepted { stream, is_http1 })
    }
}

async fn refuse_plain(stream: &mut TcpStream) -> io::Result<()> {
    let _ = stream.try_read(&mut vec![0; DISCARDED_BYTES]);
    stream.write_all(USE_TLS).await?;
    stream.shutdown().await
}

impl std::fmt::Debug for TlsPort {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("TlsPort").finish_non_exhaustive()
    }
}
