//! A reply that the client gets as a stream: each chunk is judged as it arrives and handed on at once; further replies to
//! asking again join the same stream.

mod rejoined;

use self::rejoined::rejoined;
use super::error::ProxyError;
use super::notes::label;
use super::reply::{Replying, Running};
use super::{Break, Core, Input, Now, Output, WholeReply};
use crate::rewrite::choice::is_served;
use crate::rewrite::judging::Judging;
use crate::rewrite::other_form::stream_of;
use crate::rewrite::stream::{Ending, StreamJudge, StreamLimits};
use crate::wire::error::{own_error_body, parse};
use crate::wire::sniff;
use crate::wire::sse::write_event;
use crate::wire::usage::Usage;
use bytes::Bytes;
use serde_json::{Value, json};

/// A stream to the client.
pub(super) struct Streaming {
    pub(super) judge: StreamJudge,
    upstream: Upstream,
    /// Room for the pieces of a chunk while it is judged.
    judged: Vec<Bytes>,
    /// How many choices were finished when the store was told last.
    remembered: usize,
}

/// What comes from the upstream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Upstream {
    /// Its stream. `ends_by_closing`: nothing but the end of the connection ends it.
    Reading { ends_by_closing: bool },
    /// It was asked again.
    Asked,
    /// Its reply has ended, but for calls that wait for a person's decision.
    Waiting,
    /// Nothing more.
    Over,
}

impl Streaming {
    pub(super) fn is_over(&self) -> bool {
        self.upstream == Upstream::Over
    }
}

impl Running {
    /// The first reply is a stream: its head goes out at once.
    pub(super) fn begin_stream(
        &mut self,
        core: &mut Core,
        judging: Judging,
        ends_by_closing: bool,
    ) -> Replying {
        core.record.streamed = true;
        core.outputs.push_back(Output::BeginStream { own: false });
        Replying::Stream(Box::new(self.streaming(core, judging, Upstream::Reading { ends_by_closing })))
    }

    /// A stream of ours, whose `events` are judged like an upstream's.
    pub(super) fn own_stream(
        &mut self,
        core: &mut Core,
        judging: Judging,
        events: &Bytes,
        now: Now,
    ) -> Replying {
        core.record.streamed = true;
        core.outputs.push_back(Output::BeginStream { own: true });
        let mut stream = self.streaming(core, judging, Upstream::Reading { ends_by_closing: false });
        self.whole_stream(core, &mut stream, events, now);
        Replying::Stream(Box::new(stream))
    }

    fn streaming(&self, core: &Core, judging: Judging, upstream: Upstream) -> Streaming {
        let limits = &core.shared.config.limits;
        let limits =
            StreamLimits { event: limits.event_bytes, held: limits.held_bytes, reply: limits.reply_bytes };
        let mut judge = StreamJudge::new(judging, limits, true);
        judge.cut_usage = self.pass.ask_usage;
        judge.tell = self.preface(core);
        Streaming { judge, upstream, judged: Vec::new(), remembered: 0 }
    }

    /// Takes what happened to the stream.
    pub(super) fn on_stream(&mut self, core: &mut Core, stream: &mut Streaming, input: Input, now: Now) {
        let (reading, is_done) = (stream.upstream, stream.judge.is_done());
        match (reading, input) {
            (Upstream::Reading { .. }, Input::Bytes(data)) => self.push(core, stream, &data, now),
            (Upstream::Reading { ends_by_closing: true }, Input::End) if !stream.judge.is_whole() => {
                let error = core.cut("the connection was closed before the stream had ended");
                break_off(core, stream, &error, Break::Upstream);
            }
            // All has been said; that the connection ends badly is no loss.
            (Upstream::Reading { .. }, Input::Cut(..)) if is_done => self.finish(core, stream, now),
            (Upstream::Reading { .. }, Input::End) => self.finish(core, stream, now),
            (Upstream::Asked, Input::StreamBegins { ends_by_closing }) => {
                stream.upstream = Upstream::Reading { ends_by_closing };
            }
            (Upstream::Asked, Input::Reply(reply)) => self.asked_stream(core, stream, &reply, now),
            (Upstream::Reading { .. } | Upstream::Waiting | Upstream::Asked, Input::Decided(id, word)) => {
                if self.decided(core, id, word) {
                    let mut out = Vec::new();
                    stream.judge.settle(id, word, &mut out);
                    core.emit(out);
                    self.note_finished(core, stream, now);
                }
                if reading == Upstream::Waiting && !stream.judge.is_waiting() {
                    self.finish(core, stream, now);
                }
            }
            (Upstream::Over, _) => {}
            (_, Input::NotSent(error)) => break_off(core, stream, &error, Break::Upstream),
            (_, Input::Cut(error, how)) => break_off(core, stream, &error, how),
            (_, Input::NoMemory) => break_off(core, stream, &ProxyError::NoMemory, Break::Upstream),
            // Keeps the client's connection alive while it has to wait.
            (_, Input::Silence) if stream.judge.at_boundary() => {
                core.outputs.push_back(Output::Emit(Bytes::from_static(b": toolrein waits\n\n")));
            }
            _ => {}
        }
    }

