//! The calls of a conversation, paired with their results by id and, where ids repeat or are missing, by position;
//! the key of each call, and the digest of what the model saw before it. Knows no policy and no time of its own.

use super::context::{
    content_hash, context_after, context_without_ids_after, hash_of_nothing, key_without_id, says_nothing,
};
use super::identity::{CallKey, Domain, Hash, HashKey, Identity};
use super::ids::is_random;
use super::memo::Memo;
use super::names::DeclaredNames;
use super::wrapper::{WrapperKind, inner_calls, wrapper_kind};
use super::{Transcript, View};
use crate::call::{Arguments, ToolCall, WrittenArguments};
use crate::message::{Message, Role};
use std::borrow::Cow;
use std::cell::LazyCell;
use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use wire::json::{canonical, decode_bytes};

/// What a call is by itself and by what came before it: equal in every later request of its conversation, and shared by
/// them.
#[derive(Debug)]
pub struct CallFacts {
    /// The index of its assistant message.
    pub message: usize,
    /// Its position among the calls of that message, where a wrapper call counts as the calls within it; of a wrapper
    /// call, the position of the first of them.
    pub position: usize,
    /// Its index in the message's list of calls; a call within a wrapper call has that of the wrapper.
    pub index: usize,
    /// Its number among all calls of the conversation, from 1: texts for the model use it.
    pub ordinal: usize,
    pub key: CallKey,
    /// The key under which it is found whatever id it has now; of a call within a wrapper call, that of the wrapper.
    pub key_without_id: CallKey,
    /// The digest of what the model saw before it made the call.
    pub context: Hash,
    /// As bytes, since it is only compared and hashed; empty where it has none.
    id: Box<[u8]>,
    /// Its id is random, judged by its form.
    pub has_random_id: bool,
    /// The tool that it means: a declared one if the name is near ([`DeclaredNames::meant`]), else the name as the model wrote it.
    pub name: Arc<str>,
    /// The name as the model wrote it, where that differs.
    written_name: Option<Arc<str>>,
    /// The hash of the name as the model wrote it; of a call within a wrapper call, that of the wrapper's.
    name_hash: Hash,
    /// The hash of its canonical arguments.
    pub arguments: Hash,
    /// Its arguments as the request holds them, copied.
    pub written_arguments: Arc<WrittenArguments>,
}

/// One tool call that the model made earlier in the conversation.
#[derive(Clone, Debug)]
pub struct Call {
    facts: Arc<CallFacts>,
    /// The index of the message that answers it.
    pub result: Option<usize>,
    /// When it was handed to the client, in ms since the epoch, if the state store knows it. If several times may
    /// belong to this call, the latest is used, so that no limit counts too few calls.
    pub released_ms: Option<u64>,
    /// The earliest of these times, if there are several.
    pub earliest_ms: Option<u64>,
    /// A person has approved it with an approval that also holds for equal calls, as the state store knows.
    pub approved: bool,
    /// The calls within it, where it is a wrapper call. The client runs these in its place.
    inner: Vec<Call>,
}

impl Deref for Call {
    type Target = CallFacts;

    fn deref(&self) -> &CallFacts {
        &self.facts
    }
}

impl CallFacts {
    /// Its arguments as JSON text, as the client sent them; empty where it sent none.
    pub fn arguments_text(&self) -> Cow<'_, str> {
        self.written_arguments.text()
    }

    /// The tool's name as the model wrote it.
    pub fn written_name(&self) -> &str {
        self.written_name.as_deref().unwrap_or(&self.name)
    }
}

impl Call {
    fn new(facts: CallFacts) -> Self {
        let facts = Arc::new(facts);
        Self { facts, result: None, released_ms: None, earliest_ms: None, approved: false, inner: Vec::new() }
    }

    /// The calls that the client makes of it: those within a wrapper call, else the call itself.
    pub fn as_made(&self) -> &[Self] {
        if self.inner.is_empty() { std::slice::from_ref(self) } else { &self.inner }
    }

