//! The editor of one event or whole body: removes calls that the client does not see, makes indexes dense, and holds
//! back what only the first reply may contain (role, id, finish). Touches only the spans concerned.

use super::Form;
use super::numbering::{ShownCalls, signature_for};
use crate::chat::completion::{Choice, Delta, Reply, is_named};
use crate::codec::{CallPiece, REPORT};
use crate::lines::one_line;
use crate::reply_choice::ReplyChoice;
use bytes::Bytes;
use model::call::{Arguments, ToolCall};
use model::message::Content;
use serde_json::Value;
use wire::body::{Scanner, Span};
use wire::json::{decode, quote, unescape};
use wire::members::Member;
use wire::splice::Splices;
use wire::sse::write_event;

/// The values that all replies to one client request share, as the first one wrote them.
#[derive(Clone, Debug, Default)]
pub(super) struct Continuation {
    id: Option<Bytes>,
    model: Option<Bytes>,
    created: Option<Bytes>,
    /// The members that its first chunk had.
    names: Vec<Bytes>,
}

impl Continuation {
    /// The values of `reply`, read from `data`.
    pub(super) fn of(reply: &Reply, data: &[u8]) -> Self {
        let value = |name: &[u8]| {
            reply.member(data, name).map(|member| Bytes::copy_from_slice(member.value.of(data)))
        };
        let names = reply.members.iter().map(|member| Bytes::copy_from_slice(member.key.raw(data))).collect();
        Self { id: value(b"id"), model: value(b"model"), created: value(b"created"), names }
    }

    /// toolrein's own chunk: `delta` and `finish` as JSON.
    pub(super) fn event(&self, index: u32, delta: &str, finish: &str) -> Bytes {
        let choice = format!(r#"{{"index":{index},"delta":{delta},"finish_reason":{finish}}}"#);
        self.chunk(&choice, "")
    }

    /// A chunk without choices that has `report`, a JSON object, as a member.
    pub(super) fn report(&self, report: &str) -> Bytes {
        self.chunk("", &format!(",\"{REPORT}\":{report}"))
    }

    /// A chunk without choices that reports `usage`.
    pub(super) fn usage(&self, usage: &Value) -> Bytes {
        self.chunk("", &format!(",\"usage\":{usage}"))
    }

    fn chunk(&self, choices: &str, more: &str) -> Bytes {
        let mut out = b"{".to_vec();
        for (name, value) in self.values() {
            if let Some(value) = value {
                out.extend_from_slice(format!("\"{name}\":").as_bytes());
                out.extend_from_slice(value);
                out.push(b',');
            }
        }
        let rest = format!(r#""object":"chat.completion.chunk","choices":[{choices}]{more}}}"#);
        out.extend_from_slice(rest.as_bytes());
        write_event(&out)
    }

    fn values(&self) -> [(&'static str, Option<&Bytes>); 3] {
        [("id", self.id.as_ref()), ("model", self.model.as_ref()), ("created", self.created.as_ref())]
    }
}

/// A frame to be edited.
pub(super) struct EditedFrame<'a> {
    /// Its JSON.
    pub(super) data: &'a Bytes,
    pub(super) reply: &'a Reply,
    /// Its JSON is in it in one piece.
    pub(super) is_in_one_piece: bool,
    /// It is of a later reply than the first.
    pub(super) is_later: bool,
    /// The parts of calls in it.
    pub(super) calls: &'a [CallPiece],
}

/// A choice in the client's view.
#[derive(Clone, Copy)]
pub(super) struct ShownPart<'a> {
    pub(super) choice: &'a ReplyChoice,
    pub(super) shown: &'a ShownCalls,
}

/// What an edit depends on.
pub(super) struct Context<'a> {
    pub(super) form: Form,
    /// The choice of each part of the frame.
    pub(super) parts: &'a [ShownPart<'a>],
    /// The values of the stream's first chunk.
    pub(super) head: Option<&'a Continuation>,
    /// The choice objects of later replies that replace a whole reply's own, by choice.
    pub(super) replaced: &'a [(u32, Bytes)],
    /// Another reply is going to follow, so usage is not reported yet.
    pub(super) hold_usage: bool,
    /// The client did not ask for usage.
    pub(super) cut_usage: bool,
    /// What to report instead of the reply's usage, also where it reports none.
    pub(super) usage: Option<&'a Value>,
}

/// An event after the edit.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Edited {
    AsItCame,
    /// Its new data.
    Changed(Bytes),
    /// Nothing of it remains for the client.
    Gone,
}

