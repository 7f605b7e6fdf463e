//! A minimal upstream: reads a request by its length and answers with a fixed reply, or streams chunks, each after the
//! client has seen the previous one. Understands HTTP/1.1 as far as the subjects write it.

use super::bodies::{self, Api};
use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};

/// Requests carry the number of their client here, so that both ends of a stream find the same semaphore.
pub const STREAM_HEADER: &str = "x-stream";
/// A stream with this number stops after its first chunk.
pub const IDLE: usize = 63;

/// A stream with this number sends a chunk at every beat, whether or not the previous one was seen.
pub const PACED: usize = 62;
/// So many chunks a second come from a model that is fast.
const PACE: Duration = Duration::from_millis(50);

/// How many chunks each client's stream may send.
pub fn permits(client: usize) -> &'static Semaphore {
    static PERMITS: OnceLock<Vec<Semaphore>> = OnceLock::new();
    &PERMITS.get_or_init(|| (0..64).map(|_| Semaphore::new(0)).collect())[client]
}

/// Notified when connections that wait for a request are to be closed.
static CLOSING: Notify = Notify::const_new();

/// Closes the connections that wait for a request.
pub fn close_idle() {
    CLOSING.notify_waiters();
}

/// How long ago a chunk of a stream was written last.
pub fn written_before() -> Duration {
    LAST_WRITTEN.get().map_or(Duration::ZERO, |written| written.elapsed())
}

thread_local! {
    // Both ends are on one thread.
    static LAST_WRITTEN: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Starts it in the background.
pub async fn start() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let replies = Arc::new(Api::ALL.map(|api| whole(&bodies::reply(api))));
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            socket.set_nodelay(true).unwrap();
            let replies = Arc::clone(&replies);
            tokio::spawn(async move { serve(socket, &replies).await });
        }
    });
    address
}

async fn serve(mut socket: TcpStream, replies: &[Vec<u8>; 3]) -> Option<()> {
    let mut buffer = vec![0; 256 * 1024];
    let mut filled = 0;
    loop {
        let head = loop {
            if let Some(end) = memchr::memmem::find(&buffer[..filled], b"\r\n\r\n") {
                break end + 4;
            }
            let count = tokio::select! {
                count = socket.read(&mut buffer[filled..]) => count.ok()?,
                () = CLOSING.notified() => return None,
            };
            filled += nonzero(count)?;
        };
        let length = number(&buffer[..head], "content-length").unwrap_or(0);
        let stream = number(&buffer[..head], STREAM_HEADER);
        let asked = |api: &Api| buffer.starts_with(format!("POST {} ", api.path()).as_bytes());
        let api = Api::ALL.into_iter().position(|api| asked(&api)).unwrap_or(0);
        let mut body = filled - head;
        while body < length {
            body += nonzero(socket.read(&mut buffer).await.ok()?)?;
        }
        filled = 0;
        match stream {
            Some(client) => write_stream(&mut socket, client, Api::ALL[api]).await?,
            None => socket.write_all(&replies[api]).await.ok()?,
        }
    }
}

async fn write_stream(socket: &mut TcpStream, client: usize, api: Api) -> Option<()> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    socket.write_all(head.as_bytes()).await.ok()?;
    for event in bodies::stream(api, super::CHUNKS) {
        let chunk = [format!("{:x}\r\n", event.len()).as_bytes(), &event, b"\r\n"].concat();
        LAST_WRITTEN.set(Some(Instant::now()));
        socket.write_all(&chunk).await.ok()?;
        match client {
            PACED => tokio::time::sleep(PACE).await,
            // Until the connection closes.
            IDLE => drop(socket.read_u8().await.ok()?),
            _ => permits(client).acquire().await.ok()?.forget(),
        }
    }
    socket.write_all(b"0\r\n\r\n").await.ok()
}

fn whole(body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}")
        .into()
}

/// The number in the header `name`, wherever it is.
pub fn number(head: &[u8], name: &str) -> Option<usize> {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let line = head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().parse().ok()
}

fn nonzero(read: usize) -> Option<usize> {
    (read > 0).then_some(read)
}
