//! The metrics, in Prometheus's text format: their names, their help texts, and how a request record becomes numbers.
//! `families` and `tools` make and bound the series.

use super::approvers::Approvers;
use super::billed::Summaries;
use super::callers::Callers;
use super::families::{Contexts, Counters, Maker, Requests, Shares};
use super::gauges::Gauges;
use super::gen_ai::GenAi;
use super::lost::Lost;
use super::models::{Model, Models};
pub use super::span_counts::SpanCounts;
use super::store::StoreMetrics;
use super::tls::TlsMetrics;
use super::tools::{OwnSeries, Tools};
use model::record::{On, PolicyTokens, RequestRecord, SummaryResult, Tokens, WebhookResult};
use model::store_health::{Circuit, StoreOp};
use prometheus::{CounterVec, Error, Histogram, IntCounter, IntCounterVec, IntGauge, Registry, TextEncoder};
use std::time::Duration;

/// Buckets of definitions' tokens: one small tool has a hundred, a large set of an editor's tools thirty thousand.
const DEFINITION_TOKENS: [f64; 3] = [1_000.0, 5_000.0, 20_000.0];
/// The targets are 0.5 ms at 32 KB and 3 ms at 1 MB. 50 ms are too much: an alert of
/// ours needs that bound. Few buckets, since each is a series of every sidecar.
const OVERHEAD_SECONDS: [f64; 6] = [0.000_1, 0.000_5, 0.001, 0.003, 0.01, 0.05];
/// A model's answer: from a cached word to a long chain of thought.
const ANSWER_SECONDS: [f64; 7] = [0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 120.0];
/// In the order of [`PolicyTokens`].
const EFFECTS: [&str; 3] = ["removed", "added", "reasked"];
/// The labels of [`Metrics::count_summary_tokens`] and [`Metrics::count_question_tokens`].
const BILLED: [&str; 2] = ["input", "output"];
/// The labels of [`Metrics::count_reload`].
pub(super) const RELOADS: [&str; 2] = ["ok", "refused"];
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
    models: Models,
    callers: Callers,
    sums: Sums,
    shares: Shares,
    gen_ai: GenAi,
    context: Contexts,
    client_gone: IntCounter,
    wrong_tokens: IntCounter,
    pub(super) lost: Lost,
    pub(super) reloads: Counters,
    tls: TlsMetrics,
    pub(super) gauges: Gauges,
    pub(super) store: StoreMetrics,
    spans: SpanCounts,
}

/// Sums of tokens and money, except for the tokens that upstreams billed.
struct Sums {
    policy_tokens: IntCounterVec,
    cost: CounterVec,
    unbilled: IntCounter,
}

/// The timing of requests.
struct Times {
    overhead: Histogram,
    first_byte: Histogram,
    upstream: Histogram,
}

/// What policies did to requests and replies, and what could not be done.
struct Deeds {
    definitions: Histogram,
    /// Its labels are known only where policies are, so it is looked up each time; most requests have none.
    actions: IntCounterVec,
    fallbacks: Counters,
    prefix_breaks: Counters,
    carried: Counters,
    unjudged: Counters,
    ungoverned: Counters,
    lost_hidden_exchanges: IntCounter,
    late_results: IntCounter,
    implausible_usage: IntCounter,
    reasks: IntCounter,
    confirmations: Counters,
    approvers: Approvers,
    overflows_remembered: IntCounter,
    summaries: Summaries,
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
    /// Fresh metrics. An error would be a mistake in a name in this folder.
    pub fn new(tools: OwnSeries) -> Result<Self, Error> {
        let registry = Registry::new();
        let make = Maker(&registry);
        // The collector reads what Linux alone has.
        #[cfg(target_os = "linux")]
        make.add(prometheus::process_collector::ProcessCollector::for_self())?;
        make.build_info()?;
        Ok(Self {
            requests: Requests::new(
                &make,
                "toolrein_requests_total",
                "Client requests by endpoint, model, HTTP status that the client got (none: it left before one), and \
                 error of toolrein's own.",
            )?,
            by_profile: make.counters(
                "toolrein_profile_requests_total",
                "Governed requests with a profile, by its name.",
                &["profile"],
            )?,
            times: Times::new(&make)?,
            deeds: Deeds::new(&make)?,
            tools: Tools::new(&make, tools)?,
            models: Models::new(&make)?,
            callers: Callers::new(&make)?,
            sums: Sums::new(&make)?,
            shares: Shares::new(&make)?,
            gen_ai: GenAi::new(&make)?,
            context: Contexts::new(&make)?,
            client_gone: make.counter(
                "toolrein_client_gone_total",
                "Requests whose client left before the reply's end.",
            )?,
            wrong_tokens: make.counter(
                "toolrein_admin_wrong_tokens_total",
                "Requests to protected pages of the admin port with a wrong token.",
            )?,
            lost: Lost::new(&make)?,
            reloads: make.words_from_zero(
                "toolrein_config_reloads_total",
                "Reloads of the configuration: ok (replaced), refused (unchanged).",
                "result",
                &RELOADS,
            )?,
            tls: TlsMetrics::new(&make)?,
            gauges: Gauges::new(&make)?,
            store: StoreMetrics::new(&make)?,
            spans: SpanCounts::new(&make)?,
            registry,
        })
    }

