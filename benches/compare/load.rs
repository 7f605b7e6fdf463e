//! The load generator: a bounded number of requests over a few keep-alive connections, each sent when the previous one
//! is answered.

use super::CHUNKS;
use super::bodies::{Api, Body};
use super::upstream::{IDLE, STREAM_HEADER, number, permits, written_before};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Requests of one kind to one port.
#[derive(Clone)]
pub struct Load {
    pub port: u16,
    pub body: Body,
    /// The next number that no message had yet.
    pub number: u32,
    /// The chunks of the reply, if it is streamed.
    pub stream: Option<usize>,
    /// How many are busy at once.
    pub connections: usize,
}

/// What is sent of it.
#[derive(Clone, Copy)]
pub struct Plan {
    pub freshness: Freshness,
    pub requests: u32,
}

/// What of a request was seen before.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// All of it.
    Same,
    /// All but the last message.
    Warm,
    /// Nothing.
    Cold,
}

impl Load {
    /// Sends what `plan` asks for.
    pub async fn run(&mut self, plan: Plan) {
        let mut clients = JoinSet::new();
        let share = plan.requests.div_ceil(self.connections as u32);
        for client in 0..self.connections {
            let mut load = self.clone();
            load.number += share * client as u32;
            clients.spawn(async move { load.client(client, Plan { requests: share, ..plan }).await });
        }
        clients.join_all().await;
        self.number += share * self.connections as u32;
    }

    /// Sends `count` requests, `rate` a second, each when its time has come, on one connection: their times in ms. All
    /// but the last message was seen before.
    pub async fn steady(&mut self, rate: u32, count: u32) -> Vec<f64> {
        let mut socket = connect(self.port).await;
        let mut buffer = vec![0; 64 * 1024];
        let head = head(&self.body, None);
        let gap = Duration::from_secs(1) / rate;
        let started = Instant::now();
        let mut taken = Vec::new();
        for at in 0..count {
            self.body.renew_last(self.number);
            self.number += 1;
            let request = [head.as_bytes(), &self.body.bytes].concat();
            let due = started + gap * at;
            // Not by a timer, which is a millisecond late.
            while Instant::now() < due {
                tokio::task::yield_now().await;
            }
            let sent = Instant::now();
            socket.write_all(&request).await.unwrap();
            read_reply(&mut socket, &mut buffer).await;
            taken.push(sent.elapsed().as_secs_f64() * 1e3);
        }
        // The first ones find cold caches and a new connection.
        taken.split_off(taken.len() / 10)
    }

    /// One stream alone: the ms from the upstream's writing of its first chunk, right after the head, to its arrival.
    pub async fn first_delay(&mut self) -> f64 {
        let mut socket = connect(self.port).await;
        let mut buffer = vec![0; 64 * 1024];
        let request = [head(&self.body, Some(0)).as_bytes(), &self.body.bytes].concat();
        socket.write_all(&request).await.unwrap();
        let (mut first, mut seen) = (None, 0);
        while seen < CHUNKS {
            let count = read(&mut socket, &mut buffer).await;
            let events = memchr::memmem::find_iter(&buffer[..count], b"data: ").count();
            if events > 0 {
                first.get_or_insert_with(|| written_before().as_secs_f64() * 1e3);
            }
            seen += events;
            permits(0).add_permits(events);
        }
        first.unwrap_or(0.0)
    }

    async fn client(mut self, client: usize, plan: Plan) {
        let mut socket = connect(self.port).await;
        let mut buffer = vec![0; 64 * 1024];
        let head = head(&self.body, self.stream.map(|_| client));
        for _ in 0..plan.requests {
            match plan.freshness {
                Freshness::Same => {}
                Freshness::Warm => self.body.renew_last(self.number),
                Freshness::Cold => self.body.renew_all(self.number),
            }
            self.number += 1;
            if self.body.bytes.len() < 64 * 1024 {
                socket.write_all(&[head.as_bytes(), &self.body.bytes].concat()).await.unwrap();
            } else {
                socket.write_all(head.as_bytes()).await.unwrap();
                socket.write_all(&self.body.bytes).await.unwrap();
            }
            match self.stream {
                Some(chunks) => read_stream(&mut socket, &mut buffer, client, chunks).await,
                None => read_reply(&mut socket, &mut buffer).await,
            }
        }
    }
}

