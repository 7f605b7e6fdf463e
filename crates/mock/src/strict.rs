//! A strict validator of chat-completions requests, as OpenAI checks them: the order of messages, names, and members
//! that need each other. Only rules that recorded refusals show; it knows no other provider and no model.

use serde_json::Value;
use std::collections::BTreeSet;

/// What is wrong with a body, in OpenAI's words where those are known; nothing for a body that passes.
pub fn violations(body: &[u8]) -> Vec<String> {
    let body: Value = match serde_json::from_slice(body) {
        Ok(body) => body,
        Err(error) => return vec![format!("We could not parse the JSON body of your request: {error}")],
    };
    let mut found = Vec::new();
    if !body["model"].is_string() {
        found.push("you must provide a model parameter".into());
    }
    tools(&body, &mut found);
    match body["messages"].as_array() {
        Some(messages) if !messages.is_empty() => conversation(messages, &mut found),
        _ => found.push("'messages' must be an array of at least one message".into()),
    }
    found
}

fn tools(body: &Value, found: &mut Vec<String>) {
    let offered: Vec<&str> = names_of_tools(body, found);
    if body.get("tools").is_none() {
        for member in ["tool_choice", "parallel_tool_calls"] {
            if body.get(member).is_some() {
                found.push(format!("'{member}' is only allowed when 'tools' are specified"));
            }
        }
    } else if offered.len() > 128 {
        found.push("Invalid 'tools': array too long. Expected an array with maximum length 128".into());
    }
    if let Some(chosen) = body["tool_choice"]["function"]["name"].as_str()
        && !offered.contains(&chosen)
    {
        found.push(format!("Tool choice '{chosen}' not found in 'tools'"));
    }
    if let Some(name) = body["response_format"]["json_schema"].get("name")
        && !is_name(name)
    {
        found.push(format!("Invalid 'response_format.json_schema.name': {name}"));
    }
    if body.get("stream_options").is_some_and(|options| !options.is_null()) && body["stream"] != true {
        found.push("The 'stream_options' parameter is only allowed when 'stream' is enabled".into());
    }
}

fn names_of_tools<'a>(body: &'a Value, found: &mut Vec<String>) -> Vec<&'a str> {
    let Some(tools) = body.get("tools") else { return Vec::new() };
    let tools = tools.as_array().map(Vec::as_slice).unwrap_or_default();
    if tools.is_empty() {
        found.push("Invalid 'tools': empty array. Expected an array with minimum length 1".into());
    }
    let functions = tools.iter().filter(|tool| tool["type"] != "custom");
    functions
        .filter_map(|tool| {
            let name = &tool["function"]["name"];
            if !is_name(name) {
                found.push(format!("Invalid 'tools[].function.name': {name}"));
            }
            name.as_str()
        })
        .collect()
}

/// Calls must be answered at once and completely, and answers must answer a call.
fn conversation(messages: &[Value], found: &mut Vec<String>) {
    let mut open: Vec<&str> = Vec::new();
    unique_ids(messages, found);
    ours(messages, found);
    for (at, message) in messages.iter().enumerate() {
        shape(at, message, found);
        if message["role"] == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            match open.iter().position(|known| *known == id) {
                Some(place) => drop(open.remove(place)),
                None => found.push(format!(
                    "messages[{at}]: messages with role 'tool' must be a response to a preceeding message with \
                     'tool_calls' ({id})"
                )),
            }
            continue;
        }
        unanswered(at, &mut open, found);
        let calls = message["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default();
        open = calls.iter().filter_map(|call| call["id"].as_str()).collect();
    }
    unanswered(messages.len(), &mut open, found);
}

