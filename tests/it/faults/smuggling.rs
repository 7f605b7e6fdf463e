//! Request smuggling and header injection: a request that two readers could take for two different ones is refused,
//! or sent to the upstream in one form that every reader understands in the same way. No part of a value becomes a
//! header.

use crate::faults::hand::{Hand, Wire, still_answers};

/// What the client sends after its request: a second request that must reach the upstream as a request or not at all.
const SECOND: &str = "GET /v1/smuggled HTTP/1.1\r\nhost: us\r\n\r\n";

/// Everything that the upstream receives, read until the program closes the connection; `None` if it receives
/// nothing.
fn seen_of(raw: &str) -> (String, Option<String>) {
    let (hand, toolrein) =
        Hand::behind("upstream.idle_timeout = \"300ms\"\nlimits.body_timeout = \"300ms\"\n");
    let mut client = Wire::to(&toolrein);
    client.write(raw);
    let _ = client.stream().shutdown(std::net::Shutdown::Write);
    let told = String::from_utf8_lossy(&client.rest()).into_owned();
    let refused = told.starts_with("HTTP/1.1 400 ") || told.starts_with("HTTP/1.1 408 ") || told.is_empty();
    assert!(refused, "{raw:?}: {told}");
    let reached = hand.waiting();
    let seen = reached.then(|| String::from_utf8_lossy(&hand.accept().rest()).into_owned());
    still_answers(&hand, &toolrein);
    (told, seen)
}

#[test]
fn a_request_whose_length_can_be_read_in_two_ways_reaches_no_upstream() {
    for head in [
        // Two lengths.
        "content-length: 5\r\ncontent-length: 6",
        "content-length: 5, 6",
        "content-length: 6\r\nContent-Length : 5",
        "content-length: +5",
        "content-length: 0x5",
        "content-length: 5 5",
        "content-length: -5",
        "content-length: 99999999999999999999",
        "content-length:",
        // Chunks that are not the last coding, or no coding at all.
        "transfer-encoding: chunked, identity",
        "transfer-encoding: gzip",
        "transfer-encoding: xchunked",
        "transfer-encoding: chunked\r\ntransfer-encoding: identity",
        "transfer-encoding: \"chunked\"",
        // Names that some readers trim.
        "transfer-encoding : chunked",
        "content-length : 5",
        // Continued lines.
        "transfer-encoding:\r\n chunked",
        "x-a: b\r\n content-length: 5",
        " content-length: 5",
        // Line ends inside of values, and other bytes that end a line for some.
        "x-a: b\rcontent-length: 5",
        "x-a: b\0c",
        "x-a\r\ncontent-length: 5",
        ": nameless",
        "x a: b",
    ] {
        for path in ["/v1/chat/completions", "/v1/files"] {
            let raw = format!("POST {path} HTTP/1.1\r\nhost: us\r\n{head}\r\n\r\nhello{SECOND}");
            let (told, seen) = seen_of(&raw);
            assert_eq!(seen, None, "{path} {head:?}: {told}");
        }
    }
}

#[test]
fn a_request_with_both_length_and_chunks_is_forwarded_unambiguously_or_refused() {
    for head in [
        "content-length: 5\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ncontent-length: 5",
        "transfer-encoding: Chunked\r\ncontent-length: 500",
    ] {
        let (hand, toolrein) = Hand::behind("");
        let mut client = Wire::to(&toolrein);
        client.write(format!(
            "POST /v1/files HTTP/1.1\r\nhost: us\r\n{head}\r\n\r\n2\r\nab\r\n0\r\n\r\n{SECOND}"
        ));
        if !hand.comes_or_is_refused(&client) {
            continue;
        }
        let mut upstream = hand.accept();
        let (seen, body) = upstream.request();
        assert_eq!(body, b"ab");
        let both = seen.header("content-length").is_some() && seen.header("transfer-encoding").is_some();
        assert!(!both, "{head}: {seen:?}");
        upstream.write("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 1\r\n\r\n1");
        // RFC 9112, section 6.1: the connection is not to be trusted any further.
        let rest = String::from_utf8_lossy(&client.rest()).into_owned();
        assert_eq!(rest.matches("HTTP/1.1 ").count(), 1, "{head}: {rest}");
    }
}

