//! Deduplication of recorded request bodies: each holds the conversation so far, so the last one holds everything.
//! Passes lines on in order and drops those that a later line continues.

use super::exchange_lines::UPSTREAM;
use super::input::{Flaw, Line};
use super::live::MOST_LIVE;
use super::recording::Labels;
use bytes::Bytes;
use dialects::AnyDialect;
use model::message::Role;
use std::collections::VecDeque;
use wire::body::Span;

/// Lines held back until it is known whether another one continues them: so many conversations may be recorded at the
/// same time.
const MOST_HELD: usize = 64;
/// The most bytes of lines held back.
const MOST_HELD_BYTES: usize = 64 << 20;

/// The lines held back, oldest first.
#[derive(Default)]
pub(super) struct Growth {
    held: VecDeque<Held>,
    bytes: usize,
}

struct Held {
    line: Line,
    /// The messages without their brackets; `None` where the line is not a request.
    messages: Option<Span>,
}

impl Growth {
    /// Adds a line; returns whether it replaces an earlier one.
    pub(super) fn take(&mut self, mut line: Line) -> bool {
        let messages = line.request().ok().and_then(|(content, dialect)| match line.request_end {
            Some(end) => asked(content, dialect, end),
            None => messages_of(content, dialect),
        });
        let new = messages.zip(line.content.as_ref().ok()).map(|(span, content)| span.of(content));
        let known = new.and_then(|new| self.held.iter().position(|held| held.is_begun_by(new)));
        if let Some(mut held) = known.and_then(|at| self.held.remove(at)) {
            self.bytes -= size(&held.line.content);
            held.line.live.append(&mut line.live);
            line.live = held.line.live;
            let beyond = line.live.len().saturating_sub(MOST_LIVE);
            line.live.drain(..beyond);
        }
        self.bytes += size(&line.content);
        self.held.push_back(Held { line, messages });
        known.is_some()
    }

    /// The next line if there is no more room, or with `all` in any case.
    pub(super) fn next(&mut self, all: bool) -> Option<Line> {
        if !all && self.held.len() <= MOST_HELD && self.bytes <= MOST_HELD_BYTES {
            return None;
        }
        let line = self.held.pop_front()?.line;
        self.bytes -= size(&line.content);
        Some(line)
    }
}

impl Held {
    /// Whether `later` messages begin with these, or are the same.
    fn is_begun_by(&self, later: &[u8]) -> bool {
        let Some((span, content)) = self.messages.zip(self.line.content.as_ref().ok()) else { return false };
        let rest = later.strip_prefix(span.of(content).trim_ascii_end());
        rest.is_some_and(|rest| rest.trim_ascii_start().first().is_none_or(|next| *next == b','))
    }
}

/// The messages of a line that is a request as it was sent, without their brackets. Such a line names a model, has no
/// labels, and waits for a reply; any other is a separate conversation, however similar to others.
fn messages_of(line: &Bytes, dialect: AnyDialect) -> Option<Span> {
    let request = dialect.read(line).ok()?;
    let waits = request.messages.last().is_some_and(|message| message.role != Role::Assistant);
    let labels = Labels::read(&request, line);
    let labelled = labels.id.is_some() || labels.source.is_some() || labels.solved.is_some();
    if !waits || labelled || labels.model.is_none() {
        return None;
    }
    let Span { start, end } = request.messages_span;
    let is_list = request.messages_span.of(line).starts_with(b"[");
    let is_whole = !UPSTREAM.iter().any(|name| request.value(line, name).is_some());
    (is_list && is_whole).then(|| Span { start: start + 1, end: end - 1 })
}

/// The messages of a request that is followed by its reply, which end at `end`, without their brackets. The next line of
/// its conversation has them, and the reply as its client sends it back.
fn asked(line: &Bytes, dialect: AnyDialect, end: usize) -> Option<Span> {
    let list = dialect.read(line).ok()?.messages_span;
    Some(Span::new(list.start as usize + 1, end))
}

fn size(content: &Result<Bytes, Flaw>) -> usize {
    content.as_ref().map_or(0, Bytes::len)
}
