//! JSON string escaping and unescaping, and canonical JSON, in which two forms of the same value are equal. Works on
//! small pieces (names, ids, arguments, notices), never on whole bodies.

use super::body::{Fault, Kind, Scanner, Span, Str};
use super::piece::{PIECE, before_backslash};
use std::borrow::Cow;

/// The text of a string read from `text`; lone surrogates become U+FFFD.
pub fn decode<'a>(string: Str, text: &'a [u8]) -> Cow<'a, str> {
    let raw = string.raw(text);
    if string.escaped { Cow::Owned(unescape(raw)) } else { plain(raw) }
}

/// As [`unescape`], without a copy where there is no escape.
pub fn unescaped(raw: &[u8]) -> Cow<'_, str> {
    if raw.contains(&b'\\') { Cow::Owned(unescape(raw)) } else { plain(raw) }
}

/// The text of bytes without escapes.
fn plain(raw: &[u8]) -> Cow<'_, str> {
    // Much quicker than the standard library's lossy reading, and all that a body's strings ever need.
    simdutf8::basic::from_utf8(raw).map_or_else(|_| String::from_utf8_lossy(raw), Cow::Borrowed)
}

/// The bytes of a string read from `text`, to be compared with a name.
#[inline]
pub fn decode_bytes<'a>(string: Str, text: &'a [u8]) -> Cow<'a, [u8]> {
    let raw = string.raw(text);
    if string.escaped { Cow::Owned(unescape(raw).into_bytes()) } else { Cow::Borrowed(raw) }
}

/// Whether readers that ignore the case of letters take `name` for `known`, which is ASCII in lower case.
pub fn is_same_name(name: &[u8], known: &[u8]) -> bool {
    name.eq_ignore_ascii_case(known) || (!name.is_ascii() && *in_one_case(name) == *known)
}

/// A member's name in lower case, as readers compare it that ignore the case of letters. By way of capitals: the
/// capital of `ſ` is `S`.
pub fn in_one_case(name: &[u8]) -> Cow<'_, [u8]> {
    if name.iter().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) {
        return Cow::Borrowed(name);
    }
    let name = String::from_utf8_lossy(name);
    Cow::Owned(
        name.chars()
            .flat_map(char::to_uppercase)
            .flat_map(char::to_lowercase)
            .collect::<String>()
            .into_bytes(),
    )
}

/// Whether a string read from `text` is `name`.
#[inline]
pub fn is_named(string: Str, text: &[u8], name: &str) -> bool {
    let raw = string.raw(text);
    if string.escaped { unescape(raw) == name } else { raw == name.as_bytes() }
}

/// The text of the bytes between two quotes, escapes resolved; lone surrogates become U+FFFD.
pub fn unescape(raw: &[u8]) -> String {
    let mut out = Vec::with_capacity(raw.len());
    let mut rest = raw;
    // Escapes are close to each other: a search and a copy for each would take longer than these short pieces.
    while let Some(piece) = rest.first_chunk() {
        out.extend_from_slice(piece);
        let plain = before_backslash(piece);
        if plain == PIECE {
            rest = &rest[PIECE..];
        } else {
            out.truncate(out.len() - (PIECE - plain));
            rest = push_unescaped(&rest[plain..], &mut out);
        }
    }
    while let Some(plain) = rest.iter().position(|byte| *byte == b'\\') {
        out.extend_from_slice(&rest[..plain]);
        rest = push_unescaped(&rest[plain..], &mut out);
    }
    out.extend_from_slice(rest);
    match String::from_utf8(out) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    }
}

/// Appends the character of the escape at the start of `raw`; returns what follows it. A call for each escape would take
/// longer than the escape.
#[inline(always)]
fn push_unescaped<'a>(raw: &'a [u8], out: &mut Vec<u8>) -> &'a [u8] {
    let usual = match raw.get(1) {
        Some(b'n') => b'\n',
        Some(byte @ (b'"' | b'\\')) => *byte,
        _ => {
            let (used, character) = unescape_one(raw);
            out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            return &raw[used..];
        }
    };
    out.push(usual);
    &raw[2..]
}

