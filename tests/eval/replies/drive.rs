//! The driver of one run: an exchange without sockets, with a scripted upstream, people and another model. Does what the
//! exchange says in the order in which the proxy does it, and writes the trace; asserts nothing.

use super::fixed::answer;
use super::material::{Api, Material, UpstreamReply};
use super::settings::{End, People, Setting, Wanted};
use super::trace::Trace;
use crate::world::NOW_MS;
use bytes::Bytes;
use dialects::{CHAT, RESPONSES};
use engine::error::ProxyError;
use engine::offline::granted;
use engine::{
    Accepts, Admission, Answer, Arrived, Break, Effect, EffectId, EffectResult, Exchange, Input, Now, Output,
    Shared, WholeReply,
};
use model::account::{Kind, Sums, Tally};
use model::fact::{Answers, Batch, Writes};
use model::identity::{Hash, HashKey, Identity};
use model::plan::approval::{ApprovalDecision, Decided};
use model::record::{RequestRecord, Route, actions_header};
use serde_json::Value;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

/// How a stream is cut into chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunking {
    /// Not at all.
    Whole,
    /// Byte by byte; a long stream in pieces of a few bytes.
    Small,
    /// The pseudo-random split of this number.
    Random(u32),
}

/// The longest stream that comes byte by byte.
const SHORT: usize = 20_000;
/// The pieces in which a longer one comes.
const FEW: usize = 37;
/// More requests than any exchange sends.
const MOST_SENDS: usize = 20;

/// One run.
pub struct Play<'a> {
    pub material: &'a Material,
    pub setting: &'a Setting,
    pub shared: &'a Arc<Shared>,
    pub chunking: Chunking,
}

impl Play<'_> {
    /// Drives the exchange to its end.
    pub fn run(&self) -> Trace {
        let Self { material, setting, .. } = self;
        let streams = match setting.form {
            Wanted::Recorded => material.said.streams,
            Wanted::Other => !material.said.streams,
            Wanted::Stream => true,
        };
        let body = match setting {
            Setting { is_used_up: true, .. } => material.request_in_turn(streams),
            Setting { renames: true, .. } => material.request_without_schemas(streams),
            _ => material.request(streams),
        };
        let at = Now { at: Instant::now(), ms: NOW_MS };
        let run = Run {
            play: self,
            exchange: self.begin(body.clone(), at),
            now: at,
            streams,
            body,
            replies: Vec::new(),
            coming: None,
            reading: None,
            decisions: VecDeque::new(),
            known: VecDeque::new(),
            answers: VecDeque::new(),
            decided: 0,
            has_waited: false,
            accepts: Accepts::WholeReplies,
            stage: Stage::Answering,
            trace: Trace::default(),
        };
        run.finish()
    }

    fn begin(&self, body: Bytes, now: Now) -> Exchange {
        let (dialect, route, path) = match self.material.api {
            Api::Chat => (CHAT, Route::Chat, "/v1/chat/completions"),
            Api::Responses => (RESPONSES, Route::Responses, "/v1/responses"),
        };
        let request = dialect.read(&body).unwrap_or_else(|fault| panic!("{}: {fault}", self.material.name));
        let explicit = self.setting.is_used_up.then(|| "conversation".to_owned());
        let identity = Identity { key: HashKey::fixed(1), caller: Hash(7), explicit };
        let (profile, tier, path) = (None, None, path.to_owned());
        let arrived = Arrived { dialect, body, request, identity, profile, tier, reports: false, path };
        let record = RequestRecord { request_id: "req_1".to_owned(), ..RequestRecord::new(route) };
        Exchange::begin(Arc::clone(self.shared), arrived, Box::new(record), now)
    }
}

/// How far the client's reply is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing of it has gone out.
    Answering,
    /// It is a stream.
    Streaming,
    Over,
}