/// Edits an event or a body.
pub(super) fn edit(frame: &EditedFrame<'_>, context: &Context<'_>) -> Edited {
    let EditedFrame { data, reply, .. } = frame;
    let mut splices = Splices::default();
    // An event without choices and usage is a provider's extension (content filters, moderation).
    let mut useful = context.form == Form::Whole || (reply.choices.is_empty() && reply.usage.is_none());
    useful |= reply.member(data, b"error").is_some();
    for (at, (choice, part)) in reply.choices.iter().zip(context.parts).enumerate() {
        match context.replaced.iter().find(|(replaced, _)| *replaced == part.choice.index) {
            Some((_, object)) => splices.replace(choice.span, object.clone()),
            None => useful |= edit_choice(frame, at, *part, context.form, &mut splices),
        }
    }
    useful |= edit_usage(data, reply, context, &mut splices);
    if let Some(head) = context.head.filter(|_| frame.is_later) {
        for (name, value) in head.values() {
            if let Some((member, value)) = reply.member(data, name.as_bytes()).zip(value) {
                splices.replace(member.value, value.clone());
            }
        }
    }
    match (splices.is_empty(), useful) {
        (true, _) => Edited::AsItCame,
        (false, true) if frame.is_in_one_piece => Edited::Changed(splices.apply(data).join()),
        (false, true) => Edited::Changed(splices.apply(&one_line(data)).join()),
        (false, false) => Edited::Gone,
    }
}

/// The choice object of a later whole reply, edited for the first one.
pub(super) fn edited_choice(frame: &EditedFrame<'_>, part: ShownPart<'_>) -> Option<Bytes> {
    let span = frame.reply.choices.first()?.span;
    let mut splices = Splices::default();
    edit_choice(frame, 0, part, Form::Whole, &mut splices);
    let whole = splices.apply(&frame.data.slice(..span.end as usize)).join();
    Some(whole.slice(span.start as usize..))
}

/// Edits the choice at the index `at` of a frame; true if the client gets anything from it.
fn edit_choice(
    frame: &EditedFrame<'_>,
    at: usize,
    part: ShownPart<'_>,
    form: Form,
    splices: &mut Splices,
) -> bool {
    let data = frame.data;
    let choice = &frame.reply.choices[at];
    let state = part.choice;
    let calls: Vec<CallPiece> =
        frame.calls.iter().filter(|call| usize::from(call.choice_at) == at).copied().collect();
    if frame.is_later
        && state.index != choice.index
        && let Some(member) = choice.member(data, b"index")
    {
        splices.replace(member.value, state.index.to_string());
    }
    let delta = &choice.delta;
    let released = edit_calls(data, choice, &calls, part, splices);
    match form {
        Form::Streamed if state.asks_approval() => {
            delta.content.texts().for_each(|text| splices.replace(text.span, ""));
        }
        Form::Streamed => {
            if state.begins_second_text()
                && let Some(text) = delta.content.texts().find(|text| !text.span.is_empty())
            {
                splices.insert(text.span.start, r"\n\n");
            }
        }
        Form::Whole => set_content(data, delta, &calls, part, splices),
    }
    let finish = edit_finish(data, choice, state, form, splices);
    let role = delta.role.is_some() && !part.shown.has_role;
    released || finish || role || says_anything(data, delta)
}

/// Sets the text of a whole choice to all that the client is to get, if that is more than its own text.
fn set_content(
    data: &[u8],
    message: &Delta,
    calls: &[CallPiece],
    part: ShownPart<'_>,
    splices: &mut Splices,
) {
    let state = part.choice;
    if state.text_bytes() == message.content.text_bytes() && !state.asks_approval() {
        return;
    }
    match message.member(data, b"content") {
        Some(member) if !matches!(message.content, Content::Other(_)) => {
            splices.replace(member.value, quote(&state.shown_text()));
        }
        Some(_) => {}
        None if message.span.is_empty() => {}
        None => {
            let mut left =
                message.members.iter().filter(|member| !is_emptied(data, message, calls, part, member));
            let comma = if left.next().is_none() { "" } else { "," };
            splices
                .insert(message.span.start + 1, format!("\"content\":{}{comma}", quote(&state.shown_text())));
        }
    }
}

/// Removes calls that are not released, and the role if the client has it; true if a call remains.
fn edit_calls(
    data: &[u8],
    choice: &Choice,
    calls: &[CallPiece],
    part: ShownPart<'_>,
    splices: &mut Splices,
) -> bool {
    let (mut first, mut is_left) = (0, false);
    for holder in choice.holders() {
        let places = first..first + holder.calls.len();
        let own = calls.iter().filter(|piece| places.contains(&usize::from(piece.position)));
        let own = own.map(|piece| CallPiece { position: piece.position - first as u16, ..*piece });
        is_left |= edit_holder(data, holder, &own.collect::<Vec<_>>(), part, splices);
        first = places.end;
    }
    is_left
}

