//! The writer of the client's reply: untouched bytes go out as they came, edits are spliced in, blocked calls leave no
//! trace, and a later reply continues the first.

use super::edit::{Context, Edited, edit, edited_choice};
use super::queue::{Held, Said};
use super::{Form, Phase, ReplyJudge};
use crate::dialect::chat::choice::ChoiceState;
use crate::dialect::judge::{CallJudge, remark};
use crate::dialect::lines::one_line;
use crate::dialect::reply::Reply as _;
use bytes::Bytes;
use wire::body::Span;
use wire::sse::write_event;

impl<J: CallJudge> ReplyJudge<J> {
    /// Whether everything goes out unchanged.
    pub(super) fn changes_nothing(&self) -> bool {
        let adds = self.continuing.is_some() || self.options.cut_usage || self.options.preface.is_some();
        let edits = |state: &ChoiceState| state.is_edited() || state.is_renumbered();
        self.judging.observes() || (!adds && !self.choices.iter().any(edits))
    }

    /// Gives out every event of a stream at the front whose calls are all decided on.
    pub(super) fn drain(&mut self, out: &mut Vec<Bytes>) {
        while self.form == Form::Streamed
            && self.queue.front().is_some_and(|front| self.judging.observes() || self.is_decided(front))
            && let Some(event) = self.queue.pop()
        {
            self.give(event, out);
        }
    }

    fn is_decided(&self, event: &Held) -> bool {
        let Some(said) = &event.said else { return true };
        said.calls.iter().all(|at| {
            let index = said.chunk.reply.choices[at.choice].index;
            let place = self.place(said.continuing, at.choice, index);
            self.choices[place].is_settled(at.call)
        })
    }

    /// Gives out one event of a stream.
    fn give(&mut self, event: Held, out: &mut Vec<Bytes>) {
        let Held { raw, said } = event;
        let Some(said) = said else { return out.push(raw) };
        let places = self.places(&said);
        if self.changes_nothing() {
            out.push(raw);
        } else {
            for (choice, place) in said.chunk.reply.choices.iter().zip(&places) {
                self.say_before(*place, choice, out);
            }
            let edited = edit(&said, &places, &self.context(&[]));
            self.write(raw, &said, edited, out);
        }
        for (choice, place) in said.chunk.reply.choices.iter().zip(places) {
            self.choices[place].shown(choice);
        }
    }

    /// Gives out the whole reply: the first one, with choices of later ones instead of its own.
    pub(super) fn give_body(&mut self, out: &mut Vec<Bytes>) {
        let Some(Held { raw, said: Some(said) }) = self.queue.pop() else { return };
        if self.changes_nothing() {
            return out.push(raw);
        }
        for place in 0..self.choices.len() {
            self.say_all(place, out);
        }
        let mut replaced = Vec::new();
        while let Some(Held { said: Some(later), .. }) = self.queue.pop() {
            let object = later
                .continuing
                .and_then(|place| Some((place, edited_choice(&later, self.choices.get(place)?)?)));
            replaced.extend(object);
        }
        let edited = edit(&said, &self.places(&said), &self.context(&replaced));
        self.write(raw, &said, edited, out);
    }

    fn write(&mut self, raw: Bytes, said: &Said, edited: Edited, out: &mut Vec<Bytes>) {
        self.is_changed |= edited != Edited::AsItCame;
        match edited {
            Edited::AsItCame => out.push(raw),
            Edited::Changed(data) => {
                out.extend(
                    framed(&raw, said.chunk.place, data).into_iter().filter(|piece| !piece.is_empty()),
                );
            }
            Edited::Gone => {}
        }
    }

    /// The positions of an event's choices in the reply's state.
    fn places(&self, said: &Said) -> Vec<usize> {
        let choices = said.chunk.reply.choices.iter().enumerate();
        choices.map(|(at, choice)| self.place(said.continuing, at, choice.index)).collect()
    }

    fn context<'a>(&'a self, replaced: &'a [(usize, Bytes)]) -> Context<'a> {
        Context {
            form: self.form,
            choices: &self.choices,
            head: self.head.as_ref(),
            replaced,
            hold_usage: self.is_pending(),
            cut_usage: self.options.cut_usage,
            usage: self.usage.sum(),
        }
    }

    /// Ends a stream without further replies.
    pub(super) fn end_stream(&mut self, out: &mut Vec<Bytes>) {
        let done = match &mut self.phase {
            Phase::Done { held, .. } => held.take(),
            _ => None,
        };
        if !self.is_done() || done.is_some() {
            self.close_choices(out);
            out.extend(remark(&self.judging));
        }
        out.extend(done);
    }
}

/// An event with its data replaced; a new event if its data is in several lines.
pub(super) fn framed(raw: &Bytes, place: Option<Span>, data: Bytes) -> [Bytes; 3] {
    match place {
        Some(place) => {
            let place = place.range();
            [raw.slice(..place.start), data, raw.slice(place.end..)]
        }
        None => [Bytes::new(), write_event(&one_line(&data)), Bytes::new()],
    }
}

/// Ends the event that the upstream left open before the position `at` in `out`: what follows is not part of it.
pub(super) fn end_event(out: &mut Vec<Bytes>, at: usize) {
    let is_line = out[..at].last().is_some_and(|piece| piece.ends_with(b"\n"));
    // The first of the two turns a single CR into a CR LF.
    out.insert(at, Bytes::from_static(if is_line { b"\n" } else { b"\n\n" }));
}
