//! A strict validator of requests of the Responses API, as OpenAI checks them: calls and outputs that need each other,
//! ids, members, tools. It sees one request alone: what an upstream keeps by `previous_response_id` or `conversation` is
//! taken to be there.

use serde_json::Value;
use std::collections::BTreeSet;

/// The members of a request.
const MEMBERS: &str = "model input instructions previous_response_id conversation store background background_options \
    stream stream_options include tools tool_choice parallel_tool_calls max_tool_calls max_output_tokens reasoning text \
    truncation context_management prompt_cache_key prompt_cache_options prompt_cache_retention prompt metadata \
    safety_identifier user service_tier temperature top_p top_logprobs moderation access_programs image \
    client_metadata";

/// Kinds of items: the type, how ids of it begin, and its members beside `type`, `id` and `status`. A kind that is not
/// here is not looked at.
const ITEMS: [(&str, &str, &str); 19] = [
    ("message", "msg", "role content phase"),
    ("function_call", "fc", "call_id name arguments namespace caller async"),
    ("function_call_output", "", "call_id output name namespace caller"),
    ("custom_tool_call", "ctc", "call_id name input namespace caller"),
    ("custom_tool_call_output", "", "call_id output name namespace caller"),
    ("local_shell_call", "lsh", "call_id action"),
    ("local_shell_call_output", "", "call_id output"),
    ("shell_call", "sh", "call_id action environment max_output_length caller"),
    ("shell_call_output", "", "call_id output max_output_length caller"),
    ("apply_patch_call", "apc", "call_id operation caller"),
    ("apply_patch_call_output", "", "call_id output caller"),
    ("computer_call", "cu", "call_id action actions pending_safety_checks"),
    ("computer_call_output", "", "call_id output acknowledged_safety_checks"),
    ("tool_search_call", "tsc", "call_id arguments execution"),
    ("tool_search_output", "", "call_id execution tools"),
    ("mcp_approval_request", "mcpr", "name arguments server_label"),
    ("mcp_approval_response", "", "approval_request_id approve reason"),
    ("reasoning", "rs", "summary content encrypted_content"),
    ("item_reference", "", ""),
];

/// What is wrong with a body, in OpenAI's words where those are known; nothing for a body that passes.
pub fn violations(body: &[u8]) -> Vec<String> {
    let body: Value = match serde_json::from_slice(body) {
        Ok(body) => body,
        Err(error) => return vec![format!("We could not parse the JSON body of your request: {error}")],
    };
    let mut found = Vec::new();
    members(&body, &mut found);
    tools(&body, &mut found);
    let items = body["input"].as_array().map(Vec::as_slice).unwrap_or_default();
    for (at, item) in items.iter().enumerate() {
        shape(at, item, &mut found);
    }
    ids(items, &mut found);
    call_ids(items, &mut found);
    ours(items, &mut found);
    pairs(items, is_stateful(&body), &mut found);
    reasoning(items, &mut found);
    found
}

/// Members that any item may have. Codex adds the last to the items that it sends to OpenAI, which accepts it.
const OF_ALL_ITEMS: [&str; 4] = ["type", "id", "status", "internal_chat_message_metadata_passthrough"];

fn is_stateful(body: &Value) -> bool {
    ["previous_response_id", "conversation", "prompt"].iter().any(|member| !body[*member].is_null())
}

fn members(body: &Value, found: &mut Vec<String>) {
    let known: Vec<&str> = MEMBERS.split_whitespace().collect();
    let unknown = body.as_object().into_iter().flatten().filter(|(name, _)| !known.contains(&name.as_str()));
    found.extend(unknown.map(|(name, _)| format!("Unknown parameter: '{name}'.")));
    let mut refuse = |is_wrong: bool, what: &str| found.extend(is_wrong.then(|| what.to_owned()));
    let set = |name: &str| !body[name].is_null();
    refuse(!body["model"].is_string() && !set("prompt"), "Missing required parameter: 'model'.");
    refuse(!set("input") && !is_stateful(body), "Missing required parameter: 'input'.");
    refuse(
        set("previous_response_id") && set("conversation"),
        "Mutually exclusive parameters: 'previous_response_id' and 'conversation'.",
    );
    refuse(
        body["background"] == true && body["store"] == false,
        "Background requires that 'store' is not false.",
    );
    refuse(
        body["max_output_tokens"].as_u64().is_some_and(|most| most < 16),
        "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16.",
    );
    refuse(set("stream_options") && body["stream"] != true, "'stream_options' needs 'stream'.");
}

