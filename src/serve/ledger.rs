//! The ledger as the configuration wants it: this process's memory, or the one that replicas share, with the secret
//! under which names are hashed. Reads the environment; neither an address nor a secret is ever told.

use crate::config::{Config, KeyHash};
use crate::ledger::Ledger;
use crate::ledger::memory::{Bounds, Memory};
use crate::ledger::redis::{AddressError, Redis, Settings};
use crate::secret::random_key;
use crate::telemetry::metrics::Metrics;
use crate::transcript::identity::HashKey;
use std::sync::Arc;
use std::time::Duration;

/// A shorter secret could be guessed by who knows what was hashed.
const LEAST_SECRET: usize = 32;
/// So that the hash of a secret that is used elsewhere too is not the key here.
const DOMAIN: &[u8] = b"toolrein ledger\n";
/// How long the first try may keep the start waiting.
const TRIED_WITHIN: Duration = Duration::from_millis(500);
/// How long telling what waits may take at the end.
const FINISH_WITHIN: Duration = Duration::from_secs(2);

/// Why there is no ledger.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    #[error("{key}: the environment variable {name} {problem}")]
    Variable { key: &'static str, name: String, problem: String },
    #[error("ledger.url {0}")]
    Url(AddressError),
}

/// See the file's head.
pub(super) struct Opened {
    pub(super) ledger: Arc<dyn Ledger>,
    /// Under which names are hashed.
    pub(super) key: HashKey,
    pub(super) shared: Shared,
}

/// The ledger that replicas share, if there is one.
#[derive(Clone)]
pub(super) struct Shared(Option<Arc<Redis>>);

impl Shared {
    /// Tells it what it was not told yet.
    pub(super) async fn finish(&self) {
        if let Some(redis) = &self.0 {
            redis.finish(FINISH_WITHIN).await;
        }
    }
}

/// Opens the ledger. A shared one is connected to in the background; it has a moment to answer, so that the first
/// request finds it.
pub(super) async fn open(config: &Config, metrics: &Arc<Metrics>) -> Result<Opened, LedgerError> {
    let opened = match config.ledger.is_shared() {
        true => shared(config, metrics).await?,
        false => {
            let ledger = Arc::new(Memory::new(&bounds(config)));
            Opened { ledger, key: random_key(), shared: Shared(None) }
        }
    };
    let ledger = Arc::clone(&opened.ledger);
    metrics.count_conversations_by(move || ledger.conversations());
    Ok(opened)
}

async fn shared(config: &Config, metrics: &Arc<Metrics>) -> Result<Opened, LedgerError> {
    let settings = &config.ledger;
    let key = key(&settings.secret_env)?;
    let url = match settings.url.as_str() {
        "" => variable("ledger.url_env", &settings.url_env)?,
        url => url.to_owned(),
    };
    let (prefix, timeout, bounds) = (settings.prefix.clone(), settings.timeout, bounds(config));
    let opened =
        Redis::open(Settings { url, key: key.clone(), prefix, timeout, bounds }, Arc::clone(metrics));
    let redis = Arc::new(opened.map_err(|error| match settings.url_env.as_str() {
        "" => LedgerError::Url(error),
        name => refused("ledger.url_env", name, &error.to_string()),
    })?);
    redis.is_tried(TRIED_WITHIN).await;
    Ok(Opened { ledger: Arc::clone(&redis) as _, key, shared: Shared(Some(redis)) })
}

fn bounds(config: &Config) -> Bounds {
    Bounds {
        calls: config.ledger.calls,
        rounds_bytes: config.ledger.rounds_bytes,
        conversations: config.ledger.conversations,
        lifetime: config.ledger.ttl,
        refusals: config.upstream.remember,
    }
}

/// The key that the secret in the variable `name` is. By way of SHA-256, so that every bit of it counts.
fn key(name: &str) -> Result<HashKey, LedgerError> {
    let at = "ledger.secret_env";
    let secret = variable(at, name)?;
    if secret.chars().count() < LEAST_SECRET {
        return Err(refused(at, name, &format!("holds fewer than {LEAST_SECRET} characters")));
    }
    let hash = KeyHash::of(&[DOMAIN, secret.as_bytes()].concat());
    hash.map(|hash| HashKey::of(hash.bytes())).ok_or_else(|| refused(at, name, "cannot be hashed"))
}

fn variable(key: &'static str, name: &str) -> Result<String, LedgerError> {
    let value = std::env::var(name).map_err(|_| refused(key, name, "is not set"))?;
    Ok(value.trim().to_owned())
}

fn refused(key: &'static str, name: &str, problem: &str) -> LedgerError {
    LedgerError::Variable { key, name: name.to_owned(), problem: problem.to_owned() }
}
