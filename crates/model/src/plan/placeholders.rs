//! Placeholders: the values of one conversation that the model must not read, each with the text that the model reads
//! instead. Finds values in texts and puts them back. Policies decide what is hidden and how a placeholder is made.

use super::work::step;
use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Debug, Formatter};
use std::ops::{Bound, Range};
use std::sync::Arc;
use wire::decoded::Decoded;
use wire::json_strings::map_strings;
use wire::plural::counted;

/// The most values of one conversation that can be put back. What is hidden beyond them stays hidden.
const MOST_VALUES: usize = 10_000;
/// A shorter value is not looked for where no rule finds it: it would occur by chance.
pub const SHORTEST: usize = 4;
/// What the model reads in place of values that together have no placeholder.
const UNKNOWN: &str = "[HIDDEN]";
/// The longest placeholder that is looked up, in bytes.
const LONGEST_PLACEHOLDER: usize = 96;
/// How deep documents within strings are read where values are put back.
const MOST_NESTED: usize = 5;
/// Bits of the table of beginnings.
const BITS: usize = 1 << 16;

/// See the file's head.
#[derive(Clone, Default)]
pub struct Placeholders {
    values: Vec<Hidden>,
    /// In order: the values that begin a text are found from the last one that is not after it.
    by_value: BTreeMap<Arc<str>, usize>,
    by_placeholder: HashMap<Arc<str>, usize>,
    /// A bit for each hash of a beginning: most positions of a text are none.
    beginnings: Vec<u64>,
}

#[derive(Clone, PartialEq)]
struct Hidden {
    value: Arc<str>,
    placeholder: Arc<str>,
    /// The message in which it was hidden first.
    message: usize,
}

/// A range of a text, in bytes, and what the model reads in its place.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Redaction {
    pub range: Range<usize>,
    pub by: Box<str>,
}

/// Something in a text: its range, and the layer of the [decoded text](Decoded) in which it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occurrence<T> {
    /// In bytes of the text as it is written.
    pub range: Range<usize>,
    pub layer: usize,
    pub what: T,
}

/// The occurrences in order, overlapping ones as one, for which `choose` gives what it is.
pub fn merged<T: Copy>(mut all: Vec<Occurrence<T>>, choose: impl Fn(T, T) -> T) -> Vec<Occurrence<T>> {
    // Stable: of equal beginnings the first one stays the first.
    all.sort_by_key(|one| one.range.start);
    let mut merged: Vec<Occurrence<T>> = Vec::with_capacity(all.len());
    for one in all {
        let Some(last) = merged.last_mut().filter(|last| one.range.start < last.range.end) else {
            merged.push(one);
            continue;
        };
        let whole = last.range.start..last.range.end.max(one.range.end);
        // A value is read as it is written where it was found like that.
        last.layer = match (last.range == whole, one.range == whole) {
            (true, true) => last.layer.min(one.layer),
            (true, false) => last.layer,
            (false, true) => one.layer,
            (false, false) => last.layer.max(one.layer),
        };
        last.what = choose(last.what, one.what);
        last.range = whole;
    }
    merged
}

/// Written by hand, so that the values are never shown.
impl Debug for Placeholders {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(&counted(self.values.len(), "placeholder"))
    }
}

impl PartialEq for Placeholders {
    fn eq(&self, other: &Self) -> bool {
        self.values == other.values
    }
}

impl Placeholders {
    /// Whether nothing is hidden.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The placeholder of `value`, where it has one.
    pub fn of(&self, value: &str) -> Option<&Arc<str>> {
        Some(&self.values[*self.by_value.get(value)?].placeholder)
    }

    /// The value that is put back for `placeholder`, if it was given out.
    pub fn value_of(&self, placeholder: &str) -> Option<&str> {
        self.by_placeholder.get(placeholder).map(|at| &*self.values[*at].value)
    }

    /// The placeholder of `value`, which is hidden from `message` on unless it was before. `make` gives the candidates,
    /// from the shortest on: the first that no other value has is taken.
    pub fn hide(&mut self, value: &str, message: usize, make: impl Fn(usize) -> Option<String>) -> Arc<str> {
        if let Some(known) = self.of(value) {
            return Arc::clone(known);
        }
        let mut candidates = (0..).map_while(make).map(Arc::<str>::from).peekable();
        let placeholder = loop {
            let Some(candidate) = candidates.next() else { return UNKNOWN.into() };
            if !self.by_placeholder.contains_key(&candidate) {
                break candidate;
            }
            if candidates.peek().is_none() {
                return candidate;
            }
        };
        if self.values.len() < MOST_VALUES {
            self.add(value.into(), Arc::clone(&placeholder), message);
        }
        placeholder
    }

