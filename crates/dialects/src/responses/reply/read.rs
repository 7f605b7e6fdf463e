//! The reader of a stream: each event belongs to an item, or says something of the reply as a whole.

use super::ResponsesReplies;
use super::convert::error_event;
use super::event::{Class, Event, EventNumbers, Index};
use super::items::{CHOICE, MOST_ITEMS, OutItem};
use super::last::Last;
use super::owner::{Added, Owner};
use super::unread::{CALLS, has_call_in_other_lines, holds_stray_call, may_hold_calls};
use crate::codec::{CallPiece, Frame, FrameKind, Payload, ReplyEvent};
use crate::error::friendly::{friendly_event, friendly_text_event};
use crate::error::{UpstreamError, parse_event};
use crate::lines::{hides_lines, is_empty_list, single_events};
use crate::reply::{Form, Unjudged};
use crate::reply_choice::{ReplyCall, ReplyChoice, Visibility};
use crate::responses::item::{Item, ItemKind};
use crate::text_frame::Values;
use bytes::Bytes;
use model::call::Arguments;
use wire::json::decode;
use wire::sse::{Piece, parse_fields};

/// What is read next.
pub(super) enum Unread {
    /// An event of a stream.
    Event(Bytes),
    /// One that was parsed, with its data and the error that it reports.
    Parsed(Bytes, Box<Event>, Bytes, Option<UpstreamError>),
}

/// What an event is to the items.
#[derive(Clone, Copy)]
enum Completed {
    /// A part of the item at this position; `renames`: clients may now know its call by another name.
    At { item: usize, renames: bool, is_new: bool },
    /// It was complete before.
    Again,
    /// Another call than was judged, and the client may run it now.
    Renamed,
}

impl ResponsesReplies {
    /// Reads a piece of the upstream's stream; `None` if it says nothing by itself.
    pub(super) fn piece(&mut self, piece: Piece, choices: &mut Vec<ReplyChoice>) -> Option<Frame> {
        match piece {
            // The pieces in which the stream comes may have cut it.
            Piece::Event(raw) => match self.text.fit(&raw) {
                Some((_, values)) if !ends_as_calls(&raw, &values) => {
                    Some(self.text_frame(raw, &values, choices))
                }
                _ => self.event(raw, choices),
            },
            Piece::Oversized(raw) => {
                self.has_begun = true;
                self.has_unread_end = true;
                Some(Frame::new(raw, FrameKind::Unread(Unjudged::EventTooLong)))
            }
        }
    }

    /// The frame of the next event, if it comes in one piece and differs from the one before in its text, its number and its
    /// padding alone.
    pub(super) fn next_text(&mut self, choices: &mut [ReplyChoice]) -> Option<Frame> {
        let (raw, values) = self.take_text()?;
        Some(self.text_frame(raw, &values, choices))
    }

    /// Takes that event, with the values in which it may differ.
    fn take_text(&mut self) -> Option<(Bytes, Values)> {
        if !self.unread.is_empty() {
            return None;
        }
        let stream = self.input.beginning();
        let (length, values) = self.text.fit(stream).filter(|(_, values)| !ends_as_calls(stream, values))?;
        Some((self.input.take_beginning(length)?, values))
    }

    /// Gives the client that event as it came; false if there is none, or its numbers are not the upstream's.
    pub(super) fn pass_next_text(&mut self, choices: &mut [ReplyChoice], out: &mut Vec<Bytes>) -> bool {
        let has_item = |item: &OutItem| item.call.is_none() && item.shown_as.is_some();
        let is_as_it_came = !self.numbers.rewrites() && self.text_item().is_some_and(has_item);
        let Some(choice) = self.text.shown_in(choices).filter(|_| is_as_it_came) else { return false };
        let Some((raw, values)) = self.take_text() else { return false };
        let sequence = self.text_numbers.sequence.and_then(|(span, _)| self.text.same_value(span, &values));
        self.numbers.next(sequence.map(|sequence| number(sequence.of(&raw))));
        self.text.note_passed(&raw, &values, choice);
        out.push(raw);
        true
    }

    /// The item of the text that came last, if it said no more.
    fn text_item(&self) -> Option<&OutItem> {
        self.items.get(usize::from(self.text.tag()?))
    }

