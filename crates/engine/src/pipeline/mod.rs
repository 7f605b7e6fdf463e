//! The reply pipeline of one client request, whatever its dialect: the order of decisions, what waits, the limits, asking
//! again, toolrein's own texts. A codec reads and writes the bytes. A whole reply is a stream of one frame. Untouched
//! frames go out as they came. Sends no request by itself.

mod bounds;
mod client_choice;
mod deciding;
mod queue;
mod texts;

pub use self::client_choice::{ClientChoice, next_of};

use self::deciding::{ChoiceJudge, Reading, has_open_call, has_unanswerable_call};
use self::queue::Queue;
use crate::effects::EffectResult;
use crate::judging::Judging;
use bytes::Bytes;
use dialects::AnyDialect;
use dialects::codec::{Frame, FrameKind, FramePart, NextReply, ReplyCodec, ReplyEvent, WriteContext};
use dialects::error::UpstreamError;
use dialects::reply::{Ending, Form, Limits, Options, Refusal, Unjudged};
use dialects::reply_choice::{ReplyChoice, Visibility, position_of};
use dialects::usage::Usage;
use dialects::usage_sum::Usages;
use dialects::variant::PlannedRequest;
use model::plan::decision::Decision;
use serde_json::Value;

/// The default status of a reply.
const OK: u16 = 200;

/// Judges the replies to one client request, re-asks included.
pub struct ReplyPipeline {
    judging: Box<Judging>,
    codec: Box<dyn ReplyCodec>,
    options: Options,
    form: Form,
    limits: Limits,
    phase: Phase,
    choices: Vec<ReplyChoice>,
    /// Output that the client has not got yet.
    queue: Queue,
    /// The choice that the present reply continues, after the first reply.
    continuing: Option<u32>,
    usage: Usages,
    /// The usage of an earlier reply, in a frame of its own, was held back, and no later one was given.
    owes_usage: bool,
    unjudged: Vec<Unjudged>,
    /// What is known of the reply may grow by so many bytes before its size is compared with the limit again.
    text_room: usize,
}

/// The phase of the present reply.
#[derive(Debug)]
enum Phase {
    /// Nothing relevant has come yet.
    Head,
    /// It began with the upstream's error, and the exchange decides what to do.
    Refused(Refusal),
    /// What comes is judged.
    Reading,
    /// It reported a failure: there is no re-ask, and toolrein adds nothing.
    Failed,
    /// It is no longer read, and passes through.
    Unjudged,
    /// The client gets nothing more: what follows can no longer be distinguished from what is blocked.
    BrokenOff(Unjudged),
    /// The upstream has marked its end.
    Done {
        failed: bool,
        /// The frame that marked the end, if calls before it wait.
        held: Option<Frame>,
        /// What came after it.
        after: Vec<Frame>,
        /// The model is asked again: what comes after it is left out.
        is_asked_again: bool,
    },
}

impl Phase {
    fn begin_reading(&mut self) {
        if matches!(self, Self::Head) {
            *self = Self::Reading;
        }
    }

    fn fail(&mut self) {
        match self {
            Self::Head | Self::Reading => *self = Self::Failed,
            Self::Done { failed, .. } => *failed = true,
            Self::Refused(_) | Self::Failed | Self::Unjudged | Self::BrokenOff(_) => {}
        }
    }

    fn has_failed(&self) -> bool {
        matches!(self, Self::Failed | Self::Done { failed: true, .. })
    }

    /// Whether nothing more of the reply is read, for now or for good.
    fn is_stopped(&self) -> bool {
        matches!(self, Self::Refused(_)) || self.leaves_out_rest()
    }

    /// Whether nothing more of the reply reaches the client.
    fn leaves_out_rest(&self) -> bool {
        matches!(self, Self::BrokenOff(_) | Self::Done { is_asked_again: true, .. })
    }
}

