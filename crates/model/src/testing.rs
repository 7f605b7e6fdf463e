//! A conversation for tests, written item by item in a format that no protocol has: one line of JSON an item. What is
//! tested with it depends on no dialect. Behind the feature `testing`.

use crate::Transcript;
use crate::call::{Arguments, ToolCall};
use crate::checkpoint::{Checkpoint, Head, List};
use crate::identity::{Hash, Identity};
use crate::memo::{DerivedValue, Memo, NoMemo};
use crate::message::{Calls, Content, Message, Part, Role};
use crate::request::{Request, Tool};
use crate::source::{Origin, Source};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use wire::body::{Scanner, Span, Str};
use wire::json::quote;
use wire::members::SeenMembers;

/// A memo that forgets nothing.
#[derive(Default)]
pub struct KeepAll(Mutex<HashMap<Hash, DerivedValue>>);

impl KeepAll {
    /// One that requests share.
    pub fn shared() -> Arc<dyn Memo> {
        Arc::new(Self::default())
    }
}

impl Memo for KeepAll {
    fn find(&self, key: Hash) -> Option<DerivedValue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()
    }

    fn keep(&self, key: Hash, value: DerivedValue, _weight: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key, value);
    }
}

/// One message of a [`SampleRequest`].
#[derive(Clone, Debug)]
pub struct SampleItem {
    role: Role,
    content: Vec<SamplePart>,
    /// The content is a list, also where it has one part.
    is_list: bool,
    /// JSON in the place of a content that the API knows.
    value: Option<String>,
    calls: Vec<SampleCall>,
    /// The id of the call that it answers.
    answers: Option<String>,
    seals: bool,
}

/// A part of a message's content.
#[derive(Clone, Debug)]
enum SamplePart {
    /// A JSON string with its quotes.
    Text(String),
    /// The same with members beside it, as JSON.
    TextBeside(String, String),
    /// Anything but text, such as a picture, as JSON.
    Other(String),
}

/// A call of a [`SampleRequest`].
#[derive(Clone, Debug)]
pub struct SampleCall {
    pub id: String,
    pub tool: String,
    pub arguments: String,
}

/// A call of `tool` with these arguments.
pub fn call(id: &str, tool: &str, arguments: &str) -> SampleCall {
    SampleCall { id: id.to_owned(), tool: tool.to_owned(), arguments: arguments.to_owned() }
}

/// A system message.
pub fn system(text: &str) -> SampleItem {
    SampleItem::new(Role::System).text(text)
}

/// A user's message.
pub fn user(text: &str) -> SampleItem {
    SampleItem::new(Role::User).text(text)
}

/// A reply in text.
pub fn assistant(text: &str) -> SampleItem {
    SampleItem::new(Role::Assistant).text(text)
}

/// A reply of calls, without text.
pub fn reply(calls: impl IntoIterator<Item = SampleCall>) -> SampleItem {
    SampleItem::new(Role::Assistant).calling(calls)
}

/// The result of the call `id`.
pub fn result(id: &str, text: &str) -> SampleItem {
    SampleItem::result_of(id).text(text)
}

/// The messages of a turn in which `tool` was called and answered so many times, one call a reply.
pub fn answered_calls(tool: &str, calls: usize) -> Vec<SampleItem> {
    let steps = (0..calls).flat_map(|at| {
        let id = format!("c{at}");
        [reply([call(&id, tool, &format!("{{\"n\":{at}}}"))]), result(&id, &format!("r{at}"))]
    });
    std::iter::once(user("q")).chain(steps).collect()
}

impl SampleItem {
    fn new(role: Role) -> Self {
        let (content, calls) = (Vec::new(), Vec::new());
        Self { role, content, is_list: false, value: None, calls, answers: None, seals: false }
    }

    /// A message of a role that is none of those known, without content.
    pub fn of_another_role() -> Self {
        Self::new(Role::Other)
    }

    /// A user's message without content, to which parts are added.
    pub fn user_parts() -> Self {
        Self { is_list: true, ..Self::new(Role::User) }
    }

    /// A result without content, to which parts are added as a list.
    pub fn result_parts(id: &str) -> Self {
        Self { is_list: true, ..Self::result_of(id) }
    }

