//! The accept loop: connections accepted and served until the drain, for the proxy and the admin port
//! alike.
//!
//! Responsible for the accept loop, for HTTP/1.1 and HTTP/2 on one port, and for keeping one
//! connection's trouble away from the others. What a request means is the service's business.

pub mod body;
mod caller;
mod client;
mod clock;
mod coding;
mod connect;
mod connection_limit;
pub mod conversation_lock;
mod credential;
pub mod decoder;
pub mod drain;
mod driver;
pub mod handler;
mod head;
pub mod headers;
mod hints;
mod idle_timeout;
pub mod memory;
mod open;
mod profile;
pub mod read;
mod record;
pub mod relay;
pub mod respond;
mod spelling;
mod stream;
pub mod summaries;
mod target;
mod tls;
mod upgrade;
pub mod upstream;
mod version;
mod wait;
mod whole;
mod write_timeout;

pub use crate::exchange::error;

use self::body::ReplyBody;
pub use self::connection_limit::ConnectionLimit;
use self::connection_limit::{ConnectionPermit, ReservedPermit};
use self::drain::Drain;
use self::open::OpenConnections;
use self::version::{Builders, is_http1};
use self::write_timeout::WriteTimeout;
use hyper::body::Body;
use hyper::body::Incoming;
use hyper::http::{Method, Request, Response};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Sleep, sleep, timeout};
use tokio_util::task::task_tracker::TaskTrackerToken;

/// HTTP/2: how much a client may send ahead on one stream, and on all of a connection. A request with
/// a long conversation is some hundred KiB.
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
/// How long a connection that was just made may take to send its first request when the drain begins.
const FIRST_REQUEST_WITHIN: Duration = Duration::from_secs(1);

/// How long a connection that shall be closed for another one is waited for, before the next is looked for.
const IDLES_WITHIN: Duration = Duration::from_millis(100);

/// A response to come. Boxed by who makes it, so that every kind of request has the room that it needs and no more.
pub type Answering = Pin<Box<dyn Future<Output = Response<ReplyBody>> + Send>>;

/// What answers requests. One service stands behind each port.
pub trait Service: Send + Sync + 'static {
    /// Answers one request. Dropped when the client goes away before the response's head is sent.
    fn call(self: Arc<Self>, request: Request<Incoming>) -> Answering;
}

/// How connections are served.
#[derive(Debug, Clone)]
pub struct ServeSettings {
    /// How long a request's head may take, and so how long an idle connection is kept. Should be longer
    /// than clients keep theirs (Go and reqwest: 90 s), or a request may meet the closing.
    pub header_timeout: Duration,
    /// How long a client may take nothing of what is sent to it.
    pub stall_timeout: Duration,
    /// How many connections there may be at once.
    pub limit: ConnectionLimit,
    /// When there are as many, one that idles is closed for the next, which otherwise waits until it is accepted.
    pub closes_idle: bool,
}

impl Default for ServeSettings {
    fn default() -> Self {
        let (header_timeout, stall_timeout) = (Duration::from_secs(100), Duration::from_secs(300));
        Self { header_timeout, stall_timeout, limit: ConnectionLimit::default(), closes_idle: false }
    }
}

