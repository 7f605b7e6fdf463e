//! More bodies at once than `limits.total_bytes` has room for: some wait and go on, the others are refused in time,
//! and at the end no memory is reserved.

use crate::support::client::{Connection, Request, Response, Stream};
use crate::support::program::Toolrein;
use crate::support::reply::{Gate, Reply};
use crate::support::scripted::Scripted;
use crate::support::until;
use serde_json::json;
use std::thread::JoinHandle;

/// Room for one request of 200 KiB at a time, and for one reply of 100 KiB with its copy.
const TINY: &str = "limits.total_bytes = \"512KiB\"\nlimits.request_bytes = \"256KiB\"\nlimits.reply_bytes = \"128KiB\"\n\
                    limits.event_bytes = \"64KiB\"\nlimits.held_bytes = \"64KiB\"\n[policy.budget]\n";
const HELD: &str = "toolrein_body_bytes";

fn body(text_bytes: usize, stream: bool) -> String {
    let (text, tools) = ("x".repeat(text_bytes), json!([{"type": "function", "function": {"name": "f"}}]));
    json!({"model": "m", "stream": stream, "tools": tools, "messages": [{"role": "user", "content": text}]})
        .to_string()
}

fn send(program: &Toolrein, text_bytes: usize) -> JoinHandle<Response> {
    let request = Request::post(&program.chat_url(), body(text_bytes, false));
    std::thread::spawn(move || request.send())
}

/// A large reply in pieces, which stops after `pieces` of 20 KB until the gate opens.
fn reply(pieces: usize, gate: &Gate) -> Reply {
    let mut reply = Reply::text(&"y".repeat(100_000)).in_pieces_of(20_000);
    reply.streamed = true;
    reply.held_after(pieces, gate)
}

fn is_refused(reply: &Response) {
    assert_eq!(reply.status, 503, "{}", reply.text());
    let error = &reply.json()["error"];
    assert_eq!((&error["type"], &error["code"]), (&json!("toolrein_error"), &json!("out_of_memory")));
    assert_eq!((reply.header("retry-after"), reply.header("x-should-retry")), (Some("5"), Some("true")));
}

fn holds_nothing(program: &Toolrein) {
    program.wait_for_metric(HELD, 0.0);
}

#[test]
fn requests_wait_for_memory_in_their_order_and_all_are_answered() {
    let gates = [(); 3].map(|()| Gate::shut());
    let held = gates.clone();
    let upstream = Scripted::start(move |nth, _| Reply::text("Fine.").held(&held[nth]));
    let program = Toolrein::before(&upstream, TINY);
    let asking: Vec<_> = (0..3).map(|_| send(&program, 200 * 1024)).collect();
    for (nth, gate) in gates.iter().enumerate() {
        upstream.request(nth);
        assert_eq!(upstream.requests().len(), nth + 1, "the others wait");
        assert!((200_000.0..=262_144.0).contains(&program.metric(HELD)), "{}", program.metric(HELD));
        gate.open();
    }
    for asked in asking {
        assert_eq!(asked.join().unwrap().status, 200);
    }
    holds_nothing(&program);
}

#[test]
fn a_request_that_waits_too_long_is_refused_and_small_ones_go_on_meanwhile() {
    let gate = Gate::shut();
    let held = gate.clone();
    let upstream = Scripted::start(move |nth, _| match nth {
        0 => Reply::text("Fine.").held(&held),
        _ => Reply::text("Small."),
    });
    let program = Toolrein::before(&upstream, &format!("limits.body_timeout = \"300ms\"\n{TINY}"));
    let first = send(&program, 200 * 1024);
    upstream.request(0);
    is_refused(&send(&program, 200 * 1024).join().unwrap());
    // Of unknown length: it gets what is left, and no more.
    let mut chunked = Connection::open(&program.chat_url());
    chunked.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: us\r\ntransfer-encoding: chunked\r\n\r\n");
    let text = body(100 * 1024, false);
    chunked.write(format!("{:x}\r\n{text}\r\n0\r\n\r\n", text.len()).as_bytes());
    is_refused(&chunked.response().rest());
    assert_eq!(send(&program, 4 * 1024).join().unwrap().status, 200, "small bodies are not counted");
    gate.open();
    assert_eq!(first.join().unwrap().status, 200);
    holds_nothing(&program);
    assert_eq!(upstream.requests().len(), 2);
    let is_refusal = |line: &&String| line.contains("\"error\":\"out_of_memory\"");
    until("both refusals to be logged", || {
        (program.logs().iter().filter(is_refusal).count() == 2).then_some(())
    });
}

