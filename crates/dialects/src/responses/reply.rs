//! The codec of replies of the Responses API: events of a stream and whole replies to frames and calls, and frames with
//! decisions to the client's bytes. A whole reply is its last event alone.

pub mod convert;
mod event;
mod hidden;
mod items;
mod kept;
mod last;
mod markup;
mod owner;
mod read;
mod unread;
mod writer;
pub mod written;

use self::event::{Event, EventNumbers, Index};
use self::hidden::{elements, results};
use self::items::OutItem;
use self::kept::{ContinuableReplies, last_of_each_kind};
use self::last::{HeadMembers, Last};
use self::markup::{Cleaner, no_calls_with_a_list};
use self::read::Unread;
use self::writer::Numbers;
use self::written::{call_events, message, message_events};
use super::OWN_ID;
use super::item::{ItemKind, parse_item};
use super::rounds::write;
use crate::codec::{
    Frame, FrameKind, IncompleteEvent, KnownIds, LastEvent, NextReply, Payload, ReplyCodec, WAITS,
    WriteContext,
};
use crate::error::{UpstreamError, parse, parse_in_200};
use crate::markup::ToolNames;
use crate::reply::{Form, Limits, Options, Unjudged};
use crate::reply_choice::ReplyChoice;
use crate::reply_input::{NextInput, ReplyInput};
use crate::text_frame::TextFrame;
use crate::variant::PlannedRequest;
use bytes::Bytes;
use model::message::Content;
use model::plan::decision::{Decision, dropped_result};
use serde_json::{Value, json};
use wire::body::Scanner;
use wire::json::decode;
use wire::sse::{Piece, parse_fields};

/// See the file's head.
pub struct ResponsesReplies {
    /// The form of the client's reply.
    form: Form,
    is_strict: bool,
    observes: bool,
    hosts_shell: bool,
    /// People read texts of toolrein's about the upstream's errors.
    friendly: bool,
    request_id: String,
    /// What the last event reports, as JSON.
    report: Option<String>,
    input: ReplyInput,
    /// Events that are read next, the next one last.
    unread: Vec<Unread>,
    /// Held texts that are read next, the next one last.
    texts: Vec<(Bytes, Event, Bytes)>,
    /// The choice that the present reply goes on with.
    continues: Option<u32>,
    /// Something of the present reply has come that says anything.
    has_begun: bool,
    /// The client has the first events of an earlier reply.
    has_head: bool,
    /// The items of the present reply, in the order in which they began.
    items: Vec<OutItem>,
    /// The last event of the present reply, or the whole reply, once it has come.
    last: Option<Last>,
    /// The last event may be in what could not be read.
    has_unread_end: bool,
    /// What has come of each call was taken at the end of the reply.
    are_calls_ended: bool,
    /// The client has the last event.
    is_end_given: bool,
    /// The id of the present reply.
    reply_id: Option<String>,
    /// The items of earlier replies that the client has, as JSON.
    earlier: Vec<Bytes>,
    /// Items of toolrein's in the present reply, before those of the upstream and after them.
    own_before: Vec<Bytes>,
    own_after: Vec<Bytes>,
    numbers: Numbers,
    /// The members of the first reply that later ones repeat, as written.
    head: HeadMembers,
    /// The `response.in_progress` that the client has: the heartbeat repeats it.
    in_progress: Option<Bytes>,
    kept: ContinuableReplies,
    carried: Vec<&'static str>,
    /// Removes call markup from a final answer.
    markup: Option<Cleaner>,
    /// The tools whose calls the model may write, where a server may have stopped reading calls.
    tools: Option<ToolNames>,
    /// How many frames were read.
    frames: u32,
    /// The numbers of the event of the frame that was read last.
    last_numbers: Option<(u32, EventNumbers)>,
    /// That frame and these numbers, where it says a text and no more.
    text: TextFrame,
    text_numbers: EventNumbers,
    is_changed: bool,
}

