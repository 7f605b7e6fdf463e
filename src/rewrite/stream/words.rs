//! What toolrein itself says in a stream: the line to the person before the answer, the fixed sentence where the
//! model says nothing, the finish that a reply did not bring, and the remark on what acted. Words only; what the
//! model said is judged elsewhere.

use super::StreamJudge;
use crate::rewrite::judging::Decision;
use crate::wire::json::quote;
use crate::wire::reply::{Choice, Reply};
use bytes::Bytes;

/// The one sentence that toolrein says in the model's place, where the model says nothing.
pub const NO_ANSWER: &str = "I could not finish this: the tool calls that I still wanted to make were not allowed, and I gave no answer without them.";

impl StreamJudge {
    /// Before the first event of a choice: the line to the person.
    pub(super) fn preface(&mut self, reply: &Reply, out: &mut Vec<Bytes>) {
        let Some((tell, head)) = self.tell.as_ref().zip(self.head.as_ref()) else { return };
        let index_of = |choice: &Choice| self.continuing.unwrap_or(choice.index);
        for index in reply.choices.iter().map(index_of) {
            let Some(state) = self.choices.iter_mut().find(|state| state.index == index) else { continue };
            if state.preface(tell) {
                let delta = format!("{{\"role\":\"assistant\",\"content\":{}}}", quote(tell));
                out.push(head.event(index, &delta, "null"));
                state.role_sent = true;
            }
        }
    }

    /// Before the finish of a choice whose calls need a person's yes: asks for it.
    pub(super) fn ask(&mut self, reply: &Reply, out: &mut Vec<Bytes>) {
        for choice in reply.choices.iter().filter(|choice| choice.finish.is_some()) {
            let place = self.place_of(choice.index);
            let behind = choice.delta.content.text_bytes();
            self.say_question(place, behind, out);
        }
    }

    fn say_question(&mut self, place: usize, behind: usize, out: &mut Vec<Bytes>) {
        let Some(question) = self.choices[place].ask(behind) else { return };
        self.say(place, &question, out);
    }

    /// Before the finish of a choice in which nothing remains to read: says so in the model's place.
    pub(super) fn speak_if_silent(&mut self, reply: &Reply, out: &mut Vec<Bytes>) {
        for choice in reply.choices.iter().filter(|choice| choice.finish.is_some()) {
            let place = self.place_of(choice.index);
            let state = &self.choices[place];
            let ends = state.is_continued() && !state.is_wholly_withheld();
            if ends && state.is_silent() && choice.delta.content.text_bytes() == 0 {
                self.speak(place, out);
            }
        }
    }

    /// Writes the fixed sentence as the text of a choice.
    fn speak(&mut self, place: usize, out: &mut Vec<Bytes>) {
        self.say(place, NO_ANSWER, out);
        self.choices[place].speak(NO_ANSWER);
    }

    fn say(&mut self, place: usize, text: &str, out: &mut Vec<Bytes>) {
        let Some(head) = &self.head else { return };
        let state = &mut self.choices[place];
        let role = if std::mem::replace(&mut state.role_sent, true) { "" } else { r#""role":"assistant","# };
        let delta = format!("{{{role}\"content\":{}}}", quote(text));
        out.push(head.event(state.index, &delta, "null"));
    }

    /// A choice that was cut short by us gets the finish that its reply did not bring.
    pub(super) fn close_choices(&mut self, out: &mut Vec<Bytes>) {
        if self.errored || self.judging.observes() {
            return;
        }
        for place in 0..self.choices.len() {
            if !self.choices[place].lacks_finish() {
                continue;
            }
            self.say_question(place, 0, out);
            if self.choices[place].is_silent() {
                self.speak(place, out);
            }
            if let Some(head) = &self.head {
                let calls = self.choices[place].released().next().is_some();
                let reason = if calls { "\"tool_calls\"" } else { "\"stop\"" };
                out.push(head.event(self.choices[place].index, "{}", reason));
            }
            self.choices[place].finish_shown = true;
        }
    }

    /// One comment that tells what acted on the reply.
    pub(super) fn remark(&self) -> Option<Bytes> {
        let mut words: Vec<((&str, &str), usize)> = Vec::new();
        let done = self.judging.record.iter().flat_map(|judged| {
            let withheld = match &judged.decision {
                Decision::Withhold { policy, .. } | Decision::Ask { policy, .. } => {
                    Some((*policy, "withheld"))
                }
                _ => None,
            };
            withheld.into_iter().chain(judged.acts.iter().copied())
        });
        for word in done {
            match words.iter_mut().find(|(seen, _)| *seen == word) {
                Some((_, count)) => *count += 1,
                None => words.push((word, 1)),
            }
        }
        if words.is_empty() || self.judging.observes() {
            return None;
        }
        let words: Vec<String> =
            words.iter().map(|((policy, word), count)| format!("{policy}={word}:{count}")).collect();
        Some(format!(": toolrein {}\n\n", words.join(", ")).into())
    }
}

/// Ends the event that the upstream left open before the place `at` in `out`: what follows there is no part of it.
pub(super) fn end_event(out: &mut Vec<Bytes>, at: usize) {
    let is_line = out[..at].last().is_some_and(|piece| piece.ends_with(b"\n"));
    // A CR that stands alone becomes a CR LF by the first of the two.
    out.insert(at, Bytes::from_static(if is_line { b"\n" } else { b"\n\n" }));
}