impl ReplyPipeline {
    /// A pipeline for a reply that the client gets in this form; the first upstream reply is expected in the same form.
    pub fn new(
        judging: impl Into<Box<Judging>>,
        dialect: AnyDialect,
        form: Form,
        limits: Limits,
        options: Options,
    ) -> Self {
        Self::with_codec(judging.into(), dialect.codec(form, limits), form, limits, options)
    }

    /// As [`Self::new`], with a codec for this form and these limits.
    pub(super) fn with_codec(
        judging: Box<Judging>,
        codec: Box<dyn ReplyCodec>,
        form: Form,
        limits: Limits,
        options: Options,
    ) -> Self {
        let mut pipeline = Self {
            judging,
            codec,
            options,
            form,
            limits,
            phase: Phase::Head,
            choices: Vec::new(),
            queue: Queue::default(),
            continuing: None,
            usage: Usages::default(),
            owes_usage: false,
            unjudged: Vec::new(),
            text_room: 0,
        };
        pipeline.codec.set_options(&pipeline.options);
        pipeline.begin(form, OK);
        pipeline
    }

    /// The choices as they were judged.
    pub fn choices(&self) -> &[ReplyChoice] {
        &self.choices
    }

    /// The usage of the last reply, unchanged.
    pub fn usage(&self) -> Option<Value> {
        self.usage.last()
    }