    /// Another spelling of the value that has `placeholder`: it is hidden too, and put back as the value.
    pub fn add_spelling(&mut self, spelling: &str, placeholder: &str) {
        let Some(at) = self.by_placeholder.get(placeholder).copied() else { return };
        if self.by_value.len() < 2 * MOST_VALUES && !self.by_value.contains_key(spelling) {
            self.look_for(spelling.into(), at);
        }
    }

    fn add(&mut self, value: Arc<str>, placeholder: Arc<str>, message: usize) {
        let at = self.values.len();
        self.by_placeholder.insert(Arc::clone(&placeholder), at);
        self.look_for(Arc::clone(&value), at);
        self.values.push(Hidden { value, placeholder, message });
    }

    /// Finds `spelling` from now on as the value `at` this index.
    fn look_for(&mut self, spelling: Arc<str>, at: usize) {
        if let Some(first) = spelling.as_bytes().first_chunk() {
            if self.beginnings.is_empty() {
                self.beginnings = vec![0; BITS / 64];
            }
            let bit = bit_of(first);
            self.beginnings[bit / 64] |= 1 << (bit % 64);
        }
        self.by_value.insert(spelling, at);
    }

    /// Where values that are hidden from a message up to `message` on occur in any layer of `text` as whole words.
    pub fn find(&self, text: &Decoded<'_>, message: usize) -> Vec<Occurrence<()>> {
        let mut found = Vec::new();
        for layer in 0..text.layers() {
            for range in self.find_as_written(text.layer(layer), message) {
                let sources = text.sources(layer, range).into_iter();
                found.extend(sources.map(|range| Occurrence { range, layer, what: () }));
            }
        }
        merged(found, |(), ()| ())
    }

    /// The ranges of values in `text` as it is, in order, without overlaps.
    fn find_as_written(&self, text: &str, message: usize) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        if self.beginnings.is_empty() {
            return found;
        }
        let bytes = text.as_bytes();
        let mut at = 0;
        while let Some(first) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
            let bit = bit_of(first);
            let is_beginning = self.beginnings[bit / 64] >> (bit % 64) & 1 == 1;
            match is_beginning.then(|| self.value_at(text, at, message)).flatten() {
                Some(length) => {
                    found.push(at..at + length);
                    at += length;
                }
                None => at += 1,
            }
        }
        found
    }

    /// How long the longest value is that begins at `at` as a whole word.
    fn value_at(&self, text: &str, at: usize, message: usize) -> Option<usize> {
        let mut rest = text.get(at..).filter(|_| !goes_on(text, at))?;
        // Whatever value begins `rest` also begins the last value that is not after it. Each step looks at a shorter
        // `rest`, so that values that begin alike are not tried one by one.
        while rest.len() >= SHORTEST {
            step();
            let up_to = (Bound::Unbounded, Bound::Included(rest));
            let (value, known) = self.by_value.range::<str, _>(up_to).next_back()?;
            let alike = if rest.starts_with(&**value) {
                let hidden = &self.values[*known];
                if hidden.message <= message && !goes_on(text, at + value.len()) {
                    return Some(value.len());
                }
                value.len() - 1
            } else {
                value.bytes().zip(rest.bytes()).take_while(|(one, other)| one == other).count()
            };
            rest = &rest[..rest.floor_char_boundary(alike)];
        }
        None
    }

    /// The ranges of `text` that hold values that are hidden from a message up to `message` on, however their characters are
    /// escaped, each with its placeholder.
    pub fn redactions(&self, text: &str, message: usize) -> Vec<Redaction> {
        if self.beginnings.is_empty() {
            return Vec::new();
        }
        let decoded = Decoded::new(text);
        let redaction = |found: Occurrence<()>| {
            let known = self.of(decoded.text_of(found.layer, found.range.clone()));
            let by = decoded.written_at(&found.range, known.map_or(UNKNOWN, |known| known));
            Redaction { range: found.range, by: by.into() }
        };
        self.find(&decoded, message).into_iter().map(redaction).collect()
    }

    /// `text` with the placeholders of [`Self::redactions`]; `None` where it holds none.
    pub fn hide_in(&self, text: &str, message: usize) -> Option<String> {
        let found = self.redactions(text, message);
        (!found.is_empty()).then(|| replaced(text, &found))
    }

    /// `text` with the values in place of their placeholders, also within documents that are strings of it, in which they
    /// are escaped; `None` where it holds none that was given out in this conversation.
    pub fn restore(&self, text: &str) -> Option<String> {
        self.restore_within(text, MOST_NESTED)
    }

    fn restore_within(&self, text: &str, nested: usize) -> Option<String> {
        let is_document = nested > 0 && text.trim_start().starts_with(['{', '[', '"']);
        if is_document && memchr::memchr2(b'[', b'\\', text.as_bytes()).is_some() {
            return map_strings(text, |inner| {
                // Free text is handed back as it is: it is no document.
                let nested = if inner.len() == text.len() { 0 } else { nested - 1 };
                self.restore_within(inner, nested)
            });
        }
        self.restore_as_written(text)
    }

    fn restore_as_written(&self, text: &str) -> Option<String> {
        let mut out = String::new();
        let mut done = 0;
        for at in memchr::memchr_iter(b'[', text.as_bytes()) {
            let Some(rest) = text.get(at..).filter(|_| at >= done) else { continue };
            let window = &rest.as_bytes()[..rest.len().min(LONGEST_PLACEHOLDER)];
            let Some(end) = memchr::memchr(b']', window) else { continue };
            let Some(known) = self.by_placeholder.get(&rest[..=end]) else { continue };
            out.push_str(&text[done..at]);
            out.push_str(&self.values[*known].value);
            done = at + end + 1;
        }
        (done > 0).then(|| out + &text[done..])
    }
}

