//! The codec of replies of chat completions: chunks of a stream and whole replies to frames and calls, and frames with
//! decisions to the client's bytes.

mod calls;
mod edit;
mod ended;
mod markup;
mod numbering;
mod other_form;
mod reader;

pub use other_form::{error_data, whole_of};

use self::calls::ChoiceReader;
use self::edit::{Context, Continuation, Edited, EditedFrame, ShownPart, edit, edited_choice};
use self::markup::clean;
use self::numbering::ShownCalls;
use self::reader::{Chunk, Event, Kind, Reader, whole_event};
use super::completion::{self, Choice, Reply};
use super::hidden_exchange::{Blocked, write_hidden_exchange};
use crate::codec::{
    CallPiece, Frame, FrameKind, FrameUsage, IncompleteEvent, KnownIds, LastEvent, NextReply, Payload,
    ReplyCodec, ReplyEvent, ReplyEvents, WriteContext,
};
use crate::error::friendly::friendly_event;
use crate::error::own_error;
use crate::lines::one_line;
use crate::markup::TextCleaner;
use crate::reply::{Form, Limits, Options, Unjudged};
use crate::reply_choice::{ReplyChoice, position_of};
use crate::text_frame::{TextFrame, Values};
use bytes::Bytes;
use serde_json::Value;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use wire::body::Span;
use wire::json::quote;
use wire::sse::write_event;

/// The status of an event that toolrein reads again after an edit.
const OK: u16 = 200;

/// See the file's head.
pub struct ChatReplies {
    /// The form of the client's reply.
    form: Form,
    limits: Limits,
    is_strict: bool,
    observes: bool,
    /// People read texts of toolrein's about the upstream's errors.
    friendly: bool,
    reader: Reader,
    /// Removes call markup from a final answer.
    markup: Option<TextCleaner<u32>>,
    /// An event that waits until held text was read.
    next: Option<Event>,
    /// Held text that is read as events of the model.
    texts: Vec<(u32, String)>,
    /// The upstream's reply has ended.
    has_ended: bool,
    /// The choice that the present reply goes on with.
    continues: Option<u32>,
    choices: Vec<ChoiceReader>,
    shown: Vec<ShownCalls>,
    /// The values of the first reply that all later ones must repeat.
    head: Option<Continuation>,
    /// How many frames were read.
    frames: u32,
    /// The frame that was read last, parsed.
    parsed: Option<(u32, Reply)>,
    /// That frame, where it says a text and no more.
    text: TextFrame,
    cut_usage: bool,
    request_id: String,
    is_changed: bool,
}

impl ChatReplies {
    /// A codec of replies that the client gets in this form.
    pub fn new(form: Form, limits: Limits) -> Self {
        Self {
            form,
            limits,
            is_strict: false,
            observes: false,
            friendly: false,
            reader: Reader::new(form, limits, false),
            markup: None,
            next: None,
            texts: Vec::new(),
            has_ended: false,
            continues: None,
            choices: Vec::new(),
            shown: Vec::new(),
            head: None,
            frames: 0,
            parsed: None,
            text: TextFrame::default(),
            cut_usage: false,
            request_id: String::new(),
            is_changed: false,
        }
    }

    /// The next event, after held text that goes out before it.
    fn next_event(&mut self, unjudged: bool) -> Option<Event> {
        if self.texts.is_empty() && self.next.is_none() {
            match self.reader.next(unjudged) {
                Some(event) if self.markup.is_none() => return Some(event),
                Some(event) => self.next = Some(self.without_markup(event)),
                None if std::mem::take(&mut self.has_ended) => self.release_held_text(),
                None => return None,
            }
        }
        if self.texts.is_empty() {
            return self.next.take();
        }
        let (index, text) = self.texts.remove(0);
        let head = self.head.clone().unwrap_or_default();
        let raw = head.event(index, &format!("{{\"content\":{}}}", quote(&text)), "null");
        Some(self.reader.event(raw))
    }

