//! A pool of worker threads: one reads lines, some replay them, and the caller's own receives the results in the order
//! of the lines. The queues are bounded, so that a file of any size takes the memory of a few lines.

use super::exchange_lines::ExchangeLines;
use super::growth::Growth;
use super::input::{Flaw, InputPosition, Line, read_files};
use super::replayer::Replayer;
use super::tally::Conversation;
use super::{Enforced, Options};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// The result of a line.
#[derive(Debug)]
pub(super) enum Replayed {
    Conversation(Box<Conversation>),
    Broken(InputPosition, Flaw),
    /// A later line continues this one, which is therefore not replayed on its own.
    Continued,
}

/// The pool.
pub(super) struct Workers<'a> {
    replayer: Replayer,
    files: &'a [PathBuf],
    longest: u64,
    threads: usize,
    /// Of all files, so far.
    bytes_read: AtomicU64,
}

/// A value with its number in the order of the lines.
type Numbered<T> = (u64, T);

impl<'a> Workers<'a> {
    /// A pool for `files`.
    pub(super) fn new(config: &Enforced, files: &'a [PathBuf], options: &Options) -> Self {
        let cores = || thread::available_parallelism().map_or(1, usize::from);
        Self {
            replayer: Replayer::new(config, options),
            files,
            longest: config.limits.request_bytes,
            threads: if options.threads == 0 { cores() } else { options.threads },
            bytes_read: AtomicU64::new(0),
        }
    }

    /// Replays every line and passes the results to `take` in the order of the lines, each with the bytes read so far.
    ///
    /// # Errors
    /// Those of `take`, which end the replay.
    pub(super) fn replay(&self, mut take: impl FnMut(Replayed, u64) -> io::Result<()>) -> io::Result<()> {
        let (lines_in, lines_out) = sync_channel(self.threads * 2);
        let (done_in, done_out) = sync_channel(self.threads * 2);
        thread::scope(|scope| {
            // Each thread owns its ends of the channels: when one side ends, the others notice and end too.
            let lines_out = Arc::new(Mutex::new(lines_out));
            scope.spawn(move || self.read(&lines_in));
            for _ in 0..self.threads {
                let (lines, done) = (Arc::clone(&lines_out), done_in.clone());
                scope.spawn(move || self.work(&lines, &done));
            }
            drop((lines_out, done_in));
            let in_order = InOrder { waiting: BTreeMap::new(), next: 0, done: done_out };
            in_order.into_iter().try_for_each(|result| take(result, self.bytes_read.load(Ordering::Relaxed)))
        })
    }

    /// Reads lines until there are no more or the receivers are gone.
    fn read(&self, lines: &SyncSender<Numbered<Option<Line>>>) {
        let (mut growth, mut exchanges, mut number) = (Growth::default(), ExchangeLines::default(), 0);
        let mut send = |line| {
            number += 1;
            lines.send((number - 1, line)).is_ok()
        };
        read_files(self.files, self.longest, &mut |line, bytes_read| {
            self.bytes_read.store(bytes_read, Ordering::Relaxed);
            if growth.take(exchanges.join(line)) && !send(None) {
                return false;
            }
            std::iter::from_fn(|| growth.next(false)).all(|line| send(Some(line)))
        });
        std::iter::from_fn(|| growth.next(true)).all(|line| send(Some(line)));
    }

    fn work(&self, lines: &Mutex<Receiver<Numbered<Option<Line>>>>, done: &SyncSender<Numbered<Replayed>>) {
        loop {
            // A std mutex: held while waiting for a line, when no other thread could do anything either.
            let next = lines.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok((number, line)) = next else { return };
            let replayed = line.map_or(Replayed::Continued, |line| self.one(line));
            if done.send((number, replayed)).is_err() {
                return;
            }
        }
    }

    fn one(&self, line: Line) -> Replayed {
        let (recording, Line { position, live, .. }) = (line.recording(), line);
        match recording.map(|recording| recording.with_live(live)) {
            Ok(recording) => Replayed::Conversation(Box::new(self.replayer.replay(position, &recording))),
            Err(flaw) => Replayed::Broken(position, flaw),
        }
    }
}

/// Restores the order of the results.
struct InOrder {
    waiting: BTreeMap<u64, Replayed>,
    next: u64,
    done: Receiver<Numbered<Replayed>>,
}

impl Iterator for InOrder {
    type Item = Replayed;

    fn next(&mut self) -> Option<Replayed> {
        loop {
            if let Some(result) = self.waiting.remove(&self.next) {
                self.next += 1;
                return Some(result);
            }
            let (number, result) = self.done.recv().ok()?;
            self.waiting.insert(number, result);
        }
    }
}
