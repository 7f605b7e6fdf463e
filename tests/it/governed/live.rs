//! Streams stay live: everything that may be shown is sent as soon as it comes.

use crate::governed::talk::{GENEROUS, after, budget, calling, chat, question};
use crate::support::client::Request;
use crate::support::program::Toolrein;
use crate::support::reply::{Gate, Piece, Reply, Speech};
use crate::support::responses::{Output, event};
use crate::support::responses_kit::{Talk, url};
use crate::support::scripted::Scripted;
use serde_json::{Value, json};

/// The same reply with a gate before each piece but the first.
fn gated(reply: Reply) -> (Reply, Vec<Gate>) {
    let gates: Vec<Gate> = reply.pieces.iter().skip(1).map(|_| Gate::shut()).collect();
    let mut pieces = Vec::new();
    for (nth, piece) in reply.pieces.into_iter().enumerate() {
        if nth > 0 {
            pieces.push(Piece::Wait(gates[nth - 1].clone()));
        }
        pieces.push(piece);
    }
    (Reply { pieces, ..reply }, gates)
}

#[test]
fn each_piece_of_a_text_arrives_before_the_upstream_sends_the_next() {
    let words: Vec<String> = (0..20).map(|nth| format!("word{nth:02} ")).collect();
    let (reply, gates) = gated(Reply::events(&Speech::text(&words.concat()).chunks(true)));
    let upstream = Scripted::queue([reply]);
    let toolrein = Toolrein::before(&upstream, GENEROUS);
    let mut stream = Request::post(&toolrein.chat_url(), question(true)).open();
    stream.until("\"role\"");
    let mut gates = gates.iter();
    for (word, gate) in words.iter().zip(gates.by_ref()) {
        gate.open();
        stream.until(word);
    }
    gates.for_each(Gate::open);
    let whole = stream.rest();
    assert_eq!(whole.streamed_text(), words.concat());
    assert!(!whole.cut);
}

#[test]
fn calls_that_are_judged_by_their_names_arrive_as_the_model_writes_them() {
    let speech = Speech::calls(&[("c1", "f", "{\"first\":1}"), ("c2", "f", "{\"second\":2}")]);
    // Role, then head and two parts of the arguments for each call, the finish, the end.
    let (reply, gates) = gated(Reply::events(&speech.chunks(false)));
    let upstream = Scripted::queue([reply]);
    let toolrein = Toolrein::before(&upstream, &budget(2));
    let mut stream = Request::post(&toolrein.chat_url(), question(true)).open();
    let shown = ["c1", "{\\\"fir", "st\\\":1}", "c2", "{\\\"seco", "nd\\\":2}"];
    stream.until("\"role\"");
    for (needle, gate) in shown.iter().zip(&gates) {
        gate.open();
        stream.until(needle);
    }
    gates.iter().for_each(Gate::open);
    assert!(!stream.rest().cut);
}

#[test]
fn text_before_a_blocked_call_is_live_and_so_is_the_answer_to_asking_again() {
    let speech = Speech { text: "Let me look.".into(), ..Speech::calls(&[("c1", "f", "{}")]) };
    let (first, first_gates) = gated(Reply::events(&speech.chunks(false)));
    let (second, second_gates) = gated(Reply::events(&Speech::text("So be it.").chunks(false)));
    let upstream = Scripted::queue([first, second]);
    let toolrein = Toolrein::before(&upstream, &budget(1));
    let mut stream = Request::post(&toolrein.chat_url(), after(&["r"], true)).open();
    for (word, gate) in ["Let", "me", "look"].iter().zip(&first_gates) {
        gate.open();
        stream.until(word);
    }
    first_gates.iter().for_each(Gate::open);
    for (word, gate) in ["So", "be", "it"].iter().zip(&second_gates) {
        gate.open();
        stream.until(word);
    }
    second_gates.iter().for_each(Gate::open);
    let whole = stream.rest();
    assert_eq!(whole.streamed_text(), "Let me look.\n\nSo be it.");
    assert!(whole.text().ends_with("data: [DONE]\n\n") && !whole.text().contains("tool_calls"));
}

#[test]
fn a_client_that_waits_while_the_model_is_asked_again_gets_comments() {
    let gate = Gate::shut();
    let waiting = gate.clone();
    let upstream = Scripted::start(move |nth, request| match nth {
        0 => calling(1)(nth, request),
        _ => Reply::speech(request, &Speech::text("At last.")).held(&waiting),
    });
    let settings = format!("limits.keepalive_comment = \"20ms\"\n{}", budget(1));
    let toolrein = Toolrein::before(&upstream, &settings);
    let mut stream = Request::post(&toolrein.chat_url(), after(&["r"], true)).open();
    upstream.request(1);
    stream.until(": toolrein waits\n: toolrein waits\n");
    gate.open();
    let whole = stream.rest();
    assert_eq!((whole.streamed_text().as_str(), whole.cut), ("At last.", false));
    assert_comments_are_lines_of_events(&whole.text());
}

