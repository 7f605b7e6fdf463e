//! The writer of streams: the client's blocks are numbered densely over all replies from the first one on that is left out or
//! written anew, blocked blocks vanish from start to stop, and one event ends the message for all replies.

use super::MessagesReplies;
use super::block::{Block, own_value, set_members};
use super::convert::{block_events, content_of, emptied, end_event, end_of, event, last_event, stop_event};
use super::event::{Event, EventKind};
use crate::codec::{Frame, Payload, REPORT, ReplyEvent, WriteContext};
use crate::lines::framed;
use crate::reply_choice::ReplyChoice;
use bytes::Bytes;
use serde_json::{Value, json};
use std::ops::Range;
use wire::body::Span;
use wire::json::{decode_bytes, quote, unescape};
use wire::members::members_of;
use wire::splice::Splices;
use wire::sse::parse_fields;

/// The blocks of the client's message.
#[derive(Debug, Default)]
pub(super) struct ClientBlocks {
    /// The index of the next one.
    next: u64,
    /// The indexes are no longer the upstream's.
    is_renumbered: bool,
    /// Those that are not stopped, each with its position among the blocks of the present reply.
    open: Vec<(u64, Option<usize>)>,
    /// Texts of toolrein's that wait for the head of the message, those before the model's first.
    waiting_before: Vec<String>,
    waiting_after: Vec<String>,
}

impl ClientBlocks {
    /// Another reply goes on with the message.
    pub(super) fn begin_reply(&mut self) {
        self.is_renumbered = true;
        self.open.iter_mut().for_each(|(_, at)| *at = None);
    }

    fn has_waiting(&self) -> bool {
        !self.waiting_before.is_empty() || !self.waiting_after.is_empty()
    }
}

impl MessagesReplies {
    /// Writes the first event of a stream; the client has one already where a later reply goes on.
    pub(super) fn forward_head(&mut self, frame: &Frame, out: &mut Vec<Bytes>) {
        let is_left_out = self.has_earlier_head || (self.has_head && (self.is_strict || self.is_changed));
        self.has_head = true;
        if is_left_out {
            self.is_changed = true;
        } else {
            out.push(frame.raw.clone());
        }
    }

