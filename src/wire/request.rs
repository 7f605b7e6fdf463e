//! A chat-completions request as spans: found in one pass over the body, nothing copied.
//! Responsible for which members matter to toolrein and where they stand; decides nothing.

use super::body::{Fault, Kind, Scanner, Span, Str};
use super::checkpoint::{Checkpoint, Head, List};
use super::json::{decode, decode_bytes, in_one_case, is_named};
use super::message::{Message, Seen, string_or_skip};
use std::sync::Arc;

/// One member of the request object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    pub key: Str,
    pub value: Span,
}

impl Member {
    /// From the key's quote to the end of the value.
    pub fn span(&self) -> Span {
        Span { start: self.key.span.start - 1, end: self.value.end }
    }
}

/// A tool that the request declares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tool {
    pub span: Span,
    pub name: Option<Str>,
    /// Its JSON Schema.
    pub parameters: Option<Span>,
}

/// What `tool_choice` (or the deprecated `function_call`) asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// Absent, null, `auto`, or a kind that forces nothing.
    #[default]
    Auto,
    None,
    /// `required`, `any`, or a named function: the reply must be a call.
    Forced,
}

/// A chat-completions request.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Every member of the top object, in order.
    pub members: Vec<Member>,
    /// The top object with its braces.
    pub span: Span,
    pub model: Option<Str>,
    pub messages: Vec<Message>,
    /// The `messages` array with its brackets.
    pub messages_span: Span,
    pub tools: Vec<Tool>,
    /// A `tools` or `functions` member is present, be it empty.
    pub declares_tools: bool,
    pub choice: Choice,
    pub stream: bool,
    /// The client asked for a usage chunk.
    pub include_usage: bool,
    /// `n`, the number of choices asked for.
    pub choices: u32,
    /// `response_format` asks for structured output.
    pub structured: bool,
    /// A string somewhere holds `\u0000` or half of a surrogate pair.
    pub odd: bool,
    /// Its first messages, where they were read before or are kept for the next request of the conversation.
    pub checkpoint: Option<Arc<Checkpoint>>,
}

impl Request {
    /// Reads a request body.
    ///
    /// # Errors
    /// A [`Fault`] where the body is no chat-completions request that toolrein can read; the upstream is
    /// to judge it then.
    pub fn parse(body: &[u8]) -> Result<Self, Fault> {
        Self::read(body, None)
    }

    /// As [`parse`](Self::parse). What is before the messages goes into `head`, where there is one.
    pub(super) fn read(body: &[u8], head: Option<&mut Option<Head>>) -> Result<Self, Fault> {
        if body.len() > u32::MAX as usize {
            return Err(Fault::Size);
        }
        if simdutf8::basic::from_utf8(body).is_err() {
            return Err(Fault::Utf8);
        }
        let mut scanner = Scanner::tolerant(body);
        if scanner.peek()? != Kind::Object {
            scanner.skip()?;
            return scanner.end().and(Err(Fault::Type));
        }
        let start = scanner.at();
        let mut request = Self { choices: 1, ..Self::default() };
        request.messages.reserve(body.len() / BYTES_A_MESSAGE + 4);
        request.span = Span::new(start, start);
        scanner.object()?;
        request.rest(&mut scanner, &mut Seen::default(), head)?;
        Ok(request)
    }

    /// Reads the members that are left. What stands before the messages goes into `head`, where there is one.
    pub(super) fn rest(
        &mut self,
        scanner: &mut Scanner<'_>,
        seen: &mut Seen,
        mut head: Option<&mut Option<Head>>,
    ) -> Result<(), Fault> {
        while let Some(key) = scanner.member()? {
            if let Some(head) = &mut head
                && head.is_none()
                && self.messages.is_empty()
                && key.raw(scanner.text()) == b"messages"
            {
                scanner.peek()?;
                let mut seen = *seen;
                seen.once(MESSAGES)?;
                let list = List { key, start: scanner.at() };
                let request = Self { odd: scanner.odd(), ..self.clone() };
                **head = Some(Head { request, seen, list });
            }
            let value = self.member(key, scanner, seen)?;
            self.members.push(Member { key, value });
        }
        self.span = Span::new(self.span.range().start, scanner.at());
        scanner.end()?;
        self.odd = scanner.odd();
        if self.messages_span.is_empty() { Err(Fault::NoMessages) } else { Ok(()) }
    }

    /// The value of the member `name`, if it is present.
    pub fn value(&self, body: &[u8], name: &str) -> Option<Span> {
        self.members.iter().find(|member| is_named(member.key, body, name)).map(|member| member.value)
    }

