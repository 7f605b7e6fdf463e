//! The parser of one chat-completions message: role, content, calls, and the call that it answers, in the many legal
//! shapes of these members. Keeps no text.

use super::call::{parse_call, parse_legacy_call};
use crate::content::{MOST_PARTS, parse_content};
use model::call::ToolCall;
use model::message::{Calls, Content, Message, Part, Role};
use smallvec::SmallVec;
use wire::body::{Fault, Kind, Scanner, Span};
use wire::json::{decode, decode_bytes, in_one_case};
use wire::members::{SeenMembers, string_or_skip};

/// Whether its role is `developer`, which newer models know instead of `system`.
pub fn is_developer(message: &Message, body: &[u8]) -> bool {
    let mut scanner = Scanner::within(body, message.span);
    if message.role != Role::System || scanner.object().is_err() {
        return false;
    }
    while let Ok(Some(key)) = scanner.member() {
        let Ok(value) = scanner.skip() else { return false };
        if decode_bytes(key, body).as_ref() == b"role" {
            return value.of(body) == b"\"developer\"";
        }
    }
    false
}

/// Reads the message at the position of `scanner`.
pub fn parse_message(scanner: &mut Scanner<'_>) -> Result<Message, Fault> {
    if scanner.peek()? != Kind::Object {
        return Err(Fault::Type);
    }
    let mut message = Message {
        span: Span::new(scanner.at(), scanner.at()),
        role: Role::Other,
        content: Content::Absent,
        calls: Calls::default(),
        tool_call_id: None,
        name: None,
        odd: false,
        is_ambiguous: false,
        seals: false,
        reasons: false,
    };
    let (start, odd_before) = (scanner.at(), scanner.odd());
    scanner.clear_odd();
    scanner.object()?;
    let mut seen = SeenMembers::default();
    while let Some(key) = scanner.member()? {
        parse_member(&mut message, &decode_bytes(key, scanner.text()), scanner, &mut seen)?;
    }
    message.span = Span::new(start, scanner.at());
    message.odd = message.is_ambiguous || scanner.odd();
    scanner.restore_odd(odd_before || message.odd);
    Ok(message)
}

fn parse_member(
    message: &mut Message,
    key: &[u8],
    scanner: &mut Scanner<'_>,
    seen: &mut SeenMembers,
) -> Result<(), Fault> {
    match key {
        b"role" => {
            seen.once(0)?;
            if scanner.peek()? != Kind::String {
                return Err(Fault::Type);
            }
            let role = scanner.string()?;
            message.role = parse_role(&decode_bytes(role, scanner.text()));
        }
        b"content" => {
            seen.once(1)?;
            message.content = parse_content(scanner, &parse_part)?;
        }
        b"tool_calls" => {
            seen.once(2)?;
            message.calls.add(parse_calls(scanner)?);
        }
        b"function_call" => {
            seen.once(3)?;
            let call = parse_legacy_call(scanner)?;
            // Clients send replies back with the placeholders that came in them.
            if let Some(call) = call.filter(|call| !call.is_placeholder(scanner.text())) {
                message.calls.add(Calls::from(&[call][..]));
            }
        }
        b"tool_call_id" => {
            seen.once(4)?;
            message.tool_call_id = string_or_skip(scanner)?;
        }
        b"name" => message.name = string_or_skip(scanner)?,
        _ => {
            if let Some(deciding) = deciding_in_another_case(key) {
                seen.once(deciding)?;
                // To parsers that ignore case, an edit would add a member that this one already is.
                message.is_ambiguous = true;
            }
            scanner.skip()?;
        }
    }
    Ok(())
}

/// The number of a decisive member, for parsers that ignore the case of letters (Go).
fn deciding_in_another_case(key: &[u8]) -> Option<u32> {
    Some(match &*in_one_case(key) {
        b"role" => 0,
        b"content" => 1,
        b"tool_calls" => 2,
        b"function_call" => 3,
        b"tool_call_id" => 4,
        _ => return None,
    })
}

fn parse_role(role: &[u8]) -> Role {
    match role {
        b"system" | b"developer" => Role::System,
        b"user" => Role::User,
        b"assistant" => Role::Assistant,
        b"tool" | b"function" => Role::Tool,
        _ => Role::Other,
    }
}

/// Reads the value of a `tool_calls` member: an array, or null as some gateways send.
fn parse_calls(scanner: &mut Scanner<'_>) -> Result<Calls, Fault> {
    if scanner.peek()? != Kind::Array {
        scanner.skip()?;
        return Ok(Calls::default());
    }
    scanner.array()?;
    // Most messages with calls have one.
    let mut calls = SmallVec::<[ToolCall; 1]>::new();
    while scanner.element()? {
        calls.push(parse_call(scanner)?);
        if calls.len() > MOST_PARTS {
            return Err(Fault::Crowded);
        }
    }
    // A placeholder with an id may have got a result, which must stay paired with it.
    let has_id = |call: &ToolCall| call.id.is_some_and(|id| !id.span.is_empty());
    calls.retain(|call| has_id(call) || !call.is_placeholder(scanner.text()));
    Ok(Calls::from(&*calls))
}

/// The types of parts that hold text. The latter two are those of the Responses API, which some servers take here too.
const TEXTS: [&str; 3] = ["text", "input_text", "output_text"];

/// Reads one part of a content. Some servers take a bare string for a part.
pub(super) fn parse_part(scanner: &mut Scanner<'_>) -> Result<Part, Fault> {
    let kind = scanner.peek()?;
    let start = scanner.at();
    if kind == Kind::String {
        let text = string_or_skip(scanner)?;
        return Ok(Part { span: Span::new(start, scanner.at()), text });
    }
    if kind != Kind::Object {
        return Ok(Part { span: scanner.skip()?, text: None });
    }
    let (mut text, mut is_text) = (None, true);
    scanner.object()?;
    while let Some(key) = scanner.member()? {
        match &*decode_bytes(key, scanner.text()) {
            b"type" => {
                let kind = string_or_skip(scanner)?;
                is_text = kind.is_some_and(|kind| TEXTS.contains(&&*decode(kind, scanner.text())));
            }
            b"text" => text = string_or_skip(scanner)?,
            _ => {
                scanner.skip()?;
            }
        }
    }
    Ok(Part { span: Span::new(start, scanner.at()), text: text.filter(|_| is_text) })
}
