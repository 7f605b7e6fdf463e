//! The thread of the recorder: takes requests from the queue, writes their lines in batches, and reports failures, once a
//! minute at most.

use super::files::{Bounds, Files};
use super::history::Histories;
use super::line::Lines;
use super::{Job, MOST_QUEUED, Taken};
use crate::config::Record;
use crate::telemetry::log::{Level, Log};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::queue::REST;
use model::identity::HashKey;
use model::record::RequestRecord;
use policies::redact::Redactor;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// How often old files are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(30);
/// The size of a write, where lines are shorter.
const BATCH_BYTES: usize = 256 * 1024;
/// Between two lines of the log about failures.
const REPORT_EVERY: Duration = Duration::from_secs(60);

/// See the file's head.
pub(super) struct Writer {
    files: Files,
    lines: Lines,
    /// Lines that are not written yet.
    batch: Vec<u8>,
    /// How many they are.
    batched: u64,
    /// The longest batch of several lines, in bytes.
    longest_batch: usize,
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
            batch: Vec::new(),
            batched: 0,
            longest_batch: usize::try_from(settings.file_bytes).unwrap_or(usize::MAX).min(BATCH_BYTES),
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
            let first = match jobs.recv_timeout(SWEEP_EVERY) {
                Ok(job) => Some(job),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let is_idle = first.is_none();
            let end = self.take(first, jobs, queued);
            self.flush();
            if let Some(done) = end {
                let _ = done.try_send(());
                return;
            }
            let found = dropped.swap(0, Ordering::Relaxed);
            if found > 0 {
                self.fail(found, "requests come faster than they can be written");
            }
            if self.swept.elapsed() >= SWEEP_EVERY {
                self.swept = Instant::now();
                self.files.sweep(SystemTime::now());
            }
            if !is_idle {
                thread::sleep(REST);
            }
        }
    }

    /// Makes the lines of the `first` request and of those that wait after it. Returns the sender that is to report the end,
    /// where a job asks for it.
    fn take(
        &mut self,
        first: Option<Job>,
        jobs: &Receiver<Job>,
        queued: &AtomicUsize,
    ) -> Option<SyncSender<()>> {
        let waiting = std::iter::from_fn(|| jobs.try_recv().ok());
        for job in first.into_iter().chain(waiting).take(MOST_QUEUED) {
            match job {
                Job::Write { taken, record, bytes } => {
                    self.add(&taken, &record);
                    drop(taken);
                    queued.fetch_sub(bytes, Ordering::Relaxed);
                }
                Job::End(done) => return Some(done),
            }
        }
        None
    }

    /// Adds the line of a request to the batch, which is written before it would be too long.
    fn add(&mut self, taken: &Taken, record: &RequestRecord) {
        let line = self.lines.line(taken, record);
        if self.batch.len() + line.len() > self.longest_batch {
            self.flush();
        }
        self.batch.extend_from_slice(&line);
        self.batched += 1;
    }

    /// Writes the batch.
    fn flush(&mut self) {
        let batched = std::mem::take(&mut self.batched);
        if batched == 0 {
            return;
        }
        if let Err(error) = self.files.append(&self.batch, SystemTime::now()) {
            self.metrics.add_lost_recordings(batched);
            self.fail(batched, &error.to_string());
        }
        self.batch.clear();
        // A single long line needs no room any more.
        self.batch.shrink_to(self.longest_batch);
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

#[cfg(test)]
mod tests {
    use super::super::Layout;
    use super::*;
    use crate::telemetry::tools::OwnSeries;
    use dialects::CHAT;
    use engine::treatment::Treatment;
    use std::fs;
    use std::sync::mpsc::sync_channel;

    fn job() -> Job {
        let body = r#"{"model":"gpt-4o","messages":[]}"#;
        let layout = Layout::of(&CHAT.read(body.as_bytes()).unwrap());
        let treatment = Treatment::default();
        let taken = Taken { dialect: CHAT, body: body.into(), layout, reply: None, treatment, arrived_ms: 0 };
        Job::Write { taken: Box::new(taken), record: Box::default(), bytes: 1 }
    }

    /// Writes 50 requests that wait at once, to the directory `dir`; returns how many were lost.
    fn write_50(dir: &Path) -> u64 {
        let settings = Record { bodies: false, file_bytes: 4_000, total_bytes: 1 << 20, ..Record::default() };
        let redactor = Redactor::new(&settings.redact, &settings.patterns).unwrap();
        let metrics = Arc::new(Metrics::new(OwnSeries::none()).unwrap());
        let key = HashKey::fixed(7);
        let writer = Writer::new(dir, &settings, (redactor, key), Log::silent(), Arc::clone(&metrics));
        let (queue, jobs) = sync_channel(51);
        (0..50).for_each(|_| queue.send(job()).unwrap());
        let (done, ended) = sync_channel(1);
        queue.send(Job::End(done)).unwrap();
        let queued = AtomicUsize::new(50);
        writer.run(&jobs, &queued, &AtomicU64::default());
        ended.try_recv().unwrap();
        assert_eq!(queued.into_inner(), 0);
        let text = metrics.render();
        let lost = text.lines().find_map(|line| line.strip_prefix("toolrein_recordings_lost_total "));
        lost.unwrap().parse().unwrap()
    }

    #[test]
    fn requests_that_are_written_together_are_all_there_and_keep_to_the_size_of_a_file() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(write_50(dir.path()), 0);
        let paths = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
        let files: Vec<String> = paths.map(|path| fs::read_to_string(path).unwrap()).collect();
        assert!(files.len() > 1 && files.iter().all(|file| file.len() <= 4_000 && file.ends_with('\n')));
        assert_eq!(files.iter().map(|file| file.lines().count()).sum::<usize>(), 50);
    }

    #[test]
    fn each_request_of_a_batch_that_cannot_be_written_is_counted_as_lost() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(write_50(&file.path().join("below")), 50);
    }
}
