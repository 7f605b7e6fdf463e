//! A streamed reply, judged while it passes: text goes through at once, a call's deltas wait only until the
//! last policy that needs them has ruled. What nothing acts on goes out as it came, byte for byte. Responsible
//! for order, holding and the one coherent stream out of several replies; asks nobody again by itself.

mod answer;
mod bounds;
mod held;
mod lines;
mod reading;
mod whole;
mod words;

use self::lines::one_line;
pub use words::NO_ANSWER;

use super::choice::ChoiceState;
use super::event::{CallAt, Context, Continuation, Edited, edit};
use super::judging::Judging;
use super::markup::Cleaner;
use super::usage;
use crate::wire::error::UpstreamError;
use crate::wire::reply::Reply;
use crate::wire::sse::{Piece, Splitter, parse_fields, write_event};
use bytes::Bytes;
use serde_json::Value;
use std::collections::VecDeque;
use words::end_event;

/// Bounds of one stream, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct StreamLimits {
    /// Longest event that is judged.
    pub event: usize,
    /// Most that is held back.
    pub held: usize,
    /// Most that is kept of one reply's text and calls.
    pub reply: usize,
}

/// Why something passed unjudged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unjudged {
    EventTooLong,
    HeldTooMuch,
    ReplyTooLong,
    NotJson,
    /// Two readers may see different calls in it.
    Ambiguous,
}

/// How an upstream's stream ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ending {
    /// Everything is with the client.
    Complete,
    /// Every call of this choice was withheld: the model is to be asked again with the round appended.
    Reask { choice: u32, round: Bytes },
    /// Calls wait for a person's word: to be ended again once all are settled.
    Waits,
}

/// Judges one client request's stream, over all replies that it takes.
pub struct StreamJudge {
    pub judging: Judging,
    limits: StreamLimits,
    splitter: Splitter,
    choices: Vec<ChoiceState>,
    held: VecDeque<Held>,
    /// Bytes of the events that are held.
    held_bytes: usize,
    /// Bytes of what they say: see [`Held::said_bytes`].
    said_bytes: usize,
    /// What of the first reply all later ones must repeat.
    head: Option<Continuation>,
    /// The client's choice that the current reply goes on with, after the first reply.
    continuing: Option<u32>,
    /// Usage of the replies before this one, and of this one.
    earlier_usage: Option<Value>,
    usage: Option<Value>,
    /// A first event that is an error waits here for the caller's decision.
    head_error: Option<(UpstreamError, Bytes, usize)>,
    watch_head: bool,
    begun: bool,
    errored: bool,
    done_seen: bool,
    /// The `[DONE]`, which comes behind calls that wait.
    done: Option<Bytes>,
    /// The reply is too long to be read along any further.
    blind: bool,
    pub unjudged: Vec<Unjudged>,
    /// Usage was asked for by us alone: the client gets none.
    pub cut_usage: bool,
    /// A line to the person who reads the answer, put before it.
    pub tell: Option<String>,
    /// What follows can no longer be told from what is withheld: the stream is to be broken off.
    pub spoiled: bool,
    markup: Cleaner,
}

/// An event that waits for its calls to be decided on.
struct Held {
    raw: Bytes,
    reply: Option<Reply>,
    /// For each call delta in the event: the choice's place, the delta's place, the call.
    calls: Vec<CallAt>,
}

impl Held {
    /// How much it counts against the bound on what is held: for parts of calls, arguments and text alone, since some
    /// models send a token an event, with hundreds of bytes around it.
    fn said_bytes(&self) -> usize {
        let Some(reply) = self.reply.as_ref().filter(|_| !self.calls.is_empty()) else {
            return self.raw.len();
        };
        let choices = reply.choices.iter();
        let said = choices.map(|choice| {
            choice.calls().map(|call| call.arguments.bytes()).sum::<usize>()
                + choice.delta.content.text_bytes()
        });
        said.sum()
    }
}

impl StreamJudge {
    /// A judge at the start of a stream. `watch_head`: a first event that is an error is kept for
    /// [`take_head_error`](Self::take_head_error).
    pub fn new(judging: Judging, limits: StreamLimits, watch_head: bool) -> Self {
        Self {
            judging,
            limits,
            splitter: Splitter::new(limits.event),
            choices: Vec::new(),
            held: VecDeque::new(),
            held_bytes: 0,
            said_bytes: 0,
            head: None,
            continuing: None,
            earlier_usage: None,
            usage: None,
            head_error: None,
            watch_head,
            begun: false,
            errored: false,
            done_seen: false,
            done: None,
            blind: false,
            unjudged: Vec::new(),
            cut_usage: false,
            tell: None,
            spoiled: false,
            markup: Cleaner::default(),
        }
    }

