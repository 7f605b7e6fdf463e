//! Parts of a reply that cannot be judged: they pass and are counted, or the reply is broken off where a policy restricts
//! calls.

use super::items::release_rest;
use super::{Phase, ReplyJudge};
use crate::dialect::judge::CallJudge;
use crate::dialect::reply::Unjudged;
use bytes::Bytes;

impl<J: CallJudge> ReplyJudge<J> {
    /// Counts, once for each reason, that a part of the reply cannot be judged.
    pub(super) fn note(&mut self, why: Unjudged) {
        if !self.unjudged.contains(&why) {
            self.unjudged.push(why);
        }
    }

    /// The client gets nothing more of this reply.
    pub(super) fn break_off(&mut self, why: Unjudged) {
        self.queue.clear();
        self.queued_bytes = 0;
        self.phase = Phase::BrokenOff(why);
    }

    /// Notes that clients may read different calls, and returns whether the reply must not pass.
    pub(super) fn is_in_doubt(&mut self) -> bool {
        let is_strict = self.judging.is_strict();
        if !is_strict {
            self.note(Unjudged::Ambiguous);
        }
        is_strict
    }

    /// Lets everything pass unjudged from here on, or breaks the reply off where a policy restricts calls.
    pub(super) fn escape(&mut self, why: Unjudged, raw: Bytes, out: &mut Vec<Bytes>) {
        if self.judging.is_strict() {
            return self.break_off(why);
        }
        self.note(why);
        release_rest(&mut self.items, &mut self.judging);
        self.update();
        self.drain(out);
        self.pass(raw, out);
    }
}
