//! Requests that count the tokens of a request to the Messages API. They get the changes that the counted request would
//! get, so that the number and the check of thinking blocks are those of the same conversation. Nothing is counted, kept or
//! released for them, and the reply is relayed as it comes.

use super::body::ReplyBody;
use super::handler::AppState;
use super::head::Head;
use super::record::Record;
use crate::store::reader::StoreReader;
use bytes::Bytes;
use engine::offline::{Pending, advance};
use engine::{Arrived, Exchange, Now};
use hyper::http::Response;
use model::record::{RequestRecord, Route};
use std::sync::Arc;
use tokio::runtime::Handle;

/// The path of the request whose tokens are counted, where the path shows that: what is known of a model is found by it.
pub(super) fn path_of_request(path: &str) -> &str {
    path.trim_end_matches('/').strip_suffix("/count_tokens").unwrap_or(path)
}

impl AppState {
    /// Sends the request on with the changes that the counted one would get.
    pub(super) async fn count_tokens(
        self: Arc<Self>,
        arrived: Arrived,
        head: Head,
        record: Record,
        now: Now,
    ) -> Response<ReplyBody> {
        let came = arrived.body.clone();
        let app = Arc::clone(&self);
        let (handle, shared) = (Handle::current(), Arc::clone(&self.shared));
        // The store is read as by a review, on a thread that may wait.
        let planned = tokio::task::spawn_blocking(move || {
            let record = Box::new(RequestRecord::new(Route::Messages));
            let mut exchange = Exchange::begin(shared, arrived, record, now);
            planned(&mut exchange, &mut StoreReader(&*app.store, handle), now)
        });
        let pieces = planned.await.ok().flatten().unwrap_or_else(|| vec![came]);
        let (parts, body) = head.request(&pieces, None).into_parts();
        self.relay_read(parts, body, None, record).await
    }
}

/// The request as it would be sent first; `None` where toolrein would answer it itself.
fn planned(exchange: &mut Exchange, store: &mut StoreReader<'_>, now: Now) -> Option<Vec<Bytes>> {
    match advance(exchange, store, now) {
        Some(Pending::Send(outgoing)) => Some(outgoing.pieces),
        _ => None,
    }
}
