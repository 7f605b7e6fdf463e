//! Recorded traffic of some twenty providers passes as it came: with the shipped policies no request, reply or
//! stream changes by a byte, whatever its quirks. A reply is judged as the answer to its recorded request, or to one that
//! declares the tools that it calls, so that the policies are at work and not idle. Runs over `tests/data/recorded`, and over the recordings of the
//! corpus too where `TOOLREIN_CORPUS` names one.

mod messages;

use crate::recordings::{Kind, Recording, of_corpus, of_responses, own};
use crate::world::{Facts, NOW_MS, lossy, read, set_of, shipped, try_read};
use bytes::Bytes;
use dialects::CHAT;
use dialects::RESPONSES;
use dialects::reply::{Ending, Form, Limits, Options};
use dialects::variant::{Placement, Variant};
use engine::judging::Judging;
use engine::pipeline::ReplyPipeline;
use policies::set::PolicySet;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

fn recordings(kind: Kind) -> Vec<Recording> {
    let found: Vec<_> = own().into_iter().chain(of_corpus()).filter(|one| one.kind == kind).collect();
    assert!(found.len() > 15, "only {} recordings of {kind:?}", found.len());
    found
}

fn judging() -> Judging {
    let body = Bytes::from_static(br#"{"model":"m","messages":[{"role":"user","content":"q"}]}"#);
    read(&body, shipped(), &Facts::default()).judging()
}

/// The recordings of a kind of reply, each with the request that it answers: the recorded one, or one that declares the
/// tools that it calls.
fn answered(kind: Kind) -> Vec<(Recording, Bytes)> {
    let bodies: BTreeMap<String, Bytes> =
        recordings(Kind::Request).into_iter().map(|one| (unit(&one), one.bytes.into())).collect();
    let is_read = |body: &&Bytes| try_read(body, shipped(), &Facts::default()).is_some();
    let with_request = |one: Recording| {
        let known = bodies.get(&unit(&one)).filter(is_read).cloned();
        let request = known.unwrap_or_else(|| declaring(&one));
        (one, request)
    };
    recordings(kind).into_iter().map(with_request).collect()
}

/// What a recorded request and its reply have in common in their names.
pub fn unit(recording: &Recording) -> String {
    recording.name.trim_end_matches(|char: char| !char.is_ascii_digit()).to_owned()
}

/// A request that declares the tools which a client finds in `reply`.
pub fn declaring(reply: &Recording) -> Bytes {
    let calls = match reply.kind {
        Kind::Stream => mock::tolerant::calls_in_stream(&reply.bytes),
        _ => mock::tolerant::calls_in_reply(&reply.bytes),
    };
    let names: BTreeSet<String> = calls.into_iter().map(|call| call.name).collect();
    let tools = names.iter().map(|name| json!({"type": "function", "function": {"name": name}}));
    let tools: Vec<Value> = tools.collect();
    json!({"model": "m", "messages": [{"role": "user", "content": "q"}], "tools": tools}).to_string().into()
}

/// The policies that had something to say about calls of a reply.
fn objectors(judging: &Judging) -> BTreeSet<&'static str> {
    judging.record.iter().flat_map(|judged| &judged.objections).map(|(policy, _)| *policy).collect()
}

/// The recorded replies in which a shipped policy blocks a call, and which one: the model called a tool that its request
/// does not declare, or with arguments that its schema does not allow.
const BLOCKED: [(&str, &str); 0] = [];

