//! Hidden exchanges put back: under which names an exchange is kept, and which of those that are known was before the
//! message that the client has. What cannot be told from another conversation's is not put back. Finds; the ledger keeps
//! the exchanges.

use super::choice::ChoiceState;
use super::judging::wrapper::made_of;
use super::rounds::{MOST_AT_ONE_PLACE, Round};
use crate::transcript::Transcript;
use crate::transcript::calls::{Call, arguments_hash};
use crate::transcript::identity::{Hash, Identity};
use crate::transcript::ids::is_random;
use crate::transcript::memo::Memo;
use crate::transcript::released::{Hidden, Release, Releases, hidden_before, hidden_digest};
use crate::wire::json::decode;
use crate::wire::message::{Message, Role};
use bytes::Bytes;

/// An assistant message before which an exchange may belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The message's place in the request.
    pub message: usize,
    /// The digest of what the model saw before it.
    pub name: Hash,
    /// The key of its first call, where that has a random id: it is known however the client edits what is before it.
    pub own: Option<Hash>,
}

/// The places of the newest `most` assistant messages, oldest first.
pub fn places(transcript: &Transcript<'_>, most: usize) -> Vec<Place> {
    let messages = transcript.request.messages.iter().enumerate().rev();
    let newest = messages.filter(|(_, message)| message.role == Role::Assistant).take(most);
    let mut places: Vec<Place> = newest.map(|(message, _)| place(transcript, message)).collect();
    places.reverse();
    places
}

fn place(transcript: &Transcript<'_>, message: usize) -> Place {
    let first = transcript.calls.made_by(message).first().filter(|call| call.has_random_id());
    Place { message, name: transcript.calls.context_before(message), own: first.map(|call| call.key) }
}

/// The names that the ledger is asked for, in the order in which [`restored`] wants the answers.
pub fn names(places: &[Place]) -> Vec<Hash> {
    places.iter().flat_map(|place| [Some(place.name), place.own]).flatten().collect()
}

/// The exchanges that were before messages of the request, and how many are lost: something is known to have been
/// hidden before the newest reply, but not what. `known` holds the exchanges under each of the [`names`], `released`
/// what is known of the newest calls, the newest first.
pub fn restored(
    transcript: &Transcript<'_>,
    places: &[Place],
    known: &[Vec<Round>],
    released: &[Option<Releases>],
) -> (Vec<(usize, Bytes)>, u32) {
    let (mut found, mut lost) = (Vec::new(), 0);
    let mut known = known.iter().map(Vec::as_slice);
    for place in places {
        let here = known.next().unwrap_or_default();
        let own = place.own.and_then(|_| known.next()).unwrap_or_default();
        let before = match transcript.calls.made_by(place.message).first() {
            Some(call) => before_call(transcript, call, (here, own), released),
            None if here.is_empty() => Before::Nothing,
            None => before_text(here, anchor_of(transcript, *place)),
        };
        match before {
            Before::Exchange(messages) => found.push((place.message, messages)),
            Before::Lost => lost += u32::from(Some(place.message) == transcript.last_assistant()),
            Before::Nothing => {}
        }
    }
    (found, lost)
}

/// What was before a message.
enum Before {
    Nothing,
    Exchange(Bytes),
    /// Something, and nobody knows what.
    Lost,
}

fn before_call(
    transcript: &Transcript<'_>,
    call: &Call,
    (here, own): (&[Round], &[Round]),
    released: &[Option<Releases>],
) -> Before {
    let nth = transcript.calls.calls.len() - call.ordinal;
    let releases = released.get(nth).and_then(Option::as_deref).unwrap_or_default();
    let digest = match hidden_before(call, releases) {
        Hidden::Exchange(digest) => digest,
        Hidden::Nothing => return Before::Nothing,
        Hidden::Ambiguous => return Before::Lost,
        Hidden::Unknown => return unknown(here),
    };
    // A client that needs ids invents one where the upstream gave none.
    let nameless = transcript.calls.nameless_key(call, transcript.identity);
    let is_it = |round: &&Round| {
        let is_of_call = round.anchor == call.key || round.anchor == nameless;
        is_of_call && hidden_digest(&round.messages, &transcript.identity.key) == digest
    };
    let round = here.iter().chain(own).find(is_it);
    round.map_or(Before::Lost, |round| Before::Exchange(round.messages.clone()))
}

