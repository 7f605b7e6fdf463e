//! A reply that waits: the calls that need a person's word are put where somebody can answer, and each answer is brought
//! back. All calls of one client request wait together, up to one bound, however often the upstream is asked again.
//! What is held, and what a word makes of it, is the core's to say.

use super::exchange::Exchange;
use crate::ledger::held::{End, Shown, Ticket};
use crate::rewrite::confirm::held::{HeldCall, Word};
use crate::rewrite::judging::Judging;
use crate::rewrite::reply::WholeJudge;
use crate::telemetry::outcome::{Consent, JudgedCall, Verdict};
use std::collections::HashSet;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// The calls of one client request that wait.
#[derive(Default)]
pub(crate) struct Waiting {
    tickets: Vec<(u32, Ticket)>,
    /// When the wait ends for all: set by the first of them.
    until: Option<Instant>,
}

impl Exchange {
    /// Puts the calls that have come to wait where somebody can answer, and no longer those that the judge has given up.
    pub(crate) fn show_held(&mut self, judging: &Judging) {
        if self.waiting.tickets.is_empty() && judging.held().next().is_none() {
            return;
        }
        let held: HashSet<u32> = judging.held().map(|call| call.id).collect();
        let (still, ended): (Vec<_>, Vec<_>) =
            self.waiting.tickets.drain(..).partition(|(id, _)| held.contains(id));
        ended.iter().for_each(|(id, _)| self.record.held_ended(*id, Consent::Unasked));
        let shown: HashSet<u32> = still.iter().map(|(id, _)| *id).collect();
        self.waiting.tickets = still;
        for call in judging.held().filter(|call| !shown.contains(&call.id)) {
            let ticket = self.hold(call, judging.hold_ms());
            self.waiting.tickets.push((call.id, ticket));
        }
    }

    /// The next word on a call that waits; `None` if none does. May be dropped and asked again.
    pub(crate) async fn word(&mut self) -> Option<(u32, Word)> {
        let (id, ticket) = self.waiting.tickets.first_mut()?;
        let (id, end) = (*id, ticket.word().await);
        self.waiting.tickets.remove(0);
        let (word, told) = match end {
            End::Approved => (Word::Approved, Consent::Approved),
            End::Declined => (Word::Declined, Consent::Declined),
            End::Expired => (Word::Expired, Consent::Expired),
            End::Stopped => (Word::Stopped, Consent::Stopped),
            End::Refused | End::Left => (Word::Unasked, Consent::Unasked),
        };
        self.record.held_ended(id, told);
        Some((id, word))
    }

    /// Waits until every call of a whole reply that needs a word has it.
    pub(crate) async fn hear(&mut self, judge: &mut WholeJudge) {
        self.show_held(&judge.judging);
        if self.waiting.tickets.is_empty() {
            return;
        }
        // At once: the client may leave meanwhile.
        self.tell_judged(judge);
        while let Some((id, word)) = self.word().await {
            judge.settle(id, word);
        }
        self.record.rested();
    }

    fn hold(&mut self, call: &HeldCall, hold_ms: u64) -> Ticket {
        let now = Instant::now();
        let until = *self.waiting.until.get_or_insert_with(|| now + Duration::from_millis(hold_ms));
        let since = SystemTime::now();
        let HeldCall { id, call_id, tool, arguments, shown } = call.clone();
        self.record.held(
            id,
            JudgedCall {
                tool: tool.clone(),
                id: call_id,
                verdict: Verdict::Ask,
                unjudged: false,
                said: Vec::new(),
                is_spoken: false,
            },
        );
        let shown = Shown {
            tool,
            arguments,
            readable: shown,
            conversation: self.record.outcome.conversation.clone().unwrap_or_default(),
            since,
            expires: since + (until - now),
        };
        self.gateway.held.hold(shown, until)
    }
}