    /// The frame of an event that differs from the one before in its text, its number and its padding alone.
    fn text_frame(&mut self, raw: Bytes, values: &Values, choices: &mut [ReplyChoice]) -> Frame {
        if choices.iter().any(|choice| !choice.calls().is_empty()) {
            self.report_calls(choices);
        }
        let mut frame = self.text.with(raw, values);
        frame.number = self.next_number();
        frame.is_later = self.is_later();
        let moved = |span| self.text.moved(span, values);
        let EventNumbers { sequence, index } = self.text_numbers;
        let sequence = sequence.map(|(span, _)| moved(span));
        let sequence = sequence.map(|span| (span, number(span.of(frame.payload()))));
        let index = index.map(|(span, index)| (moved(span), index));
        self.last_numbers = Some((frame.number, EventNumbers { sequence, index }));
        frame
    }

    fn next_number(&mut self) -> u32 {
        self.frames = self.frames.wrapping_add(1);
        self.frames
    }

    pub(super) fn event(&mut self, raw: Bytes, choices: &mut Vec<ReplyChoice>) -> Option<Frame> {
        self.text.forget();
        let fields = parse_fields(&raw);
        let reads = |data: &[u8]| Event::parse(data).is_ok();
        let parse = |data: &[u8]| Event::parse_named(fields.name, data);
        let may_call = |data: &[u8]| parse(data).is_ok_and(|event| may_hold_calls(&event, data));
        if self.is_strict && hides_lines(&raw, &fields, reads, may_call) {
            return Some(Self::ambiguous(raw));
        }
        if fields.data.is_empty() || fields.data.starts_with(b"[DONE]") {
            let is_doubtful = has_call_in_other_lines(&raw);
            if is_doubtful && self.is_strict {
                return Some(Self::ambiguous(raw));
            }
            return Some(Frame { is_doubtful, ..Frame::idle(raw) });
        }
        let data: Bytes = match fields.place {
            Some(place) => raw.slice(place.range()),
            None => Bytes::copy_from_slice(&fields.data),
        };
        let name = fields.name.and_then(|name| std::str::from_utf8(name).ok());
        let parsed = parse(&data);
        let may_be_error = parsed.as_ref().map_or(true, |event| event.may_be_error);
        let is_error_line = name == Some("error") || fields.field == "error";
        let error = if may_be_error || is_error_line { parse_event(name, fields.field, &data) } else { None };
        let Ok(event) = parsed else {
            if let Some(events) = single_events(&raw, reads) {
                self.unread.extend(events.into_iter().rev().map(Unread::Event));
                return None;
            }
            // Some servers send such words as a keep-alive.
            let is_word = is_empty_list(&data) || !data.iter().any(|byte| matches!(byte, b'{' | b'['));
            return Some(match error {
                _ if !is_word => {
                    self.has_begun = true;
                    Frame::new(raw, FrameKind::Unread(Unjudged::NotJson))
                }
                Some(error) => {
                    let friendly = self.friendly.then(|| friendly_text_event(&raw, &error)).flatten();
                    let kind = FrameKind::Error { error: Box::new(error), may_be_reply: false };
                    Frame::new(friendly.unwrap_or(raw), kind)
                }
                None => Frame::idle(raw),
            });
        };
        let (raw, event, data) = self.without_markup(raw, event, data, choices);
        if self.texts.is_empty() {
            let is_of_text = event.is_of_text() && self.markup.is_none();
            let (padding, numbers) = (event.padding, event.numbers());
            let frame = self.parsed(raw, event, data, error, choices);
            if let Some(frame) = frame.as_ref().filter(|_| is_of_text) {
                let sequence = numbers.sequence.map(|(span, _)| span);
                self.text_numbers = numbers;
                self.text.keep(frame, padding.map(|padding| padding.span).into_iter().chain(sequence));
            }
            return frame;
        }
        self.unread.push(Unread::Parsed(raw, Box::new(event), data, error));
        let texts = self.texts.drain(..);
        self.unread.extend(texts.map(|(raw, event, data)| Unread::Parsed(raw, Box::new(event), data, None)));
        None
    }

