//! The phase look up: what is known of a conversation before the state store is asked, and the query to it. Sends and
//! changes nothing.

use super::account::AccountKeys;
use super::error::ProxyError;
use super::quota_uses::quota_of;
use super::store::{CallNames, MOST_LOOKED_UP};
use super::{Core, Effect, Now, Phase, Shared, fail};
use crate::confirm::{Answer, answer};
use crate::price::cost_of;
use crate::restore::{HiddenPosition, hidden_positions, names};
use bytes::Bytes;
use dialects::usage::Usage;
use model::Transcript;
use model::account::{Carried, Kind, Sums, Tally};
use model::fact::{Answers, Batch, Ticket};
use model::histories::Histories;
use model::identity::{Domain, Hash, Identity};
use model::plan::approval::Confirmation;
use model::record::{On, UNKNOWN};
use model::released::Release;
use model::request::Request;
use model::source::{CLIENT, Order, Source};
use model::store::{
    ApprovedCall, Evidence, HiddenExchange, ModelKeys, Overflow, SentExchanges, UpstreamRecord,
};
use model::tokens::Estimate;
use policies::FactKeys;
use policies::pattern::any_concerns;
use std::sync::Arc;

/// What is known of the conversation before the store's answer.
pub(super) struct PendingLookUp {
    pub(super) transcript: Transcript,
    pub(super) model_name: String,
    /// The keys of what is known of the model at its upstream.
    pub(super) model: ModelKeys,
    pub(super) conversation: Hash,
    /// As logs show it.
    pub(super) conversation_id: String,
    /// The request's digest.
    pub(super) request: Hash,
    pub(super) histories: Histories,
    pub(super) positions: Vec<HiddenPosition>,
    pub(super) calls: CallNames,
    /// Where a policy limits the account.
    pub(super) account: Option<AccountKeys>,
    /// What the look-up adds to the sums.
    pub(super) ahead: Sums,
    /// The user's possible answer to toolrein's question.
    pub(super) answer: Option<Answer>,
    /// The indexes of the calls whose approvals are looked up.
    pub(super) approvals: Vec<usize>,
    pub(super) tickets: StoreTickets,
}

