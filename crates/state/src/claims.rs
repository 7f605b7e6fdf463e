//! Claims of the calls that a person has approved: each question can be claimed once. Whether an answer is an approval is
//! decided before it comes here.

use model::fact::Record;
use model::fact::body::{parse_number, split_hash};
use model::identity::Hash;
use model::store::Claim;

/// Two equal requests within this time were sent in parallel and are not a retry: clients wait longer before they
/// retry (the openai packages at least 375 ms).
const TRIES_AGAIN_MS: u64 = 300;
/// How long a client that lost the answer may ask for it again.
const LOST_MS: u64 = 60_000;

/// Which request took the calls of a question, and when, in ms since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimRecord {
    pub request: Hash,
    pub at_ms: u64,
}

impl ClaimRecord {
    /// The record of `claim`.
    pub(super) fn new(claim: &Claim) -> Self {
        Self { request: claim.request, at_ms: claim.now_ms }
    }

    /// Whether `claim` is of the request that took the calls, which has lost its answer on the way: it gets them once more.
    pub(super) fn may_be_repeated_by(&self, claim: &Claim) -> bool {
        let since = claim.now_ms.saturating_sub(self.at_ms);
        self.request == claim.request && (TRIES_AGAIN_MS..LOST_MS).contains(&since)
    }
}

impl Record for ClaimRecord {
    fn to_body(&self) -> Option<Vec<u8>> {
        Some(format!("{}{}", self.request, self.at_ms).into_bytes())
    }

    fn from_body(body: &[u8]) -> Option<Self> {
        let (request, at_ms) = split_hash(body)?;
        Some(Self { request, at_ms: parse_number(at_ms)? })
    }
}

/// The claims of one question, as this process knows them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claims {
    first: ClaimRecord,
    /// That request was repeated and got the calls again: the approval is used up.
    is_repeated: bool,
}

impl Claims {
    /// The claims of a question that expires at `expires_ms`, with `claim`; and whether it gets the calls.
    pub(super) fn take(known: Option<Self>, claim: &Claim, expires_ms: u64) -> (Option<Self>, bool) {
        match known {
            None if claim.now_ms < expires_ms => {
                (Some(Self { first: ClaimRecord::new(claim), is_repeated: false }), true)
            }
            None => (None, false),
            Some(known) => {
                let is_given = !known.is_repeated && known.first.may_be_repeated_by(claim);
                (Some(Self { is_repeated: known.is_repeated || is_given, ..known }), is_given)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether each of these claims, by request and time, gets the calls of a question that expires at 1,000.
    fn given<const N: usize>(claims: [(u128, u64); N]) -> [bool; N] {
        let mut known = None;
        claims.map(|(request, now_ms)| {
            let claim = Claim { question: Hash(1), request: Hash(request), now_ms };
            let (next, is_given) = Claims::take(known, &claim, 1_000);
            known = next;
            is_given
        })
    }

    #[test]
    fn a_question_is_answered_once_and_not_after_its_time() {
        assert_eq!(given([(1, 999), (2, 999), (2, 2_000)]), [true, false, false], "another approval");
        assert_eq!(given([(1, 1_000)]), [false], "too late");
    }

    #[test]
    fn a_retry_within_its_time_gets_the_approved_calls_once_more_and_a_duplicate_does_not() {
        for (now_ms, again) in [(500, false), (799, false), (800, true), (60_499, true), (60_500, false)] {
            let [first, other, retry, ..] = given([(1, 500), (2, now_ms), (1, now_ms)]);
            assert_eq!((first, other, retry), (true, false, again), "{now_ms}");
        }
        let used_up = given([(1, 500), (1, 800), (1, 800), (1, 1_100), (1, 60_499)]);
        assert_eq!(used_up, [true, true, false, false, false]);
    }
}
