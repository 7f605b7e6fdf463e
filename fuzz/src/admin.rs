//! Target: a request to the admin server: method, path and headers, a line each, and after an empty line its body. The
//! answer is always one of the known ones and as long as it says; a host name that is not local gets nothing, and
//! without the token no pending call is shown.

use crate::world::choices;
use axum::body::Body;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Body as _;
use hyper::{Method, Request};
use model::identity::HashKey;
use policies::REGISTRY;
use serde_json::Value;
use state::memory::{Bounds, Memory};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use toolrein::admin::readiness::Readiness;
use toolrein::admin::{Admin, Attempts, Bearer, Pages, Review};
use toolrein::config::{Config, Overrides, Source};
use toolrein::telemetry::live::conversations::Conversation;
use toolrein::telemetry::live::{self, Live};
use toolrein::telemetry::log::Log;
use toolrein::telemetry::metrics::Metrics;

const TOKEN: &str = "a-token-of-the-fuzzer";
const BOUNDS: Bounds = Bounds {
    calls: 10,
    hidden_exchange_bytes: 10,
    conversations: 10,
    lifetime: Duration::from_secs(3_600),
    refusals: Duration::from_secs(3_600),
};
/// Pages of numbers, which need no token.
const PUBLIC: [&str; 4] = ["/api/overview", "/api/tools", "/api/limits", "/api/health"];
const CONFIG: &str = r#"{"mode":"enforce"}"#;

pub fn run(input: &[u8]) -> bool {
    let (first, input) = choices(input);
    let mut lines = input.split(|byte| *byte == b'\n');
    let method = lines.next().unwrap_or_default();
    let path = lines.next().unwrap_or_default();
    let mut asked = Request::builder().method(method).uri(path);
    for line in lines.by_ref().take_while(|line| !line.is_empty()) {
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        asked = asked.header(&line[..colon], line.get(colon + 1..).unwrap_or_default());
    }
    let rest = lines.collect::<Vec<_>>().join(&b'\n');
    let Ok(request) = asked.body(Body::from(rest)) else { return false };
    let (pages, runtime) = (pages(first % 2 == 1), runtime());
    let (head, body) = request.into_parts();
    let response = runtime.block_on(pages.answer(Request::from_parts(head.clone(), body)));
    let request = Request::from_parts(head, ());
    let status = response.status().as_u16();
    assert!([200, 400, 401, 403, 404, 405, 409, 413, 503].contains(&status), "{status}");
    let announced = response.headers().get("content-length").map(|value| value.to_str().unwrap().to_owned());
    let body = response.into_body();
    // A stream of events has no length.
    if let (Some(announced), Some(length)) = (announced, body.size_hint().exact()) {
        let is_whole = length.to_string() == announced || (*request.method() == Method::HEAD && length == 0);
        assert!(is_whole, "{announced} announced, {length} sent");
    }
    let mut hosts = request.headers().get_all("host").iter();
    if pages.admin.loopback && hosts.any(is_foreign) {
        assert_eq!(status, 403);
    }
    let header = request.headers().get("authorization").map(|value| value.as_bytes());
    let brings_token = header.is_some_and(|value| value.ends_with(TOKEN.as_bytes()));
    let path = request.uri().path();
    if path.starts_with("/api/") && !PUBLIC.contains(&path) && !brings_token {
        assert!(status != 200 && status != 400, "{status}");
    }
    if status == 200 && request.uri().path() == "/config" && *request.method() == Method::GET {
        let bytes = runtime.block_on(body.collect()).unwrap().to_bytes();
        assert_eq!(bytes, CONFIG.as_bytes());
    }
    true
}

/// Whether the host is one that a page on the web could have. To every browser, the part after a colon is a port.
fn is_foreign(host: &hyper::header::HeaderValue) -> bool {
    let name = host.as_bytes().split(|byte| *byte == b':').next().unwrap_or_default();
    name.to_ascii_lowercase().ends_with(b".example") && !host.as_bytes().contains(&b'@')
}

/// What the pages wait on: timers, and threads for what computes.
fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Builder::new_current_thread().enable_time().build().unwrap())
}

/// Neither explains nor replays: other targets do.
struct NoReview;

impl Review for NoReview {
    fn page(&self, _: &Config, _: &Bytes, _: &Conversation) -> Result<String, String> {
        Err("no page".to_owned())
    }

    fn items(&self, _: &Config, _: &Bytes, _: &str) -> Result<Value, String> {
        Err("no items".to_owned())
    }

    fn replay(&self, _: Config, _: &Bytes, _: &str) -> Result<Value, String> {
        Err("no replay".to_owned())
    }
}

fn pages(loopback: bool) -> &'static Pages {
    static PAGES: OnceLock<[Pages; 2]> = OnceLock::new();
    let make = |loopback| {
        let metrics = Arc::new(Metrics::new(toolrein::telemetry::tools::OwnSeries::none()).unwrap());
        Pages::new(Admin {
            attempts: Arc::new(Attempts::new(Log::silent(), Arc::clone(&metrics), Duration::ZERO)),
            metrics,
            config: CONFIG.into(),
            readiness: Readiness::starting(),
            loopback,
            held: Arc::default(),
            store: Arc::new(Memory::new(&BOUNDS)),
            stop_scope: Arc::default(),
            bearer: Some(Bearer::new(TOKEN).unwrap()),
            body_timeout: Duration::from_secs(30),
            settings: Arc::new(Config::load(Source::Shipped, &Overrides::default(), REGISTRY).unwrap()),
            live: Arc::new(Live::new(live::Bounds {
                conversations: 10,
                callers: 10,
                with_decisions: true,
                body_bytes: 10_000,
            })),
            review: Arc::new(NoReview),
            key: HashKey::fixed(7),
            upstream: "upstream".into(),
            reviews: Arc::new(Semaphore::new(1)),
        })
    };
    &PAGES.get_or_init(|| [make(false), make(true)])[usize::from(loopback)]
}
