//! The fields of a request's log line after its id: a projection of the request record. `line` formats them.

use super::line::{MAX_ITEMS, MAX_VALUE_CHARS};
use super::projection::Inclusion::{Always, IfAny, IfKnown};
use super::projection::MemberValue::{self, Decimal, Flag, Number, Text};
use super::projection::{Column, Projection, TextBounds, calls_of, known, word};
use model::record::{JudgedCall, RequestRecord};
use std::time::Duration;

/// Ids of calls are shorter than other texts: those of providers have 40 characters at most.
const BOUNDS: TextBounds =
    TextBounds { id_chars: 64, has_null: false, ..TextBounds::new(MAX_VALUE_CHARS, MAX_ITEMS) };

/// The fields, in the order in which they are written. Fields without information are left out.
const FIELDS: &[Column<RequestRecord>] = &[
    ("conversation", |record, bounds| bounds.optional(record.conversation.as_deref()), IfKnown),
    ("caller", |record, bounds| bounds.optional(record.caller.as_deref()), IfKnown),
    ("model", |record, bounds| bounds.optional(record.model.as_deref()), IfKnown),
    ("profile", |record, bounds| bounds.optional(record.profile.as_deref()), IfKnown),
    ("method", |record, bounds| Text(bounds.text(&record.method)), Always),
    ("path", |record, bounds| Text(bounds.text(&record.path)), Always),
    ("endpoint", |record, _| word(record.endpoint.as_str()), Always),
    ("route", |record, _| word(record.route.as_str()), Always),
    ("mode", |record, _| word(record.mode), Always),
    ("status", |record, _| Number(record.status.into()), Always),
    ("error", |record, _| word(record.error), IfKnown),
    ("error_detail", |record, bounds| bounds.optional(record.error_detail.as_deref()), IfKnown),
    ("client_gone", |record, _| Flag(record.client_gone), IfAny),
    ("streamed", |record, _| Flag(record.streamed), IfAny),
    ("repeated", |record, _| Flag(record.repeated), IfAny),
    ("ungoverned", |record, _| word(record.ungoverned.or(record.partly_ungoverned)), IfKnown),
    ("actions", |record, bounds| bounds.actions(record.actions.iter()), IfAny),
    ("tool_calls", |record, bounds| bounds.calls(calls_of(record), CALL), IfAny),
    ("approvals", |record, bounds| bounds.approvals(record), IfAny),
    ("results", |record, bounds| bounds.results(record), IfAny),
    ("limits", |record, bounds| bounds.limits(record), IfAny),
    ("left_out", |record, bounds| items_left_out(record, bounds), IfAny),
    ("upstream_requests", |record, _| Number(record.upstream_requests.into()), IfAny),
    (
        "upstream_request_ids",
        |record, bounds| bounds.texts(record.upstream_request_ids.iter().map(|id| bounds.text(id))),
        IfAny,
    ),
    ("reasks", |record, _| Number(record.reasks.into()), IfAny),
    ("lost_hidden_exchanges", |record, _| Number(record.lost_hidden_exchanges.into()), IfAny),
    ("implausible_usage", |record, _| Flag(record.implausible_usage), IfAny),
    (
        "fallbacks",
        |record, bounds| bounds.texts(record.fallbacks.iter().map(|retry| retry.as_str().into())),
        IfAny,
    ),
    (
        "prefix_breaks",
        |record, bounds| bounds.texts(record.prefix_breaks.iter().map(|cause| cause.as_str().into())),
        IfAny,
    ),
    ("unjudged", |record, bounds| bounds.texts(record.unjudged.iter().map(|why| (*why).into())), IfAny),
    ("tokens_prompt", |record, _| Number(record.tokens.prompt), IfAny),
    ("tokens_cached", |record, _| Number(record.tokens.cached), IfAny),
    ("tokens_cache_written", |record, _| Number(record.tokens.cache_written), IfAny),
    ("tokens_completion", |record, _| Number(record.tokens.completion), IfAny),
    ("tokens_reasoning", |record, _| Number(record.tokens.reasoning), IfAny),
    ("tokens_saved", |record, _| Number(record.tokens.saved), IfAny),
    (
        "cost_usd",
        |record, _| known(record.cost.map(|nanodollars| nanodollars as f64 / 1e9), Decimal),
        IfKnown,
    ),
    ("start_tokens", |record, _| at_start(record, |system| system + record.definition_tokens), IfAny),
    ("start_tokens_system", |record, _| at_start(record, |system| system), IfAny),
    ("start_tokens_tools", |record, _| at_start(record, |_| record.definition_tokens), IfAny),
    ("start_tools", |record, _| at_start(record, |_| record.declared_tools.len() as u64), IfAny),
    ("context_touched", |record, _| Flag(record.context.touched), IfAny),
    ("held_out", |record, _| Flag(record.context.held_out), IfAny),
    ("request_bytes", |record, _| Number(record.request_bytes), Always),
    ("reply_bytes", |record, _| Number(record.reply_bytes), Always),
    ("total_ms", |record, _| Decimal(millis(record.times.total)), Always),
    ("overhead_ms", |record, _| Decimal(millis(record.times.overhead)), Always),
    ("upstream_ms", |record, _| Decimal(millis(record.times.upstream)), IfAny),
    ("first_byte_ms", |record, _| known(record.times.first_byte.map(millis), Decimal), IfKnown),
    ("traceparent", |record, bounds| bounds.optional(record.traceparent.as_deref()), IfKnown),
];

/// A call of the reply, with the policy whose text the model gets, or the first one that objected.
const CALL: &[Column<JudgedCall>] = &[
    ("name", |call, bounds| Text(bounds.name(&call.judged.tool)), Always),
    ("id", |call, bounds| Text(bounds.id(&call.judged.id)), IfAny),
    ("verdict", |call, _| word(call.judged.verdict.as_str()), Always),
    ("unjudged", |call, _| Flag(call.judged.unjudged), IfAny),
    ("policy", |call, _| word(call.policy()), IfKnown),
    ("reason", |call, _| word(call.reason()), IfKnown),
    ("used", |call, _| known(call.limit().map(|limit| limit.used), Number), IfKnown),
    ("limit", |call, _| known(call.limit().map(|limit| limit.limit), Number), IfKnown),
    ("also", |call, bounds| bounds.further_decisions(call), IfAny),
];

/// The fields of the line of this `record`.
pub(super) fn request_fields(record: &RequestRecord) -> Projection<'_, RequestRecord> {
    Projection::<RequestRecord>::new(record, FIELDS, &BOUNDS)
}

fn items_left_out<'a>(record: &RequestRecord, bounds: &TextBounds) -> MemberValue<'a> {
    let limits = record.usage_of_limits.len();
    bounds.left_out(&[record.actions.len(), record.judged.len(), record.results.len(), limits])
}

/// What the first request of a conversation holds before anything was said, in estimated tokens; `tokens`: by those of its system
/// messages.
fn at_start<'a>(record: &RequestRecord, tokens: impl FnOnce(u64) -> u64) -> MemberValue<'a> {
    known(record.system_tokens.filter(|_| !record.repeated).map(tokens), Number)
}

/// To the microsecond.
fn millis(time: Duration) -> f64 {
    time.as_micros() as f64 / 1000.0
}