/// A run in progress.
struct Run<'a> {
    play: &'a Play<'a>,
    exchange: Exchange,
    now: Now,
    /// The client asks for a stream.
    streams: bool,
    /// The client's request.
    body: Bytes,
    /// What the upstream has said, by number.
    replies: Vec<Bytes>,
    /// A reply that has not begun, and whether it is the recorded one.
    coming: Option<(UpstreamReply, bool)>,
    reading: Option<Reading>,
    /// The calls that wait for a person's decision.
    decisions: VecDeque<EffectId>,
    /// What the state store and other requests answer.
    known: VecDeque<Input>,
    /// What another model answers, and times that pass.
    answers: VecDeque<Input>,
    decided: usize,
    /// The client has waited once while calls were held.
    has_waited: bool,
    /// Which replies to the last request are streams.
    accepts: Accepts,
    stage: Stage,
    trace: Trace,
}

/// A stream that is read.
struct Reading {
    rest: Bytes,
    end: End,
    chunking: Chunking,
    length: usize,
    random: u64,
}

impl Reading {
    fn new(said: &UpstreamReply, end: End, chunking: Chunking) -> Self {
        let length = said.bytes.len();
        let read = if matches!(end, End::Cut | End::Left) { length * 2 / 3 } else { length };
        let split = if let Chunking::Random(split) = chunking { u64::from(split) } else { 0 };
        let random = (length as u64 | 1).wrapping_add(split << 32);
        Self { rest: said.bytes.slice(..read), end, chunking, length, random }
    }

    /// What comes next; nothing where the client leaves.
    fn next(&mut self) -> Option<Input> {
        if !self.rest.is_empty() {
            let size = self.size().min(self.rest.len());
            return Some(Input::Bytes(Bytes::copy_from_slice(&self.rest.split_to(size))));
        }
        match self.end {
            End::Whole | End::Closing => Some(Input::End),
            End::Cut => Some(Input::Cut(cut(), Break::Upstream)),
            End::Left => None,
        }
    }

    fn size(&mut self) -> usize {
        match self.chunking {
            Chunking::Whole => usize::MAX,
            Chunking::Small if self.length <= SHORT => 1,
            Chunking::Small => FEW,
            Chunking::Random(split) => {
                self.random = self
                    .random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let most = [900, 90, 9_000][split as usize % 3];
                1 + (self.random >> 33) as usize % most
            }
        }
    }
}

fn cut() -> ProxyError {
    ProxyError::UpstreamCut { host: "upstream".to_owned(), detail: "the connection broke".to_owned() }
}

