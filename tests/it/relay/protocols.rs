//! WebSocket tunnels, and HTTP/2 on either side.

use crate::relay::support::{PATIENCE, Stage, Wire, own_error, serve, settings, soon, stage, start};
use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::body::Incoming;
use hyper::http::{HeaderMap, Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use toolrein::proxy::body::ReplyBody;
use toolrein::proxy::drain::Drain;
use toolrein::proxy::upstream::UpstreamSettings;
use toolrein::proxy::{ResponseFuture, Service};

const ASK: &str = "GET /v1/realtime?model=m HTTP/1.1\r\nHost: us\r\nConnection: keep-alive, Upgrade\r\n\
                   Upgrade: websocket\r\nSec-WebSocket-Key: k\r\nSec-WebSocket-Protocol: realtime\r\n\r\n";

async fn tunnel(stage: &Stage) -> (Wire, Wire) {
    let mut client = stage.client().await;
    client.send(ASK).await;
    let mut upstream = stage.upstream().await;
    let head = upstream.head().await;
    assert_eq!(head.first, "GET /v1/realtime?model=m HTTP/1.1");
    assert_eq!((head.all("upgrade"), head.all("connection")), (vec!["websocket"], vec!["Upgrade"]));
    assert_eq!(
        (head.all("sec-websocket-key"), head.all("sec-websocket-protocol")),
        (vec!["k"], vec!["realtime"])
    );
    // The first message may follow on the heels of the handshake.
    upstream
        .send(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: a\r\n\r\nhello",
        )
        .await;
    let head = client.head().await;
    assert_eq!(head.first, "HTTP/1.1 101 Switching Protocols");
    assert_eq!((head.all("upgrade"), head.all("sec-websocket-accept")), (vec!["websocket"], vec!["a"]));
    assert!(head.all("connection")[0].eq_ignore_ascii_case("upgrade"));
    assert_eq!(client.exact(5).await, b"hello");
    (client, upstream)
}

#[tokio::test]
async fn a_websocket_is_a_tunnel_both_ways_and_ends_with_either_side() {
    let stage = stage().await;
    let (mut client, mut upstream) = tunnel(&stage).await;
    for message in [&b"\x81\x02hi"[..], &[0; 100_000]] {
        let (sent, mut writer) = (message.to_vec(), client.stream);
        let writing = tokio::spawn(async move {
            writer.write_all(&sent).await.unwrap();
            writer
        });
        assert!(upstream.exact(message.len()).await == message);
        client = Wire::new(writing.await.unwrap());
        upstream.send(b"\x81\x00").await;
        assert_eq!(client.exact(2).await, b"\x81\x00");
    }
    client.stream.shutdown().await.unwrap();
    upstream.closed().await;
    upstream.send("bye").await;
    drop(upstream);
    assert_eq!(client.rest().await, b"bye");
}

#[tokio::test]
async fn a_tunnel_is_known_to_the_drain() {
    let stage = stage().await;
    let (client, mut upstream) = tunnel(&stage).await;
    stage.drain.begin();
    assert!(!stage.drain.finished(std::time::Duration::from_millis(10)).await);
    drop(client);
    upstream.closed().await;
    drop(upstream);
    assert!(stage.drain.finished(PATIENCE).await);
}

#[tokio::test]
async fn a_refused_upgrade_is_an_ordinary_response() {
    let stage = stage().await;
    let mut client = stage.client().await;
    client.send(ASK).await;
    let mut upstream = stage.upstream().await;
    upstream.head().await;
    upstream.send("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno").await;
    let (head, body) = client.response().await;
    assert_eq!((head.first.as_str(), &body[..]), ("HTTP/1.1 403 Forbidden", &b"no"[..]));
}

#[tokio::test]
async fn http_by_another_way_is_not_offered_and_no_tunnel_for_it_is_made() {
    let stage = stage().await;
    let mut client = stage.client().await;
    client.send(ASK.replace("Upgrade: websocket", "Upgrade: h2c, websocket")).await;
    let mut upstream = stage.upstream().await;
    assert_eq!(upstream.head().await.all("upgrade"), ["websocket"]);
    upstream.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n").await;
    let (head, body) = client.response().await;
    assert_eq!(own_error(&head, &body), ("upstream_cut".into(), Some("true".into())));
}

/// Answers with what it was asked, as an HTTP/2 upstream or client would see it.
struct Echo;

impl Service for Echo {
    fn call(self: Arc<Self>, request: Request<Incoming>) -> ResponseFuture {
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let collected = body.collect().await.unwrap();
            let trailer = collected.trailers().and_then(|trailers| trailers.get("x-sum").cloned());
            let mut trailers = HeaderMap::new();
            trailers.extend(trailer.map(|sum| (hyper::http::HeaderName::from_static("x-sum"), sum)));
            let frames = [Ok(Frame::data(collected.to_bytes())), Ok(Frame::trailers(trailers))];
            Response::builder()
                .header("x-version", format!("{:?}", parts.version))
                .header("x-asked", format!("{} {}", parts.method, parts.uri))
                .header("x-host", parts.headers.get("host").map_or("none", |host| host.to_str().unwrap()))
                .header("set-cookie", "one")
                .header("set-cookie", "two")
                .body(ReplyBody::from_stream(stream::iter(frames)))
                .unwrap()
        })
    }
}

