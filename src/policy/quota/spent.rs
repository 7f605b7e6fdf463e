//! What a caller has used of its quotas, and what the model was shown of that.

use crate::plan::Reason;
use crate::policy::period::Period;

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
}

/// What is used of one quota.
#[derive(Clone, Default)]
pub(super) struct Use {
    /// How many calls are allowed; `None`: as many as the caller likes.
    pub(super) allowed: Option<usize>,
    /// When they were handed out, in ms since the epoch.
    pub(super) times: Vec<u64>,
    /// When the latest call of this conversation was, of those in the group of results being read.
    latest_ms: Option<u64>,
    /// How many calls were left when the model was shown that last.
    shown: Option<usize>,
}

impl Use {
    pub(super) fn new(allowed: Option<usize>, times: Vec<u64>) -> Self {
        Self { allowed, times, ..Self::default() }
    }

    /// Notes a call of this conversation, and when it was handed out, where that is known.
    pub(super) fn note(&mut self, released_ms: Option<u64>) {
        self.latest_ms = self.latest_ms.max(released_ms);
    }

    /// How many calls the latest one in the group left, and when the first of its window leaves that, in ms since the
    /// epoch. A function of the times of calls up to that one, so that later requests find the same.
    pub(super) fn left_by_latest(&mut self, per: Period) -> Option<(usize, u64)> {
        let (latest_ms, most) = (self.latest_ms.take()?, self.allowed?);
        let until: Vec<u64> = self.times.iter().copied().filter(|at| *at <= latest_ms).collect();
        let inside = per.inside(&until, latest_ms);
        let first = inside.first()?.saturating_add(per.millis());
        Some((most.saturating_sub(inside.len()), first))
    }

    /// Whether it is news that so many are `left`: the first time that it is no more than `few`, and when none is.
    pub(super) fn is_news(&mut self, left: usize, few: usize) -> bool {
        if left > few {
            self.shown = None;
            return false;
        }
        let is_news = self.shown.is_none_or(|shown| left == 0 && shown > 0);
        if is_news {
            self.shown = Some(left);
        }
        is_news
    }
}
