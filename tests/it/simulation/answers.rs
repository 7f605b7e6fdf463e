//! Checks on re-asks and on the client's bill: a re-ask asks for one choice, a final-answer request is sent as such
//! and no call follows it, usage is the sum over all replies, and an approval hands its calls to one request only.

use super::check::{Found, lossy};
use super::client::Client;
use super::driver::Passed;
use super::model::TOKENS;
use bytes::Bytes;
use dialects::variant::Tools;
use model::plan::approval::Confirmation;
use serde_json::Value;
use std::sync::Arc;

/// Each re-ask and each final-answer request has the right form.
pub fn asked(passed: &Passed) -> Found {
    for (sent, form) in passed.sent.iter().zip(&passed.forms) {
        let Some(asking) = &form.asking else { continue };
        let request: Value = serde_json::from_slice(sent).unwrap_or_default();
        if request["n"].as_u64().unwrap_or(1) != 1 {
            return Err(format!("more than one choice asked for again: {request}"));
        }
        let lands = asking.land && form.tools() == Tools::Kept && request["tools"].is_array();
        if lands && request["tool_choice"] != "none" {
            return Err(format!("asked for an answer and left the choice: {request}"));
        }
    }
    let landed = passed.landed_at.filter(|_| !passed.keeps_tools).unwrap_or(passed.record.len());
    match passed.record[landed..].iter().find(|judged| judged.decision.is_released()) {
        Some(judged) => Err(format!("asked for an answer, and then a call of {} went out", judged.tool)),
        None => Ok(()),
    }
}

/// The usage that the client gets is the sum over all replies, because each of them was billed; so is what is recorded.
pub fn usage(client: &Client, passed: &Passed, reply: &Bytes) -> Found {
    if passed.approved.is_some() {
        return Ok(());
    }
    let text = lossy(reply);
    let data =
        text.split("\n\n").filter_map(|event| event.lines().find_map(|line| line.strip_prefix("data: ")));
    let bodies: Vec<&str> = if client.is_stream { data.collect() } else { vec![&text] };
    let bodies = bodies.into_iter().filter_map(|body| serde_json::from_str::<Value>(body).ok());
    let told: Vec<u64> = bodies.filter_map(|body| body["usage"]["total_tokens"].as_u64()).collect();
    let expected = TOKENS * passed.raw.len() as u64;
    if told != [expected] {
        return Err(format!("usage {told:?} where {expected} were billed"));
    }
    match passed.billed {
        billed if billed == expected => Ok(()),
        billed => Err(format!("{billed} tokens recorded where {expected} were billed")),
    }
}

/// The calls that were handed out after an approval, and to which request.
#[derive(Default)]
pub struct Taken(Vec<(Arc<Confirmation>, Bytes)>);

impl Taken {
    /// The calls of one question go to one request, however often that request is sent.
    pub fn check(&mut self, body: &Bytes, passed: &Passed) -> Found {
        let Some(approved) = &passed.approved else { return Ok(()) };
        match self.0.iter().find(|(known, _)| Arc::ptr_eq(known, approved)) {
            Some((_, first)) if first != body => {
                Err(format!("calls given out twice, to {} and to {}", lossy(first), lossy(body)))
            }
            Some(_) => Ok(()),
            None => {
                self.0.push((Arc::clone(approved), body.clone()));
                Ok(())
            }
        }
    }
}
