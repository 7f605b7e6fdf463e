//! Lenient request detection: bodies that toolrein cannot read and another JSON parser might: text in UTF-16 or UTF-32,
//! members that occur twice, deep nesting, comments, trailing commas, single quotes, something after the object.
//! Decides whether a server may find a request in such a body; nothing else is taken from it.

use std::borrow::Cow;
use wire::body::{BYTE_ORDER_MARK, Fault, Scanner};
use wire::json::{decode_bytes, in_one_case, unescape};

/// Whether a lenient parser may find a request in `body`, which toolrein cannot read for this `fault`: an object with
/// the member `named`, or what `parses`. An incomplete text, or one that is no object, is a request for no parser.
pub fn may_read(body: &[u8], fault: Fault, named: &[u8], parses: impl Fn(&[u8]) -> bool) -> bool {
    match fault {
        Fault::Depth | Fault::Duplicate | Fault::Size | Fault::Crowded => true,
        // Valid JSON that all parsers read in the same way, but that does not fit the API.
        Fault::Type => false,
        Fault::NoMessages => has_member_in_another_case(body, named),
        Fault::Utf8 | Fault::Syntax => {
            let text = wide_text(body).unwrap_or_else(|| String::from_utf8_lossy(body));
            parses(text.as_bytes()) || has_object(text.as_bytes(), named)
        }
    }
}

/// Whether the object has the member `named` for parsers that ignore the case of letters (Go).
fn has_member_in_another_case(body: &[u8], named: &[u8]) -> bool {
    let mut scanner = Scanner::tolerant(body);
    let mut find = || {
        scanner.object()?;
        while let Some(key) = scanner.member()? {
            if *in_one_case(&decode_bytes(key, body)) == *named {
                return Ok(true);
            }
            scanner.skip()?;
        }
        Ok::<_, Fault>(false)
    };
    find().unwrap_or(true)
}

/// The text of a body in UTF-16 or UTF-32, recognised by its byte order mark or by the zeros of its first two
/// characters, which are ASCII in any JSON (RFC 4627, section 3; Python's `json.loads` does the same).
fn wide_text(body: &[u8]) -> Option<Cow<'_, str>> {
    let (width, is_big) = match *body {
        [0, 0, 0xFE, 0xFF, ..] | [0, 0, 0, 1..=255, ..] => (4, true),
        [0xFF, 0xFE, 0, 0, ..] | [1..=255, 0, 0, 0, ..] => (4, false),
        [0xFE, 0xFF, ..] | [0, 1..=255, ..] => (2, true),
        [0xFF, 0xFE, ..] | [1..=255, 0, ..] => (2, false),
        _ => return None,
    };
    let unit = |bytes: &[u8]| {
        let fold = |unit: u32, byte: &u8| unit << 8 | u32::from(*byte);
        if is_big { bytes.iter().fold(0, fold) } else { bytes.iter().rev().fold(0, fold) }
    };
    let units = body.chunks_exact(width).map(unit);
    let text: String = if width == 4 {
        units.map(|unit| char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
    } else {
        let units = units.map(|unit| unit as u16);
        char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
    };
    Some(Cow::Owned(text))
}

/// Whether `text` begins with a whole object in some dialect of JSON that has a member `named`. What follows is
/// ignored, as in Go's decoder.
fn has_object(text: &[u8], named: &[u8]) -> bool {
    let mut words = Tokens { rest: text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text) };
    if !matches!(words.next(), Some(Token::Open(b'{'))) {
        return false;
    }
    let (mut depth, mut is_chat) = (1_usize, false);
    while depth > 0 {
        match words.next() {
            Some(Token::Open(_)) => depth += 1,
            Some(Token::Close) => depth -= 1,
            Some(Token::Text(word)) => {
                is_chat |= depth == 1 && *in_one_case(unescape(word).as_bytes()) == *named;
            }
            Some(Token::Other) => {}
            None => return false,
        }
    }
    is_chat
}

/// The tokens of a text in any dialect of JSON.
struct Tokens<'a> {
    rest: &'a [u8],
}

