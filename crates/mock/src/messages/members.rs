//! Rules for the members of a request beside `messages` and `tools`: which exist, their types, and members that exclude each
//! other. Checks one request alone.
//!
//! Source: the types of anthropic-sdk-python 1.17.0 and 2.14.0, recorded requests, and requests of these SDKs to a scripted
//! upstream. Where no refusal is recorded the wording is Pydantic's, as in those that are.

use super::error::MessagesError;
use super::generation::Generation;
use super::head::RequestHead;
use super::merged::MergedMessage;
use serde_json::Value;

/// The members that every request may have.
const MEMBERS: &str = "model messages max_tokens system tools tool_choice stream thinking temperature top_p top_k \
    stop_sequences metadata service_tier cache_control output_config output_format container mcp_servers compaction speed \
    inference_geo diagnostics fallbacks fallback_credit_token user_profile_id";
/// Members that need a beta, each with the beginning of the beta's name.
const BETA_MEMBERS: [(&str, &str); 3] = [
    ("context_management", "context-management-"),
    ("thread", "message-threads-"),
    ("safeguards", "dangerous-tool-use-"),
];
/// Members that the newest version does not have.
const SAMPLING: [&str; 3] = ["temperature", "top_p", "top_k"];
/// The least budget of thinking, in tokens.
const MIN_BUDGET: u64 = 1024;
/// The beta of `thinking.block_binding`.
pub(super) const BLOCK_BINDING: &str = "thinking-binding-controls-";

/// Checks the headers.
pub(super) fn check_head(head: &RequestHead, found: &mut Vec<MessagesError>) {
    match head.version() {
        None => found.push(MessagesError::unrecorded("anthropic-version: header is required")),
        Some(version) if !head.has_known_version() => {
            let text = format!("anthropic-version: \"{version}\" is not a valid version");
            found.push(MessagesError::unrecorded(text));
        }
        Some(_) => {}
    }
}

/// Checks the members of the request; `max_tokens` is required if `needs_max_tokens` is true.
pub(super) fn check(
    head: &RequestHead,
    body: &Value,
    needs_max_tokens: bool,
    found: &mut Vec<MessagesError>,
) {
    for (name, _) in body.as_object().into_iter().flatten() {
        if !is_member(head, name) {
            found.push(MessagesError::extra_input(name));
        }
    }
    let required = ["model", "max_tokens", "messages"].into_iter();
    for name in required.filter(|name| needs_max_tokens || *name != "max_tokens") {
        if body[name].is_null() {
            found.push(MessagesError::field_required(name));
        }
    }
    check_types(body, found);
    check_system(&body["system"], found);
    check_thinking(head, body, found);
}

fn is_member(head: &RequestHead, name: &str) -> bool {
    match BETA_MEMBERS.iter().find(|(member, _)| *member == name) {
        Some((_, beta)) => head.has_beta(beta),
        None if SAMPLING.contains(&name) => !head.is_without_sampling(),
        None => MEMBERS.split_whitespace().any(|member| member == name),
    }
}

fn check_types(body: &Value, found: &mut Vec<MessagesError>) {
    let is_set = |name: &str| !body[name].is_null();
    for (name, is_right, expected) in [
        ("model", body["model"].is_string(), "string"),
        ("messages", body["messages"].is_array(), "list"),
        ("max_tokens", body["max_tokens"].is_u64(), "integer"),
        ("stream", body["stream"].is_boolean(), "boolean"),
        ("stop_sequences", body["stop_sequences"].is_array(), "list"),
        ("metadata", body["metadata"].is_object(), "dictionary"),
        ("tools", body["tools"].is_array(), "list"),
    ] {
        if is_set(name) && !is_right {
            found.push(MessagesError::wrong_type(name, expected));
        }
    }
    if body["temperature"].as_f64().is_some_and(|degree| !(0.0..=1.0).contains(&degree)) {
        found.push(MessagesError::unrecorded("temperature: range: 0..1"));
    }
    let is_empty = body["messages"].as_array().is_some_and(Vec::is_empty);
    if is_empty && body["thread"]["type"] != "continue" {
        found.push(MessagesError::unrecorded("messages: at least one message is required"));
    }
}

