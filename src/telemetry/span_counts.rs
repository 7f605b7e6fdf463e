//! Metrics of traces: spans that the collector took, and those that are lost. They exist only where there is a
//! collector.

use super::families::Maker;
use prometheus::{Error, IntCounterVec};

/// The outcome of a span, in the order of use.
const RESULTS: [&str; 2] = ["sent", "lost"];

/// Counters of spans. Cheap to clone.
#[derive(Clone)]
pub struct SpanCounts(IntCounterVec);

impl SpanCounts {
    pub(super) fn new(make: &Maker<'_>) -> Result<Self, Error> {
        let family = make.counters(
            "toolrein_trace_spans_total",
            "Spans of traces by what became of them: sent (the collector took them), lost (it did not, or the queue \
             was full).",
            &["result"],
        )?;
        Ok(Self(family))
    }

    /// From now on they exist, at 0.
    pub(super) fn begin(&self) {
        RESULTS.iter().for_each(|result| self.count(result, 0));
    }

    /// The collector took so many.
    pub(super) fn sent(&self, spans: usize) {
        self.count(RESULTS[0], spans);
    }

    /// So many are lost.
    pub(super) fn lost(&self, spans: usize) {
        self.count(RESULTS[1], spans);
    }

    fn count(&self, result: &str, spans: usize) {
        self.0.with_label_values(&[result]).inc_by(spans as u64);
    }
}
