//! Traces and observations of Langfuse, as its API and its exports give them: generations are requests with their
//! replies. A trace without observations is one by itself.

use super::Members;
use super::langchain;
use super::openai::completion;
use serde_json::Value;
use serde_json::value::RawValue;

/// Members by which one of Langfuse's objects is known.
const KNOWN_BY: [&str; 6] = ["traceId", "trace_id", "projectId", "project_id", "observations", "htmlPath"];

/// Whether it is a trace or an observation.
pub(super) fn is_trace_or_observation(members: &Members<'_>) -> bool {
    let known = KNOWN_BY.iter().any(|name| members.contains_key(*name));
    known
        && !members.contains_key("run_type")
        && (members.contains_key("input") || members.contains_key("observations"))
}

/// The lines of a trace's generations, oldest first, or of one observation.
pub(super) fn conversations(value: &RawValue) -> Vec<String> {
    let Ok(value) = serde_json::from_str::<Value>(value.get()) else { return Vec::new() };
    let observations = value["observations"].as_array();
    let mut whole: Vec<&Value> = observations.into_iter().flatten().filter(|it| it.is_object()).collect();
    whole.sort_by_key(|it| text(it, ["startTime", "start_time"]).unwrap_or_default().to_owned());
    let trace = text(&value, ["traceId", "trace_id"]).or_else(|| value["id"].as_str());
    let lines: Vec<String> = whole.iter().filter_map(|it| conversation(it, trace)).collect();
    if lines.is_empty() { conversation(&value, trace).into_iter().collect() } else { lines }
}

fn conversation(value: &Value, trace: Option<&str>) -> Option<String> {
    // Spans and events are what programs did; a trace has no type.
    if value["type"].as_str().is_some_and(|kind| !kind.eq_ignore_ascii_case("generation")) {
        return None;
    }
    // Some exports write them as text.
    let (input, output) = (parsed(&value["input"]), parsed(&value["output"]));
    let messages = langchain::messages(&input).or_else(|| langchain::messages(&input["messages"]))?;
    let parameters = &value["modelParameters"];
    let tools = [&input["tools"], &parameters["tools"]].into_iter().find(|tools| tools.is_array()).cloned();
    let model = [&value["model"], &value["providedModelName"], &input["model"]];
    let model = model.into_iter().find(|model| model.is_string()).cloned();
    Some(completion(messages, model, tools, reply(&output), trace))
}

/// The assistant's message in an output, in whatever is around it.
fn reply(output: &Value) -> Option<Value> {
    if let Some(text) = output.as_str() {
        return Some(serde_json::json!({"role": "assistant", "content": text}));
    }
    let last = |list: &Value| list.as_array().and_then(|list| list.last()).cloned().unwrap_or_default();
    let places =
        [output.clone(), output["choices"][0]["message"].clone(), last(output), last(&output["messages"])];
    places.iter().find_map(langchain::message)
}

fn parsed(value: &Value) -> Value {
    let text = value.as_str().filter(|text| text.trim_start().starts_with(['{', '[']));
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_else(|| value.clone())
}

fn text<'a>(value: &'a Value, names: [&str; 2]) -> Option<&'a str> {
    names.iter().find_map(|name| value[*name].as_str())
}