impl ResponsesReplies {
    /// A codec of replies that the client gets in this form.
    pub fn new(form: Form, limits: Limits) -> Self {
        Self {
            form,
            is_strict: false,
            observes: false,
            hosts_shell: false,
            friendly: false,
            request_id: String::new(),
            report: None,
            input: ReplyInput::new(limits),
            unread: Vec::new(),
            texts: Vec::new(),
            continues: None,
            has_begun: false,
            has_head: false,
            items: Vec::new(),
            last: None,
            has_unread_end: false,
            are_calls_ended: false,
            is_end_given: false,
            reply_id: None,
            earlier: Vec::new(),
            own_before: Vec::new(),
            own_after: Vec::new(),
            numbers: Numbers::default(),
            head: HeadMembers::new(),
            in_progress: None,
            kept: ContinuableReplies::default(),
            carried: Vec::new(),
            markup: None,
            tools: None,
            frames: 0,
            last_numbers: None,
            text: TextFrame::default(),
            text_numbers: EventNumbers::default(),
            is_changed: false,
        }
    }

    /// Whether this is not the first reply.
    fn is_later(&self) -> bool {
        self.continues.is_some()
    }

    /// Reads a whole reply.
    fn body(&mut self, form: Form, status: u16, raw: Bytes, choices: &mut Vec<ReplyChoice>) -> Option<Frame> {
        let is_success = (200..300).contains(&status);
        let whole = if form == Form::Streamed { convert::whole_of(&raw) } else { Some(raw.clone()) };
        let whole = whole.map(|whole| self.without_markup_in_body(whole));
        let last = whole.as_ref().and_then(Last::of_body);
        let has_calls = last.as_ref().is_some_and(Last::has_calls);
        let is_plain = form == Form::Whole && last.as_ref().is_some_and(|last| !last.may_be_error());
        let error = match is_success {
            true if is_plain => None,
            true => parse_in_200(&raw),
            false => Some(parse(&raw).unwrap_or_default()),
        };
        if let Some(error) = error.filter(|_| !has_calls || !is_success) {
            return Some(Self::refusal(self.error_bytes(status, raw, &error), error));
        }
        if is_success && last.as_ref().is_some_and(|last| self.lost_calls(last)) {
            return Some(Self::refusal(raw, no_calls_with_a_list()));
        }
        self.has_begun = true;
        let Some(last) = last else {
            self.has_unread_end = true;
            return Some(Frame::new(raw, FrameKind::Unread(Unjudged::NotJson)));
        };
        if self.form == Form::Whole {
            return Some(self.take_last(last, choices));
        }
        let Some(events) = convert::stream_of(&last) else {
            return Some(Frame::new(raw, FrameKind::Unread(Unjudged::NotJson)));
        };
        self.unread.extend(events.into_iter().rev().map(Unread::Event));
        None
    }

    /// The frame of a reply that is the upstream's error.
    fn refusal(raw: Bytes, error: UpstreamError) -> Frame {
        Frame::new(raw, FrameKind::Error { error: Box::new(error), may_be_reply: false })
    }

    /// The client's index of the item.
    fn shown_as(&mut self, at: usize) -> u64 {
        let item = &mut self.items[at];
        *item.shown_as.get_or_insert_with(|| self.numbers.begin_item(item.index.and_then(Index::number)))
    }

    /// Writes a call once, instead of its events.
    fn write_call(&mut self, at: usize, choice: &ReplyChoice, out: &mut Vec<Bytes>) {
        self.numbers.rewrite();
        if std::mem::replace(&mut self.items[at].written, true) {
            return;
        }
        let index = self.shown_as(at);
        let Some((kind, call)) = self.items[at].written_call(choice) else { return };
        for event in call_events(kind, &call, index) {
            let event = self.own_event(event);
            out.push(event);
        }
    }

    /// The numbers of a frame's event: it is parsed again where another one was read since.
    fn numbers_of(&self, frame: &Frame) -> Option<EventNumbers> {
        match self.last_numbers {
            Some((number, known)) if number == frame.number => Some(known),
            _ => Some(Event::parse(frame.payload()).ok()?.numbers()),
        }
    }

