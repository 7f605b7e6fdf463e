//! The canonical text of a block, a tool or a system prompt: equal for all forms in which clients write one content. `prefix`
//! hashes it.
//!
//! Clients rebuild the blocks that they send back: the order of members, `caller`, `citations`, `is_error: false`, and strings in
//! place of lists differ from the reply. `cache_control` is no content. Source: unmodified clients with a scripted upstream.

use super::merged::blocks;
use serde_json::{Map, Value};

/// The canonical text of a block of a message.
pub(super) fn block_text(block: &Value) -> String {
    let mut text = String::new();
    let members = block.as_object().into_iter().flatten().filter(|(name, value)| !is_default(name, value));
    let mut members: Map<String, Value> =
        members.map(|(name, value)| (name.clone(), value.clone())).collect();
    if block["type"] == "tool_result" && !block["content"].is_null() {
        let parts = blocks(&block["content"]).map(|part| without_breakpoint(&part));
        members.insert("content".to_owned(), parts.collect());
    }
    write(&Value::Object(members), &mut text);
    text
}

/// The canonical text of a tool or another value, without its breakpoint of the cache.
pub(super) fn value_text(value: &Value) -> String {
    let mut text = String::new();
    write(&without_breakpoint(value), &mut text);
    text
}

/// Whether a member has its default value, which clients leave out or add.
fn is_default(name: &str, value: &Value) -> bool {
    match name {
        "cache_control" => true,
        "caller" => value["type"] == "direct",
        "is_error" => *value == false,
        "citations" => value.as_array().is_some_and(Vec::is_empty) || value.is_null(),
        _ => value.is_null(),
    }
}

fn without_breakpoint(value: &Value) -> Value {
    let mut value = value.clone();
    if let Value::Object(members) = &mut value {
        members.retain(|name, _| name != "cache_control");
    }
    value
}

/// Writes JSON with the members of each object in the order of their names.
fn write(value: &Value, text: &mut String) {
    match value {
        Value::Object(members) => {
            let mut members: Vec<(&String, &Value)> = members.iter().collect();
            members.sort_unstable_by_key(|(name, _)| *name);
            text.push('{');
            for (name, value) in members {
                text.push_str(&Value::from(name.as_str()).to_string());
                text.push(':');
                write(value, text);
                text.push(',');
            }
            text.push('}');
        }
        Value::Array(values) => {
            text.push('[');
            for value in values {
                write(value, text);
                text.push(',');
            }
            text.push(']');
        }
        other => text.push_str(&other.to_string()),
    }
}