impl Run<'_> {
    fn finish(mut self) -> Trace {
        loop {
            while let Some(output) = self.exchange.poll() {
                self.perform(output);
            }
            if self.stage == Stage::Over {
                break;
            }
            let Some(input) = self.next_input() else {
                self.trace.step("nothing more comes");
                break;
            };
            self.exchange.handle(input, self.now);
        }
        let closed = self.exchange.close(self.now);
        closed.writes.into_iter().for_each(|news| self.trace.stored.learn(news));
        let came = &self.play.material.said(self.play.setting.renames).bytes;
        self.trace.note(&closed.record, came);
        self.trace
    }

    /// What happens next.
    fn next_input(&mut self) -> Option<Input> {
        if let Some(known) = self.known.pop_front() {
            return Some(known);
        }
        let is_late = self.play.setting.people.are_late();
        if !is_late && let Some(answer) = self.answers.pop_front() {
            return Some(answer);
        }
        if !is_late && let Some(id) = self.decisions.pop_front() {
            return Some(self.decision(id));
        }
        if let Some((said, is_recorded)) = self.coming.take() {
            return self.begin_reply(said, is_recorded);
        }
        if let Some(reading) = &mut self.reading {
            let input = reading.next();
            if !matches!(input, Some(Input::Bytes(_))) {
                self.reading = None;
            }
            return input;
        }
        if self.answers.is_empty() && self.decisions.is_empty() {
            return None;
        }
        if !std::mem::replace(&mut self.has_waited, true)
            && let Some(deadline) = self.exchange.deadline()
        {
            self.now.at = deadline;
            return Some(Input::Tick);
        }
        let answer = self.answers.pop_front();
        answer.or_else(|| self.decisions.pop_front().map(|id| self.decision(id)))
    }

    fn decision(&mut self, id: EffectId) -> Input {
        let is_first = self.decided == 0;
        self.decided += 1;
        let declines = match self.play.setting.people {
            People::Approve | People::ApproveLate => false,
            People::Decline => true,
            People::DeclineFirstLate => is_first,
        };
        let mut decided = Decided::from(ApprovalDecision::Approved);
        if declines {
            decided = Decided::from(ApprovalDecision::Declined);
            decided.approver = Some("ann".into());
            decided.reason = Some("not today".into());
        }
        Input::Finished(id, EffectResult::Decided(decided))
    }

    /// The next reply begins: as a stream where the proxy would read it as one.
    fn begin_reply(&mut self, said: UpstreamReply, is_recorded: bool) -> Option<Input> {
        let end = if is_recorded { self.play.setting.end } else { End::Whole };
        let id = self.replies.len() as u32;
        self.replies.push(said.bytes.clone());
        if said.streams && (self.accepts != Accepts::WholeReplies) {
            self.reading = Some(Reading::new(&said, end, self.play.chunking));
            self.trace.streams = true;
            return Some(Input::StreamBegins { ends_by_closing: end == End::Closing });
        }
        let body = match end {
            End::Left => return None,
            End::Cut => Err("reply_too_long"),
            End::Whole | End::Closing => Ok(said.bytes),
        };
        Some(Input::Reply(WholeReply { id, status: said.status, body }))
    }

    /// Starts an effect: what is known at once goes before everything else.
    fn start(&mut self, id: EffectId, effect: &Effect) {
        let result = match effect {
            Effect::Admit { .. } => EffectResult::Admitted(Admission::Free),
            Effect::LookUp(batch) => EffectResult::LookedUp(Box::new(self.known(batch))),
            Effect::Reserve(reservations) => EffectResult::Reserved(granted(reservations)),
            Effect::Claim { .. } | Effect::Summarise { .. } | Effect::CallTool { .. } => effect.failure(),
            Effect::Approve(asked) => {
                let (call, hold_ms) = (&asked.call, asked.hold_ms);
                self.trace.step(format_args!("ask for approval within {hold_ms} ms: {call:?}"));
                self.trace.counts.held += 1;
                return self.decisions.push_back(id);
            }
            Effect::Sleep { ms } => {
                self.trace.step(format_args!("wait {ms} ms"));
                return self.answers.push_back(Input::Finished(id, EffectResult::Slept(true)));
            }
            Effect::AskModel(asked) => {
                let question = String::from_utf8_lossy(&asked.question);
                self.trace.step(format_args!("ask a model: {question}"));
                self.trace.counts.questions += 1;
                let answer = EffectResult::Answered(Some(shorter(&asked.question).into()));
                return self.answers.push_back(Input::Finished(id, answer));
            }
        };
        self.known.push_back(Input::Finished(id, result));
    }

    fn perform(&mut self, output: Output) {
        match output {
            Output::Start(id, effect) => self.start(id, &effect),
            Output::Cancel(id) => {
                self.trace.step(format_args!("withdraw a question"));
                self.decisions.retain(|waiting| *waiting != id);
            }
            Output::Store(news) => self.trace.stored.learn(*news),
            Output::Send(outgoing) => {
                self.accepts = outgoing.accepts;
                self.send(&outgoing.pieces.concat());
            }
            Output::SummariesLost(batches) => self.trace.step(format_args!("summaries lost: {batches:?}")),
            // When the next request of the conversation may come, within a chunk.
            Output::Dismiss => {}
            Output::BeginStream { .. } | Output::BeginStreamOf(_) => {
                self.trace.step(format_args!("{output:?}"));
                self.stage = Stage::Streaming;
                self.head();
            }
            Output::Emit(bytes) => self.trace.client.extend_from_slice(&bytes),
            // The memory in use depends on the chunks.
            Output::Held(_) => {}
            Output::BreakOff(_) | Output::Done => {
                self.trace.step(format_args!("{output:?}"));
                self.stage = Stage::Over;
            }
            Output::Answer(answer) => self.answer(answer),
        }
    }

    /// Notes what the head of the client's reply says.
    fn head(&mut self) {
        let record = self.exchange.record();
        let actions = actions_header(&record.actions, record.tokens.saved);
        self.trace.step(format_args!("head: {actions:?}"));
    }

    fn answer(&mut self, answer: Answer) {
        self.stage = Stage::Over;
        self.head();
        let (step, bytes) = match answer {
            Answer::AsItCame(id) => (format!("answer as it came: {id}"), self.replies[id as usize].to_vec()),
            Answer::Edited(id, pieces) => (format!("answer edited: {id}"), pieces.concat()),
            Answer::Restated { id, status, body } => {
                (format!("answer restated: {id:?} {status}"), body.to_vec())
            }
            Answer::Own(pieces) => ("own answer".to_owned(), pieces.concat()),
            Answer::Error(error) => {
                let (status, code) = (error.status(), error.code());
                (format!("error: {status} {code}"), error.message().into_bytes())
            }
        };
        self.trace.step(step);
        self.trace.client.extend_from_slice(&bytes);
    }

    /// What the state store knows.
    fn known(&mut self, batch: &Batch) -> Answers {
        let ahead = batch.sums.iter().filter(|_| batch.ahead != Tally::default());
        let tallied = ahead.map(|key| (*key, batch.ahead)).collect();
        self.trace.stored.learn(Writes { tallied, ..Writes::default() });
        if !self.play.setting.is_used_up {
            return Answers::default();
        }
        let used = Tally { sums: Sums::default().with(Kind::Requests, 9), ..Tally::default() };
        Answers { sums: vec![used; batch.sums.len()], ..Answers::default() }
    }

    /// The upstream gets a request; what it says comes when the exchange has nothing more to do.
    fn send(&mut self, body: &[u8]) {
        let sends = self.exchange.record().upstream_requests as usize;
        assert!(sends <= MOST_SENDS, "{} is sent without end", self.play.material.name);
        self.trace.step(format_args!("send {sends}: {}", changed(&self.body, body)));
        let Play { material, setting, .. } = self.play;
        let opening = setting.opening.said(material.api, self.streams, body).filter(|_| sends == 1);
        let is_recorded = self.exchange.record().reasks <= setting.opening.reasks();
        self.reading = None;
        self.coming = Some(match opening {
            Some(said) => (said, false),
            None if is_recorded => (material.said(setting.renames).clone(), true),
            None => (answer(material.api, material.said.streams, body), false),
        });
    }
}

/// What another model makes of the text that it is asked about: the first half of its words.
fn shorter(question: &[u8]) -> String {
    let question: Value = serde_json::from_slice(question).unwrap();
    let text = question["messages"][1]["content"].as_str().unwrap();
    let words: Vec<&str> = text.split(' ').collect();
    words[..words.len().div_ceil(2)].join(" ")
}

/// A request as far as it differs from the client's.
fn changed(from: &[u8], to: &[u8]) -> String {
    if from == to {
        return "as the client sent it".to_owned();
    }
    let same = |pair: &(&u8, &u8)| pair.0 == pair.1;
    let first = from.iter().zip(to).take_while(same).count();
    let rest = (&from[first..], &to[first..]);
    let last = rest.0.iter().rev().zip(rest.1.iter().rev()).take_while(same).count();
    let mut out = String::new();
    let middle = String::from_utf8_lossy(&to[first..to.len() - last]);
    let _ = write!(
        out,
        "{first} bytes of the client's, {middle:?} in place of {}, {last} bytes",
        from.len() - last - first
    );
    out
}
