//! The parser of one content block of a message: a text, a call, a result, or what only the model's provider reads. Keeps no
//! text.

use crate::content::{MOST_PARTS, parse_arguments, parse_content};
use model::call::ToolCall;
use model::message::{Content, Part};
use wire::body::{Fault, Kind, Scanner, Span, Str};
use wire::json::{decode_bytes, is_named};
use wire::members::{SeenMembers, differs_in_case, string_or_skip};

/// What a block is, by its `type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlockKind {
    Text,
    /// A call that the client runs.
    Call,
    /// The result of such a call.
    Result,
    /// What the model thought, signed or encrypted by the provider.
    Thinking,
    /// The upstream reads it in place of all that came before it.
    Compaction,
    /// A tool that is declared in the middle of the conversation.
    ToolAddition,
    /// A picture, a document, a call that the provider ran, or a kind that is not known.
    #[default]
    Other,
}

impl BlockKind {
    fn named(kind: &[u8]) -> Self {
        match kind {
            b"text" => Self::Text,
            b"tool_use" => Self::Call,
            b"tool_result" => Self::Result,
            b"thinking" | b"redacted_thinking" => Self::Thinking,
            b"compaction" => Self::Compaction,
            b"tool_addition" => Self::ToolAddition,
            _ => Self::Other,
        }
    }
}

/// One block as spans of the body.
#[derive(Clone, Debug)]
pub struct Block {
    pub kind: BlockKind,
    /// The object with its braces.
    pub span: Span,
    pub text: Option<Str>,
    /// Its `id`, `name`, `input` and `toolset_name`, whatever it is.
    pub call: ToolCall,
    /// Of a result: the call that it answers, and what it holds.
    pub answers: Option<Str>,
    pub content: Content,
    /// A definition of a tool in it, or changes of tools.
    pub definition: Option<Span>,
    /// It refers to a tool whose definition the provider keeps.
    pub refers_to_tool: bool,
    /// Readers of JSON find different blocks in it.
    pub is_ambiguous: bool,
}

/// The members that decide what a block is and says.
const DECISIVE: [&[u8]; 7] = [b"type", b"text", b"content", b"id", b"tool_use_id", b"name", b"input"];

/// Reads the block at the position of `scanner`.
///
/// # Errors
/// A [`Fault`] where it is no JSON, or has too many parts.
pub fn parse_block(scanner: &mut Scanner<'_>) -> Result<Block, Fault> {
    // Looks past white space: the span begins with the brace.
    let kind = scanner.peek()?;
    let start = scanner.at();
    let mut block = Block {
        kind: BlockKind::Other,
        span: Span::new(start, start),
        text: None,
        call: ToolCall::default(),
        answers: None,
        content: Content::Absent,
        definition: None,
        refers_to_tool: false,
        is_ambiguous: false,
    };
    if kind != Kind::Object {
        block.span = scanner.skip()?;
        return Ok(block);
    }
    let mut seen = SeenMembers::default();
    scanner.object()?;
    while let Some(key) = scanner.member()? {
        let key = decode_bytes(key, scanner.text());
        if let Some(at) = DECISIVE.iter().position(|name| *name == &*key) {
            block.is_ambiguous |= seen.once(at as u32).is_err();
        }
        parse_member(&mut block, &key, scanner)?;
    }
    block.span = Span::new(start, scanner.at());
    block.call.span = block.span;
    Ok(block)
}

fn parse_member(block: &mut Block, key: &[u8], scanner: &mut Scanner<'_>) -> Result<(), Fault> {
    match key {
        b"type" => {
            let kind = string_or_skip(scanner)?;
            let named = |kind: Str| BlockKind::named(&decode_bytes(kind, scanner.text()));
            block.kind = kind.map_or(BlockKind::Other, named);
            block.refers_to_tool |= kind.is_some_and(|kind| is_named(kind, scanner.text(), "tool_reference"));
        }
        b"text" => block.text = string_or_skip(scanner)?,
        b"id" => block.call.id = string_or_skip(scanner)?,
        b"name" => block.call.name = string_or_skip(scanner)?,
        b"toolset_name" => block.call.namespace = string_or_skip(scanner)?,
        b"input" => block.call.arguments = parse_arguments(scanner)?,
        b"tool_use_id" => block.answers = string_or_skip(scanner)?,
        b"content" => {
            let mut refers = false;
            block.content = parse_parts(scanner, &mut refers)?;
            block.refers_to_tool |= refers;
        }
        b"tool_definition" | b"tool_changes" => block.definition = Some(scanner.skip()?),
        other => {
            block.is_ambiguous |= differs_in_case(other, &DECISIVE);
            scanner.skip()?;
        }
    }
    Ok(())
}

/// Reads the content of a result; `refers`: whether a part refers to a tool.
fn parse_parts(scanner: &mut Scanner<'_>, refers: &mut bool) -> Result<Content, Fault> {
    let refers = std::cell::Cell::from_mut(refers);
    parse_content(scanner, &|scanner| {
        let (part, refers_to_tool) = parse_part(scanner)?;
        refers.set(refers.get() || refers_to_tool);
        Ok(part)
    })
}

/// Reads a part of a result, and whether it refers to a tool. The texts of documents and search results are cited by
/// position, so they are no texts that a policy may change.
fn parse_part(scanner: &mut Scanner<'_>) -> Result<(Part, bool), Fault> {
    let kind = scanner.peek()?;
    let start = scanner.at();
    if kind != Kind::Object {
        return Ok((Part { span: scanner.skip()?, text: None }, false));
    }
    let (mut text, mut kind) = (None, None);
    scanner.object()?;
    while let Some(key) = scanner.member()? {
        match &*decode_bytes(key, scanner.text()) {
            b"type" => kind = string_or_skip(scanner)?,
            b"text" => text = string_or_skip(scanner)?,
            _ => drop(scanner.skip()?),
        }
    }
    let is = |name| kind.is_some_and(|kind| is_named(kind, scanner.text(), name));
    let part = Part { span: Span::new(start, scanner.at()), text: text.filter(|_| is("text")) };
    Ok((part, is("tool_reference")))
}

/// Reads the blocks of a content list.
///
/// # Errors
/// A [`Fault`] where it is no list of JSON values, or has too many.
pub fn parse_blocks(scanner: &mut Scanner<'_>) -> Result<(Span, Vec<Block>), Fault> {
    let start = scanner.at();
    let mut blocks = Vec::new();
    scanner.array()?;
    while scanner.element()? {
        blocks.push(parse_block(scanner)?);
        if blocks.len() > MOST_PARTS {
            return Err(Fault::Crowded);
        }
    }
    Ok((Span::new(start, scanner.at()), blocks))
}
