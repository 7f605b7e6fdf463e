//! Telemetry: each client request is recorded once, as one request record, which becomes metrics, one log line and,
//! where a policy acted, one line of the audit log; and a trace, where there is a collector. It calls no other module: it takes plain data of the model, decides nothing,
//! and no request waits for it.

mod approvers;
pub mod audit;
mod billed;
mod bounded;
pub mod callers;
mod families;
mod gauges;
mod gen_ai;
mod json_object;
mod line;
pub mod live;
pub mod log;
mod lost;
pub mod metrics;
mod models;
pub(crate) mod private_file;
pub(crate) mod projection;
pub(crate) mod queue;
pub mod refusals;
mod request;
pub mod short_line;
mod span_counts;
pub mod spans;
pub mod store;
pub mod tls;
pub mod tools;
pub mod trace;

#[cfg(test)]
pub(crate) mod cases;
#[cfg(test)]
mod outputs;

use audit::Audit;
use live::Live;
use log::Log;
use metrics::Metrics;
use model::record::RequestRecord;
use spans::{Spans, Trace};
use std::sync::Arc;

/// The sinks of request records. Cheap to clone.
#[derive(Clone)]
pub struct Telemetry {
    pub metrics: Arc<Metrics>,
    pub log: Log,
    pub audit: Audit,
    pub spans: Spans,
    pub live: Arc<Live>,
}

impl Telemetry {
    /// These sinks. The metrics count the lines that the others lose.
    pub fn new(metrics: Arc<Metrics>, log: Log, audit: Audit, spans: Spans, live: Arc<Live>) -> Self {
        let (of_log, of_audit) = (log.clone(), audit.clone());
        metrics.count_lost_lines_by(move || of_log.take_lost(), move || of_audit.take_lost());
        Self { metrics, log, audit, spans, live }
    }

    /// Records one client request, with its trace where one is kept. Call once for each request, when it has ended.
    pub fn record(&self, record: &RequestRecord, trace: Option<&Trace>) {
        self.metrics.record(record);
        self.log.request(record);
        self.audit.request(record);
        if let Some(trace) = trace {
            self.spans.record(record, trace);
        }
        self.live.record(record);
    }

    /// Sends the last traces, for some seconds at most, then flushes and ends the log and the audit log, for a second at
    /// most each. Call at the program's end, off the runtime, which has to run.
    pub fn finish(&self) {
        self.spans.finish();
        self.log.finish();
        self.audit.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::live::Bounds;
    use super::log::{Format, Level, Settings};
    use super::tools::OwnSeries;
    use super::*;
    use model::record::Route;
    use std::io::{self, Write};

    struct Broken;

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::Error::other("gone"))
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn log_lines_that_cannot_be_written_are_counted_and_stop_nothing() {
        let log = Log::open(Settings { format: Format::Json, level: Level::Info }, Broken);
        let metrics = Arc::new(Metrics::new(OwnSeries::none()).unwrap());
        let live =
            Arc::new(Live::new(Bounds { conversations: 1, callers: 0, with_decisions: true, body_bytes: 0 }));
        let telemetry = Telemetry::new(metrics, log, Audit::off(), Spans::off(), live);
        telemetry.record(&RequestRecord::new(Route::Relay), None);
        telemetry.log.finish();
        // The thread has ended, so this one is lost too.
        telemetry.record(&RequestRecord::new(Route::Relay), None);
        let text = telemetry.metrics.render();
        assert!(text.contains("\ntoolrein_log_lines_lost_total 2\n"), "{text}");
    }
}