    /// Stores when it was handed out: the earliest and the latest possible time, in ms since the epoch.
    pub(super) fn learn_release(&mut self, earliest_ms: u64, latest_ms: u64) {
        self.released_ms = Some(latest_ms);
        self.earliest_ms = (earliest_ms < latest_ms).then_some(earliest_ms);
        self.inner.iter_mut().for_each(|inner| inner.learn_release(earliest_ms, latest_ms));
    }

    /// Reads the calls within it, if it is a wrapper call. Those that cannot be read count as one call.
    fn unwrap_inner(&mut self, declared: &DeclaredNames<&str>, key: &HashKey) {
        let Some(kind) = wrapper_kind(self.written_name()) else { return };
        let Ok(arguments) = serde_json::from_str(&self.arguments_text()) else { return };
        let calls = inner_calls(&arguments).into_iter();
        let calls = calls
            .filter(|call| kind == WrapperKind::Parallel || declared.meant(&call.name).is_some())
            .enumerate();
        let calls = calls.map(|(nth, call)| {
            let has_random_id = is_random(&self.id, &call.name);
            let (name, written_name) = meant_name(&call.name, declared);
            Self::new(CallFacts {
                name,
                written_name,
                has_random_id,
                arguments: canonical_hash(&call.arguments, key),
                written_arguments: Arc::new(WrittenArguments::from_text(&call.arguments)),
                position: self.position + nth,
                id: self.id.clone(),
                ..*self.facts
            })
        });
        self.inner = calls.collect();
    }
}

/// The name of the tool that a call of `name` means, and the name as the model wrote it, where that differs.
fn meant_name(name: &str, declared: &DeclaredNames<&str>) -> (Arc<str>, Option<Arc<str>>) {
    match declared.meant(name).filter(|meant| *meant != name) {
        Some(meant) => (meant.into(), Some(name.into())),
        None => (name.into(), None),
    }
}

/// So many calls are searched for one of the same name: most conversations call few tools.
const SEARCHED_FOR_NAME: usize = 8;

/// All calls, and the messages that answer them.
#[derive(Clone, Debug, Default)]
pub struct PairedCalls {
    pub calls: Vec<Call>,
    /// See [`Identity::root`].
    pub root: Hash,
    /// The digest of all messages: what the model sees before its next reply.
    pub context: Hash,
    /// The same without the ids of calls and results, which some clients number anew in every request.
    pub context_without_ids: Hash,
    /// For each message: what was before it, and the first of its own calls or of the call it answers.
    by_message: Vec<MessageCalls>,
    /// The unanswered calls of the last assistant message.
    open: VecDeque<usize>,
    /// A call among them may be another one after later messages, or holds others: they are not kept for later requests.
    is_unsettled: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct MessageCalls {
    context_before: Hash,
    /// The range in `calls` of the calls that an assistant message made.
    first: usize,
    end: usize,
    /// The call that a tool message answers.
    answers: Option<usize>,
    completes: bool,
}

/// The calls of the messages of a checkpoint: later requests that begin with these messages go on from there.
#[derive(Debug)]
pub struct KnownCalls {
    /// A hash of the names of the tools that the request declared: which tools calls mean depends on them.
    tools: Hash,
    paired: PairedCalls,
    /// See [`Identity::conversation`].
    pub(super) conversation: OnceLock<Hash>,
}

impl KnownCalls {
    /// Whether they are those of a conversation with this root.
    pub(super) fn are_of(&self, root: Hash) -> bool {
        self.paired.root == root
    }

    fn are_for(&self, transcript: &Transcript, root: Hash) -> bool {
        self.are_of(root) && self.tools == names_hash(transcript)
    }

