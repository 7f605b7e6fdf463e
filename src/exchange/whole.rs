//! A reply that the client gets whole: told from an error, judged, and asked for again until no choice is left all of whose
//! calls were blocked.

use super::error::ProxyError;
use super::reply::{Replying, Running};
use super::{Answer, Core, Now, WholeReply};
use crate::rewrite::choice::is_served;
use crate::rewrite::judging::Judging;
use crate::rewrite::other_form::whole_of;
use crate::rewrite::reply::WholeJudge;
use crate::wire::body::Fault;
use crate::wire::error::{UpstreamError, may_be_in_200, parse, parse_in_200};
use crate::wire::reply::{Form, Reply, may_be_reply};
use crate::wire::sniff;
use bytes::Bytes;

/// A reply that is judged.
pub(super) struct Whole {
    pub(super) judge: Box<WholeJudge>,
    source: Source,
    /// The choice for which the model was asked again.
    asked: Option<u32>,
}

/// Whose bytes go to the client where nothing acts.
pub(super) enum Source {
    /// The upstream's reply of this number.
    Upstream(u32),
    /// Ours.
    Own(Bytes),
}

/// A reply as far as it can be read.
struct Read<'a> {
    is_success: bool,
    status: u16,
    body: Option<&'a Bytes>,
    reply: Option<Reply>,
    /// The error that it is, whatever its status says.
    error: Option<(u16, UpstreamError)>,
}

impl<'a> Read<'a> {
    /// A reply in which a client could find a call is no error, as clients that do not look for errors run it.
    fn of(status: u16, body: Option<&'a Bytes>) -> Self {
        let is_success = (200..300).contains(&status);
        let mut read = Self { is_success, status, body, reply: None, error: None };
        let Some(body) = body else { return read };
        let reply = Reply::read(body, Form::Whole);
        let may_hold_calls = match &reply {
            Ok(reply) => reply.may_hold_calls(),
            Err(_) => is_success && may_be_reply(body),
        };
        let error = match &reply {
            _ if may_hold_calls => None,
            // A status that refuses says so without words too.
            _ if !is_success => Some(parse(body).unwrap_or_default()),
            Ok(reply) if !may_be_in_200(reply, body) => None,
            _ => parse_in_200(body),
        };
        read.reply = reply.ok();
        read.error = error.map(|error| (error.status.filter(|_| is_success).unwrap_or(status), error));
        read
    }

    /// Whether the reply, whose status says that it is an error, cannot be read here and may be one with choices for a more
    /// tolerant reader, or a stream.
    fn may_be_another_readers(&self) -> bool {
        !self.is_success && self.reply.is_none() && self.body.is_some_and(|body| may_be_reply(body))
    }

    fn may_hold_calls(&self) -> bool {
        self.reply.as_ref().is_some_and(Reply::may_hold_calls)
    }
}

impl Whole {
    /// The number of the upstream's reply that the client gets if nothing acts.
    pub(super) fn upstream_reply(&self) -> Option<u32> {
        if let Source::Upstream(id) = self.source { Some(id) } else { None }
    }
}

impl Running {
    /// The first reply that came whole: another form is tried where it is a refusal, else it is judged.
    pub(super) fn first_reply(
        &mut self,
        core: &mut Core,
        (judging, reply): (Box<Judging>, WholeReply),
        now: Now,
    ) -> Replying {
        let read = Read::of(reply.status, reply.body.as_ref().ok());
        if judging.is_strict() && read.may_be_another_readers() {
            core.note_unjudged("not_json");
            return self.fail(core, ProxyError::ReplyUnjudged { why: "not_json" });
        }
        if let Some((status, error)) = &read.error
            && self.falls_back(core, *status, error)
        {
            self.send(core);
            return Replying::Nothing(judging);
        }
        if read.error.is_some() || (!read.is_success && !read.may_hold_calls()) {
            core.answer(Answer::AsItCame(reply.id));
            return Replying::Over;
        }
        self.taken(core);
        self.judge_whole(core, *judging, (Source::Upstream(reply.id), reply.body), now)
    }

