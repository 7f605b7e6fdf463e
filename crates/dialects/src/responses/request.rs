//! The parser of requests of the Responses API to spans: one pass over the body, nothing copied. The items that the
//! model made one after the other are one message, as in chat completions. Finds the members that matter; decides
//! nothing.

use super::item::{Item, ItemKind, is_container, parse_item};
use crate::request_body;
use bytes::Bytes;
use model::call::ToolCall;
use model::checkpoint::{Checkpoint, Head, List};
use model::message::{Calls, Content, Message, Part, Role};
use model::request::{Choice, Request, Tool};
use model::source::{Origin, Source};
use serde_json::Value;
use smallvec::SmallVec;
use std::sync::Arc;
use wire::body::{Fault, Kind, Scanner, Span, Str};
use wire::json::{decode, decode_bytes, in_one_case};
use wire::members::{Member, SeenMembers, differs_in_case, members_of, string_or_skip, whole_number_or_skip};

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

/// How many of the first `bytes` a checkpoint may cover. It ends after an item that is not the model's: what the model
/// makes next may belong to the same message.
fn resumable(request: &Request, bytes: usize) -> usize {
    let count = request.messages.partition_point(|message| message.span.end as usize <= bytes);
    let known = &request.messages[..count];
    // Whether a message is odd does not say whether the scanner saw an odd string.
    let end = known.iter().position(|message| message.odd).unwrap_or(count);
    let last = known[..end].iter().rev().find(|message| message.role != Role::Assistant);
    last.map_or(0, |message| message.span.end as usize)
}

fn go_on(body: &[u8], known: &Arc<Checkpoint>, head: &mut Option<Head>) -> Result<Request, Fault> {
    let (mut scanner, mut request, before) = request_body::resume(body, known)?;
    let (mut seen, list) = (before.seen, before.list);
    *head = Some(before);
    let before = beside_messages(&request);
    rest_of_items(&mut request, &mut scanner)?;
    request.messages_span = Span::new(list.start, scanner.at());
    request.members.push(Member { key: list.key, value: request.messages_span });
    head.take_if(|_| before != beside_messages(&request));
    rest(&mut request, &mut scanner, &mut seen, head)?;
    Ok(request)
}

/// What items may add to a request beside messages. Where they do, there is no checkpoint: it would not have that.
fn beside_messages(request: &Request) -> (usize, bool, bool, usize) {
    (
        request.tools.len() + request.namespaces.len(),
        request.own_ids,
        request.declares_elsewhere,
        request.in_containers.len(),
    )
}

/// Reads a whole body. What is before a list of items goes into `head`.
fn read(body: &[u8], head: &mut Option<Head>) -> Result<Request, Fault> {
    let mut scanner = request_body::begin(body)?;
    let start = scanner.at();
    // Replies always report their usage.
    let mut request = Request { choices: 1, include_usage: true, ..Request::default() };
    request.span = Span::new(start, start);
    scanner.object()?;
    rest(&mut request, &mut scanner, &mut SeenMembers::default(), head)?;
    Ok(request)
}

