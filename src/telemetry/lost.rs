//! Counters of what was to be written and was not: lines of the log and of the audit log, and recordings.

use super::families::Maker;
use super::metrics::Metrics;
use prometheus::{Error, IntCounter};

/// See the file's head.
pub(super) struct Lost {
    log_lines: IntCounter,
    audit_lines: IntCounter,
    pub(super) recordings: IntCounter,
}

impl Lost {
    /// All of them at zero.
    pub(super) fn new(make: &Maker<'_>) -> Result<Self, Error> {
        Ok(Self {
            log_lines: make.counter(
                "toolrein_log_lines_lost_total",
                "Log lines that were not written, because they came too fast or writing failed.",
            )?,
            audit_lines: make.counter(
                "toolrein_audit_lines_lost_total",
                "Lines of the audit log that were not written: the disk is full, the file cannot be opened, or \
                 they came too fast.",
            )?,
            recordings: make.counter(
                "toolrein_recordings_lost_total",
                "Requests that were to be recorded and were not: the disk is full, the directory cannot be written, or \
                 they came too fast.",
            )?,
        })
    }
}

impl Metrics {
    pub(super) fn add_lost_log_lines(&self, lost: u64) {
        self.lost.log_lines.inc_by(lost);
    }

    pub(super) fn add_lost_audit_lines(&self, lost: u64) {
        self.lost.audit_lines.inc_by(lost);
    }

    /// Counts requests that were to be recorded and were not.
    pub fn add_lost_recordings(&self, lost: u64) {
        self.lost.recordings.inc_by(lost);
    }
}
