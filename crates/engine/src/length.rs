//! The length of a request: how requests of its conversation were shortened that the upstream refused for their length, and
//! what is stored when it accepts a shorter one.

use super::Core;
use model::account::Account;
use model::fact::{Answers, Batch, Ticket, Writes};
use model::identity::Hash;
use model::plan::Plan;
use model::store::{LengthRefusal, refusals_of};
use model::{LengthCut, Transcript};
use std::sync::Arc;

/// The refusals for length of a conversation, as they are looked up.
pub(super) struct LengthLookUp {
    /// The key of what is known of the model of all callers.
    model: Hash,
    ticket: Ticket<LengthRefusal>,
}

impl LengthLookUp {
    /// Asks for the refusals of `conversation` by `model`.
    pub(super) fn ask(conversation: Hash, model: Hash, batch: &mut Batch) -> Self {
        Self { model, ticket: batch.ask([conversation]) }
    }

    /// Sets what the policies are to know of earlier requests that were too long.
    pub(super) fn learn(&self, transcript: &mut Transcript, answers: &Answers) {
        let refusals = refusals_of(answers.records(&self.ticket), transcript, self.model);
        transcript.overflows = refusals.iter().map(|refusal| refusal.messages).collect();
        transcript.length_cuts = refusals.iter().filter_map(LengthRefusal::cut).collect();
    }
}

/// What is known of the request's length, and the keys under which an overflow is stored.
#[derive(Default)]
pub(super) struct Length {
    pub(super) conversation: Hash,
    /// The digest of the request's messages.
    pub(super) history: Hash,
    /// See [`Transcript::length_cuts`].
    pub(super) cuts: Vec<LengthCut>,
    /// How many characters are left of each result of this request, where its length needs that.
    pub(super) most_chars: Option<usize>,
    /// How many messages the conversation has.
    pub(super) messages: usize,
    /// See [`Transcript::account`].
    pub(super) account: Option<Arc<Account>>,
}

impl Length {
    /// The length of the request in `transcript`, whose messages have the digest `history`.
    pub(super) fn new(transcript: &Transcript, conversation: Hash, history: Hash) -> Self {
        Self {
            conversation,
            history,
            cuts: transcript.length_cuts.clone(),
            most_chars: None,
            messages: transcript.len(),
            account: transcript.account.clone(),
        }
    }

    /// The upstream refused the request for its length: for `writes`.
    pub(super) fn remember(&self, writes: &mut Writes) {
        let Self { conversation, history, messages, most_chars, .. } = *self;
        writes.extend([(conversation, LengthRefusal { messages, history, most_chars })]);
    }
}

/// The policies' plan for a request that the upstream refused for its length.
pub(super) fn plan_shorter(core: &Core, length: &Length, transcript: &mut Transcript) -> Plan {
    transcript.overflowed = true;
    transcript.length_cuts.clone_from(&length.cuts);
    let cut = |most_chars| LengthCut { messages: length.messages, most_chars };
    transcript.length_cuts.extend(length.most_chars.map(cut));
    transcript.account.clone_from(&length.account);
    let mut plan = core.policies().read_with(transcript, &core.asking).0;
    plan.change_only_from(transcript.first_sent());
    if core.is_held_out(transcript) {
        core.policies().leave_context(&mut plan);
    }
    plan
}
