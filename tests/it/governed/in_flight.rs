//! Requests of one conversation at once: they pass, wait or are refused, as the operator wants it.

use crate::governed::talk::question;
use crate::support::client::Request;
use crate::support::program::Toolrein;
use crate::support::reply::{Gate, Reply, Speech};
use crate::support::scripted::Scripted;

fn named(toolrein: &Toolrein, name: &str, stream: bool) -> Request {
    Request::post(&toolrein.chat_url(), question(stream)).header("x-toolrein-conversation", name)
}

/// A stream whose second word waits for the gate; every other request is answered at once.
fn one_held(gate: &Gate) -> Scripted {
    let held = gate.clone();
    Scripted::start(move |nth, request| {
        let reply = Reply::speech(request, &Speech::text("one two"));
        if nth == 0 { reply.held_after(2, &held) } else { reply }
    })
}

const REFUSE: &str = "conversation.in_flight = \"refuse\"\n";

#[test]
fn a_second_request_of_a_conversation_is_refused_until_the_first_is_answered() {
    let gate = Gate::shut();
    let upstream = one_held(&gate);
    let toolrein = Toolrein::before(&upstream, REFUSE);
    let mut first = named(&toolrein, "a", true).open();
    first.until("one");
    let second = named(&toolrein, "a", false).send();
    assert_eq!((second.status, second.json()["error"]["code"].as_str()), (409, Some("conversation_busy")));
    assert_eq!(second.header("x-should-retry"), Some("false"));
    assert_eq!(second.header("x-toolrein-actions"), Some("in_flight=rejected"));
    assert_eq!(named(&toolrein, "b", false).send().status, 200, "another conversation");
    assert_eq!(Request::post(&toolrein.chat_url(), question(false)).send().status, 200, "one without a name");
    let foreign =
        Request::new("POST", &toolrein.chat_url(), question(false)).header("x-toolrein-conversation", "a");
    let foreign = foreign.header("api-key", "another-caller").send();
    assert_eq!(foreign.status, 200, "another caller's conversation of the same name");
    gate.open();
    assert_eq!(first.rest().streamed_text(), "one two");
    assert_eq!(named(&toolrein, "a", false).send().status, 200);
    assert_eq!(upstream.requests().len(), 5, "the refused one never went up");
    toolrein.wait_for_metric("toolrein_actions_total{policy=\"in_flight\",action=\"rejected\"}", 1.0);
}

#[test]
fn a_finished_reply_frees_the_conversation_even_if_the_upstream_keeps_its_stream_open() {
    let upstream = Scripted::start(|nth, request| {
        let speech = Speech::calls(&[("c1", "f", "{\"a\":1}")]);
        let reply = Reply::speech(request, &speech);
        let end = reply.pieces.len();
        if nth == 0 { reply.held_after(end - 1, &Gate::shut()) } else { reply }
    });
    let toolrein = Toolrein::before(&upstream, REFUSE);
    let mut first = named(&toolrein, "a", true).open();
    // The finish, after which a client acts, but not yet the end.
    first.until("\"finish_reason\":\"tool_calls\"");
    assert_eq!(named(&toolrein, "a", false).send().status, 200);
}

#[test]
fn a_client_that_leaves_in_the_middle_of_a_stream_lets_the_next_one_in() {
    let upstream = one_held(&Gate::shut());
    let toolrein = Toolrein::before(&upstream, REFUSE);
    let mut first = named(&toolrein, "a", true).open();
    first.until("one");
    first.hang_up();
    toolrein.wait_for_metric("toolrein_client_gone_total", 1.0);
    // The lock is released with the stream, whose record has just been written.
    toolrein.wait_for_metric("toolrein_streams_open", 0.0);
    assert_eq!(named(&toolrein, "a", false).send().status, 200);
}

#[test]
fn a_second_request_waits_for_the_first_and_not_for_ever() {
    let gate = Gate::shut();
    let upstream = one_held(&gate);
    let waits = |bound: &str| {
        format!("conversation.in_flight = \"wait\"\nconversation.in_flight_wait = \"{bound}\"\n")
    };
    let toolrein = Toolrein::before(&upstream, &waits("20ms"));
    let mut first = named(&toolrein, "a", true).open();
    first.until("one");
    let second = named(&toolrein, "a", false).send();
    assert_eq!((second.status, second.json()["error"]["code"].as_str()), (409, Some("conversation_busy")));
    assert!(second.text().contains("after 20 ms"), "{}", second.text());

    let gate = Gate::shut();
    let upstream = one_held(&gate);
    let toolrein = Toolrein::before(&upstream, &waits("30s"));
    let mut first = named(&toolrein, "a", true).open();
    first.until("one");
    let second = named(&toolrein, "a", false);
    std::thread::scope(|scope| {
        let second = scope.spawn(|| second.send());
        gate.open();
        assert_eq!(first.rest().streamed_text(), "one two");
        assert_eq!(second.join().unwrap().status, 200);
    });
}

#[test]
fn as_shipped_and_while_observing_both_go_on() {
    for settings in ["", "mode = \"observe\"\nconversation.in_flight = \"refuse\"\n"] {
        let upstream = one_held(&Gate::shut());
        let toolrein = Toolrein::before(&upstream, settings);
        let mut first = named(&toolrein, "a", true).open();
        first.until("one");
        assert_eq!(named(&toolrein, "a", false).send().status, 200, "{settings}");
    }
}
