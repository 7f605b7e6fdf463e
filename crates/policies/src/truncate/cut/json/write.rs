//! The second pass over a JSON document: writes what its space allows, and counts the characters kept. How the space
//! is divided is decided in `share`.

use super::super::announce::Mark;
use super::super::trouble::{Sign, Signs};
use super::scan::{Kind, Outline};
use super::share::{Share, divide, placeholder};
use super::string;
use crate::texts::Texts;

/// Signs of errors beyond this number are ignored: a bound on memory (1 MB).
const MAX_SIGNS: usize = 65_536;

/// A container of up to so many characters is kept whole or not at all.
const SMALL_CHARS: u32 = 120;

/// A document cut to its room.
pub(super) struct Written {
    pub(super) text: String,
    /// Characters of the original in it.
    pub(super) kept: usize,
    /// Characters of the original that are gone because an escape was needless.
    pub(super) respelled: usize,
}

/// Writes the document in at most `room` characters; `None` if that is not possible.
pub(super) fn shorten(outline: &Outline<'_>, room: usize, texts: &Texts) -> Option<Written> {
    if outline.nodes.first()?.least() > room {
        return None;
    }
    let bytes = outline.document.as_bytes();
    let signs: Vec<Sign> = Signs::within(bytes, 0..bytes.len()).take(MAX_SIGNS).collect();
    let text = String::with_capacity(room + room / 8);
    let mut writer = Writer { outline, texts, signs: &signs, text, used: 0, kept: 0, respelled: 0 };
    writer.value(0, room);
    Some(Written { text: writer.text, kept: writer.kept, respelled: writer.respelled })
}

struct Writer<'a> {
    outline: &'a Outline<'a>,
    texts: &'a Texts,
    signs: &'a [Sign],
    text: String,
    /// Characters written, and the characters of the original that they represent, placeholders excluded.
    used: usize,
    kept: usize,
    respelled: usize,
}

impl Writer<'_> {
    /// Writes one value in at most `room` characters, which is no less than its least.
    fn value(&mut self, index: usize, room: usize) {
        let node = &self.outline.nodes[index];
        let whole = self.outline.text(node.start, node.end);
        if node.chars as usize <= room {
            self.text.push_str(whole);
            self.used += node.chars as usize;
            self.kept += node.chars as usize;
            return;
        }
        match node.kind {
            Kind::Scalar => self.push_ours("\"…\""),
            Kind::Text => {
                let piece = string::shorten(whole, room.saturating_sub(2), Mark::Quiet(self.texts));
                self.push("\"");
                self.push_ours(&piece.text);
                self.push("\"");
                self.kept += piece.kept;
                self.respelled += piece.respelled;
            }
            Kind::Array | Kind::Object => self.container(index, room.saturating_sub(2)),
        }
    }

    fn container(&mut self, index: usize, inner: usize) {
        let node = &self.outline.nodes[index];
        // Scraps of a small one say less than the next one whole.
        let shares = if node.chars <= SMALL_CHARS {
            Vec::new()
        } else {
            divide(self.outline, index, inner, self.signs)
        };
        if shares.is_empty() {
            return self.push_ours(&node.elided());
        }
        let (count, is_object) = (node.kids as usize, node.kind == Kind::Object);
        self.push(if is_object { "{" } else { "[" });
        let start = self.text.len();
        let mut next = 0;
        // What one value leaves unused, the next may use.
        let mut spare = 0;
        for share in &shares {
            if !is_object {
                self.gap(node.kind, share.ordinal - next, count, start);
            }
            next = share.ordinal + 1;
            spare = self.kid(share, start, spare);
        }
        // An array says at each gap how many are gone; an object once, since a key can occur only once.
        let gone = if is_object { count - shares.len() } else { count - next };
        self.gap(node.kind, gone, count, start);
        self.push(if is_object { "}" } else { "]" });
    }

    /// Writes one member or element, and returns what is left of its room and of `spare`.
    fn kid(&mut self, share: &Share, start: usize, spare: usize) -> usize {
        let outline = self.outline;
        let node = &outline.nodes[share.node];
        if self.text.len() > start {
            self.push(outline.comma);
        }
        if node.key.0 < node.key.1 {
            self.push(outline.text(node.key.0, node.key.1));
            self.push(outline.colon);
        }
        let room = share.full.min(share.room + spare).max(share.room);
        let before = self.used;
        self.value(share.node, room);
        (share.room + spare).saturating_sub(self.used - before)
    }

    /// Writes the placeholder for `cut` members or elements of `count`, if any.
    fn gap(&mut self, parent: Kind, cut: usize, count: usize, start: usize) {
        if cut == 0 {
            return;
        }
        if self.text.len() > start {
            self.push(self.outline.comma);
        }
        self.push_ours(&placeholder(parent, cut, count));
    }

    fn push(&mut self, text: &str) {
        self.push_ours(text);
        self.kept += text.chars().count();
    }

    fn push_ours(&mut self, text: &str) {
        self.used += text.chars().count();
        self.text.push_str(text);
    }
}
