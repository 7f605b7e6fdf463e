//! Target: a request to the admin server: method, path and headers, a line each, and after an empty line its body. The
//! answer is always one of the known ones and as long as it says; a host name that is not local gets nothing, and
//! without the token no pending call is shown.

use crate::world::choices;
use http_body_util::BodyExt as _;
use hyper::body::Body as _;
use hyper::{Method, Request};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use toolrein::admin::readiness::Readiness;
use toolrein::admin::{Admin, Bearer};
use toolrein::store::memory::{Bounds, Memory};
use toolrein::telemetry::metrics::Metrics;

const TOKEN: &str = "a-token-of-the-fuzzer";
const BOUNDS: Bounds = Bounds {
    calls: 10,
    hidden_exchange_bytes: 10,
    conversations: 10,
    lifetime: Duration::from_secs(3_600),
    refusals: Duration::from_secs(3_600),
};
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
    let Ok(request) = asked.body(()) else { return false };
    let body = lines.next();
    let admin = admin(first % 2 == 1);
    let response = now(admin.handle(&request, body.filter(|_| admin.reads_body(&request))));
    let status = response.status().as_u16();
    assert!([200, 400, 401, 403, 404, 405, 409, 503].contains(&status), "{status}");
    let announced: u64 = response.headers()["content-length"].to_str().unwrap().parse().unwrap();
    let body = response.into_body();
    let length = body.size_hint().exact().unwrap();
    assert!(
        length == announced || (*request.method() == Method::HEAD && length == 0),
        "{announced} announced, {length} sent"
    );
    let mut hosts = request.headers().get_all("host").iter();
    if admin.loopback && hosts.any(is_foreign) {
        assert_eq!(status, 403);
    }
    let header = request.headers().get("authorization").map(|value| value.as_bytes());
    let brings_token = header.is_some_and(|value| value.ends_with(TOKEN.as_bytes()));
    if request.uri().path().starts_with("/api/") && !brings_token {
        assert!(status != 200 && status != 400, "{status}");
    }
    if status == 200 && request.uri().path() == "/config" && *request.method() == Method::GET {
        let bytes = now(body.collect()).unwrap().to_bytes();
        assert_eq!(bytes, CONFIG.as_bytes());
    }
    true
}

/// Whether the host is one that a page on the web could have. To every browser, the part after a colon is a port.
fn is_foreign(host: &hyper::header::HeaderValue) -> bool {
    let name = host.as_bytes().split(|byte| *byte == b':').next().unwrap_or_default();
    name.to_ascii_lowercase().ends_with(b".example") && !host.as_bytes().contains(&b'@')
}

/// The result of a future that has nothing to wait for.
fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
        std::task::Poll::Ready(result) => result,
        std::task::Poll::Pending => panic!("it waits"),
    }
}

fn admin(loopback: bool) -> &'static Admin {
    static ADMINS: OnceLock<[Admin; 2]> = OnceLock::new();
    let make = |loopback| Admin {
        metrics: Arc::new(Metrics::new(toolrein::telemetry::tools::OwnSeries::none()).unwrap()),
        config: CONFIG.into(),
        readiness: Readiness::starting(),
        loopback,
        held: Arc::default(),
        store: Arc::new(Memory::new(&BOUNDS)),
        stop_scope: Arc::default(),
        bearer: Some(Bearer::new(TOKEN).unwrap()),
    };
    &ADMINS.get_or_init(|| [make(false), make(true)])[usize::from(loopback)]
}
