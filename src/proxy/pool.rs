//! Connections to the one upstream: kept while they idle, and shared where they speak HTTP/2.
//!
//! Responsible for making a connection where none is free, for closing those that idled too long, and for choosing
//! another where a kept one had closed before it took the request. What a request says and how long it may take is
//! `upstream`'s affair, and so is sending a request again that was already written.
//!
//! There is one address, so nothing is looked up by it: of the 11,000 instructions that hyper-util's client spent on a
//! request beside the connection's own, most went into its tables of addresses.

use super::alarm::Alarm;
use super::body::UpBody;
use super::connect::{BoxError, Connector, Note};
use super::headers;
use super::hints::Hints;
use super::timed::UploadClock;
use futures_util::FutureExt as _;
use futures_util::future::{self, Either};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::http::header::HOST;
use hyper::http::{HeaderValue, Request, Response, Uri};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How long an unused connection is kept. Most servers keep theirs for 60 s and more; for those that do
/// not (uvicorn: 5 s), the pool sees the closing, or the request is sent once more.
const IDLE: Duration = Duration::from_secs(50);
/// HTTP/2: how much the upstream may send ahead on one stream, and on all of a connection.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;
/// HTTP/2: how long a response's head may be.
const HEADER_LIST_BYTES: u32 = 64 * 1024;
/// HTTP/2: silence after which a ping asks whether the connection is alive, and the time to answer it.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_WITHIN: Duration = Duration::from_secs(10);

/// See the file's head.
pub(super) struct Pool {
    connector: Connector,
    /// Scheme and host of the upstream, with the path `/`.
    origin: Uri,
    /// HTTP/2 is spoken without asking.
    prior_knowledge: bool,
    /// Connections are used once and not kept.
    single: bool,
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
    kept: Arc<Kept>,
    /// The connection made last speaks HTTP/2, so that one is enough for all.
    shares: AtomicBool,
    /// Held while a connection is made that all will share. Tokio's, since it is held across the making.
    turn: tokio::sync::Mutex<()>,
}

/// Why there is no response.
pub(super) enum Trouble {
    /// No connection could be made.
    Connect(BoxError),
    /// The connection with this note broke, or the request's own body did.
    Exchange { error: hyper::Error, note: Note },
    /// The upstream's time is over.
    Silence,
    /// Nothing but informational responses came, and too many of them.
    Hints,
}

/// How long the upstream may take to answer.
pub(super) struct FirstByte {
    /// When the request began to be sent.
    pub(super) began: Instant,
    /// From the last byte of the request, or from its sending where it is in memory.
    pub(super) within: Duration,
    /// A long upload is not the upstream's silence: its time starts with the last chunk.
    pub(super) upload: Option<Arc<UploadClock>>,
}

/// A connection, lent to one request.
struct Lent {
    sender: Sender,
    note: Note,
    /// It goes with the connection, so that a request finds one that is armed.
    alarm: Alarm,
}

/// The side of a connection to which requests are given.
enum Sender {
    Http1(http1::SendRequest<UpBody>),
    Http2(http2::SendRequest<UpBody>),
}

/// Connections that may take a request. A std mutex: held for pushing and popping, never across an await.
#[derive(Default)]
struct Kept(Mutex<State>);

#[derive(Default)]
struct State {
    /// Those of HTTP/1.1, the one that was used last at the end.
    idle: Vec<Resting<http1::SendRequest<UpBody>>>,
    shared: Option<Resting<http2::SendRequest<UpBody>>>,
    /// A task looks for those that idled too long.
    is_swept: bool,
}

/// A connection and when it was used last.
struct Resting<S> {
    sender: S,
    note: Note,
    alarm: Alarm,
    since: Instant,
}

