//! Connections that break, on either side and at any moment of an exchange: the other side notices, an error says
//! whose fault it was, and nothing that is broken ends as if it were complete.

use crate::faults::hand::{Hand, Wire, answer, chat, code, post, still_answers};
use std::net::Shutdown;

const EVENTS: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
const EVENT: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"one\"}}]}\n\n";

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

/// How a connection ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Closed,
    Reset,
}

const ENDS: [End; 2] = [End::Closed, End::Reset];

impl End {
    fn of(self, wire: Wire) {
        match self {
            Self::Closed => drop(wire),
            Self::Reset => wire.reset(),
        }
    }
}

/// What a client gets if the connection ends after this beginning of an answer.
fn broken_behind(begun: &str, request: &str, end: End) -> (String, std::io::Result<Vec<u8>>) {
    let (hand, toolrein) = Hand::behind("");
    let mut client = Wire::to(&toolrein);
    client.write(request);
    let mut upstream = hand.asked();
    upstream.write(begun);
    if begun.contains("\r\n\r\n") && request.contains("\"stream\":true") {
        // A reset may overtake what was sent before it: the head is seen first.
        let head = client.head();
        end.of(upstream);
        let framing = head.framing(crate::support::http1::Framing::Close);
        let body = framing.read_all(&mut client.reader);
        still_answers(&hand, &toolrein);
        return (head.word(1).to_owned(), body);
    }
    end.of(upstream);
    let (head, body) = client.response();
    still_answers(&hand, &toolrein);
    (head.word(1).to_owned(), body)
}

#[test]
fn an_upstream_that_breaks_off_before_its_head_is_a_502() {
    for end in ENDS {
        for request in [chat(false), chat(true), post("/v1/files", "x")] {
            let (status, body) = broken_behind("", &request, end);
            assert_eq!((status.as_str(), code(&body.unwrap()).as_str()), ("502", "upstream_cut"), "{end:?}");
        }
    }
}

#[test]
fn an_upstream_that_breaks_off_within_its_head_is_a_502() {
    for end in ENDS {
        for request in [chat(false), chat(true), post("/v1/files", "x")] {
            let (status, body) = broken_behind("HTTP/1.1 200 OK\r\ncontent-ty", &request, end);
            assert_eq!((status.as_str(), code(&body.unwrap()).as_str()), ("502", "upstream_cut"), "{end:?}");
        }
    }
}

#[test]
fn an_upstream_that_breaks_off_behind_its_head_leaves_a_broken_stream() {
    for end in ENDS {
        let (status, body) = broken_behind(EVENTS, &chat(true), end);
        assert_eq!(status, "200");
        assert!(body.is_err(), "{end:?}: never a clean end");
    }
}

#[test]
fn an_upstream_that_breaks_off_between_two_events_leaves_a_broken_stream() {
    for end in ENDS {
        let (_, body) = broken_behind(&format!("{EVENTS}{}", chunk(EVENT)), &chat(true), end);
        assert!(body.is_err(), "{end:?}: never a clean end");
    }
}

#[test]
fn an_upstream_that_breaks_off_within_an_event_leaves_a_broken_stream() {
    for end in ENDS {
        for begun in [chunk("data: {\"choices\":[{\"ind"), "40\r\ndata: {\"cho".to_owned()] {
            let (_, body) = broken_behind(&format!("{EVENTS}{begun}"), &chat(true), end);
            assert!(body.is_err(), "{end:?}: never a clean end");
        }
    }
}

/// Heads of streams that end with their connection.
const CLOSING: [&str; 2] = [
    "HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n",
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n",
];
const FINISH: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}";

/// The body of a stream that the upstream closes after `begun`, and whether it ends cleanly.
fn closed_behind(head: &str, begun: &str) -> (String, bool) {
    let (hand, toolrein) = Hand::behind("");
    let mut client = Wire::to(&toolrein);
    client.write(chat(true).replace("host: us\r\n", "host: us\r\nconnection: close\r\n"));
    let mut upstream = hand.asked();
    upstream.write(head);
    let head = client.head();
    upstream.write(begun);
    drop(upstream);
    assert_eq!(head.word(1), "200");
    let body = String::from_utf8(client.rest()).unwrap();
    still_answers(&hand, &toolrein);
    let ends = body.ends_with("0\r\n\r\n");
    (body, ends)
}

