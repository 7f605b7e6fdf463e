//! The reply reader: bytes of the upstream to events, in either framing. A reply in the other form than the client's is
//! converted here and nowhere else. Parses events; decides nothing.

use super::other_form::{error_data, stream_of, whole_of};
use super::{Form, Limits, Unjudged};
use crate::chat::completion::{self, CALLS, Reply, may_be_reply};
use crate::error::{UpstreamError, may_be_in_200, parse, parse_event, parse_in_200};
use crate::lines::{hides_lines, is_empty_list, single_events};
use bytes::Bytes;
use wire::body::{Fault, Span};
use wire::sse::{Piece, Splitter, other_lines, parse_fields, write_event};

/// One event of a stream, or a whole body.
pub(super) struct Event {
    /// As it came.
    pub(super) raw: Bytes,
    pub(super) kind: Kind,
}

/// What an event is.
pub(super) enum Kind {
    Chunk(Chunk),
    /// The upstream's error, in which no client finds a call; with `may_be_reply`, some client might.
    Error {
        error: UpstreamError,
        may_be_reply: bool,
    },
    /// `[DONE]`
    Done,
    /// A comment, or another keep-alive text.
    Opaque,
    /// It cannot be read, or clients may read it differently.
    Unread(Unjudged),
}

impl Event {
    fn may_hold_calls(&self) -> bool {
        matches!(&self.kind, Kind::Chunk(chunk) if chunk.reply.may_hold_calls())
    }
}

impl Kind {
    /// The kind of an event by the result of parsing its `data`, which is at `place`; `is_error`: clients may find an
    /// error in it.
    fn read(read: Result<Reply, Fault>, data: Bytes, place: Option<Span>, is_error: bool) -> Self {
        match read {
            Ok(reply) => {
                let shows_error = is_error && reply.member(&data, b"error").is_some();
                Self::Chunk(Chunk { data, place, reply, shows_error })
            }
            Err(Fault::Crowded) => Self::Unread(Unjudged::ReplyTooLong),
            Err(_) => Self::Unread(Unjudged::NotJson),
        }
    }
}

/// A parsed chunk of a stream, or a parsed whole reply.
pub(super) struct Chunk {
    /// Its JSON.
    pub(super) data: Bytes,
    /// Its span in the event, if it is there in one piece.
    pub(super) place: Option<Span>,
    pub(super) reply: Reply,
    /// Clients that look for errors see one beside the calls.
    pub(super) shows_error: bool,
}

/// In which events the calls of a stream were. Clients that go by lines read each line of an event as a chunk; the others read
/// nothing of such an event, and so a call of other pieces.
#[derive(Clone, Copy, Default)]
struct CallsByFraming {
    /// In events that are one chunk.
    whole: bool,
    /// In events that were read line by line.
    by_line: bool,
}

impl CallsByFraming {
    /// Notes an event with calls, and whether it was read line by line; true if clients may now read another call than
    /// toolrein.
    fn differ_after(&mut self, by_line: bool) -> bool {
        let differ = self.by_line || (by_line && self.whole);
        *if by_line { &mut self.by_line } else { &mut self.whole } = true;
        differ
    }
}

/// See the file's head.
pub(super) struct Reader {
    client: Form,
    limits: Limits,
    /// Events with lines that only some clients see are not read.
    strict: bool,
    framing: Framing,
    /// Of the stream so far.
    calls: CallsByFraming,
    /// Parsed events, the next one last.
    ready: Vec<Event>,
    /// The next piece of the stream, which is not parsed yet.
    piece: Option<Piece>,
    /// The upstream's last event has no end.
    is_open: bool,
}

enum Framing {
    /// A stream, and its bytes that are not split into events yet.
    Events(Splitter, Bytes),
    /// A whole reply, collected to its end.
    Body(Body),
    Ended,
}

struct Body {
    /// Its form.
    form: Form,
    status: u16,
    pieces: Vec<Bytes>,
    size: usize,
    /// It exceeds its limit and passes through.
    is_over: bool,
}

