//! The idle timeout of a received body: passes the frames of hyper's `Incoming` on unchanged, and an error when they
//! stop coming. It does not bound the duration of a transfer, nor its size.

use super::body::BodyError;
use super::wait::DeadlineTimer;
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;

/// See the module's documentation.
#[derive(Debug)]
pub struct IdleTimeout {
    incoming: Incoming,
    idle: Duration,
    /// When the present silence has lasted too long.
    silent_until: Option<Instant>,
    timer: DeadlineTimer,
    /// A frame has come.
    has_begun: bool,
    /// The error for a broken connection, which depends on the side.
    cut: BodyError,
    clock: Option<Arc<UploadClock>>,
}

/// When the last frame of an upload was seen. The upstream's time to answer starts there. Frames that were already
/// there when sending began are not noted: nearly every upload is one frame, and reading the clock costs as much as
/// passing the frame on.
#[derive(Debug, Default)]
pub(super) struct UploadClock {
    /// When it was first read.
    started: OnceLock<Instant>,
    last_ms: AtomicU64,
}

impl IdleTimeout {
    pub(super) fn upload(incoming: Incoming, idle: Duration) -> Self {
        Self { clock: Some(Arc::default()), ..Self::new(incoming, idle, BodyError::ClientCut) }
    }

    pub(super) fn download(incoming: Incoming, idle: Duration) -> Self {
        Self::new(incoming, idle, BodyError::UpstreamCut)
    }

    fn new(incoming: Incoming, idle: Duration, cut: BodyError) -> Self {
        let (silent_until, timer) = (None, DeadlineTimer::default());
        Self { incoming, idle, silent_until, timer, has_begun: false, cut, clock: None }
    }

    pub(super) fn upload_clock(&self) -> Option<Arc<UploadClock>> {
        self.clock.clone()
    }

    pub(super) fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }

    pub(super) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match Pin::new(&mut self.incoming).poll_frame(context) {
            Poll::Ready(frame) => {
                let was_there = self.silent_until.is_none() && !self.has_begun;
                (self.silent_until, self.has_begun) = (None, true);
                if let Some(clock) = self.clock.as_ref().filter(|_| !was_there) {
                    clock.touch();
                }
                Poll::Ready(frame.map(|frame| frame.map_err(|_| self.cut)))
            }
            Poll::Pending => {
                let until = *self.silent_until.get_or_insert_with(|| Instant::now() + self.idle);
                self.timer.poll(until, context).map(|()| Some(Err(BodyError::IdleTimeout)))
            }
        }
    }
}

impl UploadClock {
    fn touch(&self) {
        let started = self.started.get_or_init(Instant::now);
        let passed = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.store(passed, Ordering::Relaxed);
    }

    /// When the last frame was seen; `None` while none was waited for.
    pub(super) fn last(&self) -> Option<Instant> {
        Some(*self.started.get()? + Duration::from_millis(self.last_ms.load(Ordering::Relaxed)))
    }
}
