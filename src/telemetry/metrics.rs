//! The metrics, in Prometheus's text format: their names, their help texts, and how a request record becomes numbers.
//! `families` and `tools` make and bound the series.

use super::families::{Contexts, Counters, Maker, Requests};
use super::gauges::Gauges;
use super::request_record::{Consent, Fallback, On, PrefixBreak, RequestRecord, SummaryResult, Tokens};
use super::store::{StoreMetrics, StoreOp};
use super::tools::Tools;
use prometheus::process_collector::ProcessCollector;
use prometheus::{Error, Histogram, IntCounter, IntCounterVec, IntGauge, Registry, TextEncoder};
use std::time::Duration;

/// The targets are 0.3 ms at 32 KB and 3 ms at 1 MB.
const OVERHEAD_SECONDS: [f64; 19] = [
    0.000_025, 0.000_05, 0.000_075, 0.000_1, 0.000_15, 0.000_2, 0.000_3, 0.000_5, 0.000_75, 0.001, 0.001_5,
    0.002, 0.003, 0.005, 0.007_5, 0.01, 0.025, 0.1, 1.0,
];
/// A model's answer: from a cached word to a long chain of thought.
const ANSWER_SECONDS: [f64; 14] =
    [0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];
/// Reasons known beforehand, so that their counters start at 0. Others are exposed once they are seen.
const UNJUDGED: [&str; 8] = [
    "event_too_long",
    "held_too_much",
    "reply_too_long",
    "not_json",
    "ambiguous",
    "unreadable_coding",
    "unanswerable",
    "stored_response",
];
/// The kinds of items that no client runs.
const CARRIED: [&str; 11] = [
    "reasoning",
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "image_generation_call",
    "mcp_call",
    "mcp_list_tools",
    "tool_search_call",
    "compaction",
    "program",
    "other",
];
const UNGOVERNED: [&str; 11] = [
    "not_json",
    "no_messages",
    "wrong_type",
    "duplicate_key",
    "too_deep",
    "not_utf8",
    "too_large",
    "too_many_parts",
    "no_memory",
    "odd_text",
    "unreadable_coding",
];
/// In the order of [`Tokens`], then the estimate for prompts without a bill.
const TOKEN_KINDS: [&str; 7] =
    ["prompt", "cached", "cache_written", "completion", "reasoning", "saved", "estimated"];
/// The labels of [`Metrics::count_summary_tokens`].
const SUMMARY_TOKENS: [&str; 2] = ["prompt", "completion"];
/// The labels of [`Metrics::count_reload`].
const RELOADS: [&str; 2] = ["ok", "refused"];
/// About how many bytes of a request make a token: for prompts without a bill.
const BYTES_OF_A_TOKEN: u64 = 4;

/// All metrics of one process.
pub struct Metrics {
    registry: Registry,
    requests: Requests,
    /// By configured profile name, so the labels are bounded elsewhere.
    by_profile: IntCounterVec,
    times: Times,
    deeds: Deeds,
    tools: Tools,
    tokens: Counters,
    context: Contexts,
    client_gone: IntCounter,
    lost_log_lines: IntCounter,
    lost_audit_lines: IntCounter,
    reloads: Counters,
    gauges: Gauges,
    store: StoreMetrics,
}

/// The timing of requests.
struct Times {
    overhead: Histogram,
    first_byte: Histogram,
    upstream: Histogram,
}

/// What policies did to requests and replies, and what could not be done.
struct Deeds {
    /// Its labels are known only where policies are, so it is looked up each time; most requests have none.
    actions: IntCounterVec,
    fallbacks: Counters,
    prefix_breaks: Counters,
    carried: Counters,
    unjudged: Counters,
    ungoverned: Counters,
    lost_hidden_exchanges: IntCounter,
    implausible_usage: IntCounter,
    reasks: IntCounter,
    confirmations: Counters,
    overflows_remembered: IntCounter,
    summaries: Summaries,
}

/// Summaries that were requested.
struct Summaries {
    kinds: Counters,
    tokens: Counters,
}

