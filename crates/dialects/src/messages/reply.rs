//! The codec of replies of the Messages API: events of a stream and whole replies to frames and calls, and frames with decisions
//! to the client's bytes. There is one choice; its texts are blocks of their own.

pub mod block;
pub mod convert;
mod event;
mod hidden;
mod markup;
mod read;
mod whole;
mod write;

use self::block::Blocks;
use self::convert::{error_event, event};
use self::hidden::hidden_exchange;
use self::markup::Cleaner;
use self::read::{ERROR, FILLED_HEAD};
use self::whole::ClientContent;
use self::write::ClientBlocks;
use crate::codec::{
    Frame, FrameKind, IncompleteEvent, KnownIds, LastEvent, NextReply, ReplyCodec, WriteContext,
};
use crate::reply::{Form, Limits, Options, Unjudged};
use crate::reply_choice::ReplyChoice;
use crate::reply_input::{NextInput, ReplyInput};
use crate::text_frame::TextFrame;
use bytes::Bytes;
use serde_json::{Value, json};
use std::collections::VecDeque;
use wire::body::Span;
use wire::sse::Piece;

/// The number of the only choice.
const CHOICE: u32 = 0;

/// See the file's head.
pub struct MessagesReplies {
    /// The form of the client's reply.
    form: Form,
    /// A policy restricts calls and is not only observed: what clients read differently goes out in the one way in which it was
    /// judged.
    is_strict: bool,
    observes: bool,
    /// People read texts of toolrein's about the upstream's errors.
    friendly: bool,
    request_id: String,
    /// What the last event reports, as JSON.
    report: Option<String>,
    input: ReplyInput,
    /// The present reply comes as a stream to a client that wants one.
    is_stream: bool,
    /// Events that are read next.
    unread: VecDeque<Unread>,
    /// The blocks of the present reply.
    blocks: Blocks,
    has_finish: bool,
    has_stop: bool,
    /// The end of the reply may be in what could not be read.
    has_unread_end: bool,
    /// What has come of each call was taken at the end of the reply.
    are_calls_ended: bool,
    /// The present reply goes on with the message of an earlier one.
    is_later: bool,
    /// The client has a `message_start`, and had it before the present reply.
    has_head: bool,
    has_earlier_head: bool,
    client: ClientBlocks,
    content: ClientContent,
    /// How many messages came whole, and why the newest of them ends: the string in quotes, in the payload of its frame.
    messages: u32,
    stop_reason: Option<Span>,
    /// The usage of all replies at the last event that reported any.
    usage: Option<Value>,
    carried: Vec<&'static str>,
    /// The frame that was read last, where it says a text and no more.
    text: TextFrame,
    /// Removes call markup from a final answer.
    markup: Option<Cleaner>,
    is_changed: bool,
}

/// An event that is read next.
struct Unread {
    raw: Bytes,
    /// Calls that the model wrote as text may be in it.
    has_markup: bool,
    /// It ends a text from which everything was removed.
    is_emptied: bool,
}

impl Unread {
    fn new(raw: Bytes) -> Self {
        Self { raw, has_markup: true, is_emptied: false }
    }

    fn clean(raw: Bytes) -> Self {
        Self { has_markup: false, ..Self::new(raw) }
    }
}

impl MessagesReplies {
    /// A codec of replies that the client gets in this form.
    pub fn new(form: Form, limits: Limits) -> Self {
        Self {
            form,
            is_strict: false,
            observes: false,
            friendly: false,
            request_id: String::new(),
            report: None,
            input: ReplyInput::new(limits),
            is_stream: false,
            unread: VecDeque::new(),
            blocks: Blocks::default(),
            has_finish: false,
            has_stop: false,
            has_unread_end: false,
            are_calls_ended: false,
            is_later: false,
            has_head: false,
            has_earlier_head: false,
            client: ClientBlocks::default(),
            content: ClientContent::default(),
            messages: 0,
            stop_reason: None,
            usage: None,
            carried: Vec::new(),
            text: TextFrame::default(),
            markup: None,
            is_changed: false,
        }
    }

    fn piece(&mut self, piece: Piece, choices: &mut Vec<ReplyChoice>) -> Option<Frame> {
        match piece {
            // The pieces in which the stream comes may have cut it.
            Piece::Event(raw) => match self.text.fit(&raw) {
                Some((_, values)) => Some(self.text_frame(raw, &values)),
                None => self.event(Unread::new(raw), choices),
            },
            Piece::Oversized(raw) => {
                self.has_unread_end = true;
                Some(Frame::new(raw, FrameKind::Unread(Unjudged::EventTooLong)))
            }
        }
    }

    /// The next piece of the upstream's bytes, as the frame that it is; `None` if nothing is complete. The inner `None`: others
    /// are read in its place.
    fn next_input(&mut self, choices: &mut Vec<ReplyChoice>, unjudged: bool) -> Option<Option<Frame>> {
        Some(match self.input.next() {
            NextInput::Nothing => return None,
            NextInput::Event(Piece::Event(raw) | Piece::Oversized(raw)) if unjudged => Some(Frame::idle(raw)),
            NextInput::Event(piece) => self.piece(piece, choices),
            NextInput::TooLong(raw) => {
                self.has_unread_end = true;
                Some(Frame::new(raw, FrameKind::Unread(Unjudged::ReplyTooLong)))
            }
            NextInput::Passing(raw) => Some(Frame::idle(raw)),
            NextInput::Whole { form, status, body } => self.body(form, status, body, choices),
            NextInput::Ended => {
                let held = self.markup.as_mut().map_or_else(Vec::new, |markup| markup.end(|_| true));
                if held.is_empty() {
                    self.end_calls(choices);
                    return None;
                }
                self.unread.extend(held.into_iter().map(Unread::clean));
                None
            }
        })
    }
}