#[tokio::test]
async fn http2_passes_on_both_sides_with_trailers() {
    let drain = Drain::new();
    let upstream = serve(Echo, &drain);
    let base = format!("http://{}/v1", upstream.address());
    let (proxy, _proxy_drain) = start(UpstreamSettings { http2: true, ..settings(&base) });
    let stream = TcpStream::connect(proxy.address()).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", "7".parse().unwrap());
    let frames =
        [Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"body"))), Ok(Frame::trailers(trailers))];
    let request = Request::post(format!("http://{}/v1/echo?q=%2F", proxy.address()))
        .header("te", "trailers")
        .body(StreamBody::new(stream::iter(frames)))
        .unwrap();
    let response = soon("the response", sender.send_request(request)).await.unwrap();
    assert_eq!(response.version(), Version::HTTP_2);
    let headers = response.headers().clone();
    assert_eq!(headers["x-version"], "HTTP/2.0");
    assert_eq!(headers["x-asked"], format!("POST http://{}/v1/echo?q=%2F", upstream.address()));
    assert_eq!(headers["x-host"], "none");
    assert_eq!(headers.get_all("set-cookie").iter().count(), 2);
    let collected = soon("the body", response.into_body().collect()).await.unwrap();
    assert_eq!(collected.trailers().unwrap()["x-sum"], "7");
    assert_eq!(collected.to_bytes(), "body");
}

#[tokio::test]
async fn an_http2_client_reaches_an_http1_upstream() {
    let stage = stage().await;
    let stream = TcpStream::connect(stage.proxy.address()).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::post(format!("http://{}/v1/x", stage.proxy.address()));
    let request = request.body(Full::new(Bytes::from_static(b"abc"))).unwrap();
    let answering = sender.send_request(request);
    let playing = async {
        let mut upstream = stage.upstream().await;
        let head = upstream.head().await;
        assert_eq!(head.first, "POST /v1/x HTTP/1.1");
        assert_eq!(head.all("host"), [stage.listener.local_addr().unwrap().to_string()]);
        assert_eq!(head.all("content-length"), ["3"]);
        assert_eq!(upstream.exact(3).await, b"abc");
        upstream.send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok").await;
        upstream
    };
    let (response, _upstream) = tokio::join!(answering, playing);
    let body = response.unwrap().into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "ok");
}

#[tokio::test]
async fn an_http2_client_that_resets_its_stream_closes_the_upstreams_connection() {
    let stage = stage().await;
    let stream = TcpStream::connect(stage.proxy.address()).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get(format!("http://{}/v1/x", stage.proxy.address()));
    let asking = tokio::spawn(sender.send_request(request.body(Full::new(Bytes::new())).unwrap()));
    let mut upstream = stage.upstream().await;
    upstream.head().await;
    asking.abort();
    upstream.closed().await;
}