    /// Whether anything is held back for now.
    pub fn is_holding(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Judges the complete frames. Returns whether they were texts that went out as they came, and no bytes are left.
    fn read_on(&mut self, now_ms: u64, out: &mut Vec<Bytes>) -> bool {
        let mut are_texts = true;
        loop {
            while self.passes_texts() && self.codec.pass_text(&mut self.choices, out) {
                self.bound_text(now_ms, out);
                if self.codec.is_drained() {
                    return are_texts && matches!(self.phase, Phase::Reading);
                }
            }
            if self.phase.is_stopped() {
                return false;
            }
            let is_unjudged = matches!(self.phase, Phase::Unjudged);
            let Some(frame) = self.codec.next(&mut self.choices, is_unjudged) else { return false };
            (self.text_room, are_texts) = (0, false);
            self.take_frame(frame, now_ms, out);
        }
    }

    /// Whether a text of a stream goes out as it came: nothing waits and nothing acts.
    fn passes_texts(&self) -> bool {
        matches!(self.phase, Phase::Reading)
            && self.form == Form::Streamed
            && self.queue.is_empty()
            && self.choices.iter().all(|choice| choice.calls().is_empty())
            && !self.acts()
    }

    fn take_frame(&mut self, mut frame: Frame, now_ms: u64, out: &mut Vec<Bytes>) {
        if frame.is_doubtful {
            self.note(Unjudged::Ambiguous);
        }
        match std::mem::replace(&mut frame.kind, FrameKind::Idle) {
            _ if matches!(self.phase, Phase::Unjudged) => self.pass(Frame::idle(frame.raw), now_ms, out),
            FrameKind::Part => {
                frame.kind = FrameKind::Part;
                self.take_part(frame, now_ms, out);
            }
            FrameKind::Error { error, may_be_reply } => {
                self.take_error(frame, *error, may_be_reply, now_ms, out);
            }
            FrameKind::End => self.take_end(Frame { kind: FrameKind::End, ..frame }, now_ms, out),
            kind @ (FrameKind::Idle | FrameKind::Head) => {
                self.note_usage(&frame);
                self.pass(Frame { kind, ..frame }, now_ms, out);
            }
            FrameKind::Forbidden(why) => self.break_off(why),
            FrameKind::Dropped => {
                self.phase.begin_reading();
                (0..self.choices.len()).for_each(|at| self.judge_choice(at, now_ms).advance());
                self.drain(out);
            }
            FrameKind::Unread(why) => self.take_unread(why, frame.raw, now_ms, out),
        }
    }

    fn take_error(
        &mut self,
        frame: Frame,
        error: UpstreamError,
        may_be_reply: bool,
        now_ms: u64,
        out: &mut Vec<Bytes>,
    ) {
        self.usage.note_error(&frame.raw);
        if may_be_reply && (self.judging.is_strict() || self.continuing.is_some()) {
            self.break_off(Unjudged::NotJson);
        } else if matches!(self.phase, Phase::Head) {
            self.phase = Phase::Refused(Refusal { error, raw: frame.raw });
        } else {
            self.phase.fail();
            self.pass(frame, now_ms, out);
        }
    }

    /// Takes a frame that cannot be read, or that clients may read differently.
    fn take_unread(&mut self, why: Unjudged, raw: Bytes, now_ms: u64, out: &mut Vec<Bytes>) {
        self.phase.begin_reading();
        let is_kept_back = match why {
            // The unread body would have to become part of the client's reply.
            _ if self.codec.is_body() && self.continuing.is_some() => true,
            // A body that cannot become a stream.
            Unjudged::NotJson | Unjudged::ReplyTooLong
                if self.codec.is_body() && self.form == Form::Streamed =>
            {
                true
            }
            Unjudged::NotJson => self.judging.is_strict(),
            Unjudged::EventTooLong => !self.may_pass_unjudged(now_ms),
            Unjudged::Ambiguous | Unjudged::Unanswerable | Unjudged::ReplyTooLong | Unjudged::HeldTooMuch => {
                return self.escape(why, raw, now_ms, out);
            }
        };
        if is_kept_back {
            return self.break_off(why);
        }
        self.note(why);
        self.pass(Frame::idle(raw), now_ms, out);
    }

    /// Takes a part of the reply, and decides on its calls as far as possible.
    fn take_part(&mut self, frame: Frame, now_ms: u64, out: &mut Vec<Bytes>) {
        self.phase.begin_reading();
        if self.form == Form::Whole && frame.is_later {
            let choice = frame.parts().next().map(|part| part.choice);
            choice.into_iter().for_each(|choice| self.queue.drop_later_reply(choice));
        }
        let reading = self.take_events(&frame, now_ms, out);
        match reading {
            Reading::Forbidden => return self.break_off(Unjudged::Ambiguous),
            Reading::Unjudged if self.form == Form::Streamed => {
                return self.escape(Unjudged::Ambiguous, frame.raw, now_ms, out);
            }
            Reading::AsJudged | Reading::Unjudged => {}
        }
        if reading == Reading::Unjudged || frame.is_ambiguous {
            // The reply is complete, so it may pass if nothing in it had to be blocked.
            let acts = self.continuing.is_some() || self.choices.iter().any(ReplyChoice::is_edited);
            if self.judging.is_strict() || (acts && !self.judging.observes()) {
                return self.break_off(Unjudged::Ambiguous);
            }
            self.note(Unjudged::Ambiguous);
        }
        if self.holds_fixed_calls(&frame) {
            return self.break_off(Unjudged::Ambiguous);
        }
        if self.choices.iter().any(has_unanswerable_call) && !self.judging.observes() {
            return self.break_off(Unjudged::Unanswerable);
        }
        let has_error = frame.events.iter().any(|event| matches!(event, ReplyEvent::Error));
        if frame.ends && self.form == Form::Streamed {
            if has_error {
                self.phase.fail();
            }
            return self.take_end(frame, now_ms, out);
        }
        let (choices, observes) = (&self.choices, self.judging.observes());
        if self.form == Form::Streamed && self.queue.is_empty() && (observes || is_settled(&frame, choices)) {
            self.give(&frame, out);
        } else {
            self.queue.push(frame);
            // What goes out at once is not held.
            self.drain(out);
        }
        self.bound(now_ms, out);
        if has_error {
            self.phase.fail();
        }
    }

    /// Takes what a frame says, and returns what a client may read then.
    fn take_events(&mut self, frame: &Frame, now_ms: u64, out: &mut Vec<Bytes>) -> Reading {
        if frame.usage.as_ref().is_some_and(|usage| usage.is_alone) {
            self.end_by_usage(now_ms, out);
        }
        self.note_usage(frame);
        let (payload, parts) = (frame.payload(), frame.parts());
        parts.fold(Reading::AsJudged, |reading, part| self.take_choice(part, payload, now_ms).max(reading))
    }

    /// Notes the usage that a frame reports: some protocols report a part of it in the head.
    fn note_usage(&mut self, frame: &Frame) {
        let Some(usage) = &frame.usage else { return };
        let payload = frame.payload();
        let model = usage.model.map(|model| model.of(payload));
        usage.reports.iter().for_each(|report| self.usage.note(report.of(payload), model));
    }

    /// Takes what a frame says of one choice, and returns what a client may read then.
    fn take_choice(&mut self, part: FramePart<'_>, payload: &[u8], now_ms: u64) -> Reading {
        let at = self.position_of(part.choice);
        let (mut reading, mut has_ended) = (Reading::AsJudged, self.form == Form::Whole);
        for event in part.events {
            match *event {
                ReplyEvent::Text(text) => self.choices[at].add_text(text.of(payload)),
                ReplyEvent::OtherContent => self.choices[at].spoke_otherwise = true,
                ReplyEvent::Call(piece) => {
                    reading = reading.max(self.judge_choice(at, now_ms).take_piece(&piece));
                }
                ReplyEvent::Escape => reading = reading.max(Reading::Unjudged),
                ReplyEvent::Finish { is_cut } => {
                    // Usage is the sum of all choices.
                    let is_used_up = self.choices.len() == 1 && self.options.is_used_up(&self.usage);
                    self.choices[at].is_cut |= is_cut || is_used_up;
                    has_ended = true;
                }
                _ => {}
            }
        }
        if has_ended {
            self.choices[at].show_waiting_texts();
            self.choices[at].finish_came = true;
            self.judge_choice(at, now_ms).finish_calls();
        } else {
            self.judge_choice(at, now_ms).advance();
        }
        reading
    }

    /// Whether calls of a frame must not reach the client and cannot be left out of it.
    fn holds_fixed_calls(&self, frame: &Frame) -> bool {
        let is_fixed = frame.events.iter().any(|event| matches!(event, ReplyEvent::Fixed));
        is_fixed
            && !self.judging.observes()
            && !frame.calls().all(|(choice, piece)| {
                self.choice(choice).is_some_and(|choice| choice.calls()[piece.call as usize].is_released())
            })
    }

    fn choice(&self, index: u32) -> Option<&ReplyChoice> {
        self.choices.iter().find(|choice| choice.index == index)
    }

    /// Some providers send no finish; usage alone comes after everything else, if no call is incomplete.
    fn end_by_usage(&mut self, now_ms: u64, out: &mut Vec<Bytes>) {
        if !self.choices.iter().any(has_open_call) {
            self.finish_choices(now_ms, out);
        }
        self.choices.iter_mut().for_each(|choice| choice.finish_came = true);
    }

    fn position_of(&mut self, choice: u32) -> usize {
        position_of(&mut self.choices, choice, self.form)
    }

    fn judge_choice(&mut self, at: usize, now_ms: u64) -> ChoiceJudge<'_> {
        ChoiceJudge { choice: &mut self.choices[at], judging: &mut self.judging, now_ms }
    }