/// Reads the remaining members. What is before the items goes into `head`, unless it is known.
fn rest(
    request: &mut Request,
    scanner: &mut Scanner<'_>,
    seen: &mut SeenMembers,
    head: &mut Option<Head>,
) -> Result<(), Fault> {
    while let Some(key) = scanner.member()? {
        let before = beside_messages(request);
        let is_list = key.raw(scanner.text()) == b"input" && scanner.peek()? == Kind::Array;
        if head.is_none() && is_list {
            let mut seen = *seen;
            seen.once(INPUT)?;
            let list = List { key, start: scanner.at() };
            let before = Request { has_odd_text: scanner.odd(), ..request.clone() };
            *head = Some(Head { request: before, seen, list });
        }
        let value = parse_member(request, key, scanner, seen)?;
        request.members.push(Member { key, value });
        head.take_if(|_| is_list && before != beside_messages(request));
    }
    request.span = Span::new(request.span.range().start, scanner.at());
    scanner.end()?;
    request.settle_oddness(scanner.odd());
    let body = scanner.text();
    let has = |name: &str| request.value(body, name).is_some_and(|value| value.of(body) != b"null");
    let is_upstream = has("previous_response_id") || has("conversation") || has("prompt");
    let (declares, takes) = (request.declares_elsewhere || is_upstream, !request.tools.is_empty());
    (request.declares_elsewhere, request.takes_more_tools) = (declares, takes);
    request.is_stored = request.value(body, "store").is_none_or(|store| store.of(body) != b"false");
    (request.continues, request.may_be_continued) = continued(request, body);
    settle_shells(request, body);
    if request.choice == Choice::Forced {
        let choice = request.value(body, "tool_choice");
        request.forced_tool = choice.and_then(|choice| named_in(choice.of(body)));
    }
    let is_other = |member: &Member| differs_in_case(&decode_bytes(member.key, body), &[b"input"]);
    // A parser that ignores case would read an input that no policy has seen.
    if request.value(body, "input").is_none() && (!is_upstream || request.members.iter().any(is_other)) {
        return Err(Fault::NoMessages);
    }
    Ok(())
}

/// The items of a list of `bytes`. `hosts_shell`: see [`Request::hosts_shell`].
pub fn source(origin: Origin, bytes: Bytes, list: Span, hosts_shell: bool) -> Option<Source> {
    let mut read = Request { hosts_shell, ..Request::default() };
    let mut scanner = Scanner::within(&bytes, list);
    scanner.array().ok()?;
    rest_of_items(&mut read, &mut scanner).ok()?;
    settle_shell_calls(&mut read);
    Some(Source::new(origin, bytes, read.messages).declaring(read.tools, read.namespaces))
}

/// Takes a request for one whose conversation also has these sources: `true` if they declare a shell that the client runs,
/// where the request declares none. Their calls of a shell are then the client's, and so are those of the request.
pub fn take_shells(request: &mut Request, sources: &[Source]) -> bool {
    let mut shells = sources.iter().flat_map(|source| source.tools.iter().map(|tool| (tool, &source.bytes)));
    let declares = shells.any(|(tool, bytes)| shell_environment(tool, bytes) == Some(false));
    if !declares || !request.hosts_shell {
        return false;
    }
    request.hosts_shell = false;
    settle_shell_calls(request);
    true
}

fn settle_shells(request: &mut Request, body: &[u8]) {
    let mut environments = request.tools.iter().filter_map(|tool| shell_environment(tool, body));
    request.hosts_shell = environments.all(|is_hosted| is_hosted);
    settle_shell_calls(request);
}

/// Calls of a shell in a container are the client's, whatever they say, where the request declares a shell that the client
/// runs.
fn settle_shell_calls(request: &mut Request) {
    if request.hosts_shell {
        return;
    }
    for (at, call) in std::mem::take(&mut request.in_containers) {
        let Some(message) = request.messages.get_mut(at) else { continue };
        let mut calls: Vec<ToolCall> = message.calls.iter().copied().chain([call]).collect();
        calls.sort_by_key(|call| call.span.start);
        message.calls = Calls::from(&*calls);
    }
}

/// Whether a shell runs in a container of the provider's; `None` if the tool is no shell.
fn shell_environment(tool: &Tool, body: &[u8]) -> Option<bool> {
    // A shell has its type for a name, as some functions have too.
    let name = tool.name.map(|name| decode_bytes(name, body))?;
    if !matches!(&*name, b"local_shell" | b"shell") {
        return None;
    }
    let members = members_of(body, tool.span);
    let value = |name: &[u8]| {
        let is_it = |member: &&Member| *decode_bytes(member.key, body) == *name;
        members.iter().rfind(is_it).map(|member| member.value)
    };
    let kind = value(b"type").and_then(|kind| Scanner::within(body, kind).string().ok())?;
    match &*decode(kind, body) {
        "local_shell" => Some(false),
        "shell" => Some(value(b"environment").is_some_and(|place| is_container(place, body))),
        _ => None,
    }
}