    /// Counts a streamed reply as open until the guard is dropped.
    pub fn stream_opened(&self) -> StreamGuard {
        self.gauges.streams_open.inc();
        StreamGuard(self.gauges.streams_open.clone())
    }

    /// Counts an attempt to open a protected page of the admin port with a wrong token.
    pub fn count_wrong_token(&self) {
        self.wrong_tokens.inc();
    }

    /// Counts that the configuration was reloaded, and whether it was accepted.
    pub fn count_reload(&self, taken: bool) {
        self.reloads.add(RELOADS[usize::from(!taken)], 1);
    }

    /// What is counted about TLS with clients.
    pub fn tls(&self) -> &TlsMetrics {
        &self.tls
    }

    /// Sets which tools and how many callers have series of their own, and whether the semantic conventions' metrics are
    /// kept.
    pub fn configure(&self, tools: OwnSeries, callers: usize, gen_ai: bool) {
        self.tools.configure(tools);
        self.callers.bound(callers);
        self.gen_ai.switch(gen_ai);
    }

    /// The configuration with this hash is in force since `at_seconds` since the epoch.
    pub fn configured(&self, hash: &str, at_seconds: i64) {
        self.gauges.configured(hash, at_seconds);
    }

    /// The counters of traces; from now on they exist, at 0.
    pub fn span_counts(&self) -> SpanCounts {
        self.spans.begin();
        self.spans.clone()
    }

    /// Counts the result of a summary.
    pub fn count_summary(&self, result: SummaryResult) {
        self.deeds.summaries.kinds.add(result.as_str(), 1);
    }

    /// Counts the outcome of a notification.
    pub fn count_webhook(&self, result: WebhookResult) {
        self.deeds.approvers.count_webhook(result);
    }

    /// Counts what a summary cost, as billed.
    pub fn count_summary_tokens(&self, prompt: u64, completion: u64) {
        for (kind, count) in BILLED.into_iter().zip([prompt, completion]) {
            self.deeds.summaries.tokens.add(kind, count);
        }
    }

