//! The request writer of the Responses API: the bytes of a request in one variant. A pure function of the request, the
//! plan and the variant; slices of the original wherever nothing changes.

use super::approval_requests::{are_added, once_each};
use super::flatten::flatten;
use super::notice::place;
use super::references::put_back;
use super::repair::{open_upstream, repaired};
use super::restore::{items_of, restore};
use super::rounds::{Element, items as sent_items, read};
use crate::edit::{
    annotate_tools, ask_whole, change_messages, notices, plan_without_tools, set_member, without,
};
use crate::variant::{Asking, Source, Tools, Variant};
use bytes::Bytes;
use model::plan::Plan;
use model::request::{Choice, Request, Tool, UpstreamHistory};
use serde_json::{Value, json};
use wire::body::{Scanner, Span};
use wire::json::{decode, quote};
use wire::members::members_of;
use wire::splice::{Rope, Splices};

/// The members that are removed together for a model without tool support.
const TOOL_MEMBERS: [&str; 4] = ["tools", "tool_choice", "parallel_tool_calls", "max_tool_calls"];

/// The bytes of the request in this variant.
pub fn write(source: &Source<'_>, variant: &Variant) -> Rope {
    let Source { body, request, plan, .. } = *source;
    let mut splices = Splices::default();
    match variant.tools {
        Tools::Kept => narrow(request, body, plan, variant, &mut splices),
        Tools::WithoutChoice => without(request, body, &["tool_choice"], &mut splices),
        Tools::Dropped => without(request, body, &TOOL_MEMBERS, &mut splices),
    }
    if variant.tools != Tools::Dropped {
        annotate_tools(request, plan, &mut splices);
        if !variant.undeclares_own {
            declare(request, body, plan, &mut splices);
        }
        if plan.one_at_a_time && !request.tools.is_empty() && !variant.any_calls {
            set_member(request, body, "parallel_tool_calls", "false", &mut splices);
        }
    }
    if variant.whole {
        ask_whole(request, body, &mut splices);
    }
    if request.own_ids {
        forget_own_ids(request, body, &mut splices);
    }
    let rounds = variant.asking.as_ref().map_or(&[][..], |asking| &asking.rounds);
    let last = rounds.last().filter(|_| is_stateful(request, body)).map(|round| read(round));
    if let Some(round) = last.filter(|round| may_continue(round)) {
        continue_upstream(request, body, &round, &mut splices);
    } else {
        let history = request.upstream_history.as_ref();
        let is_open = history.is_some() && variant.repairs.pairs;
        let open = if is_open { open_upstream(request, body) } else { Vec::new() };
        let is_owed = history.is_some_and(|history| !history.owed.is_empty()) || !open.is_empty();
        let begins = request.messages.len() == request.first_sent() && !is_owed;
        write_input(source, variant, rounds, begins, &mut splices);
        if let Some(history) = history {
            let is_changed = !open.is_empty() || !history.owed.is_empty() || history.upstream_id.is_some();
            if splices.is_empty() && !is_changed {
                return Rope::whole(history.original.clone());
            }
            leave_out(body, history, &open, &mut splices);
            continue_from(request, body, history.upstream_id.as_deref(), &mut splices);
        }
    }
    if let Some(referenced) = &request.referenced {
        if splices.is_empty() {
            return Rope::whole(referenced.original.clone());
        }
        put_back(referenced, &mut splices);
    }
    let mut rope = splices.apply(body);
    if are_added(source, variant) {
        rope = once_each(&rope.join()).unwrap_or(rope);
    }
    if variant.repairs.any() {
        rope = repaired(&rope.join(), variant.repairs).unwrap_or(rope);
    }
    if variant.flat { flattened(&rope.join()).unwrap_or(rope) } else { rope }
}

/// Removes the items that the upstream already has, and adds the results that it waits for, with the synthetic
/// outputs of calls that are `open` there.
fn leave_out(body: &[u8], history: &UpstreamHistory, open: &[Bytes], splices: &mut Splices) {
    let is_last = body[history.span.range().end..].trim_ascii_start().starts_with(b"]");
    let owed = [std::slice::from_ref(&history.owed), open].concat();
    let owed: Vec<Bytes> = owed.into_iter().filter(|items| !items.is_empty()).collect();
    let comma: &[u8] = if owed.is_empty() || is_last { b"" } else { b"," };
    splices.replace_all(history.span, [&owed.join(&b","[..])[..], comma].concat());
}

/// Names the reply that the upstream continues from, where that is another one than the client names.
fn continue_from(request: &Request, body: &[u8], id: Option<&str>, splices: &mut Splices) {
    match (id, request.value(body, "previous_response_id")) {
        (Some(""), Some(_)) => without(request, body, &["previous_response_id"], splices),
        (Some(id), Some(span)) => splices.replace(span, quote(id)),
        _ => {}
    }
}

