//! Hidden rounds put back: which place in a conversation a round belongs to, and which rounds of those that
//! are known there stand before the message that the client has. Finds; the ledger keeps the rounds.

use super::choice::ChoiceState;
use super::rounds::Round;
use crate::transcript::Transcript;
use crate::transcript::calls::arguments_hash;
use crate::transcript::identity::{Domain, Hash, Identity};
use crate::transcript::memo::Memo;
use crate::wire::json::decode;
use crate::wire::message::{Message, Role};
use crate::wire::request::Request;
use bytes::Bytes;

/// An assistant message before which a round may belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The message's place in the request.
    pub message: usize,
    /// The name under which rounds are kept.
    pub name: Hash,
}

/// The places of the newest `most` assistant messages, oldest first.
pub fn places(transcript: &Transcript<'_>, most: usize) -> Vec<Place> {
    let messages = &transcript.request.messages;
    let assistants: Vec<usize> =
        (0..messages.len()).filter(|at| messages[*at].role == Role::Assistant).collect();
    let newest = &assistants[assistants.len().saturating_sub(most)..];
    let is_text = |message: &usize| transcript.calls.made_by(*message).is_empty();
    let stories = if newest.iter().any(is_text) { stories(transcript) } else { Vec::new() };
    let name = |message: usize| {
        let chain = transcript.calls.chain_before(message);
        if is_text(&message) { transcript.identity.text_place(chain, stories[message]) } else { chain }
    };
    newest.iter().map(|message| Place { message: *message, name: name(*message) }).collect()
}

/// The rounds that stand before messages of the request, and how many are lost: known at the newest reply's
/// place, but that reply is not what the client was shown. `known` holds the rounds of each place.
pub fn restored(
    transcript: &Transcript<'_>,
    places: &[Place],
    known: &[Vec<Round>],
) -> (Vec<(usize, Bytes)>, u32) {
    let mut found = Vec::new();
    let mut lost = 0;
    for (place, rounds) in places.iter().zip(known).filter(|(_, rounds)| !rounds.is_empty()) {
        let anchor = anchor_of(transcript, *place);
        let nameless = || nameless_anchor_of(transcript, *place);
        let by = |anchor: Hash| rounds.iter().find(|round| round.anchor == anchor);
        match by(anchor).or_else(|| by(nameless()?)) {
            Some(round) => found.push((place.message, round.messages.clone())),
            None if Some(place.message) == transcript.last_assistant() => lost += 1,
            None => {}
        }
    }
    (found, lost)
}

/// What is to be remembered of one choice of a reply: its `rounds`, at their place.
pub fn remembered(
    asked: &Asked<'_>,
    identity: &Identity,
    choice: &ChoiceState,
    rounds: &[Bytes],
) -> Option<(Hash, Round)> {
    if rounds.is_empty() {
        return None;
    }
    let messages = rounds.join(b",".as_slice()).into();
    if let Some(first) = released_keys(asked, identity, choice).first() {
        return Some((asked.chain, Round { anchor: *first, messages }));
    }
    let place = identity.text_place(asked.chain, asked.story);
    Some((place, Round { anchor: identity.text_anchor(place, &choice.text()), messages }))
}

/// The names of the calls that the client was shown, in order.
pub fn released_keys(asked: &Asked<'_>, identity: &Identity, choice: &ChoiceState) -> Vec<Hash> {
    let mut chain = asked.chain;
    let keys = choice.released().map(|call| {
        let arguments = arguments_hash(&call.arguments(), identity, asked.memo);
        chain = identity.extend(chain, &call.id(), &call.name(), arguments);
        chain
    });
    keys.collect()
}

/// What of a request its reply's names depend on.
pub struct Asked<'a> {
    /// The chain after the last call of the history.
    pub chain: Hash,
    /// See [`story`].
    pub story: Hash,
    pub memo: &'a dyn Memo,
}

/// What was said up to the end of the conversation, as the system and the users said it, and how often the model
/// answered in text. Conversations without calls share their chain, and a round of one must never turn up in another.
pub fn story(request: &Request, body: &[u8], identity: &Identity) -> Hash {
    request.messages.iter().fold(Hash::default(), |story, message| goes_on(story, message, body, identity))
}

/// The same up to each message.
fn stories(transcript: &Transcript<'_>) -> Vec<Hash> {
    let mut story = Hash::default();
    let before = transcript.request.messages.iter().map(|message| {
        let next = goes_on(story, message, transcript.body, transcript.identity);
        std::mem::replace(&mut story, next)
    });
    before.collect()
}

fn goes_on(story: Hash, message: &Message, body: &[u8], identity: &Identity) -> Hash {
    let so_far = story.0.to_le_bytes();
    match message.role {
        Role::System | Role::User => {
            let text = text_of(message, body);
            identity.key.hash(Domain::Story, &[&so_far, text.trim().as_bytes()])
        }
        Role::Assistant if message.calls.is_empty() => identity.key.hash(Domain::Story, &[&so_far]),
        _ => story,
    }
}

pub(super) fn anchor_of(transcript: &Transcript<'_>, place: Place) -> Hash {
    match transcript.calls.made_by(place.message) {
        [first, ..] => first.key,
        [] => {
            let text = text_of(&transcript.request.messages[place.message], transcript.body);
            transcript.identity.text_anchor(place.name, &text)
        }
    }
}

/// The same where the upstream gave the call no id and the client invented one.
fn nameless_anchor_of(transcript: &Transcript<'_>, place: Place) -> Option<Hash> {
    let first = transcript.calls.made_by(place.message).first()?;
    Some(transcript.identity.extend(place.name, "", &first.name, first.arguments))
}

pub(super) fn text_of(message: &Message, body: &[u8]) -> String {
    message.content.texts().map(|text| decode(text, body)).collect()
}
