//! The answer of a page of the admin server: a status, a content type and a body; errors have OpenAI's shape.

use super::code::Code;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use dialects::error::own_error_body;
use hyper::http::header::{ALLOW, CONTENT_TYPE, WWW_AUTHENTICATE};
use hyper::http::{HeaderValue, StatusCode};
use serde::Serialize;

pub(super) const TEXT: &str = "text/plain; charset=utf-8";
pub(super) const HTML: &str = "text/html; charset=utf-8";
pub(super) const JSON: &str = "application/json";

/// A status, a content type and a body.
pub(super) struct Answer(pub(super) StatusCode, pub(super) &'static str, pub(super) Bytes);

impl Answer {
    pub(super) fn text(status: StatusCode, text: &'static str) -> Self {
        Self(status, TEXT, Bytes::from_static(text.as_bytes()))
    }

    pub(super) fn error(code: Code, message: &str) -> Self {
        Self(code.status(), JSON, own_error_body(message, code.as_str()).into())
    }

    /// 200 with `body` as JSON.
    pub(super) fn json(body: &impl Serialize) -> Self {
        match serde_json::to_vec(body) {
            Ok(body) => Self(StatusCode::OK, JSON, body.into()),
            Err(error) => {
                let message = format!("The answer cannot be written: {error}.");
                Self::error(Code::Internal, &message)
            }
        }
    }

    pub(super) fn not_found(message: &str) -> Self {
        Self::error(Code::NotFound, message)
    }

    /// The error for a method that the page does not allow; `listed`: those that it does.
    pub(super) fn wrong_method(listed: &'static str) -> Response {
        let message = format!("This path allows {listed}.");
        let answer = Self::error(Code::MethodNotAllowed, &message);
        ([(ALLOW, HeaderValue::from_static(listed))], answer).into_response()
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let Self(status, kind, body) = self;
        let mut response = Response::new(body.into());
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
