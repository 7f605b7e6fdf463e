//! Effects: what an exchange has its driver do and waits for, with their results, as plain data; and the one list of those
//! that are awaited. An effect that fails has a result too, so that every wait ends.

use bytes::Bytes;
use model::fact::{Answers, Batch};
use model::identity::Hash;
use model::plan::approval::{ApprovalDecision, Decided, HeldCall};
use model::plan::{ModelTerms, SummaryWanted};
use model::store::{CallReservation, CallReservationResult};
use policies::approvals::Webhook;
use std::sync::Arc;
use std::time::Duration;

/// The number of an effect, unique within its exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EffectId(u32);

impl EffectId {
    /// The effect of this number, for drivers' tests.
    pub fn from_number(number: u32) -> Self {
        Self(number)
    }

    /// The number, for traces.
    pub fn number(self) -> u32 {
        self.0
    }
}

/// What the driver is to do. Each ends in a result, at the latest after the time that the effect names.
#[derive(Debug)]
pub enum Effect {
    /// Wait at most for `patience` until no other request of the conversation is in flight.
    Admit { conversation: Hash, patience: Duration },
    /// Ask the state store.
    LookUp(Box<Batch>),
    /// Have the state store decide whether this request is the one that hands out the approved calls.
    Claim { question: Hash, request: Hash },
    /// Have the state store count calls before they are handed out, all in one trip. What is cancelled is given back.
    Reserve(Vec<CallReservation>),
    /// Have the summary model asked.
    Summarise { wanted: Box<SummaryWanted>, question: Bytes },
    /// Ask a person about a call, while its reply waits. A question in the conversation needs no driver: it is the reply, and
    /// is decided on at once, since its bytes must not depend on the upstream's chunks.
    Approve(Box<ApprovalRequest>),
    /// Wait for so many ms.
    Sleep { ms: u64 },
    /// Ask another model about a call.
    AskModel(AskedModel),
    /// Run a tool, within this time.
    CallTool { tool: String, arguments: String, timeout: Duration },
}

/// The result of an effect.
#[derive(Debug)]
pub enum EffectResult {
    /// Of [`Effect::Admit`].
    Admitted(Admission),
    /// Of [`Effect::LookUp`].
    LookedUp(Box<Answers>),
    /// Of [`Effect::Claim`]: whether this request hands out the approved calls.
    Claimed(bool),
    /// Of [`Effect::Reserve`]: what became of each, in order.
    Reserved(Vec<CallReservationResult>),
    /// Of [`Effect::Summarise`]: the batch's summary, or the decision that it has none.
    Summarised(Option<Arc<str>>),
    /// Of [`Effect::Approve`].
    Decided(Decided),
    /// Of [`Effect::Sleep`]: whether the time has passed.
    Slept(bool),
    /// Of [`Effect::AskModel`]: the answer, if there is one.
    Answered(Option<Arc<str>>),
    /// Of [`Effect::CallTool`]: what the tool gave; `None`: it failed, or took too long.
    Executed(Option<Arc<str>>),
}

impl Effect {
    /// The result where the effect cannot be had: the driver has no means for it, it fails, or its time is over.
    pub fn failure(&self) -> EffectResult {
        match self {
            Self::Admit { .. } => EffectResult::Admitted(Admission::Busy),
            Self::LookUp(_) => EffectResult::LookedUp(Box::new(Answers { away: true, ..Answers::default() })),
            Self::Claim { .. } => EffectResult::Claimed(false),
            Self::Reserve(_) => EffectResult::Reserved(Vec::new()),
            Self::Summarise { .. } => EffectResult::Summarised(None),
            Self::Approve(_) => EffectResult::Decided(ApprovalDecision::Unasked.into()),
            Self::Sleep { .. } => EffectResult::Slept(false),
            Self::AskModel(_) => EffectResult::Answered(None),
            Self::CallTool { .. } => EffectResult::Executed(None),
        }
    }
}

/// Whether a request may go on beside others of its conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// No other one was in flight.
    Free,
    /// It waited for others.
    Waited,
    /// Others are still in flight.
    Busy,
}

/// A question to another model about a call that waits for the answer.
#[derive(Debug)]
pub struct AskedModel {
    /// Equal for equal questions of one caller.
    pub key: Hash,
    pub terms: Arc<ModelTerms>,
    /// The body of the request.
    pub question: Bytes,
}

/// A call that a person is to be asked about.
#[derive(Debug)]
pub struct ApprovalRequest {
    pub call: HeldCall,
    /// How long the reply waits at most, in ms.
    pub hold_ms: u64,
    /// Who is notified of it.
    pub webhook: Option<Arc<Webhook>>,
}

/// The effects that were started and have not ended.
#[derive(Debug, Default)]
pub(crate) struct PendingEffects {
    next: u32,
    pending: Vec<EffectId>,
}

impl PendingEffects {
    /// Adds an effect, and returns its number.
    pub(crate) fn start(&mut self) -> EffectId {
        let id = EffectId(self.next);
        self.next = self.next.wrapping_add(1);
        self.pending.push(id);
        id
    }

    /// Whether none is awaited.
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Removes an effect that has ended or is cancelled; false if it is not awaited.
    pub(crate) fn end(&mut self, id: EffectId) -> bool {
        let position = self.pending.iter().position(|pending| *pending == id);
        position.map(|position| self.pending.swap_remove(position)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_effect_ends_once_and_no_number_is_used_twice() {
        let mut effects = PendingEffects::default();
        let (first, second) = (effects.start(), effects.start());
        assert!(effects.end(first) && !effects.end(first), "a result after the end is not awaited");
        let third = effects.start();
        assert!(third != first && third != second);
        assert!(effects.end(second) && effects.end(third));
    }
}
