//! What toolrein itself says in a reply: the line to the person before the answer, the question about calls that need an
//! approval, the fixed sentence where the model says nothing, the finish that a reply did not bring, and the remark on
//! what acted. Words only; what the model said is judged elsewhere.

use super::{Form, Phase, ReplyJudge};
use crate::rewrite::judging::Decision;
use crate::wire::json::quote;
use crate::wire::reply::Choice;
use bytes::Bytes;

/// The one sentence that toolrein says in the model's place, where the model says nothing.
pub const NO_ANSWER: &str = "I could not finish this: the tool calls that I still wanted to make were not allowed, and I gave no answer without them.";

impl ReplyJudge {
    /// Says what comes before an event of a choice.
    pub(super) fn say_before(&mut self, place: usize, event: &Choice, out: &mut Vec<Bytes>) {
        self.say_preface(place, out);
        if event.finish.is_some() {
            let behind = event.delta.content.text_bytes();
            self.say_question(place, behind, out);
            if behind == 0 && !self.choices[place].is_wholly_withheld() {
                self.speak_if_silent(place, out);
            }
        }
    }

    /// Says all that belongs to a choice that came whole.
    pub(super) fn say_all(&mut self, place: usize, out: &mut Vec<Bytes>) {
        self.say_preface(place, out);
        self.say_question(place, 0, out);
        self.speak_if_silent(place, out);
    }

    fn say_preface(&mut self, place: usize, out: &mut Vec<Bytes>) {
        if let Some(preface) = self.options.preface.take() {
            if self.choices[place].preface(&preface) {
                self.say(place, &preface, out);
            }
            self.options.preface = Some(preface);
        }
    }

    fn say_question(&mut self, place: usize, behind: usize, out: &mut Vec<Bytes>) {
        if let Some(question) = self.choices[place].ask(behind) {
            self.say(place, &question, out);
        }
    }

    /// Says so in the model's place, where nothing remains to read.
    fn speak_if_silent(&mut self, place: usize, out: &mut Vec<Bytes>) {
        let state = &self.choices[place];
        if state.is_silent() && (state.is_continued() || state.is_edited()) {
            self.say(place, NO_ANSWER, out);
            self.choices[place].speak(NO_ANSWER);
        }
    }

    /// Writes an event with a text of ours; in a whole reply it becomes part of the choice's text.
    fn say(&mut self, place: usize, text: &str, out: &mut Vec<Bytes>) {
        let Some(head) = self.head.as_ref().filter(|_| self.form == Form::Streamed) else { return };
        let state = &mut self.choices[place];
        let role = if std::mem::replace(&mut state.role_sent, true) { "" } else { r#""role":"assistant","# };
        let delta = format!("{{{role}\"content\":{}}}", quote(text));
        out.push(head.event(state.index, &delta, "null"));
        self.is_changed = true;
    }

    /// A choice that was cut short by us gets the finish that its reply did not bring.
    pub(super) fn close_choices(&mut self, out: &mut Vec<Bytes>) {
        let is_unknown = self.phase.has_failed() || matches!(self.phase, Phase::Unjudged);
        if is_unknown || self.judging.observes() {
            return;
        }
        for place in 0..self.choices.len() {
            if !self.choices[place].lacks_finish() {
                continue;
            }
            self.say_question(place, 0, out);
            self.speak_if_silent(place, out);
            if let Some(head) = &self.head {
                let calls = self.choices[place].released().next().is_some();
                let reason = if calls { "\"tool_calls\"" } else { "\"stop\"" };
                out.push(head.event(self.choices[place].index, "{}", reason));
            }
            self.choices[place].finish_shown = true;
        }
    }

    /// One comment that reports what acted on the reply.
    pub(super) fn remark(&self) -> Option<Bytes> {
        let mut acts: Vec<((&str, &str), usize)> = Vec::new();
        let done = self.judging.record.iter().flat_map(|judged| {
            let blocked = match &judged.decision {
                Decision::Withhold { policy, .. } | Decision::Ask { policy, .. } => {
                    Some((*policy, "withheld"))
                }
                _ => None,
            };
            blocked.into_iter().chain(judged.acts.iter().copied())
        });
        for act in done {
            match acts.iter_mut().find(|(seen, _)| *seen == act) {
                Some((_, count)) => *count += 1,
                None => acts.push((act, 1)),
            }
        }
        if acts.is_empty() || self.judging.observes() {
            return None;
        }
        let acts: Vec<String> =
            acts.iter().map(|((policy, act), count)| format!("{policy}={act}:{count}")).collect();
        Some(format!(": toolrein {}\n\n", acts.join(", ")).into())
    }
}
