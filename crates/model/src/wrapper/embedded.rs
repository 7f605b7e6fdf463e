//! Calls of tools anywhere in the arguments of a call whose tool runs others, by their structure: an object that names a
//! tool beside its arguments. Finds them; decides nothing.

use super::json_in;
use serde_json::{Map, Value};

/// The deepest object that is looked at, JSON text within strings included.
const DEEPEST: usize = 12;
/// Most calls that are found in the arguments of one.
const MOST_FOUND: usize = 4_096;
/// Most names, places and members with arguments of one object.
const MOST_OF_OBJECT: usize = 8;
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

/// All objects in `arguments` that name a tool, also within strings that are JSON. `None` beyond a bound: what else is in
/// them is not known.
pub fn embedded_calls(arguments: &Value) -> Option<Vec<EmbeddedCall>> {
    let mut found = Vec::new();
    gather(arguments, 0, &mut found).then_some(found)
}

/// How many calls of others the tool `name` runs by its name; `None`: it runs none.
pub fn wrapped_call_count(name: &str) -> Option<WrappedCallCount> {
    let words = words_of(name);
    let has = |known: &[&str]| words.iter().any(|word| known.contains(&&**word));
    let calls = has(&VERBS) && has(&OTHERS);
    (calls || has(&["invoke"]))
        .then_some(WrappedCallCount::One)
        .or_else(|| has(&SEVERAL).then_some(WrappedCallCount::Several))
}

/// How many calls of others a tool runs at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrappedCallCount {
    /// One, which may have no arguments.
    One,
    Several,
}

/// `false` beyond a bound.
fn gather(value: &Value, depth: usize, found: &mut Vec<EmbeddedCall>) -> bool {
    match value {
        Value::Array(_) | Value::Object(_) if depth > DEEPEST => false,
        Value::String(text) if depth > DEEPEST => json_in(text).is_none(),
        Value::Array(items) => items.iter().all(|item| gather(item, depth + 1, found)),
        Value::String(text) => json_in(text).is_none_or(|inner| gather(&inner, depth + 1, found)),
        Value::Object(members) => {
            calls_of(members, found) && members.values().all(|member| gather(member, depth + 1, found))
        }
        _ => true,
    }
}

