//! Leaks: whatever a model or a gateway sends, no client can find a call in it that was not judged. This is checked
//! with a second reader, which treats as a call everything that any client might, over traffic that is changed in
//! every way in which readers were found to differ.

use super::recordings::{Kind, own_of};
use super::world::{Facts, NOW_MS, lossy, read, set_of};
use bytes::Bytes;
use dialects::CHAT;
use dialects::reply::{Ending, Form, Limits, Options};
use engine::judging::Judging;
use engine::pipeline::ReplyPipeline;
use mock::tolerant::{Call, calls_in_reply, calls_in_stream};
use policies::set::PolicySet;
use proptest::prelude::*;
use serde_json::{Value, json};

/// The tools whose calls must never be seen.
const FORBIDDEN: &str = "evil";

/// Policies that forbid these tools: by name; by a person's approval; and beside policies that wait for arguments.
const SETS: [&str; 4] = [
    "[policy.allow]\nexcept = [\"evil*\"]\nundeclared = \"pass\"",
    "[policy.confirm]\ntools = [\"evil*\"]",
    "[policy.allow]\nexcept = [\"evil*\"]\n[policy.arguments]\n[policy.loops]\n[policy.serial]\ntools = [\"*\"]\n",
    "[policy.allow]\nexcept = [\"evil*\"]\n[policy.ask_user]\ntool = true\n",
];

/// A tool of toolrein's own by the last set, and its index.
const OWN: (&str, usize) = ("ask_for_clarification", 3);

const TOOLS: [&str; 4] = ["ok", "evil", "evil_two", "say"];

const LIMITS: Limits = Limits { event: 1 << 20, held: 1 << 20, reply: 1 << 20 };

fn judging(set: &PolicySet) -> Judging {
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}});
    let tools: Vec<Value> = TOOLS.map(tool).to_vec();
    let body =
        json!({"model": "m", "messages": [{"role": "user", "content": "q"}], "tools": tools}).to_string();
    read(&Bytes::from(body), set, &Facts::default()).judging()
}

/// What the client gets of a stream, in chunks of these sizes, before the model would be asked again.
fn streamed(set: &PolicySet, stream: &[u8], sizes: &[usize]) -> Vec<u8> {
    let mut judge = ReplyPipeline::new(judging(set), CHAT, Form::Streamed, LIMITS, Options::default());
    let (mut out, mut rest, mut sizes) = (Vec::new(), stream, sizes.iter().cycle());
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

/// What the client gets of a whole reply; nothing where it is refused.
fn whole(set: &PolicySet, body: &[u8]) -> Vec<u8> {
    let mut judge = ReplyPipeline::new(judging(set), CHAT, Form::Whole, LIMITS, Options::default());
    let mut out = Vec::new();
    judge.push(Bytes::copy_from_slice(body), NOW_MS, &mut out);
    while judge.finish(NOW_MS, &mut out) == Ending::Refused {
        judge.let_refusal_stand(NOW_MS, &mut out);
    }
    out.concat()
}

fn forbidden(calls: Vec<Call>, set: usize) -> Vec<Call> {
    let is_own = |call: &Call| (call.name.as_str(), set) == OWN;
    calls.into_iter().filter(|call| call.name.starts_with(FORBIDDEN) || is_own(call)).collect()
}

/// Numbers that follow from a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound.max(1)
    }

    fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

const KEYS: [&str; 9] =
    ["choices", "message", "delta", "tool_calls", "function", "name", "arguments", "index", "function_call"];