/// A running accept loop.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    drain: Drain,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Starts serving in a task of its own.
    pub fn start<S: Service>(
        listener: TcpListener,
        service: Arc<S>,
        settings: ServeSettings,
        drain: Drain,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let task = tokio::spawn(serve(listener, service, settings, drain.clone()));
        Ok(Self { address, drain, task })
    }

    /// Where it listens; tells the port where 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Drains: refuses new connections and lets streams finish. `false` if some were still open
    /// after `within`.
    pub async fn stop(self, within: Duration) -> bool {
        self.drain.begin();
        // It ends by itself as the drain begins; an error would be a panic, which was logged.
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
    let acceptor = Acceptor { service, builders, settings, drain, open };
    let mut pause = ACCEPT_PAUSE;
    loop {
        let accepted = tokio::select! {
            biased;
            () = acceptor.drain.begun() => return acceptor.serve_queued(listener),
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

/// What every connection is served with.
struct Acceptor<S> {
    service: Arc<S>,
    builders: Arc<Builders>,
    settings: ServeSettings,
    drain: Drain,
    /// Empty where none of them is closed for others.
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

    /// A permit, for which a connection that idles is closed where none is free.
    async fn permit_of_an_idle_one(&self) -> ReservedPermit {
        loop {
            if let Some(permit) = self.settings.limit.try_acquire() {
                return permit;
            }
            self.open.close_an_idle_one();
            // Where none idles, one will soon.
            if let Ok(Some(permit)) = timeout(IDLES_WITHIN, self.settings.limit.acquire()).await {
                return permit;
            }
        }
    }

    fn serve(&self, stream: TcpStream, permit: ReservedPermit) {
        let asked = Arc::new(Asked::default());
        let connection = Connection {
            service: self.service.clone(),
            builders: self.builders.clone(),
            header_timeout: self.settings.header_timeout,
            stall_timeout: self.settings.stall_timeout,
            drain: self.drain.clone(),
            permit: permit.into_use(),
            _guard: self.drain.guard(),
        };
        // A panic ends this task, and with it this connection alone.
        let task = tokio::spawn(connection.serve(stream, Arc::clone(&asked)));
        if self.settings.closes_idle {
            self.open.add(asked, task.abort_handle());
        }
    }

    /// Who is in the kernel's queue already takes the connection for made; to close now would break it.
    fn serve_queued(&self, listener: TcpListener) {
        let Ok(listener) = listener.into_std() else { return };
        while let Some(permit) = self.settings.limit.try_acquire()
            && let Ok((stream, _)) = listener.accept()
        {
            let ready = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
            if let Ok(stream) = ready {
                self.serve(stream, permit);
            }
        }
    }
}

/// The client was gone before its connection was accepted; the next may be fine.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

struct Connection<S> {
    service: Arc<S>,
    builders: Arc<Builders>,
    header_timeout: Duration,
    stall_timeout: Duration,
    drain: Drain,
    permit: ConnectionPermit,
    _guard: TaskTrackerToken,
}

/// What a connection has brought.
#[derive(Debug, Default)]
struct Asked {
    /// A request.
    yet: AtomicBool,
    first: Notify,
    /// A request of HTTP/1.1 is being answered.
    answering: AtomicBool,
}

/// Kept with a response until its body has gone out: from then on the next head is waited for.
struct Served(Arc<Asked>);

impl Drop for Served {
    fn drop(&mut self) {
        self.0.answering.store(false, Ordering::Relaxed);
    }
}

impl<S: Service> Connection<S> {
    async fn serve(self, stream: TcpStream, asked: Arc<Asked>) {
        // Fails only on a connection that is already gone.
        let _ = stream.set_nodelay(true);
        let service = service_fn({
            let (service, asked, permit) = (self.service.clone(), asked.clone(), self.permit.clone());
            move |mut request: Request<Incoming>| {
                if headers::is_upgrade(&request) {
                    // The tunnel that may come of it outlives the connection that is served here, and keeps its permit.
                    request.extensions_mut().insert(permit.clone());
                }
                if !asked.yet.swap(true, Ordering::Relaxed) {
                    asked.first.notify_one();
                }
                asked.answering.store(true, Ordering::Relaxed);
                let served = Served(asked.clone());
                answer(*request.method() == Method::HEAD, service.clone().call(request), served)
            }
        });
        let mut first_within = pin!(sleep(self.header_timeout));
        let is_http1 = tokio::select! {
            biased;
            is_http1 = is_http1(&stream) => is_http1,
            () = self.drain.over() => return,
            () = self.closing(&asked) => return,
            () = &mut first_within => return,
        };
        let stream = TokioIo::new(WriteTimeout::new(stream, self.stall_timeout));
        if is_http1 {
            let connection = self.builders.http1.serve_connection(stream, service).with_upgrades();
            let end = http1::UpgradeableConnection::graceful_shutdown;
            self.drive((connection, end), &asked, first_within).await;
        } else {
            let connection = self.builders.either.serve_connection_with_upgrades(stream, service);
            let end = auto::UpgradeableConnection::graceful_shutdown;
            Box::pin(self.drive((connection, end), &asked, first_within)).await;
        }
    }

    /// Serves `connection` to its end; `end` lets it take no further request once the drain begins. `first_within` bounds
    /// the wait for the first request. The heads of later ones are bounded by hyper, and pings show whether a client of
    /// HTTP/2 is alive.
    async fn drive<C, E: std::fmt::Display>(
        &self,
        (connection, end): (C, fn(Pin<&mut C>)),
        asked: &Asked,
        mut first_within: Pin<&mut Sleep>,
    ) where
        C: Future<Output = Result<(), E>>,
    {
        let mut connection = pin!(connection);
        let mut closing = pin!(self.closing(asked));
        let (mut draining, mut has_asked) = (false, false);
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
                () = &mut first_within, if !has_asked => {
                    has_asked = asked.yet.load(Ordering::Relaxed);
                    if !has_asked {
                        return;
                    }
                }
            }
        }
    }

    /// Returns when the connection is to take no further request: once the drain has begun, but not before the first
    /// one of a connection that was just made, which its client is about to send; once it is over in any case.
    async fn closing(&self, asked: &Asked) {
        self.drain.begun().await;
        if !asked.yet.load(Ordering::Relaxed) {
            tokio::select! {
                _ = tokio::time::timeout(FIRST_REQUEST_WITHIN, asked.first.notified()) => {}
                () = self.drain.over() => {}
            }
        }
    }
}

async fn answer(
    is_head: bool,
    answering: Answering,
    served: Served,
) -> Result<Response<ReplyBody>, Infallible> {
    let response = answering.await;
    // Over HTTP/2 hyper would send what an error response to HEAD carries.
    let mut response = if is_head && !response.body().is_end_stream() {
        response.map(|_| ReplyBody::empty())
    } else {
        response
    };
    response.body_mut().hold(served);
    Ok(response)
}