/// Before a text without calls: all that the model saw, and the text, are in its name. Of conversations that agree in both
/// and had other exchanges, each gets nothing.
fn before_text(here: &[Round], anchor: Hash) -> Before {
    let mut of_text = here.iter().filter(|round| round.anchor == anchor);
    match (of_text.next(), of_text.next()) {
        (None, _) => unknown(here),
        (Some(round), None) if round.messages.is_empty() => Before::Nothing,
        // Where so many are known, others may be forgotten.
        (Some(round), None) if here.len() < MOST_AT_ONE_PLACE => Before::Exchange(round.messages.clone()),
        _ => Before::Lost,
    }
}

/// The client was not shown this reply, or the ledger has forgotten it.
fn unknown(here: &[Round]) -> Before {
    let hid = here.iter().any(|round| !round.messages.is_empty());
    if hid { Before::Lost } else { Before::Nothing }
}

/// What is to be remembered of one choice of a reply: the exchanges hidden before it, joined by commas.
pub fn joined(rounds: &[Bytes]) -> Bytes {
    rounds.join(b",".as_slice()).into()
}

/// Under which names the exchange `messages` before a choice of a reply is kept. Also where nothing was hidden before a
/// text: so that another conversation's exchange before an equal one is not taken for this one's.
pub fn remembered(
    asked: &Asked<'_>,
    identity: &Identity,
    choice: &ChoiceState,
    messages: &Bytes,
) -> Vec<(Hash, Round)> {
    let round = |anchor| Round { anchor, messages: messages.clone() };
    let Some((call, key)) = choice.released().zip(released_keys(asked, identity, choice)).next() else {
        let anchor = identity.text_anchor(asked.context, &choice.text());
        return vec![(asked.context, round(anchor))];
    };
    if messages.is_empty() {
        return Vec::new();
    }
    let mut kept = vec![(asked.context, round(key))];
    kept.extend(is_random(call.id().as_bytes(), &call.name()).then(|| (key, round(key))));
    kept
}

/// The names of the calls that the client was shown, in order; behind them those of the calls that it may make of them.
pub fn released_keys(asked: &Asked<'_>, identity: &Identity, choice: &ChoiceState) -> Vec<Hash> {
    let key = |id: &str, name: &str, arguments: &str| {
        let arguments = arguments_hash(arguments, identity, asked.memo);
        identity.call_key(asked.root, id.as_bytes(), name, arguments)
    };
    let shown = choice.released().map(|call| key(&call.id(), &call.name(), &call.arguments()));
    let made = choice.released().flat_map(made_of).map(|made| key(&made.id, &made.name, &made.arguments));
    shown.chain(made).collect()
}

/// How it is to be remembered that these calls were handed out at `at_ms`, behind the exchange `messages`.
pub fn release(asked: &Asked<'_>, identity: &Identity, messages: &Bytes, at_ms: u64) -> Release {
    Release { context: asked.context, hidden: hidden_digest(messages, &identity.key), at_ms }
}

/// What of a request its reply's names depend on.
pub struct Asked<'a> {
    /// See [`Identity::root`].
    pub root: Hash,
    /// The digest of all that the model saw of the conversation.
    pub context: Hash,
    pub memo: &'a dyn Memo,
}

/// The name of the text at `place`.
pub fn anchor_of(transcript: &Transcript<'_>, place: Place) -> Hash {
    let text = text_of(&transcript.request.messages[place.message], transcript.body);
    transcript.identity.text_anchor(place.name, &text)
}

pub(super) fn text_of(message: &Message, body: &[u8]) -> String {
    message.content.texts().map(|text| decode(text, body)).collect()
}
