//! The translation of items into the messages over which the simulated models have their rules.

use super::items::kind_of;
use serde_json::{Value, json};

/// The messages that `instructions` and `items` amount to, in order. What no rule looks at is left out.
pub(super) fn messages(instructions: &Value, items: &[Value]) -> Vec<Value> {
    let first = instructions.as_str().map(|text| json!({"role": "system", "content": text}));
    first.into_iter().chain(items.iter().filter_map(message)).collect()
}

fn message(item: &Value) -> Option<Value> {
    match kind_of(item) {
        "message" => Some(json!({"role": item["role"], "content": item["content"]})),
        "function_call" => Some(call(item, &item["arguments"])),
        "custom_tool_call" => Some(call(item, &item["input"])),
        "function_call_output"
        | "custom_tool_call_output"
        | "apply_patch_call_output"
        | "local_shell_call_output" => Some(json!({"role": "tool", "content": item["output"]})),
        _ => None,
    }
}

/// A call alone in its message: no rule asks which calls came in one reply.
fn call(item: &Value, arguments: &Value) -> Value {
    let function = json!({"name": item["name"], "arguments": arguments});
    json!({"role": "assistant", "tool_calls": [{"id": item["call_id"], "function": function}]})
}
