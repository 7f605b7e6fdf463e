//! The soak test: mixed traffic with a thousand streams at once, for a chosen time, and then many idle streams. Ends
//! with an error where anything failed, memory grew, or resources were not released. Measures no times.

use super::bodies::{Body, conversation};
use super::load::{self, Freshness::Warm, Load, Plan};
use super::subject::Subject;
use super::upstream::{self, PACED};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Streams that run at once.
const STREAMS: usize = 1_000;
/// Idle streams, and the memory that they may take. With two descriptors each they fit into 20,000.
const IDLE: usize = 9_900;
/// Less than the bound of `make bench` leaves for 10,000 of them.
const MOST_IDLE_MB: f64 = 400.0;
/// By how much the memory of the second half may exceed that of the first.
const MOST_GROWTH: f64 = 1.15;
/// How long open descriptors and threads may take to close.
const GONE_WITHIN: Duration = Duration::from_secs(20);

/// Runs for `seconds` and prints the results.
pub async fn endured(program: &str, seconds: u64) {
    let folder = tempfile::tempdir().unwrap();
    let upstream = upstream::start().await;
    let subject = Subject::unpinned(program, folder.path(), upstream).await;
    let before = subject.open();
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut traffic = JoinSet::new();
    for at in 0..STREAMS {
        traffic.spawn(streams(subject.port, at, until));
    }
    for (bytes, results, connections) in [(1 << 10, 0, 4), (32 << 10, 10, 2), (1 << 20, 200, 1)] {
        traffic.spawn(requests(subject.port, conversation(bytes, results, false), connections, until));
    }
    traffic.spawn(leavers(subject.port, until));
    let mut memory = Vec::new();
    while Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(500)).await;
        memory.push(subject.memory_mb());
    }
    let served: usize = traffic.join_all().await.into_iter().sum();
    // Warming up does not count as growth.
    let half = |part: &[f64]| part.iter().copied().fold(0.0, f64::max);
    let warm = &memory[memory.len() / 5..];
    let (first, second) = warm.split_at(warm.len() / 2);
    let (first, second) = (half(first), half(second));
    println!("{served} requests and streams in {seconds} s, no error");
    println!("memory: {first:.0} MB in the first half, {second:.0} MB in the second");
    assert!(second <= first * MOST_GROWTH, "memory grew from {first:.0} to {second:.0} MB");
    let after = settled(&subject, before).await;
    println!("descriptors and threads: {before:?} before, {after:?} after");
    let errors = subject.metric("toolrein_requests_total", "status=\"5").await;
    println!(
        "answers with 5xx: {errors}; streams open: {}",
        subject.metric("toolrein_streams_open", "").await
    );
    assert!(errors == 0.0);
    idle(&subject).await;
    let after = settled(&subject, before).await;
    println!("descriptors and threads: {after:?} after that");
}

/// Streams one after the other; every one must come whole.
async fn streams(port: u16, at: usize, until: Instant) -> usize {
    // Not all at the same moment.
    tokio::time::sleep(Duration::from_millis(at as u64)).await;
    let mut body = conversation(1 << 10, 0, true);
    let mut served = 0;
    while Instant::now() < until {
        body.renew_last((at * 1000 + served) as u32);
        let mut socket = load::connect(port).await;
        socket.write_all(&request(&body)).await.unwrap();
        let mut reply = Vec::new();
        let mut buffer = [0; 4096];
        while !reply.ends_with(b"0\r\n\r\n") {
            let count = socket.read(&mut buffer).await.unwrap();
            assert!(count > 0, "a stream broke off");
            reply.extend_from_slice(&buffer[..count]);
        }
        assert!(
            reply.starts_with(b"HTTP/1.1 200") && memchr::memmem::find(&reply, b"data: [DONE]").is_some()
        );
        served += 1;
    }
    served
}

async fn requests(port: u16, body: Body, connections: usize, until: Instant) -> usize {
    let mut load = Load { port, body, number: 1, stream: None, connections };
    let mut served = 0;
    while Instant::now() < until {
        load.run(Plan { freshness: Warm, requests: 10 }).await;
        served += 10;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    served
}

/// Clients that go away in the middle of a stream.
async fn leavers(port: u16, until: Instant) -> usize {
    let body = conversation(1 << 10, 0, true);
    let mut served = 0;
    while Instant::now() < until {
        let mut socket = load::connect(port).await;
        socket.write_all(&request(&body)).await.unwrap();
        let mut buffer = [0; 1024];
        assert!(socket.read(&mut buffer).await.unwrap() > 0);
        served += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    served
}

async fn idle(subject: &Subject) {
    let body = conversation(1 << 10, 0, true);
    let before = subject.memory_mb();
    let open: Vec<TcpStream> = load::open_streams(subject.port, &body, IDLE).await;
    let more = subject.memory_mb() - before;
    println!("{} idle streams: {more:.0} MB", open.len());
    assert!(more < MOST_IDLE_MB);
}

fn request(body: &Body) -> Vec<u8> {
    [load::head(body, Some(PACED)).as_bytes(), &body.bytes].concat()
}

/// Waits until no more is open than `before`, except connections that are kept for the next request.
async fn settled(subject: &Subject, before: [usize; 2]) -> [usize; 2] {
    upstream::close_idle();
    let started = Instant::now();
    loop {
        let open = subject.open();
        if open[0] <= before[0] + 2 {
            return open;
        }
        assert!(started.elapsed() < GONE_WITHIN, "descriptors and threads left: {open:?}, {before:?} before");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
