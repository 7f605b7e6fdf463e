//! The facts that the engine keeps in the state store, and its quotas, stops, claims and reservations, as plain data. What
//! they mean is decided by the engine and the policies.

use crate::account::{Sums, Tally};
use crate::adaptation::{Adaptation, Adaptations};
use crate::fact::body::{parse_number, split_hash};
use crate::fact::{Fact, Lifetime, Record, RecordKind, Retention, Room, Writes};
use crate::histories::history;
use crate::identity::Hash;
use crate::plan::ReservationResult;
use crate::uses::Use;
use crate::{LengthCut, Stopped, Transcript};
use bytes::Bytes;

/// Most hidden exchanges under one key: more only occur where the same conversation was held that often.
pub const MOST_AT_ONE_KEY: usize = 64;
/// The most overflows kept for one conversation, the newest: each made room for a good while.
pub const MOST_OVERFLOWS: usize = 32;

/// A hidden exchange, found again by what the client was shown after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HiddenExchange {
    /// The key of the assistant message that follows it.
    pub message_key: Hash,
    /// Messages joined by commas; empty where the client was shown all.
    pub messages: Bytes,
}

impl Record for HiddenExchange {
    fn to_body(&self) -> Option<Vec<u8>> {
        Some([self.message_key.to_string().as_bytes(), &self.messages[..]].concat())
    }

    fn from_body(body: &[u8]) -> Option<Self> {
        let (message_key, messages) = split_hash(body)?;
        Some(Self { message_key, messages: Bytes::copy_from_slice(messages) })
    }
}

impl Fact for HiddenExchange {
    const KIND: RecordKind = RecordKind::HiddenExchange;
    const RETENTION: Retention = Retention::Last(MOST_AT_ONE_KEY);
    const ROOM: Room = Room::Bytes;

    fn size(&self) -> usize {
        size_of::<Self>() + self.messages.len()
    }
}

/// A quota of one caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Its key for this caller.
    pub name: Hash,
    /// How many calls it allows; more uses need not be looked up.
    pub calls: usize,
    /// How long a use counts, in ms.
    pub window_ms: u64,
}

/// A conversation or a caller that a person has stopped, by its id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stop {
    pub what: Stopped,
    /// As logs show it: the conversation's id, or the caller's keyed hash in hexadecimal.
    pub id: String,
}

impl Record for Stop {
    fn to_body(&self) -> Option<Vec<u8>> {
        let what = match self.what {
            Stopped::Conversation => "c",
            Stopped::Caller => "p",
        };
        Some([what, &self.id].concat().into_bytes())
    }

    fn from_body(body: &[u8]) -> Option<Self> {
        let (what, id) = std::str::from_utf8(body).ok()?.split_at_checked(1)?;
        let what = match what {
            "c" => Stopped::Conversation,
            "p" => Stopped::Caller,
            _ => return None,
        };
        Some(Self { what, id: id.to_owned() })
    }
}

/// A lasting approval: one call after one context may be handed out without a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApprovedCall;

impl Record for ApprovedCall {
    fn to_body(&self) -> Option<Vec<u8>> {
        Some(Vec::new())
    }

    fn from_body(body: &[u8]) -> Option<Self> {
        body.is_empty().then_some(Self)
    }
}

impl Fact for ApprovedCall {
    const KIND: RecordKind = RecordKind::Approved;
    const RETENTION: Retention = Retention::Value;
    const ROOM: Room = Room::Calls;
}

/// A request that carries an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The key of the question's text.
    pub question: Hash,
    /// The request's name, equal for equal bytes alone.
    pub request: Hash,
    /// Now, in ms since the epoch.
    pub now_ms: u64,
}

/// A request that was refused for its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LengthRefusal {
    /// How many messages it had.
    pub messages: usize,
    /// The digest of these.
    pub history: Hash,
    /// How many characters were left of each of their results; `None` where none was cut for its length.
    pub most_chars: Option<usize>,
}

impl LengthRefusal {
    /// How its results were cut, where they were.
    pub fn cut(&self) -> Option<LengthCut> {
        self.most_chars.map(|most_chars| LengthCut { messages: self.messages, most_chars })
    }
}

