//! The phases judge and answer: replies are judged as they come, and the client gets one coherent reply, as a stream or
//! whole, however often the model is asked again. A whole reply is a stream of one chunk.

mod given;
mod held_head;
mod rejoined;
mod upstream_error;

use self::held_head::HeldHead;
use self::rejoined::rejoined;
use self::upstream_error::is_success;
use super::error::ProxyError;
use super::notes::{ReaskCause, label};
use super::running::{Replying, Running};
use super::{Answer, Break, Core, Input, Now, Output, WholeReply};
use crate::judging::Judging;
use crate::pipeline::ReplyPipeline;
use bytes::Bytes;
use dialects::error::{UpstreamError, parse_in_200};
use dialects::reply::{Ending, Form, Options, Unjudged};
use dialects::usage::Usage;
use wire::sniff;

/// The client's reply, and the upstream's replies that it is made of.
pub(super) struct Replies {
    pub(super) judge: ReplyPipeline,
    form: Form,
    upstream: Upstream,
    /// The HTTP status of the present reply.
    status: u16,
    /// Its number, if it came whole, and the form in which it came.
    present: (u32, Form),
    /// Whose bytes go out where nothing acts on a whole reply.
    source: Source,
    /// What the client gets of a whole reply; for a stream, the buffer for the pieces of a chunk.
    out: Vec<Bytes>,
    /// The head of the client's stream, while it waits for the first event.
    head: Option<HeldHead>,
    /// How many actions of the request record that head shows.
    in_head: usize,
    /// How many choices were finished at the last report to the store.
    remembered: usize,
    /// All of a whole reply is in the record.
    is_noted: bool,
}

/// What comes from the upstream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Upstream {
    /// Its stream. `ends_by_closing`: nothing but the end of the connection ends it.
    Reading { ends_by_closing: bool },
    /// A reply to another request: it was asked once more.
    AskedAgain,
    /// Its reply has ended, but for calls that wait: for a person's decision, or for their time.
    Waiting,
    /// Nothing more.
    Over,
}

/// Whose bytes go to the client where nothing acts.
enum Source {
    /// The upstream's reply of this number.
    Upstream(u32),
    /// A reply of toolrein itself.
    Own(Bytes),
}

const OK: u16 = 200;

impl Replies {
    pub(super) fn is_over(&self) -> bool {
        self.upstream == Upstream::Over
    }

    pub(super) fn is_stream(&self) -> bool {
        self.form == Form::Streamed
    }
}

impl Running {
    /// The first reply is a stream: its head goes out at once.
    pub(super) fn begin_stream(
        &mut self,
        core: &mut Core,
        judging: Judging,
        ends_by_closing: bool,
    ) -> Replying {
        core.record.streamed = true;
        core.outputs.push_back(Output::BeginStream { own: false });
        let mut replies = self.replies_of(core, judging, Form::Streamed, Source::Own(Bytes::new()));
        replies.upstream = Upstream::Reading { ends_by_closing };
        replies.head = core.gives_status().then(HeldHead::default);
        Replying::Judged(replies)
    }

    /// The first reply came whole.
    pub(super) fn begin_whole(
        &mut self,
        core: &mut Core,
        judging: Judging,
        reply: WholeReply,
        now: Now,
    ) -> Replying {
        let mut replies = self.replies_of(core, judging, Form::Whole, Source::Upstream(reply.id));
        self.take_whole(core, &mut replies, reply, now);
        Replying::Judged(replies)
    }

    /// toolrein's own reply, judged like an upstream's.
    pub(super) fn own_reply(
        &mut self,
        core: &mut Core,
        judging: Judging,
        body: &Bytes,
        now: Now,
    ) -> Replying {
        let form = if core.request.stream { Form::Streamed } else { Form::Whole };
        let mut replies = self.replies_of(core, judging, form, Source::Own(body.clone()));
        if form == Form::Streamed {
            core.record.streamed = true;
            core.outputs.push_back(Output::BeginStream { own: true });
        }
        replies.judge.expect_own();
        self.judge_body(core, &mut replies, form, OK, body, now);
        Replying::Judged(replies)
    }

    fn replies_of(&self, core: &Core, judging: Judging, form: Form, source: Source) -> Box<Replies> {
        let limits = core.shared.settings.limits;
        let options = self.options(core);
        let judge = ReplyPipeline::new(judging, core.dialect, form, limits, options);
        let (upstream, out) = (Upstream::AskedAgain, Vec::new());
        Box::new(Replies {
            judge,
            form,
            upstream,
            status: OK,
            present: (0, form),
            source,
            out,
            head: None,
            in_head: core.record.actions.len(),
            remembered: 0,
            is_noted: false,
        })
    }

