//! One tool call as spans of the request or the reply that contains it, whole or a piece. Keeps no text.

use std::borrow::Cow;
use wire::body::{Span, Str};
use wire::json::decode;

/// A tool call in an assistant message or in a reply. Members may be missing at some providers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToolCall {
    pub span: Span,
    pub id: Option<Str>,
    pub name: Option<Str>,
    /// The namespace of the tool: two namespaces may have tools of one name.
    pub namespace: Option<Str>,
    pub arguments: Arguments,
    /// The `index` member with its value, as a few providers send it in whole replies too.
    pub index: Option<(Span, u64)>,
    /// The deprecated `function_call` form, which has no id.
    pub legacy: bool,
    /// A call of a custom tool, whose `input` is free text.
    pub custom: bool,
    /// Two JSON readers may see different calls here: a member that decides what runs occurs twice, has a type that
    /// no API gives it, or is written so that only readers which ignore case find it.
    pub ambiguous: bool,
}

impl ToolCall {
    /// The name of its tool, with the namespace.
    pub fn full_name<'a>(&self, body: &'a [u8]) -> Option<Cow<'a, str>> {
        Some(in_namespace(self.namespace, decode(self.name?, body), body))
    }

    /// Whether it has no name and not one byte of arguments: it adds nothing to a call, whichever that is.
    pub fn is_empty(&self) -> bool {
        !self.ambiguous && !self.has_name() && self.arguments.bytes() == 0
    }

    /// Whether it is a placeholder and no call: it has no name, and its arguments hold nothing. Servers that write every
    /// member of a message send placeholders beside texts and calls, and no client can run one.
    pub fn is_placeholder(&self, body: &[u8]) -> bool {
        !self.ambiguous && !self.has_name() && holds_nothing(&self.arguments.text(body))
    }

    fn has_name(&self) -> bool {
        self.name.is_some_and(|name| !name.span.is_empty())
    }
}

/// Whether arguments hold no value at all: `{}`, `null` and white space do not.
pub fn holds_nothing(arguments: &str) -> bool {
    let is_frame = |char: char| char.is_whitespace() || matches!(char, '{' | '}' | '[' | ']' | '"');
    arguments.chars().all(is_frame) || arguments.trim() == "null"
}

/// `name` with its namespace before it, where it has one: `crm.list_orders`. A namespace that repeats the name is none:
/// OpenAI gives it to a call of a plain function that tool search has found (recorded for `defer_loading` and
/// `tool_search_output`).
pub(super) fn in_namespace<'a>(namespace: Option<Str>, name: Cow<'a, str>, body: &'a [u8]) -> Cow<'a, str> {
    let namespace = namespace.map(|namespace| decode(namespace, body));
    match namespace.filter(|namespace| !namespace.is_empty() && *namespace != name) {
        Some(namespace) => format!("{namespace}.{name}").into(),
        None => name,
    }
}

/// The arguments of a call: a string by the specification, other kinds at some servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arguments {
    #[default]
    Absent,
    Null(Span),
    Text(Str),
    /// An object or another JSON value that is not wrapped in a string.
    Value(Span),
}

impl Arguments {
    /// Bytes of them, as written.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.span.len(),
            Self::Value(span) => span.len(),
            Self::Absent | Self::Null(_) => 0,
        }
    }

    /// A copy of the arguments that does not need the body.
    pub fn cut_out(&self, body: &[u8]) -> WrittenArguments {
        let (arguments, bytes) = self.in_own_bytes(body);
        WrittenArguments { arguments, bytes }
    }

    fn in_own_bytes(&self, body: &[u8]) -> (Self, Box<[u8]>) {
        let own = |span: Span| (Span::new(0, span.len()), span.of(body).into());
        match *self {
            Self::Text(text) => {
                let (span, bytes) = own(text.span);
                (Self::Text(Str { span, ..text }), bytes)
            }
            Self::Value(span) => {
                let (span, bytes) = own(span);
                (Self::Value(span), bytes)
            }
            Self::Absent | Self::Null(_) => (*self, Box::default()),
        }
    }

    /// The arguments as JSON text, escapes resolved; empty where there are none.
    pub fn text<'a>(&self, body: &'a [u8]) -> Cow<'a, str> {
        match self {
            Self::Text(text) => decode(*text, body),
            Self::Value(span) => decode(Str { span: *span, ..Str::default() }, body),
            Self::Absent | Self::Null(_) => "".into(),
        }
    }
}

/// Arguments as a request holds them, in bytes of their own.
#[derive(Debug)]
pub struct WrittenArguments {
    arguments: Arguments,
    bytes: Box<[u8]>,
}

impl WrittenArguments {
    /// Arguments that are not spans of a request, as JSON text.
    pub fn from_text(text: &str) -> Self {
        let bytes: Box<[u8]> = text.as_bytes().into();
        Self { arguments: Arguments::Value(Span::new(0, bytes.len())), bytes }
    }

    /// See [`Arguments::text`].
    pub fn text(&self) -> Cow<'_, str> {
        self.arguments.text(&self.bytes)
    }
}
