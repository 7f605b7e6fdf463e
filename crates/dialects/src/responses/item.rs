//! The parser of one item of the Responses API: of the input of a request, or of the output of a reply. Finds what an
//! item is, and the call in it; keeps no text.

use crate::content::{MOST_PARTS, parse_arguments, parse_content_of};
use model::call::{Arguments, ToolCall};
use model::message::{Content, Part, Role};
use std::borrow::Cow;
use wire::body::{Fault, Kind, Scanner, Span, Str};
use wire::json::{decode, decode_bytes, in_one_case, is_named};
use wire::members::{Member, SeenMembers, members_of, string_or_skip};

/// What an item is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ItemKind {
    Message(Role),
    /// A call that the client runs.
    Call(CallKind),
    /// The result of such a call.
    Result,
    /// The model's reasoning, which must not be separated from the item after it.
    Reasoning,
    /// A call that the provider has run already, or something else that the model made and the client only carries.
    Carried,
    /// An item of any other kind.
    #[default]
    Other,
}

/// The kinds of calls that clients run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    Function,
    Custom,
    LocalShell,
    Shell,
    ApplyPatch,
    Computer,
    ToolSearch,
    /// The provider asks whether it may run a tool of an MCP server.
    McpApproval,
}

impl CallKind {
    /// Its `type`.
    pub fn item_type(self) -> &'static str {
        match self {
            Self::Function => "function_call",
            Self::Custom => "custom_tool_call",
            Self::LocalShell => "local_shell_call",
            Self::Shell => "shell_call",
            Self::ApplyPatch => "apply_patch_call",
            Self::Computer => "computer_call",
            Self::ToolSearch => "tool_search_call",
            Self::McpApproval => "mcp_approval_request",
        }
    }

    /// The kind with this `type`.
    pub fn of_type(item_type: &str) -> Option<Self> {
        use CallKind::{ApplyPatch, Computer, Custom, Function, LocalShell, McpApproval, Shell, ToolSearch};
        let all = [Function, Custom, LocalShell, Shell, ApplyPatch, Computer, ToolSearch, McpApproval];
        all.into_iter().find(|kind| kind.item_type() == item_type)
    }

    /// The member that holds its arguments.
    pub fn arguments_member(self) -> &'static str {
        match self {
            Self::Function | Self::ToolSearch | Self::McpApproval => "arguments",
            Self::Custom => "input",
            Self::LocalShell | Self::Shell | Self::Computer => "action",
            Self::ApplyPatch => "operation",
        }
    }

    /// Whether its tool has a name of its own; of the others, the kind is the name.
    pub fn is_named(self) -> bool {
        matches!(self, Self::Function | Self::Custom | Self::McpApproval)
    }
}

/// One item.
#[derive(Clone, Debug, Default)]
pub struct Item {
    /// The object with its braces.
    pub span: Span,
    pub kind: ItemKind,
    pub id: Option<Str>,
    /// Its call, if it is one; of a result, the `id` is that of the call it answers.
    pub call: ToolCall,
    /// The content of a message, or the output of a result.
    pub content: Option<Content>,
    /// Tools that it declares.
    pub tools: Option<Span>,
    /// It has a string that parsers read differently: it is never edited.
    pub odd: bool,
    /// See [`Message::seals`](model::message::Message::seals).
    pub seals: bool,
    /// Its status says that the reply was cut within it.
    pub is_marked_cut: bool,
    /// A call of a shell that says of itself that the provider runs it, in a container. It is not that where the request
    /// declares a shell that the client runs.
    pub is_in_container: bool,
    /// Its type is none that is known, and it has the members of a call of this kind: a tolerant client may run it. Its
    /// `call` is that one.
    pub likely_call: Option<CallKind>,
}

impl Item {
    /// Whether it is a call, or a client may take it for one.
    pub fn may_be_call(&self) -> bool {
        matches!(self.kind, ItemKind::Call(_)) || self.is_in_container || self.likely_call.is_some()
    }