    /// The model's name; empty where there is none.
    pub fn model_name<'a>(&self, body: &'a [u8]) -> std::borrow::Cow<'a, str> {
        self.model.map_or("".into(), |model| decode(model, body))
    }

    fn member(&mut self, key: Str, scanner: &mut Scanner<'_>, seen: &mut Seen) -> Result<Span, Fault> {
        let kind = scanner.peek()?;
        let start = scanner.at();
        let name = decode_bytes(key, scanner.text());
        if let Some(deciding) = deciding(&name) {
            seen.once(deciding)?;
        }
        match &*name {
            b"model" => self.model = string_or_skip(scanner)?,
            b"messages" => self.parse_messages(scanner)?,
            b"tools" | b"functions" => self.parse_tools(scanner)?,
            b"tool_choice" | b"function_call" => self.choice = self.choice.stronger(parse_choice(scanner)?),
            b"stream" => {
                self.stream = kind == Kind::True;
                scanner.skip_kind(kind)?;
            }
            b"n" => {
                let span = scanner.skip()?;
                let number = std::str::from_utf8(span.of(scanner.text())).ok().and_then(|n| n.parse().ok());
                self.choices = number.unwrap_or(1);
            }
            b"stream_options" => {
                let span = scanner.skip()?;
                self.include_usage = is_member_true(scanner.text(), span, b"include_usage")?;
            }
            b"response_format" => self.structured = parse_structured(scanner)?,
            _ => {
                scanner.skip_kind(kind)?;
            }
        }
        Ok(Span::new(start, scanner.at()))
    }

    fn parse_messages(&mut self, scanner: &mut Scanner<'_>) -> Result<(), Fault> {
        if scanner.peek()? != Kind::Array {
            return Err(Fault::Type);
        }
        let start = scanner.at();
        scanner.array()?;
        self.rest_of_messages(scanner, start).map(drop)
    }

    /// Reads the messages that are left of the list which starts at `start`.
    pub(super) fn rest_of_messages(
        &mut self,
        scanner: &mut Scanner<'_>,
        start: usize,
    ) -> Result<Span, Fault> {
        while scanner.element()? {
            self.messages.push(Message::parse(scanner)?);
            if self.messages.len() > MOST_MESSAGES {
                return Err(Fault::Crowded);
            }
        }
        self.messages_span = Span::new(start, scanner.at());
        Ok(self.messages_span)
    }

    fn parse_tools(&mut self, scanner: &mut Scanner<'_>) -> Result<(), Fault> {
        if scanner.peek()? != Kind::Array {
            scanner.skip()?;
            return Ok(());
        }
        self.declares_tools = true;
        scanner.array()?;
        while scanner.element()? {
            let tool = parse_tool(scanner)?;
            self.tools.push(tool);
            if self.tools.len() > MOST_TOOLS {
                return Err(Fault::Crowded);
            }
        }
        Ok(())
    }
}

/// Most messages and tools that are read: a body of nothing but `{},` takes a hundred times its bytes in memory. The longest
/// recorded conversation has 300 messages, and no provider takes more than some hundreds of tools.
const MOST_MESSAGES: usize = 64 * 1024;
const MOST_TOOLS: usize = 8 * 1024;

/// Most conversations have fewer messages than that, so that their list grows once at most.
const BYTES_A_MESSAGE: usize = 1024;

/// See [`deciding`].
const MESSAGES: u32 = 1;

/// The number of a member whose second occurrence would change what is governed. Go's `encoding/json` takes a name in any
/// case of letters, and the last of them counts.
fn deciding(name: &[u8]) -> Option<u32> {
    Some(match &*in_one_case(name) {
        b"model" => 0,
        b"messages" => MESSAGES,
        b"tools" => 2,
        b"functions" => 3,
        b"tool_choice" => 4,
        b"function_call" => 5,
        b"stream" => 6,
        b"n" => 7,
        b"stream_options" => 8,
        b"parallel_tool_calls" => 9,
        _ => return None,
    })
}

impl Choice {
    fn stronger(self, other: Self) -> Self {
        if self == Self::Auto { other } else { self }
    }
}

fn parse_tool(scanner: &mut Scanner<'_>) -> Result<Tool, Fault> {
    let mut tool = Tool::default();
    if scanner.peek()? != Kind::Object {
        tool.span = scanner.skip()?;
        return Ok(tool);
    }
    let start = scanner.at();
    parse_tool_members(scanner, &mut tool, true)?;
    tool.span = Span::new(start, scanner.at());
    Ok(tool)
}

/// Reads the members of a tool, or of the `function` within one: both carry a name at some clients.
fn parse_tool_members(scanner: &mut Scanner<'_>, tool: &mut Tool, outer: bool) -> Result<(), Fault> {
    scanner.object()?;
    while let Some(key) = scanner.member()? {
        match &*decode_bytes(key, scanner.text()) {
            b"function" | b"custom" if outer && scanner.peek()? == Kind::Object => {
                parse_tool_members(scanner, tool, false)?;
            }
            b"name" => tool.name = string_or_skip(scanner)?.or(tool.name),
            b"parameters" => tool.parameters = Some(scanner.skip()?),
            _ => {
                scanner.skip()?;
            }
        }
    }
    Ok(())
}