    /// Writes the first event of a stream that has blocks in its message: where it does not stay as it came, as events of blocks,
    /// since not all clients read blocks there.
    pub(super) fn forward_filled_head(
        &mut self,
        frame: &Frame,
        choice: &ReplyChoice,
        context: &WriteContext,
        out: &mut Vec<Bytes>,
    ) {
        let own = self.take_blocks_of_head(frame);
        let blocks = || self.blocks.all()[own.clone()].iter();
        let is_as_it_came = |block: &Block| block.is_visible(choice) && block.written(choice).is_none();
        let is_first = !self.has_earlier_head && !self.client.has_waiting();
        let is_plain = is_first && !self.is_strict && !self.is_changed;
        if is_plain && blocks().all(is_as_it_came) {
            self.has_head = true;
            self.client.next += own.len() as u64;
            return out.push(frame.raw.clone());
        }
        let shown = blocks().filter(|block| block.is_visible(choice));
        let shown: Vec<Bytes> =
            shown.map(|block| block.written(choice).unwrap_or_else(|| block.json())).collect();
        (self.is_changed, self.client.is_renumbered) = (true, true);
        let data: Bytes = Bytes::copy_from_slice(frame.payload());
        let Some(message) = own_value(&data, b"message").map(|message| data.slice_ref(message)) else {
            return;
        };
        if !std::mem::replace(&mut self.has_head, true) {
            let head = [br#"{"type":"message_start","message":"#, &emptied(&message)[..], b"}"].concat();
            out.push(event("message_start", &head));
        }
        for text in std::mem::take(&mut self.client.waiting_before) {
            self.write_own_text(&text, out);
        }
        for block in shown {
            out.extend(block_events(self.client.next, &block));
            self.client.next += 1;
        }
        for text in std::mem::take(&mut self.client.waiting_after) {
            self.write_own_text(&text, out);
        }
        if let Some((delta, usage)) = end_of(&message) {
            self.usage = context.usage.clone().or_else(|| Some(usage.clone()));
            if choice.is_wholly_blocked() {
                return;
            }
            let end = json!({"type": "message_delta", "delta": delta, "usage": usage}).to_string().into();
            out.push(event("message_delta", &self.edited_end(&end, choice, context)));
        }
    }

    /// The positions of the blocks that the frame of a head has: the first such blocks that were not written yet.
    fn take_blocks_of_head(&mut self, frame: &Frame) -> Range<usize> {
        let is_next = |block: &Block| block.is_of_head && !block.is_closed;
        let first = self.blocks.all().iter().position(is_next).unwrap_or(self.blocks.all().len());
        let message = own_value(frame.payload(), b"message").and_then(content_of);
        let end = (first + message.map_or(0, |content| content.len())).min(self.blocks.all().len());
        for at in first..end {
            self.blocks.change(at, |block| block.is_closed = true);
        }
        first..end
    }

    /// The client's index of a block that begins there.
    fn show(&mut self, at: usize) -> u64 {
        let upstream = self.blocks.all()[at].index;
        self.client.is_renumbered |= self.is_strict && upstream != Some(self.client.next);
        let index = upstream.filter(|_| !self.client.is_renumbered).unwrap_or(self.client.next);
        self.client.next = index.saturating_add(1);
        self.client.open.push((index, Some(at)));
        self.blocks.change(at, |block| block.shown_as = Some(index));
        index
    }

    fn note_closed(&mut self, at: usize) {
        self.blocks.change(at, |block| block.is_closed = true);
        self.client.open.retain(|(_, open)| *open != Some(at));
    }

    /// Stops the client's blocks that the upstream has left open.
    pub(super) fn close_blocks(&mut self, out: &mut Vec<Bytes>) {
        for (index, at) in std::mem::take(&mut self.client.open) {
            out.push(stop_event(index));
            self.is_changed = true;
            if let Some(at) = at {
                self.blocks.change(at, |block| block.is_closed = true);
            }
        }
    }

    /// Whether the client has the beginning of the text at `at`, under the upstream's index, and no other block to be closed.
    pub(super) fn is_open_as_it_came(&self, at: usize) -> bool {
        let is_as_it_came = |block: &Block| {
            let is_open = block.call.is_none() && !block.is_closed;
            is_open && block.shown_as.is_some() && block.shown_as == block.index
        };
        self.client.open.iter().all(|(_, at)| at.is_some())
            && self.blocks.all().get(at).is_some_and(is_as_it_came)
    }

    /// Writes a part of the block at `at`.
    pub(super) fn forward_part(
        &mut self,
        at: usize,
        frame: &Frame,
        choice: &ReplyChoice,
        out: &mut Vec<Bytes>,
    ) {
        if self.client.open.iter().any(|(_, at)| at.is_none()) {
            // The upstream never stopped a block of an earlier reply.
            self.close_blocks(out);
        }
        let Some(block) = self.blocks.all().get(at) else { return out.push(frame.raw.clone()) };
        let is_written = block.is_written(choice);
        if !block.is_visible(choice) {
            (self.client.is_renumbered, self.is_changed) = (true, true);
        } else if block.is_closed && (self.is_strict || self.is_changed || is_written) {
            self.is_changed = true;
        } else if let Some(json) = block.written(choice) {
            self.is_changed = true;
            let index = self.show(at);
            out.extend(block_events(index, &json));
            self.note_closed(at);
        } else {
            let (upstream, shown_as) = (block.index, block.shown_as);
            let index = shown_as.unwrap_or_else(|| self.show(at));
            let is_piece = frame.events.iter().any(|event| matches!(event, ReplyEvent::Text(_)));
            let event = if is_piece && upstream == Some(index) { None } else { parsed(frame) };
            if event.as_ref().is_some_and(|event| event.kind == EventKind::BlockStop) {
                self.note_closed(at);
            }
            let mut splices = Splices::default();
            let moved = event.and_then(|event| event.index).filter(|_| upstream != Some(index));
            if let Some((span, _)) = moved.filter(|_| upstream.is_some() || self.client.is_renumbered) {
                splices.replace(span, index.to_string());
            }
            self.write_edited(frame, splices, out);
        }
    }

    /// Writes an event with an error.
    pub(super) fn forward_error_event(&mut self, frame: &Frame, is_changed: bool, out: &mut Vec<Bytes>) {
        if is_changed || self.is_strict || self.is_later {
            self.close_blocks(out);
        }
        out.push(frame.raw.clone());
    }

    /// Writes an event that belongs to no block.
    pub(super) fn forward_other(
        &mut self,
        frame: &Frame,
        choice: &ReplyChoice,
        context: &WriteContext,
        out: &mut Vec<Bytes>,
    ) {
        let Some(event) = parsed(frame) else { return out.push(frame.raw.clone()) };
        let is_end = matches!(event.kind, EventKind::MessageDelta | EventKind::MessageStop);
        if is_end && (context.acts || self.is_strict) {
            self.close_blocks(out);
        }
        if event.kind == EventKind::MessageDelta {
            self.note_usage_of_end(&event, frame.payload(), context);
        }
        // After a finish that is held back nothing of the reply follows.
        if choice.is_wholly_blocked() && self.has_finish && frame.parts().next().is_some() {
            self.is_changed = true;
            return;
        }
        let data = Bytes::copy_from_slice(frame.payload());
        let new = match event.kind {
            EventKind::MessageDelta => self.edited_end(&data, choice, context),
            EventKind::MessageStop => self.with_report(&data),
            _ => data.clone(),
        };
        if new == data {
            return out.push(frame.raw.clone());
        }
        self.is_changed = true;
        out.push(with_data(frame, &new));
    }

    /// The event at the end of a message: its reason follows what was released, and its usage is that of all replies.
    fn edited_end(&self, data: &Bytes, choice: &ReplyChoice, context: &WriteContext) -> Bytes {
        let mut splices = Splices::default();
        let delta = members_of(data, Span::new(0, data.len()));
        let delta = delta.iter().rfind(|member| *decode_bytes(member.key, data) == *b"delta");
        if let Some(delta) = delta {
            let reason = own_value(delta.value.of(data), b"stop_reason");
            let reason = self.reason(reason.unwrap_or_default(), choice, context);
            let reason = reason.map(|reason| (&b"stop_reason"[..], quote(reason).into_bytes()));
            set_members(&mut splices, data, delta.value, reason.into_iter().collect());
        }
        if context.acts {
            remove_results(&mut splices, data, choice);
            let usage = context.usage.as_ref().map(Value::to_string);
            let lacks_usage = own_value(data, b"usage").is_none_or(|usage| !usage.starts_with(b"{"));
            let usage = usage.or_else(|| lacks_usage.then(|| NO_USAGE.to_owned()));
            let usage = usage.map(|usage| (&b"usage"[..], usage.into_bytes()));
            set_members(&mut splices, data, Span::new(0, data.len()), usage.into_iter().collect());
        }
        splices.apply(data).join()
    }

    /// The reason for which the client's message ends, where it is another one than `reason`, JSON text.
    pub(super) fn reason(
        &self,
        reason: &[u8],
        choice: &ReplyChoice,
        context: &WriteContext,
    ) -> Option<&'static str> {
        let reason = reason.strip_prefix(b"\"").and_then(|reason| reason.strip_suffix(b"\""))?;
        match unescape(reason).as_str() {
            "tool_use" if !choice.releases() && (context.acts || self.is_strict) => Some("end_turn"),
            "end_turn" if choice.releases() && context.acts => Some("tool_use"),
            _ => None,
        }
    }

