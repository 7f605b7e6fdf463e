//! Runs: where the bytes of a decoded text come from. Within a run, bytes are copies; an escape is a run of its own, whose
//! first byte represents the whole escape.

use std::ops::Range;

/// From the byte `at` of the decoded text on, the bytes come from `from` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    at: usize,
    from: usize,
}

/// See the file's head. Without runs, every byte is where it was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Runs(Vec<Run>);

impl Runs {
    /// Begins a run, unless the last one goes on.
    pub(super) fn begin(&mut self, at: usize, from: usize) {
        let goes_on = self.0.last().map_or(at == from, |run| run.at <= at && at - run.at + run.from == from);
        if !goes_on {
            self.0.push(Run { at, from });
        }
    }

    /// Begins the run of one escape, so that it is never a part of another run.
    pub(super) fn escape(&mut self, at: usize, from: usize) {
        self.0.push(Run { at, from });
    }

    /// Whether no byte has moved.
    pub(super) fn is_identity(&self) -> bool {
        self.0.is_empty()
    }

    /// Where the byte `at` of the decoded text comes from.
    pub(super) fn source(&self, at: usize) -> usize {
        let after = self.0.partition_point(|run| run.at <= at);
        after.checked_sub(1).map_or(at, |last| self.0[last].from + at - self.0[last].at)
    }

    /// Where a range of the decoded text comes from.
    pub(super) fn sources(&self, range: Range<usize>) -> Range<usize> {
        let start = self.source(range.start);
        let end = if range.is_empty() { start } else { self.end(range.end) };
        start..end
    }

    /// Where the source of what is before the byte `at` ends: what has no byte in the decoded text does not belong to it.
    fn end(&self, at: usize) -> usize {
        let after = self.0.partition_point(|run| run.at < at);
        let Some(run) = after.checked_sub(1).map(|last| self.0[last]) else { return at };
        match self.0.get(after) {
            Some(next) if next.from - run.from != next.at - run.at => next.from,
            _ => run.from + at - run.at,
        }
    }

    /// Whether the byte `from` is within an escape, and not its first.
    pub(super) fn splits(&self, from: usize) -> bool {
        let after = self.0.partition_point(|run| run.from <= from);
        let Some(run) = after.checked_sub(1).map(|last| self.0[last]) else { return false };
        let next = self.0.get(after);
        let is_escape = next.is_some_and(|next| next.from - run.from != next.at - run.at);
        is_escape && from > run.from
    }

    /// The range of the decoded text that a range of the source means; an escape that is only touched is a part of it.
    pub(super) fn ranges(&self, source: Range<usize>) -> Range<usize> {
        self.decoded(source.start, false)..self.decoded(source.end, true)
    }

    fn decoded(&self, from: usize, is_end: bool) -> usize {
        let after = self.0.partition_point(|run| run.from <= from);
        let Some(run) = after.checked_sub(1).map(|last| self.0[last]) else { return from };
        match self.0.get(after) {
            Some(next) if is_end && self.splits(from) => next.at,
            Some(next) => (run.at + from - run.from).min(next.at),
            None => run.at + from - run.from,
        }
    }

    /// The places in `range` at which a run begins, also at its first byte.
    pub(super) fn beginnings(&self, range: Range<usize>) -> impl Iterator<Item = usize> + '_ {
        let first = self.0.partition_point(|run| run.at < range.start);
        self.0[first..].iter().map(|run| run.at).take_while(move |at| *at < range.end)
    }
}
