//! The stream of events (server-sent events): what happens to tool calls, as it happens, for the holder of the token.
//! What happens within a short time of the last write goes out in one write, so that a reader costs little however
//! many requests there are.

use super::Admin;
use super::answer::Answer;
use super::code::Code;
use crate::telemetry::live::events::{Event, Reader};
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE};
use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::time::{Instant, sleep_until, timeout};

/// How often a comment is sent where nothing happens, so that both ends notice that the other one has left.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// The least time between two writes: no person sees the difference.
const PAUSE: Duration = Duration::from_millis(50);
/// The length from which one write takes no further event.
const MOST_BYTES: usize = 64 * 1024;
/// At once, so that the client's request is answered before anything happens.
const FIRST: &str = ": events from now on\n\n";

/// One reader's stream.
struct Written {
    reader: Reader,
    /// When it may be written to again.
    next: Instant,
}

/// The stream from now on.
pub(super) async fn stream(State(admin): State<Arc<Admin>>) -> Response {
    let Some(reader) = admin.live.events().subscribe() else {
        let message = "There are too many readers of events: close some of them first.";
        return Answer::error(Code::TooManyReaders, message).into_response();
    };
    let written = Written { reader, next: Instant::now() };
    let texts = stream::unfold((Some(FIRST.to_owned()), written), async |(first, mut written)| {
        let text = match first {
            Some(first) => first,
            None => written.next_text().await?,
        };
        Some((Ok::<_, Infallible>(Bytes::from(text)), (None, written)))
    });
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-cache")];
    (headers, Body::from_stream(texts)).into_response()
}

impl Written {
    /// What is written next: every event that has happened, or a comment where none has for a while; `None`: the server
    /// is being stopped.
    async fn next_text(&mut self) -> Option<String> {
        sleep_until(self.next).await;
        let mut text = String::new();
        match timeout(HEARTBEAT, self.reader.next()).await {
            Err(_) => text.push_str(":\n\n"),
            Ok(Ok(event)) => write_event(&mut text, &event),
            Ok(Err(RecvError::Lagged(missed))) => write_lagged(&mut text, missed),
            Ok(Err(RecvError::Closed)) => return None,
        }
        while text.len() < MOST_BYTES {
            match self.reader.try_next() {
                Ok(event) => write_event(&mut text, &event),
                Err(TryRecvError::Lagged(missed)) => write_lagged(&mut text, missed),
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        self.next = Instant::now() + PAUSE;
        Some(text)
    }
}

fn write_event(text: &mut String, event: &Event) {
    for part in ["event: ", event.kind.as_str(), "\ndata: ", &event.data, "\n\n"] {
        text.push_str(part);
    }
}

/// So many events were not read in time and are lost.
fn write_lagged(text: &mut String, missed: u64) {
    // A String takes every write.
    let _ = write!(text, "event: lagged\ndata: {{\"missed\":{missed}}}\n\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::live::{Bounds, Live};
    use model::record::{RequestRecord, Route};

    fn live() -> Live {
        Live::new(Bounds { conversations: 1, callers: 0, with_decisions: false, body_bytes: 0 })
    }

    fn written(live: &Live) -> Written {
        Written { reader: live.events().subscribe().unwrap(), next: Instant::now() }
    }

    /// Something happens in the request with this id.
    fn happen(live: &Live, request_id: &str) {
        let mut record = RequestRecord::new(Route::Chat);
        record.request_id = request_id.to_owned();
        live.approval_asked(&record, "pay");
    }

    #[tokio::test]
    async fn events_soon_after_a_write_are_batched_into_one_write_after_a_pause() {
        let live = live();
        let mut written = written(&live);
        happen(&live, "r-1");
        let first = written.next_text().await.unwrap();
        assert!(first.starts_with("event: approval\ndata: {") && first.ends_with("}\n\n"), "{first}");
        let next = written.next;
        happen(&live, "r-2");
        happen(&live, "r-3");
        let second = written.next_text().await.unwrap();
        assert!(
            second.find("\"r-2\"") < second.find("\"r-3\"") && second.matches("event: ").count() == 2,
            "{second}"
        );
        assert!(Instant::now() >= next);
    }

    #[tokio::test]
    async fn a_slow_reader_is_told_how_many_events_it_missed_and_gets_the_others_in_several_writes() {
        let live = live();
        let mut written = written(&live);
        (0..3_000).for_each(|nth| happen(&live, &format!("r-{nth}")));
        let first = written.next_text().await.unwrap();
        assert!(first.starts_with("event: lagged\ndata: {\"missed\":1976}\n\n"), "{}", &first[..100]);
        let mut events = first.matches("event: approval").count();
        while events < 1_024 {
            let text = written.next_text().await.unwrap();
            assert!(text.len() < MOST_BYTES + 1_000, "{}", text.len());
            events += text.matches("event: approval").count();
        }
        assert_eq!(events, 1_024);
    }
}