    fn options(&self, core: &Core) -> Options {
        let is_unasked = self.variant.whole && core.request.stream && !core.request.include_usage;
        Options {
            cut_usage: self.variant.ask_usage || is_unasked,
            preface: self.preface(core),
            friendly: core.is_friendly(),
            output_limit: core.request.output_limit,
            narrows_choice: !core.plan.hidden.is_empty()
                && !self.variant.undeclares_hidden
                && !self.is_reask()
                && self.added(core).choice,
            request_id: core.record.request_id.clone(),
            reports: core.reports,
        }
    }

    /// Handles an input.
    pub(super) fn on_replies(&mut self, core: &mut Core, replies: &mut Replies, input: Input, now: Now) {
        let (upstream, is_done) = (replies.upstream, replies.judge.is_done());
        match (upstream, input) {
            (Upstream::Over, _) => {}
            (Upstream::Reading { .. }, Input::Bytes(data)) => self.push(core, replies, &data, now),
            (Upstream::Reading { ends_by_closing: true }, Input::End) if !replies.judge.is_whole() => {
                let error = core.cut("the connection was closed before the stream had ended");
                replies.fail(core, error, Break::Upstream);
            }
            (Upstream::Reading { .. }, Input::End) => self.finish(core, replies, now),
            // The reply is complete, so it does not matter that the connection ends badly.
            (Upstream::Reading { .. }, Input::Cut(..)) if is_done => self.finish(core, replies, now),
            (Upstream::AskedAgain, Input::StreamBegins { ends_by_closing }) => {
                if !self.is_reask() && replies.form == Form::Whole {
                    return replies.turn_to_stream(core, ends_by_closing);
                }
                (replies.status, replies.upstream) = (OK, Upstream::Reading { ends_by_closing });
                replies.judge.begin(Form::Streamed, OK);
            }
            (Upstream::AskedAgain, Input::Reply(reply)) => self.take_whole(core, replies, reply, now),
            (_, Input::Decided(id, decided)) => {
                if self.decided(core, &mut replies.judge, id, &decided) {
                    replies.judge.settle(id, decided.decision, &mut replies.out);
                    replies.give(core);
                    self.note_finished(core, replies, now);
                }
                self.go_on(core, replies, now);
            }
            (_, Input::Answered(id, answer)) => {
                self.heard(core, id, answer.is_some());
                replies.note_late_actions(core);
                replies.judge.answer(id, answer, &mut replies.out);
                replies.give(core);
                self.ask_approvals(core, replies.judge.judging());
                self.note_finished(core, replies, now);
                self.go_on(core, replies, now);
            }
            (_, Input::NotSent(error)) => {
                if !error.is_sent() {
                    self.not_billed(core, &replies.judge.usages());
                }
                replies.fail(core, error, Break::Upstream);
            }
            (_, Input::Cut(error, how)) => replies.fail(core, error, how),
            (_, Input::NoMemory) => replies.fail(core, ProxyError::NoMemory, Break::Upstream),
            (_, Input::HeadDue) => replies.release_head(core),
            // Keeps the client's connection alive while it has to wait.
            (_, Input::Silence) if replies.is_stream() && replies.judge.at_boundary() => {
                replies.release_head(core);
                core.outputs.push_back(Output::Emit(replies.judge.heartbeat()));
            }
            _ => {}
        }
    }

    /// Ends the reply if nothing but calls that waited were left of it.
    fn go_on(&mut self, core: &mut Core, replies: &mut Replies, now: Now) {
        if replies.upstream == Upstream::Waiting && !replies.judge.is_waiting() {
            self.finish(core, replies, now);
        }
    }

    /// A whole reply that was read to its end, or as far as possible.
    fn take_whole(&mut self, core: &mut Core, replies: &mut Replies, reply: WholeReply, now: Now) {
        let WholeReply { id, status, body } = reply;
        let is_success = is_success(status);
        replies.status = status;
        if replies.is_stream() && !is_success {
            return self.refused_stream(core, replies, &body.unwrap_or_default(), now);
        }
        let body = match body {
            Ok(body) => body,
            Err(why) => return self.unread(core, replies, (id, is_success), why, now),
        };
        if !self.is_reask() {
            replies.source = Source::Upstream(id);
        }
        let is_whole_for_stream = self.variant.whole && core.request.stream && !replies.is_stream();
        if is_whole_for_stream && is_success && parse_in_200(&body).is_none() {
            replies.stream_whole(core, id);
        }
        // A first reply in the other form is taken as a stream before it comes here; an error of events stays one.
        let may_be_events = self.is_reask() || replies.is_stream();
        let is_events = may_be_events && sniff::is_events(&body) == Some(true);
        let form = if is_events { Form::Streamed } else { Form::Whole };
        replies.present = (id, form);
        self.judge_body(core, replies, form, status, &body, now);
    }

