//! Output to the client: the judged part of a stream, a whole reply, or a visible error. Also makes the errors for
//! upstreams that broke off.

use super::{Replies, Upstream};
use crate::error::ProxyError;
use crate::{Answer, Break, Core, Output};

impl Replies {
    /// Gives out the judged part of a stream.
    pub(super) fn give(&mut self, core: &mut Core) {
        if self.is_stream() {
            if !self.out.is_empty() {
                self.release_head(core);
            }
            core.outputs.extend(self.out.drain(..).map(Output::Emit));
        }
    }

    /// Whether what was judged waits with the head, since nothing has come yet that says anything.
    pub(super) fn waits_with_head(&mut self) -> bool {
        let Some(head) = &mut self.head else { return false };
        let fits = head.add(self.out.drain(..));
        fits && self.judge.is_at_head()
    }

    /// Has the last comment of a stream report what was done since its head went out.
    pub(super) fn note_late_actions(&mut self, core: &Core) {
        if self.is_stream() && !self.holds_head() {
            let late = core.record.actions.get(self.in_head..).unwrap_or_default();
            self.judge.judging_mut().set_late_actions(late);
        }
    }

    /// The whole reply for the client.
    pub(super) fn answer(&mut self, core: &mut Core, answer: Answer) {
        core.answer(answer);
        self.upstream = Upstream::Over;
    }

    /// Ends the reply with a visible error: a whole reply becomes toolrein's error; a stream gets an error event where
    /// one can be written, and then breaks off.
    pub(super) fn fail(&mut self, core: &mut Core, error: ProxyError, how: Break) {
        self.upstream = Upstream::Over;
        if !self.is_stream() || self.holds_head() {
            self.take_head(core);
            return core.answer_error(error);
        }
        if self.judge.at_boundary() {
            let event = self.judge.own_error_event(&error.public_message(), error.code());
            core.outputs.push_back(Output::Emit(event));
        }
        error.note_in(&mut core.record);
        core.outputs.push_back(Output::BreakOff(how));
    }
}

impl Core {
    /// The error for an upstream reply that cannot be read.
    pub(super) fn unreadable(&self) -> ProxyError {
        self.cut("its reply cannot be read")
    }

    /// The error for an upstream that broke off.
    pub(super) fn cut(&self, detail: &str) -> ProxyError {
        ProxyError::UpstreamCut { host: self.shared.upstream.clone(), detail: detail.to_owned() }
    }
}
