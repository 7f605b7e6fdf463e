//! The reader: events of a stream and whole replies to frames, and their calls to the choice. A call can stand in the start of a
//! block, in its deltas, in a block that is never stopped, in the first event of a stream and in an event whose `event:` line
//! says otherwise.

use super::block::{Block, MOST_BLOCKS, elements};
use super::convert::{error_event, stream_of, whole_of};
use super::event::{BlockKind, CALLS, Delta, Event, EventKind};
use super::{CHOICE, MessagesReplies, Unread};
use crate::codec::{CallPiece, Frame, FrameKind, FrameUsage, Payload, ReplyCodec, ReplyEvent};
use crate::error::friendly::friendly_event;
use crate::error::{UpstreamError, may_be_in_200, parse, parse_event, parse_in_200};
use crate::lines::{hides_lines, is_empty_list, single_events};
use crate::reply::{Form, Unjudged};
use crate::reply_choice::{ReplyCall, ReplyChoice, Visibility};
use crate::text_frame::Values;
use bytes::Bytes;
use model::assembled::Assembled;
use smallvec::smallvec;
use wire::body::{BYTE_ORDER_MARK, Scanner, Span, Str};
use wire::json::{decode, decode_bytes};
use wire::members::{Member, all_members, differs_in_case};
use wire::sse::{Fields, lines, parse_fields};

/// The `tag` of a frame that is an event with an error.
pub(super) const ERROR: u16 = u16::MAX;
/// The `tag` of a frame that is the head of a stream and has blocks.
pub(super) const FILLED_HEAD: u16 = u16::MAX - 1;

/// The reasons for which a reply ends as the model meant it.
const ENDED: [&[u8]; 5] = [b"end_turn", b"tool_use", b"stop_sequence", b"pause_turn", b"compaction"];

/// The members of a message that are read.
const OF_MESSAGE: [&[u8]; 4] = [b"content", b"stop_reason", b"usage", b"model"];

/// The members of a message that matter.
#[derive(Default)]
pub(super) struct MessageMembers {
    pub(super) blocks: Vec<Span>,
    stop_reason: Option<Str>,
    usage: Option<Span>,
    model: Option<Span>,
    /// Readers of JSON may find another content in it.
    is_ambiguous: bool,
    /// A client may find a call outside of its content.
    has_stray_call: bool,
    /// It may report an error as [`parse_in_200`] finds it.
    may_be_error: bool,
}

impl MessageMembers {
    /// Those of the message at `message` in `data`; `None` if it is no object.
    pub(super) fn read(data: &[u8], message: Span) -> Option<Self> {
        let (mut read, mut seen) = (Self::default(), [false; OF_MESSAGE.len()]);
        let mut scanner = Scanner::within(data, message);
        let members = all_members(&mut scanner).ok()?;
        scanner.end().ok()?;
        read.may_be_error = may_be_in_200(&members, data);
        for Member { key, value } in members {
            let key = decode_bytes(key, data);
            let Some(known) = OF_MESSAGE.iter().position(|name| **name == *key) else {
                read.is_ambiguous |= differs_in_case(&key, &OF_MESSAGE[..2]);
                read.has_stray_call |= value.of(data).starts_with(b"{") && CALLS.are_in(value.of(data));
                read.has_stray_call |= value.of(data).starts_with(b"[") && CALLS.are_in(value.of(data));
                continue;
            };
            read.is_ambiguous |= std::mem::replace(&mut seen[known], true) && known < 2;
            match known {
                0 => read.blocks = elements(data, value).unwrap_or_default(),
                1 => read.stop_reason = Scanner::within(data, value).string().ok(),
                2 => read.usage = Some(value).filter(|usage| usage.of(data).starts_with(b"{")),
                _ => read.model = Some(value),
            }
        }
        Some(read)
    }

    /// Whether the message has come whole.
    fn is_full(&self) -> bool {
        !self.blocks.is_empty() || self.stop_reason.is_some()
    }
}

/// An event that was read.
struct ReadEvent {
    raw: Bytes,
    event: Event,
    data: Bytes,
    /// Where the data is in the event, if it is on one line.
    place: Option<Span>,
    error: Option<UpstreamError>,
    /// It ends a text that was markup alone.
    is_emptied: bool,
}

impl ReadEvent {
    fn frame(&self, kind: FrameKind) -> Frame {
        let payload = match self.place {
            Some(place) => Payload::Span(place),
            None => Payload::Joined(Box::new(self.data.clone())),
        };
        Frame { payload, ..Frame::new(self.raw.clone(), kind) }
    }
}

