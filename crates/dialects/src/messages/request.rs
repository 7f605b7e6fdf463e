//! The parser of Messages requests to spans: one pass over the body, nothing copied, resuming after the last message of the
//! model's if its prefix was parsed before. Finds the members that matter; decides nothing.

use super::block::BlockKind;
use super::message::{WireMessage, is_whole, parse_message};
use crate::request_body;
use model::checkpoint::{Checkpoint, Head, List};
use model::request::{Choice, Request, Tool};
use std::sync::Arc;
use wire::body::{Fault, Kind, Scanner, Span, Str};
use wire::json::{decode, decode_bytes, in_one_case};
use wire::members::{Member, SeenMembers, string_or_skip, whole_number_or_skip};

/// Most items that are read: see the limits of chat completions.
const MOST_ITEMS: usize = 64 * 1024;

/// Reads a request body.
///
/// # Errors
/// A [`Fault`] if toolrein cannot read the body as a request; it is then left to the upstream.
pub fn parse(body: &[u8]) -> Result<Request, Fault> {
    read(body, &mut None)
}

/// As [`parse`], for a body whose first [`Checkpoint::bytes`] are those that `known` was read from. A checkpoint of as
/// many first bytes as `keep` wants of the request is then in [`Request::checkpoint`].
///
/// # Errors
/// See [`parse`].
pub fn resume(
    body: &[u8],
    known: Option<&Arc<Checkpoint>>,
    keep: impl FnOnce(&Request) -> usize,
) -> Result<Request, Fault> {
    let mut head = None;
    let mut request = match known {
        Some(known) => go_on(body, known, &mut head)?,
        None => read(body, &mut head)?,
    };
    let bytes = resumable(&request, keep(&request));
    Checkpoint::renew(&mut request, head, bytes);
    Ok(request)
}

/// How many of the first `bytes` a checkpoint may cover: it ends with a message, and an item may be a part of one.
fn resumable(request: &Request, bytes: usize) -> usize {
    let count = request.messages.partition_point(|message| message.span.end as usize <= bytes);
    let known = &request.messages[..count];
    // Whether a message is odd does not say whether the scanner saw an odd string.
    let end = known.iter().position(|message| message.odd).unwrap_or(count);
    let last = known[..end].iter().rev().find(|message| is_whole(message));
    last.map_or(0, |message| message.span.end as usize)
}

fn go_on(body: &[u8], known: &Arc<Checkpoint>, head: &mut Option<Head>) -> Result<Request, Fault> {
    let (mut scanner, mut request, before) = request_body::resume(body, known)?;
    let (mut seen, list) = (before.seen, before.list);
    *head = Some(before);
    let before = beside_messages(&request);
    rest_of_messages(&mut request, &mut scanner)?;
    request.messages_span = Span::new(list.start, scanner.at());
    request.members.push(Member { key: list.key, value: request.messages_span });
    head.take_if(|_| before != beside_messages(&request));
    rest(&mut request, &mut scanner, &mut seen, head)?;
    Ok(request)
}

/// What messages may add to a request beside items. Where they do, there is no checkpoint: it would not have that.
fn beside_messages(request: &Request) -> (usize, bool) {
    (request.tools.len(), request.declares_elsewhere)
}

/// Reads a whole body. What is before the messages goes into `head`.
fn read(body: &[u8], head: &mut Option<Head>) -> Result<Request, Fault> {
    let mut scanner = request_body::begin(body)?;
    let start = scanner.at();
    // Replies always report their usage.
    let mut request =
        Request { choices: 1, include_usage: true, binds_reasoning: true, ..Request::default() };
    request.span = Span::new(start, start);
    scanner.object()?;
    rest(&mut request, &mut scanner, &mut SeenMembers::default(), head)?;
    Ok(request)
}

