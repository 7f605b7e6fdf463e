//! One process: its configuration, its store and its clock, with the upstream that it sends to. Keeps them from one request
//! to the next; decides nothing.

use super::driver::{Driver, Passed};
use super::model::Model;
use super::numbers::Numbers;
use super::summaries::Summaries;
use super::upstream::Upstream;
use bytes::Bytes;
use dialects::CHAT;
use dialects::prefix::read_request;
use engine::{Arrived, Now, Shared};
use model::Transcript;
use model::identity::{Hash, HashKey, Identity};
use model::request::Request;
use policies::REGISTRY;
use state::memo::MemoCache;
use state::memory::{Bounds, Memory};
use std::sync::Arc;
use std::time::{Duration, Instant};
use toolrein::config::{Config, Mode, Overrides, Source};

const BOUNDS: Bounds = Bounds {
    calls: 1_000_000,
    hidden_exchange_bytes: 1 << 30,
    conversations: 100_000,
    lifetime: Duration::from_secs(86_400),
    refusals: Duration::from_secs(86_400),
};

/// See the file's head.
pub struct Process {
    pub config: Arc<Config>,
    pub shared: Arc<Shared>,
    pub store: Memory,
    pub now_ms: u64,
    /// Counts the requests.
    pub ordinal: usize,
    pub upstream: Upstream,
    pub summaries: Summaries,
}

impl Process {
    pub fn new((config, mode): (&str, &str), seed: u64) -> Self {
        let source = Source::Text { name: "simulation.toml".to_owned(), text: config.to_owned() };
        // No refusal is tried again while a simulation lasts: what is known to be refused is never sent.
        let settings = vec![("TOOLREIN__UPSTREAM__REMEMBER".to_owned(), "8000h".to_owned())];
        let overrides = Overrides { mode: Some(mode.to_owned()), settings, ..Overrides::default() };
        let config = Arc::new(Config::load(source, &overrides, REGISTRY).unwrap());
        let summaries = Summaries::new(Numbers::of(!seed));
        Self {
            shared: shared(&config, &summaries),
            config,
            store: Memory::new(&BOUNDS),
            now_ms: 1_790_000_000_000,
            ordinal: 0,
            upstream: Upstream::new(seed),
            summaries,
        }
    }

    /// Restarts the process: everything that the store knew is lost.
    pub fn restart(&mut self) {
        self.store = Memory::new(&BOUNDS);
        self.summaries.restart();
        self.shared = shared(&self.config, &self.summaries);
    }

    pub fn observes(&self) -> bool {
        self.config.mode == Mode::Observe
    }

    pub fn now(&self) -> Now {
        Now { at: Instant::now(), ms: self.now_ms }
    }

    /// One request of a client, answered by `model`. `None`: it passes ungoverned.
    pub fn pass(&mut self, body: &Bytes, model: &mut Model) -> Option<Passed> {
        self.summaries.arrive(self.now_ms);
        self.ordinal += 1;
        let request = self.read(body)?;
        let profile = self.config.profiles.of_model(&request.model_name(body));
        let arrived = Arrived {
            dialect: CHAT,
            body: body.clone(),
            identity: self.identity(),
            profile: profile.map(|profile| Arc::clone(&profile.name)),
            tier: None,
            reports: false,
            path: "/v1/chat/completions".to_owned(),
            request,
        };
        Some(Driver::new(self, model, arrived).run())
    }

    /// For each message of a request, if it is a result, the message and the place of the call that it is taken to answer.
    pub fn pairs(&self, body: &Bytes) -> Option<Vec<Option<(usize, usize)>>> {
        let request = self.read(body)?;
        let identity = self.identity();
        let transcript =
            Transcript::read(request.clone(), body.clone(), identity, Arc::clone(&self.shared.memo));
        let answered = |at| transcript.calls.answered_by(at).map(|call| (call.message, call.position));
        Some((0..request.messages.len()).map(answered).collect())
    }

    fn read(&self, body: &Bytes) -> Option<Request> {
        read_request(CHAT, body, &self.shared.key, &*self.shared.memo).ok()
    }

    fn identity(&self) -> Identity {
        Identity { key: HashKey::fixed(1), caller: Hash(7), explicit: None }
    }
}

/// What all exchanges of one process share.
fn shared(config: &Arc<Config>, summaries: &Summaries) -> Arc<Shared> {
    Arc::new(Shared {
        settings: Arc::new(config.engine_settings()),
        memo: Arc::new(MemoCache::new(1 << 24)),
        key: HashKey::fixed(1),
        secret: HashKey::fixed(2),
        upstream: "upstream".to_owned(),
        summaries: Arc::clone(&summaries.pins) as _,
    })
}
