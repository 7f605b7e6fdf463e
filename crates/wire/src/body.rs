//! A JSON pull scanner: it gives the parts of a text, in order, as spans of its original bytes. Responsible for
//! structure (where a member starts, where a value ends), depth and escapes. It builds no tree, copies nothing, and
//! deliberately checks numbers and plain characters only as far as finding the next byte needs: the upstream refuses a
//! text that is wrong there.

mod string;

use crate::piece::near_escape_or_end;
use std::ops::Range;

/// How deep objects and arrays may nest in what is read by recursion: serde_json refuses at the same depth.
pub const MAX_DEPTH: u32 = 128;
/// The same in what servers and clients read. No library that has a bound has a higher one: Go's `encoding/json` takes
/// 10,000 levels, Python's `json`, Jackson and simdjson about 1,000.
pub const MAX_DEPTH_TOLERANT: u32 = 16_384;
/// The mark that may precede a text in UTF-8; some servers accept it before a body.
pub const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// Numbers that JSON does not have, but that Python's `json` writes and reads.
const NON_FINITE: [&[u8]; 3] = [b"NaN", b"Infinity", b"-Infinity"];
/// How many levels one integer of [`Scanner::skip_container`] keeps apart.
const LEVELS: u32 = u128::BITS;

/// A range of bytes in the text it was read from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Span {
    pub start: u32,
    pub end: u32,
}

impl Span {
    /// The span from `start` up to but without `end`.
    pub fn new(start: usize, end: usize) -> Self {
        Self { start: start as u32, end: end as u32 }
    }

    /// Length in bytes.
    pub fn len(self) -> usize {
        (self.end - self.start) as usize
    }

    /// Whether no byte lies in it.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// As a range of indices.
    pub fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// The bytes it names in `text`, which must be the text it was read from.
    #[inline]
    pub fn of(self, text: &[u8]) -> &[u8] {
        &text[self.range()]
    }
}

/// A JSON string: the bytes between its quotes, escapes as written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Str {
    pub span: Span,
    /// A backslash occurs in it.
    pub escaped: bool,
    /// It holds an escape that not every JSON library writes in the same way: any but `\n`, `\r`, `\t`, `\"` and `\\`.
    /// A text has one spelling without such escapes.
    pub unusual: bool,
    /// It holds `\u0000` or half of a surrogate pair, which many parsers cannot read. Such a string is
    /// read for its facts but never edited.
    pub odd: bool,
}

impl Str {
    /// The bytes between the quotes, escapes as written.
    #[inline]
    pub fn raw(self, text: &[u8]) -> &[u8] {
        self.span.of(text)
    }

    /// The span with its quotes.
    pub fn quoted(self) -> Span {
        Span { start: self.span.start - 1, end: self.span.end + 1 }
    }
}

/// The kind of the value at the scanner's position, by its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Object,
    Array,
    String,
    Number,
    True,
    False,
    Null,
}

/// The kind of a value by its first byte.
static KINDS: [Option<Kind>; 256] = {
    let mut kinds = [None; 256];
    let mut byte = 0;
    while byte < kinds.len() {
        kinds[byte] = match byte as u8 {
            b'{' => Some(Kind::Object),
            b'[' => Some(Kind::Array),
            b'"' => Some(Kind::String),
            b't' => Some(Kind::True),
            b'f' => Some(Kind::False),
            b'n' => Some(Kind::Null),
            b'-' | b'0'..=b'9' => Some(Kind::Number),
            _ => None,
        };
        byte += 1;
    }
    kinds
};

/// Why a text could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("the body is not JSON")]
    Syntax,
    #[error("the body is nested too deep")]
    Depth,
    #[error("the body is not UTF-8")]
    Utf8,
    #[error("the body is too large to read")]
    Size,
    #[error("a member that decides about governing occurs twice, be it in another case of letters")]
    Duplicate,
    #[error("the body has no messages")]
    NoMessages,
    #[error("the body, or a member of it, has a type that the API does not know")]
    Type,
    #[error("the body has more members, calls or choices than are read")]
    Crowded,
}

impl Fault {
    /// A stable label for metrics and logs.
    pub fn label(self) -> &'static str {
        match self {
            Self::Syntax => "not_json",
            Self::Depth => "too_deep",
            Self::Utf8 => "not_utf8",
            Self::Size => "too_large",
            Self::Duplicate => "duplicate_key",
            Self::NoMessages => "no_messages",
            Self::Type => "wrong_type",
            Self::Crowded => "too_many_parts",
        }
    }
}

