//! One client request between the upstream and the client: sent, in another form where it is refused, judged, and asked
//! again, in the order in which the handler does it. Keeps what passed on the way; asserts nothing.

use super::gateway::{Gateway, Passed, Reading};
use super::model::{Model, streamed, whole};
use super::upstream::Refused;
use bytes::Bytes;
use serde_json::Value;
use toolrein::exchange::fallback::{Fallbacks, Subject, lands_bare, learned, placement};
use toolrein::ledger::{Answered, Ledger as _, News, Overflow, SentRounds};
use toolrein::rewrite::choice::{ChoiceState, next_of};
use toolrein::rewrite::confirm::{Handed, events, reply};
use toolrein::rewrite::judging::{AnswerTools, Judging};
use toolrein::rewrite::pass::{Pass, Source, Tools};
use toolrein::rewrite::reasks::{Next, Reasks};
use toolrein::rewrite::reply::{Ending, Form, Limits, Options, Refusal, ReplyJudge};
use toolrein::rewrite::restore::Asked;
use toolrein::telemetry::outcome::Fallback;
use toolrein::transcript::identity::Hash;
use toolrein::wire::error::{UpstreamError, parse, parse_in_200};
use toolrein::wire::refusal::overflows;
use toolrein::wire::request::{Choice, Request};
use toolrein::wire::sse::write_event;

const LIMITS: Limits = Limits { event: 1 << 20, held: 1 << 22, reply: 1 << 25 };

/// See the file's head.
pub struct Exchange<'a> {
    gateway: &'a mut Gateway,
    model: &'a mut Model,
    pub body: &'a Bytes,
    pub request: Request,
    pub passed: Passed,
    /// See [`Reading`].
    pub overflows: Vec<usize>,
    names: Names,
    sent: SentRounds,
    pass: Pass,
    fallbacks: Fallbacks,
    reasks: Reasks,
    /// The rounds behind which the model was asked again, by the choice.
    rounds: Vec<(u32, Bytes)>,
}

/// Under which the ledger is told.
struct Names {
    context: Hash,
    model: Hash,
    overflow: (Hash, Hash),
    /// The text that asked what the user says yes to.
    anchor: Hash,
}

/// What comes of one sending.
enum Sent {
    /// A reply or a stream, be it of an error.
    Came(Bytes),
    Refused(Refused),
}

impl<'a> Exchange<'a> {
    /// The exchange, and the judge of its replies.
    pub fn prepare(
        gateway: &'a mut Gateway,
        (body, model): (&'a Bytes, &'a mut Model),
        reading: Reading,
        mut passed: Passed,
    ) -> (Self, Judging) {
        let Reading { request, facts, plan, judge, restored, context, answer, token, sent, .. } = reading;
        let config = &gateway.config;
        let answers = AnswerTools::of(&request, body, &config.reask.answer_tools);
        let keeps_tools = request.choice == Choice::Forced || !answers.declared.is_empty();
        let notices = plan.has_notices() && !passed.observed;
        let upstream = &config.upstream;
        let (mode, overflow) = (upstream.tools_unsupported, upstream.overflow);
        let put_back = !restored.is_empty();
        let subject = Subject { mode, overflow, forced: keeps_tools, notices, restored: put_back };
        let fallbacks = Fallbacks::new(&request, subject);
        let settings = &config.notices;
        let name = request.model_name(body);
        let placed = placement(settings.placement, &settings.system_models, &name, facts.model);
        let mut pass = fallbacks.first(&request, placed, facts.model);
        if passed.observed {
            pass = Pass::plain(placed);
        } else {
            (passed.planned, passed.plan, passed.restored) = (plan.clone(), plan, restored);
        }
        let mut judging = Judging::new(judge, answers, passed.observed).asking(token);
        judging.approve(passed.approved.is_some());
        passed.keeps_tools = keeps_tools;
        let anchor = answer.map(|answer| answer.anchor).unwrap_or_default();
        let names = Names { context, model: reading.model, overflow: reading.overflow, anchor };
        let (overflows, reasks, rounds) = (reading.overflows, Reasks::default(), Vec::new());
        drop(name);
        let exchange = Self {
            gateway,
            model,
            body,
            request,
            passed,
            overflows,
            names,
            sent,
            pass,
            fallbacks,
            reasks,
            rounds,
        };
        (exchange, judging)
    }

