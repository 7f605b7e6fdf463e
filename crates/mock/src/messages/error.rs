//! An error response of the Messages API: status, `type`, message and details. Other modules decide which request gets which
//! error, and whether its wording is recorded.
//!
//! Source of shape, types and statuses: recorded refusals and public issue threads.

use crate::refusal::Refusal;
use hyper::http::StatusCode;
use serde_json::{Value, json};

/// Why a request is not answered.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MessagesError {
    /// The HTTP status.
    pub status: StatusCode,
    /// Anthropic's `error.type`.
    pub kind: &'static str,
    /// The text for the client.
    pub message: String,
    /// The member `error.details`; null if the error has none.
    pub details: Value,
}

impl MessagesError {
    /// A request that breaks a rule, in words of Anthropic's that a recording or a public thread shows.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            kind: "invalid_request_error",
            message: message.into(),
            details: Value::Null,
        }
    }

    /// A request that breaks a rule for which no wording is recorded: the rule is Anthropic's, the words need not be.
    pub(super) fn unrecorded(message: impl Into<String>) -> Self {
        Self::invalid(message)
    }

    /// A model or a thread that does not exist.
    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self { status: StatusCode::NOT_FOUND, kind: "not_found_error", ..Self::invalid(message) }
    }

    /// What the server and the models refuse, with the type that goes with the status.
    pub(super) fn from_refusal(refusal: Refusal) -> Self {
        let Refusal { status, message, .. } = refusal;
        match status {
            StatusCode::PAYLOAD_TOO_LARGE => Self {
                status,
                kind: "request_too_large",
                ..Self::unrecorded("Request exceeds the maximum size")
            },
            StatusCode::REQUEST_TIMEOUT => Self { status, kind: "timeout_error", ..Self::invalid(message) },
            status => Self { status, ..Self::invalid(message) },
        }
    }

    /// A member that the API does not know, or whose beta the request does not name.
    pub(super) fn extra_input(path: &str) -> Self {
        Self::invalid(format!("{path}: Extra inputs are not permitted"))
    }

    /// A required member that the request does not have.
    pub(super) fn field_required(path: &str) -> Self {
        Self::invalid(format!("{path}: Field required"))
    }

    /// A member of the wrong type; `expected` is the type in Pydantic's words, such as `list`.
    pub(super) fn wrong_type(path: &str, expected: &str) -> Self {
        Self::invalid(format!("{path}: Input should be a valid {expected}"))
    }

    /// A string that does not match its pattern.
    pub(super) fn wrong_pattern(path: &str, pattern: &str) -> Self {
        Self::unrecorded(format!("{path}: String should match pattern '{pattern}'"))
    }

    /// The same with `error.details.error_code`, which the errors of threads have.
    pub(super) fn coded(self, code: &str) -> Self {
        Self { details: json!({"error_code": code}), ..self }
    }

    /// The body of the response to the request `request_id`.
    pub(super) fn body(&self, request_id: &str) -> Value {
        let mut error = json!({"type": self.kind, "message": self.message});
        if !self.details.is_null() {
            error["details"] = self.details.clone();
        }
        json!({"type": "error", "error": error, "request_id": request_id})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_server_has_the_type_that_goes_with_its_status() {
        for (status, kind) in
            [(400, "invalid_request_error"), (408, "timeout_error"), (413, "request_too_large")]
        {
            let refusal = Refusal::plain(StatusCode::from_u16(status).unwrap(), "text");
            let error = MessagesError::from_refusal(refusal);
            assert_eq!((error.status.as_u16(), error.kind), (status, kind));
        }
    }
}