#[test]
fn a_reply_beyond_the_memory_budget_is_refused_and_the_other_one_continues() {
    let gate = Gate::shut();
    let held = gate.clone();
    let upstream = Scripted::start(move |nth, _| match nth {
        0 => reply(4, &held),
        _ => Reply::text(&"y".repeat(100_000)).in_pieces_of(20_000),
    });
    let program = Toolrein::before(&upstream, TINY);
    let first = send(&program, 10);
    until("most of the first reply to be held", || (program.metric(HELD) >= 80_000.0).then_some(()));
    is_refused(&send(&program, 10).join().unwrap());
    gate.open();
    let first = first.join().unwrap();
    assert_eq!((first.status, first.text().contains("yyy")), (200, true));
    holds_nothing(&program);
}

#[test]
fn whoever_hangs_up_gives_back_what_was_held_for_it() {
    let upstream = Scripted::start(|_, request| {
        match (request.body.len(), request.json()["stream"] == true) {
            (100_000.., _) => Reply::silence(),
            (_, false) => reply(4, &Gate::shut()),
            // The beginning of a call, which is held back until its arguments are whole.
            (_, true) => {
                let call = json!([{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}]);
                let chunk = |delta| {
                    json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
                "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
                };
                let rest = json!([{"index": 0, "function": {"arguments": "x".repeat(20_000)}}]);
                let chunks = [
                    chunk(json!({"role": "assistant", "tool_calls": call})),
                    chunk(json!({"tool_calls": rest})),
                ];
                Reply::events(&chunks).held_after(2, &Gate::shut())
            }
        }
    });
    let arguments = "[policy.arguments]\nstrict = true\n";
    let program = Toolrein::before(&upstream, &format!("{TINY}{arguments}"));
    let hang_up_of = |text_bytes: usize, stream: bool, least: f64| {
        let mut connection = Connection::open(&program.chat_url());
        connection.write(&Request::post(&program.chat_url(), body(text_bytes, stream)).bytes());
        until("it to be held", || (program.metric(HELD) >= least).then_some(()));
        drop(connection);
        holds_nothing(&program);
    };
    hang_up_of(200 * 1024, false, 200_000.0);
    hang_up_of(10, false, 80_000.0);
    hang_up_of(10, true, 20_000.0);
    // A client whose request never completes.
    let mut connection = Connection::open(&program.chat_url());
    connection.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: us\r\ncontent-length: 200000\r\n\r\n{");
    until("it to be held", || (program.metric(HELD) >= 200_000.0).then_some(()));
    drop(connection);
    holds_nothing(&program);
}

#[test]
fn a_reply_that_its_client_does_not_take_is_counted_until_it_does() {
    let upstream = Scripted::start(|_, _| Reply::text(&"z".repeat(24 << 20)));
    let program = Toolrein::before(&upstream, "[policy.budget]\n");
    let taking: Stream = Request::post(&program.chat_url(), body(10, false)).open();
    assert_eq!(taking.status, 200);
    // More is held than the sockets can buffer.
    assert!(program.metric(HELD) >= f64::from(24 << 20));
    assert_eq!(taking.rest().body.len() >> 20, 24);
    holds_nothing(&program);
}

#[test]
fn while_observing_nothing_waits_and_nothing_is_refused() {
    let gate = Gate::shut();
    let held = gate.clone();
    let upstream = Scripted::start(move |nth, _| match nth {
        0 => Reply::text("Fine.").held(&held),
        _ => Reply::text("Relayed."),
    });
    let program = Toolrein::before(&upstream, &format!("mode = \"observe\"\n{TINY}"));
    let first = send(&program, 200 * 1024);
    upstream.request(0);
    assert_eq!(send(&program, 200 * 1024).join().unwrap().status, 200);
    program.wait_for_metric("toolrein_ungoverned_total{why=\"no_memory\"}", 1.0);
    gate.open();
    assert_eq!(first.join().unwrap().status, 200);
    holds_nothing(&program);
}
