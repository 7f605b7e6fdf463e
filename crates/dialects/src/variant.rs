//! The variants of a request: with or without its tools, with the history as text or repaired, without streaming, as a
//! re-ask after blocked calls. Data; the dialects write it.

use crate::refusal::OpenCall;
use crate::upstream_history::UpstreamHistory;
use bytes::Bytes;
use model::adaptation::{Adaptation, Adaptations};
use model::plan::Plan;
use model::request::{Request, Tool};
use model::source::{CLIENT, ItemId};
use wire::body::Span;

/// How notices are placed in one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// A message of its own after the one it belongs to, `system` or, where the client uses that role, `developer`.
    System,
    /// After a blank line at the end of the text of that message.
    Suffix,
    /// In the leading system message. Only the newest notice is placed there, since earlier ones could not stay where
    /// they were.
    Leading,
}

impl Placement {
    /// The placement for the last variant to be tried: no template refuses a suffix.
    #[must_use]
    pub fn of_last_try(self) -> Self {
        if self == Self::System { Self::Suffix } else { self }
    }
}

/// What all variants of a request have in common: the request, what is known of its conversation, and what policies
/// want of it.
#[derive(Clone, Copy)]
pub struct PlannedRequest<'a> {
    pub body: &'a Bytes,
    pub request: &'a Request,
    /// What is known of the items that the upstream keeps.
    pub upstream: Option<&'a UpstreamHistory>,
    pub plan: &'a Plan,
    /// Hidden exchanges, each with the position of the message that follows it.
    pub restored: &'a [(usize, Bytes)],
}

impl<'a> PlannedRequest<'a> {
    /// A request and the plan for it, where nothing else is known.
    pub fn new(body: &'a Bytes, request: &'a Request, plan: &'a Plan) -> Self {
        Self { body, request, upstream: None, plan, restored: &[] }
    }

    /// Where the item at a position is in the body; `None` where the upstream keeps it.
    pub fn span_at(&self, position: usize) -> Option<Span> {
        let item = self.upstream.map_or(ItemId::of_client(position), |upstream| upstream.order.id(position));
        self.span_of(item)
    }

    /// Where an item is in the body; `None` where it is not in it.
    pub fn span_of(&self, item: ItemId) -> Option<Span> {
        if item.source == CLIENT {
            return self.request.messages.get(item.index).map(|message| message.span);
        }
        self.upstream?.references_of(item.source).map(|references| references.span)
    }

    /// The items of the body in its order, each with its place: those that stand for references, and the client's others.
    pub fn items(&self) -> Vec<(Span, ItemId)> {
        let mut items = Vec::with_capacity(self.request.messages.len());
        let referenced = self.upstream.into_iter().flat_map(UpstreamHistory::referenced);
        let mut referenced = referenced.map(|(source, _, at)| (at.span, ItemId::first_of(source))).peekable();
        for (index, message) in self.request.messages.iter().enumerate() {
            let is_before = |(span, _): &(Span, ItemId)| span.start <= message.span.start;
            items.extend(referenced.next_if(is_before));
            let last = items.last().map_or(0, |(span, _)| span.end);
            if message.span.start >= last {
                items.push((message.span, ItemId::of_client(index)));
            }
        }
        items.extend(referenced);
        items
    }

    /// Whether the model may call a tool, as far as that is known.
    pub fn may_call(&self) -> bool {
        let Request { declares_tools, declares_elsewhere, .. } = self.request;
        *declares_tools || *declares_elsewhere || self.tools().next().is_some()
    }

    /// The tools that the request declares, and those that items of the upstream's declare, each with the bytes that
    /// contain it.
    pub fn tools(&self) -> impl Iterator<Item = (&'a Tool, &'a Bytes)> + use<'a> {
        let (body, sources) = (self.body, self.upstream.into_iter().flat_map(|upstream| &upstream.sources));
        let own = self.request.tools.iter().map(move |tool| (tool, body));
        own.chain(sources.flat_map(|source| source.tools.iter().map(|tool| (tool, &source.bytes))))
    }
}

/// How one request is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    pub placement: Placement,
    /// In what it differs from the client's request, since the upstream refuses that.
    pub adapted: Adaptations,
    /// The stream is to end with usage, although the client did not ask for it.
    pub ask_usage: bool,
    pub asking: Option<Asking>,
    /// The tool that a final-answer request forces by name, where the client's answer is a call.
    pub answer: Option<String>,
    /// So many of its first items are sent without what the model thought.
    pub without_thinking: usize,
    /// Calls that the upstream keeps and this request answers as unknown, since its refusals have named them.
    pub open_calls: Vec<OpenCall>,
}

/// What is left of the request's tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tools {
    Kept,
    WithoutChoice,
    Dropped,
}

/// The members that toolrein wrote into a request beside its messages, and that the client did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Added {
    /// The choice of tool.
    pub choice: bool,
    /// `parallel_tool_calls`.
    pub parallel: bool,
    /// Tools beside the client's.
    pub tools: bool,
}

impl Added {
    /// What `sent` has that the client's `request` has not, or not so.
    pub fn of(request: (&Request, &[u8]), sent: (&Request, &[u8])) -> Self {
        let value = |(request, body): (&Request, &[u8]), name: &str| {
            request.value(body, name).map(|value| value.of(body).to_vec())
        };
        let is_new = |name: &str| {
            let written = value(sent, name);
            written.is_some() && written != value(request, name)
        };
        let choice = is_new("tool_choice") || is_new("function_call");
        Self {
            choice,
            parallel: is_new("parallel_tool_calls"),
            tools: sent.0.tools.len() > request.0.tools.len(),
        }
    }
}

/// A re-ask for one choice of a reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asking {
    /// The hidden exchanges since the client's request, oldest first.
    pub rounds: Vec<Bytes>,
    /// The final-answer request: the model is to answer without calls, or with the call that is the answer.
    pub land: bool,
}

impl Variant {
    /// The tool that the final-answer request forces; `None` if it is no such request, or forbids calls.
    pub fn forced_answer(&self) -> Option<&str> {
        let lands = self.asking.as_ref().is_some_and(|asking| asking.land);
        self.answer.as_deref().filter(|_| lands)
    }

    /// Whether it has this adaptation.
    pub fn has(&self, adaptation: Adaptation) -> bool {
        self.adapted.contains(adaptation)
    }

    /// What is left of the request's tools.
    pub fn tools(&self) -> Tools {
        if self.has(Adaptation::Tools) {
            Tools::Dropped
        } else if !self.adapted.is_disjoint(Adaptation::CHOICES) {
            Tools::WithoutChoice
        } else {
            Tools::Kept
        }
    }

    /// What is repaired of the history.
    pub fn repairs(&self) -> Adaptations {
        self.adapted & Adaptation::REPAIRS
    }

    /// The same with these adaptations too.
    #[must_use]
    pub fn with(mut self, adaptations: impl Into<Adaptations>) -> Self {
        self.adapted |= adaptations.into();
        self
    }

    /// The request as the client sent it.
    pub fn plain(placement: Placement) -> Self {
        Self {
            placement,
            adapted: Adaptations::empty(),
            ask_usage: false,
            asking: None,
            answer: None,
            without_thinking: 0,
            open_calls: Vec::new(),
        }
    }
}
