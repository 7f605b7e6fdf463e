//! Assembly of the program: configuration, state store, upstream, proxy and admin server, started in this order and
//! drained in the reverse. Contains no logic of any part.

mod pages;
mod ports;
mod reload;
mod sinks;
mod store;
pub mod trial;
pub mod watch;

pub use self::store::StoreError;

use self::pages::{AdminService, Reviewer};
use self::ports::{AdminListeners, AdminPorts, failed_listening, listen};
pub use self::sinks::log_settings;
use self::sinks::{keepers_of, metrics_of, seconds, telemetry_of};
use self::store::{Opened, Shared};
use crate::admin::readiness::Readiness;
use crate::admin::{Admin, Attempts, BETWEEN_ANSWERS, Bearer, MOST_REVIEWS, Pages, StopScope};
use crate::config::{self, Certificates, Config, OwnToken, Target};
use crate::proxy::collector::CollectorError;
use crate::proxy::drain::Drain;
use crate::proxy::forward_proxy::{ForwardProxy, unusable_proxy};
use crate::proxy::handler::{AppState, Handler};
use crate::proxy::memory::BodyMemory;
use crate::proxy::recording::Keepers;
use crate::proxy::summaries::{ModelEndpointError, ModelEndpoints, Summariser};
use crate::proxy::tls_port::TlsPort;
use crate::proxy::upstream::{Upstream, UpstreamSettings, UpstreamSetupError};
use crate::proxy::upstream_key::{UpstreamKey, UpstreamKeyError};
use crate::proxy::webhooks::{WebhookSetupError, Webhooks};
use crate::proxy::{ConnectionLimit, Proxy, ServeSettings};
use crate::secret::of_variable;
use crate::store::answers::ModelAnswers;
use crate::store::held::HeldCalls;
use crate::store::summaries::Pins;
use crate::telemetry::Telemetry;
use crate::telemetry::live::Live;
use crate::telemetry::log::{Configured, Level, Log, Started};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::spans;
use crate::telemetry::trace::{Filter, forward};
use arc_swap::ArcSwap;
use hyper::http::Uri;
use model::identity::HashKey;
use model::memo::Memo;
use policies::REGISTRY;
use serde_json::json;
use state::memo::MemoCache;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};

/// The simulated model's pause before each chunk: slow enough to see a stream, quick enough to wait for.
const DEMO_PACE: Duration = Duration::from_millis(5);

/// How long cut connections may take to end.
const CUT_WITHIN: Duration = Duration::from_millis(500);

/// The connection limit of the admin port: probes, scrapers and people. A separate limit, so that it answers when the
/// proxy's port is full. At the limit, an idle connection is closed to make room.
const ADMIN_CONNECTIONS: usize = 256;
/// How long a connection to the admin port may idle. Probes send at once; a scraper whose connection was closed makes
/// another one.
const ADMIN_HEADER_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a client of the admin port may go without reading an answer, which is short.
const ADMIN_STALL_TIMEOUT: Duration = Duration::from_secs(15);
/// The services that outlive a configuration, made at the start.
struct Services {
    telemetry: Telemetry,
    keepers: Keepers,
    store: Arc<dyn state::StateStore>,
    key: HashKey,
    held: Arc<HeldCalls>,
    memory: BodyMemory,
}

impl Services {
    fn open(
        config: &Config,
        telemetry: &Telemetry,
        store: Arc<dyn state::StateStore>,
        key: HashKey,
        held: &Arc<HeldCalls>,
        memory: BodyMemory,
    ) -> Result<Self, StartError> {
        let (keepers, telemetry) = (keepers_of(config, &key, telemetry)?, telemetry.clone());
        Ok(Self { telemetry, keepers, store, key, held: Arc::clone(held), memory })
    }

    fn app(
        self,
        config: &Arc<Config>,
        upstream: Upstream,
        summaries: Summariser,
        webhooks: Webhooks,
    ) -> AppState {
        let Self { telemetry, keepers, store, key, held, memory } = self;
        let memo: Arc<dyn Memo> = Arc::new(MemoCache::new(config.store.memo_bytes));
        let shared = Arc::new(engine::Shared {
            settings: Arc::new(config.engine_settings()),
            memo: Arc::clone(&memo),
            key: key.clone(),
            secret: crate::secret::random_key(),
            upstream: upstream.name().to_owned(),
            summaries: Arc::clone(&summaries.pins) as _,
        });
        AppState {
            memory,
            upstream: Arc::new(upstream),
            store,
            memo,
            telemetry: Arc::new(telemetry),
            keepers,
            key,
            held,
            conversation_lock: Arc::default(),
            summaries,
            webhooks,
            equal_requests: Arc::default(),
            shared,
            config: Arc::clone(config),
        }
    }
}