impl Reader {
    pub(super) fn new(client: Form, limits: Limits, strict: bool) -> Self {
        let (framing, calls) = (Framing::Ended, CallsByFraming::default());
        Self { client, limits, strict, framing, calls, ready: Vec::new(), piece: None, is_open: false }
    }

    /// A reply of this form and HTTP status follows.
    pub(super) fn begin(&mut self, form: Form, status: u16) {
        self.framing = match (self.client, form) {
            (Form::Streamed, Form::Streamed) => {
                Framing::Events(Splitter::new(self.limits.event), Bytes::new())
            }
            _ => Framing::Body(Body { form, status, pieces: Vec::new(), size: 0, is_over: false }),
        };
        self.ready.clear();
        self.piece = None;
        self.calls = CallsByFraming::default();
        self.is_open = false;
    }

    /// Takes the next bytes.
    pub(super) fn push(&mut self, bytes: Bytes) {
        match &mut self.framing {
            Framing::Events(_, input) if input.is_empty() => *input = bytes,
            Framing::Events(_, input) => *input = [&input[..], &bytes].concat().into(),
            Framing::Body(body) if body.is_over => {
                self.ready.insert(0, Event { raw: bytes, kind: Kind::Opaque });
            }
            Framing::Body(body) => {
                body.size += bytes.len();
                body.pieces.push(bytes);
                if body.size > self.limits.reply {
                    body.is_over = true;
                    let raw = joined(std::mem::take(&mut body.pieces));
                    self.ready.insert(0, Event { raw, kind: Kind::Unread(Unjudged::ReplyTooLong) });
                }
            }
            Framing::Ended => {}
        }
    }

    /// The next complete event; `unjudged`: it need not be parsed.
    pub(super) fn next(&mut self, unjudged: bool) -> Option<Event> {
        if let Some(event) = self.ready.pop() {
            return Some(event);
        }
        self.split();
        let piece = self.piece.take()?;
        Some(self.read(piece, unjudged))
    }

    /// Whether nothing of a stream can be read before further bytes come, or its end.
    pub(super) fn is_drained(&self) -> bool {
        let has_no_bytes = matches!(&self.framing, Framing::Events(_, input) if input.is_empty());
        has_no_bytes && self.ready.is_empty() && self.piece.is_none()
    }

    /// The bytes that come next, if an event of a stream begins with them.
    pub(super) fn beginning(&self) -> &[u8] {
        match &self.framing {
            Framing::Events(splitter, input)
                if self.ready.is_empty() && self.piece.is_none() && splitter.is_at_event() =>
            {
                input
            }
            _ => &[],
        }
    }

    /// Takes the event off them that has this `length`; `None` if it is too long.
    pub(super) fn take_beginning(&mut self, length: usize) -> Option<Bytes> {
        let Framing::Events(splitter, input) = &mut self.framing else { return None };
        splitter.take_event(input, length)
    }

    /// The next event of the stream, which is not parsed yet, if it is complete.
    pub(super) fn unread_event(&mut self) -> Option<&Bytes> {
        if self.ready.is_empty() {
            self.split();
        }
        match &self.piece {
            Some(Piece::Event(raw)) => Some(raw),
            _ => None,
        }
    }

    /// Takes that event.
    pub(super) fn take_event(&mut self) -> Option<Bytes> {
        match self.piece.take()? {
            Piece::Event(raw) | Piece::Oversized(raw) => Some(raw),
        }
    }

    fn split(&mut self) {
        if let (None, Framing::Events(splitter, input)) = (&self.piece, &mut self.framing) {
            self.piece = splitter.next(input);
        }
    }

