//! The wait for the upstream's next frame. Does not look at the frames.

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Frame, Incoming};

/// What came of the upstream's body.
pub(super) enum Step {
    Frame(Frame<Bytes>),
    End,
    Cut,
    /// It was silent for too long.
    TooSilent,
}

/// Waits for the next frame. Cancel-safe.
pub(super) async fn wait(body: &mut Incoming) -> Step {
    match body.frame().await {
        Some(Ok(frame)) => Step::Frame(frame),
        Some(Err(_)) => Step::Cut,
        None => Step::End,
    }
}
