//! The state store's queries, facts, updates and reservations, as plain data. The stores keep them; what a fact means is
//! decided by the engine and the policies.

use crate::Now;
use crate::account::{Carried, Kind, Sums, Tally};
use crate::adaptation::Adaptations;
use crate::histories::history;
use crate::identity::{CallKey, Hash};
use crate::pins::Pinned;
use crate::plan::ReservationResult;
use crate::plan::approval::Confirmation;
use crate::released::{Release, Releases};
use crate::uses::Use;
use crate::{LengthCut, Stopped, Transcript};
use bytes::Bytes;
use std::sync::Arc;

/// Most hidden exchanges under one key: more only occur where the same conversation was held that often.
pub const MOST_AT_ONE_KEY: usize = 64;

/// A hidden exchange, found again by what the client was shown after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HiddenExchange {
    /// The key of the assistant message that follows it.
    pub message_key: Hash,
    /// Messages joined by commas; empty where the client was shown all.
    pub messages: Bytes,
}

/// What one request asks the state store, in one trip.
#[derive(Clone, Debug)]
pub struct StoreQuery {
    /// Calls whose release time is wanted.
    pub calls: Vec<CallKey>,
    /// The keys under which hidden exchanges may be stored.
    pub places: Vec<Hash>,
    /// The lists of what is known of the model.
    pub model: ModelKeys,
    /// The request's digest, to recognise a repetition.
    pub request: Hash,
    pub conversation: Hash,
    /// Histories that may have been sent before.
    pub histories: Vec<Hash>,
    /// The key of the text that the user has answered, where that may be an approval.
    pub answered: Option<Hash>,
    /// The keys of approvals that may be known.
    pub approved: Vec<Hash>,
    /// The quotas whose use by the caller is wanted.
    pub quotas: Vec<Quota>,
    /// Under which keys the account of the conversation may be.
    pub carried: Vec<Hash>,
    /// The sums that are wanted: as they were before this request.
    pub tallies: Vec<Hash>,
    /// What is added to each of them at once: the request, counted by an estimate before it is sent.
    pub ahead: Tally,
    /// The conversation and its caller, where a stop of one of them matters.
    pub stops: Vec<Stop>,
    /// The key of the definitions of tools that were seen, where they are wanted.
    pub pins: Option<Hash>,
    pub now: Now,
}

impl StoreQuery {
    /// A query about the request of this digest and its conversation, which asks for nothing else.
    pub fn new(request: Hash, conversation: Hash, now: Now) -> Self {
        Self {
            calls: Vec::new(),
            places: Vec::new(),
            model: ModelKeys::default(),
            request,
            conversation,
            histories: Vec::new(),
            answered: None,
            approved: Vec::new(),
            quotas: Vec::new(),
            carried: Vec::new(),
            tallies: Vec::new(),
            ahead: Tally::default(),
            stops: Vec::new(),
            pins: None,
            now,
        }
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

/// The store's answers, in the order of the query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// When each call was handed out, and after which context; `None` if unknown.
    pub released: Vec<Option<Releases>>,
    pub rounds: Vec<Vec<HiddenExchange>>,
    pub model: KnownEvidence,
    /// An identical request came before.
    pub repeated: bool,
    /// What the answered text asked, if it was a question.
    pub asked: Option<Arc<Confirmation>>,
    /// Which approvals are known.
    pub approved: Vec<bool>,
    /// The digest of the hidden exchanges that each history was sent with.
    pub sent_exchanges: Vec<Option<u64>>,
    /// The calls of each quota that were handed out within its window, oldest first.
    pub spent: Vec<Vec<Use>>,
    /// The account as of each reply or request.
    pub carried: Vec<Option<Arc<Carried>>>,
    pub tallies: Vec<Tally>,
    /// Requests of the conversation that were refused for their length and accepted when shortened.
    pub overflows: Vec<Overflow>,
    /// Definitions of tools that were seen, the first seen first.
    pub pinned: Vec<Pinned>,
    /// A person has stopped the conversation or its caller.
    pub stopped: Option<Stopped>,
    /// The shared state store did not answer: these are the facts of this process alone.
    pub away: bool,
    /// It answered, but accepts no writes: processes do not learn what the others hand out.
    pub unwritten: bool,
}

/// The update after one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// Calls handed to the client. Every time is kept, since ids repeat at some providers.
    pub released: Vec<(CallKey, Release)>,
    /// Hidden exchanges by key; of equal ones one is kept.
    pub rounds: Vec<(Hash, HiddenExchange)>,
    /// What was seen of the model, by the key of each list that it is added to.
    pub model: Vec<(Hash, Evidence)>,
    /// Questions that were asked, by the key of the text that holds each. The first one under a key is kept.
    pub asked: Vec<(Hash, Confirmation)>,
    /// The keys of approvals that hold for the rest of their conversations.
    pub approved: Vec<Hash>,
    /// With which hidden exchanges the history was sent.
    pub sent: Option<SentExchanges>,
    /// Calls of quotas that were handed out and that no reservation has counted.
    pub spent: Vec<QuotaCall>,
    /// The uses of quotas by calls that were not handed out after all, by the key of their quota.
    pub returned: Vec<(Hash, Use)>,
    /// The account as of a reply or a request, by its key. The last one under a key is kept.
    pub carried: Vec<(Hash, Arc<Carried>)>,
    /// What is to be added to sums, by key.
    pub tallied: Vec<(Hash, Tally)>,
    /// Under the conversation's key: the request was refused for its length and accepted when shortened.
    pub overflow: Option<(Hash, Overflow)>,
    /// Definitions of tools that were seen for the first time.
    pub pinned: Option<NewPins>,
    /// What is known of a conversation that the upstream keeps, by the key of what the client continues from.
    pub history: Option<(Hash, Bytes)>,
}