/// Reads the remaining members. What is before the messages goes into `head`, unless it is known.
fn rest(
    request: &mut Request,
    scanner: &mut Scanner<'_>,
    seen: &mut SeenMembers,
    head: &mut Option<Head>,
) -> Result<(), Fault> {
    while let Some(key) = scanner.member()? {
        let before = beside_messages(request);
        let is_list = key.raw(scanner.text()) == b"messages" && scanner.peek()? == Kind::Array;
        if head.is_none() && is_list && request.messages.is_empty() {
            let mut seen = *seen;
            seen.once(MESSAGES)?;
            let list = List { key, start: scanner.at() };
            let before = Request { has_odd_text: scanner.odd(), ..request.clone() };
            *head = Some(Head { request: before, seen, list });
        }
        let value = parse_member(request, key, scanner, seen)?;
        request.members.push(Member { key, value });
        if is_list {
            head.take_if(|_| before != beside_messages(request));
        }
    }
    request.span = Span::new(request.span.range().start, scanner.at());
    scanner.end()?;
    request.settle_oddness(scanner.odd());
    if request.messages_span.is_empty() {
        return Err(Fault::NoMessages);
    }
    let text = scanner.text();
    request.takes_more_tools = request.value(text, "tools").is_some();
    if request.choice == Choice::Forced {
        let choice = request.value(text, "tool_choice");
        request.forced_tool = choice.and_then(|choice| member_text(choice, b"name", text));
    }
    Ok(())
}

fn parse_member(
    request: &mut Request,
    key: Str,
    scanner: &mut Scanner<'_>,
    seen: &mut SeenMembers,
) -> Result<Span, Fault> {
    let kind = scanner.peek()?;
    let start = scanner.at();
    let name = decode_bytes(key, scanner.text());
    if let Some(decisive) = decisive(&name) {
        seen.once(decisive)?;
    }
    match &*name {
        b"model" => request.model = string_or_skip(scanner)?,
        b"messages" => parse_messages(request, scanner)?,
        b"system" => parse_instructions(request, scanner)?,
        b"tools" => {
            request.declares_tools = kind == Kind::Array;
            if !request.take_known_tools(scanner) {
                parse_tools(request, scanner)?;
            }
            request.tool_list = request.declares_tools.then(|| Span::new(start, scanner.at()));
            // A set of tools is a namespace too.
            request.declares_elsewhere |= !request.namespaces.is_empty();
            request_body::check_tools(request)?;
        }
        b"mcp_servers" => {
            let servers = scanner.skip()?;
            request.declares_elsewhere |= !matches!(servers.of(scanner.text()), b"[]" | b"null");
        }
        b"tool_choice" => {
            let choice = scanner.skip()?;
            request.choice = match member_text(choice, b"type", scanner.text()).as_deref() {
                Some("none") => Choice::None,
                Some("any" | "tool") => Choice::Forced,
                _ => Choice::Auto,
            };
        }
        b"stream" => {
            request.stream = kind == Kind::True;
            scanner.skip_kind(kind)?;
        }
        b"max_tokens" => request.output_limit = whole_number_or_skip(scanner)?,
        // Older models, which alone take a budget for their thinking, check the signature and not what came before.
        b"thinking" => {
            let thinking = scanner.skip()?;
            let kind = member_text(thinking, b"type", scanner.text());
            request.binds_reasoning = kind.is_none_or(|kind| kind != "enabled");
        }
        b"output_config" | b"output_format" => {
            let format = scanner.skip()?.of(scanner.text());
            request.structured |= memchr::memmem::find(format, b"json_schema").is_some();
        }
        _ => drop(scanner.skip_kind(kind)?),
    }
    Ok(Span::new(start, scanner.at()))
}

/// See [`decisive`].
const MESSAGES: u32 = 0;

/// The number of a decisive member, whose second occurrence would change what is governed. Go's `encoding/json` accepts
/// a name in any case of letters, and the last one counts.
fn decisive(name: &[u8]) -> Option<u32> {
    const NAMES: [&[u8]; 9] = [
        b"messages",
        b"model",
        b"system",
        b"tools",
        b"tool_choice",
        b"stream",
        b"max_tokens",
        b"thinking",
        b"mcp_servers",
    ];
    let name = in_one_case(name);
    NAMES.iter().position(|known| *known == &*name).map(|at| at as u32)
}