    fn take_end(&mut self, frame: Frame, now_ms: u64, out: &mut Vec<Bytes>) {
        self.finish_choices(now_ms, out);
        let failed = self.phase.has_failed();
        if failed {
            self.settle_all();
            self.drain(out);
        }
        let is_waiting = self.is_waiting();
        let is_asked_again = !is_waiting && self.is_pending() && !failed;
        if !is_waiting && !is_asked_again {
            self.give_end(&frame, out);
        }
        let held = Some(frame).filter(|_| is_waiting);
        self.phase = Phase::Done { failed, held, after: Vec::new(), is_asked_again };
    }

    /// Gives out the frame that ends a stream, after what toolrein adds.
    fn give_end(&mut self, frame: &Frame, out: &mut Vec<Bytes>) {
        if matches!(frame.kind, FrameKind::End) {
            self.close_choices(out);
        } else if self.acts() {
            self.write_before(frame, out);
        }
        self.write_owed_usage(out);
        self.write_remark(out);
        self.forward(frame, out);
    }

    /// Gives a frame out that decides nothing, in order after what is held.
    fn pass(&mut self, frame: Frame, now_ms: u64, out: &mut Vec<Bytes>) {
        // What keeps the client's connection alive does not wait for a person, nor for time.
        let passes_all = matches!(frame.kind, FrameKind::Idle) && self.is_waiting();
        match &mut self.phase {
            Phase::Done { held: Some(_), after, .. } => after.push(frame),
            _ if self.queue.is_empty() || passes_all => {
                self.queue.note_passed();
                self.forward(&frame, out);
            }
            _ => {
                self.queue.push(frame);
                self.bound(now_ms, out);
            }
        }
    }

