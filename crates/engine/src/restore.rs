//! Restoring hidden exchanges: the keys under which an exchange is stored, and which of the known exchanges came
//! before a message of the client. An exchange that cannot be distinguished from another conversation's is not put
//! back. The state store keeps the exchanges.

use crate::judging::wrapper::expanded_calls;
use crate::pipeline::ClientChoice;
use bytes::Bytes;
use model::calls::{Call, arguments_hash};
use model::fact::{Answers, Batch, Ticket};
use model::identity::{Hash, Identity};
use model::ids::is_random;
use model::memo::Memo;
use model::message::Role;
use model::released::{Hidden, Release, Releases, hidden_before, hidden_digest};
use model::store::{HiddenExchange, MOST_AT_ONE_KEY};
use model::{Transcript, View};

/// The position of an assistant message before which a hidden exchange may belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HiddenPosition {
    /// The message's position in the conversation.
    pub message: usize,
    /// The digest of what the model saw before it.
    pub name: Hash,
    /// The key of its first call, where that has a random id: it stays the same however the client edits the messages
    /// before it.
    pub own: Option<Hash>,
}

/// The positions of the newest assistant messages, at most `most`, oldest first.
pub fn hidden_positions(transcript: &Transcript, most: usize) -> Vec<HiddenPosition> {
    let is_reply = |message: &usize| transcript.message(*message).role == Role::Assistant;
    let newest = (0..transcript.len()).rev().filter(is_reply).take(most);
    let mut positions = Vec::with_capacity(most.min(transcript.len()));
    positions.extend(newest.map(|message| position(transcript, message)));
    positions.reverse();
    positions
}

fn position(transcript: &Transcript, message: usize) -> HiddenPosition {
    let first = transcript.calls.made_by(message).first().filter(|call| call.has_random_id);
    HiddenPosition {
        message,
        name: transcript.calls.context_before(message),
        own: first.map(|call| call.key),
    }
}

/// The keys under which the exchanges at `positions` are, in the order in which [`restored`] takes them.
pub fn names(positions: &[HiddenPosition]) -> Vec<Hash> {
    let mut names = Vec::with_capacity(2 * positions.len());
    names.extend(positions.iter().flat_map(|position| [Some(position.name), position.own]).flatten());
    names
}

/// The hidden exchanges that may belong into a conversation.
pub(crate) struct HiddenLookUp {
    positions: Vec<HiddenPosition>,
    ticket: Ticket<HiddenExchange>,
}

impl HiddenLookUp {
    /// Asks for the exchanges at `positions`.
    pub fn ask(positions: Vec<HiddenPosition>, batch: &mut Batch) -> Self {
        Self { ticket: batch.ask(names(&positions)), positions }
    }

    /// See [`restored`].
    pub fn restored(
        &self,
        transcript: &Transcript,
        answers: &Answers,
        released: &[Option<Releases>],
    ) -> (Vec<(usize, Bytes)>, u32) {
        restored(transcript, &self.positions, &answers.lists(&self.ticket), released)
    }
}

/// The exchanges that were before messages of the request, and how many are lost: known to have been before the newest
/// reply, but with unknown content. `known` holds the exchanges under each of the [`names`], `released` what is known
/// of the newest calls, the newest first.
pub fn restored(
    transcript: &Transcript,
    positions: &[HiddenPosition],
    known: &[Vec<HiddenExchange>],
    released: &[Option<Releases>],
) -> (Vec<(usize, Bytes)>, u32) {
    let (mut found, mut lost) = (Vec::new(), 0);
    let mut known = known.iter().map(Vec::as_slice);
    for position in positions {
        let here = known.next().unwrap_or_default();
        let own = position.own.and_then(|_| known.next()).unwrap_or_default();
        let before = match transcript.calls.made_by(position.message).first() {
            Some(call) => before_call(transcript, call, here, own, released),
            None if here.is_empty() => Before::Nothing,
            None => before_text(here, text_key_of(transcript, *position)),
        };
        match before {
            Before::Exchange(messages) => found.push((position.message, messages)),
            Before::Lost => lost += u32::from(Some(position.message) == transcript.last_assistant()),
            Before::Nothing => {}
        }
    }
    (found, lost)
}

/// The result of the search for the hidden exchange before a message.
enum Before {
    Nothing,
    Exchange(Bytes),
    /// An exchange with unknown content.
    Lost,
}

