//! The fields of a request's log line after its id: a projection of the request record. `line` formats them. It is a struct instead
//! of a table of columns, since every request has a line, and most of the fields are left out of most lines.

use super::line::{MAX_ITEMS, MAX_VALUE_CHARS};
use super::projection::Inclusion::{Always, IfAny, IfKnown};
use super::projection::MemberValue::{self, Flag, Number, Text};
use super::projection::{Column, TextBounds, calls_of, known, word};
use model::record::{JudgedCall, RequestRecord};
use serde::Serialize;
use std::borrow::Cow;
use std::time::Duration;

/// Ids of calls are shorter than other texts: those of providers have 40 characters at most.
const BOUNDS: &TextBounds =
    &TextBounds { id_chars: 64, has_null: false, ..TextBounds::new(MAX_VALUE_CHARS, MAX_ITEMS) };

/// The fields, in the order in which they are written. Fields without information are left out.
#[derive(Serialize)]
pub(super) struct RequestLine<'a> {
    #[serde(skip_serializing_if = "is_nothing")]
    conversation: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "is_nothing")]
    caller: Option<&'a str>,
    #[serde(skip_serializing_if = "is_nothing")]
    model: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "is_nothing")]
    profile: Option<Cow<'a, str>>,
    method: Cow<'a, str>,
    path: Cow<'a, str>,
    endpoint: &'static str,
    route: &'static str,
    mode: &'static str,
    status: u16,
    #[serde(skip_serializing_if = "is_nothing")]
    error: Option<&'static str>,
    #[serde(skip_serializing_if = "is_nothing")]
    error_detail: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "is_nothing")]
    client_gone: bool,
    #[serde(skip_serializing_if = "is_nothing")]
    streamed: bool,
    #[serde(skip_serializing_if = "is_nothing")]
    repeated: bool,
    #[serde(skip_serializing_if = "is_nothing")]
    ungoverned: Option<&'static str>,
    #[serde(skip_serializing_if = "MemberValue::is_empty")]
    actions: MemberValue<'a>,
    #[serde(skip_serializing_if = "MemberValue::is_empty")]
    tool_calls: MemberValue<'a>,
    #[serde(skip_serializing_if = "MemberValue::is_empty")]
    approvals: MemberValue<'a>,
    #[serde(skip_serializing_if = "MemberValue::is_empty")]
    results: MemberValue<'a>,
    #[serde(skip_serializing_if = "MemberValue::is_empty")]
    limits: MemberValue<'a>,
    /// How many items of the lists above are not listed.
    #[serde(skip_serializing_if = "MemberValue::is_empty")]
    left_out: MemberValue<'a>,
    #[serde(skip_serializing_if = "is_nothing")]
    upstream_requests: u32,
    #[serde(skip_serializing_if = "MemberValue::is_empty")]
    upstream_request_ids: MemberValue<'a>,
    #[serde(skip_serializing_if = "is_nothing")]
    reasks: u32,
    #[serde(skip_serializing_if = "is_nothing")]
    lost_hidden_exchanges: u32,
    #[serde(skip_serializing_if = "is_nothing")]
    implausible_usage: bool,
    #[serde(skip_serializing_if = "MemberValue::is_empty")]
    fallbacks: MemberValue<'a>,
    #[serde(skip_serializing_if = "MemberValue::is_empty")]
    prefix_breaks: MemberValue<'a>,
    #[serde(skip_serializing_if = "is_nothing")]
    unjudged: &'a [&'static str],
    #[serde(flatten)]
    tokens: Tokens,
    #[serde(flatten)]
    start: StartTokens,
    #[serde(skip_serializing_if = "is_nothing")]
    context_touched: bool,
    #[serde(skip_serializing_if = "is_nothing")]
    held_out: bool,
    request_bytes: u64,
    reply_bytes: u64,
    total_ms: f64,
    overhead_ms: f64,
    #[serde(skip_serializing_if = "is_nothing")]
    upstream_ms: f64,
    #[serde(skip_serializing_if = "is_nothing")]
    first_byte_ms: Option<f64>,
    #[serde(skip_serializing_if = "is_nothing")]
    traceparent: Option<Cow<'a, str>>,
}