    /// An estimate of the memory that they take for `messages`, in bytes.
    pub(super) fn weight_of(messages: &[Message]) -> usize {
        let of_call = |call: &ToolCall| size_of::<Call>() + size_of::<CallFacts>() + call.span.len();
        let calls: usize = messages.iter().flat_map(|message| &message.calls).map(of_call).sum();
        messages.len() * size_of::<MessageCalls>() + calls
    }
}

fn names_hash(transcript: &Transcript) -> Hash {
    let names = || transcript.tool_names().iter().map(|name| name.as_bytes());
    let hash = || transcript.identity.key.hash_all(Domain::Prefix, names());
    transcript.only_known_tools().map_or_else(hash, |known| *known.names_hash.get_or_init(hash))
}

impl PairedCalls {
    /// Finds and pairs the calls of the client's and the upstream's items.
    pub(super) fn read(transcript: &Transcript) -> Self {
        let root = transcript.identity.root();
        let checkpoint = transcript.checkpoint();
        let known = checkpoint.and_then(|checkpoint| checkpoint.calls.get());
        let known = known.filter(|known| known.are_for(transcript, root)).map(|known| &known.paired);
        let nothing = Self { root, context: root, context_without_ids: root, ..Self::default() };
        let mut paired = known.unwrap_or(&nothing).with_room(transcript);
        let kept = checkpoint.filter(|checkpoint| checkpoint.calls.get().is_none());
        let declared =
            LazyCell::new(|| DeclaredNames::new(transcript.tool_names().iter().map(String::as_str)));
        let nothing_said = LazyCell::new(|| hash_of_nothing(&transcript.identity.key));
        for index in paired.by_message.len()..transcript.len() {
            paired.add(transcript.view(index), &declared, &nothing_said);
            let kept = kept.filter(|kept| kept.notes.len() == index + 1 && !paired.is_unsettled);
            if let Some(kept) = kept {
                let (tools, conversation) = (names_hash(transcript), OnceLock::new());
                // A checkpoint is shared by requests: one of them sets it.
                let _ = kept.calls.set(KnownCalls { tools, paired: paired.clone(), conversation });
            }
        }
        paired
    }

    /// A copy with room for the further messages of `transcript`.
    fn with_room(&self, transcript: &Transcript) -> Self {
        let further = self.by_message.len()..transcript.len();
        let further_calls: usize = further.map(|index| transcript.message(index).calls.len()).sum();
        let mut calls = Vec::with_capacity(self.calls.len() + further_calls);
        calls.extend_from_slice(&self.calls);
        let mut by_message = Vec::with_capacity(transcript.len());
        by_message.extend_from_slice(&self.by_message);
        Self { calls, by_message, open: self.open.clone(), ..*self }
    }

    /// Adds the next message. `nothing_said`: see [`hash_of_nothing`].
    fn add<'a>(
        &mut self,
        view: View<'_>,
        declared: &impl Deref<Target = DeclaredNames<&'a str>>,
        nothing_said: &impl Deref<Target = Hash>,
    ) {
        let View { index, message, body, note, transcript, .. } = view;
        let mut place = MessageCalls { context_before: self.context, ..MessageCalls::default() };
        place.first = self.calls.len();
        match message.role {
            Role::Assistant => {
                let mut made = 0;
                for (nth, call) in message.calls.iter().enumerate() {
                    if call.is_placeholder(body) {
                        self.is_unsettled = true;
                        if !is_answered(call, index, transcript) {
                            continue;
                        }
                    }
                    let facts = self.read_call(call, view, declared);
                    let mut call =
                        Call::new(CallFacts { message: index, position: made, index: nth, ..facts });
                    call.unwrap_inner(declared, &transcript.identity.key);
                    self.is_unsettled |= !call.inner.is_empty();
                    made += call.as_made().len();
                    self.calls.push(call);
                }
                self.open.clear();
                self.open.extend(place.first..self.calls.len());
            }
            Role::Tool => {
                let id = message.tool_call_id.map(|id| decode_bytes(id, body));
                place.answers = take_answered(&mut self.open, id.as_deref(), &self.calls);
                place.completes = place.answers.is_some() && self.open.is_empty();
                if let Some(call) = place.answers {
                    self.calls[call].result = Some(index);
                }
            }
            _ => {}
        }
        place.end = self.calls.len();
        let key = &transcript.identity.key;
        let content = match says_nothing(message) {
            true => **nothing_said,
            false => Hash(*note.content.get_or_init(|| content_hash(message, body, key).0)),
        };
        self.add_to_contexts(place, content);
        self.by_message.push(place);
    }