/// Appends `text` escaped as a JSON string, without quotes.
pub fn escape_into(text: &str, out: &mut Vec<u8>) {
    let mut rest = text.as_bytes();
    while let Some(plain) = rest.iter().position(|byte| *byte < 0x20 || matches!(byte, b'"' | b'\\')) {
        out.extend_from_slice(&rest[..plain]);
        match rest[plain] {
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            byte @ (b'"' | b'\\') => out.extend_from_slice(&[b'\\', byte]),
            control => out.extend_from_slice(format!("\\u{control:04x}").as_bytes()),
        }
        rest = &rest[plain + 1..];
    }
    out.extend_from_slice(rest);
}

/// `text` escaped as a JSON string, without quotes.
pub fn escaped(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + text.len() / 8);
    escape_into(text, &mut out);
    out
}

/// The bytes of a string read from `text`, escaped as [`escape_into`] does: equal for all spellings of one text, but for
/// those that stand for no text (lone surrogates) and those with control characters that JSON does not allow.
pub fn respelled(string: Str, text: &[u8]) -> Cow<'_, [u8]> {
    let raw = string.raw(text);
    if string.unusual { Cow::Owned(escaped(&unescape(raw))) } else { Cow::Borrowed(raw) }
}

/// A text as [`respelled`] gives it, without white space at its beginning and its end.
pub fn trim_spelled(spelled: &[u8]) -> &[u8] {
    let mut text = spelled;
    while let Some(blank) = leading_blank(text) {
        text = &text[blank..];
    }
    while let Some(blank) = trailing_blank(text) {
        text = &text[..text.len() - blank];
    }
    text
}

/// White space as [`escape_into`] escapes it.
const BLANK_ESCAPES: [&[u8]; 5] = [b"\\n", b"\\r", b"\\t", b"\\u000b", b"\\u000c"];

/// The bytes of the white-space character at the beginning of `text`.
fn leading_blank(text: &[u8]) -> Option<usize> {
    match *text.first()? {
        b'\\' => BLANK_ESCAPES.iter().find(|escape| text.starts_with(escape)).map(|escape| escape.len()),
        byte if byte.is_ascii() => blank_length(Some(byte.into())),
        _ => {
            let beginning = &text[..text.len().min(LONGEST_CHARACTER)];
            blank_length(beginning.utf8_chunks().next()?.valid().chars().next())
        }
    }
}

/// The bytes of the white-space character at the end of `text`.
fn trailing_blank(text: &[u8]) -> Option<usize> {
    match *text.last()? {
        b'n' | b'r' | b't' | b'b' | b'c' => {
            let escape = BLANK_ESCAPES.iter().find(|escape| text.ends_with(escape))?;
            // An even number of backslashes before it are escaped ones.
            let before = &text[..text.len() - escape.len()];
            let slashes = before.iter().rev().take_while(|byte| **byte == b'\\').count();
            slashes.is_multiple_of(2).then_some(escape.len())
        }
        byte if byte.is_ascii() => blank_length(Some(byte.into())),
        _ => {
            let end = &text[text.len().saturating_sub(LONGEST_CHARACTER)..];
            blank_length(end.utf8_chunks().last()?.valid().chars().next_back())
        }
    }
}

/// Bytes of the longest character in UTF-8.
const LONGEST_CHARACTER: usize = 4;

fn blank_length(character: Option<char>) -> Option<usize> {
    character.filter(|character| character.is_whitespace()).map(char::len_utf8)
}

/// `text` as a JSON string with its quotes.
pub fn quote(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len() + 2);
    out.push(b'"');
    escape_into(text, &mut out);
    out.push(b'"');
    String::from_utf8(out).unwrap_or_default()
}

/// The canonical form of a JSON text: keys sorted, of equal ones the last, no white space, strings escaped in one way,
/// integers as written and other numbers as the shortest decimal of their double. Equal arguments have the same
/// canonical form, although clients write what they send back in another way. A text that is not JSON is its own
/// canonical form.
pub fn canonical(text: &[u8]) -> Vec<u8> {
    // Members that are not in order are written twice.
    let mut out = Vec::with_capacity(2 * text.len());
    let mut scanner = Scanner::new(text);
    match canonical_value(&mut scanner, &mut out).and_then(|()| scanner.end()) {
        Ok(()) => out,
        Err(_) => text.to_vec(),
    }
}

