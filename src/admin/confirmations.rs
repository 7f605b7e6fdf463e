//! The calls that wait for a person's word: who holds the bearer token reads them and answers. Reads and writes JSON; what
//! an answer leads to is the proxy's affair.
//!
//! A call is named by its token, 128 random bits that are told on this page alone: whoever tried a thousand million of
//! them each second would need more than the age of the universe, so attempts are not counted.

use super::{Admin, Answer, JSON};
use crate::ledger::held::{End, Shown};
use hyper::http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::SystemTime;

/// Where they are listed, and, with a token behind a slash, answered.
pub(super) const PATH: &str = "/api/confirmations";

/// What is asked of these pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked<'a> {
    List,
    Answer(&'a str),
}

/// The body of an answer.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    approve: bool,
}

impl<'a> Asked<'a> {
    /// What the path asks, if it is one of these.
    pub(super) fn of(path: &'a str) -> Option<Self> {
        match path.strip_prefix(PATH)? {
            "" => Some(Self::List),
            behind => behind.strip_prefix('/').filter(|token| !token.is_empty()).map(Self::Answer),
        }
    }

    /// The methods that it takes.
    pub(super) fn methods(self) -> (&'static [Method], &'static str) {
        match self {
            Self::List => (&[Method::GET, Method::HEAD], "GET, HEAD"),
            Self::Answer(_) => (&[Method::POST], "POST"),
        }
    }
}

impl Admin {
    pub(super) fn confirmations(&self, asked: Asked<'_>, body: &[u8]) -> Answer {
        match asked {
            Asked::List => {
                let data: Vec<Value> =
                    self.held.list().into_iter().map(|(token, shown)| line(&token, &shown)).collect();
                Answer(StatusCode::OK, JSON, json!({"object": "list", "data": data}).to_string().into())
            }
            Asked::Answer(token) => self.answer_call(token, body),
        }
    }

    fn answer_call(&self, token: &str, body: &[u8]) -> Answer {
        let Ok(Said { approve }) = serde_json::from_slice::<Said>(body) else {
            let message = "The body is to be {\"approve\": true} or {\"approve\": false}.";
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

/// Why there is nothing to answer: a closed list of codes.
fn ended(end: Option<End>) -> (&'static str, &'static str) {
    match end {
        None => ("confirmation_unknown", "No call waits under this token, and none is known to have waited."),
        Some(End::Approved | End::Declined) => {
            ("confirmation_answered", "This call was answered before; an answer counts once.")
        }
        Some(End::Expired) => ("confirmation_expired", "Nobody answered in time; the call was not run."),
        Some(End::Left | End::Stopped | End::Refused) => {
            ("confirmation_gone", "The program that made this call waits no longer; the call was not run.")
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
