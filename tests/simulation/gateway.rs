//! The path of a request without its sockets: the core and the ledger in the order in which the handler takes them,
//! from the client's bytes to what is to be sent. Keeps what passed on the way; asserts nothing.

use super::exchange::Exchange;
use super::model::{Model, Said};
use super::numbers::Numbers;
use super::summaries::Summaries;
use super::upstream::{Refused, Upstream};
use bytes::Bytes;
use futures_util::FutureExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};
use toolrein::config::{Config, Mode, Overrides, Source as Written};
use toolrein::ledger::memory::{Bounds, MemoCache, Memory};
use toolrein::ledger::{Ask, CallNames, Claim, Facts, Ledger as _, MOST_LOOKED_UP, SentRounds};
use toolrein::policy::REGISTRY;
use toolrein::policy::plan::{Plan, Usage};
use toolrein::policy::set::{Judge, PolicySet};
use toolrein::rewrite::confirm::{Answer, Confirmation, answer, token};
use toolrein::rewrite::judging::Judged;
use toolrein::rewrite::pass::Pass;
use toolrein::rewrite::restore::{Place, names, places, restored};
use toolrein::rewrite::sent::Sent;
use toolrein::telemetry::outcome::Fallback;
use toolrein::transcript::Transcript;
use toolrein::transcript::histories::Histories;
use toolrein::transcript::identity::{Domain, Hash, HashKey, Identity};
use toolrein::transcript::prefix::read_request;
use toolrein::wire::request::Request;

const BOUNDS: Bounds = Bounds {
    calls: 1_000_000,
    rounds_bytes: 1 << 30,
    conversations: 100_000,
    lifetime: Duration::from_secs(86_400),
    refusals: Duration::from_secs(86_400),
};

/// The program as far as one configuration and one ledger go.
pub struct Gateway {
    pub config: Config,
    pub(super) ledger: Memory,
    pub(super) memo: MemoCache,
    pub(super) identity: Identity,
    pub now_ms: u64,
    /// Counts what needs a name of its own.
    pub(super) ordinal: u128,
    pub upstream: Upstream,
    pub summaries: Summaries,
}

/// What became of one client request.
#[derive(Debug, Default)]
pub struct Passed {
    /// The bytes that the client gets; `None` where a policy refused the request or the upstream did.
    pub reply: Option<Bytes>,
    /// The upstream's error that the client gets instead, or at the end of a stream that breaks off.
    pub error: Option<Bytes>,
    /// Every sending, in order.
    pub sent: Vec<Bytes>,
    /// How many of them were the client's request, in one form or another: the rest ask again.
    pub tries: usize,
    /// What the upstream answered to those that it took, as bytes and as the model meant it.
    pub raw: Vec<Bytes>,
    pub said: Vec<Vec<Said>>,
    /// What it refused, by the sending.
    pub refused: Vec<(usize, Refused)>,
    /// The form of every sending, and why it was another one than before.
    pub forms: Vec<Pass>,
    pub tried: Vec<Fallback>,
    /// It was taken, and what was refused before is remembered.
    pub learned: bool,
    /// What was to be done to the request at first, and what is done to it; nothing while observing.
    pub planned: Plan,
    pub plan: Plan,
    pub restored: Vec<(usize, Bytes)>,
    pub lost: u32,
    /// Other rounds are put back than when the last reply was asked for, and that is told.
    pub other_rounds: bool,
    /// For each message that is a result, the message and the place of the call that it is taken to answer.
    pub pairs: Vec<Option<(usize, usize)>>,
    /// The choices that the client sees, with the rounds hidden behind each.
    pub hidden: Vec<(u32, Vec<Bytes>)>,
    pub record: Vec<Judged>,
    pub usage: Vec<(&'static str, Usage)>,
    /// The calls that a person said yes to.
    pub approved: Option<Arc<Confirmation>>,
    /// From which of the judged calls on the model was to answer without any.
    pub landed_at: Option<usize>,
    /// The client must or may be answered by a call.
    pub keeps_tools: bool,
    /// Nothing may be changed.
    pub observed: bool,
    /// The conversation's texts are left alone.
    pub held_out: bool,
    /// The question for a summary; whether one that came late is told.
    pub question: Option<Bytes>,
    pub tells_late: bool,
    /// Calls that have taken over the times of others.
    pub adopted: usize,
    /// How often the model may be asked again before it is asked for an answer.
    pub most_reasks: usize,
}

/// What is known once the policies have read a request.
pub(super) struct Reading {
    pub(super) request: Request,
    pub(super) facts: Facts,
    pub(super) plan: Plan,
    pub(super) judge: Judge,
    pub(super) restored: Vec<(usize, Bytes)>,
    pub(super) lost: u32,
    pub(super) context: Hash,
    pub(super) answer: Option<Answer>,
    pub(super) token: Option<String>,
    pub(super) model: Hash,
    /// The names of the conversation and of the request's messages.
    pub(super) overflow: (Hash, Hash),
    pub(super) overflows: Vec<usize>,
    pub(super) sent: SentRounds,
    other_rounds: bool,
    pairs: Vec<Option<(usize, usize)>>,
    held_out: bool,
    question: Option<Bytes>,
    tells_late: bool,
    adopted: usize,
}

impl Gateway {
    pub fn new((config, mode): (&str, &str), seed: u64) -> Self {
        let source = Written::Text { name: "simulation.toml".to_owned(), text: config.to_owned() };
        let overrides = Overrides { mode: Some(mode.to_owned()), ..Overrides::default() };
        Self {
            config: Config::load(source, &overrides, REGISTRY).unwrap(),
            ledger: Memory::new(&BOUNDS),
            memo: MemoCache::new(1 << 24),
            identity: Identity { key: HashKey::fixed(1), principal: Hash(7), explicit: None },
            now_ms: 1_790_000_000_000,
            ordinal: 0,
            upstream: Upstream::new(seed),
            summaries: Summaries::new(Numbers::of(!seed)),
        }
    }

