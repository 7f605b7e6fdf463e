//! Connections to the upstream that are kept and shared: how many it takes, counted by the upstream.

use crate::relay::support::{settings, soon};
use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::stream;
use http_body_util::BodyExt as _;
use hyper::body::{Frame, Incoming};
use hyper::http::header::HOST;
use hyper::http::{Request, Response, Version};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use std::convert::Infallible;
use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::TcpListener;
use toolrein::proxy::body::{ReplyBody, UpBody};
use toolrein::proxy::error::ProxyError;
use toolrein::proxy::upstream::{Upstream, UpstreamSettings};

/// Answers in two pieces, the second of which the head does not wait for.
async fn answer(request: Request<Incoming>) -> Result<Response<ReplyBody>, Infallible> {
    // The host is sent once, in the form of the HTTP version: nginx refuses an HTTP/2 request that has `host` beside
    // `:authority`.
    let hosts = request.headers().get_all(HOST).iter().count();
    let (is_http2, names_authority) =
        (request.version() == Version::HTTP_2, request.uri().authority().is_some());
    assert_eq!((hosts, names_authority), if is_http2 { (0, true) } else { (1, false) });
    let pieces = stream::unfold(0, |piece| async move {
        tokio::task::yield_now().await;
        (piece < 2).then(|| (Ok(Frame::data(Bytes::from_static(b"ok"))), piece + 1))
    });
    Ok(Response::new(ReplyBody::from_stream(pieces)))
}

/// An upstream that counts its connections.
async fn counting(http2: bool) -> (Upstream, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/v1", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            counted.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                let server = auto::Builder::new(TokioExecutor::new());
                let _ = server.serve_connection(TokioIo::new(stream), service_fn(answer)).await;
            });
        }
    });
    (Upstream::new(UpstreamSettings { http2, ..settings(&base) }).unwrap(), count)
}

async fn ask(upstream: &Upstream) -> Response<Incoming> {
    let request = Request::get("/v1/models").header(HOST, "us").body(UpBody::Empty).unwrap();
    soon("a response", upstream.send(request)).await.unwrap()
}

async fn read(response: Response<Incoming>) {
    assert_eq!(soon("the body", response.into_body().collect()).await.unwrap().to_bytes(), "okok");
}

#[tokio::test]
async fn requests_that_come_together_share_one_connection_of_http2() {
    let (upstream, count) = counting(true).await;
    join_all((0..16).map(|_| async { read(ask(&upstream).await).await })).await;
    read(ask(&upstream).await).await;
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn requests_that_come_together_take_a_connection_of_http1_each_and_leave_them_to_the_next() {
    let (upstream, count) = counting(false).await;
    let responses = join_all((0..8).map(|_| ask(&upstream))).await;
    assert_eq!(count.load(Ordering::Relaxed), 8, "none is free before its response was read");
    join_all(responses.into_iter().map(read)).await;
    for _ in 0..50 {
        read(ask(&upstream).await).await;
    }
    // A connection is free a moment after its response was read: one may be missed, fifty are not.
    assert!(count.load(Ordering::Relaxed) < 20, "{count:?}");
}

/// An upstream that closes each connection after its first answer without announcing it.
fn curt() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}/v1", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            // A thread each: the client may open one more than it uses.
            std::thread::spawn(move || {
                let _ = stream.read(&mut [0; 1024]);
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
            });
        }
    });
    base
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_given_to_a_connection_while_it_ends_is_not_left_there() {
    let upstream = Upstream::new(settings(&curt())).unwrap();
    for nth in 0..10_000 {
        let request = Request::get("/v1/models").body(UpBody::Empty).unwrap();
        let sent = upstream.send(request).await;
        assert!(!matches!(sent, Err(ProxyError::UpstreamTimeout { .. })), "request {nth} hangs");
    }
}
