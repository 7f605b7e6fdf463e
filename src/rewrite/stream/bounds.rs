//! What happens to a stream that holds back too much or cannot be told apart: everything held goes out unjudged, or the
//! stream is spoiled. How much is too much is the limits' to say.

use super::{MOST_CALLS, MOST_CHOICES, StreamJudge, Unjudged};
use crate::rewrite::choice::ChoiceState;
use bytes::Bytes;

impl StreamJudge {
    /// Keeps within the bounds: what is held too long is released, what is too long is no longer read.
    pub(super) fn bound(&mut self, out: &mut Vec<Bytes>) {
        if self.held_bytes > self.limits.held {
            self.note(Unjudged::HeldTooMuch);
            self.release_all(out);
        }
        let kept: usize = self.choices.iter().map(ChoiceState::size).sum();
        let calls = self.choices.iter().map(ChoiceState::calls).max().unwrap_or(0);
        if kept > self.limits.reply || calls > MOST_CALLS || self.choices.len() > MOST_CHOICES {
            self.go_blind(out);
        }
    }

    /// Reads no further: more came than is kept.
    pub(super) fn go_blind(&mut self, out: &mut Vec<Bytes>) {
        self.note(Unjudged::ReplyTooLong);
        self.blind = true;
        self.spoil();
        self.release_all(out);
    }

    /// What follows is unjudged. Part of a call whose beginning was not shown would be taken for part of another, and a
    /// call that needs a yes might be in it.
    pub(super) fn spoil(&mut self) {
        let hides = !self.judging.observes() && self.choices.iter().any(ChoiceState::has_withheld);
        self.spoiled |= hides || self.judging.is_strict();
    }

    pub(super) fn release_all(&mut self, out: &mut Vec<Bytes>) {
        self.settle_all();
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
