//! The request writer of the Responses API: the bytes of a request in one variant. A pure function of the request, the
//! plan and the variant; slices of the original wherever nothing changes.

use super::approval_requests::{are_added, once_each};
use super::flatten::flatten;
use super::item::{Item, ItemKind};
use super::notice::{place, place_after};
use super::references::write_references;
use super::repair::{open_upstream, repaired, unknown_output};
use super::request::is_reference;
use super::restore::{items_of, restore};
use super::rounds::{Element, items as sent_items, read};
use crate::edit::{
    annotate_tools, ask_whole, change_messages, notices, plan_without_tools, set_member, without,
};
use crate::variant::{Asking, Placement, PlannedRequest, Tools, Variant};
use bytes::Bytes;
use model::adaptation::Adaptation;
use model::plan::Plan;
use model::request::{Choice, Request, Tool};
use model::source::CLIENT;
use serde_json::{Value, json};
use wire::body::{Scanner, Span};
use wire::json::{decode, quote};
use wire::members::members_of;
use wire::splice::{Rope, Splices};

/// The members that are removed together for a model without tool support.
const TOOL_MEMBERS: [&str; 4] = ["tools", "tool_choice", "parallel_tool_calls", "max_tool_calls"];

/// The bytes of the request in this variant.
pub fn write(planned: &PlannedRequest<'_>, variant: &Variant) -> Rope {
    let PlannedRequest { body, request, upstream, plan, .. } = *planned;
    let mut splices = Splices::default();
    match variant.tools() {
        Tools::Kept => narrow(planned, variant, &mut splices),
        Tools::WithoutChoice => without(request, body, &["tool_choice"], &mut splices),
        Tools::Dropped => without(request, body, &TOOL_MEMBERS, &mut splices),
    }
    if variant.tools() != Tools::Dropped {
        annotate_tools(request, plan, &mut splices);
        if !variant.has(Adaptation::OwnTools) {
            declare(request, body, plan, &mut splices);
        }
        if plan.one_at_a_time && planned.tools().next().is_some() && !variant.has(Adaptation::ParallelMember)
        {
            set_member(request, body, "parallel_tool_calls", "false", &mut splices);
        }
    }
    if variant.has(Adaptation::Streaming) {
        ask_whole(request, body, &mut splices);
    }
    if request.own_ids {
        forget_own_ids(planned, &mut splices);
    }
    let rounds = variant.asking.as_ref().map_or(&[][..], |asking| &asking.rounds);
    let last = rounds.last().filter(|_| is_stateful(request, body)).map(|round| read(round));
    if let Some(round) = last.filter(|round| may_continue(round)) {
        continue_upstream(planned, &round, &mut splices);
    } else {
        write_input(planned, variant, rounds, &mut splices);
        continue_from(request, body, upstream.and_then(|it| it.upstream_id.as_deref()), &mut splices);
    }
    let mut rope = splices.apply(body);
    if are_added(planned, variant) {
        rope = once_each(&rope.join()).unwrap_or(rope);
    }
    if !variant.repairs().is_empty() {
        rope = repaired(&rope.join(), variant.repairs()).unwrap_or(rope);
    }
    if variant.has(Adaptation::Flattened) { flattened(&rope.join()).unwrap_or(rope) } else { rope }
}

