//! Requests that count the tokens of a request to the Messages API. They get the changes that the counted request would
//! get, so that the number and the check of thinking blocks are those of the same conversation. Nothing is counted, kept or
//! released for them, and the reply is relayed as it comes.

use crate::store::reader::StoreReader;
use bytes::Bytes;
use engine::offline::{Pending, advance};
use engine::{Arrived, Exchange, Now, Shared};
use model::record::{RequestRecord, Route};
use state::StateStore;
use std::sync::Arc;
use tokio::runtime::Handle;

/// The path of the request whose tokens are counted, where the path shows that: what is known of a model is found by it.
pub(super) fn path_of_request(path: &str) -> &str {
    path.trim_end_matches('/').strip_suffix("/count_tokens").unwrap_or(path)
}

/// The body with the changes that the counted request would get; `None` where toolrein would answer that itself. The store is
/// read on a thread that may wait, as by a review.
pub(super) async fn changed_body(
    shared: Arc<Shared>,
    store: Arc<dyn StateStore>,
    arrived: Arrived,
    now: Now,
) -> Option<Vec<Bytes>> {
    let handle = Handle::current();
    let planned = tokio::task::spawn_blocking(move || {
        let record = Box::new(RequestRecord::new(Route::Messages));
        let mut exchange = Exchange::begin(shared, arrived, record, now);
        planned(&mut exchange, &mut StoreReader(&*store, handle), now)
    });
    planned.await.ok().flatten()
}

/// The request as it would be sent first; `None` where toolrein would answer it itself.
fn planned(exchange: &mut Exchange, store: &mut StoreReader<'_>, now: Now) -> Option<Vec<Bytes>> {
    match advance(exchange, store, now) {
        Some(Pending::Send(outgoing)) => Some(outgoing.pieces),
        _ => None,
    }
}
