//! The recorder: governed requests with their replies and what was done to them, as JSON lines that `replay` and
//! `explain` read. Requests put them into a bounded queue and wait for nothing; a thread of its own redacts, writes,
//! rotates and removes. What cannot be kept is dropped, counted, and named in the log once a minute.

mod contents;
mod copy;
mod credentials;
mod files;
mod history;
mod line;
mod writer;

pub use contents::TraceContents;
pub use copy::ReplyCopy;

use crate::config::Record;
use crate::telemetry::log::Log;
use crate::telemetry::metrics::Metrics;
use bytes::Bytes;
use dialects::AnyDialect;
use engine::treatment::Treatment;
use model::identity::{Domain, HashKey};
use model::record::RequestRecord;
use model::request::Request;
use policies::redact::Redactor;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::Duration;
use wire::body::Span;
use writer::Writer;

/// Requests that wait to be written, at most; and their bytes.
const MOST_QUEUED: usize = 1024;
const MOST_QUEUED_BYTES: usize = 64 << 20;
/// Every ten-thousandth conversation of `record.sample`.
const WHOLE: u32 = 10_000;
/// How long the end waits for what is queued.
const END_WITHIN: Duration = Duration::from_secs(1);

/// A handle on the recorder. Cheap to clone; no call waits for the disk.
#[derive(Clone)]
pub struct Recorder(Option<Arc<Open>>);

struct Open {
    sample: u32,
    key: HashKey,
    queue: SyncSender<Job>,
    /// Bytes in the queue, and in copies of replies that are still coming.
    queued_bytes: Arc<AtomicUsize>,
    copied_bytes: Arc<AtomicUsize>,
    /// Requests dropped since the writer looked.
    dropped: Arc<AtomicU64>,
    closed: AtomicBool,
    metrics: Arc<Metrics>,
}

/// One request, when its reply has ended.
pub struct Taken {
    pub dialect: AnyDialect,
    /// As the client sent it, without its content coding.
    pub body: Bytes,
    pub layout: Layout,
    /// As the client got it, without its content coding; `None`: not known.
    pub reply: Option<ReplyCopy>,
    pub treatment: Treatment,
    /// When it came, in ms since the epoch.
    pub arrived_ms: u64,
}

/// Where the parts of a request's body are.
pub struct Layout {
    /// The list of messages with its brackets.
    pub messages: Span,
    pub tools: Vec<Span>,
}

impl Layout {
    /// The layout of `request`.
    pub fn of(request: &Request) -> Self {
        let tools = request.tools.iter().map(|tool| tool.span).collect();
        Self { messages: request.messages_span, tools }
    }
}

/// What the thread is asked to do.
enum Job {
    Write {
        taken: Box<Taken>,
        record: Box<RequestRecord>,
        bytes: usize,
    },
    /// End, and report that the thread has ended.
    End(SyncSender<()>),
}

impl Recorder {
    /// Records nothing.
    pub fn off() -> Self {
        Self(None)
    }

    /// A recorder into the directory at `path`, by `settings`. Placeholders of redacted values, and which conversations
    /// are recorded, depend on `key`. A directory that cannot be written is reported to `log`, not here.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn open(
        path: &Path,
        settings: &Record,
        key: &HashKey,
        log: Log,
        metrics: Arc<Metrics>,
    ) -> io::Result<Self> {
        let (queue, jobs) = sync_channel(MOST_QUEUED);
        let (queued_bytes, dropped) = (Arc::<AtomicUsize>::default(), Arc::<AtomicU64>::default());
        // The configuration was checked, so there is always one.
        let redactor = Redactor::new(&settings.redact, &settings.patterns)
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let writer = Writer::new(path, settings, (redactor, key.clone()), log, Arc::clone(&metrics));
        let (queued, lost) = (Arc::clone(&queued_bytes), Arc::clone(&dropped));
        thread::Builder::new()
            .name("recorder".to_owned())
            .spawn(move || writer.run(&jobs, &queued, &lost))?;
        let (copied_bytes, closed) = (Arc::default(), AtomicBool::new(false));
        let (sample, key) = (settings.sample, key.clone());
        Ok(Self(Some(Arc::new(Open {
            sample,
            key,
            queue,
            queued_bytes,
            copied_bytes,
            dropped,
            closed,
            metrics,
        }))))
    }

    /// Whether anything is recorded.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// An empty copy of a reply to the request of this `record`; `None` where that is not recorded.
    pub fn copy(&self, record: &RequestRecord) -> Option<ReplyCopy> {
        let open = self.0.as_ref().filter(|open| open.samples(record))?;
        Some(ReplyCopy::new(Arc::clone(&open.copied_bytes)))
    }

    /// Records a request that has ended, if it is among those recorded.
    pub fn push(&self, taken: Taken, record: &RequestRecord) {
        let Some(open) = self.0.as_ref().filter(|open| open.samples(record)) else { return };
        let hidden: usize = taken.treatment.hidden.iter().map(|(_, items)| items.len()).sum();
        let bytes = taken.body.len() + taken.reply.as_ref().map_or(0, ReplyCopy::len) + hidden;
        let waiting = open.queued_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let fits = waiting <= MOST_QUEUED_BYTES && !open.closed.load(Ordering::Relaxed);
        let job = || Job::Write { taken: Box::new(taken), record: Box::new(record.clone()), bytes };
        if fits && open.queue.try_send(job()).is_ok() {
            return;
        }
        open.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
        open.dropped.fetch_add(1, Ordering::Relaxed);
        open.metrics.add_lost_recordings(1);
    }

    /// Writes what is queued and ends; waits a second at most. Call at the program's end, off the runtime.
    pub fn finish(&self) {
        let Some(open) = &self.0 else { return };
        open.closed.store(true, Ordering::Relaxed);
        let (done, ended) = sync_channel(1);
        // If the queue is full, the disk does not answer.
        if open.queue.try_send(Job::End(done)).is_ok() {
            let _ = ended.recv_timeout(END_WITHIN);
        }
    }
}

impl Open {
    /// Whether the conversation is among those recorded: all of its requests are, or none.
    fn samples(&self, record: &RequestRecord) -> bool {
        if self.sample >= WHOLE {
            return true;
        }
        let name = record.conversation.as_ref().unwrap_or(&record.request_id);
        let hash = self.key.hash(Domain::Conversation, &[b"record", name.as_bytes()]);
        hash.0 % u128::from(WHOLE) < u128::from(self.sample)
    }
}