/// An open stream, until it is dropped.
#[must_use]
pub struct StreamGuard(IntGauge);

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Metrics {
    /// Fresh metrics. The `configured_tools` always have their own series; of all others the first hundred. An error
    /// would be a mistake in a name in this folder.
    pub fn new(configured_tools: &[String]) -> Result<Self, Error> {
        let registry = Registry::new();
        let make = Maker(&registry);
        make.add(ProcessCollector::for_self())?;
        make.build_info()?;
        Ok(Self {
            requests: Requests::new(
                &make,
                "toolrein_requests_total",
                "Client requests by route, by endpoint and by the HTTP status that the client got (none: it left \
                 before one).",
            )?,
            by_profile: make.counters(
                "toolrein_profile_requests_total",
                "Governed requests with a profile, by its name.",
                &["profile"],
            )?,
            times: Times::new(&make)?,
            deeds: Deeds::new(&make)?,
            tools: Tools::new(&make, configured_tools)?,
            tokens: make.words(
                "toolrein_tokens_total",
                "Tokens by kind: prompt, cached and cache_written (parts of prompt), completion and reasoning (part of \
                 completion) as billed, re-asks included; estimated: prompts that were answered and not billed; saved \
                 is an estimate for each request: an old cut counts each time.",
                "kind",
                &TOKEN_KINDS,
            )?,
            context: Contexts::new(
                &make,
                "toolrein_context_tokens_total",
                "Billed tokens of prompts, all and cached, by whether policies changed the conversation's texts \
                 (touched) and by whether it was held out, where they only would have done so.",
            )?,
            client_gone: make
                .counter("toolrein_client_gone_total", "Requests whose client left before the reply's end.")?,
            lost_log_lines: make.counter(
                "toolrein_log_lines_lost_total",
                "Log lines that were not written, because they came too fast or writing failed.",
            )?,
            lost_audit_lines: make.counter(
                "toolrein_audit_lines_lost_total",
                "Lines of the audit log that were not written: the disk is full, the file cannot be opened, or \
                 they came too fast.",
            )?,
            reloads: make.words(
                "toolrein_config_reloads_total",
                "Reloads of the configuration: ok (replaced), refused (unchanged).",
                "result",
                &RELOADS,
            )?,
            gauges: Gauges::new(&make)?,
            store: StoreMetrics::new(&make)?,
            registry,
        })
    }

    /// Counts a streamed reply as open until the guard is dropped.
    pub fn stream_opened(&self) -> StreamGuard {
        self.gauges.streams_open.inc();
        StreamGuard(self.gauges.streams_open.clone())
    }

    /// Counts that the configuration was reloaded, and whether it was accepted.
    pub fn count_reload(&self, taken: bool) {
        self.reloads.add(RELOADS[usize::from(!taken)], 1);
    }

    /// Replaces the configured tools, as in [`Self::new`].
    pub fn configure_tools(&self, configured_tools: &[String]) {
        self.tools.configure(configured_tools);
    }

    /// Counts the result of a summary.
    pub fn count_summary(&self, result: SummaryResult) {
        self.deeds.summaries.kinds.add(result.as_str(), 1);
    }

    /// Counts what a summary cost, as billed.
    pub fn count_summary_tokens(&self, prompt: u64, completion: u64) {
        for (kind, count) in SUMMARY_TOKENS.into_iter().zip([prompt, completion]) {
            self.deeds.summaries.tokens.add(kind, count);
        }
    }

    /// Sets the source of the number of conversations: called at every rendering, so it must be quick. The first source
    /// stays.
    pub fn count_conversations_by(&self, count: impl Fn() -> u64 + Send + Sync + 'static) {
        self.gauges.conversations.set_source(count);
    }

    /// Sets the source of the number of open client connections, in the same way.
    pub fn count_connections_by(&self, count: impl Fn() -> u64 + Send + Sync + 'static) {
        self.gauges.connections.set_source(count);
    }

    /// Sets the source of the number of calls that wait for a person's decision, in the same way.
    pub fn count_confirmations_by(&self, count: impl Fn() -> u64 + Send + Sync + 'static) {
        self.gauges.confirmations_pending.set_source(count);
    }

    /// Sets the source of the number of body bytes in memory, in the same way.
    pub fn count_body_bytes_by(&self, count: impl Fn() -> u64 + Send + Sync + 'static) {
        self.gauges.body_bytes.set_source(count);
    }

    /// Counts errors of the shared state store.
    pub fn count_store_errors(&self, op: StoreOp, count: u64) {
        self.store.fail(op, count);
    }

    /// Sets whether the state store answers.
    pub fn store_answers(&self, answers: bool) {
        self.store.answers(answers);
    }

    /// All metrics in the text format, version 0.0.4.
    pub fn render(&self) -> String {
        self.gauges.poll();
        let mut text = String::new();
        for family in self.registry.gather() {
            // Only a family without a name or a value cannot be written, and the registry gathers none such.
            let _ = TextEncoder::new().encode_utf8(&[family], &mut text);
        }
        text
    }

    /// Counts one request.
    pub(super) fn record(&self, record: &RequestRecord) {
        self.requests.count(record.route, record.endpoint, record.status);
        if let Some(profile) = &record.profile {
            self.by_profile.with_label_values(&[&**profile]).inc();
        }
        self.client_gone.inc_by(record.client_gone.into());
        record.without_store.into_iter().for_each(|refused| self.store.miss(refused));
        self.times.record(record);
        self.deeds.record(record);
        self.record_tokens(record);
        for call in &record.judged {
            self.tools.tool(&call.tool).call(call);
        }
        for re_request in
            record.re_requests.iter().filter(|re_request| !record.repeated || re_request.on == On::Reply)
        {
            self.tools.tool(&re_request.tool).re_request();
        }
        for result in record.results.iter().filter(|_| !record.repeated) {
            self.tools.tool(&result.tool).result(result);
        }
    }

    pub(super) fn add_lost_log_lines(&self, lost: u64) {
        self.lost_log_lines.inc_by(lost);
    }

    pub(super) fn add_lost_audit_lines(&self, lost: u64) {
        self.lost_audit_lines.inc_by(lost);
    }

    fn record_tokens(&self, record: &RequestRecord) {
        let Tokens { prompt, cached, cache_written, completion, reasoning, saved } = record.tokens;
        let is_read = record.route.is_governed() && record.ungoverned.is_none();
        let is_unbilled = is_read && (200..300).contains(&record.status) && prompt == 0;
        let estimated = if is_unbilled { record.request_bytes / BYTES_OF_A_TOKEN } else { 0 };
        let counts = [prompt, cached, cache_written, completion, reasoning, saved, estimated];
        for (kind, count) in TOKEN_KINDS.into_iter().zip(counts) {
            if count > 0 {
                self.tokens.add(kind, count);
            }
        }
        self.context.count(record.context, prompt, cached);
    }
}

