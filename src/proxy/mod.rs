//! The proxy's door: connections accepted and served until the drain, for the proxy and the admin port
//! alike.
//!
//! Responsible for the accept loop, for HTTP/1.1 and HTTP/2 on one port, and for keeping one
//! connection's trouble away from the others. What a request means is the service's business.

mod approved;
pub mod body;
mod caller;
mod coding;
mod connect;
pub mod drain;
pub mod error;
mod exchange;
pub(crate) mod fallback;
pub mod handler;
pub mod headers;
mod meter;
mod profile;
pub mod read;
mod reask;
mod record;
pub mod relay;
pub mod respond;
mod stream;
pub mod summaries;
mod target;
mod timed;
mod tls;
pub mod turnstile;
mod upgrade;
pub mod upstream;

use self::body::ReplyBody;
use self::drain::{Drain, DrainGuard};
use hyper::body::Body;
use hyper::body::Incoming;
use hyper::http::{Method, Request, Response};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

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

/// What answers requests. One service stands behind each port.
pub trait Service: Send + Sync + 'static {
    /// Answers one request. Dropped when the client goes away before the response's head is sent.
    fn call(&self, request: Request<Incoming>) -> impl Future<Output = Response<ReplyBody>> + Send;
}

/// How connections are served.
#[derive(Debug, Clone)]
pub struct ServeSettings {
    /// How long a request's head may take, and so how long an idle connection is kept. Should be longer
    /// than clients keep theirs (Go and reqwest: 90 s), or a request may meet the closing.
    pub header_timeout: Duration,
}

impl Default for ServeSettings {
    fn default() -> Self {
        Self { header_timeout: Duration::from_secs(100) }
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
    let builder = Arc::new(builder(&settings));
    let mut pause = ACCEPT_PAUSE;
    loop {
        let accepted = tokio::select! {
            biased;
            () = drain.begun() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                pause = ACCEPT_PAUSE;
                let connection = Connection {
                    service: service.clone(),
                    builder: builder.clone(),
                    header_timeout: settings.header_timeout,
                    drain: drain.clone(),
                    _guard: drain.guard(),
                };
                // A panic ends this task, and with it this connection alone.
                tokio::spawn(connection.serve(stream));
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

/// The client was gone before its connection was accepted; the next may be fine.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

fn builder(settings: &ServeSettings) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new()).preserve_header_case(true);
    // No `date` of our own: responses pass as the upstream made them.
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(settings.header_timeout)
        .auto_date_header(false);
    builder
        .http2()
        .timer(TokioTimer::new())
        .auto_date_header(false)
        .max_header_list_size(HEADER_LIST_BYTES)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_WITHIN);
    builder
}

struct Connection<S> {
    service: Arc<S>,
    builder: Arc<Builder<TokioExecutor>>,
    header_timeout: Duration,
    drain: Drain,
    _guard: DrainGuard,
}

impl<S: Service> Connection<S> {
    async fn serve(self, stream: TcpStream) {
        // Fails only on a connection that is already gone.
        let _ = stream.set_nodelay(true);
        let asked = Arc::new(AtomicBool::new(false));
        let service = service_fn({
            let (service, asked) = (self.service.clone(), asked.clone());
            move |request| {
                asked.store(true, Ordering::Relaxed);
                // Hyper keeps the place of the future for as long as the connection lives: 12 KB, also where it idles.
                Box::pin(answer(service.clone(), request))
            }
        });
        let connection = self.builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        let mut silence = pin!(tokio::time::sleep(self.header_timeout));
        let (mut may_be_silent, mut draining) = (false, false);
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
                () = self.drain.begun(), if !draining => {
                    connection.as_mut().graceful_shutdown();
                    draining = true;
                }
                // Hyper bounds the time for a head only once it knows the version, which a client that
                // sends nothing never lets it.
                () = silence.as_mut(), if !may_be_silent => {
                    if !asked.load(Ordering::Relaxed) {
                        return;
                    }
                    may_be_silent = true;
                }
            }
        }
    }
}

async fn answer<S: Service>(
    service: Arc<S>,
    request: Request<Incoming>,
) -> Result<Response<ReplyBody>, Infallible> {
    let is_head = *request.method() == Method::HEAD;
    let response = service.call(request).await;
    // Over HTTP/2 hyper would send what an error response to HEAD carries.
    Ok(if is_head && !response.body().is_end_stream() {
        response.map(|_| ReplyBody::empty())
    } else {
        response
    })
}
