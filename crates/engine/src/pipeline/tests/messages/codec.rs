//! A codec of replies of Anthropic's Messages API, for tests: it proves that the interface of codecs carries a third protocol.
//! There is one choice. A reply in another form than the client's is not converted, and no markup is removed.

use super::json::{
    block_events, elements, event, events_of, find, inside, is_full, is_object, repeats, text,
};
use bytes::Bytes;
use dialects::codec::{
    CallPiece, Frame, FrameKind, IncompleteEvent, KnownIds, LastEvent, NextReply, Payload, ReplyCodec,
    ReplyEvent, WriteContext,
};
use dialects::error::{parse, parse_event, parse_in_200};
use dialects::reply::{Form, Limits, Options, Unjudged};
use dialects::reply_choice::{ReplyCall, ReplyChoice, Visibility};
use model::assembled::Assembled;
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use wire::body::Span;
use wire::json::{escaped, quote, unescape};
use wire::splice::Splices;
use wire::sse::{Piece, Splitter, parse_fields};

/// The number of the only choice.
const CHOICE: u32 = 0;

/// See the file's head.
#[derive(Default)]
pub(super) struct MessagesReplies {
    is_whole: bool,
    longest_event: usize,
    /// What only some clients read goes out in the one way in which it was judged.
    mends: bool,
    observes: bool,
    status: u16,
    /// What is not read yet; `splitter` is none where a body comes, or the stream has ended.
    splitter: Option<Splitter>,
    input: Bytes,
    unread: VecDeque<Bytes>,
    is_stream: bool,
    has_ended: bool,
    /// The blocks of all replies, and where those of the present message and of the present reply begin.
    blocks: Vec<Block>,
    of_message: usize,
    of_reply: usize,
    has_finish: bool,
    has_stop: bool,
    /// The client has a `message_start`; the present reply goes on after it.
    has_head: bool,
    is_later: bool,
    /// The index of the client's next block, and whether its indexes are no longer the upstream's.
    next: u64,
    is_shifted: bool,
    /// The blocks of a whole reply before those of the last reply, and toolrein's own after them.
    before: Vec<String>,
    after: Vec<String>,
    is_changed: bool,
}

/// One block of a message, as far as it has come.
#[derive(Default)]
struct Block {
    index: Option<u64>,
    /// The positions of its call and of its text among those of the choice.
    call: Option<usize>,
    text: Option<usize>,
    /// Its members, with what deltas added.
    said: Map<String, Value>,
    /// The arguments in its start, and those of its deltas: escapes as in a JSON string.
    filled: Vec<u8>,
    deltas: Vec<u8>,
    is_stopped: bool,
    /// Where the client has it, and whether it was stopped there.
    shown_as: Option<u64>,
    is_closed: bool,
}

impl Block {
    fn has_deltas(&self) -> bool {
        !self.deltas.trim_ascii().is_empty()
    }

    /// The arguments that clients run: those of the deltas, if there are any, and `{}` where none came.
    fn arguments(&self) -> &[u8] {
        match (self.has_deltas(), self.filled.is_empty() && self.is_stopped) {
            (true, _) => &self.deltas,
            (false, true) => b"{}",
            (false, false) => &self.filled,
        }
    }

    /// Its JSON, as this call with these arguments: `{}` where they are no object, since no history may hold another.
    fn json(&self, call: Option<&Assembled>, arguments: &str) -> Value {
        let mut said = Value::Object(self.said.clone());
        if let Some(call) = call {
            (said["id"], said["name"]) = (call.id().into(), call.name().into());
            said["input"] = serde_json::from_str::<Map<_, _>>(arguments).unwrap_or_default().into();
        }
        said
    }

    fn is_visible(&self, choice: &ReplyChoice) -> bool {
        let is_released = |call: usize| choice.calls().get(call).is_some_and(ReplyCall::is_released);
        let is_shown = |text| choice.visibility(text) != Visibility::Hidden;
        self.call.is_none_or(is_released) && self.text.is_none_or(is_shown)
    }

