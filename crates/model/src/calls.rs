//! The calls of a conversation, paired with their results by id and, where ids repeat or are missing, by position;
//! the key of each call, and the digest of what the model saw before it. Knows no policy and no time of its own.

use super::context::{content_hash, context_after, context_without_ids_after};
use super::identity::{CallKey, Domain, Hash, HashKey, Identity};
use super::ids::is_random;
use super::memo::Memo;
use super::names::DeclaredNames;
use super::wrapper::{WrapperKind, inner_calls, wrapper_kind};
use super::{Transcript, View};
use crate::call::{Arguments, ToolCall, WrittenArguments};
use crate::message::Role;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use wire::json::{canonical, decode, decode_bytes};

/// One tool call that the model made earlier in the conversation.
#[derive(Clone, Debug)]
pub struct Call {
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
    /// The digest of what the model saw before it made the call.
    pub context: Hash,
    /// The same without ids: see [`PairedCalls::context_without_ids`].
    context_without_ids: Hash,
    /// As bytes, since it is only compared and hashed; empty where it has none.
    id: Box<[u8]>,
    /// The tool that it means: a declared one if the name is near ([`DeclaredNames::meant`]), else the name as the model wrote it.
    pub name: String,
    /// The name as the model wrote it, where that differs.
    written_name: Option<String>,
    /// The hash of its canonical arguments.
    pub arguments: Hash,
    /// Its arguments as the request holds them, copied.
    pub written_arguments: Arc<WrittenArguments>,
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

impl Call {
    /// Its arguments as JSON text, as the client sent them; empty where it sent none.
    pub fn arguments_text(&self) -> Cow<'_, str> {
        self.written_arguments.text()
    }

    /// Whether its id is random, judged by its form.
    pub fn has_random_id(&self) -> bool {
        is_random(&self.id, self.written_name())
    }

    /// The tool's name as the model wrote it.
    pub fn written_name(&self) -> &str {
        self.written_name.as_deref().unwrap_or(&self.name)
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
    fn unwrap_inner(&mut self, declared: &DeclaredNames<Cow<'_, str>>, key: &HashKey) {
        let Some(kind) = wrapper_kind(self.written_name()) else { return };
        let Ok(arguments) = serde_json::from_str(&self.arguments_text()) else { return };
        let calls = inner_calls(&arguments).into_iter();
        let calls = calls
            .filter(|call| kind == WrapperKind::Parallel || declared.meant(&call.name).is_some())
            .enumerate();
        let calls = calls.map(|(nth, call)| {
            let mut inner = Self {
                name: call.name,
                written_name: None,
                arguments: canonical_hash(&call.arguments, key),
                written_arguments: Arc::new(WrittenArguments::from_text(&call.arguments)),
                position: self.position + nth,
                ..self.clone()
            };
            inner.mean(declared);
            inner
        });
        self.inner = calls.collect();
    }

    /// Sets its name to that of the tool that it means.
    fn mean(&mut self, declared: &DeclaredNames<Cow<'_, str>>) {
        if let Some(meant) = declared.meant(&self.name).filter(|meant| *meant != self.name) {
            self.written_name = Some(std::mem::replace(&mut self.name, meant.to_owned()));
        }
    }
}

/// All calls, and the messages that answer them.
#[derive(Default)]
pub struct PairedCalls {
    pub calls: Vec<Call>,
    /// See [`Identity::root`]: computed once, since each hash takes 500 instructions.
    pub root: Hash,
    /// The digest of all messages: what the model sees before its next reply.
    pub context: Hash,
    /// The same without the ids of calls and results, which some clients number anew in every request.
    pub context_without_ids: Hash,
    /// For each message: what was before it, and the first of its own calls or of the call it answers.
    by_message: Vec<MessageCalls>,
}

#[derive(Clone, Copy, Default)]
struct MessageCalls {
    context_before: Hash,
    /// The range in `calls` of the calls that an assistant message made.
    first: usize,
    end: usize,
    /// The call that a tool message answers.
    answers: Option<usize>,
    completes: bool,
}

impl PairedCalls {
    /// Finds and pairs the calls of the client's and the upstream's items.
    pub(super) fn read(transcript: &Transcript) -> Self {
        let (identity, memo) = (&*transcript.identity, &*transcript.memo);
        let root = identity.root();
        let by_message = Vec::with_capacity(transcript.len());
        let count: usize = (0..transcript.len()).map(|index| transcript.message(index).calls.len()).sum();
        let calls = Vec::with_capacity(count);
        let mut paired = Self { calls, root, context: root, context_without_ids: root, by_message };
        let declared = transcript.tools().filter(|_| count > 0);
        let declared = DeclaredNames::new(declared.filter_map(|(tool, bytes)| tool.full_name(bytes)));
        // The unanswered calls of the last assistant message.
        let mut open: VecDeque<usize> = VecDeque::new();
        for View { index, message, body, note, .. } in transcript.views() {
            let mut place = MessageCalls { context_before: paired.context, ..MessageCalls::default() };
            place.first = paired.calls.len();
            match message.role {
                Role::Assistant => {
                    let hash = |call: &ToolCall| arguments_hash_of(&call.arguments, body, identity, memo).0;
                    let hashes = || message.calls.iter().map(hash).collect();
                    let arguments = note.arguments.get_or_init(hashes);
                    let mut made = 0;
                    for (nth, (call, arguments)) in message.calls.iter().zip(arguments).enumerate() {
                        if call.is_placeholder(body) && !is_answered(call, index, transcript) {
                            continue;
                        }
                        let mut call = read_call(call, body);
                        call.arguments = Hash(*arguments);
                        call.key = identity.call_key(root, &call.id, &call.name, call.arguments);
                        call.context = place.context_before;
                        call.context_without_ids = paired.context_without_ids;
                        (call.message, call.position, call.index) = (index, made, nth);
                        call.mean(&declared);
                        call.ordinal = paired.calls.len() + 1;
                        call.unwrap_inner(&declared, &identity.key);
                        made += call.as_made().len();
                        paired.calls.push(call);
                    }
                    open.clear();
                    open.extend(place.first..paired.calls.len());
                }
                Role::Tool => {
                    let id = message.tool_call_id.map(|id| decode_bytes(id, body));
                    place.answers = take_answered(&mut open, id.as_deref(), &paired.calls);
                    place.completes = place.answers.is_some() && open.is_empty();
                    if let Some(call) = place.answers {
                        paired.calls[call].result = Some(index);
                    }
                }
                _ => {}
            }
            place.end = paired.calls.len();
            let content = note.content.get_or_init(|| content_hash(message, body, &identity.key).0);
            paired.add_to_contexts(place, Hash(*content), &identity.key);
            paired.by_message.push(place);
        }
        paired
    }

