//! Parallel calls of one reply: a stream is judged in the order in which its calls began, however their pieces are
//! interleaved, as a whole reply is; and the client gets each call under an index of its own.

use crate::governed::talk::{bytes_of, chat, log_line, question};
use crate::support::client::Request;
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::responses::{Output, event};
use crate::support::responses_kit::{Talk, tool, url};
use crate::support::scripted::{Recorded, Scripted};
use mock::tolerant::{Call, calls_in_reply, calls_in_stream};
use serde_json::{Value, json};

/// `read` may be called after `open` alone, and `open` is judged by its arguments.
const ORDER: &str = r#"
[policy.states]
start = "closed"
[policy.states.state.closed]
tools = ["open"]
on = [{ event = "tool_called", tool = "open", to = "opened" }]
[policy.states.state.opened]
tools = ["read", "open"]
final = true
[policy.arguments]
tools = { open = { q = { max_chars = 9 } } }
"#;

/// One call a reply, and `open` is judged by its arguments.
const ONE: &str = r#"
[policy.turn_limits]
calls = 1
[policy.arguments]
tools = { open = { q = { max_chars = 9 } } }
"#;

/// Each call comes in three parts; these are the calls that the parts of a stream belong to.
const INTERLEAVINGS: [[usize; 6]; 5] =
    [[0, 0, 0, 1, 1, 1], [0, 1, 0, 0, 1, 1], [0, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 0], [0, 1, 0, 1, 1, 0]];

/// The calls of the model, and which of them run.
const CASES: [(&str, [&str; 2], &[&str]); 5] = [
    (ORDER, ["open", "read"], &["open", "read"]),
    (ORDER, ["open too long", "read"], &[]),
    (ORDER, ["read", "open"], &["open"]),
    (ONE, ["open", "read"], &["open"]),
    (ONE, ["open too long", "read"], &["read"]),
];

fn calls(names: [&str; 2]) -> Vec<(String, String, String)> {
    let call = |(nth, name): (usize, &str)| {
        let (name, q) = name.split_once(' ').unwrap_or((name, "a"));
        let q = if q == "a" { "a".to_owned() } else { q.repeat(3) };
        (format!("{nth}"), name.to_owned(), json!({ "q": q }).to_string())
    };
    names.into_iter().enumerate().map(call).collect()
}

/// The parts in this order.
fn woven<T: Clone>(parts: &[[Vec<T>; 3]; 2], order: [usize; 6]) -> Vec<T> {
    let mut next = [0, 0];
    let mut woven = Vec::new();
    for call in order {
        woven.extend(parts[call][next[call]].iter().cloned());
        next[call] += 1;
    }
    woven
}

/// The first reply of a model that then gives its answer; and what the policies ruled on its calls, in order.
fn ruled(
    settings: &str,
    first: Reply,
    after: fn(&Recorded) -> Reply,
    ask: &dyn Fn(&Toolrein) -> Vec<u8>,
) -> (Vec<u8>, Vec<String>) {
    let upstream = Scripted::start(move |nth, request| if nth == 0 { first.clone() } else { after(request) });
    let toolrein = Toolrein::before(&upstream, settings);
    let got = ask(&toolrein);
    let judged = log_line(&toolrein, 0)["tool_calls"].as_array().cloned().unwrap_or_default();
    let ruling = |call: &Value| format!("{} {} {}", call["name"], call["verdict"], call["policy"]);
    (got, judged.iter().map(ruling).collect())
}

fn names(calls: Vec<Call>) -> Vec<String> {
    calls.into_iter().map(|call| call.name).collect()
}

fn tools() -> Value {
    json!(["open", "read"].map(
        |name| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}})
    ))
}

#[test]
fn a_chat_stream_is_judged_in_the_order_of_its_calls_however_they_are_interleaved() {
    let ask = |stream: bool| {
        move |toolrein: &Toolrein| {
            let mut body: Value = serde_json::from_str(&question(stream)).unwrap();
            body["tools"] = tools();
            chat(toolrein, body.to_string()).body
        }
    };
    let after = |request: &Recorded| Reply::speech(request, &Speech::text("Done."));
    for (settings, model, run) in CASES {
        let calls = calls(model);
        let speech = Speech { text: String::new(), calls: calls.clone() };
        let (whole, rulings) = ruled(settings, Reply::json(200, &speech.whole()), after, &ask(false));
        assert_eq!(names(calls_in_reply(&whole)), run, "{model:?}");
        let chunks = speech.chunks(false);
        let parts = [1, 4].map(|at| [0, 1, 2].map(|piece: usize| vec![chunks[at + piece].clone()]));
        for order in INTERLEAVINGS {
            let all = [vec![chunks[0].clone()], woven(&parts, order), vec![chunks[7].clone()]].concat();
            let (stream, of_stream) = ruled(settings, Reply::events(&all), after, &ask(true));
            assert_eq!(of_stream, rulings, "{model:?} by {order:?}");
            let mut found = names(calls_in_stream(&stream));
            found.dedup();
            assert_eq!(found, run, "{model:?} by {order:?}");
        }
    }
}

