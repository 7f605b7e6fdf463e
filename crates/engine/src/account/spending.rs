//! What a request and its replies add to the account: counted by an estimate when the request is sent, and corrected by what the
//! upstream reports. Computes updates for the state store; limits nothing.

use super::{CONVERSATION, DAY, DAY_MS, OpenAccount, ReservedCall, Spent, keys_of};
use crate::judging::wrapper::expanded_calls;
use crate::pipeline::ClientChoice;
use crate::price::cost_of;
use crate::restore::RequestContext;
use dialects::usage::Usage;
use model::account::{ALL_SCOPES, Carried, Kind, Once, SCOPES, Scope, Sums, Tally};
use model::fact::Writes;
use model::identity::{Hash, Identity};
use model::plan::ReservationResult;
use model::store::CallReservation;
use model::tokens::estimate_text;
use std::sync::Arc;

/// The upstream's replies to one client request so far, as what they cost is computed from them.
pub(crate) struct Bill<'a> {
    /// The usage of each reply that reported one.
    pub(crate) usages: &'a [Usage],
    /// How often the upstream was asked.
    pub(crate) requests: u64,
    pub(crate) choices: &'a [ClientChoice<'a>],
    /// The extensions that were approved, by scope.
    pub(crate) bought: [u32; SCOPES],
    /// The tokens of what the client was not shown.
    pub(crate) hidden: u64,
}

impl OpenAccount {
    /// The update for a request that is sent now, as the `requests`-th: it is counted with an estimate of its prompt, which
    /// its reply corrects. A client that leaves before the reply is not free.
    pub(crate) fn count_sent(&mut self, requests: u64) -> Writes {
        self.in_flight = true;
        let prompt = Usage { prompt: self.prompt, ..Usage::default() };
        let settled = self.settled.sums;
        let sums = settled
            .with(Kind::Requests, requests)
            .with(Kind::Tokens, settled.get(Kind::Tokens) + prompt.billed())
            .with(Kind::Nanodollars, settled.get(Kind::Nanodollars) + self.cost(&[prompt]));
        self.update(Spent { sums, ..self.settled }, &[])
    }

    /// The reply has ended, and the upstream is asked again.
    pub(crate) fn reply_ended(&mut self) {
        (self.replied, self.in_flight) = (self.replied + 1, false);
    }

    /// The update for a request that the upstream refused, or that was not sent: no more is billed for it than the upstream
    /// reported. `usages` and `requests` as in [`Bill`].
    pub(crate) fn take_back(&mut self, usages: &[Usage], requests: u64) -> Writes {
        self.in_flight = false;
        let new = usages.get(self.settled_usages..).unwrap_or_default();
        if !new.is_empty() {
            self.settled_usages = usages.len();
            let tokens = new.iter().map(Usage::billed).sum();
            let sums = self.settled.sums.with(Kind::Requests, requests);
            let more = Sums::default().with(Kind::Tokens, tokens).with(Kind::Nanodollars, self.cost(new));
            self.settled.sums = sums.plus(&more);
        }
        let mut writes = self.update(self.settled, &[]);
        if self.settled.sums == Sums::default() && self.carried.final_answer {
            writes.facts = self.note_final_answer(false).facts;
        }
        writes
    }

