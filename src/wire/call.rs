//! One tool call as spans, of a message or of a reply, whole or a piece: name, arguments, id and index under every
//! recorded spelling. Says where two readers of JSON may see different calls; keeps no text.

use super::body::{Fault, Kind, Scanner, Span, Str};
use super::json::{decode, decode_bytes, in_one_case};
use super::message::{Seen, string_or_skip};

/// A tool call in an assistant message or in a reply. Members may be missing at some providers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToolCall {
    pub span: Span,
    pub id: Option<Str>,
    pub name: Option<Str>,
    pub arguments: Arguments,
    /// The `index` member with its value, as a few providers send it in whole replies too.
    pub index: Option<(Span, u64)>,
    /// The deprecated `function_call` form, which has no id.
    pub legacy: bool,
    /// A call of a custom tool, whose `input` is free text.
    pub custom: bool,
    /// Two JSON readers may see different calls here: a member that decides what runs occurs twice, has a type that
    /// no API gives it, or is spelled so that only readers which ignore case find it.
    pub ambiguous: bool,
}

/// The arguments of a call: a string by the specification, other kinds at some servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arguments {
    #[default]
    Absent,
    Null(Span),
    Text(Str),
    /// An object or another JSON value that is not wrapped in a string.
    Value(Span),
}

impl Arguments {
    /// Bytes of them, as written.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.span.len(),
            Self::Value(span) => span.len(),
            Self::Absent | Self::Null(_) => 0,
        }
    }

    /// The same in bytes of their own.
    pub fn cut_out(&self, body: &[u8]) -> (Self, Box<[u8]>) {
        let own = |span: Span| (Span::new(0, span.len()), span.of(body).into());
        match *self {
            Self::Text(text) => {
                let (span, bytes) = own(text.span);
                (Self::Text(Str { span, ..text }), bytes)
            }
            Self::Value(span) => {
                let (span, bytes) = own(span);
                (Self::Value(span), bytes)
            }
            Self::Absent | Self::Null(_) => (*self, Box::default()),
        }
    }

    /// The arguments as JSON text, escapes resolved; empty where there are none.
    pub fn text<'a>(&self, body: &'a [u8]) -> std::borrow::Cow<'a, str> {
        match self {
            Self::Text(text) => decode(*text, body),
            Self::Value(span) => String::from_utf8_lossy(span.of(body)),
            Self::Absent | Self::Null(_) => "".into(),
        }
    }
}

/// Reads the value of the deprecated `function_call` member of a message; null is none.
pub fn parse_legacy_call(scanner: &mut Scanner<'_>) -> Result<Option<ToolCall>, Fault> {
    if scanner.peek()? != Kind::Object {
        scanner.skip()?;
        return Ok(None);
    }
    let start = scanner.at();
    let mut call = ToolCall { legacy: true, ..ToolCall::default() };
    parse_function(scanner, &mut call, &mut Seen::default())?;
    call.span = Span::new(start, scanner.at());
    Ok(Some(call))
}

/// Reads one element of `tool_calls`, whole or a delta.
pub fn parse_call(scanner: &mut Scanner<'_>) -> Result<ToolCall, Fault> {
    let mut call = ToolCall::default();
    if scanner.peek()? != Kind::Object {
        call.ambiguous = scanner.peek()? != Kind::Null;
        call.span = scanner.skip()?;
        return Ok(call);
    }
    let start = scanner.at();
    let (mut outer, mut inner, mut flat_seen) = (Seen::default(), Seen::default(), Seen::default());
    // Some servers leave the `function` object out.
    let mut flat = ToolCall::default();
    scanner.object()?;
    while let Some(key) = scanner.member()? {
        let kind = scanner.peek()?;
        let key = decode_bytes(key, scanner.text());
        match &*key {
            b"id" => {
                call.ambiguous |= outer.once(0).is_err();
                call.id = string_or_skip(scanner)?.or(call.id);
            }
            b"index" => {
                call.ambiguous |= outer.once(1).is_err();
                call.index = parse_index(scanner, kind, &mut call.ambiguous)?;
            }
            b"function" | b"custom" if kind == Kind::Object => {
                call.ambiguous |= outer.once(2).is_err();
                call.custom = &*key == b"custom";
                parse_function(scanner, &mut call, &mut inner)?;
            }
            b"name" | b"arguments" | b"input" => {
                parse_function_member(&key, scanner, &mut flat, &mut flat_seen)?;
            }
            other => {
                let value = scanner.skip_kind(kind)?.of(scanner.text());
                call.ambiguous |= may_be_read_as(other, value, &[b"function", b"custom"]);
                call.ambiguous |= differs_in_case(other, &[b"id", b"index"]);
                flat.ambiguous |= differs_in_case(other, &OF_FUNCTIONS);
            }
        }
    }
    if call.name.is_none() && matches!(call.arguments, Arguments::Absent) {
        (call.name, call.arguments) = (flat.name, flat.arguments);
        call.ambiguous |= flat.ambiguous;
    }
    call.span = Span::new(start, scanner.at());
    Ok(call)
}