impl ReplyCodec for MessagesReplies {
    fn begin(&mut self, reply: NextReply) {
        let NextReply { form, status, continues, is_strict, observes, markup, .. } = reply;
        self.is_stream = (self.form, form) == (Form::Streamed, Form::Streamed);
        self.input.begin(self.form, form, status);
        (self.is_strict, self.observes) = (is_strict && !observes, observes);
        self.blocks = Blocks::default();
        self.unread.clear();
        self.text.forget();
        (self.has_finish, self.has_stop, self.has_unread_end) = (false, false, false);
        (self.are_calls_ended, self.is_later, self.has_earlier_head) =
            (false, continues.is_some(), self.has_head);
        self.markup = markup.map(Cleaner::new);
        if self.is_later {
            self.client.begin_reply();
        }
    }

    fn turn_to(&mut self, form: Form) {
        self.form = form;
    }

    fn push(&mut self, bytes: Bytes) {
        self.input.push(bytes);
    }

    fn next(&mut self, choices: &mut Vec<ReplyChoice>, unjudged: bool) -> Option<Frame> {
        if !unjudged && let Some(frame) = self.next_text() {
            return Some(frame);
        }
        loop {
            let frame = match self.unread.pop_front() {
                Some(unread) if unjudged => Some(Frame::idle(unread.raw)),
                Some(unread) => self.event(unread, choices),
                None => self.next_input(choices, unjudged)?,
            };
            if let Some(mut frame) = frame {
                frame.is_later = self.is_later;
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
        self.unread.extend(self.input.end().map(Unread::new));
    }

    fn take_open(&mut self) -> bool {
        false
    }

    fn at_boundary(&self) -> bool {
        self.input.at_boundary()
    }

    fn is_body(&self) -> bool {
        !self.is_stream
    }

    fn last_event(&self) -> Option<Result<LastEvent, IncompleteEvent>> {
        self.is_stream.then(|| Ok(LastEvent::default()))
    }

    fn is_cut(&self) -> bool {
        self.form == Form::Streamed && !self.has_finish && !self.has_stop && !self.has_unread_end
    }

    fn unread_bytes(&self) -> usize {
        self.input.size() + self.unread.iter().map(|unread| unread.raw.len()).sum::<usize>()
    }

    fn known_bytes(&self) -> usize {
        self.blocks.size() + self.content.size()
    }

    fn hidden_exchange(&self, choice: &ReplyChoice, known_ids: &KnownIds) -> Option<Bytes> {
        if self.observes {
            return None;
        }
        hidden_exchange(self.blocks.all(), choice, known_ids)
    }

    fn end_reply(&mut self, choice: &ReplyChoice) {
        if self.form == Form::Whole {
            self.keep_content(choice);
        }
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
        match (frame.tag, &frame.kind, choices.first()) {
            _ if self.observes => out.push(frame.raw.clone()),
            (Some(ERROR), ..) => self.forward_error_event(frame, context.acts, out),
            (_, FrameKind::Head, _) => {
                self.usage = context.usage.clone().or(self.usage.take());
                self.forward_head(frame, out);
            }
            (_, FrameKind::Idle, _) | (_, _, None) => out.push(frame.raw.clone()),
            (Some(FILLED_HEAD), _, Some(choice)) => self.forward_filled_head(frame, choice, context, out),
            (Some(at), _, Some(choice)) => self.forward_part(usize::from(at), frame, choice, out),
            (None, _, Some(choice)) => self.forward_other(frame, choice, context, out),
        }
    }

    fn forward_whole(
        &mut self,
        frames: &[Frame],
        choices: &[ReplyChoice],
        context: &WriteContext,
        out: &mut Vec<Bytes>,
    ) {
        match choices.first().filter(|_| !self.observes) {
            Some(choice) => self.write_whole(frames, choice, context, out),
            None => out.extend(frames.first().map(|frame| frame.raw.clone())),
        }
    }

    fn write_text(&mut self, _choice: u32, text: &str, before: bool, out: &mut Vec<Bytes>) {
        let text = if before { text.trim() } else { text };
        self.is_changed = true;
        if self.form == Form::Whole {
            self.content.add_text(text, before);
        } else if self.has_head {
            self.write_own_text(text, out);
        } else {
            self.keep_own_text(text, before);
        }
    }

    fn forward_error(&mut self, raw: Bytes) -> Bytes {
        let mut out = Vec::new();
        if self.form == Form::Streamed {
            self.close_blocks(&mut out);
        }
        out.push(raw);
        out.concat().into()
    }

    fn write_cut(&mut self, out: &mut Vec<Bytes>) {
        if self.is_changed {
            out.push(
                self.own_error_event("The upstream ended its stream before its last event.", "upstream_cut"),
            );
        }
    }

    fn write_finish(&mut self, _choice: u32, has_calls: bool, out: &mut Vec<Bytes>) {
        self.write_own_end(has_calls, out);
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
        self.forward_error(error_event(status, body))
    }

    fn own_error_event(&mut self, message: &str, _code: &str) -> Bytes {
        let mut error = json!({"type": "error", "error": {"type": "api_error", "message": message}});
        if !self.request_id.is_empty() {
            error["request_id"] = self.request_id.as_str().into();
        }
        self.forward_error(event("error", error.to_string().as_bytes()))
    }

    fn heartbeat(&mut self) -> Bytes {
        event("ping", br#"{"type":"ping"}"#)
    }
}