impl Pool {
    /// A pool of connections to `origin`; connects to nothing yet.
    pub(super) fn new(connector: Connector, origin: Uri, prior_knowledge: bool) -> Self {
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(HEADER_LIST_BYTES)
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_WITHIN);
        Self {
            connector,
            origin,
            prior_knowledge,
            single: false,
            http1: http1::Builder::new(),
            http2,
            kept: Arc::default(),
            shares: AtomicBool::new(prior_knowledge),
            turn: tokio::sync::Mutex::new(()),
        }
    }

    /// The same, but that no connection is used twice.
    pub(super) fn single(self) -> Self {
        Self { single: true, ..self }
    }

    /// Sends a request and waits for the head of the response. Where a kept connection turns out to be closed before it
    /// took the request, another one gets it; `anew`: none but a new one does. Dropping the future closes or resets what
    /// it has opened.
    pub(super) async fn send(
        &self,
        mut request: Box<Request<UpBody>>,
        first_byte: FirstByte,
        anew: bool,
    ) -> Result<Response<Incoming>, Trouble> {
        let until = || first_byte.until();
        let hints = Hints::of(&mut request);
        loop {
            let kept = if anew { None } else { self.kept.take(first_byte.began) };
            let (Lent { mut sender, note, mut alarm }, used) = match kept {
                Some(kept) => (kept, true),
                // Boxed, since it is rare and large.
                None => Box::pin(timeout_at(until(), self.connect(anew)))
                    .await
                    .map_err(|_| Trouble::Silence)??,
            };
            self.address(&mut request, matches!(sender, Sender::Http2(_)));
            let sending = match &mut sender {
                Sender::Http1(sender) => Either::Left(sender.try_send_request(*request)),
                Sender::Http2(sender) => Either::Right(sender.try_send_request(*request)),
            };
            let sender = self.unless_closed(sender);
            let sending = pin!(sending);
            let too_many = pin!(hints.too_many());
            let sending = future::select(sending, too_many);
            request = match alarm.before(until, sending).await {
                Some(Either::Right(_)) => return Err(Trouble::Hints),
                Some(Either::Left((Ok(response), _))) => {
                    note.mark_served();
                    if let Some(sender) = sender {
                        self.give_back(Lent { sender, note, alarm });
                    }
                    return Ok(response);
                }
                Some(Either::Left((Err(mut unsent), _))) => match unsent.take_message().filter(|_| used) {
                    Some(request) => {
                        if let Some(sender) = sender {
                            self.kept.forget(&sender);
                        }
                        Box::new(request)
                    }
                    None => return Err(Trouble::Exchange { error: unsent.into_error(), note }),
                },
                None => return Err(Trouble::Silence),
            };
        }
    }

    /// The sender, unless its connection has ended. A request that came into hyper's queue while the connection emptied
    /// it for the last time lies there until the last sender is gone (hyperium/hyper#4122), so none may be held while
    /// the response is waited for. Whoever ends a connection says so before the queue is emptied; hence a look behind
    /// the sending is enough, if the processor does not move it before.
    fn unless_closed(&self, sender: Sender) -> Option<Sender> {
        fence(Ordering::SeqCst);
        if sender.is_closed() {
            self.kept.forget(&sender);
            return None;
        }
        Some(sender)
    }

    /// Writes the address as the protocol has it: HTTP/1.1 the path, and the host as a header; HTTP/2 all of it, and no
    /// such header beside it (RFC 9113, section 8.3.1): nginx refuses a request with both.
    fn address(&self, request: &mut Request<UpBody>, is_http2: bool) {
        if request.uri().authority().is_some() == is_http2 {
            return;
        }
        let mut parts = std::mem::take(request.uri_mut()).into_parts();
        let mut origin = self.origin.clone().into_parts();
        let host = origin.authority.as_ref().and_then(|host| HeaderValue::from_str(host.as_str()).ok());
        if is_http2 {
            headers::retain(request.headers_mut(), |name, _| *name != HOST);
        } else {
            (origin.scheme, origin.authority) = (None, None);
            host.and_then(|host| request.headers_mut().insert(HOST, host));
        }
        origin.path_and_query = parts.path_and_query.take();
        // What was a path before is one still.
        *request.uri_mut() = Uri::from_parts(origin).unwrap_or_default();
    }

    /// A connection that can take a request at once, and whether it has taken others before; `anew`: one that has not.
    async fn connect(&self, anew: bool) -> Result<(Lent, bool), Trouble> {
        let _turn = if self.shares.load(Ordering::Relaxed) && !anew { self.turn().await } else { None };
        let shared = || if anew { None } else { self.kept.shared() };
        if let Some(shared) = shared() {
            return Ok((shared, true));
        }
        let stream = self.connector.connect(self.origin.clone()).await.map_err(Trouble::Connect)?;
        let note = stream.inner().note();
        let failed = |error| Trouble::Exchange { error, note: note.clone() };
        let is_http2 = self.prior_knowledge || stream.inner().speaks_http2();
        self.shares.store(is_http2, Ordering::Relaxed);
        if !is_http2 {
            let (mut sender, connection) = self.http1.handshake(stream).await.map_err(failed)?;
            tokio::spawn(driven(connection.with_upgrades()));
            sender.ready().await.map_err(failed)?;
            return Ok((Lent::new(Sender::Http1(sender), note), false));
        }
        // Several may have asked before it was known that one is enough.
        if let Some(shared) = shared() {
            return Ok((shared, true));
        }
        let (mut sender, connection) = self.http2.handshake(stream).await.map_err(failed)?;
        tokio::spawn(driven(connection));
        sender.ready().await.map_err(failed)?;
        if !self.single {
            self.kept.share(sender.clone(), note.clone());
        }
        Ok((Lent::new(Sender::Http2(sender), note), false))
    }

    /// The turn to make a connection for all. Who finds it taken waits for what comes of that, once: if it comes to
    /// nothing, nobody shall wait for one failure after the other.
    async fn turn(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        let free = self.turn.try_lock().ok();
        if free.is_none() {
            drop(self.turn.lock().await);
        }
        free
    }

    /// Keeps a connection for other requests, once the response on it has been read.
    fn give_back(&self, lent: Lent) {
        let Lent { sender: Sender::Http1(mut sender), note, alarm } = lent else { return };
        if self.single {
            return;
        }
        if sender.is_ready() {
            self.kept.keep(sender, note, alarm);
        } else if !sender.is_closed() {
            let kept = Arc::downgrade(&self.kept);
            // It ends with the connection, which ends with the response's body at the latest.
            tokio::spawn(async move {
                if sender.ready().await.is_ok()
                    && let Some(kept) = kept.upgrade()
                {
                    kept.keep(sender, note, alarm);
                }
            });
        }
    }
}

