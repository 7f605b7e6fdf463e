//! What is known of a conversation that the upstream keeps: looked up before the conversation is read, and stored with each
//! reply.

use super::error::ProxyError;
use super::look_up::look_up;
use super::{Core, Effect, Now, Phase, fail};
use crate::pipeline::ReplyPipeline;
use model::fact::{Answers, Batch, Ticket, Writes};
use model::record::{On, UNKNOWN};
use model::store::UpstreamRecord;
use std::sync::Arc;

/// Where the answer to the look-up is.
pub(super) type HistoryTicket = Ticket<UpstreamRecord>;

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
pub(super) fn take_history(core: &mut Core, known: &Answers, ticket: &HistoryTicket, now: Now) -> Phase {
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

/// Stores what is known of a conversation that the upstream keeps, with its newest reply.
pub(super) fn remember_history(core: &mut Core, reply: &ReplyPipeline) {
    let Some((name, known)) = reply.history(&core.planned_request(&core.plan, &[])) else { return };
    let key = core.identity.response_key(&name);
    let items = reply.last_items().into_iter().map(|id| core.identity.item_key(&id));
    for key in std::iter::once(key).chain(items).collect::<Vec<_>>() {
        core.store(Writes::from_fact(key, UpstreamRecord(known.clone())));
    }
}
