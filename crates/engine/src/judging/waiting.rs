//! The calls of a reply that wait for an effect, and what was decided on earlier ones of the same client request. Holds
//! data; waits for nothing and asks nobody.

use crate::effects::EffectResult;
use model::assembled::Assembled;
use model::identity::Hash;
use model::plan::approval::{ApprovalDecision, HeldCall};
use model::plan::{Extends, ModelQuestion, Reason, ReasonKind, Reservation, ReservationResult, ToolRun};
use model::store::CallReservationResult;
use policies::set::longest_wait;
use std::sync::Arc;

/// See the file's head.
#[derive(Default)]
pub(super) struct WaitingCalls {
    /// In the order in which they began to wait.
    calls: Vec<WaitingCall>,
    /// The declined tools with their arguments and the person's words: these are not asked about twice.
    declined: Vec<(String, Hash, Option<String>)>,
    /// Why no person can be asked any more.
    silent: Option<ApprovalDecision>,
    /// No call waits for its time any more.
    hurries: bool,
    /// For how long the client has waited for calls whose time was to come, in ms, and until when it still does.
    waited_ms: u64,
    waits_until_ms: u64,
    /// The number of the next call that waits.
    next: u32,
}

/// A call that waits for an effect. It counts as made until then, and is judged again with the effect's result.
pub(crate) struct WaitingCall {
    /// Its number among all that have waited in this client request.
    pub(crate) number: u32,
    pub(super) choice: u32,
    pub(crate) call: Assembled,
    /// See [`Ruling::passed`](policies::set::Ruling::passed); of the first call in a wrapper.
    pub(super) passed: Option<u32>,
    /// How many calls in it were let through.
    pub(super) calls: usize,
    /// The time at which it was judged, in ms since the epoch.
    pub(super) judged_ms: u64,
    pub(crate) awaited: Awaited,
    pub(super) past: Past,
}

