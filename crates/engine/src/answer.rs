//! The phases judge and answer: replies are judged as they come, and the client gets one coherent reply, as a stream or
//! whole, however often the model is asked again. A whole reply is a stream of one chunk.

mod held_head;
mod rejoined;

use self::held_head::HeldHead;
use self::rejoined::rejoined;
use super::effects::{EffectId, EffectResult};
use super::error::ProxyError;
use super::notes::{label, note_unjudged};
use super::request_forms::{Accepts, AfterRefusal};
use super::running::Running;
use super::upstream_history::remember_history;
use super::{Answer, Break, Core, Input, Now, Output, WholeReply, unexpected};
use crate::judging::Judging;
use crate::pipeline::ReplyPipeline;
use bytes::Bytes;
use dialects::Handed;
use dialects::edit::NO_ANSWER;
use dialects::error::friendly::{body_of_event, status_of};
use dialects::error::{UpstreamError, parse, parse_in_200};
use dialects::reply::{Ending, Form, Refusal, Unjudged};
use dialects::usage::Usage;
use model::adaptation::Adaptation;
use model::plan::decision::Decision;
use std::time::Instant;
use wire::sniff;

/// The client's reply, and the upstream's replies that it is made of.
pub(super) struct Replies {
    pub(super) pipeline: ReplyPipeline,
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
    /// Bytes that came since the memory was counted last.
    uncounted: usize,
    /// When bytes came last after the event that ends the upstream's stream.
    ended_at: Option<Instant>,
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

/// After how many bytes of a stream the memory in use is counted again.
const COUNTED_EVERY: usize = 8 * 1024;

impl Replies {
    /// The first reply is a stream: its head goes out at once, or with its first event.
    pub(super) fn begin_stream(
        running: &Running,
        core: &mut Core,
        mut judging: Box<Judging>,
        ends_by_closing: bool,
    ) -> Box<Self> {
        core.record.streamed = true;
        core.note_shown();
        judging.replace_body(core.copied_body());
        let mut replies = Self::new(running, core, judging, Form::Streamed, Source::Own(Bytes::new()));
        replies.upstream = Upstream::Reading { ends_by_closing };
        if core.gives_status() {
            replies.head = Some(HeldHead::default());
        } else {
            core.output(Output::BeginStream { own: false });
        }
        replies
    }

    /// The first reply came whole.
    pub(super) fn begin_whole(
        running: &mut Running,
        core: &mut Core,
        judging: Box<Judging>,
        reply: WholeReply,
        now: Now,
    ) -> Box<Self> {
        let mut replies = Self::new(running, core, judging, Form::Whole, Source::Upstream(reply.id));
        replies.take_whole(running, core, reply, now);
        replies
    }

    /// toolrein's own reply, judged like an upstream's.
    pub(super) fn own_reply(
        running: &mut Running,
        core: &mut Core,
        judging: Box<Judging>,
        body: &Bytes,
        now: Now,
    ) -> Box<Self> {
        let form = if core.request.stream { Form::Streamed } else { Form::Whole };
        let mut replies = Self::new(running, core, judging, form, Source::Own(body.clone()));
        if form == Form::Streamed {
            core.record.streamed = true;
            core.note_shown();
            core.output(Output::BeginStream { own: true });
        }
        replies.pipeline.expect_own();
        replies.judge_body(running, core, form, OK, body, now);
        replies
    }

    fn new(running: &Running, core: &Core, judging: Box<Judging>, form: Form, source: Source) -> Box<Self> {
        let limits = core.shared.settings.limits;
        let options = running.options(core);
        let pipeline = ReplyPipeline::new(judging, core.dialect, form, limits, options);
        let (upstream, out) = (Upstream::AskedAgain, Vec::new());
        Box::new(Self {
            pipeline,
            form,
            upstream,
            status: OK,
            present: (0, form),
            source,
            out,
            head: None,
            in_head: core.record.actions.len(),
            uncounted: 0,
            ended_at: None,
            remembered: 0,
            is_noted: false,
        })
    }

    pub(super) fn is_over(&self) -> bool {
        self.upstream == Upstream::Over
    }

    pub(super) fn is_stream(&self) -> bool {
        self.form == Form::Streamed
    }

