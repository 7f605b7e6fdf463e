//! Calls of tools anywhere in the arguments of a call whose tool runs others, by their structure: an object that names a
//! tool beside its arguments. Finds them; decides nothing.

use super::json_in;
use serde_json::{Map, Value};

/// The deepest object that is looked at, JSON text within strings included.
const DEEPEST: usize = 12;
/// Most calls that are found in the arguments of one.
const MOST_FOUND: usize = 4_096;
/// The longest value that can name a tool, in bytes.
const LONGEST_NAME: usize = 256;
/// Words in the names of members that name a tool.
const NAME_WORDS: [&str; 7] = ["name", "tool", "function", "recipient", "method", "action", "slug"];
/// Words in the names of members that name where the tool is.
const PLACE_WORDS: [&str; 4] = ["server", "namespace", "toolkit", "app"];
/// The names of members that hold arguments, in lower case, without separators and what is trimmed off.
const ARGUMENT_NAMES: [&str; 9] =
    ["arguments", "args", "argument", "kwargs", "parameters", "params", "input", "inputs", "payload"];
/// Words in the names of tools that run several calls of others.
const SEVERAL: [&str; 3] = ["batch", "multi", "parallel"];
/// Words in the names of tools that run a call of another, together with one of [`OTHERS`].
const VERBS: [&str; 7] = ["call", "use", "execute", "exec", "run", "invoke", "dispatch"];
const OTHERS: [&str; 5] = ["tool", "tools", "function", "functions", "mcp"];

/// An object that names a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbeddedCall {
    pub name: String,
    /// JSON text; `None` where the object has no member with arguments.
    pub arguments: Option<String>,
}

/// All objects in `arguments` that name a tool, also within strings that are JSON.
pub fn embedded_calls(arguments: &Value) -> Vec<EmbeddedCall> {
    let mut found = Vec::new();
    gather(arguments, 0, &mut found);
    found
}

/// Whether the tool `name` runs calls of others by its name: several of them, or any one.
pub fn is_like_wrapper(name: &str) -> Option<Others> {
    let words = words_of(name);
    let has = |known: &[&str]| words.iter().any(|word| known.contains(&&**word));
    let calls = has(&VERBS) && has(&OTHERS);
    (calls || has(&["invoke"])).then_some(Others::One).or_else(|| has(&SEVERAL).then_some(Others::Several))
}

/// How many calls of others a tool runs at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// One, which may have no arguments.
    One,
    Several,
}

fn gather(value: &Value, depth: usize, found: &mut Vec<EmbeddedCall>) {
    if depth > DEEPEST || found.len() >= MOST_FOUND {
        return;
    }
    match value {
        Value::Array(items) => items.iter().for_each(|item| gather(item, depth + 1, found)),
        Value::String(text) => {
            if let Some(inner) = json_in(text) {
                gather(&inner, depth + 1, found);
            }
        }
        Value::Object(members) => {
            calls_of(members, found);
            members.values().for_each(|member| gather(member, depth + 1, found));
        }
        _ => {}
    }
}

/// The calls that an object may be: one for each name in it.
fn calls_of(members: &Map<String, Value>, found: &mut Vec<EmbeddedCall>) {
    let texts = |words: &'static [&'static str]| {
        let short = members.iter().filter_map(|(key, value)| Some((plain(key), value.as_str()?)));
        short.filter(move |(key, text)| {
            (1..=LONGEST_NAME).contains(&text.len()) && words.iter().any(|word| key.contains(word))
        })
    };
    let mut names: Vec<String> = texts(&NAME_WORDS).map(|(_, name)| name.to_owned()).collect();
    if names.is_empty() {
        return;
    }
    let placed =
        names.iter().flat_map(|name| texts(&PLACE_WORDS).map(move |(_, place)| format!("{place}.{name}")));
    let placed: Vec<String> = placed.collect();
    names.extend(placed);
    let held = members.iter().filter(|(key, _)| holds_arguments(key)).find_map(|(_, value)| object_in(value));
    let arguments = held.as_ref().map(Value::to_string);
    found.extend(names.into_iter().map(|name| EmbeddedCall { name, arguments: arguments.clone() }));
}

