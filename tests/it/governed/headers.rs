//! Headers both ways: passed on in their order, except for hop-by-hop headers, toolrein's own, and codings that could
//! not be read.

use crate::governed::talk::{BOTH, GENEROUS, chat, grouped, question};
use crate::support::client::{Connection, Request, Response};
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::Scripted;
use serde_json::json;

/// The header that every reply has.
const REQUEST_ID: &str = "x-toolrein-request-id";

#[test]
fn headers_of_a_request_arrive_in_their_order_and_toolreins_own_do_not() {
    let upstream = Scripted::start(|_, request| Reply::speech(request, &Speech::text("ok")));
    let toolrein = Toolrein::before(&upstream, GENEROUS);
    for (nth, stream) in BOTH.into_iter().enumerate() {
        let body = question(stream);
        let sent = [
            ("user-agent", "own/1.0"),
            ("authorization", "Bearer sk-one"),
            ("x-twice", "1"),
            ("x-toolrein-conversation", "talk"),
            ("api-key", "sk-one"),
            ("content-type", "application/json; charset=utf-8"),
            ("accept", "*/*"),
            ("x-twice", "2"),
            ("x-empty", ""),
            ("x-session-id", "s"),
            ("x-toolrein-profile", "chat"),
            ("x-toolrein-anything", "else"),
            ("openai-organization", "org"),
            ("idempotency-key", "k"),
            ("x-stainless-retry-count", "0"),
            ("cookie", "a=1; b=2"),
            ("x-request-id", "req-7"),
            ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
            ("tracestate", "a=b"),
        ];
        let mut head = String::from("POST /v1/chat/completions HTTP/1.1\r\nhost: us\r\n");
        sent.iter().for_each(|(name, value)| head += &format!("{name}: {value}\r\n"));
        head += &format!("content-length: {}\r\n\r\n{body}", body.len());
        let mut connection = Connection::open(&toolrein.chat_url());
        connection.write(head.as_bytes());
        assert_eq!(connection.response().rest().status, 200);
        let seen = upstream.request(nth);
        let own = |name: &str| name.starts_with("x-toolrein-");
        let expected: Vec<(String, String)> = sent
            .iter()
            .filter(|(name, _)| !own(name))
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        assert_eq!(grouped(&seen.headers, &["host", "content-length"]), grouped(&expected, &[]));
        assert!(upstream.origin().ends_with(seen.header("host").unwrap()), "the upstream's own name");
    }
}

#[test]
fn only_codings_that_cannot_be_read_are_taken_out_of_what_a_client_accepts() {
    let upstream = Scripted::start(|_, request| Reply::speech(request, &Speech::text("ok")));
    let toolrein = Toolrein::before(&upstream, GENEROUS);
    let path = |governed| if governed { "/v1/chat/completions" } else { "/v1/embeddings" };
    for (nth, (governed, stream, given, expected)) in [
        (true, false, Some("gzip,deflate;q=0.5 ,x-gzip"), Some("gzip,deflate;q=0.5 ,x-gzip")),
        (true, false, Some("gzip, deflate, br, zstd"), Some("gzip, deflate, br, zstd")),
        (true, false, Some("gzip, dcb;q=0.5 ,br"), Some("gzip, br")),
        (true, false, Some("compress"), Some("identity")),
        (true, false, Some("*;q=0.1"), Some("*;q=0.1")),
        (true, false, Some("identity"), Some("identity")),
        (true, false, None, None),
        (true, true, Some("gzip, deflate, br, zstd"), Some("gzip, deflate, br, zstd")),
        (true, true, Some("gzip, dcz"), Some("gzip")),
        (true, true, Some("identity"), Some("identity")),
        (true, true, None, None),
        (false, false, Some("zstd"), Some("zstd")),
        (false, true, Some("gzip, br"), Some("gzip, br")),
    ]
    .into_iter()
    .enumerate()
    {
        let mut request =
            Request::post(&format!("{}{}", toolrein.origin(), path(governed)), question(stream));
        request = request.header("x-before", "1");
        if let Some(given) = given {
            request = request.header("accept-encoding", given);
        }
        assert_eq!(request.header("x-behind", "2").send().status, 200);
        let seen = upstream.request(nth);
        assert_eq!(seen.header("accept-encoding"), expected, "given {given:?}");
        let order: Vec<&str> = seen.headers.iter().map(|(name, _)| name.as_str()).collect();
        let at = |name| order.iter().position(|known| *known == name);
        assert!(expected.is_none() || at("x-before") < at("accept-encoding"));
        assert!(expected.is_none() || at("accept-encoding") < at("x-behind"));
    }
}

#[test]
fn headers_of_a_reply_come_in_their_order_and_only_the_requests_id_is_added() {
    let with = |reply: Reply| {
        reply
            .header("x-request-id", "req_1")
            .header("set-cookie", "a=1")
            .header("openai-processing-ms", "12")
            .header("set-cookie", "b=2")
            .header("x-ratelimit-remaining-tokens", "149984")
            .header("cache-control", "no-cache")
            .header("date", "Thu, 01 Jan 2026 00:00:00 GMT")
            .header("x-empty", "")
            .header("server", "scripted")
    };
    let upstream = Scripted::start(move |_, request| {
        let streamed = Reply::events(&Speech::text("ok").chunks(false));
        with(if request.json()["stream"] == true { streamed } else { Reply::text("ok") })
    });
    let toolrein = Toolrein::before(&upstream, GENEROUS);
    for stream in BOTH {
        let straight =
            Request::post(&format!("{}/chat/completions", upstream.base_url()), question(stream)).send();
        let through = chat(&toolrein, question(stream));
        assert_eq!(through.head.first_line.split(' ').nth(1), Some("200"));
        assert_eq!(grouped(&through.head.headers, &[REQUEST_ID]), grouped(&straight.head.headers, &[]));
        assert!(through.header(REQUEST_ID).is_some());
    }
}

