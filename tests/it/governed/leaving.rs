//! Clients that leave: the request at the upstream is cancelled at once, and the client is counted.

use crate::governed::talk::{BOTH, GENEROUS, after, budget, calling, log_line, question};
use crate::support::client::{Connection, Request};
use crate::support::program::Toolrein;
use crate::support::reply::{Gate, Reply, Speech};
use crate::support::scripted::Scripted;

/// Asserts that one client has left and that nothing of its request remains.
fn gone(toolrein: &Toolrein, upstream: &Scripted, nth: usize) {
    upstream.wait_for_hang_up(nth);
    toolrein.wait_for_metric("toolrein_client_gone_total", 1.0);
    toolrein.wait_for_metric("toolrein_streams_open", 0.0);
    assert_eq!(log_line(toolrein, 0)["client_gone"], true);
}

#[test]
fn a_client_that_leaves_before_the_first_byte_lets_the_upstream_go() {
    for body in [question(false), question(true), "not json".to_owned()] {
        let upstream = Scripted::queue([Reply::silence()]);
        let toolrein = Toolrein::before(&upstream, GENEROUS);
        let mut connection = Connection::open(&toolrein.chat_url());
        connection.write(&Request::post(&toolrein.chat_url(), body).bytes());
        upstream.request(0);
        drop(connection);
        gone(&toolrein, &upstream, 0);
        assert_eq!(log_line(&toolrein, 0)["status"], 0);
    }
}

#[test]
fn a_client_that_leaves_in_the_middle_of_a_whole_reply_lets_the_upstream_go() {
    let reply = Reply::text("never whole").in_pieces_of(20).held_after(1, &Gate::shut());
    let upstream = Scripted::queue([reply]);
    let toolrein = Toolrein::before(&upstream, GENEROUS);
    let mut connection = Connection::open(&toolrein.chat_url());
    connection.write(&Request::post(&toolrein.chat_url(), question(false)).bytes());
    upstream.request(0);
    drop(connection);
    gone(&toolrein, &upstream, 0);
}

#[test]
fn a_client_that_leaves_in_the_middle_of_a_stream_lets_the_upstream_go() {
    let held = || Reply::events(&Speech::text("one two").chunks(false)).held_after(2, &Gate::shut());
    let coded = held().header("content-encoding", "compress");
    for (reply, body) in [(held(), question(true)), (coded, question(true)), (held(), "not json".to_owned())]
    {
        let upstream = Scripted::queue([reply]);
        let toolrein = Toolrein::before(&upstream, GENEROUS);
        let mut stream = Request::post(&toolrein.chat_url(), &body).open();
        stream.until("one");
        if body != "not json" {
            toolrein.wait_for_metric("toolrein_streams_open", 1.0);
        }
        stream.hang_up();
        gone(&toolrein, &upstream, 0);
        assert_eq!(log_line(&toolrein, 0)["status"], 200);
    }
}

#[test]
fn a_client_that_leaves_while_a_call_is_held_lets_the_upstream_go() {
    let role = "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
    // A call without a name cannot be judged.
    let call = "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"function\":{\"arguments\":\"{\"}}]}}]}\n\n";
    let upstream = Scripted::queue([Reply::stream([role, call, "", ""]).held_after(2, &Gate::shut())]);
    let settings = format!("limits.keepalive_comment = \"20ms\"\n{}", budget(1));
    let toolrein = Toolrein::before(&upstream, &settings);
    let mut stream = Request::post(&toolrein.chat_url(), question(true)).open();
    let so_far = stream.until(": toolrein");
    assert!(!so_far.contains("tool_calls"), "{so_far}");
    stream.hang_up();
    gone(&toolrein, &upstream, 0);
}

#[test]
fn a_client_that_leaves_while_the_model_is_asked_again_lets_the_upstream_go() {
    for stream in BOTH {
        let upstream = Scripted::start(
            |nth, request| {
                if nth == 0 { calling(1)(nth, request) } else { Reply::silence() }
            },
        );
        let toolrein = Toolrein::before(&upstream, &budget(1));
        let mut connection = Connection::open(&toolrein.chat_url());
        connection.write(&Request::post(&toolrein.chat_url(), after(&["r"], stream)).bytes());
        upstream.request(1);
        drop(connection);
        gone(&toolrein, &upstream, 1);
        let blocked = "toolrein_tool_calls_total{tool=\"f\",verdict=\"block\"}";
        assert!((toolrein.metric(blocked) - 1.0).abs() < 0.5, "what was blocked is told, streamed: {stream}");
    }
}

#[test]
fn a_client_that_leaves_in_the_middle_of_its_request_is_counted_and_nothing_is_sent() {
    let upstream = Scripted::queue([]);
    let toolrein = Toolrein::before(&upstream, GENEROUS);
    let mut connection = Connection::open(&toolrein.chat_url());
    connection.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{");
    drop(connection);
    toolrein.wait_for_metric("toolrein_client_gone_total", 1.0);
    assert!(upstream.requests().is_empty());
}

#[test]
fn a_client_that_disconnects_after_the_done_event_is_not_counted_as_gone() {
    let events = Reply::events(&Speech::text("all").chunks(false));
    let pieces = events.pieces.len();
    let upstream = Scripted::queue([events.held_after(pieces, &Gate::shut())]);
    let toolrein = Toolrein::before(&upstream, GENEROUS);
    let mut stream = Request::post(&toolrein.chat_url(), question(true)).open();
    stream.until("[DONE]");
    stream.hang_up();
    upstream.wait_for_hang_up(0);
    toolrein.wait_for_metric("toolrein_requests_total{endpoint=\"chat_completions\"}", 1.0);
    assert!(toolrein.metric("toolrein_client_gone_total").abs() < 0.5);
}