impl MessagesReplies {
    /// Reads an event of a stream; `None` if others are read in its place.
    pub(super) fn event(&mut self, unread: Unread, choices: &mut Vec<ReplyChoice>) -> Option<Frame> {
        self.text.forget();
        let Unread { mut raw, has_markup, mut is_emptied } = unread;
        let fields = parse_fields(&raw);
        let is_doubtful = CALLS.are_in_lines(lines(&raw).filter(|line| !line.starts_with(b"data:")));
        if self.is_strict && (is_doubtful || hides_call(&raw, &fields)) {
            return Some(ambiguous(raw));
        }
        if fields.data.is_empty() || fields.data.starts_with(b"[DONE]") {
            let is_end = !fields.data.is_empty() && !self.has_stop;
            let kind = if is_end { FrameKind::End } else { FrameKind::Idle };
            if is_end {
                choices.iter_mut().for_each(|choice| self.settle_unstopped(choice));
            }
            return Some(Frame { is_doubtful, ..Frame::new(raw, kind) });
        }
        let data: Bytes = match fields.place {
            Some(place) => raw.slice(place.range()),
            None => Bytes::copy_from_slice(&fields.data),
        };
        let name = fields.name.and_then(|name| std::str::from_utf8(name).ok());
        let (error, place) = (parse_event(name, fields.field, &data), fields.place);
        let Ok(event) = Event::parse(fields.name, &data) else { return self.unreadable(raw, &data, error) };
        if let Some(markup) = self.markup.as_mut().filter(|_| has_markup) {
            let clean = markup.event(raw.clone(), &event, &data);
            if clean.raw != raw || !clean.before.is_empty() {
                self.is_changed |= clean.raw != raw;
                self.unread.push_front(Unread { is_emptied: clean.is_emptied, ..Unread::clean(clean.raw) });
                clean.before.into_iter().rev().for_each(|raw| self.unread.push_front(Unread::clean(raw)));
                return None;
            }
            (raw, is_emptied) = (clean.raw, clean.is_emptied);
        }
        let is_doubtful = is_doubtful || event.is_ambiguous || event.holds_stray_call(&data);
        if is_doubtful && self.is_strict {
            return Some(ambiguous(raw));
        }
        let is_text = event.is_text_delta(&data) && self.markup.is_none();
        let read = ReadEvent { raw, event, data, place, error, is_emptied };
        let mut frame = self.frame(read, choices);
        frame.is_doubtful |= is_doubtful;
        if is_text && frame.tag.is_some() {
            self.text.keep(&frame, []);
        }
        Some(frame)
    }

    /// The frame of the next event, if it comes in one piece and differs from the one before in its text alone.
    pub(super) fn next_text(&mut self) -> Option<Frame> {
        let (raw, values) = self.take_text()?;
        Some(self.text_frame(raw, &values))
    }

    /// Takes that event, with the value in which it may differ.
    fn take_text(&mut self) -> Option<(Bytes, Values)> {
        if !self.unread.is_empty() {
            return None;
        }
        let (length, values) = self.text.fit(self.input.beginning())?;
        Some((self.input.take_beginning(length)?, values))
    }

    /// Gives the client that event as it came; false if there is none, or if its block is not as it came.
    pub(super) fn pass_next_text(&mut self, choices: &mut [ReplyChoice], out: &mut Vec<Bytes>) -> bool {
        let block =
            self.text.tag().map(usize::from).filter(|at| self.observes || self.is_open_as_it_came(*at));
        let (Some(at), Some(choice)) = (block, self.text.shown_in(choices)) else { return false };
        let Some((raw, values)) = self.take_text() else { return false };
        self.blocks.add_text(at, self.text.quoted_text(&raw, &values));
        self.text.note_passed(&raw, &values, choice);
        out.push(raw);
        true
    }

    /// The frame of an event that differs from the one before in its text alone.
    pub(super) fn text_frame(&mut self, raw: Bytes, values: &Values) -> Frame {
        let mut frame = self.text.with(raw, values);
        frame.is_later = self.is_later;
        if let Some(block) = frame.tag {
            self.blocks.add_text(usize::from(block), self.text.quoted_text(&frame.raw, values));
        }
        frame
    }

