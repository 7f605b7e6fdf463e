//! A whole reply, judged: calls that are withheld are taken out, replies to further asking take the place of
//! the choices they were asked for, and the client gets one coherent body. Asks nobody again by itself.

use super::choice::ChoiceState;
use super::confirm::held::Word;
use super::event::{CallAt, edit_calls, is_emptied};
use super::judging::Judging;
use super::markup::cleaned;
use super::splice::Splices;
use super::stream::NO_ANSWER;
use super::usage;
use crate::wire::body::{Fault, Span};
use crate::wire::call::ToolCall;
use crate::wire::json::{decode, quote};
use crate::wire::message::Content;
use crate::wire::reply::{Choice, Delta, Form, Reply};
use crate::wire::usage::Usage;
use bytes::Bytes;
use serde_json::Value;
use std::collections::BTreeSet;

/// Judges one client request's whole reply, over all replies that it takes.
pub struct WholeJudge {
    pub judging: Judging,
    body: Bytes,
    reply: Reply,
    choices: Vec<ChoiceState>,
    /// The calls of each choice.
    calls: Vec<Vec<CallAt>>,
    replaced: Vec<Replaced>,
    /// The usage of all replies together, as JSON.
    usage: Option<Bytes>,
    /// A line to the person who reads the answer, put before it.
    pub tell: Option<String>,
}

/// A choice that another reply brought.
struct Replaced {
    /// The client's index of it.
    index: u32,
    /// A reply that holds this choice alone.
    alone: Bytes,
    calls: Vec<CallAt>,
}

impl WholeJudge {
    /// Judges the reply in `body`.
    ///
    /// # Errors
    /// A [`Fault`] where it cannot be read; it is to be passed on as it came.
    pub fn read(body: &Bytes, judging: Judging, now_ms: u64) -> Result<Box<Self>, Fault> {
        Ok(Self::judge(Reply::read(body, Form::Whole)?, body.clone(), judging, now_ms))
    }

    /// Judges `reply`, which was read from `body`.
    pub fn judge(reply: Reply, body: Bytes, judging: Judging, now_ms: u64) -> Box<Self> {
        let choices = Vec::with_capacity(reply.choices.len());
        let (calls, usage) = (Vec::with_capacity(reply.choices.len()), read_usage(&reply, &body));
        // It is large and stays to the end.
        let mut judge =
            Box::new(Self { judging, body, reply, choices, calls, replaced: Vec::new(), usage, tell: None });
        let Self { judging, body, reply, choices, calls, .. } = &mut *judge;
        // Mostly there is one choice, and nothing to tell it from.
        let own = if reply.choices.len() > 1 { own_indexes(&reply.choices) } else { Vec::new() };
        for (at, choice) in reply.choices.iter().enumerate() {
            let mut state = ChoiceState::new(own.get(at).copied().unwrap_or(choice.index));
            calls.push(read_choice(&mut state, choice, body, judging, now_ms));
            choices.push(state);
        }
        judge
    }

    /// Whether clients may see other calls than were judged: those that a reader differs on go unnoticed where all are
    /// let through, and are not taken out where some are not.
    pub fn is_unsafe(&self) -> bool {
        if self.judging.is_strict() {
            // Ambiguous calls go out as they were judged.
            return self.reply.ambiguous;
        }
        let acts = self.choices.iter().any(ChoiceState::is_edited);
        self.reply.is_ambiguous() && acts && !self.judging.observes()
    }

    /// Whether clients may see other calls than were judged, for all that is done.
    pub fn is_ambiguous(&self) -> bool {
        if self.judging.is_strict() { self.reply.ambiguous } else { self.reply.is_ambiguous() }
    }

    /// Whether a call waits for a person's word, or all calls of a choice were withheld.
    pub fn is_open(&self) -> bool {
        self.choices.iter().any(|state| state.is_waiting() || state.is_wholly_withheld())
    }

