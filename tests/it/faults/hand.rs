//! A scripted upstream and client for single connections: the test accepts each connection itself, writes the exact
//! bytes, and can reset it. Also reads the program's memory and file descriptors from the kernel. Knows no protocol
//! beyond a head.

use crate::support::http1::{Framing, Head};
use crate::support::program::{self, Toolrein};
use crate::support::{PATIENCE, until};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::io::{BufReader, ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// Policies that look at everything and have no cause to act.
pub(crate) const GENEROUS: &str =
    "[policy.budget]\n[policy.rate_limit]\ndefault = { calls = 60, per = \"60s\" }\n[policy.truncate]\n";

/// How long a writer waits before it considers the other side stalled. Too short a wait makes a test weaker, but
/// never makes it fail.
const STALL: Duration = Duration::from_millis(800);

/// An upstream whose connections the test serves itself.
pub(crate) struct Hand {
    listener: TcpListener,
    /// A connection that was found waiting and is not accepted yet.
    pending: RefCell<Option<TcpStream>>,
}

impl Hand {
    pub(crate) fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Self { listener, pending: RefCell::default() }
    }

    /// The program in front of it, with these settings and policies that look at everything and have no cause to act.
    pub(crate) fn behind(settings: &str) -> (Self, Toolrein) {
        let hand = Self::open();
        let toolrein = before(&hand.base_url(), &format!("{settings}{GENEROUS}"));
        (hand, toolrein)
    }

    /// A WebSocket's tunnel through the program: its client, and its upstream.
    pub(crate) fn tunnel(&self, toolrein: &Toolrein) -> (Wire, Wire) {
        let upgrade = "connection: upgrade\r\nupgrade: websocket\r\n\r\n";
        let mut client = Wire::to(toolrein);
        client.write(format!("GET /v1/realtime HTTP/1.1\r\nhost: us\r\n{upgrade}"));
        let mut upstream = self.asked();
        upstream.write(format!("HTTP/1.1 101 Switching\r\n{upgrade}"));
        assert_eq!(client.head().word(1), "101");
        (client, upstream)
    }

    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.listener.local_addr().unwrap())
    }

    /// The next connection.
    pub(crate) fn accept(&self) -> Wire {
        let stream = until("a connection to the upstream", || {
            self.waiting().then(|| self.pending.borrow_mut().take().unwrap())
        });
        stream.set_nonblocking(false).unwrap();
        Wire::new(stream)
    }

    /// Whether a connection waits to be accepted.
    pub(crate) fn waiting(&self) -> bool {
        let mut pending = self.pending.borrow_mut();
        if pending.is_none() {
            *pending = self.listener.accept().ok().map(|(stream, _)| stream);
        }
        pending.is_some()
    }

    /// Waits until the client's request arrives here (true), or until the client is answered without it.
    pub(crate) fn comes_or_is_refused(&self, client: &Wire) -> bool {
        client.stream().set_nonblocking(true).unwrap();
        let came = until("a request here or an answer there", || {
            let answered = !matches!(client.stream().peek(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock);
            if self.waiting() { Some(true) } else { answered.then_some(false) }
        });
        client.stream().set_nonblocking(false).unwrap();
        came
    }

    /// The next connection, with its first request read whole.
    pub(crate) fn asked(&self) -> Wire {
        let mut wire = self.accept();
        wire.request();
        wire
    }
}

/// The program before the upstream at `url`, on free ports.
pub(crate) fn before(url: &str, settings: &str) -> Toolrein {
    Toolrein::start(&program::before(url, settings))
}