    /// The upstream's reply has ended: the rest is one more event, or the reply.
    pub(super) fn finish(&mut self) {
        match std::mem::replace(&mut self.framing, Framing::Ended) {
            Framing::Events(mut splitter, _) => {
                let rest = splitter.finish();
                self.is_open = rest.is_some() || !splitter.at_boundary();
                if let Some(piece) = rest {
                    let event = self.read(piece, false);
                    self.ready.push(event);
                }
            }
            Framing::Body(body) if !body.is_over => self.end_body(body),
            Framing::Body(_) | Framing::Ended => {}
        }
    }

    /// Whether the upstream left its last event open; false from then on.
    pub(super) fn take_open(&mut self) -> bool {
        std::mem::take(&mut self.is_open)
    }

    /// Whether toolrein could write an event of its own here.
    pub(super) fn at_boundary(&self) -> bool {
        !matches!(&self.framing, Framing::Events(splitter, _) if !splitter.at_boundary())
    }

    /// Whether the reply is a body and not a stream.
    pub(super) fn is_body(&self) -> bool {
        self.client == Form::Whole || matches!(self.framing, Framing::Body(_))
    }

    /// The bytes of an event that has not ended; `None` if the reply is not a stream.
    pub(super) fn rest(&self) -> Option<&[u8]> {
        match &self.framing {
            Framing::Events(splitter, _) => Some(splitter.rest()),
            Framing::Body(_) | Framing::Ended => None,
        }
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        match &self.framing {
            Framing::Events(splitter, input) => splitter.partial_bytes() + input.len(),
            Framing::Body(body) if !body.is_over => body.size,
            Framing::Body(_) | Framing::Ended => 0,
        }
    }

    fn read(&mut self, piece: Piece, unjudged: bool) -> Event {
        match piece {
            Piece::Event(raw) | Piece::Oversized(raw) if unjudged => Event { raw, kind: Kind::Opaque },
            Piece::Oversized(raw) => Event { raw, kind: Kind::Unread(Unjudged::EventTooLong) },
            Piece::Event(raw) => self.event(raw),
        }
    }

    /// Parses one event of a stream. If it is several, the further ones are ready next.
    pub(super) fn event(&mut self, raw: Bytes) -> Event {
        if !self.strict {
            let mut further = Vec::new();
            let first = read_event(raw, false, &mut further);
            self.ready.extend(further.into_iter().rev());
            return first;
        }
        let mut further = Vec::new();
        let first = read_event(raw.clone(), true, &mut further);
        let has_calls = std::iter::once(&first).chain(&further).any(Event::may_hold_calls);
        if has_calls && self.calls.differ_after(!further.is_empty()) {
            return Event { raw, kind: Kind::Unread(Unjudged::Ambiguous) };
        }
        self.ready.extend(further.into_iter().rev());
        first
    }

    /// Parses a reply that has ended.
    fn end_body(&mut self, body: Body) {
        let Body { form, status, pieces, .. } = body;
        let raw = joined(pieces);
        let converted = match (self.client, form) {
            (Form::Whole, Form::Streamed) => whole_of(&raw),
            (Form::Streamed, Form::Whole) => return self.end_as_stream(&raw, status),
            _ => Some(raw.clone()),
        };
        let event = match converted {
            Some(whole) => whole_event(whole, status),
            None => Event { raw, kind: Kind::Unread(Unjudged::NotJson) },
        };
        self.ready.insert(0, event);
    }

    /// Converts a whole reply to the events of a stream.
    fn end_as_stream(&mut self, raw: &Bytes, status: u16) {
        let Some(stream) = stream_of(raw).filter(|_| is_success(status)) else {
            let error = error_of(raw, status);
            let kind = Kind::Error { may_be_reply: error.is_none(), error: error.unwrap_or_default() };
            // Only the error: clients that do not check for errors would run calls beside it.
            let raw = write_event(&error_data(status, raw));
            return self.ready.insert(0, Event { raw, kind });
        };
        let (mut splitter, mut events) = (Splitter::new(stream.len()), Vec::new());
        splitter.push(stream, |piece| {
            let event = self.read(piece, false);
            events.push(event);
        });
        self.ready.extend(events.into_iter().rev());
    }
}

