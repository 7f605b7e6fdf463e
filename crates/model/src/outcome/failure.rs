//! Failure detection in tool results: the words with which agent frameworks begin or end a failure, and the members
//! that report one in JSON. The wordings are a table with the source of each; a new framework is a new row. Of long
//! texts the two ends are read; JSON is read whole, up to a bound, since the member may come after the data.

use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

/// How much of each end of a text is read, in bytes.
pub(super) const END_BYTES: usize = 4096;
/// The longest JSON that is read.
pub(super) const LONGEST_JSON: usize = 1 << 20;

/// How texts that report a failure begin, in lower case, whatever follows the word.
const WORDS: [&str; 6] =
    ["error", "exception", "traceback (most recent call last)", "fatal", "failed", "failure"];

/// How failures begin, in lower case, by the framework that writes them so. `*`: one word; `…`: anything up to the
/// end of the line or 200 bytes; `#`: a number that is not 0.
const BEGINNINGS: &[(&str, &str)] = &[
    // openai-agents: agents/tool.py `default_tool_error_function`; js: packages/agents-core/src/tool.ts.
    ("an error occurred while", "An error occurred while running the tool. Please try again. Error: boom"),
    ("an error occurred:", "An error occurred: no such order"),
    ("invalid json input", "Invalid JSON input for tool search"),
    // langchain-core: tools/base.py `_handle_tool_error`, `_handle_validation_error`; docs/agents: `Tool error: ...`.
    ("tool execution error", "Tool execution error"),
    ("tool input validation error", "Tool input validation error"),
    ("tool error:", "Tool error: Please check your input and try again. (timeout)"),
    // llama-index: core/tools/calling.py; agent/workflow: a tool that is not there.
    ("encountered error:", "Encountered error: division by zero"),
    ("tool * not found", "Tool search not found. Please select a tool that is available."),
    // autogen: agentchat/conversable_agent.py `Error: Function ...`; autogen-agentchat: `The tool '...' is not available.`
    ("the tool * is not available", "The tool 'search' is not available."),
    // crewai: translations/en.json `tool_usage_error`, `tool_usage_exception`, `wrong_tool_name`.
    (
        "i encountered an error while trying to use the tool",
        "I encountered an error while trying to use the tool. x",
    ),
    (
        "you tried to use the tool * but it doesn't exist",
        "You tried to use the tool x, but it doesn't exist.",
    ),
    // pydantic-ai: messages.py `RetryPromptPart.model_response`; toolsets: `Unknown tool name: ...`.
    ("# validation error", "2 validation errors:\n```json\n[]\n```\n\nFix the errors and try again."),
    ("unknown tool name", "Unknown tool name: 'x'. Available tools: y"),
    ("unknown tool:", "Unknown tool: x"),
    ("unknown tool '", "Unknown tool 'x'"),
    // smolagents: agents.py writes the call's id first; memory.py `Error:\n`.
    ("call id: *\nerror:", "Call id: call_1\nError:\nboom"),
    // haystack: tools/errors.py `Failed to invoke Tool ...` begins with a word of the list above.
    ("function * not found", "Function search not found"),
    // semantic-kernel: kernel.py and function_invocation_context; agent-framework: _tools.py `Error: ...`.
    (
        "the tool call with name * is not part of",
        "The tool call with name 'x' is not part of the provided tools",
    ),
    ("function invocation failed", "Function invocation failed: boom"),
    ("argument parsing failed", "Argument parsing failed."),
    // agno: utils/functions.py, models/base.py.
    ("could not parse function arguments", "Could not parse function arguments."),
    (
        "tool call limit reached",
        "Tool call limit reached. Tool call x not executed. Don't try to execute it again.",
    ),
    // dspy: predict/react.py.
    ("execution error", "Execution error in search: Traceback"),
    // strands: tools/executors, tools/_validator; google-adk: flows/llm_flows/functions.py.
    ("tool failed", "Tool failed: boom"),
    (
        "invoking * failed as",
        "Invoking `search()` failed as the following mandatory input parameters are not present",
    ),
    // mastra: packages/core/src/tools/validation.ts.
    (
        "tool validation failed",
        "Tool validation failed. Please fix the following errors and try again:\n- q: Required",
    ),
    (
        "tool input validation failed",
        "Tool input validation failed for search. Please fix the following errors:",
    ),
    // vercel ai: packages/ai/src/error/no-such-tool-error.ts, invalid-tool-input-error.ts.
    ("model tried to call unavailable tool", "Model tried to call unavailable tool 'x'."),
    ("invalid input for tool", "Invalid input for tool search: boom"),
    // camel: toolkits/function_tool.py, agents/chat_agent.py.
    (
        "execution of function * failed",
        "Execution of function search failed with arguments () and {}. Error: boom",
    ),
    ("tool execution failed", "Tool execution failed: boom"),
    // metagpt: roles/di/role_zero.py.
    ("command * failed", "Command Browser.goto failed to execute"),
    // claude code: errors of tools, refused calls, and the exit code before a command's output.
    ("<tool_use_error>", "<tool_use_error>File has not been read yet.</tool_use_error>"),
    (
        "the user doesn't want to proceed",
        "The user doesn't want to proceed with this tool use. The tool use was rejected",
    ),
    ("exit code #", "Exit code 127\nbash: x: command not found"),
    ("exit code: #", "Exit code: 1\nWall time: 0.1 seconds\nOutput:\n"),
    // cline and roo: src/core/prompts/responses.ts `toolError`, `toolDenied`.
    (
        "the tool execution failed",
        "The tool execution failed with the following error:\n<error>\nboom\n</error>",
    ),
    (
        "[… result:\nthe tool execution failed",
        "[read_file for 'x'] Result:\nThe tool execution failed with the following error:",
    ),
    ("the user denied this operation", "The user denied this operation."),
    ("<error>", "<error>boom</error>"),
    // opencode: packages/opencode/src/session; goose: crates/goose/src/agents.
    ("tool execution aborted", "Tool execution aborted"),
    (
        "the user has declined",
        "The user has declined to run this tool. DO NOT attempt to call this tool again.",
    ),
    // gemini-cli: packages/core/src/tools, core/coreToolScheduler.ts.
    ("[operation cancelled]", "[Operation Cancelled] Reason: User did not allow tool call"),
    ("tool * not found in registry", "Tool \"x\" not found in registry. Tools must use the exact names"),
    // codex: codex-rs/core/src/tools; begins with `failed to parse function arguments` too.
    ("unsupported call:", "unsupported call: x"),
    ("apply_patch verification failed", "apply_patch verification failed: Failed to find expected lines"),
    ("aborted by user", "aborted by user after 1.0s"),
    ("execution failed", "execution failed: Sandbox(Denied)"),
    // MCP: the official SDKs' servers and clients.
    ("mcp error", "MCP error -32602: Invalid arguments for tool search"),
    ("input validation error", "Input validation error: 'q' is a required property"),
    ("output validation error", "Output validation error: x"),
    // How Python prints an object that was not converted to JSON.
    ("{'error': '", "{'error': 'no such order'}"),
    ("{'error': \"", "{'error': \"can't\"}"),
    ("{'success': false", "{'success': False, 'message': 'no'}"),
    ("{'ok': false", "{'ok': False}"),
    ("{'iserror': true", "{'isError': True}"),
    ("{'status': 'error'", "{'status': 'error', 'message': 'no'}"),
    ("{'status': 'failed'", "{'status': 'failed'}"),
];