/// A request that was refused for its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflow {
    /// How many messages it had.
    pub messages: usize,
    /// The digest of these.
    pub history: Hash,
    /// How many characters were left of each of their results; `None` where none was cut for its length.
    pub most_chars: Option<usize>,
}

impl Overflow {
    /// How its results were cut, where they were.
    pub fn cut(&self) -> Option<LengthCut> {
        self.most_chars.map(|most_chars| LengthCut { messages: self.messages, most_chars })
    }
}

/// With which hidden exchanges a history was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentExchanges {
    /// The history's digest.
    pub history: Hash,
    /// The digest of the hidden exchanges that were put back in it; 0 if there were none.
    pub rounds: u64,
}

impl News {
    /// The update that gives `reserved` back: the calls of these `reservations` are not handed out.
    pub fn giving_back(reservations: &[CallReservation], reserved: &[CallReservationResult]) -> Self {
        let mut news = Self::default();
        for (reservation, reserved) in reservations.iter().zip(reserved) {
            match (reservation, &reserved.reserved, reserved.counted) {
                // A try of the client's is no call.
                (CallReservation::Quota { call, .. }, _, Some(counted)) if call.again.is_none() => {
                    news.returned.push((call.quota.name, counted));
                }
                (CallReservation::Sum { key, .. }, ReservationResult::Granted { .. }, _) => {
                    let refunded = Sums::default().with(Kind::Calls, 1);
                    news.tallied.push((*key, Tally { refunded, ..Tally::default() }));
                }
                _ => {}
            }
        }
        news
    }

    /// Whether there is nothing to store.
    pub fn is_empty(&self) -> bool {
        let is_empty = self.released.is_empty() && self.rounds.is_empty() && self.asked.is_empty();
        let is_empty = is_empty && self.carried.is_empty() && self.tallied.is_empty();
        let is_empty = is_empty && self.spent.is_empty() && self.returned.is_empty();
        let is_empty = is_empty && self.overflow.is_none() && self.pinned.is_none();
        let is_empty = is_empty && self.approved.is_empty();
        is_empty && self.model.is_empty() && self.sent.is_none() && self.history.is_none()
    }
}

/// Definitions of tools, seen for the first time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPins {
    /// The key of the conversation, or of its caller.
    pub key: Hash,
    /// In the order of the request.
    pub pins: Vec<Pinned>,
    /// When they were seen, in ms since the epoch.
    pub at_ms: u64,
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

impl Facts {
    /// The requests of this history that were too long for `model`, the shortest first.
    pub fn known_overflows(&self, transcript: &Transcript, model: Hash) -> Vec<Overflow> {
        let is_known =
            |overflow: &&Overflow| history(transcript, model, overflow.messages) == Some(overflow.history);
        let mut known: Vec<Overflow> = self.overflows.iter().filter(is_known).copied().collect();
        known.sort_unstable_by_key(|overflow| overflow.messages);
        known
    }
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

/// Adds `evidence` to a list, which keeps its newest entries.
pub fn add_evidence(known: &mut Vec<Evidence>, evidence: Evidence) {
    known.retain(|other| *other != evidence);
    known.push(evidence);
    let surplus = known.len().saturating_sub(MOST_EVIDENCE);
    known.drain(..surplus);
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
