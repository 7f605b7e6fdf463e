//! Rules for the order of messages: calls and their results, the positions of system messages, the end of a request.
//!
//! Source: recorded refusals and public issue threads; platform.claude.com, "Programmatic tool calling"; live probes that the
//! project llm-xlate published for the end of a request.

use super::error::MessagesError;
use super::generation::Generation;
use super::merged::{MergedMessage, is_server_result, kind_of};
use serde_json::Value;
use std::collections::BTreeSet;

/// Checks that each call has its result in the next message, first in it, and each result its call.
pub(super) fn check_pairs(
    messages: &[MergedMessage<'_>],
    is_continued: bool,
    found: &mut Vec<MessagesError>,
) {
    check_ids(messages, found);
    check_server_results(messages, found);
    for (index, message) in messages.iter().enumerate() {
        if message.role == "assistant" {
            check_answered(index, message, messages.get(index + 1), found);
        } else if message.role == "user" {
            let previous = index.checked_sub(1).and_then(|before| messages.get(before));
            // The first results of a request that continues a thread answer calls of the thread.
            if index > 0 || !is_continued {
                check_results(index, message, previous, found);
            }
            check_single_results(index, message, found);
        }
    }
}

/// Each id of a call occurs once in the whole request.
fn check_ids(messages: &[MergedMessage<'_>], found: &mut Vec<MessagesError>) {
    let mut seen = BTreeSet::new();
    for (index, message) in messages.iter().enumerate() {
        for (position, block) in message.blocks.iter().enumerate() {
            let is_call = matches!(kind_of(block), "tool_use" | "server_tool_use" | "mcp_tool_use");
            let id = block["id"].as_str().filter(|_| is_call);
            if id.is_some_and(|id| !seen.insert(id)) {
                let text = format!("messages.{index}.content.{position}: `tool_use` ids must be unique");
                found.push(MessagesError::invalid(text));
            }
        }
    }
}

/// The result of a server tool follows its call, in the same message or a later one.
fn check_server_results(messages: &[MergedMessage<'_>], found: &mut Vec<MessagesError>) {
    let mut calls = BTreeSet::new();
    for (index, message) in messages.iter().enumerate().filter(|(_, message)| message.role == "assistant") {
        for (position, block) in message.blocks.iter().enumerate() {
            let kind = kind_of(block);
            if is_server_result(kind) && kind != "tool_result" {
                let id = block["tool_use_id"].as_str().unwrap_or_default();
                if !calls.contains(id) {
                    let path = format!("messages.{index}.content.{position}");
                    found.push(unexpected_result(&path, kind, id));
                }
            } else if let Some(id) = block["id"].as_str() {
                calls.insert(id);
            }
        }
    }
}

fn unexpected_result(path: &str, kind: &str, id: &str) -> MessagesError {
    MessagesError::invalid(format!(
        "{path}: unexpected `tool_use_id` found in `{kind}` blocks: {id}. Each `{kind}` block must have a corresponding \
         `tool_use` block in the previous message."
    ))
}

/// The ids of the results at the beginning of a message.
fn first_results<'a>(message: &'a MergedMessage<'_>) -> impl Iterator<Item = &'a str> {
    let results = message.blocks.iter().take_while(|block| kind_of(block) == "tool_result");
    results.filter_map(|block| block["tool_use_id"].as_str())
}

fn check_answered(
    index: usize,
    message: &MergedMessage<'_>,
    next: Option<&MergedMessage<'_>>,
    found: &mut Vec<MessagesError>,
) {
    let answered: BTreeSet<&str> = next.into_iter().flat_map(first_results).collect();
    let calls = message.blocks_of("tool_use").filter_map(|(_, call)| call["id"].as_str());
    let open: Vec<&str> = calls.filter(|id| !answered.contains(id)).collect();
    if !open.is_empty() {
        found.push(MessagesError::invalid(format!(
            "messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately after: {}. Each \
             `tool_use` block must have a corresponding `tool_result` block in the next message.",
            open.join(", ")
        )));
    }
}

fn check_results(
    index: usize,
    message: &MergedMessage<'_>,
    previous: Option<&MergedMessage<'_>>,
    found: &mut Vec<MessagesError>,
) {
    let calls = || previous.into_iter().flat_map(|previous| previous.blocks_of("tool_use"));
    for (position, result) in message.blocks_of("tool_result") {
        let id = result["tool_use_id"].as_str().unwrap_or_default();
        if !calls().any(|(_, call)| call["id"] == id) {
            let path = format!("messages.{index}.content.{position}");
            found.push(unexpected_result(&path, "tool_result", id));
        }
    }
    let is_programmatic =
        |call: &Value| call["caller"]["type"].as_str().is_some_and(|caller| caller != "direct");
    let has_other = message.blocks.iter().any(|block| kind_of(block) != "tool_result");
    if has_other && calls().any(|(_, call)| is_programmatic(call)) {
        found.push(MessagesError::unrecorded(format!(
            "messages.{index}: only `tool_result` blocks may be provided in response to programmatic tool calls"
        )));
    }
}

fn check_single_results(index: usize, message: &MergedMessage<'_>, found: &mut Vec<MessagesError>) {
    let mut seen = BTreeSet::new();
    for (position, result) in message.blocks_of("tool_result") {
        let Some(id) = result["tool_use_id"].as_str() else { continue };
        if !seen.insert(id) {
            found.push(MessagesError::invalid(format!(
                "messages.{index}.content.{position}: each tool_use must have a single result. Found multiple \
                 `tool_result` blocks with id: {id}"
            )));
        }
    }
}

/// The end of the wordings for system messages.
const DIRECTIVE: &str =
    "the directive-only form (content: [] with output_config) is accepted at any position";

/// Checks where system messages are. Neighbours count as one; a message that only has `output_config` may be anywhere.
pub(super) fn check_system_messages(
    body: &Value,
    messages: &[MergedMessage<'_>],
    found: &mut Vec<MessagesError>,
) {
    for (index, message) in body["messages"].as_array().into_iter().flatten().enumerate() {
        let is_empty = message["content"].as_str().is_some_and(str::is_empty)
            || message["content"].as_array().is_some_and(Vec::is_empty);
        if message["role"] == "system" && is_empty && message["output_config"].is_null() {
            let text = format!("messages.{index}: system content must contain at least one block");
            found.push(MessagesError::invalid(text));
        }
    }
    let is_continued = body["thread"]["type"] == "continue";
    let systems = messages.iter().enumerate().filter(|(_, message)| message.role == "system");
    for (index, _) in systems.filter(|(_, message)| !message.blocks.is_empty()) {
        let follows_rightly = match index.checked_sub(1).map(|before| &messages[before]) {
            None => is_continued,
            Some(before) if before.role == "assistant" => {
                before.blocks.last().is_some_and(|block| is_server_result(kind_of(block)))
            }
            Some(before) => before.role == "user",
        };
        let fault = if index == 0 && !is_continued {
            "use the top-level 'system' parameter for the initial system prompt"
        } else if !follows_rightly {
            "role 'system' must follow a 'user' message or an 'assistant' message ending in a server tool result"
        } else if messages.get(index + 1).is_some_and(|next| next.role != "assistant") {
            "role 'system' must precede an 'assistant' message or end the array"
        } else {
            continue;
        };
        found.push(MessagesError::invalid(format!("messages.{index}: {fault}; {DIRECTIVE}")));
    }
}

/// Checks an assistant message at the end of a request, with which the reply would begin.
pub(super) fn check_prefill(body: &Value, messages: &[MergedMessage<'_>], found: &mut Vec<MessagesError>) {
    let Some(last) = messages.last().filter(|last| last.role == "assistant") else { return };
    let has_open_call = last.blocks.iter().any(|block| kind_of(block) == "tool_use");
    if last.has_server_part() || has_open_call {
        return;
    }
    let generation = body["model"].as_str().and_then(Generation::from_name);
    if generation.is_some_and(Generation::refuses_prefill) {
        found.push(MessagesError::invalid(
            "This model does not support assistant message prefill. The conversation must end with a user message.",
        ));
    }
    let text = last.blocks.last().and_then(|block| block["text"].as_str()).unwrap_or_default();
    if !text.is_empty() && text.trim().is_empty() {
        found.push(MessagesError::invalid("messages: text content blocks must be non-empty"));
    } else if text.ends_with(char::is_whitespace) {
        let text = "messages: final assistant content cannot end with trailing whitespace";
        found.push(MessagesError::unrecorded(text));
    }
}
