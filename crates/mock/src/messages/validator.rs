//! The validator of requests for a message: applies all rules, in the order in which the API reports errors. A pure function of
//! one request, for the simulated upstream and for tests. Which wordings are Anthropic's own is marked where an error is made:
//! [`MessagesError::invalid`] or [`MessagesError::unrecorded`].

use super::binding::{BoundThinking, ForeignSignatures};
use super::error::MessagesError;
use super::head::RequestHead;
use super::merged::MergedMessage;
use super::{binding, blocks, members, merged, order, thinking, thread, tools};
use serde_json::Value;

/// What is wrong with a request for a message, in Anthropic's words where those are known; nothing for one that passes. The
/// function reads one request alone: it cannot check a continued thread against the conversation that the upstream keeps.
pub fn violations(head: &RequestHead, body: &[u8]) -> Vec<String> {
    let errors = match serde_json::from_slice(body) {
        Ok(body) => errors_of(head, &body, true),
        Err(error) => vec![not_json(&error)],
    };
    errors.into_iter().map(|error| error.message).collect()
}

/// The status and the body with which the API refuses the request `request_id`; `None` for one that passes.
pub fn refusal(head: &RequestHead, body: &[u8], request_id: &str) -> Option<(u16, Value)> {
    let error = match serde_json::from_slice(body) {
        Ok(body) => errors_of(head, &body, true).into_iter().next()?,
        Err(error) => not_json(&error),
    };
    Some((error.status.as_u16(), error.body(request_id)))
}

/// The signature of a thinking block at the beginning of the reply to the request `body`; `thinking` is the block's text. For a
/// later thinking block of the reply, append an assistant message with the blocks before it to the messages of `body`.
pub fn sign(body: &Value, thinking: &str) -> String {
    let messages = merged::merge(&body["messages"]);
    BoundThinking::read(body, &messages, ForeignSignatures::Accepted).signer().sign(thinking)
}

/// The error for a body that is no JSON.
pub(super) fn not_json(error: &serde_json::Error) -> MessagesError {
    MessagesError::unrecorded(format!("The request body is not valid JSON: {error}"))
}

/// The errors of a request, the one that the API reports first. Signatures of another upstream pass: tests have recorded ones.
pub(super) fn errors_of(head: &RequestHead, body: &Value, needs_max_tokens: bool) -> Vec<MessagesError> {
    let messages = merged::merge(&body["messages"]);
    let mut found = rule_errors(head, body, &messages, needs_max_tokens);
    // A request that continues a thread does not have the thread's conversation.
    if !continues_thread(body) {
        let bound = BoundThinking::read(body, &messages, ForeignSignatures::Accepted);
        binding::check(head, body, &bound, &mut found);
    }
    found
}

/// The errors by all rules but those for signatures. `max_tokens` is required unless the request only counts tokens.
pub(super) fn rule_errors(
    head: &RequestHead,
    body: &Value,
    messages: &[MergedMessage<'_>],
    needs_max_tokens: bool,
) -> Vec<MessagesError> {
    let mut found = Vec::new();
    members::check_head(head, &mut found);
    members::check(head, body, needs_max_tokens, &mut found);
    thread::check(body, &mut found);
    tools::check(body, &mut found);
    tools::check_choice(body, &tools::declared(body, messages), &mut found);
    blocks::check_messages(head, body, &mut found);
    blocks::check_blocks(head, messages, &mut found);
    members::check_breakpoints(body, messages, &mut found);
    order::check_system_messages(body, messages, &mut found);
    order::check_pairs(messages, continues_thread(body), &mut found);
    order::check_prefill(body, messages, &mut found);
    thinking::check(body, messages, &mut found);
    found
}

/// Whether the request has only the new messages of a thread.
fn continues_thread(body: &Value) -> bool {
    body["thread"]["type"] == "continue"
}
