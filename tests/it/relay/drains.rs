//! Shutdown: running requests may finish, new ones are refused.

use crate::relay::support::{PATIENCE, Relaying, Wire, serve, settings, soon, stage};
use hyper::body::Incoming;
use hyper::http::Request;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use toolrein::proxy::drain::Drain;
use toolrein::proxy::{ResponseFuture, Service};

const GET: &str = "GET /v1/x HTTP/1.1\r\nHost: us\r\n\r\n";

#[tokio::test]
async fn an_open_stream_finishes_while_new_connections_are_refused() {
    let stage = stage().await;
    let mut client = stage.client().await;
    client.send(GET).await;
    let mut upstream = stage.upstream().await;
    upstream.head().await;
    upstream.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n").await;
    client.until(b"first").await;

    let address = stage.proxy.address();
    stage.drain.begin();
    // The loop has ended, and so the listener is closed, when `stop` comes to wait for what is open.
    assert!(!stage.proxy.stop(Duration::from_millis(10)).await);
    assert!(TcpStream::connect(address).await.is_err());

    upstream.send("4\r\nlast\r\n0\r\n\r\n").await;
    assert!(client.rest().await.ends_with(b"4\r\nlast\r\n0\r\n\r\n"));
    assert!(stage.drain.finished(PATIENCE).await);
}

#[tokio::test]
async fn idle_connections_are_closed_when_the_drain_begins() {
    let stage = stage().await;
    let mut silent = stage.client().await;
    let mut kept = stage.client().await;
    kept.send(GET).await;
    let mut upstream = stage.upstream().await;
    upstream.head().await;
    upstream.send("HTTP/1.1 204 No Content\r\n\r\n").await;
    kept.head().await;
    assert!(stage.proxy.stop(PATIENCE).await);
    silent.closed().await;
    kept.closed().await;
}

struct Panicking(Arc<Relaying>);

impl Service for Panicking {
    fn call(self: Arc<Self>, request: Request<Incoming>) -> ResponseFuture {
        assert!(request.uri().path() != "/panic", "on purpose");
        Arc::clone(&self.0).call(request)
    }
}

#[tokio::test]
async fn a_panic_ends_its_own_connection_and_no_other() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let settings = settings(&format!("http://{}", listener.local_addr().unwrap()));
    let upstream = toolrein::proxy::upstream::Upstream::new(settings).unwrap();
    let drain = Drain::new();
    let relaying = Relaying { upstream: upstream.into(), idle: PATIENCE, drain: drain.clone() };
    let proxy = serve(Panicking(Arc::new(relaying)), &drain);
    let mut unlucky = Wire::new(TcpStream::connect(proxy.address()).await.unwrap());
    let mut other = Wire::new(TcpStream::connect(proxy.address()).await.unwrap());
    unlucky.send("GET /panic HTTP/1.1\r\nHost: us\r\n\r\n").await;
    unlucky.closed().await;
    other.send(GET).await;
    let mut upstream = Wire::new(soon("the other request", listener.accept()).await.unwrap().0);
    upstream.head().await;
    upstream.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    assert_eq!(other.response().await.1, b"ok");
    drop(other);
    assert!(proxy.stop(PATIENCE).await, "the panic must not leave its connection counted");
}