    /// Held text that might have become markup is read next.
    fn release_held_text(&mut self) {
        self.texts.extend(self.markup.as_mut().map(|markup| markup.end(|_| true)).unwrap_or_default());
    }

    /// Removes call markup from the event, if the model was asked for its final answer.
    fn without_markup(&mut self, event: Event) -> Event {
        if matches!(event.kind, Kind::Done) {
            self.release_held_text();
        }
        let Some(markup) = &mut self.markup else { return event };
        let Kind::Chunk(Chunk { data, place, reply, .. }) = &event.kind else { return event };
        let (cleaned, before) = clean(markup, data, reply, self.form == Form::Whole);
        let raw = (cleaned != *data).then(|| framed(&event.raw, *place, cleaned).concat());
        self.texts.extend(before);
        match (raw, self.form) {
            (None, _) => event,
            (Some(raw), Form::Streamed) => self.reader.event(raw.into()),
            (Some(raw), Form::Whole) => whole_event(raw.into(), OK),
        }
    }

    /// The frame of a chunk, whose calls are added to `choices`.
    fn chunk(&mut self, raw: Bytes, chunk: Chunk, choices: &mut Vec<ReplyChoice>) -> Frame {
        let Chunk { data, place, mut reply, shows_error } = chunk;
        if self.form == Form::Streamed && reply.ambiguous {
            return Frame::new(raw, FrameKind::Unread(Unjudged::Ambiguous));
        }
        if self.form == Form::Whole && !self.prepare_body(&mut reply, choices) {
            return Frame::new(raw, FrameKind::Unread(Unjudged::NotJson));
        }
        if self.head.is_none() && !reply.choices.is_empty() && self.form == Form::Streamed {
            self.head = Some(Continuation::of(&reply, &data));
        }
        let mut events = ReplyEvents::new();
        let indexes = self.indexes_of(&reply.choices);
        for (at, (choice, index)) in reply.choices.iter().zip(indexes).enumerate() {
            let known = position_of(choices, index, self.form);
            let reader = find_or_add(&mut self.choices, index, |known| known.index, ChoiceReader::new);
            reader.read(&mut choices[known], (at, choice), &data, self.form, &mut events);
        }
        if shows_error {
            events.push(ReplyEvent::Error);
        }
        let mut frame = Frame::new(raw, FrameKind::Part);
        if events.iter().any(|event| matches!(event, ReplyEvent::Call(_))) {
            let bytes = |choice: &Choice| {
                choice.calls().map(|call| call.arguments.bytes()).sum::<usize>()
                    + choice.delta.content.text_bytes()
            };
            let bytes: usize = reply.choices.iter().map(bytes).sum();
            frame.counted_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        }
        frame.usage = usage_of(&reply, &data);
        frame.events = events;
        frame.is_ambiguous = reply.ambiguous;
        frame.payload = match place {
            Some(place) => Payload::Span(place),
            None => Payload::Joined(Box::new(data.clone())),
        };
        frame.number = self.next_number();
        self.keep_text(&frame, &reply, &data);
        self.parsed = Some((frame.number, reply));
        frame
    }

    fn next_number(&mut self) -> u32 {
        self.frames = self.frames.wrapping_add(1);
        self.frames
    }

    /// Keeps a frame of a stream, if the next one may be read by it.
    fn keep_text(&mut self, frame: &Frame, reply: &Reply, data: &[u8]) {
        let [choice] = &*reply.choices else { return };
        let reader = self.choices.iter().find(|reader| frame.parts().any(|part| part.choice == reader.index));
        let is_streamed = self.form == Form::Streamed && self.markup.is_none();
        if is_streamed && reader.is_some_and(|reader| reader.notes_text_alone(&choice.delta, data)) {
            // OpenAI pads each event with a string of random length.
            let padding = reply.member(data, b"obfuscation").map(|member| member.value);
            let inside = |value: Span| Span { start: value.start + 1, end: value.end - 1 };
            self.text.keep(frame, padding.filter(|value| value.of(data).starts_with(b"\"")).map(inside));
        }
    }

