//! Broken histories: calls without a result, results without a call, arguments that are no JSON object, and in the modules
//! below names and ids of calls that are refused, and pictures in results. Finds them, and holds the texts that take their
//! place; each dialect writes them. Strict upstreams refuse such histories; they come from clients that trim their history,
//! stop in the middle of a turn, change the provider, or keep what a model wrote badly.
//!
//! Everything depends on the messages up to the end of a group of results alone, so that a group that is followed by
//! something else is repaired in the same way in every later request.

mod ids;
mod names;
mod pictures;

pub use names::accepted_name;
pub use pictures::{PartsForm, move_pictures};

use model::adaptation::{Adaptation, Adaptations};
use model::call::{Arguments, ToolCall};
use model::message::{Message, Role};
use model::plan::enveloped;
use model::request::Request;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::HashMap;
use wire::body::Scanner;
use wire::json::{decode, quote};
use wire::splice::Splices;

/// How a result without a call is named in the text that it becomes.
pub const UNKNOWN_CALL: &str = "a call that is not in this conversation";

/// The synthetic result for a call without a result. It claims nothing: the call may have run.
pub fn unknown_result() -> String {
    let message = "The result of this call is not known: the conversation does not contain it. The call may have run \
                   or not.";
    let error =
        json!({"type": "RESULT_UNKNOWN", "message": message, "retryable": false, "partialSideEffects": true});
    enveloped("broken_history", &error)
}

/// The calls of one message that lack a result, and the results after it that lack a call.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct BrokenGroup {
    /// The index of the first result after the calls; if there is none, the index of what follows the calls.
    pub first: usize,
    /// One more than the index of the last result.
    pub end: usize,
    /// The positions, in the message before `first`, of calls without a result.
    pub unanswered: Vec<usize>,
    /// The indexes of results without a call.
    pub orphans: Vec<usize>,
}

/// What a dialect says about calls and results that need each other.
pub trait Pairing {
    /// Whether the API wants a result for this call.
    fn wants_result(&self, call: &ToolCall) -> bool;

    /// Whether the API wants a call for this result.
    fn wants_call(&self, result: &Message) -> bool;

    /// Whether the call has a name and an id that may be replaced.
    fn may_rename(&self, call: &ToolCall) -> bool;
}

/// The broken groups of a history, in order: results count only directly after their calls.
pub fn broken_groups(request: &Request, body: &[u8], pairing: &dyn Pairing) -> Vec<BrokenGroup> {
    let messages = &request.messages;
    let mut broken = Vec::new();
    let mut at = 0;
    while at < messages.len() {
        let message = &messages[at];
        let calls: &[ToolCall] = if message.role == Role::Assistant { &message.calls } else { &[] };
        let first = if message.role == Role::Tool { at } else { at + 1 };
        let count = messages.iter().skip(first).take_while(|message| message.role == Role::Tool).count();
        let end = first + count;
        if !calls.is_empty() || count > 0 {
            let group = paired(calls, messages, first, end, body, pairing);
            broken.extend((!group.unanswered.is_empty() || !group.orphans.is_empty()).then_some(group));
        }
        at = end.max(at + 1);
    }
    broken
}

fn paired(
    calls: &[ToolCall],
    messages: &[Message],
    first: usize,
    end: usize,
    body: &[u8],
    pairing: &dyn Pairing,
) -> BrokenGroup {
    // Some providers repeat ids, so there may be several calls under one.
    let mut open: HashMap<Cow<'_, str>, Vec<usize>> = HashMap::new();
    for (position, call) in calls.iter().enumerate().rev() {
        if let Some(id) = call.id {
            open.entry(decode(id, body)).or_default().push(position);
        }
    }
    let mut orphans = Vec::new();
    for (index, result) in messages.iter().enumerate().take(end).skip(first) {
        let Some(id) = result.tool_call_id else { continue };
        let answered = open.get_mut(&decode(id, body)).and_then(Vec::pop);
        orphans.extend((answered.is_none() && pairing.wants_call(result)).then_some(index));
    }
    let mut unanswered: Vec<usize> = open.into_values().flatten().collect();
    unanswered.retain(|position| pairing.wants_result(&calls[*position]));
    unanswered.sort_unstable();
    BrokenGroup { first, end, unanswered, orphans }
}

/// What is broken in a history, as far as `of` asks; `values`: arguments that are no text are broken too.
pub fn broken(
    request: &Request,
    body: &[u8],
    pairing: &dyn Pairing,
    of: Adaptations,
    values: bool,
) -> Adaptations {
    let calls = || request.messages.iter().flat_map(|message| &message.calls);
    let has_ids = |of: Adaptation| !ids::new_ids(request, body, pairing, of.into()).is_empty();
    let is_broken = |repair: &Adaptation| match repair {
        Adaptation::Pairs => !broken_groups(request, body, pairing).is_empty(),
        Adaptation::Arguments => calls().any(|call| sound_arguments(call, body, values).is_some()),
        Adaptation::Names => !names::new_names(request, body, pairing).is_empty(),
        Adaptation::RepeatedIds | Adaptation::IdForms => has_ids(*repair),
        Adaptation::Pictures | Adaptation::NoPictures => pictures::has_pictures(request),
        _ => false,
    };
    of.iter().filter(is_broken).collect()
}

/// Replaces the names and ids of calls that are refused, as far as `of` asks; their results follow.
pub fn rename_calls(
    request: &Request,
    body: &[u8],
    pairing: &dyn Pairing,
    of: Adaptations,
    splices: &mut Splices,
) {
    if of.contains(Adaptation::Names) {
        names::rename(request, body, pairing, splices);
    }
    if !of.is_disjoint(Adaptation::RepeatedIds | Adaptation::IdForms) {
        ids::renumber(request, body, pairing, of, splices);
    }
}

/// The arguments that take the place of broken ones, as a JSON string; `None` where these are not broken.
pub fn sound_arguments(call: &ToolCall, body: &[u8], values: bool) -> Option<String> {
    match call.arguments {
        _ if call.custom => None,
        Arguments::Text(text) => {
            let text = decode(text, body);
            (!is_object(&text)).then(|| quote(&harmless_arguments(&text)))
        }
        Arguments::Value(_) if values => {
            let text = call.arguments.text(body);
            Some(quote(&if is_object(&text) { text.into_owned() } else { harmless_arguments(&text) }))
        }
        Arguments::Null(_) if values => Some(quote("{}")),
        _ => None,
    }
}

/// Arguments that chat templates can parse, instead of those that they could not: templates of vLLM and others refuse
/// the whole request if a call in the history has broken JSON, or JSON that is no object (Venice's `2`).
pub fn harmless_arguments(text: &str) -> String {
    if text.trim().is_empty() {
        "{}".to_owned()
    } else {
        format!("{{\"invalid_arguments\":{}}}", quote(text))
    }
}

/// Whether `text` is a JSON object that all parsers read in the same way. The scanner is more tolerant than they are: it passes
/// raw control characters and numbers such as `01`.
pub fn is_object(text: &str) -> bool {
    let mut scanner = Scanner::new(text.as_bytes());
    let is_read = scanner.skip().is_ok() && !scanner.odd();
    is_read && text.trim_start().starts_with('{') && serde_json::from_str::<Value>(text).is_ok()
}
