//! A bounded queue of lines in front of one thread that writes them (`tracing-appender`). Nobody who hands in a line
//! waits for the disk or the terminal: a line that finds the queue full, or that cannot be written, is lost and counted.
//! Knows nothing of what the lines say.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};

/// Lines that may wait to be written. A line has about 1 KB; a hundred times as many come in 10 ms at full load.
const MAX_LINES: usize = 8 * 1024;
/// So much is written at once.
const BATCH_BYTES: usize = 64 * 1024;
/// The writer rests this long after each write, so that under load lines go out by the hundred, and senders need no
/// system call to wake it for every one of them.
const REST: Duration = Duration::from_millis(10);

/// The sending side.
pub(super) struct Queue {
    writer: NonBlocking,
    /// Lines that found the queue full.
    dropped: ErrorCounter,
    /// Lines that could not be written, or came too late.
    failed: Arc<AtomicU64>,
    closed: AtomicBool,
    /// Lost lines that [`Self::take_lost`] has returned so far.
    taken: AtomicU64,
    /// Writes what waits when it is dropped. A std mutex: held for a swap.
    guard: Mutex<Option<WorkerGuard>>,
}

impl Queue {
    /// A queue whose lines go to `sink`, written by a thread of this `name`.
    pub(super) fn new(name: &str, sink: impl Write + Send + 'static) -> Self {
        let failed = Arc::<AtomicU64>::default();
        let batches = Batches { sink, waiting: Vec::new(), lines: 0, failed: Arc::clone(&failed) };
        let builder = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(MAX_LINES);
        let (writer, guard) = builder.thread_name(name).finish(batches);
        let dropped = writer.error_counter();
        let (closed, taken, guard) = (AtomicBool::new(false), AtomicU64::new(0), Mutex::new(Some(guard)));
        Self { writer, dropped, failed, closed, taken, guard }
    }

    /// Takes one line, its end included.
    pub(super) fn push(&self, line: &[u8]) {
        if self.closed.load(Ordering::Relaxed) {
            self.failed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        // It fails only where it waits for room, which this one does not.
        let _ = self.writer.clone().write_all(line);
    }

    /// Writes what waits and ends the thread; waits a second at most. Lines that come later are lost.
    pub(super) fn finish(&self) {
        self.closed.store(true, Ordering::Relaxed);
        drop(self.guard.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Lines lost since this was last asked.
    pub(super) fn take_lost(&self) -> u64 {
        let lost = self.dropped.dropped_lines() as u64 + self.failed.load(Ordering::Relaxed);
        lost.saturating_sub(self.taken.fetch_max(lost, Ordering::Relaxed))
    }
}

/// Writes lines by the batch, and counts those of a batch that could not be written. Never fails, since the thread
/// would drop the error.
struct Batches<W> {
    sink: W,
    waiting: Vec<u8>,
    lines: u64,
    failed: Arc<AtomicU64>,
}

impl<W: Write> Write for Batches<W> {
    /// Takes one line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.waiting.extend_from_slice(line);
        self.lines += 1;
        if self.waiting.len() >= BATCH_BYTES {
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
        if self.lines > 0 && self.sink.write_all(&self.waiting).and_then(|()| self.sink.flush()).is_err() {
            self.failed.fetch_add(self.lines, Ordering::Relaxed);
        }
        self.lines = 0;
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    const SOON: Duration = Duration::from_secs(20);

    /// Hands over what is written; each write waits until somebody takes it.
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
        let (queue, written) = gated();
        // The writer takes at most one batch, of 16 lines, out of the queue and hangs on it.
        let line = b"x".repeat(BATCH_BYTES / 16);
        (0..MAX_LINES + 20).for_each(|_| queue.push(&line));
        let lost = queue.take_lost();
        assert!((4..=20).contains(&lost), "{lost}");
        assert_eq!(queue.take_lost(), 0);
        drop(written);
        queue.finish();
        let all = MAX_LINES as u64 + 20;
        assert_eq!(lost + queue.take_lost(), all, "what could not be written is counted too");
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
