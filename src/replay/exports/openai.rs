//! Logs of OpenAI: stored completions, and requests with their replies as `replay` reads them.

use super::{Members, NoConversation, Unpacked};
use serde_json::{Map, Value, json};

/// Whether it is a reply without the request: a stored completion or response.
pub(super) fn is_reply(members: &Members<'_>) -> bool {
    let kind = members.get("object").and_then(|kind| serde_json::from_str::<String>(kind.get()).ok());
    matches!(kind.as_deref(), Some("chat.completion" | "response"))
}

/// A stored completion: its request is there only where the export adds it.
pub(super) fn stored(members: &Members<'_>) -> Unpacked {
    let asked = ["input_messages", "input"].iter().find_map(|name| members.get(*name));
    let asked = asked.filter(|asked| asked.get().starts_with('[')).ok_or(NoConversation::StoredReply)?;
    let mut request = Map::new();
    let is_response = members.contains_key("output");
    request.insert(if is_response { "input" } else { "messages" }.to_owned(), value(asked.get()));
    for name in ["model", "tools", "tool_choice"] {
        if let Some(member) = members.get(name) {
            request.insert(name.to_owned(), value(member.get()));
        }
    }
    let reply: Map<String, Value> =
        members.iter().map(|(name, member)| (name.clone(), value(member.get()))).collect();
    Ok(exchange(&Value::Object(request).to_string(), &Value::Object(reply).to_string(), None))
}

/// The line of a request and its reply, JSON texts both, with the label `id`.
pub(super) fn exchange(request: &str, reply: &str, id: Option<&str>) -> String {
    let id = id.map_or_else(String::new, |id| format!("\"id\":{},", json!(id)));
    format!("{{{id}\"request\":{request},\"response\":{reply}}}")
}

/// The line of a conversation of these messages or items, a JSON list.
pub(super) fn of_messages(list: &str) -> String {
    let is_items = list.contains("\"function_call_output\"") || list.contains("\"call_id\"");
    let member = if is_items { "input" } else { "messages" };
    format!("{{\"{member}\":{list}}}")
}

/// The line of a request of these messages, with the model and the tools that are known, and the reply's message.
pub(super) fn completion(
    messages: Vec<Value>,
    model: Option<Value>,
    tools: Option<Value>,
    reply: Option<Value>,
    id: Option<&str>,
) -> String {
    let mut request = Map::new();
    request.extend(model.map(|model| ("model".to_owned(), model)));
    request.insert("messages".to_owned(), Value::Array(messages));
    request.extend(tools.map(|tools| ("tools".to_owned(), tools)));
    let reply = reply.map_or(Value::Null, |message| json!({"choices": [{"index": 0, "message": message}]}));
    exchange(&Value::Object(request).to_string(), &reply.to_string(), id)
}

fn value(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_default()
}
