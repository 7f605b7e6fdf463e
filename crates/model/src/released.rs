//! Release times of calls: when a call was handed to a client and after which conversation. What the state store
//! keeps of each time, and what follows from several. Ids repeat at some providers, so one key may belong to calls of
//! several conversations. Evaluates what is known; keeps nothing.

use super::calls::Call;
use super::fact::body::{parse_number, split_hash};
use super::fact::{Fact, Record, RecordKind, RecordList, Records, Retention, Room};
use super::identity::{Domain, Hash, HashKey};

/// One release of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// The digest of what the model saw before it made the call ([`super::calls::PairedCalls::context`]).
    pub context: Hash,
    /// The digest of the hidden exchange before it; [`NOTHING_HIDDEN`] if the model was not asked again and none of its
    /// calls was blocked.
    pub hidden: Hash,
    /// In ms since the epoch.
    pub at_ms: u64,
}

/// All known releases under one key, the oldest first.
pub type Releases = Records<Release>;

/// The client was shown all that the model said.
pub const NOTHING_HIDDEN: Hash = Hash(0);

/// Releases kept of one key, the newest: more than two mean only that the id is not unique.
pub const MOST_RELEASES: usize = 8;

/// What is known of the hidden exchange before a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hidden {
    /// The call was not handed out, as far as is known.
    Unknown,
    Nothing,
    /// The exchange with this digest.
    Exchange(Hash),
    /// Conversations that cannot be distinguished had different ones.
    Ambiguous,
}

/// The digest of a hidden exchange.
pub fn hidden_digest(messages: &[u8], key: &HashKey) -> Hash {
    if messages.is_empty() { NOTHING_HIDDEN } else { key.hash(Domain::Hidden, &[messages]) }
}

impl Record for Release {
    fn to_body(&self) -> Option<Vec<u8>> {
        Some(format!("{}{}{}", self.context, self.hidden, self.at_ms).into_bytes())
    }

    fn from_body(body: &[u8]) -> Option<Self> {
        let (context, rest) = split_hash(body)?;
        let (hidden, at_ms) = split_hash(rest)?;
        Some(Self { context, hidden, at_ms: parse_number(at_ms)? })
    }
}

impl Fact for Release {
    const KIND: RecordKind = RecordKind::Release;
    const RETENTION: Retention = Retention::Last(MOST_RELEASES);
    const ROOM: Room = Room::Calls;
    const IS_REPLICATED: bool = true;

    /// Of releases with the same context and hidden exchange the latest time counts, and only the newest releases are kept.
    fn add_to(self, known: &mut RecordList<Self>) {
        let is_same = |one: &Self| one.context == self.context && one.hidden == self.hidden;
        let at_ms = known.iter().find(|one| is_same(one)).map_or(self.at_ms, |one| one.at_ms.max(self.at_ms));
        known.retain(|one| !is_same(one));
        known.push(Self { at_ms, ..self });
        known.sort_by_key(|one| one.at_ms);
        let surplus = known.len().saturating_sub(MOST_RELEASES);
        known.drain(..surplus);
    }
}

/// The earliest and the latest time at which `call` may have been handed out, in ms since the epoch: from the
/// releases of its own conversation where these are known, else from all.
pub fn times(call: &Call, releases: &[Release]) -> Option<(u64, u64)> {
    let span = |fits: &dyn Fn(&Release) -> bool| {
        let times = || releases.iter().filter(|one| fits(one)).map(|one| one.at_ms);
        times().min().zip(times().max())
    };
    span(&|one| one.context == call.context).or_else(|| span(&|_| true))
}

