//! What a reply on its way to the client waits for: the upstream's next frame, or a time. Does not look at the frames.

use bytes::Bytes;
use hyper::body::Frame;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::time::{Instant, Sleep, sleep_until};

/// What came of the upstream's body.
pub(super) enum Step {
    Frame(Frame<Bytes>),
    End,
    Cut,
    /// It was silent for too long.
    TooSilent,
}

impl Step {
    /// What a frame of the body says, or its end.
    pub(super) fn of(frame: Option<Result<Frame<Bytes>, hyper::Error>>) -> Self {
        match frame {
            Some(Ok(frame)) => Self::Frame(frame),
            Some(Err(_)) => Self::Cut,
            None => Self::End,
        }
    }
}

/// A wait for a time that mostly moves on before it comes, as the end of a silence does. Its timer is not moved with it, but
/// set anew when it fires too early.
#[derive(Debug, Default)]
pub(super) struct DeadlineTimer {
    /// Created at the first wait; for most requests that never happens.
    sleep: Option<Pin<Box<Sleep>>>,
}

impl DeadlineTimer {
    /// Ready when it is `until`.
    pub(super) fn poll(&mut self, until: Instant, context: &mut Context<'_>) -> Poll<()> {
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(until)));
        if until < sleep.deadline() {
            sleep.as_mut().reset(until);
        }
        loop {
            ready!(sleep.as_mut().poll(context));
            if sleep.deadline() >= until {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(until);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use std::future::poll_fn;
    use std::time::Duration;

    /// Waits until so many milliseconds have passed since `start`.
    async fn wait(timer: &mut DeadlineTimer, start: Instant, after: u64) {
        let until = start + Duration::from_millis(after);
        poll_fn(|context| timer.poll(until, context)).await;
    }

    #[tokio::test]
    async fn a_timer_waits_for_the_time_that_it_was_asked_for_last_be_it_later_or_earlier() {
        let (start, mut timer) = (Instant::now(), DeadlineTimer::default());
        assert!(wait(&mut timer, start, 20).now_or_never().is_none());
        assert!(wait(&mut timer, start, 60_000).now_or_never().is_none());
        // The time that it waits for last is later than the first one, and earlier than the second.
        for after in [40, 60, 50] {
            wait(&mut timer, start, after).await;
            assert!(start.elapsed() >= Duration::from_millis(after), "{after}");
        }
        assert!(start.elapsed() < Duration::from_secs(30), "it does not wait for a time of before");
        assert!(wait(&mut timer, start, 60_000).now_or_never().is_none());
    }
}
