//! A blocking HTTP client that shows raw traffic: bytes in, bytes out, each piece of a body with its time of arrival,
//! and it can hang up in the middle. It follows no redirect, retries nothing and decodes nothing.

use super::PATIENCE;
use super::http1::{Framing, Head};
use serde_json::Value;
use std::io::{self, BufReader, Write as _};
use std::net::TcpStream;
use std::time::Instant;

/// A request about to be sent.
pub struct Request {
    method: String,
    url: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// `GET url`.
pub fn get(url: &str) -> Response {
    Request::new("GET", url, "").send()
}

/// `POST url` with a JSON body.
pub fn post(url: &str, body: impl AsRef<[u8]>) -> Response {
    Request::post(url, body).send()
}

impl Request {
    /// A request whose only headers are `host` and `content-length`.
    pub fn new(method: &str, url: &str, body: impl AsRef<[u8]>) -> Self {
        let (method, url) = (method.to_owned(), url.to_owned());
        Self { method, url, headers: Vec::new(), body: body.as_ref().to_vec() }
    }

    /// A POST of JSON, with a credential as clients send it.
    pub fn post(url: &str, body: impl AsRef<[u8]>) -> Self {
        let request = Self::new("POST", url, body);
        request.header("content-type", "application/json").header("authorization", "Bearer sk-test")
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sends it on a connection of its own and reads the whole response.
    pub fn send(self) -> Response {
        self.open().rest()
    }

    /// Sends it on a connection of its own and reads the response's head.
    pub fn open(self) -> Stream {
        let mut connection = Connection::open(&self.url);
        connection.write(&self.bytes());
        connection.response()
    }

    /// The bytes on the wire.
    pub fn bytes(&self) -> Vec<u8> {
        let (host, path) = split(&self.url);
        let mut text = format!("{} {path} HTTP/1.1\r\nhost: {host}\r\n", self.method);
        for (name, value) in &self.headers {
            text += &format!("{name}: {value}\r\n");
        }
        text += &format!("content-length: {}\r\n\r\n", self.body.len());
        [text.into_bytes(), self.body.clone()].concat()
    }
}

/// A whole response.
#[derive(Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The first line and the headers.
    pub head: Head,
    /// The body, transfer coding undone.
    pub body: Vec<u8>,
    /// The pieces of the body and when each came.
    pub arrivals: Vec<(Instant, Vec<u8>)>,
    /// Whether the connection ended before the body did.
    pub cut: bool,
}

impl Response {
    /// The first header called `name` (lower case).
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.header(name)
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in: {}", self.text()))
    }

    /// The payloads of the body's `data:` lines, `[DONE]` included.
    pub fn data(&self) -> Vec<String> {
        self.text()
            .lines()
            .filter_map(|line| line.strip_prefix("data:"))
            .map(|data| data.trim().into())
            .collect()
    }

    /// The JSON chunks of a streamed body.
    pub fn chunks(&self) -> Vec<Value> {
        let data = self.data();
        let json = data.iter().filter(|data| *data != "[DONE]");
        json.map(|data| serde_json::from_str(data).expect("a chunk is JSON")).collect()
    }

    /// What the first choice of a streamed body says, all deltas joined.
    pub fn streamed_text(&self) -> String {
        let chunks = self.chunks();
        let deltas = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str());
        deltas.collect()
    }
}

/// A response whose body is still coming.
pub struct Stream {
    /// The status code.
    pub status: u16,
    /// The first line and the headers.
    pub head: Head,
    connection: Connection,
    framing: Framing,
    arrivals: Vec<(Instant, Vec<u8>)>,
}

impl Stream {
    /// The next piece as it arrives, `None` at the proper end.
    ///
    /// # Errors
    /// If the body is cut off.
    pub fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let piece = self.framing.next(&mut self.connection.reader)?;
        self.arrivals.extend(piece.iter().map(|bytes| (Instant::now(), bytes.clone())));
        Ok(piece)
    }

    /// Reads on until what has come contains `needle`; all that has come.
    pub fn until(&mut self, needle: &str) -> String {
        loop {
            let text = String::from_utf8_lossy(&self.so_far()).into_owned();
            if text.contains(needle) {
                return text;
            }
            let piece = self.next().unwrap_or_else(|error| panic!("no {needle} before {error} in: {text}"));
            assert!(piece.is_some(), "the body ended without {needle}: {text}");
        }
    }

    /// Reads on to the end.
    pub fn rest(mut self) -> Response {
        let cut = loop {
            match self.next() {
                Ok(Some(_)) => {}
                Ok(None) => break false,
                Err(_) => break true,
            }
        };
        Response { status: self.status, body: self.so_far(), head: self.head, arrivals: self.arrivals, cut }
    }

    /// Closes the connection in the middle.
    pub fn hang_up(self) {
        drop(self);
    }

    /// The connection, for what follows an upgrade or a finished response.
    pub fn into_connection(self) -> Connection {
        self.connection
    }

    fn so_far(&self) -> Vec<u8> {
        self.arrivals.iter().flat_map(|(_, bytes)| bytes.clone()).collect()
    }
}

/// A connection used by hand.
pub struct Connection {
    /// What comes.
    pub reader: BufReader<TcpStream>,
}

impl Connection {
    /// Connects to the host of `url`.
    pub fn open(url: &str) -> Self {
        let stream = TcpStream::connect(split(url).0).unwrap_or_else(|error| panic!("{url}: {error}"));
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { reader: BufReader::new(stream) }
    }

    /// Sends raw bytes.
    pub fn write(&mut self, bytes: &[u8]) {
        self.reader.get_mut().write_all(bytes).expect("the peer takes the bytes");
    }

    /// Reads the head of the next response.
    pub fn response(mut self) -> Stream {
        let head = Head::read(&mut self.reader).expect("a response's head").expect("a response, not the end");
        let status = head.word(1).parse().expect("a status code");
        let bodiless = status < 200 || status == 204 || status == 304;
        let framing = if bodiless { Framing::Over } else { head.framing(Framing::Close) };
        Stream { status, head, connection: self, framing, arrivals: Vec::new() }
    }
}

fn split(url: &str) -> (&str, &str) {
    let rest = url.strip_prefix("http://").expect("tests speak plain HTTP");
    rest.find('/').map_or((rest, "/"), |slash| rest.split_at(slash))
}
