//! The fields of a request's log line after its id, made from the request record. Every list and every external text is bounded;
//! `line` formats them.

use super::bounded;
use super::line::{MAX_ITEMS, MAX_VALUE_CHARS};
use model::record::{Action, ApprovalRecord, JudgedCall, LimitUse, NewResult, RequestRecord};
use serde::Serialize;
use std::borrow::Cow;
use std::time::Duration;

/// The longest id of a call, in characters. Those of providers have 40 at most.
const ID_CHARS: usize = 64;

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
    #[serde(skip_serializing_if = "is_nothing")]
    actions: Vec<Act<'a>>,
    #[serde(skip_serializing_if = "is_nothing")]
    tool_calls: Vec<Call<'a>>,
    #[serde(skip_serializing_if = "is_nothing")]
    approvals: Vec<Approval<'a>>,
    #[serde(skip_serializing_if = "is_nothing")]
    results: Vec<ToolResult<'a>>,
    #[serde(skip_serializing_if = "is_nothing")]
    limits: Vec<Limit<'a>>,
    /// How many items of the lists above are not listed.
    #[serde(skip_serializing_if = "is_nothing")]
    left_out: usize,
    #[serde(skip_serializing_if = "is_nothing")]
    upstream_requests: u32,
    #[serde(skip_serializing_if = "is_nothing")]
    upstream_request_ids: Vec<Cow<'a, str>>,
    #[serde(skip_serializing_if = "is_nothing")]
    reasks: u32,
    #[serde(skip_serializing_if = "is_nothing")]
    lost_hidden_exchanges: u32,
    #[serde(skip_serializing_if = "is_nothing")]
    implausible_usage: bool,
    #[serde(skip_serializing_if = "is_nothing")]
    fallbacks: Vec<&'static str>,
    #[serde(skip_serializing_if = "is_nothing")]
    prefix_breaks: Vec<&'static str>,
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

/// What a policy did.
#[derive(PartialEq, Serialize)]
struct Act<'a> {
    policy: &'static str,
    action: Cow<'a, str>,
    count: u64,
}

/// A call of the reply.
#[derive(PartialEq, Serialize)]
struct Call<'a> {
    name: Cow<'a, str>,
    #[serde(skip_serializing_if = "is_nothing")]
    id: Cow<'a, str>,
    verdict: &'static str,
    /// It was allowed because it could not be judged.
    #[serde(skip_serializing_if = "is_nothing")]
    unjudged: bool,
    /// The policy whose text the model gets, or the first one that objected.
    #[serde(skip_serializing_if = "is_nothing")]
    policy: Option<&'static str>,
    #[serde(skip_serializing_if = "is_nothing")]
    reason: Option<&'static str>,
    /// How much of the policy's limit is used after this reply.
    #[serde(skip_serializing_if = "is_nothing")]
    used: Option<u64>,
    #[serde(skip_serializing_if = "is_nothing")]
    limit: Option<u64>,
    /// The decisions of further policies.
    #[serde(skip_serializing_if = "is_nothing")]
    also: Vec<Objection>,
}

#[derive(PartialEq, Serialize)]
struct Objection {
    policy: &'static str,
    reason: &'static str,
}

/// A person's decision on a call.
#[derive(PartialEq, Serialize)]
struct Approval<'a> {
    tool: Cow<'a, str>,
    outcome: &'static str,
    #[serde(skip_serializing_if = "is_nothing")]
    approver: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "is_nothing")]
    reason: Option<Cow<'a, str>>,
}

impl<'a> From<&'a ApprovalRecord> for Approval<'a> {
    fn from(approval: &'a ApprovalRecord) -> Self {
        Self {
            tool: bounded::name(&approval.tool),
            outcome: approval.outcome.as_str(),
            approver: approval.approver.as_deref().map(text),
            reason: approval.reason.as_deref().map(text),
        }
    }
}

