//! The hidden exchange of one reply: its items in order, and a synthetic result for each blocked call after them. Blocked calls
//! are written in the form that every provider accepts.

use super::items::{Call, OutItem};
use super::written::{judged_call, synthetic_result};
use crate::accepted::{AcceptedForm, accepted_name, is_accepted_name};
use crate::codec::KnownIds;
use crate::repair::{harmless_arguments, is_object};
use crate::reply_choice::ReplyChoice;
use crate::responses::item::CallKind;
use crate::responses::restore::without_id;
use crate::responses::rounds::Element;
use bytes::Bytes;
use model::assembled::Assembled;
use model::plan::decision::Decision;
use wire::body::Span;
use wire::json::{decode_bytes, escape_into, escaped};
use wire::members::members_of;
use wire::splice::Splices;

/// The elements of the reply `id` with these items.
pub fn elements(
    id: Option<&str>,
    items: &[OutItem],
    choice: &ReplyChoice,
    known_ids: &KnownIds,
    result: &dyn Fn(&Decision) -> Option<String>,
) -> Vec<Element> {
    let (mut elements, mut results) = (Vec::new(), Vec::new());
    elements.extend(id.map(|id| Element::Reply(id.to_owned())));
    for item in items {
        let (Some(call), Some(judged)) = (&item.call, item.judged_in(choice)) else {
            elements.extend(item.done.clone().map(Element::Shown));
            continue;
        };
        if judged.is_released() {
            if !judged.is_placeholder() || item.done.is_some() {
                elements.push(Element::Shown(if judged.is_shown_as_written() {
                    judged_call(call.kind, &judged.assembled, item.done.as_ref())
                } else {
                    as_made(item, call)
                }));
            }
        } else if let Some(text) = judged.decision.as_ref().and_then(result) {
            let form = &judged.accepted;
            let is_repeated = items.iter().take_while(|other| !std::ptr::eq(*other, item)).any(|other| {
                let of = |item: &OutItem| item.done.as_ref().and_then(|done| text_member(done, b"id"));
                of(item).is_some_and(|id| of(other) == Some(id))
            });
            elements.push(Element::Hidden(accepted(
                item,
                (call, &judged.assembled),
                form,
                known_ids,
                is_repeated,
            )));
            let result = synthetic_result(call.kind, &form.of(&judged.assembled), item.done.as_ref(), &text);
            results.extend(result.map(Element::Result));
        }
    }
    elements.extend(results);
    elements
}

/// The synthetic results under the ids by which the upstream knows the calls.
pub fn results(
    items: &[OutItem],
    choice: &ReplyChoice,
    result: &dyn Fn(&Decision) -> Option<String>,
) -> Vec<Bytes> {
    let results = items.iter().filter_map(|item| {
        let (call, judged) = (item.call.as_ref()?, item.judged_in(choice)?);
        let text = judged.decision.as_ref().and_then(result)?;
        synthetic_result(call.kind, &judged.assembled, item.done.as_ref(), &text)
    });
    results.collect()
}

fn as_made(item: &OutItem, call: &Call) -> Bytes {
    let written = || judged_call(call.kind, &call.assembled, item.done.as_ref());
    item.done.clone().filter(|_| !call.differs).unwrap_or_else(written)
}

/// A blocked call in the form that every provider accepts; as the model made it where that is accepted.
/// `is_repeated`: an item before it in the reply has its id.
fn accepted(
    item: &OutItem,
    (call, judged): (&Call, &Assembled),
    form: &AcceptedForm,
    known_ids: &KnownIds,
    is_repeated: bool,
) -> Bytes {
    let made = as_made(item, call);
    let id = text_member(&made, b"id").filter(|id| !id.is_empty());
    let is_new = !is_repeated && id.is_some_and(|id| !known_ids.has(&id));
    let made = if is_new { made } else { without_id(&made) };
    let has_name = matches!(call.kind, CallKind::Function | CallKind::Custom);
    let name = form.name.as_ref().filter(|_| has_name);
    let arguments = judged.arguments();
    let is_broken = call.kind == CallKind::Function && !is_object(&arguments);
    let is_text = call.kind != CallKind::Function || has_text_arguments(&made);
    let has_call_id =
        call.kind == CallKind::McpApproval || text_member(&made, b"call_id") == Some(judged.id());
    let has_type = text_member(&made, b"type").is_some_and(|kind| kind == call.kind.item_type());
    if name.is_none() && form.id.is_none() && !is_broken && is_text && has_call_id && has_type {
        return made;
    }
    let mut sound = form.of(judged);
    sound.name.clone_from(&judged.name);
    if is_broken {
        sound.arguments.clear();
        escape_into(&harmless_arguments(&arguments), &mut sound.arguments);
    }
    let made = match name {
        Some(_) => with_accepted_name(&made, &mut sound),
        None => made,
    };
    judged_call(call.kind, &sound, Some(&made))
}

/// The value of a member, where it is a string.
fn text_member(item: &[u8], name: &[u8]) -> Option<String> {
    let members = members_of(item, Span::new(0, item.len()));
    let member = members.iter().find(|member| *decode_bytes(member.key, item) == *name)?;
    serde_json::from_slice(member.value.of(item)).ok()
}

/// Whether the arguments of this item are a string, as providers want them, and not an object.
fn has_text_arguments(item: &Bytes) -> bool {
    let members = members_of(item, Span::new(0, item.len()));
    let arguments = members.iter().find(|member| *decode_bytes(member.key, item) == *b"arguments");
    arguments.is_some_and(|member| member.value.of(item).starts_with(b"\""))
}

/// Gives `call` an accepted name, and removes the item's namespace where providers refuse that.
fn with_accepted_name(item: &Bytes, call: &mut Assembled) -> Bytes {
    let name = call.name();
    let members = members_of(item, Span::new(0, item.len()));
    let namespace = members.iter().find(|member| *decode_bytes(member.key, item) == *b"namespace");
    let namespace: Option<String> =
        namespace.and_then(|member| serde_json::from_slice(member.value.of(item)).ok());
    let kept = namespace.as_deref().filter(|namespace| is_accepted_name(namespace));
    if let Some(own) = kept.and_then(|namespace| name.strip_prefix(&format!("{namespace}."))) {
        let own = if is_accepted_name(own) { own.to_owned() } else { accepted_name(own) };
        call.name = escaped(&format!("{}.{own}", kept.unwrap_or_default()));
        return item.clone();
    }
    call.name = escaped(&accepted_name(&name));
    let mut splices = Splices::default();
    splices.remove_members(&members, |member| *decode_bytes(member.key, item) == *b"namespace");
    splices.apply(item).join()
}
