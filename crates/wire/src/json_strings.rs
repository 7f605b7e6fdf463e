//! Edits within JSON strings: the bytes that a range of a string's text is written with, and the strings of a JSON text
//! mapped one by one. Everything else stays as it is written.

use super::body::Scanner;
use super::json::{escape_into, unescape, unescape_one};
use std::borrow::Cow;
use std::ops::Range;

/// The bytes between two quotes, `raw`, with which the `ranges` of the text that they mean are written. The ranges are
/// in order, and do not overlap. `None` where a range is not one of whole characters of that text.
pub fn raw_ranges<'a>(
    raw: &[u8],
    ranges: impl Iterator<Item = &'a Range<usize>>,
) -> Option<Vec<Range<usize>>> {
    let (mut at, mut of_text) = (0, 0);
    let mut advance = |mark: usize| {
        while of_text < mark {
            let rest = raw.get(at..).filter(|rest| !rest.is_empty())?;
            if rest[0] == b'\\' {
                let (used, character) = unescape_one(rest);
                (at, of_text) = (at + used, of_text + character.len_utf8());
            } else {
                let plain = memchr::memchr(b'\\', rest).unwrap_or(rest.len()).min(mark - of_text);
                (at, of_text) = (at + plain, of_text + plain);
            }
        }
        (of_text == mark).then_some(at)
    };
    ranges.map(|range| Some(advance(range.start)?..advance(range.end)?)).collect()
}

/// `json` with each of its strings as `map` says, names of members too; `None` where `map` changes none. Free text, which
/// is not JSON, is mapped as if it were one string.
pub fn map_strings(json: &str, mut map: impl FnMut(&str) -> Option<String>) -> Option<String> {
    let mut scanner = Scanner::new(json.as_bytes());
    if scanner.skip().is_err() || scanner.end().is_err() {
        return map(json);
    }
    let bytes = json.as_bytes();
    let mut out = Vec::new();
    let (mut at, mut done) = (0, 0);
    while let Some(quote) = memchr::memchr(b'"', &bytes[at..]) {
        let start = at + quote + 1;
        let end = start + string_end(&bytes[start..]);
        let raw = &bytes[start..end];
        let text = match memchr::memchr(b'\\', raw) {
            Some(_) => Cow::Owned(unescape(raw)),
            None => Cow::Borrowed(&json[start..end]),
        };
        if let Some(mapped) = map(&text) {
            out.extend_from_slice(&bytes[done..start]);
            escape_into(&mapped, &mut out);
            done = end;
        }
        at = (end + 1).min(bytes.len());
    }
    if done == 0 {
        return None;
    }
    out.extend_from_slice(&bytes[done..]);
    String::from_utf8(out).ok()
}

/// Where the string ends whose inside `rest` begins with: the place of the quote.
pub(super) fn string_end(rest: &[u8]) -> usize {
    let mut at = 0;
    while let Some(next) = memchr::memchr2(b'"', b'\\', &rest[at..]) {
        if rest[at + next] == b'"' {
            return at + next;
        }
        at = (at + next + 2).min(rest.len());
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::escaped;
    use proptest::prelude::*;

    #[test]
    fn strings_are_mapped_and_everything_else_stays_as_written() {
        let shout = |text: &str| text.contains('x').then(|| format!("{}\"", text.to_uppercase()));
        for (json, expected) in [
            (r#"{ "a" : "x" , "b":1.0}"#, Some(r#"{ "a" : "X\"" , "b":1.0}"#)),
            (r#"{"x":["\u0078\\","y\""]}"#, Some(r#"{"X\"":["X\\\"","y\""]}"#)),
            (r#"{"a":"\u00e9"}"#, None),
            ("x is no JSON", Some("X IS NO JSON\"")),
            (r#""x""#, Some(r#""X\"""#)),
            ("", None),
        ] {
            assert_eq!(map_strings(json, shout).as_deref(), expected, "{json}");
        }
    }

    #[test]
    fn a_range_is_located_in_the_raw_string_despite_escapes() {
        let raw = br#"a\u00e9\n\ud83d\ude00b\/c"#;
        let text = unescape(raw);
        for word in ["\u{e9}", "\n\u{1f600}", "b/", "a", "c"] {
            let start = text.find(word).unwrap();
            let ranges = raw_ranges(raw, std::iter::once(&(start..start + word.len()))).unwrap();
            assert_eq!(unescape(&raw[ranges[0].clone()]), word);
        }
        assert_eq!(raw_ranges(raw, std::iter::once(&(2..3))), None);
        assert_eq!(raw_ranges(b"abc", std::iter::once(&(2..9))), None);
    }

    proptest! {
        #[test]
        fn ranges_of_any_text_are_found_in_its_escaped_form(text in any::<String>(), cut in any::<(usize, usize)>()) {
            let raw = escaped(&text);
            let place = |at: usize| text.floor_char_boundary(at % (text.len() + 1));
            let (a, b) = (place(cut.0), place(cut.1));
            let range = a.min(b)..a.max(b);
            let found = raw_ranges(&raw, [range.clone()].iter()).unwrap();
            prop_assert_eq!(unescape(&raw[found[0].clone()]), &text[range]);
        }
    }
}
