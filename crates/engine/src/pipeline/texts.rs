//! toolrein's own texts in a reply: the line to the person before the answer, the question about calls that need an
//! approval, the fixed sentence where the model gives no answer, a missing finish, and what acted on the reply.

use super::{Phase, ReplyPipeline};
use bytes::Bytes;
use dialects::codec::Frame;
use dialects::edit::NO_ANSWER;
use serde_json::json;

impl ReplyPipeline {
    /// Writes what comes before a frame.
    pub(super) fn write_before(&mut self, frame: &Frame, out: &mut Vec<Bytes>) {
        for part in frame.parts() {
            let at = self.position_of(part.choice);
            self.write_preface(at, out);
            if part.finishes() {
                let after = part.text_bytes();
                self.write_question(at, after, out);
                if after == 0 && !self.choices[at].is_wholly_blocked() && !frame.reports_failure() {
                    self.answer_if_silent(at, out);
                }
            }
        }
    }

    /// Writes all texts of a choice that came whole.
    pub(super) fn write_all_texts(&mut self, at: usize, has_failed: bool, out: &mut Vec<Bytes>) {
        self.write_preface(at, out);
        self.write_question(at, 0, out);
        if !has_failed {
            self.answer_if_silent(at, out);
        }
    }

    fn write_preface(&mut self, at: usize, out: &mut Vec<Bytes>) {
        if let Some(preface) = self.options.preface.take() {
            if self.choices[at].add_preface(&preface) {
                self.write_text(at, &preface, true, out);
            }
            self.options.preface = Some(preface);
        }
    }

    fn write_question(&mut self, at: usize, after: usize, out: &mut Vec<Bytes>) {
        if let Some(question) = self.choices[at].ask(after) {
            self.write_text(at, &question, false, out);
        }
    }

    /// Writes [`NO_ANSWER`] in the model's place, if nothing remains to read.
    fn answer_if_silent(&mut self, at: usize, out: &mut Vec<Bytes>) {
        let choice = &self.choices[at];
        if choice.is_silent() && (choice.is_continued() || choice.is_edited()) {
            let shown = self.choices[at].add_own_text(NO_ANSWER);
            self.write_text(at, &shown, false, out);
        }
    }

    fn write_text(&mut self, at: usize, text: &str, before: bool, out: &mut Vec<Bytes>) {
        self.codec.write_text(self.choices[at].index, text, before, out);
    }

    /// Writes the usage of all replies where the last one reports none and an earlier one's was held back.
    pub(super) fn write_owed_usage(&mut self, out: &mut Vec<Bytes>) {
        let is_owed = std::mem::take(&mut self.owes_usage) && !self.options.cut_usage;
        if let Some(usage) = self.usage.total().filter(|_| is_owed) {
            self.codec.write_usage(&usage, out);
        }
    }

    /// Writes what acted on the reply: as a member of an event where the client wants that, else as a comment where
    /// anything did.
    pub(super) fn write_remark(&mut self, out: &mut Vec<Bytes>) {
        if self.judging.observes() {
            return;
        }
        let actions = self.judging.actions();
        if self.options.reports {
            let report = json!({"actions": actions, "request_id": self.options.request_id});
            self.codec.write_report(&report.to_string(), out);
        } else if !actions.is_empty() {
            out.push(self.codec.comment(&format!("toolrein {}", actions.join(", "))));
        }
    }

    /// Writes the missing finish of choices that toolrein cut short.
    pub(super) fn close_choices(&mut self, out: &mut Vec<Bytes>) {
        let is_unknown = self.phase.has_failed() || matches!(self.phase, Phase::Unjudged);
        if is_unknown || self.judging.observes() {
            return;
        }
        for at in 0..self.choices.len() {
            if !self.choices[at].lacks_finish() {
                continue;
            }
            self.write_question(at, 0, out);
            self.answer_if_silent(at, out);
            let has_calls = self.choices[at].releases();
            self.codec.write_finish(self.choices[at].index, has_calls, out);
            self.choices[at].finish_shown = true;
        }
    }
}
