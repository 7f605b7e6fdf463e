//! What a call that is held waits for: a person's decision, another model's answer, or its time. Waits; decides nothing.

use crate::exchange::{Exchange, Input};
use crate::plan::approval::{ApprovalDecision, HeldCall};
use crate::store::held::{End, HeldCalls, Pause, Shown, Ticket};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// The held calls of one client request, each with its number, in the order in which they go out.
#[derive(Default)]
pub(super) struct Held {
    waits: Vec<(u32, Wait)>,
    /// When the wait for decisions ends for all calls: set by the first one.
    until: Option<Instant>,
}

enum Wait {
    Person(Ticket),
    Model(oneshot::Receiver<Option<Arc<str>>>),
    Time(Pause),
}

impl Held {
    /// Asks people about `call` for at most `hold_ms`.
    pub(super) fn ask(
        &mut self,
        calls: &Arc<HeldCalls>,
        exchange: &mut Exchange,
        call: HeldCall,
        hold_ms: u64,
    ) {
        let now = Instant::now();
        let until = *self.until.get_or_insert_with(|| now + Duration::from_millis(hold_ms));
        let since = SystemTime::now();
        let shown = Shown {
            tool: call.tool,
            arguments: call.arguments,
            readable: call.shown,
            conversation: exchange.record().conversation.clone().unwrap_or_default(),
            since,
            expires: since + (until - now),
        };
        self.waits.push((call.id, Wait::Person(calls.hold(shown, until))));
    }

    /// Lets the call of this number wait for another model's `answer`.
    pub(super) fn await_answer(&mut self, id: u32, answer: oneshot::Receiver<Option<Arc<str>>>) {
        self.waits.push((id, Wait::Model(answer)));
    }

    /// Lets the call of this number wait for `ms` from `now` on.
    pub(super) fn pause(&mut self, calls: &HeldCalls, id: u32, (now, ms): (Instant, u64)) {
        // A time that no clock reaches is later than any client stays.
        let until = now.checked_add(Duration::from_millis(ms)).unwrap_or(now + LONGEST);
        self.waits.push((id, Wait::Time(calls.pause(until))));
    }

    /// The call of this number waits no longer.
    pub(super) fn forget(&mut self, id: u32) {
        self.waits.retain(|(held, _)| *held != id);
    }

    /// Whether any call waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waits.is_empty()
    }

    /// The next decision or answer for a call that waits; `None` if none does. Cancel-safe.
    pub(super) async fn decision(&mut self) -> Option<Input> {
        let (id, wait) = self.waits.first_mut()?;
        let id = *id;
        let decision = match wait {
            Wait::Model(answer) => {
                // At once where the question could not be asked.
                let answer = answer.await.unwrap_or_default();
                self.waits.remove(0);
                return Some(Input::Answered(id, answer));
            }
            Wait::Time(pause) => match pause.is_over().await {
                true => ApprovalDecision::Approved,
                false => ApprovalDecision::Stopped,
            },
            Wait::Person(ticket) => match ticket.decision().await {
                End::Approved => ApprovalDecision::Approved,
                End::Declined => ApprovalDecision::Declined,
                End::Expired => ApprovalDecision::Expired,
                End::Stopped => ApprovalDecision::Stopped,
                End::Refused | End::Left => ApprovalDecision::Unasked,
            },
        };
        self.waits.remove(0);
        Some(Input::Decided(id, decision))
    }
}

/// A day.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