    /// Takes the next bytes of the upstream; what the client shall get is appended to `out`.
    pub fn push(&mut self, mut chunk: Bytes, now_ms: u64, out: &mut Vec<Bytes>) {
        while let Some(piece) = self.splitter.next(&mut chunk) {
            self.piece(piece, now_ms, out);
        }
    }

    /// The upstream's stream has ended as it should.
    pub fn finish(&mut self, now_ms: u64, out: &mut Vec<Bytes>) -> Ending {
        let rest = self.splitter.finish();
        let is_open = rest.is_some() || !self.splitter.at_boundary();
        if let Some(rest) = rest {
            self.piece(rest, now_ms, out);
        }
        self.say_held_text(now_ms, out);
        self.finish_choices(now_ms, out);
        let end = out.len();
        let ending = self.ending(out);
        if is_open && (out.len() > end || ending != Ending::Complete) {
            end_event(out, end);
        }
        ending
    }

    /// Whether the upstream has said that nothing more comes.
    pub fn is_done(&self) -> bool {
        self.done_seen
    }

    /// Bytes that are kept: events that are held back or not whole yet, and what is known of the choices.
    pub fn kept_bytes(&self) -> usize {
        let choices: usize = self.choices.iter().map(ChoiceState::size).sum();
        self.splitter.partial_bytes() + self.held_bytes + choices
    }

    /// Whether anything waits for a decision.
    pub fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether something of this reply does not reach the client, for now or for good.
    pub fn is_hiding(&self) -> bool {
        self.is_holding() || self.choices.iter().any(ChoiceState::is_edited)
    }

    /// Whether an event of ours may be written now.
    pub fn at_boundary(&self) -> bool {
        self.splitter.at_boundary()
    }

    /// An error that began the stream, its bytes, not given out, and their place in what the last push gave.
    pub fn take_head_error(&mut self) -> Option<(UpstreamError, Bytes, usize)> {
        self.head_error.take()
    }

    /// The error at the head stands: nothing of ours follows it.
    pub fn fail(&mut self) {
        self.errored = true;
    }

    /// The first reply was an error and is forgotten: another one comes in its place.
    pub fn restart(&mut self, watch_head: bool) {
        self.splitter = Splitter::new(self.limits.event);
        (self.begun, self.errored, self.done_seen, self.watch_head) = (false, false, false, watch_head);
        self.done = None;
        self.markup = Cleaner::default();
    }

    /// Goes on with a further reply to the same request, for the choice that was asked again.
    pub fn continue_with(&mut self, choice: u32) {
        self.restart(true);
        self.continuing = Some(choice);
        if let Some(state) = self.choices.iter_mut().find(|state| state.index == choice) {
            state.begin_next_reply();
        }
        if let Some(usage) = self.usage.take() {
            let earlier = self.earlier_usage.take().unwrap_or(Value::Null);
            self.earlier_usage = Some(usage::sum(&earlier, &usage));
        }
    }

    /// The choices as the client has them.
    pub fn choices(&self) -> &[ChoiceState] {
        &self.choices
    }

    /// The usage of the last reply, as it came.
    pub fn usage(&self) -> Option<&Value> {
        self.usage.as_ref()
    }

    /// The usage of all replies together, for metrics.
    pub fn total_usage(&self) -> Option<Value> {
        match (&self.earlier_usage, &self.usage) {
            (Some(earlier), Some(last)) => Some(usage::sum(earlier, last)),
            (earlier, last) => earlier.clone().or_else(|| last.clone()),
        }
    }

    fn piece(&mut self, piece: Piece, now_ms: u64, out: &mut Vec<Bytes>) {
        match piece {
            // The client gets nothing more of it.
            _ if self.spoiled => {}
            Piece::Event(raw) if self.blind => self.pass(raw, (now_ms, out)),
            Piece::Event(raw) => self.event(raw, now_ms, out),
            Piece::Oversized(raw) => {
                self.note(Unjudged::EventTooLong);
                self.block_by_name(now_ms);
                self.spoil();
                if !self.spoiled {
                    self.pass(raw, (now_ms, out));
                }
            }
        }
    }

    fn edits_nothing(&self) -> bool {
        let asked_more = self.continuing.is_some() || self.cut_usage || self.tell.is_some();
        !asked_more && !self.choices.iter().any(ChoiceState::is_edited)
    }

    /// The place of the choice that the upstream calls `index`: a further reply goes on with one choice alone.
    fn place_of(&mut self, index: u32) -> usize {
        let index = self.continuing.unwrap_or(index);
        self.choices.iter().position(|state| state.index == index).unwrap_or_else(|| {
            self.choices.push(ChoiceState::streamed(index));
            self.choices.len() - 1
        })
    }

