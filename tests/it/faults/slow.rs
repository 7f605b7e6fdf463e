//! Slow-loris attacks, on both sides and in every part of a message: a slow sender is cut off in time, and no other
//! client waits.

use crate::faults::hand::{Hand, Wire, chat, code, post, still_answers};
use crate::support::until;
use std::io::Write as _;

/// Sends one byte after the other for as long as the other side takes them.
fn crawl(wire: &mut Wire, text: impl Iterator<Item = u8>) {
    for byte in text {
        if wire.reader.get_mut().write_all(&[byte]).is_err() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    panic!("whoever crawls so far should have been given up");
}

/// Far more than anybody waits for.
const ENDLESS: usize = 60_000;

#[test]
fn a_client_whose_head_crawls_is_given_up_though_every_byte_comes_in_time() {
    let (hand, toolrein) = Hand::behind("limits.header_timeout = \"300ms\"\n");
    let mut client = Wire::to(&toolrein);
    client.write("GET /v1/models HTTP/1.1\r\nhost: us\r\nx-slow: ");
    crawl(&mut client, std::iter::repeat_n(b'a', ENDLESS));
    still_answers(&hand, &toolrein);
}

#[test]
fn an_http_2_client_that_never_finishes_its_preface_is_given_up() {
    let (_hand, toolrein) = Hand::behind("limits.header_timeout = \"100ms\"\n");
    for begun in ["", "PRI * HTTP/2.0\r\n\r\nS", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        let mut client = Wire::to(&toolrein);
        client.write(begun);
        client.wait_for_hang_up();
    }
}

#[test]
fn a_client_whose_body_stops_is_told_so_on_every_route() {
    let (hand, toolrein) =
        Hand::behind("limits.body_timeout = \"100ms\"\nupstream.idle_timeout = \"100ms\"\n");
    for path in ["/v1/chat/completions", "/v1/files"] {
        let mut client = Wire::to(&toolrein);
        client.write(post(path, "{\"model\":\"m\"}").replace("\"}", ""));
        let (head, body) = client.response();
        assert_eq!((head.word(1), code(&body.unwrap()).as_str()), ("408", "request_timeout"), "{path}");
    }
    // The relayed request was already being sent to the upstream.
    hand.accept().wait_for_hang_up();
    still_answers(&hand, &toolrein);
}

#[test]
fn a_client_whose_body_drips_is_told_so_though_every_byte_comes_in_time() {
    let (hand, toolrein) = Hand::behind("limits.upload_timeout = \"300ms\"\n");
    for head in ["content-length: 60000", "transfer-encoding: chunked"] {
        let mut client = Wire::to(&toolrein);
        client.write(format!("POST /v1/chat/completions HTTP/1.1\r\nhost: us\r\n{head}\r\n\r\n"));
        client.stream().set_nonblocking(true).unwrap();
        // A byte of white space, or a chunk that holds one.
        let drop = if head.starts_with('t') { "1\r\n \r\n" } else { " " };
        until("an answer to a body that is not whole", || {
            let _ = client.reader.get_mut().write(drop.as_bytes());
            client.stream().peek(&mut [0]).is_ok().then_some(())
        });
        client.stream().set_nonblocking(false).unwrap();
        let (head, body) = client.response();
        assert_eq!((head.word(1), code(&body.unwrap()).as_str()), ("408", "request_timeout"));
    }
    assert!(!hand.waiting(), "nothing of it went up");
    still_answers(&hand, &toolrein);
}

#[test]
fn a_whole_reply_that_drips_is_given_up_when_its_client_leaves() {
    // Slow models send white space for minutes before their answer, so only the client knows how long is too long.
    let (hand, toolrein) = Hand::behind("upstream.first_byte_timeout = \"100ms\"\n");
    let mut client = Wire::to(&toolrein);
    client.write(chat(false));
    let mut upstream = hand.asked();
    upstream.write("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 60000\r\n\r\n");
    (0..100).for_each(|_| upstream.write(" "));
    drop(client);
    crawl(&mut upstream, std::iter::repeat_n(b' ', ENDLESS));
    toolrein.wait_for_metric("toolrein_client_gone_total", 1.0);
    still_answers(&hand, &toolrein);
}

#[test]
fn an_upstream_whose_head_crawls_is_given_up_though_every_byte_comes_in_time() {
    let (hand, toolrein) = Hand::behind("upstream.first_byte_timeout = \"300ms\"\n");
    for request in [chat(false), chat(true), post("/v1/files", "x")] {
        let mut client = Wire::to(&toolrein);
        client.write(request);
        let mut upstream = hand.asked();
        upstream.write("HTTP/1.1 200 OK\r\nx-slow: ");
        crawl(&mut upstream, std::iter::repeat_n(b'a', ENDLESS));
        let (head, body) = client.response();
        assert_eq!((head.word(1), code(&body.unwrap()).as_str()), ("504", "upstream_timeout"));
    }
}

#[test]
fn an_upstream_that_stops_in_the_middle_of_an_event_leaves_a_broken_stream() {
    let (hand, toolrein) = Hand::behind("upstream.idle_timeout = \"100ms\"\n");
    let mut client = Wire::to(&toolrein);
    client.write(chat(true));
    let mut upstream = hand.asked();
    upstream.write("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n");
    upstream.write("data: {\"choices\":[{\"delta\":{\"content\":\"one\"}}]}\n\ndata: {\"cho");
    let (_, body) = client.response();
    assert!(body.is_err(), "never a clean end");
    upstream.wait_for_hang_up();
}

#[test]
fn two_hundred_crawling_clients_keep_nobody_waiting() {
    let (hand, toolrein) = Hand::behind("");
    let crawling: Vec<Wire> = (0..200)
        .map(|nth| {
            let mut client = Wire::to(&toolrein);
            let begun = ["P", "POST /v1/chat/completions HTTP/1.1\r\nhost: us\r\ncontent-length: 9\r\n\r\n{"];
            client.write(begun[nth % 2]);
            client
        })
        .collect();
    for _ in 0..3 {
        still_answers(&hand, &toolrein);
    }
    drop(crawling);
}