    /// Its call, if toolrein writes it.
    fn written<'a>(&self, choice: &'a ReplyChoice) -> Option<&'a Assembled> {
        let call = choice.calls().get(self.call?)?;
        call.is_shown_as_written().then_some(&call.assembled)
    }
}

impl MessagesReplies {
    pub(super) fn new(form: Form, limits: Limits) -> Self {
        Self { is_whole: form == Form::Whole, longest_event: limits.event, ..Self::default() }
    }

    /// Reads an event of a stream; `None` if its parts are read next.
    fn event(&mut self, raw: &Bytes, choices: &mut Vec<ReplyChoice>) -> Option<Frame> {
        let fields = parse_fields(raw);
        let data = &fields.data;
        let name = fields.name.and_then(|name| std::str::from_utf8(name).ok());
        let error = parse_event(name, fields.field, data);
        // The data says what an event is; its `event:` line only where that does not.
        let kind = text(data, &["type"]).or(name.map(str::to_owned)).unwrap_or_default();
        let names = ["type", "index", "message", "content_block", "delta"];
        let is_ambiguous = repeats(data, &[], &names) || repeats(data, &["content_block"], &["type"]);
        let mut frame = Frame::new(raw.clone(), FrameKind::Part);
        frame.payload = fields
            .place
            .map_or_else(|| Payload::Joined(Box::new(Bytes::copy_from_slice(data))), Payload::Span);
        match (&*kind, error) {
            _ if data.starts_with(b"[DONE]") && !self.has_stop => frame.kind = FrameKind::End,
            (_, None) if !data.contains(&b'{') => frame.kind = FrameKind::Idle,
            (_, None) if !is_object(data) => frame.kind = FrameKind::Unread(Unjudged::NotJson),
            _ if is_ambiguous => frame.kind = FrameKind::Unread(Unjudged::Ambiguous),
            ("message_start", _) if is_full(data, "message") && (self.mends || self.is_later) => {
                // Not all clients read blocks there.
                self.unread.extend(events_of(data));
                return None;
            }
            ("message_start", _) => self.message(&mut frame, "message", data, choices),
            ("content_block_start" | "content_block_delta" | "content_block_stop", _) => {
                self.part(&mut frame, &kind, data, choices);
            }
            ("message_delta", _) => {
                let usage = find(data, &["usage"]);
                note_usage(&mut frame, usage, None);
                self.choice_of(choices, &mut frame);
                self.finish(text(data, &["delta", "stop_reason"]), &mut frame);
            }
            ("message_stop", _) => (self.has_stop, frame.kind) = (true, FrameKind::End),
            (_, Some(error)) => frame.kind = FrameKind::Error { error: Box::new(error), may_be_reply: false },
            ("ping", None) => frame.kind = FrameKind::Idle,
            (_, None) => drop(self.choice_of(choices, &mut frame)),
        }
        Some(frame)
    }

    fn body(&mut self, raw: Bytes, choices: &mut Vec<ReplyChoice>) -> Frame {
        let is_success = (200..300).contains(&self.status);
        let error = if is_success { parse_in_200(&raw) } else { Some(parse(&raw).unwrap_or_default()) };
        let mut frame = Frame::new(raw.clone(), FrameKind::Part);
        frame.payload = Payload::Span(Span::new(0, raw.len()));
        match error {
            Some(error) => {
                frame.raw = if self.is_whole { raw } else { self.error_event(self.status, &raw) };
                frame.kind = FrameKind::Error { error: Box::new(error), may_be_reply: false };
            }
            None if self.is_whole && is_object(&raw) => self.message(&mut frame, "", &raw, choices),
            None => frame.kind = FrameKind::Unread(Unjudged::NotJson),
        }
        frame
    }

