//! HTTP/2, frame by frame: a protocol violation ends its own connection, a flood is stopped, and unknown frames are
//! ignored. The cases are of the kind that h2spec has, as far as the owner of a proxy depends on them.

use crate::faults::hand::{GENEROUS, Hand, Wire, answer, chat, peak, question};
use crate::support::client::post;
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::Scripted;
use std::io::{Read as _, Write as _};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// `GET http://us/`, as indexed and literal fields.
const GET: &[u8] = &[0x82, 0x86, 0x84, 0x41, 2, b'u', b's'];

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn stage() -> (Scripted, Toolrein) {
    let upstream = Scripted::start(|_, request| Reply::speech(request, &Speech::text("ok")));
    let toolrein = Toolrein::before(&upstream, GENEROUS);
    (upstream, toolrein)
}

/// A connection on which both sides have sent their settings.
fn open(toolrein: &Toolrein) -> Wire {
    let mut client = Wire::to(toolrein);
    client.write([PREFACE, &frame(SETTINGS, 0, 0, &[])].concat());
    client
}

/// The next frame: kind, stream and payload.
fn next(client: &mut Wire) -> Option<(u8, u32, Vec<u8>)> {
    let mut head = [0; 9];
    client.reader.read_exact(&mut head).ok()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    let mut payload = vec![0; length];
    client.reader.read_exact(&mut payload).ok()?;
    Some((head[3], u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & (u32::MAX >> 1), payload))
}

/// Reads up to the first frame of this kind; `None` where the connection ends before.
fn until(client: &mut Wire, kind: u8) -> Option<(u32, Vec<u8>)> {
    std::iter::from_fn(|| next(client))
        .find(|(found, ..)| *found == kind)
        .map(|(_, stream, payload)| (stream, payload))
}

#[test]
fn frames_that_break_the_protocol_end_their_connection_and_no_other() {
    let (_upstream, toolrein) = stage();
    let get = |stream| frame(HEADERS, END_STREAM | END_HEADERS, stream, GET);
    let cases: [(&str, Vec<u8>); 11] = [
        ("a frame longer than was agreed on", frame(DATA, 0, 1, &[0; 16_385])),
        ("data for no stream", frame(DATA, END_STREAM, 0, b"x")),
        ("data of a stream that was never opened", frame(DATA, END_STREAM, 1, b"x")),
        ("a stream of the server's, opened by the client", get(2)),
        ("a stream with a lower number than the last", [get(5), get(3)].concat()),
        ("a window that grows by nothing", frame(WINDOW, 0, 0, &[0; 4])),
        ("a window that overflows", frame(WINDOW, 0, 0, &[0x7f, 0xff, 0xff, 0xff]).repeat(2)),
        ("an acknowledgement with a payload", frame(SETTINGS, 1, 0, &[0; 6])),
        ("a ping of an odd length", frame(PING, 0, 0, &[0; 7])),
        ("a head that goes on without having begun", frame(CONTINUATION, END_HEADERS, 1, GET)),
        ("a head that cannot be unpacked", frame(HEADERS, END_STREAM | END_HEADERS, 1, &[0xff; 16])),
    ];
    for (name, bytes) in cases {
        let mut client = open(&toolrein);
        let mut other = open(&toolrein);
        client.write(bytes);
        assert!(until(&mut client, GOAWAY).is_some_and(|(_, payload)| payload[4..8] != [0; 4]), "{name}");
        client.wait_for_hang_up();
        other.write(frame(PING, 0, 0, b"12345678"));
        assert_eq!(until(&mut other, PING).expect(name).1, b"12345678");
    }
}

#[test]
fn frames_of_a_kind_that_nobody_knows_are_passed_over() {
    let (_upstream, toolrein) = stage();
    let mut client = open(&toolrein);
    client.write(frame(0xbb, 0xff, 0, b"what is it"));
    client.write(frame(HEADERS, END_STREAM | END_HEADERS, 1, GET));
    assert_eq!(until(&mut client, HEADERS).expect("an answer").0, 1);
}

#[test]
fn a_head_that_never_ends_is_stopped_and_not_kept() {
    let (_upstream, toolrein) = stage();
    let before = peak(&toolrein);
    let mut client = open(&toolrein);
    client.write(frame(HEADERS, END_STREAM, 1, GET));
    // A literal field without a place in the table: `x: aaa...`
    let field = [&[0, 1, b'x', 0x7f, 0xe9, 0x7d][..], &[b'a'; 16_104]].concat();
    let more = frame(CONTINUATION, 0, 1, &field);
    // At most 160 MB; it is stopped far earlier, by a hang-up.
    let taken = (0..10_000).take_while(|_| client.reader.get_mut().write_all(&more).is_ok()).count();
    assert!(taken < 10_000, "nobody stopped it");
    assert!(peak(&toolrein) < before + (8 << 20));
    assert_eq!(post(&toolrein.chat_url(), question(false)).status, 200);
}

#[test]
fn hints_of_an_http_2_upstream_are_passed_over_and_the_answer_comes_whole() {
    let (hand, toolrein) = Hand::behind("upstream.http2 = true\n");
    let mut client = Wire::to(&toolrein);
    client.write(chat(false));
    let mut upstream = hand.accept();
    upstream.until("SM\r\n\r\n");
    upstream.write(frame(SETTINGS, 0, 0, &[]));
    for _ in 0..2 {
        let (stream, _) = until(&mut upstream, DATA).expect("the request's body");
        // Literal fields: `:status` by its place in the table, `link` by name.
        let hint = |status: &[u8; 3]| [&[8, 3][..], status, &[0, 4], b"link", &[3], b"</>"].concat();
        for status in [b"100", b"103", b"103", b"199"] {
            upstream.write(frame(HEADERS, END_HEADERS, stream, &hint(status)));
        }
        upstream.write(frame(HEADERS, END_HEADERS, stream, &[0x88]));
        let body = answer("after the hints");
        let body = body.split("\r\n\r\n").nth(1).unwrap();
        upstream.write(frame(DATA, END_STREAM, stream, body.as_bytes()));
        let (head, got) = client.response();
        assert_eq!((head.word(1), head.header("link")), ("200", None));
        assert_eq!(String::from_utf8(got.unwrap()).unwrap(), body);
        // Once more on the same connection.
        client.write(chat(false));
    }
}

#[test]
fn rapid_http2_stream_resets_do_not_disturb_other_clients() {
    let (upstream, toolrein) = stage();
    let before = peak(&toolrein);
    let mut client = open(&toolrein);
    let take_back = |nth: u32| {
        let stream = 2 * nth + 1;
        [frame(HEADERS, END_STREAM | END_HEADERS, stream, GET), frame(RESET, 0, stream, &[0, 0, 0, 8])]
            .concat()
    };
    // The connection may be closed before the end.
    let _ = (0..5_000).try_for_each(|nth| client.reader.get_mut().write_all(&take_back(nth)));
    assert_eq!(post(&toolrein.chat_url(), question(false)).status, 200);
    drop(client);
    toolrein.wait_for_metric("toolrein_connections", 0.0);
    assert!(peak(&toolrein) < before + (32 << 20));
    assert!(upstream.requests().len() <= 5_001);
}
