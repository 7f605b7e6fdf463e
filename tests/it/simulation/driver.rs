//! The driver of an exchange without sockets: one client request, with a model that misbehaves, the store in memory
//! and the client. Executes the exchange's outputs, reports the results to it, and records what was sent and
//! received; asserts nothing.

use super::model::{Model, Said, TOOLS, streamed, whole};
use super::process::Process;
use super::upstream::Refused;
use bytes::Bytes;
use dialects::edit::NO_ANSWER;
use dialects::error::own_error_body;
use dialects::variant::Variant;
use engine::error::ProxyError;
use engine::judging::Judged;
use engine::{Answer, Arrived, Closed, Effect, EffectResult, Exchange, Input, Outgoing, Output, WholeReply};
use futures_util::FutureExt as _;
use model::fact::{RecordKind, Writes};
use model::identity::Hash;
use model::plan::approval::Confirmation;
use model::plan::{Plan, Usage};
use model::record::{PrefixBreak, RequestRecord, Retry};
use model::released::Release;
use model::request::Choice;
use model::store::{Claim, Evidence};
use policies::pattern::any_fits;
use serde_json::Value;
use state::StateStore as _;
use std::sync::Arc;
use wire::sse::write_event;

/// The most bytes of a stream that arrive at once.
const PIECE: usize = 700;

/// The record of one client request.
#[derive(Debug, Default)]
pub struct Passed {
    /// The bytes that the client gets; `None` where a policy refused the request or the upstream did.
    pub reply: Option<Bytes>,
    /// The upstream's error that the client gets instead, or at the end of a stream that breaks off.
    pub error: Option<Bytes>,
    /// The tokens that are recorded as billed.
    pub billed: u64,
    /// Every request sent to the upstream, in order.
    pub sent: Vec<Bytes>,
    /// How many of them were the client's request, in one form or another; the others are re-asks.
    pub tries: usize,
    /// The upstream's replies to the requests that it accepted, as bytes and as the model meant them.
    pub raw: Vec<Bytes>,
    pub said: Vec<Vec<Said>>,
    /// What the upstream refused, with the index of the request.
    pub refused: Vec<(usize, Refused)>,
    /// The form of every request sent, and the fallbacks that led to it.
    pub forms: Vec<Variant>,
    pub tried: Vec<Retry>,
    /// The request was accepted, and the earlier refusals are remembered.
    pub learned: bool,
    /// The first plan for the request, and the plan in force; empty while observing.
    pub planned: Plan,
    pub plan: Plan,
    pub restored: Vec<(usize, Bytes)>,
    pub lost: u32,
    /// Other hidden exchanges are put back than in the request for the last reply, and this is recorded.
    pub other_rounds: bool,
    /// The choices that the client sees, with the hidden exchanges before each.
    pub hidden: Vec<(u32, Vec<Bytes>)>,
    pub record: Vec<Judged>,
    pub usage: Vec<(&'static str, Usage)>,
    /// The calls that a person approved.
    pub approved: Option<Arc<Confirmation>>,
    /// The user answers a question about calls.
    pub answers: bool,
    /// The index of the first judged call for which the model was asked to answer without calls.
    pub landed_at: Option<usize>,
    /// The client must be answered by a call, or accepts one.
    pub keeps_tools: bool,
    /// Nothing may be changed.
    pub observed: bool,
    /// The conversation is held out: its texts are left unchanged.
    pub held_out: bool,
    /// The question for a summary, and whether a late summary is recorded.
    pub question: Option<Bytes>,
    pub tells_late: bool,
    /// The number of calls that took over the release times of calls without ids.
    pub adopted: usize,
    /// How often the model may be asked again before it is asked for an answer.
    pub most_reasks: usize,
}

/// See the file's head.
pub struct Driver<'a> {
    process: &'a mut Process,
    model: &'a mut Model,
    exchange: Exchange,
    is_stream: bool,
    passed: Passed,
    /// What the store says that the user may have approved.
    asked: Option<Arc<Confirmation>>,
    /// The whole replies of the upstream, by their numbers.
    replies: Vec<Bytes>,
    /// The part of the upstream's stream that has not been read yet.
    coming: Option<Bytes>,
    /// What the client was given of its stream.
    given: Vec<Bytes>,
    has_ended: bool,
    /// The hidden exchanges after which the model was asked again, with their choice.
    rounds: Vec<(u32, Bytes)>,
}

impl<'a> Driver<'a> {
    pub fn new(process: &'a mut Process, model: &'a mut Model, arrived: Arrived) -> Self {
        let config = &process.config;
        let is_answer = |tool: &&str| any_fits(&config.reask.answer_tools, tool);
        let passed = Passed {
            observed: process.observes(),
            keeps_tools: arrived.request.choice == Choice::Forced || TOOLS.iter().any(is_answer),
            most_reasks: config.reask.max as usize,
            ..Passed::default()
        };
        let is_stream = arrived.request.stream;
        let exchange = Exchange::begin(
            Arc::clone(&process.shared),
            arrived,
            Box::<RequestRecord>::default(),
            process.now(),
        );
        Self {
            process,
            model,
            exchange,
            is_stream,
            passed,
            asked: None,
            replies: Vec::new(),
            coming: None,
            given: Vec::new(),
            has_ended: false,
            rounds: Vec::new(),
        }
    }

