//! The admin server's routes: metrics, health, the configuration in force, stops and pending approvals. Public pages
//! show no secret; pages that show a conversation or change anything require the bearer token. The proxy module
//! listens, accepts and writes.

mod bearer;
mod confirmations;
mod host;
pub mod readiness;
mod stops;

pub use bearer::Bearer;
pub use stops::StopScope;

use crate::dialect::error::own_error_body;
use crate::store::StateStore;
use crate::store::held::HeldCalls;
use crate::telemetry::metrics::Metrics;
use bytes::Bytes;
use http_body_util::Full;
use hyper::http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use hyper::http::{HeaderValue, Method, Request, Response, StatusCode};
use readiness::Readiness;
use std::sync::Arc;

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
/// The Prometheus text format.
const EXPOSITION: &str = "text/plain; version=0.0.4";

const INDEX: &str = "toolrein admin\n\n\
    /metrics  metrics in the Prometheus text format\n\
    /livez    200 while the process answers\n\
    /readyz   200 while requests are accepted; 503 while starting or draining\n\
    /config   the configuration in force, secrets hidden\n\
    /api/confirmations   calls that wait for a person's decision; requires the bearer token\n\
    /api/stops   what is stopped; requires the bearer token\n\
    /api/conversations/ID/stop, /api/callers/HASH/stop   POST stops, DELETE resumes; require the bearer token\n";

/// The longest body that is read.
pub const BODY_BYTES: u64 = 4096;

/// The state that the admin server shows. Cheap to clone.
#[derive(Clone)]
pub struct Admin {
    pub metrics: Arc<Metrics>,
    /// The configuration in force as JSON, secrets already hidden.
    pub config: Arc<str>,
    pub readiness: Readiness,
    /// Whether the server is bound to a loopback address: then host names other than `localhost` are refused.
    pub loopback: bool,
    /// Calls that wait for a person's decision.
    pub held: Arc<HeldCalls>,
    /// The state store, which keeps the stops.
    pub store: Arc<dyn StateStore>,
    /// The profiles in which stops have an effect.
    pub stop_scope: Arc<StopScope>,
    /// The token for protected pages; without it they do not exist.
    pub bearer: Option<Bearer>,
}

