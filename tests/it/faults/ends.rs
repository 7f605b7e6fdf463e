//! The machine runs out of something, or ends the program: descriptors, time, the process itself. Running requests
//! finish or break visibly, and later requests are served again.

use crate::faults::hand::{GENEROUS, Hand, Wire, answer, chat, still_answers};
use crate::support::client::get;
use crate::support::program::{self, Toolrein, before};
use crate::support::until;
use std::net::TcpStream;

const EVENTS: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";

fn event(text: &str) -> String {
    format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
}

/// The client and the upstream of a stream of which one event was sent.
fn begun_stream(hand: &Hand, toolrein: &Toolrein) -> (Wire, Wire) {
    let mut client = Wire::to(toolrein);
    client.write(chat(true));
    let mut upstream = hand.asked();
    upstream.write(format!("{EVENTS}{}", event("one")));
    client.head();
    (client, upstream)
}

/// How often the program logged that it cannot accept a connection.
fn complaints(toolrein: &Toolrein) -> usize {
    toolrein.logs().iter().filter(|line| line.contains("accepting a connection failed")).count()
}

fn address(toolrein: &Toolrein) -> String {
    toolrein.origin().trim_start_matches("http://").to_owned()
}

#[test]
fn a_program_out_of_descriptors_serves_again_once_some_are_free() {
    let hand = Hand::open();
    let config = before(&hand.base_url(), crate::faults::hand::GENEROUS);
    let toolrein = Toolrein::start_with_descriptors(&config, 64);
    still_answers(&hand, &toolrein);
    let crowd: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(address(&toolrein)).unwrap()).collect();
    until("the descriptors to run out", || (complaints(&toolrein) > 0).then_some(()));
    drop(crowd);
    toolrein.wait_for_metric("toolrein_connections", 0.0);
    still_answers(&hand, &toolrein);
    assert_eq!(get(&format!("{}/readyz", toolrein.admin_url())).status, 200);
    let complaints = complaints(&toolrein);
    assert!(complaints < 30, "{complaints} lines: it pauses rather than spins");
}

#[test]
fn a_request_without_a_free_file_descriptor_gets_an_error_and_the_next_one_succeeds() {
    let hand = Hand::open();
    let config = before(&hand.base_url(), crate::faults::hand::GENEROUS);
    let toolrein = Toolrein::start_with_descriptors(&config, 64);
    // One of them is accepted before the last descriptor is taken, and asks only then.
    let mut clients: Vec<Wire> = (0..100).map(|_| Wire::to(&toolrein)).collect();
    until("the descriptors to run out", || (complaints(&toolrein) > 0).then_some(()));
    let mut first = clients.remove(0);
    first.write(chat(false));
    let (head, body) = first.response();
    assert_eq!(head.word(1), "502");
    assert_eq!(crate::faults::hand::code(&body.unwrap()), "upstream_unreachable");
    drop(clients);
    toolrein.wait_for_metric("toolrein_connections", 1.0);
    first.write(chat(false));
    hand.asked().write(answer("again"));
    assert_eq!(first.head().word(1), "200");
}

#[test]
fn nothing_that_has_begun_is_dropped_when_the_program_is_asked_to_end() {
    drops_nothing(Hand::behind(""));
}

#[test]
fn nothing_that_has_begun_is_dropped_on_one_processor_either() {
    let hand = Hand::open();
    let toolrein = Toolrein::start_on_one_processor(&program::before(&hand.base_url(), GENEROUS));
    drops_nothing((hand, toolrein));
}

fn drops_nothing((hand, mut toolrein): (Hand, Toolrein)) {
    // One client whose stream runs, one whose request waits for its answer, one in the middle of its body, one in the
    // middle of its head, one that has said nothing yet, and one on whose connection a request was answered before.
    let (mut streaming, mut stream) = begun_stream(&hand, &toolrein);
    let mut waiting = Wire::to(&toolrein);
    waiting.write(chat(false));
    let mut asked = hand.asked();
    let request = chat(false);
    let mut in_its_body = Wire::to(&toolrein);
    in_its_body.write(&request[..request.len() - 10]);
    let mut in_its_head = Wire::to(&toolrein);
    in_its_head.write(&request[..20]);
    let mut silent = Wire::to(&toolrein);
    toolrein.terminate();
    until("the listener to close", || TcpStream::connect(address(&toolrein)).is_err().then_some(()));
    in_its_body.write(&request[request.len() - 10..]);
    hand.asked().write(answer("body"));
    in_its_head.write(&request[20..]);
    hand.asked().write(answer("head"));
    silent.write(&request);
    hand.asked().write(answer("silent"));
    asked.write(answer("waiting"));
    for (client, word) in [
        (&mut in_its_body, "body"),
        (&mut in_its_head, "head"),
        (&mut silent, "silent"),
        (&mut waiting, "waiting"),
    ] {
        let (head, body) = client.response();
        assert_eq!((head.word(1), head.header("connection")), ("200", Some("close")), "{word}");
        assert!(String::from_utf8(body.unwrap()).unwrap().contains(word));
    }
    stream.write(event("two"));
    stream.write("data: [DONE]\n\n");
    drop(stream);
    let rest = String::from_utf8(streaming.rest()).unwrap();
    assert!(rest.contains("two") && rest.ends_with("0\r\n\r\n"), "{rest}");
    assert!(toolrein.wait().success());
}

