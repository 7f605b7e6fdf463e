//! An error response in OpenAI's shape: status, message, type, parameter and code. Has constructors for the general
//! ones; other modules decide which request gets which.

use hyper::http::StatusCode;
use serde_json::{Value, json};

/// Why a request is not answered.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Refusal {
    /// The HTTP status.
    pub status: StatusCode,
    /// OpenAI's `type`.
    pub kind: &'static str,
    /// The text for the client.
    pub message: String,
    /// The path of the parameter to blame.
    pub param: Option<String>,
    /// OpenAI's `code`.
    pub code: Code,
}

/// A `code` as providers write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    /// `null`.
    Null,
    /// A text.
    Text(&'static str),
    /// The status again, as in vLLM.
    Number(u16),
}

impl Refusal {
    /// A request that breaks a rule; OpenAI leaves most of these without a code.
    pub(super) fn invalid(message: impl Into<String>, param: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..Self::plain(StatusCode::BAD_REQUEST, message) }
    }

    /// An `invalid_request_error` with neither parameter nor code.
    pub(super) fn plain(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, kind: "invalid_request_error", message: message.into(), param: None, code: Code::Null }
    }

    /// The same with a code.
    pub(super) fn coded(self, code: &'static str) -> Self {
        Self { code: Code::Text(code), ..self }
    }

    /// A member that must be there and is not.
    pub(super) fn missing(param: &str) -> Self {
        Self::invalid(format!("Missing required parameter: '{param}'."), param)
            .coded("missing_required_parameter")
    }

    /// A member that OpenAI does not know.
    pub(super) fn unknown_parameter(param: &str) -> Self {
        Self::invalid(format!("Unknown parameter: '{param}'."), param).coded("unknown_parameter")
    }

    /// A member of the wrong type; `expected` carries its article.
    pub(super) fn wrong_type(param: &str, expected: &str, got: &Value) -> Self {
        let got = type_name(got);
        Self::invalid(
            format!("Invalid type for '{param}': expected {expected}, but got {got} instead."),
            param,
        )
        .coded("invalid_type")
    }

    /// A value outside a closed list.
    pub(super) fn unknown_value(param: &str, value: &str, supported: &str) -> Self {
        Self::invalid(format!("Invalid value: '{value}'. Supported values are: {supported}."), param)
            .coded("invalid_value")
    }

    /// An array that must not be empty.
    pub(super) fn empty_array(param: &str) -> Self {
        let rule = "Expected an array with minimum length 1, but got an empty array instead.";
        Self::invalid(format!("Invalid '{param}': empty array. {rule}"), param).coded("empty_array")
    }

    /// A string that must not be empty.
    pub(super) fn empty_string(param: &str) -> Self {
        let rule = "Expected a string with minimum length 1, but got an empty string instead.";
        Self::invalid(format!("Invalid '{param}': empty string. {rule}"), param).coded("empty_string")
    }

    /// An array with more than `max` elements.
    pub(super) fn long_array(param: &str, max: usize, len: usize) -> Self {
        let rule = format!(
            "Expected an array with maximum length {max}, but got an array with length {len} instead."
        );
        Self::invalid(format!("Invalid '{param}': array too long. {rule}"), param)
            .coded("array_above_max_length")
    }

    /// A string of more than `max` characters.
    pub(super) fn long_string(param: &str, max: usize, len: usize) -> Self {
        let rule = format!(
            "Expected a string with maximum length {max}, but got a string with length {len} instead."
        );
        Self::invalid(format!("Invalid '{param}': string too long. {rule}"), param)
            .coded("string_above_max_length")
    }

    /// The body of the response.
    pub(super) fn body(&self) -> Value {
        let code = match self.code {
            Code::Null => Value::Null,
            Code::Text(text) => text.into(),
            Code::Number(number) => number.into(),
        };
        json!({"error": {"message": self.message, "type": self.kind, "param": self.param, "code": code}})
    }
}

/// What OpenAI calls a value of this type.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(number) if number.is_f64() => "a decimal number",
        Value::Number(_) => "an integer",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
