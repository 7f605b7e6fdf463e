//! The codec of a protocol made up for tests, so that the engine's own need no dialect: a reply is lines of JSON, or one
//! array of them. Choices and calls have numbers, and a line ends each call. Decides nothing.

mod calls;
mod cases;
mod line;

use self::calls::KnownCalls;
use self::line::{Line, all_lines, body_of, is_comment, lines_of, span_of, stream_of};
use super::*;
use dialects::codec::{IncompleteEvent, KnownIds, LastEvent, Payload};
use dialects::error::{own_error_body, parse};
use std::{mem, str};
use wire::body::Span;
use wire::json::{escaped, quote};

/// See the file's head.
pub struct LinesCodec {
    form: Form,
    limits: Limits,
    input: Input,
    calls: KnownCalls,
    cuts_usage: bool,
    is_changed: bool,
}

/// The bytes of the present reply that are not read yet.
#[derive(Default)]
struct Input {
    rest: Bytes,
    /// The form of the upstream's reply, where it is not the client's, and whether it is an error.
    is_other_form: bool,
    is_error: bool,
    has_ended: bool,
    is_open: bool,
    /// What comes up to the next line break is too long.
    is_too_long: bool,
    continues: Option<u32>,
}

impl LinesCodec {
    pub fn new(form: Form, limits: Limits, has_name_pieces: bool) -> Self {
        let (input, calls) = (Input::default(), KnownCalls::new(has_name_pieces));
        Self { form, limits, input, calls, cuts_usage: false, is_changed: false }
    }

    /// The next line, or the body, and whether it is too long to be read.
    fn take(&mut self) -> Option<(Bytes, bool)> {
        let is_body = self.is_body();
        let limit = if is_body { self.limits.reply } else { self.limits.event };
        let input = &mut self.input;
        let end = input.rest.iter().position(|byte| *byte == b'\n').filter(|_| !is_body);
        let size = end.map_or(input.rest.len(), |at| at + 1);
        let is_too_long = input.is_too_long || size > limit;
        if size == 0 || !(is_too_long || input.has_ended || end.is_some()) {
            return None;
        }
        input.is_too_long = is_too_long && end.is_none();
        Some((input.rest.split_to(size), is_too_long))
    }

    /// Takes what a line says of a choice.
    fn read(
        &mut self,
        line: &Line<'_>,
        data: &[u8],
        all: &mut Vec<ReplyChoice>,
    ) -> Option<(u32, ReplyEvent)> {
        let index = self.input.continues.or(line.choice)?;
        let at = position_of(all, index, self.form);
        let event = match (line.text, line.call, line.finish) {
            (Some(text), ..) => ReplyEvent::Text(span_of(text, data)),
            (_, Some(number), _) => ReplyEvent::Call(self.calls.add(number, line, &mut all[at])),
            (.., finish) => ReplyEvent::Finish { is_cut: finish? == "cut" },
        };
        Some((index, event))
    }