    /// Judges what came.
    fn push(&mut self, core: &mut Core, stream: &mut Streaming, data: &Bytes, now: Now) {
        let mut out = std::mem::take(&mut stream.judged);
        stream.judge.push(data.clone(), now.ms, &mut out);
        if !self.asks_anew(core, stream, &mut out) {
            rejoined(data, &mut out, |piece| core.outputs.push_back(Output::Emit(piece)));
        }
        out.clear();
        stream.judged = out;
        if stream.judge.spoiled {
            let why = stream.judge.unjudged.last().map_or("unjudged", |why| label(*why));
            break_off(core, stream, &ProxyError::ReplyUnjudged { why }, Break::Upstream);
        }
        self.ask_approvals(core, &stream.judge.judging);
        self.note_finished(core, stream, now);
    }

    /// Before the client can act on a finish, the store knows what it was handed.
    fn note_finished(&mut self, core: &mut Core, stream: &mut Streaming, now: Now) {
        let judge = &stream.judge;
        let finished = judge.choices().iter().filter(|choice| choice.finish_shown).count();
        let finished = finished + usize::from(judge.is_done());
        if finished > stream.remembered {
            stream.remembered = finished;
            self.remember_first(core, judge, now);
        }
        // Nor does the client's next request meet this one, however long the upstream takes to end its stream.
        let choices = judge.choices();
        if !choices.is_empty() && choices.iter().all(|choice| choice.finish_shown) {
            core.outputs.push_back(Output::Dismiss);
        }
    }

    fn remember_first(&mut self, core: &mut Core, judge: &StreamJudge, now: Now) {
        // In front of what the client is given now.
        let given = std::mem::take(&mut core.outputs);
        self.remember(core, judge.choices(), now.ms);
        if judge.is_done() {
            self.billed(core, judge.total_usage().as_ref().map(Usage::read).unwrap_or_default());
        }
        core.outputs.extend(given);
    }

    /// Where the first event is an error: true if another form of the request is asked instead. Else the error is put in its
    /// place in `out`.
    fn asks_anew(&mut self, core: &mut Core, stream: &mut Streaming, out: &mut Vec<Bytes>) -> bool {
        let Some((error, raw, place)) = stream.judge.take_head_error() else { return false };
        let again = match self.pass.asking {
            // An error that says nothing of its status is a refusal of what was asked.
            Some(_) => self.lands_bare(core, error.status.unwrap_or(400)),
            None => self.falls_back(core, error.status.unwrap_or(200), &error),
        };
        if !again {
            stream.judge.fail();
            // No form was taken.
            self.tried.clear();
            out.insert(place, raw);
            return false;
        }
        stream.judge.restart(true);
        stream.judge.cut_usage = self.pass.ask_usage;
        stream.judge.tell = self.preface(core);
        self.ask(core, stream);
        true
    }

    /// The upstream's stream has ended, or no call waits any more.
    fn finish(&mut self, core: &mut Core, stream: &mut Streaming, now: Now) {
        let mut out = Vec::new();
        let ending = stream.judge.finish(now.ms, &mut out);
        if self.asks_anew(core, stream, &mut out) {
            return;
        }
        core.emit(out);
        self.ask_approvals(core, &stream.judge.judging);
        match ending {
            Ending::Waits => stream.upstream = Upstream::Waiting,
            Ending::Reask { choice, round } if !core.is_observing() => {
                let served = is_served(stream.judge.choices(), choice);
                self.ask_again(core, (choice, served), round, &mut stream.judge.judging);
                stream.judge.continue_with(choice);
                self.ask(core, stream);
            }
            _ => {
                self.taken(core);
                self.remember(core, stream.judge.choices(), now.ms);
                stream.upstream = Upstream::Over;
                core.outputs.push_back(Output::Done);
            }
        }
    }