fn parse_choice(scanner: &mut Scanner<'_>) -> Result<Choice, Fault> {
    match scanner.peek()? {
        Kind::String => {
            let word = scanner.string()?;
            Ok(match &*decode(word, scanner.text()) {
                "none" => Choice::None,
                // "any" is Mistral's word for it.
                "required" | "any" => Choice::Forced,
                _ => Choice::Auto,
            })
        }
        Kind::Object => {
            let span = scanner.skip()?;
            parse_choice_object(Scanner::within(scanner.text(), span))
        }
        _ => scanner.skip().map(|_| Choice::Auto),
    }
}

/// A named function forces a call; `allowed_tools` does where its mode says `required`.
fn parse_choice_object(mut scanner: Scanner<'_>) -> Result<Choice, Fault> {
    let mut allowed = false;
    scanner.object()?;
    while let Some(key) = scanner.member()? {
        let name = key.raw(scanner.text());
        if name == b"allowed_tools" || name == b"mode" {
            allowed = true;
        }
        let span = scanner.skip()?;
        if allowed && memchr::memmem::find(span.of(scanner.text()), b"\"required\"").is_some() {
            return Ok(Choice::Forced);
        }
        if name == b"type" && span.of(scanner.text()) == b"\"allowed_tools\"" {
            allowed = true;
        }
    }
    Ok(if allowed { Choice::Auto } else { Choice::Forced })
}

fn parse_structured(scanner: &mut Scanner<'_>) -> Result<bool, Fault> {
    let span = scanner.skip()?;
    let text = span.of(scanner.text());
    Ok(memchr::memmem::find(text, b"json_schema").is_some()
        || memchr::memmem::find(text, b"json_object").is_some())
}