    /// Takes an item of a reply for what the request says that it is: `hosts_shell`, if the request declares no shell that the
    /// client runs. What a client may take for a call is one.
    pub fn settle(&mut self, hosts_shell: bool) {
        if let Some(kind) = self.likely_call {
            self.kind = ItemKind::Call(kind);
        }
        if self.is_in_container && !hosts_shell {
            self.kind = ItemKind::Call(CallKind::Shell);
        }
    }

    /// Whether the model made it.
    pub fn is_of_model(&self) -> bool {
        matches!(
            self.kind,
            ItemKind::Message(Role::Assistant) | ItemKind::Call(_) | ItemKind::Reasoning | ItemKind::Carried
        )
    }
}

/// The members of an item as they came, before its type is known: they come in any order.
#[derive(Default)]
struct Read {
    kind: Option<Str>,
    id: Option<Str>,
    call_id: Option<Str>,
    approval_id: Option<Str>,
    name: Option<Str>,
    namespace: Option<Str>,
    server: Option<Str>,
    role: Option<Str>,
    execution: Option<Str>,
    status: Option<Str>,
    arguments: Arguments,
    input: Arguments,
    action: Arguments,
    operation: Arguments,
    content: Option<Content>,
    output: Option<Content>,
    tools: Option<Span>,
    environment: Option<Span>,
    ambiguous: bool,
}

/// Reads the item at the position of `scanner`.
///
/// # Errors
/// A [`Fault`] where it is no JSON object.
pub fn parse_item(scanner: &mut Scanner<'_>) -> Result<Item, Fault> {
    if scanner.peek()? != Kind::Object {
        return Err(Fault::Type);
    }
    let (start, odd_before) = (scanner.at(), scanner.odd());
    scanner.clear_odd();
    scanner.object()?;
    let (mut read, mut seen) = (Read::default(), SeenMembers::default());
    while let Some(key) = scanner.member()? {
        let key = decode_bytes(key, scanner.text());
        read.member(&key, scanner, &mut seen)?;
    }
    let span = Span::new(start, scanner.at());
    let odd = scanner.odd() || read.ambiguous;
    scanner.restore_odd(odd_before || scanner.odd());
    Ok(read.item(span, odd, scanner.text()))
}

/// The number of a member that decides on what an item is; a second one of a name is ambiguous, since parsers differ on which
/// counts.
fn deciding(name: &[u8]) -> Option<u32> {
    Some(match name {
        b"type" => 0,
        b"id" => 1,
        b"call_id" => 2,
        b"name" => 3,
        b"namespace" => 4,
        b"arguments" => 5,
        b"input" => 6,
        b"action" => 7,
        b"operation" => 8,
        b"role" => 9,
        b"execution" => 10,
        b"server_label" => 11,
        b"environment" => 12,
        _ => return None,
    })
}

impl Read {
    fn member(&mut self, key: &[u8], scanner: &mut Scanner<'_>, seen: &mut SeenMembers) -> Result<(), Fault> {
        let exact = deciding(key);
        let decisive = exact.or_else(|| match in_one_case(key) {
            Cow::Owned(folded) => deciding(&folded),
            Cow::Borrowed(_) => None,
        });
        if let Some(at) = decisive {
            self.ambiguous |= seen.once(at).is_err() || exact.is_none();
        }
        let member = match key {
            b"type" => &mut self.kind,
            b"id" => &mut self.id,
            b"call_id" => &mut self.call_id,
            b"approval_request_id" => &mut self.approval_id,
            b"name" => &mut self.name,
            b"namespace" => &mut self.namespace,
            b"server_label" => &mut self.server,
            b"role" => &mut self.role,
            b"execution" => &mut self.execution,
            b"status" => &mut self.status,
            _ => return self.other_member(key, scanner),
        };
        *member = string_or_skip(scanner)?;
        Ok(())
    }