    /// Counts what a question about a call cost, as billed.
    pub fn count_question_tokens(&self, prompt: u64, completion: u64) {
        for (kind, count) in BILLED.into_iter().zip([prompt, completion]) {
            self.deeds.summaries.question_tokens.add(kind, count);
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

    /// The state of the circuit breaker before the shared state store.
    pub fn store_breaker(&self, circuit: Circuit) {
        self.store.breaks(circuit);
    }

    /// Sets whether the state store answers.
    pub fn store_answers(&self, answers: bool) {
        self.store.answers(answers);
    }

    /// All metrics in the text format, version 0.0.4.
    pub fn render(&self) -> String {
        self.gauges.poll();
        self.lost.poll();
        let mut text = String::new();
        for family in self.registry.gather() {
            // Only a family without a name or a value cannot be written, and the registry gathers no such family.
            let _ = TextEncoder::new().encode_utf8(&[family], &mut text);
        }
        text
    }

    /// Counts one request.
    pub(super) fn record(&self, record: &RequestRecord) {
        let is_read = record.route.is_governed() && record.ungoverned.is_none();
        let model = self.models.model(record.model.as_deref().filter(|_| is_read));
        self.requests.count(record.endpoint, &model.name, record.status, record.error);
        if let Some(profile) = &record.profile {
            self.by_profile.with_label_values(&[&**profile]).inc();
        }
        self.client_gone.inc_by(record.client_gone.into());
        record.without_store.into_iter().for_each(|refused| self.store.miss(refused));
        self.times.record(record);
        self.deeds.record(record);
        self.models.count_refusals(&model, &record.refusals);
        self.callers.record(record);
        self.record_tokens(record, &model);
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

    fn record_tokens(&self, record: &RequestRecord, model: &Model) {
        if let Some(nanodollars) = record.cost {
            self.sums.cost.with_label_values(&[&model.name]).inc_by(nanodollars as f64 / 1e9);
        }
        let Tokens { prompt, cached, .. } = record.tokens;
        let is_read = record.route.is_governed() && record.ungoverned.is_none();
        if is_read && (200..300).contains(&record.status) && prompt == 0 {
            self.sums.unbilled.inc_by(record.request_bytes / BYTES_OF_A_TOKEN);
        }
        model.billed(&record.tokens);
        self.context.count(record.context, prompt, cached);
        for PolicyTokens { policy, removed, added, reasked } in &record.policy_tokens {
            for (effect, count) in EFFECTS.into_iter().zip([*removed, *added, *reasked]) {
                if count > 0 {
                    self.sums.policy_tokens.with_label_values(&[*policy, effect]).inc_by(count);
                }
            }
        }
        self.shares.record(record);
        if is_read {
            self.gen_ai.record(record, &model.name);
        }
    }
}

impl Sums {
    fn new(make: &Maker<'_>) -> Result<Self, Error> {
        Ok(Self {
            policy_tokens: make.counters(
                "toolrein_policy_tokens_total",
                "Tokens by policy and effect: removed (not sent, estimated), added (notices and declarations, \
                 estimated), reasked (billed for asking again). Old changes count in each request, as they would be \
                 billed.",
                &["policy", "effect"],
            )?,
            cost: make.amounts(
                "toolrein_cost_usd_total",
                "Cost of billed tokens in US dollars: as the provider says, else estimated by list prices or the operator's. \
                 Models without either are left out.",
                "model",
            )?,
            unbilled: make.counter(
                "toolrein_unbilled_tokens_total",
                "Estimated input tokens of answered requests for which the upstream reported no usage, or none that is plausible.",
            )?,
        })
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

impl Deeds {
    fn new(make: &Maker<'_>) -> Result<Self, Error> {
        Ok(Self {
            definitions: make.histogram(
                "toolrein_tool_definition_tokens",
                "Estimated tokens of the tools that a request declares, of requests that declare any.",
                &DEFINITION_TOKENS,
            )?,
            actions: make.counters(
                "toolrein_actions_total",
                "Actions of policies, by policy and action; each is counted once, not again when history is resent.",
                &["policy", "action"],
            )?,
            fallbacks: make.words(
                "toolrein_fallbacks_total",
                "Retries after an upstream's refusal or on a stale connection, by kind.",
                "kind",
            )?,
            prefix_breaks: make.words(
                "toolrein_prefix_breaks_total",
                "Requests whose rewritten history does not continue the one before, by cause; a resent body counts once.",
                "cause",
            )?,
            carried: make.words(
                "toolrein_carried_items_total",
                "Items of replies that no client runs, so that no policy can block them, by kind.",
                "kind",
            )?,
            unjudged: make.words(
                "toolrein_unjudged_total",
                "Replies, or parts of them, that passed without being judged, by reason.",
                "why",
            )?,
            ungoverned: make.words(
                "toolrein_ungoverned_total",
                "Governed requests that were relayed unread because they could not be read, or (odd_text) whose messages were \
                 left as they are in part, by reason.",
                "why",
            )?,
            implausible_usage: make.counter(
                "toolrein_implausible_usage_total",
                "Replies whose usage had implausibly many tokens; these are left out of all token counts.",
            )?,
            lost_hidden_exchanges: make.counter(
                "toolrein_lost_hidden_exchanges_total",
                "Hidden exchanges of blocked calls that could not be restored; a resent identical body counts once.",
            )?,
            late_results: make.counter(
                "toolrein_late_results_total",
                "Results (decisions of people, answers of other models) that came after their calls had gone; they count for nothing.",
            )?,
            reasks: make
                .counter("toolrein_reasks_total", "Re-asks of the upstream after calls were blocked.")?,
            confirmations: make.words(
                "toolrein_confirmations_total",
                "Results of asking a person about calls: approved, declined, or why no answer came: expired (not in \
                 time), left (the client was gone), stopped (toolrein was), unasked (too many waited).",
                "outcome",
            )?,
            approvers: Approvers::new(make)?,
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
        self.late_results.inc_by(record.late_results.into());
        if record.definition_tokens > 0 {
            self.definitions.observe(record.definition_tokens as f64);
        }
        record.carried.iter().for_each(|kind| self.carried.add(kind, 1));
        record.fallbacks.iter().for_each(|kind| self.fallbacks.add(kind.as_str(), 1));
        record.summaries.iter().for_each(|result| self.summaries.kinds.add(result.as_str(), 1));
        record.unjudged.iter().for_each(|why| self.unjudged.add(why, 1));
        let ungoverned = record.ungoverned.or(record.partly_ungoverned);
        ungoverned.into_iter().for_each(|why| self.ungoverned.add(why, 1));
        self.reasks.inc_by(record.reasks.into());
        record.confirmations.iter().for_each(|how| self.confirmations.add(how.as_str(), 1));
        record.approvals.iter().for_each(|approval| self.approvers.count(approval));
        self.implausible_usage.inc_by(record.implausible_usage.into());
        self.overflows_remembered.inc_by(record.overflow_remembered.into());
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases::rich;
    use super::*;
    use model::record::{Action, Context, LimitUse, Route};

    fn metrics() -> Metrics {
        Metrics::new(OwnSeries::new(true, |_| false)).unwrap()
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
toolrein_cache_written_tokens_total{model="gpt-4o"} 100
toolrein_cached_tokens_total{model="gpt-4o"} 2048
toolrein_carried_items_total{kind="web_search_call"} 1
toolrein_context_cached_tokens_total{held_out="no",touched="yes"} 2048
toolrein_context_tokens_total{held_out="no",touched="yes"} 3000
toolrein_fallbacks_total{kind="placement"} 1
toolrein_first_byte_seconds_sum 0.4205
toolrein_first_byte_seconds_count 1
toolrein_late_results_total 1
toolrein_limit_utilization_sum{policy="rate_limit"} 1
toolrein_limit_utilization_count{policy="rate_limit"} 1
toolrein_lost_hidden_exchanges_total 1
toolrein_overhead_seconds_sum 0.00025
toolrein_overhead_seconds_count 1
toolrein_policy_tokens_total{effect="added",policy="budget"} 30
toolrein_policy_tokens_total{effect="reasked",policy="rate_limit"} 1500
toolrein_policy_tokens_total{effect="removed",policy="truncate"} 900
toolrein_prefix_breaks_total{cause="store"} 1
toolrein_profile_requests_total{profile="chat"} 1
toolrein_reasks_total 1
toolrein_reasoning_tokens_total{model="gpt-4o"} 20
toolrein_requests_total{endpoint="chat_completions",error="",model="gpt-4o",status="200"} 1
toolrein_tokens_total{model="gpt-4o",type="input"} 3000
toolrein_tokens_total{model="gpt-4o",type="output"} 70
toolrein_tool_calls_total{policy="",tool="search",verdict="allow"} 2
toolrein_tool_calls_total{policy="",tool="weather",verdict="unjudged"} 1
toolrein_tool_calls_total{policy="rate_limit",tool="weather",verdict="block"} 1
toolrein_tool_result_bytes_sum{tool="search"} 5120
toolrein_tool_result_bytes_count{tool="search"} 1
toolrein_tool_result_bytes_sum{tool="weather"} 10
toolrein_tool_result_bytes_count{tool="weather"} 1
toolrein_tool_result_tokens_sum{tool="search"} 1280
toolrein_tool_result_tokens_count{tool="search"} 1
toolrein_tool_result_tokens_sum{tool="weather"} 3
toolrein_tool_result_tokens_count{tool="weather"} 1
toolrein_tool_results_total{outcome="failed",tool="weather"} 1
toolrein_tool_results_total{outcome="ok",tool="search"} 1
toolrein_tool_seconds_sum{tool="search"} 0.35
toolrein_tool_seconds_count{tool="search"} 1
toolrein_unjudged_total{why="event_too_long"} 1
toolrein_upstream_seconds_sum 1.5
toolrein_upstream_seconds_count 1"#;
        assert_eq!(samples(&metrics).join("\n"), expected.trim_start());
    }

    #[test]
    fn a_repeated_request_counts_its_reply_again_and_its_own_contents_only_once() {
        let metrics = metrics();
        metrics.record(&rich());
        metrics.record(&RequestRecord { repeated: true, ..rich() });
        let samples = samples(&metrics);
        for expected in [
            r#"toolrein_requests_total{endpoint="chat_completions",error="",model="gpt-4o",status="200"} 2"#,
            r#"toolrein_tokens_total{model="gpt-4o",type="input"} 6000"#,
            r#"toolrein_tool_calls_total{policy="",tool="search",verdict="allow"} 4"#,
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
    fn plain_counters_begin_at_zero_and_every_metric_says_what_it_is() {
        let text = metrics().render();
        for plain in [
            "client_gone",
            "lost_hidden_exchanges",
            "late_results",
            "implausible_usage",
            "reasks",
            "log_lines_lost",
            "audit_lines_lost",
            "recordings_lost",
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
    fn reloads_begin_at_zero_so_that_the_first_refused_one_is_an_increase() {
        let metrics = metrics();
        for refused in [0, 1] {
            let sample = format!("\ntoolrein_config_reloads_total{{result=\"refused\"}} {refused}\n");
            assert!(metrics.render().contains(&sample), "{sample}");
            metrics.count_reload(false);
        }
        assert!(metrics.render().contains("\ntoolrein_config_reloads_total{result=\"ok\"} 0\n"));
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
                "\ntoolrein_requests_total{{endpoint=\"other\",error=\"\",model=\"none\",status=\"{status}\"}} {count}\n"
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
        assert!(samples.iter().any(|sample| sample == "toolrein_unbilled_tokens_total 1000"));
    }

    #[test]
    fn cached_tokens_are_counted_separately_for_touched_and_held_out_conversations() {
        let metrics = metrics();
        for (touched, held_out, prompt, cached) in
            [(true, false, 100, 90), (false, false, 10, 5), (true, true, 1_000, 0), (true, false, 1, 1)]
        {
            let tokens = Tokens { prompt, cached, ..Tokens::default() };
            let context = Context { touched, held_out };
            metrics.record(&RequestRecord { tokens, context, ..RequestRecord::new(Route::Chat) });
        }
        let text = metrics.render();
        for (family, held_out, touched, count) in [
            ("tokens", "no", "yes", 101),
            ("cached_tokens", "no", "yes", 91),
            ("cached_tokens", "no", "no", 5),
            ("tokens", "yes", "yes", 1_000),
        ] {
            let sample = format!(
                "\ntoolrein_context_{family}_total{{held_out=\"{held_out}\",touched=\"{touched}\"}} {count}\n"
            );
            assert!(text.contains(&sample), "{sample}");
        }
    }

    #[test]
    fn the_semantic_conventions_metrics_are_kept_only_where_they_are_wanted() {
        let metrics = metrics();
        metrics.record(&rich());
        assert!(!metrics.render().contains("gen_ai_client_operation_duration_seconds_count"));
        metrics.configure(OwnSeries::none(), 0, true);
        metrics.record(&rich());
        let text = metrics.render();
        let labels = "gen_ai_operation_name=\"chat\",gen_ai_request_model=\"gpt-4o\"";
        for sample in [
            format!("gen_ai_client_operation_duration_seconds_count{{{labels}}} 1\n"),
            format!("gen_ai_client_token_usage_sum{{{labels},gen_ai_token_type=\"input\"}} 3000\n"),
            format!("gen_ai_client_token_usage_sum{{{labels},gen_ai_token_type=\"output\"}} 70\n"),
        ] {
            assert!(text.contains(&sample), "{sample}");
        }
    }

    #[test]
    fn the_configuration_in_force_is_one_series() {
        let metrics = metrics();
        metrics.configured("aaaa", 1);
        metrics.configured("bbbb", 2);
        let text = metrics.render();
        assert!(
            text.contains("\ntoolrein_config_info{hash=\"bbbb\"} 1\n") && !text.contains("aaaa"),
            "{text}"
        );
        assert!(text.contains("\ntoolrein_config_loaded_timestamp_seconds 2\n"));
    }

    #[test]
    fn the_scarcest_limit_of_each_policy_counts() {
        let metrics = metrics();
        let limit = |policy, used| LimitUse {
            policy: Some(policy),
            tool: "t".to_owned(),
            used,
            limit: 10,
            is_used: true,
            of_caller: false,
        };
        let usage_of_limits = vec![limit("budget", 4), limit("rate_limit", 2), limit("rate_limit", 9)];
        metrics.record(&RequestRecord { usage_of_limits, ..RequestRecord::new(Route::Chat) });
        let text = metrics.render();
        for (policy, sum) in [("budget", "0.4"), ("rate_limit", "0.9")] {
            let sample = format!("\ntoolrein_limit_utilization_sum{{policy=\"{policy}\"}} {sum}\n");
            assert!(text.contains(&sample), "{sample}");
        }
    }

    #[test]
    fn unforeseen_label_values_appear_once_they_occur() {
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
        assert!(text.contains(r#"tool="a\"}_1_#_TYPE_x\\",verdict="allow"} 1"#), "{text}");
    }
}