    /// Gives out every event at the front whose calls are all decided on.
    fn drain(&mut self, out: &mut Vec<Bytes>) {
        while let Some(front) = self.held.front() {
            if !self.judging.observes() && !self.is_decided(front) {
                return;
            }
            if let Some(event) = self.held.pop_front() {
                self.held_bytes -= event.raw.len();
                self.said_bytes -= event.said_bytes();
                self.give(event, out);
            }
        }
    }

    fn is_decided(&self, event: &Held) -> bool {
        let Some(reply) = &event.reply else { return true };
        event.calls.iter().all(|at| {
            let index = self.continuing.unwrap_or(reply.choices[at.choice].index);
            let state = self.choices.iter().find(|state| state.index == index);
            state.is_some_and(|state| state.is_settled(at.call))
        })
    }

    fn give(&mut self, event: Held, out: &mut Vec<Bytes>) {
        let Held { raw, reply, calls } = event;
        let Some(reply) = reply else { return out.push(raw) };
        match self.edited(&raw, &reply, &calls, out) {
            Edited::AsItCame => out.push(raw),
            Edited::Changed(data) => match parse_fields(&raw).place {
                Some(place) => {
                    let (before, after) =
                        (raw.slice(..place.start as usize), raw.slice(place.end as usize..));
                    out.extend([before, data, after]);
                }
                None => out.push(write_event(&data)),
            },
            Edited::Gone => {}
        }
        for choice in &reply.choices {
            let place = self.place_of(choice.index);
            self.choices[place].shown(choice);
        }
    }

    fn edited(&mut self, raw: &Bytes, reply: &Reply, calls: &[CallAt], out: &mut Vec<Bytes>) -> Edited {
        if self.judging.observes() || self.edits_nothing() {
            return Edited::AsItCame;
        }
        self.preface(reply, out);
        self.ask(reply, out);
        self.speak_if_silent(reply, out);
        let usage = self.earlier_usage.as_ref().zip(self.usage.as_ref());
        let context = Context {
            choices: &self.choices,
            continuing: self.continuing.zip(self.head.as_ref()),
            hold_usage: self.is_pending(),
            cut_usage: self.cut_usage,
            head: self.head.as_ref(),
            usage: usage.map(|(earlier, now)| usage::sum(earlier, now)),
        };
        edit(&one_line(raw), reply, calls, &context)
    }

    fn done(&mut self, raw: Bytes, now_ms: u64, out: &mut Vec<Bytes>) {
        self.say_held_text(now_ms, out);
        self.finish_choices(now_ms, out);
        self.done_seen = true;
        if self.errored {
            self.settle_all();
            self.drain(out);
        }
        if self.is_waiting() {
            self.done = Some(raw);
        } else if !self.is_pending() || self.errored {
            self.close_choices(out);
            out.extend(self.remark());
            self.pass(raw, (now_ms, out));
        }
    }

    /// Decides on everything that is left, and gives it out.
    fn finish_choices(&mut self, now_ms: u64, out: &mut Vec<Bytes>) {
        for state in &mut self.choices {
            state.finish_calls(&mut self.judging, now_ms);
        }
        self.drain(out);
    }

    fn ending(&mut self, out: &mut Vec<Bytes>) -> Ending {
        if self.errored {
            self.settle_all();
            self.drain(out);
        }
        if self.is_waiting() {
            return Ending::Waits;
        }
        if let Some((choice, round)) = self.pending().filter(|_| !self.errored) {
            return Ending::Reask { choice, round };
        }
        let done = self.done.take();
        if !self.done_seen || done.is_some() {
            self.close_choices(out);
            out.extend(self.remark());
        }
        out.extend(done);
        Ending::Complete
    }

    /// The first choice whose calls were all withheld, with the messages that tell the model so.
    fn pending(&self) -> Option<(u32, Bytes)> {
        let state = self.choices.iter().find(|state| self.is_asked_again(state))?;
        state.round().map(|round| (state.index, round))
    }

    fn is_pending(&self) -> bool {
        self.choices.iter().any(|state| self.is_asked_again(state))
    }

    /// Whether all calls of a choice were withheld. What comes behind a finish that the client has is not asked for
    /// again: nothing could follow it.
    fn is_asked_again(&self, state: &ChoiceState) -> bool {
        state.is_wholly_withheld() && !state.finish_shown && !self.judging.observes()
    }

    /// Gives bytes out as they came, in their place behind what is held.
    fn pass(&mut self, raw: Bytes, (now_ms, out): (u64, &mut Vec<Bytes>)) {
        if self.held.is_empty() {
            out.push(raw);
        } else {
            self.hold(Held { raw, reply: None, calls: Vec::new() });
            self.bound(now_ms, out);
        }
    }
}

#[cfg(test)]
mod order;
#[cfg(test)]
mod quirks;
#[cfg(test)]
pub(super) mod tests;