#[derive(Serialize)]
struct Tokens {
    #[serde(skip_serializing_if = "is_nothing")]
    tokens_prompt: u64,
    #[serde(skip_serializing_if = "is_nothing")]
    tokens_cached: u64,
    #[serde(skip_serializing_if = "is_nothing")]
    tokens_cache_written: u64,
    #[serde(skip_serializing_if = "is_nothing")]
    tokens_completion: u64,
    #[serde(skip_serializing_if = "is_nothing")]
    tokens_reasoning: u64,
    #[serde(skip_serializing_if = "is_nothing")]
    tokens_saved: u64,
    /// Estimated by the model's prices.
    #[serde(skip_serializing_if = "is_nothing")]
    cost_usd: Option<f64>,
}

/// What the first request of a conversation holds before anything was said, in estimated tokens.
#[derive(Default, Serialize)]
struct StartTokens {
    #[serde(skip_serializing_if = "is_nothing")]
    start_tokens: u64,
    #[serde(skip_serializing_if = "is_nothing")]
    start_tokens_system: u64,
    #[serde(skip_serializing_if = "is_nothing")]
    start_tokens_tools: u64,
    /// How many tools it declares.
    #[serde(skip_serializing_if = "is_nothing")]
    start_tools: usize,
}

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

impl<'a> From<&'a RequestRecord> for RequestLine<'a> {
    fn from(record: &'a RequestRecord) -> Self {
        let limits = record.usage_of_limits.len();
        let lengths = [record.actions.len(), record.judged.len(), record.results.len(), limits];
        Self {
            conversation: record.conversation.as_deref().map(text),
            caller: record.caller.as_deref(),
            model: record.model.as_deref().map(text),
            profile: record.profile.as_deref().map(text),
            method: text(&record.method),
            path: text(&record.path),
            endpoint: record.endpoint.as_str(),
            route: record.route.as_str(),
            mode: record.mode,
            status: record.status,
            error: record.error,
            error_detail: record.error_detail.as_deref().map(text),
            client_gone: record.client_gone,
            streamed: record.streamed,
            repeated: record.repeated,
            ungoverned: record.ungoverned.or(record.partly_ungoverned),
            actions: BOUNDS.actions(record.actions.iter()),
            tool_calls: BOUNDS.calls(calls_of(record), CALL),
            approvals: BOUNDS.approvals(record),
            results: BOUNDS.results(record),
            limits: BOUNDS.limits(record),
            left_out: BOUNDS.left_out(&lengths),
            upstream_requests: record.upstream_requests,
            upstream_request_ids: BOUNDS.texts(record.upstream_request_ids.iter().map(|id| text(id))),
            reasks: record.reasks,
            lost_hidden_exchanges: record.lost_hidden_exchanges,
            implausible_usage: record.implausible_usage,
            fallbacks: BOUNDS.texts(record.fallbacks.iter().map(|retry| retry.as_str().into())),
            prefix_breaks: BOUNDS.texts(record.prefix_breaks.iter().map(|cause| cause.as_str().into())),
            unjudged: &record.unjudged,
            tokens: Tokens::from(record),
            start: StartTokens::from(record),
            context_touched: record.context.touched,
            held_out: record.context.held_out,
            request_bytes: record.request_bytes,
            reply_bytes: record.reply_bytes,
            total_ms: millis(record.times.total),
            overhead_ms: millis(record.times.overhead),
            upstream_ms: millis(record.times.upstream),
            first_byte_ms: record.times.first_byte.map(millis),
            traceparent: record.traceparent.as_deref().map(text),
        }
    }
}

impl From<&RequestRecord> for Tokens {
    fn from(record: &RequestRecord) -> Self {
        let tokens = record.tokens;
        Self {
            tokens_prompt: tokens.prompt,
            tokens_cached: tokens.cached,
            tokens_cache_written: tokens.cache_written,
            tokens_completion: tokens.completion,
            tokens_reasoning: tokens.reasoning,
            tokens_saved: tokens.saved,
            cost_usd: record.cost.map(|nanodollars| nanodollars as f64 / 1e9),
        }
    }
}

impl From<&RequestRecord> for StartTokens {
    fn from(record: &RequestRecord) -> Self {
        let Some(system) = record.system_tokens.filter(|_| !record.repeated) else { return Self::default() };
        Self {
            start_tokens: system + record.definition_tokens,
            start_tokens_system: system,
            start_tokens_tools: record.definition_tokens,
            start_tools: record.declared_tools.len(),
        }
    }
}

fn text(raw: &str) -> Cow<'_, str> {
    BOUNDS.text(raw)
}

/// To the microsecond.
fn millis(time: Duration) -> f64 {
    time.as_micros() as f64 / 1000.0
}

/// Nothing, zero, false, or empty.
fn is_nothing<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