#[test]
fn a_client_that_sees_nothing_while_a_blocked_call_is_written_gets_comments() {
    let speech = Speech::calls(&[("c1", "f", "{\"long\":\"arguments\"}")]);
    let gates = [Gate::shut(), Gate::shut()];
    // One gate in the middle of the arguments, and one after them.
    let first = Reply::events(&speech.chunks(false)).held_after(4, &gates[1]).held_after(3, &gates[0]);
    let upstream = Scripted::queue([first, Reply::events(&Speech::text("Done.").chunks(false))]);
    let settings = format!("limits.keepalive_comment = \"20ms\"\n{}", budget(1));
    let toolrein = Toolrein::before(&upstream, &settings);
    let mut stream = Request::post(&toolrein.chat_url(), after(&["r"], true)).open();
    stream.until(": toolrein waits\n: toolrein waits\n");
    gates.iter().for_each(Gate::open);
    let whole = stream.rest();
    assert_eq!((whole.streamed_text().as_str(), whole.cut), ("Done.", false));
    assert_comments_are_lines_of_events(&whole.text());
}

/// Asserts that no blank line follows a comment of toolrein's: the `openai` package for Python makes an event of each blank
/// line once an event had an id, and fails on its empty data.
fn assert_comments_are_lines_of_events(text: &str) {
    let lines: Vec<&str> = text.lines().collect();
    let mut comments = lines.windows(2).filter(|pair| pair[0].starts_with(": toolrein"));
    assert!(comments.all(|pair| !pair[1].is_empty()), "{text}");
}

#[test]
fn the_last_comment_of_a_stream_is_a_line_of_its_last_event_in_chat_and_responses() {
    let id = |text: String| text.replace("data: ", "id: 7\ndata: ");
    let upstream = Scripted::start(move |_, request| {
        if request.path.ends_with("responses") {
            let calls = Output::calls("1", &[("1", "f", "{\"a\":1}"), ("2", "f", "{\"a\":2}")]);
            return Reply::stream(calls.events(&request.json()).iter().map(event).map(id));
        }
        let chunks = Speech::calls(&[("c1", "f", "{\"a\":1}"), ("c2", "f", "{\"a\":2}")]).chunks(false);
        let data = chunks.iter().map(|chunk| chunk.to_string()).chain(["[DONE]".to_owned()]);
        Reply::stream(data.map(|data| id(format!("data: {data}\n\n"))))
    });
    let toolrein = Toolrein::before(&upstream, &budget(1));
    let of_chat = chat(&toolrein, question(true)).text();
    assert!(of_chat.ends_with(": toolrein budget=blocked\nid: 7\ndata: [DONE]\n\n"), "{of_chat}");
    let talk = Talk::new(true);
    let of_responses = Request::post(&url(&toolrein), talk.body.to_string()).send().text();
    assert!(
        of_responses.contains(": toolrein budget=blocked\nevent: response.completed\n"),
        "{of_responses}"
    );
    assert_comments_are_lines_of_events(&of_chat);
    assert_comments_are_lines_of_events(&of_responses);
}

#[test]
fn a_client_reads_what_acted_in_the_last_event_where_its_header_asks_for_that() {
    let upstream = Scripted::start(move |_, request| {
        assert!(request.header("x-toolrein-events").is_none(), "the upstream does not get it");
        if request.path.ends_with("responses") {
            let calls = Output::calls("1", &[("1", "f", "{\"a\":1}"), ("2", "f", "{\"a\":2}")]);
            return Reply::stream(calls.events(&request.json()).iter().map(event));
        }
        Reply::events(&Speech::calls(&[("c1", "f", "{\"a\":1}"), ("c2", "f", "{\"a\":2}")]).chunks(false))
    });
    let toolrein = Toolrein::before(&upstream, &budget(1));
    let body = Talk::new(true).body.to_string();
    for (url, body) in [(toolrein.chat_url(), question(true)), (url(&toolrein), body)] {
        for (asked, is_wanted) in [("true", true), ("1", true), ("false", false)] {
            let request = Request::post(&url, &body).header("x-toolrein-events", asked);
            let reply = request.header("x-request-id", "mine").send();
            let events = reply.data();
            let mut events = events.iter().filter(|event| *event != "[DONE]");
            let last: Value = serde_json::from_str(events.next_back().unwrap()).unwrap();
            let report = json!({"actions": ["budget=blocked"], "request_id": "mine"});
            assert_eq!(last.get("toolrein"), is_wanted.then_some(&report), "{url} {asked}: {}", reply.text());
            assert_eq!(reply.text().contains(": toolrein"), !is_wanted, "{}", reply.text());
            assert!(events.all(|event| !event.contains("\"toolrein\"")), "{}", reply.text());
        }
    }
}

#[test]
fn a_stream_in_which_nothing_acts_gets_no_comment_however_slow_it_is() {
    let gate = Gate::shut();
    let chunks = Speech::text("slow indeed").chunks(false);
    let upstream = Scripted::queue([Reply::events(&chunks).held_after(2, &gate)]);
    let settings = format!("limits.keepalive_comment = \"1ms\"\n{GENEROUS}");
    let toolrein = Toolrein::before(&upstream, &settings);
    let mut stream = Request::post(&toolrein.chat_url(), question(true)).open();
    stream.until("slow");
    // The time of a hundred requests to the admin port is long enough for a hundred comments.
    for _ in 0..100 {
        toolrein.metrics();
    }
    gate.open();
    let whole = stream.rest();
    let expected = crate::governed::talk::bytes_of(&Reply::events(&chunks));
    assert_eq!(whole.text(), String::from_utf8(expected).unwrap());
}
