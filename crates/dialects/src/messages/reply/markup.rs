//! The markup filter of a final answer: removes calls that the model wrote as text from the text blocks of a stream and of whole
//! replies. `dialects::markup` recognises the markup; this module edits the JSON. Bytes without markup stay.

use super::convert::{content_of, text_event};
use super::event::{Event, EventKind};
use crate::lines::framed;
use crate::markup::{TextCleaner, ToolNames};
use bytes::Bytes;
use wire::body::{Scanner, Span, Str};
use wire::json::{decode_bytes, escaped, unescape};
use wire::members::members_of;
use wire::splice::Splices;

/// The filters of one reply's texts, each under the index of its block as written.
#[derive(Debug)]
pub struct Cleaner {
    texts: TextCleaner<Bytes>,
    /// The indexes of the blocks of text that are open, each with what remains of it.
    open: Vec<(Bytes, Remains)>,
}

/// What remains of a text.
#[derive(Clone, Copy, Debug, Default)]
struct Remains {
    /// The upstream sent something other than white space.
    has_come: bool,
    /// Something of that remains.
    is_visible: bool,
}

impl Remains {
    /// Whether all of it was markup.
    fn is_nothing(self) -> bool {
        self.has_come && !self.is_visible
    }
}

/// An event without markup.
pub struct CleanEvent {
    pub raw: Bytes,
    /// The events of held text that go out before it.
    pub before: Vec<Bytes>,
    /// It ends a text from which everything was removed.
    pub is_emptied: bool,
}

impl Cleaner {
    /// A filter of texts in which the model may have written calls of these tools.
    pub fn new(tools: ToolNames) -> Self {
        Self { texts: TextCleaner::new(tools), open: Vec::new() }
    }

    /// Removes markup from an event of a stream.
    pub fn event(&mut self, raw: Bytes, event: &Event, data: &Bytes) -> CleanEvent {
        let index = event.index.map_or_else(Bytes::new, |(span, _)| data.slice(span.range()));
        let mut clean = CleanEvent { raw, before: Vec::new(), is_emptied: false };
        let piece = match event.kind {
            EventKind::BlockStart => {
                clean.before = self.end(|open| *open == index);
                event.block.and_then(|block| text_of(data, block))
            }
            EventKind::BlockDelta => event.delta.as_ref().and_then(|delta| delta.text),
            EventKind::BlockStop => {
                clean.before = self.end(|open| *open == index);
                let ended = self.open.iter().position(|(open, _)| *open == index);
                clean.is_emptied = ended.is_some_and(|at| self.open.remove(at).1.is_nothing());
                None
            }
            EventKind::MessageStart | EventKind::MessageDelta | EventKind::MessageStop => {
                clean.before = self.end(|_| true);
                None
            }
            _ => None,
        };
        if let Some(piece) = piece {
            self.piece(index, piece, data, &mut clean.raw);
        }
        clean
    }

    fn piece(&mut self, index: Bytes, piece: Str, data: &Bytes, raw: &mut Bytes) {
        let mut splices = Splices::default();
        let is_visible = self.texts.clean_piece(index.clone(), piece, false, data, &mut splices);
        if !splices.is_empty() {
            *raw = framed(raw, &splices.apply(data).join());
        }
        let has_come = !unescape(piece.raw(data)).trim().is_empty();
        let at = self.open.iter().position(|(open, _)| *open == index).unwrap_or_else(|| {
            self.open.push((index, Remains::default()));
            self.open.len() - 1
        });
        let remains = &mut self.open[at].1;
        remains.has_come |= has_come;
        remains.is_visible |= is_visible;
    }

    /// Ends texts: the events of what was held of them.
    pub fn end(&mut self, ends: impl Fn(&Bytes) -> bool) -> Vec<Bytes> {
        let rest = self.texts.end(ends);
        for (index, text) in &rest {
            let known = self.open.iter_mut().filter(|(open, _)| open == index);
            known.for_each(|(_, remains)| remains.is_visible |= !text.trim().is_empty());
        }
        let event =
            |(index, text): &(Bytes, String)| text_event(&String::from_utf8_lossy(index), &escaped(text));
        rest.iter().map(event).collect()
    }

    /// A whole reply without markup; a block from which everything was removed is left out too.
    pub fn body(&mut self, body: Bytes) -> Bytes {
        let content = content_of(&body).unwrap_or_default();
        let (mut splices, mut gone) = (Splices::default(), Vec::new());
        for block in &content {
            let Some(text) = text_of(&body, *block) else { continue };
            let mut own = Splices::default();
            let is_visible = self.texts.clean_whole(&[text], &body, &mut own);
            if own.is_empty() {
                continue;
            }
            if is_visible {
                splices.append(own);
            } else {
                gone.push(*block);
            }
        }
        splices.remove_items(
            &content,
            |block| *block,
            |block| gone.binary_search_by_key(&block.start, |gone: &Span| gone.start).is_ok(),
        );
        if splices.is_empty() { body } else { splices.apply(&body).join() }
    }
}

/// The text of the block at `block`, if it is one of text.
fn text_of(data: &[u8], block: Span) -> Option<Str> {
    let members = members_of(data, block);
    let value = |name: &[u8]| members.iter().rfind(|member| *decode_bytes(member.key, data) == *name);
    let kind = Scanner::within(data, value(b"type")?.value).string().ok()?;
    let is_text = *decode_bytes(kind, data) == *b"text";
    Scanner::within(data, value(b"text").filter(|_| is_text)?.value).string().ok()
}