    /// Takes the next event, where it differs from the one before in its text alone, with the values in which it may differ.
    fn take_text(&mut self) -> Option<(Bytes, Values)> {
        if !self.text.is_known() {
            return None;
        }
        let (raw, values) = match self.text.fit(self.reader.beginning()) {
            Some((length, values)) => (self.reader.take_beginning(length)?, values),
            // The pieces in which the stream comes may have cut it.
            None => {
                let (_, values) = self.text.fit(self.reader.unread_event()?)?;
                (self.reader.take_event()?, values)
            }
        };
        let choice = self.text.choice();
        self.choices
            .iter_mut()
            .filter(|reader| Some(reader.index) == choice)
            .for_each(ChoiceReader::pass_text);
        Some((raw, values))
    }

    /// The next frame, where it differs from the one before in its text alone.
    fn next_text(&mut self) -> Option<Frame> {
        let (raw, values) = self.take_text()?;
        let mut frame = self.text.with(raw, &values);
        frame.number = self.next_number();
        frame.is_later = self.continues.is_some();
        Some(frame)
    }

    /// Adds the choices of a whole reply; false if it is not the reply that the upstream was asked for.
    fn prepare_body(&mut self, reply: &mut Reply, choices: &mut Vec<ReplyChoice>) -> bool {
        if self.continues.is_some() {
            reply.choices.truncate(1);
            return !reply.choices.is_empty();
        }
        let indexes = own_indexes(&reply.choices).into_iter();
        *choices = indexes.map(|index| ReplyChoice::new(index, false)).collect();
        true
    }

    /// The client's index of each choice of a frame: a further reply goes on with one choice only.
    fn indexes_of(&self, choices: &[Choice]) -> Vec<u32> {
        match (self.continues, self.form) {
            (Some(index), _) => choices.iter().map(|_| index).collect(),
            (None, Form::Whole) => own_indexes(choices),
            (None, Form::Streamed) => choices.iter().map(|choice| choice.index).collect(),
        }
    }

    /// What was read of a frame: it is parsed again where another one was read since.
    fn parsed(&mut self, frame: &Frame, data: &[u8]) -> Option<Reply> {
        if let Some((_, reply)) = self.parsed.take_if(|(number, _)| *number == frame.number) {
            return Some(reply);
        }
        let form = if self.form == Form::Whole { completion::Form::Whole } else { completion::Form::Chunk };
        let mut reply = Reply::read(data, form).ok()?;
        if self.form == Form::Whole && frame.is_later {
            reply.choices.truncate(1);
        }
        Some(reply)
    }

    fn shown_of(&mut self, index: u32) -> &mut ShownCalls {
        find_or_add(&mut self.shown, index, |shown| shown.index, ShownCalls::new)
    }

    /// Gives the calls of a frame, which goes out next, their indexes in the client's view; true if some are not the
    /// upstream's.
    fn number_calls(&mut self, frame: &Frame, choices: &[ReplyChoice]) -> bool {
        let mut renumbers = false;
        for (index, piece) in frame.calls() {
            if let Some(choice) = choices.iter().find(|choice| choice.index == index) {
                let shown = self.shown_of(index);
                shown.number_calls(choice, piece.call as usize + 1);
                renumbers |= shown.renumbers();
            }
        }
        renumbers
    }

    /// Edits a frame, with `replaced` in place of choices of its own.
    fn edited(
        &mut self,
        frame: &Frame,
        choices: &[ReplyChoice],
        context: &WriteContext,
        replaced: &[(u32, Bytes)],
    ) -> Edited {
        let data = data_of(frame);
        let Some(reply) = self.parsed(frame, &data) else { return Edited::AsItCame };
        let indexes: Vec<u32> = frame.parts().map(|part| part.choice).collect();
        for index in &indexes {
            self.shown_of(*index);
        }
        let parts: Option<Vec<ShownPart<'_>>> =
            indexes.iter().map(|index| self.part_of(*index, choices)).collect();
        let Some(parts) = parts else { return Edited::AsItCame };
        let calls: Vec<CallPiece> = frame.calls().map(|(_, piece)| *piece).collect();
        let edited = EditedFrame {
            data: &data,
            reply: &reply,
            is_in_one_piece: matches!(frame.payload, Payload::Span(_)),
            is_later: frame.is_later,
            calls: &calls,
        };
        edit(
            &edited,
            &Context {
                form: self.form,
                parts: &parts,
                head: self.head.as_ref(),
                replaced,
                hold_usage: context.hold_usage,
                cut_usage: self.cut_usage,
                usage: context.usage.as_ref(),
            },
        )
    }

