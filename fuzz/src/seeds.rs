//! The seed corpus: recorded traffic and shipped configurations, in the form that each target reads. Made from
//! tests/data, so that no corpus has to be stored.

use crate::coded::{CODINGS, encode};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Arguments of calls that need an approval, in addition to recorded ones.
const ARGUMENTS: [&str; 7] = [
    "{}",
    "{\"to\":\"Bob\",\"amount\":1e3,\"note\":\"```\\n\\u202e\\u0000\"}",
    "{\"a\":1,\"a\":[{\"b\":[]},{}]}",
    "[1, \"\\ud83d\\ude00\"]",
    "",
    "{broken",
    "```\n{\"a\":\"\u{200b}\"}",
];
const ADMIN: [&str; 15] = [
    "GET\n/api/confirmations\nauthorization:Bearer a-token-of-the-fuzzer",
    "POST\n/api/confirmations/00000000000000000000000000000000\nauthorization:Bearer a-token-of-the-fuzzer\n\n{\"approve\":true}",
    "GET\n/metrics\nhost:localhost:4243",
    "HEAD\n/livez\nhost:127.0.0.1",
    "POST\n/config\nhost:[::1]",
    "GET\n/config\nhost:rebound.example",
    "GET\nhttp://localhost/readyz\naccept:*/*",
    "OPTIONS\n*",
    "CONNECT\nlocalhost:80",
    "GET\n/config/../metrics?x=%2e%2e\nhost:localhost\nhost:rebound.example",
    "GET\n/\nx-forwarded-host:evil.example",
    "POST\n/api/validate\nauthorization:Bearer a-token-of-the-fuzzer\n\n{\"request\":{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]},\"call\":{\"name\":\"search\",\"arguments\":\"{}\"}}",
    "POST\n/api/replay\nauthorization:Bearer a-token-of-the-fuzzer\n\n{\"conversation\":\"c\",\"configuration\":\"\"}",
    "GET\n/api/conversations?policy=loops&query=x&limit=5&offset=0\nauthorization:Bearer a-token-of-the-fuzzer",
    "GET\n/dashboard/views/tools.js\nsec-fetch-site:same-origin",
];

/// The first inputs of the target called `name`: those that once broke it, then those of its kind.
pub fn of(name: &str) -> Vec<Vec<u8>> {
    let mut all = files(&data().join("fuzzed").join(name), &[""]);
    all.extend(of_kind(name));
    all
}

fn of_kind(name: &str) -> Vec<Vec<u8>> {
    match name {
        "request" => prefixed(requests(), 2),
        "reply" => prefixed(recorded(&[".reply.json"]), 1),
        "stream" | "sse" => prefixed(recorded(&[".sse", ".chunks.txt"]), 2),
        "coding" => coded(),
        "leaks" => {
            let both =
                recorded(&[".reply.json", ".sse", ".chunks.txt"]).into_iter().map(|bytes| renamed(&bytes));
            prefixed(both.collect(), 1)
        }
        "config" => configs(),
        "replay" => prefixed(
            lines("replay/conversations.jsonl").chain(lines("transcripts/sample.jsonl")).collect(),
            1,
        ),
        "admin" => prefixed(ADMIN.iter().map(|text| text.as_bytes().to_vec()).collect(), 1),
        "refusal" => refusals(),
        "confirm" => {
            let recorded = values("calls/sample.jsonl").filter_map(|line| match &line["arguments"] {
                Value::String(text) => Some(text.clone().into_bytes()),
                _ => None,
            });
            let made = ARGUMENTS.iter().map(|text| text.as_bytes().to_vec());
            prefixed(recorded.chain(made).collect(), 2)
        }
        "store" => records(),
        "responses_request" => prefixed(of_responses(&[".request.json"]), 2),
        "responses_reply" => {
            let with = |first: u8, endings: &[&str]| {
                let renamed = of_responses(endings).into_iter().map(|bytes| renamed(&bytes));
                renamed.map(|bytes| [&[first], &bytes[..]].concat()).collect::<Vec<_>>()
            };
            let whole = [0, 2, 4].map(|first| with(first, &[".reply.json"]));
            let streams = [1, 3, 5, 35].map(|first| with(first, &[".sse"]));
            whole.into_iter().chain(streams).flatten().collect()
        }
        "responses_rounds" => prefixed(EXCHANGES.iter().map(|text| text.as_bytes().to_vec()).collect(), 1),
        "messages_request" => prefixed(texts("messages/requests.jsonl", "request"), 2),
        "messages_reply" => {
            let renamed = texts("messages/variants.jsonl", "body").into_iter().map(|bytes| renamed(&bytes));
            let bodies: Vec<Vec<u8>> = renamed.collect();
            let with = |first: u8| bodies.iter().map(move |body| [&[first], &body[..]].concat());
            [0, 1, 2, 3, 5, 35].into_iter().flat_map(with).collect()
        }
        "messages_exchanges" => {
            prefixed(MESSAGES_EXCHANGES.iter().map(|text| text.as_bytes().to_vec()).collect(), 1)
        }
        _ => Vec::new(),
    }
}

