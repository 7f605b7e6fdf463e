//! The parser of one message: its role and its content, and the items that it is in the neutral model. Each result is an item
//! of its own, and so is what is between results or after them; any other message is one item.

use super::block::{Block, BlockKind, parse_blocks};
use model::call::ToolCall;
use model::message::{Calls, Content, Message, Part, Role};
use smallvec::SmallVec;
use wire::body::{Fault, Kind, Scanner, Span, Str};
use wire::json::decode_bytes;
use wire::members::{SeenMembers, differs_in_case};

/// One message of the body.
#[derive(Debug)]
pub struct WireMessage {
    /// The object with its braces.
    pub span: Span,
    pub role: Role,
    pub content: WireContent,
    /// A string in it holds `\u0000` or half of a surrogate pair.
    is_odd: bool,
    /// Parsers that ignore case read another structure.
    is_ambiguous: bool,
}

/// The content of a message.
#[derive(Debug)]
pub enum WireContent {
    Absent,
    Text(Str),
    /// `list` is the array with its brackets.
    Blocks {
        list: Span,
        blocks: Vec<Block>,
    },
    /// A type that the API does not know.
    Other(Span),
}

impl WireMessage {
    /// Its blocks; none where its content is no list.
    pub fn blocks(&self) -> &[Block] {
        if let WireContent::Blocks { blocks, .. } = &self.content { blocks } else { &[] }
    }

    /// Whether it holds results of calls.
    pub fn has_results(&self) -> bool {
        self.role == Role::User && self.blocks().iter().any(|block| block.kind == BlockKind::Result)
    }

    /// How many items it is.
    pub fn items(&self) -> usize {
        if !self.has_results() {
            return 1;
        }
        self.runs().count()
    }

    /// Its results, each alone, and the runs of other blocks between them.
    fn runs(&self) -> impl Iterator<Item = &[Block]> {
        let is_result = |block: &Block| block.kind == BlockKind::Result;
        self.blocks().chunk_by(move |one, next| !is_result(one) && !is_result(next))
    }

    /// Adds its items to `messages`.
    pub fn add_to(&self, messages: &mut Vec<Message>) {
        if !self.has_results() {
            return messages.push(self.whole());
        }
        for run in self.runs() {
            let ([first, ..], [.., last]) = (run, run) else { continue };
            let span = Span { start: first.span.start, end: last.span.end };
            let message = if first.kind == BlockKind::Result {
                Message {
                    role: Role::Tool,
                    content: first.content.clone(),
                    tool_call_id: first.answers,
                    ..self.item(span)
                }
            } else {
                let parts = run.iter().map(part_of).collect();
                Message { content: Content::Parts { span, parts }, ..self.item(span) }
            };
            messages.push(message);
        }
    }

    /// The whole message as one item.
    fn whole(&self) -> Message {
        let content = match &self.content {
            WireContent::Absent => Content::Absent,
            WireContent::Text(text) => Content::Text(*text),
            WireContent::Other(span) => Content::Other(*span),
            WireContent::Blocks { list, blocks } => {
                let is_model = self.role == Role::Assistant;
                // What the model thought and what its provider ran is no content: clients may drop it.
                let is_said = |block: &&Block| !is_model || block.kind == BlockKind::Text;
                let parts: Vec<Part> = blocks.iter().filter(is_said).map(part_of).collect();
                if parts.is_empty() && is_model {
                    Content::Absent
                } else {
                    Content::Parts { span: *list, parts }
                }
            }
        };
        let is_call = |block: &&Block| self.role == Role::Assistant && block.kind == BlockKind::Call;
        let calls: SmallVec<[ToolCall; 1]> =
            self.blocks().iter().filter(is_call).map(|block| block.call).collect();
        let has = |kind| self.blocks().iter().any(|block| block.kind == kind);
        Message {
            content,
            calls: Calls::from(&*calls),
            seals: has(BlockKind::Compaction),
            reasons: self.role == Role::Assistant && has(BlockKind::Thinking),
            ..self.item(self.span)
        }
    }

    fn item(&self, span: Span) -> Message {
        Message {
            span,
            role: self.role,
            content: Content::Absent,
            calls: Calls::default(),
            tool_call_id: None,
            name: None,
            odd: self.is_odd || self.is_ambiguous,
            is_ambiguous: self.is_ambiguous,
            seals: false,
            reasons: false,
        }
    }
}

/// A block that is no call and no result, as a part of a content.
fn part_of(block: &Block) -> Part {
    Part { span: block.span, text: block.text.filter(|_| block.kind == BlockKind::Text) }
}

/// Whether an item is a whole message of the body, and not a part of one.
pub fn is_whole(message: &Message) -> bool {
    let is_run = matches!(message.content, Content::Parts { span, .. } if span == message.span);
    message.role != Role::Tool && !is_run
}

/// Reads the message at the position of `scanner`.
///
/// # Errors
/// A [`Fault`] where it is no message, or says twice who says what.
pub fn parse_message(scanner: &mut Scanner<'_>) -> Result<WireMessage, Fault> {
    if scanner.peek()? != Kind::Object {
        return Err(Fault::Type);
    }
    let (start, odd_before) = (scanner.at(), scanner.odd());
    scanner.clear_odd();
    let (mut role, mut content) = (Role::Other, WireContent::Absent);
    let (mut seen, mut is_ambiguous) = (SeenMembers::default(), false);
    scanner.object()?;
    while let Some(key) = scanner.member()? {
        let key = decode_bytes(key, scanner.text());
        match &*key {
            b"role" => {
                seen.once(0)?;
                if scanner.peek()? != Kind::String {
                    return Err(Fault::Type);
                }
                let name = scanner.string()?;
                role = role_named(&decode_bytes(name, scanner.text()));
            }
            b"content" => {
                seen.once(1)?;
                content = match scanner.peek()? {
                    Kind::String => WireContent::Text(scanner.string()?),
                    Kind::Array => {
                        let (list, blocks) = parse_blocks(scanner)?;
                        is_ambiguous |= blocks.iter().any(|block| block.is_ambiguous);
                        WireContent::Blocks { list, blocks }
                    }
                    Kind::Null => {
                        scanner.skip()?;
                        WireContent::Absent
                    }
                    _ => WireContent::Other(scanner.skip()?),
                };
            }
            other => {
                is_ambiguous |= differs_in_case(other, &[b"role", b"content"]);
                scanner.skip()?;
            }
        }
    }
    let is_odd = scanner.odd();
    scanner.restore_odd(odd_before || is_odd || is_ambiguous);
    Ok(WireMessage { span: Span::new(start, scanner.at()), role, content, is_odd, is_ambiguous })
}

fn role_named(role: &[u8]) -> Role {
    match role {
        b"system" => Role::System,
        b"user" => Role::User,
        b"assistant" => Role::Assistant,
        _ => Role::Other,
    }
}

/// The messages of a body whose list of messages is at `list`: for a writer, after the parser has accepted them.
pub fn wire_messages(body: &[u8], list: Span) -> Vec<WireMessage> {
    let mut scanner = Scanner::within(body, list);
    let mut messages = Vec::new();
    if !list.of(body).starts_with(b"[") || scanner.array().is_err() {
        return messages;
    }
    while let Ok(true) = scanner.element() {
        let Ok(message) = parse_message(&mut scanner) else { break };
        messages.push(message);
    }
    messages
}