    /// Judges a whole reply and asks again for as long as that is needed.
    pub(super) fn judge_whole(
        &mut self,
        core: &mut Core,
        judging: Judging,
        (source, body): (Source, Result<Bytes, &'static str>),
        now: Now,
    ) -> Replying {
        let strict = judging.is_strict();
        let judge = body.and_then(|body| {
            WholeJudge::read(&body, judging, now.ms).map_err(|fault| match fault {
                Fault::Crowded => "reply_too_long",
                _ => "not_json",
            })
        });
        let judge = match judge {
            Ok(judge) => judge,
            Err(why) => {
                core.note_unjudged(why);
                if strict {
                    return self.fail(core, ProxyError::ReplyUnjudged { why });
                }
                core.answer(source.unchanged());
                return Replying::Over;
            }
        };
        if judge.is_ambiguous() {
            core.note_unjudged("ambiguous");
        }
        if judge.is_unsafe() {
            return self.fail(core, ProxyError::ReplyUnjudged { why: "ambiguous" });
        }
        self.go_on_whole(core, Box::new(Whole { judge, source, asked: None }), now)
    }

    /// Asks people, or asks the model again, or answers.
    pub(super) fn go_on_whole(&mut self, core: &mut Core, mut whole: Box<Whole>, now: Now) -> Replying {
        self.ask_approvals(core, &whole.judge.judging);
        if !self.held.is_empty() {
            // At once: the client may leave meanwhile.
            self.note_whole(core, &whole, now);
            return Replying::Whole(whole);
        }
        if let Some((choice, hidden)) = whole.judge.pending().filter(|_| !core.is_observing()) {
            self.note_whole(core, &whole, now);
            let served = is_served(whole.judge.choices(), choice);
            self.ask_again(core, (choice, served), hidden, &mut whole.judge.judging);
            whole.asked = Some(choice);
            self.send(core);
            return Replying::Whole(whole);
        }
        whole.judge.tell = self.preface(core);
        // Written first: what the client reads, our own words included, is what it sends back.
        let written = whole.judge.write();
        self.remember(core, whole.judge.choices(), now.ms);
        self.note_whole(core, &whole, now);
        core.answer(match (written, whole.source) {
            (Some(body), Source::Upstream(id)) => Answer::Edited(id, body),
            (Some(body), Source::Own(_)) => Answer::Own(body),
            (None, source) => source.unchanged(),
        });
        Replying::Over
    }

    /// The reply to asking again.
    pub(super) fn asked_whole(
        &mut self,
        core: &mut Core,
        mut whole: Box<Whole>,
        reply: &WholeReply,
        now: Now,
    ) -> Replying {
        let came = reply.body.as_ref().ok();
        let events = came.filter(|body| sniff::is_events(body) == Some(true));
        let converted = events.and_then(whole_of);
        let read = Read::of(reply.status, converted.as_ref().or(came));
        // An error that says nothing of its status is a refusal of what was asked.
        let refused = read.error.as_ref().map(|(status, _)| if *status < 400 { 400 } else { *status });
        if self.lands_bare(core, refused.unwrap_or(read.status)) {
            self.send(core);
            return Replying::Whole(whole);
        }
        let is_reply = (read.is_success && refused.is_none()) || read.may_hold_calls();
        let Some(body) = read.body.filter(|_| is_reply) else {
            // Too long, or in a coding that cannot be read, it would go to the client unjudged.
            let is_unread = (read.body.is_none() && read.is_success) || read.may_be_another_readers();
            if is_unread {
                return self.fail(core, core.unreadable());
            }
            core.answer(match converted {
                Some(body) => Answer::Edited(reply.id, body),
                None => Answer::AsItCame(reply.id),
            });
            return Replying::Over;
        };
        let choice = whole.asked.take().unwrap_or_default();
        if whole.judge.continue_with(choice, body, now.ms).is_err() {
            return self.fail(core, core.unreadable());
        }
        self.go_on_whole(core, whole, now)
    }

    fn note_whole(&mut self, core: &mut Core, whole: &Whole, now: Now) {
        core.note_judged(&whole.judge.judging, &mut self.noted, now.ms);
        self.billed(core, whole.judge.usage().unwrap_or_default());
    }
}

impl Core {
    /// The upstream answered what cannot be read.
    pub(super) fn unreadable(&self) -> ProxyError {
        self.cut("its answer is no chat completion")
    }

    /// The upstream broke off.
    pub(super) fn cut(&self, detail: &str) -> ProxyError {
        ProxyError::UpstreamCut { host: self.shared.upstream.clone(), detail: detail.to_owned() }
    }
}

impl Source {
    fn unchanged(self) -> Answer {
        match self {
            Self::Upstream(id) => Answer::AsItCame(id),
            Self::Own(body) => Answer::Own(body),
        }
    }
}
