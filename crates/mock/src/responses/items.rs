//! Validation of the items of `input`, one by one, as OpenAI does it: kinds, members, ids. `pairs` checks how items
//! belong together, `content` the content of messages and outputs.

use super::super::check;
use super::super::refusal::Refusal;
use super::content;
use serde_json::{Map, Value, json};

/// OpenAI's bound on an item's id and on a call's, in characters.
const MAX_ID: usize = 64;
/// Members that every item may have.
const COMMON: [&str; 4] = ["type", "id", "status", OF_CODEX];
/// What Codex 0.169 sends with items, to OpenAI too.
const OF_CODEX: &str = "internal_chat_message_metadata_passthrough";

/// A kind of item.
struct Kind {
    name: &'static str,
    /// How its ids begin; empty where any will do.
    prefix: &'static str,
    /// The members besides the common ones; `None` where any will do: such items come from other servers.
    members: Option<&'static [&'static str]>,
    /// The members that must be texts.
    texts: &'static [&'static str],
}

const KINDS: [Kind; 34] = [
    kind("message", "msg", &["role", "content", "phase"], &[]),
    kind(
        "function_call",
        "fc",
        &["call_id", "name", "arguments", "namespace", "caller", "async"],
        &["call_id", "name", "arguments"],
    ),
    kind("function_call_output", "fc", &["call_id", "output", "name", "namespace", "caller"], &["call_id"]),
    kind(
        "custom_tool_call",
        "ctc",
        &["call_id", "name", "input", "namespace", "caller"],
        &["call_id", "name", "input"],
    ),
    kind(
        "custom_tool_call_output",
        "ctc",
        &["call_id", "output", "name", "namespace", "caller"],
        &["call_id"],
    ),
    kind("local_shell_call", "lsh", &["call_id", "action"], &["call_id"]),
    kind("local_shell_call_output", "", &["output"], &["id"]),
    kind("shell_call", "", &["call_id", "action", "environment", "caller"], &["call_id"]),
    kind("shell_call_output", "", &["call_id", "output", "max_output_length", "caller"], &["call_id"]),
    kind("apply_patch_call", "apc", &["call_id", "operation", "caller"], &["call_id"]),
    kind("apply_patch_call_output", "", &["call_id", "output", "caller"], &["call_id"]),
    kind("tool_search_call", "tsc", &["call_id", "arguments", "execution"], &[]),
    kind("tool_search_output", "", &["call_id", "tools", "execution"], &[]),
    kind(
        "mcp_approval_response",
        "",
        &["approval_request_id", "approve", "reason"],
        &["approval_request_id"],
    ),
    kind("reasoning", "rs", &["summary", "content", "encrypted_content"], &[]),
    kind("item_reference", "", &[], &["id"]),
    foreign("computer_call"),
    foreign("computer_call_output"),
    foreign("mcp_approval_request"),
    foreign("mcp_call"),
    foreign("mcp_list_tools"),
    foreign("web_search_call"),
    foreign("file_search_call"),
    foreign("code_interpreter_call"),
    foreign("image_generation_call"),
    foreign("compaction"),
    foreign("compaction_trigger"),
    foreign("program"),
    foreign("program_output"),
    foreign("additional_tools"),
    foreign("configuration_update"),
    foreign("agent_message"),
    foreign("multi_agent_call"),
    foreign("multi_agent_call_output"),
];

const fn kind(
    name: &'static str,
    prefix: &'static str,
    members: &'static [&'static str],
    texts: &'static [&'static str],
) -> Kind {
    Kind { name, prefix, members: Some(members), texts }
}

const fn foreign(name: &'static str) -> Kind {
    Kind { name, prefix: "", members: None, texts: &[] }
}

