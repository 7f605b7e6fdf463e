//! A scripted upstream: it answers by a script and records every request byte for byte. Each connection has a thread;
//! requests on it are served one after the other. It notes what OpenAI would refuse ([`mock::strict`] and
//! [`mock::strict_responses`]) or Anthropic ([`mock::messages`]) but answers as the script says: the test asserts that nothing was noted.

use super::http1::{Framing, Head};
use super::reply::{Piece, Reply};
use super::{PATIENCE, until};
use mock::{messages, strict, strict_responses};
use serde_json::Value;
use std::io::{self, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// `POST`.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Names in lower case and values, in order.
    pub headers: Vec<(String, String)>,
    /// The body, transfer coding undone.
    pub body: Vec<u8>,
    hung_up: Arc<AtomicBool>,
}

impl Recorded {
    /// The body as JSON, null if it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The first header called `name` (lower case).
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The headers that the rules of the Messages API read.
    fn read_head(&self) -> messages::RequestHead {
        messages::RequestHead::from_headers(self.headers.iter().map(|(name, value)| (&**name, &**value)))
    }

    /// Whether the client closed before its answer was complete.
    pub fn hung_up(&self) -> bool {
        self.hung_up.load(Ordering::SeqCst)
    }
}

type Script = dyn Fn(usize, &Recorded) -> Reply + Send + Sync;

struct Shared {
    script: Box<Script>,
    seen: Mutex<Received>,
    closing: AtomicBool,
}

#[derive(Default)]
struct Received {
    requests: Vec<Recorded>,
    violations: Vec<String>,
}

/// The running upstream; it ends when dropped.
pub struct Scripted {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Scripted {
    /// An upstream that answers its n-th request (from 0) by `script`.
    pub fn start(script: impl Fn(usize, &Recorded) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("its address");
        let (seen, closing) = (Mutex::default(), AtomicBool::new(false));
        let shared = Arc::new(Shared { script: Box::new(script), seen, closing });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&accepting);
                if shared.closing.load(Ordering::SeqCst) {
                    return;
                }
                std::thread::spawn(move || Exchange::serve(stream, &shared));
            }
        });
        Self { address, shared }
    }

    /// An upstream with these answers, in order; a request beyond them gets a 500 that says so.
    pub fn queue(replies: impl IntoIterator<Item = Reply>) -> Self {
        let replies: Vec<Reply> = replies.into_iter().collect();
        let beyond = Reply::error(500, "test", "script_over", "the script has no more answers");
        Self::start(move |nth, _| replies.get(nth).unwrap_or(&beyond).clone())
    }

    /// The origin: `http://127.0.0.1:PORT`.
    pub fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The base URL for clients: `http://127.0.0.1:PORT/v1`.
    pub fn base_url(&self) -> String {
        format!("{}/v1", self.origin())
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<Recorded> {
        self.shared.seen.lock().unwrap().requests.clone()
    }

    /// The n-th request (from 0), waited for.
    pub fn request(&self, nth: usize) -> Recorded {
        until(&format!("request {nth} at the upstream"), || self.requests().get(nth).cloned())
    }

    /// Waits until the client of the n-th request has hung up.
    pub fn wait_for_hang_up(&self, nth: usize) {
        let request = self.request(nth);
        until("the hang-up to reach the upstream", || request.hung_up().then_some(()));
    }

    /// What the APIs would have refused in the requests so far.
    pub fn violations(&self) -> Vec<String> {
        self.shared.seen.lock().unwrap().violations.clone()
    }

    /// # Panics
    /// If an API would have refused one of the requests so far.
    pub fn assert_clean(&self) {
        let violations = self.violations();
        assert!(violations.is_empty(), "the API would have refused this:\n{}", violations.join("\n"));
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::SeqCst);
        // Wakes the accepting thread, which then ends.
        let _ = TcpStream::connect(self.address);
    }
}

/// One connection being served.
struct Exchange<'a> {
    reader: BufReader<TcpStream>,
    shared: &'a Shared,
}

impl<'a> Exchange<'a> {
    fn serve(stream: TcpStream, shared: &'a Shared) {
        let ready = stream.set_nodelay(true).and(stream.set_read_timeout(Some(2 * PATIENCE)));
        let mut exchange = Self { reader: BufReader::new(stream), shared };
        while ready.is_ok() && matches!(exchange.turn(), Ok(true)) {}
    }