    /// Drives the exchange to its end.
    pub fn run(mut self) -> Passed {
        loop {
            match self.exchange.poll() {
                Some(output) => self.perform(output),
                None if self.reads_on() => {}
                None => return self.passed(),
            }
        }
    }

    fn perform(&mut self, output: Output) {
        match output {
            Output::Start(id, effect) => {
                let result = self.result_of(effect);
                self.give(Input::Finished(id, result));
            }
            Output::SummariesLost(batches) => self.process.summaries.lose(batches),
            Output::Store(writes) => self.store(*writes),
            Output::Send(outgoing) => self.send(outgoing),
            Output::Answer(answer) => self.answer(answer),
            Output::Emit(bytes) => self.given.push(bytes),
            Output::Done | Output::BreakOff(_) => {
                let (given, has_failed) = (self.given.concat(), matches!(output, Output::BreakOff(_)));
                self.end(given.into(), has_failed);
            }
            Output::Held(_) => {}
            Output::BeginStream { .. } | Output::BeginStreamOf(_) | Output::Dismiss => {
                assert!(!self.has_ended);
            }
            Output::Cancel(_) => panic!("no effect here outlasts its start"),
        }
    }

    fn result_of(&mut self, effect: Effect) -> EffectResult {
        match effect {
            Effect::LookUp(mut batch) => {
                // The user's answer to a question is asked for once.
                let keys: Vec<Hash> = batch
                    .facts()
                    .filter(|facts| facts.rules().kind == RecordKind::Question)
                    .flat_map(|facts| (0..facts.count()).map(|index| facts.key(index)))
                    .collect();
                let question = batch.ask::<Arc<Confirmation>>(keys);
                let answers = self.process.store.look_up(*batch).now_or_never().unwrap();
                self.asked = answers.records(&question).pop();
                self.passed.answers = self.asked.is_some();
                EffectResult::LookedUp(Box::new(answers))
            }
            Effect::Claim { question, request } => {
                let claim = Claim { question, request, now_ms: self.process.now_ms };
                let is_taken = self.process.store.claim(claim).now_or_never().unwrap();
                self.passed.approved = self.asked.take().filter(|_| is_taken);
                EffectResult::Claimed(is_taken)
            }
            Effect::Summarise { wanted, question } => {
                self.passed.question = Some(question);
                self.passed.tells_late = self.process.summaries.is_late(&wanted);
                EffectResult::Summarised(self.process.summaries.decide(&wanted, self.process.now_ms))
            }
            other => panic!("no configuration here asks for {other:?}"),
        }
    }

    fn give(&mut self, input: Input) {
        self.exchange.handle(input, self.process.now());
    }

    /// The next piece of the upstream's stream, if one is read.
    fn reads_on(&mut self) -> bool {
        match self.coming.take() {
            None => return false,
            Some(rest) if rest.is_empty() => self.give(Input::End),
            Some(mut rest) => {
                let piece = rest.split_to(1 + self.model.numbers.below(rest.len().min(PIECE)));
                self.coming = Some(rest);
                self.give(Input::Bytes(piece));
            }
        }
        true
    }

    fn store(&mut self, writes: Writes) {
        // Before the first request or hand-out, only the keys of calls can have changed.
        if self.passed.sent.is_empty() && self.passed.approved.is_none() {
            self.passed.adopted += writes.get::<Release>().len();
        }
        self.passed.learned |= !writes.get::<Evidence>().is_empty();
        self.process.store.record(writes);
    }

    /// Sends the request and gives the exchange what the upstream answers.
    fn send(&mut self, outgoing: Outgoing) {
        let Outgoing { pieces, variant, .. } = outgoing;
        self.note_form(&variant);
        let sent = Bytes::from(pieces.concat());
        let request: Value = serde_json::from_slice(&sent).unwrap_or_default();
        self.passed.sent.push(sent);
        self.passed.forms.push(*variant);
        let (status, body) = self.upstreams(&request);
        if self.is_stream && status == 200 {
            self.coming = Some(body);
            return self.give(Input::StreamBegins { ends_by_closing: false });
        }
        self.coming = None;
        let id = self.replies.len() as u32;
        self.replies.push(body.clone());
        self.give(Input::Reply(WholeReply { id, status, body: Ok(body) }));
    }

