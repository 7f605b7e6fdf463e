//! The thread of the recorder: takes requests from the queue, writes their lines, and reports failures, once a minute at
//! most.

use super::files::{Bounds, Files};
use super::history::Histories;
use super::line::Lines;
use super::{Job, Taken};
use crate::config::Record;
use crate::telemetry::log::{Level, Log};
use crate::telemetry::metrics::Metrics;
use model::identity::HashKey;
use model::record::RequestRecord;
use policies::redact::Redactor;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime};

/// How often old files are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(30);
/// Between two lines of the log about failures.
const REPORT_EVERY: Duration = Duration::from_secs(60);

/// See the file's head.
pub(super) struct Writer {
    files: Files,
    lines: Lines,
    log: Log,
    metrics: Arc<Metrics>,
    swept: Instant,
    reported: Option<Instant>,
    /// Requests lost since the last report.
    lost: u64,
}

impl Writer {
    pub(super) fn new(
        path: &Path,
        settings: &Record,
        redaction: (Redactor, HashKey),
        log: Log,
        metrics: Arc<Metrics>,
    ) -> Self {
        let bounds = Bounds {
            file_bytes: settings.file_bytes,
            total_bytes: settings.total_bytes,
            max_age: Some(settings.max_age).filter(|age| !age.is_zero()),
        };
        let (redactor, key) = redaction;
        Self {
            files: Files::new(path, bounds),
            lines: Lines {
                redactor,
                key,
                bodies: settings.bodies,
                longest: settings.file_bytes,
                histories: Histories::new(),
            },
            log,
            metrics,
            swept: Instant::now(),
            reported: None,
            lost: 0,
        }
    }

    /// Works until the end. `queued`: the bytes in the queue; `dropped`: requests that found no room in it.
    pub(super) fn run(mut self, jobs: &Receiver<Job>, queued: &AtomicUsize, dropped: &AtomicU64) {
        loop {
            match jobs.recv_timeout(SWEEP_EVERY) {
                Ok(Job::Write { taken, record, bytes }) => {
                    self.write(&taken, &record);
                    drop(taken);
                    queued.fetch_sub(bytes, Ordering::Relaxed);
                }
                Ok(Job::End(done)) => {
                    let _ = done.try_send(());
                    return;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let found = dropped.swap(0, Ordering::Relaxed);
            if found > 0 {
                self.fail(found, "requests come faster than they can be written");
            }
            if self.swept.elapsed() >= SWEEP_EVERY {
                self.swept = Instant::now();
                self.files.sweep(SystemTime::now());
            }
        }
    }

    fn write(&mut self, taken: &Taken, record: &RequestRecord) {
        let line = self.lines.line(taken, record);
        if let Err(error) = self.files.append(&line, SystemTime::now()) {
            self.metrics.add_lost_recordings(1);
            self.fail(1, &error.to_string());
        }
    }

    /// Reports that `lost` more requests are not recorded, now or with the next report.
    fn fail(&mut self, lost: u64, error: &str) {
        self.lost += lost;
        if self.reported.is_some_and(|last| last.elapsed() < REPORT_EVERY) {
            return;
        }
        self.reported = Some(Instant::now());
        let lost = std::mem::take(&mut self.lost);
        self.log.note(Level::Error, "requests are not recorded", json!({ "error": error, "lost": lost }));
    }
}