    /// Reads one request and answers it; whether another may follow on this connection.
    fn turn(&mut self) -> io::Result<bool> {
        let Some(head) = Head::read(&mut self.reader)? else { return Ok(false) };
        if head.header("expect").is_some() {
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let body = head.framing(Framing::Over).read_all(&mut self.reader)?;
        let (method, path) = (head.word(0).to_owned(), head.word(1).to_owned());
        let request = Recorded { method, path, headers: head.headers, body, hung_up: Arc::default() };
        let nth = self.record(&request);
        let reply = (self.shared.script)(nth, &request);
        let whole = self.answer(&request, &reply);
        if !matches!(whole, Ok(true)) && !reply.pieces.iter().any(|piece| matches!(piece, Piece::Cut)) {
            request.hung_up.store(true, Ordering::SeqCst);
        }
        whole
    }

    fn record(&self, request: &Recorded) -> usize {
        let mut seen = self.shared.seen.lock().unwrap();
        let nth = seen.requests.len();
        let path = request.path.split('?').next().unwrap_or_default();
        let found = match path.rsplit('/').next() {
            _ if request.method != "POST" => Vec::new(),
            Some("responses") => strict_responses::violations(&request.body),
            Some("messages") if !path.contains("/threads/") => {
                messages::violations(&request.read_head(), &request.body)
            }
            _ if path.ends_with("/chat/completions") => strict::violations(&request.body),
            _ => Vec::new(),
        };
        if !found.is_empty() {
            seen.violations.extend(found.into_iter().map(|text| format!("request {nth}: {text}")));
        }
        seen.requests.push(request.clone());
        nth
    }

    /// Sends the reply; false where the connection is of no use afterwards.
    fn answer(&mut self, request: &Recorded, reply: &Reply) -> io::Result<bool> {
        if let Some(gate) = &reply.before
            && !self.wait(&|| gate.is_open())
        {
            return Ok(false);
        }
        self.write(head_of(reply).as_bytes())?;
        if request.method == "HEAD" {
            return Ok(true);
        }
        for piece in &reply.pieces {
            match piece {
                Piece::Data(bytes) if !reply.streamed => self.write(bytes)?,
                Piece::Data(bytes) if bytes.is_empty() => {}
                Piece::Data(bytes) => self.write(&framed(bytes))?,
                Piece::Wait(gate) if self.wait(&|| gate.is_open()) => {}
                Piece::Wait(_) | Piece::Cut => return Ok(false),
                Piece::Echo => return self.echo(),
            }
        }
        if reply.streamed {
            self.write(b"0\r\n\r\n")?;
        }
        Ok(true)
    }

    /// Waits until `open`; false if the client hangs up or the upstream ends first.
    fn wait(&mut self, open: &dyn Fn() -> bool) -> bool {
        let stream = self.reader.get_ref();
        let _ = stream.set_read_timeout(Some(Duration::from_millis(5)));
        let here = loop {
            if open() {
                break true;
            }
            // Bytes that came early mean that the client is there; they belong to the next request.
            let ended = match stream.peek(&mut [0]) {
                Ok(length) => length == 0,
                Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
            };
            if ended || self.shared.closing.load(Ordering::SeqCst) {
                break false;
            }
        };
        let _ = stream.set_read_timeout(Some(2 * PATIENCE));
        here
    }

    fn echo(&mut self) -> io::Result<bool> {
        let mut buffer = [0; 4096];
        loop {
            let length = self.reader.read(&mut buffer)?;
            if length == 0 {
                return Ok(false);
            }
            self.write(&buffer[..length])?;
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.reader.get_mut().write_all(bytes)
    }
}

fn head_of(reply: &Reply) -> String {
    let mut head = format!("HTTP/1.1 {} Scripted\r\n", reply.status);
    for (name, value) in &reply.headers {
        head += &format!("{name}: {value}\r\n");
    }
    if reply.streamed {
        head += "transfer-encoding: chunked\r\n";
    } else if reply.status >= 200 {
        let length: usize = reply.pieces.iter().filter_map(Piece::data).map(<[u8]>::len).sum();
        head += &format!("content-length: {length}\r\n");
    }
    head + "\r\n"
}

fn framed(data: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", data.len()).as_bytes(), data, b"\r\n"].concat()
}