    /// Handles an input.
    pub(super) fn on(&mut self, running: &mut Running, core: &mut Core, input: Input, now: Now) {
        let upstream = self.upstream;
        if let (Upstream::Reading { .. }, Input::Bytes(data)) = (upstream, &input) {
            self.push(running, core, data, now);
            return self.count_memory(core, data.len());
        }
        let is_done = self.pipeline.is_done();
        match (upstream, input) {
            (Upstream::Over, _) => {}
            (Upstream::Reading { ends_by_closing: true }, Input::End) if !self.pipeline.is_whole() => {
                let error = core.cut("the connection was closed before the stream had ended");
                self.fail(core, error, Break::Upstream);
            }
            (Upstream::Reading { .. }, Input::End) => self.finish(running, core, now),
            // The reply is complete, so it does not matter that the connection ends badly.
            (Upstream::Reading { .. }, Input::Cut(..)) if is_done => self.finish(running, core, now),
            (Upstream::AskedAgain, Input::StreamBegins { ends_by_closing }) => {
                if !running.is_reask() && self.form == Form::Whole {
                    return self.turn_to_stream(core, ends_by_closing);
                }
                (self.status, self.upstream) = (OK, Upstream::Reading { ends_by_closing });
                self.pipeline.begin(Form::Streamed, OK);
            }
            (Upstream::AskedAgain, Input::Reply(reply)) => self.take_whole(running, core, reply, now),
            (_, Input::Finished(id, result)) => self.finish_effect(running, core, (id, result), now),
            (_, Input::NotSent(error)) => {
                if !error.is_sent() {
                    running.reports.not_billed(core, &self.pipeline.usages());
                }
                self.fail(core, error, Break::Upstream);
            }
            (_, Input::Cut(error, how)) => self.fail(core, error, how),
            (_, Input::NoMemory) => self.fail(core, ProxyError::NoMemory, Break::Upstream),
            (_, Input::Undecodable) => core.record.unjudged.push("unreadable_coding"),
            (_, Input::Tick) => self.tick(running, core, now),
            (_, input) => unexpected(&input),
        }
    }

    /// When a heartbeat is due, or the end of a stream that its event has ended. `is_reask`: the upstream was asked again.
    pub(super) fn deadline(&self, core: &Core, is_reask: bool) -> Option<Instant> {
        let waits = &core.shared.settings.waits;
        let (is_reading, end) = match self.upstream {
            _ if !self.is_stream() => return None,
            Upstream::Over => return None,
            Upstream::Reading { .. } => (true, self.ended_at.map(|at| at + waits.after_end)),
            Upstream::AskedAgain | Upstream::Waiting => (false, None),
        };
        // Everything that arrives may be hidden from the client: the arguments of a call under judgement can take minutes.
        let is_silent = !is_reading || self.holds_head() || is_reask || self.pipeline.is_hiding();
        let heartbeat = core.shown_at.filter(|_| is_silent).map(|at| at + waits.heartbeat);
        match (heartbeat, end) {
            (Some(heartbeat), Some(end)) => Some(heartbeat.min(end)),
            (heartbeat, end) => heartbeat.or(end),
        }
    }

    /// Its [`Self::deadline`] has come, or has moved meanwhile.
    fn tick(&mut self, running: &mut Running, core: &mut Core, now: Now) {
        let waits = core.shared.settings.waits;
        if let Upstream::Reading { .. } = self.upstream
            && self.ended_at.is_some_and(|at| at + waits.after_end <= now.at)
        {
            return self.finish(running, core, now);
        }
        if core.shown_at.is_some_and(|at| at + waits.heartbeat > now.at) || !self.is_stream() {
            return;
        }
        core.note_shown();
        if self.holds_head() {
            self.release_head(core);
        } else if self.pipeline.at_boundary() {
            // Keeps the client's connection alive while it has to wait.
            core.output(Output::Emit(self.pipeline.heartbeat()));
        }
    }

    /// Takes the result of an effect that a call waits for.
    fn finish_effect(
        &mut self,
        running: &mut Running,
        core: &mut Core,
        (id, result): (EffectId, EffectResult),
        now: Now,
    ) {
        let (judging, reports) = (self.pipeline.judging(), &mut running.reports);
        let results = running.call_effects.take_result(core, judging, reports, (id, result));
        if results.is_empty() {
            return;
        }
        self.note_late_actions(core);
        for (call, result) in results {
            let decision = self.pipeline.finish_effect(call, &result, &mut self.out);
            match decision {
                Some(Decision::Hold { .. }) => {}
                Some(decision) if decision.is_released() => running.reports.settle(call),
                _ => running.reports.give_back(core, call),
            }
        }
        self.give(core);
        self.start_effects(running, core, now);
        self.note_finished(running, core, now);
        self.go_on(running, core, now);
    }

