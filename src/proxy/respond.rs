//! Error responses of toolrein's own, in OpenAI's shape. The caller decides which error it is.

use super::body::ReplyBody;
use super::error::ProxyError;
use super::request_id::REQUEST_ID;
use crate::dialect::error::own_error_body;
use crate::plan::details;
use bytes::Bytes;
use hyper::http::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER, UPGRADE, WWW_AUTHENTICATE};
use hyper::http::{HeaderValue, Response, StatusCode};
use serde_json::Value;

/// `{"error":{"message","type":"toolrein_error","param":null,"code"}}` with the error's status, and `x-should-retry`
/// where the answer is known: OpenAI's SDKs obey it.
pub fn error_response(error: &ProxyError) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::full(own_body(error, &error.message(), None)));
    *response.status_mut() =
        StatusCode::from_u16(error.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    // For the request record.
    response.extensions_mut().insert(error.clone());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(retry) = error.retry() {
        headers.insert("x-should-retry", HeaderValue::from_static(if retry { "true" } else { "false" }));
    }
    if let ProxyError::Exhausted { reason, .. } = error
        && let Some((_, ms)) = reason.numbers.iter().find(|(name, _)| *name == "retry_after_ms")
    {
        headers.insert(RETRY_AFTER, HeaderValue::from(ms.div_ceil(1000)));
    }
    if *error == ProxyError::NoMemory {
        headers.insert(RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_SECONDS));
    }
    if let ProxyError::MethodNotAllowed { .. } = error {
        // The standard requires the list of supported methods.
        headers
            .insert(ALLOW, HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, TRACE"));
    }
    if *error == ProxyError::UnknownCaller {
        // RFC 9110, section 15.5.2, requires it.
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if *error == ProxyError::WebSocketNotGoverned {
        // 426 must name the protocol to use instead (RFC 9110, section 15.5.22), and the field its option (7.8).
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("HTTP/1.1"));
    }
    response
}

/// The response for a caller on another machine: where it is an error of toolrein's that names the upstream's address, the
/// caller does not get it, and the log does.
pub fn for_strangers(mut response: Response<ReplyBody>) -> Response<ReplyBody> {
    let Some(error) = response.extensions().get::<ProxyError>().filter(|error| error.names_the_upstream())
    else {
        return response;
    };
    tracing::warn!(code = error.code(), "{error}");
    let request_id = response.headers().get(&REQUEST_ID).and_then(|id| id.to_str().ok());
    let body = own_body(error, &error.public_message(), request_id);
    *response.body_mut() = ReplyBody::full(body);
    response
}

/// The body with this message; the numbers and times of the error's reason and the request's id are beside its code.
pub(super) fn own_body(error: &ProxyError, message: &str, request_id: Option<&str>) -> Bytes {
    let body = own_error_body(message, error.code());
    let mut more: Vec<(&str, Value)> = request_id.map(|id| ("request_id", id.into())).into_iter().collect();
    if let ProxyError::Exhausted { reason, .. } = error {
        more.extend(details(reason));
    }
    Bytes::from(with_members(&body, more).unwrap_or(body))
}

/// The error `body` with more members of `error`.
fn with_members(body: &str, more: Vec<(&str, Value)>) -> Option<String> {
    let mut body: Value = serde_json::from_str(body).ok().filter(|_| !more.is_empty())?;
    let error = body.get_mut("error")?.as_object_mut()?;
    error.extend(more.into_iter().map(|(name, value)| (name.to_owned(), value)));
    Some(body.to_string())
}

/// When there may be memory again: most replies take a few seconds.
const RETRY_AFTER_SECONDS: &str = "5";

#[cfg(test)]
mod tests {
    use super::super::error::TlsFailure;
    use super::*;
    use crate::plan::Reason;
    use http_body_util::BodyExt;

    #[tokio::test]
    async fn an_error_has_openais_shape_and_says_whether_to_retry() {
        let error = ProxyError::UpstreamConnect { host: "h:1".into(), detail: "refused".into() };
        let response = error_response(&error);
        assert_eq!(response.status(), 502);
        assert_eq!(response.headers()["x-should-retry"], "true");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["error"]["code"], "upstream_unreachable");
        assert_eq!(body["error"]["type"], "toolrein_error");
        assert!(body["error"]["param"].is_null());
        assert!(body["error"]["message"].as_str().unwrap().contains("h:1"));
    }

    #[tokio::test]
    async fn errors_for_remote_callers_hide_the_upstream_and_nothing_else() {
        let (host, detail) = ("gpu-7.internal:8000".to_owned(), "10.0.0.7 refused".to_owned());
        for error in [
            ProxyError::UpstreamConnect { host: host.clone(), detail: detail.clone() },
            ProxyError::UpstreamTls {
                host: host.clone(),
                detail: detail.clone(),
                failure: TlsFailure::BrokenOff,
            },
            ProxyError::UpstreamTimeout { host: host.clone(), waited_ms: 5 },
            ProxyError::UpstreamHints { host: host.clone(), count: 5 },
            ProxyError::UpstreamCut { host: host.clone(), detail },
        ] {
            let response = for_strangers(error_response(&error));
            assert_eq!(response.status(), error.status());
            assert!(response.headers().contains_key("x-should-retry"));
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(body["error"]["code"], error.code());
            let message = body["error"]["message"].as_str().unwrap();
            assert!(
                !message.contains("gpu-7") && !message.contains("10.0.0.7") && message.len() > 40,
                "{message}"
            );
        }
        let own = ProxyError::RequestTooLong { limit: 7 };
        let body = for_strangers(error_response(&own)).into_body().collect().await.unwrap().to_bytes();
        assert!(String::from_utf8_lossy(&body).contains("7 bytes"), "other errors say what they say to all");
    }

    #[test]
    fn a_refusal_is_not_to_be_retried_and_an_unknown_outcome_gives_no_advice() {
        let refused = ProxyError::Refused { code: "budget_exhausted", message: "No.".into() };
        assert_eq!(error_response(&refused).headers()["x-should-retry"], "false");
        let internal = error_response(&ProxyError::Internal { detail: "secret".into() });
        assert!(!internal.headers().contains_key("x-should-retry"));
    }

    #[tokio::test]
    async fn the_error_for_a_used_up_limit_says_when_to_retry() {
        let numbers = vec![("remaining", 0), ("retry_after_ms", 41_200)];
        let reason =
            Reason::new(crate::plan::ReasonKind::RateLimit, "No.").with(numbers).at("reset_at", 60_000);
        let error = ProxyError::Exhausted { code: "quota_exhausted", reason: Box::new(reason) };
        let response = error_response(&error);
        assert_eq!(response.status(), 429);
        let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
        assert_eq!((header("x-should-retry").as_str(), header("retry-after").as_str()), ("false", "42"));
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let error = &serde_json::from_slice::<Value>(&body).unwrap()["error"];
        assert_eq!((&error["code"], &error["type"]), (&"quota_exhausted".into(), &"toolrein_error".into()));
        assert_eq!((&error["message"], &error["remaining"]), (&"No.".into(), &0.into()));
        assert_eq!(error["reset_at"], "1970-01-01T00:01:00Z");
    }
}