    /// Takes an event whose data is no object.
    fn unreadable(&mut self, raw: Bytes, data: &[u8], error: Option<UpstreamError>) -> Option<Frame> {
        let reads = |data: &[u8]| Event::parse(None, data).is_ok();
        if let Some(events) = single_events(&raw, reads) {
            events.into_iter().rev().for_each(|raw| self.unread.push_front(Unread::new(raw)));
            return None;
        }
        // Some servers send such words as a keep-alive.
        let is_word = is_empty_list(data) || !data.iter().any(|byte| matches!(byte, b'{' | b'['));
        Some(match error {
            _ if !is_word => Frame::new(raw, FrameKind::Unread(Unjudged::NotJson)),
            Some(error) => Frame { tag: Some(ERROR), ..refusal(raw, error) },
            None => Frame::idle(raw),
        })
    }

    fn frame(&mut self, read: ReadEvent, choices: &mut Vec<ReplyChoice>) -> Frame {
        let mut frame = match read.event.kind {
            EventKind::MessageStart => self.head(&read, choices),
            EventKind::BlockStart | EventKind::BlockDelta | EventKind::BlockStop => self.part(&read, choices),
            EventKind::MessageDelta => {
                let mut frame = read.frame(FrameKind::Part);
                note_usage(&mut frame, read.event.usage, None);
                let choice = self.choice_of(choices, &mut frame);
                let reason = read.event.delta.as_ref().and_then(|delta| delta.stop_reason);
                if reason.is_some() {
                    self.settle_unstopped(choice);
                }
                self.finish(reason, &read.data, &mut frame);
                frame
            }
            EventKind::MessageStop => {
                self.has_stop = true;
                choices.iter_mut().for_each(|choice| self.settle_unstopped(choice));
                read.frame(FrameKind::End)
            }
            EventKind::Ping | EventKind::Other if read.error.is_some() => {
                let error = read.error.clone().unwrap_or_default();
                let friendly = self.friendly.then(|| friendly_event(&read.raw, &error)).flatten();
                return Frame { tag: Some(ERROR), ..refusal(friendly.unwrap_or(read.raw), error) };
            }
            EventKind::Ping => read.frame(FrameKind::Idle),
            EventKind::Other => {
                let mut frame = read.frame(FrameKind::Part);
                self.choice_of(choices, &mut frame);
                frame
            }
        };
        frame.events.extend(read.error.map(|_| ReplyEvent::Error));
        frame
    }