/// The texts that are this member of the lines of a file.
fn texts(file: &str, member: &str) -> Vec<Vec<u8>> {
    values(file).filter_map(|line| Some(line[member].as_str()?.as_bytes().to_vec())).collect()
}

/// Recorded streams in every coding, some in two of them.
fn coded() -> Vec<Vec<u8>> {
    let recorded = recorded(&[".reply.json", ".sse"]);
    let in_each = |text: &Vec<u8>| {
        let once = CODINGS.into_iter().enumerate().map(|(at, coding)| (at as u8, encode(coding, text)));
        let twice = (5, encode(("br", false), &encode(("gzip", false), text)));
        let all = once.chain([twice]);
        all.map(|(at, coded)| [&[at, 7], &coded[..]].concat()).collect::<Vec<_>>()
    };
    recorded.iter().flat_map(in_each).collect()
}

/// A recording whose tools have the names that the targets know.
fn renamed(bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes);
    let mut names = ["pay_bill", "look", "send_mail"].iter().cycle();
    let mut parts = text.split("\"name\":\"");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.find('"').map_or("", |end| &part[end..]);
        let name = names.next().unwrap_or(&"look");
        out.push_str(&format!("\"name\":\"{name}{rest}"));
    }
    out.into_bytes()
}

/// Each as every kind of record.
fn records() -> Vec<Vec<u8>> {
    let kinds = |body: &str| (0..9_u8).map(|kind| [&[kind], body.as_bytes()].concat()).collect::<Vec<_>>();
    RECORDS.iter().flat_map(|body| kinds(body)).collect()
}

/// Bodies of records of the shared state store, one of each kind at least.
const RECORDS: [&str; 9] = [
    "",
    "0000000000000000000000000000002a000000000000000000000000000000001700000000123",
    "0000000000000000000000000000002a1700000000123",
    "0000000000000000000000000000002a1700000000123 2 3600000",
    "0000000000000000000000000000002a300 12345 120 7",
    "late_system",
    r#"0000000000000000000000000000002a{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"a","content":"no"}"#,
    r#"{"token":"3K7PQR","words":["yes"],"calls":[{"id":"call_1","name":"pay","arguments":"{\\\"to\\\":1.50}","extra":[["extra_content","{\"a\":1}"]],"legacy":false,"custom":false}],"expires_ms":1700000000000}"#,
    r#"{"token":"","words":[],"calls":[{"id":"","name":"f","arguments":"","extra":[],"legacy":true,"custom":true}],"expires_ms":0}"#,
];

/// Each with several choices of `length` bytes before it.
fn prefixed(seeds: Vec<Vec<u8>>, length: usize) -> Vec<Vec<u8>> {
    let with = |(at, seed): (usize, Vec<u8>)| {
        let first = [0_u8, 1, 8, 15, 225].map(|first| first.wrapping_add(at as u8 % 7));
        first.map(|first| {
            let choices: Vec<u8> = (0..length as u8).map(|place| first.wrapping_mul(1 + place * 5)).collect();
            [choices, seed.clone()].concat()
        })
    };
    seeds.into_iter().enumerate().flat_map(with).collect()
}

fn requests() -> Vec<Vec<u8>> {
    let mut all = recorded(&[".request.json"]);
    for line in values("transcripts/sample.jsonl").chain(values("replay/conversations.jsonl")) {
        let mut body = json!({"model": line["model"], "messages": line["messages"]});
        if line["tools"].as_array().is_some_and(|tools| !tools.is_empty()) {
            body["tools"] = line["tools"].clone();
        }
        all.push(body.to_string().into_bytes());
    }
    for line in values("injection/sample.jsonl") {
        all.push(json!({"model": "m", "messages": [{"role": "user", "content": "q"},
            {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "read_page", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "a", "content": line["tool_result"]}]}).to_string().into_bytes());
    }
    all
}

fn refusals() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for file in ["corpus", "fresh", "heldout", "error_in_200", "healthy_200"] {
        for line in values(&format!("refusals/{file}.jsonl")) {
            let status = line["status"].as_u64().unwrap_or(200) as u16;
            let body = line["body"].as_str().map_or_else(|| line["body"].to_string(), str::to_owned);
            all.push([&status.to_be_bytes(), body.as_bytes()].concat());
        }
    }
    all
}