    /// The only choice, which the frame is about.
    fn choice_of<'a>(&self, choices: &'a mut Vec<ReplyChoice>, frame: &mut Frame) -> &'a mut ReplyChoice {
        frame.events.push(ReplyEvent::Choice(CHOICE));
        if choices.is_empty() {
            choices.push(ReplyChoice::with_apart_texts(CHOICE, !self.is_whole));
        }
        &mut choices[0]
    }

    /// Reads a message: the head of a stream, or a whole reply.
    fn message(&mut self, frame: &mut Frame, at: &str, data: &[u8], choices: &mut Vec<ReplyChoice>) {
        frame.is_ambiguous = repeats(data, &[at], &["content", "stop_reason"]);
        let (usage, model) = (find(data, &[at, "usage"]), find(data, &[at, "model"]));
        note_usage(frame, usage, model);
        self.of_message = self.blocks.len();
        if !self.is_whole && !is_full(data, at) {
            frame.kind = FrameKind::Head;
            return;
        }
        let choice = self.choice_of(choices, frame);
        for span in elements(data, &[at, "content"]) {
            self.begin_block(None, span, data, choice, frame);
            self.blocks.last_mut().unwrap().is_stopped = true;
        }
        self.report(choice);
        self.finish(text(data, &[at, "stop_reason"]), frame);
        frame.events.extend((!self.is_whole).then_some(ReplyEvent::Fixed));
    }

    fn finish(&mut self, reason: Option<String>, frame: &mut Frame) {
        let Some(reason) = reason else { return };
        self.has_finish = true;
        frame.events.extend((reason == "refusal").then_some(ReplyEvent::OtherContent));
        let ended = ["end_turn", "tool_use", "stop_sequence", "pause_turn", "compaction"];
        frame.events.push(ReplyEvent::Finish { is_cut: !ended.contains(&&*reason) });
    }

    /// Adds the block at this place of the data. It is whole where it has no index.
    fn begin_block(
        &mut self,
        index: Option<u64>,
        at: Span,
        data: &[u8],
        choice: &mut ReplyChoice,
        frame: &mut Frame,
    ) {
        let said: Map<String, Value> = serde_json::from_slice(at.of(data)).unwrap_or_default();
        let raw = |key| said.get(key).and_then(Value::as_str).map_or_else(Vec::new, escaped);
        let mut block = Block { index, ..Block::default() };
        match said.get("type").and_then(Value::as_str) {
            Some("tool_use") => {
                block.filled = match said.get("input") {
                    None => Vec::new(),
                    Some(Value::String(text)) => escaped(text),
                    Some(input) if *input == json!({}) => Vec::new(),
                    Some(input) => escaped(&input.to_string()),
                };
                let assembled = Assembled { id: raw("id"), name: raw("name"), ..Assembled::default() };
                let call = choice.add(ReplyCall { assembled, has_whole_name: true, ..ReplyCall::default() });
                block.call = Some(call);
                frame.events.push(ReplyEvent::Call(CallPiece {
                    call: call as u16,
                    begins: true,
                    argues: !block.filled.is_empty(),
                    is_ambiguous: repeats(at.of(data), &[], &["id", "name", "input"]),
                    is_whole: index.is_none(),
                    ..CallPiece::default()
                }));
            }
            Some("text") => {
                let number = choice.add_apart_text(Visibility::Shown);
                block.text = Some(number as usize);
                let text = inside(at.of(data), &["text"]).filter(|text| !text.is_empty());
                let text = text.map(|text| Span { start: text.start + at.start, end: text.end + at.start });
                frame.events.push(ReplyEvent::OfText(number));
                frame.events.extend(text.map(ReplyEvent::Text));
            }
            _ => {}
        }
        self.blocks.push(Block { said, ..block });
    }

    /// Reads a part of a block.
    fn part(&mut self, frame: &mut Frame, kind: &str, data: &[u8], choices: &mut Vec<ReplyChoice>) {
        let choice = self.choice_of(choices, frame);
        let index = find(data, &["index"]).and_then(|span| serde_json::from_slice(span.of(data)).ok());
        if let Some(at) = find(data, &["content_block"]).filter(|_| kind == "content_block_start") {
            self.begin_block(index, at, data, choice, frame);
            frame.tag = Some(self.blocks.len() as u16 - 1);
            return self.report(choice);
        }
        let of_message = &mut self.blocks[self.of_message..];
        let found = of_message.iter().rposition(|block| block.index == index);
        let (delta, piece) = (find(data, &["delta"]), inside(data, &["delta", "partial_json"]));
        let is_stray = found.map(|at| &of_message[at]).is_none_or(|block| {
            let is_known = block.call.is_some() || block.text.is_some();
            block.is_stopped || (is_known && delta.is_some() && block.call.is_some() != piece.is_some())
        });
        if is_stray && self.mends {
            // Clients take it for a part of another block, or run a block again that is stopped again.
            (frame.kind, self.is_changed) = (FrameKind::Dropped, true);
            return;
        }
        let Some(block) = found.map(|at| &mut of_message[at]) else { return };
        frame.tag = found.map(|at| (at + self.of_message) as u16);
        let is_late = block.is_stopped;
        block.is_stopped |= delta.is_none();
        let delta = delta.and_then(|delta| serde_json::from_slice::<Map<_, _>>(delta.of(data)).ok());
        for (key, value) in
            delta.into_iter().flatten().filter(|(key, _)| !["type", "partial_json"].contains(&&**key))
        {
            match (block.said.get_mut(&key), value) {
                (Some(Value::String(known)), Value::String(more)) => known.push_str(&more),
                (_, value) => drop(block.said.insert(key, value)),
            }
        }
        block.deltas.extend_from_slice(piece.map_or(b"", |piece| piece.of(data)));
        if let Some(call) = block.call.map(|call| call as u16) {
            frame.counted_bytes = piece.map_or(0, Span::len) as u32;
            let argues = piece.is_some_and(|piece| !piece.of(data).trim_ascii().is_empty());
            frame.events.push(ReplyEvent::Call(CallPiece { call, argues, is_late, ..CallPiece::default() }));
        }
        frame.events.extend(block.text.map(|number| ReplyEvent::OfText(number as u32)));
        frame.events.extend(inside(data, &["delta", "text"]).map(ReplyEvent::Text));
        self.report(choice);
    }

    /// Reports to the choice how far each call has come.
    fn report(&self, choice: &mut ReplyChoice) {
        for (at, block) in self.blocks.iter().enumerate().skip(self.of_reply) {
            let Some(call) = block.call else { continue };
            let is_open = serde_json::from_str::<Value>(&unescape(block.arguments())).is_err();
            let has_two = block.has_deltas() && !block.filled.is_empty();
            let known = choice.call_mut(call);
            // What comes next says whether arguments without their end were cut.
            known.is_complete = block.is_stopped && !(is_open && at + 1 == self.blocks.len());
            known.is_open = Some(is_open || !block.is_stopped);
            known.is_cut_off = self.has_ended && self.is_cut() && known.is_open == Some(true);
            known.differs = has_two && unescape(&block.filled) != unescape(&block.deltas);
            if !known.has_new_arguments() {
                choice.change_call(call, |known| known.arguments = block.arguments().to_vec());
            }
        }
    }

    /// The client's index of a block that begins there.
    fn show(&mut self, at: usize) -> u64 {
        let upstream = self.blocks[at].index;
        self.is_shifted |= self.mends && upstream != Some(self.next);
        let index = upstream.filter(|_| !self.is_shifted).unwrap_or(self.next);
        self.next = index + 1;
        *self.blocks[at].shown_as.insert(index)
    }

    /// Stops the blocks that the upstream has left open.
    fn close_blocks(&mut self, out: &mut Vec<Bytes>) {
        for block in self.blocks.iter_mut().filter(|block| !block.is_closed) {
            if let Some(index) = block.shown_as {
                out.push(event(&json!({"type": "content_block_stop", "index": index})));
                (block.is_closed, self.is_changed) = (true, true);
            }
        }
    }

    fn forward_part(&mut self, at: usize, frame: &Frame, choice: &ReplyChoice, out: &mut Vec<Bytes>) {
        let (data, block) = (frame.payload(), &self.blocks[at]);
        let (is_visible, written) = (block.is_visible(choice), block.written(choice));
        if !is_visible || (block.is_closed && (self.mends || written.is_some())) {
            self.is_shifted |= !is_visible;
            self.is_changed = true;
        } else if let Some(call) = written {
            self.is_changed = true;
            let (index, block) = (self.show(at), &mut self.blocks[at]);
            block.is_closed = true;
            // Clients read arguments in a start only where no others may come: of calls that a program makes.
            let is_inside = !block.filled.is_empty() && !block.has_deltas();
            let arguments = call.arguments();
            let (inner, delta) = if is_inside { (&*arguments, "") } else { ("", &*arguments) };
            let delta = ("input_json_delta", "partial_json", delta);
            out.extend(block_events(index, &block.json(Some(call), inner), delta));
        } else {
            let (upstream, shown_as) = (block.index, block.shown_as.unwrap_or_else(|| self.show(at)));
            let ends = text(data, &["type"]).is_some_and(|kind| kind == "content_block_stop");
            self.blocks[at].is_closed |= ends;
            let index = find(data, &["index"]).filter(|_| upstream.is_some_and(|index| index != shown_as));
            self.write(frame, index.map(|span| (span, shown_as.to_string())).into_iter(), out);
        }
    }

    /// The reason of the message, which follows what was released, and the usage, which is that of all replies.
    fn new_end(
        &self,
        data: &[u8],
        reason: &[&str],
        choice: &ReplyChoice,
        context: &WriteContext,
    ) -> Vec<(&'static str, String)> {
        let reason = text(data, reason).filter(|_| context.acts || self.mends);
        let is_wrong = reason.as_deref() == Some("tool_use") && !choice.releases();
        let reason = if is_wrong { Some("end_turn".to_owned()) } else { reason };
        let usage = context.usage.as_ref().map(Value::to_string);
        let reason = reason.map(|reason| ("stop_reason", quote(&reason)));
        reason.into_iter().chain(usage.map(|usage| ("usage", usage))).collect()
    }

    /// Writes a frame with these values at these places.
    fn write(&mut self, frame: &Frame, new: impl Iterator<Item = (Span, String)>, out: &mut Vec<Bytes>) {
        let (data, mut splices) = (Bytes::copy_from_slice(frame.payload()), Splices::default());
        let other = new.filter(|(span, new)| span.of(&data) != new.as_bytes());
        other.for_each(|(span, new)| splices.replace(span, new));
        if splices.is_empty() {
            return out.push(frame.raw.clone());
        }
        self.is_changed = true;
        let new = splices.apply(&data).join();
        out.push(match frame.payload {
            Payload::Span(at) => {
                [&frame.raw[..at.start as usize], &new, &frame.raw[at.end as usize..]].concat().into()
            }
            _ => event(&serde_json::from_slice(&new).unwrap_or_default()),
        });
    }
}