    /// The frame of a part of the reply that these lines are.
    fn part(&mut self, raw: &Bytes, lines: &[Line<'_>], choices: &mut Vec<ReplyChoice>) -> Frame {
        let mut parts: Vec<(u32, Vec<ReplyEvent>)> = Vec::new();
        let mut frame = Frame::new(raw.clone(), FrameKind::Part);
        for line in lines {
            if let Some(usage) = line.usage {
                let report = span_of(usage.get(), raw);
                frame.usage.get_or_insert_default().reports.push(report);
            }
            let Some((index, event)) = self.read(line, raw, choices) else { continue };
            match parts.iter_mut().find(|(known, _)| *known == index) {
                Some((_, events)) => events.push(event),
                None => parts.push((index, vec![event])),
            }
        }
        for (index, events) in parts {
            frame.events.push(ReplyEvent::Choice(index));
            frame.events.extend(events);
        }
        frame.payload = Payload::Span(Span::new(0, raw.len()));
        frame
    }

    /// The frame of a line of a stream.
    fn line(&mut self, raw: Bytes, choices: &mut Vec<ReplyChoice>) -> Frame {
        let data = raw.clone();
        let kind = match Line::read(&data) {
            _ if is_comment(&data) => FrameKind::Idle,
            Err(why) => FrameKind::Unread(why),
            Ok(line) if line.error.is_some() => error_in(&data),
            Ok(line) if line.ends_reply() => FrameKind::End,
            Ok(line) if self.is_apart(&line) => FrameKind::Dropped,
            Ok(line) => {
                let frame = self.part(&raw, &[line], choices);
                let arguments = line.arguments.unwrap_or_default().len() as u32;
                let counted_bytes = line.call.map_or(frame.counted_bytes, |_| arguments);
                return Frame { counted_bytes, ..frame };
            }
        };
        Frame::new(raw, kind)
    }

    /// The frame of a whole reply.
    fn body(&mut self, raw: Bytes, choices: &mut Vec<ReplyChoice>) -> Frame {
        let data = raw.clone();
        match all_lines(&data) {
            _ if self.input.is_error && self.form == Form::Streamed => {
                Frame::new(self.error_event(0, &data), error_in(&data))
            }
            _ if self.input.is_error => Frame::new(raw, error_in(&data)),
            Err(why) => Frame::new(raw, FrameKind::Unread(why)),
            Ok(lines) if lines.iter().any(|line| line.error.is_some()) => Frame::new(raw, error_in(&data)),
            Ok(mut lines) => {
                lines.retain(|line| !self.is_apart(line));
                self.part(&raw, &lines, choices)
            }
        }
    }

    /// Whether a line of a later reply is about another choice than the one that it goes on with, which is its first.
    fn is_apart(&self, line: &Line<'_>) -> bool {
        self.input.continues.is_some() && line.choice.is_some_and(|index| index != 0)
    }

    /// A line as the client gets it, if it does; `later`: the choice that its reply goes on with.
    fn written(
        &mut self,
        json: &str,
        later: Option<u32>,
        choices: &[ReplyChoice],
        context: &WriteContext,
    ) -> Option<String> {
        let Ok(mut line) = Line::read(json.as_bytes()) else { return Some(json.to_owned()) };
        if line.usage.is_some() {
            let is_shown = !context.hold_usage && !self.cuts_usage;
            let sum = context.usage.as_ref().map(|sum| format!("{{\"usage\":{sum}}}"));
            return is_shown.then(|| sum.unwrap_or_else(|| json.to_owned()));
        }
        let choice = choices.iter().find(|choice| later.or(line.choice) == Some(choice.index));
        let Some(choice) = choice else { return Some(json.to_owned()) };
        let (is_streamed, second) =
            (self.form == Form::Streamed, format!("\\n\\n{}", line.text.unwrap_or("")));
        let mut is_changed = line.choice.replace(choice.index) != Some(choice.index);
        if let Some(number) = line.call {
            let known = self.calls.find(choice.index, number)?;
            let call = &choice.calls()[known.at];
            if known.is_written || !call.is_released() {
                return None;
            }
            known.is_written = call.is_shown_as_written();
            if known.is_written {
                line.name = str::from_utf8(&call.assembled.name).ok();
                line.arguments = str::from_utf8(&call.assembled.arguments).ok();
                (line.end, is_changed) = (true, true);
            }
        } else if line.text.is_some() && is_streamed {
            if choice.asks_approval() {
                return None;
            }
            if choice.begins_second_text() && line.text != Some("") {
                (line.text, is_changed) = (Some(second.as_str()), true);
            }
        } else if line.finish.is_some() {
            if is_streamed && choice.is_wholly_blocked() {
                return None;
            }
            if line.finish == Some("calls") && choice.is_edited() && !choice.releases() {
                (line.finish, is_changed) = (Some("stop"), true);
            }
        }
        Some(if is_changed { line.write() } else { json.to_owned() })
    }

    fn push_line(&mut self, line: Line<'_>, out: &mut Vec<Bytes>) {
        if self.form == Form::Streamed {
            out.push((line.write() + "\n").into());
        }
        self.is_changed = true;
    }
}

impl ReplyCodec for LinesCodec {
    fn begin(&mut self, reply: NextReply) {
        let NextReply { form, status, continues, .. } = reply;
        let (is_other_form, is_error) = (form != self.form, !(200..300).contains(&status));
        self.input = Input { is_other_form, is_error, continues, ..Input::default() };
        self.calls.begin_reply(continues);
    }

    fn turn_to(&mut self, form: Form) {
        self.form = form;
    }

    fn push(&mut self, bytes: Bytes) {
        self.input.rest = [&self.input.rest[..], &bytes].concat().into();
    }

    fn next(&mut self, choices: &mut Vec<ReplyChoice>, unjudged: bool) -> Option<Frame> {
        let ((raw, is_too_long), is_body) = (self.take()?, self.is_body());
        let why = if is_body { Unjudged::ReplyTooLong } else { Unjudged::EventTooLong };
        let frame = match () {
            () if unjudged => Frame::idle(raw),
            () if is_too_long => Frame::new(raw, FrameKind::Unread(why)),
            () if is_body => self.body(raw, choices),
            () => self.line(raw, choices),
        };
        Some(Frame { is_later: self.input.continues.is_some(), ..frame })
    }

    fn end(&mut self) {
        let input = &mut self.input;
        if input.is_other_form && !input.is_error && !input.is_too_long {
            let other =
                if self.form == Form::Whole { Some(body_of(&input.rest)) } else { stream_of(&input.rest) };
            if let Some(other) = other {
                (input.rest, input.is_other_form) = (other.into(), false);
            }
        }
        let is_cut = input.is_too_long || input.rest.last().is_some_and(|byte| *byte != b'\n');
        (input.has_ended, input.is_too_long) = (true, false);
        self.input.is_open |= is_cut && !self.is_body();
    }

    fn take_open(&mut self) -> bool {
        mem::take(&mut self.input.is_open)
    }

    fn at_boundary(&self) -> bool {
        !self.input.is_too_long
    }

