//! The outline of a JSON document: where each value begins and ends, and how small it can get. One pass over a
//! document that is known to be valid. Not a parser: it checks nothing, decodes nothing and knows no numbers.

use memchr::memchr2;
use wire::plural::{counted, is_one};

/// Deeper nesting is cut as text.
const MAX_DEPTH: usize = 100;
/// More values are cut as text: a bound on memory (some 20 MB), reached at no less than a megabyte of JSON.
const MAX_NODES: usize = 500_000;
/// A string of up to `WHOLE_CHARS` is not worth cutting for the sake of others; a longer one says something in `SLIM_CHARS`.
const WHOLE_CHARS: usize = 300;
const SLIM_CHARS: usize = 160;
/// How many elements and members make a useful part of an array and of an object.
const SLIM_ELEMENTS: usize = 3;
const SLIM_MEMBERS: usize = 24;
/// A scalar of more characters than this (no sane number) may be replaced.
const SCALAR_CHARS: usize = 40;
/// What [`Node::elided`] takes besides its number.
const ELIDED_ARRAY_CHARS: usize = 16;
const ELIDED_OBJECT_CHARS: usize = 20;
/// The most that a placeholder takes, with its comma.
const PLACEHOLDER_CHARS: usize = 36;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A number or a literal.
    Scalar,
    Text,
    Array,
    Object,
}

/// One value. Offsets are bytes of the document, sizes are characters.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) kind: Kind,
    pub(super) start: u32,
    pub(super) end: u32,
    /// The member's key with its quotes; empty if the value is no member.
    pub(super) key: (u32, u32),
    pub(super) chars: u32,
    /// The size at which it is still useful: all keys and scalars, long strings and arrays cut.
    pub(super) slim: u32,
    /// Members or elements.
    pub(super) kids: u32,
    /// The index after its last descendant, which is its next sibling if it has one.
    pub(super) after: u32,
}

impl Node {
    /// The smallest size to which the value can be cut at all.
    pub(super) fn least(&self) -> usize {
        let smallest = match self.kind {
            Kind::Text => 3,
            Kind::Scalar if self.chars as usize <= SCALAR_CHARS => SCALAR_CHARS,
            Kind::Scalar => 3,
            Kind::Array => ELIDED_ARRAY_CHARS + digits(self.kids) - usize::from(is_one(self.kids)),
            Kind::Object => ELIDED_OBJECT_CHARS + digits(self.kids) - usize::from(is_one(self.kids)),
        };
        smallest.min(self.chars as usize)
    }

    /// A container with nothing left in it.
    pub(super) fn elided(&self) -> String {
        match self.kind {
            Kind::Object => format!("{{\"…\":\"{} cut\"}}", counted(self.kids, "member")),
            _ => format!("[\"… {} cut\"]", counted(self.kids, "item")),
        }
    }
}

fn digits(number: u32) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// The outline of one document.
#[derive(Debug)]
pub(super) struct Outline<'a> {
    pub(super) document: &'a str,
    /// In document order; the first is the whole.
    pub(super) nodes: Vec<Node>,
    /// How the document writes commas and colons, with or without a blank.
    pub(super) comma: &'static str,
    pub(super) colon: &'static str,
}

impl Outline<'_> {
    pub(super) fn text(&self, start: u32, end: u32) -> &str {
        &self.document[start as usize..end as usize]
    }

    /// The indices of a container's members or elements.
    pub(super) fn kids(&self, parent: usize) -> impl Iterator<Item = usize> {
        let end = self.nodes[parent].after as usize;
        let mut next = parent + 1;
        std::iter::from_fn(move || {
            let kid = next;
            (kid < end).then(|| {
                next = self.nodes[kid].after as usize;
                kid
            })
        })
    }
}

/// Reads the outline of a valid document; `None` if it is beyond the bounds above.
pub(super) fn read(document: &str) -> Option<Outline<'_>> {
    u32::try_from(document.len()).ok()?;
    let bytes = document.as_bytes();
    let mut scan = Scan { document, nodes: Vec::new(), open: Vec::new(), key: (0, 0) };
    let (mut comma, mut colon) = (None, None);
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let blank_follows = bytes.get(at + 1) == Some(&b' ');
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => at += 1,
            b',' => {
                comma.get_or_insert(if blank_follows { ", " } else { "," });
                at += 1;
            }
            b':' => {
                colon.get_or_insert(if blank_follows { ": " } else { ":" });
                at += 1;
            }
            b'{' | b'[' => {
                scan.open(at, if *byte == b'{' { Kind::Object } else { Kind::Array })?;
                at += 1;
            }
            b'}' | b']' => {
                at += 1;
                scan.close(at);
            }
            b'"' => {
                let end = string_end(bytes, at);
                scan.string(at, end)?;
                at = end;
            }
            _ => {
                let end = scalar_end(bytes, at);
                scan.leaf(Kind::Scalar, at, end)?;
                at = end;
            }
        }
    }
    Some(Outline { document, nodes: scan.nodes, comma: comma.unwrap_or(","), colon: colon.unwrap_or(":") })
}