/// Whether the upstream keeps the conversation of the request.
pub fn is_stateful(request: &Request, body: &[u8]) -> bool {
    ["previous_response_id", "conversation"].iter().any(|name| is_set(request, body, name))
}

fn is_set(request: &Request, body: &[u8], name: &str) -> bool {
    request.value(body, name).is_some_and(|value| value.of(body) != b"null")
}

/// Narrows the choice of tools: to none for a final answer, or to the call that is the answer, or to those that are not
/// hidden. The tools stay declared,
/// so that the prompt's cache survives.
fn narrow(request: &Request, body: &[u8], plan: &Plan, variant: &Variant, splices: &mut Splices) {
    let lands = variant.asking.as_ref().is_some_and(|asking: &Asking| asking.land);
    if !request.declares_tools && !request.declares_elsewhere {
        return;
    }
    let is_open = request.value(body, "tool_choice").is_none_or(|choice| choice.of(body) == b"\"auto\"");
    let hides = !plan.hidden.is_empty() && request.choice == Choice::Auto && is_open;
    if hides && variant.undeclares_hidden {
        let is_empty = undeclare(request, body, plan, splices);
        if is_empty || !lands {
            return;
        }
    }
    if let Some(answer) = variant.forced_answer() {
        return force_call(request, body, answer, splices);
    }
    if lands {
        return set_member(request, body, "tool_choice", "\"none\"", splices);
    }
    if !hides {
        return;
    }
    let is_hidden = |tool: &&Tool| is_hidden(tool, body, plan);
    if request.tools.iter().all(|tool| is_hidden(&tool)) {
        return set_member(request, body, "tool_choice", "\"none\"", splices);
    }
    // How a list of allowed tools names one in a namespace is not known. Its calls are judged all the same.
    if request.tools.iter().any(|tool| tool.namespace.is_some() && tool.name.is_some()) {
        return;
    }
    let allowed: Vec<Value> =
        request.tools.iter().filter(|tool| !is_hidden(tool)).map(|tool| reference(tool, body)).collect();
    let choice = json!({"type": "allowed_tools", "mode": "auto", "tools": allowed});
    set_member(request, body, "tool_choice", choice.to_string(), splices);
}

fn is_hidden(tool: &Tool, body: &[u8], plan: &Plan) -> bool {
    let name = tool.full_name(body);
    name.is_some_and(|name| plan.hidden.iter().any(|(_, hidden)| *hidden == name))
}

/// Takes the hidden tools out of the declarations, for an upstream that takes no list of allowed tools; with the last
/// one everything about tools goes. True if no tool is left.
fn undeclare(request: &Request, body: &[u8], plan: &Plan, splices: &mut Splices) -> bool {
    if request.tools.iter().all(|tool| is_hidden(tool, body, plan)) {
        without(request, body, &TOOL_MEMBERS, splices);
        return true;
    }
    let Some(list) = request.value(body, "tools") else { return false };
    let is_gone = |span: Span| {
        let mut within = request.tools.iter().filter(|tool| is_inside(tool.span, span)).peekable();
        within.peek().is_some() && within.all(|tool| is_hidden(tool, body, plan))
    };
    let declared = elements(body, list);
    splices.remove_items(&declared, |span| *span, |span| is_gone(*span));
    // Those of a namespace are in a list within.
    for space in declared.iter().filter(|span| !is_gone(**span)) {
        let inner = members_of(body, *space).into_iter().find(|member| member.key.raw(body) == b"tools");
        let inner = inner.map(|member| elements(body, member.value)).unwrap_or_default();
        splices.remove_items(&inner, |span| *span, |span| is_gone(*span));
    }
    false
}

fn is_inside(inner: Span, outer: Span) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

/// The spans of a list's elements.
fn elements(body: &[u8], list: Span) -> Vec<Span> {
    let mut scanner = Scanner::within(body, list);
    let mut found = Vec::new();
    if !list.of(body).starts_with(b"[") || scanner.array().is_err() {
        return found;
    }
    while let Ok(true) = scanner.element() {
        let Ok(span) = scanner.skip() else { break };
        found.push(span);
    }
    found
}

/// Asks for a call of the tool `name` and no other. How a choice names one in a namespace is not known.
fn force_call(request: &Request, body: &[u8], name: &str, splices: &mut Splices) {
    let is_it =
        |tool: &&Tool| tool.namespace.is_none() && tool.full_name(body).is_some_and(|own| own == name);
    if let Some(tool) = request.tools.iter().find(is_it) {
        set_member(request, body, "tool_choice", reference(tool, body).to_string(), splices);
    }
}