    /// The first choice whose calls were all withheld, with the round to append before asking again.
    pub fn pending(&self) -> Option<(u32, Bytes)> {
        let state = self.choices.iter().find(|state| state.is_wholly_withheld())?;
        state.round().map(|round| (state.index, round))
    }

    /// Learns the word on a call that waited for one.
    pub fn settle(&mut self, id: u32, word: Word) {
        if let Some(decision) = self.judging.settle(id, word) {
            self.choices.iter_mut().for_each(|state| state.settle(id, &decision));
        }
    }

    /// Takes the reply to asking again for `choice`.
    ///
    /// # Errors
    /// A [`Fault`] where it cannot be read, may be read in different ways, or holds no choice.
    pub fn continue_with(&mut self, choice: u32, body: &Bytes, now_ms: u64) -> Result<(), Fault> {
        let body = &if self.judging.is_landing() { cleaned(body) } else { body.clone() };
        let reply = Reply::read(body, Form::Whole)?;
        if reply.ambiguous || (reply.is_ambiguous() && !self.judging.is_strict()) {
            return Err(Fault::Duplicate);
        }
        let answer = reply.choices.first().ok_or(Fault::Type)?;
        let alone = [br#"{"choices":["#, answer.span.of(body), b"]}"].concat();
        let Some(state) = self.choices.iter_mut().find(|state| state.index == choice) else { return Ok(()) };
        state.begin_next_reply();
        let calls = read_choice(state, answer, body, &mut self.judging, now_ms);
        self.replaced.retain(|replaced| replaced.index != choice);
        self.replaced.push(Replaced { index: choice, alone: alone.into(), calls });
        if let Some(later) = read_usage(&reply, body) {
            self.usage = Some(match self.usage.take() {
                Some(earlier) => usage::sum(&value(&earlier), &value(&later)).to_string().into(),
                None => later,
            });
        }
        Ok(())
    }

    /// The choices as the client gets them.
    pub fn choices(&self) -> &[ChoiceState] {
        &self.choices
    }

    /// Usage of all replies together.
    pub fn usage(&self) -> Option<Usage> {
        if self.replaced.is_empty() && self.reply.usage.is_some() {
            return Some(self.reply.tokens);
        }
        self.usage.as_deref().map(Usage::parse)
    }

    /// The body for the client; `None` if the reply goes out as it came.
    pub fn write(&mut self) -> Option<Bytes> {
        if self.judging.observes()
            || (self.replaced.is_empty()
                && self.tell.is_none()
                && !self.choices.iter().any(ChoiceState::is_edited))
        {
            return None;
        }
        if let Some(tell) = &self.tell {
            for state in &mut self.choices {
                state.preface(tell);
            }
        }
        let mut splices = Splices::default();
        for ((choice, calls), state) in self.reply.choices.iter().zip(&self.calls).zip(&mut self.choices) {
            match self.replaced.iter().find(|replaced| replaced.index == state.index) {
                Some(replaced) => splices.replace(choice.span, rewritten_choice(replaced, state)),
                None => edit_choice(&self.body, choice, calls, state, &mut splices),
            }
        }
        if let (Some(member), Some(sum), false) = (self.reply.usage, &self.usage, self.replaced.is_empty()) {
            splices.replace(member.value, sum.clone());
        }
        Some(splices.apply(&self.body).join())
    }
}

/// The index under which each choice goes: that which it says, or where one before it says the same, one that none of
/// them says. Else what is asked again for one of them would be taken for the other, without end.
fn own_indexes(choices: &[Choice]) -> Vec<u32> {
    let said: BTreeSet<u32> = choices.iter().map(|choice| choice.index).collect();
    let mut free = (0..).filter(|index| !said.contains(index));
    let mut seen = BTreeSet::new();
    let own = |choice: &Choice| {
        if seen.insert(choice.index) { choice.index } else { free.next().unwrap_or(choice.index) }
    };
    choices.iter().map(own).collect()
}

fn read_usage(reply: &Reply, body: &Bytes) -> Option<Bytes> {
    reply.told_usage().map(|usage| body.slice(usage.range()))
}

fn value(json: &[u8]) -> Value {
    serde_json::from_slice(json).unwrap_or_default()
}

/// Judges the calls of `choice` and tells where each of them is.
fn read_choice(
    state: &mut ChoiceState,
    choice: &Choice,
    body: &[u8],
    judging: &mut Judging,
    now_ms: u64,
) -> Vec<CallAt> {
    state.add_text(&choice.delta, body);
    let mut calls = Vec::new();
    let mut known: Vec<(usize, &ToolCall)> = Vec::new();
    for (delta, call) in choice.calls_by_form() {
        if let Some(known) = state.repeated(call, &known, body) {
            calls.push(CallAt { choice: 0, delta, call: known, carries: true, begins: false });
            continue;
        }
        let is_beside = delta >= choice.delta.calls.len();
        let (at, begins) = match is_beside {
            true => state.add_call_beside(call, body, judging.is_strict()),
            false => (state.add_whole_call(call, body, judging.is_strict()), true),
        };
        known.push((at, call));
        let call = at;
        calls.push(CallAt { choice: 0, delta, call, carries: true, begins });
    }
    if let Some(finish) = choice.finish {
        state.ends_by(&decode(finish, body));
    }
    state.finish_calls(judging, now_ms);
    calls
}

/// The choice object of a reply that holds it alone, edited.
fn rewritten_choice(Replaced { alone, calls, .. }: &Replaced, state: &mut ChoiceState) -> Bytes {
    let Ok(reply) = Reply::read(alone, Form::Whole) else { return Bytes::from_static(b"{}") };
    let mut splices = Splices::default();
    if let Some(choice) = reply.choices.first() {
        if let Some(index) = choice.member(alone, b"index").filter(|_| choice.index != state.index) {
            splices.replace(index.value, state.index.to_string());
        }
        edit_choice(alone, choice, calls, state, &mut splices);
    }
    let whole = splices.apply(alone).join();
    whole.slice(br#"{"choices":["#.len()..whole.len() - b"]}".len())
}

fn edit_choice(
    body: &Bytes,
    choice: &Choice,
    calls: &[CallAt],
    state: &mut ChoiceState,
    splices: &mut Splices,
) {
    let asked = state.ask(0).is_some();
    let spoken = state.is_silent() && (state.is_edited() || state.is_continued());
    if spoken {
        state.speak(NO_ANSWER);
    }
    edit_calls(body, choice, calls, state, splices);
    let message = &choice.delta;
    let text = state.text();
    if spoken
        || asked
        || message.content.texts().map(|text| text.span.len()).sum::<usize>() == 0
        || !state.earlier_text().is_empty()
    {
        let left =
            message.members.iter().filter(|member| !is_emptied(body, message, calls, state, member)).count();
        set_content(body, (message, left), &text, splices);
    }
    if let Some(finish) = choice.finish
        && state.is_edited()
        && !state.releases()
        && !state.is_cut()
    {
        splices.replace(finish.quoted(), "\"stop\"");
    }
}

/// Makes `text` what the message says, which has so many members `left`.
fn set_content(body: &[u8], (message, left): (&Delta, usize), text: &str, splices: &mut Splices) {
    if text.is_empty() {
        return;
    }
    match message.member(body, b"content") {
        Some(member) if !matches!(message.content, Content::Other(_)) => {
            splices.replace(member.value, quote(text));
        }
        Some(_) => {}
        None if message.span.is_empty() => {}
        None => {
            let start = Span { start: message.span.start + 1, end: message.span.start + 1 };
            let comma = if left == 0 { "" } else { "," };
            splices.replace(start, format!("\"content\":{}{comma}", quote(text)));
        }
    }
}

#[cfg(test)]
mod quirks;