impl ReplyCodec for MessagesReplies {
    fn begin(&mut self, reply: NextReply) {
        self.is_stream = !self.is_whole && reply.form == Form::Streamed;
        self.splitter = self.is_stream.then(|| Splitter::new(self.longest_event));
        (self.mends, self.observes) = (reply.is_strict && !reply.observes, reply.observes);
        (self.status, self.is_later) = (reply.status, reply.continues.is_some());
        self.is_shifted |= self.is_later;
        (self.of_message, self.of_reply) = (self.blocks.len(), self.blocks.len());
        (self.has_finish, self.has_stop, self.has_ended) = (false, false, false);
        (self.input, self.unread) = (Bytes::new(), VecDeque::new());
    }

    fn turn_to(&mut self, form: Form) {
        self.is_whole = form == Form::Whole;
    }

    fn push(&mut self, bytes: Bytes) {
        self.input = [&self.input[..], &bytes].concat().into();
    }

    fn next(&mut self, choices: &mut Vec<ReplyChoice>, _: bool) -> Option<Frame> {
        let is_later = self.is_later;
        if !self.is_stream && self.has_ended && !self.input.is_empty() {
            let raw = std::mem::take(&mut self.input);
            return Some(Frame { is_later, ..self.body(raw, choices) });
        }
        loop {
            let piece = match (self.unread.pop_front(), &mut self.splitter) {
                (Some(raw), _) => Piece::Event(raw),
                (None, Some(splitter)) => splitter.next(&mut self.input)?,
                (None, None) => {
                    choices.iter_mut().for_each(|choice| self.report(choice));
                    return None;
                }
            };
            match piece {
                Piece::Oversized(raw) => {
                    return Some(Frame::new(raw, FrameKind::Unread(Unjudged::EventTooLong)));
                }
                Piece::Event(raw) => {
                    if let Some(frame) = self.event(&raw, choices) {
                        return Some(Frame { is_later, ..frame });
                    }
                }
            }
        }
    }