    fn other_member(&mut self, key: &[u8], scanner: &mut Scanner<'_>) -> Result<(), Fault> {
        match key {
            b"arguments" => self.arguments = parse_arguments(scanner)?,
            b"input" => self.input = parse_arguments(scanner)?,
            b"action" => self.action = parse_arguments(scanner)?,
            // Newer computer calls hold several actions.
            b"actions" if self.action == Arguments::Absent => self.action = parse_arguments(scanner)?,
            b"operation" => self.operation = parse_arguments(scanner)?,
            b"content" => self.content = Some(parse_content_of(scanner, &parse_parts)?),
            b"output" => self.output = Some(parse_content_of(scanner, &parse_parts)?),
            b"tools" => self.tools = Some(scanner.skip()?),
            b"environment" => self.environment = Some(scanner.skip()?),
            _ => drop(scanner.skip()?),
        }
        Ok(())
    }

    fn item(self, span: Span, odd: bool, text: &[u8]) -> Item {
        let in_container = !self.ambiguous && self.environment.is_some_and(|place| is_container(place, text));
        let judged = self.kind_of(text);
        let is_in_container = in_container && judged == ItemKind::Call(CallKind::Shell);
        let kind = if is_in_container { ItemKind::Carried } else { judged };
        let likely_call = self.likely_call(judged, text);
        let mut call = ToolCall { span, id: self.call_id, ambiguous: self.ambiguous, ..ToolCall::default() };
        let of = if let ItemKind::Call(of) = judged { Some(of) } else { likely_call };
        if let Some(of) = of {
            (call.name, call.namespace) = match of {
                CallKind::McpApproval => (self.name, self.server),
                of if of.is_named() => (self.name, self.namespace),
                // The type without its `_call`: so the tool is declared.
                _ => (self.kind.map(|kind| prefix(kind, "_call".len())), None),
            };
            call.arguments = match of.arguments_member() {
                "arguments" => self.arguments,
                "input" => self.input,
                "action" => self.action,
                _ => self.operation,
            };
            call.custom = of == CallKind::Custom;
            call.id = call.id.or(self.id);
        }
        if kind == ItemKind::Result {
            call.id = call.id.or(self.approval_id).or(self.id);
        }
        let content = if kind == ItemKind::Result { self.output } else { self.content };
        let name = self.kind.map_or(Cow::default(), |kind| decode_bytes(kind, text));
        let seals = *name == *b"compaction" || name.starts_with(b"program") || name.starts_with(b"mcp_");
        let is_marked_cut = self.status.is_some_and(|status| is_named(status, text, "incomplete"));
        let (id, tools) = (self.id, self.tools);
        Item { span, kind, id, call, content, tools, odd, seals, is_marked_cut, is_in_container, likely_call }
    }

    /// The kind of call that a client may take an item for which `kind_of` takes for `kind`.
    fn likely_call(&self, kind: ItemKind, text: &[u8]) -> Option<CallKind> {
        let (has_arguments, has_input) =
            (self.arguments != Arguments::Absent, self.input != Arguments::Absent);
        let is_unknown = match (kind, self.kind) {
            (ItemKind::Other, Some(of)) => !decode_bytes(of, text).starts_with(b"response."),
            (ItemKind::Other | ItemKind::Message(_), None) => true,
            (ItemKind::Carried, Some(of)) => names_any_call(&decode(of, text)),
            _ => false,
        };
        let is_likely = is_unknown && (self.call_id.is_some() || has_arguments || has_input);
        let is_named = self.name.is_some_and(|name| !name.span.is_empty());
        let likely = if has_input && !has_arguments { CallKind::Custom } else { CallKind::Function };
        (is_likely && is_named).then_some(likely)
    }

