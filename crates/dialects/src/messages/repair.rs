//! Repair of a broken history: a call without a result gets an honest synthetic one, a result without a call becomes a text,
//! arguments that are no object are wrapped in one, and refused names and ids of calls are replaced. The rest of the history
//! keeps its bytes.

use super::flatten::text_block;
use super::hidden_exchange::result_text;
use crate::repair::{
    BrokenGroup, Pairing, UNKNOWN_CALL, broken_groups, harmless_arguments, is_object, rename_calls,
    unknown_result,
};
use crate::variant::PlannedRequest;
use bytes::Bytes;
use model::adaptation::{Adaptation, Adaptations};
use model::call::{Arguments, ToolCall};
use model::message::{Message, Role};
use model::request::Request;
use wire::body::Span;
use wire::json::{decode, quote};
use wire::splice::{Rope, Splices};

/// Calls and results of this API: each needs the other.
struct Pairs;

impl Pairing for Pairs {
    fn wants_result(&self, _call: &ToolCall) -> bool {
        true
    }

    fn wants_call(&self, _result: &Message) -> bool {
        true
    }

    fn may_rename(&self, _call: &ToolCall) -> bool {
        true
    }
}

/// What is broken in a history, as far as `of` asks. Pictures are accepted in results.
pub fn broken(planned: &PlannedRequest<'_>, of: Adaptations) -> Adaptations {
    let PlannedRequest { request, body, .. } = *planned;
    let shared = of - Adaptation::Arguments - Adaptation::Pictures - Adaptation::NoPictures;
    let mut found = crate::repair::broken(request, body, &Pairs, shared, false);
    let mut calls = request.messages.iter().flat_map(|message| &message.calls);
    if of.contains(Adaptation::Arguments) && calls.any(|call| sound_arguments(call, body).is_some()) {
        found |= Adaptation::Arguments;
    }
    found
}

/// The request with its history repaired; `None` if it cannot be read.
pub fn repaired(body: &Bytes, repairs: Adaptations) -> Option<Rope> {
    let request = super::parse(body).ok()?;
    let mut splices = Splices::default();
    rename_calls(&request, body, &Pairs, repairs, &mut splices);
    let wraps = repairs.contains(Adaptation::Arguments);
    for call in request.messages.iter().flat_map(|message| &message.calls).filter(|_| wraps) {
        if let Some((place, sound)) = sound_arguments(call, body) {
            splices.replace(place, sound);
        }
    }
    let rope = splices.apply(body);
    if !repairs.contains(Adaptation::Pairs) {
        return Some(rope);
    }
    let body = rope.join();
    let request = super::parse(&body).ok()?;
    let mut splices = Splices::default();
    for group in broken_groups(&request, &body, &Pairs) {
        repair_group(&group, &request, &body, &mut splices);
    }
    Some(splices.apply(&body))
}

/// The object that takes the place of arguments that are none, and where; `None` where they are an object.
fn sound_arguments(call: &ToolCall, body: &[u8]) -> Option<(Span, String)> {
    let text = call.arguments.text(body);
    match call.arguments {
        Arguments::Value(_) if is_object(&text) => None,
        Arguments::Value(span) => Some((span, harmless_arguments(&text))),
        Arguments::Null(span) => Some((span, "{}".to_owned())),
        Arguments::Text(string) => {
            let sound = if is_object(&text) { text.into_owned() } else { harmless_arguments(&text) };
            Some((string.quoted(), sound))
        }
        Arguments::Absent => {
            let start = call.span.start + 1;
            Some((Span { start, end: start }, r#""input":{},"#.to_owned()))
        }
    }
}

/// Puts the kept results of a group first, then the synthetic ones, then the texts of results without a call: nothing else may
/// stand before a result.
fn repair_group(group: &BrokenGroup, request: &Request, body: &Bytes, splices: &mut Splices) {
    let BrokenGroup { first, end, unanswered, orphans } = group;
    let messages = &request.messages;
    let calls: &[ToolCall] = first.checked_sub(1).map_or(&[], |at| &messages[at].calls);
    let synthetic = unanswered.iter().map(|at| synthetic_result(&calls[*at], body));
    if first == end {
        let added: Vec<String> = synthetic.collect();
        return insert_results(*first, &added, request, splices);
    }
    let slots = &messages[*first..*end];
    let is_orphan = |at: &usize| orphans.binary_search(at).is_ok();
    let kept = (*first..*end).filter(|at| !is_orphan(at)).map(|at| body.slice(messages[at].span.range()));
    let texts = orphans.iter().map(|at| Bytes::from(orphan_text(&messages[*at], body)));
    let all: Vec<Bytes> = kept.chain(synthetic.map(Bytes::from)).chain(texts).collect();
    let (in_slots, after) = all.split_at(slots.len());
    for (slot, block) in slots.iter().zip(in_slots) {
        if slot.span.of(body) != &block[..] {
            splices.replace(slot.span, block.clone());
        }
    }
    for block in after {
        let at = slots.last().map_or(0, |last| last.span.end);
        splices.insert(at, [b",", &block[..]].concat());
    }
}

/// Answers the calls of the message before the item `first`, which no result follows.
fn insert_results(first: usize, results: &[String], request: &Request, splices: &mut Splices) {
    let Some(reply) = first.checked_sub(1).and_then(|at| request.messages.get(at)) else { return };
    if reply.role == Role::Assistant {
        let message = format!(r#",{{"role":"user","content":[{}]}}"#, results.join(","));
        splices.insert(reply.span.end, message);
    }
}

/// The result of a call that has none.
fn synthetic_result(call: &ToolCall, body: &[u8]) -> String {
    let id = call.id.map(|id| decode(id, body).into_owned()).unwrap_or_default();
    let (id, text) = (quote(&id), quote(&unknown_result()));
    format!(r#"{{"type":"tool_result","tool_use_id":{id},"is_error":true,"content":{text}}}"#)
}

fn orphan_text(result: &Message, body: &[u8]) -> String {
    text_block(&format!("[result of {UNKNOWN_CALL}]\n{}", result_text(&result.content, body)))
}
