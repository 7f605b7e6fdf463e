//! The HTTP server: the accept loop, which takes connections and serves them until the drain, for the proxy port and
//! the admin port.
//!
//! It serves HTTP/1.1 and HTTP/2 on one port and keeps a failure of one connection away from the others. What a request
//! means is decided by the service.

mod approval;
pub mod body;
mod caller;
mod client;
mod clock;
mod coding;
pub mod collector;
mod connect;
mod connection_activity;
mod connection_limit;
pub mod conversation_lock;
mod count_tokens;
mod credential;
pub mod decoder;
pub mod drain;
mod driver;
mod effects;
mod equal_requests;
pub mod forward_proxy;
pub mod handler;
mod head;
pub mod headers;
mod hints;
mod idle_timeout;
mod jwt;
pub mod memory;
mod open_connections;
mod pinned;
mod profile;
pub mod read;
mod record;
pub mod recording;
mod redirects;
mod refusals;
pub mod relay;
mod request_id;
pub mod respond;
pub mod session;
mod spelling;
mod steps;
mod stored_judge;
mod stored_response;
mod stream;
pub mod summaries;
mod target;
mod tls;
pub mod tls_port;
mod ungoverned;
mod upgrade;
pub mod upstream;
pub mod upstream_key;
mod version;
mod wait;
pub mod webhooks;
mod whole;
mod write_timeout;

pub use engine::error;

use self::body::ReplyBody;
use self::connection_activity::{ConnectionActivity, Served, WatchedStream};
pub use self::connection_limit::ConnectionLimit;
use self::connection_limit::{ConnectionPermit, ReservedPermit};
use self::drain::Drain;
use self::open_connections::OpenConnections;
use self::tls_port::{Accepted, TlsPort};
use self::version::{Builders, is_http1};
use self::wait::wakes;
use self::write_timeout::WriteTimeout;
use hyper::body::Body;
use hyper::body::Incoming;
use hyper::http::header::CONNECTION;
use hyper::http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::task::coop::has_budget_remaining;
use tokio::time::{Sleep, sleep, timeout};
use tokio_util::task::task_tracker::TaskTrackerToken;

/// HTTP/2: how much a client may send ahead on one stream, and on a whole connection. A request with a long
/// conversation is some hundred KiB.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;
/// HTTP/2: how long a head may be. Hyper's 16 KiB are too few for some gateways' tokens; nginx takes 32 KiB.
const HEADER_LIST_BYTES: u32 = 64 * 1024;
/// HTTP/2: silence after which a ping asks whether the client is alive, and the time to answer it.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_WITHIN: Duration = Duration::from_secs(15);
/// Pauses after a failed accept (too many open files): doubled from the first to the last.
const ACCEPT_PAUSE: Duration = Duration::from_millis(5);
const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long a connection without a request is kept once the drain has started: its client may be sending one, and it
/// answers that one, with `connection: close`.
const REQUEST_WITHIN: Duration = Duration::from_secs(2);

/// How long to wait for the end of a connection that is closed to make room, before the next one is looked for.
const IDLES_WITHIN: Duration = Duration::from_millis(100);

/// The future of a response. Boxed by the code that makes it, so that every kind of request takes only the room that it
/// needs.
pub type ResponseFuture = Pin<Box<dyn Future<Output = Response<ReplyBody>> + Send>>;

/// A request handler. Each port has one.
pub trait Service: Send + Sync + 'static {
    /// Answers one request. Dropped when the client goes away before the response's head is sent.
    fn call(self: Arc<Self>, request: Request<Incoming>) -> ResponseFuture;
}

/// How connections are served.
#[derive(Debug, Clone)]
pub struct ServeSettings {
    /// How long a request's head may take, and so how long an idle connection is kept. Should be longer
    /// than clients keep theirs (Go and reqwest: 90 s), or a request may meet the closing.
    pub header_timeout: Duration,
    /// How long a client may go without reading any of what is sent to it.
    pub stall_timeout: Duration,
    /// The limit on simultaneous connections.
    pub limit: ConnectionLimit,
    /// TLS, where the port speaks it.
    pub tls: Option<Arc<TlsPort>>,
    /// At the limit, an idle connection is closed to make room for the next; otherwise the next one waits to be
    /// accepted.
    pub closes_idle: bool,
}