    /// The process begins anew: all that the ledger knew is gone.
    pub fn restart(&mut self) {
        self.ledger = Memory::new(&BOUNDS);
        self.memo = MemoCache::new(1 << 24);
        self.summaries.restart();
    }

    pub fn observes(&self) -> bool {
        self.config.mode == Mode::Observe
    }

    /// One request of a client, answered by `model`. `None`: it passes ungoverned.
    pub fn pass(&mut self, body: &Bytes, model: &mut Model) -> Option<Passed> {
        self.summaries.arrive(self.now_ms);
        let mut reading = self.look(body)?;
        let mut passed = Passed {
            lost: reading.lost,
            other_rounds: reading.other_rounds,
            pairs: std::mem::take(&mut reading.pairs),
            observed: self.observes(),
            held_out: reading.held_out,
            question: reading.question.take(),
            tells_late: reading.tells_late,
            adopted: reading.adopted,
            most_reasks: self.config.reask.max as usize,
            ..Passed::default()
        };
        if reading.plan.refusal.is_some() && !passed.observed {
            passed.plan = reading.plan;
            return Some(passed);
        }
        let asked = reading.answer.as_ref().zip(reading.facts.asked.as_ref());
        passed.approved = asked.and_then(|(answer, asked)| self.claim(answer, asked, body));
        let (exchange, judging) = Exchange::prepare(self, (body, model), reading, passed);
        Some(exchange.run(judging))
    }

    /// Steps 3 and 4 of the handler's path.
    fn look(&mut self, body: &Bytes) -> Option<Reading> {
        let request = read_request(body, &self.identity.key, &self.memo).ok()?;
        let name = request.model_name(body);
        let model = self.identity.key.hash(Domain::Model, &[name.as_bytes()]);
        let policies = policies(&self.config, &name);
        let mut transcript = Transcript::read(&request, body, &self.identity, &self.memo);
        know(&mut transcript, &self.config, &self.summaries);
        let places = places(&transcript, MOST_LOOKED_UP);
        let asking = policies.confirming().is_some() && !self.observes();
        let answer = asking.then(|| answer(&transcript, &places)).flatten().filter(|_| !request.odd);
        let histories = Histories::read(&transcript, model);
        let (facts, adopted) = self.look_up(&transcript, (model, &histories), (&places, answer.as_ref()));
        let (mut restored, lost) = restored(&transcript, &places, &facts.rounds, &facts.released);
        let overflows = facts.known_overflows(&transcript, model);
        transcript.learn_releases(&facts.released, self.now_ms);
        transcript.hidden_rounds.clone_from(&restored);
        transcript.shared_body = Some(body.clone());
        transcript.overflows.clone_from(&overflows);
        let held_out = self.holds_out(&request, body);
        let terms = (held_out || self.observes(), self.now_ms);
        let told_late = self.summaries.told_late;
        let (mut plan, judge, question) = self.summaries.decide(policies, &transcript, terms);
        if request.odd {
            plan.change_nothing();
            restored.clear();
        }
        if held_out {
            policies.leave_context(&mut plan);
        }
        let context = transcript.calls.context;
        let conversation = self.identity.conversation(&request, body);
        let put_back = if self.observes() { &[][..] } else { &restored };
        let (sent, other_rounds) =
            sent_rounds(Sent { transcript: &transcript, restored: put_back }, &histories, &facts);
        let pairs = pairs(&transcript);
        drop(transcript);
        self.ordinal += 1;
        let token = asking.then(|| token(self.name()));
        let overflow = (conversation, histories.whole);
        Some(Reading {
            request,
            facts,
            plan,
            judge,
            restored,
            lost,
            context,
            answer,
            token,
            model,
            overflow,
            overflows,
            sent,
            other_rounds,
            pairs,
            held_out,
            question,
            tells_late: self.summaries.told_late > told_late,
            adopted,
        })
    }

