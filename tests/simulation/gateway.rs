//! The path of a request without its sockets: the core and the ledger in the order in which the handler takes them,
//! from the client's bytes to the bytes that it gets. Keeps what passed on the way; asserts nothing.

use super::model::{Model, Said, streamed, whole};
use bytes::Bytes;
use futures_util::FutureExt as _;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use toolrein::config::{Config, Overrides, Source as Written};
use toolrein::ledger::memory::{Bounds, MemoCache, Memory};
use toolrein::ledger::{Ask, Claim, Facts, Ledger as _, MOST_LOOKED_UP, News};
use toolrein::policy::REGISTRY;
use toolrein::policy::pattern::Pattern;
use toolrein::policy::plan::{Plan, Usage};
use toolrein::policy::set::Judge;
use toolrein::rewrite::choice::{ChoiceState, is_served};
use toolrein::rewrite::confirm::{Confirmation, Handed, answer, events, reply, token};
use toolrein::rewrite::judging::{AnswerTools, Judged, Judging};
use toolrein::rewrite::notice::Placement;
use toolrein::rewrite::pass::{Asking, Pass, Source};
use toolrein::rewrite::reply::WholeJudge;
use toolrein::rewrite::restore::{Asked, places, released_keys, remembered, restored, story};
use toolrein::rewrite::stream::{Ending, StreamJudge, StreamLimits};
use toolrein::transcript::Transcript;
use toolrein::transcript::identity::{Domain, Hash, HashKey, Identity};
use toolrein::wire::request::{Choice, Request};

const LIMITS: StreamLimits = StreamLimits { event: 1 << 20, held: 1 << 22, reply: 1 << 25 };
const BOUNDS: Bounds = Bounds {
    calls: 1_000_000,
    rounds_bytes: 1 << 30,
    conversations: 100_000,
    lifetime: Duration::from_secs(86_400),
    refusals: Duration::from_secs(3_600),
};

/// The program as far as one configuration and one ledger go.
pub struct Gateway {
    pub config: Config,
    ledger: Memory,
    memo: MemoCache,
    identity: Identity,
    pub now_ms: u64,
    tokens: u128,
}

/// What became of one client request.
#[derive(Debug, Default)]
pub struct Passed {
    /// The bytes that the client gets; `None` where a policy refused the request.
    pub reply: Option<Bytes>,
    /// Every sending, in order.
    pub sent: Vec<Bytes>,
    /// What the upstream answered to each, as bytes and as the model meant it.
    pub raw: Vec<Bytes>,
    pub said: Vec<Vec<Said>>,
    pub plan: Plan,
    pub restored: Vec<(usize, Bytes)>,
    pub lost: u32,
    /// The choices that the client sees, with the rounds hidden behind each.
    pub hidden: Vec<(u32, Vec<Bytes>)>,
    pub record: Vec<Judged>,
    pub usage: Vec<(&'static str, Usage)>,
    /// The calls that a person said yes to.
    pub approved: Option<Arc<Confirmation>>,
    /// From which of the judged calls on the model was to answer without any.
    pub landed_at: Option<usize>,
}

struct Reading {
    request: Request,
    facts: Facts,
    plan: Plan,
    judge: Judge,
    restored: Vec<(usize, Bytes)>,
    lost: u32,
    chain: Hash,
    answer: Option<toolrein::rewrite::confirm::Answer>,
    token: Option<String>,
}

impl Gateway {
    pub fn new(config: &str) -> Self {
        let source = Written::Text { name: "simulation.toml".to_owned(), text: config.to_owned() };
        let config = Config::load(source, &Overrides::default(), REGISTRY).unwrap();
        let identity = Identity { key: HashKey::fixed(1), principal: Hash(7), explicit: None };
        let (ledger, memo) = (Memory::new(&BOUNDS), MemoCache::new(1 << 24));
        Self { config, ledger, memo, identity, now_ms: 1_790_000_000_000, tokens: 0 }
    }

    /// The process begins anew: all that the ledger knew is gone.
    pub fn restart(&mut self) {
        self.ledger = Memory::new(&BOUNDS);
        self.memo = MemoCache::new(1 << 24);
    }

