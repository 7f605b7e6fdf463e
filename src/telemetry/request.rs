//! The log's line of one request: its fields, made from the request record. Every list and every text from outside is
//! bounded; how a line is spelled is `line`'s affair.

use super::bounded;
use super::line::{MAX_ITEMS, MAX_VALUE_CHARS};
use super::outcome::{Action, JudgedCall, LimitUse, NewResult, Outcome};
use serde::Serialize;
use std::borrow::Cow;
use std::time::Duration;

/// Longest id of a call, in characters. Those of providers have 40 at most.
const ID_CHARS: usize = 64;

/// The fields, in the order in which they are written. Those that say nothing are left out.
#[derive(Serialize)]
pub(super) struct RequestLine<'a> {
    request_id: Cow<'a, str>,
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
    results: Vec<ToolResult<'a>>,
    #[serde(skip_serializing_if = "is_nothing")]
    limits: Vec<Limit<'a>>,
    /// Items of the lists above that are not listed.
    #[serde(skip_serializing_if = "is_nothing")]
    left_out: usize,
    #[serde(skip_serializing_if = "is_nothing")]
    upstream_requests: u32,
    #[serde(skip_serializing_if = "is_nothing")]
    upstream_request_id: Option<Cow<'a, str>>,
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
    /// Nobody could rule on it.
    #[serde(skip_serializing_if = "is_nothing")]
    unjudged: bool,
    /// The policy whose words the model reads, or the first one that objected.
    #[serde(skip_serializing_if = "is_nothing")]
    policy: Option<&'static str>,
    #[serde(skip_serializing_if = "is_nothing")]
    reason: Option<&'static str>,
    /// How much of the policy's limit was used behind this reply.
    #[serde(skip_serializing_if = "is_nothing")]
    used: Option<u64>,
    #[serde(skip_serializing_if = "is_nothing")]
    limit: Option<u64>,
    /// What further policies said.
    #[serde(skip_serializing_if = "is_nothing")]
    also: Vec<Objection>,
}

#[derive(PartialEq, Serialize)]
struct Objection {
    policy: &'static str,
    reason: &'static str,
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

impl<'a> From<&'a Outcome> for RequestLine<'a> {
    fn from(outcome: &'a Outcome) -> Self {
        let lengths = [
            outcome.actions.len(),
            outcome.judged.len(),
            outcome.results.len(),
            outcome.usage_of_limits.len(),
        ];
        Self {
            request_id: text(&outcome.request_id),
            conversation: outcome.conversation.as_deref().map(text),
            caller: outcome.caller.as_deref(),
            model: outcome.model.as_deref().map(text),
            profile: outcome.profile.as_deref().map(text),
            method: text(&outcome.method),
            path: text(&outcome.path),
            endpoint: outcome.endpoint.as_str(),
            route: outcome.route.as_str(),
            mode: outcome.mode,
            status: outcome.status,
            error: outcome.error,
            client_gone: outcome.client_gone,
            streamed: outcome.streamed,
            repeated: outcome.repeated,
            ungoverned: outcome.ungoverned,
            actions: list(&outcome.actions, Act::from),
            tool_calls: list(&outcome.judged, |call| Call::new(call, &outcome.usage_of_limits)),
            results: list(&outcome.results, ToolResult::from),
            limits: list(&outcome.usage_of_limits, Limit::from),
            left_out: lengths.iter().map(|length| length.saturating_sub(MAX_ITEMS)).sum(),
            upstream_requests: outcome.upstream_requests,
            upstream_request_id: outcome.upstream_request_id.as_deref().map(text),
            reasks: outcome.reasks,
            lost_hidden_exchanges: outcome.lost_rounds,
            implausible_usage: outcome.implausible_usage,
            fallbacks: list(&outcome.fallbacks, |kind| kind.as_str()),
            prefix_breaks: list(&outcome.prefix_breaks, |cause| cause.as_str()),
            unjudged: &outcome.unjudged,
            tokens: Tokens::from(outcome),
            context_touched: outcome.context.touched,
            held_out: outcome.context.held_out,
            request_bytes: outcome.request_bytes,
            reply_bytes: outcome.reply_bytes,
            total_ms: millis(outcome.times.total),
            overhead_ms: millis(outcome.times.overhead),
            upstream_ms: millis(outcome.times.upstream),
            first_byte_ms: outcome.times.first_byte.map(millis),
            traceparent: outcome.traceparent.as_deref().map(text),
        }
    }
}

impl From<&Outcome> for Tokens {
    fn from(outcome: &Outcome) -> Self {
        let tokens = outcome.tokens;
        Self {
            tokens_prompt: tokens.prompt,
            tokens_cached: tokens.cached,
            tokens_cache_written: tokens.cache_written,
            tokens_completion: tokens.completion,
            tokens_reasoning: tokens.reasoning,
            tokens_saved: tokens.saved,
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
        let (first, others) = call.said.split_first().unzip();
        let of_policy = |limit: &&LimitUse| first.is_some_and(|said| limit.policy == Some(said.policy));
        let limit = |tool: &str| limits.iter().filter(of_policy).find(|limit| limit.tool == tool);
        let limit = limit(&call.tool).or_else(|| limit("*"));
        let objection = |said: &super::outcome::Said| Objection { policy: said.policy, reason: said.reason };
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
        let LimitUse { policy, tool, used, limit } = limit;
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
