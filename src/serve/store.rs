//! Sets up the configured state store: this process's memory, or the one that replicas share, with the secret for
//! hashing names. Reads environment variables; never shows an address or a secret.

use crate::config::{self, Config, KeyHash};
use crate::secret::{UNSET, random_key};
use crate::telemetry::metrics::Metrics;
use dialects::hidden_exchange::is_hidden_exchange;
use model::identity::HashKey;
use model::store_health::{Circuit, StoreOp};
use state::StateStore;
use state::memory::{Bounds, Memory};
use state::observer::Observer;
use state::redis::records::StoreKeys;
use state::redis::{AddressError, ConnectError, Redis, Settings};
use std::sync::Arc;
use std::time::Duration;

impl Observer for Metrics {
    fn count_store_errors(&self, op: StoreOp, count: u64) {
        self.count_store_errors(op, count);
    }

    fn store_breaker(&self, circuit: Circuit) {
        self.store_breaker(circuit);
    }

    fn store_answers(&self, answers: bool) {
        self.store_answers(answers);
    }
}

/// A shorter secret could be guessed from known hashes.
const LEAST_SECRET: usize = 32;
/// Separate the keys from each other and from other uses of the same secret.
const NAMES: &[u8] = b"toolrein state store\n";
const RECORDS: &[u8] = b"toolrein state store: records\n";
/// How long the first attempt to connect may delay the start: as long as it may take, so that a server that cannot be
/// used is refused here.
const TRIED_WITHIN: Duration = Duration::from_secs(2);
/// How long writing the queued updates may take at the end.
const FINISH_WITHIN: Duration = Duration::from_secs(2);

/// Why there is no state store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{key}: the environment variable {name} {problem}")]
    Variable { key: &'static str, name: String, problem: String },
    #[error("store.url {0}")]
    Url(AddressError),
    #[error("{key}: {error}")]
    Unusable { key: String, error: ConnectError },
}

/// See the module's documentation.
pub(super) struct Opened {
    pub(super) store: Arc<dyn StateStore>,
    /// The key with which names are hashed.
    pub(super) key: HashKey,
    pub(super) shared: Shared,
}

/// The state store that replicas share, if there is one.
#[derive(Clone)]
pub(super) struct Shared(Option<Arc<Redis>>);

impl Shared {
    /// Writes the queued updates to it.
    pub(super) async fn finish(&self) {
        if let Some(redis) = &self.0 {
            redis.finish(FINISH_WITHIN).await;
        }
    }
}

/// Opens the state store. A shared one connects in the background; the start waits a moment for it, so that the first
/// request finds it.
pub(super) async fn open(config: &Config, metrics: &Arc<Metrics>) -> Result<Opened, StoreError> {
    let opened = match config.store.is_shared() {
        true => shared(config, metrics).await?,
        false => {
            let store = Arc::new(Memory::new(&bounds(config)));
            Opened { store, key: random_key(), shared: Shared(None) }
        }
    };
    let store = Arc::clone(&opened.store);
    metrics.count_conversations_by(move || store.conversations());
    Ok(opened)
}

async fn shared(config: &Config, metrics: &Arc<Metrics>) -> Result<Opened, StoreError> {
    let settings = &config.store;
    let keys = keys(&settings.secret_env)?;
    let (key, url) = (keys.names.clone(), url(settings)?);
    let (prefix, timeout, bounds) = (settings.prefix.clone(), settings.timeout, bounds(config));
    let redis = Settings { url, keys, prefix, timeout, bounds, is_hidden_exchange };
    let opened = Redis::open(redis, Arc::clone(metrics) as Arc<dyn Observer>);
    let redis = Arc::new(opened.map_err(|error| of_url(settings, error))?);
    redis.is_tried(TRIED_WITHIN).await;
    if redis.is_cluster() {
        let key = match settings.url_env.as_str() {
            "" => "store.url".to_owned(),
            name => format!("store.url_env: the environment variable {name}"),
        };
        return Err(StoreError::Unusable { key, error: ConnectError::Cluster });
    }
    Ok(Opened { store: Arc::clone(&redis) as _, key, shared: Shared(Some(redis)) })
}

/// What is wrong with the address and the secret of a shared state store. Connects to nothing.
pub(super) fn try_secrets(config: &Config) -> Vec<StoreError> {
    let settings = &config.store;
    if !settings.is_shared() {
        return Vec::new();
    }
    let address =
        url(settings).and_then(|url| Redis::check_address(&url).map_err(|error| of_url(settings, error)));
    keys(&settings.secret_env).err().into_iter().chain(address.err()).collect()
}

fn url(settings: &config::StateStore) -> Result<String, StoreError> {
    match settings.url.as_str() {
        "" => variable("store.url_env", &settings.url_env),
        url => Ok(url.to_owned()),
    }
}

fn of_url(settings: &config::StateStore, error: AddressError) -> StoreError {
    match settings.url_env.as_str() {
        "" => StoreError::Url(error),
        name => refused("store.url_env", name, &error.to_string()),
    }
}

fn bounds(config: &Config) -> Bounds {
    Bounds {
        calls: config.store.calls,
        hidden_exchange_bytes: config.store.hidden_exchange_bytes,
        conversations: config.store.conversations,
        lifetime: config.store.ttl,
        refusals: config.upstream.remember,
    }
}

/// The keys from the secret in the variable `name`. Hashed with SHA-256, so that every bit of it counts.
fn keys(name: &str) -> Result<StoreKeys, StoreError> {
    let at = "store.secret_env";
    let secret = variable(at, name)?;
    if secret.chars().count() < LEAST_SECRET {
        return Err(refused(at, name, &format!("has fewer than {LEAST_SECRET} characters")));
    }
    let hash = |domain: &[u8]| KeyHash::of(&[domain, secret.as_bytes()].concat()).map(|hash| hash.bytes());
    let keys = hash(NAMES).zip(hash(RECORDS));
    let keys = keys.map(|(names, records)| StoreKeys { names: HashKey::of(names), records });
    keys.ok_or_else(|| refused(at, name, "cannot be hashed"))
}

fn variable(key: &'static str, name: &str) -> Result<String, StoreError> {
    let value = std::env::var(name).map_err(|_| refused(key, name, UNSET))?;
    Ok(value.trim().to_owned())
}

fn refused(key: &'static str, name: &str, problem: &str) -> StoreError {
    StoreError::Variable { key, name: name.to_owned(), problem: problem.to_owned() }
}