/// The reply to a governed request that the upstream answers with this status and header, where a policy restricts calls.
fn redirected(
    settings: &str,
    status: u16,
    header: &str,
    value: impl Fn(&str) -> String + Send + Sync + 'static,
) -> Response {
    let name = header.to_owned();
    let upstream = Scripted::start(move |_, request| {
        let host = request.header("host").unwrap_or_default().to_owned();
        Reply::bytes(status, "text/plain", "moved").header(&name, &value(&host))
    });
    let toolrein = Toolrein::before(&upstream, settings);
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "q"}]});
    Request::post(&toolrein.chat_url(), body.to_string()).send()
}

#[test]
fn a_redirect_never_leads_a_governed_client_past_toolrein() {
    let restricts = "[policy.allow]\nexcept = [\"pay\"]\n";
    for settings in [restricts, "[policy.budget]\n"] {
        for status in [301, 302, 303, 307, 308] {
            let own = redirected(settings, status, "location", |host| {
                format!("http://{host}/v1/chat/completions/")
            });
            assert_eq!((own.status, own.header("location")), (status, Some("/v1/chat/completions/")));
            let relative = redirected(settings, status, "location", |_| "/v1/chat/completions/".to_owned());
            assert_eq!(relative.header("location"), Some("/v1/chat/completions/"));
        }
    }
    for elsewhere in ["http://other.example/v1/chat/completions", "//other.example/x", "/\\other.example/x"] {
        let refused = redirected(restricts, 307, "location", move |_| elsewhere.to_owned());
        assert_eq!((refused.status, refused.header("location")), (502, None), "{elsewhere}");
        assert_eq!(refused.json()["error"]["code"], "reply_unjudged");
        // Without a policy that restricts calls, and where calls may pass unjudged, it is the client's to follow.
        for settings in ["[policy.budget]\n".to_owned(), format!("upstream.unjudged = \"pass\"\n{restricts}")]
        {
            let passed = redirected(&settings, 307, "location", move |_| elsewhere.to_owned());
            assert_eq!((passed.status, passed.header("location")), (307, Some(elsewhere)), "{settings}");
        }
    }
    for name in ["alt-svc", "refresh", "content-location"] {
        let reply =
            redirected(restricts, 400, name, |_| "http://other.example/v1/chat/completions".to_owned());
        assert_eq!((reply.status, reply.header(name)), (400, None), "{name}");
        let kept = redirected("[policy.budget]\n", 400, name, |_| "http://other.example/v1".to_owned());
        assert_eq!(kept.header(name), Some("http://other.example/v1"), "{name}");
    }
}

#[test]
fn every_reply_names_its_request_and_a_clients_own_id_is_kept() {
    let upstream = Scripted::start(|_, request| match request.path.as_str() {
        "/v1/models" => Reply::json(200, &json!({"data": []})),
        _ => Reply::speech(request, &Speech::text("ok")),
    });
    let toolrein = Toolrein::before(&upstream, GENEROUS);
    let send = |method: &str, path: &str, id: &str| {
        let body = if method == "POST" { question(false) } else { String::new() };
        let request = Request::new(method, &format!("{}{path}", toolrein.origin()), &body);
        let request = if id.is_empty() { request } else { request.header("x-request-id", id) };
        let response = request.send();
        response.header("x-toolrein-request-id").expect("an id").to_owned()
    };
    for (method, path) in [("POST", "/v1/chat/completions"), ("GET", "/v1/models")] {
        assert_eq!(send(method, path, "own-1"), "own-1");
        let (first, second) = (send(method, path, ""), send(method, path, "not \"harmless\""));
        assert!(first != second && first.starts_with("tr-") && second.starts_with("tr-"), "{first} {second}");
    }
    assert!(upstream.requests().iter().all(|request| request.header("x-toolrein-request-id").is_none()));
}

#[test]
fn an_error_of_toolreins_own_names_its_request_in_the_body_too() {
    let toolrein = Toolrein::start("base = \"none\"\n[upstream]\nurl = \"http://127.0.0.1:9/v1\"\n");
    for path in ["/v1/chat/completions", "/v1/responses", "/v1/models"] {
        let url = format!("{}{path}", toolrein.origin());
        let response =
            Request::new("POST", &url, question(false)).header("x-toolrein-request-id", "own-1").send();
        let body: serde_json::Value = serde_json::from_slice(&response.body).expect("JSON");
        assert_eq!(
            (&body["error"]["request_id"], response.header("x-toolrein-request-id")),
            (&json!("own-1"), Some("own-1"))
        );
        let text = response.text();
        let ends = text.ends_with(",\"code\":\"upstream_unreachable\",\"request_id\":\"own-1\"}}");
        assert!(text.starts_with("{\"error\":{\"message\":") && ends, "in the documented order: {text}");
    }
}
