//! Request edits as splices: the plan's edits, restored hidden exchanges, and the changes for variants (without tools,
//! for a final answer, with hidden exchanges appended).

use crate::chat::notice::place;
use crate::edit::{change_messages, notices, set_member, without};
use crate::variant::{Placement, PlannedRequest};
use bytes::Bytes;
use model::message::{Message, Role};
use model::plan::{Declared, Plan};
use model::request::{Choice, Request, Tool};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeSet;
use wire::json::decode;
use wire::members::members_of;
use wire::splice::Splices;

/// The members that are removed together for a model without tool support; some servers refuse a request that keeps one
/// of them.
pub const TOOL_MEMBERS: [&str; 5] =
    ["tools", "tool_choice", "parallel_tool_calls", "functions", "function_call"];

/// Applies what the policies want done to messages: texts changed, turns dropped, then notices, in the order in which
/// they were planned.
pub fn apply_plan(planned: &PlannedRequest<'_>, plan: &Plan, placement: Placement, splices: &mut Splices) {
    change_messages(planned, plan, splices);
    for (item, text) in &notices(plan, placement) {
        place(planned.request, planned.body, item.index, text, placement, splices);
    }
}

/// Asks for one call at a time, where such tools remain: the member has no meaning for the older `functions`, and is
/// refused where there are no tools.
pub fn ask_for_one_call(request: &Request, body: &[u8], plan: &Plan, splices: &mut Splices) {
    let Some(tools) = request.value(body, "tools").filter(|_| plan.one_at_a_time) else { return };
    let in_list = |tool: &&Tool| (tools.start..tools.end).contains(&tool.span.start);
    let keeps_all = request.choice == Choice::Forced;
    let stays = |tool: &Tool| keeps_all || !is_hidden(tool, body, &plan.hidden);
    if request.tools.iter().filter(in_list).any(stays) {
        set_member(request, body, "parallel_tool_calls", "false", splices);
    }
}

/// Puts hidden exchanges back, each directly before its assistant message.
pub fn restore(planned: &PlannedRequest<'_>, splices: &mut Splices) {
    for (position, exchange) in planned.restored.iter().filter(|(at, _)| !planned.plan.drops_at(*at)) {
        let Some(span) = planned.span_at(*position) else { continue };
        splices.insert(span.start, exchange.clone());
        splices.insert(span.start, Bytes::from_static(b","));
    }
}

/// Appends a hidden exchange to the end of the conversation.
pub fn append(request: &Request, exchange: &Bytes, splices: &mut Splices) {
    let at = request.messages_span.end - 1;
    if !request.messages.is_empty() {
        splices.insert(at, Bytes::from_static(b","));
    }
    splices.insert(at, exchange.clone());
}

/// Asks for an answer without calls and leaves the tools declared, so that the prompt's cache survives.
pub fn ask_for_answer(request: &Request, body: &[u8], splices: &mut Splices) {
    for (member, tools) in [("tool_choice", "tools"), ("function_call", "functions")] {
        if request.value(body, tools).is_some() {
            set_member(request, body, member, "\"none\"", splices);
        }
    }
}

/// Asks for a call of the tool `name` and no other.
pub fn force_call(request: &Request, body: &[u8], name: &str, splices: &mut Splices) {
    let is_it = |tool: &&Tool| tool.full_name(body).is_some_and(|own| own == name);
    let Some(tool) = request.tools.iter().find(is_it) else { return };
    let declared: Value = serde_json::from_slice(tool.span.of(body)).unwrap_or_default();
    let (member, choice) = match declared["type"].as_str() {
        Some("custom") => ("tool_choice", json!({"type": "custom", "custom": {"name": name}})),
        None if request.value(body, "tools").is_none() => ("function_call", json!({"name": name})),
        _ => ("tool_choice", json!({"type": "function", "function": {"name": name}})),
    };
    set_member(request, body, member, choice.to_string(), splices);
}

/// Asks for only one choice.
pub fn ask_for_one(request: &Request, body: &[u8], splices: &mut Splices) {
    if request.choices != 1 {
        set_member(request, body, "n", "1", splices);
    }
}

