//! toolrein's own texts in a reply, as message items: the line to the person before the answer, the question about
//! calls that need an approval, the fixed sentence where the model gives no answer, and the comment that lists the
//! actions of policies.

use super::items::OutItem;
use super::written::{message, message_events};
use super::{Form, ReplyJudge};
use crate::dialect::judge::CallJudge;
use crate::dialect::reply::ShownChoice;
use crate::dialect::responses::OWN_ID;
use bytes::Bytes;
use serde_json::{Value, json};

pub use crate::dialect::edit::NO_ANSWER;

impl<J: CallJudge> ReplyJudge<J> {
    /// Reserves the first place in the list of items for the line to the person: an item of the upstream's begins before
    /// the line is written.
    pub(super) fn reserve_preface(&mut self) {
        if self.options.preface.is_some() && self.items.is_empty() {
            self.reserve();
        }
    }

    /// Writes the line to the person, once.
    pub(super) fn say_preface(&mut self, out: &mut Vec<Bytes>) {
        if !self.judging.observes()
            && let Some(preface) = self.options.preface.take()
            && !self.continued
        {
            let at = self.items.iter().position(OutItem::is_reserved).unwrap_or_else(|| self.reserve());
            self.write_own(at, preface.trim(), out);
        }
    }

    /// Writes what comes before the last event.
    pub(super) fn say_end(&mut self, out: &mut Vec<Bytes>) {
        if let Some(question) = self.shown.take_question() {
            self.say(&question, out);
        }
        let acted = self.shown.is_continued() || self.shown.is_edited();
        let has_failed = self.last.as_ref().is_some_and(|last| last.failed);
        if acted && self.shown.is_silent() && !has_failed {
            self.say(NO_ANSWER, out);
        }
    }

    fn say(&mut self, text: &str, out: &mut Vec<Bytes>) {
        let at = self.reserve();
        self.write_own(at, text, out);
    }

    /// Adds an item for a text that is written later, and returns its position.
    fn reserve(&mut self) -> usize {
        self.items.push(OutItem::reserved());
        self.items.len() - 1
    }

    fn write_own(&mut self, at: usize, text: &str, out: &mut Vec<Bytes>) {
        let of_reply: String = self
            .shown
            .reply_id
            .iter()
            .flat_map(|id| id.chars())
            .filter(char::is_ascii_alphanumeric)
            .collect();
        let id =
            format!("{OWN_ID}{}{}", of_reply.get(..24).unwrap_or(&of_reply), at + self.shown.earlier.len());
        let item = message(&id, text);
        self.items[at].done = Some(Bytes::from(item.to_string()));
        if self.form == Form::Streamed {
            self.numbers.rewrite();
            let index = self.numbers.begin_item(None);
            self.items[at].shown_as = Some(index);
            for event in message_events(&item, index) {
                let event = self.own_event(event);
                out.push(event);
            }
        }
        self.is_changed = true;
        self.update();
    }

    /// An error event, and the event that ends the response as failed, under the id that the client knows.
    pub(super) fn failed(&mut self, error: &[u8]) -> Bytes {
        let data = wire::sse::parse_fields(error).data.into_owned();
        let said: Value = serde_json::from_slice(&data).unwrap_or_default();
        self.numbers.rewrite();
        let error = self.own_event(said.clone());
        if self.head.is_empty() {
            return error;
        }
        let mut response = json!({"object": "response", "status": "failed", "output": [], "usage": null,
            "error": {"code": said["code"], "message": said["message"]}});
        for (name, value) in &self.head {
            if let (Ok(name), Ok(value)) = (std::str::from_utf8(name), serde_json::from_slice(value)) {
                let _: Value = std::mem::replace(&mut response[name], value);
            }
        }
        let end = self.own_event(json!({"type": "response.failed", "response": response}));
        [error, end].concat().into()
    }

    /// The same for an error of toolrein's own, with the id of the client's request.
    pub(super) fn failed_by_us(&mut self, message: &str, code: &str) -> Bytes {
        let mut error = json!({"type": "error", "code": code, "param": null, "message": message});
        if !self.options.request_id.is_empty() {
            error["request_id"] = self.options.request_id.as_str().into();
        }
        self.failed(format!("data: {error}\n\n").as_bytes())
    }

    /// The events for an upstream that broke off before its last event.
    pub(super) fn cut_event(&mut self) -> Bytes {
        self.failed_by_us("The upstream ended its stream before its last event.", "upstream_cut")
    }
}
