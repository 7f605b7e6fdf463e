//! The refusal rules: a table, each row with an example wording.
//!
//! A new wording is a new row, or a word in a group; the pattern language is in `pattern`. What a row must not match
//! goes into its vetoes and into the tests' near misses.

use model::adaptation::Adaptation::{self, Flattened, Placement, ToolChoice, Tools};

/// One wording of one refusal.
pub(super) struct Rule {
    pub(super) refusal: Adaptation,
    /// Another refusal that the wording may mean as well.
    pub(super) or: Option<Adaptation>,
    pub(super) says: &'static str,
    /// Patterns that reverse the meaning if they are up to three words before the match, after the last comma.
    pub(super) not_before: &'static [&'static str],
    /// Likewise within the match and up to six words after it, before the next comma.
    pub(super) not_after: &'static [&'static str],
    /// Likewise anywhere in the sentence.
    pub(super) not_beside: &'static [&'static str],
    /// A wording of a real upstream, or one like it; tests check that the rule matches it.
    #[cfg_attr(not(test), expect(dead_code, reason = "read by the tests, and by people"))]
    pub(super) example: &'static str,
}

const fn rule(refusal: Adaptation, says: &'static str, example: &'static str) -> Rule {
    Rule { refusal, or: None, says, not_before: &[], not_after: &[], not_beside: &[], example }
}

impl Rule {
    const fn or(self, refusal: Adaptation) -> Self {
        Self { or: Some(refusal), ..self }
    }

    const fn not_before(self, not_before: &'static [&'static str]) -> Self {
        Self { not_before, ..self }
    }

    const fn not_after(self, not_after: &'static [&'static str]) -> Self {
        Self { not_after, ..self }
    }

    const fn not_beside(self, not_beside: &'static [&'static str]) -> Self {
        Self { not_beside, ..self }
    }
}

/// Tools are refused only together with something else, or in one place.
const CONDITION: &[&str] = &[
    "stream|streaming|streamed",
    "when|while|if|unless|without|together|combined|alongside|simultaneously|combination|conjunction",
    "json|mime|schema|schemas|structured|strict|cache|caching|prefill",
    "reasoning effort",
    "thinking mode|enabled|is",
    "type|types|named|name|names|mode|id|ids",
    "image|images|audio|video",
    "message|messages|role",
    "than|exceed|exceeds|exceeding|maximum|limit",
    "at a time|once",
];
/// Only some tools are refused.
const KIND: &[&str] = &[
    "forced",
    "parallel|multiple|nested|following|these|such|some|certain|mixed",
    "hosted|builtin|custom|mcp|deferred|streaming|stream|strict|search|use|code|remote|server",
    "built in",
    "with|and",
];
/// The feature that is at odds with tools.
const MODE: &[&str] = &["stream|streaming", "thinking mode", "json|structured|response", "mode"];
/// A choice that fits no tool, or no list of tools.
const MISFIT: &[&str] = &["when|without|unless|found|specified|defined|present|provided"];