/// Adds the calls that an object may be: one for each name in it, and for each of its members with arguments. `false`
/// beyond a bound.
fn calls_of(members: &Map<String, Value>, found: &mut Vec<EmbeddedCall>) -> bool {
    let has = |key: &str, words: &[&str]| words.iter().any(|word| key.contains(word));
    let is_short = |text: &&str| (1..=LONGEST_NAME).contains(&text.len());
    let (mut names, mut places, mut held) = (Vec::new(), Vec::new(), Vec::new());
    for (key, value) in members {
        let plain = plain(key);
        if holds_arguments(&plain) {
            held.extend(object_in(value).map(|arguments| arguments.to_string()));
        }
        // The name may be an object's own, with the arguments beside that object.
        let inner = value.as_object().into_iter().flatten();
        let inner = inner.filter(|(key, _)| has(&self::plain(key), &["name"])).map(|(_, name)| name);
        let texts = std::iter::once(value).chain(inner).filter_map(Value::as_str).filter(is_short);
        // `server_name` is both.
        if has(&plain, &NAME_WORDS) {
            names.extend(texts.clone().map(str::to_owned));
        }
        if has(&plain, &PLACE_WORDS) {
            places.extend(texts.map(str::to_owned));
        }
        if names.len().max(places.len()).max(held.len()) > MOST_OF_OBJECT {
            return false;
        }
    }
    let placed: Vec<String> =
        names.iter().flat_map(|name| places.iter().map(move |place| format!("{place}.{name}"))).collect();
    names.extend(placed);
    for name in names {
        let call =
            |arguments: Option<&String>| EmbeddedCall { name: name.clone(), arguments: arguments.cloned() };
        if held.is_empty() {
            found.push(call(None));
        }
        found.extend(held.iter().map(|arguments| call(Some(arguments))));
    }
    found.len() <= MOST_FOUND
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

/// Whether a member of this plain name holds arguments.
fn holds_arguments(key: &str) -> bool {
    let key = ["tool", "function"].iter().find_map(|start| key.strip_prefix(start)).unwrap_or(key);
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
            let found = embedded_calls(&arguments).unwrap();
            let call = found.iter().find(|call| call.name == "pay" && call.arguments.is_some());
            assert_eq!(call.unwrap().arguments.as_deref(), Some(r#"{"a":1}"#), "{arguments}");
        }
        let placed =
            embedded_calls(&json!({"server_name": "shop", "tool_name": "pay", "arguments": {}})).unwrap();
        assert!(placed.iter().any(|call| call.name == "shop.pay"), "{placed:?}");
    }

    #[test]
    fn texts_that_name_a_tool_are_no_calls() {
        for arguments in [
            json!({"q": "pay", "list": ["pay", {"label": "pay", "arguments": {"a": 1}}]}),
            json!({"text": "call pay with {\"name\":\"pay\",\"arguments\":{}}"}),
        ] {
            assert_eq!(embedded_calls(&arguments), Some(Vec::new()), "{arguments}");
        }
        for arguments in [json!({"name": "pay", "age": 3}), json!({"name": "pay", "input": "x"})] {
            assert!(
                embedded_calls(&arguments).unwrap().iter().all(|call| call.arguments.is_none()),
                "{arguments}"
            );
        }
    }

    #[test]
    fn each_member_with_arguments_counts_and_a_name_may_be_in_an_object_of_its_own() {
        for (arguments, expected) in [
            (json!({"tool": "pay", "input": {}, "arguments": {"a": 1}}), vec!["{}", r#"{"a":1}"#]),
            (json!({"tool": {"name": "pay"}, "arguments": {"a": 1}}), vec![r#"{"a":1}"#]),
        ] {
            let found = embedded_calls(&arguments).unwrap().into_iter();
            let of_pay = found.filter(|call| call.name == "pay").filter_map(|call| call.arguments);
            assert_eq!(of_pay.collect::<Vec<_>>(), expected, "{arguments}");
        }
    }

    #[test]
    fn what_is_beyond_a_bound_is_not_passed_over() {
        let call = json!({"name": "look", "arguments": {}});
        let many = |count: usize| json!({"calls": vec![call.clone(); count]});
        assert_eq!(embedded_calls(&many(MOST_FOUND)).map(|found| found.len()), Some(MOST_FOUND));
        assert_eq!(embedded_calls(&many(MOST_FOUND + 1)), None);
        let deep = |depth: usize| (0..depth).fold(call.clone(), |inner, _| json!([inner]));
        assert!(embedded_calls(&deep(DEEPEST - 1)).is_some());
        assert_eq!(embedded_calls(&deep(DEEPEST + 1)), None);
        let crowded: Map<String, Value> =
            (0..=MOST_OF_OBJECT).map(|nth| (format!("name{nth}"), json!("pay"))).collect();
        assert_eq!(embedded_calls(&Value::Object(crowded)), None);
    }

    #[test]
    fn names_of_tools_that_run_others_are_known_by_their_words() {
        for (name, others) in [
            ("run_batch", Some(WrappedCallCount::Several)),
            ("parallelTools", Some(WrappedCallCount::Several)),
            ("COMPOSIO_MULTI_SEARCH", Some(WrappedCallCount::Several)),
            ("COMPOSIO_MULTI_EXECUTE_TOOL", Some(WrappedCallCount::One)),
            ("use_mcp_tool", Some(WrappedCallCount::One)),
            ("mcp_call_tool", Some(WrappedCallCount::One)),
            ("invoke-anything", Some(WrappedCallCount::One)),
            ("callTool", Some(WrappedCallCount::One)),
            ("create_user", None),
            ("run_shell", None),
            ("search", None),
        ] {
            assert_eq!(wrapped_call_count(name), others, "{name}");
        }
    }
}