    /// Keeps what the message's usage is, for an end that toolrein writes.
    fn note_usage_of_end(&mut self, event: &Event, data: &[u8], context: &WriteContext) {
        let own = || serde_json::from_slice(event.usage?.of(data)).ok();
        self.usage = context.usage.clone().or_else(own).or(self.usage.take());
    }

    /// The last event with what toolrein reports.
    fn with_report(&mut self, data: &Bytes) -> Bytes {
        let mut splices = Splices::default();
        let report = self.report.take().map(|report| (REPORT.as_bytes(), report.into_bytes()));
        set_members(&mut splices, data, Span::new(0, data.len()), report.into_iter().collect());
        splices.apply(data).join()
    }

    /// Writes a text of toolrein's as a block of its own.
    pub(super) fn write_own_text(&mut self, text: &str, out: &mut Vec<Bytes>) {
        self.is_changed = true;
        self.close_blocks(out);
        let block = format!(r#"{{"type":"text","text":{}}}"#, quote(text));
        out.extend(block_events(self.client.next, &block.into()));
        (self.client.next, self.client.is_renumbered) = (self.client.next + 1, true);
    }

    /// Keeps a text of toolrein's until the client has the head of the message.
    pub(super) fn keep_own_text(&mut self, text: &str, before: bool) {
        let texts = if before { &mut self.client.waiting_before } else { &mut self.client.waiting_after };
        texts.push(text.to_owned());
    }

    /// Writes the end of a message whose own end the client has not got.
    pub(super) fn write_own_end(&mut self, has_calls: bool, out: &mut Vec<Bytes>) {
        self.is_changed = true;
        self.close_blocks(out);
        let reason = if has_calls { "tool_use" } else { "end_turn" };
        let usage = self.usage.take().unwrap_or_else(|| json!({"output_tokens": 0}));
        out.push(end_event(&json!({"stop_reason": reason, "stop_sequence": null}), &usage));
        out.extend((!self.has_stop).then(last_event));
    }

    fn write_edited(&mut self, frame: &Frame, splices: Splices, out: &mut Vec<Bytes>) {
        if splices.is_empty() {
            return out.push(frame.raw.clone());
        }
        self.is_changed = true;
        let data = Bytes::copy_from_slice(frame.payload());
        out.push(with_data(frame, &splices.apply(&data).join()));
    }
}

/// The usage of a message that says nothing of it.
const NO_USAGE: &str = r#"{"output_tokens":0}"#;

/// The event of a frame; `None` where it cannot be read.
fn parsed(frame: &Frame) -> Option<Event> {
    let data = frame.payload();
    Event::parse(parse_fields(&frame.raw).name, data).ok()
}

/// The event of a frame with other data.
fn with_data(frame: &Frame, data: &[u8]) -> Bytes {
    match frame.payload {
        Payload::Span(at) => {
            [&frame.raw[..at.start as usize], data, &frame.raw[at.end as usize..]].concat().into()
        }
        _ => framed(&frame.raw, data),
    }
}

/// Removes the results of safeguards for calls that the client does not see: they are members named by the calls' ids.
pub(super) fn remove_results(splices: &mut Splices, data: &[u8], choice: &ReplyChoice) {
    let hidden = choice.calls().iter().filter(|call| !call.is_released());
    let hidden: Vec<String> = hidden.map(|call| call.assembled.id()).collect();
    let top = members_of(data, Span::new(0, data.len()));
    let named =
        |name: &'static [u8]| move |member: &&wire::members::Member| *decode_bytes(member.key, data) == *name;
    let delta =
        top.iter().rfind(named(b"delta")).map_or_else(Vec::new, |delta| members_of(data, delta.value));
    for results in top.iter().chain(&delta).filter(named(b"safeguard_results")) {
        let results = members_of(data, results.value);
        splices.remove_members(&results, |member| {
            let id = decode_bytes(member.key, data);
            hidden.iter().any(|hidden| hidden.as_bytes() == &*id)
        });
    }
}
