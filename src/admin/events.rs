//! The stream of events (server-sent events): what happens to tool calls, as it happens, for the holder of the token.

use super::Admin;
use super::answer::Answer;
use super::code::Code;
use crate::telemetry::live::events::Reader;
use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::json;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast::error::RecvError;

/// How often a comment is sent where nothing happens, so that both ends notice that the other one has left.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// The stream from now on.
pub(super) async fn stream(State(admin): State<Arc<Admin>>) -> Response {
    let Some(reader) = admin.live.events().subscribe() else {
        let message = "There are too many readers of events: close some of them first.";
        return Answer::error(Code::TooManyReaders, message).into_response();
    };
    // At once, so that the client's request is answered before anything happens.
    let first = Event::default().comment("events from now on");
    let events = stream::unfold((Some(first), reader), async |(first, mut reader)| {
        let event = match first {
            Some(first) => first,
            None => next(&mut reader).await?,
        };
        Some((Ok::<_, Infallible>(event), (None, reader)))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(HEARTBEAT)).into_response()
}

/// The next event; `None`: the server is being stopped.
async fn next(reader: &mut Reader) -> Option<Event> {
    match reader.next().await {
        Ok(happened) => Some(Event::default().event(happened.kind.as_str()).data(&happened.data)),
        Err(RecvError::Lagged(missed)) => {
            Some(Event::default().event("lagged").data(json!({ "missed": missed }).to_string()))
        }
        Err(RecvError::Closed) => None,
    }
}
