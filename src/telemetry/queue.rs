//! A bounded queue of lines with one writer thread (`tracing-appender`). No caller waits for the disk or the terminal:
//! a line that finds the queue full, or that cannot be written, is dropped and counted. Knows nothing of the lines'
//! content.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};

/// The most bytes in the queue: some thousand lines, which is a tenth of a second at full load.
const MAX_BYTES: usize = 4 * 1024 * 1024;
/// A shorter line counts as this many bytes, so that the number of lines is bounded too.
const LEAST_BYTES: usize = 512;
const MAX_LINES: usize = MAX_BYTES / LEAST_BYTES;
/// The size of a write.
const BATCH_BYTES: usize = 64 * 1024;
/// The writer sleeps this long after each write, so that under load lines are written by the hundred, and senders need
/// no system call to wake it for every one.
const REST: Duration = Duration::from_millis(10);

/// The sending side.
pub(super) struct Queue {
    writer: NonBlocking,
    /// Lines for which the queue of tracing-appender had no room.
    dropped: ErrorCounter,
    /// Bytes that wait, by [`weight`].
    waiting: Arc<AtomicUsize>,
    /// Lines that could not be written, came too late, or were too many bytes.
    failed: Arc<AtomicU64>,
    closed: AtomicBool,
    /// Lost lines that [`Self::take_lost`] has returned so far.
    taken: AtomicU64,
    /// Flushes the queue when it is dropped. A std mutex: held for a swap.
    guard: Mutex<Option<WorkerGuard>>,
}

impl Queue {
    /// A queue whose lines go to `sink`, written by a thread of this `name`.
    pub(super) fn new(name: &str, sink: impl Write + Send + 'static) -> Self {
        let (failed, waiting) = (Arc::<AtomicU64>::default(), Arc::<AtomicUsize>::default());
        let (failures, queued) = (Arc::clone(&failed), Arc::clone(&waiting));
        let batches = Batches { sink, batch: Vec::new(), lines: 0, queued, failed: failures };
        let builder = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(MAX_LINES);
        let (writer, guard) = builder.thread_name(name).finish(batches);
        let dropped = writer.error_counter();
        let (closed, taken, guard) = (AtomicBool::new(false), AtomicU64::new(0), Mutex::new(Some(guard)));
        Self { writer, dropped, waiting, failed, closed, taken, guard }
    }

    /// Takes one line, its end included.
    pub(super) fn push(&self, line: &[u8]) {
        let weight = weight(line);
        let is_full = self.waiting.fetch_add(weight, Ordering::Relaxed) + weight > MAX_BYTES;
        if is_full || self.closed.load(Ordering::Relaxed) {
            self.waiting.fetch_sub(weight, Ordering::Relaxed);
            self.failed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        // Writing fails only where it would wait for room, which this writer never does.
        let _ = self.writer.clone().write_all(line);
    }

    /// Flushes the queue and ends the thread; waits a second at most. Later lines are dropped.
    pub(super) fn finish(&self) {
        self.closed.store(true, Ordering::Relaxed);
        drop(self.guard.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Lines lost since the last call.
    pub(super) fn take_lost(&self) -> u64 {
        let lost = self.dropped.dropped_lines() as u64 + self.failed.load(Ordering::Relaxed);
        lost.saturating_sub(self.taken.fetch_max(lost, Ordering::Relaxed))
    }
}

/// Writes lines in batches, and counts the lines of a batch that could not be written. Never fails, since the thread
/// would drop the error.
struct Batches<W> {
    sink: W,
    batch: Vec<u8>,
    lines: u64,
    /// The bytes in the queue.
    queued: Arc<AtomicUsize>,
    failed: Arc<AtomicU64>,
}

fn weight(line: &[u8]) -> usize {
    line.len().max(LEAST_BYTES)
}

impl<W: Write> Write for Batches<W> {
    /// Takes one line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.queued.fetch_sub(weight(line), Ordering::Relaxed);
        self.batch.extend_from_slice(line);
        self.lines += 1;
        if self.batch.len() >= BATCH_BYTES {
            self.settle();
        }
        Ok(line.len())
    }

    /// Called whenever the queue is empty.
    fn flush(&mut self) -> io::Result<()> {
        self.settle();
        thread::sleep(REST);
        Ok(())
    }
}

impl<W: Write> Batches<W> {
    fn settle(&mut self) {
        if self.lines > 0 && self.sink.write_all(&self.batch).and_then(|()| self.sink.flush()).is_err() {
            self.failed.fetch_add(self.lines, Ordering::Relaxed);
        }
        self.lines = 0;
        self.batch.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    const SOON: Duration = Duration::from_secs(20);

    /// Hands over what is written; each write blocks until it is received.
    struct Gate(SyncSender<Vec<u8>>);

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(bytes.to_vec()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn gated() -> (Queue, Receiver<Vec<u8>>) {
        let (sender, receiver) = sync_channel(0);
        (Queue::new("log", Gate(sender)), receiver)
    }

    #[test]
    fn lines_come_out_whole_and_in_order() {
        let (queue, written) = gated();
        let expected: String = (0..1_000).map(|n| format!("line {n}\n")).collect();
        for line in expected.split_inclusive('\n') {
            queue.push(line.as_bytes());
        }
        let mut text = Vec::new();
        while text.len() < expected.len() {
            text.extend(written.recv_timeout(SOON).unwrap());
        }
        assert_eq!(String::from_utf8(text).unwrap(), expected);
        assert_eq!(queue.take_lost(), 0);
    }

    #[test]
    fn a_writer_that_hangs_blocks_nobody_and_what_does_not_fit_is_counted() {
        for (length, fit) in [(64, MAX_LINES as u64), (BATCH_BYTES, (MAX_BYTES / BATCH_BYTES) as u64)] {
            let (queue, written) = gated();
            let line = b"x".repeat(length);
            // The writer takes at most one batch out of the queue and blocks on it.
            let batch = (BATCH_BYTES / length) as u64;
            let all = fit + batch + 20;
            (0..all).for_each(|_| queue.push(&line));
            let lost = queue.take_lost();
            assert!((20..=20 + batch).contains(&lost), "{lost}");
            assert_eq!(queue.take_lost(), 0);
            drop(written);
            queue.finish();
            assert_eq!(lost + queue.take_lost(), all, "what could not be written is counted too");
        }
    }

    #[test]
    fn what_waits_is_written_at_the_end_and_what_comes_later_is_lost() {
        let (queue, written) = gated();
        queue.push(b"last words\n");
        let reader = thread::spawn(move || written.recv_timeout(SOON).unwrap());
        queue.finish();
        assert_eq!(reader.join().unwrap(), b"last words\n");
        queue.push(b"too late\n");
        assert_eq!(queue.take_lost(), 1);
    }
}