    /// Steps 6 to 10 of the handler's path.
    pub fn run(mut self, judging: Judging) -> Passed {
        let begun = match self.handed() {
            Some(own) => Some(own),
            None => self.taken_reply(),
        };
        match begun {
            Some(begun) if self.request.stream => self.streamed(judging, begun),
            Some(begun) => self.whole(judging, begun),
            None => {}
        }
        self.passed
    }

    /// The approved calls, where the user said yes.
    fn handed(&self) -> Option<Bytes> {
        let confirmation = self.passed.approved.as_ref()?;
        let model = self.request.model_name(self.body).into_owned();
        let created = self.gateway.now_ms / 1000;
        let (key, usage) = (&self.gateway.identity.key, self.request.include_usage);
        let handed = Handed { anchor: self.names.anchor, key, model: &model, created, usage };
        let is_stream = self.request.stream;
        Some(if is_stream { events(confirmation, &handed) } else { reply(confirmation, &handed) })
    }

    /// What the upstream answers to the form that it takes; `None` where its error stands.
    fn taken_reply(&mut self) -> Option<Bytes> {
        loop {
            let (status, body) = match self.send() {
                Sent::Came(stream) if self.request.stream => return Some(stream),
                Sent::Came(body) if parse_in_200(&body).is_none() => {
                    self.taken();
                    return Some(body);
                }
                Sent::Came(body) => (200, body),
                Sent::Refused(refused) => (refused.status, refused.body),
            };
            if !error_of(status, &body).is_some_and(|(status, error)| self.falls_back(status, &error)) {
                self.passed.error = Some(body);
                return None;
            }
        }
    }

    /// Sends the request in its present form.
    fn send(&mut self) -> Sent {
        let Passed { plan, restored, .. } = &self.passed;
        let source = Source { body: self.body, request: &self.request, plan, restored };
        let sent = source.write(&self.pass).join();
        let request: Value = serde_json::from_slice(&sent).unwrap_or_default();
        self.passed.sent.push(sent);
        self.passed.forms.push(self.pass.clone());
        if self.pass.asking.is_none() {
            self.passed.tries += 1;
        }
        if let Some(refused) = self.gateway.upstream.refuses(&request) {
            self.passed.refused.push((self.passed.sent.len() - 1, refused.clone()));
            return match (refused.status, self.request.stream) {
                (200, true) => Sent::Came(write_event(&refused.body)),
                (200, false) => Sent::Came(refused.body),
                _ => Sent::Refused(refused),
            };
        }
        let said = self.model.answer(&request);
        let id = format!("r{}_{}", self.gateway.ordinal, self.passed.sent.len());
        let model = &request["model"];
        let bytes = if self.request.stream {
            streamed(&said, &id, model, &mut self.model.numbers)
        } else {
            whole(&said, &id, model)
        };
        self.passed.said.push(said);
        self.passed.raw.push(bytes.clone());
        Sent::Came(bytes)
    }

    fn whole(&mut self, judging: Judging, body: Bytes) {
        let now_ms = self.gateway.now_ms;
        let mut judge = ReplyJudge::new(judging, Form::Whole, LIMITS, Options::default());
        let mut out = Vec::new();
        judge.push(body, now_ms, &mut out);
        while let Ending::Reask { choice, hidden } = judge.finish(now_ms, &mut out) {
            let next = next_of(judge.choices(), choice);
            self.ask_again((choice, next), hidden, &mut judge.judging);
            let Some(again) = self.asked_whole() else { return self.end(judge.judging) };
            judge.continue_with(choice);
            judge.push(again, now_ms, &mut out);
        }
        self.remember(judge.choices());
        self.end(judge.judging);
        self.passed.reply = Some(out.concat().into());
    }

