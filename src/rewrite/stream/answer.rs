//! A final answer on its way through the stream: what the model writes as markup of tool calls is not text for the client.
//! Puts the cleaned text in the place of the upstream's, before anything else is read of an event.

use super::StreamJudge;
use super::lines::one_line;
use crate::wire::json::quote;
use crate::wire::reply::Reply;
use crate::wire::sse::{parse_fields, write_event};
use bytes::Bytes;

impl StreamJudge {
    /// The event without markup, where the model was asked for its final answer.
    pub(super) fn without_markup(&mut self, raw: Bytes, now_ms: u64, out: &mut Vec<Bytes>) -> Bytes {
        if !self.judging.is_landing() {
            return raw;
        }
        let data = one_line(&raw);
        let Ok(reply) = Reply::parse(&data) else { return raw };
        let (cleaned, before) = self.markup.event(&data, &reply);
        self.say_texts(before, now_ms, out);
        if cleaned == data {
            return raw;
        }
        match parse_fields(&raw).place {
            Some(place) => {
                let place = place.range();
                [&raw[..place.start], &cleaned, &raw[place.end..]].concat().into()
            }
            None => write_event(&cleaned),
        }
    }

    /// The reply has ended: text that might have become markup is none.
    pub(super) fn say_held_text(&mut self, now_ms: u64, out: &mut Vec<Bytes>) {
        let rest = std::mem::take(&mut self.markup).finish();
        self.say_texts(rest, now_ms, out);
    }

    /// Has texts of the model, by the choice, read as events of their own.
    fn say_texts(&mut self, texts: Vec<(u32, String)>, now_ms: u64, out: &mut Vec<Bytes>) {
        for (index, text) in texts {
            let head = self.head.clone().unwrap_or_default();
            let raw = head.event(index, &format!("{{\"content\":{}}}", quote(&text)), "null");
            let data = one_line(&raw);
            if let Ok(reply) = Reply::parse(&data) {
                self.chunk(raw, reply, &data, (now_ms, out));
            }
        }
    }
}