/// A route that requires the token.
#[derive(Clone, Copy)]
enum Route<'a> {
    Confirmations(confirmations::Route<'a>),
    Stops(stops::Route<'a>),
}

impl<'a> Route<'a> {
    fn of(path: &'a str) -> Option<Self> {
        let confirmations = confirmations::Route::of(path).map(Self::Confirmations);
        confirmations.or_else(|| stops::Route::of(path).map(Self::Stops))
    }

    /// The allowed methods.
    fn methods(self) -> (&'static [Method], &'static str) {
        match self {
            Self::Confirmations(route) => route.methods(),
            Self::Stops(route) => route.methods(),
        }
    }

    fn has_body(self) -> bool {
        matches!(self, Self::Confirmations(confirmations::Route::Answer(_)))
    }
}

/// A status, a content type and a body.
struct Answer(StatusCode, &'static str, Bytes);

impl Admin {
    /// Whether the body of this request is read, up to [`BODY_BYTES`], before it is answered: only with the token.
    pub fn reads_body<B>(&self, request: &Request<B>) -> bool {
        let route = Route::of(request.uri().path());
        route.is_some_and(|route| route.has_body() && self.refusal(request, route).is_none())
    }

    /// Answers one request with its `body`; `None`: it was not read, or could not be.
    pub async fn handle(&self, request: &Request<()>, body: Option<&[u8]>) -> Response<Full<Bytes>> {
        let answer = self.answer(request, body.unwrap_or_default()).await;
        let status = answer.0;
        let mut response = answer.respond(request.method() == Method::HEAD);
        let route = Route::of(request.uri().path());
        match status {
            StatusCode::METHOD_NOT_ALLOWED => {
                let methods = route.map_or("GET, HEAD", |route| route.methods().1);
                response.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
            }
            StatusCode::UNAUTHORIZED => {
                response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            _ => {}
        }
        response
    }

    async fn answer(&self, request: &Request<()>, body: &[u8]) -> Answer {
        if let Some(refusal) = self.host_refusal(request) {
            return refusal;
        }
        let path = request.uri().path();
        if let Some(route) = Route::of(path) {
            return match (self.refusal(request, route), route) {
                (Some(refusal), _) => refusal,
                (None, Route::Confirmations(route)) => self.confirmations(route, body),
                (None, Route::Stops(route)) => self.stops(request.method(), route).await,
            };
        }
        let show: fn(&Self) -> Answer = match path {
            "/" => |_| Answer::text(StatusCode::OK, INDEX),
            "/metrics" => |admin| Answer(StatusCode::OK, EXPOSITION, admin.metrics.render().into()),
            "/livez" => |_| Answer::text(StatusCode::OK, "live\n"),
            "/readyz" => Self::ready,
            "/config" => {
                |admin| Answer(StatusCode::OK, JSON, Bytes::copy_from_slice(admin.config.as_bytes()))
            }
            _ => return Answer::error(StatusCode::NOT_FOUND, "There is nothing at this path.", "not_found"),
        };
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let message = "This path allows GET and HEAD.";
            return Answer::error(StatusCode::METHOD_NOT_ALLOWED, message, "method_not_allowed");
        }
        show(self)
    }

    fn host_refusal<B>(&self, request: &Request<B>) -> Option<Answer> {
        let message =
            "This server is bound to a loopback address: use its IP address or localhost as the host.";
        let refused = self.loopback && !host::is_local(request);
        refused.then(|| Answer::error(StatusCode::FORBIDDEN, message, "host_refused"))
    }

    /// The error for a request to a protected page that is not allowed.
    fn refusal<B>(&self, request: &Request<B>, route: Route<'_>) -> Option<Answer> {
        if let Some(refusal) = self.host_refusal(request) {
            return Some(refusal);
        }
        let Some(bearer) = &self.bearer else {
            let message = "There is nothing at this path, because admin.token_env is not set.";
            return Some(Answer::error(StatusCode::NOT_FOUND, message, "not_found"));
        };
        if !bearer.opens(request) {
            let message = "This path requires the token of admin.token_env: authorization: Bearer TOKEN.";
            return Some(Answer::error(StatusCode::UNAUTHORIZED, message, "unauthorized"));
        }
        let (methods, listed) = route.methods();
        let message = format!("This path allows {listed}.");
        let wrong = !methods.contains(request.method());
        wrong.then(|| Answer::error(StatusCode::METHOD_NOT_ALLOWED, &message, "method_not_allowed"))
    }

    fn ready(&self) -> Answer {
        let status = if self.readiness.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        Answer::text(status, self.readiness.word())
    }
}

impl Answer {
    fn text(status: StatusCode, text: &'static str) -> Self {
        Self(status, TEXT, Bytes::from_static(text.as_bytes()))
    }

    fn error(status: StatusCode, message: &str, code: &str) -> Self {
        Self(status, JSON, own_error_body(message, code).into())
    }

    /// The response; for HEAD without the body, but with its length.
    fn respond(self, is_head: bool) -> Response<Full<Bytes>> {
        let Self(status, kind, body) = self;
        let length = body.len();
        let mut response = Response::new(Full::new(if is_head { Bytes::new() } else { body }));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Overrides, Source};
    use crate::policy::REGISTRY;
    use crate::store::held::{End, Shown};
    use crate::store::memory::{Bounds, Memory};
    use futures_util::FutureExt as _;
    use http_body_util::BodyExt;
    use hyper::body::Incoming;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use std::convert::Infallible;
    use std::time::{Duration, SystemTime};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    fn admin(loopback: bool) -> Admin {
        Admin {
            metrics: Arc::new(Metrics::new(crate::telemetry::tools::OwnSeries::none()).unwrap()),
            config: r#"{"mode":"enforce"}"#.into(),
            readiness: Readiness::starting(),
            loopback,
            held: Arc::default(),
            store: Arc::new(Memory::new(&bounds())),
            stop_scope: Arc::default(),
            bearer: Some(Bearer::new(TOKEN).unwrap()),
        }
    }

    fn bounds() -> Bounds {
        let hour = Duration::from_secs(3_600);
        Bounds { calls: 10, hidden_exchange_bytes: 10, conversations: 10, lifetime: hour, refusals: hour }
    }

    const TOKEN: &str = "a-token-of-the-tests";

    fn response_of(admin: &Admin, method: &str, path: &str, said: &str) -> (u16, String) {
        let request = Request::builder().method(method).uri(path).header("host", "127.0.0.1");
        let request = request.header("authorization", format!("Bearer {TOKEN}")).body(()).unwrap();
        let response = admin.handle(&request, Some(said.as_bytes())).now_or_never().unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().now_or_never().unwrap().unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    fn request(method: &str, path: &str, host: &str) -> Request<()> {
        Request::builder().method(method).uri(path).header("host", host).body(()).unwrap()
    }

    fn ask(admin: &Admin, method: &str, path: &str) -> Response<Full<Bytes>> {
        admin.handle(&request(method, path, "127.0.0.1:4243"), None).now_or_never().unwrap()
    }

    fn header<'a>(response: &'a Response<Full<Bytes>>, name: &str) -> &'a str {
        response.headers().get(name).map_or("", |value| value.to_str().unwrap())
    }

    async fn body(response: Response<Full<Bytes>>) -> String {
        String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
    }

    #[tokio::test]
    async fn every_route_answers_get_with_its_type_and_body() {
        let admin = admin(true);
        for (path, status, kind, within) in [
            ("/", 200, TEXT, "/readyz"),
            ("/metrics", 200, EXPOSITION, "# TYPE toolrein_overhead_seconds histogram\n"),
            ("/metrics?name=x", 200, EXPOSITION, "toolrein_build_info"),
            ("/livez", 200, TEXT, "live\n"),
            ("/readyz", 503, TEXT, "starting\n"),
            ("/config", 200, JSON, r#"{"mode":"enforce"}"#),
            ("/nothing", 404, JSON, r#""type":"toolrein_error","param":null,"code":"not_found"}}"#),
            ("/metrics/", 404, JSON, "not_found"),
        ] {
            let response = ask(&admin, "GET", path);
            assert_eq!(
                (response.status().as_u16(), header(&response, "content-type")),
                (status, kind),
                "{path}"
            );
            assert_eq!(header(&response, "cache-control"), "no-store");
            let body = body(response).await;
            assert!(body.contains(within), "{path}: {body}");
        }
    }

    #[tokio::test]
    async fn head_tells_the_same_length_and_sends_nothing() {
        let admin = admin(true);
        for path in ["/", "/livez", "/readyz", "/config", "/nothing"] {
            let (get, head) = (ask(&admin, "GET", path), ask(&admin, "HEAD", path));
            assert_eq!((get.status(), get.headers()), (head.status(), head.headers()), "{path}");
            let length = header(&head, "content-length").to_owned();
            assert_eq!(
                (body(get).await.len().to_string(), body(head).await),
                (length, String::new()),
                "{path}"
            );
        }
    }

    #[test]
    fn other_methods_are_refused_where_there_is_something_and_nothing_else_is_found() {
        let admin = admin(true);
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT", "BREW"] {
            let response = ask(&admin, method, "/metrics");
            assert_eq!(
                (response.status().as_u16(), header(&response, "allow")),
                (405, "GET, HEAD"),
                "{method}"
            );
            let response = ask(&admin, method, "/nothing");
            assert_eq!((response.status().as_u16(), header(&response, "allow")), (404, ""), "{method}");
        }
    }

    #[tokio::test]
    async fn readiness_follows_the_life_of_the_process() {
        let admin = admin(false);
        let readiness = admin.readiness.clone();
        let response_of = async || {
            let response = ask(&admin, "GET", "/readyz");
            (response.status().as_u16(), body(response).await)
        };
        assert_eq!(response_of().await, (503, "starting\n".to_owned()));
        readiness.open();
        assert_eq!(response_of().await, (200, "ready\n".to_owned()));
        readiness.drain();
        assert_eq!(response_of().await, (503, "draining\n".to_owned()));
        assert_eq!(ask(&admin, "GET", "/livez").status(), 200);
    }

    #[test]
    fn a_foreign_host_is_refused_only_where_the_server_is_bound_to_loopback() {
        for (loopback, host, status) in [
            (true, "localhost:4243", 200),
            (true, "rebound.example:4243", 403),
            (false, "toolrein.internal:4243", 200),
        ] {
            for path in ["/config", "/metrics", "/livez"] {
                let response =
                    admin(loopback).handle(&request("GET", path, host), None).now_or_never().unwrap();
                assert_eq!(response.status().as_u16(), status, "{loopback} {host} {path}");
            }
        }
        let admin = admin(true);
        let stop = Request::post("/api/conversations/x/stop").header("host", "rebound.example");
        let stop = stop.header("authorization", format!("Bearer {TOKEN}")).body(()).unwrap();
        assert_eq!(admin.handle(&stop, None).now_or_never().unwrap().status(), 403, "with the token too");
        let refused =
            admin.handle(&request("POST", "/nothing", "rebound.example"), None).now_or_never().unwrap();
        assert_eq!(refused.status(), 403, "a foreign page learns nothing of what there is");
    }

    fn shown() -> Shown {
        let (since, expires) = (SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH + Duration::from_secs(120));
        let (tool, conversation) = ("pay".to_owned(), "c1".to_owned());
        let (arguments, readable) = ("{\"to\":\"\\u202e\"}".to_owned(), "shown".to_owned());
        Shown { tool, arguments, readable, why: None, conversation, since, expires }
    }

    #[tokio::test]
    async fn a_call_that_waits_is_listed_with_all_that_it_holds_and_answered_once() {
        let admin = admin(true);
        let until = tokio::time::Instant::now() + Duration::from_secs(120);
        let mut ticket = admin.held.hold(shown(), until);
        let (status, list) = response_of(&admin, "GET", "/api/confirmations", "");
        let list: serde_json::Value = serde_json::from_str(&list).unwrap();
        let line = &list["data"][0];
        let token = line["token"].as_str().unwrap();
        assert_eq!(
            (status, line["tool"].as_str(), line["conversation"].as_str()),
            (200, Some("pay"), Some("c1"))
        );
        assert_eq!(line["arguments"], "{\"to\":\"\\u202e\"}");
        assert_eq!(line["readable"], "shown");
        assert_eq!(
            (&line["since"], &line["expires"]),
            (&"1970-01-01T00:00:00.000Z".into(), &"1970-01-01T00:02:00.000Z".into())
        );
        let path = format!("/api/confirmations/{token}");
        for wrong in
            ["", "{}", "true", "{\"approve\":1}", "{\"approve\":true,\"tool\":\"x\"}", "{\"approve\":true"]
        {
            let (status, body) = response_of(&admin, "POST", &path, wrong);
            assert!(status == 400 && body.contains("\"code\":\"bad_answer\""), "{wrong}: {body}");
        }
        let (status, body) = response_of(&admin, "POST", &path, "{\"approve\": true}");
        assert!(status == 200 && body.contains("\"outcome\":\"approved\""), "{body}");
        assert_eq!(ticket.decision().await, End::Approved);
        for (path, code) in [
            (path.as_str(), "confirmation_answered"),
            ("/api/confirmations/0123456789abcdef0123456789abcdef", "confirmation_unknown"),
            ("/api/confirmations/..", "confirmation_unknown"),
        ] {
            let (status, body) = response_of(&admin, "POST", path, "{\"approve\":true}");
            assert!(status == 404 && body.contains(code), "{path}: {body}");
        }
    }

    #[test]
    fn without_the_token_nothing_is_told_and_nothing_answered() {
        let mut admin = admin(true);
        let ask = |admin: &Admin, method: &str, path: &str, token: &str| {
            let request = Request::builder().method(method).uri(path).header("host", "127.0.0.1");
            let request = request.header("authorization", format!("Bearer {token}")).body(()).unwrap();
            let response = admin.handle(&request, Some(b"{\"approve\":true}")).now_or_never().unwrap();
            let allow = header(&response, "allow").to_owned();
            assert_eq!(response.status() == 401, !header(&response, "www-authenticate").is_empty());
            (response.status().as_u16(), allow, admin.reads_body(&request))
        };
        let nothing = String::new;
        let stops = ["/api/stops", "/api/conversations/x/stop", "/api/callers/x/stop"];
        let pages = ["/api/confirmations", "/api/confirmations/x"].into_iter().chain(stops);
        for path in pages.clone() {
            for method in ["GET", "POST", "DELETE"] {
                assert_eq!(
                    ask(&admin, method, path, "a-token-of-others-"),
                    (401, nothing(), false),
                    "{method} {path}"
                );
            }
        }
        assert_eq!(ask(&admin, "POST", "/api/confirmations", TOKEN), (405, "GET, HEAD".to_owned(), false));
        assert_eq!(ask(&admin, "GET", "/api/confirmations/x", TOKEN), (405, "POST".to_owned(), false));
        assert_eq!(ask(&admin, "POST", "/api/confirmations/x", TOKEN), (404, nothing(), true));
        assert_eq!(ask(&admin, "POST", "/api/stops", TOKEN), (405, "GET, HEAD".to_owned(), false));
        for method in ["GET", "PUT", "OPTIONS"] {
            for path in &stops[1..] {
                assert_eq!(ask(&admin, method, path, TOKEN), (405, "POST, DELETE".to_owned(), false));
            }
        }
        assert!(admin.store.stops(0).now_or_never().unwrap().stops.is_empty());
        admin.bearer = None;
        for path in pages {
            assert_eq!(ask(&admin, "POST", path, TOKEN), (404, nothing(), false), "{path}");
        }
    }

    #[tokio::test]
    async fn what_is_stopped_is_listed_and_goes_on_once_that_is_ended() {
        let admin = admin(true);
        let hash = "0123456789abcdef0123456789abcdef";
        for (path, what, id) in [
            ("/api/conversations/7f3a/stop", "conversation", "7f3a"),
            ("/api/conversations/a%2Fb%20c/stop", "conversation", "a/b c"),
            ("/api/conversations/a/stop/stop", "conversation", "a/stop"),
            (&format!("/api/callers/{}/stop", hash.to_uppercase()), "caller", hash),
        ] {
            let (status, body) = response_of(&admin, "POST", path, "");
            let body: serde_json::Value = serde_json::from_str(&body).unwrap();
            assert_eq!((status, &body["what"], &body["id"]), (200, &what.into(), &id.into()), "{body}");
            assert_eq!(body["stopped"], true);
            let (_, list) = response_of(&admin, "GET", "/api/stops", "");
            let list: serde_json::Value = serde_json::from_str(&list).unwrap();
            let expected = serde_json::json!([{"what": what, "id": id, "until": body["until"]}]);
            assert_eq!((&list["data"], &list["complete"]), (&expected, &true.into()));
            assert_eq!(response_of(&admin, "DELETE", path, "").0, 200);
            let (status, body) = response_of(&admin, "DELETE", path, "");
            assert!(status == 404 && body.contains("\"code\":\"not_stopped\""), "{body}");
        }
    }

    #[test]
    fn ids_that_nobody_can_have_are_refused() {
        let admin = admin(true);
        let long = format!("/api/conversations/{}/stop", "x".repeat(257));
        for path in [
            "/api/conversations//stop",
            "/api/conversations/%20/stop",
            "/api/conversations/a%0Ab/stop",
            "/api/conversations/%ff/stop",
            "/api/conversations/%C3%A9/stop",
            &long,
            "/api/callers//stop",
            "/api/callers/0123456789abcdef/stop",
            "/api/callers/0123456789abcdef0123456789abcdeg/stop",
        ] {
            for method in ["POST", "DELETE"] {
                let (status, body) = response_of(&admin, method, path, "");
                assert!(status == 400 && body.contains("\"code\":\"bad_id\""), "{path}: {body}");
            }
        }
        for path in ["/api/conversations/a", "/api/conversations/stop", "/api/callers", "/api/stops/"] {
            assert_eq!(response_of(&admin, "POST", path, "").0, 404, "{path}");
        }
    }

    #[test]
    fn where_a_stop_would_have_no_effect_the_answer_says_so() {
        let path = "/api/conversations/a/stop";
        let told_under = |settings: &str| {
            let source = Source::Text { name: "proxy.toml".to_owned(), text: settings.to_owned() };
            let config = Config::load(source, &Overrides::default(), REGISTRY).unwrap();
            let admin = Admin { stop_scope: Arc::new(StopScope::of(&config)), ..admin(true) };
            response_of(&admin, "POST", path, "")
        };
        let (status, body) = told_under("[policy.kill]\nenabled = false\n");
        assert!(status == 409 && body.contains("\"code\":\"stops_off\"") && body.contains("kill"), "{body}");
        let (status, body) = told_under("mode = \"observe\"\n");
        assert!(status == 409 && body.contains("\"code\":\"stops_off\"") && body.contains("mode"), "{body}");
    }

    #[tokio::test]
    async fn answers_stand_on_a_real_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let (socket, _) = listener.accept().await.unwrap();
            let admin = admin(true);
            let service = service_fn(move |request: Request<Incoming>| {
                let (head, _) = request.into_parts();
                let admin = admin.clone();
                async move { Ok::<_, Infallible>(admin.handle(&Request::from_parts(head, ()), None).await) }
            });
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service).await
        });
        let mut client = TcpStream::connect(address).await.unwrap();
        let head = format!("HEAD /config HTTP/1.1\r\nhost: {address}\r\n\r\n");
        let get = format!("GET /config HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        client.write_all((head + &get).as_bytes()).await.unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        server.await.unwrap().unwrap();
        let parts: Vec<&str> = text.split("\r\n\r\n").collect();
        let [head, get, body] = parts[..] else { panic!("{text}") };
        for answer in [head, get] {
            assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains("content-length: 18"), "{text}");
        }
        assert_eq!(body, r#"{"mode":"enforce"}"#);
    }
}