impl Default for ServeSettings {
    fn default() -> Self {
        let (header_timeout, stall_timeout) = (Duration::from_secs(100), Duration::from_secs(300));
        Self {
            header_timeout,
            stall_timeout,
            limit: ConnectionLimit::default(),
            tls: None,
            closes_idle: false,
        }
    }
}

/// A running accept loop.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    tls: Option<Arc<TlsPort>>,
    drain: Drain,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Starts serving in its own task.
    pub fn start<S: Service>(
        listener: TcpListener,
        service: Arc<S>,
        settings: ServeSettings,
        drain: Drain,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let tls = settings.tls.clone();
        let task = tokio::spawn(serve(listener, service, settings, drain.clone()));
        Ok(Self { address, tls, drain, task })
    }

    /// The listening address, with the actual port where port 0 was configured.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// TLS, where the port speaks it.
    pub fn tls(&self) -> Option<&TlsPort> {
        self.tls.as_deref()
    }

    /// Drains: refuses new connections and lets streams finish. `false` if some were still open after `within`.
    pub async fn stop(self, within: Duration) -> bool {
        self.drain.begin();
        // The loop ends by itself when the drain starts; an error would be a panic, which was logged.
        let _ = self.task.await;
        self.drain.finished(within).await
    }
}

/// Accepts connections and serves them until the drain begins; then closes the listener and returns,
/// while connections finish on their own (see [`Drain::finished`]).
pub async fn serve<S: Service>(
    listener: TcpListener,
    service: Arc<S>,
    settings: ServeSettings,
    drain: Drain,
) {
    let (builders, open) = (Arc::new(Builders::new(&settings)), OpenConnections::default());
    let acceptor = Arc::new(Acceptor { service, builders, settings, drain, open });
    let mut pause = ACCEPT_PAUSE;
    loop {
        let accepted = tokio::select! {
            biased;
            () = acceptor.drain.started() => return acceptor.serve_queued(listener),
            accepted = acceptor.accept(&listener) => accepted,
        };
        match accepted {
            Ok((stream, permit)) => {
                pause = ACCEPT_PAUSE;
                acceptor.serve(stream, permit);
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, ?pause, "accepting a connection failed; trying again after a pause");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(ACCEPT_PAUSE_MAX);
            }
        }
    }
}

/// What all connections share.
struct Acceptor<S> {
    service: Arc<S>,
    builders: Arc<Builders>,
    settings: ServeSettings,
    drain: Drain,
    /// Empty where idle connections are not closed to make room.
    open: OpenConnections,
}

impl<S: Service> Acceptor<S> {
    /// The next connection, once there is a permit for it.
    async fn accept(&self, listener: &TcpListener) -> io::Result<(TcpStream, ReservedPermit)> {
        if self.settings.closes_idle {
            let (stream, _) = listener.accept().await?;
            return Ok((stream, self.permit_of_an_idle_one().await));
        }
        let Some(permit) = self.settings.limit.acquire().await else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        listener.accept().await.map(|(stream, _)| (stream, permit))
    }

    /// A permit; where none is free, an idle connection is closed to free one.
    async fn permit_of_an_idle_one(&self) -> ReservedPermit {
        loop {
            if let Some(permit) = self.settings.limit.try_acquire() {
                return permit;
            }
            self.open.close_an_idle_one();
            // Where no connection is idle, one will be soon.
            if let Ok(Some(permit)) = timeout(IDLES_WITHIN, self.settings.limit.acquire()).await {
                return permit;
            }
        }
    }

    fn serve(&self, stream: TcpStream, permit: ReservedPermit) {
        let activity = Arc::new(ConnectionActivity::default());
        let connection = Connection {
            service: self.service.clone(),
            builders: self.builders.clone(),
            header_timeout: self.settings.header_timeout,
            stall_timeout: self.settings.stall_timeout,
            tls: self.settings.tls.clone(),
            drain: self.drain.clone(),
            permit: permit.into_use(),
            _guard: self.drain.guard(),
        };
        // A panic ends this task, and with it this connection alone.
        let task = tokio::spawn(connection.serve(stream, Arc::clone(&activity)));
        if self.settings.closes_idle {
            self.open.add(activity, task.abort_handle());
        }
    }

