//! Hidden rounds put back: which place in a conversation a round belongs to, and which rounds of those that
//! are known there stand before the message that the client has. Finds; the ledger keeps the rounds.

use super::choice::ChoiceState;
use super::rounds::Round;
use crate::transcript::Transcript;
use crate::transcript::beginnings::Beginnings;
use crate::transcript::calls::arguments_hash;
use crate::transcript::identity::{Domain, Hash, Identity};
use crate::transcript::memo::Memo;
use crate::wire::begun::Beginning;
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
    let mut all = all_places(transcript);
    all.drain(..all.len().saturating_sub(most));
    all
}

/// The places behind a beginning, with the [`story`] so far.
type Told = (Vec<Place>, Hash);

/// The places of all assistant messages, as far as they were named before from memory.
fn all_places(transcript: &Transcript<'_>) -> Vec<Place> {
    let Transcript { request, body, identity, .. } = *transcript;
    let beginnings = transcript.beginnings("places", transcript.calls.root);
    let found = beginnings.find::<Told>();
    let (mut places, mut story) = match &found {
        Some((_, told)) => (told.0.clone(), told.1),
        None => (Vec::new(), Hash::default()),
    };
    let first = found.as_ref().map_or(0, |(at, _)| at.messages);
    let mut news = beginnings.news(found.map(|(at, _)| at));
    // Behind the last reply nothing has a place.
    let last = transcript.last_assistant().map_or(0, |last| last + 1).max(news.map_or(0, |at| at.messages));
    for (index, message) in request.messages.iter().enumerate().take(last).skip(first) {
        if let Some(at) = news.take_if(|at| at.messages == index) {
            keep(&beginnings, at, &places, story);
        }
        if message.role == Role::Assistant {
            let chain = transcript.calls.chain_before(index);
            let is_text = transcript.calls.made_by(index).is_empty();
            let name = if is_text { identity.text_place(chain, story) } else { chain };
            places.push(Place { message: index, name });
        }
        story = goes_on(story, message, body, identity);
    }
    if let Some(at) = news {
        keep(&beginnings, at, &places, story);
    }
    places
}

fn keep(beginnings: &Beginnings<'_>, at: Beginning, places: &[Place], story: Hash) {
    let told: Told = (places.to_vec(), story);
    beginnings.keep(at, told, size_of_val(places));
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