    /// Starts what calls wait for since the last time.
    fn start_effects(&self, running: &mut Running, core: &mut Core, now: Now) {
        let (judging, reports) = (self.pipeline.judging(), &running.reports);
        running.call_effects.start_new(core, judging, reports, now.ms);
    }

    /// Ends the reply if nothing but calls that waited were left of it.
    fn go_on(&mut self, running: &mut Running, core: &mut Core, now: Now) {
        if self.upstream == Upstream::Waiting && !self.pipeline.is_waiting() {
            self.finish(running, core, now);
        }
    }

    /// A whole reply that was read to its end, or as far as possible.
    fn take_whole(&mut self, running: &mut Running, core: &mut Core, reply: WholeReply, now: Now) {
        let WholeReply { id, status, body } = reply;
        let is_success = is_success(status);
        self.status = status;
        if self.is_stream() && !is_success {
            return self.refused_stream(running, core, &body.unwrap_or_default(), now);
        }
        let body = match body {
            Ok(body) => body,
            Err(why) => return self.unread(running, core, (id, is_success), why, now),
        };
        if !running.is_reask() {
            self.source = Source::Upstream(id);
        }
        let is_whole_for_stream =
            running.forms.variant().has(Adaptation::Streaming) && core.request.stream && !self.is_stream();
        if is_whole_for_stream && is_success && parse_in_200(&body).is_none() {
            self.stream_whole(core, id);
        }
        // A first reply in the other form is taken as a stream before it comes here; an error of events stays one.
        let may_be_events = running.is_reask() || self.is_stream();
        let is_events = may_be_events && sniff::is_events(&body) == Some(true);
        let form = if is_events { Form::Streamed } else { Form::Whole };
        self.present = (id, form);
        self.judge_body(running, core, form, status, &body, now);
    }

    fn judge_body(
        &mut self,
        running: &mut Running,
        core: &mut Core,
        form: Form,
        status: u16,
        body: &Bytes,
        now: Now,
    ) {
        self.pipeline.begin(form, status);
        self.upstream = Upstream::Reading { ends_by_closing: false };
        self.push(running, core, body, now);
        if matches!(self.upstream, Upstream::Reading { .. }) {
            self.finish(running, core, now);
        }
    }

    /// A whole reply whose bytes could not be read.
    fn unread(
        &mut self,
        running: &mut Running,
        core: &mut Core,
        (id, is_success): (u32, bool),
        why: &'static str,
        now: Now,
    ) {
        if running.is_reask() {
            if self.handles_refused_reask(running, core, self.status, &UpstreamError::default(), now) {
                return;
            }
            if is_success {
                // It would go to the client unjudged.
                return self.fail(core, core.unreadable(), Break::Upstream);
            }
        } else if !is_success {
            running.reports.not_billed(core, &self.pipeline.usages());
        } else {
            note_unjudged(core, why);
            if self.pipeline.judging().is_strict() {
                return self.fail(core, ProxyError::ReplyUnjudged { why }, Break::Upstream);
            }
        }
        self.answer(core, Answer::AsItCame(id));
    }

    /// Reports the memory in use after bytes of a stream. Adding it up looks at every call, so it is done once in a while.
    fn count_memory(&mut self, core: &mut Core, bytes: usize) {
        self.uncounted += bytes;
        if self.uncounted >= COUNTED_EVERY && matches!(self.upstream, Upstream::Reading { .. }) {
            self.uncounted = 0;
            core.output(Output::Held(self.pipeline.kept_bytes()));
        }
    }

    /// Judges what came.
    fn push(&mut self, running: &mut Running, core: &mut Core, data: &Bytes, now: Now) {
        let are_texts = self.pipeline.push(data.clone(), now.ms, &mut self.out);
        if are_texts && !self.holds_head() {
            return self.give_parts_of(data, core);
        }
        if self.pipeline.is_done() {
            self.ended_at = Some(now.at);
        }
        if self.asks_anew(running, core, now) {
            return;
        }
        if self.pipeline.has_begun() {
            running.forms.forget_transcript();
        }
        if self.is_stream() {
            if self.waits_with_head() {
                return;
            }
            if self.pipeline.broken_off().is_none() {
                self.release_head(core);
            }
            self.give_parts_of(data, core);
            if let Some(why) = self.pipeline.broken_off() {
                let error = ProxyError::ReplyUnjudged { why: label(why) };
                self.fail(core, error, Break::Upstream);
            }
            self.start_effects(running, core, now);
            self.note_finished(running, core, now);
        }
    }