    /// A name that no other request has.
    fn name(&self) -> Hash {
        self.identity.key.hash(Domain::Confirmation, &[&self.ordinal.to_le_bytes()])
    }

    /// What the ledger knows, and how many calls have taken over the times of others.
    fn look_up(
        &self,
        transcript: &Transcript<'_>,
        (model, histories): (Hash, &Histories),
        (places, answer): (&[Place], Option<&Answer>),
    ) -> (Facts, usize) {
        let names = names(places);
        let calls = CallNames::newest(transcript);
        let earlier: Vec<Hash> = histories.earlier.iter().map(|(_, name)| *name).collect();
        let ask = Ask {
            calls: calls.keys(),
            places: &names,
            model,
            request: self.identity.key.hash(Domain::Request, &[transcript.body]),
            conversation: self.identity.conversation(transcript.request, transcript.body),
            histories: &earlier,
            answered: answer.map(|answer| answer.anchor),
            // Callers' quotas have tests of their own.
            quotas: &[],
            bytes: Hash(0),
            now_ms: self.now_ms,
            now: Instant::now(),
        };
        let mut facts = self.ledger.look_up(ask).now_or_never().unwrap();
        let adopted = calls.adopt(&mut facts, transcript);
        let count = adopted.released.len();
        self.ledger.record(adopted);
        (facts, count)
    }

    fn holds_out(&self, request: &Request, body: &[u8]) -> bool {
        let settings = &self.config.conversation;
        settings.holdout > 0 && settings.holds_out(self.identity.lasting_name(request, body).0)
    }

    /// What policies want of a request that was refused for its length.
    pub fn shortened(&self, exchange: &Exchange<'_>) -> Plan {
        let (request, body) = (&exchange.request, exchange.body);
        let mut transcript = Transcript::read(request, body, &self.identity, &self.memo);
        know(&mut transcript, &self.config, &self.summaries);
        transcript.overflowed = true;
        transcript.overflows.clone_from(&exchange.overflows);
        transcript.hidden_rounds.clone_from(&exchange.passed.restored);
        let policies = policies(&self.config, &request.model_name(body));
        let mut plan = policies.read(&transcript).0;
        if self.holds_out(request, body) {
            policies.leave_context(&mut plan);
        }
        plan
    }

    fn claim(&self, answer: &Answer, asked: &Arc<Confirmation>, body: &Bytes) -> Option<Arc<Confirmation>> {
        let request = self.identity.key.hash(Domain::Request, &[b"approval", body]);
        let claim = Claim { anchor: answer.anchor, request, now_ms: self.now_ms };
        let taken = asked.is_approved_by(&answer.text) && self.ledger.claim(claim).now_or_never().unwrap();
        taken.then(|| asked.clone())
    }
}

fn policies<'a>(config: &'a Config, model: &str) -> &'a PolicySet {
    config.policies_of(config.profiles.of_model(model))
}

/// What the configuration and other models know of a transcript.
fn know(transcript: &mut Transcript<'_>, config: &Config, summaries: &Summaries) {
    let model = transcript.request.model_name(transcript.body);
    transcript.token_factor = config.token_factor(&model);
    transcript.context_window = config.context_window(&model);
    transcript.summaries = Some(Arc::clone(&summaries.pins) as _);
}

/// With what rounds a history is sent, for the ledger; and whether they are other ones than it knows.
fn sent_rounds(sent: Sent<'_>, histories: &Histories, facts: &Facts) -> (SentRounds, bool) {
    let rounds = sent.rounds_before(sent.transcript.request.messages.len());
    (SentRounds { history: histories.whole, rounds }, !sent.keeps_rounds(histories, &facts.sent_rounds))
}

/// See [`Passed::pairs`].
fn pairs(transcript: &Transcript<'_>) -> Vec<Option<(usize, usize)>> {
    let answered = |at| transcript.calls.answered_by(at).map(|call| (call.message, call.position));
    (0..transcript.request.messages.len()).map(answered).collect()
}
