//! One message of a chat-completions body as spans: role, content, calls, and what it answers.
//! Responsible for the many legal shapes of these members; judges nothing and keeps no text.

use super::body::{Fault, Kind, Scanner, Span, Str};
use super::call::{ToolCall, parse_call, parse_legacy_call};
use super::json::{decode, decode_bytes, in_one_case};
use std::ops::Deref;
use std::sync::Arc;

/// Who speaks in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// `system`, or `developer` which replaces it for reasoning models.
    System,
    User,
    Assistant,
    /// `tool`, or the deprecated `function`.
    Tool,
    Other,
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    Absent,
    Null(Span),
    Text(Str),
    /// Content parts; `span` is the array with its brackets.
    Parts {
        span: Span,
        parts: Vec<Part>,
    },
    /// A type that the API does not know.
    Other(Span),
}

impl Content {
    /// The strings of text in it, in order.
    pub fn texts(&self) -> impl DoubleEndedIterator<Item = Str> + '_ {
        let (one, many) = match self {
            Self::Text(text) => (Some(*text), [].as_slice()),
            Self::Parts { parts, .. } => (None, parts.as_slice()),
            _ => (None, [].as_slice()),
        };
        one.into_iter().chain(many.iter().filter_map(|part| part.text))
    }

    /// Whether any text in it is not empty.
    pub fn has_text(&self) -> bool {
        self.texts().any(|text| !text.span.is_empty())
    }

    /// Bytes of text in it, escapes as written.
    pub fn text_bytes(&self) -> usize {
        self.texts().map(|text| text.span.len()).sum()
    }
}

/// One content part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub span: Span,
    /// Its text, if it is a text part.
    pub text: Option<Str>,
}

/// The calls of a message. Shared, since a message that is known from an earlier request is copied for each that
/// follows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calls(Option<Arc<[ToolCall]>>);

impl Deref for Calls {
    type Target = [ToolCall];