/// The items of `input`, each checked. Only a request that `continues` a response may have none.
pub(super) fn read(input: Value, continues: bool) -> Result<Vec<Value>, Refusal> {
    let items = match input {
        Value::Null if !continues => return Err(Refusal::missing("input")),
        Value::Null => Vec::new(),
        Value::String(text) => {
            let content = json!([{"type": "input_text", "text": text}]);
            vec![json!({"type": "message", "role": "user", "content": content})]
        }
        Value::Array(items) if items.is_empty() && !continues => return Err(Refusal::empty_array("input")),
        Value::Array(items) => items,
        other => {
            return Err(Refusal::wrong_type("input", "one of a string or an array of objects", &other));
        }
    };
    for (index, item) in items.iter().enumerate() {
        check_item(&format!("input[{index}]"), item)?;
    }
    Ok(items)
}

/// The item's kind; messages and references may leave it out.
pub(super) fn kind_of(item: &Value) -> &str {
    let short_form = if item.get("role").is_some() { "message" } else { "item_reference" };
    item["type"].as_str().unwrap_or(short_form)
}

/// How the ids of such an item begin; empty where that is not known.
pub(super) fn prefix_of(item: &Value) -> &'static str {
    KINDS.iter().find(|kind| kind.name == kind_of(item)).map_or("", |kind| kind.prefix)
}

/// Refuses a member of `object` that is not in one of the lists of `known`.
pub(super) fn only_known(object: &Value, path: &str, known: &[&[&str]]) -> Result<(), Refusal> {
    let mut keys = object.as_object().into_iter().flat_map(Map::keys);
    let unknown = keys.find(|key| !known.iter().any(|list| list.contains(&key.as_str())));
    unknown.map_or(Ok(()), |key| {
        let dot = if path.is_empty() { "" } else { "." };
        Err(Refusal::unknown_parameter(&format!("{path}{dot}{key}")))
    })
}

fn check_item(path: &str, item: &Value) -> Result<(), Refusal> {
    if !item.is_object() {
        return Err(Refusal::wrong_type(path, "an object", item));
    }
    let name = kind_of(item);
    let Some(kind) = KINDS.iter().find(|kind| kind.name == name) else {
        // A vendor's extension has a colon in its name.
        return if name.contains(':') { Ok(()) } else { Err(unknown_kind(path, name)) };
    };
    if let Some(members) = kind.members {
        only_known(item, path, &[&COMMON, members])?;
    }
    for key in kind.texts {
        check::text(item, path, key)?;
    }
    check_id(path, item, kind.prefix)?;
    if let Some(id) = item["call_id"].as_str() {
        check_length(&format!("{path}.call_id"), id)?;
    }
    match name {
        "message" => content::check_message(path, item),
        "function_call_output" | "custom_tool_call_output" => content::check_output(path, item),
        _ => Ok(()),
    }
}

fn unknown_kind(path: &str, name: &str) -> Refusal {
    let names: Vec<String> = KINDS.iter().map(|kind| format!("'{}'", kind.name)).collect();
    Refusal::unknown_value(&format!("{path}.type"), name, &names.join(", "))
}

fn check_id(path: &str, item: &Value, prefix: &str) -> Result<(), Refusal> {
    let path = format!("{path}.id");
    let id = match &item["id"] {
        Value::Null => return Ok(()),
        Value::String(id) => id,
        other => return Err(Refusal::wrong_type(&path, "a string", other)),
    };
    let refusal = |rule: &str| {
        Err(Refusal::invalid(format!("Invalid '{path}': '{id}'. {rule}"), path.as_str())
            .coded("invalid_value"))
    };
    if id.is_empty() || !id.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')) {
        return refusal(
            "Expected an ID that contains letters, numbers, underscores, or dashes, but this value contained \
             additional characters.",
        );
    }
    check_length(&path, id)?;
    if !id.starts_with(prefix) {
        return refusal(&format!("Expected an ID that begins with '{prefix}'."));
    }
    Ok(())
}

fn check_length(path: &str, id: &str) -> Result<(), Refusal> {
    match id.chars().count() {
        0 => Err(Refusal::empty_string(path)),
        len if len > MAX_ID => Err(Refusal::long_string(path, MAX_ID, len)),
        _ => Ok(()),
    }
}
