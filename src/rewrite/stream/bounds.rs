//! What happens to a stream that holds back too much or cannot be told apart: everything held goes out unjudged, or the
//! stream is spoiled. How much is too much is the limits' to say.

use super::{StreamJudge, Unjudged};
use crate::rewrite::choice::ChoiceState;
use crate::wire::reply::{MOST_CALLS, MOST_CHOICES};
use bytes::Bytes;

impl StreamJudge {
    /// Keeps within the bounds: what is held too long is released, what is too long is no longer read.
    pub(super) fn bound(&mut self, now_ms: u64, out: &mut Vec<Bytes>) {
        if self.said_bytes > self.limits.held || self.held_bytes > self.limits.reply {
            self.note(Unjudged::HeldTooMuch);
            self.spoiled |= self.judging.is_strict();
            self.release_all(now_ms, out);
        }
        let kept: usize = self.choices.iter().map(ChoiceState::size).sum();
        let calls = self.choices.iter().map(ChoiceState::calls).max().unwrap_or(0);
        if kept > self.limits.reply || calls > MOST_CALLS || self.choices.len() > MOST_CHOICES {
            self.go_blind(Unjudged::ReplyTooLong, now_ms, out);
        }
    }

    /// Lets the event `raw` pass, in which clients may read other calls than we do, and whatever follows it; or breaks
    /// the stream off, where that must not be.
    pub(super) fn escape(&mut self, why: Unjudged, raw: Bytes, (now_ms, out): (u64, &mut Vec<Bytes>)) {
        self.go_blind(why, now_ms, out);
        if !self.spoiled {
            self.pass(raw, (now_ms, out));
        }
    }

    /// Reads no further.
    fn go_blind(&mut self, why: Unjudged, now_ms: u64, out: &mut Vec<Bytes>) {
        self.note(why);
        self.blind = true;
        self.block_by_name(now_ms);
        self.spoil();
        self.release_all(now_ms, out);
    }

    /// Blocks the calls whose names are enough for that.
    pub(super) fn block_by_name(&mut self, now_ms: u64) {
        for state in &mut self.choices {
            state.block_rest_by_name(&mut self.judging, now_ms);
        }
    }

    /// What follows is unjudged. Part of a call whose beginning was not shown would be taken for part of another, and a
    /// call that needs a yes might be in it.
    pub(super) fn spoil(&mut self) {
        let hides = !self.judging.observes() && self.choices.iter().any(ChoiceState::has_withheld);
        self.spoiled |= hides || self.judging.is_strict();
    }

    /// Lets everything go that is held, unless the stream is to be broken off.
    fn release_all(&mut self, now_ms: u64, out: &mut Vec<Bytes>) {
        self.settle_all();
        if self.spoiled {
            return;
        }
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