/// Ways to change the JSON of a reply or of a chunk so that readers interpret it differently.
const BENDS: &[fn(String, &mut Numbers) -> String] = &[
    // A letter of a member's name is escaped.
    |text, numbers| {
        let key = *numbers.of(&KEYS);
        let at = numbers.below(key.len());
        let escaped = format!("\"{}\\u{:04x}{}\"", &key[..at], key.as_bytes()[at], &key[at + 1..]);
        once(&text, &format!("\"{key}\":"), &format!("{escaped}:"), numbers)
    },
    // A member's name in another case, as Go reads it.
    |text, numbers| {
        let key = *numbers.of(&KEYS);
        let other = if numbers.below(2) == 0 { key.to_uppercase() } else { key.replacen('s', "\u{17f}", 1) };
        once(&text, &format!("\"{key}\":"), &format!("\"{other}\":"), numbers)
    },
    // A harmless member before or after the one of the same name.
    |text, numbers| {
        let (key, decoy) = *numbers.of(&[
            ("function", r#"{"name":"ok","arguments":"{}"}"#),
            ("name", r#""ok""#),
            ("tool_calls", "[]"),
            ("delta", "{}"),
            ("message", "{}"),
            ("delta", r#"{"content":"x"}"#),
            ("choices", "[]"),
            ("index", "7"),
            ("arguments", r#""{}""#),
        ]);
        once(&text, &format!("\"{key}\":"), &format!("\"{key}\":{decoy},\"{key}\":"), numbers)
    },
    // The member that holds the calls has its other name, or both names occur.
    |text, numbers| {
        let (from, to) = *numbers.of(&[("delta", "message"), ("message", "delta")]);
        once(&text, &format!("\"{from}\":"), &format!("\"{to}\":"), numbers)
    },
    |text, numbers| {
        let beside = *numbers.of(&[
            r#""message":{"role":"assistant","content":"x"},"#,
            r#""delta":{"content":"x"},"#,
            r#""message":{"tool_calls":[{"id":"z","type":"function","function":{"name":"evil","arguments":"{}"}}]},"#,
            r#""delta":{"tool_calls":[{"index":0,"id":"z","function":{"name":"evil","arguments":"{}"}}]},"#,
            r#""delta":{"function_call":{"name":"evil","arguments":"{}"}},"#,
        ]);
        once(&text, "\"choices\":[{", &format!("\"choices\":[{{{beside}"), numbers)
    },
    // An error beside the call.
    |text, numbers| {
        let error = *numbers.of(&[
            r#""error":{"message":"x","code":500},"#,
            r#""error":{"code":0,"message":""},"#,
            r#""object":"error","#,
            r#""base_resp":{"status_code":1004,"status_msg":"x"},"#,
            r#""type":"response.failed","#,
        ]);
        text.replacen('{', &format!("{{{error}"), 1)
    },
    // Invalid indexes.
    |text, numbers| {
        let index =
            *numbers.of(&["\"0\"", "0.0", "0e0", "4294967296", "-1", "null", "true", "\"a\"", "1", "[0]"]);
        once(&text, "\"index\":0", &format!("\"index\":{index}"), numbers)
    },
    // JSON that only some readers accept.
    |text, _| format!("\u{feff}{text}"),
    |text, numbers| {
        let odd = *numbers.of(&["NaN", "Infinity", "-Infinity", "1e999", "[[[[]]]]"]);
        text.replacen('{', &format!("{{\"x\":{odd},"), 1)
    },
    |text, _| text.replacen('{', &format!("{{\"x\":{}{},", "[".repeat(200), "]".repeat(200)), 1),
    |text, numbers| {
        let other = *numbers.of(&["null,", "7,", "[],", "{},"]);
        once(&text, "\"choices\":[", &format!("\"choices\":[{other}"), numbers)
    },
    |text, numbers| {
        let other = *numbers.of(&["null,", "\"x\",", "[],", "{},"]);
        once(&text, "\"tool_calls\":[", &format!("\"tool_calls\":[{other}"), numbers)
    },
    // Placeholders, and the other form of a call, beside calls.
    |text, numbers| {
        let other = *numbers.of(&[
            r#"{"id":"","type":"function","function":{"name":"","arguments":""}},"#,
            r#"{"index":0,"function":{"name":"","arguments":""}},"#,
            r#"{"index":0,"id":"p","function":{"name":"","arguments":"{}"}},"#,
            r#"{"index":0,"function":{"arguments":"{}"}},"#,
        ]);
        once(&text, "\"tool_calls\":[", &format!("\"tool_calls\":[{other}"), numbers)
    },
    |text, numbers| {
        let other = *numbers.of(&[
            r#""custom":{"name":"","input":""},"#,
            r#""custom":{"name":"","input":"{}"},"#,
            r#""custom":{"name":"evil","input":""},"#,
            r#""function":{"name":"","arguments":""},"#,
        ]);
        once(&text, "\"function\":{", &format!("{other}\"function\":{{"), numbers)
    },
    |text, numbers| {
        let other = *numbers.of(&[
            r#""function_call":{"name":"","arguments":""},"#,
            r#""function_call":{"name":"","arguments":"{}"},"#,
            r#""function_call":{"name":"evil"},"#,
            r#""function_call":{"arguments":"{}"},"#,
        ]);
        let holder = *numbers.of(&["delta", "message"]);
        once(&text, &format!("\"{holder}\":{{"), &format!("\"{holder}\":{{{other}"), numbers)
    },
    // The name in another place, or longer.
    |text, numbers| once(&text, "\"name\":\"evil\"", "\"name\":\"ev\\u0069l\"", numbers),
    |text, numbers| once(&text, "\"name\":\"ok\"", "\"name\":\"evil_two\"", numbers),
    |text, numbers| once(&text, "\"function\":{", "\"name\":\"evil\",\"arguments\":\"{}\",\"fn\":{", numbers),
    // A call that contains others.
    |text, numbers| {
        let inner = r#""name":"multi_tool_use.parallel","arguments":"{\"tool_uses\":[{\"recipient_name\":\"functions.evil\",\"parameters\":{}}]}","x":"#;
        once(&text, "\"name\":", inner, numbers)
    },
];

/// `text` with one of the places where it says `from` saying `to`.
fn once(text: &str, from: &str, to: &str, numbers: &mut Numbers) -> String {
    let places: Vec<usize> = text.match_indices(from).map(|(at, _)| at).collect();
    if places.is_empty() {
        return text.to_owned();
    }
    let at = *numbers.of(&places);
    format!("{}{to}{}", &text[..at], &text[at + from.len()..])
}

/// Ways to change a stream around its events.
const STREAM_BENDS: &[fn(String, &mut Numbers) -> String] = &[
    |stream, numbers| once(&stream, "data: {", "event: error\ndata: {", numbers),
    |stream, numbers| once(&stream, "data: {", "error: {", numbers),
    |stream, _| stream.replace("\n\n", "\n"),
    |stream, _| stream.replace('\n', "\r\n"),
    |stream, _| stream.replace(",\"", ",\ndata: \""),
    |stream, numbers| once(&stream, "\n\ndata: {", "\n\ndata: [DONE]\n\ndata: {", numbers),
    |stream, numbers| once(&stream, "data: {", "data: [DONE]\ndata: {", numbers),
    |stream, numbers| once(&stream, "data: {", "{", numbers),
    |stream, numbers| {
        once(
            &stream,
            "\n\n",
            "\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n",
            numbers,
        )
    },
    // An event comes twice.
    |stream, numbers| {
        let events: Vec<&str> = stream.split_inclusive("\n\n").collect();
        let at = numbers.below(events.len());
        let mut all = events.clone();
        all.insert(numbers.below(events.len()), events[at]);
        all.concat()
    },
];

/// A stream with these names for its calls, each in pieces.
fn stream_of(calls: &[(String, Vec<String>)], numbers: &mut Numbers) -> String {
    let event = |delta: Value, finish: Value| {
        format!(
            "data: {}\n\n",
            json!({"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
        )
    };
    let mut out = event(json!({"role": "assistant", "content": null}), Value::Null);
    for (at, (name, arguments)) in calls.iter().enumerate() {
        let cut = numbers.below(name.len() + 1);
        let names: Vec<&str> = match numbers.below(4) {
            0 => vec![&name[..cut], &name[cut..]],
            1 => vec!["ok", name],
            2 => vec![name, ""],
            _ => vec![name],
        };
        let index = if numbers.below(5) == 0 { 0 } else { at };
        for (piece, name) in names.iter().enumerate() {
            let id = if piece == 0 || numbers.below(3) == 0 { format!("call_{at}") } else { String::new() };
            let delta = json!({"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}});
            out += &event(json!({ "tool_calls": [delta] }), Value::Null);
        }
        for piece in arguments {
            let name = if numbers.below(9) == 0 { name.as_str() } else { "" };
            let delta = json!({"index": index, "function": {"name": name, "arguments": piece}});
            out += &event(json!({ "tool_calls": [delta] }), Value::Null);
        }
    }
    out + &event(json!({}), json!("tool_calls")) + "data: [DONE]\n\n"
}

fn bend_stream(mut stream: String, bends: &[usize], numbers: &mut Numbers) -> String {
    for bend in bends {
        let all = BENDS.len() + STREAM_BENDS.len();
        stream = match (bend % all).checked_sub(BENDS.len()) {
            Some(at) => STREAM_BENDS[at](stream, numbers),
            None => {
                let mut events: Vec<String> = stream.split_inclusive("\n\n").map(str::to_owned).collect();
                let with_calls: Vec<usize> = (0..events.len())
                    .filter(|at| events[*at].contains("evil") || events[*at].contains("call"))
                    .collect();
                let at = if with_calls.is_empty() {
                    numbers.below(events.len())
                } else {
                    *numbers.of(&with_calls)
                };
                if let Some(data) = events[at].strip_prefix("data: ").filter(|data| data.starts_with('{')) {
                    events[at] = format!("data: {}", BENDS[bend % all](data.to_owned(), numbers));
                }
                events.concat()
            }
        };
    }
    stream
}

fn names() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["ok", "evil", "evil_two", "say", OWN.0]).prop_map(str::to_owned)
}

fn calls() -> impl Strategy<Value = Vec<(String, Vec<String>)>> {
    let arguments = prop::sample::select(vec![
        vec![],
        vec!["{}"],
        vec!["{\"a\"", ":1}"],
        vec!["{\"question\":\"Which?\",", "\"context\":\"\"}"],
        vec!["{\"a\":1", ",\"b\":2", "}"],
        vec!["{", "broken"],
        vec![" "],
    ]);
    let call = (names(), arguments.prop_map(|pieces| pieces.into_iter().map(str::to_owned).collect()));
    prop::collection::vec(call, 1..4)
}

fn sets() -> [PolicySet; 4] {
    SETS.map(set_of)
}

/// How many cases each law is tried with: a tenth in the fast loop (`make test-fast`).
fn cases() -> u32 {
    if std::env::var_os("FAST").is_some() { 150 } else { 1_500 }
}

proptest! {
    #![proptest_config(crate::laws::with_cases(cases()))]

    #[test]
    fn no_client_finds_a_forbidden_call_in_a_bent_stream(
        calls in calls(),
        bends in prop::collection::vec(0..1000_usize, 0..4),
        sizes in prop::collection::vec(1..400_usize, 1..4),
        seed in any::<u64>(),
        at in 0..4_usize,
    ) {
        let mut numbers = Numbers(seed);
        let stream = bend_stream(stream_of(&calls, &mut numbers), &bends, &mut numbers);
        let out = streamed(&sets()[at], stream.as_bytes(), &sizes);
        let found = forbidden(calls_in_stream(&out), at);
        prop_assert!(found.is_empty(), "{found:?}\nin\n{}\nof\n{stream}", lossy(&out));
    }

    #[test]
    fn no_client_finds_a_forbidden_call_in_a_bent_reply(
        calls in calls(),
        bends in prop::collection::vec(0..BENDS.len(), 0..4),
        seed in any::<u64>(),
        at in 0..4_usize,
    ) {
        let mut numbers = Numbers(seed);
        let calls: Vec<Value> = calls
            .iter()
            .enumerate()
            .map(|(at, (name, arguments))| json!({"index": at, "id": format!("c{at}"), "type": "function", "function": {"name": name, "arguments": arguments.concat()}}))
            .collect();
        let mut body = json!({"id": "c", "choices": [{"index": 0, "message": {"role": "assistant", "content": null, "tool_calls": calls}, "finish_reason": "tool_calls"}]}).to_string();
        for bend in bends {
            body = BENDS[bend](body, &mut numbers);
        }
        let out = whole(&sets()[at], body.as_bytes());
        let found = forbidden(calls_in_reply(&out), at);
        prop_assert!(found.is_empty(), "{found:?}\nin\n{}\nof\n{body}", lossy(&out));
    }

    #[test]
    fn no_client_finds_a_forbidden_call_in_recorded_traffic_that_is_bent(
        at in any::<prop::sample::Index>(),
        bends in prop::collection::vec(0..1000_usize, 0..4),
        sizes in prop::collection::vec(1..400_usize, 1..4),
        seed in any::<u64>(),
        set in 0..4_usize,
    ) {
        let mut streams = own_of(Kind::Stream);
        streams.retain(|stream| stream.bytes.len() < 12_000);
        let recorded = lossy(&streams.swap_remove(at.index(streams.len())).bytes);
        let mut numbers = Numbers(seed);
        let named = rename(&recorded, &mut numbers);
        let stream = bend_stream(named, &bends, &mut numbers);
        let out = streamed(&sets()[set], stream.as_bytes(), &sizes);
        let found = forbidden(calls_in_stream(&out), set);
        prop_assert!(found.is_empty(), "{found:?}\nin\n{}\nof\n{stream}", lossy(&out));
    }
}

/// A recorded stream whose tools go by names of ours.
fn rename(stream: &str, numbers: &mut Numbers) -> String {
    let mut out = String::new();
    for part in stream.split_inclusive("\"name\":\"") {
        let (name, rest) = match out.ends_with("\"name\":\"") {
            true => part.split_at(part.find('"').unwrap_or(0)),
            false => ("", part),
        };
        let tool: &&str = numbers.of(&TOOLS);
        out.push_str(if name.is_empty() { "" } else { tool });
        out.push_str(rest);
    }
    out
}

#[test]
fn the_lenient_test_reader_finds_oddly_formatted_calls() {
    let body = r#"{"choices":[{"message":{"content":null},"Delta":{"tool\u005fcalls":[{"function":{"name":"a"},"function":{"name":"b","arguments":{"x":1}}}]}}]}"#;
    let names: Vec<String> = calls_in_reply(body.as_bytes()).into_iter().map(|call| call.name).collect();
    assert_eq!(names, ["a", "b"]);
    let piece = |name: &str, arguments: &str| {
        format!(
            "data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{{\"index\":0,\"function\":{{\"name\":\"{name}\",\"arguments\":\"{arguments}\"}}}}]}}}}]}}\n\n"
        )
    };
    let stream = piece("get_", "") + &piece("weather", "{}");
    let names: Vec<String> = calls_in_stream(stream.as_bytes()).into_iter().map(|call| call.name).collect();
    for name in ["get_", "weather", "get_weather"] {
        assert!(names.iter().any(|found| found == name), "{name} in {names:?}");
    }
    let inner = piece("parallel", r#"{\"tool_uses\":[{\"recipient_name\":\"functions.pay\"}]}"#);
    assert!(calls_in_stream(inner.as_bytes()).iter().any(|call| call.name == "pay"));
}

#[test]
fn what_is_allowed_still_passes_as_it_came() {
    let mut numbers = Numbers(1);
    for set in sets() {
        let stream = stream_of(&[("ok".to_owned(), vec!["{}".to_owned()])], &mut numbers);
        assert_eq!(lossy(&streamed(&set, stream.as_bytes(), &[50])), stream);
    }
}
