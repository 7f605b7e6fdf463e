//! Counters of what was to be written and was not: lines of the log and of the audit log, and recordings.

use super::families::Maker;
use super::gauges::PolledCounter;
use super::metrics::Metrics;
use prometheus::{Error, IntCounter};

/// See the file's head.
pub(super) struct Lost {
    log_lines: PolledCounter,
    audit_lines: PolledCounter,
    pub(super) recordings: IntCounter,
}

impl Lost {
    /// All of them at zero.
    pub(super) fn new(make: &Maker<'_>) -> Result<Self, Error> {
        Ok(Self {
            log_lines: PolledCounter::of(make.counter(
                "toolrein_log_lines_lost_total",
                "Log lines that were not written, because they came too fast or writing failed.",
            )?),
            audit_lines: PolledCounter::of(make.counter(
                "toolrein_audit_lines_lost_total",
                "Lines of the audit log that were not written: the disk is full, the file cannot be opened, or \
                 they came too fast.",
            )?),
            recordings: make.counter(
                "toolrein_recordings_lost_total",
                "Requests that were to be recorded and were not: the disk is full, the directory cannot be written, or \
                 they came too fast.",
            )?,
        })
    }

    /// Reads the sources.
    pub(super) fn poll(&self) {
        self.log_lines.poll();
        self.audit_lines.poll();
    }
}

impl Metrics {
    /// Sets the sources of the numbers of lines of the log and of the audit log that were lost since they were asked
    /// last. Asked at every rendering, since lines are lost after their requests have ended. The first sources stay.
    pub(super) fn count_lost_lines_by(
        &self,
        log: impl Fn() -> u64 + Send + Sync + 'static,
        audit: impl Fn() -> u64 + Send + Sync + 'static,
    ) {
        self.lost.log_lines.set_source(log);
        self.lost.audit_lines.set_source(audit);
    }

    /// Counts requests that were to be recorded and were not.
    pub fn add_lost_recordings(&self, lost: u64) {
        self.lost.recordings.inc_by(lost);
    }
}
