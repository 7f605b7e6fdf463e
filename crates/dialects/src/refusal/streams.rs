//! Refusals of tools in streams alone: the same request is answered without streaming.
//!
//! A sentence is such a refusal if it has a word for streaming, a word for tools, and a denial. This is applied only
//! to requests that stream and declare tools; if the words mean something else there, the cost is one further try.

use super::super::error::UpstreamError;
use super::words::{cut, without_quotes};
use super::{MESSAGES, is_about_the_caller, no_form_helps};

const STREAMS: [&str; 6] =
    ["stream", "streams", "streaming", "streamed", "conversestream", "converse_stream"];
const TOOLS: [&str; 8] =
    ["tool", "tools", "function", "functions", "tool_use", "tooluse", "tool_choice", "function_call"];
const DENIALS: [&str; 12] = [
    "not support",
    "not currently support",
    "not yet support",
    "nt support",
    "not supported",
    "nt supported",
    "not currently supported",
    "not yet supported",
    "unsupported",
    "cannot be used",
    "not available",
    "must be false",
];
/// Words of errors about something else of a stream, or about one tool.
const OTHER: [&str; 4] = ["stream_options", "tool named", "named", "not found"];

/// Whether the error refuses tools in a stream, and tools or streams by themselves would do.
#[must_use]
pub fn refuses_streamed_tools(status: u16, error: &UpstreamError) -> bool {
    if is_about_the_caller(status) || no_form_helps(error) {
        return false;
    }
    error.messages.iter().take(MESSAGES).any(|text| {
        let text = without_quotes(cut(text)).to_lowercase();
        text.split(['.', ';', '!', '\n', '|']).any(is_refusal)
    })
}

fn is_refusal(sentence: &str) -> bool {
    let text: String = sentence.chars().filter(|c| !matches!(c, '\'' | '’' | '`' | '"')).collect();
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let words: Vec<&str> = text.split(|c| !is_part(c)).filter(|word| !word.is_empty()).collect();
    let joined = words.join(" ");
    let has = |known: &[&str]| words.iter().any(|word| known.contains(word));
    let says = |known: &[&str]| known.iter().any(|phrase| joined.contains(phrase));
    has(&STREAMS) && has(&TOOLS) && says(&DENIALS) && !says(&OTHER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::classify;

    fn error(message: &str) -> UpstreamError {
        UpstreamError { messages: vec![message.to_owned()], ..UpstreamError::default() }
    }

    #[test]
    fn refusals_of_tools_in_streams_are_recognised_and_not_taken_for_refusals_of_tools() {
        for (by, message) in [
            ("Bedrock", "This model doesn't support tool use in streaming mode."),
            ("Bedrock", "ValidationException: This model doesn’t support tool use in streaming mode"),
            ("Groq, earlier", "Tool and function calls do not currently support streaming"),
            ("gateways", "Ollama does not support tools and streaming at the same time. Please choose one."),
            ("gateways", "Streaming is not supported with tools"),
            ("gateways", "streaming with tools not supported"),
            ("gateways", "Function calling is not supported when stream=true"),
            ("gateways", "`stream` must be false when `tools` are provided"),
            ("gateways", "ConverseStream is unsupported for tool use with this model"),
            ("gateways", "Tools are not yet supported in streaming mode"),
        ] {
            for status in [200, 400, 405, 422, 500, 501] {
                assert!(refuses_streamed_tools(status, &error(message)), "{by}: {message}");
            }
            assert_eq!(classify(400, &error(message)), None, "{by}: {message}");
        }
    }

    #[test]
    fn other_errors_are_not_taken_for_a_refusal_of_tools_in_streams() {
        for message in [
            "registry.ollama.ai/library/gemma3:4b does not support tools",
            "Your organization must be verified to stream this model.",
            "Streaming is not supported for this model",
            "'stream_options' is not supported with tools",
            "Invalid 'tools[0].function.name': 'stream_video' is not supported",
            "Tool choice is not supported. Set stream to true.",
            "The tool named stream is not supported",
            "The stream was interrupted: the tool server is not reachable",
        ] {
            assert!(!refuses_streamed_tools(400, &error(message)), "{message}");
        }
        for status in [401, 402, 408, 429] {
            let message = "This model doesn't support tool use in streaming mode.";
            assert!(!refuses_streamed_tools(status, &error(message)), "{status}");
        }
    }
}
