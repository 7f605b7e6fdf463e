//! Rules for one message and one content block: roles, types, members, ids, names and texts. `order` checks how blocks depend
//! on each other.
//!
//! Source: the types of anthropic-sdk-python 2.14.0; public issue threads for the wordings of texts and inputs.

use super::error::MessagesError;
use super::generation::Generation;
use super::head::RequestHead;
use super::merged::{MergedMessage, is_server_result, kind_of};
use super::tools::{is_identifier, is_name, wrong_name};
use serde_json::Value;

/// The pattern of an id.
const ID: &str = "^[a-zA-Z0-9_-]+$";
/// The types of blocks that each role may have; an assistant message also has the results of server tools.
const KINDS: [(&str, &str); 3] = [
    ("user", "text image document search_result container_upload tool_result"),
    (
        "assistant",
        "text document tool_use thinking redacted_thinking server_tool_use mcp_tool_use mcp_tool_listing compaction \
         fallback",
    ),
    ("system", "text tool_addition tool_removal"),
];
/// The members of the blocks that clients build themselves or send back. The members of other blocks are not checked.
const MEMBERS: [(&str, &str); 5] = [
    ("text", "text citations cache_control"),
    ("tool_use", "id name input caller toolset_name cache_control"),
    ("tool_result", "tool_use_id content is_error toolset_name cache_control"),
    ("thinking", "thinking signature"),
    ("redacted_thinking", "data"),
];

/// Checks the members of each message, as the request has them.
pub(super) fn check_messages(head: &RequestHead, body: &Value, found: &mut Vec<MessagesError>) {
    let generation = body["model"].as_str().and_then(Generation::from_name);
    for (index, message) in body["messages"].as_array().into_iter().flatten().enumerate() {
        if !message.is_object() {
            let text = format!("messages.{index}: Input does not match the expected shape.");
            found.push(MessagesError::invalid(text));
            continue;
        }
        let role = message["role"].as_str().unwrap_or_default();
        check_role(index, role, generation, found);
        for (name, _) in message.as_object().into_iter().flatten() {
            let is_known = match name.as_str() {
                "role" | "content" => true,
                "clear_at" => role == "system" && head.has_beta("mid-conversation-system-clear-at-"),
                "output_config" => role == "system",
                _ => false,
            };
            if !is_known {
                found.push(MessagesError::extra_input(&format!("messages.{index}.{name}")));
            }
        }
        check_content(index, role, &message["content"], found);
        if !message["clear_at"].is_null() {
            check_turn_scoped(index, message, found);
        }
    }
}

/// A system message that the server drops at the next user message has texts alone, without breakpoints of the cache.
fn check_turn_scoped(index: usize, message: &Value, found: &mut Vec<MessagesError>) {
    if message["clear_at"] != "next_user_message" {
        let text = format!("messages.{index}.clear_at: Input should be 'next_user_message'");
        found.push(MessagesError::unrecorded(text));
    }
    for (position, block) in message["content"].as_array().into_iter().flatten().enumerate() {
        let path = format!("messages.{index}.content.{position}");
        if kind_of(block) != "text" {
            let text = format!("{path}: a message with `clear_at` can only have `text` blocks");
            found.push(MessagesError::unrecorded(text));
        } else if !block["cache_control"].is_null() {
            found.push(MessagesError::extra_input(&format!("{path}.text.cache_control")));
        }
    }
}

fn check_role(index: usize, role: &str, generation: Option<Generation<'_>>, found: &mut Vec<MessagesError>) {
    match role {
        "user" | "assistant" => {}
        "system" if generation.is_none_or(Generation::accepts_system_messages) => {}
        "system" => found.push(MessagesError::unrecorded(
            "messages: Unexpected role \"system\". The Messages API accepts a top-level `system` parameter, not \"system\" \
             as an input message role.",
        )),
        "" => found.push(MessagesError::field_required(&format!("messages.{index}.role"))),
        other => found.push(MessagesError::invalid(format!(
            "messages: Unexpected role \"{other}\". Allowed roles are \"user\" or \"assistant\". For instructions on how to \
             use tools, see https://platform.claude.com/docs/en/agents-and-tools/tool-use/overview."
        ))),
    }
}

fn check_content(index: usize, role: &str, content: &Value, found: &mut Vec<MessagesError>) {
    let path = format!("messages.{index}.content");
    let is_empty = match content {
        Value::Null => {
            found.push(MessagesError::field_required(&path));
            return;
        }
        Value::String(_) => false,
        Value::Array(blocks) => {
            if !blocks.iter().all(Value::is_object) {
                let text = format!("messages.{index}: Input does not match the expected shape.");
                found.push(MessagesError::invalid(text));
            }
            blocks.is_empty()
        }
        _ => {
            found.push(MessagesError::wrong_type(&path, "list"));
            return;
        }
    };
    // `order` has another wording for an empty system message.
    if is_empty && role != "system" {
        let text = format!(
            "messages.{index}: all messages must have non-empty content except for the optional final assistant message"
        );
        found.push(MessagesError::unrecorded(text));
    }
}

