//! A bounded queue of lines with one writer thread (`tracing-appender`). No caller waits for the disk or the terminal:
//! a line that finds the queue full, or that cannot be written whole, is dropped and counted. Knows nothing of the lines'
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
/// A writer of lines sleeps this long after each write, so that under load lines are written by the hundred, and senders
/// need no system call to wake it for every one.
pub(crate) const REST: Duration = Duration::from_millis(10);

/// Where lines are written.
pub(super) trait LineSink: Send + 'static {
    /// Writes `lines` as far as that is possible, and returns how many bytes of them were written.
    fn write_lines(&mut self, lines: &[u8]) -> usize;
}

impl<W: Write + Send + 'static> LineSink for W {
    fn write_lines(&mut self, lines: &[u8]) -> usize {
        let written = write_all_of(self, lines);
        // Lines in a buffer that cannot be flushed are lost, wherever it ends.
        if self.flush().is_ok() { written } else { 0 }
    }
}

/// Writes `bytes` until they are all written or writing fails; returns how many were.
pub(super) fn write_all_of(sink: &mut impl Write, bytes: &[u8]) -> usize {
    let mut written = 0;
    while written < bytes.len() {
        match sink.write(&bytes[written..]) {
            Ok(0) => break,
            Ok(more) => written += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    written
}

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
    pub(super) fn new(name: &str, sink: impl LineSink) -> Self {
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

impl<W: LineSink> Write for Batches<W> {
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

impl<W: LineSink> Batches<W> {
    fn settle(&mut self) {
        if self.lines > 0 {
            let written = self.sink.write_lines(&self.batch).min(self.batch.len());
            if written < self.batch.len() {
                let whole = self.batch[..written].iter().filter(|byte| **byte == b'\n').count() as u64;
                self.failed.fetch_add(self.lines.saturating_sub(whole), Ordering::Relaxed);
            }
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

    /// Has room for so many bytes.
    struct Full(usize);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let fit = bytes.len().min(self.0);
            self.0 -= fit;
            if fit == 0 { Err(io::Error::from(io::ErrorKind::StorageFull)) } else { Ok(fit) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn of_a_batch_that_fits_in_part_only_the_lines_that_are_not_whole_are_lost() {
        for (room, lost) in [(0, 10), (1, 10), (5, 9), (7, 9), (49, 1), (50, 0)] {
            let queue = Queue::new("log", Full(room));
            (0..10).for_each(|_| queue.push(b"line\n"));
            queue.finish();
            assert_eq!(queue.take_lost(), lost, "{room} bytes of room");
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