    /// A result without content.
    pub fn result_of(id: &str) -> Self {
        Self { answers: Some(id.to_owned()), ..Self::new(Role::Tool) }
    }

    /// The same with one more text.
    #[must_use]
    pub fn text(self, text: &str) -> Self {
        self.raw_text(&quote(text))
    }

    /// The same with one more text, given as a JSON string with its quotes and escapes.
    #[must_use]
    pub fn raw_text(mut self, text: &str) -> Self {
        self.content.push(SamplePart::Text(text.to_owned()));
        self
    }

    /// The same with one more text as a part that has other members too, given as JSON without braces.
    #[must_use]
    pub fn text_beside(mut self, text: &str, members: &str) -> Self {
        self.is_list = true;
        self.content.push(SamplePart::TextBeside(quote(text), members.to_owned()));
        self
    }

    /// The same with this JSON as its content: `null`, or a type that the API does not know.
    #[must_use]
    pub fn value(mut self, json: &str) -> Self {
        self.value = Some(json.to_owned());
        self
    }

    /// The same with one more part that is no text, given as JSON.
    #[must_use]
    pub fn other(mut self, part: &str) -> Self {
        self.is_list = true;
        self.content.push(SamplePart::Other(part.to_owned()));
        self
    }

    /// The same with these calls after those that it has.
    #[must_use]
    pub fn calling(mut self, calls: impl IntoIterator<Item = SampleCall>) -> Self {
        self.calls.extend(calls);
        self
    }

    /// The same as the upstream's own record of what came before, see [`Message::seals`].
    #[must_use]
    pub fn sealing(mut self) -> Self {
        self.seals = true;
        self
    }

    /// Its role.
    pub fn role(&self) -> Role {
        self.role
    }
}

/// A hidden exchange of these items.
pub fn hidden_exchange<'a>(items: impl IntoIterator<Item = &'a SampleItem>) -> Source {
    source(Origin::Blocked, items)
}

/// A source of these items.
pub fn source<'a>(origin: Origin, items: impl IntoIterator<Item = &'a SampleItem>) -> Source {
    let SampleRequest { request, body } = SampleRequest::new(items);
    Source::new(origin, body.into(), request.messages)
}

/// A request of items, with the bytes that its spans are of. A test that needs another fact of the request sets it.
#[derive(Clone, Debug)]
pub struct SampleRequest {
    pub request: Request,
    body: Vec<u8>,
}

