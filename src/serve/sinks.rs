//! What the program reports to, set up from its configuration: log, metrics, traces, audit log and recorder.

use super::StartError;
use crate::config::{self, Config, LogFormat};
use crate::proxy::collector::CollectorClient;
use crate::proxy::recording::Keepers;
use crate::proxy::upstream::UpstreamSettings;
use crate::recorder::{Recorder, TraceContents};
use crate::store::held::HeldCalls;
use crate::telemetry::Telemetry;
use crate::telemetry::audit::Audit;
use crate::telemetry::live::{Bounds, Live};
use crate::telemetry::log::{Format, Level, Log, Settings};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::spans::{self, Collector, Spans};
use crate::telemetry::tools::OwnSeries;
use model::identity::HashKey;
use policies::pattern::exact_among;
use std::sync::Arc;
use std::time::SystemTime;

/// How lines are written, and from which level on.
pub fn log_settings(log: &config::Log) -> Settings {
    let format = match log.format {
        LogFormat::Auto => Format::Auto,
        LogFormat::Text => Format::Text,
        LogFormat::Json => Format::Json,
    };
    // The log's own lines use the filter's level without a module; modules use theirs.
    let levels = [("debug", Level::Debug), ("trace", Level::Debug), ("warn", Level::Warn)];
    let alone = |directive: &str| {
        let levels = levels.iter().chain(&[("error", Level::Error), ("off", Level::Error)]);
        levels.clone().find(|(name, _)| name.eq_ignore_ascii_case(directive.trim())).map(|(_, level)| *level)
    };
    Settings { format, level: log.level.split(',').find_map(alone).unwrap_or_default() }
}

/// What request records go to; `like`: the settings of connections to the upstream.
pub(super) fn telemetry_of(
    config: &Config,
    metrics: &Arc<Metrics>,
    log: Log,
    like: &UpstreamSettings,
) -> Result<Telemetry, StartError> {
    let spans = spans_of(config, like, metrics, &log)?;
    let live = Arc::new(Live::new(live_bounds(config)));
    Ok(Telemetry::new(Arc::clone(metrics), log, audit_of(config)?, spans, live))
}

/// How much the live view keeps. Contents are for the holder of the token alone.
pub(super) fn live_bounds(config: &Config) -> Bounds {
    let with_decisions = config.admin.has_token();
    let bytes = if with_decisions { config.admin.bodies_bytes } else { 0 };
    Bounds {
        conversations: usize::try_from(config.admin.conversations).unwrap_or(usize::MAX),
        callers: config.telemetry.callers,
        with_decisions,
        body_bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
    }
}

/// The metrics, with the sources of their gauges.
pub(super) fn metrics_of(config: &Config, held: &Arc<HeldCalls>) -> Result<Arc<Metrics>, StartError> {
    let metrics = Arc::new(Metrics::new(OwnSeries::none())?);
    metrics.configure(own_series(config), config.telemetry.callers, config.telemetry.gen_ai);
    metrics.configured(&config.hash, seconds_now());
    let held = Arc::clone(held);
    metrics.count_confirmations_by(move || held.count());
    Ok(metrics)
}

/// The tools with series of their own: those that the settings name, or all.
pub(super) fn own_series(config: &Config) -> OwnSeries {
    let (settings, by_policies) = (config.telemetry.clone(), config.named_tools());
    let by_settings = exact_among(&settings.tools);
    let own = OwnSeries::new(settings.per_tool, move |name| settings.names(name));
    own.with_named(by_policies.iter().chain(&by_settings).map(String::as_str))
}

/// Seconds since the epoch.
pub(super) fn seconds_now() -> i64 {
    seconds(SystemTime::now())
}

/// `time` as seconds since the epoch.
pub(super) fn seconds(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// The traces, where a collector is named.
fn spans_of(
    config: &Config,
    like: &UpstreamSettings,
    metrics: &Metrics,
    log: &Log,
) -> Result<Spans, StartError> {
    let traces = &config.telemetry.traces;
    let Some(address) = traces.address() else { return Ok(Spans::off()) };
    let settings = spans::Settings {
        service_name: traces.service_name.clone(),
        sample: f64::from(traces.sample) / 10_000.0,
        queue: traces.queue,
        timeout: traces.timeout,
        propagate: traces.propagate,
    };
    let endpoint = address.to_string();
    let client = Arc::new(CollectorClient::new(traces, &address, like)?);
    let (counts, log) = (metrics.span_counts(), log.clone());
    Ok(Spans::open(&settings, Collector { client, endpoint, counts, log })?)
}

/// The audit log, where a file is named.
fn audit_of(config: &Config) -> Result<Audit, StartError> {
    let Some(path) = config.audit.path() else { return Ok(Audit::off()) };
    Audit::open(path).map_err(|error| StartError::Audit { path: path.display().to_string(), error })
}

/// The recorder, and the contents of traces where they are allowed.
pub(super) fn keepers_of(
    config: &Config,
    key: &HashKey,
    telemetry: &Telemetry,
) -> Result<Keepers, StartError> {
    let wanted = telemetry.spans.is_on() && config.telemetry.traces.contents;
    let contents = if wanted { TraceContents::new(&config.record, key) } else { None };
    Ok(Keepers { recorder: recorder_of(config, key, telemetry)?, contents })
}

/// The recorder, where a directory is named.
fn recorder_of(config: &Config, key: &HashKey, telemetry: &Telemetry) -> Result<Recorder, StartError> {
    let Some(path) = config.record.path() else { return Ok(Recorder::off()) };
    let (log, metrics) = (telemetry.log.clone(), Arc::clone(&telemetry.metrics));
    Recorder::open(path, &config.record, key, log, metrics).map_err(StartError::Recorder)
}
