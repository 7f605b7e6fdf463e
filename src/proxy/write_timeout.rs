//! The write timeout of a client's connection: how long the client may go without reading what is sent to it (a
//! slow-read attack). It buffers nothing, and does not bound pauses in which there is nothing to send.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// See the module's documentation.
pub(super) struct WriteTimeout<S> {
    stream: S,
    within: Duration,
    /// Runs while the other side reads nothing. Most connections never need one.
    sleep: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteTimeout<S> {
    /// A write fails when it makes no progress for `within`.
    pub(super) fn new(stream: S, within: Duration) -> Self {
        Self { stream, within, sleep: None }
    }

    fn timed<T>(&mut self, context: &mut Context<'_>, done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if done.is_ready() {
            self.sleep = None;
            return done;
        }
        let within = self.within;
        let waiting = self.sleep.get_or_insert_with(|| Box::pin(sleep(within)));
        waiting.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.timed(context, done)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.timed(context, done)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    #[tokio::test]
    async fn a_write_times_out_if_the_peer_reads_nothing() {
        let (ours, _theirs) = duplex(4);
        let mut ours = WriteTimeout::new(ours, Duration::from_millis(1));
        assert_eq!(ours.write_all(&[0; 5]).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn what_is_taken_piece_by_piece_passes_and_a_pause_in_between_is_no_stall() {
        let (ours, mut theirs) = duplex(4);
        let mut ours = WriteTimeout::new(ours, Duration::from_secs(60));
        let reading = tokio::spawn(async move {
            let mut read = vec![0; 20];
            theirs.read_exact(&mut read).await.unwrap();
            (theirs, read)
        });
        ours.write_all(&[7; 20]).await.unwrap();
        let (_theirs, read) = reading.await.unwrap();
        assert_eq!(read, [7; 20]);
        assert!(ours.sleep.is_none(), "it runs only while nothing is taken");
    }
}