fn reads(data: &[u8]) -> bool {
    Reply::parse(data).is_ok()
}

fn holds_calls(data: &[u8]) -> bool {
    Reply::parse(data).is_ok_and(|reply| reply.may_hold_calls())
}

/// Parses one event of a stream. `strict`: one with lines that only some clients see is not read. If it is several, the
/// further ones are added to `further`.
pub(super) fn read_event(raw: Bytes, strict: bool, further: &mut Vec<Event>) -> Event {
    let fields = parse_fields(&raw);
    let opaque = |raw| Event { raw, kind: Kind::Opaque };
    let is_hidden = strict && hides_lines(&raw, &fields, reads, holds_calls);
    if is_hidden || CALLS.are_in_lines(other_lines(&raw)) {
        return Event { raw, kind: Kind::Unread(Unjudged::Ambiguous) };
    }
    if fields.data.is_empty() {
        return opaque(raw);
    }
    if fields.data.starts_with(b"[DONE]") && fields.place.is_some() {
        return Event { raw, kind: Kind::Done };
    }
    let read = Reply::parse(&fields.data);
    if read.is_err()
        && let Some(raws) = single_events(&raw, reads)
    {
        let mut events = raws.into_iter().map(|raw| read_event(raw, strict, &mut Vec::new()));
        let first = events.next().unwrap_or_else(|| opaque(raw));
        further.extend(events);
        return first;
    }
    let name = fields.name.and_then(|name| std::str::from_utf8(name).ok());
    let error = parse_event(name, fields.field, &fields.data);
    let may_hold_calls = read.as_ref().map_or_else(|_| may_be_reply(&fields.data), Reply::may_hold_calls);
    let (place, data) = match fields.place {
        Some(place) => (Some(place), raw.slice(place.range())),
        None => (None, Bytes::copy_from_slice(&fields.data)),
    };
    let kind = match (read, error) {
        // An error with a call beside it is still a reply for clients that see no error.
        (_, Some(error)) if !may_hold_calls => Kind::Error { error, may_be_reply: false },
        (Err(_), _) if is_word(&data) => Kind::Opaque,
        (read, error) => Kind::read(read, data, place, error.is_some()),
    };
    Event { raw, kind }
}

/// Parses a whole reply that came with this status.
pub(super) fn whole_event(raw: Bytes, status: u16) -> Event {
    let read = Reply::read(&raw, completion::Form::Whole);
    let is_success = is_success(status);
    let (may_hold_calls, may_be_error) = match &read {
        Ok(reply) => (reply.may_hold_calls(), !is_success || may_be_in_200(&reply.members, &raw)),
        Err(_) => (is_success && may_be_reply(&raw), true),
    };
    let error = may_be_error.then(|| error_of(&raw, status)).flatten();
    let kind = match (read, error) {
        (read, Some(error)) if !may_hold_calls => {
            Kind::Error { error, may_be_reply: !is_success && read.is_err() && may_be_reply(&raw) }
        }
        (read, error) => Kind::read(read, raw.clone(), Some(Span::new(0, raw.len())), error.is_some()),
    };
    Event { raw, kind }
}

/// The error of a whole reply. An error status is one even without a text.
fn error_of(raw: &[u8], status: u16) -> Option<UpstreamError> {
    if is_success(status) { parse_in_200(raw) } else { Some(parse(raw).unwrap_or_default()) }
}

fn is_success(status: u16) -> bool {
    (200..300).contains(&status)
}

fn joined(mut pieces: Vec<Bytes>) -> Bytes {
    if pieces.len() > 1 { pieces.concat().into() } else { pieces.pop().unwrap_or_default() }
}

/// Whether data is neither an object nor a list with anything in it for any parser: some servers send such text as a
/// keep-alive.
fn is_word(data: &[u8]) -> bool {
    is_empty_list(data) || (!data.iter().any(|byte| matches!(byte, b'{' | b'[')) && !may_be_reply(data))
}
