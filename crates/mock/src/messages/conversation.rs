//! The translation of a request's messages and tools into those over which the simulated models have their rules.

use super::merged::{MergedMessage, kind_of};
use super::prefix::references;
use super::tools::is_custom;
use crate::request::{Choice, Tool, text_of};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The beginnings of the types of tools that the client runs and for which a request has no schema.
const CLIENT_TOOLS: [&str; 4] = ["bash_", "text_editor_", "computer_", "memory_"];

/// The messages of a chat completion that the request amounts to, in order. Blocks that no rule reads are left out.
pub(super) fn messages(system: &Value, messages: &[MergedMessage<'_>]) -> Vec<Value> {
    let text = || text_of(&json!({"content": system}));
    let first = (!system.is_null()).then(|| json!({"role": "system", "content": text()}));
    first.into_iter().chain(messages.iter().flat_map(translate)).collect()
}

fn translate(message: &MergedMessage<'_>) -> Vec<Value> {
    let mut translated: Vec<Value> = Vec::new();
    for block in &message.blocks {
        match (message.role, kind_of(block)) {
            ("user", "tool_result") => translated.push(json!({
                "role": "tool", "tool_call_id": block["tool_use_id"], "content": text_of(block)
            })),
            // A text after results begins no new turn: clients send reminders in this way.
            ("user", "text") if translated.last().is_some_and(|last| last["role"] == "tool") => {
                if let Some(last) = translated.last_mut() {
                    last["content"] = json!(format!("{}\n{}", text_of(last), text(block)));
                }
            }
            ("assistant", "tool_use") => {
                let function = json!({"name": block["name"], "arguments": block["input"].to_string()});
                let calls = json!([{"id": block["id"], "type": "function", "function": function}]);
                translated.push(json!({"role": "assistant", "content": null, "tool_calls": calls}));
            }
            (role, "text") => translated.push(json!({"role": role, "content": text(block)})),
            _ => {}
        }
    }
    translated
}

fn text(block: &Value) -> &str {
    block["text"].as_str().unwrap_or_default()
}

/// The tools that the model may call: those that the client runs and that are neither deferred nor removed.
pub(super) fn callable(declared: &[&Value], messages: &[MergedMessage<'_>]) -> Vec<Tool> {
    let name = |tool: &Value| tool["name"].as_str().unwrap_or_default().to_owned();
    let deferred = declared.iter().filter(|tool| tool["defer_loading"] == true);
    let mut hidden: BTreeSet<String> = deferred.map(|tool| name(tool)).collect();
    for block in messages.iter().flat_map(|message| &message.blocks) {
        if kind_of(block) == "tool_removal" {
            hidden.insert(name(&block["tool"]));
        } else {
            hidden.retain(|hidden| !references(block).contains(hidden));
        }
    }
    let of_client = |tool: &Value| {
        let kind = tool["type"].as_str().unwrap_or_default();
        is_custom(tool) || CLIENT_TOOLS.iter().any(|prefix| kind.starts_with(prefix))
    };
    let tools = declared.iter().filter(|tool| of_client(tool) && !hidden.contains(&name(tool)));
    tools.map(|tool| Tool { name: name(tool), parameters: tool["input_schema"].clone() }).collect()
}

/// The choice that `tool_choice` makes.
pub(super) fn choice(choice: &Value) -> Choice {
    match choice["type"].as_str() {
        Some("none") => Choice::None,
        Some("any") => Choice::Required,
        Some("tool") => Choice::Named(choice["name"].as_str().unwrap_or_default().to_owned()),
        _ => Choice::Auto,
    }
}