    /// The next call, without its place in its message.
    fn read_call<'a>(
        &self,
        call: &ToolCall,
        view: View<'_>,
        declared: &impl Deref<Target = DeclaredNames<&'a str>>,
    ) -> CallFacts {
        let (body, identity) = (view.body, view.identity());
        let id: Box<[u8]> = call.id.map_or_else(Box::default, |id| decode_bytes(id, body).into());
        let written = call.full_name(body).unwrap_or_default();
        let arguments = arguments_hash_of(&call.arguments, body, identity, view.memo());
        let key = identity.call_key(self.root, &id, &written, arguments);
        let has_random_id = is_random(&id, &written);
        let (name, written_name, name_hash) = self.known_name(&written).unwrap_or_else(|| {
            let (name, written_name) = meant_name(&written, declared);
            (name, written_name, identity.name_hash(&written))
        });
        CallFacts {
            message: view.index,
            position: 0,
            index: 0,
            ordinal: self.calls.len() + 1,
            key,
            key_without_id: key_without_id(self.context_without_ids, name_hash, arguments),
            context: self.context,
            id,
            has_random_id,
            name,
            written_name,
            name_hash,
            arguments,
            written_arguments: Arc::new(call.arguments.cut_out(body)),
        }
    }

    /// As [`meant_name`], with the hash of the written name, from one of the last calls, where one has this name too.
    fn known_name(&self, written: &str) -> Option<(Arc<str>, Option<Arc<str>>, Hash)> {
        let mut near = self.calls.iter().rev().take(SEARCHED_FOR_NAME);
        let known = near.find(|call| call.written_name() == written)?;
        Some((Arc::clone(&known.name), known.written_name.clone(), known.name_hash))
    }

    /// Adds a message with this content to the digests of what the model saw. A result belongs to the call that it
    /// answers.
    fn add_to_contexts(&mut self, place: MessageCalls, content: Hash) {
        let made = &self.calls[place.first..place.end];
        let keys = made.iter().chain(place.answers.map(|call| &self.calls[call])).map(|call| call.key);
        self.context = context_after(self.context, content, keys);
        let calls = made.iter().map(|call| (call.name_hash, call.arguments));
        let answered = place.answers.map(|call| (Hash::default(), Hash(self.calls[call].position as u128)));
        let calls = calls.chain(answered);
        self.context_without_ids = context_without_ids_after(self.context_without_ids, content, calls);
    }

    /// How many calls were made, each within a wrapper call counted.
    pub fn made(&self) -> usize {
        self.calls.iter().map(|call| call.as_made().len()).sum()
    }

    /// The calls that the assistant message at `index` made.
    pub fn made_by(&self, index: usize) -> &[Call] {
        let place = self.by_message[index];
        &self.calls[place.first..place.end]
    }

    /// The call that the tool message at `index` answers.
    pub fn answered_by(&self, index: usize) -> Option<&Call> {
        self.by_message[index].answers.map(|call| &self.calls[call])
    }

    /// Whether the tool message at `index` answers the last open call of its group.
    pub fn completes_group(&self, index: usize) -> bool {
        self.by_message[index].completes
    }

    /// The digest of what the model saw before the message at `index`; after the last message, of all.
    pub fn context_before(&self, index: usize) -> Hash {
        self.by_message.get(index).map_or(self.context, |place| place.context_before)
    }

    /// The keys under which the calls of the newest message with calls were handed out if the upstream gave them no
    /// ids; newest first. Clients that need ids invent some, and send those back.
    pub fn nameless(&self, identity: &Identity) -> Vec<CallKey> {
        let Some(last) = self.calls.last() else { return Vec::new() };
        self.made_by(last.message).iter().rev().map(|call| self.nameless_key(call, identity)).collect()
    }

    /// The key that `call` has if the upstream gave it no id.
    pub fn nameless_key(&self, call: &Call, identity: &Identity) -> CallKey {
        identity.call_key(self.root, b"", call.written_name(), call.arguments)
    }
}

