//! Wrapper calls: one call whose arguments hold the calls that a client runs instead (`multi_tool_use.parallel` of
//! OpenAI's models, the batch tools of coding agents, tools that call another tool by its name). Finds the inner calls;
//! decides nothing on them.

mod embedded;

pub use embedded::{EmbeddedCall, WrappedCallCount, embedded_calls, wrapped_call_count};

use super::names::RestrictedNames;
use serde_json::Value;

/// The wrapper that OpenAI's models write now and then, without its namespace and as declared where a name has no dot.
/// Clients expand it although no request declares it, so each of its inner calls counts.
const PARALLEL: [&str; 2] = ["parallel", "multi_tool_use_parallel"];
/// Batch tools, which a request declares as a tool of its own. Its other arguments may look like calls, so that an inner
/// call counts only if it names a tool.
const BATCHES: [&str; 6] =
    ["batch", "batch_tool", "batchtool", "batch_call", "batch_calls", "multi_tool_use"];
/// The members that name the tool of an inner call.
const NAME_MEMBERS: [&str; 6] = ["recipient_name", "tool_name", "toolName", "tool", "name", "function"];
/// The members that hold its arguments.
const ARGUMENT_MEMBERS: [&str; 6] = ["parameters", "arguments", "input", "args", "params", "tool_input"];
/// Most calls that are read in a wrapper: one more than OpenAI allows in a message.
const MOST_READ: usize = 129;

/// The kinds of wrappers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrapperKind {
    Parallel,
    Batch,
}

/// The kind of wrapper that a call of the tool `name` may be.
pub fn wrapper_kind(name: &str) -> Option<WrapperKind> {
    // Most names are neither, so they are not taken apart.
    let may_be = name.len() <= 64 && {
        let name = name.as_bytes();
        let has = |word: &[u8]| name.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word));
        has(b"parallel") || has(b"batch") || has(b"multi_tool") || has(b"multi-tool")
    };
    if !may_be {
        return None;
    }
    let names = RestrictedNames::new(name);
    names.iter().find_map(|name| match &*name.replace('-', "_") {
        name if PARALLEL.contains(&name) => Some(WrapperKind::Parallel),
        name if BATCHES.contains(&name) => Some(WrapperKind::Batch),
        _ => None,
    })
}

/// A call within a wrapper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InnerCall {
    pub name: String,
    /// JSON text.
    pub arguments: String,
    /// Its place in the wrapper's arguments.
    path: Vec<Step>,
    /// Its index in its list.
    pub index: usize,
    /// The member of it that holds the arguments, where it has one.
    pub arguments_member: Option<&'static str>,
    /// Clients may read other arguments, since several members may hold them.
    pub is_ambiguous: bool,
}

/// A step into a JSON value.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Member(String),
    Element(usize),
    /// The value that a string holds as JSON text.
    Text,
}

impl InnerCall {
    /// A call that is somewhere in the arguments of another, where it is only judged.
    pub fn alone(name: String, arguments: String) -> Self {
        Self { name, arguments, path: Vec::new(), index: 0, arguments_member: None, is_ambiguous: false }
    }

    /// Writes other arguments, JSON text, into those of its wrapper, as a string where they were one. `false`: they are not
    /// within a wrapper's, and nothing is written.
    pub fn rewrite(&self, wrapper: &mut Value, arguments: &str) -> bool {
        if self.path.is_empty() {
            return false;
        }
        let member = self.arguments_member.unwrap_or(ARGUMENT_MEMBERS[0]);
        change(wrapper, &self.path, &|inner| {
            let call = if inner["function"].is_object() { &mut inner["function"] } else { inner };
            if call.get(member).is_some_and(Value::is_string) {
                call[member] = arguments.into();
            } else if let Ok(value) = serde_json::from_str(arguments) {
                call[member] = value;
            }
        });
        true
    }
}

/// Changes what is at `path` in `value`.
fn change(value: &mut Value, path: &[Step], with: &dyn Fn(&mut Value)) {
    let Some((step, rest)) = path.split_first() else { return with(value) };
    let inner = match step {
        Step::Member(name) => value.get_mut(name),
        Step::Element(index) => value.get_mut(index),
        Step::Text => {
            if let Some(mut inner) = value.as_str().and_then(json_in) {
                change(&mut inner, rest, with);
                *value = inner.to_string().into();
            }
            None
        }
    };
    if let Some(inner) = inner {
        change(inner, rest, with);
    }
}

/// The object, list or string that `text` holds as JSON.
fn json_in(text: &str) -> Option<Value> {
    let text = text.trim();
    text.starts_with(['{', '[', '"']).then(|| serde_json::from_str(text).ok()).flatten()
}

/// `value`, or what it holds as JSON text; `path` leads there.
fn read_text(value: &Value, path: &mut Vec<Step>) -> Value {
    match value.as_str().and_then(json_in) {
        Some(inner) => {
            path.push(Step::Text);
            inner
        }
        None => value.clone(),
    }
}

