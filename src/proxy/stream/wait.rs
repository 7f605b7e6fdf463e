//! The wait for the upstream's next frame: until it comes, or until silence has lasted. Knows nothing of what frames
//! hold.

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Frame, Incoming};
use std::pin::Pin;
use tokio::time::{Instant, Sleep, sleep_until};

/// What the wait for the upstream has brought.
pub(super) enum Step {
    Frame(Frame<Bytes>),
    End,
    Cut,
    Silence,
    TooSilent,
}

/// Rings at the end of a wait. Armed once and not set anew for each frame: it may ring too early, and is armed again
/// then. To arm a timer for each chunk would cost more than to judge it.
#[derive(Default)]
pub(super) struct Alarm(Option<Pin<Box<Sleep>>>);

impl Alarm {
    /// Waits until `until`.
    async fn ring(&mut self, until: Instant) {
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(until)));
        if sleep.deadline() > until {
            sleep.as_mut().reset(until);
        }
        loop {
            sleep.as_mut().await;
            if Instant::now() >= until {
                return;
            }
            sleep.as_mut().reset(until);
        }
    }
}

/// Waits for the next frame until `deadline`, or until a comment is `due` if that is earlier.
pub(super) async fn wait(
    (body, alarm): (&mut Incoming, &mut Alarm),
    deadline: Instant,
    due: Option<Instant>,
) -> Step {
    let until = due.map_or(deadline, |due| deadline.min(due));
    // Where a frame is here already, the alarm is not touched.
    let frame = tokio::select! {
        biased;
        frame = body.frame() => frame,
        () = alarm.ring(until) => {
            return if Instant::now() < deadline { Step::Silence } else { Step::TooSilent };
        }
    };
    match frame {
        Some(Ok(frame)) => Step::Frame(frame),
        Some(Err(_)) => Step::Cut,
        None => Step::End,
    }
}
