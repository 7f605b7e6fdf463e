//! The wait for the upstream's next frame: until it comes, or until silence has lasted. Knows nothing of what frames
//! hold.

use crate::proxy::alarm::Alarm;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Frame, Incoming};
use tokio::time::Instant;

/// What the wait for the upstream has brought.
pub(super) enum Step {
    Frame(Frame<Bytes>),
    End,
    Cut,
    Silence,
    TooSilent,
}

/// Waits for the next frame until `deadline`, or until a comment is `due` if that is earlier.
pub(super) async fn wait(
    (body, alarm): (&mut Incoming, &mut Alarm),
    deadline: Instant,
    due: Option<Instant>,
) -> Step {
    let until = due.map_or(deadline, |due| deadline.min(due));
    match alarm.before(|| until, body.frame()).await {
        Some(Some(Ok(frame))) => Step::Frame(frame),
        Some(Some(Err(_))) => Step::Cut,
        Some(None) => Step::End,
        None if Instant::now() < deadline => Step::Silence,
        None => Step::TooSilent,
    }
}