/// The arguments that a member holds: an object, also as JSON text, or none.
fn object_in(value: &Value) -> Option<Value> {
    match value {
        Value::Object(_) => Some(value.clone()),
        Value::Null => Some(Value::Object(Map::new())),
        Value::String(text) => json_in(text).filter(Value::is_object),
        _ => None,
    }
}

fn holds_arguments(key: &str) -> bool {
    let key = plain(key);
    let key = ["tool", "function"].iter().find_map(|start| key.strip_prefix(start)).unwrap_or(&key);
    let key = ["json", "string"].iter().find_map(|end| key.strip_suffix(end)).unwrap_or(key);
    ARGUMENT_NAMES.contains(&key)
}

/// Letters and digits alone, in lower case.
fn plain(key: &str) -> String {
    key.chars().filter(|char| char.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// The words of a name, in lower case: between separators and where a capital follows a small letter.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_small = false;
    for char in name.chars().take(LONGEST_NAME) {
        if !char.is_alphanumeric() || (was_small && char.is_uppercase()) {
            words.push(String::new());
        }
        was_small = char.is_lowercase();
        if let Some(word) = words.last_mut().filter(|_| char.is_alphanumeric()) {
            word.extend(char.to_lowercase());
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_call_is_found_wherever_it_is_in_the_arguments() {
        for arguments in [
            json!({"tool_name": "pay", "arguments": {"a": 1}}),
            json!({"name": "pay", "input": {"a": 1}}),
            json!({"tool_slug": "pay", "tool_args": r#"{"a":1}"#}),
            json!({"calls": [{"type": "function", "function": {"name": "pay", "arguments": r#"{"a":1}"#}}]}),
            json!({"calls": r#"[{"name": "pay", "arguments": {"a": 1}}]"#}),
            json!({"calls": [r#"{"name": "pay", "arguments": {"a": 1}}"#]}),
            json!([{"requests": [{"recipient_name": "pay", "parameters": {"a": 1}}]}]),
            json!(r#"{"functionName": "pay", "argumentsJson": "{\"a\":1}"}"#),
        ] {
            let found = embedded_calls(&arguments);
            let call = found.iter().find(|call| call.name == "pay" && call.arguments.is_some());
            assert_eq!(call.unwrap().arguments.as_deref(), Some(r#"{"a":1}"#), "{arguments}");
        }
        let placed = embedded_calls(&json!({"server_name": "shop", "tool_name": "pay", "arguments": {}}));
        assert!(placed.iter().any(|call| call.name == "shop.pay"), "{placed:?}");
    }

    #[test]
    fn texts_that_name_a_tool_are_no_calls() {
        for arguments in [
            json!({"q": "pay", "list": ["pay", {"label": "pay", "arguments": {"a": 1}}]}),
            json!({"text": "call pay with {\"name\":\"pay\",\"arguments\":{}}"}),
        ] {
            assert_eq!(embedded_calls(&arguments), [], "{arguments}");
        }
        for arguments in [json!({"name": "pay", "age": 3}), json!({"name": "pay", "input": "x"})] {
            assert!(embedded_calls(&arguments).iter().all(|call| call.arguments.is_none()), "{arguments}");
        }
    }

    #[test]
    fn names_of_tools_that_run_others_are_known_by_their_words() {
        for (name, others) in [
            ("run_batch", Some(Others::Several)),
            ("parallelTools", Some(Others::Several)),
            ("COMPOSIO_MULTI_SEARCH", Some(Others::Several)),
            ("COMPOSIO_MULTI_EXECUTE_TOOL", Some(Others::One)),
            ("use_mcp_tool", Some(Others::One)),
            ("mcp_call_tool", Some(Others::One)),
            ("invoke-anything", Some(Others::One)),
            ("callTool", Some(Others::One)),
            ("create_user", None),
            ("run_shell", None),
            ("search", None),
        ] {
            assert_eq!(is_like_wrapper(name), others, "{name}");
        }
    }
}
