//! The bytes of one reply of the upstream until they are read: a stream is split into events, and a body is collected to its end
//! within its limit.

use crate::reply::{Form, Limits};
use bytes::Bytes;
use wire::sse::{Piece, Splitter};

/// See the file's head.
pub(crate) struct ReplyInput {
    state: State,
    /// Bytes of a stream that are not split into events yet.
    rest: Bytes,
    limits: Limits,
}

enum State {
    Events(Box<Splitter>),
    Body {
        form: Form,
        status: u16,
        pieces: Vec<Bytes>,
        size: usize,
    },
    /// A body that exceeds its limit.
    TooLong(Vec<Bytes>),
    /// What follows such a body passes.
    Passing(Vec<Bytes>),
    /// The body has ended.
    Whole {
        form: Form,
        status: u16,
        pieces: Vec<Bytes>,
    },
    Ended,
}

/// What is read next.
pub(crate) enum NextInput {
    /// Nothing is complete.
    Nothing,
    /// An event of a stream, or a part of one that exceeds its limit.
    Event(Piece),
    /// The beginning of a body that exceeds its limit.
    TooLong(Bytes),
    /// Bytes that cannot be read any more.
    Passing(Bytes),
    /// A body, with the form in which the upstream sent it and its status.
    Whole { form: Form, status: u16, body: Bytes },
    /// The reply has ended, and all of it was read.
    Ended,
}

impl ReplyInput {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { state: State::Ended, rest: Bytes::new(), limits }
    }

    /// A reply of this form and status follows. It is read as events where the `client` wants a stream too.
    pub(crate) fn begin(&mut self, client: Form, form: Form, status: u16) {
        self.rest = Bytes::new();
        self.state = match (client, form) {
            (Form::Streamed, Form::Streamed) => State::Events(Box::new(Splitter::new(self.limits.event))),
            _ => State::Body { form, status, pieces: Vec::new(), size: 0 },
        };
    }

    pub(crate) fn push(&mut self, bytes: Bytes) {
        match &mut self.state {
            State::Events(_) if self.rest.is_empty() => self.rest = bytes,
            State::Events(_) => self.rest = [&self.rest[..], &bytes].concat().into(),
            State::Body { pieces, size, .. } => {
                *size += bytes.len();
                pieces.push(bytes);
                if *size > self.limits.reply {
                    self.state = State::TooLong(std::mem::take(pieces));
                }
            }
            State::TooLong(pieces) | State::Passing(pieces) => pieces.push(bytes),
            State::Whole { .. } | State::Ended => {}
        }
    }

    /// Whether nothing of a stream can be read before further bytes come, or its end.
    pub(crate) fn is_drained(&self) -> bool {
        self.is_stream() && self.rest.is_empty()
    }

    /// The bytes that come next, if an event of a stream begins with them.
    pub(crate) fn beginning(&self) -> &[u8] {
        match &self.state {
            State::Events(splitter) if splitter.is_at_event() => &self.rest,
            _ => &[],
        }
    }

    /// Takes the event off them that has this `length`; `None` if it is too long.
    pub(crate) fn take_beginning(&mut self, length: usize) -> Option<Bytes> {
        let State::Events(splitter) = &self.state else { return None };
        splitter.take_event(&mut self.rest, length)
    }

    pub(crate) fn next(&mut self) -> NextInput {
        match &mut self.state {
            State::Events(splitter) => {
                splitter.next(&mut self.rest).map_or(NextInput::Nothing, NextInput::Event)
            }
            State::TooLong(pieces) => {
                let raw = std::mem::take(pieces).concat();
                self.state = State::Passing(Vec::new());
                NextInput::TooLong(raw.into())
            }
            State::Passing(pieces) if !pieces.is_empty() => NextInput::Passing(pieces.remove(0)),
            State::Whole { form, status, pieces } => {
                let (form, status, mut pieces) = (*form, *status, std::mem::take(pieces));
                let body =
                    if pieces.len() > 1 { pieces.concat().into() } else { pieces.pop().unwrap_or_default() };
                self.state = State::Ended;
                NextInput::Whole { form, status, body }
            }
            State::Body { .. } | State::Passing(_) => NextInput::Nothing,
            State::Ended => NextInput::Ended,
        }
    }

    /// The upstream's bytes have ended; returns an event that has no end.
    pub(crate) fn end(&mut self) -> Option<Bytes> {
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Events(mut splitter) => match splitter.finish()? {
                Piece::Event(raw) => return Some(raw),
                Piece::Oversized(raw) => self.state = State::Passing(vec![raw]),
            },
            State::Body { form, status, pieces, .. } => self.state = State::Whole { form, status, pieces },
            other => self.state = other,
        }
        None
    }

    /// Whether events of a stream are still to come.
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self.state, State::Events(_))
    }

    /// Whether an event of toolrein's could be written here.
    pub(crate) fn at_boundary(&self) -> bool {
        !matches!(&self.state, State::Events(splitter) if !splitter.at_boundary())
    }

    /// Bytes in memory.
    pub(crate) fn size(&self) -> usize {
        let input = match &self.state {
            State::Events(splitter) => splitter.partial_bytes(),
            State::Body { size, .. } => *size,
            State::TooLong(pieces) | State::Passing(pieces) | State::Whole { pieces, .. } => {
                pieces.iter().map(Bytes::len).sum()
            }
            State::Ended => 0,
        };
        input + self.rest.len()
    }
}