    fn part_of<'a>(&'a self, index: u32, choices: &'a [ReplyChoice]) -> Option<ShownPart<'a>> {
        let choice = choices.iter().find(|choice| choice.index == index)?;
        let shown = self.shown.iter().find(|shown| shown.index == index)?;
        Some(ShownPart { choice, shown })
    }

    /// The choice object of a later whole reply, edited for the first one, with its index.
    fn replaced_choice(&mut self, frame: &Frame, choices: &[ReplyChoice]) -> Option<(u32, Bytes)> {
        let (index, data) = (frame.parts().next()?.choice, data_of(frame));
        let reply = self.parsed(frame, &data)?;
        let calls: Vec<CallPiece> = frame.calls().map(|(_, piece)| *piece).collect();
        let edited =
            EditedFrame { data: &data, reply: &reply, is_in_one_piece: true, is_later: true, calls: &calls };
        Some((index, edited_choice(&edited, self.part_of(index, choices)?)?))
    }

    fn write(&mut self, frame: &Frame, edited: Edited, out: &mut Vec<Bytes>) {
        self.is_changed |= edited != Edited::AsItCame;
        let place = if let Payload::Span(place) = frame.payload { Some(place) } else { None };
        match edited {
            Edited::AsItCame => out.push(frame.raw.clone()),
            Edited::Changed(data) => {
                out.extend(framed(&frame.raw, place, data).into_iter().filter(|piece| !piece.is_empty()));
            }
            Edited::Gone => {}
        }
    }
}

impl ReplyCodec for ChatReplies {
    fn begin(&mut self, reply: NextReply) {
        let NextReply { form, status, continues, is_strict, observes, markup, .. } = reply;
        self.observes = observes;
        if is_strict != self.is_strict {
            self.is_strict = is_strict;
            self.reader = Reader::new(self.form, self.limits, is_strict);
        }
        self.reader.begin(form, status);
        self.markup = markup.map(TextCleaner::new);
        self.text.forget();
        (self.next, self.has_ended, self.continues) = (None, false, continues);
        self.texts.clear();
        match continues {
            Some(index) => {
                self.choices.retain(|choice| choice.index != index);
                self.shown
                    .iter_mut()
                    .filter(|shown| shown.index == index)
                    .for_each(ShownCalls::begin_next_reply);
            }
            None => self.choices.clear(),
        }
    }

    fn turn_to(&mut self, form: Form) {
        self.form = form;
        self.text.forget();
        self.reader = Reader::new(form, self.limits, self.is_strict);
    }

    fn push(&mut self, bytes: Bytes) {
        self.reader.push(bytes);
    }

    fn next(&mut self, choices: &mut Vec<ReplyChoice>, unjudged: bool) -> Option<Frame> {
        if !unjudged && let Some(frame) = self.next_text() {
            return Some(frame);
        }
        let Event { raw, kind } = self.next_event(unjudged)?;
        if unjudged {
            return Some(Frame::idle(raw));
        }
        self.text.forget();
        let mut frame = match kind {
            Kind::Chunk(chunk) => self.chunk(raw, chunk, choices),
            Kind::Error { error, may_be_reply } => {
                let is_event = self.friendly && self.form == Form::Streamed;
                let raw = is_event.then(|| friendly_event(&raw, &error)).flatten().unwrap_or(raw);
                Frame::new(raw, FrameKind::Error { error: Box::new(error), may_be_reply })
            }
            Kind::Done => Frame::new(raw, FrameKind::End),
            Kind::Opaque => Frame::idle(raw),
            Kind::Unread(why) => Frame::new(raw, FrameKind::Unread(why)),
        };
        frame.is_later = self.continues.is_some();
        Some(frame)
    }