    /// The update after the replies of `bill`; `shown`: the choices that the client has got.
    pub(crate) fn report(
        &mut self,
        bill: &Bill<'_>,
        request: &RequestContext<'_>,
        identity: &Identity,
        shown: &[ClientChoice<'_>],
        now_ms: u64,
    ) -> Writes {
        self.now_ms = now_ms;
        (self.settled, self.settled_usages) = (self.spent(bill), bill.usages.len());
        let keys: Vec<Hash> = shown.iter().flat_map(|choice| keys_of(request, identity, choice)).collect();
        self.update(self.settled, &keys)
    }

    /// What the exchange costs so far, in billionths of a dollar, as it is counted.
    pub(crate) fn counted_cost(&self) -> u64 {
        self.last.map_or(0, |(spent, _)| spent.sums.get(Kind::Nanodollars))
    }

    /// The update after this exchange has used `spent` in all; `keys`: those of what the client was shown.
    fn update(&mut self, spent: Spent, keys: &[Hash]) -> Writes {
        if self.last.replace((spent, keys.len())) == Some((spent, keys.len())) {
            return Writes::default();
        }
        let passed = self.now_ms.saturating_sub(self.carried.at_ms);
        let spent = Spent { sums: spent.sums.with(Kind::Millis, passed), ..spent };
        let after = super::add_spent(&self.carried, &spent, self.now_ms);
        let once = Once {
            calls: self.before.calls.max(spent.sums.get(Kind::Calls)),
            bought: std::array::from_fn(|scope| self.before.bought[scope].max(spent.bought[scope])),
            tries: self.before.tries + 1,
        };
        let after = Arc::new(after);
        let mut writes = Writes { tallied: self.tally(&spent.sums, once), ..Writes::default() };
        writes.extend(keys.iter().map(|key| (*key, Arc::clone(&after))));
        writes.add(self.keys.own, Arc::new(Carried { once, ..(*after).clone() }));
        writes
    }

    /// What is new for the sums that all requests add to.
    fn tally(&mut self, spent: &Sums, once: Once) -> Vec<(Hash, Tally)> {
        // Earlier tries of the request have added these already.
        let calls = once.calls.saturating_sub(self.before.calls);
        let spent = spent.with(Kind::Calls, calls);
        let bought: [u32; SCOPES] =
            std::array::from_fn(|scope| once.bought[scope].saturating_sub(self.before.bought[scope]));
        let (sums, refunded) = (spent.less(&self.reported.sums), self.reported.sums.less(&spent));
        let new = |scope: usize| bought[scope].saturating_sub(self.reported.bought[scope]);
        let marks = self.marks.take().unwrap_or_default();
        // Not before there is a reply: a request that fails may be sent again.
        let has_answer = self.carried.final_answer && self.settled.sums.get(Kind::Requests) > 0;
        let final_answer_day = if has_answer { self.now_ms / DAY_MS } else { 0 };
        let day = Tally { sums, refunded, bought: new(DAY), ..Tally::default() };
        let named = Tally { sums, refunded, marks, bought: new(CONVERSATION), final_answer_day };
        let news = [(Scope::Conversation, named), (Scope::Day, day)];
        self.reported = Spent { sums: spent, bought };
        let news = news.map(|(scope, tally)| (self.keys.shared(scope), self.without_reserved(scope, tally)));
        let news = news.into_iter().filter(|(_, tally)| *tally != Tally::default());
        news.filter_map(|(key, tally)| Some((key?, tally))).collect()
    }

    /// `tally` without the calls that reservations have added to the sum of `scope` already.
    fn without_reserved(&mut self, scope: Scope, tally: Tally) -> Tally {
        let mut calls = tally.sums.get(Kind::Calls);
        self.reserved.retain(|reserved| {
            let is_reported = calls > 0 && reserved.is_settled && reserved.scope == scope;
            calls -= u64::from(is_reported);
            !is_reported
        });
        Tally { sums: tally.sums.with(Kind::Calls, calls), ..tally }
    }

    /// The reservation of a call by the sum of `scope`, which allows `most` calls; `None`: no other request adds to it.
    pub(crate) fn reservation(&self, scope: Scope, most: u64) -> Option<CallReservation> {
        Some(CallReservation::Sum { key: self.keys.shared(scope)?, most })
    }

    /// Takes what became of a reservation of the waiting call of this number.
    pub(crate) fn take_reserved(&mut self, number: u32, key: Hash, reserved: &ReservationResult) {
        let is_of = |scope: &Scope| self.keys.shared(*scope) == Some(key);
        if let (Some(scope), ReservationResult::Granted { .. }) =
            (ALL_SCOPES.into_iter().find(is_of), reserved)
        {
            self.reserved.push(ReservedCall { number, scope, is_settled: false });
        }
    }

    /// The waiting call of this number is handed out.
    pub(crate) fn settle(&mut self, number: u32) {
        let own = self.reserved.iter_mut().filter(|reserved| reserved.number == number);
        own.for_each(|reserved| reserved.is_settled = true);
    }

    /// The update where the waiting call of this number is not handed out.
    pub(crate) fn give_back(&mut self, number: u32) -> Writes {
        self.give_back_where(|reserved| reserved.number == number)
    }

    /// The update at the end of the exchange: calls that still wait are not handed out, and nothing is billed where nothing
    /// was reported.
    pub(crate) fn close(&mut self) -> Writes {
        let mut writes = self.give_back_where(|reserved| !reserved.is_settled);
        if self.last.is_none() {
            writes.tallied.extend(self.tally(&Sums::default(), self.before));
        }
        writes
    }

    fn give_back_where(&mut self, is_over: impl Fn(&ReservedCall) -> bool) -> Writes {
        let over = self.reserved.extract_if(.., |reserved| is_over(reserved));
        let keys = over.filter_map(|reserved| self.keys.shared(reserved.scope));
        let tallied = keys.map(|key| (key, Tally::refund(Sums::ONE_CALL))).collect();
        Writes { tallied, ..Writes::default() }
    }

    /// What the replies of `bill` have used: as billed, else as estimated from what was sent and shown.
    fn spent(&self, bill: &Bill<'_>) -> Spent {
        let Bill { usages, requests, choices, bought, hidden } = *bill;
        let replies = self.replied + u64::from(self.in_flight);
        let settled = choices.iter().filter(|choice| !choice.is_waiting());
        let calls: usize =
            settled.flat_map(|choice| choice.released()).map(|call| expanded_calls(call).len().max(1)).sum();
        let counted = self.completed(usages, replies, choices, hidden);
        let sums = Sums::default()
            .with(Kind::Calls, calls as u64)
            .with(Kind::Requests, requests)
            .with(Kind::Tokens, counted.iter().map(Usage::billed).sum())
            .with(Kind::Nanodollars, self.cost(&counted));
        Spent { sums, bought }
    }

    fn cost(&self, usages: &[Usage]) -> u64 {
        cost_of(usages, self.price.as_ref()).unwrap_or(0)
    }

    /// The usage of each of so many `replies`, with an estimate for every number that is missing: all where a reply reported
    /// none, and those that were left out as implausible. What a completion had is estimated from what was shown and hidden.
    fn completed(
        &self,
        usages: &[Usage],
        replies: u64,
        choices: &[ClientChoice<'_>],
        hidden: u64,
    ) -> Vec<Usage> {
        let mut counted = usages.to_vec();
        let all = usize::try_from(replies).unwrap_or(usize::MAX).max(usages.len());
        counted.resize(all, Usage::unknown());
        for usage in counted.iter_mut().filter(|usage| usage.unknown_prompt) {
            usage.prompt = usage.prompt.max(self.prompt);
        }
        if let Some(at) = counted.iter().position(|usage| usage.unknown_completion) {
            let calls = choices.iter().flat_map(|choice| choice.released());
            let calls = calls.map(|call| estimate_text(&call.arguments()) + estimate_text(&call.name()));
            let texts = choices.iter().map(|choice| estimate_text(&choice.text()));
            let shown: u64 = texts.chain(calls).map(|estimate| estimate.tokens()).sum();
            let known: u64 = counted.iter().map(|usage| usage.completion).sum();
            counted[at].completion += (shown + hidden).saturating_sub(known);
        }
        counted
    }
}
