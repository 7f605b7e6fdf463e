//! The target of a request: the path comes from the client, the host never does. No form of a target, no header and
//! no protocol leads anywhere but to the configured upstream, and no form of a governed path escapes the policies.

use crate::faults::hand::{Hand, Wire, chat, code, question};
use crate::support::client::Request;
use std::net::TcpListener;

/// What the upstream is asked for; `None` where the request is refused.
fn asked(target: &str, headers: &str) -> Option<(String, String)> {
    let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    let other = elsewhere.local_addr().unwrap().to_string();
    let (target, headers) = (target.replace("OTHER", &other), headers.replace("OTHER", &other));
    let (hand, toolrein) = Hand::behind("");
    let mut client = Wire::to(&toolrein);
    client.write(format!("GET {target} HTTP/1.1\r\n{headers}\r\n"));
    let found = hand.comes_or_is_refused(&client).then(|| {
        let mut upstream = hand.accept();
        let head = upstream.head();
        assert_eq!(head.header("host").unwrap(), hand.base_url()[7..].trim_end_matches("/v1"));
        (head.word(1).to_owned(), other.clone())
    });
    assert!(elsewhere.accept().is_err(), "{target} {headers}: another host was asked");
    found
}

#[test]
fn no_target_leads_to_another_host() {
    for target in [
        "http://OTHER/v1/models",
        "HTTP://OTHER/v1/models",
        "https://OTHER/v1/models",
        "ws://OTHER/v1/models",
        "//OTHER/v1/models",
        "/\\OTHER/v1/models",
        "/@OTHER/v1/models",
        "/v1/..//OTHER/",
        "/v1@OTHER/models",
        "http://user:pass@OTHER/v1/models",
        "OTHER",
        "@OTHER",
        "http:///OTHER/v1",
        "http://",
        "/v1/models#@OTHER",
        "*",
    ] {
        asked(target, "host: us\r\n");
    }
}

#[test]
fn no_header_leads_to_another_host() {
    for headers in [
        "host: OTHER\r\n",
        "host: us\r\nx-forwarded-host: OTHER\r\nx-forwarded-proto: http\r\nx-forwarded-port: 1\r\n",
        "host: us\r\nforwarded: host=OTHER;proto=http\r\n",
        "host: us\r\nx-original-url: http://OTHER/\r\nx-rewrite-url: /\r\nx-host: OTHER\r\n",
        "host: us\r\nx-toolrein-upstream: http://OTHER\r\nx-upstream: http://OTHER\r\nhelicone-target-url: http://OTHER\r\n",
    ] {
        assert_eq!(asked("/v1/models", headers).unwrap().0, "/v1/models", "{headers}");
    }
}

#[test]
fn paths_reach_the_upstream_as_they_were_spelled() {
    for target in [
        "/v1/../admin",
        "/v1/%2e%2e/admin",
        "/v1/..%2fadmin",
        "/v1//models",
        "//v1/models",
        "/v1/./models",
        "/v1/models/%00",
        "/v1/models?a=/../&b=%0d%0aevil:1",
        "/%76%31/models",
    ] {
        assert_eq!(asked(target, "host: us\r\n").unwrap().0, target);
    }
    // An absolute target is this server's own path; RFC 9112, section 3.2.2.
    assert_eq!(asked("http://OTHER/v1/models?x", "host: us\r\n").unwrap().0, "/v1/models?x");
}

#[test]
fn a_path_mapped_to_another_one_stays_below_it_byte_for_byte() {
    let hand = Hand::open();
    let toolrein = crate::faults::hand::before(
        &hand.base_url().replace("/v1", "/tenant/a"),
        crate::faults::hand::GENEROUS,
    );
    for (target, expected) in [
        ("/v1/models", "/tenant/a/models"),
        ("/v1/../b/models", "/tenant/a/../b/models"),
        ("/v1", "/tenant/a"),
        ("/v1?x", "/tenant/a?x"),
        ("/v1x/models", "/v1x/models"),
    ] {
        let mut client = Wire::to(&toolrein);
        client.write(format!("GET {target} HTTP/1.1\r\nhost: us\r\n\r\n"));
        assert_eq!(hand.accept().head().word(1), expected, "{target}");
    }
}

#[test]
fn no_variant_of_the_governed_path_escapes_the_policies() {
    let call = "{\"index\":0,\"message\":{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\
                \"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]},\"finish_reason\":\"tool_calls\"}";
    let upstream = crate::support::scripted::Scripted::start(move |_, _| {
        crate::support::reply::Reply::bytes(200, "application/json", format!("{{\"choices\":[{call}]}}"))
    });
    let toolrein = crate::support::program::Toolrein::before(
        &upstream,
        "reask.max = 0\n[policy.allow]\nexcept = [\"f\"]\n",
    );
    for path in [
        "/v1/chat/completions",
        "/v1//chat/completions",
        "/v1/chat//completions",
        "/v1/chat/completions/",
        "/v1/chat/completions//",
        "/v1/chat/./completions",
        "/v1/x/../chat/completions",
        "/v1/chat/completions/.",
        "/v1/chat/x/../completions",
        "/v1/%63hat/completions",
        "/v1/chat%2Fcompletions",
        "/v1/chat%2fcompletions",
        "/v1/chat/%63%6F%6dpletions",
        "/v1/chat/%2e/completions",
        "/v1/chat/completions?x=/other",
        "/v1/chat/completions/?x",
        "/V1/Chat/Completions",
        "/v1/chat/completions;a=b",
        "/v1/x/..;/chat;y/completions",
        "/v1\\chat\\completions",
        "/v1/chat%5Ccompletions",
        "/v1/chat%252Fcompletions",
        "/v1/%252525252563hat/completions",
        "/v1/chat/completions%3Fx",
        "/v1/chat/completions%20",
    ] {
        let reply = Request::post(&format!("{}{path}", toolrein.origin()), question(false)).send();
        assert!(!reply.text().contains("\"id\":\"c\""), "{path}: {}", reply.text());
        assert_eq!(upstream.requests().last().unwrap().path, path, "it goes up as the client spelled it");
    }
    for path in ["/v1/chat/completions-x", "/v1/completions", "/v1/chat/completions/.."] {
        let reply = Request::post(&format!("{}{path}", toolrein.origin()), question(false)).send();
        assert!(reply.text().contains("\"id\":\"c\""), "{path} is relayed: {}", reply.text());
    }
}

