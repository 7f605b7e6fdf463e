//! The output queue of a reply: events of a stream that wait for decisions on their calls, and whole replies. Keeps
//! them in order and counts their bytes; decides nothing.

use super::edit::CallAt;
use super::reader::Chunk;
use bytes::Bytes;
use std::collections::VecDeque;

/// Events, oldest first.
#[derive(Default)]
pub(super) struct Queue {
    events: VecDeque<Held>,
    bytes: usize,
    said_bytes: usize,
}

/// An event that waits.
pub(super) struct Held {
    pub(super) raw: Bytes,
    /// Its judged chunk, if it is one.
    pub(super) said: Option<Said>,
}

/// A chunk that was judged.
pub(super) struct Said {
    pub(super) chunk: Chunk,
    /// For each call in it: where it is, and which one.
    pub(super) calls: Vec<CallAt>,
    /// For a later reply, the position of the choice that it continues.
    pub(super) continuing: Option<usize>,
}

impl Queue {
    pub(super) fn push(&mut self, event: Held) {
        self.bytes += event.raw.len();
        self.said_bytes += event.said_bytes();
        self.events.push_back(event);
    }

    pub(super) fn pop(&mut self) -> Option<Held> {
        let event = self.events.pop_front()?;
        self.bytes -= event.raw.len();
        self.said_bytes -= event.said_bytes();
        Some(event)
    }

    /// Drops the later reply for the choice at `place`: another one follows.
    pub(super) fn forget(&mut self, place: usize) {
        let is_of = |event: &Held| matches!(&event.said, Some(said) if said.continuing == Some(place));
        if let Some(at) = self.events.iter().position(is_of)
            && let Some(event) = self.events.remove(at)
        {
            self.bytes -= event.raw.len();
            self.said_bytes -= event.said_bytes();
        }
    }

    pub(super) fn front(&self) -> Option<&Held> {
        self.events.front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Bytes of the events.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes that count against the limit on held bytes.
    pub(super) fn said_bytes(&self) -> usize {
        self.said_bytes
    }
}

impl Held {
    /// Its size for the limit on held bytes. For parts of calls only arguments and text count, since some models send
    /// one token per event, with hundreds of bytes around it.
    fn said_bytes(&self) -> usize {
        let Some(said) = self.said.as_ref().filter(|said| !said.calls.is_empty()) else {
            return self.raw.len();
        };
        let choices = said.chunk.reply.choices.iter();
        let said = choices.map(|choice| {
            choice.calls().map(|call| call.arguments.bytes()).sum::<usize>()
                + choice.delta.content.text_bytes()
        });
        said.sum()
    }
}