/// How failures end, in lower case.
const ENDS: &[(&str, &str)] = &[
    // langgraph: prebuilt/tool_node.py. Most of its texts begin with `Error` too.
    ("please fix your mistakes.", "ValueError('x')\n Please fix your mistakes."),
    ("please fix the error and try again.", "boom\n Please fix the error and try again."),
    // pydantic-ai: messages.py `RetryPromptPart.model_response`.
    ("fix the errors and try again.", "Did you mean Mexico City?\n\nFix the errors and try again."),
    ("</tool_use_error>", "x</tool_use_error>"),
];

/// Whether a text with these two ends, which are equal for a short text, reports a failure.
pub(super) fn reports_failure(head: &str, tail: &str) -> bool {
    let head =
        head.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, '❌' | '⚠' | '\u{fe0f}' | '*'));
    let tail = tail.trim_end();
    begins_with_a_word(head)
        || BEGINNINGS.iter().any(|(says, _)| begins(head, says))
        || ENDS.iter().any(|(says, _)| ends(tail, says))
}

fn begins_with_a_word(text: &str) -> bool {
    WORDS.iter().any(|word| {
        let head = text.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word));
        head && !text[word.len()..].starts_with(is_word_part)
    })
}

fn is_word_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn ends(text: &str, says: &str) -> bool {
    let at = text.len().checked_sub(says.len());
    at.and_then(|at| text.get(at..)).is_some_and(|end| end.eq_ignore_ascii_case(says))
}

/// Whether `text` begins as the row `says`.
fn begins(text: &str, says: &str) -> bool {
    // Most texts differ from most rows in their first letter.
    let first = says.as_bytes().first();
    if first.is_some_and(u8::is_ascii_alphabetic)
        && !text.as_bytes().first().zip(first).is_some_and(|(one, other)| one.eq_ignore_ascii_case(other))
    {
        return false;
    }
    if let Some(rest) = says.strip_prefix('#') {
        let number = text.bytes().take_while(u8::is_ascii_digit).count();
        return text[..number].bytes().any(|digit| digit != b'0') && begins(&text[number..], rest);
    }
    if let Some(rest) = says.strip_prefix('*') {
        let end = text.find(char::is_whitespace).unwrap_or(text.len());
        return end > 0 && begins(&text[end..], rest);
    }
    if let Some(rest) = says.strip_prefix('…') {
        let line = text.lines().next().unwrap_or_default();
        let line = &line[..line.floor_char_boundary(MOST_BETWEEN)];
        return line.char_indices().any(|(at, _)| begins(&text[at..], rest))
            || begins(&text[line.len()..], rest);
    }
    let plain = says.find(['*', '…', '#']).unwrap_or(says.len());
    let head = text.get(..plain).is_some_and(|head| head.eq_ignore_ascii_case(&says[..plain]));
    if !head || plain < says.len() {
        return head && begins(&text[plain..], &says[plain..]);
    }
    // A word ends where the row does.
    !says.ends_with(char::is_alphanumeric) || !text[plain..].starts_with(is_word_part)
}