    /// Serves the connections in the kernel's accept queue: their clients believe that they are connected, so closing
    /// now would break them. Those beyond the limit wait here for a permit.
    fn serve_queued(self: &Arc<Self>, listener: TcpListener) {
        let Ok(listener) = listener.into_std() else { return };
        while let Ok((stream, _)) = listener.accept() {
            let ready = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
            let Ok(stream) = ready else { continue };
            match self.settings.limit.try_acquire() {
                Some(permit) => self.serve(stream, permit),
                None => drop(tokio::spawn(Arc::clone(self).serve_later(stream, self.drain.guard()))),
            }
        }
    }

    /// Serves a connection once there is a permit for it, or closes it when the drain is over.
    async fn serve_later(self: Arc<Self>, stream: TcpStream, _guard: TaskTrackerToken) {
        let permit = tokio::select! {
            permit = self.settings.limit.acquire() => permit,
            () = self.drain.over() => None,
        };
        if let Some(permit) = permit {
            self.serve(stream, permit);
        }
    }
}

/// Whether the error concerns one connection, whose client left before it was accepted; the next may be fine.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

struct Connection<S> {
    service: Arc<S>,
    builders: Arc<Builders>,
    header_timeout: Duration,
    stall_timeout: Duration,
    tls: Option<Arc<TlsPort>>,
    drain: Drain,
    permit: ConnectionPermit,
    _guard: TaskTrackerToken,
}

impl<S: Service> Connection<S> {
    async fn serve(self, stream: TcpStream, activity: Arc<ConnectionActivity>) {
        let is_local = stream.peer_addr().is_ok_and(|peer| peer.ip().to_canonical().is_loopback());
        // Fails only on a connection that is already gone.
        let _ = stream.set_nodelay(true);
        let mut first_within = pin!(sleep(self.header_timeout));
        if let Some(tls) = self.tls.clone() {
            // In a box, so that connections without TLS reserve no room for it.
            return Box::pin(self.serve_tls(&tls, stream, is_local, &activity, first_within)).await;
        }
        let is_http1 = tokio::select! {
            biased;
            is_http1 = is_http1(&stream) => is_http1,
            () = self.drain.over() => return,
            () = self.closing(&activity, true) => return,
            () = &mut first_within => return,
        };
        let stream = WriteTimeout::new(stream, self.stall_timeout);
        self.speak(stream, is_http1, is_local, &activity, first_within).await;
    }

    async fn serve_tls(
        &self,
        tls: &TlsPort,
        stream: TcpStream,
        is_local: bool,
        activity: &Arc<ConnectionActivity>,
        mut first_within: Pin<&mut Sleep>,
    ) {
        let accepted = tokio::select! {
            biased;
            accepted = tls.accept(stream, self.stall_timeout) => accepted,
            () = self.drain.over() => return,
            () = self.closing(activity, true) => return,
            () = &mut first_within => return,
        };
        if let Some(Accepted { stream, is_http1 }) = accepted {
            self.speak(stream, is_http1, is_local, activity, first_within).await;
        }
    }

