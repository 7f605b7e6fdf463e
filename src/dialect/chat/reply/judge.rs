//! The event loop of a reply: handles errors, the end, text, and chunks whose calls are judged. What clients may read
//! differently is refused or passed on unjudged by `bounds`.

use super::edit::{CallAt, Continuation};
use super::markup::Cleaner;
use super::queue::{Held, Said};
use super::reader::{Chunk, Event, Kind, whole_event};
use super::writer::framed;
use super::{Form, OK, Phase, Refusal, ReplyJudge, Unjudged};
use crate::dialect::chat::choice::{AddedCall, ChoiceState};
use crate::dialect::chat::completion::{Choice, Reply};
use crate::dialect::error::UpstreamError;
use crate::dialect::error::friendly::friendly_event;
use crate::dialect::judge::{CallJudge, remark};
use crate::dialect::reply::Reply as _;
use bytes::Bytes;
use model::call::ToolCall;
use std::collections::BTreeSet;
use wire::json::{decode, quote};

impl<J: CallJudge> ReplyJudge<J> {
    /// Judges the complete events.
    pub(super) fn read_on(&mut self, now_ms: u64, out: &mut Vec<Bytes>) {
        while !self.phase.is_stopped()
            && let Some(event) = self.reader.next(matches!(self.phase, Phase::Unjudged))
        {
            self.event(event, now_ms, out);
        }
    }

    fn event(&mut self, event: Event, now_ms: u64, out: &mut Vec<Bytes>) {
        let Event { raw, kind } = self.without_markup(event, now_ms, out);
        match kind {
            _ if matches!(self.phase, Phase::BrokenOff(_)) => {}
            _ if matches!(self.phase, Phase::Unjudged) => self.pass(raw, now_ms, out),
            Kind::Chunk(chunk) => self.chunk(raw, chunk, now_ms, out),
            Kind::Error { error, may_be_reply } => {
                self.usage.note_error(&raw);
                let raw = self.for_people(raw, &error);
                if may_be_reply && (self.judging.is_strict() || self.continuing.is_some()) {
                    self.break_off(Unjudged::NotJson);
                } else if matches!(self.phase, Phase::Head) {
                    self.phase = Phase::Refused(Refusal { error, raw });
                } else {
                    self.phase.fail();
                    self.pass(raw, now_ms, out);
                }
            }
            Kind::Done => self.done(raw, now_ms, out),
            Kind::Opaque => self.pass(raw, now_ms, out),
            Kind::Unread(why) => self.unread(why, raw, now_ms, out),
        }
    }

    /// The event with an error, as people get it.
    fn for_people(&self, raw: Bytes, error: &UpstreamError) -> Bytes {
        let is_event = self.options.friendly && self.form == Form::Streamed;
        is_event.then(|| friendly_event(&raw, error)).flatten().unwrap_or(raw)
    }