    fn end(&mut self) {
        self.has_ended = true;
        let rest = self.splitter.take().and_then(|mut splitter| splitter.finish());
        self.unread.extend(rest.map(|(Piece::Event(raw) | Piece::Oversized(raw))| raw));
    }

    fn take_open(&mut self) -> bool {
        false
    }

    fn at_boundary(&self) -> bool {
        self.splitter.as_ref().is_none_or(Splitter::at_boundary)
    }

    fn is_body(&self) -> bool {
        !self.is_stream
    }

    fn last_event(&self) -> Option<Result<LastEvent, IncompleteEvent>> {
        self.is_stream.then(|| Ok(LastEvent::default()))
    }

    fn is_cut(&self) -> bool {
        self.is_stream && !self.has_finish && !self.has_stop
    }

    fn unread_bytes(&self) -> usize {
        self.input.len()
    }

    fn known_bytes(&self) -> usize {
        self.blocks.iter().map(|block| 256 + block.filled.len() + block.deltas.len()).sum()
    }

    fn hidden_exchange(&self, choice: &ReplyChoice, _: &KnownIds) -> Option<Bytes> {
        let (mut content, mut results) = (Vec::new(), Vec::new());
        for block in &self.blocks[self.of_reply..] {
            let Some(call) = block.call.map(|call| &choice.calls()[call]) else {
                content.push(block.json(None, ""));
                continue;
            };
            if let Some(result) = call.decision.as_ref()?.hidden_result(choice.question.as_ref()) {
                let call = call.accepted.of(&call.assembled);
                content.push(block.json(Some(&call), &call.arguments()));
                results.push(json!({"type": "tool_result", "tool_use_id": call.id(), "content": result}));
            }
        }
        let is_any = !results.is_empty();
        let call = json!({"role": "assistant", "content": content});
        is_any.then(|| format!("{call},{}", json!({"role": "user", "content": results})).into())
    }

