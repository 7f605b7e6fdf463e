//! The reader of JSON documents for decoded texts: a whole text or a line of it is a document, and so is a string of one.
//! Its strings are written without their escapes, in place; everything else is copied.

use super::runs::Runs;
use super::{Group, JsonString};
use crate::body::Scanner;
use crate::json::unescape_one;
use crate::json_strings::string_end;
use std::ops::Range;

/// How deep documents are read that are strings of documents. The body of a request is one level, the arguments of a call
/// in it are a second one.
const MOST_NESTED: usize = 5;

/// What was read so far.
#[derive(Default)]
pub(super) struct Reader {
    pub(super) text: String,
    pub(super) runs: Runs,
    pub(super) strings: Vec<JsonString>,
    pub(super) groups: Vec<Group>,
    pub(super) depths: Vec<(usize, Option<usize>)>,
    /// How many strings are around the document that is being read.
    depth: Option<usize>,
}

/// A part of a text whose bytes come from somewhere else.
#[derive(Clone, Copy)]
struct Part<'t> {
    text: &'t str,
    runs: &'t Runs,
    /// The part's beginning, as `runs` counts.
    start: usize,
}

impl<'t> Part<'t> {
    fn of(self, range: Range<usize>) -> Self {
        Self { text: &self.text[range.clone()], start: self.start + range.start, ..self }
    }

    fn source(&self, at: usize) -> usize {
        self.runs.source(self.start + at)
    }

    /// Appends the part to `text`, whose bytes come from where `runs` says.
    fn copy_to(&self, text: &mut String, runs: &mut Runs) {
        if self.text.is_empty() {
            return;
        }
        let at = text.len();
        runs.begin(at, self.source(0));
        for run in self.runs.beginnings(self.start..self.start + self.text.len()) {
            runs.escape(at + run - self.start, self.runs.source(run));
        }
        text.push_str(self.text);
    }
}

/// Where a value of a document is.
#[derive(Clone, Default)]
struct Place {
    /// The name of the member that it is.
    name: Option<Range<usize>>,
    /// The list or the object that it is in.
    within: Option<usize>,
}

impl Reader {
    /// Reads a text.
    pub(super) fn read(text: &str) -> Self {
        let mut reader = Self::default();
        let runs = Runs::default();
        let part = Part { text, runs: &runs, start: 0 };
        if is_document(text) {
            reader.document(part, 0, Place::default());
            return reader;
        }
        // One document for each line, as logs are written, with other lines between them.
        let mut start = 0;
        for line in text.split_inclusive('\n') {
            let line = part.of(start..start + line.len());
            start += line.text.len();
            match line.text.trim_start().starts_with(['{', '[']) && is_document(line.text) {
                true => reader.document(line, 0, Place::default()),
                false => reader.copy(line),
            }
        }
        reader
    }

    fn copy(&mut self, part: Part<'_>) {
        part.copy_to(&mut self.text, &mut self.runs);
    }

    /// Reads a document, around which there are `depth` strings, the innermost one at `place`.
    fn document(&mut self, part: Part<'_>, depth: usize, place: Place) {
        let before = self.depth.replace(depth);
        self.depths.push((self.text.len(), Some(depth)));
        let bytes = part.text.as_bytes();
        let (mut at, mut done) = (0, 0);
        let (mut open, mut name): (Vec<usize>, _) = (Vec::new(), place.name);
        while let Some(byte) = bytes.get(at) {
            at += 1;
            let within = open.last().copied().or(place.within);
            match byte {
                b'"' => {
                    let (start, end) = (at, at + string_end(&bytes[at..]));
                    at = (end + 1).min(bytes.len());
                    let is_name = part.text[at..].trim_start().starts_with(':');
                    let list = open.last().map(|open| &self.groups[*open]).filter(|group| group.is_list);
                    let of = match list {
                        _ if is_name => None,
                        Some(list) => list.name.clone(),
                        None => name.take(),
                    };
                    let raw = part.of(start..end);
                    let range = if is_plain(raw.text, depth) {
                        // It is copied with what is around it.
                        let start = self.text.len() + start - done;
                        Some(start..start + raw.text.len())
                    } else {
                        self.copy(part.of(done..start));
                        done = end;
                        self.string(raw, depth, Place { name: of.clone(), within })
                    };
                    if is_name {
                        name = range.clone();
                    }
                    let string = |range| JsonString { range, name: of, within, is_name };
                    self.strings.extend(range.map(string));
                }
                b'{' | b'[' => {
                    open.push(self.groups.len());
                    self.groups.push(Group { is_list: *byte == b'[', name: name.take(), within, commas: 0 });
                }
                b'}' | b']' => drop(open.pop()),
                b',' => {
                    name = None;
                    if let Some(open) = open.last() {
                        self.groups[*open].commas += 1;
                    }
                }
                _ => {}
            }
        }
        self.copy(part.of(done..bytes.len()));
        self.depth = before;
        self.depths.push((self.text.len(), before));
    }

    /// Reads what is between two quotes, at `place`; `None` where it is a document itself, whose strings are then listed.
    fn string(&mut self, raw: Part<'_>, depth: usize, place: Place) -> Option<Range<usize>> {
        let decoded;
        let runs;
        let mut part = raw;
        if raw.text.contains('\\') {
            (decoded, runs) = unescaped(raw);
            part = Part { text: &decoded, runs: &runs, start: 0 };
        }
        if depth + 1 < MOST_NESTED && is_document(part.text) {
            self.document(part, depth + 1, place);
            return None;
        }
        let start = self.text.len();
        self.copy(part);
        Some(start..self.text.len())
    }
}

/// Whether `text` is a JSON object, list or string.
fn is_document(text: &str) -> bool {
    if !text.trim_start().starts_with(['{', '[', '"']) {
        return false;
    }
    let mut scanner = Scanner::new(text.as_bytes());
    scanner.skip().is_ok() && scanner.end().is_ok()
}

/// Whether a string that has `depth` strings around its document means its own bytes, and is no document.
fn is_plain(raw: &str, depth: usize) -> bool {
    let is_nested = depth + 1 < MOST_NESTED && is_document(raw);
    !is_nested && !raw.contains('\\')
}

/// The text of a JSON string, and where its bytes come from.
fn unescaped(raw: Part<'_>) -> (String, Runs) {
    let (mut text, mut runs) = (String::with_capacity(raw.text.len()), Runs::default());
    let mut done = 0;
    while let Some(plain) = memchr::memchr(b'\\', &raw.text.as_bytes()[done..]) {
        let at = done + plain;
        raw.of(done..at).copy_to(&mut text, &mut runs);
        let (used, character) = unescape_one(&raw.text.as_bytes()[at..]);
        runs.escape(text.len(), raw.source(at));
        text.push(character);
        done = at + used;
        // What follows is no part of the escape, whatever it is.
        runs.escape(text.len(), raw.source(done));
    }
    raw.of(done..raw.text.len()).copy_to(&mut text, &mut runs);
    (text, runs)
}