    fn judge_body(
        &mut self,
        core: &mut Core,
        replies: &mut Replies,
        form: Form,
        status: u16,
        body: &Bytes,
        now: Now,
    ) {
        replies.judge.begin(form, status);
        replies.upstream = Upstream::Reading { ends_by_closing: false };
        self.push(core, replies, body, now);
        if matches!(replies.upstream, Upstream::Reading { .. }) {
            self.finish(core, replies, now);
        }
    }

    /// A whole reply whose bytes could not be read.
    fn unread(
        &mut self,
        core: &mut Core,
        replies: &mut Replies,
        (id, is_success): (u32, bool),
        why: &'static str,
        now: Now,
    ) {
        if self.is_reask() {
            if self.handles_refused_reask(core, replies, replies.status, &UpstreamError::default(), now) {
                return;
            }
            if is_success {
                // It would go to the client unjudged.
                return replies.fail(core, core.unreadable(), Break::Upstream);
            }
        } else if !is_success {
            self.not_billed(core, &replies.judge.usages());
        } else {
            core.note_unjudged(why);
            if replies.judge.judging().is_strict() {
                return replies.fail(core, ProxyError::ReplyUnjudged { why }, Break::Upstream);
            }
        }
        replies.answer(core, Answer::AsItCame(id));
    }

    /// Judges what came.
    fn push(&mut self, core: &mut Core, replies: &mut Replies, data: &Bytes, now: Now) {
        replies.judge.push(data.clone(), now.ms, &mut replies.out);
        if self.asks_anew(core, replies, now) {
            return;
        }
        self.transcript.take_if(|_| replies.judge.has_begun());
        if replies.is_stream() {
            if replies.waits_with_head() {
                return;
            }
            if replies.judge.broken_off().is_none() {
                replies.release_head(core);
            }
            let outputs = &mut core.outputs;
            rejoined(data, &mut replies.out, |piece| outputs.push_back(Output::Emit(piece)));
            if let Some(why) = replies.judge.broken_off() {
                let error = ProxyError::ReplyUnjudged { why: label(why) };
                replies.fail(core, error, Break::Upstream);
            }
            self.ask_models(core, replies.judge.judging());
            self.ask_approvals(core, replies.judge.judging());
            self.note_finished(core, replies, now);
        }
    }

    /// Reports to the store what the client was handed, before the client can act on a finish.
    fn note_finished(&mut self, core: &mut Core, replies: &mut Replies, now: Now) {
        if !replies.is_stream() {
            return;
        }
        let judge = &replies.judge;
        let shown = judge.shown();
        let finished = shown.iter().filter(|choice| choice.is_finished()).count();
        let all_finished = finished > 0 && finished == shown.len();
        let count = finished + usize::from(judge.is_done());
        if count > replies.remembered {
            replies.remembered = count;
            // Before what the client is given now. Choices that are not finished are left out: calls of theirs may
            // still be blocked.
            let given = std::mem::take(&mut core.outputs);
            let mut over = shown;
            over.retain(|choice| choice.is_finished() || judge.is_done());
            self.taken(core);
            self.remember(core, &over, now.ms);
            self.remember_sent(core);
            let usages = judge.usages();
            self.account(core, judge.judging(), &usages, &over, now.ms);
            if judge.is_done() {
                Self::remember_history(core, judge);
                self.billed(core, &usages);
            }
            core.outputs.extend(given);
        }
        // The client's next request does not have to wait, however long the upstream takes to end its stream.
        if all_finished {
            core.outputs.push_back(Output::Dismiss);
        }
    }

    /// Handles a reply that is an error: true if the exchange goes on without it, since another variant of the request
    /// is sent instead, or since the error was the whole reply. Otherwise the error goes to the client.
    fn asks_anew(&mut self, core: &mut Core, replies: &mut Replies, now: Now) -> bool {
        let Some(refusal) = replies.judge.refusal() else { return false };
        let error = refusal.error.clone();
        let is_success = is_success(replies.status);
        let said = error.status.filter(|_| is_success);
        if self.is_reask() {
            // An error without a status is a refusal of what was asked.
            let status = said.unwrap_or(if is_success { 400 } else { replies.status });
            if self.handles_refused_reask(core, replies, status, &error, now) {
                return true;
            }
        } else if self.falls_back(core, said.unwrap_or(replies.status), &error) {
            replies.judge.set_options(self.options(core));
            self.ask(core, replies);
            return true;
        }
        self.is_refused = true;
        self.tried.clear();
        self.not_billed(core, &replies.judge.usages());
        if replies.answer_in_head(core) {
            return true;
        }
        if replies.is_stream() {
            replies.judge.let_refusal_stand(now.ms, &mut replies.out);
            return false;
        }
        replies.answer_refusal(core);
        true
    }