    /// Serves HTTP on a connection. `is_http1`: it certainly is HTTP/1.1.
    async fn speak<I>(
        &self,
        stream: I,
        is_http1: bool,
        is_local: bool,
        activity: &Arc<ConnectionActivity>,
        first_within: Pin<&mut Sleep>,
    ) where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let stream = TokioIo::new(WatchedStream::new(stream, Arc::clone(activity), self.drain.clone()));
        let service = service_fn({
            let (service, activity, permit) = (self.service.clone(), activity.clone(), self.permit.clone());
            let drain = self.drain.clone();
            move |mut request: Request<Incoming>| {
                if headers::is_upgrade(&request) {
                    // The tunnel that may follow outlives the connection served here, and keeps its permit.
                    request.extensions_mut().insert(permit.clone());
                }
                let context = AnswerContext {
                    is_head: *request.method() == Method::HEAD,
                    is_http1: request.version() <= Version::HTTP_11,
                    is_local,
                    drain: drain.clone(),
                    activity: activity.clone(),
                    served: activity.begin_request(),
                };
                answer(context, service.clone().call(request))
            }
        });
        if is_http1 {
            let connection = pin!(self.builders.http1.serve_connection(stream, service).with_upgrades());
            let end = http1::UpgradeableConnection::graceful_shutdown;
            let closing = pin!(self.closing(activity, true));
            self.drive(connection, end, closing, activity, first_within).await;
        } else {
            // In a box, so that connections of HTTP/1.1 reserve no room for it.
            let mut connection =
                Box::pin(self.builders.either.serve_connection_with_upgrades(stream, service));
            let end = auto::UpgradeableConnection::graceful_shutdown;
            let closing = pin!(self.closing(activity, false));
            self.drive(connection.as_mut(), end, closing, activity, first_within).await;
        }
    }

    /// Serves `connection` to its end; `end` makes it take no further request after `closing`.
    /// `first_within` bounds the wait for the first request. Hyper bounds the heads of later ones, and pings show
    /// whether a client of HTTP/2 is alive.
    async fn drive<C, E: std::fmt::Display>(
        &self,
        mut connection: Pin<&mut C>,
        end: fn(Pin<&mut C>),
        mut closing: Pin<&mut impl Future<Output = ()>>,
        activity: &ConnectionActivity,
        mut first_within: Pin<&mut Sleep>,
    ) where
        C: Future<Output = Result<(), E>>,
    {
        let mut task: Option<Waker> = None;
        let mut closing = poll_fn(|context| {
            // It has nothing to do before the drain starts, which wakes this task.
            if wakes(task.as_ref(), context) && !self.drain.is_started() {
                return Poll::Pending;
            }
            // Without budget it may not take the task, which is then polled again at once.
            task = has_budget_remaining().then(|| context.waker().clone());
            closing.as_mut().poll(context)
        });
        let mut late = poll_fn(|context| match activity.has_request() {
            true => Poll::Pending,
            false => first_within.as_mut().poll(context),
        });
        let mut draining = false;
        loop {
            tokio::select! {
                biased;
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "a connection ended early");
                    }
                    return;
                }
                () = self.drain.over(), if draining => return,
                () = &mut closing, if !draining => {
                    end(connection.as_mut());
                    draining = true;
                }
                () = &mut late => return,
            }
        }
    }

    /// Returns when the connection must take no further request. Once the drain has started that is, over HTTP/1, when
    /// none arrives for a while: the client believes that the connection is kept, until a response says otherwise. Over
    /// HTTP/2 the client learns it at once, but not before its first request. When the drain is over, in any case.
    async fn closing(&self, activity: &ConnectionActivity, is_http1: bool) {
        self.drain.started().await;
        tokio::select! {
            () = activity.quiet(REQUEST_WITHIN), if is_http1 => {}
            _ = timeout(REQUEST_WITHIN, activity.first_request()), if !is_http1 => {}
            () = self.drain.over() => {}
        }
    }
}

/// A request, as far as its response's framing depends on it.
struct AnswerContext {
    is_head: bool,
    is_http1: bool,
    /// The client is on this machine.
    is_local: bool,
    drain: Drain,
    activity: Arc<ConnectionActivity>,
    served: Served,
}

async fn answer(
    context: AnswerContext,
    answering: ResponseFuture,
) -> Result<Response<ReplyBody>, Infallible> {
    let mut response = answering.await;
    respond::write_error_body(&mut response, context.is_local);
    // Over HTTP/2 hyper would send the body of an error response to HEAD.
    let mut response = if context.is_head && !response.body().is_end_stream() {
        response.map(|_| ReplyBody::empty())
    } else {
        response
    };
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        context.activity.begin_tunnel();
    } else if context.is_http1 && context.drain.is_started() {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response.body_mut().hold(context.served);
    Ok(response)
}