/// A walk through one JSON text, from its first byte to its last.
///
/// Containers are entered with [`object`](Self::object) and [`array`](Self::array); then
/// [`member`](Self::member) or [`element`](Self::element) stop before each value, which the caller must
/// consume (enter, read, or [`skip`](Self::skip)) before asking for the next.
#[derive(Clone, Debug)]
pub struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    depth: u32,
    /// A container was just opened: its first value takes no comma.
    fresh: bool,
    /// An odd string (see [`Str::odd`]) was passed anywhere so far.
    odd: bool,
    /// See [`Self::tolerant`].
    tolerant: bool,
}

impl<'a> Scanner<'a> {
    /// A scanner at the start of `text`.
    pub fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0, depth: 0, fresh: false, odd: false, tolerant: false }
    }

    /// A scanner at the start of `text` that reads what any server or client might: nested up to
    /// [`MAX_DEPTH_TOLERANT`], with `NaN`, `Infinity` and `-Infinity` for numbers, after a byte order mark. Its users
    /// must not recurse.
    pub fn tolerant(text: &'a [u8]) -> Self {
        let at = if text.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
        Self { at, tolerant: true, ..Self::new(text) }
    }

    /// A scanner of the value at `span` in `text`; the spans it yields are those of `text`. It is
    /// [`tolerant`](Self::tolerant), as the scanner that found the value may have been.
    pub fn within(text: &'a [u8], span: Span) -> Self {
        let (text, at) = (&text[..span.end as usize], span.start as usize);
        Self { at, tolerant: true, ..Self::new(text) }
    }

    /// A scanner after an element of an array that is a member of the top object: at `at`, and having passed an `odd`
    /// string before. It is [`tolerant`](Self::tolerant), as the scanner that came so far may have been.
    pub fn in_array(text: &'a [u8], at: usize, odd: bool) -> Self {
        Self { at, depth: 2, odd, tolerant: true, ..Self::new(text) }
    }

    /// Whether a string with `\u0000` or a lone surrogate was passed so far.
    pub fn odd(&self) -> bool {
        self.odd
    }

    /// Forgets odd strings passed so far, so that a part can be asked on its own.
    pub fn clear_odd(&mut self) {
        self.odd = false;
    }

    /// Remembers again that an odd string was passed before a part that was asked on its own.
    pub fn restore_odd(&mut self, before: bool) {
        self.odd |= before;
    }

    /// The text being scanned.
    pub fn text(&self) -> &'a [u8] {
        self.text
    }

    /// The kind of the next value; consumes white space only.
    #[inline]
    pub fn peek(&mut self) -> Result<Kind, Fault> {
        match self.text.get(self.at).and_then(|byte| KINDS[usize::from(*byte)]) {
            Some(kind) => Ok(kind),
            None => self.peek_past_space(),
        }
    }

    #[inline(never)]
    fn peek_past_space(&mut self) -> Result<Kind, Fault> {
        let first = self.skip_space().ok_or(Fault::Syntax)?;
        KINDS[usize::from(first)].or_else(|| self.non_finite().map(|_| Kind::Number)).ok_or(Fault::Syntax)
    }

    /// The non-finite number at the position of a tolerant scanner.
    fn non_finite(&self) -> Option<&'static [u8]> {
        let rest = &self.text[self.at..];
        NON_FINITE.into_iter().find(|word| self.tolerant && rest.starts_with(word))
    }

    /// Enters an object.
    pub fn object(&mut self) -> Result<(), Fault> {
        self.open(b'{')
    }

    /// Enters an array.
    pub fn array(&mut self) -> Result<(), Fault> {
        self.open(b'[')
    }

    /// The key of the next member, or `None` at the end of the object, which is then left.
    #[inline]
    pub fn member(&mut self) -> Result<Option<Str>, Fault> {
        if !self.next_value(b'}')? {
            return Ok(None);
        }
        if let Some(key) = self.plain_key() {
            return Ok(Some(key));
        }
        let key = self.string()?;
        self.expect(b':')?;
        Ok(Some(key))
    }

    /// Passes a key as most are written: without escapes, and with no white space around it.
    #[inline(always)]
    fn plain_key(&mut self) -> Option<Str> {
        let (quote, after) = self.text.get(self.at..)?.split_first()?;
        let length = near_escape_or_end(after)?;
        if *quote != b'"' || after.get(length..length + 2)? != b"\":" {
            return None;
        }
        let span = Span::new(self.at + 1, self.at + 1 + length);
        self.at += length + 3;
        Some(Str { span, ..Str::default() })
    }

    /// Whether another element follows; at the end of the array it is left.
    #[inline]
    pub fn element(&mut self) -> Result<bool, Fault> {
        self.next_value(b']')
    }

    /// Passes one value of any kind and returns its span.
    pub fn skip(&mut self) -> Result<Span, Fault> {
        let kind = self.peek()?;
        self.skip_kind(kind)
    }

    /// As [`skip`](Self::skip), for a value of a `kind` that was peeked at.
    pub fn skip_kind(&mut self, kind: Kind) -> Result<Span, Fault> {
        let start = self.at;
        match kind {
            Kind::Object | Kind::Array => self.skip_container()?,
            _ => self.skip_scalar(kind)?,
        }
        Ok(Span::new(start, self.at))
    }

    /// Passes a value of so many bytes that was read before: the scanner must be right before it.
    pub fn pass(&mut self, bytes: usize) {
        self.at += bytes;
    }

    /// Checks that nothing but white space is left.
    pub fn end(&mut self) -> Result<(), Fault> {
        if self.after_space().is_none() { Ok(()) } else { Err(Fault::Syntax) }
    }

    /// The scanner's position, in bytes from the start of the text.
    pub fn at(&self) -> usize {
        self.at
    }

    fn skip_scalar(&mut self, kind: Kind) -> Result<(), Fault> {
        match kind {
            Kind::String => self.string().map(drop),
            Kind::True => self.literal(b"true"),
            Kind::False => self.literal(b"false"),
            Kind::Null => self.literal(b"null"),
            _ => {
                let rest = &self.text[self.at..];
                let length = rest.iter().position(|byte| !is_number(*byte)).unwrap_or(rest.len());
                let is_word = length <= 1 && matches!(rest.get(length), Some(b'N' | b'I'));
                let non_finite = if is_word { self.non_finite() } else { None };
                self.at += non_finite.map_or(length, <[u8]>::len);
                Ok(())
            }
        }
    }

    /// Passes a container without recursion: one bit per open level says whether it is an object or an array. The
    /// innermost levels are kept in one integer, those outside of them, which hardly any text has, in a list.
    fn skip_container(&mut self) -> Result<(), Fault> {
        let floor = self.depth;
        let mut objects: u128 = 0;
        let mut outer: Vec<u128> = Vec::new();
        loop {
            // Before a value.
            match self.peek()? {
                kind @ (Kind::Object | Kind::Array) => {
                    let levels = self.depth - floor;
                    if levels > 0 && levels.is_multiple_of(LEVELS) {
                        outer.push(std::mem::take(&mut objects));
                    }
                    objects = objects << 1 | u128::from(kind == Kind::Object);
                    self.open(if kind == Kind::Object { b'{' } else { b'[' })?;
                }
                kind => self.skip_scalar(kind)?,
            }
            // After a value or an opening: close what ends here, then go to the next value.
            loop {
                let in_object = objects & 1 == 1;
                let more = if in_object { self.member()?.is_some() } else { self.element()? };
                if more {
                    break;
                }
                objects >>= 1;
                let levels = self.depth - floor;
                if levels == 0 {
                    return Ok(());
                }
                if levels.is_multiple_of(LEVELS) {
                    objects = outer.pop().unwrap_or_default();
                }
            }
        }
    }

    fn open(&mut self, bracket: u8) -> Result<(), Fault> {
        self.expect(bracket)?;
        self.depth += 1;
        if self.depth > if self.tolerant { MAX_DEPTH_TOLERANT } else { MAX_DEPTH } {
            return Err(Fault::Depth);
        }
        self.fresh = true;
        Ok(())
    }

    #[inline]
    fn next_value(&mut self, close: u8) -> Result<bool, Fault> {
        let fresh = std::mem::take(&mut self.fresh);
        if self.text.get(self.at) == Some(&b',') && !fresh {
            self.at += 1;
            return Ok(true);
        }
        match self.after_space() {
            Some(b',') if !fresh => {
                // A closing bracket right after it is no value; reading the value finds that.
                self.at += 1;
                Ok(true)
            }
            Some(byte) if byte == close => {
                self.at += 1;
                self.depth -= 1;
                Ok(false)
            }
            Some(_) if fresh => Ok(true),
            _ => Err(Fault::Syntax),
        }
    }

    fn literal<const LENGTH: usize>(&mut self, word: &[u8; LENGTH]) -> Result<(), Fault> {
        if self.text[self.at..].first_chunk() != Some(word) {
            return Err(Fault::Syntax);
        }
        self.at += LENGTH;
        Ok(())
    }

    #[inline]
    fn expect(&mut self, byte: u8) -> Result<(), Fault> {
        if self.text.get(self.at) != Some(&byte) && self.skip_space() != Some(byte) {
            return Err(Fault::Syntax);
        }
        self.at += 1;
        Ok(())
    }

    /// Passes white space and returns the byte after it.
    #[inline(always)]
    fn after_space(&mut self) -> Option<u8> {
        // Mostly there is none.
        self.text.get(self.at).copied().filter(|byte| *byte > b' ').or_else(|| self.skip_space())
    }

    #[inline(never)]
    fn skip_space(&mut self) -> Option<u8> {
        while let Some(byte) = self.text.get(self.at) {
            match byte {
                b' ' | b'\n' | b'\r' | b'\t' => self.at += 1,
                byte => return Some(*byte),
            }
        }
        None
    }
}

