//! Messages as LangChain serialises them, turned into those of chat completions. Messages that are in that form already
//! stay as they are.

use serde_json::{Map, Value, json};

/// The messages of a list, which may lie in a list of batches.
pub(super) fn messages(list: &Value) -> Option<Vec<Value>> {
    let list = list.as_array()?;
    let list = match list.first() {
        Some(Value::Array(batch)) => batch,
        _ => list,
    };
    let messages: Vec<Value> = list.iter().filter_map(message).collect();
    (!messages.is_empty()).then_some(messages)
}

/// One message; `None` where it is none.
pub(super) fn message(value: &Value) -> Option<Value> {
    // `{"lc": 1, "type": "constructor", "id": [.., "AIMessage"], "kwargs": {..}}`, or the older `{"type", "data"}`.
    let (kind, inner) = match (value.get("kwargs"), value.get("data")) {
        (Some(inner), _) => (value["id"].as_array()?.last()?.as_str()?, inner),
        (None, Some(inner)) => (value["type"].as_str()?, inner),
        (None, None) => match (value["role"].as_str(), value["type"].as_str()) {
            (Some(role), _) if is_role(role) => return Some(value.clone()),
            (Some(kind), _) | (None, Some(kind)) => (kind, value),
            (None, None) => return None,
        },
    };
    let role = role(kind)?;
    let mut message = Map::new();
    message.insert("role".to_owned(), role.into());
    message.insert("content".to_owned(), inner.get("content").cloned().unwrap_or_default());
    if role == "assistant" {
        let calls = calls(inner);
        if !calls.is_empty() {
            message.insert("tool_calls".to_owned(), Value::Array(calls));
        }
    }
    if role == "tool" {
        message.insert("tool_call_id".to_owned(), inner.get("tool_call_id").cloned().unwrap_or_default());
    }
    Some(Value::Object(message))
}

/// The calls of an assistant's message: those of the provider as they were, else LangChain's own form.
fn calls(inner: &Value) -> Vec<Value> {
    let given = inner["additional_kwargs"]["tool_calls"].as_array();
    if let Some(given) = given.filter(|given| !given.is_empty()) {
        return given.clone();
    }
    let own = inner["tool_calls"].as_array().into_iter().flatten();
    let calls = own.map(|call| {
        if call.get("function").is_some() {
            return call.clone();
        }
        let arguments = call["args"].to_string();
        json!({"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": arguments}})
    });
    calls.collect()
}

fn is_role(name: &str) -> bool {
    ["system", "developer", "user", "assistant", "tool", "function"].contains(&name)
}

fn role(kind: &str) -> Option<&'static str> {
    Some(match kind.trim_end_matches("Chunk") {
        "SystemMessage" | "system" => "system",
        "HumanMessage" | "human" | "user" => "user",
        "AIMessage" | "ai" | "assistant" => "assistant",
        "ToolMessage" | "tool" => "tool",
        _ => return None,
    })
}