    /// One request of a client, answered by `model`. `None`: it passes ungoverned.
    pub fn pass(&mut self, body: &Bytes, model: &mut Model) -> Option<Passed> {
        let Reading { request, facts, plan, judge, restored, lost, chain, answer, token } =
            self.look(body)?;
        let mut passed = Passed { plan, restored, lost, ..Passed::default() };
        if passed.plan.refusal.is_some() {
            return Some(passed);
        }
        let asked = answer.as_ref().zip(facts.asked.as_ref());
        passed.approved =
            asked.and_then(|(answer, asked)| self.claim(answer.anchor, &answer.text, asked, body));
        let anchor = answer.map(|answer| answer.anchor).unwrap_or_default();
        let named: Vec<Pattern> = self.config.reask.answer_tools.clone();
        let answers = AnswerTools::of(&request, body, &named);
        let keeps_tools = request.choice == Choice::Forced || !answers.declared.is_empty();
        let mut judging = Judging::new(judge, answers, false).asking(token);
        judging.approve(passed.approved.is_some());
        let placement =
            if request.model_name(body).starts_with("gpt-4") { Placement::System } else { Placement::Suffix };
        let mut exchange = Exchange {
            gateway: self,
            body,
            request: &request,
            chain,
            pass: Pass::plain(placement),
            keeps_tools,
            reasks: 0,
            served: 0,
            rounds: Vec::new(),
            model,
            passed,
        };
        if request.stream {
            exchange.streamed(judging, anchor);
        } else {
            exchange.whole(judging, anchor);
        }
        Some(exchange.passed)
    }

    fn look(&mut self, body: &Bytes) -> Option<Reading> {
        let request = Request::parse(body).ok()?;
        let name = request.model_name(body);
        let policies = self.config.policies_of(self.config.profiles.of_model(&name));
        let mut transcript = Transcript::read(&request, body, &self.identity, &self.memo);
        transcript.token_factor = self.config.token_factor(&name);
        transcript.context_window = self.config.context_window(&name);
        let calls: Vec<Hash> = transcript.newest_calls(MOST_LOOKED_UP).map(|call| call.key).collect();
        let places = places(&transcript, MOST_LOOKED_UP);
        let names: Vec<Hash> = places.iter().map(|place| place.name).collect();
        let asking = policies.confirming().is_some();
        let answer = asking.then(|| answer(&transcript, &places)).flatten().filter(|_| !request.odd);
        let ask = Ask {
            calls: &calls,
            places: &names,
            model: Hash(1),
            request: self.identity.key.hash(Domain::Request, &[body]),
            conversation: Hash(1),
            histories: &[],
            answered: answer.as_ref().map(|answer| answer.anchor),
            // Callers' quotas have tests of their own.
            quotas: &[],
            bytes: Hash(0),
            now_ms: self.now_ms,
        };
        let facts = self.ledger.look_up(ask).now_or_never().unwrap();
        transcript.learn_times(&facts.released_ms, self.now_ms);
        let (mut restored, lost) = restored(&transcript, &places, &facts.rounds);
        transcript.hidden_rounds.clone_from(&restored);
        transcript.shared_body = Some(body.clone());
        let (mut plan, judge) = policies.read(&transcript);
        if request.odd {
            plan.change_nothing();
            restored.clear();
        }
        let chain = transcript.calls.chain(&self.identity);
        drop(transcript);
        self.tokens += 1;
        let token = asking
            .then(|| token(self.identity.key.hash(Domain::Confirmation, &[&self.tokens.to_le_bytes()])));
        Some(Reading { request, facts, plan, judge, restored, lost, chain, answer, token })
    }

    fn claim(
        &self,
        anchor: Hash,
        text: &str,
        asked: &Arc<Confirmation>,
        body: &Bytes,
    ) -> Option<Arc<Confirmation>> {
        let request = self.identity.key.hash(Domain::Request, &[b"approval", body]);
        let claim = Claim { anchor, request, now_ms: self.now_ms };
        let taken = asked.is_approved_by(text) && self.ledger.claim(claim).now_or_never().unwrap();
        taken.then(|| asked.clone())
    }
}

/// One client request on its way.
struct Exchange<'a> {
    gateway: &'a mut Gateway,
    body: &'a Bytes,
    request: &'a Request,
    chain: Hash,
    pass: Pass,
    keeps_tools: bool,
    reasks: u32,
    served: u32,
    rounds: Vec<(u32, Bytes)>,
    model: &'a mut Model,
    passed: Passed,
}

