//! A request as spans of its body: which members matter to toolrein and where they are. Nothing is copied; the
//! dialects parse it.

use super::call::{ToolCall, in_namespace};
use super::checkpoint::Checkpoint;
use super::identity::{Hash, HashKey};
use super::known_tools::KnownTools;
use super::message::Message;
use std::borrow::Cow;
use std::sync::Arc;
use wire::body::{Span, Str};
use wire::json::{decode, is_named};
use wire::members::Member;

/// A tool that the request declares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tool {
    pub span: Span,
    /// `None` for a tool that is only known by its namespace, or that has no name at all.
    pub name: Option<Str>,
    /// See [`ToolCall::namespace`](super::call::ToolCall::namespace).
    pub namespace: Option<Str>,
    pub description: Option<Str>,
    /// Its JSON Schema.
    pub parameters: Option<Span>,
}

impl Tool {
    /// Its name, with the namespace.
    pub fn full_name<'a>(&self, body: &'a [u8]) -> Option<Cow<'a, str>> {
        Some(in_namespace(self.namespace, decode(self.name?, body), body))
    }

    /// The same tool where its bytes are at `to` instead of at `from`, which is not after it.
    pub(crate) fn moved(&self, from: usize, to: usize) -> Self {
        let span = |span: Span| Span::new(span.start as usize + to - from, span.end as usize + to - from);
        let text = |text: Str| Str { span: span(text.span), ..text };
        Self {
            span: span(self.span),
            name: self.name.map(text),
            namespace: self.namespace.map(text),
            description: self.description.map(text),
            parameters: self.parameters.map(span),
        }
    }
}

/// The effect of `tool_choice` (or the deprecated `function_call`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// Absent, null, `auto`, or a kind that forces nothing.
    #[default]
    Auto,
    None,
    /// `required`, `any`, or a named function: the reply must be a call.
    Forced,
}

/// A request that carries a conversation.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Every member of the top object, in order.
    pub members: Vec<Member>,
    /// The digest of the body, where that was hashed before it was read.
    pub digest: Option<Hash>,
    /// The top object with its braces.
    pub span: Span,
    pub model: Option<Str>,
    /// Instructions outside of the messages, which come before them: each text, in order.
    pub instructions: Vec<Str>,
    pub messages: Vec<Message>,
    /// The name of the conversation or of the reply that the upstream is to continue.
    pub continues: Option<String>,
    /// The id of the last item that it only refers to: the item itself is upstream.
    pub reference: Option<String>,
    /// The upstream keeps the reply.
    pub is_stored: bool,
    /// The reply may be continued by its id, or in its conversation, and the client does not send the history itself.
    pub may_be_continued: bool,
    /// What the model thought is bound to all that it saw before, so that the upstream refuses it after another beginning.
    pub binds_reasoning: bool,
    /// A message has an id that toolrein gave it, which the upstream does not know.
    pub own_ids: bool,
    /// The `messages` array with its brackets.
    pub messages_span: Span,
    pub tools: Vec<Tool>,
    /// The list of tools among its members with its brackets; of several, the last.
    pub tool_list: Option<Span>,
    /// That list, where an earlier request of the conversation had it too.
    pub known_tools: Option<Arc<KnownTools>>,
    /// The namespaces and servers of tools that it describes, each by its own name; their tools are elsewhere.
    pub namespaces: Vec<Tool>,
    /// A list of tools is present, be it empty.
    pub declares_tools: bool,
    /// More tools may be callable than the request shows: its history is upstream, or servers declare tools.
    pub declares_elsewhere: bool,
    /// It declares no shell that the client runs: what shells there are run in the provider's container.
    pub hosts_shell: bool,
    /// Calls of a shell that say of themselves that the provider has run them, each with the index of its message.
    pub in_containers: Vec<(usize, ToolCall)>,
    /// Tools of ours may be declared after those of the client.
    pub takes_more_tools: bool,
    pub choice: Choice,
    /// The name of the one tool that must be called.
    pub forced_tool: Option<String>,
    pub stream: bool,
    /// The most tokens that the model may write in one reply.
    pub output_limit: Option<u64>,
    /// The client asked for a usage chunk.
    pub include_usage: bool,
    /// `n`, the number of choices asked for.
    pub choices: u32,
    /// `response_format` asks for structured output.
    pub structured: bool,
    /// Parsers may read another structure than this one: a name of its own members holds `\u0000` or half of a surrogate
    /// pair, or a message has a member that decides and is written in another case. Nothing in it is edited.
    pub odd: bool,
    /// A string somewhere holds `\u0000` or half of a surrogate pair. Its message is read but never edited.
    pub has_odd_text: bool,
    /// Its first messages, where they were read before or are kept for the next request of the conversation.
    pub checkpoint: Option<Arc<Checkpoint>>,
}

impl Request {
    /// Decides, once all is read, whether parsers may read another structure. `has_odd_text`: an odd string was passed.
    pub fn settle_oddness(&mut self, has_odd_text: bool) {
        self.has_odd_text = has_odd_text;
        self.odd = self.members.iter().any(|member| member.key.odd)
            || self.messages.iter().any(|message| message.is_ambiguous);
    }

    /// The value of the member `name`, if it is present.
    pub fn value(&self, body: &[u8], name: &str) -> Option<Span> {
        self.members.iter().find(|member| is_named(member.key, body, name)).map(|member| member.value)
    }

    /// The digest of its body.
    pub fn digest(&self, body: &[u8], key: &HashKey) -> Hash {
        self.digest.unwrap_or_else(|| key.digest(body))
    }

    /// The model's name; empty where there is none.
    pub fn model_name<'a>(&self, body: &'a [u8]) -> Cow<'a, str> {
        self.model.map_or("".into(), |model| decode(model, body))
    }
}

impl Choice {
    /// The combination of both; the first that restricts anything counts.
    #[must_use]
    pub fn stronger(self, other: Self) -> Self {
        if self == Self::Auto { other } else { self }
    }
}