    /// Gives out the judged part of a stream; parts of `data` that follow each other as one piece.
    fn give_parts_of(&mut self, data: &Bytes, core: &mut Core) {
        rejoined(data, &mut self.out, |piece| core.output(Output::Emit(piece)));
    }

    /// Reports to the store what the client was handed, before the client can act on a finish.
    fn note_finished(&mut self, running: &mut Running, core: &mut Core, now: Now) {
        if !self.is_stream() {
            return;
        }
        let judge = &self.pipeline;
        if !judge.is_done() && !judge.choices().iter().any(|choice| choice.finish_shown) {
            return;
        }
        let shown = judge.shown();
        let finished = shown.iter().filter(|choice| choice.is_finished()).count();
        let all_finished = finished > 0 && finished == shown.len();
        let count = finished + usize::from(judge.is_done());
        if count > self.remembered {
            self.remembered = count;
            // Before what the client is given now. Choices that are not finished are left out: calls of theirs may
            // still be blocked.
            let given = core.take_outputs();
            let mut over = shown;
            over.retain(|choice| choice.is_finished() || judge.is_done());
            running.forms.accept(core);
            running.reports.remember(core, &running.reasks, &over, now.ms);
            running.reports.remember_sent(core);
            let usages = judge.usages();
            running.reports.account(core, (judge.judging(), &running.reasks), &usages, &over, now.ms);
            if judge.is_done() {
                remember_history(core, judge);
                running.reports.billed(core, &usages);
            }
            core.output_all(given);
        }
        // The client's next request does not have to wait, however long the upstream takes to end its stream.
        if all_finished {
            core.output(Output::Dismiss);
        }
    }

    /// Handles a reply that is an error: true if the exchange goes on without it, since another variant of the request
    /// is sent instead, or since the error was the whole reply. Otherwise the error goes to the client.
    fn asks_anew(&mut self, running: &mut Running, core: &mut Core, now: Now) -> bool {
        let Some(refusal) = self.pipeline.refusal() else { return false };
        let error = refusal.error.clone();
        let is_success = is_success(self.status);
        let said = error.status.filter(|_| is_success);
        if running.is_reask() {
            // An error without a status is a refusal of what was asked.
            let status = said.unwrap_or(if is_success { 400 } else { self.status });
            if self.handles_refused_reask(running, core, status, &error, now) {
                return true;
            }
        } else if running.forms.falls_back(core, said.unwrap_or(self.status), &error) {
            self.pipeline.set_options(running.options(core));
            self.ask(running, core);
            return true;
        }
        running.forms.give_up();
        running.reports.not_billed(core, &self.pipeline.usages());
        if self.answer_in_head(core) {
            return true;
        }
        if self.is_stream() {
            self.pipeline.let_refusal_stand(now.ms, &mut self.out);
            return false;
        }
        self.answer_refusal(core);
        true
    }

    /// The upstream's reply has ended, or no call waits any more.
    fn finish(&mut self, running: &mut Running, core: &mut Core, now: Now) {
        let ending = loop {
            let ending = self.pipeline.finish(now.ms, &mut self.out);
            if ending != Ending::Refused {
                break ending;
            }
            if self.asks_anew(running, core, now) {
                return;
            }
        };
        self.give(core);
        self.start_effects(running, core, now);
        match ending {
            Ending::Waits => {
                self.upstream = Upstream::Waiting;
                if !self.is_stream() {
                    // At once, since the client may leave meanwhile.
                    self.note(running, core, now);
                }
            }
            Ending::Reask { choice, hidden } if !core.is_observing() => {
                let usages = self.pipeline.usages();
                if self.is_stream() {
                    running.reports.account(
                        core,
                        (self.pipeline.judging(), &running.reasks),
                        &usages,
                        &self.pipeline.shown(),
                        now.ms,
                    );
                } else {
                    self.note(running, core, now);
                }
                let billed = usages.iter().map(Usage::billed).sum();
                running.reports.reply_ended(self.pipeline.judging(), billed);
                let next = running.next_step(&self.pipeline.shown(), choice, self.pipeline.judging());
                running.ask_again(core, choice, next, &hidden, self.pipeline.judging_mut());
                self.pipeline.continue_with(choice);
                self.ask(running, core);
            }
            Ending::BrokenOff(_) if !self.is_stream() && running.reasks.count() > 0 => {
                self.fail(core, core.unreadable(), Break::Upstream);
            }
            Ending::BrokenOff(why) => {
                note_unjudged(core, label(why));
                self.fail(core, ProxyError::ReplyUnjudged { why: label(why) }, Break::Upstream);
            }
            _ => self.complete(running, core, now),
        }
    }

