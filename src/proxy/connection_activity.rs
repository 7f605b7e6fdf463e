//! The activity of a client's connection: whether a request is arriving or being answered. The drain closes a connection
//! between two requests, never in one, and so that the client reads what was sent to it: RFC 9112, section 9.6.
//! Decides nothing about requests.

use super::drain::Drain;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{Sleep, sleep, timeout};

/// How long the client may take to close its side of a connection that the drain has closed.
const LINGER: Duration = Duration::from_secs(1);

/// What is going on on a connection.
#[derive(Debug, Default)]
pub(super) struct ConnectionActivity {
    /// A request has arrived.
    has_request: AtomicBool,
    /// Bytes have arrived since the last answer.
    receiving: AtomicBool,
    /// A request of HTTP/1.1 is being answered.
    answering: AtomicBool,
    /// The connection became a tunnel of another protocol.
    is_tunnel: AtomicBool,
    /// A request has arrived, or an answer has ended.
    changed: Notify,
}

/// Held with a response until its body has gone out; from then on the connection waits for its next request.
pub(super) struct Served(Arc<ConnectionActivity>);

impl Drop for Served {
    fn drop(&mut self) {
        self.0.answering.store(false, Ordering::Relaxed);
        self.0.receiving.store(false, Ordering::Relaxed);
        self.0.changed.notify_one();
    }
}

impl ConnectionActivity {
    /// A request has arrived, and is answered until the result is dropped.
    pub(super) fn begin_request(self: &Arc<Self>) -> Served {
        self.answering.store(true, Ordering::Relaxed);
        if !self.has_request.swap(true, Ordering::Relaxed) {
            self.changed.notify_one();
        }
        Served(Arc::clone(self))
    }

    /// The response hands the connection over to another protocol.
    pub(super) fn begin_tunnel(&self) {
        self.is_tunnel.store(true, Ordering::Relaxed);
    }

    /// Whether a request has arrived.
    pub(super) fn has_request(&self) -> bool {
        self.has_request.load(Ordering::Relaxed)
    }

    /// Whether no request is being answered.
    pub(super) fn is_between_answers(&self) -> bool {
        !self.answering.load(Ordering::Relaxed)
    }

    fn is_quiet(&self) -> bool {
        self.is_between_answers() && !self.receiving.load(Ordering::Relaxed)
    }

    /// Returns once the first request has arrived.
    pub(super) async fn first_request(&self) {
        while !self.has_request() {
            self.changed.notified().await;
        }
    }

    /// Returns once no byte of a request has arrived for `within` after the last answer.
    pub(super) async fn quiet(&self, within: Duration) {
        loop {
            if !self.is_quiet() {
                self.changed.notified().await;
                continue;
            }
            if timeout(within, self.changed.notified()).await.is_ok() {
                continue;
            }
            // The kernel may hold bytes that the runtime has not seen: it looks before this task goes on.
            yield_now().await;
            if self.is_quiet() {
                return;
            }
        }
    }
}

/// A client's stream that notes what arrives. Once the drain has started, closing it waits for the client's own end:
/// data that nobody reads would make the kernel reset the connection, and the client could lose its last answer.
pub(super) struct WatchedStream<S> {
    stream: S,
    activity: Arc<ConnectionActivity>,
    drain: Drain,
    lingering: Option<Pin<Box<Sleep>>>,
}

impl<S> WatchedStream<S> {
    pub(super) fn new(stream: S, activity: Arc<ConnectionActivity>, drain: Drain) -> Self {
        Self { stream, activity, drain, lingering: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.activity.receiving.store(true, Ordering::Relaxed);
        }
        read
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for WatchedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.lingering.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(context))?;
            // What arrives in a tunnel is read by its other side.
            if !this.drain.is_started() || this.activity.is_tunnel.load(Ordering::Relaxed) {
                return Poll::Ready(Ok(()));
            }
        }
        let lingering = this.lingering.get_or_insert_with(|| Box::pin(sleep(LINGER)));
        if lingering.as_mut().poll(context).is_ready() {
            return Poll::Ready(Ok(()));
        }
        loop {
            let mut discarded = [0; 1024];
            let mut discarded = ReadBuf::new(&mut discarded);
            match ready!(Pin::new(&mut this.stream).poll_read(context, &mut discarded)) {
                Ok(()) if !discarded.filled().is_empty() => {}
                _ => return Poll::Ready(Ok(())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    const QUIET: Duration = Duration::from_millis(5);
    const PATIENCE: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn a_connection_is_quiet_after_a_while_without_a_byte_of_a_request() {
        let activity = Arc::new(ConnectionActivity::default());
        let becomes_quiet = async |within| timeout(within, activity.quiet(QUIET)).await.is_ok();
        assert!(becomes_quiet(PATIENCE).await, "nothing has arrived");
        let (mut client, server) = duplex(64);
        let mut server = WatchedStream::new(server, Arc::clone(&activity), Drain::new());
        client.write_all(b"POST").await.unwrap();
        server.read_exact(&mut [0; 4]).await.unwrap();
        assert!(!becomes_quiet(QUIET * 5).await, "a part of a head has arrived");
        let served = activity.begin_request();
        assert!(!becomes_quiet(QUIET * 5).await, "it is being answered");
        drop(served);
        assert!(becomes_quiet(PATIENCE).await);
    }

    #[tokio::test]
    async fn while_draining_a_close_waits_for_the_client_and_not_for_ever() {
        for (drains, is_tunnel, waits) in [(false, false, false), (true, true, false), (true, false, true)] {
            let (mut client, server) = duplex(64);
            let (activity, drain) = (Arc::new(ConnectionActivity::default()), Drain::new());
            if drains {
                drain.begin();
            }
            if is_tunnel {
                activity.begin_tunnel();
            }
            let mut server = WatchedStream::new(server, activity, drain);
            client.write_all(b"GET / HTTP/1.1").await.unwrap();
            let within = if waits { LINGER / 20 } else { PATIENCE };
            let is_closed = timeout(within, server.shutdown()).await.is_ok();
            assert_eq!(!is_closed, waits, "{drains} {is_tunnel}");
            server.shutdown().await.unwrap();
            assert_eq!(client.read(&mut [0; 4]).await.unwrap(), 0, "the client reads the end");
        }
    }
}
