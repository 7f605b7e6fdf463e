//! Replies with the wrong content type: toolrein goes by the content, not by the header. Events are passed live and
//! judged under any content type; a whole reply that is declared as a stream is judged as a whole reply.

use crate::governed::talk::{after, budget, bytes_of, chat, question};
use crate::support::client::Request;
use crate::support::program::Toolrein;
use crate::support::reply::{Gate, Reply, Speech};
use crate::support::scripted::Scripted;

/// The stream under this content type.
fn called(kind: &str, reply: Reply) -> Reply {
    let headers = if kind.is_empty() { Vec::new() } else { vec![("content-type".into(), kind.into())] };
    Reply { headers, ..reply }
}

const KINDS: [&str; 4] = ["text/plain; charset=utf-8", "application/json", "application/octet-stream", ""];

#[test]
fn events_under_another_content_type_are_live_and_keep_every_byte() {
    for kind in KINDS {
        let chunks = Speech::text("one two three").chunks(false);
        let gate = Gate::shut();
        let reply = called(kind, Reply::events(&chunks)).held_after(3, &gate);
        let expected = bytes_of(&reply);
        let upstream = Scripted::queue([reply]);
        let toolrein = Toolrein::before(&upstream, &budget(1));
        let mut stream = Request::post(&toolrein.chat_url(), question(true)).open();
        assert_eq!(stream.head.header("content-type").unwrap_or_default(), kind);
        stream.until("two");
        gate.open();
        let whole = stream.rest();
        assert_eq!((whole.body, whole.cut), (expected, false), "{kind}");
    }
}

#[test]
fn events_under_another_content_type_are_judged_whatever_their_first_bytes_come_in() {
    for kind in KINDS {
        for size in [1, 3, 10_000] {
            let calls = [("c1", "f", "{}"), ("c2", "f", "{}")];
            let first = Reply::events(&Speech::calls(&calls).chunks(false));
            let upstream = Scripted::queue([called(kind, first).in_pieces_of(size)]);
            let toolrein = Toolrein::before(&upstream, &budget(2));
            let reply = chat(&toolrein, after(&["r"], true));
            assert!(reply.text().contains("c1") && !reply.text().contains("c2"), "{kind}: {}", reply.text());
            assert!(reply.text().contains(": toolrein budget=blocked") && !reply.cut, "{}", reply.text());
        }
    }
}

#[test]
fn a_whole_reply_that_is_called_a_stream_is_judged_and_stays_whole() {
    let whole = Speech::calls(&[("c1", "f", "{}"), ("c2", "f", "{}")]).whole();
    let spaced = serde_json::to_string_pretty(&whole).unwrap().replace(",\n", ",\n\n");
    for text in [whole.to_string(), spaced] {
        let upstream = Scripted::queue([Reply::bytes(200, "text/event-stream", text)]);
        let toolrein = Toolrein::before(&upstream, &budget(2));
        let reply = chat(&toolrein, after(&["r"], false));
        let calls = &reply.json()["choices"][0]["message"]["tool_calls"];
        assert_eq!((calls.as_array().unwrap().len(), &calls[0]["id"]), (1, &"c1".into()), "{}", reply.text());
        assert_eq!(reply.header("x-toolrein-actions"), Some("budget=blocked"));
    }
}

#[test]
fn a_whole_reply_to_a_stream_request_is_judged_as_one_event() {
    let whole = Speech::calls(&[("c1", "f", "{}"), ("c2", "f", "{}")]).whole().to_string();
    let upstream = Scripted::queue([Reply::bytes(200, "text/event-stream", whole)]);
    let toolrein = Toolrein::before(&upstream, &budget(2));
    let reply = chat(&toolrein, after(&["r"], true));
    assert!(reply.text().contains("c1") && !reply.text().contains("c2"), "{}", reply.text());
}