    /// An error event, and the event that ends the response as failed, under the id that the client knows.
    fn failed(&mut self, error: &[u8]) -> Bytes {
        let data = parse_fields(error).data.into_owned();
        let said: Value = serde_json::from_slice(&data).unwrap_or_default();
        self.numbers.rewrite();
        let error = self.own_event(said.clone());
        if self.head.is_empty() {
            return error;
        }
        let mut response = json!({"object": "response", "status": "failed", "output": [], "usage": null,
            "error": {"code": said["code"], "message": said["message"]}});
        for (name, value) in &self.head {
            if let (Ok(name), Ok(value)) = (std::str::from_utf8(name), serde_json::from_slice(value)) {
                let _: Value = std::mem::replace(&mut response[name], value);
            }
        }
        let end = self.own_event(json!({"type": "response.failed", "response": response}));
        [error, end].concat().into()
    }

    /// The same for an error of toolrein's own, with the id of the client's request.
    fn failed_by_us(&mut self, message: &str, code: &str) -> Bytes {
        let mut error = json!({"type": "error", "code": code, "param": null, "message": message});
        if !self.request_id.is_empty() {
            error["request_id"] = self.request_id.as_str().into();
        }
        self.failed(format!("data: {error}\n\n").as_bytes())
    }

    /// The results that the upstream waits for, where it keeps the reply.
    fn owed(&self, choice: &ReplyChoice) -> Vec<Bytes> {
        if self.observes {
            return Vec::new();
        }
        results(&self.items, choice, &|decision| result_of(choice, decision))
    }
}

/// The result that the model reads of a call that was not released.
fn result_of(choice: &ReplyChoice, decision: &Decision) -> Option<String> {
    match decision {
        Decision::Drop => Some(dropped_result()),
        decision => decision.hidden_result(choice.question.as_ref()),
    }
}

impl ReplyCodec for ResponsesReplies {
    fn begin(&mut self, reply: NextReply) {
        let NextReply { form, status, continues, is_strict, observes, markup, tools, hosts_shell } = reply;
        self.input.begin(self.form, form, status);
        (self.is_strict, self.observes, self.hosts_shell) = (is_strict, observes, hosts_shell);
        self.kept.begin_reply();
        (self.has_begun, self.has_head) = (false, !self.head.is_empty());
        (self.last, self.has_unread_end, self.are_calls_ended) = (None, false, false);
        self.unread.clear();
        self.text.forget();
        (self.markup, self.tools, self.continues) = (markup.map(Cleaner::new), tools, continues);
        if continues.is_some() {
            self.numbers.rewrite();
        }
    }

    fn turn_to(&mut self, form: Form) {
        self.form = form;
    }

    fn push(&mut self, bytes: Bytes) {
        self.input.push(bytes);
    }

    fn next(&mut self, choices: &mut Vec<ReplyChoice>, unjudged: bool) -> Option<Frame> {
        if !unjudged && let Some(frame) = self.next_text(choices) {
            return Some(frame);
        }
        loop {
            if unjudged {
                self.unread.retain(|unread| matches!(unread, Unread::Event(_)));
            }
            let frame = match self.unread.pop() {
                Some(Unread::Event(raw)) if unjudged => Some(Frame::idle(raw)),
                Some(Unread::Event(raw)) => self.event(raw, choices),
                Some(Unread::Parsed(raw, event, data, error)) => {
                    self.parsed(raw, *event, data, error, choices)
                }
                None => match self.input.next() {
                    NextInput::Nothing => return None,
                    NextInput::Event(Piece::Event(raw) | Piece::Oversized(raw)) if unjudged => {
                        Some(Frame::idle(raw))
                    }
                    NextInput::Event(piece) => self.piece(piece, choices),
                    NextInput::TooLong(raw) => {
                        (self.has_begun, self.has_unread_end) = (true, true);
                        Some(Frame::new(raw, FrameKind::Unread(Unjudged::ReplyTooLong)))
                    }
                    NextInput::Passing(raw) => Some(Frame::idle(raw)),
                    NextInput::Whole { form, status, body } => self.body(form, status, body, choices),
                    NextInput::Ended => {
                        self.end_calls(choices);
                        return None;
                    }
                },
            };
            if let Some(mut frame) = frame {
                frame.is_later = self.is_later();
                return Some(frame);
            }
        }
    }