    fn deref(&self) -> &[ToolCall] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl<'a> IntoIterator for &'a Calls {
    type Item = &'a ToolCall;
    type IntoIter = std::slice::Iter<'a, ToolCall>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl Calls {
    /// Takes in those of the deprecated form beside the others, where a message has both.
    fn add(&mut self, more: Self) {
        if self.is_empty() {
            *self = more;
        } else if !more.is_empty() {
            self.0 = Some(self.iter().chain(&more).copied().collect());
        }
    }
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The object with its braces.
    pub span: Span,
    pub role: Role,
    pub content: Content,
    pub calls: Calls,
    pub tool_call_id: Option<Str>,
    pub name: Option<Str>,
    /// A string in it holds `\u0000` or a lone surrogate, or a member is `Content` where `content` is meant: it is read but
    /// never edited.
    pub odd: bool,
}

impl Message {
    /// Whether its role is `developer`, which newer models know instead of `system`.
    pub fn is_developer(&self, body: &[u8]) -> bool {
        let mut scanner = Scanner::within(body, self.span);
        if self.role != Role::System || scanner.object().is_err() {
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

    /// Its calls and the parts of its content: what it may have any number of.
    pub fn pieces(&self) -> usize {
        let parts = if let Content::Parts { parts, .. } = &self.content { parts.len() } else { 0 };
        self.calls.len() + parts
    }

    /// Reads the message at which `scanner` stands.
    pub fn parse(scanner: &mut Scanner<'_>) -> Result<Self, Fault> {
        if scanner.peek()? != Kind::Object {
            return Err(Fault::Type);
        }
        let mut message = Self {
            span: Span::new(scanner.at(), scanner.at()),
            role: Role::Other,
            content: Content::Absent,
            calls: Calls::default(),
            tool_call_id: None,
            name: None,
            odd: false,
        };
        let (start, odd_before) = (scanner.at(), scanner.odd());
        scanner.clear_odd();
        scanner.object()?;
        let mut seen = Seen::default();
        while let Some(key) = scanner.member()? {
            message.member(&decode_bytes(key, scanner.text()), scanner, &mut seen)?;
        }
        message.span = Span::new(start, scanner.at());
        message.odd |= scanner.odd();
        scanner.restore_odd(odd_before || message.odd);
        Ok(message)
    }

    fn member(&mut self, key: &[u8], scanner: &mut Scanner<'_>, seen: &mut Seen) -> Result<(), Fault> {
        match key {
            b"role" => {
                seen.once(0)?;
                if scanner.peek()? != Kind::String {
                    return Err(Fault::Type);
                }
                let role = scanner.string()?;
                self.role = Role::parse(&decode_bytes(role, scanner.text()));
            }
            b"content" => {
                seen.once(1)?;
                self.content = parse_content(scanner)?;
            }
            b"tool_calls" => {
                seen.once(2)?;
                self.calls.add(parse_calls(scanner)?);
            }
            b"function_call" => {
                seen.once(3)?;
                if let Some(call) = parse_legacy_call(scanner)? {
                    self.calls.add(Calls(Some(Arc::new([call]))));
                }
            }
            b"tool_call_id" => {
                seen.once(4)?;
                self.tool_call_id = string_or_skip(scanner)?;
            }
            b"name" => self.name = string_or_skip(scanner)?,
            _ => {
                if let Some(deciding) = deciding_in_another_case(key) {
                    seen.once(deciding)?;
                    // An edit would put the member beside it that it is to other readers.
                    self.odd = true;
                }
                scanner.skip()?;
            }
        }
        Ok(())
    }
}

/// The number of a member that decides, for readers that do not mind the case of letters (Go).
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

impl Role {
    fn parse(role: &[u8]) -> Self {
        match role {
            b"system" | b"developer" => Self::System,
            b"user" => Self::User,
            b"assistant" => Self::Assistant,
            b"tool" | b"function" => Self::Tool,
            _ => Self::Other,
        }
    }
}

/// Which deciding members were read: the second of one name is a fault, since parsers differ on which one counts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen(u32);

impl Seen {
    pub(super) fn once(&mut self, member: u32) -> Result<(), Fault> {
        let bit = 1 << member;
        if self.0 & bit != 0 {
            return Err(Fault::Duplicate);
        }
        self.0 |= bit;
        Ok(())
    }
}

/// Reads a string value; any other kind is passed and counts as absent.
pub fn string_or_skip(scanner: &mut Scanner<'_>) -> Result<Option<Str>, Fault> {
    let kind = scanner.peek()?;
    if kind == Kind::String {
        return scanner.string().map(Some);
    }
    scanner.skip_kind(kind)?;
    Ok(None)
}

/// Most parts and most calls of one message that are read. OpenAI takes 128 calls.
const MOST_PARTS: usize = 8 * 1024;

/// Reads the value of a `content` member.
pub fn parse_content(scanner: &mut Scanner<'_>) -> Result<Content, Fault> {
    match scanner.peek()? {
        Kind::String => scanner.string().map(Content::Text),
        Kind::Null => scanner.skip_kind(Kind::Null).map(Content::Null),
        Kind::Array => {
            let start = scanner.at();
            let mut parts = Vec::new();
            scanner.array()?;
            while scanner.element()? {
                parts.push(parse_part(scanner)?);
                if parts.len() > MOST_PARTS {
                    return Err(Fault::Crowded);
                }
            }
            Ok(Content::Parts { span: Span::new(start, scanner.at()), parts })
        }
        _ => scanner.skip().map(Content::Other),
    }
}

/// Reads the value of a `tool_calls` member: an array, or null as some gateways send.
fn parse_calls(scanner: &mut Scanner<'_>) -> Result<Calls, Fault> {
    if scanner.peek()? != Kind::Array {
        scanner.skip()?;
        return Ok(Calls::default());
    }
    scanner.array()?;
    if !scanner.element()? {
        return Ok(Calls::default());
    }
    let first = parse_call(scanner)?;
    if !scanner.element()? {
        return Ok(Calls(Some(Arc::new([first]))));
    }
    let mut calls = vec![first, parse_call(scanner)?];
    while scanner.element()? {
        calls.push(parse_call(scanner)?);
        if calls.len() > MOST_PARTS {
            return Err(Fault::Crowded);
        }
    }
    Ok(Calls(Some(calls.into())))
}

pub(super) fn parse_part(scanner: &mut Scanner<'_>) -> Result<Part, Fault> {
    if scanner.peek()? != Kind::Object {
        return Ok(Part { span: scanner.skip()?, text: None });
    }
    let start = scanner.at();
    let (mut text, mut is_text) = (None, true);
    scanner.object()?;
    while let Some(key) = scanner.member()? {
        match &*decode_bytes(key, scanner.text()) {
            b"type" => {
                let kind = string_or_skip(scanner)?;
                is_text = kind.is_some_and(|kind| decode(kind, scanner.text()) == "text");
            }
            b"text" => text = string_or_skip(scanner)?,
            _ => {
                scanner.skip()?;
            }
        }
    }
    Ok(Part { span: Span::new(start, scanner.at()), text: text.filter(|_| is_text) })
}