/// Where the answers to the look-up are.
pub(super) struct StoreTickets {
    /// The [names](CallNames) of the calls.
    pub(super) calls: Ticket<Release>,
    /// The [names] of the hidden positions.
    pub(super) hidden: Ticket<HiddenExchange>,
    /// About the model: of all callers, and of the request's caller.
    pub(super) evidence: Ticket<Evidence>,
    /// The earlier ones of the [`Histories`].
    pub(super) histories: Ticket<SentExchanges>,
    /// What the user may have answered.
    pub(super) question: Ticket<Arc<Confirmation>>,
    pub(super) approvals: Ticket<ApprovedCall>,
    /// As of the request and of the newest replies.
    pub(super) accounts: Ticket<Arc<Carried>>,
    pub(super) overflows: Ticket<Overflow>,
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

/// Asks for what is known of the conversation, where the upstream keeps it, or keeps items that the request only
/// refers to.
pub(super) fn find_history(core: &mut Core, now: Now) -> Phase {
    let (request, identity) = (&core.request, &core.identity);
    let reference = || request.reference.as_deref().map(|id| identity.item_key(id));
    let continues = request.continues.as_deref().map(|id| identity.response_key(id));
    let Some(key) = continues.or_else(reference) else { return look_up(core, now) };
    let mut batch = Batch::new(now);
    let ticket = batch.ask([key]);
    core.start(Effect::LookUp(Box::new(batch)));
    Phase::History(ticket)
}

/// Goes on with what is known of the conversation, or with what the request shows.
pub(super) fn take_history(
    core: &mut Core,
    known: &Answers,
    ticket: &Ticket<UpstreamRecord>,
    now: Now,
) -> Phase {
    let record = known.values(ticket).into_iter().next().flatten();
    let request = Arc::make_mut(&mut core.request);
    match record.and_then(|record| core.dialect.upstream_history(request, &core.body, &record.0)) {
        Some(upstream) => {
            if upstream.unknown > 0 {
                core.record.act(On::Request, "upstream_history", UNKNOWN, upstream.unknown);
            }
            core.upstream = Some(Box::new(upstream));
        }
        None => {
            core.record.act(On::Request, "upstream_history", UNKNOWN, 1);
            if core.shared.settings.strict_store && !core.is_observing() {
                let message = "What came before in this conversation is not known here, and `store.strict` \
                               refuses requests that cannot be governed whole. Send the history as `input`.";
                let (code, message) = ("history_unknown", message.to_owned());
                return fail(core, ProxyError::Refused { code, message });
            }
        }
    }
    look_up(core, now)
}

/// Reads the conversation and queries the store about it.
pub(super) fn look_up(core: &mut Core, now: Now) -> Phase {
    let model_name = core.request.model_name(&core.body).into_owned();
    let model = core.model_keys(&model_name);
    let transcript = core.read_transcript(&model_name);
    let positions = hidden_positions(&transcript, MOST_LOOKED_UP);
    let may_answer = core.asks_approval() && !core.request.has_odd_text;
    let answer = may_answer.then(|| answer(&transcript, &positions)).flatten();
    let calls = CallNames::newest(&transcript);
    let (approvals, approved) = approvals(core, &transcript);
    let histories = Histories::read(&transcript, model.all);
    let conversation = transcript.conversation();
    let request = request_name(&transcript);
    let accounting = core.policies().accounting();
    let account = accounting.map(|it| AccountKeys::of(&transcript, &positions, it, now.ms));
    let mut batch = Batch::new(now);
    (batch.request, batch.conversation) = (Some(request), Some(conversation));
    let counted = 0..core.policies().counted().len();
    batch.quotas = counted.filter_map(|index| quota_of(core, index)).collect();
    batch.sums = account.as_ref().map_or_else(Vec::new, AccountKeys::sums);
    let is_ahead = accounting.is_some_and(|accounting| accounting.ahead) && !batch.sums.is_empty();
    let ahead = if is_ahead { sums_ahead(core, &transcript, &model_name) } else { Sums::default() };
    batch.ahead = Tally::counted(ahead);
    let tickets = StoreTickets {
        calls: batch.ask(calls.keys().iter().copied()),
        hidden: batch.ask(names(&positions)),
        evidence: batch.ask([model.all, model.own]),
        histories: batch.ask(histories.earlier.iter().map(|(_, name)| *name)),
        question: batch.ask(answer.as_ref().map(|answer| answer.question)),
        approvals: batch.ask(approved),
        accounts: batch.ask(account.as_ref().map_or_else(Vec::new, AccountKeys::carried)),
        overflows: batch.ask([conversation]),
    };
    let conversation_id = core.identity.conversation_id(conversation);
    let keys = FactKeys { identity: &core.identity, conversation, conversation_id: &conversation_id };
    let asking = core.policies().ask(&keys, &mut batch);
    core.asking = asking;
    core.start(Effect::LookUp(Box::new(batch)));
    let sought = PendingLookUp {
        transcript,
        model_name,
        model,
        conversation,
        conversation_id,
        request,
        histories,
        positions,
        calls,
        account,
        ahead,
        answer,
        approvals,
        tickets,
    };
    Phase::LookUp(Box::new(sought))
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

/// The indexes of the newest calls for which an earlier approval may be known, and its keys.
fn approvals(core: &Core, transcript: &Transcript) -> (Vec<usize>, Vec<Hash>) {
    let confirming = core.policies().confirming().filter(|_| core.asks_approval());
    let Some(tools) = confirming.map(|it| &it.remembered).filter(|tools| !tools.is_empty()) else {
        return (Vec::new(), Vec::new());
    };
    let calls = transcript.newest_calls(MOST_LOOKED_UP).filter(|call| any_concerns(tools, &call.name));
    calls.map(|call| (call.ordinal - 1, core.identity.approval(call.key, call.context))).unzip()
}