/// The most bytes that a `…` matches.
const MOST_BETWEEN: usize = 200;

/// Objects within a result that may report the outcome: a reply of a server, a report of a command.
const WITHIN: [&str; 4] = ["result", "response", "output", "metadata"];

/// Whether the members of an object say that the tool failed.
pub(super) fn object_reports_failure(object: &Map<String, Value>) -> bool {
    let reports = |object: &Map<String, Value>| object.iter().any(|(key, value)| reports(key, value));
    let within = WITHIN.iter().filter_map(|key| object.get(*key)?.as_object());
    reports(object) || within.into_iter().any(reports)
}

fn reports(key: &str, value: &Value) -> bool {
    match (key, value) {
        ("error" | "errors" | "exception" | "error_message" | "errorMessage", Value::String(text)) => {
            !text.trim().is_empty()
        }
        ("error" | "errors", Value::Array(list)) => !list.is_empty(),
        ("error" | "errors" | "exception", Value::Object(error)) => !error.is_empty(),
        ("error" | "isError" | "is_error", Value::Bool(failed)) => *failed,
        ("ok" | "success" | "succeeded", Value::Bool(succeeded)) => !succeeded,
        ("status", Value::String(status)) => {
            ["error", "failed", "failure"].iter().any(|word| status.eq_ignore_ascii_case(word))
        }
        ("status" | "status_code" | "statusCode", Value::Number(status)) => {
            status.as_u64().is_some_and(|status| (400..600).contains(&status))
        }
        ("exit_code" | "exitCode" | "returncode", Value::Number(code)) => code.as_i64() != Some(0),
        _ => false,
    }
}

/// Whether a text is JSON that reports a failure: an object that says so, or a list of an MCP result's contents whose
/// first text does.
pub(super) fn json_reports_failure(text: &str) -> bool {
    let text = text.trim_start();
    match text.bytes().next() {
        Some(b'{') => matches!(serde_json::from_str(text), Ok(Telling(true))),
        Some(b'[') if text.len() <= END_BYTES => {
            let first =
                serde_json::from_str::<Vec<Value>>(text).ok().and_then(|list| list.into_iter().next());
            let said = first.as_ref().filter(|first| first["type"] == "text");
            said.and_then(|first| first["text"].as_str()).is_some_and(|text| reports_failure(text, text))
        }
        _ => false,
    }
}

/// An object, read no further than is needed to decide whether it reports a failure.
struct Telling(bool);

impl<'de> Deserialize<'de> for Telling {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Members)
    }
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Telling;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Telling, A::Error> {
        const TELLING: [&str; 16] = [
            "error",
            "errors",
            "exception",
            "error_message",
            "errorMessage",
            "isError",
            "is_error",
            "ok",
            "success",
            "succeeded",
            "status",
            "status_code",
            "statusCode",
            "exit_code",
            "exitCode",
            "returncode",
        ];
        let mut found = false;
        while let Some(key) = members.next_key::<String>()? {
            if TELLING.contains(&key.as_str()) || WITHIN.contains(&key.as_str()) {
                let object = Map::from_iter([(key, members.next_value::<Value>()?)]);
                found |= object_reports_failure(&object);
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(Telling(found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wording_of_every_framework_is_found() {
        for (says, example) in BEGINNINGS.iter().chain(ENDS) {
            assert!(reports_failure(example, example), "{says}: {example}");
        }
    }

    #[test]
    fn text_that_only_mentions_failures_is_not_a_failure() {
        for text in [
            "An error budget is what a service may fail.",
            "Encountered errors are listed in the log.",
            "Tool use is not found in other animals",
            "Tool steel\nIt is not found here",
            "Unknown toolbox",
            "Exit code 0\nok",
            "Exit code: 0\nWall time: 0.1 seconds\nOutput:\n1 error",
            "0 validation errors",
            "Command line tools that failed in 1999 are listed below",
            "The user has 3 orders.",
            "The tool execution took 3 s.",
            "{'error': None, 'data': 1}",
            "{'status': 'ok'}",
            "{'success': True}",
            "We fix the errors and try again. Then it works.",
            "MCP errors are described in the specification.",
        ] {
            let found = BEGINNINGS.iter().find(|(says, _)| begins(text, says)).map(|row| row.0);
            assert!(!reports_failure(text, text), "{text}: {found:?}");
        }
    }
}
