//! When a call was handed to a client, and behind which conversation: what the state store keeps of each time, and what
//! follows from several. Ids repeat at some providers, so that one key may stand for calls of several conversations.
//! Reads what is known; keeps nothing.

use super::calls::Call;
use super::identity::{Domain, Hash, HashKey};
use std::sync::Arc;

/// One time that a call was handed out.
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

/// All that is known of one key, the oldest first.
pub type Releases = Arc<[Release]>;

/// The client was shown all that the model said.
pub const NOTHING_HIDDEN: Hash = Hash(0);

/// Times kept of one key, the newest: more than two say only that the id is no name.
pub const MOST_RELEASES: usize = 8;

/// What is known of the hidden exchange before a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hidden {
    /// The call was not handed out, as far as is known.
    Unknown,
    Nothing,
    /// The exchange with this digest.
    Exchange(Hash),
    /// Conversations that cannot be told apart had different ones.
    Ambiguous,
}

/// The digest of a hidden exchange.
pub fn hidden_digest(messages: &[u8], key: &HashKey) -> Hash {
    if messages.is_empty() { NOTHING_HIDDEN } else { key.hash(Domain::Hidden, &[messages]) }
}

/// `known` with `more`: of equal context and hidden exchange the latest time counts, and the newest are kept.
pub fn with(known: &[Release], more: Release) -> Releases {
    let is_same = |one: &Release| one.context == more.context && one.hidden == more.hidden;
    let at_ms = known.iter().find(|one| is_same(one)).map_or(more.at_ms, |one| one.at_ms.max(more.at_ms));
    let mut all: Vec<Release> = known.iter().filter(|one| !is_same(one)).copied().collect();
    all.push(Release { at_ms, ..more });
    all.sort_by_key(|one| one.at_ms);
    all.drain(..all.len().saturating_sub(MOST_RELEASES));
    all.into()
}

/// The earliest and the latest time at which `call` may have been handed out, in ms since the epoch: by what its own
/// conversation shows where that is known, else by all.
pub fn times(call: &Call<'_>, releases: &[Release]) -> Option<(u64, u64)> {
    let span = |fits: &dyn Fn(&Release) -> bool| {
        let times = || releases.iter().filter(|one| fits(one)).map(|one| one.at_ms);
        times().min().zip(times().max())
    };
    span(&|one| one.context == call.context).or_else(|| span(&|_| true))
}

/// What is known of the hidden exchange before `call`. A call whose id is random is known by its id, if that came in one
/// conversation alone: the client may have edited what stands before it. Any other is known in its own context only.
pub fn hidden_before(call: &Call<'_>, releases: &[Release]) -> Hidden {
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
        [first, rest @ ..] if call.has_random_id() => {
            let is_trusted = rest.iter().all(|one| one.context == first.context);
            let hidden = is_trusted.then(|| one_of(&mut releases.iter().map(|one| one.hidden))).flatten();
            hidden.unwrap_or(Hidden::Ambiguous)
        }
        _ => Hidden::Unknown,
    })
}