fn before_call(
    transcript: &Transcript,
    call: &Call,
    here: &[HiddenExchange],
    own: &[HiddenExchange],
    released: &[Option<Releases>],
) -> Before {
    let nth = transcript.calls.calls.len() - call.ordinal;
    let releases = released.get(nth).and_then(Option::as_ref).map_or(&[][..], |known| known);
    let digest = match hidden_before(call, releases) {
        Hidden::Exchange(digest) => digest,
        Hidden::Nothing => return Before::Nothing,
        Hidden::Ambiguous => return Before::Lost,
        Hidden::Unknown => return unknown(here),
    };
    // A client that needs ids invents one where the upstream gave none.
    let nameless = transcript.calls.nameless_key(call, &transcript.identity);
    let is_it = |round: &&HiddenExchange| {
        let is_of_call = round.message_key == call.key || round.message_key == nameless;
        is_of_call && hidden_digest(&round.messages, &transcript.identity.key) == digest
    };
    let round = here.iter().chain(own).find(is_it);
    round.map_or(Before::Lost, |round| Before::Exchange(round.messages.clone()))
}

/// The hidden exchange before a text without calls. Its key is a digest of all that the model saw and of the text. If
/// conversations agree in both but had different exchanges, none of them gets one.
fn before_text(here: &[HiddenExchange], key: Hash) -> Before {
    let mut of_text = here.iter().filter(|round| round.message_key == key);
    match (of_text.next(), of_text.next()) {
        (None, _) => unknown(here),
        (Some(round), None) if round.messages.is_empty() => Before::Nothing,
        // Where this many are known, others may have been evicted.
        (Some(round), None) if here.len() < MOST_AT_ONE_KEY => Before::Exchange(round.messages.clone()),
        _ => Before::Lost,
    }
}

/// The client was not shown this reply, or the state store has forgotten it.
fn unknown(here: &[HiddenExchange]) -> Before {
    let hid = here.iter().any(|round| !round.messages.is_empty());
    if hid { Before::Lost } else { Before::Nothing }
}

/// The stored form of the exchanges hidden before one choice of a reply: joined by commas.
pub fn joined(rounds: &[Bytes]) -> Bytes {
    rounds.join(b",".as_slice()).into()
}

/// The keys under which the exchange `messages` before a choice of a reply is stored. An empty exchange is stored
/// before a text too, so that another conversation's exchange before an equal text is not taken for this one's.
pub fn remembered(
    request: &RequestContext<'_>,
    identity: &Identity,
    choice: &ClientChoice<'_>,
    messages: &Bytes,
) -> Vec<(Hash, HiddenExchange)> {
    let round = |key| HiddenExchange { message_key: key, messages: messages.clone() };
    let first = first_keys(request, identity, choice);
    if first.is_empty() {
        let key = identity.text_key(request.context, &choice.text());
        return vec![(request.context, round(key))];
    }
    if messages.is_empty() {
        return Vec::new();
    }
    let mut kept = Vec::new();
    for FirstKey { key, is_random } in first {
        kept.push((request.context, round(key)));
        kept.extend(is_random.then(|| (key, round(key))));
    }
    kept
}

/// The key of a call that may be the first of its message in the client's next request.
pub struct FirstKey {
    pub key: Hash,
    /// Its id is random, so that the key alone finds it.
    pub is_random: bool,
}

/// The keys of the first call that the client was shown, and of the first one that it may expand that to.
pub fn first_keys(
    request: &RequestContext<'_>,
    identity: &Identity,
    choice: &ClientChoice<'_>,
) -> Vec<FirstKey> {
    let Some(call) = choice.released().into_iter().next() else { return Vec::new() };
    let key = |id: &str, name: &str, arguments: &str| FirstKey {
        key: call_key(request, identity, id, name, arguments),
        is_random: is_random(id.as_bytes(), name),
    };
    let made = expanded_calls(call).into_iter().next();
    let made = made.map(|made| key(&made.id, &made.name, &made.arguments));
    std::iter::once(key(&call.id(), &call.name(), &call.arguments())).chain(made).collect()
}

fn call_key(
    request: &RequestContext<'_>,
    identity: &Identity,
    id: &str,
    name: &str,
    arguments: &str,
) -> Hash {
    let arguments = arguments_hash(arguments, identity, request.memo);
    identity.call_key(request.root, id.as_bytes(), name, arguments)
}

