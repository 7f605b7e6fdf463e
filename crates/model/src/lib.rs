//! The neutral model, whatever the wire protocol: the conversation of one request (its events in order, its calls paired
//! with their results, its turns, its identity), and as data what policies decide about it (`plan`). Decides nothing itself.

pub mod account;
pub mod adaptation;
pub mod assembled;
pub mod call;
pub mod calls;
pub mod checkpoint;
mod context;
pub mod fact;
pub mod histories;
pub mod identity;
pub mod ids;
pub mod known_tools;
pub mod memo;
pub mod message;
pub mod names;
pub mod outcome;
pub mod pins;
pub mod plan;
pub mod record;
pub mod released;
pub mod request;
pub mod source;
pub mod store;
pub mod store_health;
pub mod summaries;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod tokens;
pub mod uses;
pub mod wrapper;

use crate::account::Account;
use crate::call::Arguments;
use crate::checkpoint::{Checkpoint, Note};
use crate::message::{Content, Message, Role};
use crate::request::{Request, Tool};
use bytes::Bytes;
use calls::{Call, PairedCalls};
use enumset::{EnumSet, EnumSetType};
use identity::{Domain, Hash, Identity};
use known_tools::KnownTools;
use memo::Memo;
use outcome::Likeness;
use released::{Releases, times};
use source::{CLIENT, ItemId, Order, Origin, Source, SourceBytes};
use std::borrow::Cow;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use summaries::Summaries;
use tokens::{Estimate, MESSAGE_OVERHEAD, TOOL_SCHEMA, estimate_json, estimate_text, most_json};
use uses::request_key;
use wire::body::Str;
use wire::json::decode;

/// The conversation of one request, with what is known of it in addition to its bytes.
pub struct Transcript {
    pub request: Arc<Request>,
    /// The bytes that the request was read from: those of the source [`CLIENT`].
    pub body: Bytes,
    /// The further sources; the number of the first is 1.
    sources: Vec<Arc<Source>>,
    order: Order,
    pub memo: Arc<dyn Memo>,
    pub identity: Arc<Identity>,
    pub calls: PairedCalls,
    /// A factor on the class estimate of tokens for this family of models, in percent.
    pub token_factor: u32,
    /// The model's context window in tokens, where that is known.
    pub context_window: Option<u32>,
    /// The upstream has refused this request because it exceeds the context window.
    pub overflowed: bool,
    /// How many messages earlier requests had that were too long and were accepted in a shorter form; ascending.
    pub overflows: Vec<usize>,
    /// How the results of such requests are cut.
    pub length_cuts: Vec<LengthCut>,
    /// The tier of the caller, as the operator named it.
    pub tier: Option<Arc<str>>,
    /// Summaries of what was cleared, where they are kept.
    pub summaries: Option<Arc<dyn Summaries>>,
    /// When the request came, in ms since the epoch. Used only by what is counted.
    pub now_ms: u64,
    /// The hidden exchanges, in order: the position of the assistant's message after each, and the number of its source.
    hidden: Vec<(usize, usize)>,
    /// What was used and billed, where a policy limits that.
    pub account: Option<Arc<Account>>,
    last_assistant: Option<usize>,
    notes: Notes,
    tool_names: OnceLock<Arc<[String]>>,
}

/// The time of an input.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// By a monotonic clock.
    pub at: Instant,
    /// In ms since the epoch.
    pub ms: u64,
}

/// A cut of all results of a request that was too long without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LengthCut {
    /// How many messages the request had.
    pub messages: usize,
    /// How many characters are left of each text of a result.
    pub most_chars: usize,
}

/// Values derived from each item of the client's that is not in [`Request::checkpoint`], which has notes of its own.
#[derive(Default)]
struct Notes(Vec<Note>);

impl Notes {
    fn of_messages(request: &Request) -> Self {
        let new = known_notes(request).len()..request.messages.len();
        Self(new.map(|_| Note::default()).collect())
    }

    fn of<'a>(&'a self, request: &'a Request, message: usize) -> &'a Note {
        let known = known_notes(request);
        known.get(message).unwrap_or_else(|| &self.0[message - known.len()])
    }
}