    /// Whether anything is left out, added or written anew.
    fn acts(&self) -> bool {
        let adds = self.continuing.is_some() || self.options.cut_usage || self.options.preface.is_some();
        !self.judging.observes() && (adds || self.choices.iter().any(ReplyChoice::is_edited))
    }

    /// Gives out every frame of a stream whose calls are all decided on, in order within each choice.
    fn drain(&mut self, out: &mut Vec<Bytes>) {
        while self.form == Form::Streamed
            && let (choices, observes) = (&self.choices, self.judging.observes())
            && let Some(frame) = self.queue.take_free(|frame| observes || is_settled(frame, choices))
        {
            self.give(&frame, out);
        }
    }

    /// Gives out one frame of a stream.
    fn give(&mut self, frame: &Frame, out: &mut Vec<Bytes>) {
        if self.acts() {
            self.write_before(frame, out);
        }
        self.forward(frame, out);
    }

    fn forward(&mut self, frame: &Frame, out: &mut Vec<Bytes>) {
        let context = self.write_context();
        if let Some(usage) = &frame.usage {
            // Clients that get no frame of usage alone may not expect one.
            self.owes_usage = context.hold_usage && usage.is_alone;
        }
        self.codec.forward(frame, &self.choices, &context, out);
        for part in frame.parts() {
            if let Some(choice) = self.choices.iter_mut().find(|choice| choice.index == part.choice) {
                part.note_given(choice, |text| text.of(frame.payload()));
            }
        }
    }

    /// Gives out the whole reply.
    fn give_whole(&mut self, out: &mut Vec<Bytes>) {
        let is_part = |frame: &Frame| matches!(frame.kind, FrameKind::Part);
        if !self.queue.front().is_some_and(is_part) {
            return;
        }
        let frames = self.queue.take_all();
        if self.acts() {
            let has_failed = frames.last().is_some_and(Frame::reports_failure);
            (0..self.choices.len()).for_each(|at| self.write_all_texts(at, has_failed, out));
        }
        let context = self.write_context();
        self.codec.forward_whole(&frames, &self.choices, &context, out);
    }

    fn write_context(&self) -> WriteContext {
        let acts = self.acts();
        let usage = if acts { self.usage.sum() } else { None };
        WriteContext { acts, hold_usage: acts && self.is_pending(), usage }
    }

    /// Settles all held calls: nobody can be asked about them.
    fn settle_all(&mut self) {
        for (id, decision) in self.judging.settle_all() {
            self.choices.iter_mut().for_each(|choice| choice.settle(id, &decision));
        }
    }

    /// Decides on everything that remains, and gives it out.
    fn finish_choices(&mut self, now_ms: u64, out: &mut Vec<Bytes>) {
        for at in 0..self.choices.len() {
            self.judge_choice(at, now_ms).finish_calls();
        }
        self.drain(out);
    }