/// Whether the object at `span` has the member `name` with the value true.
fn is_member_true(text: &[u8], span: Span, name: &[u8]) -> Result<bool, Fault> {
    let mut scanner = Scanner::within(text, span);
    if scanner.peek()? != Kind::Object {
        return Ok(false);
    }
    scanner.object()?;
    while let Some(key) = scanner.member()? {
        let value = scanner.skip()?;
        if key.raw(text) == name {
            return Ok(value.of(text) == b"true");
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::call::Arguments;
    use crate::wire::message::{Content, Role};

    fn parse(body: &str) -> Request {
        Request::parse(body.as_bytes()).unwrap()
    }

    #[test]
    fn every_shape_of_content_is_read() {
        let body = r#"{"messages":[
            {"role":"system","content":"s"}, {"role":"developer"}, {"role":"user","content":null},
            {"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"x"}},"?"]},
            {"role":"tool","tool_call_id":"c","content":7}, {"role":"robot","content":""}]}"#;
        let request = parse(body);
        let roles: Vec<Role> = request.messages.iter().map(|message| message.role).collect();
        assert_eq!(roles, [Role::System, Role::System, Role::User, Role::User, Role::Tool, Role::Other]);
        assert_eq!(request.messages[3].content.texts().count(), 1);
        assert!(matches!(request.messages[4].content, Content::Other(_)));
        assert!(!request.messages[5].content.has_text());
    }

    #[test]
    fn calls_are_read_in_every_known_form() {
        let body = r#"{"messages":[{"role":"assistant","tool_calls":[
            {"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}},
            {"function":{"name":"g","arguments":{"x":1}},"index":3},
            {"id":"c","type":"custom","custom":{"name":"h","input":"free"}}, {"id":null,"function":null}, 5]},
            {"role":"assistant","tool_calls":null,"function_call":{"name":"old","arguments":null}}]}"#;
        let request = parse(body);
        let calls = &request.messages[0].calls;
        assert_eq!(calls.len(), 5);
        assert_eq!(calls[0].arguments.text(body.as_bytes()), r#"{"x":1}"#);
        assert_eq!(calls[1].index.unwrap().1, 3);
        assert_eq!(calls[1].arguments.text(body.as_bytes()), r#"{"x":1}"#);
        assert_eq!(calls[2].arguments.text(body.as_bytes()), "free");
        assert_eq!(calls[3].name, None);
        let old = request.messages[1].calls[0];
        assert!(old.legacy && matches!(old.arguments, Arguments::Null(_)));
    }

    #[test]
    fn bodies_that_cannot_be_governed_say_why() {
        for (body, fault) in [
            ("", Fault::Syntax),
            ("nonsense", Fault::Syntax),
            ("null", Fault::Type),
            ("[]", Fault::Type),
            ("{}", Fault::NoMessages),
            (r#"{"messages":null}"#, Fault::Type),
            (r#"{"messages":[1]}"#, Fault::Type),
            (r#"{"messages":[{"role":1}]}"#, Fault::Type),
            (r#"{"messages":[],"messages":[]}"#, Fault::Duplicate),
            (r#"{"messages":[],"mess\u0061ges":[]}"#, Fault::Duplicate),
            (r#"{"messages":[],"MessageS":[]}"#, Fault::Duplicate),
            (r#"{"Stream":true,"messages":[],"stream":false}"#, Fault::Duplicate),
            ("{\"messages\":[],\"me\u{17f}sages\":[]}", Fault::Duplicate),
            (r#"{"Messages":[]}"#, Fault::NoMessages),
            (r#"{"messages":[{"role":"user","Role":"tool"}]}"#, Fault::Duplicate),
            (r#"{"messages":[{"role":"user","role":"tool"}]}"#, Fault::Duplicate),
            (r#"{"messages":[]} x"#, Fault::Syntax),
            (r#"{"messages":[]"#, Fault::Syntax),
        ] {
            assert_eq!(Request::parse(body.as_bytes()).err(), Some(fault), "{body}");
        }
        assert_eq!(Request::parse(b"{\"messages\":[],\"x\":\"\xff\"}").err(), Some(Fault::Utf8));
    }

    #[test]
    fn what_servers_accept_beside_json_is_read_and_keeps_its_place() {
        let deep = format!("{}1{}", "[".repeat(1100), "]".repeat(1100));
        let body = format!(
            "\u{feff}{{\"model\":\"m\",\"temperature\":NaN,\"n\":-Infinity,\"x\":{deep},\"messages\":[{{\"role\":\"user\",\
             \"weight\":Infinity,\"content\":\"q\"}}]}}"
        );
        let request = parse(&body);
        assert_eq!((request.model_name(body.as_bytes()).as_ref(), request.choices), ("m", 1));
        assert_eq!(request.span.of(body.as_bytes()), &body.as_bytes()[3..]);
        assert_eq!(request.messages[0].content.texts().next().unwrap().raw(body.as_bytes()), b"q");
    }

    #[test]
    fn forced_choices_are_told_from_free_ones() {
        for (choice, expected) in [
            (r#""auto""#, Choice::Auto),
            ("null", Choice::Auto),
            (r#""none""#, Choice::None),
            (r#""required""#, Choice::Forced),
            (r#""any""#, Choice::Forced),
            (r#"{"type":"function","function":{"name":"f"}}"#, Choice::Forced),
            (r#"{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[]}}"#, Choice::Auto),
            (r#"{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[]}}"#, Choice::Forced),
        ] {
            let body = format!(r#"{{"messages":[],"tool_choice":{choice}}}"#);
            assert_eq!(parse(&body).choice, expected, "{choice}");
        }
    }

    #[test]
    fn declared_tools_are_found_in_both_spellings() {
        let body = r#"{"messages":[],"tools":[{"type":"function","function":{"name":"a","parameters":{"name":"x"}}},
            {"function":{"name":"b"}},{"type":"openrouter:web_search"}],"functions":[{"name":"c","parameters":{}}]}"#;
        let request = parse(body);
        let names: Vec<_> =
            request.tools.iter().map(|tool| tool.name.map(|name| decode(name, body.as_bytes()))).collect();
        assert_eq!(names, [Some("a".into()), Some("b".into()), None, Some("c".into())]);
    }

    #[test]
    fn keys_are_known_in_any_spelling() {
        let body = r#"{"messages":[{"r\u006fle":"assistant","tool_c\u0061lls":[
            {"\u0069d":"a","functi\u006fn":{"n\u0061me":"f","\u0061rguments":"{}"}}]},
            {"role":"tool","content":[{"typ\u0065":"te\u0078t","t\u0065xt":"r"}]}],
            "tools":[{"functi\u006fn":{"n\u0061me":"f"}}]}"#;
        let (request, bytes) = (parse(body), body.as_bytes());
        let call = request.messages[0].calls[0];
        assert_eq!(
            (decode(call.id.unwrap(), bytes), decode(call.name.unwrap(), bytes)),
            ("a".into(), "f".into())
        );
        assert_eq!(call.arguments.text(bytes), "{}");
        assert_eq!(request.messages[1].content.texts().count(), 1);
        assert!(request.tools[0].name.is_some());
    }

    #[test]
    fn odd_strings_mark_their_message_alone() {
        let request =
            parse(r#"{"messages":[{"role":"user","content":"\ud800"},{"role":"user","content":"x"}]}"#);
        assert!(request.odd && request.messages[0].odd && !request.messages[1].odd);
    }
}
