//! The request writer of the Messages API: the bytes of a request in one variant. A pure function of the request, the plan
//! and the variant; slices of the original wherever nothing changes.

use super::flatten::flatten;
use super::hidden_exchange::messages_of;
use super::message::{WireMessage, wire_messages};
use super::notice::{place, position};
use super::repair::repaired;
use super::restore::{fits, restore};
use super::thinking;
use super::threads::without_thread;
use crate::edit::{
    annotate_tools, ask_whole, change_items, notices, plan_without_tools, set_member, without,
};
use crate::variant::{Placement, PlannedRequest, Tools, Variant};
use bytes::Bytes;
use model::adaptation::Adaptation;
use model::plan::Plan;
use model::request::{Choice, Request};
use model::source::{CLIENT, ItemId};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::ops::Range;
use wire::splice::{Rope, Splices};

/// The members that are removed together for a model without tool support.
const TOOL_MEMBERS: [&str; 2] = ["tools", "tool_choice"];

/// The bytes of the request in this variant.
pub fn write(planned: &PlannedRequest<'_>, variant: &Variant) -> Rope {
    let PlannedRequest { body, request, plan, .. } = *planned;
    let mut splices = Splices::default();
    without_thread(request, body, &mut splices);
    match variant.tools() {
        Tools::Dropped => {
            apply_plan(planned, &plan_without_tools(planned), &mut splices);
            without(request, body, &TOOL_MEMBERS, &mut splices);
        }
        tools => {
            apply_plan(planned, plan, &mut splices);
            annotate_tools(request, plan, &mut splices);
            if !variant.has(Adaptation::OwnTools) {
                declare(request, body, plan, &mut splices);
            }
            match tools {
                Tools::WithoutChoice => without(request, body, &["tool_choice"], &mut splices),
                _ => set_choice(planned, variant, &mut splices),
            }
        }
    }
    restore_exchanges(planned, variant, &mut splices);
    if variant.has(Adaptation::Streaming) {
        ask_whole(request, body, &mut splices);
    }
    for round in variant.asking.iter().flat_map(|asking| &asking.rounds) {
        append(request, round, &mut splices);
    }
    let mut rope = splices.apply(body);
    let thoughts = thinking::count_blocks(request, body, variant.without_thinking, |at| {
        !plan.drops(ItemId::of_client(at))
    });
    if thoughts > 0 {
        rope = thinking::without_thinking(&rope.join(), thoughts).unwrap_or(rope);
    }
    if !variant.repairs().is_empty() {
        rope = repaired(&rope.join(), variant.repairs()).unwrap_or(rope);
    }
    if variant.has(Adaptation::Flattened) { flattened(&rope.join()).unwrap_or(rope) } else { rope }
}

fn flattened(body: &Bytes) -> Option<Rope> {
    let request = super::parse(body).ok()?;
    let mut splices = Splices::default();
    flatten(&request, body, &mut splices);
    Some(splices.apply(body))
}

/// Changes the client's items as the policies want it, and drops turns.
fn apply_plan(planned: &PlannedRequest<'_>, plan: &Plan, splices: &mut Splices) {
    let PlannedRequest { body, request, .. } = *planned;
    change_items(CLIENT, (&request.messages, body), plan, splices);
    // A notice is a text of its own inside of a result, wherever the others are placed. The notices of a result and of the text
    // after it are joined: empty or absent content has room for one text only.
    let mut texts: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for (item, text) in notices(plan, Placement::Suffix) {
        if let Some(index) = position(request, body, item.index) {
            texts.entry(index).or_default().push(text);
        }
    }
    for (index, texts) in texts {
        place(&request.messages[index], &texts.join("\n\n"), splices);
    }
    if !plan.dropped.is_empty() {
        let messages = messages_with_items(request, body);
        let is_dropped = |(_, items): &(WireMessage, Range<usize>)| {
            items.clone().all(|index| plan.drops(ItemId::of_client(index)))
        };
        splices.remove_items(&messages, |(message, _)| message.span, is_dropped);
    }
}

/// The messages of the body, each with the indexes of its items.
fn messages_with_items(request: &Request, body: &[u8]) -> Vec<(WireMessage, Range<usize>)> {
    let mut next = 0;
    let messages = wire_messages(body, request.messages_span).into_iter();
    let with_items = messages.map(|message| {
        let first = next;
        next += message.items();
        (message, first..next)
    });
    with_items.collect()
}

