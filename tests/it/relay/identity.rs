//! Relayed messages pass unchanged: methods, targets, headers and bodies.

use crate::relay::support::stage;

#[tokio::test]
async fn any_method_path_query_and_body_arrive_byte_for_byte() {
    let stage = stage().await;
    let body: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    for (method, target, arrives, body) in [
        ("GET", "/v1/models", "/v1/models", &[][..]),
        ("GET", "/", "/", &[]),
        ("POST", "/v1/chat/completions?x=%2F&y=&y=a%20b+c", "/v1/chat/completions?x=%2F&y=&y=a%20b+c", &body),
        ("PUT", "/v1//a/%2F/../b;c?d", "/v1//a/%2F/../b;c?d", b"x"),
        ("PATCH", "//odd", "//odd", b"\0"),
        ("DELETE", "/v1/files/f", "/v1/files/f", b""),
        ("DELETE", "/v1/files/g", "/v1/files/g", b"with a body"),
        ("PROPFIND", "/other", "/other", b"<x/>"),
        ("OPTIONS", "*", "*", b""),
        ("POST", "http://elsewhere:1/v1/embeddings?q", "/v1/embeddings?q", b"{}"),
    ] {
        let (mut client, mut upstream) = (stage.client().await, None);
        let length =
            if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        client
            .send(format!("{method} {target} HTTP/1.1\r\nHost: us\r\n{length}Connection: close\r\n\r\n"))
            .await;
        client.send(body).await;
        let upstream = upstream.insert(stage.upstream().await);
        let head = upstream.head().await;
        assert_eq!(head.first, format!("{method} {arrives} HTTP/1.1"));
        assert_eq!(head.all("host"), [stage.listener.local_addr().unwrap().to_string()]);
        assert!(upstream.exact(body.len()).await == body, "the body of {method} {target}");
        upstream
            .send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len()))
            .await;
        upstream.send(body).await;
        let (head, received) = client.response().await;
        assert_eq!(head.first, "HTTP/1.1 200 OK");
        assert!(received == body, "the reply to {method} {target}");
    }
}

#[tokio::test]
async fn headers_keep_order_duplicates_and_odd_bytes_with_their_names_in_small_letters() {
    let stage = stage().await;
    let mut client = stage.client().await;
    client
        .send(
            &b"POST /v1/x HTTP/1.1\r\nHost: us\r\nX-Odd: caf\xe9 \xff\r\nauthorization: Bearer k\r\nX-stainless-OS: L\r\n\
               X-Toolrein-Profile: p\r\ncookie: a\r\ncookie: b\r\nContent-Length: 0\r\nX-Empty:\r\n\r\n"[..],
        )
        .await;
    let mut upstream = stage.upstream().await;
    let host = format!("host: {}", stage.listener.local_addr().unwrap());
    let expected = [
        &host,
        "x-odd: caf\u{e9} \u{ff}",
        "authorization: Bearer k",
        "x-stainless-os: L",
        "cookie: a",
        "cookie: b",
        "content-length: 0",
        "x-empty: ",
    ];
    assert_eq!(upstream.head().await.lines, expected);
    upstream
        .send(
            &b"HTTP/1.1 429 Slow Down Please\r\nSet-Cookie: one\r\nx-ratelimit-reset: 1\r\nSet-Cookie: two\r\n\
               X-Odd: \xfc\r\nopenai-processing-ms: 7\r\nContent-Length: 2\r\n\r\nno"[..],
        )
        .await;
    let (head, body) = client.response().await;
    assert_eq!((head.first.as_str(), &body[..]), ("HTTP/1.1 429 Slow Down Please", &b"no"[..]));
    let expected = [
        "set-cookie: one",
        "set-cookie: two",
        "x-ratelimit-reset: 1",
        "x-odd: \u{fc}",
        "openai-processing-ms: 7",
        "content-length: 2",
    ];
    assert_eq!(head.lines, expected);
}