    fn kind_of(&self, text: &[u8]) -> ItemKind {
        let role = || self.role.map(|role| role_of(&decode(role, text)));
        let Some(kind) = self.kind else { return role().map_or(ItemKind::Other, ItemKind::Message) };
        let is_local = self.execution.is_some_and(|execution| is_named(execution, text, "client"));
        match &*decode_bytes(kind, text) {
            b"message" => ItemKind::Message(role().unwrap_or(Role::Other)),
            b"function_call" => ItemKind::Call(CallKind::Function),
            b"custom_tool_call" => ItemKind::Call(CallKind::Custom),
            b"local_shell_call" => ItemKind::Call(CallKind::LocalShell),
            b"shell_call" => ItemKind::Call(CallKind::Shell),
            b"apply_patch_call" => ItemKind::Call(CallKind::ApplyPatch),
            b"computer_call" => ItemKind::Call(CallKind::Computer),
            b"tool_search_call" if is_local => ItemKind::Call(CallKind::ToolSearch),
            b"mcp_approval_request" => ItemKind::Call(CallKind::McpApproval),
            b"function_call_output"
            | b"custom_tool_call_output"
            | b"local_shell_call_output"
            | b"shell_call_output"
            | b"apply_patch_call_output"
            | b"computer_call_output"
            | b"tool_search_output"
            | b"mcp_approval_response" => ItemKind::Result,
            b"reasoning" => ItemKind::Reasoning,
            b"compaction" | b"program" | b"mcp_list_tools" | b"agent_message" => ItemKind::Carried,
            other if other.ends_with(b"_call") => ItemKind::Carried,
            _ => ItemKind::Other,
        }
    }
}

/// Whether a type that is not known names a call of any tool, and not one of a feature of the provider's: `tool_call`,
/// `acme:tool_call`, but not `web_search_call`.
fn names_any_call(item_type: &str) -> bool {
    let letters = item_type.chars().filter(char::is_ascii_alphanumeric);
    let name: String = letters.map(|c| c.to_ascii_lowercase()).collect();
    name.ends_with("toolcall") || name.ends_with("functioncall")
}

/// The role of a message.
pub fn role_of(role: &str) -> Role {
    match role {
        "system" | "developer" => Role::System,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        _ => Role::Other,
    }
}

/// `text` without its last `bytes` bytes.
fn prefix(text: Str, bytes: usize) -> Str {
    let range = text.span.range();
    Str { span: Span::new(range.start, range.end.saturating_sub(bytes).max(range.start)), ..text }
}

/// Whether the `environment` of a shell, or of a call of one, is a container of the provider's, which runs the calls
/// itself. It is not where it has no `type`, or more than one.
pub fn is_container(environment: Span, text: &[u8]) -> bool {
    let members = members_of(text, environment);
    let is_type = |member: &&Member| *in_one_case(&decode_bytes(member.key, text)) == *b"type";
    let mut types = members.iter().filter(is_type);
    let (Some(kind), None) = (types.next(), types.next()) else { return false };
    let value = Scanner::within(text, kind.value).string();
    let is_exact = *decode_bytes(kind.key, text) == *b"type";
    is_exact
        && value.is_ok_and(|value| {
            matches!(&*decode_bytes(value, text), b"container_reference" | b"container_auto")
        })
}

