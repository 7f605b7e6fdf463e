//! Splices: replacements of spans in a text, and the result as a rope of slices. What is not replaced is not copied.
//! Each span has one writer: two splices that overlap are a mistake of the code that made them. Tests fail of it; in
//! production one of the two is written and never both.

use crate::body::Span;
use crate::members::Member;
use bytes::{Bytes, BytesMut};
use std::cmp::Reverse;

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
    /// Puts `with` in the place of `span`. Spans must not overlap: [`Self::apply`] says what happens if they do.
    pub fn replace(&mut self, span: Span, with: impl Into<Bytes>) {
        self.0.push((span, with.into()));
    }

    /// Puts `with` in the place of `span`, whatever else was to change within it. What is inserted at its borders stays,
    /// and of a splice that crosses a border the part outside.
    pub fn replace_all(&mut self, span: Span, with: impl Into<Bytes>) {
        self.0.retain_mut(|(other, text)| {
            if other.start == other.end {
                return other.start <= span.start || other.start >= span.end;
            }
            if other.end <= span.start || other.start >= span.end {
                return true;
            }
            if other.start < span.start {
                other.end = span.start;
            } else if other.end > span.end {
                (other.start, *text) = (span.end, Bytes::new());
            } else {
                return false;
            }
            true
        });
        self.replace(span, with);
    }

    /// Puts `text` before the byte at `at`; texts for one position keep their order.
    pub fn insert(&mut self, at: u32, text: impl Into<Bytes>) {
        self.replace(Span { start: at, end: at }, text);
    }

    /// Whether nothing is replaced.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The splices within `span`, moved so that the span begins at `to`.
    #[must_use]
    pub fn moved(&self, span: Span, to: u32) -> Self {
        let within = self.0.iter().filter(|(other, _)| span.start <= other.start && other.end <= span.end);
        let moved = |at: u32| at - span.start + to;
        let within = within
            .map(|(other, text)| (Span { start: moved(other.start), end: moved(other.end) }, text.clone()));
        Self(within.collect())
    }

    /// Adds other splices of the same text.
    pub fn append(&mut self, mut others: Self) {
        self.0.append(&mut others.0);
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

    /// The text with everything replaced. Of splices that overlap, the one that begins first counts, and of those that
    /// begin together the longest, and of equal ones the first that was added; the others are left out.
    pub fn apply(mut self, text: &Bytes) -> Rope {
        if self.0.is_empty() {
            return Rope::whole(text.clone());
        }
        // What is inserted at the start of a replaced span comes before it.
        self.0.sort_by_key(|(span, _)| (span.start, span.start < span.end, Reverse(span.end)));
        let mut rope = Rope::default();
        let mut at = 0;
        for (span, with) in self.0 {
            let range = span.range();
            if range.start < at {
                debug_assert!(false, "two splices overlap at {span:?}: {:?}", text.slice(range));
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
    use crate::body::Scanner;
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

    /// What remains of "one two three" with these replacements by capital letters, in each order of their making.
    fn replaced(spans: &[(usize, usize)]) -> Vec<String> {
        let text = Bytes::from_static(b"one two three");
        let apply = |spans: &[(usize, usize)]| {
            let mut splices = Splices::default();
            for (start, end) in spans {
                splices.replace(Span::new(*start, *end), format!("<{start}-{end}>"));
            }
            let out = std::panic::catch_unwind(|| splices.apply(&text).join());
            out.map_or_else(|_| "overlap".to_owned(), |out| String::from_utf8_lossy(&out).into_owned())
        };
        let back: Vec<_> = spans.iter().rev().copied().collect();
        vec![apply(spans), apply(&back)]
    }

    #[test]
    fn splices_that_overlap_fail_a_test_and_are_never_both_written() {
        for (spans, first) in [
            (&[(4, 7), (5, 6)][..], "one <4-7> three"),
            (&[(4, 7), (4, 5)], "one <4-7> three"),
            (&[(4, 7), (6, 9)], "one <4-7>hree"),
            (&[(4, 7), (5, 5)], "one <4-7> three"),
        ] {
            for out in replaced(spans) {
                assert_eq!(out, if cfg!(debug_assertions) { "overlap" } else { first }, "{spans:?}");
            }
        }
        for (spans, out) in [
            (&[(4, 7), (4, 4)][..], "one <4-4><4-7> three"),
            (&[(4, 7), (7, 7)], "one <4-7><7-7> three"),
            (&[(4, 7), (7, 8)], "one <4-7><7-8>three"),
        ] {
            assert_eq!(replaced(spans), [out, out], "{spans:?}");
        }
    }

    #[test]
    fn one_writer_may_take_a_span_with_all_that_was_to_change_in_it() {
        let text = Bytes::from_static(b"one two three");
        for (others, out) in [
            (&[(4, 7), (5, 5), (4, 4), (7, 7), (5, 6)][..], "one .ALL. three"),
            (&[(0, 3), (8, 13)], ". ALL ."),
            (&[(0, 5), (6, 13)], ".ALL"),
        ] {
            let mut splices = Splices::default();
            for (start, end) in others {
                splices.replace(Span::new(*start, *end), ".");
            }
            splices.replace_all(Span::new(4, 7), "ALL");
            assert_eq!(splices.apply(&text).join(), out, "{others:?}");
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
