//! A relaying proxy on a free port, and raw connections to play client and upstream with.

use hyper::body::Incoming;
use hyper::http::Request;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use toolrein::proxy::drain::Drain;
use toolrein::proxy::forward_proxy::ForwardProxy;
use toolrein::proxy::relay::relay;
use toolrein::proxy::upstream::{Upstream, UpstreamSettings};
use toolrein::proxy::{Proxy, ResponseFuture, ServeSettings, Service};

/// Longer than anything here takes; a test that waits this long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Waits, but with a time limit.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}

/// Relays everything.
pub(crate) struct Relaying {
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) idle: Duration,
    pub(crate) drain: Drain,
}

impl Service for Relaying {
    fn call(self: Arc<Self>, request: Request<Incoming>) -> ResponseFuture {
        Box::pin(relay(request, &self.upstream, self.idle, self.drain.guard()))
    }
}

/// Time limits that no test meets by accident.
pub(crate) fn settings(base: &str) -> UpstreamSettings {
    UpstreamSettings {
        base: base.parse().unwrap(),
        connect: PATIENCE,
        first_byte: PATIENCE,
        idle: PATIENCE,
        ca_file: None,
        http2: false,
        key: None,
        proxy: ForwardProxy::default(),
    }
}

pub(crate) fn start(settings: UpstreamSettings) -> (Proxy, Drain) {
    let drain = Drain::new();
    let idle = settings.idle;
    let service = Relaying { upstream: Upstream::new(settings).unwrap().into(), idle, drain: drain.clone() };
    (serve(service, &drain), drain)
}

pub(crate) fn serve(service: impl Service, drain: &Drain) -> Proxy {
    serve_with(service, drain, ServeSettings::default())
}

pub(crate) fn serve_with(service: impl Service, drain: &Drain, settings: ServeSettings) -> Proxy {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let listener = TcpListener::from_std(listener).unwrap();
    Proxy::start(listener, Arc::new(service), settings, drain.clone()).unwrap()
}

/// A scripted upstream and a proxy in front of it.
pub(crate) struct Stage {
    pub(crate) listener: TcpListener,
    pub(crate) proxy: Proxy,
    pub(crate) drain: Drain,
}

pub(crate) async fn stage() -> Stage {
    stage_with(|settings| settings).await
}

pub(crate) async fn stage_with(change: impl FnOnce(UpstreamSettings) -> UpstreamSettings) -> Stage {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/v1", listener.local_addr().unwrap());
    let (proxy, drain) = start(change(settings(&base)));
    Stage { listener, proxy, drain }
}

impl Stage {
    /// A new connection of a client's.
    pub(crate) async fn client(&self) -> Wire {
        Wire::new(TcpStream::connect(self.proxy.address()).await.unwrap())
    }

    /// The next connection that the proxy opens to the upstream.
    pub(crate) async fn upstream(&self) -> Wire {
        Wire::new(soon("a connection to the upstream", self.listener.accept()).await.unwrap().0)
    }
}

/// A connection on which bytes are written and read by hand.
pub(crate) struct Wire {
    pub(crate) stream: TcpStream,
    read: Vec<u8>,
}

/// The head of a message: its first line, and its header lines as they were spelled.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) first: String,
    pub(crate) lines: Vec<String>,
}

impl Head {
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let prefix = format!("{}:", name.to_ascii_lowercase());
        let matching = self.lines.iter().filter(|line| line.to_ascii_lowercase().starts_with(&prefix));
        matching.map(|line| line[prefix.len()..].trim()).collect()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        !self.all(name).is_empty()
    }
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        Self { stream, read: Vec::new() }
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Reads one head, with each byte as one character, so that odd bytes survive.
    pub(crate) async fn head(&mut self) -> Head {
        let bytes = self.until(b"\r\n\r\n").await;
        let text: String = bytes[..bytes.len() - 4].iter().map(|byte| char::from(*byte)).collect();
        let mut lines = text.split("\r\n").map(str::to_owned);
        Head { first: lines.next().unwrap(), lines: lines.collect() }
    }

    /// Reads up to and with a mark.
    pub(crate) async fn until(&mut self, mark: &[u8]) -> Vec<u8> {
        loop {
            if let Some(at) = self.read.windows(mark.len()).position(|window| window == mark) {
                return self.read.drain(..at + mark.len()).collect();
            }
            let more = self.more().await;
            assert!(more, "the connection ended before {:?}", String::from_utf8_lossy(mark));
        }
    }

    pub(crate) async fn exact(&mut self, count: usize) -> Vec<u8> {
        while self.read.len() < count {
            assert!(self.more().await, "the connection ended early");
        }
        self.read.drain(..count).collect()
    }

    /// Everything until the connection ends, cleanly or not.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        while self.more().await {}
        std::mem::take(&mut self.read)
    }

    /// Waits for the other side to hang up without having said anything more.
    pub(crate) async fn closed(&mut self) {
        let rest = self.rest().await;
        assert!(rest.is_empty(), "unexpected: {:?}", String::from_utf8_lossy(&rest));
    }

    /// A whole response with `content-length`.
    pub(crate) async fn response(&mut self) -> (Head, Vec<u8>) {
        let head = self.head().await;
        let length = head.all("content-length").first().map_or(0, |length| length.parse().unwrap());
        let body = self.exact(length).await;
        (head, body)
    }

    async fn more(&mut self) -> bool {
        let mut buffer = [0; 4096];
        let count = soon("bytes", self.stream.read(&mut buffer)).await.unwrap_or(0);
        self.read.extend_from_slice(&buffer[..count]);
        count > 0
    }
}

/// `code` and `x-should-retry` of an error of toolrein's own.
pub(crate) fn own_error(head: &Head, body: &[u8]) -> (String, Option<String>) {
    let body: serde_json::Value = serde_json::from_slice(body).unwrap();
    assert_eq!(body["error"]["type"], "toolrein_error");
    let retry = head.all("x-should-retry").first().map(|&retry| retry.to_owned());
    (body["error"]["code"].as_str().unwrap().to_owned(), retry)
}

/// Asks for the models on a connection of its own.
pub(crate) async fn ask(proxy: &Proxy) -> (Head, Vec<u8>) {
    let mut client = Wire::new(TcpStream::connect(proxy.address()).await.unwrap());
    client.send("GET /v1/models HTTP/1.1\r\nHost: us\r\n\r\n").await;
    client.response().await
}
