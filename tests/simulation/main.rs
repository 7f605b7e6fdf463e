//! Conversations in which the model and the client misbehave, thousands of steps by a seed, through the core and the
//! ledger, and some over real sockets: after each step every promise is held against a plain reference.
//!
//! SIMULATION_STEPS=200000 runs more of them, SIMULATION_SEED=17 runs one seed again.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may fail by panicking, and says what it has seen"
)]

mod check;
mod client;
mod gateway;
mod model;
mod numbers;
mod reference;
mod sockets;
#[path = "../support/mod.rs"]
mod support;

use check::Found;
use client::Client;
use gateway::{Gateway, Passed};
use model::Model;
use numbers::Numbers;
use reference::Reference;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use toolrein::rewrite::judging::Decision;

/// Configurations, and whether they have the limits that the reference knows.
const SETS: [(&str, &str, bool); 8] = [
    ("counting", include_str!("counting.toml"), true),
    ("everything", include_str!("everything.toml"), true),
    ("shipped", include_str!("../../proxy.toml"), false),
    ("chat", include_str!("../../deploy/profiles/chat.toml"), false),
    ("artifacts", include_str!("../../deploy/profiles/artifacts.toml"), false),
    ("voice", include_str!("../../deploy/profiles/voice.toml"), false),
    ("text", include_str!("../../deploy/profiles/text.toml"), false),
    ("tutor", include_str!("../../deploy/profiles/tutor.toml"), false),
];
/// Steps of one seed.
const STEPS: usize = 125;
/// Steps of a run by default: some seconds.
const ALL_STEPS: usize = 2_000;
/// Clients at once, all of one caller.
const CLIENTS: usize = 3;
/// Most characters that are told of what is wrong.
const MOST_TOLD: usize = 8_000;
/// Messages after which a conversation is left.
const LONG: usize = 32;

