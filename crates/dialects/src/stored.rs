//! What upstreams store, as any client may read it: the calls in it, in both APIs, and a stored chat completion without
//! them. Decides nothing on a call. A stored response is read by `responses::stored`.

use bytes::Bytes;
use serde_json::{Map, Value, json};
use wire::json::in_one_case;

/// A call in stored JSON.
pub struct StoredCall {
    pub id: String,
    pub name: String,
    pub arguments: String,
    /// The provider has run it already.
    is_hosted: bool,
}

/// Everything in `value` that a client may run as a call: items of the Responses API and calls of chat completions, at any
/// depth, however their members are capitalised.
pub fn calls_in(value: &Value) -> Vec<StoredCall> {
    let (mut calls, mut rest) = (Vec::new(), vec![value]);
    while let Some(value) = rest.pop() {
        match (call_of(value), value) {
            (Some(call), _) => calls.extend(Some(call).filter(|call| !call.is_hosted)),
            (None, Value::Array(values)) => rest.extend(values),
            (None, Value::Object(members)) => rest.extend(members.values()),
            _ => {}
        }
    }
    calls
}

/// The call that `value` is.
fn call_of(value: &Value) -> Option<StoredCall> {
    let kind = text_of(member(value, "type")).to_lowercase();
    let id = [member(value, "call_id"), member(value, "id")].into_iter().find(|id| id.is_string());
    let id = text_of(id.unwrap_or(&Value::Null));
    let within = [member(value, "function"), member(value, "custom")];
    if let Some(call) = within.into_iter().find(|call| member(call, "name").is_string() && !id.is_empty()) {
        return Some(StoredCall {
            id,
            name: text_of(member(call, "name")),
            arguments: arguments_of(call),
            is_hosted: false,
        });
    }
    let name = text_of(member(value, "name"));
    let item = kind.strip_suffix("_call").or((kind == MCP_APPROVAL).then_some(&*kind));
    if item.is_none() && (name.is_empty() || !ARGUMENTS.iter().any(|name| !member(value, name).is_null())) {
        return None;
    }
    let item = item.unwrap_or_default();
    let own = if name.is_empty() { item.to_owned() } else { name };
    let outer = [member(value, "namespace"), member(value, "server_label")].map(text_of);
    let outer = outer.into_iter().find(|outer| !outer.is_empty() && *outer != own);
    let is_hosted =
        PROVIDERS_OWN.contains(&item) || (item == "tool_search" && member(value, "call_id").is_null());
    let name = outer.map_or_else(|| own.clone(), |outer| format!("{outer}.{own}"));
    Some(StoredCall { id, name, arguments: arguments_of(value), is_hosted })
}

fn member<'a>(value: &'a Value, name: &str) -> &'a Value {
    let members = value.as_object().into_iter().flatten();
    let mut named = members.filter(|(key, _)| *in_one_case(key.as_bytes()) == *name.as_bytes());
    named.next().map_or(&Value::Null, |(_, value)| value)
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// The members that hold a call's arguments.
const ARGUMENTS: [&str; 4] = ["arguments", "input", "action", "operation"];

fn arguments_of(call: &Value) -> String {
    let arguments = ARGUMENTS.iter().map(|name| text_of(member(call, name)));
    arguments.into_iter().find(|text| !text.is_empty()).unwrap_or_default()
}

const MCP_APPROVAL: &str = "mcp_approval_request";
/// Calls that the provider has run already, by type without `_call`.
const PROVIDERS_OWN: [&str; 5] = ["web_search", "file_search", "code_interpreter", "image_generation", "mcp"];

/// The request that a stored chat completion answers, as far as it is known.
pub fn request_of_completion(body: &[u8]) -> Option<Bytes> {
    let completion: Value = serde_json::from_slice(body).ok()?;
    let mut request = json!({"messages": [{"role": "user", "content": ""}]});
    for member in ["model", "tools"] {
        if !completion[member].is_null() {
            request[member] = completion[member].clone();
        }
    }
    Some(request.to_string().into())
}

/// A stored chat completion with its texts alone. It is written anew, so that nothing is left that some client reads as a
/// call.
pub fn without_calls(body: &[u8]) -> Option<Bytes> {
    let completion: Value = serde_json::from_slice(body).ok()?;
    let mut shown = Map::new();
    for member in ["id", "object", "created", "model", "usage", "metadata"] {
        shown.extend(completion.get(member).map(|value| (member.to_owned(), value.clone())));
    }
    let choices = completion["choices"].as_array()?.iter().zip(0_u32..).map(|(choice, index)| {
        let text = choice["message"]["content"].as_str().filter(|text| !text.is_empty()).unwrap_or(BLOCKED);
        json!({"index": index, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"})
    });
    shown.insert("choices".to_owned(), choices.collect());
    Some(Value::Object(shown).to_string().into())
}

/// The sentence in place of calls that were all blocked.
const BLOCKED: &str = "The tool calls of this reply were not run: a policy blocked them.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_found_in_the_objects_and_lists_of_both_apis() {
        let item = json!({"type": "function_call", "call_id": "a", "id": "fc_a", "name": "pay", "namespace": "crm", "arguments": "{}"});
        let shell = json!({"type": "shell_call", "call_id": "a", "action": {"commands": ["ls"]}});
        let asks = json!({"type": "mcp_approval_request", "id": "a", "name": "pay", "server_label": "shop", "arguments": "{}"});
        let call = json!({"id": "a", "type": "function", "function": {"name": "pay", "arguments": "{}"}});
        for (value, expected) in [
            (json!({"output": [item]}), vec![("a", "crm.pay", "{}")]),
            (json!({"data": [item, item]}), vec![("a", "crm.pay", "{}"), ("a", "crm.pay", "{}")]),
            (json!({"output": [shell]}), vec![("a", "shell", "{\"commands\":[\"ls\"]}")]),
            (json!([asks]), vec![("a", "shop.pay", "{}")]),
            (json!({"choices": [{"message": {"tool_calls": [call]}}]}), vec![("a", "pay", "{}")]),
            (
                json!({"message": {"function_call": {"name": "pay", "arguments": "{}"}}}),
                vec![("", "pay", "{}")],
            ),
            (
                json!({"output": [{"type": "web_search_call", "id": "ws_1"}], "tools": [{"type": "function", "name": "pay"}]}),
                vec![],
            ),
            (json!({"tools": [{"type": "function", "function": {"name": "pay"}}]}), vec![]),
            (
                json!({"Message": {"Tool_Calls": [{"ID": "a", "Function": {"Name": "pay", "Arguments": "{}"}}]}}),
                vec![("a", "pay", "{}")],
            ),
            (json!([{"call_id": "a", "name": "pay", "arguments": "{}"}]), vec![("a", "pay", "{}")]),
        ] {
            let found = calls_in(&value);
            let found: Vec<_> = found.iter().map(|it| (&*it.id, &*it.name, &*it.arguments)).collect();
            assert_eq!(found, expected, "{value}");
        }
    }
}