    fn ask(&mut self, core: &mut Core, stream: &mut Streaming) {
        stream.upstream = Upstream::Asked;
        self.send(core);
    }

    /// A whole reply to asking again, or a refusal.
    fn asked_stream(&mut self, core: &mut Core, stream: &mut Streaming, reply: &WholeReply, now: Now) {
        let (status, none) = (reply.status, Bytes::new());
        let body = reply.body.as_ref().unwrap_or(&none);
        if let Some(events) = events_of(body).filter(|_| (200..300).contains(&status)) {
            return self.whole_stream(core, stream, &events, now);
        }
        let falls_back = |this: &mut Self, core: &mut Core| {
            let error = parse(body).unwrap_or_default();
            this.pass.asking.is_none() && this.falls_back(core, status, &error)
        };
        if self.lands_bare(core, status) || falls_back(self, core) {
            return self.ask(core, stream);
        }
        core.emit(vec![write_event(&error_data(status, body))]);
        core.record.error = Some("reask_failed");
        core.outputs.push_back(Output::BreakOff(Break::Upstream));
        stream.upstream = Upstream::Over;
    }

    /// A stream that is there to its end.
    fn whole_stream(&mut self, core: &mut Core, stream: &mut Streaming, events: &Bytes, now: Now) {
        stream.upstream = Upstream::Reading { ends_by_closing: false };
        self.push(core, stream, events, now);
        if matches!(stream.upstream, Upstream::Reading { .. }) {
            self.finish(core, stream, now);
        }
    }

    /// Notes what became of calls; a client that left has what it was given.
    pub(super) fn close_stream(&mut self, core: &mut Core, stream: &mut Streaming, now: Now) {
        if stream.upstream != Upstream::Over {
            self.remember(core, stream.judge.choices(), now.ms);
        }
        for why in &stream.judge.unjudged {
            core.note_unjudged(label(*why));
        }
        core.note_judged(&stream.judge.judging, &mut self.noted, now.ms);
        self.billed(core, stream.judge.total_usage().as_ref().map(Usage::read).unwrap_or_default());
    }
}

impl Core {
    fn emit(&mut self, pieces: Vec<Bytes>) {
        self.outputs.extend(pieces.into_iter().map(Output::Emit));
    }
}

/// Ends the stream visibly: an error event where one can stand, then a broken body.
fn break_off(core: &mut Core, stream: &mut Streaming, error: &ProxyError, how: Break) {
    if stream.judge.at_boundary() {
        let data = own_error_body(&error.message(), error.code());
        core.emit(vec![write_event(data.as_bytes())]);
    }
    core.record.error = Some(error.code());
    core.outputs.push_back(Output::BreakOff(how));
    stream.upstream = Upstream::Over;
}

/// The events of a reply that came whole: it is a stream under another name, or a reply in the other form.
fn events_of(body: &Bytes) -> Option<Bytes> {
    if sniff::is_events(body) == Some(true) { Some(body.clone()) } else { stream_of(body) }
}

/// An upstream's error as the data of an event.
fn error_data(status: u16, body: &[u8]) -> Vec<u8> {
    let is_object = |value: &Value| value.get("error").is_some_and(Value::is_object);
    match serde_json::from_slice::<Value>(body) {
        // The error alone: clients that do not look for errors would run calls beside it.
        Ok(value) if is_object(&value) => json!({ "error": value["error"] }).to_string().into_bytes(),
        _ => {
            let said = parse(body).map(|error| error.messages.join("; ")).filter(|said| !said.is_empty());
            let said = said.map_or_else(String::new, |said| format!(": {said}"));
            let message = format!("The upstream refused to be asked again with status {status}{said}");
            own_error_body(&message, "reask_failed").into_bytes()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstreams_error_object_is_passed_on_as_it_is_and_anything_else_in_our_shape() {
        let told = |body: &str| String::from_utf8(error_data(429, body.as_bytes())).unwrap();
        assert_eq!(told("{\"error\": {\"message\": \"slow\"}}"), r#"{"error":{"message":"slow"}}"#);
        let with_call = r#"{"error":{"message":"slow"},"choices":[{"delta":{"tool_calls":[{}]}}]}"#;
        assert_eq!(told(with_call), r#"{"error":{"message":"slow"}}"#);
        assert!(told("gone").contains("status 429: gone"));
    }
}
