//! Request validation as OpenAI does it, for messages and tools, with OpenAI's own texts, parameters and codes. Checks
//! shapes; `order` checks the order of messages, and `model` what a single model refuses.

use super::refusal::{Refusal, type_name};
use serde_json::Value;

const ROLES: [&str; 6] = ["system", "developer", "user", "assistant", "tool", "function"];
/// OpenAI's bound on `tools` and on one message's `tool_calls`.
const MAX_TOOLS: usize = 128;
/// OpenAI's bound on a function's name and on a call's id, in characters.
const MAX_NAME: usize = 64;

/// Checks `messages`, except their order.
pub(super) fn messages(body: &Value) -> Result<&[Value], Refusal> {
    let messages = match body.get("messages") {
        None => return Err(Refusal::missing("messages")),
        Some(Value::Array(messages)) => messages,
        Some(other) => return Err(Refusal::wrong_type("messages", "an array of objects", other)),
    };
    if messages.is_empty() {
        return Err(Refusal::empty_array("messages"));
    }
    for (index, message) in messages.iter().enumerate() {
        check_message(index, message)?;
    }
    Ok(messages)
}

/// Checks `tools` and the members that require them. Returns the tools, empty where none are offered.
pub(super) fn tools(body: &Value) -> Result<&[Value], Refusal> {
    let tools = match &body["tools"] {
        Value::Null => {
            let orphan = ["tool_choice", "parallel_tool_calls"].into_iter().find(|key| !body[*key].is_null());
            return orphan.map_or(Ok(&[]), |key| Err(needs_tools(key)));
        }
        Value::Array(tools) => tools,
        other => return Err(Refusal::wrong_type("tools", "an array of objects", other)),
    };
    match tools.len() {
        0 => return Err(Refusal::empty_array("tools")),
        len if len > MAX_TOOLS => return Err(Refusal::long_array("tools", MAX_TOOLS, len)),
        _ => {}
    }
    for (index, tool) in tools.iter().enumerate() {
        check_tool(&format!("tools[{index}]"), tool)?;
    }
    Ok(tools)
}

/// The text of a required member.
pub(super) fn text<'a>(object: &'a Value, path: &str, key: &str) -> Result<&'a str, Refusal> {
    match object.get(key) {
        None => Err(Refusal::missing(&format!("{path}.{key}"))),
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(Refusal::wrong_type(&format!("{path}.{key}"), "a string", other)),
    }
}

/// The boolean member `key`, false where it is absent or null.
pub(super) fn flag(object: &Value, key: &str) -> Result<bool, Refusal> {
    match &object[key] {
        Value::Null => Ok(false),
        Value::Bool(flag) => Ok(*flag),
        other => Err(Refusal::wrong_type(key, "a boolean", other)),
    }
}

/// The whole number `key` within its bounds, if it is there.
pub(super) fn integer(body: &Value, key: &str, min: u64, max: u64) -> Result<Option<u64>, Refusal> {
    let value = &body[key];
    if value.is_null() {
        return Ok(None);
    }
    let bound = |side: &str, sign: &str, bound: u64, code: &'static str| {
        let rule = format!("Expected a value {sign} {bound}, but got {value} instead.");
        Refusal::invalid(format!("Invalid '{key}': integer {side} value. {rule}"), key).coded(code)
    };
    match (value.as_u64(), value.as_i64()) {
        (Some(number), _) if number > max => {
            Err(bound("above maximum", "<=", max, "integer_above_max_value"))
        }
        (Some(number), _) if number >= min => Ok(Some(number)),
        (Some(_), _) | (None, Some(_)) => Err(bound("below minimum", ">=", min, "integer_below_min_value")),
        (None, None) => Err(Refusal::wrong_type(key, "an integer", value)),
    }
}

fn needs_tools(key: &str) -> Refusal {
    Refusal::invalid(
        format!("Invalid value for '{key}': '{key}' is only allowed when 'tools' are specified."),
        key,
    )
}