impl Record for LengthRefusal {
    fn to_body(&self) -> Option<Vec<u8>> {
        let most_chars = self.most_chars.map(|chars| format!(":{chars}")).unwrap_or_default();
        Some(format!("{}{}{most_chars}", self.history, self.messages).into_bytes())
    }

    fn from_body(body: &[u8]) -> Option<Self> {
        let (history, rest) = split_hash(body)?;
        let number = |digits: &[u8]| usize::try_from(parse_number(digits)?).ok();
        let mut parts = rest.split(|byte| *byte == b':');
        let messages = number(parts.next()?)?;
        let most_chars = parts.next().map(|chars| number(chars).ok_or(())).transpose().ok()?;
        Some(Self { messages, history, most_chars })
    }
}

impl Fact for LengthRefusal {
    const KIND: RecordKind = RecordKind::Overflow;
    const RETENTION: Retention = Retention::Last(MOST_OVERFLOWS);
    const ROOM: Room = Room::Conversations;
}

/// The refusals among `all` that are of this history, the shortest first: requests of it that were too long for `model`.
pub fn refusals_of(all: Vec<LengthRefusal>, transcript: &Transcript, model: Hash) -> Vec<LengthRefusal> {
    let is_known =
        |refusal: &LengthRefusal| history(transcript, model, refusal.messages) == Some(refusal.history);
    let mut known: Vec<LengthRefusal> = all.into_iter().filter(is_known).collect();
    known.sort_unstable_by_key(|refusal| refusal.messages);
    known
}

/// With which hidden exchanges a history was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentExchanges {
    /// The history's digest.
    pub history: Hash,
    /// The digest of the hidden exchanges that were put back in it; 0 if there were none.
    pub rounds: u64,
}

impl Record for SentExchanges {
    fn to_body(&self) -> Option<Vec<u8>> {
        Some(format!("{}{}", self.history, self.rounds).into_bytes())
    }

    fn from_body(body: &[u8]) -> Option<Self> {
        let (history, rounds) = split_hash(body)?;
        Some(Self { history, rounds: parse_number(rounds)? })
    }
}

impl Fact for SentExchanges {
    const KIND: RecordKind = RecordKind::History;
    const RETENTION: Retention = Retention::Value;
    const ROOM: Room = Room::Conversations;
}

/// How a request whose reasoning is bound to what came before was sent: its conversation is the beginning of later ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentBeginning {
    /// A digest of all that toolrein changed in it; 0 if it changed nothing.
    pub changes: u64,
    /// So many of its first items were sent without what the model thought.
    pub without_thinking: usize,
}

/// Both numbers, separated by a space.
impl Record for SentBeginning {
    fn to_body(&self) -> Option<Vec<u8>> {
        Some(format!("{} {}", self.changes, self.without_thinking).into_bytes())
    }

    fn from_body(body: &[u8]) -> Option<Self> {
        let at = memchr::memchr(b' ', body)?;
        let without_thinking = usize::try_from(parse_number(&body[at + 1..])?).ok()?;
        Some(Self { changes: parse_number(&body[..at])?, without_thinking })
    }
}

impl Fact for SentBeginning {
    const KIND: RecordKind = RecordKind::Beginning;
    const RETENTION: Retention = Retention::Value;
    const ROOM: Room = Room::Conversations;
}

/// What is known of a conversation that the upstream keeps, as its dialect writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamRecord(pub Bytes);

impl Record for UpstreamRecord {
    fn to_body(&self) -> Option<Vec<u8>> {
        Some(self.0.to_vec())
    }

    fn from_body(body: &[u8]) -> Option<Self> {
        Some(Self(Bytes::copy_from_slice(body)))
    }
}

impl Fact for UpstreamRecord {
    const KIND: RecordKind = RecordKind::UpstreamHistory;
    const RETENTION: Retention = Retention::Value;
    const ROOM: Room = Room::Bytes;

    fn size(&self) -> usize {
        size_of::<Self>() + self.0.len()
    }
}