/// Checks every block of the merged messages.
pub(super) fn check_blocks(
    head: &RequestHead,
    messages: &[MergedMessage<'_>],
    found: &mut Vec<MessagesError>,
) {
    for (index, message) in messages.iter().enumerate() {
        for (position, block) in message.blocks.iter().enumerate() {
            let path = format!("messages.{index}.content.{position}");
            check_kind(&path, message.role, block, found);
            check_members(&path, block, found);
            check_for_version(head, &path, message.role, block, found);
            match kind_of(block) {
                "text" => check_text(&path, block, found),
                "tool_use" => check_tool_use(&path, block, found),
                "tool_result" => check_tool_result(&path, block, found),
                "thinking" if !block["signature"].is_string() => {
                    found.push(MessagesError::field_required(&format!("{path}.thinking.signature")));
                }
                "thinking" if !block["thinking"].is_string() => {
                    found.push(MessagesError::field_required(&format!("{path}.thinking.thinking")));
                }
                "tool_addition" | "tool_removal" => check_tool_change(head, &path, block, found),
                _ => {}
            }
        }
    }
}

fn check_kind(path: &str, role: &str, block: &Value, found: &mut Vec<MessagesError>) {
    let kind = kind_of(block);
    let Some((_, allowed)) = KINDS.iter().find(|(known, _)| *known == role) else { return };
    let is_allowed = allowed.split_whitespace().any(|allowed| allowed == kind)
        || role == "assistant" && is_server_result(kind);
    if is_allowed {
        return;
    }
    let owner = KINDS.iter().find(|(_, kinds)| kinds.split_whitespace().any(|known| known == kind));
    found.push(MessagesError::unrecorded(match owner {
        _ if kind.is_empty() => format!("{path}.type: Field required"),
        Some((owner, _)) if role != "system" => {
            format!("{path}: `{kind}` blocks can only be in `{owner}` messages")
        }
        _ => format!(
            "{path}: Input tag '{kind}' found using 'type' does not match any of the expected tags: {}",
            allowed.split_whitespace().map(|tag| format!("'{tag}'")).collect::<Vec<_>>().join(", ")
        ),
    }));
}

fn check_members(path: &str, block: &Value, found: &mut Vec<MessagesError>) {
    let Some((kind, members)) = MEMBERS.iter().find(|(kind, _)| *kind == kind_of(block)) else { return };
    for (name, _) in block.as_object().into_iter().flatten() {
        if name != "type" && !members.split_whitespace().any(|member| member == name) {
            found.push(MessagesError::extra_input(&format!("{path}.{kind}.{name}")));
        }
    }
}

/// Checks what the newest version refuses.
fn check_for_version(
    head: &RequestHead,
    path: &str,
    role: &str,
    block: &Value,
    found: &mut Vec<MessagesError>,
) {
    if !head.is_without_sampling() {
        return;
    }
    match (role, kind_of(block)) {
        ("assistant", "document") => {
            found.push(MessagesError::unrecorded(format!(
                "{path}: `document` blocks can only be in `user` messages"
            )));
        }
        ("user", "text") if !block["citations"].is_null() => {
            found.push(MessagesError::extra_input(&format!("{path}.text.citations")));
        }
        _ => {}
    }
}

fn check_text(path: &str, block: &Value, found: &mut Vec<MessagesError>) {
    match block["text"].as_str() {
        None => found.push(MessagesError::field_required(&format!("{path}.text.text"))),
        Some("") if !block["cache_control"].is_null() => {
            let text = format!("{path}.text: cache_control cannot be set for empty text blocks");
            found.push(MessagesError::invalid(text));
        }
        Some("") => found.push(MessagesError::invalid("messages: text content blocks must be non-empty")),
        Some(_) => {}
    }
}

fn check_tool_use(path: &str, block: &Value, found: &mut Vec<MessagesError>) {
    check_id(&format!("{path}.tool_use.id"), &block["id"], found);
    if block["name"].is_null() {
        found.push(MessagesError::field_required(&format!("{path}.tool_use.name")));
    } else if !is_name(&block["name"]) {
        found.push(wrong_name(&format!("{path}.tool_use.name")));
    }
    if block["input"].is_null() && block.get("input").is_none() {
        found.push(MessagesError::field_required(&format!("{path}.tool_use.input")));
    } else if !block["input"].is_object() {
        found.push(MessagesError::wrong_type(&format!("{path}.tool_use.input"), "dictionary"));
    }
}

fn check_tool_result(path: &str, block: &Value, found: &mut Vec<MessagesError>) {
    check_id(&format!("{path}.tool_result.tool_use_id"), &block["tool_use_id"], found);
    if !block["is_error"].is_null() && !block["is_error"].is_boolean() {
        found.push(MessagesError::wrong_type(&format!("{path}.tool_result.is_error"), "boolean"));
    }
    let parts = match &block["content"] {
        Value::Null | Value::String(_) => return,
        Value::Array(parts) => parts,
        _ => {
            found.push(MessagesError::wrong_type(&format!("{path}.tool_result.content"), "list"));
            return;
        }
    };
    let kinds = ["text", "image", "document", "search_result", "tool_reference", "browser_state"];
    for (index, part) in parts.iter().enumerate() {
        let path = format!("{path}.tool_result.content.{index}");
        match kind_of(part) {
            "text" => check_text(&path, part, found),
            kind if kinds.contains(&kind) => {}
            kind => found.push(MessagesError::unrecorded(format!(
                "{path}: Input tag '{kind}' found using 'type' does not match any of the expected tags: {}",
                kinds.map(|tag| format!("'{tag}'")).join(", ")
            ))),
        }
    }
}

fn check_id(path: &str, id: &Value, found: &mut Vec<MessagesError>) {
    match id.as_str() {
        None => found.push(MessagesError::field_required(path)),
        Some(id) if !is_identifier(id) => found.push(MessagesError::wrong_pattern(path, ID)),
        Some(_) => {}
    }
}

/// A change of the tools needs its beta; a whole definition needs a second one.
fn check_tool_change(head: &RequestHead, path: &str, block: &Value, found: &mut Vec<MessagesError>) {
    if !head.has_beta("mid-conversation-tool-changes-") && !head.has_beta("inline-tools-") {
        found.push(MessagesError::extra_input(path));
    } else if !block["tool_definition"].is_null() && !head.has_beta("inline-tools-") {
        found.push(MessagesError::extra_input(&format!("{path}.tool_definition")));
    }
}