/// Whether a member called `key`, which is none of `names` or has a `value` of another kind, could be taken for one of
/// them all the same: objects and lists in each other's place, unless there is nothing in them, and names that differ in
/// case alone (Go's `encoding/json` ignores case).
pub(super) fn may_be_read_as(key: &[u8], value: &[u8], names: &[&[u8]]) -> bool {
    let holds_anything = match value {
        [b'{' | b'[', inner @ .., _] => !inner.trim_ascii().is_empty(),
        _ => false,
    };
    holds_anything && (names.contains(&key) || differs_in_case(key, names))
}

/// Whether `key` is one of `names` but for the case of its letters.
pub(super) fn differs_in_case(key: &[u8], names: &[&[u8]]) -> bool {
    let is_odd = key.len() <= 32 && key.iter().any(|byte| byte.is_ascii_uppercase() || !byte.is_ascii());
    is_odd && names.contains(&&*in_one_case(key))
}

fn parse_function(scanner: &mut Scanner<'_>, call: &mut ToolCall, seen: &mut Seen) -> Result<(), Fault> {
    scanner.object()?;
    while let Some(key) = scanner.member()? {
        let key = decode_bytes(key, scanner.text());
        parse_function_member(&key, scanner, call, seen)?;
    }
    Ok(())
}

fn parse_function_member(
    key: &[u8],
    scanner: &mut Scanner<'_>,
    call: &mut ToolCall,
    seen: &mut Seen,
) -> Result<(), Fault> {
    let kind = scanner.peek()?;
    match key {
        b"name" => {
            call.ambiguous |= seen.once(0).is_err() || !matches!(kind, Kind::String | Kind::Null);
            call.name = string_or_skip(scanner)?.or(call.name);
        }
        // A custom tool's `input` is free text where a function has arguments.
        b"arguments" | b"input" => {
            call.ambiguous |= seen.once(1).is_err();
            call.arguments = parse_arguments(scanner)?;
        }
        other => {
            call.ambiguous |= differs_in_case(other, &OF_FUNCTIONS);
            scanner.skip_kind(kind)?;
        }
    }
    Ok(())
}

/// What a function is made of.
const OF_FUNCTIONS: [&[u8]; 3] = [b"name", b"arguments", b"input"];

fn parse_arguments(scanner: &mut Scanner<'_>) -> Result<Arguments, Fault> {
    match scanner.peek()? {
        Kind::String => scanner.string().map(Arguments::Text),
        Kind::Null => scanner.skip().map(Arguments::Null),
        _ => scanner.skip().map(Arguments::Value),
    }
}

/// The largest whole number that JavaScript, which keeps numbers as doubles, can tell from its neighbours.
const MOST_INDEX: u64 = (1 << 53) - 1;

/// Reads an index: a number, or one written as text or with a fraction of zero, as clients that use it as a key take
/// those for the same. What clients could take for different indexes is marked as `ambiguous`.
pub(super) fn parse_index(
    scanner: &mut Scanner<'_>,
    kind: Kind,
    ambiguous: &mut bool,
) -> Result<Option<(Span, u64)>, Fault> {
    let span = scanner.skip_kind(kind)?;
    let raw = std::str::from_utf8(span.of(scanner.text())).unwrap_or_default();
    let number = match kind {
        Kind::Null => return Ok(None),
        Kind::Number => raw.parse().ok().or_else(|| whole_number(raw)),
        Kind::String => {
            let text = raw.trim_matches('"');
            text.parse().ok().filter(|number: &u64| number.to_string() == text)
        }
        _ => None,
    };
    let number = number.filter(|number| *number <= MOST_INDEX);
    *ambiguous |= number.is_none();
    Ok(number.map(|number| (span, number)))
}

/// The whole number that a decimal such as `1.0` or `2e0` is.
fn whole_number(text: &str) -> Option<u64> {
    let number: f64 = text.parse().ok()?;
    let is_whole = number.fract() == 0.0 && (0.0..=MOST_INDEX as f64).contains(&number);
    is_whole.then_some(number as u64)
}