fn is_number(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn whole(text: &str) -> Result<Span, Fault> {
        let mut scanner = Scanner::new(text.as_bytes());
        let span = scanner.skip()?;
        scanner.end()?;
        Ok(span)
    }

    #[test]
    fn members_come_in_their_order_with_their_spans() {
        let text = br#" { "b" : 1 , "a":[2,{"c":"x\"y"}], "" : null } "#;
        let mut scanner = Scanner::new(text);
        scanner.object().unwrap();
        let mut seen = Vec::new();
        while let Some(key) = scanner.member().unwrap() {
            let value = scanner.skip().unwrap();
            seen.push((key.raw(text).to_vec(), value.of(text).to_vec()));
        }
        scanner.end().unwrap();
        let expected: Vec<(&[u8], &[u8])> =
            vec![(b"b", b"1"), (b"a", br#"[2,{"c":"x\"y"}]"#), (b"", b"null")];
        assert_eq!(seen, expected.into_iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect::<Vec<_>>());
    }

    #[test]
    fn broken_texts_are_refused() {
        for text in [
            "",
            "{",
            "[",
            "[1,]",
            "{\"a\":1,}",
            "{\"a\"}",
            "{a:1}",
            "[1 2]",
            "\"",
            "\"\\\"",
            "\"\\x\"",
            "\"\\u12\"",
            "tru",
            "nul",
            "[}",
            "{]",
            "1 2",
            "{\"a\":}",
            "[,1]",
            "{,}",
            "]",
        ] {
            assert_eq!(whole(text), Err(Fault::Syntax), "{text:?}");
        }
    }

    #[test]
    fn nesting_is_bounded_without_recursion() {
        let deep = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert!(whole(&deep(MAX_DEPTH as usize)).is_ok());
        assert_eq!(whole(&deep(MAX_DEPTH as usize + 1)), Err(Fault::Depth));
        assert_eq!(whole(&"[".repeat(1_000_000)), Err(Fault::Depth));
    }

    #[test]
    fn a_tolerant_scanner_nests_deeper_and_knows_each_level() {
        // Objects and arrays in an order that repeats at no power of two.
        let is_object = |level: usize| level.is_multiple_of(3);
        let deep = |levels: usize| {
            let opened: String =
                (0..levels).map(|level| if is_object(level) { "{\"a\":" } else { "[" }).collect();
            let closed: String =
                (0..levels).rev().map(|level| if is_object(level) { "}" } else { ",1]" }).collect();
            format!("{opened}1{closed}")
        };
        let tolerant = |text: &str| {
            let mut scanner = Scanner::tolerant(text.as_bytes());
            scanner.skip().and_then(|span| scanner.end().map(|()| span.len()))
        };
        for levels in [1, 127, 128, 129, 130, 255, 256, 257, 1000, MAX_DEPTH_TOLERANT as usize] {
            let text = deep(levels);
            assert_eq!(tolerant(&text), Ok(text.len()), "{levels}");
            for closing in ["}", "]"] {
                let wrong = format!("{}{closing}", &text[..text.len() - 1]);
                assert_eq!(tolerant(&wrong).is_ok(), text.ends_with(closing), "{levels} {closing}");
            }
        }
        assert_eq!(tolerant(&deep(MAX_DEPTH_TOLERANT as usize + 1)), Err(Fault::Depth));
    }

    #[test]
    fn a_tolerant_scanner_reads_what_pythons_json_writes_and_the_other_does_not() {
        for text in
            ["NaN", "[NaN,Infinity, -Infinity]", "{\"a\":NaN}", "\u{feff}[1]", "\u{feff} {\"a\": Infinity }"]
        {
            let mut scanner = Scanner::tolerant(text.as_bytes());
            assert_eq!(scanner.skip().and_then(|_| scanner.end()), Ok(()), "{text}");
            assert_eq!(whole(text), Err(Fault::Syntax), "{text}");
        }
        for text in
            ["NaNs", "[Inf]", "[--Infinity]", "[-NaN]", "[nan]", "\u{feff}\u{feff}[1]", "NaN1", "1NaN"]
        {
            let mut scanner = Scanner::tolerant(text.as_bytes());
            assert_eq!(scanner.skip().and_then(|_| scanner.end()), Err(Fault::Syntax), "{text}");
        }
    }

    #[test]
    fn odd_strings_are_noticed() {
        for (text, odd) in [
            (r#""\u0000""#, true),
            (r#""\ud83d""#, true),
            (r#""\ude00\ud83d""#, true),
            (r#""\ud83d\ude00""#, false),
            (r#""\ud83d\n""#, true),
            (r#""\ud83d\u0041""#, true),
            (r#""\\ud83d""#, false),
            (r#""é""#, false),
        ] {
            let mut scanner = Scanner::new(text.as_bytes());
            assert_eq!(scanner.string().unwrap().odd, odd, "{text}");
            assert_eq!(scanner.odd(), odd);
        }
    }

    #[test]
    fn unusual_escapes_are_noticed_wherever_they_stand_in_a_string() {
        for (escape, unusual) in [
            (r"\n", false),
            (r"\r\t", false),
            (r#"\"\\"#, false),
            (r"\\u0041", false),
            (r"\/", true),
            (r"\b", true),
            (r"\f", true),
            (r"\u0041", true),
            (r"\ud83d\ude00", true),
            (r"\u0000", true),
        ] {
            for before in 0..130 {
                for after in [0, 1, 70] {
                    let text = format!("\"{}{escape}{}\"", "x".repeat(before), r"\n".repeat(after));
                    let read = Scanner::new(text.as_bytes()).string().unwrap();
                    assert_eq!((read.escaped, read.unusual), (true, unusual), "{text}");
                }
            }
        }
    }

    /// Where a string ends, and whether it holds an escape.
    fn byte_by_byte(text: &[u8]) -> Result<(usize, bool), Fault> {
        let (mut at, mut escaped) = (1, false);
        loop {
            match text.get(at) {
                Some(b'"') => return Ok((at, escaped)),
                Some(b'\\') => {
                    let is_letter = text.get(at + 1).is_some_and(|byte| br#""\/bfnrtu"#.contains(byte));
                    escaped = is_letter.then_some(true).ok_or(Fault::Syntax)?;
                    at += 2;
                }
                Some(_) => at += 1,
                None => return Err(Fault::Syntax),
            }
        }
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<f64>().prop_map(|n| serde_json::json!(n)),
            any::<String>().prop_map(Into::into),
        ];
        leaf.prop_recursive(6, 64, 8, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..8).prop_map(Into::into),
                prop::collection::vec((any::<String>(), inner), 0..8)
                    .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn every_json_text_is_passed_whole(value in json(), pretty in any::<bool>()) {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
            prop_assert_eq!(whole(&text), Ok(Span::new(0, text.len())));
        }

        #[test]
        fn a_string_reads_the_same_by_blocks_as_byte_by_byte(
            parts in prop::collection::vec((0_usize..9, 0_usize..70), 0..40),
        ) {
            const PARTS: [&str; 9] =
                ["a", r"\n", r"\\", r#"\""#, r"\u0041", r"\ud83d\ude00", r"\ud83d", r"\u0000", r"\\\\\"];
            let fill = |(part, pad): &(usize, usize)| format!("{}{}", PARTS[*part], "x".repeat(*pad / (part % 3 + 1)));
            let text = format!("\"{}\"  {}", parts.iter().map(fill).collect::<String>(), " ".repeat(70));
            let read = Scanner::new(text.as_bytes()).string();
            prop_assert_eq!(read.map(|read| (read.span.end as usize, read.escaped)), byte_by_byte(text.as_bytes()));
            // Near the end of a text no block is left.
            let short = text.trim_end();
            let shortly = Scanner::new(short.as_bytes()).string();
            prop_assert_eq!(shortly, read);
        }

        #[test]
        fn any_bytes_end_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut scanner = Scanner::new(&bytes);
            let _ = scanner.skip();
        }

        #[test]
        fn a_cut_text_is_refused(value in json(), at in any::<prop::sample::Index>()) {
            let text = serde_json::to_string(&value).unwrap();
            prop_assume!(text.starts_with(['{', '[', '"']));
            let cut = at.index(text.len());
            let mut scanner = Scanner::new(&text.as_bytes()[..cut]);
            prop_assert!(scanner.skip().is_err());
        }
    }
}