impl FirstByte {
    /// The end of it.
    fn until(&self) -> Instant {
        let last = self.upload.as_ref().and_then(|upload| upload.last());
        last.map_or(self.began, |last| last.max(self.began)) + self.within
    }
}

impl Lent {
    fn new(sender: Sender, note: Note) -> Self {
        Self { sender, note, alarm: Alarm::default() }
    }
}

impl Sender {
    fn is_closed(&self) -> bool {
        match self {
            Self::Http1(sender) => sender.is_closed(),
            Self::Http2(sender) => sender.is_closed(),
        }
    }
}

impl Kept {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection that can take a request at once: the one that was used last.
    fn take(&self, now: Instant) -> Option<Lent> {
        let mut state = self.lock();
        while let Some(resting) = state.idle.pop() {
            if resting.is_fresh(now) && resting.sender.is_ready() {
                let Resting { sender, note, alarm, .. } = resting;
                return Some(Lent { sender: Sender::Http1(sender), note, alarm });
            }
        }
        state.shared(now)
    }

    fn shared(&self) -> Option<Lent> {
        self.lock().shared(Instant::now())
    }

    fn keep(self: &Arc<Self>, sender: http1::SendRequest<UpBody>, note: Note, alarm: Alarm) {
        let mut state = self.lock();
        state.idle.push(Resting { sender, note, alarm, since: Instant::now() });
        self.see_swept(state);
    }

    fn share(self: &Arc<Self>, sender: http2::SendRequest<UpBody>, note: Note) {
        let mut state = self.lock();
        state.shared = Some(Resting { sender, note, alarm: Alarm::default(), since: Instant::now() });
        self.see_swept(state);
    }

