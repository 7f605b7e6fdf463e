//! Bodies are streamed: nothing is held back, in either direction.

use crate::relay::support::stage;

const CHUNKED: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

#[tokio::test]
async fn a_chunk_reaches_the_client_before_the_upstream_sends_the_next() {
    let stage = stage().await;
    let mut client = stage.client().await;
    client.send("GET /v1/x HTTP/1.1\r\nHost: us\r\n\r\n").await;
    let mut upstream = stage.upstream().await;
    upstream.head().await;
    upstream.send(CHUNKED).await;
    assert_eq!(client.head().await.all("content-type"), ["text/event-stream"]);
    for index in 0..20 {
        let event = format!("data: {index:02}\n\n");
        upstream.send(format!("{:x}\r\n{event}\r\n", event.len())).await;
        // The next is sent only when this one has come through.
        client.until(event.as_bytes()).await;
    }
    upstream.send("0\r\n\r\n").await;
    assert_eq!(client.until(b"0\r\n\r\n").await, b"\r\n0\r\n\r\n");
}

#[tokio::test]
async fn an_upload_reaches_the_upstream_before_it_is_whole() {
    let stage = stage().await;
    let mut client = stage.client().await;
    client.send("POST /v1/files HTTP/1.1\r\nHost: us\r\nContent-Length: 6\r\n\r\nabc").await;
    let mut upstream = stage.upstream().await;
    assert_eq!(upstream.head().await.all("content-length"), ["6"]);
    assert_eq!(upstream.exact(3).await, b"abc");
    client.send("def").await;
    assert_eq!(upstream.exact(3).await, b"def");
}

#[tokio::test]
async fn a_chunked_upload_stays_chunked_even_with_get() {
    let stage = stage().await;
    for method in ["POST", "GET"] {
        let mut client = stage.client().await;
        client
            .send(format!("{method} /v1/x HTTP/1.1\r\nHost: us\r\nTransfer-Encoding: chunked\r\n\r\n"))
            .await;
        client.send("3\r\nabc\r\n0\r\n\r\n").await;
        let mut upstream = stage.upstream().await;
        assert_eq!(upstream.head().await.all("transfer-encoding"), ["chunked"]);
        assert_eq!(upstream.until(b"0\r\n\r\n").await, b"3\r\nabc\r\n0\r\n\r\n");
    }
}

#[tokio::test]
async fn trailers_pass_both_ways() {
    let stage = stage().await;
    let mut client = stage.client().await;
    client
        .send(
            "POST /v1/x HTTP/1.1\r\nHost: us\r\nTE: trailers\r\nTrailer: x-sum\r\nTransfer-Encoding: chunked\r\n\r\n\
             1\r\na\r\n0\r\nx-sum: 1\r\n\r\n",
        )
        .await;
    let mut upstream = stage.upstream().await;
    let head = upstream.head().await;
    assert_eq!((head.all("te"), head.all("trailer")), (vec!["trailers"], vec!["x-sum"]));
    assert_eq!(upstream.until(b"\r\n\r\n").await, b"1\r\na\r\n0\r\nx-sum: 1\r\n\r\n");
    upstream.send("HTTP/1.1 200 OK\r\nTrailer: x-took\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    upstream.send("1\r\nb\r\n0\r\nx-took: 7\r\n\r\n").await;
    assert_eq!(client.head().await.all("trailer"), ["x-took"]);
    assert_eq!(client.until(b"\r\n\r\n").await, b"1\r\nb\r\n0\r\nx-took: 7\r\n\r\n");
}

#[tokio::test]
async fn who_expects_100_continue_gets_it_and_the_upstream_gets_the_body() {
    let stage = stage().await;
    let mut client = stage.client().await;
    client.send("POST /v1/x HTTP/1.1\r\nHost: us\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n").await;
    assert_eq!(client.head().await.first, "HTTP/1.1 100 Continue");
    client.send("abc").await;
    let mut upstream = stage.upstream().await;
    assert!(!upstream.head().await.has("expect"));
    assert_eq!(upstream.exact(3).await, b"abc");
    upstream.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    assert_eq!(client.head().await.first, "HTTP/1.1 200 OK");
}

#[tokio::test]
async fn a_large_body_passes_both_ways_unharmed() {
    let stage = stage().await;
    let body: Vec<u8> =
        (0..3_000_000_u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let (mut client, sent) = (stage.client().await, body.clone());
    let sending = tokio::spawn(async move {
        client
            .send(format!("POST /v1/x HTTP/1.1\r\nHost: us\r\nContent-Length: {}\r\n\r\n", sent.len()))
            .await;
        client.send(&sent).await;
        client
    });
    let mut upstream = stage.upstream().await;
    upstream.head().await;
    assert!(upstream.exact(body.len()).await == body);
    let (mut client, reply) = (sending.await.unwrap(), body.clone());
    let replying = tokio::spawn(async move {
        upstream.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", reply.len())).await;
        upstream.send(&reply).await;
        upstream
    });
    assert!(client.response().await.1 == body);
    replying.await.unwrap();
}