    fn ending(&mut self, out: &mut Vec<Bytes>) -> Ending {
        let failed = self.phase.has_failed();
        if failed {
            self.settle_all();
            self.drain(out);
        }
        if self.is_waiting() {
            return Ending::Waits;
        }
        let ids = self.judging.known_ids();
        let hidden = |choice: &ReplyChoice| Some((choice.index, self.codec.hidden_exchange(choice, ids)?));
        let is_over = failed || (self.form == Form::Streamed && self.codec.is_cut());
        let pending = self.choices.iter().find(|choice| self.is_asked_again(choice)).filter(|_| !is_over);
        if let Some((choice, hidden)) = pending.and_then(hidden) {
            return Ending::Reask { choice, hidden };
        }
        match self.form {
            Form::Streamed => self.end_stream(out),
            Form::Whole => self.give_whole(out),
        }
        Ending::Complete
    }

    /// Ends a stream without further replies.
    fn end_stream(&mut self, out: &mut Vec<Bytes>) {
        let (end, after) = match &mut self.phase {
            Phase::Done { held, after, .. } => (held.take(), std::mem::take(after)),
            _ => (None, Vec::new()),
        };
        if let Some(end) = end {
            self.give_end(&end, out);
            after.iter().for_each(|frame| self.forward(frame, out));
        } else if self.codec.is_cut() {
            if !self.phase.has_failed() && !self.is_done() {
                self.codec.write_cut(out);
            }
        } else if !self.is_done() {
            self.close_choices(out);
            self.write_owed_usage(out);
            self.write_remark(out);
        }
    }

    /// Whether all calls of a choice were blocked, so that it is asked again. Not after a finish that the client has:
    /// nothing could follow that.
    fn is_asked_again(&self, choice: &ReplyChoice) -> bool {
        choice.is_wholly_blocked() && !choice.finish_shown && !self.judging.observes()
    }

    fn is_pending(&self) -> bool {
        self.choices.iter().any(|choice| self.is_asked_again(choice))
    }
}

impl ReplyPipeline {
    /// The judge of its calls.
    pub fn judging(&self) -> &Judging {
        &self.judging
    }

    /// As [`Self::judging`], mutable.
    pub fn judging_mut(&mut self) -> &mut Judging {
        &mut self.judging
    }

    /// Changes what toolrein added for the client, with the variant of the request.
    pub fn set_options(&mut self, options: Options) {
        self.codec.set_options(&options);
        self.options = options;
    }

    /// Sets the form and the HTTP status of the next reply.
    pub fn begin(&mut self, form: Form, status: u16) {
        self.phase = Phase::Head;
        self.codec.begin(NextReply {
            form,
            status,
            continues: self.continuing,
            is_strict: self.judging.is_strict(),
            observes: self.judging.observes(),
            markup: self.judging.is_landing().then(|| self.judging.known_tools()),
            tools: self.options.narrows_choice.then(|| self.judging.known_tools()),
            hosts_shell: self.judging.hosts_shell(),
        });
    }

    /// Changes the form of the client's reply. Only before anything was judged.
    pub fn turn_to(&mut self, form: Form) {
        self.form = form;
        self.codec.turn_to(form);
        self.begin(form, OK);
    }

    /// Takes the next bytes of the upstream and appends the client's bytes to `out`: those of a stream at once, those
    /// of a whole reply when it is complete. Returns whether they were texts alone, which changed nothing else: no call,
    /// error, finish or usage came, and the reply goes on.
    pub fn push(&mut self, bytes: Bytes, now_ms: u64, out: &mut Vec<Bytes>) -> bool {
        if self.phase.leaves_out_rest() {
            return false;
        }
        self.codec.push(bytes);
        self.read_on(now_ms, out)
    }

