//! The parser of one tool call, or of one delta of a call: name, arguments, id and index in every recorded form.
//! Reports where two JSON parsers may see different calls.

use crate::content::parse_arguments;
use model::call::{Arguments, ToolCall};
use wire::body::{Fault, Kind, Scanner, Span};
use wire::json::decode_bytes;
use wire::members::{SeenMembers, differs_in_case, may_be_read_as, string_or_skip};

/// Reads the value of the deprecated `function_call` member of a message; null is none.
pub fn parse_legacy_call(scanner: &mut Scanner<'_>) -> Result<Option<ToolCall>, Fault> {
    if scanner.peek()? != Kind::Object {
        scanner.skip()?;
        return Ok(None);
    }
    let start = scanner.at();
    let mut call = ToolCall { legacy: true, ..ToolCall::default() };
    parse_function(scanner, &mut call, &mut SeenMembers::default())?;
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
    let (mut outer, mut flat_seen) = (SeenMembers::default(), SeenMembers::default());
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
                let custom = &*key == b"custom";
                call.ambiguous |= outer.once(if custom { 3 } else { 2 }).is_err();
                let mut part = ToolCall { custom, ..ToolCall::default() };
                parse_function(scanner, &mut part, &mut SeenMembers::default())?;
                add_part(&mut call, part);
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
    // A name beside a part without one may be taken for its name.
    let is_named_outside = flat.name.is_some_and(|name| !name.span.is_empty())
        && call.name.is_none_or(|name| name.span.is_empty());
    if (call.name.is_none() && matches!(call.arguments, Arguments::Absent)) || is_named_outside {
        call.name = flat.name;
        if call.arguments.bytes() == 0 {
            call.arguments = flat.arguments;
        }
        call.ambiguous |= flat.ambiguous;
    }
    call.span = Span::new(start, scanner.at());
    Ok(call)
}

/// Adds the `function` or the `custom` of a call. Servers that write every member write both, one of them empty; the
/// other one is the call.
fn add_part(call: &mut ToolCall, part: ToolCall) {
    let is_first = call.name.is_none() && matches!(call.arguments, Arguments::Absent);
    if part.is_empty() && !is_first && !(call.is_empty() && call.custom) {
        return;
    }
    call.ambiguous |= part.ambiguous || !(part.is_empty() || call.is_empty());
    call.name = part.name.or(call.name);
    if !matches!(part.arguments, Arguments::Absent) {
        call.arguments = part.arguments;
    }
    call.custom = part.custom;
}

fn parse_function(
    scanner: &mut Scanner<'_>,
    call: &mut ToolCall,
    seen: &mut SeenMembers,
) -> Result<(), Fault> {
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
    seen: &mut SeenMembers,
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

/// The members of a function.
const OF_FUNCTIONS: [&[u8]; 3] = [b"name", b"arguments", b"input"];

/// The largest integer that JavaScript, which keeps numbers as doubles, can distinguish from its neighbours.
const MOST_INDEX: u64 = (1 << 53) - 1;

/// Reads an index: a number, also as text or with a zero fraction, since clients that use it as a key take those for
/// the same. What clients could take for different indexes is marked as `ambiguous`.
pub(crate) fn parse_index(
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