    fn end_reply(&mut self, choice: &ReplyChoice) {
        for block in self.blocks[self.of_reply..].iter().filter(|block| block.is_visible(choice)) {
            let call = block.written(choice);
            let arguments = call.map_or_else(String::new, Assembled::arguments);
            self.before.push(block.json(call, &arguments).to_string());
        }
        self.before.append(&mut self.after);
    }

    fn forward(
        &mut self,
        frame: &Frame,
        choices: &[ReplyChoice],
        context: &WriteContext,
        out: &mut Vec<Bytes>,
    ) {
        let data = frame.payload();
        let kind = text(data, &["type"]).unwrap_or_default();
        let is_head = kind == "message_start";
        let is_left_out = is_head && self.has_head && (self.is_later || self.mends);
        self.has_head |= is_head;
        let Some(choice) = choices.first().filter(|_| !is_head && !self.observes) else {
            self.is_changed |= is_left_out;
            return out.extend((!is_left_out).then(|| frame.raw.clone()));
        };
        if let Some(tag) = frame.tag {
            return self.forward_part(tag as usize, frame, choice, out);
        }
        if (context.acts || self.mends) && ["message_delta", "message_stop"].contains(&&*kind) {
            self.close_blocks(out);
        }
        // After a finish that is held back nothing of the reply follows.
        if choice.is_wholly_blocked() && self.has_finish && frame.parts().next().is_some() {
            self.is_changed = true;
        } else {
            let new = self.new_end(data, &["delta", "stop_reason"], choice, context).into_iter();
            let path = |key| if key == "usage" { vec![key] } else { vec!["delta", key] };
            self.write(frame, new.filter_map(|(key, new)| Some((find(data, &path(key))?, new))), out);
        }
    }

