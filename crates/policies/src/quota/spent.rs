//! What a caller has used of its quotas, and what the request says beside it.

use crate::about::MOST_COUNTED;
use model::account::Account;
use model::identity::{Hash, HashKey};
use model::plan::{Proposed, Reason};
use model::uses::{Use, use_key};
use std::sync::Arc;

/// What a caller has used, and may use.
#[derive(Clone, Default)]
pub struct Spent {
    /// The uses of each quota, as the state store knows them; empty once the request is open.
    pub(super) known: Vec<Vec<Use>>,
    /// Of each quota.
    pub(super) uses: Vec<QuotaUse>,
    /// What the keys of calls are made with, where there are quotas.
    pub(super) key: Option<HashKey>,
    /// The key of the request.
    pub(super) request: Hash,
    /// More may have been used than is known, and nothing may be called on a quota.
    pub(super) is_away: bool,
    /// Why every tool that the request declares is used up, where that is a reason to refuse it.
    pub(super) refusal: Option<Reason>,
    /// The running turn has called something.
    pub(super) has_called: bool,
    /// What is known of the conversation, where the model is shown how many calls are left.
    pub(super) account: Option<Arc<Account>>,
    /// How many messages the request has.
    pub(super) messages: usize,
    /// When the request came, in ms since the epoch.
    pub(super) now_ms: u64,
}

impl Spent {
    /// The key of a call; `None` while its arguments are not known.
    pub(super) fn key_of(&self, call: &Proposed<'_>) -> Option<Hash> {
        Some(use_key(self.key.as_ref()?, self.request, call.name, call.arguments_hash?))
    }
}

/// What is used of one quota.
#[derive(Clone, Default)]
pub(super) struct QuotaUse {
    /// How many calls are allowed; `None`: as many as the caller likes.
    pub(super) allowed: Option<usize>,
    /// When calls were handed out, in ms since the epoch, oldest first; without those of `free`.
    times: Vec<u64>,
    /// Calls that earlier tries of the same request were handed out, and that it may get again without counting.
    free: Vec<Use>,
    /// When those of `free` were handed out that this reply was handed out again.
    taken: Vec<u64>,
    /// The newest reply has called one of its tools.
    pub(super) is_called: bool,
}

impl QuotaUse {
    /// The state of a quota with these `uses`, for the `request` that came at `now_ms`.
    pub(super) fn new(allowed: Option<usize>, uses: &[Use], request: Hash, now_ms: u64) -> Self {
        let mut new = Self { allowed, ..Self::default() };
        for known in uses {
            let calls = usize::try_from(known.calls).unwrap_or(usize::MAX).min(MOST_COUNTED);
            if known.request == request && known.is_open(now_ms) {
                new.free.extend(std::iter::repeat_n(*known, calls));
            } else {
                new.times.extend(std::iter::repeat_n(known.at_ms, calls));
            }
        }
        new
    }

    /// When calls of others were handed out, and calls of this reply that count.
    pub(super) fn times_of_others(&self) -> &[u64] {
        &self.times
    }

    /// When all calls were handed out, those that count no more included; oldest first.
    pub(super) fn all_times(&self) -> Vec<u64> {
        let own = self.free.iter().map(|known| known.at_ms).chain(self.taken.iter().copied());
        let mut all: Vec<u64> = self.times.iter().copied().chain(own).collect();
        all.sort_unstable();
        all
    }

    /// Whether some calls may be handed out again without counting.
    pub(super) fn has_again(&self) -> bool {
        !self.free.is_empty()
    }

    /// The use by which a call of this key may be handed out again without counting.
    pub(super) fn again(&self, call: Hash) -> Option<Use> {
        self.free.iter().find(|free| free.call == call).copied()
    }

    /// A call of this key is handed out at `now_ms`.
    pub(super) fn hand_out(&mut self, call: Option<Hash>, now_ms: u64) {
        match call.and_then(|call| self.free.iter().position(|free| free.call == call)) {
            Some(at) => self.taken.push(self.free.remove(at).at_ms),
            None => self.times.push(now_ms),
        }
    }
}
