//! A received body with a bound on silence: the frames of hyper's `Incoming`, untouched, and an error
//! where they stop coming. It does not bound the whole length of a transfer, nor its size.

use super::body::BodyError;
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// See the file's head.
#[derive(Debug)]
pub struct Timed {
    incoming: Incoming,
    idle: Duration,
    /// Made when the body first lets us wait: most requests never do. Not set anew for each frame: it may ring too
    /// early, and is set again then.
    sleep: Option<Pin<Box<Sleep>>>,
    /// Since when we wait, while we do.
    since: Option<Instant>,
    /// A frame has come.
    has_begun: bool,
    /// What a broken connection means: it depends on which side it is.
    cut: BodyError,
    clock: Option<Arc<UploadClock>>,
}

/// When the last frame of an upload was seen. The upstream's time to answer starts there. What was there when the
/// sending began is not looked at: nearly every upload is one frame, and a look at the clock costs as much as to pass it.
#[derive(Debug, Default)]
pub(super) struct UploadClock {
    /// When it was looked at first.
    started: OnceLock<Instant>,
    last_ms: AtomicU64,
}

impl Timed {
    pub(super) fn upload(incoming: Incoming, idle: Duration) -> Self {
        Self { clock: Some(Arc::default()), ..Self::new(incoming, idle, BodyError::ClientCut) }
    }

    pub(super) fn download(incoming: Incoming, idle: Duration) -> Self {
        Self::new(incoming, idle, BodyError::UpstreamCut)
    }

    fn new(incoming: Incoming, idle: Duration, cut: BodyError) -> Self {
        Self { incoming, idle, sleep: None, since: None, has_begun: false, cut, clock: None }
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
                let was_there = self.since.take().is_none() && !std::mem::replace(&mut self.has_begun, true);
                if let Some(clock) = self.clock.as_ref().filter(|_| !was_there) {
                    clock.touch();
                }
                Poll::Ready(frame.map(|frame| frame.map_err(|_| self.cut)))
            }
            Poll::Pending => self.poll_silence(context).map(|()| Some(Err(BodyError::IdleTimeout))),
        }
    }

    /// Ready when the silence has lasted too long.
    fn poll_silence(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let until = *self.since.get_or_insert_with(Instant::now) + self.idle;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(until)));
        while sleep.as_mut().poll(context).is_ready() {
            if sleep.deadline() >= until {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(until);
        }
        Poll::Pending
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