/// Opens streams whose upstream sends only the first chunk.
pub async fn open_streams(port: u16, body: &Body, count: usize) -> Vec<TcpStream> {
    let mut open = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    let request = [head(body, Some(IDLE)).as_bytes(), &body.bytes].concat();
    for _ in 0..count {
        let mut socket = connect(port).await;
        socket.write_all(&request).await.unwrap();
        let mut filled = 0;
        while memchr::memmem::find(&buffer[..filled], b"data: ").is_none() {
            filled += read(&mut socket, &mut buffer[filled..]).await;
        }
        open.push(socket);
    }
    open
}

pub fn head(body: &Body, stream: Option<usize>) -> String {
    let (path, length) = (body.api.path(), body.bytes.len());
    let stream = stream.map_or_else(String::new, |client| format!("{STREAM_HEADER}: {client}\r\n"));
    // As the official Python clients send them.
    let (client, credential) = match body.api {
        Api::Messages => {
            ("Anthropic/Python 0.75.0", "anthropic-version: 2023-06-01\r\nx-api-key: sk-0123456789")
        }
        Api::Chat | Api::Responses => ("OpenAI/Python 1.99.1", "authorization: Bearer sk-0123456789"),
    };
    format!(
        "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\naccept-encoding: gzip, deflate\r\nconnection: keep-alive\r\naccept: application/json\r\ncontent-type: application/json\r\nuser-agent: {client}\r\nx-stainless-lang: python\r\nx-stainless-package-version: 1.99.1\r\nx-stainless-os: Linux\r\nx-stainless-arch: x64\r\nx-stainless-runtime: CPython\r\nx-stainless-runtime-version: 3.12.3\r\n{credential}\r\nx-stainless-async: false\r\nx-stainless-retry-count: 0\r\nx-stainless-read-timeout: 600\r\n{stream}content-length: {length}\r\n\r\n"
    )
}

pub async fn connect(port: u16) -> TcpStream {
    let socket = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    socket.set_nodelay(true).unwrap();
    socket
}

async fn read_reply(socket: &mut TcpStream, buffer: &mut [u8]) {
    let mut filled = 0;
    loop {
        filled += read(socket, &mut buffer[filled..]).await;
        if let Some(end) = memchr::memmem::find(&buffer[..filled], b"\r\n\r\n") {
            assert!(buffer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&buffer[..filled]));
            if filled >= end + 4 + number(&buffer[..end + 4], "content-length").unwrap_or(0) {
                return;
            }
        }
    }
}

/// Reads a stream to its end; lets the upstream send the next chunk for each that has come.
async fn read_stream(socket: &mut TcpStream, buffer: &mut [u8], client: usize, chunks: usize) {
    let (mut seen, mut end) = (0, [0; 5]);
    while &end != b"0\r\n\r\n" {
        let count = read(socket, buffer).await;
        let events = memchr::memmem::find_iter(&buffer[..count], b"data: ").count();
        seen += events;
        permits(client).add_permits(events);
        for byte in &buffer[count.saturating_sub(5)..count] {
            end.rotate_left(1);
            end[4] = *byte;
        }
    }
    assert_eq!(seen, chunks, "chunks of a stream");
}

async fn read(socket: &mut TcpStream, buffer: &mut [u8]) -> usize {
    let count = socket.read(buffer).await.unwrap();
    assert!(count > 0, "the subject closed the connection: {}", String::from_utf8_lossy(buffer));
    count
}
