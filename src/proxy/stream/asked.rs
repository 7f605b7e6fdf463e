//! Asking the upstream again in the middle of a stream: the request sent, and what it has brought. Decides on
//! nothing.

use super::is_stream;
use crate::proxy::body::UpBody;
use crate::proxy::coding;
use crate::proxy::error::ProxyError;
use crate::proxy::handler::Gateway;
use crate::proxy::sniff;
use crate::proxy::upstream::EndsByClosing;
use crate::rewrite::reply::Form;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use std::sync::Arc;
use tokio::time::timeout;

/// Most of an error body that is read.
const ERROR_BYTES: usize = 64 * 1024;

/// What asking again has brought.
pub(super) enum Asked {
    Stream {
        body: Incoming,
        /// See [`EndsByClosing`].
        ends_by_closing: bool,
    },
    /// A reply that came whole, and what it is by its first bytes.
    Whole(Bytes, Form),
    Refused {
        status: u16,
        body: Bytes,
    },
    Failed(ProxyError),
}

/// Sends `request` and reads the reply's head; of a refusal its body too.
pub(super) async fn ask(gateway: Arc<Gateway>, request: hyper::http::Request<UpBody>) -> Asked {
    let response = match gateway.upstream.send(request).await {
        Ok(response) => response,
        Err(error) => return Asked::Failed(error),
    };
    let status = response.status();
    if status.is_success() && is_stream(response.headers()) && !coding::is_coded(response.headers()) {
        let ends_by_closing = response.extensions().get::<EndsByClosing>().is_some();
        return Asked::Stream { body: response.into_body(), ends_by_closing };
    }
    let most = if status.is_success() { gateway.config.limits.reply_bytes } else { ERROR_BYTES };
    let (head, body) = response.into_parts();
    let body = Limited::new(body, most).collect();
    let idle = gateway.config.upstream.idle_timeout;
    let body = timeout(idle, body).await.ok().and_then(Result::ok).map(|body| body.to_bytes());
    let body = body.unwrap_or_default();
    let body = coding::decode(&head.headers, &body, most).unwrap_or(body);
    if !status.is_success() {
        return Asked::Refused { status: status.as_u16(), body };
    }
    // It may be a stream under another name.
    let form = if sniff::is_events(&body) == Some(true) { Form::Streamed } else { Form::Whole };
    Asked::Whole(body, form)
}