impl Exchange<'_> {
    /// Sends the request in its present form and gets what the model says.
    fn ask(&mut self, is_stream: bool) -> Bytes {
        let source = Source {
            body: self.body,
            request: self.request,
            plan: &self.passed.plan,
            restored: &self.passed.restored,
        };
        let sent = source.write(&self.pass).join();
        let request: Value = serde_json::from_slice(&sent).unwrap_or_default();
        let said = self.model.answer(&request);
        let id = format!("r{}", self.gateway.tokens);
        let model = &request["model"];
        let bytes = if is_stream {
            streamed(&said, &id, model, &mut self.model.numbers)
        } else {
            whole(&said, &id, model)
        };
        self.passed.sent.push(sent);
        self.passed.said.push(said);
        self.passed.raw.push(bytes.clone());
        bytes
    }

    fn whole(&mut self, judging: Judging, anchor: Hash) {
        let body = match self.handed(anchor) {
            Some((reply, _)) => reply,
            None => self.ask(false),
        };
        let Ok(mut judge) = WholeJudge::read(&body, judging, self.gateway.now_ms) else {
            self.passed.reply = Some(body);
            return;
        };
        while let Some((choice, round)) = judge.pending() {
            let served = is_served(judge.choices(), choice);
            self.ask_again((choice, served), round, &mut judge.judging);
            let again = self.ask(false);
            judge.continue_with(choice, &again, self.gateway.now_ms).unwrap();
        }
        let written = judge.write();
        self.remember(judge.choices());
        self.end(judge.judging);
        self.passed.reply = Some(written.unwrap_or(body));
    }

    fn streamed(&mut self, judging: Judging, anchor: Hash) {
        let mut judge = StreamJudge::new(judging, LIMITS, true);
        let mut out = Vec::new();
        let mut stream = match self.handed(anchor) {
            Some((_, events)) => events,
            None => self.ask(true),
        };
        loop {
            let mut rest = stream.clone();
            while !rest.is_empty() {
                let length = 1 + self.model.numbers.below(rest.len().min(700));
                judge.push(rest.split_to(length), self.gateway.now_ms, &mut out);
            }
            let Ending::Reask { choice, round } = judge.finish(self.gateway.now_ms, &mut out) else { break };
            let served = is_served(judge.choices(), choice);
            self.ask_again((choice, served), round, &mut judge.judging);
            judge.continue_with(choice);
            stream = self.ask(true);
        }
        self.remember(judge.choices());
        self.end(judge.judging);
        self.passed.reply = Some(out.concat().into());
    }

    fn handed(&self, anchor: Hash) -> Option<(Bytes, Bytes)> {
        let confirmation = self.passed.approved.as_ref()?;
        let model = self.request.model_name(self.body).into_owned();
        let created = self.gateway.now_ms / 1000;
        let usage = self.request.include_usage;
        let handed = Handed { anchor, key: &self.gateway.identity.key, model: &model, created, usage };
        Some((reply(confirmation, &handed), events(confirmation, &handed)))
    }

    fn ask_again(&mut self, (choice, served): (u32, bool), round: Bytes, judging: &mut Judging) {
        judging.approve(false);
        self.rounds.push((choice, round));
        let land = !served && self.reasks - self.served >= self.gateway.config.reask.max;
        if land {
            self.passed.landed_at.get_or_insert(judging.record.len());
            judging.land();
        }
        self.reasks += 1;
        self.served += u32::from(served);
        let mine = self.rounds.iter().filter(|(of, _)| *of == choice);
        let rounds = mine.map(|(_, round)| round.clone()).collect();
        self.pass.asking = Some(Asking { rounds, land: land && !self.keeps_tools });
    }

    fn remember(&mut self, choices: &[ChoiceState]) {
        let identity = &self.gateway.identity;
        let story = story(self.request, self.body, identity);
        let asked = Asked { chain: self.chain, story, memo: &self.gateway.memo };
        let now_ms = self.gateway.now_ms;
        let mut news = News::default();
        for choice in choices {
            let keys = released_keys(&asked, identity, choice);
            news.released.extend(keys.into_iter().map(|key| (key, now_ms)));
            let mine = self.rounds.iter().filter(|(of, _)| *of == choice.index);
            let mut rounds: Vec<Bytes> = mine.map(|(_, round)| round.clone()).collect();
            if !choice.is_wholly_withheld() {
                rounds.extend(choice.round());
            }
            if let Some((question, calls)) = choice.asked() {
                let place = identity.text_place(self.chain, story);
                let text = identity.text_anchor(place, &choice.text());
                news.asked.push((text, Confirmation::new(question, calls, now_ms)));
            }
            news.rounds.extend(remembered(&asked, identity, choice, &rounds));
            self.passed.hidden.push((choice.index, rounds));
        }
        self.gateway.ledger.record(news);
    }

    fn end(&mut self, judging: Judging) {
        self.passed.usage = judging.usage(self.gateway.now_ms);
        self.passed.record = judging.record;
    }
}
