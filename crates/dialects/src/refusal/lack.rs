//! Refusals of all use of tools in unknown wordings, by their structure: tools in general, a model or a server, and a denial.
//! One that is about a part of the request, about one kind of tool, or about tools beside something else is none.

use super::simple::SimpleText;

/// Tools in general.
const TOOLS: &str =
    "tools|tool use|tool usage|tool calls|tool calling|tool support|function calling|function calls";
/// What has no use of tools.
const MODEL: &str = "model|models|deployment|endpoint|engine|server|provider|checkpoint|backend";
const DENIAL: &str = "no|not|cannot|cant|doesnt|isnt|arent|wont|without|lacks|lack|lacking|unable|incapable|off|disabled|\
    unsupported|unavailable|beyond|never|nor|neither|impossible";
/// What is wrong with a call, a result, a declaration or a choice; and what tools may be at odds with.
const OTHER: &str = "choice|choose|forc*|required|require*|mandatory|parallel|message*|role|roles|result*|response*|output*|id|ids|\
    identifier*|name*|schema*|parameter*|param|params|argument*|description*|field*|most|maximum|max|limit*|more than|\
    too|at once|at a time|stream*|when|if|while|unless|combin*|together|alongside|beside|json|format|structured|image*|\
    audio|video|file*|reasoning|thinking|type|types|found|exist*|declared|defined|unknown|must|should|expected|duplicate*|\
    unique|hosted|builtin|built in|mcp|remote|custom|server side|strict|search|interpreter|computer|cache*|\
    preced*|follow*|before|after|history|previous|empty|one|two|only|parser|jinja|template|allowed tools|\
    following|these|such|some|certain|did|didnt|called|made|invoked|your account|plan|tier|rate|quota|credit*";

/// Whether `text` says that there is no use of tools.
pub(super) fn lacks_tools(text: &str) -> bool {
    let simple = SimpleText::new(text);
    simple.says(TOOLS) && simple.says(MODEL) && simple.says(DENIAL) && !simple.says(OTHER)
}