    fn is_body(&self) -> bool {
        self.form == Form::Whole || self.input.is_other_form
    }

    fn last_event(&self) -> Option<Result<LastEvent, IncompleteEvent>> {
        let Input { rest, continues, .. } = &self.input;
        let last = |line: Line<'_>| LastEvent {
            ends: line.ends_reply() || line.error.is_some(),
            finished: line.finish.and(continues.or(line.choice)).into_iter().collect(),
        };
        let read = if is_comment(rest) { Ok(LastEvent::default()) } else { Line::read(rest).map(last) };
        (!self.is_body()).then(|| read.map_err(|_| IncompleteEvent))
    }

    fn unread_bytes(&self) -> usize {
        self.input.rest.len()
    }

    fn known_bytes(&self) -> usize {
        self.calls.size()
    }

    fn hidden_exchange(&self, choice: &ReplyChoice, _: &KnownIds) -> Option<Bytes> {
        let (mut after, mut lines) = (0, String::new());
        for call in choice.calls() {
            after += usize::from(call.is_released());
            let result = call.decision.as_ref().and_then(|it| it.hidden_result(choice.question.as_ref()));
            let Some(result) = result else { continue };
            let hidden = call.accepted.of(&call.assembled);
            let (call, name, arguments) = (hidden.id(), hidden.name(), hidden.arguments());
            // So many calls that the client has come before it: it goes back beside them.
            lines += &json!({"after": after, "call": call, "name": name, "arguments": arguments, "result": result}).to_string();
            lines.push('\n');
        }
        (!lines.is_empty()).then(|| lines.into())
    }

    fn forward(
        &mut self,
        frame: &Frame,
        choices: &[ReplyChoice],
        context: &WriteContext,
        out: &mut Vec<Bytes>,
    ) {
        let json = str::from_utf8(frame.payload()).unwrap_or_default().trim();
        if !context.acts || json.is_empty() {
            return out.push(frame.raw.clone());
        }
        let written = self.written(json, continued(frame), choices, context);
        self.is_changed |= written.as_deref() != Some(json);
        let raw = |line: String| if line == json { frame.raw.clone() } else { (line + "\n").into() };
        out.extend(written.map(raw));
    }

    fn forward_whole(
        &mut self,
        frames: &[Frame],
        choices: &[ReplyChoice],
        context: &WriteContext,
        out: &mut Vec<Bytes>,
    ) {
        let Some(first) = frames.first().filter(|_| context.acts) else {
            return out.extend(frames.first().map(|frame| frame.raw.clone()));
        };
        let mut all = Vec::new();
        for choice in choices {
            let text = escaped(&choice.shown_text());
            if !text.is_empty() {
                all.push(Line { text: str::from_utf8(&text).ok(), ..Line::of(choice.index) }.write());
            }
            let later = frames.iter().rfind(|frame| continued(frame) == Some(choice.index));
            let index = if later.is_some() { 0 } else { choice.index };
            let lines = later.unwrap_or(first).payload();
            for json in lines_of(lines, |line| line.choice == Some(index) && line.text.is_none()) {
                all.extend(self.written(json, later.and(Some(choice.index)), choices, context));
            }
        }
        for json in lines_of(first.payload(), |line| line.choice.is_none()) {
            all.extend(self.written(json, None, choices, context));
        }
        let written: Bytes = format!("[{}]", all.join(",")).into();
        self.is_changed |= first.raw != written;
        out.push(written);
    }

    fn write_text(&mut self, choice: u32, text: &str, _before: bool, out: &mut Vec<Bytes>) {
        let text = escaped(text);
        let text = str::from_utf8(&text).ok();
        self.push_line(Line { text, ..Line::of(choice) }, out);
    }

    fn write_finish(&mut self, choice: u32, has_calls: bool, out: &mut Vec<Bytes>) {
        let finish = Some(if has_calls { "calls" } else { "stop" });
        self.push_line(Line { finish, ..Line::of(choice) }, out);
    }

    fn set_options(&mut self, options: &Options) {
        self.cuts_usage = options.cut_usage;
    }

    fn is_changed(&self) -> bool {
        self.is_changed
    }

    fn error_event(&mut self, _status: u16, body: &[u8]) -> Bytes {
        let text = parse(body).unwrap_or_default().messages.join(" ");
        format!("{{\"error\":{}}}\n", quote(&text)).into()
    }

    fn own_error_event(&mut self, message: &str, code: &str) -> Bytes {
        (own_error_body(message, code) + "\n").into()
    }

    fn comment(&mut self, text: &str) -> Bytes {
        format!("# {text}\n").into()
    }
}

/// The kind of a frame that is the upstream's error.
fn error_in(data: &[u8]) -> FrameKind {
    FrameKind::Error { error: Box::new(parse(data).unwrap_or_default()), may_be_reply: false }
}

/// The choice that the reply of a frame goes on with, if that is a later one.
fn continued(frame: &Frame) -> Option<u32> {
    frame.parts().next().filter(|_| frame.is_later).map(|part| part.choice)
}