    fn pass_text(&mut self, choices: &mut [ReplyChoice], out: &mut Vec<Bytes>) -> bool {
        let Some(choice) = self.text.shown_in(choices) else { return false };
        let Some((raw, values)) = self.take_text() else { return false };
        self.text.note_passed(&raw, &values, choice);
        out.push(raw);
        true
    }

    fn is_drained(&self) -> bool {
        self.reader.is_drained() && self.next.is_none() && self.texts.is_empty() && !self.has_ended
    }

    fn end(&mut self) {
        self.reader.finish();
        self.has_ended = true;
    }

    fn take_open(&mut self) -> bool {
        self.reader.take_open()
    }

    fn at_boundary(&self) -> bool {
        self.reader.at_boundary()
    }

    fn is_body(&self) -> bool {
        self.reader.is_body()
    }

    fn last_event(&self) -> Option<Result<LastEvent, IncompleteEvent>> {
        let rest = self.reader.rest()?;
        Some(ended::last_event(rest, |choices| self.indexes_of(choices)))
    }

    fn unread_bytes(&self) -> usize {
        self.reader.bytes()
    }

    fn known_bytes(&self) -> usize {
        self.choices.iter().map(ChoiceReader::size).sum()
    }

    fn hidden_exchange(&self, choice: &ReplyChoice, _: &KnownIds) -> Option<Bytes> {
        let blocked: Vec<Blocked> = choice
            .calls()
            .iter()
            .filter_map(|call| {
                let result = call.decision.as_ref()?.hidden_result(choice.question.as_ref())?;
                Some(Blocked { call: call.accepted.of(&call.assembled), result })
            })
            .collect();
        if blocked.is_empty() {
            return None;
        }
        let read = self.choices.iter().find(|read| read.index == choice.index);
        let has_content = read.is_some_and(|read| read.has_content);
        let carried = read.map_or(&[][..], |read| &read.carried);
        Some(write_hidden_exchange(has_content, carried, &blocked))
    }

    fn forward(
        &mut self,
        frame: &Frame,
        choices: &[ReplyChoice],
        context: &WriteContext,
        out: &mut Vec<Bytes>,
    ) {
        let has_calls = frame.events.iter().any(|event| matches!(event, ReplyEvent::Call(_)));
        let renumbers = has_calls && self.number_calls(frame, choices) && !self.observes;
        if (context.acts || renumbers) && matches!(frame.kind, FrameKind::Part) {
            let edited = self.edited(frame, choices, context, &[]);
            self.write(frame, edited, out);
        } else {
            out.push(frame.raw.clone());
        }
        let begins = |events: &[ReplyEvent]| events.iter().any(|event| matches!(event, ReplyEvent::Begin));
        if begins(&frame.events) {
            let parts = frame.parts().filter(|part| begins(part.events));
            parts.for_each(|part| self.shown_of(part.choice).has_role = true);
        }
    }

    fn forward_whole(
        &mut self,
        frames: &[Frame],
        choices: &[ReplyChoice],
        context: &WriteContext,
        out: &mut Vec<Bytes>,
    ) {
        let Some((first, later)) = frames.split_first() else { return };
        if !context.acts {
            return out.push(first.raw.clone());
        }
        for choice in choices {
            let shown = self.shown_of(choice.index);
            shown.begin_next_reply();
            shown.number_calls(choice, choice.calls().len());
        }
        let replaced: Vec<(u32, Bytes)> =
            later.iter().filter_map(|frame| self.replaced_choice(frame, choices)).collect();
        let edited = self.edited(first, choices, context, &replaced);
        self.write(first, edited, out);
    }

