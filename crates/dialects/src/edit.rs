//! Request edits that all dialects share, as splices: changed texts, dropped turns, members of the top object. The
//! spans of texts are the same whatever the protocol.

use crate::variant::{Placement, PlannedRequest};
use bytes::Bytes;
use model::call::Arguments;
use model::message::{Message, Role};
use model::plan::placeholders::Redaction;
use model::plan::texts::{TextChange, settle, settled_calls, settled_values};
use model::plan::{Change, Edit, Plan};
use model::request::Request;
use model::source::{CLIENT, ItemId};
use std::borrow::Cow;
use std::collections::BTreeMap;
use wire::body::{Span, Str};
use wire::escaped_text::EscapedText;
use wire::hidden_unicode::strip;
use wire::json::{decode, decode_bytes, escaped, in_one_case};
use wire::json_strings::raw_ranges;
use wire::members::Member;
use wire::splice::Splices;

/// The notice to a model whose tools were removed.
const NO_TOOLS: &str = "[toolrein] No tools can be called here: this model does not support them. Answer from what you \
                        know and from the conversation, and say what you could not look up.";

/// The one sentence that toolrein writes in the model's place, if the model gives no answer.
pub const NO_ANSWER: &str = "I could not finish this: the tool calls that I still wanted to make were blocked, and I gave no answer without them.";

/// Changes the client's items, and drops turns, as the policies want it.
pub fn change_messages(planned: &PlannedRequest<'_>, plan: &Plan, splices: &mut Splices) {
    change_items(CLIENT, (&planned.request.messages, planned.body), plan, splices);
    if !plan.dropped.is_empty() {
        splices.remove_items(&planned.items(), |(span, _)| *span, |(_, item)| plan.drops(*item));
    }
}

/// Changes the items of the source with this number. `messages` are its items and `body` its bytes.
pub fn change_items(
    source: usize,
    (messages, body): (&[Message], &[u8]),
    plan: &Plan,
    splices: &mut Splices,
) {
    for ((item, text), change) in settle(plan).into_iter().filter(|((item, _), _)| item.source == source) {
        change_text(&messages[item.index], body, text, &change, splices);
    }
    for (item, call, by) in settled_calls(plan).filter(|(item, ..)| item.source == source) {
        match messages[item.index].calls.get(call).map(|call| call.arguments) {
            Some(Arguments::Text(place)) => splices.replace(place.span, by.escaped()),
            Some(Arguments::Value(span)) => splices.replace(span, by.to_string()),
            _ => {}
        }
    }
    for (_, value, redactions) in settled_values(plan).filter(|(item, ..)| item.source == source) {
        for Redaction { range, by } in redactions {
            let start = value.range().start;
            splices.replace(Span::new(start + range.start, start + range.end), by.as_bytes().to_vec());
        }
    }
}

/// The notices of the plan by the item that they follow, those of one item joined.
pub fn notices(plan: &Plan, placement: Placement) -> BTreeMap<ItemId, String> {
    // The notices of one item are joined, wherever they are in the plan: empty or absent content has room for one
    // text only.
    let mut notices: BTreeMap<ItemId, String> = BTreeMap::new();
    let mut newest = None;
    for edit in plan.edits.iter().filter(|edit| !plan.drops(edit.item)) {
        let Change::Notice { text, .. } = &edit.change else { continue };
        let joined = notices.entry(edit.item).or_default();
        if !joined.is_empty() {
            joined.push_str("\n\n");
        }
        joined.push_str(text);
        newest = Some(edit.item);
    }
    if placement == Placement::Leading {
        notices.retain(|item, _| Some(*item) == newest);
    }
    notices
}

/// Sets the member `name` of the top object to this value. A member whose name differs only in case is replaced too:
/// servers that ignore case take the last of two such members.
pub fn set_member(
    request: &Request,
    body: &[u8],
    name: &str,
    value: impl Into<Bytes>,
    splices: &mut Splices,
) {
    let is_it = |member: &&Member| is_named(member, body, &[name]);
    match request.members.iter().rfind(is_it) {
        Some(member) => {
            if member.key.raw(body) != name.as_bytes() {
                splices.replace(member.key.span, name.to_owned());
            }
            splices.replace(member.value, value);
        }
        None => {
            let end = request.span.end - 1;
            splices.insert(end, format!(",\"{name}\":"));
            splices.insert(end, value);
        }
    }
}

/// Asks for a whole reply to a request for a stream.
pub fn ask_whole(request: &Request, body: &[u8], splices: &mut Splices) {
    set_member(request, body, "stream", "false", splices);
    if request.value(body, "stream_options").is_some() {
        set_member(request, body, "stream_options", "null", splices);
    }
}

/// Puts texts of ours before the descriptions of tools.
pub fn annotate_tools(request: &Request, plan: &Plan, splices: &mut Splices) {
    for (_, at, text) in plan.annotated_tools() {
        let described = request.tools.iter().chain(&request.namespaces).nth(at);
        if let Some(description) = described.and_then(|tool| tool.description) {
            splices.insert(description.span.start, escaped(text));
        }
    }
}

/// Removes the members of the top object that have one of these names, in any case of letters.
pub fn without(request: &Request, body: &[u8], names: &[&str], splices: &mut Splices) {
    splices.remove_members(&request.members, |member| is_named(member, body, names));
}

fn is_named(member: &Member, body: &[u8], names: &[&str]) -> bool {
    let key = decode_bytes(member.key, body);
    names.iter().any(|name| *in_one_case(&key) == *name.as_bytes())
}

