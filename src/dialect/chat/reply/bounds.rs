//! Limits of a reply: if too much is held back, or its calls are ambiguous, everything held goes out unjudged or the
//! reply is broken off.

use super::{Form, Phase, ReplyJudge, Unjudged};
use crate::dialect::chat::choice::ChoiceState;
use crate::dialect::chat::completion::{MOST_CALLS, MOST_CHOICES};
use crate::dialect::judge::CallJudge;
use crate::dialect::reply::ShownChoice;
use bytes::Bytes;

impl<J: CallJudge> ReplyJudge<J> {
    /// Keeps a stream within its limits: too many held bytes are released, and too long a reply is no longer read. A
    /// whole reply is limited where it is collected.
    pub(super) fn bound(&mut self, now_ms: u64, out: &mut Vec<Bytes>) {
        if self.form == Form::Whole {
            return;
        }
        if self.queue.said_bytes() > self.limits.held || self.queue.bytes() > self.limits.reply {
            if self.judging.is_strict() {
                return self.break_off(Unjudged::HeldTooMuch);
            }
            self.note(Unjudged::HeldTooMuch);
            self.release_all(now_ms, out);
        }
        let kept: usize = self.choices.iter().map(ChoiceState::size).sum();
        let calls = self.choices.iter().map(ChoiceState::calls).max().unwrap_or(0);
        if kept > self.limits.reply || calls > MOST_CALLS || self.choices.len() > MOST_CHOICES {
            self.read_no_further(Unjudged::ReplyTooLong, now_ms, out);
        }
    }

    /// Passes on `raw`, in which clients may see other calls than toolrein, and whatever follows it; or breaks the
    /// reply off, if it must not pass.
    pub(super) fn escape(&mut self, why: Unjudged, raw: Bytes, now_ms: u64, out: &mut Vec<Bytes>) {
        if self.read_no_further(why, now_ms, out) {
            self.pass(raw, now_ms, out);
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
    /// approval might be in it.
    pub(super) fn may_pass_unjudged(&mut self, now_ms: u64) -> bool {
        self.block_by_name(now_ms);
        let hides = !self.judging.observes() && self.choices.iter().any(ChoiceState::has_blocked);
        !hides && !self.judging.is_strict()
    }

    fn block_by_name(&mut self, now_ms: u64) {
        for state in &mut self.choices {
            state.block_rest_by_name(&mut self.judging, now_ms);
        }
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
        for state in &mut self.choices {
            state.release_rest(&mut self.judging);
        }
        self.drain(out);
    }

    pub(super) fn note(&mut self, why: Unjudged) {
        if !self.unjudged.contains(&why) {
            self.unjudged.push(why);
        }
    }
}
