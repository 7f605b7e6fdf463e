//! Refusals in unknown wordings: whether another variant of the same request might be accepted.
//!
//! Distinguishes an upstream that objects to the form of a request from one that is busy, broken, or objects to the
//! caller or to what the user wrote. Chat templates have too many wordings, so the status comes first. Only for
//! requests that toolrein sent in another variant than the client's.

use super::super::error::UpstreamError;
use super::words::cut;
use super::{MESSAGES, no_form_helps};

/// Whether the error may be an objection to the form of the request. `status`: the HTTP status that it came with, 200
/// where it came inside a reply and names none.
#[must_use]
pub fn may_be_about_the_form(status: u16, error: &UpstreamError) -> bool {
    match status {
        // These concern the caller's key, credit, rights and rate, an unknown address, or sizes.
        401..=404 | 407 | 408 | 413 | 429 => false,
        400..=499 => !no_form_helps(error),
        200 | 500 => !no_form_helps(error) && speaks_of_a_template(error),
        _ => false,
    }
}

/// Words of template engines and validators that refuse a conversation.
const TEMPLATE: &[&str] = &[
    "template",
    "jinja",
    "raise_exception",
    "role",
    "system message",
    "system prompt",
    "validation",
    "invalid",
    "unexpected",
    "unsupported",
    "not supported",
    "must ",
];
/// Words of a server about its own state.
const STATE: &[&str] = &[
    "overload",
    "unavailable",
    "capacity",
    "timeout",
    "timed out",
    "try again",
    "retry",
    "out of memory",
    "rate limit",
    "connection",
];

fn speaks_of_a_template(error: &UpstreamError) -> bool {
    let says = |words: &[&str]| {
        error.messages.iter().take(MESSAGES).any(|text| {
            let text = cut(text).to_lowercase();
            words.iter().any(|word| text.contains(word))
        })
    };
    says(TEMPLATE) && !says(STATE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(status: u16, message: &str) -> bool {
        let messages = vec![message.to_owned()];
        may_be_about_the_form(status, &UpstreamError { messages, ..UpstreamError::default() })
    }

    #[test]
    fn a_4xx_refusal_in_any_wording_may_be_about_the_form_of_the_request() {
        for status in [400, 405, 409, 415, 422] {
            assert!(judged(status, "never seen before"), "{status}");
            assert!(may_be_about_the_form(status, &UpstreamError::default()), "{status} without a word");
        }
        for status in [200, 500] {
            for message in [
                "Unexpected combination of role and message content",
                "While executing CallExpression: Jinja Exception: no",
                "chat template error",
            ] {
                assert!(judged(status, message), "{message}");
            }
        }
    }

    #[test]
    fn errors_that_another_form_of_the_request_cannot_fix_are_not_retried() {
        for status in [401, 402, 403, 404, 407, 408, 413, 429, 501, 502, 503, 504, 529] {
            assert!(!judged(status, "Invalid message role"), "{status}");
        }
        for message in [
            "Internal server error",
            "The engine is overloaded: invalid state",
            "Unexpected timeout",
            "upstream connection reset: unexpected end",
        ] {
            assert!(!judged(500, message) && !judged(200, message), "{message}");
        }
        assert!(!may_be_about_the_form(500, &UpstreamError::default()));
        assert!(!judged(400, "Your prompt was flagged as violating our usage policy: invalid role"));
        let filtered = UpstreamError { code: Some("content_filter".into()), ..UpstreamError::default() };
        assert!(!may_be_about_the_form(400, &filtered));
    }
}
