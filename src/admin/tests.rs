//! Tests of the admin server, page by page.

use super::answer::{HTML, JSON, TEXT};
use super::pages::{Access, PAGES};
use super::shown::EXPOSITION;
use super::*;
use crate::config::{Config, Overrides, Source};
use crate::store::held::{End, Shown};
use crate::telemetry::live::Bounds;
use crate::telemetry::live::conversations::Conversation;
use crate::telemetry::log::Log;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::{FutureExt as _, stream};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::http::Request;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use policies::REGISTRY;
use state::memory::{self, Memory};
use std::convert::Infallible;
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn admin(loopback: bool) -> Admin {
    let metrics = Arc::new(Metrics::new(crate::telemetry::tools::OwnSeries::none()).unwrap());
    Admin {
        attempts: Arc::new(Attempts::new(Log::silent(), Arc::clone(&metrics), Duration::ZERO)),
        metrics,
        config: r#"{"mode":"enforce"}"#.into(),
        readiness: Readiness::starting(),
        loopback,
        held: Arc::default(),
        store: Arc::new(Memory::new(&bounds())),
        stop_scope: Arc::default(),
        bearer: Some(Bearer::new(TOKEN).unwrap()),
        body_timeout: Duration::from_secs(30),
        settings: Arc::new(Config::load(Source::Shipped, &Overrides::default(), REGISTRY).unwrap()),
        live: Arc::new(Live::new(Bounds {
            conversations: 10,
            callers: 0,
            with_decisions: true,
            body_bytes: 10_000,
        })),
        review: Arc::new(NoReview),
        reviews: Arc::new(Semaphore::new(1)),
        key: HashKey::fixed(7),
        upstream: "upstream".into(),
    }
}

struct NoReview;

impl Review for NoReview {
    fn page(&self, _: &Config, _: &Bytes, _: &Conversation) -> Result<String, String> {
        Err("no page".to_owned())
    }

    fn items(&self, _: &Config, _: &Bytes, _: &str) -> Result<serde_json::Value, String> {
        Err("no items".to_owned())
    }

    fn replay(&self, _: Config, _: &Bytes, _: &str) -> Result<serde_json::Value, String> {
        Err("no replay".to_owned())
    }
}

fn bounds() -> memory::Bounds {
    let hour = Duration::from_secs(3_600);
    memory::Bounds { calls: 10, hidden_exchange_bytes: 10, conversations: 10, lifetime: hour, refusals: hour }
}

const TOKEN: &str = "a-token-of-the-tests";