    /// Called when the upstream's reply has ended as it should, or all its held calls are settled.
    pub fn finish(&mut self, now_ms: u64, out: &mut Vec<Bytes>) -> Ending {
        self.read_on(now_ms, out);
        if !self.phase.is_stopped() {
            self.codec.end();
            self.read_on(now_ms, out);
        }
        let (read, waits) = (out.len(), self.queue.has_last());
        match &self.phase {
            Phase::Refused(_) => return Ending::Refused,
            Phase::BrokenOff(why) => return Ending::BrokenOff(*why),
            _ => {}
        }
        self.choices.iter_mut().for_each(ReplyChoice::show_waiting_texts);
        self.finish_choices(now_ms, out);
        if self.choices.iter().any(has_unanswerable_call) && !self.judging.observes() {
            self.break_off(Unjudged::Unanswerable);
            return Ending::BrokenOff(Unjudged::Unanswerable);
        }
        // Where the last frame was given out.
        let end = if waits { out.len() } else { read };
        let ending = self.ending(out);
        if self.codec.take_open() {
            self.end_event(end, ending != Ending::Complete, out);
        }
        ending
    }

    /// Ends the event that the upstream left open: it waits, or was given out before the position `at` in `out`. What follows
    /// is not part of it.
    fn end_event(&mut self, at: usize, is_followed: bool, out: &mut Vec<Bytes>) {
        if self.queue.has_last() {
            self.queue.end_last();
        } else if is_followed || out.len() > at {
            let is_line = out[..at].last().is_some_and(|piece| piece.ends_with(b"\n"));
            out.insert(at, Bytes::from_static(end_of_event(is_line)));
        }
    }

    /// Goes on with a further reply to the same client request, for the choice that is asked again.
    pub fn continue_with(&mut self, choice: u32) {
        let at = self.position_of(choice);
        self.codec.end_reply(&self.choices[at]);
        self.choices[at].begin_next_reply();
        self.continuing = Some(choice);
        self.usage.begin_next_reply();
        self.begin(self.form, OK);
    }

    /// Whether anything of a choice has come: the upstream has accepted the request.
    pub fn has_begun(&self) -> bool {
        !self.choices.is_empty()
    }

