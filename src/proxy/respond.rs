//! Error responses of toolrein's own, in the shape of the endpoint's API. The caller decides which error it is.

use super::body::ReplyBody;
use super::error::ProxyError;
use super::request_id::REQUEST_ID;
use bytes::Bytes;
use dialects::error::ErrorShape;
use hyper::http::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER, UPGRADE, WWW_AUTHENTICATE};
use hyper::http::{HeaderValue, Response, StatusCode};

/// The response to a request that toolrein itself answers, with the error's status, and `x-should-retry` where the answer
/// is known: OpenAI's and Anthropic's SDKs obey it. [`write_error_body`] writes its body.
pub fn error_response(error: &ProxyError) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::empty());
    *response.status_mut() =
        StatusCode::from_u16(error.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    // For the request record, and for the body.
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

/// Writes the body of a response that is an error of toolrein's own. Called once, when the response leaves: only then are
/// the request's id, which is among the response's headers, and the client known. An [`ErrorShape`] among the response's
/// extensions is the body's. A client on another machine does not get the upstream's address, and the log does.
pub fn write_error_body(response: &mut Response<ReplyBody>, is_local: bool) {
    let Some(error) = response.extensions().get::<ProxyError>() else { return };
    let message = match is_local || !error.names_the_upstream() {
        true => error.message(),
        false => {
            tracing::warn!(code = error.code(), "{error}");
            error.public_message()
        }
    };
    let id = response.headers().get(&REQUEST_ID).and_then(|id| id.to_str().ok()).unwrap_or_default();
    let shape = response.extensions().get::<ErrorShape>().copied().unwrap_or_default();
    let body = error.body(&message, id, shape);
    *response.body_mut() = ReplyBody::full(Bytes::from(body));
}

/// When there may be memory again: most replies take a few seconds.
const RETRY_AFTER_SECONDS: &str = "5";

#[cfg(test)]
mod tests {
    use super::super::error::TlsFailure;
    use super::*;
    use http_body_util::BodyExt;
    use model::plan::Reason;
    use serde_json::Value;

    /// As a client gets it, that is on this machine or not.
    fn answered(error: &ProxyError, is_local: bool) -> Response<ReplyBody> {
        let mut response = error_response(error);
        response.headers_mut().insert(&REQUEST_ID, HeaderValue::from_static("req-1"));
        write_error_body(&mut response, is_local);
        response
    }

    #[tokio::test]
    async fn an_error_has_openais_shape_and_says_whether_to_retry() {
        let error = ProxyError::UpstreamConnect { host: "h:1".into(), detail: "refused".into() };
        let response = answered(&error, true);
        assert_eq!(response.status(), 502);
        assert_eq!(response.headers()["x-should-retry"], "true");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["error"]["code"], "upstream_unreachable");
        assert_eq!(body["error"]["type"], "toolrein_error");
        assert!(body["error"]["param"].is_null());
        assert_eq!(body["error"]["request_id"], "req-1");
        assert!(body["error"]["message"].as_str().unwrap().contains("h:1"));
    }

    #[tokio::test]
    async fn errors_of_the_messages_api_have_anthropics_shape_and_its_types() {
        let reason = Reason::new(model::plan::ReasonKind::RateLimit, "No.").with(vec![("remaining", 0)]);
        for (error, status, kind, code) in [
            (ProxyError::RequestTooLong { limit: 7 }, 413, "request_too_large", "request_too_large"),
            (ProxyError::ThreadNotFound, 404, "not_found_error", "thread_not_found"),
            (ProxyError::UnknownCaller, 401, "authentication_error", "unknown_caller"),
            (ProxyError::NoMemory, 503, "overloaded_error", "out_of_memory"),
            (ProxyError::Internal { detail: "secret".into() }, 500, "api_error", "internal_error"),
            (
                ProxyError::Exhausted { code: "quota_exhausted", reason: Box::new(reason) },
                429,
                "rate_limit_error",
                "quota_exhausted",
            ),
        ] {
            let mut response = error_response(&error);
            response.headers_mut().insert(&REQUEST_ID, HeaderValue::from_static("req-1"));
            response.extensions_mut().insert(ErrorShape::Anthropic);
            write_error_body(&mut response, true);
            assert_eq!(response.status(), status, "{code}");
            if status == 429 {
                assert_eq!(response.headers()["x-should-retry"], "false");
            }
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let body: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!((&body["type"], &body["request_id"]), (&"error".into(), &"req-1".into()), "{body}");
            let error = &body["error"];
            assert_eq!((&error["type"], &error["details"]["error_code"]), (&kind.into(), &code.into()));
            assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()), "{body}");
            if status == 429 {
                assert_eq!(error["details"]["remaining"], 0);
            }
        }
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
            let response = answered(&error, false);
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
        let body = answered(&own, false).into_body().collect().await.unwrap().to_bytes();
        assert!(String::from_utf8_lossy(&body).contains("7 bytes"), "other errors say what they say to all");
    }

    #[tokio::test]
    async fn a_response_that_is_no_error_of_toolreins_keeps_its_body() {
        let mut response = Response::new(ReplyBody::full(Bytes::from_static(b"untouched")));
        write_error_body(&mut response, false);
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "untouched");
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
            Reason::new(model::plan::ReasonKind::RateLimit, "No.").with(numbers).at("reset_at", 60_000);
        let error = ProxyError::Exhausted { code: "quota_exhausted", reason: Box::new(reason) };
        let response = answered(&error, true);
        assert_eq!(response.status(), 429);
        let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
        assert_eq!((header("x-should-retry").as_str(), header("retry-after").as_str()), ("false", "42"));
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let error = &serde_json::from_slice::<Value>(&body).unwrap()["error"];
        assert_eq!((&error["code"], &error["type"]), (&"quota_exhausted".into(), &"toolrein_error".into()));
        assert_eq!((&error["message"], &error["remaining"]), (&"No.".into(), &0.into()));
        assert_eq!(
            (&error["reset_at"], &error["request_id"]),
            (&"1970-01-01T00:01:00Z".into(), &"req-1".into())
        );
    }
}