    /// Shares a connection no longer that took no request.
    fn forget(&self, sender: &Sender) {
        if matches!(sender, Sender::Http2(_)) {
            self.lock().shared = None;
        }
    }

    fn see_swept(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        if !std::mem::replace(&mut state.is_swept, true) {
            tokio::spawn(swept(Arc::downgrade(self)));
        }
    }
}

impl State {
    fn shared(&mut self, now: Instant) -> Option<Lent> {
        self.shared.take_if(|shared| !shared.is_fresh(now) || !shared.sender.is_ready());
        let shared = self.shared.as_mut()?;
        shared.since = now;
        Some(Lent::new(Sender::Http2(shared.sender.clone()), shared.note.clone()))
    }

    /// Lets go of what idled too long or was closed; whether nothing is left.
    fn sweep(&mut self) -> bool {
        let now = Instant::now();
        self.idle.retain(|resting| resting.is_fresh(now) && !resting.sender.is_closed());
        self.shared.take_if(|shared| !shared.is_fresh(now) || shared.sender.is_closed());
        self.is_swept = !self.idle.is_empty() || self.shared.is_some();
        !self.is_swept
    }
}

impl<S> Resting<S> {
    fn is_fresh(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) < IDLE
    }
}

/// Drives a connection to its end. What fails there fails a request too, and is told with that.
fn driven(connection: impl Future<Output = hyper::Result<()>>) -> impl Future<Output = ()> {
    // No async function, whose future would have room for the connection twice: as it is given and as it is awaited.
    connection.map(|ended| {
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection to the upstream ended early");
        }
    })
}

/// Sweeps until nothing is left, or the pool is gone.
async fn swept(kept: Weak<Kept>) {
    loop {
        tokio::time::sleep(IDLE).await;
        let Some(kept) = kept.upgrade() else { return };
        if kept.lock().sweep() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::connect::Offer;
    use crate::proxy::tls;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    /// Far more than any of these requests takes.
    const PATIENCE: Duration = Duration::from_secs(10);

    /// An upstream that ends each connection behind its first answer without saying so before.
    fn curt() -> Uri {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let _ = stream.read(&mut [0; 1024]);
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
            }
        });
        origin
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_request_given_to_a_connection_while_it_ends_is_not_left_there() {
        let connector = Connector::new(tls::no_trust(), Offer::Http1, PATIENCE);
        let pool = Pool::new(connector, curt(), false);
        for nth in 0..10_000 {
            let request = Request::get("/").header("host", "us").body(UpBody::Empty).unwrap();
            let first_byte = FirstByte { began: Instant::now(), within: PATIENCE, upload: None };
            let sent = pool.send(Box::new(request), first_byte, false).await;
            assert!(!matches!(sent, Err(Trouble::Silence)), "request {nth} hangs");
        }
    }

    #[test]
    fn the_host_is_named_once_as_the_version_has_it() {
        let connector = Connector::new(tls::no_trust(), Offer::Http1And2, PATIENCE);
        let pool = Pool::new(connector, "https://up.example:8443/".parse().unwrap(), false);
        let host = "up.example:8443";
        let request = Request::get("/v1/models?a=b").header("a", "1").header("host", host).header("b", "2");
        let mut request = request.body(UpBody::Empty).unwrap();
        // A request that a connection of HTTP/2 did not take may go out over HTTP/1.1, and the other way round.
        for is_http2 in [false, true, true, false, true] {
            pool.address(&mut request, is_http2);
            assert_eq!(request.uri().path_and_query().unwrap(), "/v1/models?a=b");
            let named =
                request.headers().get_all("host").iter().map(|host| host.to_str().unwrap().to_owned());
            let by_line = request.uri().authority().map(ToString::to_string);
            assert_eq!(by_line.is_some(), is_http2);
            assert_eq!(named.chain(by_line).collect::<Vec<_>>(), [host]);
            assert_eq!(
                (&request.headers()["a"], &request.headers()["b"]),
                (&"1".parse().unwrap(), &"2".parse().unwrap())
            );
        }
    }
}