    fn pass_text(&mut self, choices: &mut [ReplyChoice], out: &mut Vec<Bytes>) -> bool {
        self.pass_next_text(choices, out)
    }

    fn is_drained(&self) -> bool {
        self.input.is_drained() && self.unread.is_empty()
    }

    fn end(&mut self) {
        if let Some(raw) = self.input.end() {
            self.unread.insert(0, Unread::Event(raw));
        }
    }

    fn take_open(&mut self) -> bool {
        false
    }

    fn at_boundary(&self) -> bool {
        self.input.at_boundary()
    }

    fn is_body(&self) -> bool {
        self.form == Form::Whole || !self.input.is_stream()
    }

    fn last_event(&self) -> Option<Result<LastEvent, IncompleteEvent>> {
        self.input.is_stream().then(|| Ok(LastEvent::default()))
    }

    fn is_cut(&self) -> bool {
        self.last.is_none() && !self.has_unread_end
    }

    fn unread_bytes(&self) -> usize {
        self.input.size()
    }

    fn known_bytes(&self) -> usize {
        let items: usize = self.items.iter().map(OutItem::size).sum();
        let own = self.earlier.iter().chain(&self.own_before).chain(&self.own_after);
        items + own.map(Bytes::len).sum::<usize>() + self.last.as_ref().map_or(0, Last::size)
    }

    fn hidden_exchange(&self, choice: &ReplyChoice, known_ids: &KnownIds) -> Option<Bytes> {
        let decisions = || choice.calls().iter().filter_map(|call| call.decision.as_ref());
        let reasons = self.items.iter().any(|item| item.kind == ItemKind::Reasoning);
        let is_unseen = |decision: &Decision| decision.is_hidden() || *decision == Decision::Drop;
        let hides = decisions().any(is_unseen) && (reasons || decisions().any(Decision::is_hidden));
        if self.observes || !hides {
            return None;
        }
        // A call that was dropped goes into it beside reasoning alone, which would be refused without the call.
        let result = |decision: &Decision| {
            result_of(choice, decision).filter(|_| reasons || *decision != Decision::Drop)
        };
        let hidden = elements(self.reply_id.as_deref(), &self.items, choice, known_ids, &result);
        (!hidden.is_empty()).then(|| write(&hidden))
    }

    fn end_reply(&mut self, choice: &ReplyChoice) {
        self.kept.end_reply(self.reply_id.as_deref(), self.owed(choice));
        let items = std::mem::take(&mut self.items);
        let is_kept = |item: &&OutItem| item.is_shown(choice) && item.done.is_some();
        let copies = items.iter().filter(is_kept).filter_map(|item| {
            let copy = self
                .last
                .as_ref()
                .and_then(|last| last.copy_of(item, &items))
                .or_else(|| item.done.clone())?;
            Some(match item.call.as_ref().zip(item.judged_in(choice)) {
                Some((call, judged)) if judged.is_shown_as_written() => {
                    written::judged_call(call.kind, &judged.assembled, Some(&copy))
                }
                _ => copy,
            })
        });
        let copies: Vec<Bytes> = copies.collect();
        self.earlier.append(&mut self.own_before);
        self.earlier.extend(copies);
        self.earlier.append(&mut self.own_after);
        (self.reply_id, self.is_end_given) = (None, false);
    }

    fn expect_own(&mut self) {
        self.kept.expect_own();
    }

    fn history(&self, planned: &PlannedRequest<'_>, choices: &[ReplyChoice]) -> Option<(String, Bytes)> {
        self.kept_history(planned, choices.first()?)
    }

    fn last_items(&self, choices: &[ReplyChoice]) -> Vec<String> {
        choices.first().map_or_else(Vec::new, |choice| last_of_each_kind(&self.shown_items(choice)))
    }

    fn carried(&self) -> &[&'static str] {
        &self.carried
    }