    /// The only choice, which the frame is about.
    fn choice_of<'a>(&mut self, choices: &'a mut Vec<ReplyChoice>, frame: &mut Frame) -> &'a mut ReplyChoice {
        frame.events.push(ReplyEvent::Choice(CHOICE));
        if choices.is_empty() {
            choices.push(ReplyChoice::with_apart_texts(CHOICE, self.form == Form::Streamed));
        }
        &mut choices[0]
    }

    /// Reads the first event of a stream. Mostly its message is empty; it may be whole.
    fn head(&mut self, read: &ReadEvent, choices: &mut Vec<ReplyChoice>) -> Frame {
        self.blocks.begin_message();
        let message = read.event.message.and_then(|message| MessageMembers::read(&read.data, message));
        let Some(message) = message else { return read.frame(FrameKind::Head) };
        let mut frame = read.frame(FrameKind::Head);
        note_usage(&mut frame, message.usage, message.model);
        if message.blocks.len() > MOST_BLOCKS {
            return Frame::new(read.raw.clone(), FrameKind::Unread(Unjudged::ReplyTooLong));
        }
        if message.is_full() {
            frame.kind = FrameKind::Part;
            frame.tag = Some(FILLED_HEAD);
            self.message(&message, &read.data, &mut frame, choices);
        }
        frame.is_doubtful |= message.is_ambiguous || message.has_stray_call;
        if frame.is_doubtful && self.is_strict { ambiguous(read.raw.clone()) } else { frame }
    }

    /// Reads the blocks and the end of a message that came whole.
    fn message(
        &mut self,
        message: &MessageMembers,
        data: &Bytes,
        frame: &mut Frame,
        choices: &mut Vec<ReplyChoice>,
    ) {
        let choice = self.choice_of(choices, frame);
        for span in &message.blocks {
            let at = self.begin_block(None, *span, data, choice, frame);
            self.stop_block(at, choice);
            self.blocks.change(at, |block| block.is_of_head = frame.tag == Some(FILLED_HEAD));
        }
        self.finish(message.stop_reason, data, frame);
    }

    fn finish(&mut self, reason: Option<Str>, data: &[u8], frame: &mut Frame) {
        let Some(reason) = reason else { return };
        let reason = decode_bytes(reason, data);
        self.has_finish = true;
        frame.events.extend((*reason == *b"refusal").then_some(ReplyEvent::OtherContent));
        frame.events.push(ReplyEvent::Finish { is_cut: !ENDED.contains(&&*reason) });
    }

    /// Adds the block at this place of the data, and returns its position. It is whole where it has no index.
    fn begin_block(
        &mut self,
        index: Option<u64>,
        at: Span,
        data: &Bytes,
        choice: &mut ReplyChoice,
        frame: &mut Frame,
    ) -> usize {
        let (mut block, facts) = Block::begin(index, at, data);
        let has_call_in_it = facts.kind != BlockKind::Call && CALLS.are_in(at.of(data));
        frame.is_doubtful |= facts.kind == BlockKind::Unjudgeable || facts.has_two_types || has_call_in_it;
        self.carried.extend(facts.carried());
        if facts.kind == BlockKind::Call {
            let assembled = Assembled {
                id: facts.id,
                name: facts.tool,
                arguments: block.arguments().to_vec(),
                extra: facts.extra,
                ..Assembled::default()
            };
            let argues = !assembled.arguments.is_empty();
            let call =
                ReplyCall { assembled, has_whole_name: true, is_open: Some(true), ..ReplyCall::default() };
            let call = choice.add(call);
            block.call = Some(call);
            frame.events.push(ReplyEvent::Call(CallPiece {
                call: u16::try_from(call).unwrap_or(u16::MAX),
                begins: true,
                argues,
                is_ambiguous: facts.is_ambiguous,
                is_whole: frame.tag.is_some() || self.form == Form::Whole,
                ..CallPiece::default()
            }));
        } else if let Some(text) = facts.text.filter(|_| facts.kind == BlockKind::Text) {
            let is_blank = text.span.of(data).trim_ascii().is_empty();
            let waits = self.markup.is_some() && self.form == Form::Streamed && is_blank;
            let visibility = if waits { Visibility::Waiting } else { Visibility::Shown };
            let number = choice.add_apart_text(visibility);
            block.text = Some(number as usize);
            frame.events.push(ReplyEvent::OfText(number));
            frame.events.extend((!text.span.is_empty()).then_some(ReplyEvent::Text(text.span)));
        }
        let before = self.blocks.all().len().checked_sub(1);
        let at = self.blocks.push(block);
        // Arguments without their end in a block that is followed by another one were not cut.
        if let Some(before) = before.filter(|before| self.blocks.all()[*before].is_stopped) {
            self.complete_call(before, choice);
        }
        at
    }

    /// A block has ended: reports that to its call.
    fn stop_block(&mut self, at: usize, choice: &mut ReplyChoice) {
        self.blocks.change(at, |block| block.is_stopped = true);
        let block = &self.blocks.all()[at];
        let Some(call) = block.call else { return };
        let (is_open, differs) = (block.is_open(), block.has_two_inputs());
        let known = choice.call_mut(call);
        (known.is_open, known.differs) = (Some(is_open), differs);
        if !known.has_new_arguments() && known.assembled.arguments.is_empty() {
            choice.change_call(call, |known| known.arguments = block.arguments().to_vec());
        }
        if !is_open {
            self.complete_call(at, choice);
        }
    }

    fn complete_call(&self, at: usize, choice: &mut ReplyChoice) {
        if let Some(call) = self.blocks.all()[at].call {
            choice.call_mut(call).is_complete = true;
        }
    }

    /// Reads the start of a block, a piece of it or its end.
    fn part(&mut self, read: &ReadEvent, choices: &mut Vec<ReplyChoice>) -> Frame {
        let (event, data) = (&read.event, &read.data);
        let mut frame = read.frame(FrameKind::Part);
        if event.kind == EventKind::BlockStart && self.blocks.all().len() >= MOST_BLOCKS {
            self.has_unread_end = true;
            return Frame::new(read.raw.clone(), FrameKind::Unread(Unjudged::ReplyTooLong));
        }
        let choice = self.choice_of(choices, &mut frame);
        if event.kind == EventKind::BlockStart {
            let Some(at) = event.block else { return frame };
            let at = self.begin_block(event.number(), at, data, choice, &mut frame);
            frame.tag = Some(at as u16);
            return if frame.is_doubtful && self.is_strict { ambiguous(read.raw.clone()) } else { frame };
        }
        let found = self.blocks.find(event.number());
        if self.is_strict && found.is_none_or(|at| is_stray(&self.blocks.all()[at], event)) {
            // Clients take it for a part of another block, or run a block again that is stopped again.
            self.is_changed = true;
            return Frame { kind: FrameKind::Dropped, ..frame };
        }
        let Some(at) = found else { return frame };
        frame.tag = Some(at as u16);
        let (is_late, call) = (self.blocks.all()[at].is_stopped, self.blocks.all()[at].call);
        let argues = match &event.delta {
            Some(delta) => self.add_delta(at, delta, data, choice),
            None => false,
        };
        if event.kind == EventKind::BlockStop {
            self.stop_block(at, choice);
        }
        if let Some(call) = call {
            let piece = event.delta.as_ref().and_then(|delta| delta.partial_json);
            frame.counted_bytes = piece.map_or(0, |piece| piece.span.len()) as u32;
            let call = u16::try_from(call).unwrap_or(u16::MAX);
            frame.events.push(ReplyEvent::Call(CallPiece { call, argues, is_late, ..CallPiece::default() }));
        }
        if let Some(number) = self.blocks.all()[at].text {
            frame.events.push(ReplyEvent::OfText(number as u32));
            settle_visibility(number, read, choice);
        }
        let text = event.delta.as_ref().and_then(|delta| delta.text);
        frame.events.extend(text.map(|text| ReplyEvent::Text(text.span)));
        frame
    }

    /// Adds a delta to a block and to its call; true if it brought arguments.
    fn add_delta(&mut self, at: usize, delta: &Delta, data: &[u8], choice: &mut ReplyChoice) -> bool {
        let had_deltas = self.blocks.all()[at].has_deltas();
        let argues = self.blocks.change(at, |block| block.add(delta, data));
        let block = &self.blocks.all()[at];
        let Some(call) = block.call.filter(|_| block.has_deltas()) else { return argues };
        let known = choice.call_mut(call);
        if block.is_stopped {
            known.is_open = Some(block.is_open());
        }
        if !known.has_new_arguments() {
            let piece = delta.partial_json.map_or(&b""[..], |piece| piece.raw(data));
            choice.change_call(call, |known| match had_deltas {
                true => known.arguments.extend_from_slice(piece),
                false => known.arguments = block.arguments().to_vec(),
            });
        }
        argues
    }

    /// Nothing more comes of blocks that were not stopped. Clients run such a call if its arguments are whole, those in its start
    /// or those of its deltas.
    fn settle_unstopped(&self, choice: &mut ReplyChoice) {
        for block in self.blocks.all().iter().filter(|block| !block.is_stopped) {
            let Some(known) = block.call.map(|call| choice.call_mut(call)) else { continue };
            known.is_open = Some(!block.has_whole_arguments());
            known.differs |= block.has_two_inputs();
        }
    }

    /// The reply has ended: what has come of its calls is all of them.
    pub(super) fn end_calls(&mut self, choices: &mut [ReplyChoice]) {
        let is_cut = self.is_cut();
        if std::mem::replace(&mut self.are_calls_ended, true) {
            return;
        }
        let Some(choice) = choices.first_mut() else { return };
        self.settle_unstopped(choice);
        for call in self.blocks.all().iter().filter_map(|block| block.call) {
            let known = choice.call_mut(call);
            known.is_cut_off = is_cut && known.is_open == Some(true);
        }
    }

    /// Reads a whole reply; `None` if its events are read in its place.
    pub(super) fn body(
        &mut self,
        form: Form,
        status: u16,
        raw: Bytes,
        choices: &mut Vec<ReplyChoice>,
    ) -> Option<Frame> {
        let is_success = (200..300).contains(&status);
        let raw = if form == Form::Streamed { whole_of(&raw).unwrap_or(raw) } else { raw };
        let (mut raw, mut message) = (raw.clone(), message_of(&raw));
        let has_blocks = message.as_ref().is_some_and(|(_, message)| !message.blocks.is_empty());
        let may_be_error = message.as_ref().is_none_or(|(_, message)| message.may_be_error);
        let error = match is_success {
            true if !may_be_error => None,
            true => parse_in_200(&raw),
            false => Some(parse(&raw).unwrap_or_default()),
        };
        if let Some(error) = error.filter(|_| !is_success || !has_blocks) {
            return Some(refusal(self.error_bytes(status, raw, &error), error));
        }
        let is_crowded = message.as_ref().is_some_and(|(_, message)| message.blocks.len() > MOST_BLOCKS);
        if let Some(markup) = self.markup.as_mut().filter(|_| self.form == Form::Whole && !is_crowded) {
            let clean = markup.body(raw.clone());
            if clean != raw {
                (message, self.is_changed) = (message_of(&clean), true);
                raw = clean;
            }
        }
        let Some((data, message)) = message.filter(|_| !is_crowded) else {
            self.has_unread_end = true;
            let why = if is_crowded { Unjudged::ReplyTooLong } else { Unjudged::NotJson };
            return Some(Frame::new(raw, FrameKind::Unread(why)));
        };
        if self.form == Form::Streamed {
            let Some(events) = stream_of(&data) else {
                self.has_unread_end = true;
                return Some(Frame::new(raw, FrameKind::Unread(Unjudged::NotJson)));
            };
            self.unread.extend(events.into_iter().map(Unread::new));
            return None;
        }
        self.messages = self.messages.wrapping_add(1);
        self.stop_reason = message.stop_reason.map(Str::quoted);
        let mut frame = Frame::new(raw.clone(), FrameKind::Part);
        frame.number = self.messages;
        frame.payload = Payload::Span(Span::new(raw.len() - data.len(), raw.len()));
        note_usage(&mut frame, message.usage, message.model);
        self.message(&message, &data, &mut frame, choices);
        frame.is_doubtful |= message.has_stray_call;
        frame.is_ambiguous = message.is_ambiguous;
        if frame.is_doubtful && self.is_strict { Some(ambiguous(raw)) } else { Some(frame) }
    }

    /// A whole error as the client gets it.
    fn error_bytes(&self, status: u16, raw: Bytes, error: &UpstreamError) -> Bytes {
        if self.form == Form::Whole {
            return raw;
        }
        let event = error_event(status, &raw);
        let is_for_people = self.friendly && (200..300).contains(&status);
        is_for_people.then(|| friendly_event(&event, error)).flatten().unwrap_or(event)
    }
}