#[test]
fn equal_lengths_said_twice_are_one_length_at_the_upstream() {
    let (hand, toolrein) = Hand::behind("");
    let mut client = Wire::to(&toolrein);
    client.write("POST /v1/files HTTP/1.1\r\nhost: us\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\nab");
    if hand.comes_or_is_refused(&client) {
        let (head, body) = hand.accept().request();
        let lengths = head.headers.iter().filter(|(name, _)| name == "content-length").count();
        assert_eq!((lengths, &body[..]), (1, &b"ab"[..]));
    }
}

#[test]
fn bare_line_feeds_in_a_request_head_are_forwarded_as_crlf() {
    let (hand, toolrein) = Hand::behind("");
    let mut client = Wire::to(&toolrein);
    client.write("POST /v1/files HTTP/1.1\nhost: us\ncontent-length: 2\nx-a: b\n\nab");
    if hand.comes_or_is_refused(&client) {
        let mut upstream = hand.accept();
        let raw = String::from_utf8(upstream.until("\r\n\r\nab")).unwrap();
        assert_eq!(raw.matches('\n').count(), raw.matches("\r\n").count(), "{raw:?}");
        assert!(raw.contains("\r\nx-a: b\r\n"), "{raw:?}");
    }
}

#[test]
fn a_conversation_name_from_a_body_injects_no_header_and_no_event() {
    // It comes back in a header and, where something acted, stands in logs: the body may hold what no header may.
    let (hand, toolrein) = Hand::behind("");
    for name in ["a\\r\\nset-cookie: x", "a\\nevil: 1", "\\u0000", "\\u001b[2J", "a\\u2028b"] {
        let body = crate::faults::hand::question(false);
        let body = body.replacen('{', &format!("{{\"metadata\":{{\"session_id\":\"{name}\"}},"), 1);
        let mut client = Wire::to(&toolrein);
        client.write(crate::faults::hand::post("/v1/chat/completions", &body));
        hand.asked().write(crate::faults::hand::answer("ok"));
        let (head, _) = client.response();
        let shown = head.header("x-toolrein-conversation").unwrap();
        let is_hash = shown.len() == 32 && shown.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(is_hash, "{name}: its hash stands for it, not {shown:?}");
        assert!(head.header("set-cookie").is_none() && head.header("evil").is_none());
    }
}

#[test]
fn headers_that_are_toolreins_own_reach_no_upstream_whatever_the_route_and_the_spelling() {
    let (hand, toolrein) = Hand::behind("");
    let own =
        "x-toolrein-profile: \r\nX-ToolRein-Conversation: c\r\nx-toolrein-anything: 1\r\nX-TOOLREIN-: 2\r\n";
    let question = crate::faults::hand::question(false);
    let requests = [
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: us\r\nx-toolrein-conversation: c\r\nx-toolrein-anything: 1\r\ncontent-length: {}\r\n\r\n{question}",
            question.len()
        ),
        format!("POST /v1/chat/completions HTTP/1.1\r\nhost: us\r\n{own}content-length: 8\r\n\r\nnot json"),
        format!("GET /v1/models HTTP/1.1\r\nhost: us\r\n{own}\r\n"),
        format!(
            "GET /v1/realtime HTTP/1.1\r\nhost: us\r\nconnection: upgrade\r\nupgrade: websocket\r\n{own}\r\n"
        ),
    ];
    for request in requests {
        let mut client = Wire::to(&toolrein);
        client.write(&request);
        let mut upstream = hand.accept();
        let (head, _) = upstream.request();
        let leaked: Vec<_> = head.headers.iter().filter(|(name, _)| name.starts_with("x-toolrein")).collect();
        assert!(leaked.is_empty(), "{request}: {leaked:?}");
    }
}