/// Why the program did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot listen on {address} ({key}): {error}")]
    Listen { key: &'static str, address: SocketAddr, error: io::Error },
    #[error(transparent)]
    Upstream(#[from] UpstreamSetupError),
    #[error(transparent)]
    UpstreamKey(#[from] UpstreamKeyError),
    #[error(transparent)]
    Summaries(#[from] ModelEndpointError),
    #[error(transparent)]
    Webhooks(#[from] WebhookSetupError),
    #[error("cannot write {path} (audit.file): {error}")]
    Audit { path: String, error: io::Error },
    #[error(transparent)]
    Collector(#[from] CollectorError),
    #[error("cannot set up traces: {0}")]
    Traces(#[from] spans::SetupError),
    #[error("cannot start recording (record.dir): {0}")]
    Recorder(io::Error),
    #[error("{name} (admin.token_env): {problem}")]
    Token { name: String, problem: String },
    #[error(transparent)]
    StateStore(#[from] StoreError),
    #[error("cannot set up metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// The running program.
pub struct Running {
    proxy: Proxy,
    admin: AdminPorts,
    readiness: Readiness,
    held: Arc<HeldCalls>,
    telemetry: Telemetry,
    filter: Filter,
    drain: Drain,
    shared: Shared,
    /// The request handler, and the admin pages.
    handler: Arc<Handler>,
    pages: Arc<AdminService>,
    model: Option<SimulatedModel>,
}

/// The simulated model of the upstream `demo:`.
pub struct SimulatedModel {
    pub address: SocketAddr,
    pub upstream: Arc<mock::Upstream>,
    /// Stops it when dropped.
    _stop: oneshot::Sender<()>,
}

impl SimulatedModel {
    fn base(&self) -> Uri {
        let authority = self.address.to_string();
        let base = Uri::builder().scheme("http").authority(authority).path_and_query("/v1").build();
        base.unwrap_or_default()
    }
}

impl Running {
    /// Starts everything and logs the listening addresses.
    ///
    /// # Errors
    /// The reason why it cannot start, as a text for the operator.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let log = Log::start(log_settings(&config.log));
        Self::start_with_log(config, log).await
    }

    /// The same with another log than the one on standard error.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_with_log(config: Config, log: Log) -> Result<Self, StartError> {
        let config = Arc::new(config);
        let filter = forward(&log, &config.log.level);
        for warning in &config.warnings {
            log.note(Level::Warn, warning, json!({}));
        }
        let bearer = bearer_of(&config.admin)?;
        let (base, model) = upstream_of(&config).await?;
        let held = Arc::<HeldCalls>::default();
        let metrics = metrics_of(&config, &held)?;
        let Opened { store, key, shared } = store::open(&config, &metrics).await?;
        let settings = upstream_settings(&config, base)?;
        let telemetry = telemetry_of(&config, &metrics, log, &settings)?;
        let drain = Drain::new();
        let endpoints = ModelEndpoints::of(&config, &settings)?;
        let webhooks = Webhooks::of(&config, &settings, drain.clone())?;
        let pins = Pins::new(config.store.ttl);
        let memory = BodyMemory::new(config.limits.total_bytes);
        let held_bytes = memory.clone();
        metrics.count_body_bytes_by(move || held_bytes.held());
        let (for_pages, for_reviews) = (Arc::clone(&store), key.clone());
        let services = Services::open(&config, &telemetry, store, key, &held, memory)?;
        let answers = ModelAnswers::new(config.store.ttl);
        let summaries = Summariser::new(pins, answers, endpoints, drain.clone());
        let app = services.app(&config, Upstream::new(settings)?, summaries, webhooks);
        let readiness = Readiness::starting();
        let admin_listeners = AdminListeners::bind(&config)?;
        let proxy_listener = listen("listen.proxy", config.listen.proxy)?;
        let admin = Admin {
            metrics,
            config: config.effective.as_json().into(),
            readiness: readiness.clone(),
            loopback: config.listen.admin.ip().is_loopback(),
            held: Arc::clone(&held),
            store: for_pages,
            stop_scope: Arc::new(StopScope::of(&config)),
            bearer,
            attempts: attempts_of(&telemetry),
            body_timeout: body_timeout(&config),
            settings: Arc::clone(&config),
            live: Arc::clone(&telemetry.live),
            review: Arc::new(Reviewer { key: for_reviews.clone() }),
            reviews: Arc::new(Semaphore::new(MOST_REVIEWS)),
            key: for_reviews,
            upstream: app.upstream.name().into(),
        };
        let settings = serve_settings(&config, &telemetry.metrics);
        let limit = settings.limit.clone();
        telemetry.metrics.count_connections_by(move || limit.in_use() as u64);
        let pages = Arc::new(AdminService(ArcSwap::from_pointee(Pages::new(admin))));
        let admin = admin_listeners.serve(&pages, &admin_settings(&settings))?;
        let handler = Arc::new(Handler(ArcSwap::from_pointee(app)));
        let proxy = Proxy::start(proxy_listener, Arc::clone(&handler), settings, drain.clone())
            .map_err(failed_listening("listen.proxy", config.listen.proxy))?;
        let upstream = config.upstream.url.to_string();
        let changes = config.changed_keys(REGISTRY);
        telemetry.log.listening(&Started { changes, ..started(&config, &upstream, proxy.address(), &admin) });
        readiness.open();
        Ok(Self { proxy, admin, readiness, held, telemetry, filter, drain, shared, handler, pages, model })
    }

    /// The address for clients.
    pub fn address(&self) -> SocketAddr {
        self.proxy.address()
    }

    /// The address of the admin server.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin.address()
    }

    /// How often the configuration file is read for changes; zero: never.
    pub fn watch_interval(&self) -> Duration {
        self.handler.0.load().config.reload.watch
    }

    /// The certificates in force, where there are some.
    pub fn certificates(&self) -> Option<Certificates> {
        self.handler.0.load().config.certificates.clone()
    }

    /// What has happened since the start; it is kept up to date until the end.
    pub fn live(&self) -> Arc<Live> {
        Arc::clone(&self.telemetry.live)
    }

    /// The configuration in force.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.handler.0.load().config)
    }

    /// The simulated model, if it is the upstream.
    pub fn model(&self) -> Option<&SimulatedModel> {
        self.model.as_ref()
    }

    /// Drains and ends; `false` if streams had to be cut.
    pub async fn stop(self) -> bool {
        self.readiness.drain();
        // Pending approvals end as stopped, so that their clients get replies before the end.
        self.held.stop();
        let log = self.telemetry.log.clone();
        let drain_timeout = self.handler.0.load_full().config.limits.drain_timeout;
        let within = humantime::format_duration(drain_timeout).to_string();
        log.note(Level::Info, "draining", json!({ "within": within }));
        let finished = self.proxy.stop(drain_timeout).await;
        if !finished {
            // Done here and not by the runtime's end, so that cut requests are still recorded.
            self.drain.cut();
            self.drain.finished(CUT_WITHIN).await;
        }
        self.shared.finish().await;
        self.admin.stop().await;
        let word = if finished { "drained" } else { "streams were cut, since limits.drain_timeout is over" };
        log.note(if finished { Level::Info } else { Level::Warn }, word, json!({}));
        // Off the runtime: it waits for the writing threads.
        let (telemetry, recorder) = (self.telemetry.clone(), self.handler.0.load().keepers.recorder.clone());
        let end = move || {
            // Its last words may be a line of the log.
            recorder.finish();
            telemetry.finish();
        };
        let _ = tokio::task::spawn_blocking(end).await;
        finished
    }
}

/// The counter of attempts to open a page with a wrong token.
fn attempts_of(telemetry: &Telemetry) -> Arc<Attempts> {
    Arc::new(Attempts::new(telemetry.log.clone(), Arc::clone(&telemetry.metrics), BETWEEN_ANSWERS))
}

/// The upstream's base address; the simulated model is started for it.
async fn upstream_of(config: &Config) -> Result<(Uri, Option<SimulatedModel>), StartError> {
    if let Target::Url(base) = &config.upstream.url {
        return Ok((base.clone(), None));
    }
    let listener = listen("upstream.url = \"demo:\"", SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let address = listener.local_addr().unwrap_or(SocketAddr::from(([127, 0, 0, 1], 0)));
    let upstream = Arc::new(mock::Upstream::new(DEMO_PACE));
    let (stop, stopped) = oneshot::channel::<()>();
    let shutdown = async {
        let _ = stopped.await;
    };
    tokio::spawn(mock::serve(listener, Arc::clone(&upstream), shutdown));
    let model = SimulatedModel { address, upstream, _stop: stop };
    Ok((model.base(), Some(model)))
}

/// How long the body of a request to the admin port, which is short, may take.
fn body_timeout(config: &Config) -> Duration {
    config.limits.body_timeout.min(config.limits.upload_timeout)
}

/// The key is read from the environment.
fn upstream_settings(config: &Config, base: Uri) -> Result<UpstreamSettings, UpstreamKeyError> {
    let key = UpstreamKey::of(&config.upstream)?;
    if let Some(sentence) = unusable_proxy(&config.upstream) {
        tracing::warn!("{sentence}");
    }
    Ok(UpstreamSettings { key, ..connection_settings(config, base) })
}

/// The same without the key.
fn connection_settings(config: &Config, base: Uri) -> UpstreamSettings {
    let upstream = &config.upstream;
    UpstreamSettings {
        base,
        connect: upstream.connect_timeout,
        first_byte: upstream.first_byte_timeout,
        idle: upstream.idle_timeout,
        ca_file: upstream.ca_file.clone(),
        http2: upstream.http2,
        key: None,
        proxy: ForwardProxy::new(upstream),
    }
}

fn serve_settings(config: &Config, metrics: &Arc<Metrics>) -> ServeSettings {
    let limits = &config.limits;
    ServeSettings {
        header_timeout: limits.header_timeout,
        stall_timeout: limits.stall_timeout,
        limit: ConnectionLimit::new(limits.connections),
        tls: tls_port(config, metrics),
        closes_idle: false,
    }
}

/// TLS on the port for clients.
fn tls_port(config: &Config, metrics: &Arc<Metrics>) -> Option<Arc<TlsPort>> {
    let (settings, found) = (&config.listen.tls, config.certificates.as_ref()?);
    metrics.tls().certificate_ends(seconds(found.ends));
    let server = Arc::clone(&found.server);
    let port = TlsPort::new(server, settings.handshake_timeout, settings.handshakes, Arc::clone(metrics));
    Some(Arc::new(port))
}

fn admin_settings(settings: &ServeSettings) -> ServeSettings {
    ServeSettings {
        header_timeout: settings.header_timeout.min(ADMIN_HEADER_TIMEOUT),
        stall_timeout: settings.stall_timeout.min(ADMIN_STALL_TIMEOUT),
        limit: ConnectionLimit::new(ADMIN_CONNECTIONS),
        tls: None,
        closes_idle: true,
    }
}

/// The token of the admin server, from the environment.
fn bearer_of(admin: &config::Admin) -> Result<Option<Bearer>, StartError> {
    let name = &admin.token_env;
    let refused = |problem: String| StartError::Token { name: name.clone(), problem };
    if name.is_empty() {
        let own = admin.own_token.as_ref().map(|OwnToken(token)| Bearer::new(token));
        return own.transpose().map_err(refused);
    }
    let token = of_variable(name).map_err(|problem| refused(format!("{problem} in the environment")))?;
    Bearer::new(&token).map(Some).map_err(refused)
}

/// The log line about the start.
fn started<'a>(config: &'a Config, upstream: &'a str, proxy: SocketAddr, admin: &AdminPorts) -> Started<'a> {
    Started {
        proxy: proxy.to_string(),
        admin: admin.address().to_string(),
        probes: admin.probes_address().map(|address| address.to_string()),
        mode: config.mode.as_str(),
        upstream,
        changes: Vec::new(),
        version: env!("CARGO_PKG_VERSION"),
        config: configured(config),
    }
}

/// The configuration in force, for the log.
fn configured(config: &Config) -> Configured<'_> {
    let policies = config.policy_settings.iter().map(|(name, _)| *name).collect();
    Configured { config: &config.source, config_hash: &config.hash, policies }
}