fn known_notes(request: &Request) -> &[Note] {
    request.checkpoint.as_ref().map_or(&[][..], |checkpoint| &checkpoint.notes)
}

/// What a person has stopped at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stopped {
    /// The conversation of the request.
    Conversation,
    /// All conversations of its caller.
    Caller,
}

/// An item with the bytes that contain it.
#[derive(Clone, Copy)]
pub struct View<'a> {
    pub id: ItemId,
    /// Its position in the conversation; of an item of a hidden exchange, that of the message after the exchange.
    pub index: usize,
    pub message: &'a Message,
    /// The bytes of its source.
    pub body: &'a Bytes,
    transcript: &'a Transcript,
    /// Values derived from it. Counts are of hundredths of a token.
    note: &'a Note,
}

/// So many bytes of a long text are counted where no exact count is needed.
const COUNTED: usize = 4 << 10;

/// A message of fewer bytes is not looked up in the memo.
const LEAST_NAMED: usize = 1 << 10;

impl<'a> View<'a> {
    pub fn memo(&self) -> &'a dyn Memo {
        &*self.transcript.memo
    }

    pub fn identity(&self) -> &'a Identity {
        &self.transcript.identity
    }

    /// The item at another position of its conversation.
    pub(crate) fn item_at(&self, index: usize) -> Self {
        self.transcript.view(index)
    }

    /// The likeness of this result to an `earlier` one, found out by `compare` if it is not known. Of the client's items
    /// alone it is kept: the others may be at the same positions in another request.
    pub(crate) fn likeness_to(&self, earlier: &Self, compare: impl FnOnce() -> Likeness) -> Likeness {
        if self.id.source != CLIENT || earlier.id.source != CLIENT {
            return compare();
        }
        self.note.likenesses.to(earlier.id.index, compare)
    }

    /// Whether the client sends more before the model's next reply.
    pub fn is_followed_by_input(&self) -> bool {
        let next = self.index + 1;
        next < self.transcript.len() && self.transcript.message(next).role != Role::Assistant
    }

    /// See [`Transcript::token_factor`].
    pub fn token_factor(&self) -> u32 {
        self.transcript.token_factor
    }

    /// The bytes of all sources of its conversation.
    pub fn sources(&self) -> SourceBytes<'a> {
        let Transcript { body, sources, .. } = self.transcript;
        SourceBytes { body, further: sources }
    }

    /// The strings of text in the message, decoded.
    pub fn texts(&self) -> impl Iterator<Item = Cow<'a, str>> + '_ {
        self.message.content.texts().map(|text| decode(text, self.body))
    }

    /// The estimated tokens of the whole message, calls included. Of equal long messages one is counted.
    pub fn tokens(&self) -> Estimate {
        if let Some(known) = self.counted_tokens() {
            return known;
        }
        let count = || self.count_tokens(estimate_json);
        if self.message.span.len() < LEAST_NAMED {
            return self.note_count(count());
        }
        let key = self.identity().key.hash(Domain::Tokens, &[self.message.span.of(self.body)]);
        self.note_count(*self.memo().derive(key, count))
    }

    /// Stores the count.
    fn note_count(&self, counted: Estimate) -> Estimate {
        self.note.counted.store(counted.hundredths() + 1, Ordering::Relaxed);
        counted.scaled(self.token_factor())
    }

    /// The stored count.
    pub fn counted_tokens(&self) -> Option<Estimate> {
        let counted = self.note.counted.load(Ordering::Relaxed).checked_sub(1)?;
        Some(Estimate::of_hundredths(counted).scaled(self.token_factor()))
    }

    /// A rough estimate of its tokens: of a long text, only the beginning is counted and scaled.
    pub fn about_tokens(&self) -> Estimate {
        let about = |raw: &[u8]| match raw.split_at_checked(COUNTED) {
            Some((beginning, _)) => estimate_json(beginning).in_proportion(raw.len(), COUNTED),
            None => estimate_json(raw),
        };
        self.counted_tokens().unwrap_or_else(|| self.count_tokens(about).scaled(self.token_factor()))
    }

    /// An upper bound of its tokens. Where they have not been counted, it takes a tenth of the time of a count.
    pub fn most_tokens(&self) -> Estimate {
        self.counted_tokens().unwrap_or_else(|| {
            let known = self.note.most.load(Ordering::Relaxed).checked_sub(1).map(Estimate::of_hundredths);
            let most = known.unwrap_or_else(|| self.count_tokens(most_json));
            self.note.most.store(most.hundredths() + 1, Ordering::Relaxed);
            most.scaled(self.token_factor())
        })
    }

    /// A hash of the text `place` of its own, equal only for texts written with equal bytes.
    pub fn text_digest(&self, place: Str) -> Hash {
        self.identity().key.hash(Domain::Text, &[place.raw(self.body)])
    }

    /// The estimated tokens of one of its strings of text.
    pub fn tokens_of(&self, text: Str) -> Estimate {
        self.counted(b"json", text.raw(self.body), estimate_json)
    }

    /// The estimated tokens of a text that replaces one of its own.
    pub fn tokens_of_other(&self, text: &str) -> Estimate {
        self.counted(b"text", text.as_bytes(), |_| estimate_text(text))
    }

    fn counted(&self, form: &[u8], bytes: &[u8], count: impl Fn(&[u8]) -> Estimate) -> Estimate {
        let key = self.identity().key.hash(Domain::Tokens, &[form, bytes]);
        self.memo().derive(key, || count(bytes)).scaled(self.token_factor())
    }

    fn count_tokens(&self, count: impl Fn(&[u8]) -> Estimate) -> Estimate {
        let raw = |text: Option<Str>| text.map_or(Estimate::ZERO, |text| count(text.raw(self.body)));
        let texts: Estimate = self.message.content.texts().map(|text| raw(Some(text))).sum();
        let calls: Estimate = self
            .message
            .calls
            .iter()
            .map(|call| {
                raw(call.name)
                    + match call.arguments {
                        Arguments::Text(text) => raw(Some(text)),
                        Arguments::Value(span) => count(span.of(self.body)),
                        Arguments::Absent | Arguments::Null(_) => Estimate::ZERO,
                    }
            })
            .sum();
        MESSAGE_OVERHEAD + texts + calls
    }

    /// Bytes of text, escapes as written.
    pub fn text_bytes(&self) -> usize {
        self.message.content.text_bytes()
    }
}

