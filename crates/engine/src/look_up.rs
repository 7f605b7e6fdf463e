//! The phase look up: what is known of a conversation before the state store is asked, and the query to it. Sends and
//! changes nothing.

use super::account::AccountKeys;
use super::approvals::ApprovalLookUp;
use super::beginning::BeginningLookUp;
use super::length::LengthLookUp;
use super::quota_uses::{handed_out_quota, quota_of};
use super::refusals::EvidenceLookUp;
use super::sent::SentLookUp;
use super::store::{CallNames, MOST_LOOKED_UP};
use super::{Core, Effect, Now, Phase, Shared};
use crate::price::cost_of;
use crate::restore::{HiddenLookUp, hidden_positions};
use bytes::Bytes;
use dialects::usage::Usage;
use model::Transcript;
use model::account::{Kind, Sums, Tally};
use model::fact::Batch;
use model::histories::Histories;
use model::identity::{Domain, Hash, Identity};
use model::request::Request;
use model::source::{CLIENT, Order, Source};
use model::tokens::Estimate;
use policies::FactKeys;
use std::sync::Arc;

/// What is known of the conversation before the store's answer.
pub(super) struct PendingLookUp {
    pub(super) transcript: Box<Transcript>,
    pub(super) model_name: String,
    pub(super) conversation: Hash,
    /// As logs show it.
    pub(super) conversation_id: String,
    /// The request's digest.
    pub(super) request: Hash,
    pub(super) evidence: EvidenceLookUp,
    pub(super) sent: SentLookUp,
    /// Where what the model thinks is bound to what came before it.
    pub(super) beginning: Option<BeginningLookUp>,
    pub(super) hidden: HiddenLookUp,
    pub(super) calls: CallNames,
    pub(super) approvals: ApprovalLookUp,
    pub(super) lengths: LengthLookUp,
    /// Where a policy limits the account.
    pub(super) account: Option<Box<AccountKeys>>,
    /// What the look-up adds to the sums.
    pub(super) ahead: Sums,
}

impl Shared {
    /// The conversation of a request and the bytes that it was read from, with these further sources, and with what the
    /// configuration says of `model`.
    pub(super) fn read_transcript(
        &self,
        request: (Arc<Request>, Bytes),
        sources: (Vec<Arc<Source>>, Order),
        identity: Arc<Identity>,
        model: &str,
    ) -> Transcript {
        let mut transcript = Transcript::with_sources(request, sources, identity, Arc::clone(&self.memo));
        transcript.token_factor = self.settings.models.token_factor(model);
        transcript.context_window = self.settings.models.context_window(model);
        transcript.summaries = Some(Arc::clone(&self.summaries));
        transcript
    }
}

/// The request's digest: of what the model sees, and of every byte of the body after its last reply.
fn request_name(transcript: &Transcript) -> Hash {
    let last = transcript.last_assistant().map(|last| transcript.view(last));
    let last = last.filter(|last| last.id.source == CLIENT);
    let new_from = last.map_or(0, |last| last.message.span.end as usize);
    let context = transcript.calls.context.0.to_le_bytes();
    let count = transcript.len().to_le_bytes();
    transcript.identity.key.hash(Domain::Request, &[&context, &count, &transcript.body[new_from..]])
}

/// Reads the conversation and queries the store about it.
pub(super) fn look_up(core: &mut Core, now: Now) -> Phase {
    let model_name = core.request.model_name(&core.body).into_owned();
    let model = core.model_keys(&model_name);
    let transcript = Box::new(core.read_transcript(&model_name));
    let positions = hidden_positions(&transcript, MOST_LOOKED_UP);
    let conversation = transcript.conversation();
    let request = request_name(&transcript);
    let mut batch = Batch::new(now);
    (batch.request, batch.conversation) = (Some(request), Some(conversation));
    let counted = 0..core.policies().counted().len();
    core.handed_out = handed_out_quota(core);
    batch.quotas = counted.filter_map(|index| quota_of(core, index)).chain(core.handed_out).collect();
    let accounting = core.policies().accounting();
    let account =
        accounting.map(|it| AccountKeys::ask(&transcript, &positions, it, now.ms, &mut batch)).map(Box::new);
    let is_ahead = accounting.is_some_and(|accounting| accounting.ahead) && !batch.sums.is_empty();
    let ahead = if is_ahead { sums_ahead(core, &transcript, &model_name) } else { Sums::default() };
    batch.ahead = Tally::counted(ahead);
    let conversation_id = core.identity.conversation_id(conversation);
    let pending = PendingLookUp {
        evidence: EvidenceLookUp::ask(model, &mut batch),
        sent: SentLookUp::ask(Histories::read(&transcript, model.all), &mut batch),
        beginning: BeginningLookUp::ask(&transcript, &mut batch),
        calls: CallNames::ask(&transcript, &mut batch),
        approvals: ApprovalLookUp::ask(core, &transcript, &positions, &mut batch),
        hidden: HiddenLookUp::ask(positions, &mut batch),
        lengths: LengthLookUp::ask(conversation, model.all, &mut batch),
        transcript,
        model_name,
        conversation,
        conversation_id,
        request,
        account,
        ahead,
    };
    let conversation_id = &pending.conversation_id;
    let keys = FactKeys { identity: &core.identity, conversation, conversation_id };
    let asking = core.policies().ask(&keys, &mut batch);
    core.asking = asking;
    core.start(Effect::LookUp(Box::new(batch)));
    Phase::LookUp(Box::new(pending))
}

/// What the request adds to the sums of its conversation and its caller's day, by an estimate of its prompt.
fn sums_ahead(core: &Core, transcript: &Transcript, model_name: &str) -> Sums {
    let sums = Sums::default().with(Kind::Requests, 1);
    if !core.policies().accounting().is_some_and(|accounting| accounting.tokens) {
        return sums;
    }
    let prompt = Usage { prompt: prompt_tokens(transcript), ..Usage::default() };
    let cost = cost_of(&[prompt], core.shared.settings.models.price(model_name));
    sums.with(Kind::Tokens, prompt.billed()).with(Kind::Nanodollars, cost.unwrap_or(0))
}

/// An estimate of the tokens of the prompt.
pub(super) fn prompt_tokens(transcript: &Transcript) -> u64 {
    let messages: Estimate = transcript.views().map(|view| view.tokens()).sum();
    (messages + transcript.definition_tokens() + transcript.instructions_tokens()).tokens()
}