fn canonical_value(scanner: &mut Scanner<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
    match scanner.peek()? {
        Kind::Object => canonical_object(scanner, out),
        Kind::Array => {
            scanner.array()?;
            out.push(b'[');
            let start = out.len();
            while scanner.element()? {
                if out.len() > start {
                    out.push(b',');
                }
                canonical_value(scanner, out)?;
            }
            out.push(b']');
            Ok(())
        }
        Kind::String => {
            let string = scanner.string()?;
            canonical_string(string, scanner.text(), out);
            Ok(())
        }
        Kind::Number => {
            let span = scanner.skip()?;
            canonical_number(span.of(scanner.text()), out);
            Ok(())
        }
        _ => {
            let span = scanner.skip()?;
            out.extend_from_slice(span.of(scanner.text()));
            Ok(())
        }
    }
}

fn canonical_object(scanner: &mut Scanner<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
    scanner.object()?;
    out.push(b'{');
    let start = out.len();
    let mut members: Vec<Written> = Vec::with_capacity(4);
    while let Some(key) = scanner.member()? {
        if !members.is_empty() {
            out.push(b',');
        }
        let from = out.len();
        canonical_string(key, scanner.text(), out);
        let key = Span::new(from, out.len());
        out.push(b':');
        canonical_value(scanner, out)?;
        members.push(Written { key, all: Span::new(from, out.len()) });
    }
    if !members.is_sorted_by(|a, b| a.key.of(out) < b.key.of(out)) {
        sort(&mut members, start, out);
    }
    out.push(b'}');
    Ok(())
}

/// A member of a canonical object, by its position in the output.
struct Written {
    key: Span,
    all: Span,
}

/// Brings `members`, which were written from `start` on, into the order of their keys.
fn sort(members: &mut [Written], start: usize, out: &mut Vec<u8>) {
    // Stable: of equal keys the last one stays, since it is the one that parsers keep and write again.
    members.sort_by(|a, b| a.key.of(out).cmp(b.key.of(out)));
    let end = out.len();
    for (at, member) in members.iter().enumerate() {
        if members.get(at + 1).is_some_and(|next| next.key.of(out) == member.key.of(out)) {
            continue;
        }
        if out.len() > end {
            out.push(b',');
        }
        out.extend_from_within(member.all.range());
    }
    out.copy_within(end.., start);
    out.truncate(start + out.len() - end);
}

fn canonical_string(string: Str, text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    if string.escaped && !string.odd {
        escape_into(&decode(string, text), out);
    } else {
        out.extend_from_slice(string.raw(text));
    }
    out.push(b'"');
}

/// `1.0`, `1` and `1e0` are one value to the clients that write arguments again: they keep fractions and exponents as
/// doubles. Integers stay as written, since long ones are ids that must not run together.
fn canonical_number(number: &[u8], out: &mut Vec<u8>) {
    if !number.iter().any(|byte| matches!(byte, b'.' | b'e' | b'E')) {
        return out.extend_from_slice(if number == b"-0" { b"0" } else { number });
    }
    // A number is ASCII, as the scanner reads it.
    match str::from_utf8(number).unwrap_or_default().parse::<f64>() {
        // Adding zero takes the sign from a negative one.
        Ok(double) if double.is_finite() => out.extend_from_slice(written(double + 0.0).as_bytes()),
        _ => out.extend_from_slice(number),
    }
}

/// `double` in digits where they are few, as the integer of the same value is written; else with an exponent, since
/// the digits of `1e308` are a hundred times as long. Powers of ten are exact doubles up to 1e22.
fn written(double: f64) -> String {
    match double == 0.0 || (1e-7..=1e22).contains(&double.abs()) {
        true => double.to_string(),
        false => format!("{double:e}"),
    }
}

/// Reads one escape at the start of `raw` (a backslash): the bytes it takes and the character it means.
pub(super) fn unescape_one(raw: &[u8]) -> (usize, char) {
    match raw.get(1) {
        Some(b'n') => (2, '\n'),
        Some(b't') => (2, '\t'),
        Some(b'r') => (2, '\r'),
        Some(b'b') => (2, '\u{8}'),
        Some(b'f') => (2, '\u{c}'),
        Some(b'u') => unescape_unicode(raw),
        Some(byte) if byte.is_ascii() => (2, *byte as char),
        _ => (1, '\\'),
    }
}

