//! What is seen from outside: each client request is recorded once, as one outcome, and becomes metrics, one
//! log line and, where a policy had a say, one line of the audit record. Is called and calls nobody: it takes plain data, decides nothing, and no request waits for it.

pub mod audit;
mod bounded;
pub mod endpoint;
mod families;
mod gauges;
pub mod ledger;
mod line;
pub mod log;
pub mod metrics;
pub mod outcome;
mod queue;
mod request;
mod tools;
pub mod trace;

#[cfg(test)]
mod cases;

use audit::Audit;
use log::Log;
use metrics::Metrics;
use outcome::Outcome;
use std::sync::Arc;

/// Where outcomes go. Cheap to clone.
#[derive(Clone)]
pub struct Telemetry {
    pub metrics: Arc<Metrics>,
    pub log: Log,
    pub audit: Audit,
}

impl Telemetry {
    /// Records one client request. To be called once for each, when it has ended.
    pub fn record(&self, outcome: &Outcome) {
        self.metrics.record(outcome);
        self.log.request(outcome);
        self.audit.request(outcome);
        self.metrics.add_lost_log_lines(self.log.take_lost());
        self.metrics.add_lost_audit_lines(self.audit.take_lost());
    }

    /// Writes what was logged and recorded so far and ends both; waits a second at most for each. To be called at the
    /// program's end, off the runtime.
    pub fn finish(&self) {
        self.log.finish();
        self.audit.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::log::{Format, Level, Settings};
    use super::outcome::Route;
    use super::*;
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
        let telemetry = Telemetry { metrics: Arc::new(Metrics::new(&[]).unwrap()), log, audit: Audit::off() };
        telemetry.record(&Outcome::new(Route::Relay));
        telemetry.log.finish();
        // The thread has ended, so this one is lost too.
        telemetry.record(&Outcome::new(Route::Relay));
        telemetry.metrics.add_lost_log_lines(telemetry.log.take_lost());
        let text = telemetry.metrics.render();
        assert!(text.contains("\ntoolrein_log_lines_lost_total 2\n"), "{text}");
    }
}