#[derive(PartialEq, Serialize)]
struct ToolResult<'a> {
    tool: Cow<'a, str>,
    bytes: u64,
    tokens: u64,
    #[serde(skip_serializing_if = "is_nothing")]
    ms: Option<u64>,
}

#[derive(PartialEq, Serialize)]
struct Limit<'a> {
    #[serde(skip_serializing_if = "is_nothing")]
    policy: Option<&'static str>,
    tool: Cow<'a, str>,
    used: u64,
    limit: u64,
}

impl<'a> From<&'a RequestRecord> for RequestLine<'a> {
    fn from(record: &'a RequestRecord) -> Self {
        let lengths =
            [record.actions.len(), record.judged.len(), record.results.len(), record.usage_of_limits.len()];
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
            actions: list(&record.actions, Act::from),
            tool_calls: list(&record.judged, |call| Call::new(call, &record.usage_of_limits)),
            approvals: list(&record.approvals, Approval::from),
            results: list(&record.results, ToolResult::from),
            limits: list(&record.usage_of_limits, Limit::from),
            left_out: lengths.iter().map(|length| length.saturating_sub(MAX_ITEMS)).sum(),
            upstream_requests: record.upstream_requests,
            upstream_request_ids: list(&record.upstream_request_ids, |id| text(id)),
            reasks: record.reasks,
            lost_hidden_exchanges: record.lost_hidden_exchanges,
            implausible_usage: record.implausible_usage,
            fallbacks: list(&record.fallbacks, |kind| kind.as_str()),
            prefix_breaks: list(&record.prefix_breaks, |cause| cause.as_str()),
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

impl<'a> From<&'a Action> for Act<'a> {
    fn from(action: &'a Action) -> Self {
        Self { policy: action.policy, action: text(&action.action), count: action.count }
    }
}

impl<'a> Call<'a> {
    fn new(call: &'a JudgedCall, limits: &[LimitUse]) -> Self {
        let (first, others) = call.decisions.split_first().unzip();
        let of_policy = |limit: &&LimitUse| first.is_some_and(|said| limit.policy == Some(said.policy));
        let limit = |tool: &str| limits.iter().filter(of_policy).find(|limit| limit.tool == tool);
        let limit = limit(&call.tool).or_else(|| limit("*"));
        let objection =
            |said: &model::record::PolicyDecision| Objection { policy: said.policy, reason: said.reason };
        Self {
            name: bounded::name(&call.tool),
            id: bounded::text(&call.id, ID_CHARS),
            verdict: call.verdict.as_str(),
            unjudged: call.unjudged,
            policy: first.map(|said| said.policy),
            reason: first.map(|said| said.reason),
            used: limit.map(|limit| limit.used),
            limit: limit.map(|limit| limit.limit),
            also: others.into_iter().flatten().take(MAX_ITEMS).map(objection).collect(),
        }
    }
}

impl<'a> From<&'a NewResult> for ToolResult<'a> {
    fn from(result: &'a NewResult) -> Self {
        let ms = result.took.map(|took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        Self { tool: bounded::name(&result.tool), bytes: result.bytes, tokens: result.tokens, ms }
    }
}

impl<'a> From<&'a LimitUse> for Limit<'a> {
    fn from(limit: &'a LimitUse) -> Self {
        let LimitUse { policy, tool, used, limit, .. } = limit;
        Self { policy: *policy, tool: bounded::name(tool), used: *used, limit: *limit }
    }
}

fn text(raw: &str) -> Cow<'_, str> {
    bounded::text(raw, MAX_VALUE_CHARS)
}

fn list<'a, T, R>(items: &'a [T], shown: impl Fn(&'a T) -> R) -> Vec<R> {
    items.iter().take(MAX_ITEMS).map(shown).collect()
}

/// To the microsecond.
fn millis(time: Duration) -> f64 {
    time.as_micros() as f64 / 1000.0
}

/// Nothing, zero, false, or empty.
fn is_nothing<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