fn tools(body: &Value, found: &mut Vec<String>) {
    let mut names = BTreeSet::new();
    let lists = body["input"].as_array().into_iter().flatten().map(|item| &item["tools"]);
    for (at, tool) in lists.chain([&body["tools"]]).filter_map(Value::as_array).flatten().enumerate() {
        let inner = tool["tools"].as_array().into_iter().flatten();
        for tool in inner.chain([tool]) {
            if tool.get("function").is_some() {
                found.push(format!("Unknown parameter: 'tools[{at}].function'."));
            }
            let needs_name =
                ["function", "custom", "namespace"].contains(&tool["type"].as_str().unwrap_or(""));
            if needs_name && !is_name(&tool["name"]) {
                found.push(format!("Invalid 'tools[{at}].name': {}", tool["name"]));
            }
            names.extend(["name", "server_label", "type"].iter().filter_map(|name| tool[*name].as_str()));
        }
    }
    let choice = &body["tool_choice"];
    let allowed = choice["tools"].as_array().into_iter().flatten();
    for chosen in allowed.chain([choice]).filter_map(|choice| choice["name"].as_str()) {
        if !names.contains(chosen) {
            found.push(format!("Tool choice '{chosen}' not found in 'tools' parameter."));
        }
    }
}

/// `^[a-zA-Z0-9_-]{1,128}$`
fn is_name(name: &Value) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    name.as_str().is_some_and(|text| (1..=128).contains(&text.len()) && text.bytes().all(allowed))
}

/// A name in the history: gateways hand it on to providers that accept at most 64 characters.
fn is_item_name(name: &Value) -> bool {
    is_name(name) && name.as_str().is_some_and(|name| name.len() <= 64)
}

/// Whether a text is a JSON object; any other value is refused elsewhere.
fn is_object(arguments: &Value) -> bool {
    let read = |text: &str| serde_json::from_str::<Value>(text).is_ok_and(|value| value.is_object());
    arguments.as_str().is_none_or(read)
}

fn kind(item: &Value) -> &str {
    match item["type"].as_str() {
        Some(kind) => kind,
        None if item["role"].is_string() => "message",
        None => "item_reference",
    }
}

fn shape(at: usize, item: &Value, found: &mut Vec<String>) {
    let Some((kind, begins, members)) = ITEMS.iter().find(|(known, ..)| *known == kind(item)) else { return };
    let known: Vec<&str> = OF_ALL_ITEMS.into_iter().chain(members.split_whitespace()).collect();
    let unknown = item.as_object().into_iter().flatten().filter(|(name, _)| !known.contains(&name.as_str()));
    found.extend(unknown.map(|(name, _)| format!("Unknown parameter: 'input[{at}].{name}'.")));
    if let Some(id) = item["id"].as_str() {
        if id.is_empty() && !begins.is_empty() {
            found.push(format!("Invalid 'input[{at}].id': empty string."));
        } else if !id.starts_with(begins) {
            found.push(format!(
                "Invalid 'input[{at}].id': '{id}'. Expected an ID that begins with '{begins}'."
            ));
        } else if id.starts_with("msg_toolrein") {
            found.push(format!("Item with id '{id}' not found."));
        }
    }
    let role = item["role"].as_str().unwrap_or_default();
    if *kind == "message" && !["user", "assistant", "system", "developer"].contains(&role) {
        found.push(format!("Invalid value: '{role}' of 'input[{at}].role'."));
    }
    if *kind == "reasoning" && !item["summary"].is_array() {
        found.push(format!("Missing required parameter: 'input[{at}].summary'."));
    }
    if *kind == "function_call" && !(item["arguments"].is_string() && is_item_name(&item["name"])) {
        found.push(format!("Invalid type for 'input[{at}]': a call needs a name and arguments as a string."));
    }
}

fn ids(items: &[Value], found: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    // The output of a local shell call has the call's id for its own.
    let own = items.iter().filter(|item| kind(item) != "local_shell_call_output");
    for id in own.filter_map(|item| item["id"].as_str()).filter(|id| !id.is_empty()) {
        if !seen.insert(id) {
            found.push(format!(
                "Duplicate item found with id {id}. Remove duplicate items from your input and try again."
            ));
        }
    }
}