    /// Everything has come that the client gets.
    fn complete(&mut self, running: &mut Running, core: &mut Core, now: Now) {
        running.forms.accept(core);
        let is_unread = |why: &Unjudged| matches!(why, Unjudged::NotJson | Unjudged::ReplyTooLong);
        if self.is_stream() || !self.pipeline.unjudged().iter().any(is_unread) {
            running.reports.remember(core, &running.reasks, &self.pipeline.shown(), now.ms);
        }
        if !self.is_stream() {
            remember_history(core, &self.pipeline);
        } else {
            // Where calls waited at the end of the upstream's stream, its last bytes were given out just now.
            self.note_finished(running, core, now);
            self.upstream = Upstream::Over;
            self.release_head(core);
            return core.output(Output::Done);
        }
        self.note(running, core, now);
        self.is_noted = true;
        let out = std::mem::take(&mut self.out);
        // After a re-ask the source is a reply that the client must not get as it came, even where nothing in the last
        // one is edited.
        let is_changed = self.pipeline.is_changed() || running.reasks.count() > 0;
        let answer = match (&self.source, is_changed) {
            (Source::Upstream(id), true) => Answer::Edited(*id, out),
            (Source::Upstream(id), false) => Answer::AsItCame(*id),
            (Source::Own(_), true) => Answer::Own(out),
            (Source::Own(body), false) => Answer::Own(vec![body.clone()]),
        };
        self.answer(core, answer);
    }

    /// Asks the upstream once more, in the present variant.
    fn ask(&mut self, running: &mut Running, core: &mut Core) {
        (self.upstream, self.ended_at) = (Upstream::AskedAgain, None);
        self.note_late_actions(core);
        let accepts = match self.form {
            Form::Streamed => Accepts::Streams,
            Form::Whole if running.is_reask() => Accepts::WholeReplies,
            Form::Whole => Accepts::UnannouncedStreams,
        };
        running.send(core, accepts);
    }

    /// Notes the outcome of calls; a client that left a stream has what it was given.
    pub(super) fn close(&mut self, running: &mut Running, core: &mut Core, now: Now) {
        if self.is_stream() && self.upstream != Upstream::Over {
            running.reports.remember(core, &running.reasks, &self.pipeline.shown(), now.ms);
        }
        if !self.is_noted {
            self.note(running, core, now);
        }
    }

    fn note(&mut self, running: &mut Running, core: &mut Core, now: Now) {
        for why in self.pipeline.unjudged() {
            note_unjudged(core, label(*why));
        }
        running.reports.note_judged(core, self.pipeline.judging(), now.ms);
        core.record.carried = self.pipeline.carried().to_vec();
        let judge = &self.pipeline;
        // For traces alone.
        core.record.response_model = if core.record.is_traced { judge.model() } else { None };
        let usages = judge.usages();
        running.reports.account(core, (judge.judging(), &running.reasks), &usages, &judge.shown(), now.ms);
        running.reports.billed(core, &usages);
    }

    /// The upstream refuses by its status to be asked again in the middle of a stream.
    pub(super) fn refused_stream(&mut self, running: &mut Running, core: &mut Core, body: &[u8], now: Now) {
        let (status, error) = (self.status, parse(body).unwrap_or_default());
        if running.is_reask() {
            if self.handles_refused_reask(running, core, status, &error, now) {
                return;
            }
        } else if running.forms.falls_back(core, status, &error) {
            self.pipeline.set_options(running.options(core));
            return self.ask(running, core);
        }
        running.reports.not_billed(core, &self.pipeline.usages());
        core.record.error = Some("reask_failed");
        if self.holds_head() {
            return self.answer_instead(core, status, body);
        }
        let body = core.error_in_stream(status, body);
        core.output(Output::Emit(self.pipeline.error_event(status, &body)));
        core.output(Output::BreakOff(Break::Upstream));
        self.upstream = Upstream::Over;
    }