    /// Adds a message with this content to the digests of what the model saw. A result belongs to the call that it
    /// answers.
    fn add_to_contexts(&mut self, place: MessageCalls, content: Hash, key: &HashKey) {
        let made = &self.calls[place.first..place.end];
        let keys = made.iter().chain(place.answers.map(|call| &self.calls[call])).map(|call| call.key);
        self.context = context_after(self.context, content, keys, key);
        let calls = made.iter().map(|call| (call.written_name(), call.arguments));
        let answered = place.answers.map(|call| ("", Hash(self.calls[call].position as u128)));
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

    /// The key under which `call` is found whatever id it has now.
    pub fn key_without_id(&self, call: &Call, identity: &Identity) -> CallKey {
        identity.key_without_id(call.context_without_ids, call.written_name(), call.arguments)
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
    let Arguments::Text(text) = arguments else {
        return arguments_hash(&arguments.text(body), identity, memo);
    };
    let hash = || canonical_hash(&decode(*text, body), &identity.key);
    if text.span.len() <= SMALL_BYTES {
        return hash();
    }
    remembered(identity.key.hash(Domain::Arguments, &[b"written", text.raw(body)]), memo, hash)
}

/// As [`arguments_hash`], without the memo.
pub fn canonical_hash(text: &str, key: &HashKey) -> Hash {
    let text = if text.trim().is_empty() { "{}" } else { text };
    key.hash(Domain::Arguments, &[b"canonical", &canonical(text.as_bytes())])
}

fn remembered(name: Hash, memo: &dyn Memo, hash: impl Fn() -> Hash) -> Hash {
    *memo.derive(name, hash)
}

fn read_call(call: &ToolCall, body: &[u8]) -> Call {
    Call {
        message: 0,
        position: 0,
        index: 0,
        ordinal: 0,
        key: Hash::default(),
        context: Hash::default(),
        context_without_ids: Hash::default(),
        id: call.id.map_or_else(Box::default, |id| decode_bytes(id, body).into()),
        name: call.full_name(body).map_or_else(String::new, Cow::into_owned),
        written_name: None,
        arguments: Hash::default(),
        written_arguments: Arc::new(call.arguments.cut_out(body)),
        result: None,
        released_ms: None,
        earliest_ms: None,
        approved: false,
        inner: Vec::new(),
    }
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
