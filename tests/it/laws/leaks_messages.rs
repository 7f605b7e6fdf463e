//! Leaks on the Messages API: no client finds a call that was not judged, however a server numbers, names and orders the
//! parts of its stream. Checked with a second reader, which takes calls from every place where a client looks.

use super::world::{Facts, NOW_MS, lossy, read, set_of};
use bytes::Bytes;
use dialects::MESSAGES;
use dialects::reply::{Ending, Form, Limits, Options};
use engine::pipeline::ReplyPipeline;
use mock::tolerant::{Call, calls_in_message, calls_in_message_stream};
use policies::set::PolicySet;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Tools whose calls must never be seen: by name, by a person's approval, and beside policies that need arguments. The
/// last set forbids arguments.
const SETS: [&str; 4] = [
    "[policy.allow]\nexcept = [\"evil*\"]\nundeclared = \"pass\"",
    "[policy.confirm]\ntools = [\"evil*\"]",
    "[policy.allow]\nexcept = [\"evil*\"]\n[policy.arguments]\n[policy.loops]\n[policy.serial]\ntools = [\"*\"]\n",
    "[policy.allow]\nexcept = [\"evil*\"]\n[policy.arguments]\nstrict = true\n",
];

const TOOLS: [&str; 4] = ["ok", "evil", "evil_two", "say"];
const LIMITS: Limits = Limits { event: 1 << 20, held: 1 << 20, reply: 1 << 20 };

fn judge(set: &PolicySet, form: Form) -> ReplyPipeline {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let tools: Vec<Value> = TOOLS.map(|name| json!({"name": name, "input_schema": schema})).to_vec();
    let body = json!({"model": "m", "system": "s", "max_tokens": 9, "messages": [{"role": "user", "content": "q"}], "tools": tools});
    let judging = read(&Bytes::from(body.to_string()), set, &Facts::default()).judging();
    ReplyPipeline::new(judging, MESSAGES, form, LIMITS, Options::default())
}

fn judged(set: &PolicySet, form: Form, reply: &[u8], sizes: &[usize]) -> Vec<u8> {
    let mut judge = judge(set, form);
    let (mut out, mut rest, mut sizes) = (Vec::new(), reply, sizes.iter().cycle());
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at((*sizes.next().unwrap_or(&64)).clamp(1, rest.len()));
        judge.push(Bytes::copy_from_slice(chunk), NOW_MS, &mut out);
        judge.let_refusal_stand(NOW_MS, &mut out);
        rest = after;
    }
    while judge.finish(NOW_MS, &mut out) == Ending::Refused {
        judge.let_refusal_stand(NOW_MS, &mut out);
    }
    out.concat()
}

/// A block of a reply.
#[derive(Clone, Debug)]
enum Block {
    Text,
    Thinking,
    /// A call, with its arguments in pieces, or (`filled`) in its start.
    Call {
        name: &'static str,
        number: u32,
        filled: bool,
    },
    /// A call that the provider runs.
    ServerCall(&'static str),
}

fn arguments_of(number: u32) -> String {
    if number > 7 { "{\"n\":\"x\"}".to_owned() } else { format!("{{\"n\":{number}}}") }
}

fn start_of(block: &Block, at: usize) -> Value {
    match block {
        Block::Text => json!({"type": "text", "text": ""}),
        Block::Thinking => json!({"type": "thinking", "thinking": "", "signature": ""}),
        Block::Call { name, number, filled } => {
            let arguments = if *filled { arguments_of(*number) } else { "{}".to_owned() };
            let input: Value = serde_json::from_str(&arguments).unwrap();
            json!({"type": "tool_use", "id": format!("toolu_{at}"), "name": name, "input": input})
        }
        Block::ServerCall(name) => {
            json!({"type": "server_tool_use", "id": format!("srvtoolu_{at}"), "name": name, "input": {}})
        }
    }
}

fn events_of(blocks: &[Block]) -> Vec<Value> {
    let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [],
        "stop_reason": null, "usage": {"input_tokens": 1, "output_tokens": 1}});
    let mut events = vec![json!({"type": "message_start", "message": message})];
    for (at, block) in blocks.iter().enumerate() {
        let delta = |delta: Value| json!({"type": "content_block_delta", "index": at, "delta": delta});
        events
            .push(json!({"type": "content_block_start", "index": at, "content_block": start_of(block, at)}));
        match block {
            Block::Text => events.push(delta(json!({"type": "text_delta", "text": "word "}))),
            Block::Thinking => events.push(delta(json!({"type": "signature_delta", "signature": "s"}))),
            Block::Call { filled: true, .. } | Block::ServerCall(_) => {}
            Block::Call { number, .. } => {
                let arguments = arguments_of(*number);
                let (one, two) = arguments.split_at(3);
                let pieces = [one, two];
                events.extend(
                    pieces.map(|text| delta(json!({"type": "input_json_delta", "partial_json": text}))),
                );
            }
        }
        events.push(json!({"type": "content_block_stop", "index": at}));
    }
    let calls = blocks.iter().any(|block| matches!(block, Block::Call { .. }));
    let reason = if calls { "tool_use" } else { "end_turn" };
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null}, "usage": {"output_tokens": 3}}));
    events.push(json!({"type": "message_stop"}));
    events
}