    /// The upstream's error, if the present reply is one.
    pub fn refusal(&self) -> Option<&Refusal> {
        match &self.phase {
            Phase::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// Gives the upstream's error out, and whatever came after it.
    pub fn let_refusal_stand(&mut self, now_ms: u64, out: &mut Vec<Bytes>) {
        if !matches!(self.phase, Phase::Refused(_)) {
            return;
        }
        if let Phase::Refused(Refusal { raw, .. }) = std::mem::replace(&mut self.phase, Phase::Failed) {
            // The error of a re-ask replaces a whole reply.
            self.queue.clear();
            out.push(self.codec.forward_error(raw));
        }
        self.read_on(now_ms, out);
    }

    /// The event that reports an upstream's refusal, of this status and with this body, in the client's stream.
    pub fn error_event(&mut self, status: u16, body: &[u8]) -> Bytes {
        self.codec.error_event(status, body)
    }

    /// The event that reports toolrein's own error in the client's stream.
    pub fn own_error_event(&mut self, message: &str, code: &str) -> Bytes {
        self.codec.own_error_event(message, code)
    }

    /// The heartbeat that keeps the client of a stream waiting.
    pub fn heartbeat(&mut self) -> Bytes {
        self.codec.heartbeat()
    }

    /// Takes the result of the effect that the call of this number waits for, and gives out what waited for it. Returns the
    /// decision on the call; `None` if it does not wait.
    pub(crate) fn finish_effect(
        &mut self,
        call: u32,
        result: &EffectResult,
        out: &mut Vec<Bytes>,
    ) -> Option<Decision> {
        let decision = self.judging.finish_effect(call, result)?;
        self.choices.iter_mut().for_each(|choice| choice.settle(call, &decision));
        // A question to a person comes before the rest, when all calls are decided on.
        if !matches!(decision, Decision::Ask { .. }) {
            self.drain(out);
        }
        Some(decision)
    }

    /// The choices in the client's view.
    pub fn shown(&self) -> Vec<ClientChoice<'_>> {
        let (codec, ids) = (&*self.codec, self.judging.known_ids());
        self.choices.iter().map(|choice| ClientChoice::new(choice, codec, ids)).collect()
    }

    /// The next reply is toolrein's own, in the model's place: no request can continue from it at the upstream.
    pub fn expect_own(&mut self) {
        self.codec.expect_own();
    }

    /// The name under which the client may continue from this reply, and what is known of the conversation then, for
    /// [`Dialect::upstream_history`](dialects::Dialect::upstream_history); `None` where the client sends its history itself.
    pub fn history(&self, planned: &PlannedRequest<'_>) -> Option<(String, Bytes)> {
        let may_continue = !self.phase.has_failed();
        may_continue.then(|| self.codec.history(planned, &self.choices)).flatten()
    }

    /// The ids of items with which the conversation may be known to end where a later request only refers to them.
    pub fn last_items(&self) -> Vec<String> {
        self.codec.last_items(&self.choices)
    }

    /// The kinds of items that it carried unjudged, since no client runs them: one for each item, of
    /// [`CARRIED`](dialects::CARRIED).
    pub fn carried(&self) -> &[&'static str] {
        self.codec.carried()
    }

    /// The usage of each reply that reported one.
    pub fn usages(&self) -> Vec<Usage> {
        self.usage.tokens()
    }

    /// The model that the last reply with a usage names.
    pub fn model(&self) -> Option<String> {
        self.usage.model()
    }

    /// Bytes in memory: what is held back or incomplete, and what is known of the choices.
    pub fn kept_bytes(&self) -> usize {
        let choices: usize = self.choices.iter().map(ReplyChoice::size).sum();
        self.codec.unread_bytes() + self.codec.known_bytes() + self.queue.memory() + choices
    }

    /// Whether calls wait for a person's decision.
    pub fn is_waiting(&self) -> bool {
        self.choices.iter().any(ReplyChoice::is_waiting)
    }

    /// Whether part of this reply does not reach the client, for now or for good.
    pub fn is_hiding(&self) -> bool {
        self.is_holding() || self.choices.iter().any(ReplyChoice::is_edited)
    }

    /// Whether nothing has come of the present reply that says anything.
    pub fn is_at_head(&self) -> bool {
        matches!(self.phase, Phase::Head)
    }

    /// Whether toolrein may write an event of its own now.
    pub fn at_boundary(&self) -> bool {
        self.codec.at_boundary()
    }

    /// Whether the upstream has marked the reply as ended.
    pub fn is_done(&self) -> bool {
        matches!(self.phase, Phase::Done { .. })
    }

    /// Whether the client gets other bytes than the upstream's.
    pub fn is_changed(&self) -> bool {
        self.codec.is_changed()
    }

    /// Why something passed unjudged or was broken off, each reason once.
    pub fn unjudged(&self) -> &[Unjudged] {
        &self.unjudged
    }

    /// Why the client must not get any more of the reply, if that is so.
    pub fn broken_off(&self) -> Option<Unjudged> {
        match self.phase {
            Phase::BrokenOff(why) => Some(why),
            _ => None,
        }
    }
}

/// Whether every call and text of a frame is decided on.
fn is_settled(frame: &Frame, choices: &[ReplyChoice]) -> bool {
    frame.parts().all(|part| {
        choices.iter().find(|choice| choice.index == part.choice).is_some_and(|choice| {
            part.calls().all(|piece| choice.calls()[piece.call as usize].is_settled())
                && knows_texts(choice, part)
        })
    })
}

/// Whether it is known of every text of a part whether the client sees it.
fn knows_texts(choice: &ReplyChoice, part: FramePart<'_>) -> bool {
    part.parts_of_texts().all(|text| choice.visibility(text) != Visibility::Waiting)
}

/// What ends the event that the upstream left open, where something follows it; `is_line`: its last line has ended.
fn end_of_event(is_line: bool) -> &'static [u8] {
    // The first of the two turns a single CR into a CR LF.
    if is_line { b"\n" } else { b"\n\n" }
}

#[cfg(test)]
pub(crate) mod tests;
