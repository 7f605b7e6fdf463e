//! Rules for tools and `tool_choice`, and the list of tools that a request declares: in `tools`, and within `messages`.
//!
//! Source: the types of anthropic-sdk-python 2.14.0; recorded refusals and public issue threads for strict tools, schemas and
//! forced calls.

use super::error::MessagesError;
use super::generation::Generation;
use super::merged::MergedMessage;
use serde_json::Value;
use std::collections::BTreeSet;

/// The pattern of a tool's name.
const NAME: &str = "^[a-zA-Z0-9_-]{1,128}$";
/// The most tools with `strict: true`, whose arguments the server forces into their schema.
const MAX_STRICT: usize = 20;

/// Whether `name` fits the pattern of names.
pub(super) fn is_name(name: &Value) -> bool {
    name.as_str().is_some_and(|name| name.len() <= 128 && is_identifier(name))
}

/// Whether `text` fits `^[a-zA-Z0-9_-]+$`.
pub(super) fn is_identifier(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    !text.is_empty() && text.bytes().all(is_allowed)
}

/// The error for a name outside of the pattern.
pub(super) fn wrong_name(path: &str) -> MessagesError {
    MessagesError::wrong_pattern(path, NAME)
}

/// The elements of `tools`, and the definitions that messages add.
pub(super) fn declared<'a>(body: &'a Value, messages: &'a [MergedMessage<'a>]) -> Vec<&'a Value> {
    let added = messages.iter().flat_map(|message| message.blocks_of("tool_addition"));
    let added = added.map(|(_, block)| &block["tool_definition"]).filter(|tool| tool.is_object());
    body["tools"].as_array().into_iter().flatten().chain(added).collect()
}

/// Whether the client gives the tool's schema itself.
pub(super) fn is_custom(tool: &Value) -> bool {
    tool["type"].is_null() || tool["type"] == "custom"
}

/// Checks the definitions in `tools`.
pub(super) fn check(body: &Value, found: &mut Vec<MessagesError>) {
    let tools = body["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut names = BTreeSet::new();
    for (index, tool) in tools.iter().enumerate() {
        if is_custom(tool) {
            check_custom(&format!("tools.{index}.custom"), tool, found);
        }
        if tool["name"].as_str().is_some_and(|name| !names.insert(name)) {
            found.push(MessagesError::unrecorded("tools: Tool names must be unique."));
        }
    }
    let strict = tools.iter().filter(|tool| tool["strict"] == true).count();
    if strict > MAX_STRICT {
        found.push(MessagesError::invalid(format!(
            "Too many strict tools ({strict}). The maximum number of strict tools supported is {MAX_STRICT}. Try reducing \
             the number of tools marked as strict."
        )));
    }
}

fn check_custom(path: &str, tool: &Value, found: &mut Vec<MessagesError>) {
    if tool["name"].is_null() {
        found.push(MessagesError::field_required(&format!("{path}.name")));
    } else if !is_name(&tool["name"]) {
        found.push(wrong_name(&format!("{path}.name")));
    }
    let schema = &tool["input_schema"];
    let path = format!("{path}.input_schema");
    if schema.is_null() {
        found.push(MessagesError::field_required(&path));
    } else if !schema.is_object() {
        found.push(MessagesError::wrong_type(&path, "dictionary"));
    } else if schema["type"].is_null() {
        found.push(MessagesError::field_required(&format!("{path}.type")));
    } else if ["oneOf", "allOf", "anyOf"].iter().any(|key| !schema[*key].is_null()) {
        found.push(MessagesError::invalid(format!(
            "{path}: input_schema does not support oneOf, allOf, or anyOf at the top level"
        )));
    }
}

/// Checks `tool_choice` against the tools, the model and `thinking`.
pub(super) fn check_choice(body: &Value, declared: &[&Value], found: &mut Vec<MessagesError>) {
    let choice = &body["tool_choice"];
    let kind = match choice {
        Value::Null => return,
        choice => choice["type"].as_str().unwrap_or_default(),
    };
    if !["auto", "any", "tool", "none"].contains(&kind) {
        found.push(MessagesError::unrecorded(format!(
            "tool_choice: Input tag '{kind}' found using 'type' does not match any of the expected tags: 'auto', 'any', \
             'tool', 'none'"
        )));
        return;
    }
    if declared.is_empty() && body["thread"]["type"] != "continue" {
        found.push(MessagesError::unrecorded(
            "tool_choice: `tool_choice` may only be specified while providing `tools`.",
        ));
        return;
    }
    if !["any", "tool"].contains(&kind) {
        return;
    }
    if body["model"].as_str().and_then(Generation::from_name).is_some_and(Generation::refuses_forced_choice) {
        let text = "tool_choice: type \"tool\" and \"any\" are not supported for this model.";
        found.push(MessagesError::invalid(text));
    }
    if body["thinking"]["type"] == "enabled" {
        found.push(MessagesError::invalid("Thinking may not be enabled when tool_choice forces tool use."));
    }
    if kind == "tool" {
        check_chosen(&choice["name"], declared, body["thread"]["type"] == "continue", found);
    }
}

/// Checks the name of a forced tool. A request that continues a thread has the tools of the thread's first request.
fn check_chosen(name: &Value, declared: &[&Value], is_continued: bool, found: &mut Vec<MessagesError>) {
    let Some(name) = name.as_str() else {
        found.push(MessagesError::field_required("tool_choice.tool.name"));
        return;
    };
    if !is_continued && !declared.iter().any(|tool| tool["name"] == name) {
        let text = format!("tool_choice: Tool '{name}' not found in provided tools");
        found.push(MessagesError::unrecorded(text));
    }
}