/// Whether a result is toolrein's explanation of a blocked call.
fn is_ours(message: &Value) -> bool {
    message["content"].as_str().is_some_and(|text| text.contains(r#""by":"toolrein""#))
}

/// Some provider refuses a blank text beside calls, and arguments that are no JSON object. Models and clients write both all
/// the same; toolrein must not.
fn ours(messages: &[Value], found: &mut Vec<String>) {
    for (at, message) in messages.iter().enumerate() {
        let Some(calls) = message["tool_calls"].as_array() else { continue };
        let mut results = messages[at + 1..].iter().take_while(|next| next["role"] == "tool");
        if !results.any(is_ours) {
            continue;
        }
        if message["content"].as_str().is_some_and(|text| text.trim().is_empty()) {
            found.push(format!(
                "messages[{at}]: the text of an assistant message is blank: it must be non-empty"
            ));
        }
        for call in calls.iter().filter(|call| !is_object(&call["function"]["arguments"])) {
            found.push(format!("messages[{at}]: arguments must be a JSON object: {call}"));
        }
    }
}

/// Gateways find a result's call by its id alone. Models and clients repeat ids all the same; toolrein must not.
fn unique_ids(messages: &[Value], found: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for message in messages.iter().filter(|message| message["role"] == "tool") {
        let id = message["tool_call_id"].as_str().unwrap_or_default();
        if !seen.insert(id) && is_ours(message) {
            found.push(format!("Duplicate tool call id '{id}'"));
        }
    }
}

fn unanswered(at: usize, open: &mut Vec<&str>, found: &mut Vec<String>) {
    if !open.is_empty() {
        found.push(format!(
            "before messages[{at}]: an assistant message with 'tool_calls' must be followed by tool messages \
             responding to each 'tool_call_id'. These did not have response messages: {}",
            open.join(", ")
        ));
        open.clear();
    }
}

fn shape(at: usize, message: &Value, found: &mut Vec<String>) {
    let mut refuse = |what: String| found.push(format!("messages[{at}]: {what}"));
    let content = &message["content"];
    let says = content.is_string() || content.as_array().is_some_and(|parts| !parts.is_empty());
    match message["role"].as_str().unwrap_or_default() {
        "assistant" => {
            let instead = ["tool_calls", "function_call", "refusal", "audio"];
            if !says && instead.iter().all(|member| message[*member].is_null()) {
                refuse("an assistant message without content needs 'tool_calls'".into());
            }
            if let Some(calls) = message.get("tool_calls").filter(|calls| !calls.is_null()) {
                calls_of(calls, &mut refuse);
            }
        }
        "tool" if !message["tool_call_id"].is_string() => refuse("missing 'tool_call_id'".into()),
        "system" | "developer" | "user" | "tool" | "function" if !says => {
            refuse(format!("invalid content: expected a string or an array of parts, got {content}"));
        }
        "system" | "developer" | "user" | "tool" | "function" => {}
        role => refuse(format!("invalid role '{role}'")),
    }
    if message["role"] != "assistant" && message.get("tool_calls").is_some() {
        refuse("'tool_calls' is only allowed on assistant messages".into());
    }
}

fn calls_of(calls: &Value, refuse: &mut impl FnMut(String)) {
    let calls = calls.as_array().map(Vec::as_slice).unwrap_or_default();
    if calls.is_empty() {
        refuse("invalid 'tool_calls': empty array. Expected an array with minimum length 1".into());
    }
    for call in calls.iter().filter(|call| call["type"] != "custom") {
        if call["id"].as_str().is_none_or(str::is_empty) || call["type"] != "function" {
            refuse(format!("a call needs an id and the type 'function': {call}"));
        }
        if !is_name(&call["function"]["name"]) || !call["function"]["arguments"].is_string() {
            refuse(format!("a call needs a function's name and arguments as a string: {call}"));
        }
    }
}

/// Whether a text is a JSON object; any other value is refused elsewhere.
fn is_object(arguments: &Value) -> bool {
    let read = |text: &str| serde_json::from_str::<Value>(text).is_ok_and(|value| value.is_object());
    arguments.as_str().is_none_or(read)
}

/// `^[a-zA-Z0-9_-]{1,64}$`
fn is_name(name: &Value) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    name.as_str().is_some_and(|text| (1..=64).contains(&text.len()) && text.bytes().all(allowed))
}