/// Whether the client sees the text of this number: where calls that the model wrote as text are removed, it waits until
/// something remains of it.
fn settle_visibility(number: usize, read: &ReadEvent, choice: &mut ReplyChoice) {
    if choice.visibility(number) != Visibility::Waiting {
        return;
    }
    let text = read.event.delta.as_ref().and_then(|delta| delta.text);
    if read.event.kind == EventKind::BlockStop {
        let visibility = if read.is_emptied { Visibility::Hidden } else { Visibility::Shown };
        choice.set_visibility(number, visibility);
    } else if text.is_some_and(|text| !decode(text, &read.data).trim().is_empty()) {
        choice.set_visibility(number, Visibility::Shown);
    }
}

/// The text of a body without a byte order mark, and the members of the message that it is; `None` if it is no object.
fn message_of(body: &Bytes) -> Option<(Bytes, MessageMembers)> {
    let mark = if body.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
    let data = body.slice(mark..);
    let message = MessageMembers::read(&data, Span::new(0, data.len()))?;
    Some((data, message))
}

/// A frame in which clients may find other calls than toolrein.
fn ambiguous(raw: Bytes) -> Frame {
    Frame::new(raw, FrameKind::Unread(Unjudged::Ambiguous))
}

/// The frame of a reply that is the upstream's error.
fn refusal(raw: Bytes, error: UpstreamError) -> Frame {
    Frame::new(raw, FrameKind::Error { error: Box::new(error), may_be_reply: false })
}

/// Whether some client finds a call in lines of an event that toolrein reads otherwise.
fn hides_call(raw: &[u8], fields: &Fields<'_>) -> bool {
    let parse = |data: &[u8]| Event::parse(fields.name, data);
    let may_call =
        |data: &[u8]| parse(data).is_ok_and(|event| event.block.is_some() || event.delta.is_some());
    hides_lines(raw, fields, |data| parse(data).is_ok(), may_call)
}

/// Whether clients take an event for a part of another block than this one, or run the block again.
fn is_stray(block: &Block, event: &Event) -> bool {
    let is_known = block.call.is_some() || block.text.is_some();
    let piece = event.delta.as_ref().map(|delta| delta.partial_json.is_some());
    block.is_stopped || (is_known && piece.is_some_and(|argues| argues != block.call.is_some()))
}

/// Notes the usage that an event reports.
fn note_usage(frame: &mut Frame, usage: Option<Span>, model: Option<Span>) {
    if let Some(report) = usage {
        frame.usage = Some(Box::new(FrameUsage { reports: smallvec![report], model, is_alone: false }));
    }
}
