//! The path of what toolrein does not govern: any method and path to the upstream, and its response
//! back, byte for byte and chunk by chunk. It looks at no body, holds nothing back and counts nothing.

use super::body::{ReplyBody, UpBody};
use super::error::ProxyError;
use super::headers::is_upgrade;
use super::respond::error_response;
use super::upgrade;
use super::upstream::Upstream;
use hyper::body::Incoming;
use hyper::http::{Method, Request, Response, StatusCode};
use std::time::Duration;

/// Relays one request. `idle` is how long either side may be silent inside a body; `guard` is held until
/// the response, or the tunnel that it turns into, has ended.
pub async fn relay(
    request: Request<Incoming>,
    upstream: &Upstream,
    idle: Duration,
    guard: impl Send + 'static,
) -> Response<ReplyBody> {
    if *request.method() == Method::CONNECT {
        return error_response(&ProxyError::MethodNotAllowed { method: request.method().to_string() });
    }
    if is_upgrade(&request) {
        // In a box, so that other requests, which are nearly all, need not make room for it.
        return Box::pin(upgrade::upgrade(request, upstream, idle, guard)).await;
    }
    match upstream.send(request.map(|body| UpBody::relay(body, idle))).await {
        Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
            error_response(&ProxyError::UpstreamCut {
                host: upstream.name().to_owned(),
                detail: "it switched protocols without being asked".into(),
            })
        }
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