    fn forward(
        &mut self,
        frame: &Frame,
        choices: &[ReplyChoice],
        context: &WriteContext,
        out: &mut Vec<Bytes>,
    ) {
        if frame.ends {
            return self.write_last(choices, context, out);
        }
        let (data, numbers) = (frame.payload(), self.numbers_of(frame));
        let Some(numbers) = numbers.filter(|_| !matches!(frame.payload, Payload::None)) else {
            return out.push(frame.raw.clone());
        };
        let (Some(at), Some(choice)) = (frame.tag.map(usize::from), choices.first()) else {
            let raw = self.renumbered(frame.raw.clone(), numbers, data, None);
            return out.push(raw);
        };
        if !self.observes {
            if !self.items[at].is_shown(choice) {
                self.numbers.rewrite();
                self.is_changed = true;
                return;
            }
            if self.items[at].is_call_written(choice) {
                return self.write_call(at, choice, out);
            }
        }
        let index = self.shown_as(at);
        let raw = self.renumbered(frame.raw.clone(), numbers, data, Some(index));
        out.push(raw);
    }

    fn forward_whole(
        &mut self,
        frames: &[Frame],
        choices: &[ReplyChoice],
        context: &WriteContext,
        out: &mut Vec<Bytes>,
    ) {
        if self.last.is_some() {
            self.write_last(choices, context, out);
        } else if let Some(frame) = frames.last() {
            out.push(frame.raw.clone());
        }
    }

    fn write_text(&mut self, _choice: u32, text: &str, before: bool, out: &mut Vec<Bytes>) {
        let of_reply: String =
            self.reply_id.iter().flat_map(|id| id.chars()).filter(char::is_ascii_alphanumeric).collect();
        let at = if before { 0 } else { self.own_before.len() + self.items.len() + self.own_after.len() };
        let of_reply = of_reply.get(..24).unwrap_or(&of_reply);
        let id = format!("{OWN_ID}{of_reply}{}", at + self.earlier.len());
        let item = message(&id, if before { text.trim() } else { text });
        let done = Bytes::from(item.to_string());
        if before {
            self.own_before.push(done);
        } else {
            self.own_after.push(done);
        }
        if self.form == Form::Streamed {
            self.numbers.rewrite();
            let index = self.numbers.begin_item(None);
            for event in message_events(&item, index) {
                let event = self.own_event(event);
                out.push(event);
            }
        }
        self.is_changed = true;
    }

    fn write_finish(&mut self, _choice: u32, _has_calls: bool, _out: &mut Vec<Bytes>) {}

    fn forward_error(&mut self, raw: Bytes) -> Bytes {
        self.has_begun = true;
        if self.form == Form::Streamed { self.numbered(raw) } else { raw }
    }

    fn write_cut(&mut self, out: &mut Vec<Bytes>) {
        if self.numbers.rewrites() {
            let event =
                self.failed_by_us("The upstream ended its stream before its last event.", "upstream_cut");
            out.push(event);
        }
    }

    fn write_report(&mut self, report: &str, _out: &mut Vec<Bytes>) {
        self.report = Some(report.to_owned());
    }

    fn set_options(&mut self, options: &Options) {
        self.friendly = options.friendly;
        self.request_id.clone_from(&options.request_id);
    }

    fn is_changed(&self) -> bool {
        self.is_changed
    }

    fn error_event(&mut self, status: u16, body: &[u8]) -> Bytes {
        let event = convert::error_event(status, body);
        self.failed(&event)
    }

    fn own_error_event(&mut self, message: &str, code: &str) -> Bytes {
        self.failed_by_us(message, code)
    }

    fn heartbeat(&mut self) -> Bytes {
        match self.in_progress.clone() {
            Some(event) => {
                self.numbers.rewrite();
                self.numbered(event)
            }
            None => self.comment(WAITS),
        }
    }
}

impl ResponsesReplies {
    /// The reply has ended without its last event: takes what has come of each call.
    fn end_calls(&mut self, choices: &mut [ReplyChoice]) {
        if !std::mem::replace(&mut self.are_calls_ended, true) {
            self.items.iter_mut().for_each(OutItem::end_call);
            self.report_calls(choices);
        }
    }
}

/// The text of a message; empty for another item.
fn text_of(item: &Bytes) -> String {
    let read = parse_item(&mut Scanner::new(item)).ok().filter(|item| item.call.name.is_none());
    let content = read.and_then(|item| item.content).unwrap_or(Content::Absent);
    content.texts().map(|text| decode(text, item).into_owned()).collect()
}
