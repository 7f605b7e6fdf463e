//! Shutdown: running requests may finish, new ones are refused, and requests that take too long are cut.

use crate::support::client::{Connection, Request, get};
use crate::support::program::Toolrein;
use crate::support::reply::{Gate, Reply, Speech};
use crate::support::scripted::Scripted;
use crate::support::until;
use crate::talk::{after, budget, calling, question};
use std::net::TcpStream;

/// Asks the program to end, and waits until it reports that it accepts no more requests.
fn begin_to_end(toolrein: &Toolrein) {
    let ready = format!("{}/readyz", toolrein.admin_url());
    assert_eq!(get(&ready).status, 200);
    toolrein.terminate();
    until("readyz to turn", || (get(&ready).status == 503).then_some(()));
    let address = toolrein.origin().trim_start_matches("http://").to_owned();
    until("the listener to close", || TcpStream::connect(&address).is_err().then_some(()));
}

#[test]
fn a_stream_a_whole_reply_and_a_second_try_finish_during_the_drain() {
    let gate = Gate::shut();
    let shut = gate.clone();
    let upstream = Scripted::start(move |nth, request| {
        let body = request.json();
        if body["messages"].as_array().unwrap().len() == 3 {
            return calling(1)(nth, request);
        }
        let reply = Reply::speech(request, &Speech::text("one two"));
        if body["stream"] == true && body["messages"].as_array().unwrap().len() == 1 {
            reply.held_after(2, &shut)
        } else {
            reply.held(&shut)
        }
    });
    let mut toolrein = Toolrein::before(&upstream, &budget(1));
    let mut stream = Request::post(&toolrein.chat_url(), question(true)).open();
    stream.until("one");
    let mut waiting = Vec::new();
    for body in [question(false), after(&["r"], false), after(&["r"], true)] {
        let mut connection = Connection::open(&toolrein.chat_url());
        connection.write(&Request::post(&toolrein.chat_url(), body).bytes());
        waiting.push(connection);
    }
    // Four requests, two of which are asked again.
    upstream.request(5);
    begin_to_end(&toolrein);
    assert_eq!(get(&format!("{}/livez", toolrein.admin_url())).status, 200);
    gate.open();
    let whole = stream.rest();
    assert_eq!((whole.streamed_text().as_str(), whole.cut), ("one two", false));
    for connection in waiting {
        let reply = connection.response().rest();
        assert_eq!((reply.status, reply.cut), (200, false));
        assert!(reply.text().contains("two") && !reply.text().contains("tool_calls"), "{}", reply.text());
    }
    assert_eq!(toolrein.wait().code(), Some(0));
    let told = toolrein.logs().concat();
    assert!(told.contains("\"drained\"") && told.matches("\"message\":\"request\"").count() == 4, "{told}");
}

#[test]
fn a_stream_that_outlasts_the_drain_is_cut_and_the_program_fails() {
    let held = Reply::events(&Speech::text("one two").chunks(false)).held_after(2, &Gate::shut());
    let upstream = Scripted::queue([held]);
    let mut toolrein = Toolrein::before(&upstream, "limits.drain_timeout = \"50ms\"\n");
    let mut stream = Request::post(&toolrein.chat_url(), question(true)).open();
    stream.until("one");
    toolrein.terminate();
    let whole = stream.rest();
    assert!(whole.cut && whole.text().contains("one"), "{}", whole.text());
    upstream.wait_for_hang_up(0);
    assert_eq!(toolrein.wait().code(), Some(1));
    until("the last words", || {
        toolrein.logs().concat().contains("limits.drain_timeout is over").then_some(())
    });
}