/// A call of one quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaCall {
    /// The quota of its caller.
    pub quota: Quota,
    /// See [`Use::call`].
    pub call: Hash,
    /// See [`Use::request`].
    pub request: Hash,
    /// The use of an earlier try of the request, as the request found it: another process may have reported it. The call is
    /// handed out once more by it, to a client that has sent its request again, and does not count.
    pub again: Option<Use>,
    /// In ms since the epoch.
    pub at_ms: u64,
}

/// A call that a limit over several conversations is to count, before it is handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallReservation {
    /// By a quota that allows its caller so many calls.
    Quota { call: QuotaCall, most: usize },
    /// By the sum of this key, which may hold so many calls.
    Sum { key: Hash, most: u64 },
}

/// What became of a [`CallReservation`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallReservationResult {
    pub reserved: ReservationResult,
    /// The use by which a quota counts the call, where it does.
    pub counted: Option<Use>,
}

/// The writes by which `reserved` is returned: the calls of these `reservations` are not handed out.
pub fn return_reservations(reservations: &[CallReservation], reserved: &[CallReservationResult]) -> Writes {
    let mut writes = Writes::default();
    for (reservation, reserved) in reservations.iter().zip(reserved) {
        match (reservation, &reserved.reserved, reserved.counted) {
            // A try of the client's is no call.
            (CallReservation::Quota { call, .. }, _, Some(counted)) if call.again.is_none() => {
                writes.returned.push((call.quota.name, counted));
            }
            (CallReservation::Sum { key, .. }, ReservationResult::Granted { .. }, _) => {
                writes.tallied.push((*key, Tally::refund(Sums::ONE_CALL)));
            }
            _ => {}
        }
    }
    writes
}

/// What one request showed of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// Whose request it was.
    pub caller: Hash,
    /// With these, the model accepted the request; without, it refused it.
    pub refused: Adaptations,
    /// Without these, the model accepted the request.
    pub accepted: Adaptations,
    /// When the request came, in ms since the epoch.
    pub at_ms: u64,
}

/// The most evidence in one list, the newest: of each refusal, two callers and one request that was accepted are enough.
pub const MOST_EVIDENCE: usize = 32;

/// The caller, the time, and the words of what was refused and of what was accepted.
impl Record for Evidence {
    fn to_body(&self) -> Option<Vec<u8>> {
        let words = |all: Adaptations| {
            let words: Vec<&str> = all.iter().filter_map(Adaptation::refused).collect();
            words.join(",")
        };
        let (refused, accepted) = (words(self.refused), words(self.accepted));
        Some(format!("{}{} {refused} {accepted}", self.caller, self.at_ms).into_bytes())
    }

    fn from_body(body: &[u8]) -> Option<Self> {
        let (caller, rest) = split_hash(body)?;
        let mut parts = rest.split(|byte| *byte == b' ');
        let (at_ms, refused, accepted) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() {
            return None;
        }
        let (refused, accepted) = (parse_refusals(refused)?, parse_refusals(accepted)?);
        Some(Self { caller, refused, accepted, at_ms: parse_number(at_ms)? })
    }
}

/// The adaptations that avoid the refusals of these names, separated by commas.
fn parse_refusals(names: &[u8]) -> Option<Adaptations> {
    names.split(|byte| *byte == b',').filter(|name| !name.is_empty()).map(Adaptation::of_refused).collect()
}

impl Fact for Evidence {
    const KIND: RecordKind = RecordKind::Evidence;
    const RETENTION: Retention = Retention::Last(MOST_EVIDENCE);
    const ROOM: Room = Room::Models;
    const LIFETIME: Lifetime = Lifetime::Refusals;
}

/// The keys of the lists of evidence about a model at its upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelKeys {
    /// Of all callers.
    pub all: Hash,
    /// Of the request's caller.
    pub own: Hash,
}

/// The evidence about a model, in the order in which it came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownEvidence {
    /// Of all callers.
    pub all: Vec<Evidence>,
    /// Of the request's caller.
    pub own: Vec<Evidence>,
}