/// Puts hidden exchanges back, each into its assistant message.
fn restore_exchanges(planned: &PlannedRequest<'_>, variant: &Variant, splices: &mut Splices) {
    let PlannedRequest { body, request, plan, restored, .. } = *planned;
    if restored.is_empty() {
        return;
    }
    let (messages, items): (Vec<WireMessage>, Vec<Range<usize>>) =
        messages_with_items(request, body).into_iter().unzip();
    for (position, exchange) in restored.iter().filter(|(at, _)| !plan.drops_at(*at)) {
        let keeps_thinking = *position >= variant.without_thinking;
        if let Some(at) = items.iter().position(|items| items.contains(position)) {
            restore(exchange, (&messages, at), body, keeps_thinking, splices);
        }
    }
}

/// Whether a hidden exchange can be put back into the item at `position`.
pub fn may_restore(request: &Request, body: &[u8], position: usize, exchange: &Bytes) -> bool {
    let Some(message) = request.messages.get(position) else { return false };
    let mut scanner = wire::body::Scanner::within(body, message.span);
    super::message::parse_message(&mut scanner).is_ok_and(|message| fits(exchange, &message, body))
}

/// Appends a hidden exchange to the end of the conversation.
fn append(request: &Request, exchange: &Bytes, splices: &mut Splices) {
    let at = request.messages_span.end - 1;
    if !request.messages.is_empty() {
        splices.insert(at, Bytes::from_static(b","));
    }
    splices.insert(at, messages_of(exchange));
}

/// Declares toolrein's own tools after the client's.
fn declare(request: &Request, body: &[u8], plan: &Plan, splices: &mut Splices) {
    let list = request.value(body, "tools").filter(|span| span.of(body).starts_with(b"["));
    let Some(list) = list.filter(|_| !request.tools.is_empty() && request.choice != Choice::Forced) else {
        return;
    };
    for declared in &plan.declared {
        let Ok(mut tool) = serde_json::from_str::<Map<String, Value>>(&declared.tool) else { continue };
        let schema = tool.remove("parameters").unwrap_or_default();
        tool.insert("input_schema".to_owned(), schema);
        splices.insert(list.end - 1, format!(",{}", Value::Object(tool)));
    }
}

/// Sets the choice of tools: none for a final answer, the call that is the answer, no forced call where the client's forced
/// one was blocked, one call at a time. The tools stay declared, since the cache and the model's thinking depend on them.
fn set_choice(planned: &PlannedRequest<'_>, variant: &Variant, splices: &mut Splices) {
    let PlannedRequest { request, body, plan, .. } = *planned;
    if !planned.may_call() {
        return;
    }
    let asking = variant.asking.as_ref();
    let is_hidden = |name: String| plan.hidden.iter().any(|(_, hidden)| *hidden == name);
    let mut names = planned.tools().map(|(tool, body)| tool.full_name(body));
    let is_closed = request.choice != Choice::Forced
        && !plan.hidden.is_empty()
        && names.all(|name| name.is_some_and(|name| is_hidden(name.into_owned())));
    let mut choice = choice_of(request, body);
    let kind = match variant.forced_answer() {
        // The upstream refuses a forced call of a model that thinks.
        Some(_) if thinks(request, body) => None,
        Some(answer) => {
            choice.insert("name".to_owned(), answer.into());
            Some("tool")
        }
        None if is_closed || asking.is_some_and(|asking| asking.land) => {
            choice.clear();
            Some("none")
        }
        None if asking.is_some_and(|asking| !asking.rounds.is_empty())
            && request.choice == Choice::Forced =>
        {
            choice.remove("name");
            Some("auto")
        }
        None => None,
    };
    let one = plan.one_at_a_time && kind != Some("none") && request.choice != Choice::None;
    let one = one && !variant.has(Adaptation::ParallelMember);
    if kind.is_none() && !one {
        return;
    }
    if let Some(kind) = kind {
        choice.insert("type".to_owned(), kind.into());
    }
    if one {
        choice.entry("type").or_insert_with(|| "auto".into());
        choice.insert("disable_parallel_tool_use".to_owned(), true.into());
    }
    let choice = Value::Object(choice).to_string();
    if request.value(body, "tool_choice").is_none_or(|own| own.of(body) != choice.as_bytes()) {
        set_member(request, body, "tool_choice", choice, splices);
    }
}

/// Whether the request asks for thinking.
fn thinks(request: &Request, body: &[u8]) -> bool {
    let thinking = request.value(body, "thinking").map(|thinking| thinking.of(body));
    let kind = thinking.and_then(|thinking| serde_json::from_slice::<Map<String, Value>>(thinking).ok());
    kind.is_some_and(|thinking| thinking.get("type").is_none_or(|kind| kind != "disabled"))
}

fn choice_of(request: &Request, body: &[u8]) -> Map<String, Value> {
    let own = request.value(body, "tool_choice");
    own.and_then(|own| serde_json::from_slice(own.of(body)).ok()).unwrap_or_default()
}