/// The text of the member `name` of the object at `object`.
fn member_text(object: Span, name: &[u8], body: &[u8]) -> Option<String> {
    let members = wire::members::members_of(body, object);
    let member = members.iter().rfind(|member| *decode_bytes(member.key, body) == *name)?;
    let text = Scanner::within(body, member.value).string().ok()?;
    Some(decode(text, body).into_owned())
}

fn parse_messages(request: &mut Request, scanner: &mut Scanner<'_>) -> Result<(), Fault> {
    if scanner.peek()? != Kind::Array {
        return Err(Fault::Type);
    }
    let start = scanner.at();
    scanner.array()?;
    rest_of_messages(request, scanner)?;
    request.messages_span = Span::new(start, scanner.at());
    Ok(())
}

/// Reads the remaining messages of the list.
fn rest_of_messages(request: &mut Request, scanner: &mut Scanner<'_>) -> Result<(), Fault> {
    while scanner.element()? {
        let message = parse_message(scanner)?;
        message.add_to(&mut request.messages);
        declare_tools(request, &message, scanner.text())?;
        if request.messages.len() > MOST_ITEMS {
            return Err(Fault::Crowded);
        }
    }
    Ok(())
}

/// Takes the tools that blocks of a message declare or refer to.
fn declare_tools(request: &mut Request, message: &WireMessage, body: &[u8]) -> Result<(), Fault> {
    for block in message.blocks() {
        request.declares_elsewhere |=
            block.refers_to_tool || matches!(block.kind, BlockKind::ToolAddition | BlockKind::Compaction);
        let is_definition = block.kind == BlockKind::ToolAddition;
        if let Some(definition) = block.definition.filter(|_| is_definition) {
            parse_tool(request, &mut Scanner::within(body, definition))?;
        }
    }
    Ok(())
}

/// Reads the instructions: a text, or a list of texts.
fn parse_instructions(request: &mut Request, scanner: &mut Scanner<'_>) -> Result<(), Fault> {
    match scanner.peek()? {
        Kind::String => request.instructions.push(scanner.string()?),
        Kind::Array => {
            let (_, blocks) = super::block::parse_blocks(scanner)?;
            request.instructions.extend(blocks.iter().filter_map(|block| block.text));
        }
        _ => drop(scanner.skip()?),
    }
    Ok(())
}

fn parse_tools(request: &mut Request, scanner: &mut Scanner<'_>) -> Result<(), Fault> {
    if scanner.peek()? != Kind::Array {
        scanner.skip()?;
        return Ok(());
    }
    scanner.array()?;
    while scanner.element()? {
        parse_tool(request, scanner)?;
        request_body::check_tools(request)?;
    }
    Ok(())
}

fn parse_tool(request: &mut Request, scanner: &mut Scanner<'_>) -> Result<(), Fault> {
    let mut tool = Tool::default();
    if scanner.peek()? != Kind::Object {
        tool.span = scanner.skip()?;
        request.tools.push(tool);
        return Ok(());
    }
    let start = scanner.at();
    let (mut kind, mut server) = (None, None);
    scanner.object()?;
    while let Some(key) = scanner.member()? {
        match &*decode_bytes(key, scanner.text()) {
            b"type" => kind = string_or_skip(scanner)?,
            b"name" => tool.name = string_or_skip(scanner)?,
            b"mcp_server_name" => server = string_or_skip(scanner)?,
            b"description" => tool.description = string_or_skip(scanner)?,
            b"input_schema" => tool.parameters = Some(scanner.skip()?),
            _ => drop(scanner.skip()?),
        }
    }
    tool.span = Span::new(start, scanner.at());
    let is_toolset = kind.is_some_and(|kind| is_toolset(&decode(kind, scanner.text())));
    if is_toolset && tool.parameters.is_none() {
        // The names of its tools are known to the provider alone.
        request.declares_elsewhere = true;
        let namespace = server.or(tool.name);
        (tool.name, tool.namespace) = (None, namespace);
        request.namespaces.push(Tool { name: namespace, namespace: None, ..tool });
    }
    request.tools.push(tool);
    Ok(())
}

/// Whether a type of tool is a set of tools: `mcp_toolset`, `computer_toolset_20260801`.
fn is_toolset(kind: &str) -> bool {
    kind.split('_').any(|word| word == "toolset")
}
