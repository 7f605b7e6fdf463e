//! Wrong lengths: bodies longer or shorter than declared, invalid chunks, heads and bodies without end. No byte of
//! one message ever appears in another.

use crate::faults::hand::{Hand, Wire, chat, code, peak, post, resident, still_answers};
use std::io::{Read as _, Write as _};

const SMUGGLED: &str = "HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\npoisoned";

#[test]
fn what_an_upstream_sends_beyond_its_length_answers_no_other_request() {
    let (hand, toolrein) = Hand::behind("");
    for path in ["/v1/models", "/v1/chat/completions"] {
        for together in [true, false] {
            let mut client = Wire::to(&toolrein);
            client.write(post(path, "{}"));
            let mut upstream = hand.asked();
            let first = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfine";
            if together {
                upstream.write(format!("{first}{SMUGGLED}"));
                assert_eq!(client.response().1.unwrap(), b"fine");
            } else {
                upstream.write(first);
                assert_eq!(client.response().1.unwrap(), b"fine");
                upstream.write(SMUGGLED);
            }
            upstream.wait_for_hang_up();
            client.write(post(path, "{}"));
            // It closes the connection, so that the next request does not meet one that is just being closed.
            hand.asked().write("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 3\r\n\r\nown");
            assert_eq!(client.response().1.unwrap(), b"own");
        }
    }
}

#[test]
fn what_a_client_sends_beyond_its_length_is_its_next_request_and_reaches_the_upstream_apart() {
    let (hand, toolrein) = Hand::behind("");
    let mut client = Wire::to(&toolrein);
    client.write(format!("{}GET /v1/second HTTP/1.1\r\nhost: us\r\n\r\n", post("/v1/first", "ab")));
    let mut upstream = hand.accept();
    let (head, body) = upstream.request();
    assert_eq!((head.word(1), &body[..]), ("/v1/first", &b"ab"[..]));
    upstream.write("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 1\r\n\r\n1");
    assert_eq!(client.response().1.unwrap(), b"1");
    let mut upstream = hand.accept();
    assert_eq!(upstream.head().word(1), "/v1/second");
    upstream.write("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n2");
    assert_eq!(client.response().1.unwrap(), b"2");
}