/// Asks for a usage chunk at the end of the stream, and keeps the client's other options.
pub fn ask_for_usage(request: &Request, body: &[u8], splices: &mut Splices) {
    const WANTED: &str = "{\"include_usage\":true}";
    let Some(options) = request.value(body, "stream_options").filter(|span| span.of(body).starts_with(b"{"))
    else {
        return set_member(request, body, "stream_options", WANTED, splices);
    };
    let members = members_of(body, options);
    match members.iter().find(|member| member.key.raw(body) == b"include_usage") {
        Some(member) => splices.replace(member.value, "true"),
        None if members.is_empty() => splices.replace(options, WANTED),
        None => splices.insert(options.start + 1, "\"include_usage\":true,"),
    }
}

/// Removes the declarations of `hidden` tools; true if no tool may be called any more, so that the model must be asked
/// to call none.
///
/// With the last tool, everything about tools is removed, since some upstreams refuse an empty list. For calls in the
/// history (`restored`: in what is put back into it), strict upstreams want the tools declared (Groq, Anthropic,
/// Bedrock): these stay, or all of them if the called ones are unknown.
pub fn hide(
    request: &Request,
    body: &[u8],
    hidden: &[(&'static str, String)],
    restored: bool,
    splices: &mut Splices,
) -> bool {
    // A forced choice may name one of the hidden tools, and the client must get its answer.
    if hidden.is_empty() || request.choice == Choice::Forced {
        return false;
    }
    let is_closed =
        !request.tools.is_empty() && request.tools.iter().all(|tool| is_hidden(tool, body, hidden));
    let called = if is_closed { called(request, body) } else { BTreeSet::new() };
    let is_history = |message: &Message| message.role == Role::Tool || !message.calls.is_empty();
    if is_closed && !restored && !request.messages.iter().any(is_history) {
        without_tools(request, body, splices);
        return false;
    }
    let is_called = |tool: &Tool| tool.name.is_some_and(|name| called.contains(&decode(name, body)));
    if is_closed && !request.tools.iter().any(is_called) {
        return true;
    }
    let is_hidden = |tool: &Tool| is_hidden(tool, body, hidden) && !is_called(tool);
    for list in ["tools", "functions"] {
        let Some(span) = request.value(body, list) else { continue };
        let inside = |tool: &&Tool| (span.start..span.end).contains(&tool.span.start);
        let tools: Vec<&Tool> = request.tools.iter().filter(inside).collect();
        splices.remove_items(&tools, |tool| tool.span, |tool| is_hidden(tool));
    }
    is_closed
}

/// The names of the tools that the history calls.
fn called<'a>(request: &Request, body: &'a [u8]) -> BTreeSet<Cow<'a, str>> {
    let calls = request.messages.iter().flat_map(|message| &message.calls);
    calls.filter_map(|call| call.name).map(|name| decode(name, body)).collect()
}

fn is_hidden(tool: &Tool, body: &[u8], hidden: &[(&'static str, String)]) -> bool {
    tool.name.is_some_and(|name| hidden.iter().any(|(_, hidden)| *hidden == decode(name, body)))
}

/// Declares toolrein's own tools after the client's.
pub fn declare(request: &Request, body: &[u8], declared: &[Declared], splices: &mut Splices) {
    let list = request.value(body, "tools").filter(|span| span.of(body).starts_with(b"["));
    let Some(list) = list.filter(|_| !request.tools.is_empty() && request.choice != Choice::Forced) else {
        return;
    };
    for Declared { tool, .. } in declared {
        splices.insert(list.end - 1, format!(",{{\"type\":\"function\",\"function\":{tool}}}"));
    }
}

/// Removes everything that declares or chooses tools.
pub fn without_tools(request: &Request, body: &[u8], splices: &mut Splices) {
    without(request, body, &TOOL_MEMBERS, splices);
}

/// Removes the choice among tools and keeps the tools.
pub fn without_choice(request: &Request, body: &[u8], splices: &mut Splices) {
    without(request, body, &["tool_choice", "function_call"], splices);
}
