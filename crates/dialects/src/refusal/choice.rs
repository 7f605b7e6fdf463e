//! Refusals of a choice of tool in unknown wordings, and of members that toolrein itself wrote into the request.
//!
//! Only for requests that carry such a member: where the words mean something else, the cost is one further try.

use super::super::error::UpstreamError;
use super::simple::SimpleText;
use super::{MESSAGES, is_about_the_caller, no_form_helps};

const CHOICE: &str = "tool choice|toolchoice|tool selection|tools choice|function choice|allowed tools|function calling config|\
    function calling mode|forced function|forced tool|forced tools|force tool|forces tool|forcing tool|\
    forced tool use|forced function calling|force function|forces a tool|forcing a tool";
const DENIAL: &str = "not|no|cannot|cant|only|must|may not|unsupported|invalid|incompatible|unexpected|unknown|unrecognized|\
    unrecognised|conflict*|doesnt|isnt|dont|illegal|bad|disabled|forbidden|fail*|error|extra|permitted|\
    expected|should|unable|wrong|mismatch*|disallowed|rejected|unavailable|exclusive|refus*|impossible|不支持|无效|\
    nicht|kein|keine|ungültig*|non|pas|aucun*|invalide*|inválid*|não|не|недопуст*|нельзя";
/// A choice that names no declared tool, needs tools, or was not followed by the model; or a server without tools.
const OTHER: &str = "nicht gefunden|introuvable|no encontrad*|non trovat*|não encontrad*|не найден*|not found|found in|not in tools|not declared|undeclared|not defined|does not exist|doesnt exist|no such|\
    did not call|didnt call|model did not|without tools|tools must be|tools is empty|when tools|\
    when using tool choice|requires tools|require tools|needs tools|tools are specified|tools is not set|tools is not spec*|tools is not prov*|\
    tools is not empty|tools to be|tools are not set|tools are not spec*|tools are not prov*|parser|jinja|schema|rate limit*|quota|failed generation";

/// Whether the error objects to the choice of tool. `status`: the HTTP status that it came with, 200 inside a stream.
#[must_use]
pub fn objects_to_choice(status: u16, error: &UpstreamError) -> bool {
    if is_no_objection(status, error) {
        return false;
    }
    let is_blamed = error.param.as_deref().is_some_and(|param| param.starts_with("tool_choice"));
    let mut texts = error.messages.iter().take(MESSAGES).map(|text| SimpleText::new(text));
    let objects = |text: &SimpleText| lists_values(text) || (names_choice(text) && text.says(DENIAL));
    texts.any(|text| !text.says(OTHER) && (is_blamed || objects(&text)))
}

/// Whether the text lists values that a choice of tool may have.
fn lists_values(text: &SimpleText) -> bool {
    text.says("auto") && text.says("required|any|none")
}

/// Whether the text names the choice of tool: as a member, or as what it does to the model.
fn names_choice(text: &SimpleText) -> bool {
    const FORCE: &str = "forc*|mandatory|compulsory|compel*|oblig*|requiring|required is|must call|required tool|\
        required tools|required function*|required call*";
    const TOOL: &str = "tool|tools|function|functions|call|calls";
    let sets_mode = text.contains("calling config|tool config|toolconfig") && text.says("any|mode|none");
    text.says(CHOICE)
        || text.contains("tool choice")
        || sets_mode
        || (text.says("function call") && text.says("object|string") && !text.says("argument*"))
        || (text.says(FORCE) && text.says(TOOL))
}

/// Whether the error objects to a member of the top object, by one of its `names` in the words of [`SimpleText`]. Only for
/// a member that the client did not write: its name alone is enough.
#[must_use]
pub fn objects_to_member(status: u16, error: &UpstreamError, names: &str) -> bool {
    if is_no_objection(status, error) {
        return false;
    }
    let mut texts = error.messages.iter().take(MESSAGES).chain(&error.param);
    texts.any(|text| SimpleText::new(text).contains(names))
}

fn is_no_objection(status: u16, error: &UpstreamError) -> bool {
    is_about_the_caller(status) || matches!(status, 403 | 413 | 502..=599) || no_form_helps(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(message: &str) -> UpstreamError {
        UpstreamError { messages: vec![message.to_owned()], ..UpstreamError::default() }
    }

    #[test]
    fn objections_to_a_choice_of_tool_are_recognised_in_any_wording() {
        for message in [
            "Thinking mode does not support this tool_choice",
            "<400> InternalError.Algo.InvalidParameter: The tool_choice parameter does not support being set to required or \
             object in thinking mode",
            "tool_choice 'specified' is incompatible with thinking enabled",
            "tool_choice 'required' is incompatible with thinking enabled",
            "Thinking may not be enabled when tool_choice forces tool use.",
            "tool_choice: type \"tool\" and \"any\" are not supported for this model.",
            "Incompatible tool choice param submitted - {'type': 'none'}",
            "tool_choice: Input tag 'none' found using 'type' does not match any of the expected tags: 'auto', 'any', 'tool'",
            "litellm.UnsupportedParamsError: VertexAI doesn't support tool_choice=any. Supported tool_choice values=['auto', \
             'required', json object]. To drop it from the call, set `litellm.drop_params = True.",
            "Unknown value for tool_choice: allowed_tools",
            "tool_choice forcé non pris en charge",
            "tool_choice=required wird hier nicht angeboten",
            "Forced function calling is only available for some models",
            "This model doesn't support the toolConfig.toolChoice.any field. Remove toolConfig.toolChoice.any and try again.",
        ] {
            assert!(objects_to_choice(400, &error(message)), "{message}");
            assert!(!objects_to_choice(429, &error(message)), "{message}");
        }
        let blamed = UpstreamError { param: Some("tool_choice".to_owned()), ..error("Invalid value") };
        assert!(objects_to_choice(400, &blamed));
    }

    #[test]
    fn a_choice_that_fits_no_tool_and_a_reply_without_a_call_are_no_objection() {
        for message in [
            "Tool choice 'f' not found in 'tools' parameter.",
            "Tool choice is required, but model did not call a tool",
            "When using `tool_choice`, `tools` must be set.",
            "tool_choice: Funktion look2 nicht gefunden",
            "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.",
            "\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set",
            "Invalid schema for function 'search'",
            "Rejected: \"why does your server not support this tool_choice at all\"",
        ] {
            assert!(!objects_to_choice(400, &error(message)), "{message}");
        }
    }

    #[test]
    fn a_member_is_recognised_by_its_name_wherever_it_is() {
        let names = "parallel tool calls|parallel calls";
        for message in
            ["parallelToolCalls: not allowed", "('body', 'parallel_tool_calls')", "No parallel calls here"]
        {
            assert!(objects_to_member(400, &error(message), names), "{message}");
        }
        let message = "Unsupported parameter: 'parallel_tool_calls' is not supported with this model.";
        assert!(objects_to_member(400, &error(message), names));
        let blamed =
            UpstreamError { param: Some("parallel_tool_calls".to_owned()), ..error("Unknown parameter") };
        assert!(objects_to_member(422, &blamed, names));
        assert!(!objects_to_member(429, &error(message), names));
        assert!(!objects_to_member(400, &error("tool_calls must be a list"), names));
    }
}