/// Whether a result after the message at `index`, which made `call`, has the id of `call`: then the client took it for a
/// call, whatever was in it.
fn is_answered(call: &ToolCall, index: usize, transcript: &Transcript) -> bool {
    let body = transcript.view(index).body;
    let Some(id) = call.id.filter(|id| !id.span.is_empty()).map(|id| decode_bytes(id, body)) else {
        return false;
    };
    let after = (index + 1..transcript.len()).map(|after| transcript.view(after));
    let mut results = after.take_while(|view| view.message.role == Role::Tool);
    results.any(|view| view.message.tool_call_id.is_some_and(|own| decode_bytes(own, view.body) == id))
}

/// Canonicalising arguments this short takes about as long as hashing and looking them up, and storing them takes as
/// long again.
const SMALL_BYTES: usize = 80;

/// Of a call in a request the hash is kept with its checkpoint too, so the memo only helps with long arguments.
const SMALL_BYTES_OF_CALL: usize = 1 << 10;

/// The hash of a call's canonical arguments, equal for every form of the same JSON. Absent arguments count as an
/// empty object, because clients send a call without arguments back in that form.
pub fn arguments_hash(text: &str, identity: &Identity, memo: &dyn Memo) -> Hash {
    if text.len() <= SMALL_BYTES {
        return canonical_hash(text, &identity.key);
    }
    let name = identity.key.hash(Domain::Arguments, &[text.as_bytes()]);
    remembered(name, memo, || canonical_hash(text, &identity.key))
}

/// As [`arguments_hash`], for a call in a request. The memo key is the bytes as written, so that a known value is not
/// even unescaped.
fn arguments_hash_of(arguments: &Arguments, body: &[u8], identity: &Identity, memo: &dyn Memo) -> Hash {
    // An object is equal to a string that contains its JSON.
    let hash = || canonical_hash(&arguments.text(body), &identity.key);
    match arguments {
        Arguments::Text(text) if text.span.len() > SMALL_BYTES_OF_CALL => {
            remembered(identity.key.hash(Domain::Arguments, &[b"written", text.raw(body)]), memo, hash)
        }
        Arguments::Value(span) if span.len() > SMALL_BYTES_OF_CALL => {
            arguments_hash(&arguments.text(body), identity, memo)
        }
        _ => hash(),
    }
}

/// As [`arguments_hash`], without the memo.
pub fn canonical_hash(text: &str, key: &HashKey) -> Hash {
    let text = if text.trim().is_empty() { "{}" } else { text };
    key.hash(Domain::Arguments, &[b"canonical", &canonical(text.as_bytes())])
}

fn remembered(name: Hash, memo: &dyn Memo, hash: impl Fn() -> Hash) -> Hash {
    *memo.derive(name, hash)
}

/// The most open calls that are searched for an id: more than any provider makes in parallel, so that a request made
/// of nothing else costs no more than its length.
const MOST_SEARCHED: usize = 256;

/// Takes the open call that a result answers: the first with its id, else the first open one, since some
/// providers give no ids and some clients change them.
fn take_answered(open: &mut VecDeque<usize>, id: Option<&[u8]>, calls: &[Call]) -> Option<usize> {
    let near = || open.iter().take(MOST_SEARCHED);
    let by_id = id.and_then(|id| near().position(|call| *calls[*call].id == *id));
    open.remove(by_id.unwrap_or(0))
}