fn configs() -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let shipped = std::fs::read_to_string(root.join("proxy.toml")).unwrap_or_default();
    // A line that begins with # and no space is a setting that is off.
    let on = |line: &str| if line.starts_with("# ") { line.to_owned() } else { line.replacen('#', "", 1) };
    let everything: Vec<String> = shipped.lines().map(on).collect();
    let mut all = vec![shipped.into_bytes(), everything.join("\n").into_bytes()];
    for file in [
        "tests/it/simulation/everything.toml",
        "tests/data/states/tutor.toml",
        "tests/data/replay/policies.toml",
        "deploy/profiles/chat.toml",
        "deploy/profiles/artifacts.toml",
        "deploy/profiles/voice.toml",
        "deploy/profiles/text.toml",
        "deploy/profiles/tutor.toml",
    ] {
        all.extend(std::fs::read(root.join(file)).ok());
    }
    all
}

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data")
}

/// Hidden exchanges of the Responses API, each with the items among which it comes back.
const EXCHANGES: [&str; 3] = [
    r#"{"reply":"resp_1"},{"shown":{"type":"reasoning","id":"rs_1","summary":[]}},{"hidden":{"type":"function_call","id":"fc_1","call_id":"c1","name":"look","arguments":"{}"}},{"result":{"type":"function_call_output","call_id":"c1","output":"no"}}
{"type":"reasoning","id":"rs_1","summary":[]},{"type":"reasoning","id":"rs_2","summary":[]},{"type":"message","role":"assistant","id":"msg_1","content":[{"type":"output_text","text":"a"}]},{"role":"user","content":"go on"}"#,
    r#"{"shown":{"type":"message","role":"assistant","content":"a"}},{"hidden":{"type":"custom_tool_call","call_id":"c1","name":"look","input":"x"}},{"shown":{"type":"function_call","call_id":"c2","name":"look","arguments":"{}"}},{"result":{"type":"custom_tool_call_output","call_id":"c1","output":"no"}}
{"type":"message","role":"assistant","content":"a"},{"type":"function_call","call_id":"c2","name":"look","arguments":"{}"},{"type":"function_call_output","call_id":"c2","output":"r"}"#,
    r#"{"reply":"resp_1"},{"hidden":{"type":"shell_call","call_id":"c1","action":{"commands":["ls"]}}},{"result":{"type":"shell_call_output","call_id":"c1","output":[{"stdout":"","stderr":"no"}]}},{"reply":"resp_2"},{"hidden":{"type":"mcp_approval_request","id":"m","name":"f","server_label":"s","arguments":"{}"}},{"result":{"type":"mcp_approval_response","approval_request_id":"m","approve":false}}
{"type":"message","role":"assistant","content":"a"}"#,
];

/// Hidden exchanges of the Messages API, each with the messages among which it comes back.
const MESSAGES_EXCHANGES: [&str; 3] = [
    r#"{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"s1"},{"type":"text","text":"see"},{"type":"tool_use","id":"h","name":"look","input":{}}],"shown":[0,1]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"h","is_error":true,"content":"no"}]}
{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"s1"},{"type":"text","text":"see"},{"type":"thinking","thinking":"","signature":"s2"},{"type":"text","text":"done"}]},{"role":"user","content":"go on"}"#,
    r#"{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"look","input":{}},{"type":"tool_use","id":"h","name":"look","input":{}}],"shown":[0]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"h","is_error":true,"content":"no"}]}
{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"look","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"r"},{"type":"text","text":"note"}]}"#,
    r#"{"role":"assistant","content":[{"type":"tool_use","id":"h","name":"look","input":{}}],"shown":[]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"h","content":"no"}]}
{"content":"done","role":"assistant"}"#,
];

/// Recorded files of the Responses API.
fn of_responses(endings: &[&str]) -> Vec<Vec<u8>> {
    files(&data().join("responses"), endings)
}

/// Recorded files whose names end so.
fn recorded(endings: &[&str]) -> Vec<Vec<u8>> {
    files(&data().join("recorded"), endings)
}

fn files(folder: &Path, endings: &[&str]) -> Vec<Vec<u8>> {
    let Ok(files) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = files.flatten().map(|file| file.path()).collect();
    paths.sort();
    let fits = |path: &&PathBuf| endings.iter().any(|ending| path.to_string_lossy().ends_with(ending));
    paths.iter().filter(fits).filter_map(|path| std::fs::read(path).ok()).collect()
}

fn lines(file: &str) -> impl Iterator<Item = Vec<u8>> {
    let text = std::fs::read(data().join(file)).unwrap_or_default();
    let lines: Vec<Vec<u8>> = text.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    lines.into_iter().filter(|line| !line.is_empty())
}

fn values(file: &str) -> impl Iterator<Item = Value> {
    lines(file).filter_map(|line| serde_json::from_slice(&line).ok())
}