    /// Takes an event without markup. `error`: the one that it reports.
    pub(super) fn parsed(
        &mut self,
        raw: Bytes,
        mut event: Event,
        data: Bytes,
        error: Option<UpstreamError>,
        choices: &mut Vec<ReplyChoice>,
    ) -> Option<Frame> {
        let is_doubtful = event.ambiguous || holds_stray_call(&raw, &event, &data);
        if is_doubtful && self.is_strict {
            return Some(Self::ambiguous(raw));
        }
        if let Some(item) = &mut event.item {
            item.settle(self.hosts_shell);
        }
        let holds_calls = may_hold_calls(&event, &data);
        let mut has_error = false;
        let (mut raw, mut event, mut data) = (raw, event, data);
        if let Some(error) = error.filter(|_| !holds_calls) {
            (raw, event, data) = self.for_people(raw, event, data, &error);
            if !self.has_begun || event.response.is_none() {
                let kind = FrameKind::Error { error: Box::new(error), may_be_reply: false };
                return Some(Frame { kind, ..self.frame(raw, &event, &data, None) });
            }
            has_error = true;
        }
        let mut frame = self.read(raw, event, data, choices)?;
        frame.is_doubtful |= is_doubtful;
        frame.events.extend(has_error.then_some(ReplyEvent::Error));
        Some(frame)
    }

    /// A frame in which clients may find other calls than toolrein.
    fn ambiguous(raw: Bytes) -> Frame {
        Frame::new(raw, FrameKind::Unread(Unjudged::Ambiguous))
    }

    /// A whole error as the client gets it.
    pub(super) fn error_bytes(&self, status: u16, raw: Bytes, error: &UpstreamError) -> Bytes {
        if self.form == Form::Whole {
            return raw;
        }
        let event = error_event(status, &raw);
        let is_for_people = self.friendly && (200..300).contains(&status);
        is_for_people.then(|| friendly_event(&event, error)).flatten().unwrap_or(event)
    }

    /// The event with an error, as people get it.
    fn for_people(
        &self,
        raw: Bytes,
        event: Event,
        data: Bytes,
        error: &UpstreamError,
    ) -> (Bytes, Event, Bytes) {
        let friendly = self.friendly.then(|| friendly_event(&raw, error)).flatten();
        let read = friendly.and_then(|new| {
            let fields = parse_fields(&new);
            let data = new.slice(fields.place?.range());
            let event = Event::parse_named(fields.name, &data).ok()?;
            Some((new, event, data))
        });
        read.unwrap_or((raw, event, data))
    }

    /// A frame of an event that belongs to this item.
    fn frame(&mut self, raw: Bytes, event: &Event, data: &Bytes, item: Option<usize>) -> Frame {
        let payload = match parse_fields(&raw).place {
            Some(place) => Payload::Span(place),
            None => Payload::Joined(Box::new(data.clone())),
        };
        let mut frame = Frame { payload, ..Frame::new(raw, FrameKind::Part) };
        frame.number = self.next_number();
        frame.tag = item.map(|item| item as u16);
        self.last_numbers = Some((frame.number, event.numbers()));
        frame
    }

    /// A frame with a part of the item at this position, or of none.
    fn part(
        &mut self,
        raw: Bytes,
        event: &Event,
        data: &Bytes,
        item: Option<usize>,
        choices: &mut Vec<ReplyChoice>,
    ) -> Frame {
        self.choice_of(choices);
        let mut frame = self.frame(raw, event, data, item);
        frame.events.push(ReplyEvent::Choice(CHOICE));
        let Some(item) = item.map(|at| &self.items[at]) else { return frame };
        match &item.call {
            Some(call) => {
                if let Some(delta) = event.delta.filter(|_| event.is_of_call(data)) {
                    frame.counted_bytes = delta.span.len() as u32;
                }
                let piece = CallPiece { call: call.at as u16, ..CallPiece::default() };
                frame.events.push(ReplyEvent::Call(piece));
            }
            None => {
                frame.events.extend(item.text.map(ReplyEvent::OfText));
                frame.events.extend(event.delta.map(|delta| ReplyEvent::TextPiece(delta.span)));
            }
        }
        frame
    }

