//! One event of a stream read: an error, the end, text alone, or a chunk whose calls go to the judge. What cannot be read
//! as every client reads it is refused or passed on unjudged by `bounds`.

use super::lines::{hides_lines, single_events};
use super::{Held, StreamJudge, Unjudged};
use crate::rewrite::choice::{AddedCall, ChoiceState};
use crate::rewrite::event::{CallAt, Continuation};
use crate::wire::body::Fault;
use crate::wire::call::ToolCall;
use crate::wire::error::{UpstreamError, parse_event};
use crate::wire::json::decode;
use crate::wire::reply::{Reply, may_be_reply};
use crate::wire::sse::{Fields, parse_fields};
use bytes::Bytes;

impl StreamJudge {
    pub(super) fn event(&mut self, raw: Bytes, now_ms: u64, out: &mut Vec<Bytes>) {
        let raw = self.without_markup(raw, now_ms, out);
        let fields = parse_fields(&raw);
        if self.judging.is_strict() && hides_lines(&raw, &fields) {
            return self.escape(Unjudged::Ambiguous, raw, (now_ms, out));
        }
        if fields.data.is_empty() {
            return self.pass(raw, (now_ms, out));
        }
        if fields.data.starts_with(b"[DONE]") && fields.place.is_some() {
            return self.done(raw, now_ms, out);
        }
        let read = Reply::parse(&fields.data);
        if read.is_err()
            && let Some(events) = single_events(&raw)
        {
            return events.into_iter().for_each(|event| self.event(event, now_ms, out));
        }
        // An error is passed on unread; one with a call beside it is a reply all the same, for clients that see no error.
        let error = self.error_in(&fields);
        let may_hold_calls = read.as_ref().map_or_else(|_| may_be_reply(&fields.data), Reply::may_hold_calls);
        if let Some(error) = error.as_ref().filter(|_| !may_hold_calls) {
            if !self.begun && self.watch_head {
                self.head_error = Some((error.clone(), raw, out.len()));
                self.watch_head = false;
                return;
            }
            self.errored = true;
            return self.pass(raw, (now_ms, out));
        }
        self.begun = true;
        match read {
            Ok(reply) if reply.ambiguous => self.escape(Unjudged::Ambiguous, raw, (now_ms, out)),
            Ok(reply) => {
                // The client sees that one, whatever becomes of the call.
                let shows_error = error.is_some() && reply.member(&fields.data, b"error").is_some();
                self.chunk(raw.clone(), reply, &fields.data, (now_ms, out));
                self.errored |= shows_error;
            }
            Err(Fault::Crowded) => self.escape(Unjudged::ReplyTooLong, raw, (now_ms, out)),
            Err(_) => {
                let is_word = is_word(&fields.data);
                self.unread(is_word, raw, (now_ms, out));
            }
        }
    }

    /// An event that is no JSON; `is_word`: nobody could read a call in it.
    fn unread(&mut self, is_word: bool, raw: Bytes, (now_ms, out): (u64, &mut Vec<Bytes>)) {
        if !is_word {
            self.note(Unjudged::NotJson);
            self.spoiled |= self.judging.is_strict();
        }
        if !self.spoiled {
            self.pass(raw, (now_ms, out));
        }
    }

    pub(super) fn error_in(&self, fields: &Fields<'_>) -> Option<UpstreamError> {
        let name = fields.name.and_then(|name| std::str::from_utf8(name).ok());
        parse_event(name, fields.field, &fields.data)
    }

    pub(super) fn chunk(
        &mut self,
        raw: Bytes,
        reply: Reply,
        data: &[u8],
        (now_ms, out): (u64, &mut Vec<Bytes>),
    ) {
        if self.head.is_none() && !reply.choices.is_empty() {
            self.head = Some(Continuation::of(&reply, data));
        }
        if reply.usage.is_some() && reply.choices.is_empty() {
            // Some providers send no finish reason; usage alone comes after everything else, if nothing is half there.
            if !self.choices.iter().any(ChoiceState::has_open_call) {
                self.finish_choices(now_ms, out);
            }
            self.choices.iter_mut().for_each(|state| state.finish_came = true);
        }
        // The last one counts: Perplexity tells it with every chunk, some tell it twice.
        if let Some(usage) = reply.told_usage() {
            self.usage = serde_json::from_slice(usage.of(data)).ok();
        }
        let mut calls = Vec::new();
        let mut escapes = false;
        for (at, choice) in reply.choices.iter().enumerate() {
            let place = self.place_of(choice.index);
            let state = &mut self.choices[place];
            state.next_event();
            state.add_text(&choice.delta, data);
            let mut beside: Vec<(usize, &ToolCall)> = Vec::new();
            for (delta, call) in choice.calls_by_form() {
                if let Some(known) = state.repeated_delta(call, &beside, data) {
                    calls.push(CallAt { choice: at, delta, call: known, carries: true, begins: false });
                    continue;
                }
                let added = match delta < choice.delta.calls.len() {
                    true => state.add_call(call, data, &mut self.judging, now_ms),
                    false => {
                        let strict = self.judging.is_strict();
                        AddedCall::beside(
                            state.add_call_beside(call, data, strict),
                            call.ambiguous && !strict,
                        )
                    }
                };
                escapes |= added.escapes;
                beside.push((added.call, call));
                let AddedCall { call, carries, begins, .. } = added;
                calls.push(CallAt { choice: at, delta, call, carries, begins });
            }
            escapes |= state.ceases_to_repeat();
            if let Some(finish) = choice.finish {
                state.finish_came = true;
                state.ends_by(&decode(finish, data));
                state.finish_calls(&mut self.judging, now_ms);
            }
        }
        if escapes {
            return self.escape(Unjudged::Ambiguous, raw, (now_ms, out));
        }
        self.hold(Held { raw, reply: Some(reply), calls });
        self.bound(now_ms, out);
        self.drain(out);
    }

    pub(super) fn hold(&mut self, event: Held) {
        self.held_bytes += event.raw.len();
        self.said_bytes += event.said_bytes();
        self.held.push_back(event);
    }
}

/// Whether data are neither an object nor a list for any reader: some servers send words to keep the connection.
fn is_word(data: &[u8]) -> bool {
    !data.iter().any(|byte| matches!(byte, b'{' | b'[')) && !may_be_reply(data)
}