impl Times {
    fn new(make: &Maker<'_>) -> Result<Self, Error> {
        Ok(Self {
            overhead: make.histogram(
                "toolrein_overhead_seconds",
                "Time that toolrein itself needed for a request, without waiting for the upstream, in seconds.",
                &OVERHEAD_SECONDS,
            )?,
            first_byte: make.histogram(
                "toolrein_first_byte_seconds",
                "Time from a request's head to the first byte of its reply's body, in seconds.",
                &ANSWER_SECONDS,
            )?,
            upstream: make.histogram(
                "toolrein_upstream_seconds",
                "Time spent waiting for the upstream, all tries of a request together, in seconds.",
                &ANSWER_SECONDS,
            )?,
        })
    }

    fn record(&self, record: &RequestRecord) {
        let times = &record.times;
        self.overhead.observe(times.overhead.as_secs_f64());
        if let Some(first_byte) = times.first_byte {
            self.first_byte.observe(first_byte.as_secs_f64());
        }
        if times.upstream > Duration::ZERO {
            self.upstream.observe(times.upstream.as_secs_f64());
        }
    }
}

impl Summaries {
    fn new(make: &Maker<'_>) -> Result<Self, Error> {
        Ok(Self {
            kinds: make.words(
                "toolrein_summaries_total",
                "Summaries of cleared results, by result: made, late and failed are requests to a model, pinned are \
                 requests that got an earlier summary, lost are batches whose summary is not known any more.",
                "kind",
                &SummaryResult::ALL.map(SummaryResult::as_str),
            )?,
            tokens: make.words(
                "toolrein_summaries_tokens_total",
                "Tokens billed for summaries; included in no other count.",
                "kind",
                &SUMMARY_TOKENS,
            )?,
        })
    }
}

