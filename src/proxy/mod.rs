//! The proxy's door: connections accepted and served until the drain, for the proxy and the admin port
//! alike.
//!
//! Responsible for the accept loop, for HTTP/1.1 and HTTP/2 on one port, and for keeping one
//! connection's trouble away from the others. What a request means is the service's business.

mod alarm;
mod approved;
pub mod body;
mod caller;
mod clock;
mod coding;
mod connect;
mod credential;
pub mod drain;
pub mod error;
mod exchange;
pub mod fallback;
pub mod handler;
mod head;
pub mod headers;
mod held;
mod hints;
pub mod memory;
mod open;
mod patient;
mod pool;
mod profile;
pub mod read;
mod reask;
mod record;
pub mod relay;
pub mod respond;
mod seats;
mod sniff;
mod spelling;
mod stream;
pub mod summaries;
pub mod swap;
mod target;
mod timed;
mod tls;
pub mod turnstile;
mod upgrade;
pub mod upstream;
mod version;

use self::alarm::Alarm;
use self::body::ReplyBody;
use self::drain::{Drain, DrainGuard};
use self::open::OpenConnections;
use self::patient::Patient;
pub use self::seats::Seats;
use self::seats::{FreeSeat, Seat};
use self::version::{Builders, is_http1};
use hyper::body::Body;
use hyper::body::Incoming;
use hyper::http::{Method, Request, Response};
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
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

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
    pub seats: Seats,
    /// When there are as many, one that idles is closed for the next, which otherwise waits until it is accepted.
    pub closes_idle: bool,
}

