//! Traces by OpenTelemetry: one span for each governed request, with a child for each step that was taken for it, sent
//! to a collector by OTLP over HTTP. Off unless there is a collector. Samples and bounds; no request waits for it.

mod attributes;
mod contents;
mod export;
mod step;

pub use self::contents::{CallContents, Contents, ResultContents};
pub use self::export::Collector;
pub use self::step::{Child, Step, StepKind, Trace};

use self::export::Sender;
use model::record::RequestRecord;
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::{SpanContext, SpanKind, TraceContextExt as _, TraceFlags};
use opentelemetry::{Context, InstrumentationScope};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{
    IdGenerator as _, RandomIdGenerator, Sampler, SamplingDecision, ShouldSample as _,
};
use std::sync::Arc;
use std::time::Duration;

pub use opentelemetry_otlp::ExporterBuildError as SetupError;

/// The longest `tracestate` that is read, in bytes: by the W3C's text, as much as has to be passed on.
const MAX_STATE_BYTES: usize = 512;
/// How long the spans that wait may take to be sent at the program's end.
const FLUSH_WITHIN: Duration = Duration::from_secs(5);

/// `[telemetry.traces]`, where a collector is named.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The name under which the collector shows this program.
    pub service_name: String,
    /// The share of traces that are kept, from 0 to 1, where the caller has not decided.
    pub sample: f64,
    /// The most spans, events and KiB of contents that wait to be sent.
    pub queue: usize,
    /// The time limit for a batch, with its retries.
    pub timeout: Duration,
    /// Whether requests to the upstream carry the span's own `traceparent` instead of the caller's.
    pub propagate: bool,
}

/// A handle on the traces. Cheap to clone; no call waits for the collector.
#[derive(Clone)]
pub struct Spans(Option<Arc<Open>>);

struct Open {
    sampler: Sampler,
    ids: RandomIdGenerator,
    scope: InstrumentationScope,
    sender: Sender,
    propagate: bool,
}

impl Spans {
    /// No traces.
    pub fn off() -> Self {
        Self(None)
    }

    /// Traces that go to `collector`. Starts the thread that sends them.
    ///
    /// # Errors
    /// A variable of OpenTelemetry's in the environment (`OTEL_EXPORTER_OTLP_...`) has a value that cannot be used.
    pub fn open(settings: &Settings, collector: Collector) -> Result<Self, SetupError> {
        let by_share = Sampler::TraceIdRatioBased(settings.sample);
        let scope = InstrumentationScope::builder("toolrein").with_version(env!("CARGO_PKG_VERSION"));
        Ok(Self(Some(Arc::new(Open {
            sampler: Sampler::ParentBased(Box::new(by_share)),
            ids: RandomIdGenerator::default(),
            scope: scope.build(),
            sender: Sender::start(settings, collector)?,
            propagate: settings.propagate,
        }))))
    }

    /// Whether there is a collector.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// The trace of a request with these headers of its caller; `None` where it is not kept.
    pub fn begin(&self, traceparent: Option<&str>, tracestate: Option<&str>) -> Option<Box<Trace>> {
        let open = self.0.as_deref()?;
        let caller = TraceContextPropagator::new()
            .extract_with_context(&Context::new(), &Caller { traceparent, tracestate });
        let parent = caller.span().span_context().clone();
        let id = if parent.is_valid() { parent.trace_id() } else { open.ids.new_trace_id() };
        let sampled = open.sampler.should_sample(Some(&caller), id, "", &SpanKind::Server, &[], &[]);
        if sampled.decision != SamplingDecision::RecordAndSample {
            return None;
        }
        let own = open.ids.new_span_id();
        let context = SpanContext::new(id, own, TraceFlags::SAMPLED, false, sampled.trace_state);
        Some(Box::new(Trace::new(parent, context, open.propagate)))
    }

    /// Sends the spans of a request that has ended.
    pub(super) fn record(&self, record: &RequestRecord, trace: &Trace) {
        if let Some(open) = self.0.as_deref() {
            open.sender.push(attributes::spans(record, trace, &open.scope));
        }
    }

    /// Sends the span of a step that has ended apart from its request.
    pub fn record_child(&self, child: &Child) {
        if let Some(open) = self.0.as_deref() {
            open.sender.push(vec![attributes::child(child, &open.scope)]);
        }
    }

    /// Sends what waits and ends; waits [`FLUSH_WITHIN`] at most. Call at the program's end, off the runtime.
    pub(super) fn finish(&self) {
        if let Some(open) = self.0.as_deref() {
            open.sender.finish(FLUSH_WITHIN);
        }
    }
}

/// The headers by which a caller hands on its trace.
struct Caller<'a> {
    traceparent: Option<&'a str>,
    tracestate: Option<&'a str>,
}

impl Extractor for Caller<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        match key {
            "traceparent" => self.traceparent,
            "tracestate" => self.tracestate.filter(|state| state.len() <= MAX_STATE_BYTES),
            _ => None,
        }
    }

    fn keys(&self) -> Vec<&str> {
        vec!["traceparent", "tracestate"]
    }
}
