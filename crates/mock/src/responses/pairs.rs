//! OpenAI's rules about items that belong together, over the stored history and the input: every call that the client
//! carries out has its output later on, every output its call before it, and no item occurs twice.

use super::super::refusal::Refusal;
use super::items::kind_of;
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// A kind of call that the client carries out.
struct Family {
    call: &'static str,
    output: &'static str,
    /// How OpenAI names it.
    words: &'static str,
    /// The member of the output that names the call.
    key: &'static str,
}

const FAMILIES: [Family; 6] = [
    family("function_call", "function_call_output", "function call"),
    family("custom_tool_call", "custom_tool_call_output", "custom tool call"),
    family("shell_call", "shell_call_output", "shell call"),
    family("apply_patch_call", "apply_patch_call_output", "apply patch call"),
    family("computer_call", "computer_call_output", "computer call"),
    Family {
        call: "local_shell_call",
        output: "local_shell_call_output",
        words: "local shell call",
        key: "id",
    },
];

const fn family(call: &'static str, output: &'static str, words: &'static str) -> Family {
    Family { call, output, words, key: "call_id" }
}

/// Refuses items that are not whole together.
pub(super) fn check(items: &[Value]) -> Result<(), Refusal> {
    let mut ids = HashSet::new();
    // The calls without an output so far, by kind and id, with their positions.
    let mut open: HashMap<(&str, &str), Vec<usize>> = HashMap::new();
    for (at, item) in items.iter().enumerate() {
        let kind = kind_of(item);
        if kind != "local_shell_call_output"
            && let Some(id) = item["id"].as_str()
            && !ids.insert(id)
        {
            return Err(duplicate(id));
        }
        if let Some(family) = FAMILIES.iter().find(|family| family.call == kind && !is_hosted(item)) {
            let id = item[family.key].as_str().unwrap_or_default();
            open.entry((family.call, id)).or_default().push(at);
        }
        if let Some(family) = FAMILIES.iter().find(|family| family.output == kind) {
            let id = item[family.key].as_str().unwrap_or_default();
            // A second output of one call is refused too: it has no call of its own.
            open.get_mut(&(family.call, id)).and_then(Vec::pop).ok_or_else(|| no_call(family, id))?;
        }
    }
    // An asynchronous call may be answered in a later turn.
    let unanswered = open.values().flatten().filter(|at| items[**at]["async"] != true).min();
    unanswered.map_or(Ok(()), |at| Err(no_output(&items[*at])))
}

/// Whether the server itself ran the call, in a container.
fn is_hosted(item: &Value) -> bool {
    item["environment"]["type"].as_str().is_some_and(|environment| environment.starts_with("container"))
}

fn duplicate(id: &str) -> Refusal {
    let advice = "Remove duplicate items from your input and try again.";
    Refusal::invalid(format!("Duplicate item found with id {id}. {advice}"), "input")
}

fn no_call(family: &Family, id: &str) -> Refusal {
    let Family { words, key, .. } = family;
    Refusal::invalid(format!("No tool call found for {words} output with {key} {id}."), "input")
}

fn no_output(call: &Value) -> Refusal {
    let family = FAMILIES.iter().find(|family| family.call == kind_of(call));
    let (words, key) = family.map_or(("tool call", "call_id"), |family| (family.words, family.key));
    let id = call[key].as_str().unwrap_or_default();
    Refusal::invalid(format!("No tool output found for {words} {id}."), "input")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refused(items: &Value) -> String {
        check(items.as_array().unwrap()).err().map(|refusal| refusal.message).unwrap_or_default()
    }

    fn call(id: &str) -> Value {
        json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"})
    }

    fn output(id: &str) -> Value {
        json!({"type": "function_call_output", "call_id": id, "output": ""})
    }

    #[test]
    fn complete_pairs_are_accepted_in_any_order_and_with_repeated_call_ids() {
        let user = json!({"role": "user", "content": "q"});
        let mut asynchronous = call("a");
        asynchronous["async"] = json!(true);
        let shell = json!({"type": "local_shell_call", "id": "lsh_1", "call_id": "c", "action": {}});
        let hosted = json!({"type": "shell_call", "call_id": "c", "environment": {"type": "container_auto"}});
        for items in [
            json!([user]),
            json!([call("a"), call("b"), output("b"), user, output("a")]),
            json!([call("a"), output("a"), call("a"), output("a")]),
            json!([asynchronous, user]),
            json!([asynchronous, user, output("a")]),
            json!([shell, {"type": "local_shell_call_output", "id": "lsh_1", "output": ""}]),
            json!([hosted, user]),
        ] {
            assert_eq!(refused(&items), "", "{items}");
        }
    }

    #[test]
    fn an_incomplete_pair_is_refused_with_the_id_of_the_call_or_output() {
        let custom = json!({"type": "custom_tool_call", "call_id": "c", "name": "f", "input": ""});
        let message = json!({"type": "message", "id": "msg_1", "role": "user", "content": "q"});
        for (items, text) in [
            (json!([call("a")]), "No tool output found for function call a."),
            (json!([call("b"), call("a"), output("b")]), "No tool output found for function call a."),
            (json!([custom]), "No tool output found for custom tool call c."),
            (json!([custom, output("c")]), "No tool call found for function call output with call_id c."),
            (json!([output("a"), call("a")]), "No tool call found for function call output with call_id a."),
            (
                json!([call("a"), output("a"), output("a")]),
                "No tool call found for function call output with call_id a.",
            ),
            (
                json!([message, message]),
                "Duplicate item found with id msg_1. Remove duplicate items from your input and try again.",
            ),
        ] {
            assert_eq!(refused(&items), text, "{items}");
        }
    }
}