impl Default for ServeSettings {
    fn default() -> Self {
        let (header_timeout, stall_timeout) = (Duration::from_secs(100), Duration::from_secs(300));
        Self { header_timeout, stall_timeout, seats: Seats::default(), closes_idle: false }
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
    let door = Door { service, builders, settings, drain, open };
    let mut pause = ACCEPT_PAUSE;
    loop {
        let accepted = tokio::select! {
            biased;
            () = door.drain.begun() => return door.let_in_the_last(listener),
            accepted = door.accept(&listener) => accepted,
        };
        match accepted {
            Ok((stream, place)) => {
                pause = ACCEPT_PAUSE;
                door.let_in(stream, place);
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
struct Door<S> {
    service: Arc<S>,
    builders: Arc<Builders>,
    settings: ServeSettings,
    drain: Drain,
    /// Empty where none of them is closed for others.
    open: OpenConnections,
}

impl<S: Service> Door<S> {
    /// The next connection, once there is a place for it.
    async fn accept(&self, listener: &TcpListener) -> io::Result<(TcpStream, FreeSeat)> {
        if self.settings.closes_idle {
            let (stream, _) = listener.accept().await?;
            return Ok((stream, self.place_of_an_idle_one().await));
        }
        let Some(place) = self.settings.seats.take().await else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        listener.accept().await.map(|(stream, _)| (stream, place))
    }

    /// A place, for which a connection that idles is closed where none is free.
    async fn place_of_an_idle_one(&self) -> FreeSeat {
        loop {
            if let Some(place) = self.settings.seats.take_now() {
                return place;
            }
            self.open.close_an_idle_one();
            // Where none idles, one will soon.
            if let Ok(Some(place)) = timeout(IDLES_WITHIN, self.settings.seats.take()).await {
                return place;
            }
        }
    }

    fn let_in(&self, stream: TcpStream, place: FreeSeat) {
        let asked = Arc::new(Asked::default());
        let connection = Connection {
            service: self.service.clone(),
            builders: self.builders.clone(),
            header_timeout: self.settings.header_timeout,
            stall_timeout: self.settings.stall_timeout,
            drain: self.drain.clone(),
            seat: place.seat(),
            _guard: self.drain.guard(),
        };
        // A panic ends this task, and with it this connection alone.
        let task = tokio::spawn(connection.serve(stream, Arc::clone(&asked)));
        if self.settings.closes_idle {
            self.open.add(asked, task.abort_handle());
        }
    }

    /// Who is in the kernel's queue already takes the connection for made; to close now would break it.
    fn let_in_the_last(&self, listener: TcpListener) {
        let Ok(listener) = listener.into_std() else { return };
        while let Some(place) = self.settings.seats.take_now()
            && let Ok((stream, _)) = listener.accept()
        {
            let ready = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
            if let Ok(stream) = ready {
                self.let_in(stream, place);
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
    seat: Seat,
    _guard: DrainGuard,
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
            let (service, asked, seat) = (self.service.clone(), asked.clone(), self.seat.clone());
            move |mut request: Request<Incoming>| {
                if headers::is_upgrade(&request) {
                    // The tunnel that may come of it outlives the connection that is served here, and keeps its place.
                    request.extensions_mut().insert(seat.clone());
                }
                if !asked.yet.swap(true, Ordering::Relaxed) {
                    asked.first.notify_one();
                }
                asked.answering.store(true, Ordering::Relaxed);
                let served = Served(asked.clone());
                answer(*request.method() == Method::HEAD, service.clone().call(request), served)
            }
        });
        let mut silence =
            Silence { of: self.header_timeout, since: Some(Instant::now()), alarm: Alarm::default() };
        let is_http1 = tokio::select! {
            biased;
            is_http1 = is_http1(&stream) => is_http1,
            () = self.drain.over() => return,
            () = self.closing(&asked) => return,
            () = poll_fn(|context| silence.poll(context)) => return,
        };
        let stream = TokioIo::new(Patient::new(stream, self.stall_timeout));
        if is_http1 {
            let connection = self.builders.http1.serve_connection(stream, service).with_upgrades();
            let end = http1::UpgradeableConnection::graceful_shutdown;
            let is_answering = || asked.answering.load(Ordering::Relaxed);
            self.drive((connection, end), &asked, (silence, is_answering)).await;
        } else {
            let connection = self.builders.either.serve_connection_with_upgrades(stream, service);
            let end = auto::UpgradeableConnection::graceful_shutdown;
            // Pings tell whether the client is alive.
            let has_asked = || asked.yet.load(Ordering::Relaxed);
            Box::pin(self.drive((connection, end), &asked, (silence, has_asked))).await;
        }
    }

    /// Serves `connection` to its end; `end` lets it take no further request once the drain begins. It may not keep
    /// silent for too long, except where it need not speak.
    async fn drive<C, E: std::fmt::Display>(
        &self,
        (connection, end): (C, fn(Pin<&mut C>)),
        asked: &Asked,
        (mut silence, is_excused): (Silence, impl Fn() -> bool),
    ) where
        C: Future<Output = Result<(), E>>,
    {
        let mut connection = pin!(connection);
        let mut closing = pin!(self.closing(asked));
        // Who has asked once is woken when the drain begins; to ask with every wake cost 600 instructions a request.
        let mut has_asked = false;
        let mut closing = poll_fn(|context| {
            if std::mem::replace(&mut has_asked, true) && !self.drain.is_begun() {
                return Poll::Pending;
            }
            closing.as_mut().poll(context)
        });
        // Not hyper's bound, which makes a timer for each head, and none for a client that sends nothing.
        let mut too_silent = poll_fn(|context| {
            if is_excused() {
                silence.since = None;
                return Poll::Pending;
            }
            silence.poll(context)
        });
        let mut draining = false;
        loop {
            // Whatever wakes the connection, all of these are looked at: so no more of them than may be.
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
                () = &mut too_silent => return,
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

/// How long a client may take to send a head.
struct Silence {
    of: Duration,
    /// Since when it is waited for, as far as is known.
    since: Option<Instant>,
    alarm: Alarm,
}

impl Silence {
    /// Ready when it has lasted too long.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let since = *self.since.get_or_insert_with(Instant::now);
        self.alarm.poll_end(since + self.of, context)
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