fn check_system(system: &Value, found: &mut Vec<MessagesError>) {
    match system {
        Value::Null | Value::String(_) => {}
        Value::Array(blocks) => {
            for (index, block) in blocks.iter().enumerate() {
                if block["type"] != "text" {
                    let text = format!("system.{index}.type: Input should be 'text'");
                    found.push(MessagesError::unrecorded(text));
                } else if block["text"].as_str().is_none_or(str::is_empty) {
                    found.push(MessagesError::invalid("system: text content blocks must be non-empty"));
                }
            }
        }
        _ => found.push(MessagesError::wrong_type("system", "list")),
    }
}

/// Checks `thinking` with what depends on it: the budget, the model, the beta of `block_binding`.
fn check_thinking(head: &RequestHead, body: &Value, found: &mut Vec<MessagesError>) {
    let thinking = &body["thinking"];
    let generation = body["model"].as_str().and_then(Generation::from_name);
    match thinking["type"].as_str() {
        None if thinking.is_null() => return,
        Some("enabled") if generation.is_some_and(Generation::refuses_thinking_budget) => {
            found.push(MessagesError::unrecorded(
                "\"thinking.type.enabled\" is not supported for this model. Use \"thinking.type.adaptive\" and \
                 \"output_config.effort\" to control thinking behavior.",
            ));
        }
        Some("enabled") => check_budget(body, found),
        Some("adaptive") if generation.is_some_and(|known| !known.has_adaptive_thinking()) => {
            found.push(MessagesError::unrecorded("adaptive thinking is not supported on this model"));
        }
        Some("adaptive" | "disabled" | "between_tools") => {}
        _ => found.push(MessagesError::unrecorded(
            "thinking: Input tag found using 'type' does not match any of the expected tags: 'adaptive', 'between_tools', \
             'disabled', 'enabled'",
        )),
    }
    if !thinking["block_binding"].is_null() && !head.has_beta(BLOCK_BINDING) {
        let kind = thinking["type"].as_str().unwrap_or_default();
        found.push(MessagesError::extra_input(&format!("thinking.{kind}.block_binding")));
    }
}

fn check_budget(body: &Value, found: &mut Vec<MessagesError>) {
    match body["thinking"]["budget_tokens"].as_u64() {
        None => found.push(MessagesError::field_required("thinking.enabled.budget_tokens")),
        Some(budget) if budget < MIN_BUDGET => found.push(MessagesError::unrecorded(format!(
            "thinking.enabled.budget_tokens: Input should be greater than or equal to {MIN_BUDGET}"
        ))),
        Some(budget) if body["max_tokens"].as_u64().is_some_and(|max| max <= budget) => {
            found.push(MessagesError::unrecorded(
                "`max_tokens` must be greater than `thinking.budget_tokens`.",
            ));
        }
        Some(_) => {}
    }
}

/// The most breakpoints of the prompt cache, and the most in a request with a thread.
const BREAKPOINTS: [usize; 2] = [4, 3];

/// Checks the number of breakpoints of the prompt cache.
pub(super) fn check_breakpoints(
    body: &Value,
    messages: &[MergedMessage<'_>],
    found: &mut Vec<MessagesError>,
) {
    let count = count_breakpoints(body, messages);
    let max = BREAKPOINTS[usize::from(body["thread"].is_object())];
    if count > max {
        let text = format!("A maximum of {max} blocks with cache_control may be provided. Found {count}.");
        found.push(MessagesError::invalid(text));
    }
}

/// The breakpoints of tools, system, blocks and their parts. The automatic one, at the top of the request, takes a slot too.
pub(super) fn count_breakpoints(body: &Value, messages: &[MergedMessage<'_>]) -> usize {
    let is_marked = |block: &Value| !block["cache_control"].is_null();
    let lists = [&body["tools"], &body["system"]].into_iter().filter_map(Value::as_array).flatten();
    let blocks = || messages.iter().flat_map(|message| &message.blocks);
    let parts = blocks().filter_map(|block| block["content"].as_array()).flatten();
    lists.chain(parts).filter(|block| is_marked(block)).count()
        + blocks().filter(|block| is_marked(block)).count()
        + usize::from(is_marked(body))
}