    /// The upstream's reply has ended, or no call waits any more.
    fn finish(&mut self, core: &mut Core, replies: &mut Replies, now: Now) {
        let ending = loop {
            let ending = replies.judge.finish(now.ms, &mut replies.out);
            if ending != Ending::Refused {
                break ending;
            }
            if self.asks_anew(core, replies, now) {
                return;
            }
        };
        replies.give(core);
        self.ask_models(core, replies.judge.judging());
        self.ask_approvals(core, replies.judge.judging());
        match ending {
            Ending::Waits => {
                replies.upstream = Upstream::Waiting;
                if !replies.is_stream() {
                    // At once, since the client may leave meanwhile.
                    self.note(core, replies, now);
                }
            }
            Ending::Reask { choice, hidden } if !core.is_observing() => {
                let usages = replies.judge.usages();
                if replies.is_stream() {
                    self.account(core, replies.judge.judging(), &usages, &replies.judge.shown(), now.ms);
                } else {
                    self.note(core, replies, now);
                }
                if let Some(open_account) = &mut self.open_account {
                    open_account.reply_ended();
                }
                let billed = usages.iter().map(Usage::billed).sum();
                self.reask_causes.extend(ReaskCause::of(replies.judge.judging(), billed));
                let next = self.next_step(&replies.judge.shown(), choice, replies.judge.judging());
                self.ask_again(core, choice, next, &hidden, replies.judge.judging_mut());
                replies.judge.continue_with(choice);
                self.ask(core, replies);
            }
            Ending::BrokenOff(_) if !replies.is_stream() && self.reasks.count() > 0 => {
                replies.fail(core, core.unreadable(), Break::Upstream);
            }
            Ending::BrokenOff(why) => {
                core.note_unjudged(label(why));
                replies.fail(core, ProxyError::ReplyUnjudged { why: label(why) }, Break::Upstream);
            }
            _ => self.complete(core, replies, now),
        }
    }

    /// Everything has come that the client gets.
    fn complete(&mut self, core: &mut Core, replies: &mut Replies, now: Now) {
        self.taken(core);
        let is_unread = |why: &Unjudged| matches!(why, Unjudged::NotJson | Unjudged::ReplyTooLong);
        if replies.is_stream() || !replies.judge.unjudged().iter().any(is_unread) {
            self.remember(core, &replies.judge.shown(), now.ms);
        }
        if !replies.is_stream() {
            Self::remember_history(core, &replies.judge);
        } else {
            // Where calls waited at the end of the upstream's stream, its last bytes were given out just now.
            self.note_finished(core, replies, now);
            replies.upstream = Upstream::Over;
            replies.release_head(core);
            return core.outputs.push_back(Output::Done);
        }
        self.note(core, replies, now);
        replies.is_noted = true;
        let out = std::mem::take(&mut replies.out);
        // After a re-ask the source is a reply that the client must not get as it came, even where nothing in the last
        // one is edited.
        let is_changed = replies.judge.is_changed() || self.reasks.count() > 0;
        let answer = match (&replies.source, is_changed) {
            (Source::Upstream(id), true) => Answer::Edited(*id, out),
            (Source::Upstream(id), false) => Answer::AsItCame(*id),
            (Source::Own(_), true) => Answer::Own(out),
            (Source::Own(body), false) => Answer::Own(vec![body.clone()]),
        };
        replies.answer(core, answer);
    }

    /// Asks the upstream once more, in the present variant.
    fn ask(&mut self, core: &mut Core, replies: &mut Replies) {
        replies.upstream = Upstream::AskedAgain;
        replies.note_late_actions(core);
        self.send(core);
    }

    /// Notes the outcome of calls; a client that left a stream has what it was given.
    pub(super) fn close_replies(&mut self, core: &mut Core, replies: &mut Replies, now: Now) {
        if replies.is_stream() && replies.upstream != Upstream::Over {
            self.remember(core, &replies.judge.shown(), now.ms);
        }
        if !replies.is_noted {
            self.note(core, replies, now);
        }
    }

    fn note(&mut self, core: &mut Core, replies: &Replies, now: Now) {
        for why in replies.judge.unjudged() {
            core.note_unjudged(label(*why));
        }
        core.note_judged(replies.judge.judging(), &mut self.noted, now.ms);
        core.record.carried = replies.judge.carried().to_vec();
        let judge = &replies.judge;
        // For traces alone.
        core.record.response_model = if core.record.is_traced { judge.model() } else { None };
        let usages = judge.usages();
        self.account(core, judge.judging(), &usages, &judge.shown(), now.ms);
        self.billed(core, &usages);
    }
}