/// What the request continues, and whether the client may continue from its reply: not if the reply is not stored, or
/// if the client sends the history itself.
fn continued(request: &Request, body: &[u8]) -> (Option<String>, bool) {
    let text = |name: &str| {
        let value: Value = serde_json::from_slice(request.value(body, name)?.of(body)).ok()?;
        let id = value.as_str().or_else(|| value.get("id").and_then(Value::as_str));
        id.filter(|id| !id.is_empty()).map(str::to_owned)
    };
    let continues = text("previous_response_id").or_else(|| text("conversation"));
    let begins = request.messages.iter().all(|message| message.role != Role::Assistant);
    let refers = request.reference.is_some();
    let may_be_continued = continues.is_some() || (request.is_stored && (begins || refers));
    (continues, may_be_continued)
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
        b"input" => parse_input(request, scanner)?,
        b"instructions" => request.instructions = string_or_skip(scanner)?.into_iter().collect(),
        b"tools" => {
            request.declares_tools = kind == Kind::Array;
            if !request.take_known_tools(scanner) {
                parse_tools(request, scanner, None)?;
            }
            request.tool_list = request.declares_tools.then(|| Span::new(start, scanner.at()));
            request_body::check_tools(request)?;
        }
        b"tool_choice" => request.choice = parse_choice(scanner)?,
        b"stream" => {
            request.stream = kind == Kind::True;
            scanner.skip_kind(kind)?;
        }
        b"max_output_tokens" => request.output_limit = whole_number_or_skip(scanner)?,
        b"text" => {
            let text = scanner.skip()?.of(scanner.text());
            let asks = |format: &[u8]| memchr::memmem::find(text, format).is_some();
            request.structured = asks(b"json_schema") || asks(b"json_object");
        }
        _ => drop(scanner.skip_kind(kind)?),
    }
    Ok(Span::new(start, scanner.at()))
}

/// See [`decisive`].
const INPUT: u32 = 0;

/// The number of a decisive member, whose second occurrence would change what is governed. Go's `encoding/json` accepts
/// a name in any case of letters, and the last one counts.
fn decisive(name: &[u8]) -> Option<u32> {
    const NAMES: [&[u8]; 11] = [
        b"input",
        b"model",
        b"tools",
        b"tool_choice",
        b"stream",
        b"previous_response_id",
        b"conversation",
        b"store",
        b"parallel_tool_calls",
        b"instructions",
        b"prompt",
    ];
    let name = in_one_case(name);
    NAMES.iter().position(|known| *known == &*name).map(|at| at as u32)
}

fn parse_input(request: &mut Request, scanner: &mut Scanner<'_>) -> Result<(), Fault> {
    let start = scanner.at();
    match scanner.peek()? {
        Kind::String => {
            let text = scanner.string()?;
            request.messages.push(message(text.quoted(), Role::User, Content::Text(text)));
        }
        Kind::Null => drop(scanner.skip()?),
        Kind::Array => {
            scanner.array()?;
            rest_of_items(request, scanner)?;
        }
        _ => return Err(Fault::Type),
    }
    request.messages_span = Span::new(start, scanner.at());
    Ok(())
}

/// Reads the remaining items of the list.
fn rest_of_items(request: &mut Request, scanner: &mut Scanner<'_>) -> Result<(), Fault> {
    let mut group = Group::default();
    while scanner.element()? {
        let item = parse_item(scanner)?;
        add_item(request, &mut group, item, scanner.text())?;
        if request.messages.len() + group.pieces() > MOST_ITEMS {
            return Err(Fault::Crowded);
        }
    }
    group.close(request);
    Ok(())
}

fn message(span: Span, role: Role, content: Content) -> Message {
    let (calls, tool_call_id, name) = (Calls::default(), None, None);
    let (odd, is_ambiguous, seals, reasons) = (false, false, false, false);
    Message { span, role, content, calls, tool_call_id, name, odd, is_ambiguous, seals, reasons }
}

