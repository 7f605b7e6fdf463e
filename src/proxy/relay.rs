//! The relay, for requests that toolrein does not govern: any method and path to the upstream, and its response back,
//! byte for byte and chunk by chunk. It looks at no body, holds nothing back and counts nothing.

use super::body::{ReplyBody, UpBody};
use super::error::ProxyError;
use super::headers::is_upgrade;
use super::respond::error_response;
use super::upgrade;
use super::upstream::Upstream;
use futures_util::future::{Either, ready};
use hyper::body::Incoming;
use hyper::http::{Method, Request, Response};
use std::sync::Arc;
use std::time::Duration;

/// Relays one request. `idle` is the idle timeout of both bodies; `guard` is held until the response, or the tunnel
/// that it turns into, has ended.
pub fn relay<G: Send + 'static>(
    request: Request<Incoming>,
    upstream: &Arc<Upstream>,
    idle: Duration,
    guard: G,
) -> impl Future<Output = Response<ReplyBody>> + Send + use<G> {
    let upstream = Arc::clone(upstream);
    // Not an async function, whose future would reserve room for the request twice.
    if *request.method() == Method::CONNECT {
        let error = ProxyError::MethodNotAllowed { method: request.method().to_string() };
        return Either::Left(Either::Left(ready(error_response(&error))));
    }
    if is_upgrade(&request) {
        // In a box, so that nearly all requests, which are others, need not reserve room for it.
        let upgraded = async move { upgrade::upgrade(request, &upstream, idle, guard).await };
        return Either::Left(Either::Right(Box::pin(upgraded)));
    }
    let prepared = upstream.prepare(request.map(|body| UpBody::relay(body, idle)));
    Either::Right(async move { answer(upstream.send_prepared(prepared).await, idle, guard) })
}

fn answer(
    sent: Result<Response<Incoming>, ProxyError>,
    idle: Duration,
    guard: impl Send + 'static,
) -> Response<ReplyBody> {
    match sent {
        Ok(response) => reply(response, idle, guard),
        Err(error) => error_response(&error),
    }
}

/// The upstream's response as ours, its body relayed as it comes.
pub(super) fn reply(
    response: Response<Incoming>,
    idle: Duration,
    guard: impl Send + 'static,
) -> Response<ReplyBody> {
    response.map(|body| ReplyBody::relay(body, idle, guard))
}
