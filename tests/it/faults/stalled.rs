//! One side stops reading: nothing accumulates in the program, and the sender is slowed down.

use crate::faults::hand::{Hand, Wire, chat, post, resident};
use crate::support::program::Toolrein;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use std::io::Read as _;

/// More than all kernel buffers on the way hold together.
const FLOOD: usize = 160 << 20;
/// The memory that the program may need beside the kernel's buffers while one side is stalled.
const ROOM: usize = 24 << 20;

const EVENTS: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
const BYTES: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\n\r\n";
const JSON: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n";

/// The end of a stream, without which it would be taken for one that was cut: its connection's end says nothing.
const DONE: &[u8] = b"data: [DONE]\n\n";

/// An event of some KiB, so that the program's own work is no bottleneck.
fn event() -> Vec<u8> {
    let text = "x".repeat(8000);
    format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n").into_bytes()
}

/// Sends `request` and reads nothing while the upstream floods; then reads on to the end and must get everything.
fn stalls_and_reads_on(request: &str, head: &str, settings: &str) {
    let (hand, toolrein) = Hand::behind(settings);
    let mut client = Wire::to(&toolrein);
    client.write(request);
    let mut upstream = hand.asked();
    upstream.write(head);
    let before = resident(&toolrein);
    let event = event();
    let sent = upstream.flood(&event, FLOOD);
    assert!(sent < FLOOD, "the upstream never felt that nobody reads");
    assert!(resident(&toolrein) < before + ROOM, "{} MiB more", (resident(&toolrein) - before) >> 20);
    crate::faults::hand::still_answers(&hand, &toolrein);
    let rest = [&event[sent % event.len()..], DONE].concat();
    let length = sent + rest.len();
    let finishing = std::thread::spawn(move || upstream.write(rest));
    let (head, body) = client.response();
    finishing.join().unwrap();
    assert_eq!(head.word(1), "200");
    let body = body.expect("a whole body");
    assert_eq!(body.len(), length);
    let body = body.strip_suffix(DONE).expect("the end of it");
    assert!(body.chunks(event.len()).all(|chunk| chunk == event), "and every byte of it");
}

#[test]
fn a_client_that_stops_reading_a_governed_stream_stops_the_upstream_and_misses_nothing_later() {
    stalls_and_reads_on(&chat(true), EVENTS, "");
}

#[test]
fn a_client_that_reads_nothing_for_too_long_is_given_up_and_so_is_the_upstream() {
    for (request, head) in [(chat(true), EVENTS), (post("/v1/files", "x"), BYTES)] {
        let (hand, toolrein) = Hand::behind("limits.stall_timeout = \"300ms\"\n");
        let mut client = Wire::to(&toolrein);
        client.write(request);
        let mut upstream = hand.asked();
        upstream.write(head);
        upstream.flood_until_cut(&event());
        crate::faults::hand::still_answers(&hand, &toolrein);
        assert!(client.response().1.is_err(), "never a clean end");
        toolrein.wait_for_metric("toolrein_connections", 0.0);
    }
}

#[test]
fn a_client_that_stops_reading_a_relayed_body_stops_the_upstream_and_misses_nothing_later() {
    stalls_and_reads_on(&post("/v1/files", "x"), BYTES, "");
}

#[test]
fn a_client_that_stops_reading_a_whole_reply_over_the_limit_stops_the_upstream() {
    stalls_and_reads_on(&chat(false), JSON, "limits.reply_bytes = \"4MiB\"\nlimits.held_bytes = \"1MiB\"\n");
}

#[test]
fn an_upstream_that_stops_reading_an_upload_stops_the_client_and_misses_nothing_later() {
    let (hand, toolrein) = Hand::behind("");
    let block: Vec<u8> = (0..1_u32 << 16).map(|at| (at.wrapping_mul(2_654_435_761) >> 20) as u8).collect();
    let mut client = Wire::to(&toolrein);
    client.write(format!("POST /v1/files HTTP/1.1\r\nhost: us\r\ncontent-length: {FLOOD}\r\n\r\n"));
    let mut upstream = hand.accept();
    upstream.head();
    let before = resident(&toolrein);
    let sent = client.flood(&block, FLOOD);
    assert!(sent < FLOOD, "the client never felt that nobody reads");
    assert!(resident(&toolrein) < before + ROOM, "{} MiB more", (resident(&toolrein) - before) >> 20);
    let expected = block.clone();
    let reading = std::thread::spawn(move || {
        let mut read = vec![0; expected.len()];
        for _ in 0..FLOOD / expected.len() {
            upstream.reader.read_exact(&mut read).unwrap();
            assert!(read == expected, "every byte in its place");
        }
        upstream.write("HTTP/1.1 204 No Content\r\n\r\n");
    });
    let mut left = block.clone();
    left.rotate_left(sent % block.len());
    for piece in std::iter::repeat_n(left.as_slice(), (FLOOD - sent) / block.len()) {
        client.write(piece);
    }
    client.write(&left[..(FLOOD - sent) % block.len()]);
    reading.join().unwrap();
    assert_eq!(client.head().word(1), "204");
}

#[test]
fn a_websocket_that_nobody_reads_stops_its_sender() {
    let (hand, toolrein) = Hand::behind("");
    let (mut client, mut upstream) = hand.tunnel(&toolrein);
    let before = resident(&toolrein);
    assert!(upstream.flood(&[7; 1 << 16], FLOOD) < FLOOD);
    assert!(client.flood(&[7; 1 << 16], FLOOD) < FLOOD);
    assert!(resident(&toolrein) < before + ROOM);
}

#[test]
fn an_http_2_stream_that_nobody_reads_holds_up_no_other_on_its_connection() {
    let (hand, toolrein) = Hand::behind("");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let ask = |toolrein: &Toolrein, stream| {
        let body = Full::new(Bytes::from(crate::faults::hand::question(stream)));
        let request = hyper::http::Request::post(toolrein.chat_url()).body(body).unwrap();
        runtime.spawn(client.request(request))
    };
    let first = ask(&toolrein, true);
    let mut upstream = hand.asked();
    upstream.write(EVENTS);
    let stalled = runtime.block_on(first).unwrap().unwrap();
    let before = resident(&toolrein);
    let event = event();
    let sent = upstream.flood(&event, FLOOD);
    assert!(sent < FLOOD && resident(&toolrein) < before + ROOM);
    let second = ask(&toolrein, false);
    hand.asked().write(crate::faults::hand::answer("beside it"));
    let answered = runtime.block_on(async { second.await.unwrap().unwrap().into_body().collect().await });
    assert!(String::from_utf8_lossy(&answered.unwrap().to_bytes()).contains("beside it"));
    let rest = [&event[sent % event.len()..], DONE].concat();
    let length = sent + rest.len();
    let finishing = std::thread::spawn(move || upstream.write(rest));
    let body = runtime.block_on(stalled.into_body().collect()).unwrap().to_bytes();
    finishing.join().unwrap();
    assert_eq!(body.len(), length);
}