fn add_item(request: &mut Request, group: &mut Group, item: Item, body: &[u8]) -> Result<(), Fault> {
    if let Some(tools) = item.tools.filter(|_| item.kind != ItemKind::Carried) {
        parse_tools(request, &mut Scanner::within(body, tools), None)?;
    }
    request.own_ids |= item.id.is_some_and(|id| id.raw(body).starts_with(super::OWN_ID.as_bytes()));
    if item.is_of_model() {
        request.declares_elsewhere |= is_compaction(item.kind, item.span.of(body));
        group.add(item);
        return Ok(());
    }
    group.close(request);
    let role = match item.kind {
        ItemKind::Message(role) => role,
        ItemKind::Result => Role::Tool,
        _ => Role::Other,
    };
    if item.kind == ItemKind::Other && is_reference(item.span.of(body)) {
        request.declares_elsewhere = true;
        request.reference = item.id.map(|id| decode(id, body).into_owned()).or(request.reference.take());
    }
    let content = item.content.unwrap_or(Content::Absent);
    let mut message = message(item.span, role, content);
    message.tool_call_id = item.call.id.filter(|_| role == Role::Tool);
    (message.odd, message.seals) = (item.odd, item.seals);
    request.messages.push(message);
    Ok(())
}

/// Whether an item replaces an earlier part of the conversation. Tools may have been declared there that the request no
/// longer shows.
pub(super) fn is_compaction(kind: ItemKind, item: &[u8]) -> bool {
    kind == ItemKind::Carried && memchr::memmem::find(item, b"\"compaction\"").is_some()
}

/// Whether an item is only named: what it says is upstream.
pub(super) fn is_reference(item: &[u8]) -> bool {
    let members = members_of(item, Span::new(0, item.len()));
    let kind = members.iter().rfind(|member| *decode_bytes(member.key, item) == *b"type");
    kind.is_none_or(|kind| {
        let name = Scanner::within(item, kind.value).string();
        kind.value.of(item) == b"null" || name.is_ok_and(|name| &*decode(name, item) == "item_reference")
    })
}

/// The items that the model made one after the other.
#[derive(Default)]
struct Group {
    span: Option<Span>,
    parts: Vec<Part>,
    calls: SmallVec<[ToolCall; 1]>,
    /// See [`Request::in_containers`].
    in_containers: Vec<ToolCall>,
    odd: bool,
    seals: bool,
    speaks: bool,
}

