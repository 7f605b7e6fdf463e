//! A bounded queue of lines in front of one thread that writes them. Takes a line without ever waiting for
//! the disk or the terminal; a line that finds the queue full is lost and counted. Knows nothing of what the
//! lines say.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Bytes that may wait to be written: some ten thousand lines, a second or more of full load.
const MAX_WAITING_BYTES: usize = 4 * 1024 * 1024;
/// The buffers keep this much between bursts.
const KEPT_BYTES: usize = 64 * 1024;
/// The writer rests this long after each write, so that under load lines go out by the hundred, and senders
/// need no system call to wake it for every one of them.
const REST: Duration = Duration::from_millis(10);

/// The sending side. When it is dropped the thread writes what waits, and ends.
pub(super) struct Queue(Arc<Shared>);

struct Shared {
    /// A std mutex: held for a copy of one line or a swap, never across a write or an await.
    state: Mutex<State>,
    filled: Condvar,
    settled: Condvar,
    lost: AtomicU64,
}

#[derive(Default)]
struct State {
    waiting: Vec<u8>,
    /// Lines taken so far, and lines of them that are written or given up.
    taken: u64,
    settled: u64,
    writer_sleeps: bool,
    closed: bool,
}

impl Queue {
    /// A queue whose lines go to `sink`, written by a thread of this `name`.
    pub(super) fn new(name: &str, sink: impl Write + Send + 'static) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            filled: Condvar::new(),
            settled: Condvar::new(),
            lost: AtomicU64::new(0),
        });
        let writer = Arc::clone(&shared);
        let started = thread::Builder::new().name(name.to_owned()).spawn(move || writer.write_all_to(sink));
        if started.is_err() {
            // Nobody will write: every line counts as lost.
            shared.lock().closed = true;
        }
        Self(shared)
    }

    /// Takes one line, its end included.
    pub(super) fn push(&self, line: &[u8]) {
        let mut state = self.0.lock();
        if state.closed || state.waiting.len() + line.len() > MAX_WAITING_BYTES {
            drop(state);
            self.0.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        state.waiting.extend_from_slice(line);
        state.taken += 1;
        let wake = std::mem::take(&mut state.writer_sleeps);
        drop(state);
        if wake {
            self.0.filled.notify_one();
        }
    }

    /// Waits until every line taken so far is settled, at most `within`; whether it came to that.
    pub(super) fn finish(&self, within: Duration) -> bool {
        let state = self.0.lock();
        let target = state.taken;
        let waited = self.0.settled.wait_timeout_while(state, within, |state| state.settled < target);
        let (_state, time) = waited.unwrap_or_else(PoisonError::into_inner);
        !time.timed_out()
    }

    /// Lines lost since this was last asked.
    pub(super) fn take_lost(&self) -> u64 {
        // Read first: a load costs nothing, and there is next to never anything to take.
        match self.0.lost.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.0.lost.swap(0, Ordering::Relaxed),
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.filled.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread's whole life.
    fn write_all_to(&self, mut sink: impl Write) {
        let mut batch = Vec::new();
        while let Some(upto) = self.next_batch(&mut batch) {
            let written = sink.write_all(&batch).and_then(|()| sink.flush());
            let mut state = self.lock();
            if written.is_err() {
                self.lost.fetch_add(upto - state.settled, Ordering::Relaxed);
            }
            state.settled = upto;
            drop(state);
            self.settled.notify_all();
            batch.clear();
            batch.shrink_to(KEPT_BYTES);
            thread::sleep(REST);
        }
    }

    /// Swaps what waits into `batch`, sleeping until there is something; the number of the last line in it.
    /// `None` when the queue is closed and empty.
    fn next_batch(&self, batch: &mut Vec<u8>) -> Option<u64> {
        let mut state = self.lock();
        while state.waiting.is_empty() {
            if state.closed {
                return None;
            }
            state.writer_sleeps = true;
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::swap(&mut state.waiting, batch);
        Some(state.taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
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
        assert!(queue.finish(SOON));
        assert_eq!(queue.take_lost(), 0);
    }

    #[test]
    fn a_writer_that_hangs_blocks_nobody_and_what_does_not_fit_is_counted() {
        let (queue, written) = gated();
        let line = vec![b'x'; MAX_WAITING_BYTES / 4];
        // The writer takes one batch and hangs on it; then four more lines fit, however the first went out.
        for _ in 0..20 {
            queue.push(&line);
        }
        assert!(!queue.finish(Duration::ZERO));
        let lost = queue.take_lost();
        assert!((12..=16).contains(&lost), "{lost}");
        assert_eq!(queue.take_lost(), 0);
        let mut bytes = 0;
        while bytes < (20 - lost as usize) * line.len() {
            bytes += written.recv_timeout(SOON).unwrap().len();
        }
        assert!(queue.finish(SOON));
    }

    #[test]
    fn what_waits_is_written_when_the_queue_is_dropped_and_the_thread_ends() {
        let (queue, written) = gated();
        queue.push(b"last words\n");
        drop(queue);
        assert_eq!(written.recv_timeout(SOON).unwrap(), b"last words\n");
        assert!(written.recv_timeout(SOON).is_err(), "the thread has dropped its end");
    }

    #[test]
    fn lines_are_lost_and_settled_where_the_writer_fails() {
        let (queue, written) = gated();
        drop(written);
        queue.push(b"one\n");
        assert!(queue.finish(SOON));
        assert_eq!(queue.take_lost(), 1);
    }
}