/// What a call waits for.
pub(crate) enum Awaited {
    /// A person's decision, which `policy` wants; an approval extends these limits.
    Approval { policy: &'static str, kind: ReasonKind, call: HeldCall, extends: Extends },
    /// So many ms, until the limit of `policy` allows the call.
    Time { policy: &'static str, kind: ReasonKind, ms: u64 },
    /// Another model's answer, which `policy` wants.
    ModelAnswer { policy: &'static str, question: ModelQuestion },
    /// What becomes of the reservations of each call in it: a wrapper holds several.
    Reservations(Vec<Vec<Reservation>>),
    /// What its tool gives with these arguments, which toolrein runs as a policy wants.
    ToolResult { run: ToolRun, arguments: String },
}

/// What became of the effects that a call has waited for.
#[derive(Default)]
pub(super) struct Past {
    /// For the record: each policy whose wish was fulfilled, with the name of the action.
    pub(super) acts: Vec<(&'static str, &'static str)>,
    /// A person has approved it with these arguments, and that these limits are extended.
    pub(super) approved: Option<(String, Extends)>,
    /// What its tool gave that toolrein has run; the inner `None`: it failed.
    pub(super) executed: Option<Option<Arc<str>>>,
    /// What became of the reservations of each call in it.
    pub(super) reserved: Vec<Vec<(Reservation, ReservationResult)>>,
    /// What a policy wrote anew in it is recorded.
    pub(super) is_noted: bool,
}

impl Awaited {
    /// The result where nobody can be asked, or the time cannot be waited for.
    pub(super) fn failure(&self) -> EffectResult {
        match self {
            Self::Approval { .. } => EffectResult::Decided(ApprovalDecision::Unasked.into()),
            Self::Time { .. } => EffectResult::Slept(false),
            Self::ModelAnswer { .. } => EffectResult::Answered(None),
            Self::ToolResult { .. } => EffectResult::Executed(None),
            Self::Reservations(_) => EffectResult::Reserved(Vec::new()),
        }
    }
}

impl Past {
    /// What became of the reservations of the call at this `index` in it.
    pub(super) fn reserved(&self, index: usize) -> Vec<(Reservation, ReservationResult)> {
        self.reserved.get(index).cloned().unwrap_or_default()
    }

    /// Takes what became of these reservations, in order. A call whose reservation cannot be had counts in this process
    /// alone.
    pub(super) fn take_reserved(
        &mut self,
        reservations: Vec<Vec<Reservation>>,
        results: &[CallReservationResult],
    ) {
        let mut results = results.iter().map(|result| result.reserved.clone());
        let mut next = || results.next().unwrap_or(ReservationResult::Granted { alone: true });
        let new =
            reservations.into_iter().map(|of_call| of_call.into_iter().map(|it| (it, next())).collect());
        for (index, new) in new.collect::<Vec<Vec<_>>>().into_iter().enumerate() {
            match self.reserved.get_mut(index) {
                Some(known) => known.extend(new),
                None => self.reserved.push(new),
            }
        }
    }

    /// Whether a person has approved the call with these arguments.
    pub(super) fn approves(&self, arguments: &str) -> bool {
        self.approved.as_ref().is_some_and(|(shown, _)| shown == arguments)
    }
}

impl WaitingCalls {
    /// A number for a call that begins to wait.
    pub(super) fn number(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }

    /// Adds a call.
    pub(super) fn add(&mut self, call: WaitingCall) {
        self.calls.push(call);
    }

    /// Removes the call of this number, if it waits.
    pub(super) fn take(&mut self, number: u32) -> Option<WaitingCall> {
        let at = self.calls.iter().position(|call| call.number == number)?;
        Some(self.calls.remove(at))
    }

    /// The calls that wait, in order.
    pub(super) fn calls(&self) -> &[WaitingCall] {
        &self.calls
    }

    /// For how many ms a call may be held at `now_ms` until none of its `objections` holds any more. All calls of a client
    /// request together wait for `longest_ms` at most.
    pub(super) fn wait_for(
        &self,
        objections: &[(&'static str, Reason)],
        longest_ms: u64,
        now_ms: u64,
    ) -> Option<u64> {
        if longest_ms == 0 || self.hurries {
            return None;
        }
        let wait_ms = longest_wait(objections)?;
        let begins_ms = self.waits_until_ms.max(now_ms);
        let more_ms = now_ms.saturating_add(wait_ms).saturating_sub(begins_ms);
        (self.waited_ms.saturating_add(more_ms) <= longest_ms).then_some(wait_ms)
    }

    /// Counts that the client waits for so many ms from now on. Times that overlap count once.
    pub(super) fn count_wait(&mut self, wait_ms: u64, now_ms: u64) {
        let (begins_ms, at_ms) = (self.waits_until_ms.max(now_ms), now_ms.saturating_add(wait_ms));
        self.waited_ms += at_ms.saturating_sub(begins_ms);
        self.waits_until_ms = at_ms.max(begins_ms);
    }

    /// No call is to wait for its time any more: one could not wait so long.
    pub(super) fn hurry(&mut self) {
        self.hurries = true;
    }

    /// Notes that a person has declined a call.
    pub(super) fn decline(&mut self, tool: &str, arguments: Hash, words: Option<String>) {
        self.declined.push((tool.to_owned(), arguments, words));
    }

    /// Notes that no person can be asked any more.
    pub(super) fn silence(&mut self, why: ApprovalDecision) {
        self.silent = Some(why);
    }

    /// Why no person is asked about a call, with the words that were said: an equal one was declined, or nobody answers.
    pub(super) fn refused_before(
        &self,
        tool: &str,
        arguments: Hash,
    ) -> Option<(ApprovalDecision, Option<&str>)> {
        let declined = self.declined.iter().find(|(name, seen, _)| name == tool && *seen == arguments);
        let declined = declined.map(|(_, _, words)| (ApprovalDecision::Declined, words.as_deref()));
        declined.or(self.silent.map(|silent| (silent, None)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objection(wait_ms: u64) -> Vec<(&'static str, Reason)> {
        let reason = Reason::new(ReasonKind::RateLimit, "wait");
        vec![("rate_limit", Reason { wait_ms: Some(wait_ms), ..reason })]
    }

    #[test]
    fn calls_of_one_request_wait_together_no_longer_than_one_may_and_overlapping_times_count_once() {
        let mut waiting = WaitingCalls::default();
        assert_eq!(waiting.wait_for(&objection(600), 1_000, 0), Some(600));
        waiting.count_wait(600, 0);
        assert_eq!(waiting.wait_for(&objection(900), 1_000, 100), Some(900), "until 1,000, as the first 600");
        waiting.count_wait(900, 100);
        assert_eq!(waiting.wait_for(&objection(1), 1_000, 1_000), None, "all is used up");
        assert_eq!(WaitingCalls::default().wait_for(&objection(1), 0, 0), None, "none may wait");
    }

    #[test]
    fn once_a_call_could_not_wait_none_does() {
        let mut waiting = WaitingCalls::default();
        waiting.hurry();
        assert_eq!(waiting.wait_for(&objection(1), 1_000, 0), None);
    }

    #[test]
    fn a_declined_call_is_refused_with_the_words_and_others_only_where_nobody_answers() {
        let mut waiting = WaitingCalls::default();
        waiting.decline("pay", Hash(1), Some("not today".to_owned()));
        assert_eq!(
            waiting.refused_before("pay", Hash(1)),
            Some((ApprovalDecision::Declined, Some("not today")))
        );
        assert_eq!(waiting.refused_before("pay", Hash(2)), None);
        waiting.silence(ApprovalDecision::Expired);
        assert_eq!(waiting.refused_before("pay", Hash(2)), Some((ApprovalDecision::Expired, None)));
    }
}