/// Whether an edit removes the member from a message or delta whose calls are all blocked. What is no call, such as a
/// placeholder, goes with them.
fn is_emptied(
    data: &[u8],
    holder: &Delta,
    calls: &[CallPiece],
    part: ShownPart<'_>,
    member: &Member,
) -> bool {
    let call_at = |position: usize| calls.iter().find(|piece| usize::from(piece.position) == position);
    let mut of_kind = holder.calls.iter().enumerate().filter(|(_, call)| match () {
        () if is_named(member.key, data, b"tool_calls") => !call.legacy,
        () if is_named(member.key, data, b"function_call") => call.legacy,
        () => false,
    });
    let mut found = false;
    let all_gone = of_kind.all(|(place, _)| match call_at(place) {
        Some(at) => {
            found = true;
            is_blocked(at, part)
        }
        None => true,
    });
    found && all_gone
}

/// Whether the client gets nothing of a delta: the call is blocked, or it is written whole at its first delta.
fn is_blocked(piece: &CallPiece, part: ShownPart<'_>) -> bool {
    let call = &part.choice.calls()[piece.call as usize];
    !call.is_released() || (call.is_written && !piece.begins)
}

fn edit_holder(
    data: &[u8],
    holder: &Delta,
    calls: &[CallPiece],
    part: ShownPart<'_>,
    splices: &mut Splices,
) -> bool {
    let gone: Vec<bool> = (0..holder.calls.len())
        .map(|at| calls.iter().any(|piece| usize::from(piece.position) == at && is_blocked(piece, part)))
        .collect();
    let items: Vec<(usize, &ToolCall)> =
        holder.calls.iter().enumerate().filter(|(_, call)| !call.legacy).collect();
    splices.remove_members(&holder.members, |member| {
        (part.shown.has_role && is_named(member.key, data, b"role"))
            || is_emptied(data, holder, calls, part, member)
    });
    let is_removed = |name: &[u8]| {
        let mut named = holder.members.iter().filter(|member| is_named(member.key, data, name));
        named.any(|member| is_emptied(data, holder, calls, part, member))
    };
    if items.iter().any(|(at, _)| !gone[*at]) && !is_removed(b"tool_calls") {
        splices.remove_items(&items, |(_, call)| call.span, |(at, _)| gone[*at]);
    }
    for piece in calls.iter().filter(|piece| !is_blocked(piece, part)) {
        let (call, at) = (&holder.calls[usize::from(piece.position)], piece.call as usize);
        let known = &part.choice.calls()[at];
        if known.is_written {
            let index = call.index.map(|(_, index)| index);
            splices.replace(call.span, part.shown.written_call(part.choice, at, index));
            continue;
        }
        renumber(data, call, at, part, splices);
        if let Some(arguments) = known.replaced_arguments() {
            // The first piece carries them all.
            let arguments = if piece.carries { arguments } else { b"" };
            set_arguments(call, arguments, splices);
        }
    }
    calls.iter().any(|piece| !is_blocked(piece, part))
}

/// Gives a released call the index that it has among the released ones.
fn renumber(data: &[u8], call: &ToolCall, at: usize, part: ShownPart<'_>, splices: &mut Splices) {
    match (call.index, part.shown.index_of(at)) {
        _ if call.legacy => {}
        (Some((span, index)), Some(shifted)) if index != shifted => {
            splices.replace(span, shifted.to_string());
        }
        (None, Some(shifted)) if part.choice.is_streamed() => {
            set_member(data, call.span, "index", shifted.to_string().as_bytes(), splices);
        }
        _ => {}
    }
    if let Some(signature) = signature_for(part.choice, at).filter(|_| call.name.is_some() && !call.legacy) {
        set_member(data, call.span, "extra_content", signature, splices);
    }
}

/// Replaces a call's arguments with `arguments`, escapes as in JSON.
fn set_arguments(call: &ToolCall, arguments: &[u8], splices: &mut Splices) {
    match call.arguments {
        Arguments::Text(text) => splices.replace(text.span, arguments.to_vec()),
        Arguments::Value(span) if arguments.is_empty() => splices.replace(span, "\"\""),
        Arguments::Value(span) => splices.replace(span, unescape(arguments)),
        // These contain none.
        Arguments::Absent | Arguments::Null(_) => {}
    }
}

/// Adds the member `key` to the object at `span`, unless it has one that is not null.
fn set_member(data: &[u8], span: Span, key: &str, value: &[u8], splices: &mut Splices) {
    let mut scanner = Scanner::within(data, span);
    if scanner.object().is_err() {
        return;
    }
    let mut is_empty = true;
    while let Ok(Some(found)) = scanner.member() {
        is_empty = false;
        let Ok(place) = scanner.skip() else { return };
        if found.raw(data) == key.as_bytes() {
            if place.of(data) == b"null" {
                splices.replace(place, value.to_vec());
            }
            return;
        }
    }
    let comma: &[u8] = if is_empty { b"" } else { b"," };
    splices.insert(span.start + 1, [b"\"", key.as_bytes(), b"\":", value, comma].concat());
}