impl Deeds {
    fn new(make: &Maker<'_>) -> Result<Self, Error> {
        Ok(Self {
            actions: make.counters(
                "toolrein_actions_total",
                "Actions of policies, by policy and action; each is counted once, not again when history is resent.",
                &["policy", "action"],
            )?,
            fallbacks: make.words(
                "toolrein_fallbacks_total",
                "Retries after an upstream's refusal or on a stale connection, by kind.",
                "kind",
                &Fallback::ALL.map(Fallback::as_str),
            )?,
            prefix_breaks: make.words(
                "toolrein_prefix_breaks_total",
                "Requests whose rewritten history does not continue the one before, so that prompt caches miss, by \
                 cause; a resent identical body counts once.",
                "cause",
                &PrefixBreak::ALL.map(PrefixBreak::as_str),
            )?,
            carried: make.words(
                "toolrein_carried_items_total",
                "Items of replies that no client runs, so that no policy can block them, by kind.",
                "kind",
                &CARRIED,
            )?,
            unjudged: make.words(
                "toolrein_unjudged_total",
                "Replies, or parts of them, that passed without being judged, by reason.",
                "why",
                &UNJUDGED,
            )?,
            ungoverned: make.words(
                "toolrein_ungoverned_total",
                "Governed requests that were relayed unread because they could not be read, by reason.",
                "why",
                &UNGOVERNED,
            )?,
            implausible_usage: make.counter(
                "toolrein_implausible_usage_total",
                "Replies whose usage had implausibly many tokens; these are left out of all token counts.",
            )?,
            lost_hidden_exchanges: make.counter(
                "toolrein_lost_hidden_exchanges_total",
                "Hidden exchanges of blocked calls that could not be restored; a resent identical body counts once.",
            )?,
            reasks: make
                .counter("toolrein_reasks_total", "Re-asks of the upstream after calls were blocked.")?,
            confirmations: make.words(
                "toolrein_confirmations_total",
                "Results of asking a person about calls: approved, declined, or why no answer came: expired (not in \
                 time), left (the client was gone), stopped (toolrein was), unasked (too many waited).",
                "outcome",
                &Consent::ALL.map(Consent::as_str),
            )?,
            overflows_remembered: make.counter(
                "toolrein_overflows_remembered_total",
                "Requests shortened at once, since an earlier request of the conversation was refused for its length.",
            )?,
            summaries: Summaries::new(make)?,
        })
    }

