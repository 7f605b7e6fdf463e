//! A checkpoint of the scanner: the members and first messages of a request that was read before, so that the next
//! request of the conversation, which begins with the same bytes, is read from there on. Continues as if all of it
//! had been read; the caller must know that the bytes are the same.

use super::call::ToolCall;
use super::calls::KnownCalls;
use super::histories::NamedMessages;
use super::identity::Hash;
use super::known_tools::KnownTools;
use super::memo::Derived;
use super::message::{Message, Role};
use super::outcome::Likenesses;
use super::request::{Request, Tool};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use wire::body::Scanner;
use wire::members::{Member, SeenMembers};

/// A request up to the end of one of its messages.
#[derive(Debug)]
pub struct Checkpoint {
    /// The part before its messages.
    head: Request,
    seen: SeenMembers,
    list: List,
    messages: Vec<Message>,
    /// The end of the last of them.
    end: usize,
    /// Values derived from each message, for the next reader.
    pub notes: Vec<Note>,
    /// The calls of all its messages.
    pub(crate) calls: OnceLock<KnownCalls>,
    /// The hash of all its messages.
    pub(crate) named: OnceLock<NamedMessages>,
    /// The tools that requests declare after the messages.
    tools: OnceLock<Weak<KnownTools>>,
    /// The key under which the memo keeps it.
    key: OnceLock<Hash>,
    /// The key of the checkpoint from which its messages were read, where there was one.
    earlier: Option<Hash>,
}

/// Values derived from the bytes of one message.
#[derive(Debug, Default)]
pub struct Note {
    /// Its size in hundredths of a token, plus 1; 0 if it has not been counted.
    pub counted: AtomicU64,
    /// An upper bound of all counts, plus 1; 0 if it has not been computed.
    pub most: AtomicU64,
    /// A hash of its content for the model.
    pub content: OnceLock<u128>,
    /// Of a result: in what it differs from earlier ones.
    pub(crate) likenesses: Likenesses,
}

/// The member `messages`.
#[derive(Clone, Copy, Debug)]
pub struct List {
    /// Its key, and where its value starts.
    pub key: wire::body::Str,
    pub start: usize,
}

/// The state before the messages when the scanner reached them.
#[derive(Debug)]
pub struct Head {
    pub request: Request,
    pub seen: SeenMembers,
    pub list: List,
}

impl Derived for Checkpoint {
    fn weight(&self) -> usize {
        Self::weight(self)
    }
}

impl Checkpoint {
    /// The bytes of the body that it covers.
    pub fn bytes(&self) -> usize {
        self.end
    }

    /// The tools that requests declared after these messages, as long as the memo keeps them.
    pub(crate) fn tools(&self) -> Option<Arc<KnownTools>> {
        self.tools.get()?.upgrade()
    }

    /// Requests declare these tools after the messages.
    pub(crate) fn know_tools(&self, tools: &Arc<KnownTools>) {
        self.tools.get_or_init(|| Arc::downgrade(tools));
    }

    /// The memo keeps it under this key.
    pub fn set_key(&self, key: Hash) {
        self.key.get_or_init(|| key);
    }

    /// Its key in the memo, and that of the checkpoint from which its messages were read.
    pub fn keys(&self) -> impl Iterator<Item = Hash> {
        self.key.get().copied().into_iter().chain(self.earlier)
    }

    /// Whether one of its messages is the user's.
    pub(crate) fn has_user(&self) -> bool {
        self.messages.iter().any(|message| message.role == Role::User)
    }

    /// An estimate of its memory. Includes every kind of element that a few bytes of a request can add.
    pub fn weight(&self) -> usize {
        let pieces: usize = self.messages.iter().map(Message::pieces).sum();
        let messages = self.messages.len() * (size_of::<Message>() + size_of::<Note>());
        let members =
            self.head.members.len() * size_of::<Member>() + self.head.tools.len() * size_of::<Tool>();
        let calls = KnownCalls::weight_of(&self.messages);
        size_of::<Self>() + messages + pieces * size_of::<ToolCall>() + calls + members
    }

    /// The first messages of `request`, as many as end within `bytes`; `None` where there are none.
    fn of(head: Head, request: &Request, bytes: usize) -> Option<Self> {
        let count = request.messages.partition_point(|message| message.span.end as usize <= bytes);
        let messages = request.messages[..count].to_vec();
        let end = messages.last()?.span.end as usize;
        let known = request.checkpoint.as_deref();
        let earlier = known.and_then(|known| known.key.get().copied());
        let known = known.map_or(&[][..], |known| &known.notes);
        let mut notes: Vec<Note> = known.iter().take(count).map(Note::copy).collect();
        notes.resize_with(count, Note::default);
        let Head { request: head, seen, list } = head;
        Some(Self {
            head,
            seen,
            list,
            messages,
            end,
            notes,
            calls: OnceLock::new(),
            named: OnceLock::new(),
            tools: OnceLock::new(),
            key: OnceLock::new(),
            earlier,
        })
    }

    /// Puts a checkpoint of the first `bytes` of the body into `request`, unless the one from which it was read covers
    /// as much. `head` is what was read before its messages.
    pub fn renew(request: &mut Request, head: Option<Head>, bytes: usize) {
        let covered = request.checkpoint.as_ref().map_or(0, |known| known.bytes());
        if covered < bytes
            && let Some(head) = head
            && let Some(checkpoint) = Self::of(head, request, bytes)
        {
            request.checkpoint = Some(Arc::new(checkpoint));
        }
    }

    /// A request up to its last known message, and the scanner that continues there.
    pub fn resume<'a>(self: &Arc<Self>, body: &'a [u8]) -> (Scanner<'a>, Request, Head) {
        let mut request = self.head.clone();
        request.messages.reserve(self.messages.len() + MORE);
        request.messages.extend_from_slice(&self.messages);
        request.checkpoint = Some(Arc::clone(self));
        let odd = self.head.has_odd_text || self.messages.iter().any(|message| message.odd);
        let scanner = Scanner::in_array(body, self.end, odd);
        (scanner, request, Head { request: self.head.clone(), seen: self.seen, list: self.list })
    }
}

/// Most requests add fewer messages than they repeat.
const MORE: usize = 32;

impl Note {
    fn copy(&self) -> Self {
        let copy = |number: &AtomicU64| AtomicU64::new(number.load(Ordering::Relaxed));
        Self {
            counted: copy(&self.counted),
            most: copy(&self.most),
            content: self.content.clone(),
            likenesses: self.likenesses.copy(),
        }
    }
}
