//! toolrein's own texts in a reply: the line to the person before the answer, the question about calls that need an
//! approval, the fixed sentence where the model gives no answer, a missing finish, and the comment that lists the
//! actions of policies.

use super::{Form, Phase, ReplyJudge};
use crate::dialect::chat::completion::Choice;
use crate::dialect::judge::CallJudge;
use crate::dialect::reply::ShownChoice;
use bytes::Bytes;
use wire::json::quote;

pub use crate::dialect::edit::NO_ANSWER;

impl<J: CallJudge> ReplyJudge<J> {
    /// Writes what comes before an event of a choice.
    pub(super) fn say_before(&mut self, place: usize, event: &Choice, out: &mut Vec<Bytes>) {
        self.say_preface(place, out);
        if event.finish.is_some() {
            let after = event.delta.content.text_bytes();
            self.say_question(place, after, out);
            if after == 0 && !self.choices[place].is_wholly_blocked() {
                self.speak_if_silent(place, out);
            }
        }
    }

    /// Writes all texts of a choice that came whole.
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

    fn say_question(&mut self, place: usize, after: usize, out: &mut Vec<Bytes>) {
        if let Some(question) = self.choices[place].ask(after) {
            self.say(place, &question, out);
        }
    }

    /// Writes [`NO_ANSWER`] in the model's place, if nothing remains to read.
    fn speak_if_silent(&mut self, place: usize, out: &mut Vec<Bytes>) {
        let state = &self.choices[place];
        if state.is_silent() && (state.is_continued() || state.is_edited()) {
            self.say(place, NO_ANSWER, out);
            self.choices[place].speak(NO_ANSWER);
        }
    }

    /// Writes an event with toolrein's text; in a whole reply it becomes part of the choice's text.
    fn say(&mut self, place: usize, text: &str, out: &mut Vec<Bytes>) {
        let Some(head) = self.head.as_ref().filter(|_| self.form == Form::Streamed) else { return };
        let state = &mut self.choices[place];
        let role = if std::mem::replace(&mut state.role_sent, true) { "" } else { r#""role":"assistant","# };
        let delta = format!("{{{role}\"content\":{}}}", quote(text));
        out.push(head.event(state.index, &delta, "null"));
        self.is_changed = true;
    }

    /// Writes the missing finish of choices that toolrein cut short.
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
                let calls = self.choices[place].releases();
                let reason = if calls { "\"tool_calls\"" } else { "\"stop\"" };
                out.push(head.event(self.choices[place].index, "{}", reason));
            }
            self.choices[place].finish_shown = true;
        }
    }
}
