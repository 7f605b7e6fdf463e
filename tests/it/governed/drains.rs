//! Shutdown: running requests may finish, new ones are refused, and requests that take too long are cut.

use crate::governed::talk::{after, budget, calling, question};
use crate::support::client::{Connection, Request, Response, get};
use crate::support::program::Toolrein;
use crate::support::reply::{Gate, Reply, Speech};
use crate::support::scripted::Scripted;
use crate::support::until;
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};

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

/// The reply to the next request on a connection that was kept.
fn ask_again(toolrein: &Toolrein, connection: Connection) -> Response {
    let mut connection = connection;
    connection.write(&Request::post(&toolrein.chat_url(), question(false)).bytes());
    connection.response().rest()
}

#[test]
fn a_request_on_a_kept_connection_is_answered_after_the_drain_began_and_the_reply_says_that_it_was_the_last()
{
    let upstream = Scripted::start(|_, request| Reply::speech(request, &Speech::text("one two")));
    let mut toolrein = Toolrein::before(&upstream, "");
    let first = |body: String| {
        let mut stream = Request::post(&toolrein.chat_url(), body).open();
        while stream.next().unwrap().is_some() {}
        stream.into_connection()
    };
    let (idle, streamed) = (first(question(false)), first(question(true)));
    let mut partial = first(question(false));
    let request = Request::post(&toolrein.chat_url(), question(false)).bytes();
    let (head, rest) = request.split_at(20);
    partial.write(head);
    // Not until the listener is closed: a connection without a request is kept for two seconds.
    toolrein.terminate();
    let ready = format!("{}/readyz", toolrein.admin_url());
    until("readyz to turn", || (get(&ready).status == 503).then_some(()));
    for connection in [idle, streamed] {
        let reply = ask_again(&toolrein, connection);
        assert_eq!((reply.status, reply.cut, reply.header("connection")), (200, false, Some("close")));
    }
    partial.write(rest);
    let reply = partial.response().rest();
    assert_eq!((reply.status, reply.cut, reply.header("connection")), (200, false, Some("close")));
    assert_eq!(toolrein.wait().code(), Some(0));
}

#[test]
fn a_client_of_a_stream_that_ends_in_the_drain_may_ask_once_more() {
    let gate = Gate::shut();
    let shut = gate.clone();
    let upstream = Scripted::start(move |nth, request| match nth {
        0 => Reply::speech(request, &Speech::text("one two")).held_after(2, &shut),
        _ => Reply::speech(request, &Speech::text("three")),
    });
    let mut toolrein = Toolrein::before(&upstream, "");
    let mut stream = Request::post(&toolrein.chat_url(), question(true)).open();
    stream.until("one");
    begin_to_end(&toolrein);
    gate.open();
    while stream.next().unwrap().is_some() {}
    // Its head said nothing of a close, so the client sends at once.
    let reply = ask_again(&toolrein, stream.into_connection());
    assert_eq!((reply.status, reply.cut), (200, false));
    assert!(reply.text().contains("three"), "{}", reply.text());
    assert_eq!(toolrein.wait().code(), Some(0));
}

#[test]
fn under_keep_alive_load_a_drain_answers_every_request() {
    const CLIENTS: usize = 12;
    let upstream = Scripted::start(|_, request| Reply::speech(request, &Speech::text("one two")));
    let mut toolrein = Toolrein::before(&upstream, "");
    let answered = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (toolrein, answered) = (&toolrein, &answered);
            scope.spawn(move || {
                let request = Request::post(&toolrein.chat_url(), question(client % 2 == 0)).bytes();
                let mut connection = Connection::open(&toolrein.chat_url());
                loop {
                    connection.write(&request);
                    let mut stream = connection.response();
                    while stream.next().expect("the whole reply").is_some() {}
                    assert_eq!(stream.status, 200);
                    answered.fetch_add(1, Ordering::SeqCst);
                    if stream.head.header("connection") == Some("close") {
                        break;
                    }
                    connection = stream.into_connection();
                }
            });
        }
        until("all to be at it", || (answered.load(Ordering::SeqCst) > 3 * CLIENTS).then_some(()));
        toolrein.terminate();
    });
    assert_eq!(toolrein.wait().code(), Some(0));
    let lines = toolrein.logs().concat().matches("\"message\":\"request\"").count();
    assert_eq!(lines, answered.into_inner());
}

#[test]
fn connections_that_wait_for_others_at_the_limit_are_served_in_the_drain() {
    let gate = Gate::shut();
    let shut = gate.clone();
    let upstream =
        Scripted::start(move |_, request| Reply::speech(request, &Speech::text("one")).held(&shut));
    let mut toolrein = Toolrein::before(&upstream, "limits.connections = 1\n");
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let mut connection = Connection::open(&toolrein.chat_url());
        connection.write(&Request::post(&toolrein.chat_url(), question(false)).bytes());
        waiting.push(connection);
    }
    upstream.request(0);
    begin_to_end(&toolrein);
    gate.open();
    for connection in waiting {
        let reply = connection.response().rest();
        assert_eq!((reply.status, reply.cut), (200, false));
    }
    assert_eq!(toolrein.wait().code(), Some(0));
}