/// The state of the pass.
struct Scan<'a> {
    document: &'a str,
    nodes: Vec<Node>,
    open: Vec<Open>,
    /// The key that waits for its value; empty where there is none.
    key: (u32, u32),
}

/// A container whose end is not reached.
struct Open {
    node: usize,
    chars_of_kids: u32,
    /// Bytes of its keys and kids, to know what is between them.
    bytes_of_kids: u32,
    slim: u32,
}

impl Scan<'_> {
    fn open(&mut self, at: usize, kind: Kind) -> Option<()> {
        if self.open.len() == MAX_DEPTH {
            return None;
        }
        let node = self.push(kind, at)?;
        self.open.push(Open { node, chars_of_kids: 0, bytes_of_kids: 0, slim: 2 });
        Some(())
    }

    fn close(&mut self, end: usize) {
        let Some(open) = self.open.pop() else { return };
        let after = self.nodes.len() as u32;
        let node = &mut self.nodes[open.node];
        node.end = end as u32;
        node.after = after;
        // Only keys and kids hold characters of more than one byte.
        node.chars = node.end - node.start - open.bytes_of_kids + open.chars_of_kids;
        let useful = if node.kind == Kind::Array { SLIM_ELEMENTS } else { SLIM_MEMBERS };
        let placeholder = if node.kids as usize > useful { PLACEHOLDER_CHARS as u32 } else { 0 };
        node.slim = node.chars.min(open.slim.saturating_add(placeholder)).max(node.least() as u32);
        self.count_in_parent(open.node);
    }

    fn string(&mut self, at: usize, end: usize) -> Option<()> {
        let in_object = self.open.last().is_some_and(|open| self.nodes[open.node].kind == Kind::Object);
        if in_object && self.key == (0, 0) {
            self.key = (at as u32, end as u32);
            return Some(());
        }
        self.leaf(Kind::Text, at, end)
    }

    fn leaf(&mut self, kind: Kind, at: usize, end: usize) -> Option<()> {
        let index = self.push(kind, at)?;
        let chars = self.document[at..end].chars().count();
        let node = &mut self.nodes[index];
        node.end = end as u32;
        node.chars = chars as u32;
        let cuttable = kind == Kind::Text && chars > WHOLE_CHARS;
        node.slim = if cuttable { SLIM_CHARS as u32 } else { node.chars };
        if kind == Kind::Scalar {
            node.slim = node.least() as u32;
        }
        self.count_in_parent(index);
        Some(())
    }

    fn push(&mut self, kind: Kind, at: usize) -> Option<usize> {
        let index = self.nodes.len();
        if index == MAX_NODES {
            return None;
        }
        let key = std::mem::take(&mut self.key);
        let after = index as u32 + 1;
        self.nodes.push(Node { kind, start: at as u32, end: 0, key, chars: 0, slim: 0, kids: 0, after });
        Some(index)
    }

    fn count_in_parent(&mut self, kid: usize) {
        let Some(open) = self.open.last_mut() else { return };
        let Node { key, start, end, chars, slim, .. } = self.nodes[kid];
        let key_chars = self.document[key.0 as usize..key.1 as usize].chars().count() as u32;
        open.bytes_of_kids += key.1 - key.0 + end - start;
        open.chars_of_kids += key_chars + chars;
        let parent = &mut self.nodes[open.node];
        parent.kids += 1;
        let useful = if parent.kind == Kind::Array { SLIM_ELEMENTS } else { SLIM_MEMBERS };
        if parent.kids as usize <= useful {
            // At most a blank each after comma and colon.
            open.slim = open.slim.saturating_add(key_chars + slim + 4);
        }
    }
}

/// The end of the string whose opening quote is at `at`.
fn string_end(bytes: &[u8], at: usize) -> usize {
    let mut from = at + 1;
    while let Some(found) = bytes.get(from..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        from += found;
        if bytes[from] == b'"' {
            return from + 1;
        }
        from += 2;
    }
    bytes.len()
}

fn scalar_end(bytes: &[u8], at: usize) -> usize {
    let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n');
    bytes[at..].iter().position(ends).map_or(bytes.len(), |length| at + length)
}