/// What the upstream waits for before the client's items: the results of blocked calls, and where pairs are repaired
/// synthetic outputs of calls that are open there, those that its refusals have named among them.
fn owed_items(planned: &PlannedRequest<'_>, variant: &Variant) -> Vec<Bytes> {
    let owed = planned.upstream.map(|upstream| upstream.owed.clone()).filter(|items| !items.is_empty());
    let open = if variant.has(Adaptation::Pairs) { open_upstream(planned) } else { Vec::new() };
    let named = variant.open_calls.iter().filter_map(unknown_output);
    owed.into_iter().chain(open).chain(named).collect()
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
fn narrow(planned: &PlannedRequest<'_>, variant: &Variant, splices: &mut Splices) {
    let PlannedRequest { request, body, plan, .. } = *planned;
    let lands = variant.asking.as_ref().is_some_and(|asking: &Asking| asking.land);
    if !planned.may_call() {
        return;
    }
    let is_open = request.value(body, "tool_choice").is_none_or(|choice| choice.of(body) == b"\"auto\"");
    let hides = !plan.hidden.is_empty() && request.choice == Choice::Auto && is_open;
    if hides && variant.has(Adaptation::HiddenTools) {
        let is_empty = undeclare(request, body, plan, splices);
        if is_empty || !lands {
            return;
        }
    }
    if let Some(answer) = variant.forced_answer() {
        return force_call(planned, answer, splices);
    }
    if lands {
        return set_member(request, body, "tool_choice", "\"none\"", splices);
    }
    if !hides {
        return;
    }
    let is_open = |(tool, bytes): &(&Tool, &Bytes)| !is_hidden(tool, bytes, plan);
    if !planned.tools().any(|tool| is_open(&tool)) {
        return set_member(request, body, "tool_choice", "\"none\"", splices);
    }
    // How a list of allowed tools names one in a namespace is not known. Its calls are judged all the same.
    if planned.tools().any(|(tool, _)| tool.namespace.is_some() && tool.name.is_some()) {
        return;
    }
    let allowed: Vec<Value> =
        planned.tools().filter(is_open).map(|(tool, bytes)| reference(tool, bytes)).collect();
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
fn force_call(planned: &PlannedRequest<'_>, name: &str, splices: &mut Splices) {
    let is_it = |(tool, bytes): &(&Tool, &Bytes)| {
        tool.namespace.is_none() && tool.full_name(bytes).is_some_and(|own| own == name)
    };
    if let Some((tool, bytes)) = planned.tools().find(is_it) {
        let choice = reference(tool, bytes).to_string();
        set_member(planned.request, planned.body, "tool_choice", choice, splices);
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

/// Removes the ids of messages that toolrein wrote: the upstream did not issue them. A reference to one is replaced by the
/// message.
fn forget_own_ids(planned: &PlannedRequest<'_>, splices: &mut Splices) {
    let PlannedRequest { request, body, .. } = *planned;
    let refers = |item: &Item| item.kind == ItemKind::Other && is_reference(item.span.of(body));
    for item in items_of(request, body).into_iter().filter(|item| !refers(item)) {
        if item.id.is_some_and(|id| decode(id, body).starts_with(super::OWN_ID)) {
            splices.remove_members(&members_of(body, item.span), |member| member.key.raw(body) == b"id");
        }
    }
}

/// Continues from a reply that the upstream keeps: its id, and the results of its blocked calls alone. What the request
/// itself brought is there already.
fn continue_upstream(planned: &PlannedRequest<'_>, round: &[Element], splices: &mut Splices) {
    let PlannedRequest { request, body, upstream, .. } = *planned;
    let id = |element: &Element| if let Element::Reply(id) = element { Some(id.clone()) } else { None };
    let known = || upstream.and_then(|upstream| upstream.upstream_id.clone());
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

/// Edits the input: the plan, what the upstream waits for, hidden exchanges of earlier replies, and those of this client
/// request.
fn write_input(planned: &PlannedRequest<'_>, variant: &Variant, rounds: &[Bytes], splices: &mut Splices) {
    let PlannedRequest { body, request, upstream, restored, .. } = *planned;
    let dropped;
    let plan = if variant.tools() == Tools::Dropped {
        dropped = plan_without_tools(planned);
        &dropped
    } else {
        planned.plan
    };
    let mut edits = Splices::default();
    change_messages(planned, plan, &mut edits);
    upstream.into_iter().for_each(|upstream| write_references(upstream, plan, &mut edits));
    let mut added = Vec::new();
    for (item, text) in notices(plan, variant.placement) {
        if item.source == CLIENT || variant.placement == Placement::Leading {
            added.extend(place(request, body, item.index, &text, variant.placement, &mut edits));
        } else if let Some(span) = planned.span_of(item) {
            place_after(span, &text, variant.placement, &mut edits);
        }
    }
    let items = if restored.is_empty() { Vec::new() } else { items_of(request, body) };
    for (position, exchange) in restored.iter().filter(|(position, _)| !plan.drops_at(*position)) {
        let span = planned.span_at(*position);
        span.into_iter().for_each(|span| restore(&items, body, span, exchange, &mut edits));
    }
    added.extend(rounds.iter().flat_map(|round| sent_items(round)));
    surround(request, body, (&owed_items(planned, variant), &added), &mut edits);
    splices.append(edits);
}

/// Puts items before and after those of the input, whose changes are `edits`. A text becomes a list for them.
fn surround(request: &Request, body: &[u8], (before, after): (&[Bytes], &[Bytes]), edits: &mut Splices) {
    if before.is_empty() && after.is_empty() {
        return;
    }
    let joined = |items: &[Bytes]| items.join(&b","[..]);
    let (first, last) = (joined(before), joined(after));
    let comma = |is_needed: bool| if is_needed { &b","[..] } else { b"" };
    let (begins, ends) = (comma(!before.is_empty()), comma(!after.is_empty()));
    let span = request.messages_span;
    let all = || joined(&[before, after].concat());
    match span.of(body).first() {
        Some(b'[') if request.messages.is_empty() => edits.insert(span.end - 1, all()),
        Some(b'[') => {
            // Of two texts at one position, the first that was added comes first.
            let changes = std::mem::take(edits);
            edits.insert(span.start + 1, [&first[..], begins].concat());
            edits.append(changes);
            edits.insert(span.end - 1, [ends, &last[..]].concat());
        }
        Some(b'"') => {
            let head: &[u8] = br#"{"type":"message","role":"user","content":"#;
            edits.insert(span.start, [b"[", &first[..], begins, head].concat());
            edits.insert(span.end, [b"}", ends, &last[..], b"]"].concat());
        }
        Some(_) => edits.replace(span, [b"[", &all()[..], b"]"].concat()),
        None => edits.insert(request.span.end - 1, [b",\"input\":[", &all()[..], b"]"].concat()),
    }
}

fn flattened(body: &Bytes) -> Option<Rope> {
    let request = super::parse(body).ok()?;
    let mut splices = Splices::default();
    flatten(&request, body, &mut splices);
    Some(splices.apply(body))
}