/// Some provider refuses arguments that are no JSON object, and an empty id. Models and clients write both all the same;
/// toolrein must not.
fn ours(items: &[Value], found: &mut Vec<String>) {
    let outputs = items.iter().filter(|item| is_ours(item));
    let ids: Vec<&Value> = outputs.map(|item| &item["call_id"]).collect();
    for call in items.iter().filter(|item| kind(item) == "function_call" && ids.contains(&&item["call_id"])) {
        if !is_object(&call["arguments"]) {
            found.push(format!("Invalid arguments: expected a JSON object in {call}."));
        }
        if call["call_id"].as_str().is_none_or(str::is_empty) {
            found.push(format!("Invalid call_id: empty string in {call}."));
        }
    }
}

/// Whether an output is toolrein's explanation of a blocked call.
fn is_ours(item: &Value) -> bool {
    item["output"].as_str().is_some_and(|text| text.contains(r#""by":"toolrein""#))
}

/// Calls and outputs are found by their ids alone. Models and clients repeat ids all the same; toolrein must not.
fn call_ids(items: &[Value], found: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for item in items.iter().filter(|item| kind(item).ends_with("_output")) {
        let Some(id) = item["call_id"].as_str() else { continue };
        if !seen.insert((kind(item), id)) && is_ours(item) {
            found.push(format!("Duplicate {} for call_id '{id}'.", kind(item)));
        }
    }
}

/// The type of the output that a call of the client's needs.
fn output_of(call: &Value) -> Option<&'static str> {
    Some(match kind(call) {
        "function_call" => "function_call_output",
        "custom_tool_call" => "custom_tool_call_output",
        "local_shell_call" => "local_shell_call_output",
        "shell_call" if !call["environment"]["type"].as_str().unwrap_or("").starts_with("container") => {
            "shell_call_output"
        }
        "apply_patch_call" => "apply_patch_call_output",
        "computer_call" => "computer_call_output",
        "tool_search_call" if call["execution"] == "client" => "tool_search_output",
        _ => return None,
    })
}

/// The words for a call in a refusal: its type, spoken.
fn spoken(output: &str) -> String {
    output.trim_end_matches("_output").replace('_', " ")
}

fn pairs(items: &[Value], is_stateful: bool, found: &mut Vec<String>) {
    let mut open: Vec<(&str, Vec<&str>)> = Vec::new();
    let is_output = |name: &str| name.ends_with("_output") && ITEMS.iter().any(|(known, ..)| *known == name);
    for item in items {
        if let Some(output) = output_of(item)
            && item["async"] != true
        {
            open.push((output, ["call_id", "id"].iter().filter_map(|name| item[*name].as_str()).collect()));
        } else if is_output(kind(item)) {
            let id = item["call_id"].as_str().or_else(|| item["id"].as_str()).unwrap_or_default();
            let answers = |(output, ids): &(&str, Vec<&str>)| *output == kind(item) && ids.contains(&id);
            match open.iter().position(answers) {
                Some(at) => drop(open.remove(at)),
                None if is_stateful || item["call_id"].is_null() && kind(item) == "tool_search_output" => {}
                None => {
                    let words = spoken(kind(item));
                    found.push(format!("No tool call found for {words} output with call_id {id}."));
                }
            }
        }
    }
    for (output, ids) in open {
        let id = ids.first().copied().unwrap_or_default();
        found.push(format!("No tool output found for {} {id}.", spoken(output)));
    }
}

/// Reasoning is followed by what the model made after it.
fn reasoning(items: &[Value], found: &mut Vec<String>) {
    for (at, item) in items.iter().enumerate().filter(|(_, item)| kind(item) == "reasoning") {
        let follows = items.get(at + 1).is_some_and(|next| {
            let kind = kind(next);
            let is_of_model = next["role"].is_null() || next["role"] == "assistant";
            is_of_model && kind != "reasoning" && !kind.ends_with("_output") && !kind.ends_with("_response")
        });
        if !follows {
            let id = item["id"].as_str().unwrap_or_default();
            found.push(format!(
                "Item '{id}' of type 'reasoning' was provided without its required following item."
            ));
        }
    }
}
