//! Splices: replacements of spans in a text, and the result as a rope of slices. What is not replaced is not copied.

use crate::wire::body::Span;
use crate::wire::members::Member;
use bytes::{Bytes, BytesMut};

/// A text in pieces, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rope {
    pieces: Vec<Bytes>,
    len: usize,
}

impl Rope {
    /// A rope of one piece.
    pub fn whole(text: Bytes) -> Self {
        Self { len: text.len(), pieces: vec![text] }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The pieces, in order.
    pub fn pieces(&self) -> &[Bytes] {
        &self.pieces
    }

    /// The pieces, in order, by value.
    pub fn into_pieces(self) -> Vec<Bytes> {
        self.pieces
    }

    /// The whole text in one piece; copies only if there are several.
    pub fn join(&self) -> Bytes {
        if let [only] = self.pieces.as_slice() {
            return only.clone();
        }
        let mut out = BytesMut::with_capacity(self.len);
        for piece in &self.pieces {
            out.extend_from_slice(piece);
        }
        out.freeze()
    }

    fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.len += piece.len();
            self.pieces.push(piece);
        }
    }
}

/// Replacements of one text, collected in any order.
#[derive(Clone, Debug, Default)]
pub struct Splices(Vec<(Span, Bytes)>);

impl Splices {
    /// Puts `with` in the place of `span`. Spans must not overlap.
    pub fn replace(&mut self, span: Span, with: impl Into<Bytes>) {
        self.0.push((span, with.into()));
    }

    /// Puts `text` before the byte at `at`; texts for one position keep their order.
    pub fn insert(&mut self, at: u32, text: impl Into<Bytes>) {
        self.replace(Span { start: at, end: at }, text);
    }

    /// Whether nothing is replaced.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes the `members` of an object for which `drop` is true, with their commas.
    pub fn remove_members(&mut self, members: &[Member], drop: impl Fn(&Member) -> bool) {
        self.remove_items(members, Member::span, drop);
    }

    /// Removes a list's `items` for which `drop` is true, with their commas.
    pub fn remove_items<T>(&mut self, items: &[T], span: impl Fn(&T) -> Span, drop: impl Fn(&T) -> bool) {
        let mut kept_end = None;
        for (at, item) in items.iter().enumerate() {
            let place = span(item);
            if !drop(item) {
                kept_end = Some(place.end);
                continue;
            }
            let start = if kept_end.is_some() { span(&items[at - 1]).end } else { place.start };
            let next = items.get(at + 1).filter(|_| kept_end.is_none());
            let end = next.map_or(place.end, |next| span(next).start);
            self.replace(Span { start, end }, Bytes::new());
        }
    }

    /// The text with everything replaced.
    pub fn apply(mut self, text: &Bytes) -> Rope {
        if self.0.is_empty() {
            return Rope::whole(text.clone());
        }
        // What is inserted at the start of a replaced span comes before it.
        self.0.sort_by_key(|(span, _)| (span.start, span.end));
        let mut rope = Rope::default();
        let mut at = 0;
        for (span, with) in self.0 {
            let range = span.range();
            if range.start < at {
                continue;
            }
            rope.push(text.slice(at..range.start));
            rope.push(with);
            at = range.end;
        }
        rope.push(text.slice(at..));
        rope
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::body::Scanner;
    use proptest::prelude::*;

    fn members(text: &[u8]) -> Vec<Member> {
        let mut scanner = Scanner::new(text);
        scanner.object().unwrap();
        let mut members = Vec::new();
        while let Some(key) = scanner.member().unwrap() {
            members.push(Member { key, value: scanner.skip().unwrap() });
        }
        members
    }

    proptest! {
        #[test]
        fn removing_members_leaves_the_others_as_they_were(
            keys in prop::collection::vec(("[a-z]{1,3}", any::<bool>()), 0..6),
            spaced in any::<bool>(),
        ) {
            let separator = if spaced { " ,\n " } else { "," };
            let write = |keys: &[&(String, bool)]| {
                let members: Vec<String> = keys.iter().map(|(key, _)| format!("\"{key}\": 1")).collect();
                members.join(separator)
            };
            let text = Bytes::from(format!("{{ {} }}", write(&keys.iter().collect::<Vec<_>>())));
            let found = members(&text);
            let mut splices = Splices::default();
            let dropped: Vec<bool> = keys.iter().map(|(_, drop)| *drop).collect();
            splices.remove_members(&found, |member| {
                dropped[found.iter().position(|other| other == member).unwrap()]
            });
            let left: Vec<_> = keys.iter().filter(|(_, drop)| !drop).collect();
            let expected = format!("{{ {} }}", write(&left));
            prop_assert_eq!(splices.apply(&text).join(), Bytes::from(expected));
        }
    }

    #[test]
    fn what_is_not_replaced_is_not_copied() {
        let text = Bytes::from_static(b"one two three");
        let mut splices = Splices::default();
        splices.insert(13, "!");
        splices.replace(Span::new(4, 7), "2");
        splices.insert(4, "<");
        let rope = splices.apply(&text);
        assert_eq!(rope.join(), "one <2 three!");
        assert_eq!(rope.len(), 13);
        assert_eq!(rope.pieces()[0].as_ptr(), text.as_ptr());
    }
}