impl Group {
    fn add(&mut self, item: Item) {
        let start = self.span.map_or(item.span.start, |span| span.start);
        self.span = Some(Span { start, end: item.span.end });
        self.odd |= item.odd;
        self.seals |= item.seals;
        match item.kind {
            ItemKind::Call(_) => self.calls.push(item.call),
            ItemKind::Carried if item.is_in_container => self.in_containers.push(item.call),
            ItemKind::Message(_) => {
                self.speaks = true;
                match item.content {
                    Some(Content::Text(text)) => {
                        self.parts.push(Part { span: text.quoted(), text: Some(text) });
                    }
                    Some(Content::Parts { parts, .. }) => self.parts.extend(parts),
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn pieces(&self) -> usize {
        self.parts.len() + self.calls.len() + self.in_containers.len()
    }

    fn close(&mut self, request: &mut Request) {
        let Self { span, parts, calls, in_containers, odd, seals, speaks } = std::mem::take(self);
        let Some(span) = span else { return };
        let at = request.messages.len();
        request.in_containers.extend(in_containers.into_iter().map(|call| (at, call)));
        let content = if speaks { Content::Parts { span, parts } } else { Content::Absent };
        let mut message = message(span, Role::Assistant, content);
        (message.calls, message.odd, message.seals) = (Calls::from(&*calls), odd, seals);
        request.messages.push(message);
    }
}

/// Reads a list of tools; those of a namespace are in a list within.
fn parse_tools(
    request: &mut Request,
    scanner: &mut Scanner<'_>,
    namespace: Option<Str>,
) -> Result<(), Fault> {
    if scanner.peek()? != Kind::Array {
        scanner.skip()?;
        return Ok(());
    }
    scanner.array()?;
    while scanner.element()? {
        parse_tool(request, scanner, namespace)?;
        request_body::check_tools(request)?;
    }
    Ok(())
}

fn parse_tool(request: &mut Request, scanner: &mut Scanner<'_>, namespace: Option<Str>) -> Result<(), Fault> {
    let mut tool = Tool { namespace, ..Tool::default() };
    if scanner.peek()? != Kind::Object {
        tool.span = scanner.skip()?;
        request.tools.push(tool);
        return Ok(());
    }
    let (body, start) = (scanner.text(), scanner.at());
    let (mut kind, mut server, mut about_server, mut inner) = (None, None, None, None);
    scanner.object()?;
    while let Some(key) = scanner.member()? {
        match &*decode_bytes(key, body) {
            b"type" => kind = string_or_skip(scanner)?,
            b"name" => tool.name = string_or_skip(scanner)?,
            b"server_label" => server = string_or_skip(scanner)?,
            b"description" => tool.description = string_or_skip(scanner)?,
            b"server_description" => about_server = string_or_skip(scanner)?,
            b"parameters" => tool.parameters = Some(scanner.skip()?),
            b"tools" => inner = Some(scanner.skip()?),
            _ => drop(scanner.skip()?),
        }
    }
    tool.span = Span::new(start, scanner.at());
    match kind.map(|kind| decode(kind, body)).as_deref() {
        Some("namespace") if namespace.is_none() => {
            request.namespaces.push(tool);
            if let Some(inner) = inner {
                parse_tools(request, &mut Scanner::within(body, inner), tool.name)?;
            }
            return Ok(());
        }
        // The names of its tools are known to the provider alone.
        Some("mcp") => {
            (tool.name, tool.namespace) = (None, server);
            request.namespaces.push(Tool {
                name: server,
                namespace: None,
                description: about_server,
                ..tool
            });
        }
        Some("local_shell" | "shell" | "apply_patch" | "computer" | "tool_search") => tool.name = kind,
        Some("computer_use_preview") => {
            let computer = |kind: Str| Str { span: Span { end: kind.span.start + 8, ..kind.span }, ..kind };
            tool.name = kind.map(computer);
        }
        _ => {}
    }
    request.tools.push(tool);
    Ok(())
}

fn parse_choice(scanner: &mut Scanner<'_>) -> Result<Choice, Fault> {
    let span = scanner.skip()?;
    let Ok(choice) = serde_json::from_slice::<Value>(span.of(scanner.text())) else {
        return Ok(Choice::Auto);
    };
    Ok(match &choice {
        Value::String(word) if word == "none" => Choice::None,
        Value::String(word) if word == "required" || word == "any" => Choice::Forced,
        // A list of allowed tools forces a call only in the mode `required`; any other object names a tool.
        Value::Object(object) if object.get("type").is_some_and(|kind| kind == "allowed_tools") => {
            let is_forced = object.get("mode").is_some_and(|mode| mode == "required");
            if is_forced { Choice::Forced } else { Choice::Auto }
        }
        Value::Object(_) => Choice::Forced,
        _ => Choice::Auto,
    })
}

/// The name of the tool that a `tool_choice` names.
fn named_in(choice: &[u8]) -> Option<String> {
    let choice: Value = serde_json::from_slice(choice).ok()?;
    if choice["type"] == "allowed_tools" {
        return None;
    }
    let name = choice.get("name").or_else(|| choice.get("type"))?.as_str()?;
    let namespace = choice.get("server_label").or_else(|| choice.get("namespace")).and_then(Value::as_str);
    let namespace = namespace.filter(|namespace| *namespace != name);
    Some(namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}.{name}")))
}

#[cfg(test)]
mod tests;
