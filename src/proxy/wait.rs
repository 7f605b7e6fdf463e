//! The wait for the upstream's next frame, with an idle timeout. Does not look at the frames.

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Frame, Incoming};
use tokio::time::{Instant, timeout_at};

/// The result of the wait.
pub(super) enum Step {
    Frame(Frame<Bytes>),
    End,
    Cut,
    Silence,
    TooSilent,
}

/// Waits for the next frame until `deadline`, or until a keep-alive comment is `due` if that is earlier.
pub(super) async fn wait(body: &mut Incoming, deadline: Instant, due: Option<Instant>) -> Step {
    let until = due.map_or(deadline, |due| deadline.min(due));
    match timeout_at(until, body.frame()).await {
        Ok(Some(Ok(frame))) => Step::Frame(frame),
        Ok(Some(Err(_))) => Step::Cut,
        Ok(None) => Step::End,
        Err(_) if Instant::now() < deadline => Step::Silence,
        Err(_) => Step::TooSilent,
    }
}
