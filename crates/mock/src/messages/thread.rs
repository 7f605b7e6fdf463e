//! Rules for `thread`, by which a request continues a reply that the server keeps in memory.
//!
//! Source: the tool runners of anthropic-sdk-python 2.14.0 and anthropic-sdk-typescript 1.14.0. The messages of the errors are
//! not recorded: clients read the codes.

use super::error::MessagesError;
use serde_json::{Value, json};

/// Members that a thread cannot have.
const UNSUPPORTED: [&str; 3] = ["cache_control", "context_management", "fallbacks"];
/// Members that belong to the request that creates a thread.
pub(super) const CREATE_ONLY: [&str; 2] = ["system", "tools"];

/// Checks the member, and the members that it excludes.
pub(super) fn check(body: &Value, found: &mut Vec<MessagesError>) {
    let thread = &body["thread"];
    match (thread, thread["type"].as_str()) {
        (Value::Null, _) => return,
        (_, Some("create")) => check_members(thread, "create", &["type"], found),
        (_, Some("continue")) => {
            check_members(thread, "continue", &["type", "previous_message_id"], found);
            if !thread["previous_message_id"].is_string() {
                found.push(MessagesError::field_required("thread.continue.previous_message_id"));
            }
            if CREATE_ONLY.iter().any(|name| !body[*name].is_null()) {
                found.push(fingerprint_mismatch());
            }
        }
        (_, kind) => found.push(MessagesError::unrecorded(format!(
            "thread: Input tag '{}' found using 'type' does not match any of the expected tags: 'create', 'continue'",
            kind.unwrap_or_default()
        ))),
    }
    let unsupported: Vec<&str> = UNSUPPORTED.into_iter().filter(|name| !body[*name].is_null()).collect();
    if !unsupported.is_empty() {
        let details = json!({"error_code": "thread_unsupported_request", "unsupported": unsupported});
        let error = MessagesError::unrecorded("This request cannot use a thread.");
        found.push(MessagesError { details, ..error });
    }
}

fn check_members(thread: &Value, kind: &str, known: &[&str], found: &mut Vec<MessagesError>) {
    for (name, _) in thread.as_object().into_iter().flatten() {
        if !known.contains(&name.as_str()) {
            found.push(MessagesError::extra_input(&format!("thread.{kind}.{name}")));
        }
    }
}

/// The error for members that differ from those of the request that created the thread.
pub(super) fn fingerprint_mismatch() -> MessagesError {
    let text = "The request does not match the thread that it continues.";
    MessagesError::unrecorded(text).coded("thread_fingerprint_mismatch")
}
