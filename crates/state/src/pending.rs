//! Pending approvals: each can be used once. Decides which request gets the calls. Whether an answer is an
//! approval is decided before it comes here.

use model::plan::approval::Confirmation;
use model::store::Claim;
use std::sync::Arc;

/// Two equal requests within this time were sent in parallel and are not a retry: clients wait longer before they
/// retry (the openai packages at least 375 ms).
const TRIES_AGAIN_MS: u64 = 300;
/// How long a client that lost the answer may ask for it again.
const LOST_MS: u64 = 60_000;

/// One question to a person.
#[derive(Clone)]
pub(super) struct PendingApproval {
    pub(super) confirmation: Arc<Confirmation>,
    /// The request that took the calls, and when, in ms since the epoch.
    taken: Option<(Claim, u64)>,
    /// That request was retried and got the calls again.
    repeated: bool,
}

impl PendingApproval {
    /// A question that nobody has answered.
    pub(super) fn new(confirmation: Arc<Confirmation>) -> Self {
        Self { confirmation, taken: None, repeated: false }
    }

    /// A question whose calls were taken by `taken`, if by any request.
    pub(super) fn taken(confirmation: Arc<Confirmation>, taken: Option<(Claim, u64)>) -> Self {
        Self { confirmation, taken, repeated: false }
    }

    /// Takes the calls for `claim`; false if they are gone. The request that took them gets them once more if the
    /// identical request arrives again within a minute: then its answer was lost on the way. After that the approval is
    /// used up, and any other request is too late.
    pub(super) fn take(&mut self, claim: Claim) -> bool {
        match self.taken {
            None if claim.now_ms < self.confirmation.expires_ms => {
                self.taken = Some((claim, claim.now_ms));
                true
            }
            None => false,
            Some((first, at_ms)) => {
                let since = claim.now_ms.saturating_sub(at_ms);
                let is_retry = first.request == claim.request && (TRIES_AGAIN_MS..LOST_MS).contains(&since);
                is_retry && !std::mem::replace(&mut self.repeated, true)
            }
        }
    }

    /// Whether the calls were taken before.
    pub(super) fn is_taken(&self) -> bool {
        self.taken.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::identity::Hash;

    fn pending() -> PendingApproval {
        let confirmation = Confirmation { expires_ms: 1000, ..Confirmation::default() };
        PendingApproval::new(Arc::new(confirmation))
    }

    fn claim(request: u128, now_ms: u64) -> Claim {
        Claim { question: Hash(1), request: Hash(request), now_ms }
    }

    #[test]
    fn a_question_is_answered_once_and_not_after_its_time() {
        let mut pending = pending();
        assert!(pending.take(claim(1, 999)));
        assert!(!pending.take(claim(2, 999)), "another approval");
        assert!(!pending.take(claim(2, 2000)), "another approval later");
        assert!(!self::pending().take(claim(1, 1000)), "too late");
    }

    #[test]
    fn a_retry_within_its_time_gets_the_approved_calls_once_more_and_a_duplicate_does_not() {
        for (now_ms, again) in [(500, false), (799, false), (800, true), (60_499, true), (60_500, false)] {
            let mut pending = pending();
            assert!(pending.take(claim(1, 500)));
            assert!(!pending.take(claim(2, now_ms)), "{now_ms}");
            assert_eq!(pending.take(claim(1, now_ms)), again, "{now_ms}");
            for later_ms in [now_ms, now_ms + 300, 60_499] {
                assert!(!pending.take(claim(1, later_ms)) || !again, "an approval is used up");
            }
        }
    }
}