/// One end of a connection.
pub(crate) struct Wire {
    pub(crate) reader: BufReader<TcpStream>,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { reader: BufReader::new(stream) }
    }

    /// A client's connection to the program.
    pub(crate) fn to(toolrein: &Toolrein) -> Self {
        Self::new(TcpStream::connect(toolrein.origin().trim_start_matches("http://")).unwrap())
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        self.reader.get_ref()
    }

    pub(crate) fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.reader.get_mut().write_all(bytes.as_ref()).expect("the peer takes the bytes");
    }

    /// A head, waited for.
    pub(crate) fn head(&mut self) -> Head {
        Head::read(&mut self.reader).expect("a head").expect("a head and not the end")
    }

    /// A request's head and body.
    pub(crate) fn request(&mut self) -> (Head, Vec<u8>) {
        let head = self.head();
        let body = head.framing(Framing::Over).read_all(&mut self.reader).expect("a whole body");
        (head, body)
    }

    /// A response's head and body; an error in place of the body if it ends otherwise than its head says.
    pub(crate) fn response(&mut self) -> (Head, std::io::Result<Vec<u8>>) {
        let head = self.head();
        let bodiless = ["204", "304"].contains(&head.word(1));
        let framing = if bodiless { Framing::Over } else { head.framing(Framing::Close) };
        let body = framing.read_all(&mut self.reader);
        (head, body)
    }

    /// Everything up to the end of the connection, clean or not.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let mut buffer = [0; 16 * 1024];
        loop {
            match self.reader.read(&mut buffer) {
                Ok(0) => return rest,
                Ok(count) => rest.extend_from_slice(&buffer[..count]),
                Err(error) => {
                    let waiting = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
                    assert!(!waiting, "the other side keeps the connection open");
                    return rest;
                }
            }
        }
    }

    /// Everything up to and including `mark`.
    pub(crate) fn until(&mut self, mark: &str) -> Vec<u8> {
        let mut read = Vec::new();
        while !read.ends_with(mark.as_bytes()) {
            let mut byte = [0];
            self.reader.read_exact(&mut byte).unwrap_or_else(|error| {
                panic!("{error} before {mark:?} in {:?}", String::from_utf8_lossy(&read))
            });
            read.push(byte[0]);
        }
        read
    }

    /// Waits until the other side has hung up; it may have said something before.
    pub(crate) fn wait_for_hang_up(&mut self) {
        self.rest();
    }

    /// Breaks the connection by a reset.
    pub(crate) fn reset(self) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _inside = runtime.enter();
        let stream = self.reader.into_inner();
        stream.set_nonblocking(true).unwrap();
        let stream = tokio::net::TcpStream::from_std(stream).unwrap();
        stream.set_zero_linger().unwrap();
    }

    /// Writes `pattern` over and over until the other side breaks the connection.
    pub(crate) fn flood_until_cut(&mut self, pattern: &[u8]) {
        self.stream().set_write_timeout(Some(PATIENCE)).unwrap();
        let broken = loop {
            if let Err(error) = self.reader.get_mut().write_all(pattern) {
                break error.kind();
            }
        };
        let waiting = matches!(broken, ErrorKind::WouldBlock | ErrorKind::TimedOut);
        assert!(!waiting, "the other side keeps the connection open");
    }

    /// Reads nothing for a while.
    pub(crate) fn stall(&self) {
        std::thread::sleep(STALL);
    }

    /// Writes `pattern` again and again until the other side accepts no more, at most `most` bytes; returns how many
    /// were written.
    pub(crate) fn flood(&mut self, pattern: &[u8], most: usize) -> usize {
        let stream = self.reader.get_mut();
        stream.set_write_timeout(Some(STALL)).unwrap();
        let mut sent = 0;
        while sent < most {
            let from = sent % pattern.len();
            match stream.write(&pattern[from..pattern.len().min(from + most - sent)]) {
                Ok(count) => sent += count,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
                Err(error) => panic!("after {sent} bytes: {error}"),
            }
        }
        stream.set_write_timeout(None).unwrap();
        sent
    }
}

/// Memory of the program that is in use, in bytes.
pub(crate) fn resident(toolrein: &Toolrein) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", toolrein.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<usize>().unwrap() * 1024
}

/// The most memory that the program ever had in use, in bytes.
pub(crate) fn peak(toolrein: &Toolrein) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", toolrein.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<usize>().unwrap() * 1024
}

/// A question of a client with one tool, `f`.
pub(crate) fn question(stream: bool) -> String {
    let tools = json!([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]);
    let messages = json!([{"role": "user", "content": "q"}]);
    json!({"model": "m", "stream": stream, "messages": messages, "tools": tools}).to_string()
}

/// A request as it travels.
pub(crate) fn post(path: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: us\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// A request for a chat completion as it travels.
pub(crate) fn chat(stream: bool) -> String {
    post("/v1/chat/completions", &question(stream))
}

/// A whole answer of an upstream.
pub(crate) fn answer(text: &str) -> String {
    let message = json!({"role": "assistant", "content": text});
    let body = json!({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).to_string();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
    format!("{head}content-length: {}\r\n\r\n{body}", body.len())
}

/// The code of an error of toolrein's own.
pub(crate) fn code(body: &[u8]) -> String {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    body["error"]["code"].as_str().unwrap_or("none").to_owned()
}

/// Sends one more request, which must succeed whatever happened before.
pub(crate) fn still_answers(hand: &Hand, toolrein: &Toolrein) {
    let mut client = Wire::to(toolrein);
    client.write(chat(false));
    let mut upstream = hand.asked();
    upstream.write(answer("still here"));
    let (head, body) = client.response();
    assert_eq!(head.word(1), "200");
    assert!(String::from_utf8(body.unwrap()).unwrap().contains("still here"));
}