/// A tool's result and the call it answers, if that call is known.
#[derive(Clone, Copy)]
pub struct ToolResult<'a> {
    pub view: View<'a>,
    pub call: Option<&'a Call>,
    /// From the call's release to now, in ms, where the result is new in this request and the release is known.
    pub took_ms: Option<u64>,
}

impl ToolResult<'_> {
    /// The tool's name; empty where the call it answers is unknown.
    pub fn tool(&self) -> &str {
        self.call.map_or("", |call| &call.name)
    }
}

/// One event of a conversation, in the order in which the model saw them.
#[derive(Clone, Copy)]
pub enum Event<'a> {
    /// A user message begins a turn; the message itself follows as [`Event::User`].
    TurnBegins(View<'a>),
    System(View<'a>),
    User(View<'a>),
    /// An assistant's message; its calls follow one by one.
    Assistant(View<'a>),
    /// An item of a hidden exchange. The assistant's message after the exchange follows.
    Hidden(View<'a>),
    /// A call. Of a wrapper call, each of the calls within it, and not the wrapper.
    Call(&'a Call),
    Result(ToolResult<'a>),
    /// Every call of one reply is answered; the view is the result that completed the group.
    ResultsComplete(View<'a>),
}

/// The kind of an event.
#[derive(Debug, EnumSetType)]
pub enum EventKind {
    TurnBegins,
    System,
    User,
    Assistant,
    Hidden,
    Call,
    Result,
    ResultsComplete,
}

/// Some kinds of events.
pub type EventKinds = EnumSet<EventKind>;

impl Event<'_> {
    /// Its kind.
    pub fn kind(&self) -> EventKind {
        match self {
            Self::TurnBegins(_) => EventKind::TurnBegins,
            Self::System(_) => EventKind::System,
            Self::User(_) => EventKind::User,
            Self::Assistant(_) => EventKind::Assistant,
            Self::Hidden(_) => EventKind::Hidden,
            Self::Call(_) => EventKind::Call,
            Self::Result(_) => EventKind::Result,
            Self::ResultsComplete(_) => EventKind::ResultsComplete,
        }
    }

    /// The position of the message that it belongs to.
    pub fn message(&self) -> usize {
        match self {
            Self::TurnBegins(view)
            | Self::System(view)
            | Self::User(view)
            | Self::Assistant(view)
            | Self::Hidden(view)
            | Self::ResultsComplete(view) => view.index,
            Self::Call(call) => call.message,
            Self::Result(result) => result.view.index,
        }
    }

    /// Whether it is a message across which no context is shortened, see [`Message::seals`](message::Message::seals).
    pub fn seals(&self) -> bool {
        match self {
            Self::System(view) | Self::User(view) | Self::Assistant(view) => view.message.seals,
            Self::Result(result) => result.view.message.seals,
            Self::TurnBegins(_) | Self::Hidden(_) | Self::Call(_) | Self::ResultsComplete(_) => false,
        }
    }
}

impl Transcript {
    /// Reads the conversation in `request`, which was read from `body`. Of the rest nothing is known yet.
    pub fn read(
        request: impl Into<Arc<Request>>,
        body: impl Into<Bytes>,
        identity: impl Into<Arc<Identity>>,
        memo: Arc<dyn Memo>,
    ) -> Self {
        Self::with_sources((request.into(), body.into()), (Vec::new(), Order::default()), identity, memo)
    }

    /// Reads the conversation in a request and in these further sources. The number of the first of them is 1.
    pub fn with_sources(
        (request, body): (Arc<Request>, Bytes),
        (sources, order): (Vec<Arc<Source>>, Order),
        identity: impl Into<Arc<Identity>>,
        memo: Arc<dyn Memo>,
    ) -> Self {
        let notes = Notes::of_messages(&request);
        let mut transcript = Self {
            request,
            body,
            sources,
            order,
            memo,
            identity: identity.into(),
            calls: PairedCalls::default(),
            token_factor: 100,
            context_window: None,
            overflowed: false,
            overflows: Vec::new(),
            length_cuts: Vec::new(),
            tier: None,
            summaries: None,
            now_ms: 0,
            hidden: Vec::new(),
            account: None,
            last_assistant: None,
            notes,
            tool_names: OnceLock::new(),
        };
        transcript.calls = PairedCalls::read(&transcript);
        transcript.last_assistant =
            (0..transcript.len()).rev().find(|index| transcript.message(*index).role == Role::Assistant);
        transcript
    }

    /// Adds a hidden exchange, which belongs before the assistant's message at `index`. They are added in order.
    pub fn add_hidden(&mut self, index: usize, exchange: Source) {
        self.sources.push(Arc::new(exchange));
        self.tool_names.take();
        self.hidden.push((index, self.sources.len()));
    }

    /// The bytes of all hidden exchanges.
    pub fn hidden_bytes(&self) -> usize {
        self.hidden.iter().map(|(_, source)| self.sources[source - 1].bytes.len()).sum()
    }

    /// An upper bound of the bytes of all items, of those that are hidden too.
    pub fn most_bytes(&self) -> usize {
        let further: usize = self.sources.iter().map(|source| source.bytes.len()).sum();
        self.request.messages_span.len() + further
    }

    /// How many items the client and the upstream have.
    pub fn len(&self) -> usize {
        self.order.count(self.request.messages.len())
    }

    /// Whether the client and the upstream have no item.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The order of the items that the client and the upstream have.
    pub fn order(&self) -> &Order {
        &self.order
    }

    /// Where an item comes from.
    fn origin(&self, item: ItemId) -> Origin {
        match item.source {
            CLIENT => Origin::Client,
            further => self.sources[further - 1].origin,
        }
    }

    /// The first position of an item that the client has sent now.
    pub fn first_sent(&self) -> usize {
        let is_kept = |index: &usize| self.origin(self.order.id(*index)) == Origin::Upstream;
        if self.sources.is_empty() { 0 } else { (0..self.len()).take_while(is_kept).count() }
    }

    /// The tools that the request or a further source declares, each with the bytes that contain it.
    pub fn tools(&self) -> impl Iterator<Item = (&Tool, &Bytes)> {
        let own = self.request.tools.iter().map(|tool| (tool, &self.body));
        own.chain(
            self.sources.iter().flat_map(|source| source.tools.iter().map(|tool| (tool, &source.bytes))),
        )
    }

    /// The names of these tools, in order, with their namespaces; a tool without a name has none. Equal lists of tools are
    /// read once.
    pub fn tool_names(&self) -> &Arc<[String]> {
        let read = || self.tools().filter_map(|(tool, bytes)| tool.full_name(bytes)).map(Cow::into_owned);
        self.tool_names.get_or_init(|| match self.only_known_tools() {
            Some(known) => Arc::clone(known.names.get_or_init(|| read().collect())),
            None => read().collect(),
        })
    }

    /// The namespaces and servers of tools that the request or a further source describes, likewise.
    pub fn namespaces(&self) -> impl Iterator<Item = (&Tool, &Bytes)> {
        let own = self.request.namespaces.iter().map(|space| (space, &self.body));
        let further = self.sources.iter();
        own.chain(further.flat_map(|source| source.namespaces.iter().map(|space| (space, &source.bytes))))
    }

    /// The key of the request, equal for equal bytes of one caller with the same of the conversation before them.
    pub fn request_key(&self) -> Hash {
        let upstream = self.sources.iter().filter(|source| source.origin == Origin::Upstream);
        let upstream = upstream.map(|source| &*source.bytes);
        let (key, caller) = (&self.identity.key, self.identity.caller);
        request_key(key, caller, self.request.digest(&self.body, key), upstream)
    }

    /// The checkpoint of the first items, where all items are the client's.
    pub fn checkpoint(&self) -> Option<&Checkpoint> {
        self.request.checkpoint.as_deref().filter(|_| self.sources.is_empty())
    }

    /// See [`Identity::conversation`].
    pub fn conversation(&self) -> Hash {
        let conversation = || self.identity.conversation(self.opening());
        let is_short = self.identity.explicit.is_some();
        let known = self.checkpoint().filter(|checkpoint| !is_short && checkpoint.has_user());
        let known = known.and_then(|checkpoint| checkpoint.calls.get());
        let known = known.filter(|known| known.are_of(self.calls.root));
        known.map_or_else(conversation, |known| *known.conversation.get_or_init(conversation))
    }

    /// See [`Identity::lasting_name`].
    pub fn lasting_name(&self) -> Hash {
        self.identity.lasting_name(self.opening())
    }

    /// The texts that open the conversation, as written: of the system messages and the first user message. Of a
    /// conversation without a user, only the first item is taken.
    fn opening(&self) -> impl Iterator<Item = &[u8]> {
        let user = (0..self.len()).find(|index| self.message(*index).role == Role::User);
        let opening = (0..self.len()).take(user.map_or(1, |user| user + 1)).map(|index| self.view(index));
        let opening = opening.filter(|view| matches!(view.message.role, Role::System | Role::User));
        opening.flat_map(|view| view.message.content.texts().map(move |text| text.raw(view.body)))
    }

    /// The estimated tokens of the request's instructions outside of its messages.
    pub fn instructions_tokens(&self) -> Estimate {
        let texts = self.request.instructions.iter();
        let count = |text: &Str| MESSAGE_OVERHEAD + estimate_json(text.raw(&self.body));
        texts.map(count).sum::<Estimate>().scaled(self.token_factor)
    }

    /// An upper bound of [`instructions_tokens`](Self::instructions_tokens), from the number of their bytes.
    pub fn most_instructions_tokens(&self) -> Estimate {
        let texts = self.request.instructions.iter();
        let most = |text: &Str| MESSAGE_OVERHEAD + Estimate::most_of(text.quoted().len());
        texts.map(most).sum::<Estimate>().scaled(self.token_factor)
    }

    /// The estimated tokens of the tools that the request declares. Equal lists of tools are counted once.
    pub fn definition_tokens(&self) -> Estimate {
        self.definitions_digest().map_or(Estimate::ZERO, |digest| self.definition_tokens_of(digest))
    }

    /// The same, where the tools have this [`definitions_digest`](Self::definitions_digest).
    pub fn definition_tokens_of(&self, digest: Hash) -> Estimate {
        let tools = || self.tools().map(|(tool, bytes)| tool.span.of(bytes));
        let count = || tools().map(|tool| TOOL_SCHEMA + estimate_json(tool)).sum::<Estimate>();
        let counted = match self.only_known_tools() {
            Some(known) => *known.counted.get_or_init(count),
            None => *self.memo.derive(digest, count),
        };
        counted.scaled(self.token_factor)
    }

    /// A hash of the tools that the request declares, as written; `None` where it declares none.
    pub fn definitions_digest(&self) -> Option<Hash> {
        let mut tools = self.tools().map(|(tool, bytes)| tool.span.of(bytes)).peekable();
        tools.peek()?;
        let parts = std::iter::once(&b"tools"[..]).chain(tools);
        let hash = || self.identity.key.hash_all(Domain::Tokens, parts);
        Some(match self.only_known_tools() {
            Some(known) => *known.digest.get_or_init(hash),
            None => hash(),
        })
    }

    /// The list of the tools that are declared, if it is known and there are no others.
    fn only_known_tools(&self) -> Option<&KnownTools> {
        self.request.only_known_tools().filter(|_| self.sources.is_empty()).map(|known| &**known)
    }

    /// The newest `most` calls, the newest first.
    pub fn newest_calls(&self, most: usize) -> impl Iterator<Item = &Call> {
        self.calls.calls.iter().rev().take(most)
    }

    /// Stores when the newest calls were handed out, from all known releases of each call, in the order of
    /// [`newest_calls`](Self::newest_calls). `now_ms`: when the request came, in ms since the epoch.
    pub fn learn_releases(&mut self, releases: &[Option<Releases>], now_ms: u64) {
        self.now_ms = now_ms;
        for (call, releases) in self.calls.calls.iter_mut().rev().zip(releases) {
            if let Some((earliest_ms, latest_ms)) = releases.as_ref().and_then(|known| times(call, known)) {
                call.learn_release(earliest_ms, latest_ms);
            }
        }
    }

    /// Has every event read, oldest first.
    pub fn read_events<'a>(&'a self, read: impl FnMut(&Event<'a>)) {
        self.read_events_until(self.len(), EventPosition::default(), read);
    }

    /// Has the events of the items from `position` on read that are before the item at `end`, oldest first. Returns the
    /// position after them.
    pub fn read_events_until<'a>(
        &'a self,
        end: usize,
        mut position: EventPosition,
        mut read: impl FnMut(&Event<'a>),
    ) -> EventPosition {
        for index in position.item..end {
            self.hidden_before(index).for_each(|view| read(&Event::Hidden(view)));
            let view = self.view(index);
            match view.message.role {
                Role::System | Role::Other => read(&Event::System(view)),
                Role::User => {
                    if position.turns.user_begins_turn() {
                        read(&Event::TurnBegins(view));
                    }
                    read(&Event::User(view));
                }
                Role::Assistant => {
                    position.turns.assistant(view.message);
                    read(&Event::Assistant(view));
                    let calls = self.calls.made_by(index).iter().flat_map(Call::as_made);
                    calls.for_each(|call| read(&Event::Call(call)));
                }
                Role::Tool => {
                    read(&Event::Result(self.result(view)));
                    if self.calls.completes_group(index) {
                        read(&Event::ResultsComplete(view));
                    }
                }
            }
        }
        EventPosition { item: end, ..position }
    }

    /// The results among the messages from `first` on.
    pub fn results_from(&self, first: usize) -> impl Iterator<Item = ToolResult<'_>> {
        let tools = (first..self.len()).filter(|index| self.message(*index).role == Role::Tool);
        tools.map(|index| self.result(self.view(index)))
    }

    /// The result that the tool message in `view` is.
    fn result<'a>(&'a self, view: View<'a>) -> ToolResult<'a> {
        let call = self.calls.answered_by(view.index);
        let is_new = self.last_assistant.is_none_or(|last| last < view.index);
        let released_ms = call.and_then(|call| call.released_ms).filter(|_| is_new);
        let took_ms = released_ms.map(|at_ms| self.now_ms.saturating_sub(at_ms));
        ToolResult { view, call, took_ms }
    }

    /// The item at `index`, without its bytes.
    pub fn message(&self, index: usize) -> &Message {
        let id = self.order.id(index);
        match id.source {
            CLIENT => &self.request.messages[id.index],
            further => &self.sources[further - 1].messages[id.index],
        }
    }

    /// The item at `index`.
    pub fn view(&self, index: usize) -> View<'_> {
        self.view_of(self.order.id(index), index)
    }

    /// All items that the client and the upstream have, in order.
    pub fn views(&self) -> impl DoubleEndedIterator<Item = View<'_>> + ExactSizeIterator {
        (0..self.len()).map(|index| self.view(index))
    }

    fn view_of(&self, id: ItemId, index: usize) -> View<'_> {
        let (message, body, note) = match id.source {
            CLIENT => (&self.request.messages[id.index], &self.body, self.notes.of(&self.request, id.index)),
            further => {
                let source = &*self.sources[further - 1];
                (&source.messages[id.index], &source.bytes, &source.notes[id.index])
            }
        };
        View { id, index, message, body, transcript: self, note }
    }

    /// The position of the last assistant message; the messages after it are new in this request.
    pub fn last_assistant(&self) -> Option<usize> {
        self.last_assistant
    }

    /// The index of the user message that begins the running turn; `None` where no user has spoken. Messages in
    /// `continuing` begin none.
    pub fn turn_start(&self, continuing: &[usize]) -> Option<usize> {
        let mut turns = TurnTracker::default();
        let mut start = None;
        for index in 0..self.len() {
            let message = self.message(index);
            match message.role {
                Role::User if turns.user_begins_turn() && !continuing.contains(&index) => start = Some(index),
                Role::Assistant => turns.assistant(message),
                _ => {}
            }
        }
        start
    }

    /// The items of the hidden exchange before the message at `index`.
    pub fn hidden_before(&self, index: usize) -> impl Iterator<Item = View<'_>> {
        let found = self.hidden.binary_search_by_key(&index, |(before, _)| *before).ok();
        let source = found.map(|at| self.hidden[at].1);
        let items = source.map_or(0, |source| self.sources[source - 1].messages.len());
        let ids = (0..items).filter_map(move |index| Some(ItemId { source: source?, index }));
        ids.map(move |id| self.view_of(id, index))
    }
}

/// How far the events of a conversation were read.
#[derive(Clone, Copy, Debug, Default)]
pub struct EventPosition {
    /// The position of the next item.
    item: usize,
    turns: TurnTracker,
}

impl EventPosition {
    /// The position of the next item; all events of those before it were read.
    pub fn item(self) -> usize {
        self.item
    }
}

/// Where turns begin: at a user message that opens the conversation or follows the assistant's text. A user message
/// after tool results, or after another user message, belongs to the running turn.
#[derive(Clone, Copy, Debug, Default)]
struct TurnTracker {
    has_begun: bool,
    assistant_answered: bool,
}

impl TurnTracker {
    fn user_begins_turn(&mut self) -> bool {
        let begins = !self.has_begun || self.assistant_answered;
        self.has_begun = true;
        self.assistant_answered = false;
        begins
    }

    fn assistant(&mut self, message: &Message) {
        self.assistant_answered = message.calls.is_empty() && !matches!(message.content, Content::Absent);
        self.has_begun = true;
    }
}