#[test]
fn a_stream_closed_without_an_end_marker_is_reported_as_cut() {
    for head in CLOSING {
        for begun in [
            String::new(),
            EVENT.to_owned(),
            "data: {\"choices\":[{\"ind".to_owned(),
            format!("{EVENT}data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"tool"),
            format!("{EVENT}dat"),
            format!("{EVENT}: a comment\n\n"),
            format!("{EVENT}{}", FINISH.replace(":0", ":1")),
            format!("{EVENT}{FINISH}\n\ndata: [DO"),
        ] {
            let (body, ends) = closed_behind(head, &begun);
            assert!(!ends, "{begun}: never a clean end");
            let error = body.find("data: {\"error\":{").map(|at| &body[at..]).unwrap_or_default();
            assert!(error.contains("\"code\":\"upstream_cut\""), "{begun}: {body}");
            assert!(
                !body.contains("{\"tool") && !body.contains("[{\"ind\r"),
                "nothing of the broken event: {body}"
            );
        }
    }
}

#[test]
fn a_stream_closed_after_its_finish_reason_is_complete() {
    for head in CLOSING {
        for begun in [
            format!("{EVENT}{FINISH}\n\n"),
            format!("{EVENT}{FINISH}\n\n: bye"),
            format!("{EVENT}{FINISH}"),
            format!("{EVENT}{FINISH}\ndata: [DONE]"),
            format!("{EVENT}data: [DONE]\n\n"),
            format!("{EVENT}data: [DONE]"),
            format!("{EVENT}data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":1}}}}\n\n"),
            format!("{EVENT}data: {{\"error\":{{\"message\":\"overloaded\"}}}}\n\n"),
            "{\"error\":{\"message\":\"overloaded\"}}".to_owned(),
        ] {
            let (body, ends) = closed_behind(head, &begun);
            assert!(ends && !body.contains("upstream_cut"), "{begun}: {body}");
        }
    }
}

#[test]
fn an_upstream_that_breaks_off_within_a_whole_reply_is_a_502_and_nothing_of_it_is_shown() {
    let begun = answer("never shown");
    for end in ENDS {
        let (status, body) = broken_behind(&begun[..begun.len() - 9], &chat(false), end);
        let body = body.unwrap();
        assert_eq!((status.as_str(), code(&body).as_str()), ("502", "upstream_cut"), "{end:?}");
        assert!(!String::from_utf8(body).unwrap().contains("never"));
    }
}

#[test]
fn an_upstream_that_answers_before_it_has_read_the_request_is_heard() {
    let (hand, toolrein) = Hand::behind("");
    let mut client = Wire::to(&toolrein);
    client.write("POST /v1/files HTTP/1.1\r\nhost: us\r\ncontent-length: 1000000\r\n\r\n0123456789");
    let mut upstream = hand.accept();
    upstream.head();
    upstream.write("HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno");
    let (head, body) = client.response();
    assert_eq!((head.word(1), &body.unwrap()[..]), ("403", &b"no"[..]));
    // The client had more to send, so the upstream's connection is not used again.
    drop(client);
    upstream.wait_for_hang_up();
    still_answers(&hand, &toolrein);
}

#[test]
fn a_client_that_resets_at_any_moment_lets_the_upstream_go() {
    let (hand, toolrein) = Hand::behind("");
    for begun in ["", "HTTP/1.1 200 OK\r\ncontent-ty", EVENTS, &format!("{EVENTS}{}", chunk(EVENT))] {
        let mut client = Wire::to(&toolrein);
        client.write(chat(true));
        let mut upstream = hand.asked();
        upstream.write(begun);
        client.reset();
        upstream.wait_for_hang_up();
    }
    still_answers(&hand, &toolrein);
    toolrein.wait_for_metric("toolrein_client_gone_total", 4.0);
}

#[test]
fn a_client_that_closes_its_sending_half_has_gone_and_the_upstream_is_let_go() {
    // HTTP/1.1 cannot distinguish this from a client that has left, and every further reply would be paid for.
    let (hand, toolrein) = Hand::behind("");
    let mut client = Wire::to(&toolrein);
    client.write(chat(false));
    let mut upstream = hand.asked();
    client.stream().shutdown(Shutdown::Write).unwrap();
    upstream.wait_for_hang_up();
    toolrein.wait_for_metric("toolrein_client_gone_total", 1.0);
}

#[test]
fn an_upstream_may_close_its_sending_half_after_a_whole_reply() {
    let (hand, toolrein) = Hand::behind("");
    let mut client = Wire::to(&toolrein);
    for _ in 0..2 {
        client.write(chat(false));
        let mut upstream = hand.asked();
        upstream.write(answer("whole"));
        upstream.stream().shutdown(Shutdown::Write).unwrap();
        let (head, body) = client.response();
        assert_eq!(head.word(1), "200");
        assert!(String::from_utf8(body.unwrap()).unwrap().contains("whole"));
        upstream.wait_for_hang_up();
    }
}