/// Applies `change` to the `text`-th string of text of `message`; the bytes of words that stay are kept.
fn change_text(message: &Message, body: &[u8], text: usize, change: &TextChange<'_>, splices: &mut Splices) {
    let Some(place) = message.content.texts().nth(text) else { return };
    if message.odd {
        // In an odd message only the hidden values are replaced, whatever else is planned.
        let values = change.hidden_values().unwrap_or_default();
        return hide_values(place, body, values, change.by(), splices);
    }
    for frame in change.around.iter().rev() {
        splices.insert(place.span.start, escaped(&frame.before));
    }
    let by = change.by();
    let clean = change.is_cleaned.then(|| by.map_or_else(|| decode(place, body), |by| Cow::Borrowed(by)));
    if let Some((text, _)) = clean.and_then(|text| strip(&text)) {
        splices.replace(place.span, escaped(&text));
    } else if let Some(redactions) = change.redactions() {
        hide_values(place, body, redactions, by, splices);
    } else if let Some(by) = by {
        splices.replace(place.span, by.escaped());
    }
    for frame in &change.around {
        splices.insert(place.span.end, escaped(&frame.after));
    }
}

/// Replaces values by placeholders and leaves the rest of the text as it is written. `by`: the new text, for a text
/// written in such a way that the values cannot be located in it.
fn hide_values(
    place: Str,
    body: &[u8],
    redactions: &[Redaction],
    by: Option<&EscapedText>,
    splices: &mut Splices,
) {
    let start = place.span.range().start;
    match raw_ranges(place.raw(body), redactions.iter().map(|redaction| &redaction.range)) {
        Some(ranges) => {
            for (range, redaction) in ranges.into_iter().zip(redactions) {
                let span = Span::new(start + range.start, start + range.end);
                splices.replace(span, escaped(&redaction.by));
            }
        }
        None => by.into_iter().for_each(|by| splices.replace(place.span, by.escaped())),
    }
}

/// The plan with one more notice, at a position that stays the same as the conversation grows.
pub fn plan_without_tools(planned: &PlannedRequest<'_>) -> Plan {
    let mut plan = planned.plan.clone();
    if let Some(index) = opening(planned) {
        let change = Change::Notice { text: NO_TOOLS.to_owned(), word: "notice" };
        let item = ItemId::of_client(index);
        let decided = plan.order.position(item).unwrap_or(index);
        let is_later = |edit: &Edit| {
            plan.order.position(edit.item) > Some(decided) && matches!(edit.change, Change::Notice { .. })
        };
        let at = plan.edits.iter().position(is_later).unwrap_or(plan.edits.len());
        let edit = Edit { item, decided, policy: "tools_unsupported", change };
        plan.edits.insert(at, edit);
    }
    plan
}

/// The user message that opens the conversation. If another role opens it, the last of the system messages before that,
/// or the first user message if there are none: a position that later messages do not move, with no open call.
fn opening(planned: &PlannedRequest<'_>) -> Option<usize> {
    let messages = &planned.request.messages;
    let user = messages.iter().position(|message| message.role == Role::User);
    let first = messages.iter().position(|message| message.role != Role::System).unwrap_or(messages.len());
    if user == Some(first) { user } else { first.checked_sub(1).or(user) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_in_an_ambiguous_string_is_redacted_despite_other_planned_changes() {
        let body = r#"{"messages":[{"role":"tool","tool_call_id":"a","content":"key s3cr3t \ud800 end"}]}"#;
        let request = crate::chat::parse(body.as_bytes()).unwrap();
        assert!(request.messages[0].odd);
        let redact = Change::Redact {
            text: 0,
            by: "key [SECRET_1] \u{fffd} end".into(),
            ranges: vec![Redaction { range: 4..10, by: "[SECRET_1]".into() }].into(),
        };
        let hide = Change::Hide { text: 0, by: "hidden".into(), gone_chars: 10 };
        let item = ItemId::of_client(0);
        let edit = |change: &Change| Edit { item, decided: 0, policy: "p", change: change.clone() };
        for changes in [vec![&redact], vec![&redact, &hide], vec![&hide, &redact]] {
            let mut plan = Plan::default();
            plan.edits = changes.into_iter().map(edit).collect();
            let mut splices = Splices::default();
            let bytes = Bytes::from_static(body.as_bytes());
            change_messages(&PlannedRequest::new(&bytes, &request, &plan), &plan, &mut splices);
            let out = splices.apply(&bytes).join();
            let expected = body.replace("s3cr3t", "[SECRET_1]");
            assert_eq!(String::from_utf8_lossy(&out), expected);
        }
    }

    #[test]
    fn setting_or_removing_a_member_ignores_the_case_of_its_name() {
        let edited = |body: &str, edit: &dyn Fn(&Request, &mut Splices)| {
            let request = crate::responses::parse(body.as_bytes()).unwrap();
            let mut splices = Splices::default();
            edit(&request, &mut splices);
            let body = Bytes::copy_from_slice(body.as_bytes());
            String::from_utf8(splices.apply(&body).join().to_vec()).unwrap()
        };
        for (body, set, removed) in [
            (r#"{"input":"q"}"#, r#"{"input":"q","tool_choice":"none"}"#, r#"{"input":"q"}"#),
            (
                r#"{"tool_choice":"auto","input":"q"}"#,
                r#"{"tool_choice":"none","input":"q"}"#,
                r#"{"input":"q"}"#,
            ),
            (
                r#"{"tooL_choice":"auto","input":"q"}"#,
                r#"{"tool_choice":"none","input":"q"}"#,
                r#"{"input":"q"}"#,
            ),
        ] {
            let name = "tool_choice";
            let as_set = edited(body, &|request, splices| {
                set_member(request, body.as_bytes(), name, "\"none\"", splices);
            });
            assert_eq!(as_set, set);
            let as_removed =
                edited(body, &|request, splices| without(request, body.as_bytes(), &[name], splices));
            assert_eq!(as_removed, removed);
        }
    }
}