fn unescape_unicode(raw: &[u8]) -> (usize, char) {
    let unit = |at: usize| {
        let digits = std::str::from_utf8(raw.get(at..at + 4)?).ok()?;
        u32::from_str_radix(digits, 16).ok()
    };
    let Some(high) = unit(2) else { return (2, char::REPLACEMENT_CHARACTER) };
    if (0xD800..0xDC00).contains(&high)
        && raw.get(6..8) == Some(b"\\u")
        && let Some(low @ 0xDC00..=0xDFFF) = unit(8)
    {
        let code = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
        return (12, char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
    }
    (6, char::from_u32(high).unwrap_or(char::REPLACEMENT_CHARACTER))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_is_the_same_in_any_case_of_its_letters() {
        for (name, is_same) in [
            ("strict", true),
            ("Strict", true),
            ("STRICT", true),
            ("\u{17f}trict", true),
            ("strict ", false),
            ("stric", false),
            ("str\u{ed}ct", false),
            ("", false),
        ] {
            assert_eq!(is_same_name(name.as_bytes(), b"strict"), is_same, "{name}");
            assert_eq!(*in_one_case(name.as_bytes()) == *b"strict", is_same, "{name}");
        }
    }

    #[test]
    fn escapes_are_resolved_wherever_they_are() {
        for length in 0..40 {
            for (escape, meant) in [
                (r"\n", "\n"),
                (r"\\", "\\"),
                (r"\u00e9", "é"),
                (r"\ud83d\ude00", "😀"),
                (r"\u12", "\u{fffd}12"),
                ("\\", "\\"),
            ] {
                for (before, after) in
                    [("x".repeat(length), String::new()), ("é".repeat(length), "y".repeat(20))]
                {
                    let at_end = escape == "\\" && !after.is_empty();
                    let raw = format!("{before}{escape}{after}");
                    let expected = format!("{before}{meant}{after}");
                    assert!(at_end || unescape(raw.as_bytes()) == expected, "{raw}");
                    assert_eq!(unescaped(raw.as_bytes()), unescape(raw.as_bytes()));
                    assert_eq!(unescaped(before.as_bytes()), before);
                }
            }
        }
    }

    fn canon(text: &str) -> String {
        String::from_utf8(canonical(text.as_bytes())).unwrap()
    }

    #[test]
    fn spellings_of_the_same_arguments_agree() {
        for (a, b) in [
            (r#"{"city":"Paris"}"#, r#"{ "city" : "Paris" }"#),
            (r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#),
            (r#"{"a":{"y":[1, 2],"x":null}}"#, r#"{"a":{"x":null,"y":[1,2]}}"#),
            (r#"{"t":"é"}"#, r#"{"t":"\u00e9"}"#),
            (r#"{"t":"a/b"}"#, r#"{"t":"a\/b"}"#),
            (r#"{"n":1.0}"#, r#"{"n":1}"#),
            (r#"{"n":1.50}"#, r#"{"n":1.5}"#),
            (r#"{"n":1e5}"#, r#"{"n":100000.0}"#),
            (r#"{"n":0.0000001}"#, r#"{"n":1e-07}"#),
            (r#"{"n":1E+21}"#, r#"{"n":1000000000000000000000}"#),
            (r#"{"n":1e308}"#, r#"{"n":1.0E308}"#),
            (r#"{"n":-1.5e-300}"#, r#"{"n":-0.15E-299}"#),
            (r#"[-0, -0.0]"#, r#"[0, 0]"#),
            (r#"{"n":0.10000000000000000555}"#, r#"{"n":0.1}"#),
            (r#"{"a":1,"b":2,"a":3}"#, r#"{"b":2,"a":3}"#),
        ] {
            assert_eq!(canon(a), canon(b), "{a} {b}");
        }
    }

    #[test]
    fn spellings_of_one_text_are_respelled_to_the_same_bytes() {
        let spelled = |text: &str| {
            let text = format!("\"{text}\"");
            let string = Scanner::new(text.as_bytes()).string().unwrap();
            let respelled = respelled(string, text.as_bytes());
            (respelled.to_vec(), matches!(respelled, Cow::Borrowed(_)))
        };
        for (a, b) in [
            (r"\u00e9", "é"),
            (r"\/", "/"),
            (r"\u000A", r"\n"),
            (r"\b\f", r"\u0008\u000C"),
            (r"\u001B", r"\u001b"),
            (r"\ud83d\ude00", "😀"),
            (r"\\u0041", r"\u005cu0041"),
        ] {
            assert_eq!(spelled(a).0, spelled(b).0, "{a} {b}");
        }
        assert!(spelled(r#"\n\r\t\"\\ é/"#).1, "as nearly every client writes it");
    }

    #[test]
    fn short_numbers_stay_short() {
        assert!(canon("[1e308,1e-308]").len() <= 30, "{}", canon("[1e308,1e-308]"));
    }

    #[test]
    fn different_arguments_stay_different() {
        for (a, b) in [
            (r#"{"a":1}"#, r#"{"a":2}"#),
            (r#"{"a":"1"}"#, r#"{"a":1}"#),
            (r#"[1,2]"#, r#"[2,1]"#),
            (r#"{"a":100}"#, r#"{"a":1}"#),
            (r#"{"a":null}"#, r#"{}"#),
            (r#"{"a":9007199254740993}"#, r#"{"a":9007199254740992}"#),
            (r#"{"a":1e999}"#, r#"{"a":1e998}"#),
            (r#"{"a":1,"a":2}"#, r#"{"a":1}"#),
            ("not json ", "not json"),
        ] {
            assert_ne!(canon(a), canon(b), "{a} {b}");
        }
    }

    #[test]
    fn invalid_escapes_become_replacement_characters() {
        for count in [1, 7, 100] {
            for (raw, text) in
                [("\\u", "\u{FFFD}"), ("a\\uZZ", "a\u{FFFD}ZZ"), ("\\ud800", "\u{FFFD}"), ("\\é", "\\é")]
            {
                assert_eq!(unescape(raw.repeat(count).as_bytes()), text.repeat(count), "{raw} {count}");
            }
        }
    }

    #[test]
    fn long_texts_are_escaped_as_serde_escapes_them() {
        for plain in [0, 1, 7, 8, 31, 47, 48, 49, 90, 255, 256, 300] {
            for odd in ["", "\"", "\n\n", "\u{1}", "é\\", "\u{1f}\u{7f}"] {
                let text = format!("{}{odd}", "x".repeat(plain)).repeat(5);
                assert_eq!(quote(&text), serde_json::to_string(&text).unwrap());
                assert_eq!(unescape(&quote(&text).as_bytes()[1..quote(&text).len() - 1]), text);
            }
        }
    }

    proptest! {
        #[test]
        fn a_spelled_text_is_trimmed_as_the_text_it_stands_for(
            parts in prop::collection::vec(
                prop::sample::select(&[" ", "\n", "\r", "\t", "\u{b}", "\u{c}", "\u{a0}", "\u{2003}", "\\", "n", "t", "c", "u000b", "é", "\u{7f}"][..]),
                0..8,
            ),
        ) {
            let text = parts.concat();
            let spelled = escaped(&text);
            prop_assert_eq!(trim_spelled(&spelled), escaped(text.trim()), "{:?}", text);
        }

        #[test]
        fn escaping_and_unescaping_are_inverse(text in any::<String>()) {
            let mut escaped = Vec::new();
            escape_into(&text, &mut escaped);
            prop_assert_eq!(unescape(&escaped), text.clone());
            prop_assert_eq!(serde_json::from_str::<String>(&quote(&text)).unwrap(), text);
        }

        #[test]
        fn unescaping_agrees_with_serde(text in any::<String>()) {
            let ascii: String = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
            prop_assert_eq!(unescape(ascii.as_bytes()), text);
        }

        #[test]
        fn any_bytes_unescape_without_a_panic(raw in prop::collection::vec(any::<u8>(), 0..60)) {
            unescape(&raw);
            canonical(&raw);
        }
    }
}