#[test]
fn a_responses_stream_is_judged_in_the_order_of_its_calls_however_they_are_interleaved() {
    let ask = |stream: bool| {
        move |toolrein: &Toolrein| {
            let talk = Talk::new(stream).with_tools(json!([tool("open"), tool("read")]));
            Request::post(&url(toolrein), talk.body.to_string()).send().body
        }
    };
    let after = |request: &Recorded| Output::text("2", "Done.").reply(request);
    for (settings, model, run) in CASES {
        let calls = calls(model);
        let given: Vec<(&str, &str, &str)> = calls
            .iter()
            .map(|(id, name, arguments)| (id.as_str(), name.as_str(), arguments.as_str()))
            .collect();
        let (output, request) = (Output::calls("1", &given), Talk::new(true).body);
        let (_, rulings) = ruled(settings, Reply::json(200, &output.whole(&request)), after, &ask(false));
        let events = output.events(&request);
        let of = |at: usize| events.iter().filter(move |event| event["output_index"] == at).cloned();
        let parts = [0, 1].map(|at| {
            let all: Vec<Value> = of(at).collect();
            [all[..1].to_vec(), all[1..all.len() - 1].to_vec(), all[all.len() - 1..].to_vec()]
        });
        for order in INTERLEAVINGS {
            let (head, end) = (events[..2].to_vec(), events[events.len() - 1..].to_vec());
            let mut all = [head, woven(&parts, order), end].concat();
            for (nth, event) in all.iter_mut().enumerate() {
                event["sequence_number"] = nth.into();
            }
            let stream = Reply::stream(all.iter().map(event));
            let (stream, of_stream) = ruled(settings, stream, after, &ask(true));
            assert_eq!(of_stream, rulings, "{model:?} by {order:?}");
            let text = String::from_utf8(stream).unwrap();
            for (id, name, _) in &calls {
                let is_seen = text.contains(&format!("call_{id}"));
                assert_eq!(is_seen, run.contains(&name.as_str()), "{model:?} by {order:?}: {text}");
            }
        }
    }
}

/// A chunk with these calls: index, id, name, arguments.
fn chunk(calls: &[(usize, &str, &str, &str)]) -> Value {
    let call = |(index, id, name, arguments): &(usize, &str, &str, &str)| {
        let mut call = json!({"index": index, "function": {"arguments": arguments}});
        if !id.is_empty() {
            (call["id"], call["type"]) = ((*id).into(), "function".into());
            call["function"]["name"] = (*name).into();
        }
        call
    };
    let calls: Vec<Value> = calls.iter().map(call).collect();
    let choice = json!({"index": 0, "delta": {"tool_calls": calls}, "finish_reason": null});
    json!({"id": "c", "object": "chat.completion.chunk", "choices": [choice]})
}

fn finish() -> Value {
    json!({"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
}

/// The calls as a client joins them that goes by the index alone: names and arguments.
fn joined(text: &str) -> Vec<(u64, String, String)> {
    let mut calls: Vec<(u64, String, String)> = Vec::new();
    let chunks =
        text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| data.starts_with('{'));
    for chunk in chunks.map(|data| serde_json::from_str::<Value>(data).unwrap()) {
        for call in chunk["choices"][0]["delta"]["tool_calls"].as_array().into_iter().flatten() {
            let (index, said) = (call["index"].as_u64().unwrap(), &call["function"]);
            if calls.iter().all(|(known, ..)| *known != index) {
                calls.push((index, String::new(), String::new()));
            }
            let known = calls.iter_mut().find(|(known, ..)| *known == index).unwrap();
            known.1 += said["name"].as_str().unwrap_or_default();
            known.2 += said["arguments"].as_str().unwrap_or_default();
        }
    }
    calls
}

#[test]
fn calls_that_share_an_index_reach_the_client_under_the_indexes_that_were_judged() {
    let (a, b, c) = ("{\"url\":\"a\"}", "{\"url\":\"b\"}", "{\"url\":\"c\"}");
    let streams = [
        // Whole calls, each in an event of its own; in one event; and in pieces.
        vec![
            chunk(&[(0, "call_aa11", "f", a)]),
            chunk(&[(0, "call_bb22", "f", b)]),
            chunk(&[(0, "call_cc33", "f", c)]),
        ],
        vec![chunk(&[(0, "call_aa11", "f", a), (0, "call_bb22", "f", b), (0, "call_cc33", "f", c)])],
        vec![
            chunk(&[(0, "call_aa11", "f", "")]),
            chunk(&[(0, "", "", a)]),
            chunk(&[(0, "call_bb22", "f", "")]),
            chunk(&[(0, "", "", &b[..4])]),
            chunk(&[(0, "", "", &b[4..])]),
            chunk(&[(1, "call_cc33", "f", c)]),
        ],
    ];
    for settings in
        ["[policy.truncate]\n", "base = \"shipped\"\n", "[policy.confirm]\ntools = [\"no_such_tool\"]\n"]
    {
        for stream in &streams {
            let mut all = stream.clone();
            all.push(finish());
            let upstream = Scripted::queue([Reply::events(&all)]);
            let toolrein = Toolrein::before(&upstream, settings);
            let text = chat(&toolrein, question(true)).text();
            let expected =
                [(0, a), (1, b), (2, c)].map(|(at, arguments)| (at, "f".to_owned(), arguments.to_owned()));
            assert_eq!(joined(&text), expected, "{settings}: {text}");
            assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
        }
    }
}

#[test]
fn calls_with_indexes_of_their_own_keep_them() {
    let (a, b) = ("{\"url\":\"a\"}", "{\"url\":\"b\"}");
    for indexes in [[0, 1], [1, 7], [1, 0], [3, 2]] {
        let all =
            [chunk(&[(indexes[0], "call_1", "f", a)]), chunk(&[(indexes[1], "call_2", "f", b)]), finish()];
        let reply = Reply::events(&all);
        let expected = String::from_utf8(bytes_of(&reply)).unwrap();
        let upstream = Scripted::queue([reply]);
        let toolrein = Toolrein::before(&upstream, "base = \"shipped\"\n");
        assert_eq!(chat(&toolrein, question(true)).text(), expected);
    }
}