/// Whether a finish reason says that the client is to run calls.
fn wants_calls(reason: &str) -> bool {
    let letters = reason.chars().filter(char::is_ascii_alphabetic);
    let reason: String = letters.map(|letter| letter.to_ascii_lowercase()).collect();
    matches!(&*reason, "toolcalls" | "toolcall" | "tooluse" | "functioncall")
}

/// Holds back the finish of a choice that is asked again; true if the client gets one.
fn edit_finish(data: &[u8], choice: &Choice, state: &ReplyChoice, form: Form, splices: &mut Splices) -> bool {
    let Some(finish) = choice.finish else { return false };
    if state.is_wholly_blocked() && form == Form::Streamed {
        splices.replace(finish.quoted(), "null");
        return false;
    }
    // A reply that was cut off keeps that finish reason, whatever was removed from it.
    let is_without_calls = state.is_edited() || (state.is_continued() && wants_calls(&decode(finish, data)));
    if is_without_calls && !state.releases() && !state.is_cut {
        splices.replace(finish.quoted(), "\"stop\"");
    }
    true
}

/// Holds back or replaces the usage; true if the client gets one.
fn edit_usage(data: &[u8], reply: &Reply, context: &Context<'_>, splices: &mut Splices) -> bool {
    let untouched = splices.is_empty();
    let is_usage = |member: &Member| member.key.raw(data) == b"usage";
    let Some(usage) = reply.usage else {
        if context.cut_usage {
            // OpenAI writes `usage: null` into every chunk where usage is going to follow.
            splices.remove_members(&reply.members, |member| {
                is_usage(member) && member.value.of(data) == b"null"
            });
        }
        if let Some(sum) = context.usage.filter(|_| context.form == Form::Whole)
            && let Some(last) = reply.members.last()
        {
            splices.insert(last.value.end, format!(",\"usage\":{sum}"));
        }
        return untouched && context.cut_usage;
    };
    // Some upstreams send the usage that was asked for in a chunk whose choices say nothing.
    let is_apart = reply.choices.iter().all(|choice| is_silent(data, choice));
    if context.hold_usage || (context.cut_usage && is_apart) {
        splices.remove_members(&reply.members, is_usage);
        // Engines report more at the end of a stream than was asked for: llama.cpp adds its timings.
        let is_alone = is_usage_alone(data, reply, context.head)
            && !reply.choices.iter().any(|choice| carries_more(data, choice));
        return context.cut_usage && !context.hold_usage && !is_alone;
    }
    if let Some(sum) = context.usage {
        splices.replace(usage.value, sum.to_string());
    }
    true
}

/// Whether a chunk contains nothing besides its usage and what every chunk contains. An empty chunk without choices is
/// not sent: clients that asked for no usage may not expect such chunks.
fn is_usage_alone(data: &[u8], reply: &Reply, head: Option<&Continuation>) -> bool {
    const EVERY: [&[u8]; 6] = [b"id", b"object", b"created", b"model", b"choices", b"usage"];
    let is_known = |name: &[u8]| {
        EVERY.contains(&name) || head.is_some_and(|head| head.names.iter().any(|known| known == name))
    };
    let is_said = |member: &Member| !matches!(member.value.of(data), b"null" | b"\"\"" | b"[]" | b"{}");
    reply.members.iter().all(|member| is_known(member.key.raw(data)) || !is_said(member))
}

/// Whether a choice of a chunk has neither text nor a call nor a finish, nor anything else that a model says. Usage beside
/// a finish stays: many upstreams send it there although nobody asks.
fn is_silent(data: &[u8], choice: &Choice) -> bool {
    choice.finish.is_none()
        && choice.calls().all(ToolCall::is_empty)
        && choice.holders().all(|delta| !says_anything(data, delta))
}

/// Whether a choice holds anything besides what every choice holds, such as the results of a content filter.
fn carries_more(data: &[u8], choice: &Choice) -> bool {
    const EVERY: [&[u8]; 6] =
        [b"index", b"delta", b"message", b"finish_reason", b"native_finish_reason", b"logprobs"];
    let is_said = |member: &Member| !matches!(member.value.of(data), b"null" | b"\"\"" | b"[]" | b"{}");
    choice.members.iter().any(|member| !EVERY.contains(&member.key.raw(data)) && is_said(member))
}

/// Whether a delta contains anything besides its role and its calls.
fn says_anything(data: &[u8], delta: &Delta) -> bool {
    delta.members.iter().any(|member| {
        let known = [&b"role"[..], b"tool_calls", b"function_call"];
        let known = known.iter().any(|name| is_named(member.key, data, name));
        !known && !matches!(member.value.of(data), b"null" | b"\"\"" | b"[]")
    })
}