#[test]
fn every_request_of_a_crowd_is_answered_or_was_never_taken_when_the_program_ends() {
    let upstream = crate::support::scripted::Scripted::start(|_, request| {
        let speech = crate::support::reply::Speech::text("one two three");
        crate::support::reply::Reply::speech(request, &speech)
    });
    let mut toolrein = Toolrein::before(&upstream, crate::faults::hand::GENEROUS);
    let address = address(&toolrein);
    let whole = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for nth in 0..8 {
            let (address, whole) = (&address, &whole);
            scope.spawn(move || {
                let request = chat(nth % 2 == 0);
                while let Ok(stream) = TcpStream::connect(address) {
                    let mut client = Wire::new(stream);
                    if std::io::Write::write_all(client.reader.get_mut(), request.as_bytes()).is_err() {
                        break;
                    }
                    // A connection that the kernel accepted and the program did not is reset before the first byte of
                    // an answer.
                    let Ok(Some(head)) = crate::support::http1::Head::read(&mut client.reader) else { break };
                    assert_eq!(head.word(1), "200");
                    let body =
                        head.framing(crate::support::http1::Framing::Close).read_all(&mut client.reader);
                    assert!(body.expect("a whole answer").ends_with(if nth % 2 == 0 {
                        b"[DONE]\n\n"
                    } else {
                        b"}"
                    }));
                    whole.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                }
            });
        }
        until("a crowd", || (whole.load(std::sync::atomic::Ordering::Relaxed) > 100).then_some(()));
        toolrein.terminate();
    });
    assert!(toolrein.wait().success(), "nothing was cut");
    let answered = upstream.requests().len();
    assert_eq!(answered, whole.into_inner(), "whatever reached the upstream reached its client");
}

#[test]
fn a_killed_program_leaves_broken_streams_and_its_successor_counts_on_from_the_conversation() {
    let (hand, mut toolrein) = Hand::behind("");
    let (mut client, mut upstream) = begun_stream(&hand, &toolrein);
    toolrein.kill();
    let rest = String::from_utf8(client.rest()).unwrap();
    assert!(!rest.ends_with("0\r\n\r\n"), "never a clean end: {rest}");
    upstream.wait_for_hang_up();
    let budget = "[policy.budget]\ntool_calls = 2\nnotify_at = [1.0]\n";
    let toolrein = crate::faults::hand::before(&hand.base_url(), budget);
    let call = |id: &str| serde_json::json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let history = serde_json::json!({"model": "m", "messages": [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": null, "tool_calls": [call("a")]},
        {"role": "tool", "tool_call_id": "a", "content": "r"},
    ], "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]});
    let mut client = Wire::to(&toolrein);
    client.write(crate::faults::hand::post("/v1/chat/completions", &history.to_string()));
    let message =
        serde_json::json!({"role": "assistant", "content": null, "tool_calls": [call("b"), call("c")]});
    let body =
        serde_json::json!({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]});
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    hand.asked().write(head + &body);
    let (head, body) = client.response();
    assert_eq!(head.header("x-toolrein-actions"), Some("budget=blocked"));
    let body: serde_json::Value = serde_json::from_slice(&body.unwrap()).unwrap();
    assert_eq!(
        body["choices"][0]["message"]["tool_calls"],
        serde_json::json!([call("b")]),
        "the third is one too many"
    );
}

#[test]
fn an_audit_file_cut_in_mid_line_continues_on_a_new_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit");
    std::fs::write(&file, "{\"timestamp\":\"2026-01-01T00:00:00Z\"}\n{\"timestamp\":\"20").unwrap();
    let upstream = crate::support::scripted::Scripted::start(|_, request| {
        let speech = crate::support::reply::Speech::calls(&[("c", "f", "{}")]);
        crate::support::reply::Reply::speech(request, &speech)
    });
    let settings = format!("audit.file = {file:?}\n[policy.budget]\n");
    let toolrein = Toolrein::before(&upstream, &settings);
    let mut client = Wire::to(&toolrein);
    client.write(chat(false));
    assert_eq!(client.response().0.word(1), "200");
    toolrein.stop();
    let text = std::fs::read_to_string(&file).unwrap();
    let last = text.lines().last().unwrap();
    assert!(serde_json::from_str::<serde_json::Value>(last).is_ok(), "{text}");
    assert_eq!(text.lines().count(), 3, "{text}");
}