    fn record(&self, record: &RequestRecord) {
        // A reply is new each time, and so are the retries for it; what a request brings is counted only the first
        // time.
        for action in record.actions.iter().filter(|act| !record.repeated || act.on == On::Reply) {
            self.actions.with_label_values(&[action.policy, &*action.action]).inc_by(action.count);
        }
        if !record.repeated {
            record.prefix_breaks.iter().for_each(|cause| self.prefix_breaks.add(cause.as_str(), 1));
            self.lost_hidden_exchanges.inc_by(record.lost_hidden_exchanges.into());
        }
        record.carried.iter().for_each(|kind| self.carried.add(kind, 1));
        record.fallbacks.iter().for_each(|kind| self.fallbacks.add(kind.as_str(), 1));
        record.summaries.iter().for_each(|result| self.summaries.kinds.add(result.as_str(), 1));
        record.unjudged.iter().for_each(|why| self.unjudged.add(why, 1));
        record.ungoverned.iter().for_each(|why| self.ungoverned.add(why, 1));
        self.reasks.inc_by(record.reasks.into());
        record.confirmations.iter().for_each(|how| self.confirmations.add(how.as_str(), 1));
        self.implausible_usage.inc_by(record.implausible_usage.into());
        self.overflows_remembered.inc_by(record.overflow_remembered.into());
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases::rich;
    use super::super::request_record::{Action, Context, Route};
    use super::*;

    fn metrics() -> Metrics {
        Metrics::new(&["search".to_owned()]).unwrap()
    }

    /// The samples of ours that are not 0, except buckets and the build.
    fn samples(metrics: &Metrics) -> Vec<String> {
        let text = metrics.render();
        let ours = text.lines().filter(|line| line.starts_with("toolrein_"));
        let shown = ours.filter(|line| !line.ends_with(" 0") && !line.contains("_bucket{"));
        let always = ["toolrein_build_info", "toolrein_store_up"];
        shown.filter(|line| !always.iter().any(|name| line.starts_with(name))).map(str::to_owned).collect()
    }

    #[test]
    fn a_rich_outcome_is_counted_in_every_place() {
        let metrics = metrics();
        metrics.record(&rich());
        let expected = r#"
toolrein_actions_total{action="blocked",policy="rate_limit"} 1
toolrein_actions_total{action="notice",policy="budget"} 1
toolrein_actions_total{action="shortened",policy="truncate"} 2
toolrein_carried_items_total{kind="web_search_call"} 1
toolrein_context_tokens_total{held_out="no",kind="cached",touched="yes"} 2048
toolrein_context_tokens_total{held_out="no",kind="prompt",touched="yes"} 3000
toolrein_fallbacks_total{kind="placement"} 1
toolrein_first_byte_seconds_sum 0.4205
toolrein_first_byte_seconds_count 1
toolrein_lost_hidden_exchanges_total 1
toolrein_overhead_seconds_sum 0.00025
toolrein_overhead_seconds_count 1
toolrein_prefix_breaks_total{cause="store"} 1
toolrein_profile_requests_total{profile="chat"} 1
toolrein_reasks_total 1
toolrein_requests_total{endpoint="chat_completions",route="chat",status="200"} 1
toolrein_tokens_total{kind="cache_written"} 100
toolrein_tokens_total{kind="cached"} 2048
toolrein_tokens_total{kind="completion"} 70
toolrein_tokens_total{kind="prompt"} 3000
toolrein_tokens_total{kind="reasoning"} 20
toolrein_tokens_total{kind="saved"} 900
toolrein_tool_calls_total{tool="search",verdict="allowed"} 2
toolrein_tool_calls_total{tool="weather",verdict="blocked"} 1
toolrein_tool_calls_total{tool="weather",verdict="unjudged"} 1
toolrein_tool_result_bytes_sum{tool="search"} 5120
toolrein_tool_result_bytes_count{tool="search"} 1
toolrein_tool_result_bytes_sum{tool="weather"} 10
toolrein_tool_result_bytes_count{tool="weather"} 1
toolrein_tool_result_tokens_sum{tool="search"} 1280
toolrein_tool_result_tokens_count{tool="search"} 1
toolrein_tool_result_tokens_sum{tool="weather"} 3
toolrein_tool_result_tokens_count{tool="weather"} 1
toolrein_tool_seconds_sum{tool="search"} 0.35
toolrein_tool_seconds_count{tool="search"} 1
toolrein_unjudged_total{why="event_too_long"} 1
toolrein_upstream_seconds_sum 1.5
toolrein_upstream_seconds_count 1"#;
        assert_eq!(samples(&metrics).join("\n"), expected.trim_start());
    }

    #[test]
    fn a_repeated_body_counts_its_reply_again_and_what_the_request_told_only_once() {
        let metrics = metrics();
        metrics.record(&rich());
        metrics.record(&RequestRecord { repeated: true, ..rich() });
        let samples = samples(&metrics);
        for expected in [
            r#"toolrein_requests_total{endpoint="chat_completions",route="chat",status="200"} 2"#,
            r#"toolrein_tokens_total{kind="prompt"} 6000"#,
            r#"toolrein_tool_calls_total{tool="search",verdict="allowed"} 4"#,
            r#"toolrein_actions_total{action="blocked",policy="rate_limit"} 2"#,
            r#"toolrein_actions_total{action="shortened",policy="truncate"} 2"#,
            r#"toolrein_actions_total{action="notice",policy="budget"} 1"#,
            r#"toolrein_tool_result_bytes_count{tool="search"} 1"#,
            r#"toolrein_prefix_breaks_total{cause="store"} 1"#,
            "toolrein_lost_hidden_exchanges_total 1",
            "toolrein_reasks_total 2",
        ] {
            assert!(samples.iter().any(|sample| sample == expected), "{expected} in {samples:#?}");
        }
    }

    #[test]
    fn counters_of_closed_sets_begin_at_zero_and_every_metric_says_what_it_is() {
        let text = metrics().render();
        for (name, label, words) in [
            ("tokens", "kind", TOKEN_KINDS.to_vec()),
            ("fallbacks", "kind", Fallback::ALL.map(Fallback::as_str).to_vec()),
            ("prefix_breaks", "cause", PrefixBreak::ALL.map(PrefixBreak::as_str).to_vec()),
            ("carried_items", "kind", crate::dialect::CARRIED.to_vec()),
            ("unjudged", "why", UNJUDGED.to_vec()),
            ("ungoverned", "why", UNGOVERNED.to_vec()),
        ] {
            for word in words {
                let sample = format!("\ntoolrein_{name}_total{{{label}=\"{word}\"}} 0\n");
                assert!(text.contains(&sample), "{sample}");
            }
        }
        for plain in [
            "client_gone",
            "lost_hidden_exchanges",
            "implausible_usage",
            "reasks",
            "log_lines_lost",
            "audit_lines_lost",
        ] {
            assert!(text.contains(&format!("\ntoolrein_{plain}_total 0\n")), "{plain}");
        }
        let version = env!("CARGO_PKG_VERSION");
        assert!(text.contains(&format!("\ntoolrein_build_info{{version=\"{version}\"}} 1\n")));
        assert!(text.contains("\nprocess_resident_memory_bytes "));
        let helped = text.matches("# HELP ").count();
        assert_eq!(helped, text.matches("# TYPE ").count());
    }

    #[test]
    fn statuses_outside_http_share_a_series_and_no_status_has_its_own() {
        let metrics = metrics();
        for status in [0, 99, 600, 65_535, 599, 101] {
            metrics.record(&RequestRecord {
                status,
                client_gone: status == 0,
                ..RequestRecord::new(Route::Upgrade)
            });
        }
        let text = metrics.render();
        for (status, count) in [("none", 1), ("other", 3), ("599", 1), ("101", 1)] {
            let sample = format!(
                "\ntoolrein_requests_total{{endpoint=\"other\",route=\"upgrade\",status=\"{status}\"}} {count}\n"
            );
            assert!(text.contains(&sample), "{sample}");
        }
        assert!(text.contains("\ntoolrein_client_gone_total 1\n"));
        assert!(text.contains("\ntoolrein_upstream_seconds_count 0\n"), "the upstream was never asked");
    }

    #[test]
    fn prompts_that_nobody_billed_are_estimated_by_their_bytes() {
        let metrics = metrics();
        let chat = |status, prompt| RequestRecord {
            status,
            request_bytes: 4_000,
            tokens: Tokens { prompt, ..Tokens::default() },
            ..RequestRecord::new(Route::Chat)
        };
        for record in [chat(200, 0), chat(500, 0), chat(200, 700)] {
            metrics.record(&record);
        }
        let samples = samples(&metrics);
        assert!(samples.iter().any(|sample| sample == r#"toolrein_tokens_total{kind="estimated"} 1000"#));
    }

    #[test]
    fn cached_tokens_are_told_apart_by_what_was_done_to_their_conversations() {
        let metrics = metrics();
        for (touched, held_out, prompt, cached) in
            [(true, false, 100, 90), (false, false, 10, 5), (true, true, 1_000, 0), (true, false, 1, 1)]
        {
            let tokens = Tokens { prompt, cached, ..Tokens::default() };
            let context = Context { touched, held_out };
            metrics.record(&RequestRecord { tokens, context, ..RequestRecord::new(Route::Chat) });
        }
        let text = metrics.render();
        for (held_out, kind, touched, count) in [
            ("no", "prompt", "yes", 101),
            ("no", "cached", "yes", 91),
            ("no", "cached", "no", 5),
            ("yes", "prompt", "yes", 1_000),
            ("yes", "cached", "yes", 0),
            ("yes", "prompt", "no", 0),
        ] {
            let sample = format!(
                "\ntoolrein_context_tokens_total{{held_out=\"{held_out}\",kind=\"{kind}\",touched=\"{touched}\"}} {count}\n"
            );
            assert!(text.contains(&sample), "{sample}");
        }
    }

    #[test]
    fn words_that_are_not_known_beforehand_are_exposed_when_they_are_seen() {
        let metrics = metrics();
        metrics.record(&RequestRecord { ungoverned: Some("too_deep"), ..RequestRecord::new(Route::Chat) });
        assert!(metrics.render().contains("\ntoolrein_ungoverned_total{why=\"too_deep\"} 1\n"));
    }

    #[test]
    fn a_stream_is_open_until_its_guard_is_dropped() {
        let metrics = metrics();
        let (one, two) = (metrics.stream_opened(), metrics.stream_opened());
        drop(one);
        assert!(metrics.render().contains("\ntoolrein_streams_open 1\n"));
        drop(two);
        assert!(metrics.render().contains("\ntoolrein_streams_open 0\n"));
    }

    #[test]
    fn conversations_are_asked_for_at_every_rendering() {
        let metrics = metrics();
        let calls = std::sync::atomic::AtomicU64::new(6);
        metrics.count_conversations_by(move || calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        assert!(metrics.render().contains("\ntoolrein_conversations 6\n"));
        assert!(metrics.render().contains("\ntoolrein_conversations 7\n"));
    }

    #[test]
    fn hostile_names_do_not_break_the_format() {
        let metrics = metrics();
        let mut record = rich();
        record.judged[0].tool = "a\"} 1\n# TYPE x\\".to_owned();
        record.actions.push(Action { policy: "p", action: "q".into(), count: u64::MAX / 2, on: On::Reply });
        metrics.record(&record);
        let text = metrics.render();
        assert!(text.contains(r#"{tool="a\"}_1_#_TYPE_x\\",verdict="allowed"} 1"#), "{text}");
    }
}