/// The keys of the calls that the client was shown, in order, followed by those of the calls that it may expand them
/// to.
pub fn released_keys(
    request: &RequestContext<'_>,
    identity: &Identity,
    choice: &ClientChoice<'_>,
) -> Vec<Hash> {
    let key = |id: &str, name: &str, arguments: &str| call_key(request, identity, id, name, arguments);
    let shown = choice.released().into_iter().map(|call| key(&call.id(), &call.name(), &call.arguments()));
    let made = choice
        .released()
        .into_iter()
        .flat_map(expanded_calls)
        .map(|made| key(&made.id, &made.name, &made.arguments));
    shown.chain(made).collect()
}

/// The keys of the same calls whatever their ids.
pub fn keys_without_ids(
    request: &RequestContext<'_>,
    identity: &Identity,
    choice: &ClientChoice<'_>,
) -> Vec<Hash> {
    let key = |name: &str, arguments: &str| {
        let arguments = arguments_hash(arguments, identity, request.memo);
        identity.key_without_id(request.context_without_ids, name, arguments)
    };
    let released = || choice.released().into_iter();
    let shown = released().map(|call| key(&call.name(), &call.arguments()));
    shown.chain(released().flat_map(expanded_calls).map(|made| key(&made.name, &made.arguments))).collect()
}

/// The record that calls were handed out at `at_ms`, after the exchange `messages`.
pub fn release(request: &RequestContext<'_>, identity: &Identity, messages: &Bytes, at_ms: u64) -> Release {
    Release { context: request.context, hidden: hidden_digest(messages, &identity.key), at_ms }
}

/// The part of a request that its reply's keys depend on.
pub struct RequestContext<'a> {
    /// See [`Identity::root`].
    pub root: Hash,
    /// The digest of all that the model saw of the conversation.
    pub context: Hash,
    /// The same without ids.
    pub context_without_ids: Hash,
    pub memo: &'a dyn Memo,
}

/// The key of the text at `position`.
pub fn text_key_of(transcript: &Transcript, position: HiddenPosition) -> Hash {
    let text = text_of(transcript.view(position.message));
    transcript.identity.text_key(position.name, &text)
}

pub(crate) fn text_of(view: View<'_>) -> String {
    view.texts().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use dialects::CHAT;
    use dialects::codec::KnownIds;
    use dialects::reply::{Form, Limits};
    use dialects::reply_choice::ReplyChoice;
    use model::assembled::Assembled;
    use model::identity::HashKey;
    use model::memo::NoMemo;
    use model::plan::decision::Decision;
    use serde_json::Value;
    use std::sync::Arc;
    use wire::json::escape_into;

    #[test]
    fn a_wrapper_call_is_found_as_it_came_and_as_the_client_expanded_it() {
        const WRAPPED: &str =
            r#"{"tool_uses":[{"recipient_name":"functions.search","parameters":{"q":"a"}}]}"#;
        let identity = Identity { key: HashKey::fixed(1), caller: Hash(1), explicit: None };
        let mut call = Assembled::default();
        escape_into("call_1", &mut call.id);
        escape_into("multi_tool_use.parallel", &mut call.name);
        escape_into(WRAPPED, &mut call.arguments);
        let question = r#"{"role":"user","content":"q"}"#;
        for (id, name, arguments) in
            [("call_1", "multi_tool_use.parallel", WRAPPED), ("call_1_0", "search", r#"{"q":"a"}"#)]
        {
            let (id, name, arguments) = (Value::from(id), Value::from(name), Value::from(arguments));
            let body = format!(
                r#"{{"messages":[{question},{{"role":"assistant","tool_calls":[{{"id":{id},"type":"function","function":{{"name":{name},"arguments":{arguments}}}}}]}}]}}"#
            );
            let request = dialects::chat::parse(body.as_bytes()).unwrap();
            let transcript = Transcript::read(
                request.clone(),
                body.as_bytes().to_vec(),
                identity.clone(),
                Arc::new(NoMemo),
            );
            let (root, context) = (transcript.calls.root, transcript.calls.context_before(1));
            let shown_in = RequestContext { root, context, context_without_ids: context, memo: &NoMemo };
            let mut choice = ReplyChoice::new(0, false);
            let at = choice.add_call(call.clone());
            choice.decide(at, Decision::Release);
            let limits = Limits { event: 1 << 10, held: 1 << 10, reply: 1 << 10 };
            let (codec, ids) = (CHAT.codec(Form::Whole, limits), KnownIds::default());
            let keys = first_keys(&shown_in, &identity, &ClientChoice::new(&choice, &*codec, &ids));
            let made = transcript.calls.made_by(1)[0].key;
            assert!(keys.iter().any(|first| first.key == made), "{name}");
        }
    }
}
