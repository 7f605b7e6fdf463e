//! One message of a conversation as spans of the request: role, content, calls, and what it answers. Keeps no text.

use super::call::ToolCall;
use std::ops::Deref;
use std::sync::Arc;
use wire::body::{Span, Str};

/// The author of a message.
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

/// The content of a message.
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

    /// Whether it has parts that are not text, such as pictures.
    pub fn has_other_parts(&self) -> bool {
        matches!(self, Self::Parts { parts, .. } if parts.iter().any(|part| part.text.is_none()))
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

/// The calls of a message. Shared, since a message that is known from an earlier request is copied for each later
/// one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calls(Option<Arc<[ToolCall]>>);

impl From<&[ToolCall]> for Calls {
    fn from(calls: &[ToolCall]) -> Self {
        Self((!calls.is_empty()).then(|| calls.into()))
    }
}

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
    /// Adds those of the deprecated form to the others, where a message has both.
    pub fn add(&mut self, more: Self) {
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
    /// A string in it holds `\u0000` or a lone surrogate, or a member is `Content` where `content` is meant: it is
    /// read but never edited.
    pub odd: bool,
    /// Parsers that ignore case read another structure.
    pub is_ambiguous: bool,
    /// It holds the upstream's own record of what came before, such as a compaction: policies that shorten the context
    /// do not reach across it.
    pub seals: bool,
    /// It holds what the model thought, in a form that the upstream checks.
    pub reasons: bool,
}

impl Message {
    /// Its calls and the parts of its content: a message may have any number of them.
    pub fn pieces(&self) -> usize {
        let parts = if let Content::Parts { parts, .. } = &self.content { parts.len() } else { 0 };
        self.calls.len() + parts
    }
}