/// `text` with everything in `found` replaced; the ranges are in order and do not overlap.
pub fn replaced(text: &str, found: &[Redaction]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    for Redaction { range, by } in found {
        out.push_str(&text[done..range.start]);
        out.push_str(by);
        done = range.end;
    }
    out + &text[done..]
}

fn bit_of(first: &[u8; SHORTEST]) -> usize {
    // Knuth's multiplicative hash.
    (u32::from_le_bytes(*first).wrapping_mul(0x9e37_79b1) >> 16) as usize
}

/// Whether a word goes on at `at`: letters or digits on both sides.
fn goes_on(text: &str, at: usize) -> bool {
    let (before, after) = text.split_at(at);
    let is_of_word = |char: Option<char>| char.is_some_and(char::is_alphanumeric);
    is_of_word(before.chars().next_back()) && is_of_word(after.chars().next())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn with(values: &[(&str, usize)]) -> Placeholders {
        let mut hidden = Placeholders::default();
        for (at, (value, message)) in values.iter().enumerate() {
            hidden.hide(value, *message, |longer| (longer < 2).then(|| format!("[V_{at}{longer}]")));
        }
        hidden
    }

    #[test]
    fn values_are_found_as_whole_words_the_longest_first_and_not_before_they_were_hidden() {
        let hidden = with(&[("anna", 0), ("anna@x.de", 1), ("9876 5432", 7)]);
        for (text, message, expected) in [
            ("to anna, anna@x.de and annabel", 5, Some("to [V_00], [V_10] and annabel")),
            ("to anna, anna@x.de", 0, Some("to [V_00], [V_00]@x.de")),
            ("9876 5432", 6, None),
            ("\"9876 5432\"", 7, Some("\"[V_20]\"")),
            ("19876 5432 hanna ann", 7, None),
            ("äanna annaä", 9, None),
            ("", 9, None),
        ] {
            assert_eq!(hidden.hide_in(text, message).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn values_are_found_in_any_escapes_and_in_other_spellings() {
        let mut hidden = with(&[("p\"q\n", 0), ("p%40ss", 0)]);
        hidden.add_spelling("p@ss", "[V_10]");
        for (text, expected) in [
            (r#"{"k":"p\"q\n","n":1.0}"#, Some(r#"{"k":"[V_00]","n":1.0}"#)),
            (r#"{"j":"{\"k\":\"p\\\"q\\n\"}"}"#, Some(r#"{"j":"{\"k\":\"[V_00]\"}"}"#)),
            (r#"say "p\"q\n" now"#, Some(r#"say "[V_00]" now"#)),
            ("u:p%40ss@h u:p@ss@h u:p%2540ss@h", Some("u:[V_10]@h u:[V_10]@h u:[V_10]@h")),
            ("p q", None),
        ] {
            assert_eq!(hidden.hide_in(text, 0).as_deref(), expected, "{text}");
        }
        assert_eq!(hidden.restore("[V_10]").as_deref(), Some("p%40ss"));
    }

    #[test]
    fn a_value_is_put_back_with_the_escapes_of_the_document_that_it_is_in() {
        let hidden = with(&[("p\"q\n", 0)]);
        for (text, expected) in [
            (r#"{"k":"<[V_00]>", "n":1.0}"#, Some(r#"{"k":"<p\"q\n>", "n":1.0}"#)),
            (r#"{"j":"{\"k\":\"[V_00]\"}"}"#, Some(r#"{"j":"{\"k\":\"p\\\"q\\n\"}"}"#)),
            (r#"["[\"[V_00]\"]"]"#, Some(r#"["[\"p\\\"q\\n\"]"]"#)),
            ("[V_00] and", Some("p\"q\n and")),
            (r#"{"k":"[V_01]"}"#, None),
        ] {
            assert_eq!(hidden.restore(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn only_placeholders_that_were_given_out_are_put_back() {
        let hidden = with(&[("anna@x.de", 1)]);
        for (text, expected) in [
            ("[V_00]", Some("anna@x.de")),
            ("a [[V_00]] [V_00", Some("a [anna@x.de] [V_00")),
            ("[v_00] [V_01] [V_0 0] [", None),
            ("anna@x.de", None),
        ] {
            assert_eq!(hidden.restore(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn two_values_never_share_a_placeholder_and_one_value_has_one() {
        let mut hidden = Placeholders::default();
        let make = |longer: usize| (longer < 2).then(|| format!("[V_{}]", "1".repeat(longer + 1)));
        let given: Vec<_> = ["aaaa", "bbbb", "cccc", "aaaa"].map(|value| hidden.hide(value, 0, make)).into();
        assert_eq!(given.iter().map(|it| &**it).collect::<Vec<_>>(), ["[V_1]", "[V_11]", "[V_11]", "[V_1]"]);
        // The third value has no placeholder of its own: it is hidden, and never put back in place of another.
        assert_eq!(hidden.restore("[V_11]").as_deref(), Some("bbbb"));
        assert_eq!(hidden.of("cccc"), None);
    }

    #[test]
    fn a_shorter_value_is_hidden_if_the_longest_is_not_a_whole_word_there() {
        let hidden = with(&[("anna", 0), ("anna b", 0), ("anna boa", 0), ("anna bo b", 9), ("ann\u{e4}", 0)]);
        for (text, expected) in [
            ("anna bob", "[V_00] bob"),
            ("anna b, anna boat", "[V_10], [V_00] boat"),
            ("anna bo b", "[V_00] bo b"),
            ("ann\u{e4} ann\u{e4}x anna", "[V_40] ann\u{e4}x [V_00]"),
            ("--anna boa", "--[V_20]"),
        ] {
            assert_eq!(hidden.hide_in(text, 5).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn hiding_values_with_a_common_prefix_takes_linear_time() {
        let key = |at: usize| format!("-----BEGIN PRIVATE KEY-----\n{}{at}", "-".repeat(at % 90));
        crate::plan::work::assert_linear(100, |size| {
            let mut hidden = Placeholders::default();
            for at in 0..size {
                hidden.hide(&key(at), 0, |longer| Some(format!("[K_{at}_{longer}]")));
            }
            let text = format!("{} {}", "-".repeat(100 * size), "-----C ".repeat(size));
            assert_eq!(hidden.find(&Decoded::new(&text), 0), []);
        });
    }

    #[test]
    fn debug_output_of_placeholders_shows_no_values() {
        assert_eq!(format!("{:?}", with(&[("anna@x.de", 1)])), "1 placeholder");
    }

    proptest! {
        #[test]
        fn hidden_values_are_restored_exactly(
            values in prop::collection::vec("[a-c]{4,6}", 1..6),
            words in prop::collection::vec("[a-c]{1,6}|[\\[\\]V_0é ]{1,4}", 0..30),
        ) {
            let values: Vec<(&str, usize)> = values.iter().map(|value| (value.as_str(), 0)).collect();
            let hidden = with(&values);
            let text = words.join(" ");
            if let Some(redacted) = hidden.hide_in(&text, 0) {
                let is_left = |(value, _): &(&str, usize)| redacted.split(' ').any(|word| word == *value);
                prop_assert!(!values.iter().any(is_left), "{redacted}");
                if hidden.restore(&text).is_none() {
                    prop_assert_eq!(hidden.restore(&redacted), Some(text));
                }
            }
        }
    }
}