/// Changes that a gateway, or one that wants to get past the judge, may make to the events.
fn bend(events: &mut Vec<Value>, names: &mut Vec<Option<String>>, bends: &[(usize, usize, usize)]) {
    for (kind, at, other) in bends {
        let (at, other) = (at % events.len(), other % events.len());
        let number = other % 4;
        let block = events[at]["content_block"].clone();
        match kind % 14 {
            0 => drop(events[at].as_object_mut().unwrap().remove("index")),
            1 => events[at]["index"] = number.into(),
            2 if block.is_object() => events[at]["content_block"]["name"] = TOOLS[number].into(),
            3 if block.is_object() => {
                events[at]["content_block"]["type"] =
                    ["text", "tool_use", "server_tool_use", "x_tool_use"][number].into();
            }
            4 if block.is_object() => events[at]["content_block"]["id"] = format!("toolu_{number}").into(),
            5 => names[at] = Some(["ping", "content_block_start", "error", "odd"][number].to_owned()),
            6 => names[at] = Some(String::new()),
            7 if block.is_object() && events[0]["message"]["content"].is_array() => {
                events[0]["message"]["content"].as_array_mut().unwrap().push(block);
            }
            8 => {
                events.remove(at);
                names.remove(at);
            }
            9 => {
                events.insert(other, events[at].clone());
                names.insert(other, names[at].clone());
            }
            10 => {
                events.swap(at, other);
                names.swap(at, other);
            }
            11 => {
                events.truncate(at + 1);
                names.truncate(at + 1);
            }
            12 if events[at]["delta"].is_object() => events[at]["delta"]["type"] = "text_delta".into(),
            13 if block.is_object() => events[at]["content_block"]["input"] = json!({"n": "x"}),
            _ => {}
        }
        if events.is_empty() {
            return;
        }
    }
}

/// The events as a stream; `names`: what the lines that name them say instead, or nothing.
fn written(events: &[Value], names: &[Option<String>]) -> String {
    let lines = events.iter().zip(names).map(|(event, name)| {
        let own = event["type"].as_str().unwrap_or_default();
        match name.as_deref() {
            Some("") => format!("data: {event}\n\n"),
            name => format!("event: {}\ndata: {event}\n\n", name.unwrap_or(own)),
        }
    });
    lines.collect()
}

fn forbidden(calls: Vec<Call>, set: usize) -> Vec<Call> {
    let is_wrong = |call: &Call| set == 3 && call.name == "ok" && call.arguments == "{\"n\":\"x\"}";
    calls.into_iter().filter(|call| call.name.starts_with("evil") || is_wrong(call)).collect()
}

fn blocks() -> impl Strategy<Value = Vec<Block>> {
    let call = (prop::sample::select(TOOLS.to_vec()), 0..9_u32, prop::bool::weighted(0.2))
        .prop_map(|(name, number, filled)| Block::Call { name, number, filled });
    let block = prop_oneof![
        2 => Just(Block::Text),
        1 => Just(Block::Thinking),
        4 => call,
        1 => prop::sample::select(TOOLS.to_vec()).prop_map(Block::ServerCall),
    ];
    prop::collection::vec(block, 1..5)
}

/// How many cases each law is tried with: a tenth in the fast loop (`make test-fast`).
fn cases() -> u32 {
    if std::env::var_os("FAST").is_some() { 300 } else { 3_000 }
}

