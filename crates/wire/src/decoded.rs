//! Decoded texts: a text as the programs that read it understand it. The first layer has the strings of JSON documents
//! without their escapes, at every depth; each further layer has one more level of the escapes of shells, programs and
//! addresses resolved. Every layer knows where its bytes come from. Looks for nothing in them.

mod document;
mod escapes;
mod runs;

use document::Reader;
use runs::Runs;
use std::borrow::Cow;
use std::ops::Range;

/// Layers after the first one: an escape within an escape, and one more.
const MOST_ESCAPED: usize = 3;

/// See the file's head.
pub struct Decoded<'a> {
    layers: Vec<Layer<'a>>,
    /// The strings of documents that are no documents themselves, as ranges of the first layer, in order.
    strings: Vec<JsonString>,
    /// The lists and objects of documents, each after the one that it is in.
    groups: Vec<Group>,
    /// From which byte of the first layer on how many strings are around the JSON; `None`: it is no JSON.
    depths: Vec<(usize, Option<usize>)>,
}

/// One way to read the text.
struct Layer<'a> {
    text: Cow<'a, str>,
    /// Where its bytes are in the layer before; of the first one, in the text itself.
    runs: Runs,
}

/// A string of a JSON document, by ranges of the first layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonString {
    pub range: Range<usize>,
    /// The name of the member whose value it is, or in whose list it is.
    pub name: Option<Range<usize>>,
    /// The list or the object that it is in, by its place in [`Decoded::groups`].
    pub within: Option<usize>,
    /// Whether it is the name of a member.
    pub is_name: bool,
}

/// A list or an object of a JSON document. One whose string is a member of another document is in that one's object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub is_list: bool,
    /// The name of the member that it is.
    pub name: Option<Range<usize>>,
    /// The list or the object that it is in.
    pub within: Option<usize>,
    /// How many commas are between its members.
    pub commas: usize,
}

/// `text` without its escapes, as the innermost layer of a free text has it.
pub fn unescaped(text: &str) -> Cow<'_, str> {
    let mut text: Cow<'_, str> = Cow::Borrowed(text);
    for _ in 0..MOST_ESCAPED {
        let Some((resolved, _)) = escapes::resolve(&text) else { break };
        text = Cow::Owned(resolved);
    }
    text
}

impl<'a> Decoded<'a> {
    /// All layers of `text`. A layer that would equal the one before it is left out.
    pub fn new(text: &'a str) -> Self {
        let Reader { text: first, runs, strings, groups, depths, .. } = Reader::read(text);
        let first = match runs.is_identity() {
            true => Layer { text: Cow::Borrowed(text), runs: Runs::default() },
            false => Layer { text: Cow::Owned(first), runs },
        };
        let mut layers = vec![first];
        while layers.len() <= MOST_ESCAPED
            && let Some((text, runs)) = layers.last().and_then(|layer| escapes::resolve(&layer.text))
        {
            layers.push(Layer { text: Cow::Owned(text), runs });
        }
        Self { layers, strings, groups, depths }
    }

    /// How many layers there are: at least one.
    pub fn layers(&self) -> usize {
        self.layers.len()
    }

    /// The text of a layer.
    pub fn layer(&self, layer: usize) -> &str {
        self.layers.get(layer).map_or("", |layer| &layer.text)
    }

    /// The strings of JSON documents.
    pub fn strings(&self) -> &[JsonString] {
        &self.strings
    }

    /// The lists and objects of JSON documents, each after the one that it is in.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Whether an escape of the next layer begins before the byte `at` of `layer` and ends after it.
    pub fn splits_escape(&self, layer: usize, at: usize) -> bool {
        self.layers.get(layer + 1).is_some_and(|next| next.runs.splits(at))
    }

    /// Where a `range` of `layer` is in the text: one range for each JSON string that it touches, since what is between two
    /// strings belongs to the document. A range outside all strings of a document grows to the whole number.
    pub fn sources(&self, layer: usize, range: Range<usize>) -> Vec<Range<usize>> {
        let range = (1..=layer).rev().fold(range, |range, layer| self.layers[layer].runs.sources(range));
        let first = self.strings.partition_point(|string| string.range.end <= range.start);
        let touched = self.strings[first..].iter().take_while(|string| string.range.start < range.end);
        let clipped = touched
            .map(|string| range.start.max(string.range.start)..range.end.min(string.range.end))
            .filter(|piece| !piece.is_empty());
        let mut pieces: Vec<Range<usize>> = clipped.collect();
        let is_outside = pieces.is_empty() || self.depth_at(range.start).is_none();
        if is_outside {
            pieces = vec![self.number_around(&range).unwrap_or(range)];
        }
        pieces.into_iter().map(|piece| self.layers[0].runs.sources(piece)).collect()
    }