/// The hidden exchange before `call`, as far as it is known. A call with a random id is identified by the id, if the
/// id came in only one conversation: the client may have edited what is before the call. Any other call is known in
/// its own context only.
pub fn hidden_before(call: &Call, releases: &[Release]) -> Hidden {
    let one_of = |mut hidden: &mut dyn Iterator<Item = Hash>| {
        let first = hidden.next()?;
        let is_one = (&mut hidden).all(|other| other == first);
        Some(match (is_one, first) {
            (false, _) => Hidden::Ambiguous,
            (true, NOTHING_HIDDEN) => Hidden::Nothing,
            (true, digest) => Hidden::Exchange(digest),
        })
    };
    let own = releases.iter().filter(|one| one.context == call.context);
    one_of(&mut own.map(|one| one.hidden)).unwrap_or_else(|| match releases {
        [first, rest @ ..] if call.has_random_id => {
            let is_trusted = rest.iter().all(|one| one.context == first.context);
            let hidden = is_trusted.then(|| one_of(&mut releases.iter().map(|one| one.hidden))).flatten();
            hidden.unwrap_or(Hidden::Ambiguous)
        }
        _ => Hidden::Unknown,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Identity;
    use crate::testing::{SampleRequest, call, reply, user};

    /// The result of `asked` for a call with this id, whose releases in each context are known; context 0 is its own.
    fn of_call<T>(id: &str, known: &[(u128, u128, u64)], asked: impl Fn(&Call, &[Release]) -> T) -> T {
        let request = SampleRequest::new(&[user("q"), reply([call(id, "f", "{}")])]);
        let identity = Identity { key: HashKey::fixed(1), caller: Hash(1), explicit: None };
        let transcript = request.transcript(&identity);
        let call = &transcript.calls.calls[0];
        let context = |nth: u128| if nth == 0 { call.context } else { Hash(nth) };
        let known = known.iter().map(|(nth, hidden, at_ms)| Release {
            context: context(*nth),
            hidden: Hash(*hidden),
            at_ms: *at_ms,
        });
        asked(call, &known.collect::<Vec<_>>())
    }

    #[test]
    fn a_calls_release_time_comes_from_its_own_context_or_from_all_candidates() {
        for (known, expected) in [
            (&[][..], None),
            (&[(0, 0, 5)], Some((5, 5))),
            (&[(1, 0, 3), (0, 0, 5), (2, 0, 9)], Some((5, 5))),
            (&[(0, 0, 5), (0, 8, 7), (1, 0, 9)], Some((5, 7))),
            (&[(1, 0, 3), (2, 0, 9)], Some((3, 9))),
        ] {
            assert_eq!(of_call("call_1", known, times), expected, "{known:?}");
        }
    }

    #[test]
    fn a_hidden_exchange_is_found_by_the_calls_context_or_by_an_unambiguous_random_id() {
        const RANDOM: &str = "call_Ae2Y4fDJmxZkQhWq8LbTzR1c";
        let hidden = Hidden::Exchange(Hash(8));
        for (id, known, expected) in [
            ("call_1", &[][..], Hidden::Unknown),
            ("call_1", &[(0, 8, 1)], hidden),
            ("call_1", &[(0, 0, 1)], Hidden::Nothing),
            ("call_1", &[(0, 8, 1), (1, 9, 2)], hidden),
            ("call_1", &[(0, 8, 1), (0, 9, 2)], Hidden::Ambiguous),
            ("call_1", &[(0, 8, 1), (0, 0, 2)], Hidden::Ambiguous),
            ("call_1", &[(1, 8, 1)], Hidden::Unknown),
            (RANDOM, &[], Hidden::Unknown),
            (RANDOM, &[(1, 8, 1)], hidden),
            (RANDOM, &[(1, 0, 1)], Hidden::Nothing),
            (RANDOM, &[(1, 8, 1), (1, 9, 2)], Hidden::Ambiguous),
            (RANDOM, &[(1, 8, 1), (2, 8, 2)], Hidden::Ambiguous),
            (RANDOM, &[(0, 8, 1), (2, 9, 2)], hidden),
        ] {
            assert_eq!(of_call(id, known, hidden_before), expected, "{id} {known:?}");
        }
    }
}