proptest! {
    #![proptest_config(crate::laws::with_cases(cases()))]

    #[test]
    fn no_client_finds_a_forbidden_call_in_a_bent_stream_of_the_messages_api(
        blocks in blocks(),
        bends in prop::collection::vec(any::<(usize, usize, usize)>(), 0..5),
        sizes in prop::collection::vec(1..400_usize, 1..4),
        at in 0..SETS.len(),
    ) {
        let mut events = events_of(&blocks);
        let mut names = vec![None; events.len()];
        bend(&mut events, &mut names, &bends);
        let stream = written(&events, &names);
        let out = judged(&set_of(SETS[at]), Form::Streamed, stream.as_bytes(), &sizes);
        let found = forbidden(calls_in_message_stream(&out), at);
        prop_assert!(found.is_empty(), "{found:?}\nin\n{}\nof\n{stream}", lossy(&out));
    }

    #[test]
    fn no_client_finds_a_forbidden_call_in_a_whole_message(
        blocks in blocks(),
        at in 0..SETS.len(),
        kind in prop::sample::select(vec!["tool_use", "Tool_Use", "x_tool_use"]),
    ) {
        let mut content: Vec<Value> = blocks.iter().enumerate().map(|(at, block)| start_of(block, at)).collect();
        for (block, of) in content.iter_mut().zip(&blocks) {
            if let Block::Call { number, .. } = of {
                block["input"] = serde_json::from_str(&arguments_of(*number)).unwrap();
                block["type"] = kind.into();
            }
        }
        let reply = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content,
            "stop_reason": "tool_use", "usage": {"input_tokens": 1, "output_tokens": 1}}).to_string();
        let out = judged(&set_of(SETS[at]), Form::Whole, reply.as_bytes(), &[64]);
        let found = forbidden(calls_in_message(&out), at);
        prop_assert!(found.is_empty(), "{found:?}\nin\n{}\nof\n{reply}", lossy(&out));
    }
}

#[test]
fn what_is_allowed_passes_as_it_came() {
    let call = |name, filled| Block::Call { name, number: 1, filled };
    let blocks =
        [Block::Thinking, Block::Text, call("ok", false), call("say", true), Block::ServerCall("evil")];
    let events = events_of(&blocks);
    let stream = written(&events, &vec![None; events.len()]);
    for set in [SETS[0], SETS[1], SETS[3]] {
        for sizes in [1, 50, 4_000] {
            let out = judged(&set_of(set), Form::Streamed, stream.as_bytes(), &[sizes]);
            assert_eq!(lossy(&out), stream, "{set}");
        }
    }
}

#[test]
fn a_call_that_is_stopped_after_the_end_of_its_message_is_not_shown_with_the_arguments_of_its_start() {
    let events = events_of(&[Block::Call { name: "ok", number: 0, filled: false }]);
    let at = |kind: &str| events.iter().position(|event| event["type"] == kind).unwrap();
    let (start, stop) = (at("content_block_start"), at("content_block_stop"));
    let [delta, end] = [at("message_delta"), at("message_stop")].map(|at| events[at].clone());
    let late = events[stop].clone();
    for order in [
        vec![end.clone(), delta.clone(), late.clone()],
        vec![end.clone(), late.clone(), delta.clone()],
        vec![delta, end.clone(), late.clone()],
        vec![end, late],
    ] {
        let mut events = [&events[..stop], &order].concat();
        events[start]["content_block"]["input"] = json!({"n": "x"});
        let stream = written(&events, &vec![None; events.len()]);
        for (stream, sizes) in [
            (stream.clone(), [1]),
            (stream.replace("event: message_stop\ndata: {\"type\":\"message_stop\"}", "data: [DONE]"), [64]),
        ] {
            let out = judged(&set_of(SETS[3]), Form::Streamed, stream.as_bytes(), &sizes);
            let found = forbidden(calls_in_message_stream(&out), 3);
            assert!(found.is_empty(), "{found:?}\nin\n{}\nof\n{stream}", lossy(&out));
        }
    }
}

#[test]
fn a_call_that_is_never_stopped_is_judged_by_its_arguments_wherever_the_stream_ends() {
    for filled in [false, true] {
        let events = events_of(&[Block::Call { name: "ok", number: 8, filled }]);
        let stop = events.iter().position(|event| event["type"] == "content_block_stop").unwrap();
        let mut cut = events[..stop].to_vec();
        for end in [Value::Null, json!("max_tokens"), json!("tool_use")] {
            if end.is_string() {
                cut.truncate(stop);
                cut.push(json!({"type": "message_delta", "delta": {"stop_reason": end}, "usage": {"output_tokens": 3}}));
            }
            let stream = written(&cut, &vec![None; cut.len()]);
            let out = judged(&set_of(SETS[3]), Form::Streamed, stream.as_bytes(), &[64]);
            let found = forbidden(calls_in_message_stream(&out), 3);
            assert!(found.is_empty(), "{filled} {end}: {found:?} in {}", lossy(&out));
        }
    }
}
