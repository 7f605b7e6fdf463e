//! The Messages API of the simulated upstream, after Anthropic's, and a strict validator of its requests. What is refused is
//! decided by the modules below, in Anthropic's words and error shape.

mod blocks;
mod error;
mod generation;
mod head;
mod members;
mod merged;
mod order;
#[cfg(test)]
mod tests;
mod thinking;
mod thread;
mod tools;

pub use head::RequestHead;

use error::MessagesError;
use serde_json::Value;

/// What is wrong with a request for a message, in Anthropic's words where those are known; nothing for one that passes. It
/// sees one request alone: what a thread that goes on had before is taken to be right.
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

fn not_json(error: &serde_json::Error) -> MessagesError {
    MessagesError::invalid(format!("The request body is not valid JSON: {error}"))
}

/// The errors of a request, the one that the API reports first. `max_tokens` is required if `needs_max_tokens` is true.
fn errors_of(head: &RequestHead, body: &Value, needs_max_tokens: bool) -> Vec<MessagesError> {
    let mut found = Vec::new();
    members::check_head(head, &mut found);
    members::check(head, body, needs_max_tokens, &mut found);
    thread::check(body, &mut found);
    let messages = merged::merge(&body["messages"]);
    tools::check(body, &mut found);
    tools::check_choice(body, &tools::declared(body, &messages), &mut found);
    blocks::check_messages(head, body, &mut found);
    blocks::check_blocks(head, &messages, &mut found);
    members::check_breakpoints(body, &messages, &mut found);
    order::check_system_messages(body, &messages, &mut found);
    order::check_pairs(&messages, body["thread"]["type"] == "continue", &mut found);
    order::check_prefill(body, &messages, &mut found);
    thinking::check(body, &messages, &mut found);
    found
}