    /// Handles an event that cannot be read, or that clients may read differently.
    fn unread(&mut self, why: Unjudged, raw: Bytes, now_ms: u64, out: &mut Vec<Bytes>) {
        self.phase.begin_reading();
        let is_kept_back = match why {
            // The unread body would have to become part of the client's reply.
            _ if self.reader.is_body() && self.continuing.is_some() => true,
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
        self.pass(raw, now_ms, out);
    }

    fn chunk(&mut self, raw: Bytes, mut chunk: Chunk, now_ms: u64, out: &mut Vec<Bytes>) {
        self.phase.begin_reading();
        if self.form == Form::Streamed && chunk.reply.ambiguous {
            return self.escape(Unjudged::Ambiguous, raw, now_ms, out);
        }
        if self.form == Form::Whole && !self.prepare_body(&mut chunk.reply) {
            return self.break_off(Unjudged::NotJson);
        }
        self.note_head(&chunk, now_ms, out);
        let (mut calls, mut escapes) = (Vec::new(), false);
        for (at, choice) in chunk.reply.choices.iter().enumerate() {
            escapes |= self.choice(at, choice, &chunk.data, now_ms, &mut calls);
        }
        if self.form == Form::Streamed && escapes {
            return self.escape(Unjudged::Ambiguous, raw, now_ms, out);
        }
        if escapes || chunk.reply.ambiguous {
            // The reply is complete, so it may pass if nothing in it had to be blocked.
            let acts = self.continuing.is_some() || self.choices.iter().any(ChoiceState::is_edited);
            if self.judging.is_strict() || (acts && !self.judging.observes()) {
                return self.break_off(Unjudged::Ambiguous);
            }
            self.note(Unjudged::Ambiguous);
        }
        let shows_error = chunk.shows_error;
        let continuing = self.continuing;
        self.queue.push(Held { raw, said: Some(Said { chunk, calls, continuing }) });
        self.bound(now_ms, out);
        self.drain(out);
        if shows_error {
            self.phase.fail();
        }
    }

    /// Adds the choices of a whole reply; false if it is not the reply that the upstream was asked for.
    fn prepare_body(&mut self, reply: &mut Reply) -> bool {
        if let Some(place) = self.continuing {
            self.queue.forget(place);
            reply.choices.truncate(1);
            return !reply.choices.is_empty();
        }
        self.choices = own_indexes(&reply.choices).into_iter().map(ChoiceState::new).collect();
        true
    }

    /// Notes what a chunk contains besides its choices.
    fn note_head(&mut self, chunk: &Chunk, now_ms: u64, out: &mut Vec<Bytes>) {
        let Chunk { data, reply, .. } = chunk;
        if self.head.is_none() && !reply.choices.is_empty() && self.form == Form::Streamed {
            self.head = Some(Continuation::of(reply, data));
        }
        if reply.usage.is_some() && reply.choices.is_empty() {
            // Some providers send no finish reason; usage alone comes after everything else, if no call is incomplete.
            if !self.choices.iter().any(ChoiceState::has_open_call) {
                self.finish_choices(now_ms, out);
            }
            self.choices.iter_mut().for_each(|state| state.finish_came = true);
        }
        for usage in reply.reported_usages() {
            let model = reply.member(data, b"model").map(|member| member.value.of(data));
            self.usage.note(usage.of(data), model);
        }
    }

    /// Adds an event's part of one choice and decides on its calls as far as possible; true if a client may now read a
    /// call that was not judged.
    fn choice(
        &mut self,
        at: usize,
        choice: &Choice,
        data: &[u8],
        now_ms: u64,
        calls: &mut Vec<CallAt>,
    ) -> bool {
        let place = self.known_place(at, choice.index);
        // Usage is the sum of all choices.
        let is_used_up = self.choices.len() == 1 && self.options.is_used_up(&self.usage);
        let (state, form, strict) = (&mut self.choices[place], self.form, self.judging.is_strict());
        state.next_event();
        state.add_text(&choice.delta, data);
        let mut escapes = false;
        let mut beside: Vec<(usize, &ToolCall)> = Vec::new();
        for (delta, call) in choice.calls_by_form() {
            let is_beside = delta >= choice.delta.calls.len();
            if state.is_placeholder(call, form == Form::Whole || is_beside, data) {
                continue;
            }
            let repeated = match form {
                Form::Streamed => state.repeated_delta(call, &beside, data),
                Form::Whole => state.repeated(call, &beside, data),
            };
            let differs = call.ambiguous && !strict;
            let added = match (repeated, form) {
                (Some(known), _) => AddedCall::beside((known, false), false),
                _ if is_beside => AddedCall::beside(state.add_call_beside(call, data, strict), differs),
                (None, Form::Streamed) => state.add_call(call, data, &mut self.judging, now_ms),
                (None, Form::Whole) => {
                    AddedCall::beside((state.add_whole_call(call, data, strict), true), differs)
                }
            };
            if repeated.is_none() {
                beside.push((added.call, call));
            }
            escapes |= added.escapes;
            let AddedCall { call, carries, begins, .. } = added;
            calls.push(CallAt { choice: at, delta, call, carries, begins });
        }
        escapes |= state.ceases_to_repeat();
        if let Some(finish) = choice.finish {
            state.ends_by(&decode(finish, data));
        }
        if choice.finish.is_some() && is_used_up {
            state.ends_by("length");
        }
        if choice.finish.is_some() || form == Form::Whole {
            state.finish_came = true;
            state.finish_calls(&mut self.judging, now_ms);
        }
        escapes
    }

    /// The position of the choice with the upstream's `index`, which is at the position `at` in its event: a further
    /// reply continues one choice only, and the choices of a whole reply stay in order. A new last position if it is
    /// unknown.
    pub(super) fn place(&self, continuing: Option<usize>, at: usize, index: u32) -> usize {
        match (continuing, self.form) {
            (Some(place), _) => place,
            (None, Form::Whole) => at,
            (None, Form::Streamed) => {
                let known = self.choices.iter().position(|state| state.index == index);
                known.unwrap_or(self.choices.len())
            }
        }
    }

    fn known_place(&mut self, at: usize, index: u32) -> usize {
        let place = self.place(self.continuing, at, index);
        if place < self.choices.len() { place } else { self.add_choice(index) }
    }

    fn done(&mut self, raw: Bytes, now_ms: u64, out: &mut Vec<Bytes>) {
        self.say_held_text(now_ms, out);
        match self.phase {
            Phase::BrokenOff(_) => return,
            Phase::Unjudged => return self.pass(raw, now_ms, out),
            _ => {}
        }
        self.finish_choices(now_ms, out);
        let failed = self.phase.has_failed();
        if failed {
            self.settle_all();
            self.drain(out);
        }
        self.phase = Phase::Done { failed, held: None };
        if self.is_waiting() {
            self.phase = Phase::Done { failed, held: Some(raw) };
        } else if !self.is_pending() || failed {
            self.close_choices(out);
            out.extend(remark(&self.judging));
            self.pass(raw, now_ms, out);
        }
    }

    /// Gives bytes out unchanged, in order after what is held.
    pub(super) fn pass(&mut self, raw: Bytes, now_ms: u64, out: &mut Vec<Bytes>) {
        if self.queue.is_empty() {
            out.push(raw);
        } else {
            self.queue.push(Held { raw, said: None });
            self.bound(now_ms, out);
        }
    }

    /// Removes call markup from the event, if the model was asked for its final answer, before anything else is done
    /// with it.
    fn without_markup(&mut self, event: Event, now_ms: u64, out: &mut Vec<Bytes>) -> Event {
        let Some(markup) = &mut self.markup else { return event };
        let Kind::Chunk(Chunk { data, place, reply, .. }) = &event.kind else { return event };
        let (cleaned, before) = markup.clean(data, reply, self.form == Form::Whole);
        let raw = (cleaned != *data).then(|| framed(&event.raw, *place, cleaned).concat());
        self.say_texts(before, now_ms, out);
        match (raw, self.form) {
            (None, _) => event,
            (Some(raw), Form::Streamed) => self.reader.event(raw.into()),
            (Some(raw), Form::Whole) => whole_event(raw.into(), OK),
        }
    }

    /// The reply has ended: held text that might have become markup is given out.
    pub(super) fn say_held_text(&mut self, now_ms: u64, out: &mut Vec<Bytes>) {
        let rest = self.markup.as_mut().map(Cleaner::finish).unwrap_or_default();
        self.say_texts(rest, now_ms, out);
    }

    /// Handles texts of the model, by choice, as events of their own.
    fn say_texts(&mut self, texts: Vec<(u32, String)>, now_ms: u64, out: &mut Vec<Bytes>) {
        for (index, text) in texts {
            let head = self.head.clone().unwrap_or_default();
            let raw = head.event(index, &format!("{{\"content\":{}}}", quote(&text)), "null");
            match (&self.phase, self.reader.event(raw)) {
                (Phase::BrokenOff(_), _) => return,
                (Phase::Unjudged, Event { raw, .. }) => self.pass(raw, now_ms, out),
                (_, Event { raw, kind: Kind::Chunk(chunk) }) => self.chunk(raw, chunk, now_ms, out),
                (_, Event { raw, .. }) => self.pass(raw, now_ms, out),
            }
        }
    }
}

/// The index of each choice: its own, or, if an earlier one has the same, one that is not used. Otherwise a re-ask for
/// one of them would be taken for the other, again and again.
fn own_indexes(choices: &[Choice]) -> Vec<u32> {
    if let [only] = choices {
        return vec![only.index];
    }
    let said: BTreeSet<u32> = choices.iter().map(|choice| choice.index).collect();
    let mut free = (0..).filter(|index| !said.contains(index));
    let mut seen = BTreeSet::new();
    let own = |choice: &Choice| {
        if seen.insert(choice.index) { choice.index } else { free.next().unwrap_or(choice.index) }
    };
    choices.iter().map(own).collect()
}