/// In the order of precedence: what refuses tools altogether comes before what refuses less.
pub(super) const RULES: &[Rule] = &[
    rule(Tools, "NOT ~ SUPPORT ~ TOOLS", "registry.ollama.ai/library/gemma3:4b does not support tools")
        .not_before(MODE)
        .not_after(CONDITION),
    rule(
        Tools,
        "NOT ~ SUPPORT ~ PARAMETER … tools|functions",
        "x does not support parameters: ['n', 'tools']",
    ),
    rule(Tools, "TOOLS ~ NOT ~ SUPPORTED", "Tool calling is not supported for model: mistralai/x")
        .not_before(KIND)
        .not_after(CONDITION),
    rule(
        Tools,
        "TOOLS with|and|or TOOLS ~ NOT ~ SUPPORTED",
        "Function calling and tool use are not available with model foo-7b",
    )
    .not_before(KIND)
    .not_after(CONDITION),
    rule(Tools, "unsupported|unavailable|missing feature|capability ~ TOOLS", "Unsupported feature: tool use")
        .not_after(CONDITION),
    rule(
        Tools,
        "TOOLS with|and|or TOOLS ~ UNSUPPORTED",
        "Tool use with function calling is unsupported",
    )
    .not_before(KIND)
    .not_after(CONDITION),
    rule(Tools, "TOOLS ~ UNSUPPORTED", "Tool calling is disabled on this server")
        .not_before(KIND)
        .not_after(CONDITION),
    rule(Tools, "UNKNOWN ~ PARAMETER … tools|functions", "Unrecognized request argument supplied: functions")
        .not_after(CONDITION)
        .not_beside(&["invalid value|values"])
        .not_before(&["invalid"]),
    rule(
        Tools,
        "tools|functions ~ NOT ~ valid|recognized|recognised|known|expected ~ PARAMETER",
        "'tools' is not a valid parameter",
    ),
    rule(
        Tools,
        "feature|capability|functionality ~ NOT ~ SUPPORTED ~ TOOLS",
        "feature_not_supported: function_calling",
    )
    .not_after(CONDITION),
    rule(
        Tools,
        "tools|functions * NOT ~ SUPPORT them",
        "Request contains 'tools' but the model does not support them",
    )
    .not_after(CONDITION),
    rule(
        Tools,
        "TOOLS , which|that ~ NOT ~ SUPPORTED",
        "The request uses function calling, which isn't supported",
    )
    .not_before(KIND)
    .not_after(CONDITION),
    rule(
        Tools,
        "TOOLS ~ only ~ SUPPORTED ~ by|on|for|with",
        "Tool calling is only supported for mistral models",
    )
    .not_before(KIND)
    .not_after(CONDITION),
    rule(Tools, "only … * support|supports ~ TOOLS", "Only ['chatglm3', 'qwen-chat'] support tool calls")
        .not_after(CONDITION),
    rule(Tools, "only … * support tool messages", "Only ['chatglm3', 'qwen-chat'] support tool messages"),
    rule(
        Tools,
        "NOT ~ capable|compatible|trained|configured|designed of|with|for ~ TOOLS",
        "This model is not compatible with tools",
    )
    .not_after(CONDITION),
    rule(
        Tools,
        "body tools|functions , extra fields|inputs ~ NOT",
        "body -> functions\n  extra fields not permitted",
    ),
    rule(
        Tools,
        "request|requests with|containing ~ TOOLS ~ NOT ~ SUPPORTED",
        "Requests with tools are not supported",
    )
    .not_after(CONDITION),
    rule(
        Tools,
        "loc : body , tools|functions , msg : extra",
        "'loc': ('body', 'tools'), 'msg': 'Extra inputs are not permitted'",
    ),
    rule(
        Tools,
        "PARAMETER ~ NOT ~ SUPPORTED … tools|functions",
        "Argument not supported on this model: tools",
    )
    .not_after(CONDITION),
    rule(Tools, "tools|functions ~ extra inputs|fields ~ NOT", "body.tools: Extra inputs are not permitted"),
    rule(Tools, "NONE * support|supports|supporting ~ TOOLS", "No endpoints found that support tool use.")
        .not_after(CONDITION),
    rule(
        Tools,
        "no|lacks|lack|lacking ~ TOOLS ~ support|capability|capabilities|ability|abilities|feature|functionality",
        "phi-4 has no function-calling support",
    )
    .not_after(CONDITION),
    rule(
        Tools,
        "model|deployment|endpoint|engine|provider|server|checkpoint * lacks|lack|lacking ~ TOOLS",
        "This model lacks function calling",
    )
    .not_after(CONDITION),
    rule(
        Tools,
        "TOOLS ~ capability|feature|functionality|ability|support ~ missing|lacking|absent",
        "Function calling: feature missing on this model",
    )
    .not_before(KIND)
    .not_after(CONDITION),
    rule(
        Tools,
        "incapable|unable of|to ~ use|using|call|calling|handle|handling ~ TOOLS",
        "The model is incapable of using tools",
    )
    .not_after(CONDITION),
    rule(Tools, "incapable of ~ TOOLS", "Model is incapable of function calling").not_after(CONDITION),
    rule(Tools, "TOOLS ~ model ~ incapable", "tools: model incapable").not_after(CONDITION),
    rule(Tools, "TOOLS ~ beyond|outside ~ model|deployment", "Tool calls are beyond this model")
        .not_before(KIND)
        .not_after(CONDITION),
    rule(
        Tools,
        "TOOLS ~ capability|feature|functionality ~ NOT ~ SUPPORTED",
        "tool_use: capability not available on model",
    )
    .not_after(CONDITION),
    rule(Tools, "no|lacks|lack|lacking ~ support ~ TOOLS", "This model has no support for tool use")
        .not_after(CONDITION),
    rule(
        Tools,
        "no|lacks|lack|lacking tool|function support|capability|capabilities",
        "the chat template lacks tool support",
    )
        .not_after(CONDITION),
    rule(Tools, "UNABLE use|call|invoke|handle ~ TOOLS", "Cannot use tools with this model")
        .not_after(CONDITION),
    rule(Tools, "CHOICE ~ requires|require|needs jinja", "tool_choice param requires --jinja flag"),
    rule(Tools, "TOOLS ~ requires|require|needs jinja", "tools param requires --jinja flag"),
    rule(
        Tools,
        "requires|require|needs|set|specify|configure|start|launch * tool call parser",
        "\"auto\" tool choice requires --tool-call-parser",
    ),
    rule(Tools, "requires|require|needs * enable auto tool choice", "requires --enable-auto-tool-choice"),
    rule(Tools, "unsupported|no|missing tool call parser", "Unsupported tool_call_parser: None"),
    rule(ToolChoice, "NOT ~ SUPPORT ~ CHOICE", "Thinking mode does not support this tool_choice")
        .not_after(MISFIT),
    rule(
        ToolChoice,
        "NOT ~ SUPPORT ~ PARAMETER … tool choice",
        "x does not support parameters: ['tool_choice']",
    ),
    rule(ToolChoice, "CHOICE ~ NOT ~ SUPPORT", "tool_choice does not support being set to required")
        .not_after(MISFIT),
    rule(ToolChoice, "CHOICE ~ NOT ~ SUPPORTED", "tool_choice is not supported").not_after(MISFIT),
    rule(ToolChoice, "CHOICE ~ UNSUPPORTED", "tool_choice: unsupported").not_after(MISFIT),
    rule(
        ToolChoice,
        "CHOICE ~ required|any|named|function ~ NOT ~ SUPPORTED",
        "tool_choice 'any' is not supported",
    )
    .not_after(MISFIT),
    rule(
        ToolChoice,
        "required|any|named ~ NOT ~ SUPPORTED ~ CHOICE",
        "'required' is not supported for tool_choice",
    ),
    rule(ToolChoice, "UNKNOWN ~ PARAMETER … tool choice", "Unknown parameter: 'tool_choice'.")
        .not_before(&["invalid"])
        .not_after(MISFIT),
    rule(ToolChoice, "unsupported ~ CHOICE", "Unsupported tool_choice: required").not_after(MISFIT),
    rule(ToolChoice, "PARAMETER ~ NOT ~ SUPPORTED … tool choice", "Argument not supported: tool_choice"),
    rule(
        ToolChoice,
        "tool choice ~ extra inputs|fields ~ NOT",
        "body.tool_choice: Extra inputs are not permitted",
    ),
    rule(ToolChoice, "CHOICE must|should|only ~ auto|none", "Tool choice must be auto")
        .not_after(&["required"]),
    rule(ToolChoice, "CHOICE ~ only ~ SUPPORT|supports ~ auto|none", "tool_choice only supports auto"),
    rule(
        ToolChoice,
        "only ~ CHOICE ~ auto|none",
        "Only a tool_choice of 'auto' is supported for this model.",
    ),
    rule(ToolChoice, "only ~ auto|none * CHOICE", "Only 'auto' and 'none' are supported for tool_choice")
        .not_beside(&["required"]),
    rule(ToolChoice, "CHOICE ~ input should be * auto", "tool_choice: Input should be 'none' or 'auto'")
        .not_beside(&["required"]),
    rule(
        ToolChoice,
        "invalid|unsupported CHOICE * only ~ auto|none",
        "Invalid tool_choice: this model supports only auto",
    )
    .not_beside(&["required"]),
    rule(ToolChoice, "NOT ~ SUPPORT forced|forcing TOOLS", "This model does not support forced tool use"),
    rule(ToolChoice, "forced TOOLS ~ NOT ~ SUPPORTED", "Forced tool use is not supported"),
    rule(
        ToolChoice,
        "CHOICE * any|tool|required ~ NOT ~ SUPPORTED",
        "tool_choice: type \"tool\" and \"any\" are not supported for this model.",
    )
    .not_after(MISFIT),
    rule(
        ToolChoice,
        "CHOICE * tag none|any|tool * NOT match * tags",
        "tool_choice: Input tag 'none' found using 'type' does not match any of the expected tags: 'auto', 'any', 'tool'",
    ),
    rule(
        ToolChoice,
        "*tool_choice.type ~ input should be * auto",
        "tool_choice.type: Input should be 'auto', 'any' or 'tool'",
    )
    .not_beside(&["none"]),
    rule(
        ToolChoice,
        "loc : body , tool choice , type , msg : input should be * auto",
        "'loc': ('body', 'tool_choice', 'type'), 'msg': \"Input should be 'auto', 'any' or 'tool'\"",
    )
    .not_beside(&["none"]),
    rule(
        ToolChoice,
        "CHOICE must either be",
        "`tool_choice` must either be a named tool, \"auto\", or \"none\".",
    ),
    rule(ToolChoice, "only named tools ~ SUPPORTED", "Currently only named tools are supported"),
    rule(
        ToolChoice,
        "loc : body , tool choice , msg : extra",
        "'loc': ('body', 'tool_choice'), 'msg': 'Extra inputs'",
    ),
    rule(ToolChoice, "invalid ~ CHOICE type", "Invalid tool_choice type: 'object'."),
    rule(ToolChoice, "CHOICE is invalid", "'$.tool_choice' is invalid.").not_after(MISFIT),
    rule(
        ToolChoice,
        "NONE * support|supports|supporting ~ CHOICE",
        "No endpoints found that support 'tool_choice'",
    ),
    rule(ToolChoice, "TOOLS mode any ~ NOT ~ SUPPORTED", "Function calling mode `ANY` is not enabled"),
    rule(Flattened, "TOOLMESSAGE ~ NOT ~ SUPPORTED", "Tool messages are not supported")
        .not_before(&["multimodal|image|images|picture|pictures|media|visual"])
        .not_after(&["image|images|audio|must|after|when"]),
    rule(Flattened, "TOOLMESSAGE ~ UNSUPPORTED", "role 'tool' unsupported")
        .not_before(&["multimodal|image|images|picture|pictures|media|visual"]),
    rule(Flattened, "NOT ~ SUPPORT ~ TOOLMESSAGE", "This template does not support tool messages")
        .not_after(&["image|images|audio|when"]),
    rule(
        Flattened,
        "NOT ~ SUPPORT ~ messages with|of ~ tool",
        "x does not support messages with the 'tool' role",
    ),
    rule(
        Flattened,
        "messages|message with|containing ~ tool_calls ~ NOT ~ SUPPORTED",
        "messages with tool_calls are not supported",
    ),
    rule(Flattened, "UNKNOWN message role ~ tool", "Unknown message role 'tool'")
        .not_after(&["after|must"]),
    rule(Flattened, "*role ~ must|should be * system", "role must be one of: system, user, assistant")
        .not_beside(&["tool"]),
    rule(Flattened, "*.role ~ NOT ~ SUPPORT ~ tool", "'messages[2].role' does not support 'tool'"),
    rule(Flattened, "incorrect|unsupported|invalid|unknown|unexpected ~ role ~ tool", "invalid role: tool")
        .not_after(&["after|must"]),
    rule(Flattened, "*.role ~ input should be * system", "m.role: Input should be 'system' or 'user'")
        .not_beside(&["tool"]),
    rule(
        Flattened,
        "invalid value ~ tool . supported|expected|allowed|permitted ~ values|value * user|assistant",
        "Invalid value: 'tool'. Supported values are: 'system', 'assistant', 'user', and 'function'.",
    ),
    rule(
        Flattened,
        "tool ~ NOT one of * user|assistant",
        "'tool' is not one of ['system', 'assistant', 'user', 'function'] - 'messages.3.role'",
    ),
    rule(
        Flattened,
        "unknown variant ~ tool , expected * user|assistant",
        "unknown variant `tool`, expected one of `system`, `user`, `assistant`",
    ),
    rule(
        Flattened,
        "tag tool * NOT match * tags",
        "Input tag 'tool' found using 'role' does not match any of the expected tags: 'system', 'user'",
    ),
    rule(
        Flattened,
        "*.role ~ unexpected ~ . permitted * system",
        "body.messages.2.role: unexpected value; permitted: 'system', 'user', 'assistant'",
    )
    .not_beside(&["tool"]),
    rule(
        Flattened,
        "roles|role * got|found|received ~ tool",
        "Only system, user and assistant roles are supported, got tool.",
    ),
    rule(
        Flattened,
        "only * system * roles|role ~ SUPPORTED",
        "Only user, system and assistant roles are supported!",
    )
    .not_beside(&["tool"]),
    rule(
        Placement,
        "SYSTEM * must|should|only|can * first|beginning|start|precede",
        "System message must be first.",
    ),
    rule(
        Placement,
        "SYSTEM must|should ~ follow|come|appear|stand|be ~ after|a|an|the|user|assistant",
        "messages.2: role 'system' must follow a 'user' message or an 'assistant' message ending in a server tool result",
    ),
    rule(
        Placement,
        "top-level system ~ parameter",
        "messages.0: use the top-level 'system' parameter for the initial system prompt",
    ),
    rule(Placement, "only ~ first message * system", "Only the first message can have the role 'system'"),
    rule(Placement, "SYSTEM ~ NOT ~ SUPPORTED", "Multiple system messages are not supported"),
    rule(Placement, "SYSTEM ~ UNSUPPORTED", "The system role is unsupported"),
    rule(Placement, "NOT ~ SUPPORT ~ SYSTEM", "This model doesn't support system messages."),
    rule(
        Placement,
        "*.role ~ NOT ~ SUPPORT ~ system|developer",
        "'messages[0].role' does not support 'system'",
    ),
    rule(
        Placement,
        "incorrect|unsupported|invalid|unknown|unexpected role ~ system|developer",
        "Incorrect role system.",
    ),
    rule(Placement, "invalid|unsupported message role ~ system|developer", "invalid message role: system"),
    rule(Placement, "SYSTEM ~ only ~ SUPPORTED", "system messages are only supported at position 0"),
    rule(Placement, "only one|single ~ SYSTEM", "Only one system message is allowed"),
    rule(
        Placement,
        "SYSTEM ~ NOT ~ follow|appear|come|occur|stand",
        "A system message cannot follow a tool message",
    ),
    rule(
        Placement,
        "role|roles|message sequence|order ~ invalid|wrong|incorrect",
        "The role sequence is invalid",
    ),
    rule(Placement, "invalid|wrong|incorrect ~ role|roles|message sequence|order", "invalid message order"),
    rule(
        Placement,
        "tool result blocks cannot be provided ~ same turn",
        "Conversation blocks and tool result blocks cannot be provided in the same turn.",
    ),
    rule(
        Placement,
        "first message * only SYSTEM",
        "Expected the first message to be the only system message",
    ),
    rule(Placement, "SYSTEM ~ middle", "chat content has system message in the middle"),
    rule(Placement, "unexpected role * after", "Unexpected role 'user' after role 'tool'"),
    rule(Placement, "expected last role", "Expected last role User or Tool for serving but got system")
        .not_beside(&["got assistant"]),
    rule(Placement, "last message must|should * user", "Last message must have role `user`.")
        .or(Flattened),
    rule(
        Placement,
        "roles must|should * alternate|alternating",
        "Conversation roles must alternate user/assistant",
    )
    .or(Flattened),
    rule(Placement, "NOT ~ SUPPORT ~ successive|consecutive", "x does not support successive user messages"),
    rule(Placement, "*.role ~ input should be", "messages.1.role: Input should be 'user' or 'assistant'")
        .or(Flattened)
        .not_beside(&["system", "tool"]),
    rule(
        Placement,
        "loc : body , messages * role , msg : input should be",
        "'loc': ('body', 'messages', 2, 'role'), 'msg': \"Input should be 'user' or 'assistant'\"",
    )
    .or(Flattened)
    .not_beside(&["system", "tool"]),
    rule(
        Placement,
        "only * roles|role ~ SUPPORTED * initial|optional|first system",
        "Only user and assistant roles are supported, with the exception of an initial optional system message!",
    )
    .or(Flattened),
    rule(
        Placement,
        "roles|role * got|found|received ~ system|developer",
        "Only user, assistant and tool roles are supported, got system.",
    ),
    rule(Placement, "only * roles|role ~ SUPPORTED", "Only user and assistant roles are supported!")
        .or(Flattened)
        .not_beside(&["system", "tool"]),
    rule(
        Placement,
        "only * tool * roles|role ~ SUPPORTED",
        "Only user and assistant and tool_results and tool and function roles are supported",
    )
    .not_beside(&["system"]),
    rule(Placement, "unexpected combination ~ role", "Unexpected combination of role and message content"),
    rule(Placement, "invalid|unexpected message role", "Unexpected message role.").or(Flattened),
    rule(Placement, "incorrect role information", "Incorrect role information").or(Flattened),
];

