//! The validator of requests for a message: applies all rules, in the order in which the API reports errors. A pure function of
//! one request, for the simulated upstream and for tests. Which wordings are Anthropic's own is marked where an error is made:
//! [`MessagesError::invalid`] or [`MessagesError::unrecorded`].

use super::binding::{BoundThinking, ForeignSignatures};
use super::error::MessagesError;
use super::head::RequestHead;
use super::{binding, blocks, members, merged, order, thinking, thread, tools};
use serde_json::Value;

/// What is wrong with a request for a message, in Anthropic's words where those are known; nothing for one that passes. The
/// function reads one request alone: it cannot check a continued thread against the conversation that the upstream keeps.
pub fn violations(head: &RequestHead, body: &[u8]) -> Vec<String> {
    let errors = match serde_json::from_slice(body) {
        Ok(body) => errors_of(head, &body, Checks::OF_TESTS),
        Err(error) => vec![not_json(&error)],
    };
    errors.into_iter().map(|error| error.message).collect()
}

/// The status and the body with which the API refuses the request `request_id`; `None` for one that passes.
pub fn refusal(head: &RequestHead, body: &[u8], request_id: &str) -> Option<(u16, Value)> {
    let error = match serde_json::from_slice(body) {
        Ok(body) => errors_of(head, &body, Checks::OF_TESTS).into_iter().next()?,
        Err(error) => not_json(&error),
    };
    Some((error.status.as_u16(), error.body(request_id)))
}

/// The signature of a thinking block at the beginning of the reply to the request `body`; `thinking` is the block's text. For a
/// later thinking block of the reply, append an assistant message with the blocks before it to the messages of `body`.
pub fn sign(body: &Value, thinking: &str) -> String {
    BoundThinking::read(body, &merged::merge(&body["messages"]), ForeignSignatures::Accepted).sign(thinking)
}

/// What the rules depend on beside the request.
#[derive(Clone, Copy)]
pub(super) struct Checks {
    /// Whether `max_tokens` is required, as for all requests but those that only count tokens.
    pub needs_max_tokens: bool,
    /// Whether signatures of another upstream pass.
    pub foreign_signatures: ForeignSignatures,
}

impl Checks {
    /// For requests of tests, which may have recorded signatures.
    pub(super) const OF_TESTS: Self =
        Self { needs_max_tokens: true, foreign_signatures: ForeignSignatures::Accepted };
}

/// The error for a body that is no JSON.
pub(super) fn not_json(error: &serde_json::Error) -> MessagesError {
    MessagesError::unrecorded(format!("The request body is not valid JSON: {error}"))
}

/// The errors of a request, the one that the API reports first.
pub(super) fn errors_of(head: &RequestHead, body: &Value, checks: Checks) -> Vec<MessagesError> {
    let mut found = Vec::new();
    members::check_head(head, &mut found);
    members::check(head, body, checks.needs_max_tokens, &mut found);
    thread::check(body, &mut found);
    let messages = merged::merge(&body["messages"]);
    tools::check(body, &mut found);
    tools::check_choice(body, &tools::declared(body, &messages), &mut found);
    blocks::check_messages(head, body, &mut found);
    blocks::check_blocks(head, &messages, &mut found);
    members::check_breakpoints(body, &messages, &mut found);
    order::check_system_messages(body, &messages, &mut found);
    let is_continued = body["thread"]["type"] == "continue";
    order::check_pairs(&messages, is_continued, &mut found);
    order::check_prefill(body, &messages, &mut found);
    thinking::check(body, &messages, &mut found);
    // A request that continues a thread does not have the thread's conversation.
    if !is_continued {
        let bound = BoundThinking::read(body, &messages, checks.foreign_signatures);
        binding::check(head, body, &bound, &mut found);
    }
    found
}