    /// The reply to asking again; `None` where the client gets the upstream's error.
    fn asked_whole(&mut self) -> Option<Bytes> {
        loop {
            let (status, body) = match self.send() {
                Sent::Came(body) if parse_in_200(&body).is_none() => return Some(body),
                Sent::Came(body) => (error_of(200, &body).map_or(200, |(status, _)| status), body),
                Sent::Refused(refused) => (refused.status, refused.body),
            };
            // An error that says nothing of its status is a refusal of what was asked.
            if !self.lands_bare(if status < 400 { 400 } else { status }) {
                self.passed.error = Some(body);
                return None;
            }
        }
    }

    fn streamed(&mut self, judging: Judging, begun: Bytes) {
        let mut judge = ReplyJudge::new(judging, Form::Streamed, LIMITS, Options::default());
        let (mut out, mut stream) = (Vec::new(), begun);
        loop {
            match self.read(&mut judge, stream, &mut out) {
                None => judge.begin(Form::Streamed, 200),
                Some(Ending::Reask { choice, hidden }) if !self.passed.observed => {
                    let next = next_of(judge.choices(), choice);
                    self.ask_again((choice, next), hidden, &mut judge.judging);
                    judge.continue_with(choice);
                }
                Some(_) => break,
            }
            match self.asked_stream() {
                Ok(again) => stream = again,
                Err(error) => {
                    out.push(write_event(&error));
                    self.passed.error = Some(out.concat().into());
                    return self.end(judge.judging);
                }
            }
        }
        if self.passed.error.is_some() {
            self.passed.error = Some(out.concat().into());
            return self.end(judge.judging);
        }
        self.taken();
        self.remember(judge.choices());
        self.end(judge.judging);
        self.passed.reply = Some(out.concat().into());
    }

    /// Reads a stream to its end; `None` where it is an error and another form is to be asked for.
    fn read(&mut self, judge: &mut ReplyJudge, mut rest: Bytes, out: &mut Vec<Bytes>) -> Option<Ending> {
        while !rest.is_empty() {
            let length = 1 + self.model.numbers.below(rest.len().min(700));
            let mut now = Vec::new();
            judge.push(rest.split_to(length), self.gateway.now_ms, &mut now);
            if self.asks_anew(judge, &mut now) {
                return None;
            }
            out.extend(now);
        }
        loop {
            let ending = judge.finish(self.gateway.now_ms, out);
            if ending != Ending::Refused {
                return Some(ending);
            }
            if self.asks_anew(judge, out) {
                return None;
            }
        }
    }

    fn asks_anew(&mut self, judge: &mut ReplyJudge, out: &mut Vec<Bytes>) -> bool {
        let Some(Refusal { error, raw }) = judge.refusal() else { return false };
        let again = match self.pass.asking {
            Some(_) => self.lands_bare(error.status.unwrap_or(400)),
            None => self.falls_back(error.status.unwrap_or(200), error),
        };
        if !again {
            self.passed.error = Some(raw.clone());
            judge.let_refusal_stand(self.gateway.now_ms, out);
        }
        again
    }

    /// The next stream; the error's body where the upstream refuses it by its status.
    fn asked_stream(&mut self) -> Result<Bytes, Bytes> {
        loop {
            let refused = match self.send() {
                Sent::Came(stream) => return Ok(stream),
                Sent::Refused(refused) => refused,
            };
            let falls_back = |this: &mut Self| {
                let error = parse(&refused.body).filter(|_| this.pass.asking.is_none());
                error.is_some_and(|error| this.falls_back(refused.status, &error))
            };
            if !self.lands_bare(refused.status) && !falls_back(self) {
                return Err(refused.body);
            }
        }
    }

