//! Wrapper calls: one call whose arguments hold the calls that a client runs instead (`multi_tool_use.parallel` of
//! OpenAI's models, the batch tools of coding agents). Finds the inner calls; decides nothing on them.

use super::names::RestrictedNames;
use serde_json::Value;

/// The wrapper that OpenAI's models write now and then, without its namespace. Clients expand it although no request
/// declares it, so each of its inner calls counts.
const PARALLEL: &str = "parallel";
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
        has(b"parallel") || has(b"batch") || has(b"multi_tool")
    };
    if !may_be {
        return None;
    }
    let names = RestrictedNames::new(name);
    names.iter().find_map(|name| match name {
        PARALLEL => Some(WrapperKind::Parallel),
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
    /// The member of the wrapper's arguments that lists it, and its index there.
    pub list: String,
    pub index: usize,
    /// The member of it that holds the arguments, where it has one.
    pub arguments_member: Option<&'static str>,
    /// Clients may read other arguments, since several members may hold them.
    pub is_ambiguous: bool,
}

impl InnerCall {
    /// Writes other arguments, JSON text, into those of its wrapper, as a string where they were one.
    pub fn rewrite(&self, wrapper: &mut Value, arguments: &str) {
        let member = self.arguments_member.unwrap_or(ARGUMENT_MEMBERS[0]);
        let Some(inner) = wrapper.get_mut(&self.list).and_then(|list| list.get_mut(self.index)) else {
            return;
        };
        let call = if inner["function"].is_object() { &mut inner["function"] } else { inner };
        if call.get(member).is_some_and(Value::is_string) {
            call[member] = arguments.into();
        } else if let Ok(value) = serde_json::from_str(arguments) {
            call[member] = value;
        }
    }
}

/// The inner calls of a wrapper with these `arguments`, in order: the elements of each list that name a tool. One that has
/// several names is a call of each of them, since clients differ in the member that they read.
pub fn inner_calls(arguments: &Value) -> Vec<InnerCall> {
    let lists = arguments.as_object().into_iter().flatten();
    let lists = lists.filter_map(|(list, value)| Some((list, value.as_array()?)));
    let calls = lists.flat_map(|(list, calls)| {
        calls.iter().enumerate().flat_map(move |(index, call)| calls_of(list, index, call))
    });
    calls.take(MOST_READ).collect()
}

fn calls_of(list: &str, index: usize, element: &Value) -> Vec<InnerCall> {
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
        list: list.to_owned(),
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