#[test]
fn no_upgrade_and_no_other_method_exempts_what_a_server_may_take_for_a_post() {
    let call = "{\"index\":0,\"message\":{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\
                \"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]},\"finish_reason\":\"tool_calls\"}";
    let upstream = crate::support::scripted::Scripted::start(move |_, _| {
        crate::support::reply::Reply::bytes(200, "application/json", format!("{{\"choices\":[{call}]}}"))
    });
    let toolrein = crate::support::program::Toolrein::before(
        &upstream,
        "reask.max = 0\n[policy.allow]\nexcept = [\"f\"]\n",
    );
    let url = format!("{}/v1/chat/completions", toolrein.origin());
    let websocket: &[_] = &[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")];
    for (method, headers) in [
        ("POST", websocket),
        ("POST", &[("connection", "upgrade"), ("upgrade", "h2c, websocket")]),
        ("post", &[]),
        ("PUT", &[("x-http-method-override", "POST")]),
        ("GET", &[("x-http-method-override", "post"), websocket[0], websocket[1]]),
    ] {
        let asked =
            headers.iter().fold(Request::new(method, &url, question(false)), |asked, (name, value)| {
                asked.header(name, value)
            });
        let reply = asked.send();
        assert!(!reply.text().contains("\"id\":\"c\""), "{method} {headers:?}: {}", reply.text());
        let seen = upstream.requests().pop().unwrap();
        assert_eq!((seen.method.as_str(), seen.header("upgrade")), (method, None), "{headers:?}");
    }
}

#[test]
fn an_upstream_that_switches_protocols_unasked_is_an_error_on_every_path() {
    let (hand, toolrein) = Hand::behind("");
    for request in [chat(false), chat(true), "GET /v1/files/1 HTTP/1.1\r\nhost: us\r\n\r\n".to_owned()] {
        let mut client = Wire::to(&toolrein);
        client.write(request);
        hand.asked().write("HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n");
        let (head, body) = client.response();
        assert_eq!((head.word(1), code(&body.unwrap()).as_str()), ("502", "upstream_cut"));
    }
}

#[test]
fn an_http_2_client_names_no_host_either() {
    let (hand, toolrein) = Hand::behind("");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let address = toolrein.origin().trim_start_matches("http://").to_owned();
    let mut sender = runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let io = hyper_util::rt::TokioIo::new(stream);
        let executor = hyper_util::rt::TokioExecutor::new();
        let (sender, connection) = hyper::client::conn::http2::handshake(executor, io).await.unwrap();
        tokio::spawn(connection);
        sender
    });
    let body = http_body_util::Empty::<bytes::Bytes>::new();
    let request =
        hyper::http::Request::get("http://elsewhere.invalid/v1/models").header("host", "third.invalid");
    let sent = runtime.spawn(sender.send_request(request.body(body).unwrap()));
    let mut upstream = hand.accept();
    let head = upstream.head();
    assert_eq!(head.header("host").unwrap(), hand.base_url()[7..].trim_end_matches("/v1"));
    upstream.write("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    assert_eq!(runtime.block_on(sent).unwrap().unwrap().status(), 200);
}

#[test]
fn a_redirect_of_the_upstreams_is_the_clients_to_follow() {
    let (hand, toolrein) = Hand::behind("");
    let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    let location = format!("http://{}/", elsewhere.local_addr().unwrap());
    for request in [chat(false), "GET /v1/files/1 HTTP/1.1\r\nhost: us\r\n\r\n".to_owned()] {
        let mut client = Wire::to(&toolrein);
        client.write(request);
        hand.asked()
            .write(format!("HTTP/1.1 307 Moved\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n"));
        let (head, _) = client.response();
        assert_eq!((head.word(1), head.header("location")), ("307", Some(location.as_str())));
    }
    assert!(elsewhere.accept().is_err());
}

#[test]
fn connect_leads_nowhere_over_either_protocol() {
    let (hand, toolrein) = Hand::behind("");
    let mut client = Wire::to(&toolrein);
    client.write("CONNECT elsewhere.invalid:443 HTTP/1.1\r\nhost: elsewhere.invalid:443\r\n\r\n");
    let (head, body) = client.response();
    assert_eq!((head.word(1), code(&body.unwrap()).as_str()), ("405", "method_not_allowed"));
    assert!(!hand.waiting());
}
