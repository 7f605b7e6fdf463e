//! The export of spans to the collector: a bounded queue, whose thread sends batches and retries
//! (`BatchSpanProcessor` and the OTLP exporter). Spans that find the queue full, or that the collector does not take,
//! are dropped and counted, and one log line reports that. Knows nothing of the contents of spans.

use super::Settings;
use crate::telemetry::log::{Level, Log};
use crate::telemetry::metrics::SpanCounts;
use opentelemetry::{KeyValue, Value};
use opentelemetry_http::HttpClient;
use opentelemetry_otlp::{
    ExporterBuildError, SpanExporter as Otlp, WithExportConfig as _, WithHttpConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SpanData, SpanExporter, SpanProcessor as _,
};
use serde_json::json;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// A batch is sent when there are so many spans, or when the oldest has waited so long.
const BATCH: usize = 512;
const DELAY: Duration = Duration::from_secs(1);
/// Texts of this many bytes take as much memory as a span.
const KIB: usize = 1_024;

/// The collector of the traces, with the counters and the log that report how the export goes.
pub struct Collector {
    /// Sends requests. Adds the operator's headers, so that no other code has them.
    pub client: Arc<dyn HttpClient>,
    /// The whole address. It contains no secret.
    pub endpoint: String,
    pub counts: SpanCounts,
    pub log: Log,
}

/// The sending side.
pub(super) struct Sender {
    processor: BatchSpanProcessor,
    /// The most spans, events and KiB of contents that wait.
    queue: usize,
    watch: Arc<Watch>,
}

impl Sender {
    pub(super) fn start(settings: &Settings, collector: Collector) -> Result<Self, ExporterBuildError> {
        let Collector { client, endpoint, counts, log } = collector;
        let mut otlp = Otlp::builder()
            .with_http()
            .with_shared_http_client(client)
            .with_endpoint(&endpoint)
            .with_timeout(settings.timeout)
            .build()?;
        let resource = Resource::builder()
            .with_service_name(settings.service_name.clone())
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .build();
        otlp.set_resource(&resource);
        let (waiting, is_down) = (AtomicUsize::new(0), AtomicBool::new(false));
        let watch = Arc::new(Watch { waiting, is_down, counts, log, endpoint });
        // Sized by `Watch::waiting`, so that the processor, which counts no events, never has to drop a span.
        let config = BatchConfigBuilder::default()
            .with_max_queue_size(settings.queue)
            .with_max_export_batch_size(BATCH.min(settings.queue))
            .with_scheduled_delay(DELAY);
        let exporter = Watched { otlp, watch: Arc::clone(&watch) };
        let processor = BatchSpanProcessor::builder(exporter).with_batch_config(config.build()).build();
        Ok(Self { processor, queue: settings.queue, watch })
    }

    /// Takes the spans of one request, all or none.
    pub(super) fn push(&self, spans: Vec<SpanData>) {
        let weight = weight(&spans);
        if self.watch.waiting.fetch_add(weight, Ordering::Relaxed) + weight > self.queue {
            self.watch.waiting.fetch_sub(weight, Ordering::Relaxed);
            self.watch.counts.lost(spans.len());
            return;
        }
        spans.into_iter().for_each(|span| self.processor.on_end(span));
    }

    /// Sends what waits and ends, `within` this time.
    pub(super) fn finish(&self, within: Duration) {
        let ended = self.processor.shutdown_with_timeout(within);
        let waiting = self.watch.waiting.load(Ordering::Relaxed);
        if ended.is_err() && waiting > 0 {
            let fields = json!({ "collector": self.watch.endpoint, "spans_and_events": waiting });
            self.watch.log.note(Level::Warn, "traces were not sent in time at the end", fields);
        }
    }
}

/// The number of spans, plus what takes as much memory as a span: their events, and each KiB of their longer texts.
fn weight(spans: &[SpanData]) -> usize {
    let of = |span: &SpanData| {
        let of_events = span.events.iter().flat_map(|event| &event.attributes);
        let texts: usize =
            span.attributes.iter().chain(of_events).map(|attribute| length(&attribute.value)).sum();
        1 + span.events.len() + texts / KIB
    };
    spans.iter().map(of).sum()
}

/// The bytes of a text of contents.
fn length(value: &Value) -> usize {
    if let Value::String(text) = value { text.as_str().len() } else { 0 }
}

/// What waits, and whether the collector takes it.
struct Watch {
    waiting: AtomicUsize,
    is_down: AtomicBool,
    counts: SpanCounts,
    log: Log,
    endpoint: String,
}

impl Watch {
    /// A batch of so many spans was sent, or not.
    fn ended(&self, spans: usize, result: &OTelSdkResult) {
        let was_down = self.is_down.swap(result.is_err(), Ordering::Relaxed);
        match result {
            Ok(()) => {
                self.counts.sent(spans);
                if was_down {
                    let fields = json!({ "collector": self.endpoint });
                    self.log.note(Level::Info, "the collector takes traces again", fields);
                }
            }
            Err(error) => {
                self.counts.lost(spans);
                if !was_down {
                    let fields = json!({ "collector": self.endpoint, "problem": error.to_string() });
                    self.log.note(
                        Level::Warn,
                        "traces are lost, since the collector does not take them",
                        fields,
                    );
                }
            }
        }
    }
}

/// The exporter, whose results are counted.
struct Watched {
    otlp: Otlp,
    watch: Arc<Watch>,
}

/// The processor requires it. The exporter's own would show its headers.
impl fmt::Debug for Watched {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Watched").finish_non_exhaustive()
    }
}

impl SpanExporter for Watched {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let (spans, weight) = (batch.len(), weight(&batch));
        let result = self.otlp.export(batch).await;
        // A batch on its way is in memory like those that wait.
        self.watch.waiting.fetch_sub(weight, Ordering::Relaxed);
        self.watch.ended(spans, &result);
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.otlp.shutdown_with_timeout(timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::spans::attributes;
    use crate::telemetry::spans::{Contents, Trace};
    use model::record::{RequestRecord, Route};
    use opentelemetry::InstrumentationScope;
    use opentelemetry::trace::SpanContext;

    #[test]
    fn contents_weigh_as_much_as_the_memory_that_they_take() {
        let mut trace = Trace::new(SpanContext::NONE, SpanContext::NONE, false);
        let record = RequestRecord::new(Route::Chat);
        let of = |trace: &Trace| weight(&attributes::spans(&record, trace, &InstrumentationScope::default()));
        assert_eq!(of(&trace), 1);
        trace.contents =
            Some(Box::new(Contents { input: Some("x".repeat(10 * KIB)), ..Contents::default() }));
        assert_eq!(of(&trace), 1 + 10);
    }
}
