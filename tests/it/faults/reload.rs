//! Reloads under load: requests and streams run over several connections while the configuration alternates. Each
//! request sees exactly one configuration, none fails, and what the old configurations held is released.

use crate::faults::hand::{Wire, post};
use crate::support::client::{Request, Stream};
use crate::support::program::{Toolrein, before};
use crate::support::reply::{Gate, Reply, Speech};
use crate::support::scripted::{Recorded, Scripted};
use crate::support::until;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

const FLIPS: usize = 50;
const CLIENTS: usize = 6;
/// Each client sends this many at least, and goes on for as long as the configuration flips.
const REQUESTS: usize = 50;

/// One of two configurations. They differ in the upstream, in what is cut of the request and in the call that is
/// blocked from the reply, so that a request which saw parts of both would show it.
#[derive(Clone, Copy)]
struct Side {
    name: &'static str,
    max_chars: usize,
    blocked: &'static str,
}

const SIDES: [Side; 2] = [
    Side { name: "one", max_chars: 1000, blocked: "g" },
    Side { name: "two", max_chars: 2000, blocked: "h" },
];

impl Side {
    fn config(self, upstream: &Scripted) -> String {
        let Self { max_chars, blocked, .. } = self;
        let cut = format!("[policy.truncate]\nmax_chars = {max_chars}\n");
        before(&upstream.base_url(), &format!("{cut}[policy.allow]\nexcept = [\"{blocked}\"]\n"))
    }

    /// A model that calls `f` and the tool that is blocked in this configuration. It reports which side it is, and
    /// what it was shown if that is not what this side shows.
    fn upstream(self, gate: &Gate) -> Scripted {
        let gate = gate.clone();
        Scripted::start(move |nth, request| {
            let shown = cut_of(request);
            let fits = (self.max_chars / 2..=self.max_chars).contains(&shown);
            let text = if fits { self.name.to_owned() } else { format!("{shown} at {}", self.name) };
            let (first, second) = (format!("f_{nth}"), format!("w_{nth}"));
            let calls = [(first.as_str(), "f", "{}"), (second.as_str(), self.blocked, "{}")];
            let reply = Reply::speech(request, &Speech { text, ..Speech::calls(&calls) });
            if request.header("x-waits").is_some() { reply.held_after(2, &gate) } else { reply }
        })
    }
}

/// How many characters of the tool's result the model is shown.
fn cut_of(request: &Recorded) -> usize {
    request.json()["messages"][2]["content"].as_str().unwrap_or_default().chars().count()
}

/// A conversation with a long result.
fn question(stream: bool) -> String {
    let tools: Vec<Value> = ["f", "g", "h"]
        .map(|name| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}))
        .into();
    let call = json!({"id": "old", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let messages = json!([
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "old", "content": "one line of many words\n".repeat(300)},
    ]);
    json!({"model": "m", "stream": stream, "messages": messages, "tools": tools}).to_string()
}

/// Which side a whole body comes from.
///
/// # Panics
/// If it is of both, or of none.
fn side_of(body: &str) -> usize {
    let says = |word: &str| body.contains(&format!("\"{word}\""));
    let side = SIDES.iter().position(|side| says(side.name));
    let side = side.unwrap_or_else(|| panic!("another request than its configuration says: {body}"));
    assert!(says("f") && !says("g") && !says("h") && !says(SIDES[1 - side].name), "a mixture: {body}");
    side
}

/// Sends requests on one connection, whole and streamed by turns, for as long as `goes_on`; counts them by side.
fn send(toolrein: &Toolrein, goes_on: &AtomicBool, answered: &[AtomicUsize; 2]) {
    let mut wire = Wire::to(toolrein);
    let mut sent = 0;
    while sent < REQUESTS || goes_on.load(Ordering::Relaxed) {
        wire.write(post("/v1/chat/completions", &question(sent % 2 == 0)));
        let (head, body) = wire.response();
        let body = String::from_utf8(body.expect("a whole answer")).unwrap();
        assert_eq!(head.word(1), "200", "{body}");
        assert!(sent % 2 == 1 || body.ends_with("data: [DONE]\n\n"), "{body}");
        answered[side_of(&body)].fetch_add(1, Ordering::Relaxed);
        sent += 1;
    }
}

/// A stream that runs until the gate opens.
fn waiting(toolrein: &Toolrein) -> Stream {
    let mut stream = Request::post(&toolrein.chat_url(), question(true)).header("x-waits", "yes").open();
    stream.until("assistant");
    stream
}

#[test]
fn reloads_under_load_fail_no_request_and_never_mix_configurations() {
    flips_under_load(Toolrein::start);
}

#[test]
fn reloads_under_load_on_one_processor_fail_no_request_and_never_mix_configurations() {
    flips_under_load(Toolrein::start_on_one_processor);
}

fn flips_under_load(start: fn(&str) -> Toolrein) {
    let gate = Gate::shut();
    let upstreams = SIDES.map(|side| side.upstream(&gate));
    let configs = [0, 1].map(|side| SIDES[side].config(&upstreams[side]));
    let toolrein = start(&configs[0]);
    let at_first = toolrein.descriptors();
    let (flipping, answered) = (AtomicBool::new(true), [const { AtomicUsize::new(0) }; 2]);
    let mut streams = vec![waiting(&toolrein)];
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| send(&toolrein, &flipping, &answered));
        }
        for flip in 1..=FLIPS {
            assert!(toolrein.reload(&configs[flip % 2]));
            if flip % 10 == 1 {
                streams.push(waiting(&toolrein));
            }
        }
        flipping.store(false, Ordering::Relaxed);
    });
    gate.open();
    let opened = streams.len();
    for (nth, stream) in streams.into_iter().enumerate() {
        let whole = stream.rest();
        assert!(!whole.cut);
        let side = side_of(&whole.text());
        assert_eq!(side, usize::from(nth > 0), "the one under which it began");
        answered[side].fetch_add(1, Ordering::Relaxed);
    }
    let answered = answered.map(AtomicUsize::into_inner);
    let all = answered[0] + answered[1];
    assert!(all >= CLIENTS * REQUESTS + opened && answered.iter().all(|count| *count > 50), "{answered:?}");
    for (upstream, answered) in upstreams.iter().zip(answered) {
        assert_eq!(upstream.requests().len(), answered, "one request for one");
    }
    let calls = |tool: &str, verdict: &str, count: usize| {
        let series = format!("toolrein_tool_calls_total{{tool=\"{tool}\",verdict=\"{verdict}\"}}");
        toolrein.wait_for_metric(&series, count as f64);
    };
    calls("f", "allow", all);
    calls("g", "block", answered[0]);
    calls("h", "block", answered[1]);
    toolrein.wait_for_metric("toolrein_config_reloads_total{result=\"ok\"}", FLIPS as f64);
    toolrein.wait_for_metric("toolrein_requests_total", all as f64);
    // The connections to an upstream are closed with the last configuration that uses it.
    assert!(toolrein.reload(&before("http://127.0.0.1:9/v1", "")));
    until("the descriptors to be given back", || (toolrein.descriptors() <= at_first).then_some(()));
}