/// Reads one element of a content list. Its texts are the `text` of `input_text`, `output_text` and `text`, and the
/// `stdout` and `stderr` of a shell: each is a part, an empty one only where all are empty.
fn parse_parts(scanner: &mut Scanner<'_>, parts: &mut Vec<Part>) -> Result<(), Fault> {
    if scanner.peek()? != Kind::Object {
        parts.push(Part { span: scanner.skip()?, text: None });
        return Ok(());
    }
    let (start, first) = (scanner.at(), parts.len());
    let (mut empty, mut is_text) = (None, true);
    scanner.object()?;
    while let Some(key) = scanner.member()? {
        match &*decode_bytes(key, scanner.text()) {
            b"type" => {
                let kind = string_or_skip(scanner)?.map(|kind| decode(kind, scanner.text()));
                is_text = matches!(kind.as_deref(), Some("input_text" | "output_text" | "text"));
            }
            b"text" | b"stdout" | b"stderr" => match string_or_skip(scanner)? {
                Some(text) if text.span.is_empty() => empty = Some(text),
                Some(text) => parts.push(Part { span: text.span, text: Some(text) }),
                None => {}
            },
            _ => drop(scanner.skip()?),
        }
        if parts.len() > MOST_PARTS {
            return Err(Fault::Crowded);
        }
    }
    let span = Span::new(start, scanner.at());
    if !is_text {
        parts.truncate(first);
    }
    if parts.len() == first {
        parts.push(Part { span, text: empty.filter(|_| is_text) });
    }
    parts[first..].iter_mut().for_each(|part| part.span = span);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Item {
        parse_item(&mut Scanner::new(text.as_bytes())).unwrap()
    }

    fn call(text: &str) -> (String, String, String) {
        let item = read(text);
        let name = item.call.full_name(text.as_bytes()).unwrap_or_default().into_owned();
        let id = item.call.id.map_or(String::new(), |id| decode(id, text.as_bytes()).into_owned());
        (name, id, item.call.arguments.text(text.as_bytes()).into_owned())
    }

    #[test]
    fn an_item_of_no_known_type_with_the_members_of_a_call_is_one_in_a_reply() {
        for (text, kind) in [
            (r#"{"call_id":"c","name":"f","arguments":"{}"}"#, CallKind::Function),
            (r#"{"type":"tool_call","id":"c","name":"f","arguments":{}}"#, CallKind::Function),
            (r#"{"type":"Function_Call","call_id":"c","name":"f"}"#, CallKind::Function),
            (r#"{"type":"acme:tool_call","name":"f","input":"x"}"#, CallKind::Custom),
            (r#"{"role":"assistant","name":"f","arguments":"{}"}"#, CallKind::Function),
        ] {
            let mut item = read(text);
            assert_ne!(item.kind, ItemKind::Call(kind), "{text}");
            item.settle(true);
            assert_eq!(item.kind, ItemKind::Call(kind), "{text}");
            assert_eq!(item.call.full_name(text.as_bytes()).as_deref(), Some("f"), "{text}");
        }
        for text in [
            r#"{"type":"mcp_call","name":"f","arguments":"{}","server_label":"s"}"#,
            r#"{"type":"web_search_call","call_id":"c","name":"f"}"#,
            r#"{"type":"function_call_output","call_id":"c","name":"f","output":"x"}"#,
            r#"{"type":"message","role":"assistant","name":"f","content":[]}"#,
            r#"{"type":"acme:note","name":"f"}"#,
            r#"{"call_id":"c","arguments":"{}"}"#,
        ] {
            let mut item = read(text);
            item.settle(true);
            assert!(!matches!(item.kind, ItemKind::Call(_)), "{text}");
        }
    }

    #[test]
    fn every_kind_of_call_that_a_client_runs_has_a_name_an_id_and_arguments() {
        for (text, name, id, arguments) in [
            (r#"{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}"#, "f", "c", "{}"),
            (
                r#"{"name":"f","namespace":"crm","call_id":"c","id":"fc_1","arguments":"{}","type":"function_call"}"#,
                "crm.f",
                "c",
                "{}",
            ),
            (r#"{"type":"custom_tool_call","call_id":"c","name":"f","input":"print"}"#, "f", "c", "print"),
            (
                r#"{"type":"local_shell_call","call_id":"c","action":{"command":["ls"]}}"#,
                "local_shell",
                "c",
                r#"{"command":["ls"]}"#,
            ),
            (r#"{"type":"shell_call","call_id":"c","action":{}}"#, "shell", "c", "{}"),
            (
                r#"{"type":"apply_patch_call","call_id":"c","operation":{"type":"delete_file"}}"#,
                "apply_patch",
                "c",
                r#"{"type":"delete_file"}"#,
            ),
            (r#"{"type":"computer_call","call_id":"c","actions":[]}"#, "computer", "c", "[]"),
            (
                r#"{"type":"tool_search_call","execution":"client","call_id":"c","arguments":{"goal":"x"}}"#,
                "tool_search",
                "c",
                r#"{"goal":"x"}"#,
            ),
            (
                r#"{"type":"mcp_approval_request","id":"mcpr_1","name":"roll","server_label":"dmcp","arguments":"{}"}"#,
                "dmcp.roll",
                "mcpr_1",
                "{}",
            ),
        ] {
            assert!(matches!(read(text).kind, ItemKind::Call(_)), "{text}");
            assert_eq!(call(text), (name.to_owned(), id.to_owned(), arguments.to_owned()), "{text}");
        }
    }

    #[test]
    fn items_that_the_provider_ran_itself_are_carried_along() {
        for text in [
            r#"{"type":"web_search_call","id":"ws_1"}"#,
            r#"{"type":"mcp_call","id":"mcp_1","name":"roll","arguments":"{}","output":"4"}"#,
            r#"{"type":"tool_search_call","execution":"server","call_id":null}"#,
            r#"{"type":"shell_call","environment":{"type":"container_reference"},"call_id":"c"}"#,
            r#"{"type":"compaction","encrypted_content":"x"}"#,
        ] {
            assert_eq!(read(text).kind, ItemKind::Carried, "{text}");
        }
        assert_eq!(read(r#"{"type":"acme:search_result"}"#).kind, ItemKind::Other);
        assert_eq!(read(r#"{"id":"msg_1"}"#).kind, ItemKind::Other, "an item reference");
    }

    #[test]
    fn a_shell_is_the_providers_only_where_the_type_of_its_environment_says_so() {
        let kind =
            |environment: &str| read(&format!(r#"{{"type":"shell_call","call_id":"c"{environment}}}"#)).kind;
        for environment in [
            r#","environment":{"container_id":"x","type":"container_reference"}"#,
            r#","environment" : { "type" : "container\u005fauto" }"#,
        ] {
            assert_eq!(kind(environment), ItemKind::Carried, "{environment}");
        }
        for environment in [
            "",
            r#","environment":null"#,
            r#","environment":{"type":"local"}"#,
            r#","environment":{"type":"local","skills":[{"name":"container-tools"}]}"#,
            r#","environment":{"skills":[{"type":"container_reference"}]}"#,
            r#","environment":"container_reference""#,
            r#","environment":[{"type":"container_reference"}]"#,
            r#","environment":{"type":["container_reference"]}"#,
            r#","environment":{"type":"container"}"#,
            r#","environment":{"Type":"container_reference"}"#,
            r#","environment":{"type":"container_reference","type":"local"}"#,
            r#","environment":{"type":"container_reference","TYPE":"local"}"#,
            r#","environment":{"type":"local"},"environment":{"type":"container_reference"}"#,
            r#","environment":{"type":"container_reference"},"Environment":{"type":"local"}"#,
        ] {
            assert_eq!(kind(environment), ItemKind::Call(CallKind::Shell), "{environment}");
        }
    }

    #[test]
    fn both_outputs_of_a_shell_are_texts_of_its_result() {
        let texts = |parts: &str| -> Vec<String> {
            let text = format!(r#"{{"type":"shell_call_output","call_id":"c","output":[{parts}]}}"#);
            let content = read(&text).content.unwrap();
            content.texts().map(|part| decode(part, text.as_bytes()).into_owned()).collect()
        };
        for (parts, wanted) in [
            (r#"{"stdout":"a","stderr":"b","outcome":{"type":"exit","exit_code":1}}"#, &["a", "b"][..]),
            (r#"{"stderr":"b","stdout":"a"},{"stdout":"c","stderr":""}"#, &["b", "a", "c"]),
            (r#"{"stdout":"","stderr":"b"}"#, &["b"]),
            (r#"{"stdout":"","stderr":""}"#, &[""]),
            (r#"{"stdout":null,"stderr":"b"}"#, &["b"]),
            (r#"{"type":"input_text","text":"a"},{"type":"input_image","text":"b"}"#, &["a"]),
        ] {
            assert_eq!(texts(parts), wanted, "{parts}");
        }
    }

    #[test]
    fn a_member_that_parsers_read_differently_is_noticed() {
        for text in [
            r#"{"type":"function_call","name":"a","name":"b"}"#,
            r#"{"type":"function_call","name":"a","Name":"b"}"#,
            r#"{"type":"message","role":"user","type":"function_call"}"#,
            r#"{"type":"message","r\u006fle":"user","role":"assistant"}"#,
        ] {
            assert!(read(text).call.ambiguous, "{text}");
        }
        assert!(!read(r#"{"type":"function_call","name":"a","call_id":"c","id":"d"}"#).call.ambiguous);
    }
}
