//! Asking the upstream again in the middle of a stream: the request sent, what it has brought, and how a refusal is
//! told. Decides on nothing.

use super::is_stream;
use crate::proxy::body::UpBody;
use crate::proxy::coding;
use crate::proxy::error::ProxyError;
use crate::proxy::handler::Gateway;
use crate::proxy::sniff;
use crate::proxy::upstream::EndsByClosing;
use crate::rewrite::other_form::stream_of;
use crate::wire::coding::Decoder;
use crate::wire::error::{own_error_body, parse};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use serde_json::json;
use std::sync::Arc;
use tokio::time::timeout;

/// Most of an error body that is read.
const ERROR_BYTES: usize = 64 * 1024;

/// What asking again has brought.
pub(super) enum Asked {
    Stream {
        body: Incoming,
        /// `None` where the stream is not compressed.
        decoder: Option<Box<Decoder>>,
        /// See [`EndsByClosing`].
        ends_by_closing: bool,
    },
    /// A whole reply, as the events of a stream.
    Whole(Bytes),
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
    if status.is_success()
        && is_stream(response.headers())
        && let Ok(decoder) = coding::decoder(response.headers())
    {
        let ends_by_closing = response.extensions().get::<EndsByClosing>().is_some();
        let decoder = decoder.map(Box::new);
        return Asked::Stream { body: response.into_body(), decoder, ends_by_closing };
    }
    let most = if status.is_success() { gateway.config.limits.reply_bytes } else { ERROR_BYTES };
    let (head, body) = response.into_parts();
    let body = Limited::new(body, most).collect();
    let idle = gateway.config.upstream.idle_timeout;
    let body = timeout(idle, body).await.ok().and_then(Result::ok).map(|body| body.to_bytes());
    let body = body.unwrap_or_default();
    let body = coding::decode(&head.headers, &body, most).unwrap_or(body);
    match events(&body).filter(|_| status.is_success()) {
        Some(events) => Asked::Whole(events),
        None => Asked::Refused { status: status.as_u16(), body },
    }
}

/// The events of a reply that came whole: it is a stream under another name, or a reply in the other form.
fn events(body: &Bytes) -> Option<Bytes> {
    if sniff::is_events(body) == Some(true) { Some(body.clone()) } else { stream_of(body) }
}

/// An upstream's error as the data of an event.
pub(super) fn error_data(status: u16, body: &[u8]) -> Vec<u8> {
    let is_object = |value: &serde_json::Value| value.get("error").is_some_and(serde_json::Value::is_object);
    match serde_json::from_slice::<serde_json::Value>(body) {
        // The error alone: clients that do not look for errors would run calls beside it.
        Ok(value) if is_object(&value) => json!({ "error": value["error"] }).to_string().into_bytes(),
        _ => {
            let said = parse(body).map(|error| error.messages.join("; ")).filter(|said| !said.is_empty());
            let said = said.map_or_else(String::new, |said| format!(": {said}"));
            let message = format!("The upstream refused to be asked again with status {status}{said}");
            own_error_body(&message, "reask_failed").into_bytes()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstreams_error_object_is_told_as_it_is_and_anything_else_in_our_shape() {
        let told = |body: &str| String::from_utf8(error_data(429, body.as_bytes())).unwrap();
        assert_eq!(told("{\"error\": {\"message\": \"slow\"}}"), r#"{"error":{"message":"slow"}}"#);
        let with_call = r#"{"error":{"message":"slow"},"choices":[{"delta":{"tool_calls":[{}]}}]}"#;
        assert_eq!(told(with_call), r#"{"error":{"message":"slow"}}"#);
        assert!(told("gone").contains("status 429: gone"));
    }
}