    /// Records the form of a request before it is sent.
    fn note_form(&mut self, variant: &Variant) {
        if self.passed.sent.is_empty() {
            self.passed.planned = self.exchange.inspect().plan().clone();
        }
        let judging = self.exchange.inspect().judging().unwrap();
        if judging.is_landing() {
            self.passed.landed_at.get_or_insert(judging.record.len());
        } else {
            // The re-ask is for another choice.
            self.passed.landed_at = None;
        }
        let Some(asking) = &variant.asking else {
            self.passed.tries += 1;
            self.passed.tried.clone_from(&self.exchange.record().fallbacks);
            return;
        };
        let was_refused = self.passed.refused.last().is_some_and(|(at, _)| at + 1 == self.passed.sent.len());
        let asked_so = self.passed.forms.last().is_some_and(|form| form.asking.is_some());
        if was_refused && asked_so {
            // It may hold the same hidden exchanges in another form, which is then the one that is kept.
            let choice = self.rounds.last().map(|(choice, _)| *choice);
            let own = self.rounds.iter_mut().rev().filter(|(of, _)| Some(*of) == choice);
            own.zip(asking.rounds.iter().rev()).for_each(|((_, round), now)| round.clone_from(now));
            return;
        }
        // Choices are asked again one after the other. Their hidden exchanges are counted here independently, so that
        // the reference does not learn from the code that it checks.
        let choice =
            self.exchange.inspect().choices().into_iter().rfind(|choice| choice.is_continued()).unwrap();
        self.rounds.push((choice.index(), asking.rounds.last().unwrap().clone()));
    }

    /// The upstream's answer, with its status.
    fn upstreams(&mut self, request: &Value) -> (u16, Bytes) {
        if let Some(refused) = self.process.upstream.refuses(request) {
            let (status, body) = (refused.status, refused.body.clone());
            self.passed.refused.push((self.passed.sent.len() - 1, refused));
            let is_event = self.is_stream && status == 200;
            return (status, if is_event { write_event(&body) } else { body });
        }
        let said = self.model.answer(request);
        let id = format!("r{}_{}", self.process.ordinal, self.passed.sent.len());
        let model = &request["model"];
        let bytes = if self.is_stream {
            streamed(&said, &id, model, &mut self.model.numbers)
        } else {
            whole(&said, &id, model)
        };
        self.passed.said.push(said);
        self.passed.raw.push(bytes.clone());
        (200, bytes)
    }

    /// The whole reply to the client.
    fn answer(&mut self, answer: Answer) {
        match answer {
            Answer::AsItCame(id) => self.end(self.replies[id as usize].clone(), false),
            Answer::Restated { body, .. } => self.end(body, false),
            Answer::Edited(_, pieces) | Answer::Own(pieces) => self.end(pieces.concat().into(), false),
            // A policy refused the request.
            Answer::Error(ProxyError::Refused { .. }) => self.has_ended = true,
            Answer::Error(error) => {
                self.end(own_error_body(&error.message(), error.code()).into(), true);
            }
        }
    }

    /// The client's reply is complete. If the upstream refused the last request, the reply is its error, or toolrein's
    /// sentence that there is no answer.
    fn end(&mut self, body: Bytes, has_failed: bool) {
        assert!(!self.has_ended, "a second end: {body:?}");
        (self.has_ended, self.coming) = (true, None);
        let was_refused = self.passed.refused.last().is_some_and(|(at, _)| at + 1 == self.passed.sent.len());
        let says_so = String::from_utf8_lossy(&body).contains(NO_ANSWER);
        let is_error = has_failed || (was_refused && !says_so);
        *(if is_error { &mut self.passed.error } else { &mut self.passed.reply }) = Some(body);
    }

    /// What is known of the request at its end.
    fn passed(mut self) -> Passed {
        assert!(self.has_ended, "the exchange has nothing more to do, and the client has no answer");
        let Closed { record, writes, .. } = self.exchange.close(self.process.now());
        writes.into_iter().for_each(|news| self.store(news));
        let mut passed = self.passed;
        passed.plan = self.exchange.inspect().plan().clone();
        passed.restored = self.exchange.inspect().restored().to_vec();
        if passed.reply.is_some() {
            for choice in self.exchange.inspect().choices() {
                let asked_again = self.rounds.iter().filter(|(of, _)| *of == choice.index());
                let mut rounds: Vec<Bytes> = asked_again.map(|(_, round)| round.clone()).collect();
                let own =
                    choice.hidden_exchange().filter(|_| !passed.observed && !choice.is_wholly_blocked());
                rounds.extend(own);
                passed.hidden.push((choice.index(), rounds));
            }
        }
        if let Some(judging) = self.exchange.inspect().judging() {
            passed.usage = judging.usage(self.process.now_ms);
            passed.record.clone_from(&judging.record);
        }
        passed.billed = record.tokens.prompt + record.tokens.completion;
        passed.lost = record.lost_hidden_exchanges;
        passed.other_rounds = record.prefix_breaks.contains(&PrefixBreak::StateStore);
        passed.held_out = record.context.held_out && !passed.observed;
        passed
    }
}
