//! Tools and `tool_choice` of a request for a response. Functions can be called by the simulated models; custom and
//! hosted tools are accepted and never called.

use super::super::check;
use super::super::refusal::Refusal;
use super::super::request::{Choice, Tool};
use super::items::{kind_of, only_known};
use serde_json::Value;

/// OpenAI's bound on a function's name, in characters.
const MAX_NAME: usize = 128;
/// The members of a function.
const FUNCTION: [&str; 9] = [
    "type",
    "name",
    "description",
    "parameters",
    "strict",
    "output_schema",
    "defer_loading",
    "allowed_callers",
    "async",
];

/// The tools of `tools`, checked, and those that items of the conversation add.
pub(super) fn declared<'a>(body: &'a Value, items: &'a [Value]) -> Result<Vec<&'a Value>, Refusal> {
    let offered: &[Value] = match &body["tools"] {
        Value::Null => &[],
        Value::Array(tools) => tools,
        other => return Err(Refusal::wrong_type("tools", "an array of objects", other)),
    };
    for (index, tool) in offered.iter().enumerate() {
        check_tool(&format!("tools[{index}]"), tool)?;
    }
    let adds_tools = |item: &&Value| matches!(kind_of(item), "additional_tools" | "tool_search_output");
    let added = items.iter().filter(adds_tools).filter_map(|item| item["tools"].as_array()).flatten();
    Ok(offered.iter().chain(added).collect())
}

/// The functions among the tools; `allowed` limits their names.
pub(super) fn functions(declared: &[&Value], allowed: Option<&[String]>) -> Vec<Tool> {
    let functions = declared.iter().filter(|tool| tool["type"] == "function");
    let named = functions.filter_map(|tool| {
        Some(Tool { name: tool["name"].as_str()?.to_owned(), parameters: tool["parameters"].clone() })
    });
    named.filter(|tool| allowed.is_none_or(|names| names.contains(&tool.name))).collect()
}

/// The choice, and the names to which it limits the tools.
pub(super) fn choice(choice: &Value, declared: &[&Value]) -> Result<(Choice, Option<Vec<String>>), Refusal> {
    match choice {
        Value::Null => return Ok((Choice::Auto, None)),
        Value::String(word) => {
            let choice = Choice::of_word("tool_choice", word)?;
            if declared.is_empty() && choice != Choice::Auto {
                let text = format!("Tool choice '{word}' must be specified with 'tools' parameter.");
                return Err(Refusal::invalid(text, "tool_choice"));
            }
            return Ok((choice, None));
        }
        Value::Object(_) => {}
        other => return Err(Refusal::wrong_type("tool_choice", "one of a string or an object", other)),
    }
    match check::text(choice, "tool_choice", "type")? {
        "allowed_tools" => {
            only_known(choice, "tool_choice", &[&["type", "mode", "tools"]])?;
            let tools = choice["tools"].as_array().ok_or_else(|| Refusal::missing("tool_choice.tools"))?;
            tools.iter().try_for_each(|tool| find(tool, declared))?;
            let names = tools.iter().filter_map(|tool| tool["name"].as_str().map(str::to_owned)).collect();
            let mode = choice["mode"].as_str().unwrap_or("auto");
            Ok((Choice::of_word("tool_choice.mode", mode)?, Some(names)))
        }
        kind @ ("function" | "custom") => {
            let name = check::text(choice, "tool_choice", "name")?;
            only_known(choice, "tool_choice", &[&["type", "name"]])?;
            find(choice, declared)?;
            // A custom tool is never called, so that no function has its name.
            let named = if kind == "function" { Choice::Named(name.to_owned()) } else { Choice::None };
            Ok((named, None))
        }
        _ => Ok((Choice::Auto, None)),
    }
}

/// Refuses a function or custom tool that was not declared. Hosted tools have several names each, so they pass.
fn find(wanted: &Value, declared: &[&Value]) -> Result<(), Refusal> {
    let is_wanted = |tool: &&Value| tool["type"] == wanted["type"] && tool["name"] == wanted["name"];
    if !matches!(wanted["type"].as_str(), Some("function" | "custom")) || declared.iter().any(is_wanted) {
        return Ok(());
    }
    let name = wanted["name"].as_str().unwrap_or_default();
    Err(Refusal::invalid(format!("Tool choice '{name}' not found in 'tools' parameter."), "tool_choice"))
}

fn check_tool(path: &str, tool: &Value) -> Result<(), Refusal> {
    if !tool.is_object() {
        return Err(Refusal::wrong_type(path, "an object", tool));
    }
    let kind = check::text(tool, path, "type")?;
    if matches!(kind, "function" | "custom") {
        check::name(path, tool, MAX_NAME)?;
    }
    if kind != "function" {
        return Ok(());
    }
    only_known(tool, path, &[&FUNCTION])?;
    match &tool["parameters"] {
        Value::Null | Value::Object(_) => Ok(()),
        other => Err(Refusal::wrong_type(&format!("{path}.parameters"), "an object", other)),
    }
}
