//! Items that toolrein writes: calls as they were judged, its own messages, and synthetic results of blocked calls. All
//! as JSON, with the events that a stream needs for them.

use crate::responses::item::CallKind;
use bytes::Bytes;
use model::assembled::Assembled;
use serde_json::{Value, json};

/// The call as it was judged, from the item `done` that held it: members that no policy looks at stay.
pub fn judged_call(kind: CallKind, call: &Assembled, done: Option<&Bytes>) -> Bytes {
    let mut item: Value =
        done.and_then(|done| serde_json::from_slice(done).ok()).unwrap_or_else(|| json!({}));
    item["type"] = kind.item_type().into();
    if kind != CallKind::McpApproval {
        item["call_id"] = call.id().into();
    }
    if kind.is_named() {
        let name = call.name();
        let outer = if kind == CallKind::McpApproval { "server_label" } else { "namespace" };
        let prefix = item[outer].as_str().map(|outer| format!("{outer}."));
        item["name"] = prefix.and_then(|prefix| name.strip_prefix(&*prefix)).unwrap_or(&name).into();
        if item[outer].is_null() {
            item.as_object_mut().and_then(|item| item.remove(outer));
        }
    }
    item[kind.arguments_member()] = arguments(kind, call);
    item.to_string().into()
}

/// The arguments as the kind of call holds them: text, or an object.
fn arguments(kind: CallKind, call: &Assembled) -> Value {
    let text = call.arguments();
    match kind {
        CallKind::Function | CallKind::Custom | CallKind::McpApproval => text.into(),
        _ => serde_json::from_str(&text).unwrap_or_else(|_| text.into()),
    }
}

/// The data of the events that give the client the call `item`, at the index `at`, without sequence numbers.
pub fn call_events(kind: CallKind, item: &[u8], at: u64) -> Vec<Value> {
    let done: Value = serde_json::from_slice(item).unwrap_or_default();
    let (id, member) = (done["id"].clone(), kind.arguments_member());
    let mut added = done.clone();
    if let Some(status) = added.get_mut("status") {
        *status = "in_progress".into();
    }
    let name = match kind {
        CallKind::Function => Some("function_call_arguments"),
        CallKind::Custom => Some("custom_tool_call_input"),
        _ => None,
    };
    let mut events = Vec::new();
    if let Some(name) = name {
        added[member] = "".into();
        let delta = json!({"type": format!("response.{name}.delta"), "item_id": id, "output_index": at, "delta": done[member]});
        let mut end = json!({"type": format!("response.{name}.done"), "item_id": id, "output_index": at});
        end[member] = done[member].clone();
        events.extend([delta, end]);
    }
    events.insert(0, json!({"type": "response.output_item.added", "output_index": at, "item": added}));
    events.push(json!({"type": "response.output_item.done", "output_index": at, "item": done}));
    events
}

/// A message of toolrein's with the id `id`.
pub fn message(id: &str, text: &str) -> Value {
    json!({"id": id, "type": "message", "status": "completed", "role": "assistant",
        "content": [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]})
}

/// As [`message`], as the events of a stream.
pub fn message_events(message: &Value, at: u64) -> Vec<Value> {
    let (id, part) = (message["id"].clone(), message["content"][0].clone());
    let mut added = message.clone();
    (added["status"], added["content"]) = ("in_progress".into(), json!([]));
    let of = |kind: &str, more: Value| {
        let mut event = json!({"type": kind, "item_id": id, "output_index": at, "content_index": 0});
        if let (Some(event), Value::Object(more)) = (event.as_object_mut(), more) {
            event.extend(more);
        }
        event
    };
    let mut empty = part.clone();
    empty["text"] = "".into();
    vec![
        json!({"type": "response.output_item.added", "output_index": at, "item": added}),
        of("response.content_part.added", json!({"part": empty})),
        of("response.output_text.delta", json!({"delta": part["text"], "logprobs": []})),
        of("response.output_text.done", json!({"text": part["text"], "logprobs": []})),
        of("response.content_part.done", json!({"part": part})),
        json!({"type": "response.output_item.done", "output_index": at, "item": message}),
    ]
}

/// The result of a blocked call as its kind holds it, without an id: the upstream did not issue one. `None` for a call
/// that no text can answer.
pub fn synthetic_result(kind: CallKind, call: &Assembled, done: Option<&Bytes>, text: &str) -> Option<Bytes> {
    result_of(kind, &call.id(), done.map(|done| &**done), text)
}

/// As [`synthetic_result`], for the call with this id.
pub fn result_of(kind: CallKind, id: &str, done: Option<&[u8]>, text: &str) -> Option<Bytes> {
    let mut result = match kind {
        CallKind::Function => json!({"type": "function_call_output", "call_id": id, "output": text}),
        CallKind::Custom => json!({"type": "custom_tool_call_output", "call_id": id, "output": text}),
        CallKind::LocalShell => json!({"type": "local_shell_call_output", "id": id, "output": text}),
        CallKind::Shell => json!({"type": "shell_call_output", "call_id": id, "output":
            [{"stdout": "", "stderr": text, "outcome": {"type": "exit", "exit_code": 1}}]}),
        CallKind::ApplyPatch => {
            json!({"type": "apply_patch_call_output", "call_id": id, "status": "failed", "output": text})
        }
        CallKind::ToolSearch => {
            json!({"type": "tool_search_output", "call_id": id, "execution": "client", "tools": []})
        }
        CallKind::McpApproval => {
            json!({"type": "mcp_approval_response", "approval_request_id": id, "approve": false, "reason": text})
        }
        CallKind::Computer => return None,
    };
    // A call of a running program is answered to the program.
    let of_call = done.and_then(|done| serde_json::from_slice::<Value>(done).ok());
    if let Some(caller) =
        of_call.and_then(|call| call.get("caller").cloned()).filter(|caller| !caller.is_null())
    {
        result["caller"] = caller;
    }
    Some(result.to_string().into())
}