    /// The text of `layer` that a range of the text means.
    pub fn text_of(&self, layer: usize, source: Range<usize>) -> &str {
        let range = self.layers.iter().take(layer + 1).fold(source, |range, layer| layer.runs.ranges(range));
        self.layer(layer).get(range).unwrap_or_default()
    }

    /// How `word`, which has no character that JSON escapes, is written in the place of a range of the text: with quotes
    /// where a number of a document was.
    pub fn written_at(&self, source: &Range<usize>, word: &str) -> String {
        let at = self.layers[0].runs.ranges(source.clone()).start;
        let first = self.strings.partition_point(|string| string.range.end <= at);
        let is_in_string = self.strings.get(first).is_some_and(|string| string.range.start <= at);
        match self.depth_at(at) {
            Some(depth) if !is_in_string => {
                // Each level of strings doubles the backslashes before a quote and adds one.
                let quote = format!("{}\"", "\\".repeat((1 << depth) - 1));
                format!("{quote}{word}{quote}")
            }
            _ => word.to_owned(),
        }
    }

    /// The whole number of a document that a range of the first layer touches.
    fn number_around(&self, range: &Range<usize>) -> Option<Range<usize>> {
        self.depth_at(range.start)?;
        let bytes = self.layers[0].text.as_bytes();
        let is_of_number = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
        let before = bytes[..range.start].iter().rev().take_while(|byte| is_of_number(byte)).count();
        let after = bytes[range.end..].iter().take_while(|byte| is_of_number(byte)).count();
        Some(range.start - before..range.end + after)
    }

