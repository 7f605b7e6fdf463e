//! Either side may disappear at any moment: the other side notices at once, and never takes it for a regular end.

use crate::relay::support::{Relaying, Wire, own_error, serve_with, settings, stage, stage_with};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use toolrein::proxy::drain::Drain;
use toolrein::proxy::upstream::{Upstream, UpstreamSettings};
use toolrein::proxy::{Proxy, ServeSettings};

const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n";

#[tokio::test]
async fn a_client_that_leaves_before_the_first_byte_closes_the_upstreams_connection() {
    let stage = stage().await;
    for request in [
        "GET /v1/x HTTP/1.1\r\nHost: us\r\n\r\n",
        "POST /v1/x HTTP/1.1\r\nHost: us\r\nContent-Length: 1\r\n\r\na",
    ] {
        let mut client = stage.client().await;
        client.send(request).await;
        let mut upstream = stage.upstream().await;
        upstream.head().await;
        if request.starts_with("POST") {
            upstream.exact(1).await;
        }
        drop(client);
        upstream.closed().await;
    }
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_of_a_stream_closes_the_upstreams_connection() {
    let stage = stage().await;
    let mut client = stage.client().await;
    client.send("GET /v1/x HTTP/1.1\r\nHost: us\r\n\r\n").await;
    let mut upstream = stage.upstream().await;
    upstream.head().await;
    upstream.send(CHUNKED).await;
    client.until(b"first").await;
    drop(client);
    upstream.closed().await;
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_of_its_request_closes_the_upstreams_connection() {
    let stage = stage().await;
    let mut client = stage.client().await;
    client.send("POST /v1/x HTTP/1.1\r\nHost: us\r\nContent-Length: 9\r\n\r\nabc").await;
    let mut upstream = stage.upstream().await;
    upstream.head().await;
    upstream.exact(3).await;
    drop(client);
    upstream.closed().await;
}

#[tokio::test]
async fn an_upstream_that_breaks_off_leaves_a_broken_body_not_a_clean_end() {
    let stage = stage().await;
    for head in [CHUNKED, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nfirst"] {
        let mut client = stage.client().await;
        client.send("GET /v1/x HTTP/1.1\r\nHost: us\r\n\r\n").await;
        let mut upstream = stage.upstream().await;
        upstream.head().await;
        upstream.send(head).await;
        client.until(b"first").await;
        drop(upstream);
        let rest = client.rest().await;
        assert!(rest.is_empty() || rest == b"\r\n", "{:?}", String::from_utf8_lossy(&rest));
    }
}

#[tokio::test]
async fn an_upstream_that_falls_silent_in_a_stream_is_given_up() {
    let stage = stage_with(|settings| UpstreamSettings { idle: Duration::from_millis(50), ..settings }).await;
    let mut client = stage.client().await;
    client.send("GET /v1/x HTTP/1.1\r\nHost: us\r\n\r\n").await;
    let mut upstream = stage.upstream().await;
    upstream.head().await;
    upstream.send(CHUNKED).await;
    client.until(b"first").await;
    assert_eq!(client.rest().await, b"\r\n");
    upstream.closed().await;
}

#[tokio::test]
async fn a_client_that_falls_silent_in_its_request_is_told_so() {
    let stage = stage_with(|settings| UpstreamSettings { idle: Duration::from_millis(50), ..settings }).await;
    let mut client = stage.client().await;
    client.send("POST /v1/x HTTP/1.1\r\nHost: us\r\nContent-Length: 9\r\n\r\nabc").await;
    let (head, body) = client.response().await;
    assert_eq!(head.first, "HTTP/1.1 408 Request Timeout");
    assert_eq!(own_error(&head, &body).0, "request_timeout");
}

#[tokio::test]
async fn a_response_that_ends_with_its_connection_ends_cleanly() {
    let stage = stage().await;
    let mut client = stage.client().await;
    client.send("GET /v1/x HTTP/1.1\r\nHost: us\r\n\r\n").await;
    let mut upstream = stage.upstream().await;
    upstream.head().await;
    upstream.send("HTTP/1.0 200 OK\r\n\r\nold style").await;
    upstream.stream.shutdown().await.unwrap();
    let head = client.head().await;
    assert_eq!((head.first.as_str(), head.all("transfer-encoding")), ("HTTP/1.1 200 OK", vec!["chunked"]));
    assert_eq!(client.until(b"0\r\n\r\n").await, b"9\r\nold style\r\n0\r\n\r\n");
}

/// Short, since these tests wait for it.
const HEADER_TIMEOUT: Duration = Duration::from_millis(50);

/// A proxy before `base` that waits so long for a head.
fn impatient(base: &str) -> (Proxy, Drain) {
    let (drain, settings) = (Drain::new(), settings(base));
    let relaying = Relaying {
        idle: settings.idle,
        upstream: Upstream::new(settings).unwrap().into(),
        drain: drain.clone(),
    };
    let settings = ServeSettings { header_timeout: HEADER_TIMEOUT, ..ServeSettings::default() };
    (serve_with(relaying, &drain, settings), drain)
}

#[tokio::test]
async fn the_time_for_a_head_begins_behind_each_answer_however_long_that_took() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (proxy, _drain) = impatient(&format!("http://{}/v1", listener.local_addr().unwrap()));
    let mut client = Wire::new(TcpStream::connect(proxy.address()).await.unwrap());
    client.send("GET /v1/x HTTP/1.1\r\nHost: us\r\n\r\n").await;
    let mut upstream = Wire::new(listener.accept().await.unwrap().0);
    for _ in 0..2 {
        upstream.head().await;
        tokio::time::sleep(HEADER_TIMEOUT * 3).await;
        upstream.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no").await;
        client.head().await;
        tokio::time::sleep(HEADER_TIMEOUT * 3).await;
        upstream.send("k").await;
        assert_eq!(client.exact(2).await, b"ok");
        client.send("GET /v1/x HTTP/1.1\r\nHost: us\r\n\r\n").await;
    }
    upstream.head().await;
    upstream.send("HTTP/1.1 204 No Content\r\n\r\n").await;
    client.head().await;
    client.send("GET /v1/x HTTP/1.1\r\nHost: us\r\n").await;
    client.closed().await;
}

#[tokio::test]
async fn a_client_that_never_finishes_a_head_is_given_up() {
    let (proxy, _drain) = impatient("http://127.0.0.1:1");
    for begun in ["", "P", "PRI * HTTP/2.0\r\n", "GET /v1/x HTTP/1.1\r\nHost: u"] {
        let mut client = Wire::new(TcpStream::connect(proxy.address()).await.unwrap());
        client.send(begun).await;
        client.closed().await;
    }
}

#[tokio::test]
async fn a_slow_upload_does_not_count_as_the_upstreams_silence() {
    let first_byte = Duration::from_secs(1);
    let stage = stage_with(|settings| UpstreamSettings { first_byte, ..settings }).await;
    let mut client = stage.client().await;
    client.send("POST /v1/x HTTP/1.1\r\nHost: us\r\nContent-Length: 4\r\n\r\n").await;
    let mut upstream = stage.upstream().await;
    upstream.head().await;
    for _ in 0..4 {
        tokio::time::sleep(first_byte * 2 / 5).await;
        client.send("x").await;
        upstream.exact(1).await;
    }
    upstream.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    assert_eq!(client.head().await.first, "HTTP/1.1 200 OK");
}