    fn write_text(&mut self, choice: u32, text: &str, _before: bool, out: &mut Vec<Bytes>) {
        let Some(head) = self.head.clone() else { return };
        let shown = self.shown_of(choice);
        let role = if std::mem::replace(&mut shown.has_role, true) { "" } else { r#""role":"assistant","# };
        out.push(head.event(choice, &format!("{{{role}\"content\":{}}}", quote(text)), "null"));
        self.is_changed = true;
    }

    fn write_finish(&mut self, choice: u32, has_calls: bool, out: &mut Vec<Bytes>) {
        if let Some(head) = &self.head {
            let reason = if has_calls { "\"tool_calls\"" } else { "\"stop\"" };
            out.push(head.event(choice, "{}", reason));
        }
    }

    fn write_usage(&mut self, usage: &Value, out: &mut Vec<Bytes>) {
        out.extend(self.head.as_ref().map(|head| head.usage(usage)));
    }

    fn write_report(&mut self, report: &str, out: &mut Vec<Bytes>) {
        out.extend(self.head.as_ref().map(|head| head.report(report)));
    }

    fn set_options(&mut self, options: &Options) {
        (self.cut_usage, self.friendly) = (options.cut_usage, options.friendly);
        self.request_id.clone_from(&options.request_id);
    }

    fn is_changed(&self) -> bool {
        self.is_changed
    }

    fn error_event(&mut self, status: u16, body: &[u8]) -> Bytes {
        write_event(&error_data(status, body))
    }

    fn own_error_event(&mut self, message: &str, code: &str) -> Bytes {
        write_event(own_error(message, code, &self.request_id, []).as_bytes())
    }
}

/// The usage that a frame reports.
fn usage_of(reply: &Reply, data: &[u8]) -> Option<Box<FrameUsage>> {
    let reports: SmallVec<[Span; 1]> = reply.reported_usages().collect();
    let is_alone = reply.usage.is_some() && reply.choices.is_empty();
    let model = reply.member(data, b"model").map(|member| member.value);
    (!reports.is_empty()).then(|| Box::new(FrameUsage { reports, model, is_alone }))
}

fn find_or_add<T>(
    all: &mut Vec<T>,
    index: u32,
    index_of: impl Fn(&T) -> u32,
    new: impl FnOnce(u32) -> T,
) -> &mut T {
    let at = all.iter().position(|one| index_of(one) == index).unwrap_or_else(|| {
        // Most replies have one choice, which is kept for as long as a stream lasts.
        all.reserve_exact(usize::from(all.is_empty()));
        all.push(new(index));
        all.len() - 1
    });
    &mut all[at]
}

/// The JSON of a frame.
fn data_of(frame: &Frame) -> Bytes {
    match &frame.payload {
        Payload::Span(span) => frame.raw.slice(span.range()),
        Payload::Joined(joined) => Bytes::clone(joined),
        Payload::None => Bytes::new(),
    }
}

/// The index of each choice: its own, or, if an earlier one has the same, one that is not used. Otherwise a re-ask for
/// one of them would be taken for the other, again and again.
fn own_indexes(choices: &[Choice]) -> Vec<u32> {
    if let [only] = choices {
        return vec![only.index];
    }
    let said: BTreeSet<u32> = choices.iter().map(|choice| choice.index).collect();
    let mut free = (0..).filter(|index| !said.contains(index));
    let mut seen = BTreeSet::new();
    let own = |choice: &Choice| {
        if seen.insert(choice.index) { choice.index } else { free.next().unwrap_or(choice.index) }
    };
    choices.iter().map(own).collect()
}

/// An event with its data replaced; a new event if its data is in several lines.
fn framed(raw: &Bytes, place: Option<Span>, data: Bytes) -> [Bytes; 3] {
    match place {
        Some(place) => {
            let place = place.range();
            [raw.slice(..place.start), data, raw.slice(place.end..)]
        }
        None => [Bytes::new(), write_event(&one_line(&data)), Bytes::new()],
    }
}