    fn forward_whole(
        &mut self,
        frames: &[Frame],
        choices: &[ReplyChoice],
        context: &WriteContext,
        out: &mut Vec<Bytes>,
    ) {
        let ([first, ..], [.., last], [choice, ..]) = (frames, frames, choices) else { return };
        if self.observes {
            return out.push(first.raw.clone());
        }
        let mut new = self.new_end(last.payload(), &["stop_reason"], choice, context);
        if context.acts {
            self.end_reply(choice);
            new.push(("content", format!("[{}]", self.before.join(","))));
        }
        let place = |(key, new)| Some((find(first.payload(), &[key])?, new));
        self.write(first, new.into_iter().filter_map(place), out);
    }

    fn write_text(&mut self, _: u32, text: &str, before: bool, out: &mut Vec<Bytes>) {
        let text = if before { text.trim() } else { text };
        self.is_changed = true;
        if self.is_whole {
            let own = json!({"type": "text", "text": text}).to_string();
            return if before { self.before.insert(0, own) } else { self.after.push(own) };
        }
        self.close_blocks(out);
        let block = json!({"type": "text", "text": ""});
        out.extend(block_events(self.next, &block, ("text_delta", "text", text)));
        (self.next, self.is_shifted) = (self.next + 1, true);
    }

    fn write_cut(&mut self, out: &mut Vec<Bytes>) {
        if self.is_changed {
            out.push(self.own_error_event("The upstream ended its stream before its last event.", ""));
        }
    }

    fn write_finish(&mut self, _: u32, has_calls: bool, out: &mut Vec<Bytes>) {
        self.close_blocks(out);
        let delta =
            json!({"stop_reason": if has_calls { "tool_use" } else { "end_turn" }, "stop_sequence": null});
        out.push(event(&json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 0}})));
        out.extend((!self.has_stop).then(|| event(&json!({"type": "message_stop"}))));
    }

    fn set_options(&mut self, _: &Options) {}

    fn is_changed(&self) -> bool {
        self.is_changed
    }

    fn error_event(&mut self, _: u16, body: &[u8]) -> Bytes {
        self.own_error_event(&parse(body).unwrap_or_default().messages.join(": "), "")
    }

    fn own_error_event(&mut self, message: &str, _: &str) -> Bytes {
        let mut out = Vec::new();
        self.close_blocks(&mut out);
        out.push(event(&json!({"type": "error", "error": {"type": "api_error", "message": message}})));
        out.concat().into()
    }

    fn heartbeat(&mut self) -> Bytes {
        event(&json!({"type": "ping"}))
    }
}

/// Notes the usage that an event reports.
fn note_usage(frame: &mut Frame, usage: Option<Span>, model: Option<Span>) {
    if let Some(report) = usage {
        let noted = frame.usage.get_or_insert_default();
        noted.reports.push(report);
        noted.model = model;
    }
}
