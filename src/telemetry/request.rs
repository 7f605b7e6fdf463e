//! The line of a request in the log: its fields, a projection of the request record, written as one JSON object. It is written
//! member by member instead of by a table of columns, since every request has a line, and most of the fields are left out
//! of most lines.

use super::json_object::JsonObject;
use super::line::{MAX_ITEMS, MAX_VALUE_CHARS, USUAL_BYTES};
use super::log::Level;
use super::projection::Inclusion::{Always, IfAny, IfKnown};
use super::projection::MemberValue::{Flag, Number, Text};
use super::projection::{Column, TextBounds, calls_of, known, word};
use model::record::{JudgedCall, RequestRecord, Times, Tokens};
use std::time::{Duration, SystemTime};

/// Ids of calls are shorter than other texts: those of providers have 40 characters at most.
const BOUNDS: &TextBounds =
    &TextBounds { id_chars: 64, has_null: false, ..TextBounds::new(MAX_VALUE_CHARS, MAX_ITEMS) };

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

/// The line of a request that ended `at` this time, without its end. Fields without information are left out.
pub(super) fn request_line(record: &RequestRecord, level: Level, at: SystemTime) -> Vec<u8> {
    let mut line = JsonObject::new(USUAL_BYTES, MAX_VALUE_CHARS);
    line.text("request_id", &record.request_id);
    line.time("timestamp", at);
    line.word("level", level.as_str());
    line.word("message", "request");
    line.text_if_known("conversation", record.conversation.as_deref());
    line.text_if_known("caller", record.caller.as_deref());
    line.text_if_known("model", record.model.as_deref());
    line.text_if_known("profile", record.profile.as_deref());
    line.text("method", &record.method);
    line.text("path", &record.path);
    line.word("endpoint", record.endpoint.as_str());
    line.word("route", record.route.as_str());
    line.word("mode", record.mode);
    line.value("status", &record.status);
    line.text_if_known("error", record.error);
    line.text_if_known("error_detail", record.error_detail.as_deref());
    line.if_any("client_gone", record.client_gone);
    line.if_any("streamed", record.streamed);
    line.if_any("repeated", record.repeated);
    line.text_if_known("ungoverned", record.ungoverned.or(record.partly_ungoverned));
    write_lists(&mut line, record);
    line.if_any("upstream_requests", record.upstream_requests);
    line.list("upstream_request_ids", &record.upstream_request_ids, |ids| {
        BOUNDS.texts(ids.iter().map(|id| BOUNDS.text(id)))
    });
    line.if_any("reasks", record.reasks);
    line.if_any("lost_hidden_exchanges", record.lost_hidden_exchanges);
    line.if_any("implausible_usage", record.implausible_usage);
    line.list("fallbacks", &record.fallbacks, |retries| {
        BOUNDS.texts(retries.iter().map(|retry| retry.as_str().into()))
    });
    line.list("prefix_breaks", &record.prefix_breaks, |causes| {
        BOUNDS.texts(causes.iter().map(|cause| cause.as_str().into()))
    });
    line.list("unjudged", &record.unjudged, |unjudged| unjudged);
    write_tokens(&mut line, record);
    line.if_any("context_touched", record.context.touched);
    line.if_any("held_out", record.context.held_out);
    line.value("request_bytes", &record.request_bytes);
    line.value("reply_bytes", &record.reply_bytes);
    let Times { total, upstream, first_byte, overhead } = record.times;
    line.value("total_ms", &millis(total));
    line.value("overhead_ms", &millis(overhead));
    line.if_any("upstream_ms", millis(upstream));
    line.if_known("first_byte_ms", first_byte.map(millis));
    line.text_if_known("traceparent", record.traceparent.as_deref());
    line.end()
}

fn write_lists(line: &mut JsonObject, record: &RequestRecord) {
    line.list("actions", &record.actions, |actions| BOUNDS.actions(actions.iter()));
    line.list("tool_calls", &record.judged, |_| BOUNDS.calls(calls_of(record), CALL));
    line.list("approvals", &record.approvals, |_| BOUNDS.approvals(record));
    line.list("results", &record.results, |_| BOUNDS.results(record));
    line.list("limits", &record.usage_of_limits, |_| BOUNDS.limits(record));
    let limits = record.usage_of_limits.len();
    let lengths = [record.actions.len(), record.judged.len(), record.results.len(), limits];
    let left_out = BOUNDS.left_out(&lengths);
    if !left_out.is_empty() {
        line.value("left_out", &left_out);
    }
}

fn write_tokens(line: &mut JsonObject, record: &RequestRecord) {
    let Tokens { prompt, cached, cache_written, completion, reasoning, saved } = record.tokens;
    line.if_any("tokens_prompt", prompt);
    line.if_any("tokens_cached", cached);
    line.if_any("tokens_cache_written", cache_written);
    line.if_any("tokens_completion", completion);
    line.if_any("tokens_reasoning", reasoning);
    line.if_any("tokens_saved", saved);
    // Estimated by the model's prices.
    line.if_known("cost_usd", record.cost.map(|nanodollars| nanodollars as f64 / 1e9));
    // What the first request of a conversation holds before anything was said, in estimated tokens.
    if let Some(system) = record.system_tokens.filter(|_| !record.repeated) {
        line.if_any("start_tokens", system + record.definition_tokens);
        line.if_any("start_tokens_system", system);
        line.if_any("start_tokens_tools", record.definition_tokens);
        line.if_any("start_tools", record.declared_tools.len());
    }
}

/// To the microsecond.
fn millis(time: Duration) -> f64 {
    time.as_micros() as f64 / 1000.0
}