/// The tool as a list of allowed tools names it.
fn reference(tool: &Tool, body: &[u8]) -> Value {
    let declared: Value = serde_json::from_slice(tool.span.of(body)).unwrap_or_default();
    let members = ["type", "name", "server_label"];
    let named = members.iter().filter_map(|name| Some(((*name).to_owned(), declared.get(name)?.clone())));
    Value::Object(named.collect())
}

/// Declares toolrein's own tools after the client's.
fn declare(request: &Request, body: &[u8], plan: &Plan, splices: &mut Splices) {
    let list = request.value(body, "tools").filter(|span| span.of(body).starts_with(b"["));
    let Some(list) = list.filter(|_| !request.tools.is_empty() && request.choice != Choice::Forced) else {
        return;
    };
    for declared in &plan.declared {
        let function = declared.tool.strip_prefix('{').unwrap_or_default();
        splices.insert(list.end - 1, format!(",{{\"type\":\"function\",{function}"));
    }
}

/// Removes the ids of messages that toolrein wrote: the upstream did not issue them.
fn forget_own_ids(request: &Request, body: &[u8], splices: &mut Splices) {
    for item in items_of(request, body) {
        if item.id.is_some_and(|id| decode(id, body).starts_with(super::OWN_ID)) {
            splices.remove_members(&members_of(body, item.span), |member| member.key.raw(body) == b"id");
        }
    }
}

/// Continues from a reply that the upstream keeps: its id, and the results of its blocked calls alone. What the request
/// itself brought is there already.
fn continue_upstream(request: &Request, body: &[u8], round: &[Element], splices: &mut Splices) {
    let id = |element: &Element| if let Element::Reply(id) = element { Some(id.clone()) } else { None };
    let known = || request.upstream_history.as_ref().and_then(|history| history.upstream_id.clone());
    if is_set(request, body, "previous_response_id") {
        continue_from(request, body, round.iter().find_map(id).or_else(known).as_deref(), splices);
    }
    let results: Vec<&[u8]> = round.iter().filter_map(result).collect();
    let input = [b"[", results.join(&b","[..]).as_slice(), b"]"].concat();
    match request.value(body, "input") {
        Some(span) => splices.replace_all(span, input),
        None => splices.insert(request.span.end - 1, [b",\"input\":", input.as_slice()].concat()),
    }
}

/// Whether a request can continue from the reply of this hidden exchange.
fn may_continue(round: &[Element]) -> bool {
    round.iter().any(|element| matches!(element, Element::Reply(id) if !id.is_empty()))
}

fn result(element: &Element) -> Option<&[u8]> {
    if let Element::Result(item) = element { Some(item) } else { None }
}

/// Edits the input: the plan, hidden exchanges of earlier replies, and those of this client request; `begins`: what is
/// added to it is all that is sent of it.
fn write_input(
    source: &Source<'_>,
    variant: &Variant,
    rounds: &[Bytes],
    begins: bool,
    splices: &mut Splices,
) {
    let Source { body, request, plan, restored } = *source;
    let dropped;
    let plan = if variant.tools == Tools::Dropped {
        dropped = plan_without_tools(source);
        &dropped
    } else {
        plan
    };
    change_messages(request, body, plan, splices);
    let mut added = Vec::new();
    for (message, text) in notices(plan, variant.placement) {
        added.extend(place(request, body, message, &text, variant.placement, splices));
    }
    let items = if restored.is_empty() { Vec::new() } else { items_of(request, body) };
    for (message, exchange) in restored.iter().filter(|(message, _)| !plan.drops(*message)) {
        restore(&items, body, request.messages[*message].span, exchange, splices);
    }
    added.extend(rounds.iter().flat_map(|round| sent_items(round)));
    append(request, body, &added, begins, splices);
}

/// Appends items to the input, or `begins` it. A text becomes a list for it.
fn append(request: &Request, body: &[u8], items: &[Bytes], begins: bool, splices: &mut Splices) {
    if items.is_empty() {
        return;
    }
    let items = items.join(&b","[..]);
    let span = request.messages_span;
    match span.of(body).first() {
        Some(b'[') => {
            let comma: &[u8] = if begins { b"" } else { b"," };
            splices.insert(span.end - 1, [comma, &items].concat());
        }
        Some(b'"') => {
            splices.insert(span.start, &b"[{\"type\":\"message\",\"role\":\"user\",\"content\":"[..]);
            splices.insert(span.end, [b"},", items.as_slice(), b"]"].concat());
        }
        Some(_) => splices.replace(span, [b"[", items.as_slice(), b"]"].concat()),
        None => splices.insert(request.span.end - 1, [b",\"input\":[", items.as_slice(), b"]"].concat()),
    }
}

fn flattened(body: &Bytes) -> Option<Rope> {
    let request = super::parse(body).ok()?;
    let mut splices = Splices::default();
    flatten(&request, body, &mut splices);
    Some(splices.apply(body))
}
