//! Pending approvals: the holder of the bearer token lists the calls that wait for a person's decision, and approves or
//! declines them. Reads and writes JSON; the proxy acts on the decision.
//!
//! A call is named by its token, 128 random bits that are shown on this page alone. Trying a thousand million of them
//! each second would take more than the age of the universe, so attempts are not counted.

use super::{Admin, Answer, JSON};
use crate::store::held::{End, Shown};
use hyper::http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::SystemTime;

/// The path of the list and, with a slash and a token after it, of one answer.
pub(super) const PATH: &str = "/api/confirmations";

/// A route of these pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route<'a> {
    List,
    Answer(&'a str),
}

/// The body of an answer.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    approve: bool,
}

impl<'a> Route<'a> {
    /// The route of a path, if it is one of these.
    pub(super) fn of(path: &'a str) -> Option<Self> {
        match path.strip_prefix(PATH)? {
            "" => Some(Self::List),
            rest => rest.strip_prefix('/').filter(|token| !token.is_empty()).map(Self::Answer),
        }
    }

    /// The allowed methods.
    pub(super) fn methods(self) -> (&'static [Method], &'static str) {
        match self {
            Self::List => (&[Method::GET, Method::HEAD], "GET, HEAD"),
            Self::Answer(_) => (&[Method::POST], "POST"),
        }
    }
}

impl Admin {
    pub(super) fn confirmations(&self, route: Route<'_>, body: &[u8]) -> Answer {
        match route {
            Route::List => {
                let data: Vec<Value> =
                    self.held.list().into_iter().map(|(token, shown)| line(&token, &shown)).collect();
                Answer(StatusCode::OK, JSON, json!({"object": "list", "data": data}).to_string().into())
            }
            Route::Answer(token) => self.answer_call(token, body),
        }
    }

    fn answer_call(&self, token: &str, body: &[u8]) -> Answer {
        let Ok(Said { approve }) = serde_json::from_slice::<Said>(body) else {
            let message = "The body must be {\"approve\": true} or {\"approve\": false}.";
            return Answer::error(StatusCode::BAD_REQUEST, message, "bad_answer");
        };
        match self.held.answer(token, approve) {
            Ok(shown) => {
                let outcome = if approve { "approved" } else { "declined" };
                let body = json!({"token": token, "tool": shown.tool, "outcome": outcome});
                Answer(StatusCode::OK, JSON, body.to_string().into())
            }
            Err(end) => {
                let (code, message) = ended(end);
                Answer::error(StatusCode::NOT_FOUND, message, code)
            }
        }
    }
}

/// Why there is no call to answer: a closed list of codes.
fn ended(end: Option<End>) -> (&'static str, &'static str) {
    match end {
        None => {
            ("confirmation_unknown", "No call waits under this token, and none is known to have done so.")
        }
        Some(End::Approved | End::Declined) => {
            ("confirmation_answered", "This call has been answered already; only the first answer counts.")
        }
        Some(End::Expired) => ("confirmation_expired", "Nobody answered in time; the call was not run."),
        Some(End::Left | End::Stopped | End::Refused) => {
            ("confirmation_gone", "The client of this call is no longer connected; the call was not run.")
        }
    }
}

fn line(token: &str, shown: &Shown) -> Value {
    let time = |at: SystemTime| humantime::format_rfc3339_millis(at).to_string();
    json!({
        "token": token,
        "tool": shown.tool,
        "arguments": shown.arguments,
        "readable": shown.readable,
        "conversation": shown.conversation,
        "since": time(shown.since),
        "expires": time(shown.expires),
    })
}
