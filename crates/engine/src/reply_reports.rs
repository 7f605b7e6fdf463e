//! Reports of the replies to one client request: what later requests must find in the state store (the calls that were
//! handed out, hidden exchanges, sums of the account), and what was billed. A report says what is known so far, also where
//! the client leaves in the middle; what was reported before is not added again.

use super::Core;
use super::account::{Bill, OpenAccount};
use super::approvals::approve_lastingly;
use super::notes::{ReaskCause, note_judged, note_reasked, note_usage};
use super::quota_uses::{QuotaUses, quota_of};
use super::store::ReplyContext;
use crate::judging::Judging;
use crate::pipeline::ClientChoice;
use crate::reasks::Reasks;
use crate::restore::RequestContext;
use dialects::usage::Usage;
use model::fact::Writes;
use model::identity::Hash;
use model::plan::{Reservation, tokens_of};
use model::released::Release;
use model::store::{CallReservation, CallReservationResult, QuotaCall, SentExchanges};

/// See the module.
pub(super) struct ReplyReports {
    /// The digest of all that the model sees of the conversation.
    context: Hash,
    /// The same without the ids of calls and results.
    context_without_ids: Hash,
    /// With which hidden exchanges the history is sent; `None` after that was reported.
    sent: Option<SentExchanges>,
    /// Where a policy limits the account.
    open_account: Option<Box<OpenAccount>>,
    /// What is used of quotas.
    quotas: QuotaUses,
    /// How many judged calls are in the record.
    noted: usize,
    /// Why the model was asked again, each time.
    reask_causes: Vec<ReaskCause>,
    /// The reply is calls that a person has approved.
    hands_out: bool,
}

impl ReplyReports {
    /// What is to be reported of the replies to a request with these digests of its conversation.
    pub(super) fn new(
        (context, context_without_ids): (Hash, Hash),
        sent: SentExchanges,
        open_account: Option<Box<OpenAccount>>,
        quotas: QuotaUses,
    ) -> Self {
        Self {
            context,
            context_without_ids,
            sent: Some(sent),
            open_account,
            quotas,
            noted: 0,
            reask_causes: Vec::new(),
            hands_out: false,
        }
    }

    /// The digest of all that the model sees of the conversation.
    pub(super) fn context(&self) -> Hash {
        self.context
    }

    /// The reply is calls that a person has approved.
    pub(super) fn hand_out(&mut self) {
        self.hands_out = true;
    }

    /// The reservation of a call in the form that the state store takes; `None`: nothing counts there.
    pub(super) fn reservation(
        &self,
        core: &Core,
        reservation: &Reservation,
        now_ms: u64,
    ) -> Option<CallReservation> {
        match *reservation {
            Reservation::Quota { quota, most, call, request, again } => {
                let quota = quota_of(core, quota)?;
                let call = QuotaCall { quota, call, request, again, at_ms: now_ms };
                Some(CallReservation::Quota { call, most })
            }
            Reservation::Again { request, again } => {
                let quota = core.handed_out?;
                let call = QuotaCall { quota, call: again.call, request, again: Some(again), at_ms: now_ms };
                // Where the earlier use is taken, another limit counts the call.
                Some(CallReservation::Quota { call, most: 0 })
            }
            Reservation::Budget { scope, most } => self.open_account.as_ref()?.reservation(scope, most),
        }
    }

    /// Takes what became of the reservations of the waiting call of this number.
    pub(super) fn take_reserved(
        &mut self,
        number: u32,
        reservations: &[CallReservation],
        reserved: &[CallReservationResult],
    ) {
        for (reservation, reserved) in reservations.iter().zip(reserved) {
            match (reservation, &mut self.open_account) {
                (CallReservation::Quota { .. }, _) => {
                    self.quotas.take_reserved(number, *reservation, reserved);
                }
                (CallReservation::Sum { key, .. }, Some(account)) => {
                    account.take_reserved(number, *key, &reserved.reserved);
                }
                (CallReservation::Sum { .. }, None) => {}
            }
        }
    }

    /// Gives back what was reserved for the waiting call of this number, which is not handed out.
    pub(super) fn give_back(&mut self, core: &mut Core, number: u32) {
        core.store(self.quotas.give_back(number));
        if let Some(account) = &mut self.open_account {
            core.store(account.give_back(number));
        }
    }

    /// The waiting call of this number is handed out: what was reserved for it stays.
    pub(super) fn settle(&mut self, number: u32) {
        self.open_account.iter_mut().for_each(|account| account.settle(number));
    }