    /// The choice of the reply, which is new where nothing of the reply has come.
    pub(super) fn choice_of<'a>(&mut self, choices: &'a mut Vec<ReplyChoice>) -> &'a mut ReplyChoice {
        self.has_begun = true;
        if choices.is_empty() {
            choices.push(ReplyChoice::with_apart_texts(CHOICE, self.form == Form::Streamed));
        }
        &mut choices[0]
    }

    fn read(
        &mut self,
        raw: Bytes,
        event: Event,
        data: Bytes,
        choices: &mut Vec<ReplyChoice>,
    ) -> Option<Frame> {
        let class = event.class(&data);
        let is_call = |item: &Item| matches!(item.kind, ItemKind::Call(_));
        if event.response.is_some() && event.item.as_ref().is_some_and(is_call) && !self.observes {
            // Two kinds of event in one: clients differ on which they read.
            return Some(Frame::new(raw, FrameKind::Forbidden(Unjudged::Ambiguous)));
        }
        if self.last.is_some() {
            if may_hold_calls(&event, &data) && !self.observes {
                // Nothing may follow the last event; clients differ on whether they read it.
                self.is_changed = true;
                return Some(Frame::new(raw, FrameKind::Dropped));
            }
            return Some(Frame::idle(raw));
        }
        if self.items.len() >= MOST_ITEMS {
            return Some(Frame::new(raw, FrameKind::Unread(Unjudged::ReplyTooLong)));
        }
        let index = event.index.map(|(_, index)| index);
        match (class, &event.item) {
            (Class::Life { ended: true }, _) => {
                Some(self.take_last(Last::of_event(raw, data, event), choices))
            }
            (Class::Life { .. }, _) => self.life(raw, &event, &data, choices),
            (Class::Added, Some(item)) => {
                let completed = self.begin_item(index, item, &data, choices);
                Some(self.of_item(raw, &event, &data, completed, true, choices))
            }
            (Class::Done, Some(item)) => {
                let completed = self.complete(index, item, &data, choices);
                Some(self.of_item(raw, &event, &data, completed, false, choices))
            }
            _ => Some(self.piece_of_item(raw, &event, &data, choices)),
        }
    }

    /// The frame of an event with an item.
    fn of_item(
        &mut self,
        raw: Bytes,
        event: &Event,
        data: &Bytes,
        completed: Completed,
        begins: bool,
        choices: &mut Vec<ReplyChoice>,
    ) -> Frame {
        let (item, renames, is_new) = match completed {
            Completed::Again => return self.dropped(raw, choices),
            Completed::Renamed => return Self::ambiguous(raw),
            Completed::At { item, renames, is_new } => (item, renames, is_new),
        };
        if !begins {
            self.settle_visibility(item, choices);
        }
        self.report_calls(choices);
        let mut frame = self.part(raw, event, data, Some(item), choices);
        for part in &mut frame.events {
            if let ReplyEvent::Call(piece) = part {
                (piece.names, piece.respells) = (renames, renames);
                piece.begins = is_new;
            }
        }
        let content = event.item.as_ref().and_then(|item| item.content.as_ref());
        if let Some(content) = content.filter(|_| !begins && is_new && self.items[item].call.is_none()) {
            frame.events.extend(content.texts().map(|text| ReplyEvent::Text(text.span)));
        }
        frame
    }

    /// Reports to the choice how far each call has come.
    pub(super) fn report_calls(&self, choices: &mut [ReplyChoice]) {
        let Some(choice) = choices.first_mut() else { return };
        for (at, item) in self.items.iter().enumerate() {
            let may_be_cut = at + 1 == self.items.len() && !self.are_calls_ended;
            item.report_to(choice, may_be_cut);
        }
    }

    /// Leaves out what the client has: a client may run a call once more when it is complete once more.
    fn dropped(&mut self, raw: Bytes, choices: &mut Vec<ReplyChoice>) -> Frame {
        self.numbers.rewrite();
        self.is_changed = true;
        self.choice_of(choices);
        self.report_calls(choices);
        Frame::new(raw, FrameKind::Dropped)
    }

    /// Reads the first events of a reply, which say nothing yet. Those of a later reply are dropped.
    fn life(
        &mut self,
        raw: Bytes,
        event: &Event,
        data: &Bytes,
        choices: &mut Vec<ReplyChoice>,
    ) -> Option<Frame> {
        let mut begun = Last::of_event(raw.clone(), data.clone(), event.clone());
        if let Some(id) = begun.id() {
            self.reply_id = Some(id);
        }
        begun.settle_shells(self.hosts_shell);
        if begun.ambiguous && self.is_strict {
            return Some(Self::ambiguous(raw));
        }
        let mut calls = Vec::new();
        if begun.has_calls() {
            // The first event of a resumed stream contains the items that came before. They cannot be removed.
            for entry in begun.entries() {
                let mut item = OutItem::begin(None, &entry.item, data);
                item.complete(&entry.item, data);
                let at = self.add(item, choices);
                calls.extend(self.items[at].call.as_ref().map(|call| call.at as u16));
            }
            self.report_calls(choices);
        }
        if self.has_head && calls.is_empty() {
            self.numbers.rewrite();
            self.is_changed = true;
            return None;
        }
        if self.head.is_empty() {
            self.head = begun.head();
        }
        if event.type_of(data) == "response.in_progress" {
            self.in_progress = Some(raw.clone());
        }
        let mut frame = self.frame(raw, event, data, None);
        frame.is_doubtful = begun.ambiguous;
        if begun.has_calls() {
            self.choice_of(choices);
            frame.events.push(ReplyEvent::Choice(CHOICE));
            let pieces =
                calls.into_iter().map(|call| CallPiece { call, begins: true, ..CallPiece::default() });
            frame.events.extend(pieces.map(ReplyEvent::Call));
            frame.events.push(ReplyEvent::Fixed);
        } else {
            frame.kind = FrameKind::Head;
        }
        Some(frame)
    }

    /// Adds an item and returns its position.
    pub(super) fn add(&mut self, mut item: OutItem, choices: &mut Vec<ReplyChoice>) -> usize {
        let choice = self.choice_of(choices);
        item.add_to(choice);
        if matches!(item.kind, ItemKind::Message(_)) {
            // Whether the client sees a message of a final answer depends on what remains of its text.
            let is_cleaned = self.markup.is_some() && item.done.is_none();
            let visibility = if is_cleaned { Visibility::Waiting } else { Visibility::Shown };
            item.text = Some(choice.add_apart_text(visibility));
        }
        self.items.push(item);
        self.items.len() - 1
    }

    /// Adds an item that begins.
    fn begin_item(
        &mut self,
        index: Option<Index>,
        item: &Item,
        data: &Bytes,
        choices: &mut Vec<ReplyChoice>,
    ) -> Completed {
        let added = self.added(index, item, data);
        match added {
            Added::Again if !self.observes => return Completed::Again,
            Added::Renamed if self.is_strict => return Completed::Renamed,
            Added::Pieces(at) => {
                self.items[at].begin_late(index, item, data);
                return Completed::At { item: at, renames: true, is_new: false };
            }
            _ => {}
        }
        let item = self.add(OutItem::begin(index, item, data), choices);
        Completed::At { item, renames: false, is_new: true }
    }

    /// Adds a complete item.
    fn complete(
        &mut self,
        index: Option<Index>,
        item: &Item,
        data: &Bytes,
        choices: &mut Vec<ReplyChoice>,
    ) -> Completed {
        let is_call = matches!(item.kind, ItemKind::Call(_));
        if is_call && self.names_two_calls(item, data) && self.is_strict {
            return Completed::Renamed;
        }
        if let Some(at) = self.owner_of_complete(index, item, data) {
            let known = &mut self.items[at];
            known.kind = item.kind;
            if let (Some(call), ItemKind::Call(kind)) = (&mut known.call, item.kind) {
                call.kind = kind;
            } else if known.call.is_some() {
                // Pieces of a call that the provider has run itself.
                known.give_up_call(choices.first_mut());
            }
            let renames = self.items[at].complete(item, data);
            return Completed::At { item: at, renames, is_new: !is_call };
        }
        if !self.observes && self.is_complete_already(index, item, data) {
            return Completed::Again;
        }
        let has_key = index.is_some() || item.id.is_some() || item.call.id.is_some();
        let repeats = |known: &OutItem| {
            known.index == index && (has_key || known.call.is_none()) && known.is_repeated_by(item, data)
        };
        if let Some(item) = self.items.iter().rposition(repeats) {
            return Completed::At { item, renames: false, is_new: false };
        }
        let mut new = OutItem::begin(index, item, data);
        new.complete(item, data);
        Completed::At { item: self.add(new, choices), renames: false, is_new: true }
    }

    /// Reads a piece of an item: of a call, its arguments. A piece that no item claims is one of the only call that is open;
    /// otherwise it waits for an item that claims it, and at the end it is never shown beside a call that the client does
    /// not see.
    fn piece_of_item(
        &mut self,
        raw: Bytes,
        event: &Event,
        data: &Bytes,
        choices: &mut Vec<ReplyChoice>,
    ) -> Frame {
        let index = event.index.map(|(_, index)| index);
        let id = event.item_id.or(event.call_id).map(|id| decode(id, data).into_owned());
        let mut is_doubtful = false;
        let mut at = match self.owner_of_piece(index, id.as_deref()) {
            Owner::At(at) => Some(at),
            Owner::Unknown => None,
            Owner::Ambiguous(_) if event.is_of_call(data) && self.is_strict => return Self::ambiguous(raw),
            Owner::Ambiguous(at) => {
                is_doubtful = event.is_of_call(data);
                Some(at)
            }
        };
        // The provider runs the call, as a shell in a container, and what it runs comes by the same events.
        let is_carried = at.is_some_and(|at| self.items[at].kind == ItemKind::Carried);
        let is_of_call = event.is_of_call(data);
        let is_hosted = is_carried && (!is_of_call || event.type_of(data).contains("shell_call_command"));
        if at.is_none() && event.is_of_hosted_call(data) {
            // OGX sends these before the item of a tool that it runs, and for calls that are none of the client's. A client
            // that takes them for its own call must not see them beside one that it does not see.
            if hides_call(choices) && !self.observes {
                return Frame { is_doubtful: true, ..self.dropped(raw, choices) };
            }
            return self.part(raw, event, data, None, choices);
        }
        let is_late = at.is_some_and(|at| self.items[at].done.is_some());
        let (mut argues, mut is_new, mut names_two) = (false, false, false);
        if event.is_of_arguments(data) && !is_hosted {
            let is_owned = at.is_some_and(|at| self.items[at].call.is_some());
            let open = if is_owned || is_carried { None } else { self.only_open_call() };
            let needs_name = !is_of_call || event.is_of_named_call(data);
            let owner = match at.filter(|_| is_owned).or(open) {
                Some(owner) => owner,
                None => {
                    is_new = true;
                    self.add(OutItem::nameless(index, needs_name), choices)
                }
            };
            at = Some(owner);
            self.items[owner].learn_id(id.as_deref().unwrap_or_default());
            if event.ends_arguments(data) && self.items[owner].has_ended_arguments() && !self.observes {
                let is_judged = self.items[owner].is_judged_whole(choices);
                if !is_judged {
                    return self.dropped(raw, choices);
                }
            }
            argues = self.take_arguments(owner, event, data);
            names_two = self.items[owner].has_two_names();
        }
        self.report_calls(choices);
        let mut frame = self.part(raw, event, data, at, choices);
        for part in &mut frame.events {
            if let ReplyEvent::Call(piece) = part {
                (piece.argues, piece.begins, piece.is_late) = (argues, is_new, is_late);
                piece.is_ambiguous = names_two && self.is_strict;
            }
        }
        frame.is_doubtful = is_doubtful || names_two;
        frame
    }

    /// Adds what an event says of the arguments of the call `at`, and of its tool; true if it has arguments.
    fn take_arguments(&mut self, at: usize, event: &Event, data: &[u8]) -> bool {
        let item = &mut self.items[at];
        if let Some(tool) = event.tool.filter(|tool| !tool.span.is_empty()) {
            item.learn_name(&decode(tool, data));
        }
        if let Some(delta) = event.delta {
            item.add(delta.raw(data));
        } else if event.arguments != Arguments::Absent {
            item.end_arguments(&event.arguments.text(data));
        }
        event.delta.is_some() || event.arguments != Arguments::Absent
    }

    /// The message at this position is complete: the client does not see it if nothing remains of its text.
    pub(super) fn settle_visibility(&mut self, at: usize, choices: &mut [ReplyChoice]) {
        let has_cut = self.markup.as_ref().is_some_and(super::markup::Cleaner::has_cut);
        let item = &self.items[at];
        let (Some(text), Some(choice)) = (item.text.filter(|_| item.shown_as.is_none()), choices.first_mut())
        else {
            return;
        };
        let is_blank = || item.done.as_ref().is_some_and(|done| super::text_of(done).trim().is_empty());
        let is_hidden = has_cut && is_blank();
        let visibility = if is_hidden { Visibility::Hidden } else { Visibility::Shown };
        choice.set_visibility(text as usize, visibility);
    }
}

/// Whether one of these values of an event could be the beginning of a call, which is then looked for.
fn ends_as_calls(event: &[u8], values: &Values) -> bool {
    let mut quoted = values.iter().filter_map(|value| event.get(..=value.end as usize));
    quoted.any(|text| text.ends_with(b"\"") && CALLS.end(text))
}

/// The number that these digits are: a text frame has no longer ones than fit.
fn number(digits: &[u8]) -> u64 {
    digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0'))
}

/// Whether the client does not see a call that was decided on.
fn hides_call(choices: &[ReplyChoice]) -> bool {
    let is_hidden = |call: &ReplyCall| call.decision.is_some() && !call.is_released();
    choices.iter().flat_map(ReplyChoice::calls).any(is_hidden)
}