    fn falls_back(&mut self, status: u16, error: &UpstreamError) -> bool {
        if self.passed.observed {
            return false;
        }
        if overflows(status, error) {
            return self.makes_room();
        }
        let Some((pass, fallback)) = self.fallbacks.after(status, error, &self.pass) else { return false };
        self.passed.tried.push(fallback);
        self.pass = pass;
        true
    }

    fn makes_room(&mut self) -> bool {
        if !self.fallbacks.may_shorten() {
            return false;
        }
        let plan = self.gateway.shortened(self);
        if !plan.leaves_out_more_than(&self.passed.plan) {
            return false;
        }
        self.fallbacks.shorten(&plan);
        self.passed.tried.push(Fallback::Overflow);
        self.passed.plan = plan;
        true
    }

    /// What was refused before the upstream took the request is remembered.
    fn taken(&mut self) {
        let tried = &self.passed.tried;
        if tried.is_empty() || self.passed.observed || self.pass.asking.is_some() {
            return;
        }
        let (conversation, history) = self.names.overflow;
        let overflow = Overflow { messages: self.request.messages.len(), history };
        let overflow = tried.contains(&Fallback::Overflow).then_some((conversation, overflow));
        let model = Some((self.names.model, learned(tried)));
        self.gateway.ledger.record(News { model, overflow, ..News::default() });
        self.passed.learned = true;
    }

    fn ask_again(&mut self, which: (u32, Next), round: Bytes, judging: &mut Judging) {
        self.taken();
        self.rounds.push((which.0, round.clone()));
        // A yes is to one reply.
        judging.approve(false);
        let mut asking = self.reasks.again(which, round, self.gateway.config.reask.max);
        if asking.land {
            self.passed.landed_at.get_or_insert(judging.record.len());
            judging.land();
        }
        asking.land &= !self.passed.keeps_tools;
        if asking.land && self.pass.tools == Tools::WithoutChoice {
            self.go_bare();
        }
        self.pass.flat |= self.pass.tools == Tools::Dropped;
        self.pass.asking = Some(asking);
    }

    fn lands_bare(&mut self, status: u16) -> bool {
        let lands = lands_bare(status, &self.pass);
        if lands {
            self.go_bare();
        }
        lands
    }

    fn go_bare(&mut self) {
        (self.pass.tools, self.pass.flat) = (Tools::Dropped, true);
        self.pass.placement = self.pass.placement.of_last_try();
    }

    fn remember(&mut self, choices: &[ChoiceState]) {
        let identity = &self.gateway.identity;
        let (root, context) = (identity.root(), self.names.context);
        let asked = Asked { root, context, memo: &self.gateway.memo };
        let (reasks, now_ms, observe) = (&self.reasks, self.gateway.now_ms, self.passed.observed);
        let mut news = News::of_choices(choices, &Answered { asked, identity, reasks, now_ms, observe });
        news.sent = Some(self.sent);
        for choice in choices {
            // Counted for itself: the reference is not to learn from what it is held against.
            let asked_again = self.rounds.iter().filter(|(of, _)| *of == choice.index && !observe);
            let mut rounds: Vec<Bytes> = asked_again.map(|(_, round)| round.clone()).collect();
            rounds.extend(choice.round().filter(|_| !observe && !choice.is_wholly_withheld()));
            self.passed.hidden.push((choice.index, rounds));
        }
        self.gateway.ledger.record(news);
    }

    fn end(&mut self, judging: Judging) {
        self.passed.usage = judging.usage(self.gateway.now_ms);
        self.passed.record = judging.record;
    }
}

/// The error that a reply is, whatever its status says.
fn error_of(status: u16, body: &[u8]) -> Option<(u16, UpstreamError)> {
    let is_success = (200..300).contains(&status);
    let error = if is_success { parse_in_200(body) } else { parse(body) }?;
    Some((error.status.filter(|_| is_success).unwrap_or(status), error))
}