    /// Gives back what was reserved for calls that are not among these choices.
    pub(super) fn close(&mut self, core: &mut Core, choices: &[ClientChoice<'_>]) {
        let returned = self.quotas.close(core, choices);
        core.store(returned);
        if let Some(account) = &mut self.open_account {
            core.store(account.close());
        }
    }

    /// The request is sent.
    pub(super) fn count_sent(&mut self, core: &mut Core) {
        core.record.upstream_requests += 1;
        if let Some(open_account) = &mut self.open_account {
            let counted = open_account.count_sent(core.record.upstream_requests.into());
            core.store(counted);
        }
    }

    /// A reply has ended after which the model is asked again; `billed`: the tokens of all replies so far.
    pub(super) fn reply_ended(&mut self, judging: &Judging, billed: u64) {
        if let Some(open_account) = &mut self.open_account {
            open_account.reply_ended();
        }
        self.reask_causes.extend(ReaskCause::of(judging, billed));
    }

    /// Notes the outcome of the calls that were judged since the last time, and the remaining limits.
    pub(super) fn note_judged(&mut self, core: &mut Core, judging: &Judging, now_ms: u64) {
        note_judged(core, judging, &mut self.noted, now_ms);
    }

    /// The upstream refused the request in flight, or it was not sent: no more is billed for it than is reported in
    /// `usages`, those of all replies.
    pub(super) fn not_billed(&mut self, core: &mut Core, usages: &[Usage]) {
        if let Some(open_account) = &mut self.open_account {
            let taken_back = open_account.take_back(usages, core.record.upstream_requests.into());
            core.store(taken_back);
        }
    }

    /// Notes the billed tokens, summed over all replies.
    pub(super) fn billed(&mut self, core: &mut Core, usages: &[Usage]) {
        note_usage(core, usages);
        self.note_counted_cost(core);
        note_reasked(core, &self.reask_causes, usages.iter().map(Usage::billed).sum());
        self.remember_sent(core);
    }

    /// Stores, once, with which hidden exchanges the history was sent.
    pub(super) fn remember_sent(&mut self, core: &mut Core) {
        if let Some(sent) = self.sent.take() {
            core.store(Writes::from_fact(sent.history, sent));
        }
    }

    /// Records the cost as a policy counts it, where one does: also what is estimated.
    pub(super) fn note_counted_cost(&self, core: &mut Core) {
        let counts = core.policies().accounting().is_some_and(|accounting| accounting.spend);
        let cost = self.open_account.as_deref().filter(|_| counts).map(OpenAccount::counted_cost);
        if let Some(cost) = cost.filter(|cost| *cost > 0 || core.record.cost.is_some()) {
            core.record.cost = Some(cost);
        }
    }

    /// The part of the request that the keys of its reply depend on.
    fn request_context<'a>(&self, core: &'a Core) -> RequestContext<'a> {
        RequestContext {
            root: core.identity.root(),
            context: self.context,
            context_without_ids: self.context_without_ids,
            memo: &*core.shared.memo,
        }
    }

    /// Stores what the client was handed and what was hidden from it.
    pub(super) fn remember(
        &mut self,
        core: &mut Core,
        reasks: &Reasks,
        choices: &[ClientChoice<'_>],
        now_ms: u64,
    ) {
        // Where no call can be blocked, nothing can be hidden before a text.
        if !core.request.declares_tools && choices.iter().all(|choice| choice.calls() == 0) {
            return;
        }
        let request = self.request_context(core);
        let (observe, identity) = (core.is_observing(), &*core.identity);
        let remembers =
            core.policies().confirming().is_some_and(|confirming| !confirming.remembered.is_empty());
        let mut writes = ReplyContext { request, identity, reasks, now_ms, observe }.update(choices);
        writes.spent = self.quotas.news(core, choices, now_ms);
        // After a re-ask the calls of the reply are the model's own, not the approved ones.
        if self.hands_out && reasks.count() == 0 && remembers {
            let released = writes.get::<Release>().iter();
            let approved: Vec<Hash> =
                released.map(|(call, _)| core.identity.approval(*call, self.context)).collect();
            approve_lastingly(&approved, &mut writes);
        }
        core.store(writes);
    }

    /// Stores what the replies have cost and used so far, where a policy limits that.
    pub(super) fn account(
        &mut self,
        core: &mut Core,
        (judging, reasks): (&Judging, &Reasks),
        usages: &[Usage],
        choices: &[ClientChoice<'_>],
        now_ms: u64,
    ) {
        if choices.is_empty() || self.open_account.is_none() {
            return;
        }
        let request = self.request_context(core);
        let Some(open_account) = &mut self.open_account else { return };
        let bill = Bill {
            usages,
            requests: core.record.upstream_requests.into(),
            choices,
            bought: judging.bought(),
            hidden: tokens_of(reasks.bytes()),
        };
        // A reply after which the model is asked again is not one that the client has.
        let is_shown = |choice: &&ClientChoice<'_>| {
            !choice.is_waiting() && (choice.is_finished() || !choice.is_wholly_blocked())
        };
        let shown: Vec<ClientChoice<'_>> = choices.iter().filter(is_shown).copied().collect();
        let writes = open_account.report(&bill, &request, &core.identity, &shown, now_ms);
        core.store(writes);
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// The reports of a request about which nothing is known.
    pub(crate) fn reports() -> ReplyReports {
        let sent = SentExchanges { history: Hash(1), rounds: 0 };
        ReplyReports::new((Hash(2), Hash(3)), sent, None, QuotaUses::new(Vec::new()))
    }
}

#[cfg(test)]
mod tests {
    use super::testing::reports;
    use super::*;
    use crate::Output;
    use crate::core::testing::core;
    use policies::set::PolicySet;

    #[test]
    fn with_which_hidden_exchanges_a_history_was_sent_is_reported_once() {
        let mut core = core(r#"{"messages":[]}"#, PolicySet::default());
        let mut reports = reports();
        reports.billed(&mut core, &[]);
        reports.remember_sent(&mut core);
        let Some(Output::Store(writes)) = core.next_output() else { panic!("nothing was reported") };
        assert_eq!(writes.get(), [(Hash(1), SentExchanges { history: Hash(1), rounds: 0 })]);
        assert!(core.next_output().is_none());
    }

    #[test]
    fn the_tokens_of_all_replies_are_in_the_record_however_often_they_are_reported() {
        let mut core = core(r#"{"messages":[]}"#, PolicySet::default());
        let mut reports = reports();
        let usage = |prompt| Usage { prompt, ..Usage::default() };
        reports.billed(&mut core, &[usage(10)]);
        reports.billed(&mut core, &[usage(10), usage(20)]);
        assert_eq!(core.record.tokens.prompt, 30);
    }
}