/// One token.
enum Token<'a> {
    Open(u8),
    Close,
    /// Between quotes of either kind, or a bare word.
    Text(&'a [u8]),
    /// A mark.
    Other,
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        loop {
            let (first, after) = self.rest.split_first()?;
            match *first {
                byte if byte.is_ascii_whitespace() => self.rest = after,
                b'#' => self.rest = after_mark(after, b"\n"),
                b'/' if after.first() == Some(&b'/') => self.rest = after_mark(after, b"\n"),
                b'/' if after.first() == Some(&b'*') => self.rest = after_mark(&after[1..], b"*/"),
                quote @ (b'"' | b'\'') => return self.quoted(after, quote),
                byte if is_of_word(byte) => {
                    let end = self.rest.iter().position(|byte| !is_of_word(*byte)).unwrap_or(self.rest.len());
                    let (word, rest) = self.rest.split_at(end);
                    self.rest = rest;
                    return Some(Token::Text(word));
                }
                byte => {
                    self.rest = after;
                    return Some(match byte {
                        b'{' | b'[' => Token::Open(byte),
                        b'}' | b']' => Token::Close,
                        _ => Token::Other,
                    });
                }
            }
        }
    }
}

impl<'a> Tokens<'a> {
    /// A string whose first quote was passed; `None` where it has no end.
    fn quoted(&mut self, text: &'a [u8], quote: u8) -> Option<Token<'a>> {
        let mut from = 0;
        loop {
            let at = from + text[from..].iter().position(|byte| *byte == quote || *byte == b'\\')?;
            if text[at] == quote {
                self.rest = &text[at + 1..];
                return Some(Token::Text(&text[..at]));
            }
            from = (at + 2).min(text.len());
        }
    }
}

/// What is left after the first `mark`; nothing where there is none.
fn after_mark<'a>(text: &'a [u8], mark: &[u8]) -> &'a [u8] {
    memchr::memmem::find(text, mark).map_or(&[], |at| &text[at + mark.len()..])
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80
}

#[cfg(test)]
mod tests {

    const CHAT: &str = r#"{"model":"m","messages":[{"role":"user","content":"q"}]}"#;

    fn may_read_bytes(body: &[u8]) -> bool {
        super::may_read(body, crate::chat::parse(body).unwrap_err(), b"messages", |text| {
            crate::chat::parse(text).is_ok()
        })
    }

    #[test]
    fn chat_requests_in_utf_16_and_utf_32_are_recognised() {
        let narrow: Vec<u16> = format!("\u{feff}{CHAT}").encode_utf16().collect();
        let wide: Vec<u32> = format!("\u{feff}{CHAT}").chars().map(u32::from).collect();
        for skip in [0, 1] {
            for body in [
                narrow[skip..].iter().flat_map(|unit| unit.to_le_bytes()).collect::<Vec<u8>>(),
                narrow[skip..].iter().flat_map(|unit| unit.to_be_bytes()).collect(),
                wide[skip..].iter().flat_map(|unit| unit.to_le_bytes()).collect(),
                wide[skip..].iter().flat_map(|unit| unit.to_be_bytes()).collect(),
            ] {
                assert!(may_read_bytes(&body), "{body:?}");
                assert!(!may_read_bytes(&body[..body.len() - 8]), "one that breaks off is none");
            }
        }
    }

    #[test]
    fn bodies_that_a_lenient_parser_reads_as_chat_requests_are_recognised() {
        let deep = |end: &str| format!("{{\"messages\":[],\"x\":{}1{end}", r#"{"x":"#.repeat(20_000));
        for body in [
            r#"{"messages":[]} trailing"#,
            r#"{"messages":[]}{"messages":[]}"#,
            r#"{"messages":[],"messages":[]}"#,
            r#"{"Messages":[]}"#,
            r#"{"model":"m","MESSAGES":[{}]}"#,
            r#"{"messages":[],}"#,
            r#"{"messages":[{},],"x":0x1F}"#,
            r#"{'messages':['it is']}"#,
            r#"{messages:[]}"#,
            r#"{"mess\u0061ges":[],"x":+1}"#,
            r#"{"messages":[],"x":None}"#,
            "// a comment {\n{\"messages\":[] /* } */}",
            "\u{feff}{\"messages\":[],}",
            &deep(&"}".repeat(20_001)),
        ] {
            assert!(may_read_bytes(body.as_bytes()), "{body:.80}");
        }
        assert!(may_read_bytes(b"{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}"));
        for body in [
            "",
            "   ",
            "nonsense",
            "{",
            r#"{"messages":["#,
            r#"{"messages":[{"role":"user","content":"q}]}"#,
            r#"{'model':'m'}"#,
            r#"{"prompt":"x",}"#,
            r#"{"x":{"messages":[]},}"#,
            "[{\"messages\":[]},]",
            "null",
            "{}",
            r#"{"messages":null}"#,
            r#"{"model":"m","prompt":"messages"}"#,
            "messages",
            "{\"messages\":[] /* }",
        ] {
            assert!(!may_read_bytes(body.as_bytes()), "{body}");
        }
        assert!(!may_read_bytes(b"\x1f\x8b\x08\x00compressed"));
    }
}