/// Asserts that the shipped policies blocked calls in these recordings of the project's own and in no other.
fn assert_blocked(blocked: &BTreeSet<(String, &'static str)>) {
    let own: BTreeSet<String> = own().into_iter().map(|one| one.name).collect();
    let here: Vec<(&str, &str)> = blocked
        .iter()
        .filter(|(name, _)| own.contains(name))
        .map(|(name, policy)| (name.as_str(), *policy))
        .collect();
    let known: Vec<(&str, &str)> = BLOCKED.into_iter().filter(|one| here.contains(one)).collect();
    assert_eq!(here, known, "all: {blocked:?}");
}

const LIMITS: Limits = Limits { event: 1 << 20, held: 4 << 20, reply: 32 << 20 };

fn judge(form: Form) -> ReplyPipeline {
    ReplyPipeline::new(judging(), CHAT, form, LIMITS, Options::default())
}

/// How the reply ended, with an error of the upstream's given to the client.
fn ended(judge: &mut ReplyPipeline, out: &mut Vec<Bytes>) -> Ending {
    match judge.finish(NOW_MS, out) {
        Ending::Refused => {
            judge.let_refusal_stand(NOW_MS, out);
            judge.finish(NOW_MS, out)
        }
        ending => ending,
    }
}

#[test]
fn every_recorded_reply_passes_as_it_came_where_its_tools_are_declared() {
    let (mut calls, mut blocked) = (0, BTreeSet::new());
    for (recording, request) in answered(Kind::Reply) {
        let reading = read(&request, shipped(), &Facts::default());
        let options = Options { output_limit: reading.request.output_limit, ..Options::default() };
        let mut judge = ReplyPipeline::new(reading.judging(), CHAT, Form::Whole, LIMITS, options);
        let mut out = Vec::new();
        judge.push(Bytes::from(recording.bytes.clone()), NOW_MS, &mut out);
        let ending = ended(&mut judge, &mut out);
        let objectors = objectors(judge.judging());
        if !objectors.is_empty() {
            blocked.extend(objectors.into_iter().map(|policy| (recording.name.clone(), policy)));
            continue;
        }
        assert_eq!(ending, Ending::Complete, "{}", recording.name);
        assert_eq!(lossy(&out.concat()), lossy(&recording.bytes), "{}", recording.name);
        calls += judge.judging().record.len();
    }
    assert!(calls > 5, "only {calls} calls were judged");
    assert_blocked(&blocked);
}

#[test]
fn every_recorded_stream_passes_as_it_came_where_its_tools_are_declared() {
    let (mut calls, mut blocked) = (0, BTreeSet::new());
    for (recording, request) in answered(Kind::Stream) {
        for sizes in [vec![usize::MAX], vec![1], random_sizes(&recording.bytes)] {
            let judging = read(&request, shipped(), &Facts::default()).judging();
            let mut judge = ReplyPipeline::new(judging, CHAT, Form::Streamed, LIMITS, Options::default());
            let mut out = Vec::new();
            push(&mut judge, &recording.bytes, &sizes, &mut out);
            let ending = ended(&mut judge, &mut out);
            let objectors = objectors(judge.judging());
            if !objectors.is_empty() {
                blocked.extend(objectors.into_iter().map(|policy| (recording.name.clone(), policy)));
                continue;
            }
            assert_eq!(ending, Ending::Complete, "{}", recording.name);
            assert_eq!(lossy(&out.concat()), lossy(&recording.bytes), "{} by {sizes:?}", recording.name);
            calls += judge.judging().record.len();
        }
    }
    assert!(calls > 50, "only {calls} calls were judged");
    assert_blocked(&blocked);
}

#[test]
fn every_recorded_request_is_read_and_sent_as_it_came() {
    for recording in recordings(Kind::Request) {
        let body = Bytes::from(recording.bytes);
        let has_messages = serde_json::from_slice::<Value>(&body).unwrap()["messages"].is_array();
        // Requests of other routes have none and are not read.
        if has_messages {
            let reading = read(&body, shipped(), &Facts::default());
            assert_eq!(reading.plan.edits, [], "{}", recording.name);
            assert_eq!(reading.write(&Variant::plain(Placement::System)), body, "{}", recording.name);
        }
    }
}

#[test]
fn every_recorded_reply_passes_as_it_came() {
    let mut calls = 0;
    for recording in recordings(Kind::Reply) {
        let (mut judge, mut out) = (judge(Form::Whole), Vec::new());
        judge.push(Bytes::from(recording.bytes.clone()), NOW_MS, &mut out);
        assert_eq!(ended(&mut judge, &mut out), Ending::Complete, "{}", recording.name);
        assert_eq!(lossy(&out.concat()), lossy(&recording.bytes), "{}", recording.name);
        assert!(!judge.is_changed(), "{}", recording.name);
        calls += judge.judging().record.len();
    }
    assert!(calls > 5, "only {calls} calls were judged");
}

#[test]
fn every_recorded_stream_passes_as_it_came_in_any_chunks() {
    let mut calls = 0;
    for recording in recordings(Kind::Stream) {
        for sizes in [vec![usize::MAX], vec![1], vec![3, 1, 50, 7], random_sizes(&recording.bytes)] {
            let (mut judge, mut out) = (judge(Form::Streamed), Vec::new());
            push(&mut judge, &recording.bytes, &sizes, &mut out);
            assert_eq!(ended(&mut judge, &mut out), Ending::Complete, "{}", recording.name);
            assert_eq!(lossy(&out.concat()), lossy(&recording.bytes), "{} by {sizes:?}", recording.name);
            calls += judge.judging().record.len();
        }
    }
    assert!(calls > 50, "only {calls} calls were judged");
}

/// Gives the stream to the judge in chunks of these sizes, again and again.
fn push(judge: &mut ReplyPipeline, stream: &[u8], sizes: &[usize], out: &mut Vec<Bytes>) {
    let mut rest = stream;
    for size in sizes.iter().cycle() {
        let (chunk, left) = rest.split_at((*size).min(rest.len()));
        judge.push(Bytes::copy_from_slice(chunk), NOW_MS, out);
        judge.let_refusal_stand(NOW_MS, out);
        rest = left;
        if rest.is_empty() {
            break;
        }
    }
}

/// Policies that look at every call and its arguments, and at every text, and have no cause to act.
const WATCHFUL: &str = r#"
[policy.budget]
tool_calls = 100_000
[policy.rate_limit]
default = { calls = 10_000, per = "60s" }
[policy.truncate]
max_chars = 10_000_000
[policy.duplicates]
tools = ["*"]
[policy.taint]
tools = ["*"]
[policy.confirm]
tools = ["no_such_tool"]
"#;

/// The recordings of the Responses API, with the request of each reply where it was recorded too.
fn responses(kind: Kind) -> Vec<(Recording, Option<Bytes>)> {
    let (requests, others): (Vec<_>, Vec<_>) =
        of_responses().into_iter().partition(|one| one.kind == Kind::Request);
    let found: Vec<_> = if kind == Kind::Request {
        requests.into_iter().map(|one| (one, None)).collect()
    } else {
        let bodies: BTreeMap<String, Bytes> =
            requests.into_iter().map(|one| (unit(&one), one.bytes.into())).collect();
        let of_kind = others.into_iter().filter(|one| one.kind == kind && answers_create(one));
        let with_body = |one: Recording| (bodies.get(&unit(&one)).cloned(), one);
        of_kind.map(with_body).map(|(body, one)| (one, body)).collect()
    };
    assert!(found.len() > 15, "only {} recordings of {kind:?}", found.len());
    found
}

/// Whether a call was blocked as it should be: some recorded models repeat calls.
fn repeats(judge: &ReplyPipeline) -> bool {
    let mut objected = judge.judging().record.iter().filter(|judged| !judged.objections.is_empty());
    objected.any(|judged| judged.objections[0].0 == "duplicates")
}

/// Whether a request for a response was answered with it: other routes were recorded too, and some recordings have
/// several streams in one file.
pub fn answers_create(reply: &Recording) -> bool {
    if reply.kind == Kind::Stream {
        return lossy(&reply.bytes).matches("event: response.completed").count() < 2;
    }
    let body: Value = serde_json::from_slice(&reply.bytes).unwrap();
    body["output"].is_array() && body["object"] == "response" || is_error(&body)
}

/// Whether an upstream answered a request with this body and an error's status.
pub fn is_error(body: &Value) -> bool {
    body.get("object").is_none() && (body["error"].is_object() || body.get("detail").is_some())
}

/// A request that declares the tools which the items of `reply` call.
pub fn declaring_items(reply: &Recording) -> Bytes {
    let text = lossy(&reply.bytes);
    let data = text.lines().filter_map(|line| line.strip_prefix("data:"));
    let mut values: Vec<Value> = data.filter_map(|data| serde_json::from_str(data).ok()).collect();
    values.extend(serde_json::from_str::<Value>(&text).ok());
    let mut tools = BTreeMap::new();
    while let Some(value) = values.pop() {
        if let (Some("function_call" | "custom_tool_call"), Some(name)) =
            (value["type"].as_str(), value["name"].as_str())
        {
            let tool = json!({"type": "function", "name": name});
            let namespace = value["namespace"].as_str().filter(|namespace| *namespace != name);
            let tool = match namespace {
                Some(outer) => json!({"type": "namespace", "name": outer, "tools": [tool]}),
                None => tool,
            };
            tools.insert(tool.to_string(), tool);
        }
        match value {
            Value::Array(items) => values.extend(items),
            Value::Object(members) => values.extend(members.into_iter().map(|(_, value)| value)),
            _ => {}
        }
    }
    let tools: Vec<Value> = tools.into_values().collect();
    json!({"model": "m", "input": "q", "tools": tools}).to_string().into()
}

/// The judge of `reply` to `request`, or to a request that declares the tools which the reply calls.
fn responses_judge(
    request: Option<&Bytes>,
    reply: &Recording,
    form: Form,
    policies: &PolicySet,
) -> ReplyPipeline {
    let reading = request.and_then(|body| try_read(body, policies, &Facts::default()));
    let reading = reading.unwrap_or_else(|| read(&declaring_items(reply), policies, &Facts::default()));
    let options = Options { output_limit: reading.request.output_limit, ..Options::default() };
    ReplyPipeline::new(reading.judging(), RESPONSES, form, LIMITS, options)
}

#[test]
fn every_recorded_request_of_the_responses_api_is_read_and_sent_as_it_came() {
    let (mut creates, watchful) = (0, set_of(WATCHFUL));
    for (recording, _) in responses(Kind::Request) {
        let body = Bytes::from(recording.bytes);
        // Other routes, such as that of conversations, have neither.
        let names = serde_json::from_slice::<Value>(&body).unwrap();
        if names.get("input").is_none() && names.get("previous_response_id").is_none() {
            continue;
        }
        creates += 1;
        for policies in [shipped(), &watchful] {
            let reading = read(&body, policies, &Facts::default());
            assert_eq!(reading.plan.edits, [], "{}", recording.name);
            for placement in [Placement::System, Placement::Suffix, Placement::Leading] {
                assert_eq!(reading.write(&Variant::plain(placement)), body, "{}", recording.name);
            }
        }
    }
    assert!(creates > 20, "only {creates} requests");
}

#[test]
fn every_recorded_reply_of_the_responses_api_passes_as_it_came() {
    let (mut calls, watchful) = (0, set_of(WATCHFUL));
    for (recording, request) in responses(Kind::Reply) {
        for policies in [shipped(), &watchful] {
            let (mut judge, mut out) =
                (responses_judge(request.as_ref(), &recording, Form::Whole, policies), Vec::new());
            let is_error = is_error(&serde_json::from_slice(&recording.bytes).unwrap());
            judge.begin(Form::Whole, if is_error { 400 } else { 200 });
            judge.push(Bytes::from(recording.bytes.clone()), NOW_MS, &mut out);
            let ending = ended(&mut judge, &mut out);
            if repeats(&judge) {
                continue;
            }
            assert_eq!(ending, Ending::Complete, "{}", recording.name);
            assert_eq!(lossy(&out.concat()), lossy(&recording.bytes), "{}", recording.name);
            assert!(!judge.is_changed(), "{}", recording.name);
            calls += judge.judging().record.len();
        }
    }
    assert!(calls > 5, "only {calls} calls were judged");
}

#[test]
fn every_recorded_stream_of_the_responses_api_passes_as_it_came_in_any_chunks() {
    let (mut calls, watchful) = (0, set_of(WATCHFUL));
    for (recording, request) in responses(Kind::Stream) {
        for (sizes, policies) in [
            (vec![usize::MAX], shipped()),
            (vec![1], &watchful),
            (vec![3, 1, 50, 7], &watchful),
            (random_sizes(&recording.bytes), &watchful),
        ] {
            let (mut judge, mut out) =
                (responses_judge(request.as_ref(), &recording, Form::Streamed, policies), Vec::new());
            push(&mut judge, &recording.bytes, &sizes, &mut out);
            let ending = ended(&mut judge, &mut out);
            if repeats(&judge) {
                continue;
            }
            assert_eq!(ending, Ending::Complete, "{}", recording.name);
            assert_eq!(lossy(&out.concat()), lossy(&recording.bytes), "{} by {sizes:?}", recording.name);
            assert!(!judge.is_changed(), "{}", recording.name);
            calls += judge.judging().record.len();
        }
    }
    assert!(calls > 20, "only {calls} calls were judged");
}

/// Sizes of chunks that differ from stream to stream and stay the same from run to run.
fn random_sizes(bytes: &[u8]) -> Vec<usize> {
    let mut state = bytes.len() as u64 | 1;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        1 + (state >> 33) as usize % 900
    };
    (0..64).map(next).collect()
}