fn response_of(admin: &Admin, method: &str, path: &str, said: &str) -> (u16, String) {
    let request = Request::builder().method(method).uri(path).header("host", "127.0.0.1");
    let request = request.header("authorization", format!("Bearer {TOKEN}"));
    let response = answer(admin, request.body(Body::from(said.to_owned())).unwrap());
    let status = response.status().as_u16();
    let body = response.into_body().collect().now_or_never().unwrap().unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

/// The answer, which waits for nothing.
fn answer(admin: &Admin, request: Request<Body>) -> Response {
    Pages::new(admin.clone()).answer(request).now_or_never().unwrap()
}

fn request(method: &str, path: &str, host: &str) -> Request<Body> {
    Request::builder().method(method).uri(path).header("host", host).body(Body::empty()).unwrap()
}

fn ask(admin: &Admin, method: &str, path: &str) -> Response {
    answer(admin, request(method, path, "127.0.0.1:4243"))
}

fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

async fn body(response: Response) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn every_route_answers_get_with_its_type_and_body() {
    let admin = admin(true);
    for (path, status, kind, within) in [
        ("/", 200, HTML, "toolrein"),
        ("/metrics", 200, EXPOSITION, "# TYPE toolrein_overhead_seconds histogram\n"),
        ("/metrics?name=x", 200, EXPOSITION, "toolrein_build_info"),
        ("/livez", 200, TEXT, "live\n"),
        ("/readyz", 503, TEXT, "starting\n"),
        ("/config", 200, JSON, r#"{"mode":"enforce"}"#),
        ("/nothing", 404, JSON, r#""type":"toolrein_error","param":null,"code":"not_found"}}"#),
        ("/metrics/", 404, JSON, "not_found"),
    ] {
        let response = ask(&admin, "GET", path);
        assert_eq!((response.status().as_u16(), header(&response, "content-type")), (status, kind), "{path}");
        assert_eq!(header(&response, "cache-control"), "no-store");
        assert_eq!(header(&response, "x-content-type-options"), "nosniff");
        assert!(header(&response, "content-security-policy").starts_with("default-src 'none'; "));
        let body = body(response).await;
        assert!(body.contains(within), "{path}: {body}");
    }
}

#[tokio::test]
async fn head_sends_the_headers_of_get_and_no_body() {
    let admin = admin(true);
    for path in ["/", "/livez", "/readyz", "/config", "/nothing"] {
        let (get, head) = (ask(&admin, "GET", path), ask(&admin, "HEAD", path));
        assert_eq!((get.status(), get.headers()), (head.status(), head.headers()), "{path}");
        let length = header(&head, "content-length").to_owned();
        assert_eq!((body(get).await.len().to_string(), body(head).await), (length, String::new()), "{path}");
    }
}

#[test]
fn other_methods_get_405_on_known_paths_and_404_on_unknown_paths() {
    let admin = admin(true);
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT", "BREW"] {
        let response = ask(&admin, method, "/metrics");
        assert_eq!((response.status().as_u16(), header(&response, "allow")), (405, "GET, HEAD"), "{method}");
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
            let response = answer(&admin(loopback), request("GET", path, host));
            assert_eq!(response.status().as_u16(), status, "{loopback} {host} {path}");
        }
    }
    let admin = admin(true);
    let stop = Request::post("/api/conversations/x/stop").header("host", "rebound.example");
    let stop = stop.header("authorization", format!("Bearer {TOKEN}")).body(Body::empty()).unwrap();
    assert_eq!(answer(&admin, stop).status(), 403, "with the token too");
    let refused = answer(&admin, request("POST", "/nothing", "rebound.example"));
    assert_eq!(refused.status(), 403, "a foreign page learns nothing of what there is");
}

fn shown() -> Shown {
    let (since, expires) = (SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH + Duration::from_secs(120));
    let (tool, conversation) = ("pay".to_owned(), "c1".to_owned());
    let (arguments, readable) = ("{\"to\":\"\\u202e\"}".to_owned(), "shown".to_owned());
    Shown { tool, arguments, readable, why: None, conversation, since, expires }
}

#[tokio::test]
async fn a_held_call_is_listed_with_its_details_and_can_be_answered_once() {
    let admin = admin(true);
    let until = tokio::time::Instant::now() + Duration::from_secs(120);
    let mut ticket = admin.held.hold("ann", shown(), until);
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

#[tokio::test]
async fn a_wrong_token_gets_no_data_and_changes_nothing() {
    let mut admin = admin(true);
    let ask = |admin: &Admin, method: &str, path: &str, token: &str| {
        let request = Request::builder().method(method).uri(path).header("host", "127.0.0.1");
        let request = request.header("authorization", format!("Bearer {token}"));
        // A body that never comes, so a page that waits for it gives no answer now.
        let body = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        let pages = Pages::new(admin.clone());
        let Some(response) = pages.answer(request.body(body).unwrap()).now_or_never() else {
            return (0, String::new());
        };
        let allow = header(&response, "allow").to_owned();
        assert_eq!(response.status() == 401, !header(&response, "www-authenticate").is_empty());
        (response.status().as_u16(), allow)
    };
    let nothing = String::new;
    let stops = ["/api/stops", "/api/conversations/x/stop", "/api/callers/x/stop"];
    let pages = ["/api/confirmations", "/api/confirmations/x"].into_iter().chain(stops);
    for path in pages.clone() {
        for method in ["GET", "POST", "DELETE"] {
            assert_eq!(ask(&admin, method, path, "a-token-of-others-"), (401, nothing()), "{method} {path}");
        }
    }
    assert_eq!(ask(&admin, "POST", "/api/confirmations", TOKEN), (405, "GET, HEAD".to_owned()));
    assert_eq!(ask(&admin, "GET", "/api/confirmations/x", TOKEN), (405, "POST".to_owned()));
    assert_eq!(ask(&admin, "POST", "/api/confirmations/x", TOKEN), (0, nothing()), "it is waited for");
    assert_eq!(ask(&admin, "POST", "/api/stops", TOKEN), (405, "GET, HEAD".to_owned()));
    for method in ["GET", "PUT", "OPTIONS"] {
        for path in &stops[1..] {
            assert_eq!(ask(&admin, method, path, TOKEN), (405, "POST, DELETE".to_owned()));
        }
    }
    assert!(admin.store.stops(0).now_or_never().unwrap().stops.is_empty());
    admin.bearer = None;
    for path in pages {
        assert_eq!(ask(&admin, "POST", path, TOKEN), (404, nothing()), "{path}");
    }
}

#[tokio::test]
async fn a_stop_is_listed_until_it_is_deleted() {
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
fn impossible_ids_are_refused_with_bad_id() {
    let admin = admin(true);
    let long = format!("/api/conversations/{}/stop", "x".repeat(257));
    for path in [
        "/api/conversations//stop",
        "/api/conversations/%20/stop",
        "/api/conversations/a%0Ab/stop",
        "/api/conversations/%ff/stop",
        "/api/conversations/a%07b/stop",
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
    for path in ["/api/callers", "/api/callers/stop", "/api/stops/"] {
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
async fn get_and_head_are_answered_over_a_real_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        let admin = admin(true);
        let pages = Pages::new(admin);
        let service = service_fn(move |request: Request<Incoming>| {
            let pages = pages.clone();
            async move { Ok::<_, Infallible>(pages.answer(request.map(Body::new)).await) }
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

/// The methods of a page as in its `allow` header, from a path of the document.
fn documented(path: &serde_json::Value) -> String {
    let methods = path.as_object().unwrap().keys().map(|method| match method.as_str() {
        "get" => "GET, HEAD".to_owned(),
        other => other.to_uppercase(),
    });
    methods.collect::<Vec<_>>().join(", ")
}

#[test]
fn every_page_is_in_the_openapi_document_with_its_methods_and_its_access_and_the_reverse() {
    let document: serde_json::Value = serde_json::from_str(shown::OPENAPI).unwrap();
    let paths = document["paths"].as_object().unwrap();
    for page in PAGES {
        let path = paths.get(page.path).unwrap_or_else(|| panic!("{} is not in the document", page.path));
        assert_eq!(documented(path), page.methods, "{}", page.path);
        for operation in path.as_object().unwrap().values() {
            let needs_token = operation["security"] == serde_json::json!([{"bearer": []}]);
            assert_eq!(needs_token, page.access == Access::Token, "{}", page.path);
            let named: Vec<_> = operation["parameters"].as_array().into_iter().flatten().collect();
            let in_path = named.iter().filter(|parameter| parameter["in"] == "path").count();
            assert_eq!(in_path, page.path.matches('{').count(), "{}", page.path);
        }
    }
    for path in paths.keys() {
        assert!(PAGES.iter().any(|page| page.path == path), "there is no page {path}");
    }
    let text = document.to_string();
    for (_, rest) in
        text.match_indices("#/components/schemas/").map(|(at, start)| text[at..].split_at(start.len()))
    {
        let name = rest.split('"').next().unwrap();
        assert!(document["components"]["schemas"][name].is_object(), "{name} is not defined");
    }
}

#[tokio::test]
async fn every_page_exists_and_refuses_the_methods_that_it_does_not_name() {
    let admin = admin(true);
    for page in PAGES {
        let path = page
            .path
            .replace("{folder}/{file}", "views/tools.js")
            .replace("{file}", "api.js")
            .replace(['{', '}'], "");
        let refused = Request::put(&path).header("authorization", format!("Bearer {TOKEN}"));
        let refused = answer(&admin, refused.body(Body::empty()).unwrap());
        assert_eq!((refused.status().as_u16(), header(&refused, "allow")), (405, page.methods), "{path}");
        if page.access == Access::Public {
            let shown = ask(&admin, "GET", &path);
            assert!(matches!(shown.status().as_u16(), 200 | 503), "{path}");
        } else {
            let method = page.methods.split(',').next().unwrap();
            assert_eq!(ask(&admin, method, &path).status(), 401, "{path}");
        }
    }
}

#[tokio::test]
async fn a_request_of_another_site_is_refused_with_the_token_too() {
    let admin = admin(true);
    let request = Request::get("/api/conversations").header("host", "127.0.0.1:4243");
    let request =
        request.header("origin", "http://evil.example").header("authorization", format!("Bearer {TOKEN}"));
    let refused = answer(&admin, request.body(Body::empty()).unwrap());
    assert_eq!((refused.status().as_u16(), header(&refused, "cache-control")), (403, "no-store"));
    assert!(body(refused).await.contains("cross_site_refused"));
}

#[tokio::test]
async fn bodies_are_bounded() {
    let admin = admin(true);
    let long = "x".repeat(5_000);
    let (status, body) = response_of(&admin, "POST", "/api/confirmations/x", &long);
    assert!(status == 413 && body.contains("body_too_large"), "{body}");
}

/// The answer of a page that is computed on another thread.
async fn posted(path: &str, body: serde_json::Value) -> (u16, serde_json::Value) {
    posted_to(admin(true), path, body).await
}

async fn posted_to(admin: Admin, path: &str, body: serde_json::Value) -> (u16, serde_json::Value) {
    let request = Request::post(path).header("authorization", format!("Bearer {TOKEN}"));
    let request = request.body(Body::from(body.to_string())).unwrap();
    let response = Pages::new(admin).answer(request).await;
    let status = response.status().as_u16();
    (status, serde_json::from_str(&self::body(response).await).unwrap())
}

#[tokio::test]
async fn a_call_is_judged_as_the_proxy_would_in_every_protocol() {
    let tool = serde_json::json!({"name": "search", "parameters": {"type": "object", "required": ["q"],
        "properties": {"q": {"type": "string"}}}});
    let chat = serde_json::json!({
        "model": "gpt-4o", "messages": [{"role": "user", "content": "Find it."}],
        "tools": [{"type": "function", "function": tool.clone()}],
    });
    let messages = serde_json::json!({
        "model": "claude-sonnet-5", "max_tokens": 99, "messages": [{"role": "user", "content": "Find it."}],
        "tools": [{"name": "search", "input_schema": tool["parameters"]}],
    });
    let mut declared = tool;
    declared["type"] = "function".into();
    let responses = serde_json::json!({"model": "gpt-4o", "input": "Find it.", "tools": [declared]});
    for (endpoint, request) in [("chat.completions", chat), ("responses", responses), ("messages", messages)]
    {
        for (name, arguments, verdict, policy) in [
            ("search", r#"{"q":"x"}"#, "allow", serde_json::Value::Null),
            ("delete_all", "{}", "block", "allow".into()),
            ("search", "{\"q\":[]}", "block", "arguments".into()),
        ] {
            let call = serde_json::json!({"name": name, "arguments": arguments});
            let body = serde_json::json!({"request": request, "endpoint": endpoint, "call": call});
            let (status, judged) = posted("/api/validate", body).await;
            assert_eq!(
                (status, &judged["verdict"], &judged["policy"]),
                (200, &verdict.into(), &policy),
                "{judged}"
            );
            assert_eq!(judged["reason"].is_string(), verdict == "block", "{judged}");
            assert_eq!(judged["usage"].as_array().unwrap().is_empty(), verdict == "block", "{judged}");
        }
    }
    let call = serde_json::json!({"name": "search", "arguments": {}});
    for (body, code) in [
        (serde_json::json!({"request": {"messages": 7}, "call": call}), "request_unreadable"),
        (serde_json::json!({"call": call}), "bad_request"),
        (serde_json::json!({"request": {}, "call": call, "more": 1}), "bad_request"),
    ] {
        let (status, refused) = posted("/api/validate", body).await;
        assert_eq!((status, &refused["error"]["code"]), (400, &code.into()), "{refused}");
    }
}

#[tokio::test]
async fn a_call_that_would_wait_is_judged_with_the_policy_that_holds_it() {
    let text =
        "[policy.confirm]\ntools = [\"pay\"]\nform = \"held\"\n[admin]\ntoken_env = \"ANY\"\n".to_owned();
    let source = Source::Text { name: "proxy.toml".to_owned(), text };
    let settings = Arc::new(Config::load(source, &Overrides::default(), REGISTRY).unwrap());
    let tool = serde_json::json!({"type": "function", "function": {"name": "pay"}});
    let request = serde_json::json!({"messages": [{"role": "user", "content": "Pay."}], "tools": [tool]});
    let call = serde_json::json!({"name": "pay", "arguments": {}});
    let body = serde_json::json!({"request": request, "call": call});
    let (_, judged) = posted_to(Admin { settings, ..admin(true) }, "/api/validate", body).await;
    let said = ["verdict", "policy", "reason"].map(|member| judged[member].as_str().unwrap_or_default());
    assert_eq!(said, ["ask", "confirm", "A person is asked."], "{judged}");
}

#[tokio::test]
async fn a_configuration_for_a_replay_shows_nothing_of_the_environment() {
    for (configuration, code) in [
        ("mode = \"${PATH}\"", "configuration_refused"),
        ("mode = 7", "configuration_refused"),
        ("mode = \"enforce\"", "not_found"),
    ] {
        let body = serde_json::json!({"conversation": "c1", "configuration": configuration});
        let (_, refused) = posted("/api/replay", body).await;
        assert_eq!(refused["error"]["code"], code, "{refused}");
        assert!(!refused.to_string().contains("/bin"), "{refused}");
    }
}