#[test]
fn whatever_model_and_client_do_every_promise_holds() {
    if let Some(seed) = number("SIMULATION_SEED") {
        return assert_run(seed, &mut Tally::default());
    }
    let seeds = number("SIMULATION_STEPS").unwrap_or(ALL_STEPS as u64) / STEPS as u64;
    let (next, tally) = (AtomicU64::new(0), Mutex::new(Tally::default()));
    let work = || {
        let mut own = Tally::default();
        while let Some(seed) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| *seed < seeds) {
            assert_run(seed, &mut own);
        }
        tally.lock().unwrap().add(&own);
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    let tally = tally.into_inner().unwrap();
    println!("{tally:?}");
    // Else it would prove little.
    assert!(tally.is_varied(), "{tally:?}");
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn assert_run(seed: u64, tally: &mut Tally) {
    let mut world = World::new(seed);
    for step in 0..STEPS {
        if let Err(why) = world.step(tally) {
            let (name, deed) = (world.set.0, world.deed);
            let why: String = why.chars().take(MOST_TOLD).collect();
            panic!(
                "seed {seed} ({name}), step {step}, a client that {deed}: {why}\nagain: SIMULATION_SEED={seed}"
            );
        }
    }
}

/// How often what is worth seeing was seen.
#[derive(Debug, Default)]
struct Tally {
    steps: usize,
    withheld: usize,
    restored: usize,
    lost: usize,
    landed: usize,
    asked: usize,
    approved: usize,
    answered: usize,
    dropped: usize,
    edits: usize,
    untouched: usize,
    strict: usize,
}

impl Tally {
    fn count(&mut self, client: &Client, passed: &Passed) {
        let judged = |fits: fn(&Decision) -> bool| {
            passed.record.iter().filter(|judged| fits(&judged.decision)).count()
        };
        self.steps += 1;
        self.withheld += judged(|decision| matches!(decision, Decision::Withhold { .. }));
        self.asked += judged(|decision| matches!(decision, Decision::Ask { .. }));
        self.answered += judged(|decision| matches!(decision, Decision::Answer { .. }));
        self.restored += passed.restored.len();
        self.lost += passed.lost as usize;
        self.landed += usize::from(passed.landed_at.is_some());
        self.approved += usize::from(passed.approved.is_some());
        self.dropped += passed.plan.dropped.len();
        self.edits += passed.plan.edits.len();
        self.untouched += usize::from(passed.plan.edits.is_empty() && passed.restored.is_empty());
        self.strict += usize::from(!client.is_careless);
    }

    fn add(&mut self, other: &Self) {
        let Self {
            steps,
            withheld,
            restored,
            lost,
            landed,
            asked,
            approved,
            answered,
            dropped,
            edits,
            untouched,
            strict,
        } = other;
        self.steps += steps;
        self.withheld += withheld;
        self.restored += restored;
        self.lost += lost;
        self.landed += landed;
        self.asked += asked;
        self.approved += approved;
        self.answered += answered;
        self.dropped += dropped;
        self.edits += edits;
        self.untouched += untouched;
        self.strict += strict;
    }

    fn is_varied(&self) -> bool {
        let often = [self.withheld, self.restored, self.landed, self.dropped, self.edits, self.untouched];
        let seldom = [self.lost, self.asked, self.answered];
        let is_often = often.iter().all(|seen| *seen > 20) && self.strict * 2 > self.steps;
        is_often && seldom.iter().all(|seen| *seen > 5) && self.approved > 0
    }
}

/// One process, its clients, and the reference beside it.
struct World {
    set: (&'static str, &'static str, bool),
    gateway: Gateway,
    reference: Reference,
    model: Model,
    clients: Vec<Client>,
    numbers: Numbers,
    deed: &'static str,
}

impl World {
    fn new(seed: u64) -> Self {
        let set = SETS[seed as usize % SETS.len()];
        let clients = (0..CLIENTS as u64).map(|at| Client::new(seed * 1_000 + at)).collect();
        let (reference, model, numbers) = (Reference::default(), Model::new(seed), Numbers::of(seed));
        Self { set, gateway: Gateway::new(set.1), reference, model, clients, numbers, deed: "begins" }
    }

    /// One request of one client, its answer, and what the client makes of it.
    fn step(&mut self, tally: &mut Tally) -> Found {
        if self.numbers.percent(1) {
            self.gateway.restart();
            self.reference.forget();
        }
        let at = self.numbers.below(CLIENTS);
        if self.clients[at].history.len() > LONG || self.numbers.percent(2) {
            self.clients[at] = Client::new(self.numbers.below(1 << 30) as u64);
        }
        self.deed = self.clients[at].deed;
        let first = self.ask(at, tally)?;
        let passed = if self.numbers.percent(10) {
            self.deed = "sends the same bytes again";
            let again = self.ask(at, tally)?;
            if first.sent.first() != again.sent.first() && first.approved.is_none() {
                let shown = |passed: &Passed| passed.sent.first().map(|sent| check::lossy(sent));
                return Err(format!(
                    "the same request went up as\n{:?}\nand then as\n{:?}",
                    shown(&first),
                    shown(&again)
                ));
            }
            again
        } else {
            first
        };
        let client = &mut self.clients[at];
        match &passed.reply {
            Some(reply) => {
                let messages = check::reply(client, reply)?;
                let message = self.numbers.pick(&messages).clone();
                client.take(message);
                client.go_on();
            }
            None => *client = Client::new(self.numbers.below(1 << 30) as u64),
        }
        self.gateway.now_ms += self.numbers.below(15_000) as u64;
        Ok(())
    }

    fn ask(&mut self, at: usize, tally: &mut Tally) -> Result<Passed, String> {
        let client = &self.clients[at];
        let body = client.body();
        let now_ms = self.gateway.now_ms;
        let counts = self.reference.count(&client.history, now_ms);
        self.model.ids = client.ids;
        let passed = self.gateway.pass(&body, &mut self.model).ok_or("ungoverned")?;
        tally.count(client, &passed);
        check::sendings(client, &body, &passed)?;
        check::rounds(&self.reference, client, &passed)?;
        let Some(reply) = &passed.reply else { return Ok(passed) };
        check::untouched(&passed)?;
        // A forced call is an answer, which no limit counts; of several choices each is counted for itself.
        if self.set.2 && client.n == 1 && !client.is_forced {
            check::limits(counts, &passed)?;
        }
        let messages = check::reply(client, reply)?;
        // In the order in which they are told to the ledger: of choices that say the same, the last one's round counts.
        for (index, rounds) in &passed.hidden {
            let message = messages.get(*index as usize).ok_or("a choice is missing")?;
            check::shown(message, (&passed, rounds))?;
            self.reference.learn(&client.history, message, rounds, now_ms);
        }
        Ok(passed)
    }
}
