//! Hidden rounds put back: which place in a conversation a round belongs to, and which rounds of those that
//! are known there stand before the message that the client has. Finds; the ledger keeps the rounds.

use super::choice::ChoiceState;
use super::rounds::Round;
use crate::transcript::Transcript;
use crate::transcript::calls::arguments_hash;
use crate::transcript::identity::{Hash, Identity};
use crate::transcript::memo::Memo;
use crate::wire::json::decode;
use crate::wire::message::{Message, Role};
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
    newest.iter().map(|message| Place { message: *message, name: name_of(transcript, *message) }).collect()
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
        match rounds.iter().find(|round| round.anchor == anchor) {
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
    let place = identity.text_place(asked.chain, asked.user_text);
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
    /// What [`user_text_before`] tells of the end of the history.
    pub user_text: &'a str,
    pub memo: &'a dyn Memo,
}

/// The text of the last user message before the message at `end`, behind the number of replies without calls since
/// the last call: else two equal replies to equal words, such as "go on", would share one hidden round.
pub fn user_text_before(transcript: &Transcript<'_>, end: usize) -> String {
    let before = &transcript.request.messages[..end];
    let replies = before.iter().rev().filter(|message| message.role == Role::Assistant);
    let replies = replies.take_while(|message| message.calls.is_empty()).count();
    let user = before.iter().rev().find(|message| message.role == Role::User);
    let text = user.map_or_else(String::new, |user| text_of(user, transcript.body));
    format!("{replies}:{}", text.trim())
}

fn name_of(transcript: &Transcript<'_>, message: usize) -> Hash {
    let chain = transcript.calls.chain_before(message);
    if !transcript.calls.made_by(message).is_empty() {
        return chain;
    }
    transcript.identity.text_place(chain, &user_text_before(transcript, message))
}

fn anchor_of(transcript: &Transcript<'_>, place: Place) -> Hash {
    match transcript.calls.made_by(place.message) {
        [first, ..] => first.key,
        [] => {
            let text = text_of(&transcript.request.messages[place.message], transcript.body);
            transcript.identity.text_anchor(place.name, &text)
        }
    }
}

fn text_of(message: &Message, body: &[u8]) -> String {
    message.content.texts().map(|text| decode(text, body)).collect()
}
