//! Agents that write tool calls and their results as text (smolagents, ReAct prompts): no policy that reads the history
//! sees them. Recognises such requests, so that they are counted; does not read their calls.

use crate::restore::text_of;
use model::Transcript;
use model::message::Role;
use serde_json::Value;

/// Why such a request is counted as unjudged.
pub const CALLS_AS_TEXT: &str = "calls_as_text";

/// What a program writes before a result, in lower case.
const RESULT_MARKS: [&str; 10] = [
    "observation",
    "call id:",
    "tool result",
    "tool response",
    "tool output",
    "function result",
    "[result of ",
    "<observation>",
    "<tool_response>",
    "<function_results>",
];

/// Whether the conversation has results that came as text: its last user message begins like one and follows a text of
/// the model; or the model is asked to stop where a result would follow.
pub fn has_calls_as_text(transcript: &Transcript) -> bool {
    let (request, body) = (&transcript.request, &transcript.body);
    if !transcript.calls.calls.is_empty() {
        return false;
    }
    let stop = request.value(body, "stop").and_then(|stop| serde_json::from_slice(stop.of(body)).ok());
    let stops_at_result = match stop.unwrap_or_default() {
        Value::String(stop) => begins_result(&stop),
        Value::Array(stops) => stops.iter().filter_map(Value::as_str).any(begins_result),
        _ => false,
    };
    if stops_at_result {
        return true;
    }
    let mut newest = transcript.views().rev();
    let (Some(result), Some(made)) = (newest.next(), newest.next()) else { return false };
    let roles = (made.message.role, result.message.role);
    roles == (Role::Assistant, Role::User) && begins_result(&text_of(result))
}

fn begins_result(text: &str) -> bool {
    let begin: String = text.trim_start().chars().take(32).collect::<String>().to_lowercase();
    let begin = begin.trim_start_matches(['*', '#', ' ', '\n']);
    RESULT_MARKS.iter().any(|mark| begin.starts_with(mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_recognised_by_how_it_begins() {
        for text in ["Observation:\n7", "\n**Observation**: 7", "Call id: 1\nError:\n", "<tool_response>7"] {
            assert!(begins_result(text), "{text}");
        }
        for text in ["", "What do you observe?", "The observation is over.", "Go on", "tools"] {
            assert!(!begins_result(text), "{text}");
        }
    }
}