#[tokio::test]
async fn headers_of_one_hop_stay_on_it_both_ways() {
    let stage = stage().await;
    let mut client = stage.client().await;
    client
        .send(
            "GET /v1/x HTTP/1.1\r\nHost: us\r\nConnection: keep-alive, X-Hop, Upgrade\r\nX-Hop: 1\r\nKeep-Alive: 9\r\n\
             Upgrade: h2c\r\nProxy-Authorization: p\r\nTE: gzip\r\nX-End: 1\r\n\r\n",
        )
        .await;
    let mut upstream = stage.upstream().await;
    let head = upstream.head().await;
    assert_eq!(head.lines.len(), 2, "{head:?}");
    assert_eq!(head.all("x-end"), ["1"]);
    upstream
        .send(
            "HTTP/1.1 200 OK\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nX-End: 1\r\n\
             Content-Length: 0\r\n\r\n",
        )
        .await;
    let head = client.head().await;
    assert!(head.has("x-end") && head.has("content-length"));
    assert!(!head.has("x-hop") && !head.has("keep-alive") && !head.has("connection"), "{head:?}");
    // The upstream closed its connection; the client's stays open.
    client.send("GET /v1/y HTTP/1.1\r\nHost: us\r\n\r\n").await;
    assert_eq!(stage.upstream().await.head().await.first, "GET /v1/y HTTP/1.1");
}

#[tokio::test]
async fn an_upstream_cannot_set_the_headers_or_trailers_that_only_toolrein_sets() {
    let stage = stage().await;
    let mut client = stage.client().await;
    client.send("GET /v1/x HTTP/1.1\r\nHost: us\r\nTE: trailers\r\n\r\n").await;
    let mut upstream = stage.upstream().await;
    upstream.head().await;
    upstream
        .send(
            "HTTP/1.1 200 OK\r\nX-Toolrein-Conversation: forged\r\nX-Toolrein-Anything: forged\r\nX-End: 1\r\n\
             Trailer: x-took\r\nTransfer-Encoding: chunked\r\n\r\n\
             1\r\nb\r\n0\r\nx-took: 7\r\nx-toolrein-actions: forged\r\n\r\n",
        )
        .await;
    let head = client.head().await;
    assert!(head.has("x-end") && !format!("{head:?}").contains("forged"), "{head:?}");
    assert_eq!(client.until(b"\r\n\r\n").await, b"1\r\nb\r\n0\r\nx-took: 7\r\n\r\n");
}

#[tokio::test]
async fn responses_without_a_body_keep_the_length_that_they_tell() {
    let stage = stage().await;
    let mut client = stage.client().await;
    client.send("HEAD /v1/models HTTP/1.1\r\nHost: us\r\n\r\n").await;
    let mut upstream = stage.upstream().await;
    assert_eq!(upstream.head().await.first, "HEAD /v1/models HTTP/1.1");
    upstream.send("HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n").await;
    assert_eq!(client.head().await.all("content-length"), ["12345"]);
    for status in ["204 No Content", "304 Not Modified"] {
        client.send("GET /v1/models HTTP/1.1\r\nHost: us\r\n\r\n").await;
        upstream.head().await;
        upstream.send(format!("HTTP/1.1 {status}\r\nETag: x\r\n\r\n")).await;
        let head = client.head().await;
        assert_eq!(head.first, format!("HTTP/1.1 {status}"));
        assert!(!head.has("transfer-encoding") && !head.has("content-length"), "{head:?}");
    }
}

#[tokio::test]
async fn an_http_1_0_client_gets_a_body_that_ends_with_its_connection() {
    let stage = stage().await;
    let mut client = stage.client().await;
    client.send("GET /v1/models HTTP/1.0\r\n\r\n").await;
    let mut upstream = stage.upstream().await;
    assert_eq!(upstream.head().await.first, "GET /v1/models HTTP/1.1");
    upstream.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n").await;
    let head = client.head().await;
    assert_eq!((head.first.as_str(), head.has("transfer-encoding")), ("HTTP/1.0 200 OK", false));
    assert_eq!(client.rest().await, b"ok");
}

#[tokio::test]
async fn connect_is_refused_and_leads_nowhere() {
    let stage = stage().await;
    let mut client = stage.client().await;
    client.send("CONNECT elsewhere:443 HTTP/1.1\r\nHost: elsewhere:443\r\n\r\n").await;
    let (head, body) = client.response().await;
    assert_eq!(head.first, "HTTP/1.1 405 Method Not Allowed");
    assert_eq!(crate::relay::support::own_error(&head, &body).0, "method_not_allowed");
}