impl SampleRequest {
    /// A request for the model `m` with these messages.
    pub fn new<'a>(items: impl IntoIterator<Item = &'a SampleItem>) -> Self {
        let mut made = Self { request: Request { choices: 1, ..Request::default() }, body: Vec::new() };
        made.request.model = Some(made.string(&quote("m")));
        made.line("\n");
        let start = made.body.len();
        for item in items {
            made.message(item);
        }
        made.request.messages_span = made.since(start);
        made.request.span = made.since(0);
        made
    }

    /// The same with one more tool, whose schema is given as JSON.
    #[must_use]
    pub fn declaring(mut self, name: &str, parameters: &str) -> Self {
        let start = self.body.len();
        self.line("{\"tool\":");
        let name = Some(self.string(&quote(name)));
        self.line(",\"parameters\":");
        let schema = self.body.len();
        self.line(parameters);
        let parameters = Some(self.since(schema));
        self.line("}\n");
        self.request.tools.push(Tool { span: self.since(start), name, parameters, ..Tool::default() });
        self.request.declares_tools = true;
        self.request.takes_more_tools = true;
        self.request.span = self.since(0);
        self
    }

    /// The same with one more tool, all of whose definition is given as JSON of any form. One of the provider's has no
    /// name.
    #[must_use]
    pub fn defining(mut self, name: Option<&str>, definition: &str) -> Self {
        let name = name.map(|name| self.string(&quote(name)));
        self.line("\n");
        let start = self.body.len();
        self.line(definition);
        self.request.tools.push(Tool { span: self.since(start), name, ..Tool::default() });
        self.line("\n");
        self.request.declares_tools = true;
        self.request.takes_more_tools = true;
        self.request.span = self.since(0);
        self
    }

    /// The same where its first `messages` were read before, up to the checkpoint that the memo keeps under `key`.
    #[must_use]
    pub fn with_checkpoint(mut self, messages: usize, key: Hash) -> Self {
        let list = List { key: Str::default(), start: 0 };
        let head = Head { request: Request::default(), seen: SeenMembers::default(), list };
        let end = self.request.messages[messages - 1].span.end as usize;
        Checkpoint::renew(&mut self.request, Some(head), end);
        self.request.checkpoint.iter().for_each(|checkpoint| checkpoint.set_key(key));
        self
    }

    /// The bytes that the spans are of.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// The conversation, of which nothing is known but the request.
    pub fn transcript(&self, identity: &Identity) -> Transcript {
        Transcript::read(self.request.clone(), self.body.clone(), identity.clone(), Arc::new(NoMemo))
    }

    fn message(&mut self, item: &SampleItem) {
        let start = self.body.len();
        self.line("{\"content\":");
        let content = self.content(item);
        self.line(",\"calls\":[");
        let calls: Vec<ToolCall> = item.calls.iter().map(|call| self.call(call)).collect();
        self.line("],\"answers\":");
        let tool_call_id = item.answers.as_ref().map(|id| self.string(&quote(id)));
        self.line("}");
        let odd = item.content.iter().any(|part| match part {
            SamplePart::Text(text) | SamplePart::TextBeside(text, _) => is_odd(text),
            SamplePart::Other(_) => false,
        });
        self.request.messages.push(Message {
            span: self.since(start),
            role: item.role,
            content,
            calls: Calls::from(&*calls),
            tool_call_id,
            name: None,
            odd,
            is_ambiguous: false,
            seals: item.seals,
            reasons: false,
        });
        self.request.has_odd_text |= odd;
        self.line("\n");
    }

    fn content(&mut self, item: &SampleItem) -> Content {
        if let Some(value) = &item.value {
            let start = self.body.len();
            self.line(value);
            let span = self.since(start);
            return if value == "null" { Content::Null(span) } else { Content::Other(span) };
        }
        if let [SamplePart::Text(text)] = item.content.as_slice()
            && !item.is_list
        {
            return Content::Text(self.string(text));
        }
        if item.content.is_empty() && !item.is_list {
            return Content::Absent;
        }
        let start = self.body.len();
        let parts = item.content.iter().map(|part| self.part(part)).collect();
        Content::Parts { span: self.since(start), parts }
    }

    fn part(&mut self, part: &SamplePart) -> Part {
        let start = self.body.len();
        let text = match part {
            SamplePart::Text(text) => Some(self.string(text)),
            SamplePart::TextBeside(text, members) => {
                self.line("{\"text\":");
                let text = self.string(text);
                self.line(&format!(",{members}}}"));
                Some(text)
            }
            SamplePart::Other(json) => {
                self.line(json);
                None
            }
        };
        Part { span: self.since(start), text }
    }

    fn call(&mut self, call: &SampleCall) -> ToolCall {
        let start = self.body.len();
        let id = Some(self.string(&quote(&call.id)));
        let name = Some(self.string(&quote(&call.tool)));
        let arguments = Arguments::Text(self.string(&quote(&call.arguments)));
        ToolCall { span: self.since(start), id, name, arguments, ..ToolCall::default() }
    }

    /// Writes a JSON string, given with its quotes.
    fn string(&mut self, quoted: &str) -> Str {
        let start = self.body.len();
        self.line(quoted);
        let span = self.since(start);
        let mut scanner = Scanner::within(&self.body, span);
        scanner.string().unwrap_or_default()
    }

    fn line(&mut self, text: &str) {
        self.body.extend_from_slice(text.as_bytes());
    }

    fn since(&self, start: usize) -> Span {
        Span::new(start, self.body.len())
    }
}

/// Whether the JSON string holds what many parsers cannot read.
fn is_odd(quoted: &str) -> bool {
    let bytes = quoted.as_bytes();
    Scanner::tolerant(bytes).string().is_ok_and(|text| text.odd)
}