fn check_message(index: usize, message: &Value) -> Result<(), Refusal> {
    let path = format!("messages[{index}]");
    if !message.is_object() {
        return Err(Refusal::wrong_type(&path, "an object", message));
    }
    let role = text(message, &path, "role")?;
    if !ROLES.contains(&role) {
        let supported = "'system', 'assistant', 'user', 'function', 'tool', and 'developer'";
        return Err(Refusal::unknown_value(&format!("{path}.role"), role, supported));
    }
    if role == "assistant" && message.get("tool_calls").is_some_and(|calls| !calls.is_null()) {
        check_calls(&path, &message["tool_calls"])?;
    }
    let instead = ["tool_calls", "function_call", "refusal", "audio"];
    let may_be_null =
        role == "function" || (role == "assistant" && instead.iter().any(|key| !message[*key].is_null()));
    match &message["content"] {
        Value::String(_) => Ok(()),
        Value::Null if may_be_null => Ok(()),
        Value::Array(parts) => check_parts(&path, role, parts),
        other => {
            let text = format!("Invalid value for 'content': expected a string, got {}.", bare_type(other));
            Err(Refusal::invalid(text, format!("messages.[{index}].content")))
        }
    }
}

/// A type's name without its article.
fn bare_type(value: &Value) -> &'static str {
    let name = type_name(value);
    name.split_once(' ').map_or(name, |(_, bare)| bare)
}

fn check_parts(path: &str, role: &str, parts: &[Value]) -> Result<(), Refusal> {
    if parts.is_empty() {
        return Err(Refusal::empty_array(&format!("{path}.content")));
    }
    for (index, part) in parts.iter().enumerate() {
        let path = format!("{path}.content[{index}]");
        if !part.is_object() {
            return Err(Refusal::wrong_type(&path, "an object", part));
        }
        match (text(part, &path, "type")?, role) {
            ("text", _) => {
                text(part, &path, "text")?;
            }
            (other, "tool") => return Err(Refusal::unknown_value(&format!("{path}.type"), other, "'text'")),
            _ => {}
        }
    }
    Ok(())
}

fn check_calls(path: &str, calls: &Value) -> Result<(), Refusal> {
    let path = format!("{path}.tool_calls");
    let Value::Array(calls) = calls else {
        return Err(Refusal::wrong_type(&path, "an array of objects", calls));
    };
    match calls.len() {
        0 => return Err(Refusal::empty_array(&path)),
        len if len > MAX_TOOLS => return Err(Refusal::long_array(&path, MAX_TOOLS, len)),
        _ => {}
    }
    calls.iter().enumerate().try_for_each(|(index, call)| check_call(&format!("{path}[{index}]"), call))
}

fn check_call(path: &str, call: &Value) -> Result<(), Refusal> {
    if !call.is_object() {
        return Err(Refusal::wrong_type(path, "an object", call));
    }
    let id = text(call, path, "id")?;
    if id.chars().count() > MAX_NAME {
        return Err(Refusal::long_string(&format!("{path}.id"), MAX_NAME, id.chars().count()));
    }
    let (member, input) = match text(call, path, "type")? {
        "function" => ("function", "arguments"),
        "custom" => ("custom", "input"),
        other => {
            return Err(Refusal::unknown_value(&format!("{path}.type"), other, "'function' and 'custom'"));
        }
    };
    let inner = call.get(member).ok_or_else(|| Refusal::missing(&format!("{path}.{member}")))?;
    let path = format!("{path}.{member}");
    name(&path, inner, MAX_NAME)?;
    text(inner, &path, input).map(|_| ())
}

fn check_tool(path: &str, tool: &Value) -> Result<(), Refusal> {
    if !tool.is_object() {
        return Err(Refusal::wrong_type(path, "an object", tool));
    }
    let member = match text(tool, path, "type")? {
        member @ ("function" | "custom") => member,
        other => {
            return Err(Refusal::unknown_value(&format!("{path}.type"), other, "'function' and 'custom'"));
        }
    };
    let inner = tool.get(member).ok_or_else(|| Refusal::missing(&format!("{path}.{member}")))?;
    let path = format!("{path}.{member}");
    name(&path, inner, MAX_NAME)?;
    match &inner["parameters"] {
        Value::Null | Value::Object(_) => Ok(()),
        other => Err(Refusal::wrong_type(&format!("{path}.parameters"), "an object", other)),
    }
}

/// Checks the name of a function or custom tool, which has at most `max` characters.
pub(super) fn name(path: &str, function: &Value, max: usize) -> Result<(), Refusal> {
    let name = text(function, path, "name")?;
    let path = format!("{path}.name");
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if name.is_empty() || !name.chars().all(fits) {
        let rule =
            "string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.";
        return Err(Refusal::invalid(format!("Invalid '{path}': {rule}"), path).coded("invalid_value"));
    }
    if name.len() > max {
        return Err(Refusal::long_string(&path, max, name.len()));
    }
    Ok(())
}
