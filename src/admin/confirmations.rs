//! Pending approvals: the holder of the bearer token lists the calls that wait for a person's decision, and approves or
//! declines them. Reads and writes JSON; the proxy acts on the decision.
//!
//! A call is named by its token, 128 random bits that are shown on this page alone. Trying a thousand million of them
//! each second would take more than the age of the universe, so attempts are not counted.

use super::Admin;
use super::answer::{Answer, JSON};
use super::code::Code;
use super::pages::{body_of, segment};
use crate::store::held::{End, Ended, Shown, Spoken};
use axum::body::Body;
use axum::extract::State;
use engine::confirm::plain_words;
use hyper::http::{StatusCode, Uri};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::SystemTime;

/// The longest body of an answer, in bytes.
const BODY_BYTES: usize = 4096;

/// The body of an answer.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    /// The decision as a boolean: true approves.
    approve: Option<bool>,
    decision: Option<Decision>,
    /// Who decided.
    approver: Option<String>,
    /// Why, in the person's words.
    reason: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Decision {
    Approve,
    Decline,
}

/// The longest name of a person and the longest reason, in characters.
const MOST_NAME: usize = 100;
const MOST_REASON: usize = 500;

impl Said {
    /// The answer, if the body says exactly one thing.
    fn spoken(self) -> Option<Spoken> {
        let decided = self.decision.map(|decision| decision == Decision::Approve);
        let approve = match (self.approve, decided) {
            (Some(approve), None) | (None, Some(approve)) => approve,
            _ => return None,
        };
        let is_short = |text: &Option<String>, most: usize| {
            text.as_ref().is_none_or(|text| text.chars().nth(most).is_none())
        };
        let is_bounded = is_short(&self.approver, MOST_NAME) && is_short(&self.reason, MOST_REASON);
        let (approver, reason) = (self.approver.map(Arc::from), self.reason.map(Arc::from));
        is_bounded.then_some(Spoken { approve, approver, reason })
    }
}

/// The calls that wait, the oldest first.
pub(super) async fn list(State(admin): State<Arc<Admin>>) -> Answer {
    let data: Vec<Value> = admin.held.list().into_iter().map(|(token, shown)| line(&token, &shown)).collect();
    Answer::json(&json!({"object": "list", "data": data}))
}

/// The decisions on calls that waited, the newest first.
pub(super) async fn history(State(admin): State<Arc<Admin>>) -> Answer {
    let history: Vec<Value> = admin.held.history().iter().map(past).collect();
    Answer::json(&json!({ "history": history }))
}

fn past(ended: &Ended) -> Value {
    let at = ended.at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let decision = match ended.end {
        End::Approved => "approve",
        End::Declined => "decline",
        End::Expired | End::Left | End::Stopped | End::Refused => "lapse",
    };
    json!({
        "at_ms": u64::try_from(at.as_millis()).unwrap_or(u64::MAX),
        "tool": ended.tool,
        "arguments": &*ended.arguments,
        "decision": decision,
        "approver": ended.approver.as_deref(),
        "reason": ended.reason.as_deref(),
    })
}

/// Approves or declines the call of the token in the path.
pub(super) async fn answer(State(admin): State<Arc<Admin>>, uri: Uri, body: Body) -> Answer {
    match body_of(body, BODY_BYTES, admin.body_timeout).await {
        Ok(body) => admin.answer_call(segment(&uri, 2), &body),
        Err(refusal) => refusal,
    }
}

impl Admin {
    fn answer_call(&self, token: &str, body: &[u8]) -> Answer {
        let Some(spoken) = serde_json::from_slice::<Said>(body).ok().and_then(Said::spoken) else {
            let message = "The body must be {\"decision\": \"approve\"} or {\"decision\": \"decline\"}, or {\"approve\": \
                           true} or {\"approve\": false}; with it may come an \"approver\" of up to 100 characters and a \
                           \"reason\" of up to 500.";
            return Answer::error(Code::BadAnswer, message);
        };
        let approve = spoken.approve;
        match self.held.answer(token, spoken) {
            Ok(shown) => {
                let outcome = if approve { "approved" } else { "declined" };
                let body = json!({"token": token, "tool": shown.tool, "outcome": outcome});
                Answer(StatusCode::OK, JSON, body.to_string().into())
            }
            Err(None) => {
                let message = "No call waits under this token, and none is known to have done so.";
                Answer::error(Code::ConfirmationUnknown, message)
            }
            Err(Some(ended)) => {
                let (code, what, so) = late(ended.end);
                let at = humantime::format_rfc3339_millis(ended.at);
                let by = ended.approver.as_deref().and_then(plain_words);
                let by = by.map(|by| format!(" by {by}")).unwrap_or_default();
                let message =
                    format!("The call of {} waits no longer: {what}{by} at {at}, {so}.", ended.tool);
                Answer::error(code, &message)
            }
        }
    }
}

/// Why an answer comes too late: what happened, and what follows from it.
fn late(end: End) -> (Code, &'static str, &'static str) {
    let (answered, gone) = ("and only the first answer counts", "so it was not run");
    match end {
        End::Approved => (Code::ConfirmationAnswered, "it was approved", answered),
        End::Declined => (Code::ConfirmationAnswered, "it was declined", answered),
        End::Expired => (Code::ConfirmationExpired, "nobody had answered in time", gone),
        End::Left => (Code::ConfirmationGone, "its client left", gone),
        End::Stopped => (Code::ConfirmationGone, "toolrein was stopped", gone),
        End::Refused => (Code::ConfirmationGone, "too many calls waited", gone),
    }
}

fn line(token: &str, shown: &Shown) -> Value {
    let time = |at: SystemTime| humantime::format_rfc3339_millis(at).to_string();
    json!({
        "token": token,
        "tool": shown.tool,
        "arguments": shown.arguments,
        "readable": shown.readable,
        "why": shown.why,
        "conversation": shown.conversation,
        "since": time(shown.since),
        "expires": time(shown.expires),
    })
}