    fn depth_at(&self, at: usize) -> Option<usize> {
        let after = self.depths.partition_point(|(from, _)| *from <= at);
        after.checked_sub(1).and_then(|last| self.depths[last].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::quote;
    use proptest::prelude::*;

    /// The text with `word` in the place of each occurrence of `value` in any layer.
    fn replaced(text: &str, value: &str, word: &str) -> String {
        let decoded = Decoded::new(text);
        let mut found: Vec<Range<usize>> = Vec::new();
        for layer in 0..decoded.layers() {
            for (at, _) in decoded.layer(layer).match_indices(value) {
                found.extend(decoded.sources(layer, at..at + value.len()));
            }
        }
        found.sort_by_key(|range| range.start);
        found.dedup();
        let mut text = text.to_owned();
        for range in found.iter().rev() {
            text.replace_range(range.clone(), &decoded.written_at(range, word));
        }
        text
    }

    #[test]
    fn a_value_is_found_in_every_escape_and_only_its_own_bytes_change() {
        for (text, expected) in [
            ("to a@b.de.", "to [V]."),
            (r#"{"m":"a@b.de","n":1.0}"#, r#"{"m":"[V]","n":1.0}"#),
            (r#"{ "m" : "x\na\u0040b\u002ede\n" }"#, r#"{ "m" : "x\n[V]\n" }"#),
            (r#"{"a@b.de":["a@b.de",{"x":"a\/a@b.de"}]}"#, r#"{"[V]":["[V]",{"x":"a\/[V]"}]}"#),
            (r#"{"j":"{\"m\":\"a@b.de\",\"n\":2}"}"#, r#"{"j":"{\"m\":\"[V]\",\"n\":2}"}"#),
            (r#"{"j":"{\"m\":\"\\u0061@b.de\\n\"}"}"#, r#"{"j":"{\"m\":\"[V]\\n\"}"}"#),
            (r#"{"j":"{\"k\":\"[\\\"a\\\\u0040b.de\\\"]\"}"}"#, r#"{"j":"{\"k\":\"[\\\"[V]\\\"]\"}"}"#),
            (r#"{"u":"https://x/?m=a%40b.de&n=1"}"#, r#"{"u":"https://x/?m=[V]&n=1"}"#),
            (r#"{"u":"?m=a%2540b%252Ede&n=1"}"#, r#"{"u":"?m=[V]&n=1"}"#),
            (r#"{"j":"{\"u\":\"?m=%61%40b.de\"}"}"#, r#"{"j":"{\"u\":\"?m=[V]\"}"}"#),
            ("echo a\\@b.de $'a\\x40b.de' 'a\\100b.de'", "echo [V] $'[V]' '[V]'"),
            ("log: {\"m\":\"a\\u0040b.de\"} end", "log: {\"m\":\"[V]\"} end"),
            ("{\"m\":\"a@b.de\"}\n{\"m\":\"a\\u0040b.de\"}\n", "{\"m\":\"[V]\"}\n{\"m\":\"[V]\"}\n"),
            ("\"line\\na@b.de\"", "\"line\\n[V]\""),
            (r#"{"m":"a@b"} .de a@b.d"#, r#"{"m":"a@b"} .de a@b.d"#),
        ] {
            assert_eq!(replaced(text, "a@b.de", "[V]"), expected, "{text}");
        }
    }

    #[test]
    fn a_number_of_a_document_is_replaced_whole_by_a_string_of_its_depth() {
        for (text, expected) in [
            (r#"{"n":4111, "s":"4111"}"#, r#"{"n":"[V]", "s":"[V]"}"#),
            (r#"[-4111.5]"#, r#"["[V]"]"#),
            (r#"{"j":"{\"n\":4111}"}"#, r#"{"j":"{\"n\":\"[V]\"}"}"#),
            (r#"{"j":"{\"k\":\"[4111]\"}"}"#, r#"{"j":"{\"k\":\"[\\\"[V]\\\"]\"}"}"#),
            ("n: 4111, m", "n: [V], m"),
            ("[info] 4111 is", "[info] [V] is"),
        ] {
            assert_eq!(replaced(text, "4111", "[V]"), expected, "{text}");
        }
    }

    #[test]
    fn strings_have_the_names_of_their_members() {
        let text = r#"{"a":"1","b":["2",{"c":"{\"d\":\"3\"}"}],"e":{"f":5,"g":"4"}}"#;
        let decoded = Decoded::new(text);
        let first = decoded.layer(0);
        let named: Vec<(&str, &str)> = decoded
            .strings()
            .iter()
            .filter_map(|string| Some((&first[string.name.clone()?], &first[string.range.clone()])))
            .collect();
        assert_eq!(named, [("a", "1"), ("b", "2"), ("d", "3"), ("g", "4")]);
    }

    #[test]
    fn lists_and_objects_know_what_they_are_in_also_across_strings_that_are_documents() {
        let text = r#"{"a":{"b":["1","2"],"c":"{\"d\":{\"e\":\"3\"}}"}}"#;
        let decoded = Decoded::new(text);
        let groups = decoded.groups().iter();
        let known: Vec<(bool, Option<&str>, Option<usize>, usize)> = groups
            .map(|group| {
                let name = group.name.clone().map(|name| &decoded.layer(0)[name]);
                (group.is_list, name, group.within, group.commas)
            })
            .collect();
        let expected = [
            (false, None, None, 0),
            (false, Some("a"), Some(0), 1),
            (true, Some("b"), Some(1), 1),
            (false, Some("c"), Some(1), 0),
            (false, Some("d"), Some(3), 0),
        ];
        assert_eq!(known, expected);
        let last = decoded.strings().last().unwrap();
        assert_eq!((&decoded.layer(0)[last.range.clone()], last.within, last.is_name), ("3", Some(4), false));
    }

    #[test]
    fn a_range_over_several_strings_is_one_range_for_each() {
        let text = r#"["BEGIN","a\nb","END"]"#;
        let decoded = Decoded::new(text);
        let first = decoded.layer(0);
        let range = first.find("BEGIN").unwrap()..first.find("END").unwrap() + 3;
        let pieces: Vec<&str> = decoded.sources(0, range).into_iter().map(|range| &text[range]).collect();
        assert_eq!(pieces, ["BEGIN", r"a\nb", "END"]);
    }

    proptest! {
        #[test]
        fn a_value_in_nested_documents_is_found_and_the_document_stays_valid(
            before in "[a-c\"\\\\\n é%]{0,6}", after in "[ \"\\\\\n;é]{0,6}", depth in 0_usize..4,
        ) {
            let mut text = format!("{before}K3y!{after}");
            let mut expected = format!("{before}[V]{after}");
            for _ in 0..depth {
                text = format!("{{\"k\": {}, \"n\":1.0}}", quote(&text));
                expected = format!("{{\"k\": {}, \"n\":1.0}}", quote(&expected));
            }
            prop_assume!(depth > 0 || !before.contains(['\\', '%']));
            prop_assert_eq!(replaced(&text, "K3y!", "[V]"), expected);
        }

        #[test]
        fn any_text_is_decoded_without_a_panic(text in "([\"\\\\{}\\[\\]:,%u0-9a-f'\n é]|\\\\\"){0,60}") {
            let decoded = Decoded::new(&text);
            for layer in 0..decoded.layers() {
                let own = decoded.layer(layer);
                for (at, letter) in own.char_indices() {
                    for range in decoded.sources(layer, at..at + letter.len_utf8()) {
                        prop_assert!(text.get(range.clone()).is_some(), "{range:?} of {text:?}");
                        decoded.text_of(layer, range);
                    }
                }
            }
        }
    }
}
