//! Limits of a reply: if too much is held back, or its calls are ambiguous, everything held goes out unjudged or the
//! reply is broken off. And whether a stream that ends now is complete.

use super::{Form, Phase, ReplyPipeline, Unjudged};
use bytes::Bytes;
use dialects::codec::{Frame, MOST_CALLS, MOST_CHOICES};
use dialects::reply_choice::ReplyChoice;

impl ReplyPipeline {
    /// Keeps a stream within its limits: too many held bytes are released, and too long a reply is no longer read. A
    /// whole reply is limited where it is collected.
    pub(super) fn bound(&mut self, now_ms: u64, out: &mut Vec<Bytes>) {
        if self.form == Form::Whole {
            return;
        }
        if self.queue.counted_bytes() > self.limits.held || self.queue.bytes() > self.limits.reply {
            if self.judging.is_strict() {
                return self.break_off(Unjudged::HeldTooMuch);
            }
            self.note(Unjudged::HeldTooMuch);
            self.release_all(now_ms, out);
        }
        let (mut kept, mut calls) = (self.codec.known_bytes(), 0);
        for choice in &self.choices {
            kept += choice.size();
            calls = calls.max(choice.calls().len());
        }
        if kept > self.limits.reply || calls > MOST_CALLS || self.choices.len() > MOST_CHOICES {
            self.read_no_further(Unjudged::ReplyTooLong, now_ms, out);
        }
        self.text_room = self.limits.reply.saturating_sub(kept);
    }

    /// As [`Self::bound`], after an event was given out that says a text alone.
    pub(super) fn bound_text(&mut self, now_ms: u64, out: &mut Vec<Bytes>) {
        // The text is kept twice, or decoded once, where a wrong byte may become three.
        let growth = out.last().map_or(0, |event| 3 * event.len());
        match self.text_room.checked_sub(growth) {
            Some(room) => self.text_room = room,
            None => self.bound(now_ms, out),
        }
    }

    /// Passes on `raw`, in which clients may see other calls than toolrein, and whatever follows it; or breaks the
    /// reply off, if it must not pass.
    pub(super) fn escape(&mut self, why: Unjudged, raw: Bytes, now_ms: u64, out: &mut Vec<Bytes>) {
        if self.read_no_further(why, now_ms, out) {
            self.pass(Frame::idle(raw), now_ms, out);
        }
    }

    /// Stops reading the reply; false if it is broken off.
    fn read_no_further(&mut self, why: Unjudged, now_ms: u64, out: &mut Vec<Bytes>) -> bool {
        if !self.may_pass_unjudged(now_ms) {
            self.break_off(why);
            return false;
        }
        self.note(why);
        self.phase = Phase::Unjudged;
        self.release_all(now_ms, out);
        true
    }

    /// Whether what follows may reach the client unjudged, after the calls were blocked whose names are enough for
    /// that. Part of a call whose beginning was not shown would be taken for part of another, and a call that needs an
    /// approval might be in it. A further reply has its choice under the number 0, which may be another choice of the client's.
    pub(super) fn may_pass_unjudged(&mut self, now_ms: u64) -> bool {
        self.block_by_name(now_ms);
        let hides = !self.judging.observes() && self.choices.iter().any(ReplyChoice::has_blocked);
        let is_renumbered = self.continuing.is_some_and(|choice| choice != 0);
        !hides && !is_renumbered && !self.judging.is_strict()
    }

    fn block_by_name(&mut self, now_ms: u64) {
        (0..self.choices.len()).for_each(|at| self.judge_choice(at, now_ms).block_rest_by_name());
    }

    /// The client gets nothing more.
    pub(super) fn break_off(&mut self, why: Unjudged) {
        self.note(why);
        self.settle_all();
        self.queue.clear();
        self.phase = Phase::BrokenOff(why);
    }

    /// Releases everything that is held.
    fn release_all(&mut self, now_ms: u64, out: &mut Vec<Bytes>) {
        self.settle_all();
        self.block_by_name(now_ms);
        (0..self.choices.len()).for_each(|at| self.judge_choice(at, now_ms).release_rest());
        self.drain(out);
    }

    /// Counts, once for each reason, that a part of the reply is not judged.
    pub(super) fn note(&mut self, why: Unjudged) {
        if !self.unjudged.contains(&why) {
            self.unjudged.push(why);
        }
    }

    /// Whether the upstream's reply, if its connection ends now, is complete: with its mark of the end, an error, or a finish for every
    /// choice (Perplexity sends no `[DONE]`), and without an incomplete event. Where the end of the connection ends a
    /// stream, only its events show whether it was cut.
    pub fn is_whole(&self) -> bool {
        let Some(last) = self.codec.last_event() else { return true };
        let started = match self.phase {
            Phase::Head => false,
            Phase::Reading => true,
            // Unknown for a reply that is no longer read.
            Phase::Unjudged => return self.codec.at_boundary() && last.is_ok(),
            Phase::Refused(_) | Phase::Failed | Phase::BrokenOff(_) | Phase::Done { .. } => return true,
        };
        let Some(last) = last.ok().filter(|_| self.codec.at_boundary()) else { return false };
        // Chunks without any choice (Azure's first one) have nothing that could be cut.
        let some = started || !last.finished.is_empty();
        let is_over = |choice: &ReplyChoice| choice.finish_came || last.finished.contains(&choice.index);
        last.ends || (some && self.choices.iter().all(is_over))
    }
}