/// The inner calls of a wrapper with these `arguments`, in order: the elements of each list that name a tool, where lists
/// and elements may be JSON text. One that has several names is a call of each of them, since clients differ in the member
/// that they read.
pub fn inner_calls(arguments: &Value) -> Vec<InnerCall> {
    let members = arguments.as_object().into_iter().flatten();
    let lists = members.map(|(list, value)| (vec![Step::Member(list.clone())], value));
    let whole = arguments.as_array().map(|_| (Vec::new(), arguments));
    let calls = lists.chain(whole).flat_map(|(mut path, value)| {
        let list = read_text(value, &mut path);
        let elements = list.as_array().cloned().unwrap_or_default().into_iter().enumerate();
        elements.flat_map(move |(index, element)| {
            let mut path = path.clone();
            path.push(Step::Element(index));
            let element = read_text(&element, &mut path);
            calls_of(&path, index, &element)
        })
    });
    calls.take(MOST_READ).collect()
}

fn calls_of(path: &[Step], index: usize, element: &Value) -> Vec<InnerCall> {
    let names_in = |call: &Value| {
        let mut names: Vec<String> = NAME_MEMBERS
            .iter()
            .filter_map(|member| call.get(member)?.as_str())
            .map(|name| name.strip_prefix("functions.").unwrap_or(name).to_owned())
            .collect();
        names.dedup();
        names
    };
    // As in a chat completion, the call may be within its `function`.
    let within = element.get("function").filter(|function| function.is_object());
    let call = within.unwrap_or(element);
    let mut names = names_in(call);
    names.extend(within.into_iter().flat_map(|_| names_in(element)));
    let mut members = ARGUMENT_MEMBERS.into_iter().filter(|member| call.get(member).is_some());
    let (member, other) = (members.next(), members.next());
    let arguments = match member.and_then(|member| call.get(member)) {
        None | Some(Value::Null) => "{}".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    };
    let inner = |name| InnerCall {
        name,
        arguments: arguments.clone(),
        path: path.to_owned(),
        index,
        arguments_member: member,
        is_ambiguous: other.is_some(),
    };
    names.into_iter().map(inner).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn wrappers_are_known_in_every_namespace() {
        for (name, kind) in [
            ("multi_tool_use.parallel", Some(WrapperKind::Parallel)),
            ("parallel", Some(WrapperKind::Parallel)),
            ("functions.Parallel", Some(WrapperKind::Parallel)),
            ("multi_tool_use__parallel", Some(WrapperKind::Parallel)),
            ("multi_tool_use_parallel", Some(WrapperKind::Parallel)),
            ("multi-tool-use-parallel", Some(WrapperKind::Parallel)),
            ("Batch", Some(WrapperKind::Batch)),
            ("BatchTool", Some(WrapperKind::Batch)),
            ("mcp__tools__batch", Some(WrapperKind::Batch)),
            ("parallel_search", None),
            ("batch_delete", None),
            ("search", None),
        ] {
            assert_eq!(wrapper_kind(name), kind, "{name}");
        }
    }

    #[test]
    fn inner_calls_are_found_in_the_forms_of_openai_and_of_batch_tools() {
        for (arguments, member) in [
            (
                json!({"tool_uses": [{"recipient_name": "functions.pay", "parameters": {"a": 1}}]}),
                "parameters",
            ),
            (json!({"description": "d", "invocations": [{"tool_name": "pay", "input": {"a": 1}}]}), "input"),
            (json!({"tool_calls": [{"tool": "pay", "parameters": {"a": 1}}]}), "parameters"),
            (json!({"calls": [{"name": "pay", "arguments": "{\"a\":1}"}]}), "arguments"),
            (
                json!({"tool_calls": [{"type": "function", "function": {"name": "pay", "arguments": "{\"a\":1}"}}]}),
                "arguments",
            ),
            (json!({"calls": r#"[{"name": "pay", "arguments": {"a": 1}}]"#}), "arguments"),
            (json!({"calls": [r#"{"tool": "pay", "args": {"a": 1}}"#]}), "args"),
            (json!([{"name": "pay", "arguments": {"a": 1}}]), "arguments"),
        ] {
            let calls = inner_calls(&arguments);
            let [call] = &calls[..] else { panic!("{arguments}: {calls:?}") };
            assert_eq!((&*call.name, &*call.arguments), ("pay", "{\"a\":1}"), "{arguments}");
            assert_eq!(call.arguments_member, Some(member), "{arguments}");
            let mut changed = arguments.clone();
            call.rewrite(&mut changed, "{\"a\":2}");
            assert_eq!(inner_calls(&changed)[0].arguments, "{\"a\":2}", "{changed}");
        }
        assert_eq!(inner_calls(&json!({"q": "x", "list": [1, {"path": "a"}]})), []);
        let several = inner_calls(&json!({"l": [{"tool": "look", "name": "pay", "input": {}, "args": {}}]}));
        let names: Vec<_> = several.iter().map(|call| (&*call.name, call.is_ambiguous)).collect();
        assert_eq!(names, [("look", true), ("pay", true)]);
    }
}
