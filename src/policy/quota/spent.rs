//! What a caller has used of its quotas, and what the request says beside it.

use crate::conversation::account::Account;
use crate::plan::Reason;
use std::sync::Arc;

/// What a caller has used, and may use.
#[derive(Clone, Default)]
pub struct Spent {
    /// Of each quota.
    pub(super) uses: Vec<Use>,
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

/// What is used of one quota.
#[derive(Clone, Default)]
pub(super) struct Use {
    /// How many calls are allowed; `None`: as many as the caller likes.
    pub(super) allowed: Option<usize>,
    /// When they were handed out, in ms since the epoch.
    pub(super) times: Vec<u64>,
    /// The newest reply has called one of its tools.
    pub(super) is_called: bool,
}

impl Use {
    pub(super) fn new(allowed: Option<usize>, times: Vec<u64>) -> Self {
        Self { allowed, times, is_called: false }
    }
}