    /// The upstream refused to be asked again; false where the client gets its error.
    pub(super) fn handles_refused_reask(
        &mut self,
        running: &mut Running,
        core: &mut Core,
        status: u16,
        error: &UpstreamError,
        now: Now,
    ) -> bool {
        match running.forms.after_refused_reask(
            core,
            (self.pipeline.judging_mut(), &mut running.reasks),
            status,
            error,
        ) {
            AfterRefusal::AskAgain => {
                self.pipeline.set_options(running.options(core));
                self.ask(running, core);
            }
            AfterRefusal::SayNoAnswer => self.say_no_answer(running, core, now),
            AfterRefusal::GiveError => return false,
        }
        true
    }

    /// Ends the reply with toolrein's own sentence, as if the upstream had said it.
    fn say_no_answer(&mut self, running: &mut Running, core: &mut Core, now: Now) {
        let model = core.request.model_name(&core.body).into_owned();
        let (key, created, usage) = (&core.identity.key, now.ms / 1000, core.request.include_usage);
        let handed = Handed { question: running.reports.context(), key, model: &model, created, usage };
        let body = core.dialect.says(self.form, NO_ANSWER, &handed);
        running.reports.not_billed(core, &self.pipeline.usages());
        self.status = OK;
        self.pipeline.expect_own();
        self.judge_body(running, core, self.form, OK, &body, now);
    }

    /// Gives out the judged part of a stream.
    pub(super) fn give(&mut self, core: &mut Core) {
        if self.is_stream() {
            if !self.out.is_empty() {
                self.release_head(core);
            }
            core.output_all(self.out.drain(..).map(Output::Emit));
        }
    }

    /// Whether what was judged waits with the head, since nothing has come yet that says anything.
    pub(super) fn waits_with_head(&mut self) -> bool {
        let Some(head) = &mut self.head else { return false };
        let fits = head.add(self.out.drain(..));
        fits && self.pipeline.is_at_head()
    }

    /// Has the last comment of a stream report what was done since its head went out.
    pub(super) fn note_late_actions(&mut self, core: &Core) {
        if self.is_stream() && !self.holds_head() {
            let late = core.record.actions.get(self.in_head..).unwrap_or_default();
            self.pipeline.judging_mut().set_late_actions(late);
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
        if self.pipeline.at_boundary() {
            let event = self.pipeline.own_error_event(&error.public_message(), error.code());
            core.output(Output::Emit(event));
        }
        error.note_in(&mut core.record);
        core.output(Output::BreakOff(how));
    }

    /// The answer for a whole reply that is the upstream's error.
    pub(super) fn answer_refusal(&mut self, core: &mut Core) {
        let (id, form) = self.present;
        let Some(Refusal { error, raw }) = self.pipeline.refusal() else { return };
        let answer = match core.restated(self.status, error, raw) {
            Some((status, body)) => Answer::Restated { id: Some(id), status, body },
            None if form == Form::Streamed => Answer::Edited(id, vec![raw.clone()]),
            None => Answer::AsItCame(id),
        };
        self.answer(core, answer);
    }

    /// Answers with the error in the first event of a stream whose head was not sent; false if it was.
    pub(super) fn answer_in_head(&mut self, core: &mut Core) -> bool {
        let Some(Refusal { error, raw }) = self.pipeline.refusal().filter(|_| self.holds_head()) else {
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
            core.output(Output::BeginStream { own: false });
            core.output_all(head.into_pieces().into_iter().map(Output::Emit));
        }
    }

    /// Another form of the request is answered by a stream, although a whole reply was asked for.
    pub(super) fn turn_to_stream(&mut self, core: &mut Core, ends_by_closing: bool) {
        core.output(Output::BeginStream { own: false });
        self.turn_streamed(core);
        self.upstream = Upstream::Reading { ends_by_closing };
    }

    /// The client's stream begins with the upstream's whole reply of this number, which is not an error.
    pub(super) fn stream_whole(&mut self, core: &mut Core, id: u32) {
        core.output(Output::BeginStreamOf(id));
        self.turn_streamed(core);
        (self.source, self.upstream) = (Source::Upstream(id), Upstream::AskedAgain);
    }

    fn turn_streamed(&mut self, core: &mut Core) {
        core.record.streamed = true;
        core.note_shown();
        self.pipeline.judging_mut().replace_body(core.copied_body());
        self.in_head = core.record.actions.len();
        self.form = Form::Streamed;
        self.pipeline.turn_to(Form::Streamed);
    }
}

/// Whether a status is a success.
pub(crate) fn is_success(status: u16) -> bool {
    (200..300).contains(&status)
}
