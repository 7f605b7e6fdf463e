//! Final errors of the upstream, as the client gets them: unchanged, or, if the operator wants that, with the status
//! that the error means and with a text for people. Handles no calls and no text.

use super::{OK, Replies, Source, Upstream};
use crate::refused_reask::AfterRefusal;
use crate::running::Running;
use crate::settings::{ErrorIn200, Errors};
use crate::{Answer, Break, Core, Now, Output};
use bytes::Bytes;
use dialects::Handed;
use dialects::edit::NO_ANSWER;
use dialects::error::friendly::{body_of_event, friendly_body, status_of};
use dialects::error::{UpstreamError, parse};
use dialects::reply::{Form, Refusal};

/// Whether a status is a success.
pub(super) fn is_success(status: u16) -> bool {
    (200..300).contains(&status)
}

impl Core {
    /// Whether people read texts of their own about the upstream's errors.
    pub(super) fn is_friendly(&self) -> bool {
        self.shared.settings.upstream.errors == Errors::Friendly && !self.is_observing()
    }

    /// Whether errors inside of successful replies get a status of their own.
    pub(super) fn gives_status(&self) -> bool {
        self.shared.settings.upstream.error_in_200 == ErrorIn200::Status && !self.is_observing()
    }

    /// The status and the body for an error that came whole; `None` where it stays as it came.
    fn restated(&self, status: u16, error: &UpstreamError, raw: &Bytes) -> Option<(u16, Bytes)> {
        let meant = if is_success(status) { status_of(error) } else { status };
        let friendly = if self.is_friendly() { friendly_body(meant, raw) } else { None };
        let new = if is_success(status) && self.gives_status() { meant } else { status };
        let is_changed = friendly.is_some() || new != status;
        is_changed.then(|| (new, friendly.unwrap_or_else(|| raw.clone())))
    }

    /// The body of an error with this status in a stream.
    pub(super) fn error_in_stream(&self, status: u16, body: &[u8]) -> Bytes {
        let friendly = if self.is_friendly() { friendly_body(status, body) } else { None };
        friendly.unwrap_or_else(|| Bytes::copy_from_slice(body))
    }
}

impl Running {
    /// The upstream refuses by its status to be asked again in the middle of a stream.
    pub(super) fn refused_stream(&mut self, core: &mut Core, replies: &mut Replies, body: &[u8], now: Now) {
        let (status, error) = (replies.status, parse(body).unwrap_or_default());
        if self.is_reask() {
            if self.handles_refused_reask(core, replies, status, &error, now) {
                return;
            }
        } else if self.falls_back(core, status, &error) {
            replies.judge.set_options(self.options(core));
            return self.ask(core, replies);
        }
        self.not_billed(core, &replies.judge.usages());
        core.record.error = Some("reask_failed");
        if replies.holds_head() {
            return replies.answer_instead(core, status, body);
        }
        let body = core.error_in_stream(status, body);
        core.outputs.push_back(Output::Emit(replies.judge.error_event(status, &body)));
        core.outputs.push_back(Output::BreakOff(Break::Upstream));
        replies.upstream = Upstream::Over;
    }

    /// The upstream refused to be asked again; false where the client gets its error.
    pub(super) fn handles_refused_reask(
        &mut self,
        core: &mut Core,
        replies: &mut Replies,
        status: u16,
        error: &UpstreamError,
        now: Now,
    ) -> bool {
        match self.after_refused_reask(core, replies.judge.judging_mut(), status, error) {
            AfterRefusal::AskAgain => {
                replies.judge.set_options(self.options(core));
                self.ask(core, replies);
            }
            AfterRefusal::SayNoAnswer => self.say_no_answer(core, replies, now),
            AfterRefusal::GiveError => return false,
        }
        true
    }

    /// Ends the reply with toolrein's own sentence, as if the upstream had said it.
    fn say_no_answer(&mut self, core: &mut Core, replies: &mut Replies, now: Now) {
        let model = core.request.model_name(&core.body).into_owned();
        let (key, created, usage) = (&core.identity.key, now.ms / 1000, core.request.include_usage);
        let handed = Handed { question: self.context, key, model: &model, created, usage };
        let body = core.dialect.says(replies.form, NO_ANSWER, &handed);
        self.not_billed(core, &replies.judge.usages());
        replies.status = OK;
        replies.judge.expect_own();
        self.judge_body(core, replies, replies.form, OK, &body, now);
    }
}

impl Replies {
    /// The answer for a whole reply that is the upstream's error.
    pub(super) fn answer_refusal(&mut self, core: &mut Core) {
        let (id, form) = self.present;
        let Some(Refusal { error, raw }) = self.judge.refusal() else { return };
        let answer = match core.restated(self.status, error, raw) {
            Some((status, body)) => Answer::Restated { id: Some(id), status, body },
            None if form == Form::Streamed => Answer::Edited(id, vec![raw.clone()]),
            None => Answer::AsItCame(id),
        };
        self.answer(core, answer);
    }

    /// Answers with the error in the first event of a stream whose head was not sent; false if it was.
    pub(super) fn answer_in_head(&mut self, core: &mut Core) -> bool {
        let Some(Refusal { error, raw }) = self.judge.refusal().filter(|_| self.holds_head()) else {
            return false;
        };
        // The judge has rewritten the event for people, where that is wanted.
        let (status, body) = (status_of(error), body_of_event(raw, error));
        self.answer_restated(core, status, body);
        true
    }

    /// Answers with an error response instead of a stream whose head was not sent.
    pub(super) fn answer_instead(&mut self, core: &mut Core, status: u16, body: &[u8]) {
        let body = core.error_in_stream(status, body);
        self.answer_restated(core, status, body);
    }

    fn answer_restated(&mut self, core: &mut Core, status: u16, body: Bytes) {
        self.take_head(core);
        self.answer(core, Answer::Restated { id: None, status, body });
    }

    /// Whether the head of the client's stream waits for its first event.
    pub(crate) fn holds_head(&self) -> bool {
        self.head.is_some()
    }

    /// Takes the head away from the client's stream: the reply is a whole one.
    pub(super) fn take_head(&mut self, core: &mut Core) {
        if self.head.take().is_some() {
            core.record.streamed = false;
        }
    }

    /// Lets the head of the client's stream go out, with what waited for it.
    pub(super) fn release_head(&mut self, core: &mut Core) {
        if let Some(head) = self.head.take() {
            self.in_head = core.record.actions.len();
            core.outputs.extend(head.into_pieces().into_iter().map(Output::Emit));
        }
    }

    /// Another form of the request is answered by a stream, although a whole reply was asked for.
    pub(super) fn turn_to_stream(&mut self, core: &mut Core, ends_by_closing: bool) {
        core.outputs.push_back(Output::BeginStream { own: false });
        self.turn_streamed(core);
        self.upstream = Upstream::Reading { ends_by_closing };
    }

    /// The client's stream begins with the upstream's whole reply of this number, which is not an error.
    pub(super) fn stream_whole(&mut self, core: &mut Core, id: u32) {
        core.outputs.push_back(Output::BeginStreamOf(id));
        self.turn_streamed(core);
        (self.source, self.upstream) = (Source::Upstream(id), Upstream::AskedAgain);
    }

    fn turn_streamed(&mut self, core: &mut Core) {
        core.record.streamed = true;
        self.in_head = core.record.actions.len();
        self.form = Form::Streamed;
        self.judge.turn_to(Form::Streamed);
    }
}