#[test]
fn a_response_whose_framing_cannot_be_read_is_a_502() {
    for framing in [
        "content-length: 4\r\ncontent-length: 5",
        "content-length: 4, 5",
        "content-length: -1",
        "content-length: 99999999999999999999",
        "content-length: four",
        "content-length 4",
    ] {
        let (hand, toolrein) = Hand::behind("");
        for request in [chat(false), post("/v1/files", "x")] {
            let mut client = Wire::to(&toolrein);
            client.write(request);
            hand.asked().write(format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\nfine{SMUGGLED}"));
            let (head, body) = client.response();
            assert_eq!((head.word(1), code(&body.unwrap()).as_str()), ("502", "upstream_cut"), "{framing}");
        }
        still_answers(&hand, &toolrein);
    }
}

/// Chunks that no server should accept.
const NO_CHUNKS: [&str; 6] = [
    "zz\r\nab\r\n",
    "-1\r\nab\r\n",
    "\r\nab\r\n",
    "2\r\nabcd\r\n0\r\n\r\n",
    "fffffffffffffffff\r\nab",
    "2 2\r\nab\r\n",
];

#[test]
fn an_invalid_chunk_from_the_upstream_breaks_the_reply_visibly() {
    let event = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"one\"}}]}\n\n";
    for bad in NO_CHUNKS {
        let (hand, toolrein) = Hand::behind("");
        for (request, kind, whole) in [
            (chat(true), "text/event-stream", false),
            (post("/v1/files", "x"), "text/plain", false),
            (chat(false), "application/json", true),
        ] {
            let mut client = Wire::to(&toolrein);
            client.write(request);
            let mut upstream = hand.asked();
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n");
            let begun = if whole { "{\"choices\":[" } else { event };
            upstream.write(format!("{head}{:x}\r\n{begun}\r\n{bad}", begun.len()));
            let (head, body) = client.response();
            if whole {
                assert_eq!((head.word(1), code(&body.unwrap()).as_str()), ("502", "upstream_cut"), "{bad:?}");
            } else {
                assert_eq!(head.word(1), "200");
                assert!(body.is_err(), "{bad:?}: never a clean end");
            }
        }
        still_answers(&hand, &toolrein);
    }
}

#[test]
fn an_invalid_chunk_from_the_client_never_ends_the_upstream_request_cleanly() {
    for bad in NO_CHUNKS {
        let (hand, toolrein) = Hand::behind("");
        for path in ["/v1/chat/completions", "/v1/files"] {
            let mut client = Wire::to(&toolrein);
            client.write(format!("POST {path} HTTP/1.1\r\nhost: us\r\ntransfer-encoding: chunked\r\n\r\n"));
            client.write(format!("2\r\n{{}}\r\n{bad}"));
            let _ = client.stream().shutdown(std::net::Shutdown::Write);
            let told = String::from_utf8_lossy(&client.rest()).into_owned();
            assert!(told.is_empty() || told.starts_with("HTTP/1.1 400 "), "{path} {bad:?}: {told}");
            if path == "/v1/files" {
                let seen = String::from_utf8_lossy(&hand.accept().rest()).into_owned();
                assert!(!seen.contains("\r\n0\r\n"), "{bad:?}: {seen}");
            }
        }
        still_answers(&hand, &toolrein);
    }
}

#[test]
fn an_oversized_request_head_is_refused() {
    let (hand, toolrein) = Hand::behind("");
    let before = resident(&toolrein);
    let long = format!("x-long: {}\r\n", "a".repeat(8 << 20));
    let many = "a: b\r\n".repeat(100_000);
    let target = format!("/v1/{}", "a".repeat(2 << 20));
    for (target, headers) in [("/v1/models", &long), ("/v1/models", &many), (target.as_str(), &String::new())]
    {
        let mut client = Wire::to(&toolrein);
        // It may be refused before it is all sent.
        let head = format!("GET {target} HTTP/1.1\r\nhost: us\r\n{headers}\r\n");
        let _ = client.reader.get_mut().write_all(head.as_bytes());
        let told = String::from_utf8_lossy(&client.rest()).into_owned();
        let refused = ["", "HTTP/1.1 431 ", "HTTP/1.1 414 ", "HTTP/1.1 400 "];
        assert!(refused.iter().any(|start| told.starts_with(start)) && !told.contains(" 200 "), "{told}");
    }
    assert!(resident(&toolrein) < before + (16 << 20));
    still_answers(&hand, &toolrein);
}

#[test]
fn an_oversized_reply_head_is_a_502() {
    let (hand, toolrein) = Hand::behind("");
    let before = peak(&toolrein);
    for headers in [format!("x-long: {}\r\n", "a".repeat(8 << 20)), "a: b\r\n".repeat(100_000)] {
        for request in [chat(true), post("/v1/files", "x")] {
            let mut client = Wire::to(&toolrein);
            client.write(request);
            let mut upstream = hand.asked();
            let _ =
                upstream.reader.get_mut().write_all(format!("HTTP/1.1 200 OK\r\n{headers}\r\n").as_bytes());
            let (head, body) = client.response();
            assert_eq!((head.word(1), code(&body.unwrap()).as_str()), ("502", "upstream_cut"));
        }
    }
    assert!(peak(&toolrein) < before + (16 << 20));
    still_answers(&hand, &toolrein);
}

#[test]
fn a_head_of_32_kib_passes_both_ways() {
    // As long as nginx accepts; tokens of some gateways fill a large part of it.
    let (hand, toolrein) = Hand::behind("");
    let token = "t".repeat(32 * 1024);
    let mut client = Wire::to(&toolrein);
    client.write(format!("GET /v1/models HTTP/1.1\r\nhost: us\r\nauthorization: {token}\r\n\r\n"));
    let mut upstream = hand.accept();
    assert_eq!(upstream.head().header("authorization"), Some(token.as_str()));
    upstream.write(format!("HTTP/1.1 200 OK\r\nx-token: {token}\r\ncontent-length: 0\r\n\r\n"));
    assert_eq!(client.head().header("x-token"), Some(token.as_str()));
}

#[test]
fn fifty_megabytes_pass_through_without_being_kept() {
    const LENGTH: usize = 50 << 20;
    let (hand, toolrein) = Hand::behind("");
    let before = peak(&toolrein);
    let mut client = Wire::to(&toolrein);
    // An odd length, so that all chunks differ.
    let block: Vec<u8> = (0..65_537_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 20) as u8).collect();
    let mut body = block.repeat(LENGTH / block.len() + 1);
    body.truncate(LENGTH);
    let sent = body.clone();
    let sending = std::thread::spawn(move || {
        client.write(format!("POST /v1/files HTTP/1.1\r\nhost: us\r\ncontent-length: {LENGTH}\r\n\r\n"));
        client.write(&sent);
        client.response().1.unwrap()
    });
    let mut upstream = hand.accept();
    upstream.head();
    let mut seen = vec![0; LENGTH];
    upstream.reader.read_exact(&mut seen).unwrap();
    assert!(seen == body);
    upstream.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {LENGTH}\r\n\r\n"));
    upstream.write(&seen);
    assert!(sending.join().unwrap() == body);
    assert!(peak(&toolrein) < before + (16 << 20), "{} MiB more", (peak(&toolrein) - before) >> 20);
}

#[test]
fn fifty_megabytes_on_a_governed_route_are_refused_without_being_read() {
    const LENGTH: usize = 50 << 20;
    let (hand, toolrein) = Hand::behind("");
    let before = peak(&toolrein);
    let mut client = Wire::to(&toolrein);
    client
        .write(format!("POST /v1/chat/completions HTTP/1.1\r\nhost: us\r\ncontent-length: {LENGTH}\r\n\r\n"));
    let (head, body) = client.response();
    assert_eq!((head.word(1), code(&body.unwrap()).as_str()), ("413", "request_too_large"));
    assert!(peak(&toolrein) < before + (8 << 20));
    still_answers(&hand, &toolrein);
}

#[test]
fn a_hundred_thousand_events_pass_and_none_is_kept() {
    let (hand, toolrein) = Hand::behind("");
    let before = peak(&toolrein);
    let mut client = Wire::to(&toolrein);
    client.write(chat(true));
    let mut upstream = hand.asked();
    let sending = std::thread::spawn(move || {
        upstream.write("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n");
        for nth in 0..1000 {
            let events: String = (0..100).map(|at| event(nth * 100 + at)).collect();
            upstream.write(events);
        }
        upstream.write("data: [DONE]\n\n");
    });
    let (_, body) = client.response();
    sending.join().unwrap();
    let expected: String = (0..100_000).map(event).chain(["data: [DONE]\n\n".into()]).collect();
    assert!(body.expect("a whole stream") == expected.as_bytes());
    assert!(peak(&toolrein) < before + (24 << 20), "{} MiB more", (peak(&toolrein) - before) >> 20);
}

fn event(nth: usize) -> String {
    format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{nth} \"}}}}]}}\n\n")
}