/// Errors for a request without its tools but with its tool calls. For a client's own request they mean a mistake of
/// the client.
pub(super) const MISSED: &[(&str, &str)] = &[
    ("requested tool ~ NOT exist", "requested tool does not exist"),
    ("NOT in request.tools|tools", "attempted to call tool 'x' which was not in request.tools"),
    (
        "toolconfig field must be defined",
        "The toolConfig field must be defined when using toolUse content blocks.",
    ),
    ("must define tools", "Requests which include `tool_use` or `tool_result` blocks must define tools"),
    (
        "without tools ~ param",
        "Anthropic doesn't support tool calling without `tools=` param specified. Pass `tools=` param",
    ),
    ("expects ~ tools", "Anthropic expects the `tools=` param to be passed in."),
    (
        "tools|functions must be set|specified|provided|defined",
        "When using `tool_choice`, `tools` must be set.",
    ),
    ("without function declarations|tools", "Function calling config is set without function_declarations."),
];

/// How an upstream names the member that it does not accept, with wordings of vLLM, Mistral and Azure
/// (modelscope/ms-agent#489, openai/openai-agents-python#442, agno-agi/agno#1066).
pub(super) const STREAM_OPTIONS: &[(&str, &[&str])] = &[
    (
        "stream_options",
        &[
            r#"{"message":"[{'type': 'extra_forbidden', 'loc': ('body', 'stream_options'), 'msg': 'Extra inputs are not permitted'}]","code":400}"#,
            r#"{"object":"error","message":{"detail":[{"type":"extra_forbidden","loc":["body","stream_options","include_usage"],"msg":"Extra inputs are not permitted","input":true}]}}"#,
            r#"{"error":{"message":"Unknown parameter: 'stream_options'.","param":"stream_options","code":"unknown_parameter"}}"#,
            r#"{"error":{"message":"Validation error at #/stream_options: Extra inputs are not permitted","code":400}}"#,
        ],
    ),
    ("include_usage", &[r#"{"error":{"message":"Unrecognized request argument supplied: include_usage"}}"#]),
];
