//! Kept connections that the upstream has closed: the request is sent once more, and only once.

use crate::relay::support::{Stage, Wire, own_error, stage};
use hyper::http::Request;
use toolrein::proxy::body::UpBody;
use toolrein::proxy::upstream::{Retried, Upstream};

const GET: &str = "GET /v1/models HTTP/1.1\r\nHost: us\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A client that has been answered once, over a connection that both sides keep.
async fn warmed(stage: &Stage) -> (Wire, Wire) {
    let mut client = stage.client().await;
    client.send(GET).await;
    let mut upstream = stage.upstream().await;
    upstream.head().await;
    upstream.send(OK).await;
    assert_eq!(client.response().await.1, b"ok");
    (client, upstream)
}

#[tokio::test]
async fn a_request_that_meets_a_closed_connection_is_sent_once_more() {
    let stage = stage().await;
    let (mut client, mut kept) = warmed(&stage).await;
    client.send(GET).await;
    // Closed with the request on its way, as by an upstream whose idle time is over.
    kept.head().await;
    drop(kept);
    let mut fresh = stage.upstream().await;
    assert_eq!(fresh.head().await.first, "GET /v1/models HTTP/1.1");
    fresh.send(OK).await;
    let (head, body) = client.response().await;
    assert_eq!((head.first.as_str(), &body[..]), ("HTTP/1.1 200 OK", &b"ok"[..]));
}

#[tokio::test]
async fn a_request_on_a_stale_connection_is_not_sent_a_third_time() {
    let stage = stage().await;
    let (mut client, mut kept) = warmed(&stage).await;
    client.send(GET).await;
    kept.head().await;
    drop(kept);
    let mut fresh = stage.upstream().await;
    fresh.head().await;
    drop(fresh);
    let (head, body) = client.response().await;
    assert_eq!(own_error(&head, &body), ("upstream_cut".into(), Some("true".into())));
}

#[tokio::test]
async fn a_request_is_not_sent_again_once_part_of_a_response_came() {
    let stage = stage().await;
    let (mut client, mut kept) = warmed(&stage).await;
    client.send(GET).await;
    kept.head().await;
    kept.send("HTTP/1.1 200 OK\r\nContent-Le").await;
    drop(kept);
    let (head, body) = client.response().await;
    assert_eq!(own_error(&head, &body), ("upstream_cut".into(), Some("true".into())));
}

#[tokio::test]
async fn a_new_connection_that_breaks_is_no_stale_one() {
    let stage = stage().await;
    let mut client = stage.client().await;
    client.send(GET).await;
    let mut upstream = stage.upstream().await;
    upstream.head().await;
    drop(upstream);
    let (head, body) = client.response().await;
    assert_eq!(own_error(&head, &body), ("upstream_cut".into(), Some("true".into())));
}

#[tokio::test]
async fn an_upload_that_was_begun_is_not_sent_again() {
    let stage = stage().await;
    let (mut client, mut kept) = warmed(&stage).await;
    client.send("POST /v1/x HTTP/1.1\r\nHost: us\r\nContent-Length: 3\r\n\r\nabc").await;
    kept.head().await;
    kept.exact(3).await;
    drop(kept);
    let (head, body) = client.response().await;
    assert_eq!(own_error(&head, &body), ("upstream_cut".into(), Some("true".into())));
}

#[tokio::test]
async fn a_body_in_memory_is_sent_again_whole_and_the_response_says_so() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/api", listener.local_addr().unwrap());
    let upstream = std::sync::Arc::new(Upstream::new(crate::relay::support::settings(&base)).unwrap());
    let send = || {
        let body = UpBody::rope(vec!["ab".into(), "c".into()]);
        let request =
            Request::post("/v1/chat/completions").header("Content-Length", "99").body(body).unwrap();
        let upstream = upstream.clone();
        tokio::spawn(async move { upstream.send(request).await.unwrap() })
    };
    let first = send();
    let mut kept = Wire::new(listener.accept().await.unwrap().0);
    assert_eq!(kept.head().await.all("content-length"), ["3"]);
    assert_eq!(kept.exact(3).await, b"abc");
    kept.send("HTTP/1.1 204 No Content\r\n\r\n").await;
    assert!(first.await.unwrap().extensions().get::<Retried>().is_none());
    let second = send();
    kept.head().await;
    kept.exact(3).await;
    drop(kept);
    let mut fresh = Wire::new(listener.accept().await.unwrap().0);
    assert_eq!(fresh.head().await.first, "POST /api/chat/completions HTTP/1.1");
    assert_eq!(fresh.exact(3).await, b"abc");
    fresh.send(OK).await;
    let response = second.await.unwrap();
    assert_eq!(response.extensions().get::<Retried>(), Some(&Retried));
}

#[tokio::test]
async fn the_second_try_goes_out_on_a_new_connection_though_others_idle() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/api", listener.local_addr().unwrap());
    let upstream = std::sync::Arc::new(Upstream::new(crate::relay::support::settings(&base)).unwrap());
    let send = || {
        let request = Request::post("/v1/chat/completions").body(UpBody::rope(vec!["abc".into()])).unwrap();
        let upstream = upstream.clone();
        tokio::spawn(async move { upstream.send(request).await })
    };
    // Several connections that have served and idle, as behind a burst.
    let (mut asked, mut idle) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        asked.push(send());
        let mut wire = Wire::new(listener.accept().await.unwrap().0);
        wire.head().await;
        wire.exact(3).await;
        idle.push(wire);
    }
    for (wire, asked) in idle.iter_mut().zip(asked) {
        wire.send("HTTP/1.1 204 No Content\r\n\r\n").await;
        asked.await.unwrap().unwrap();
    }
    // The upstream closes each of them (llama.cpp: behind every stream) when something is sent on it.
    let closing: Vec<_> = idle
        .into_iter()
        .map(|mut wire| {
            tokio::spawn(async move {
                wire.head().await;
                wire.exact(3).await;
            })
        })
        .collect();
    let second = send();
    let mut fresh = Wire::new(listener.accept().await.unwrap().0);
    fresh.head().await;
    assert_eq!(fresh.exact(3).await, b"abc");
    fresh.send(OK).await;
    let response = second.await.unwrap().expect("the second try is answered");
    assert_eq!(response.extensions().get::<Retried>(), Some(&Retried));
    assert_eq!(closing.iter().filter(|one| one.is_finished()).count(), 1, "the others were not tried");
    closing.iter().for_each(tokio::task::JoinHandle::abort);
}
