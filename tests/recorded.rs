//! Recorded traffic of some twenty providers passes as it came: with the shipped policies no request, reply or
//! stream changes by a byte, whatever its quirks. Runs over `tests/data/recorded`, and over the recordings of the
//! corpus too where `TOOLREIN_CORPUS` names one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail by panicking")]

#[path = "laws/recordings.rs"]
mod recordings;
#[path = "laws/world.rs"]
#[allow(dead_code, reason = "the laws use the rest")]
mod world;

use bytes::Bytes;
use recordings::{Kind, Recording, of_corpus, of_responses, own};
use std::collections::BTreeMap;
use toolrein::dialect::chat::reply::ReplyJudge;
use toolrein::dialect::reply::{Ending, Form, Limits, Options, Reply};
use toolrein::dialect::variant::{Placement, Variant};
use toolrein::exchange::RESPONSES;
use toolrein::exchange::judging::Judging;
use toolrein::policy::set::PolicySet;
use world::{Facts, NOW_MS, lossy, read, set_of, shipped, try_read};

fn recordings(kind: Kind) -> Vec<Recording> {
    let found: Vec<_> = own().into_iter().chain(of_corpus()).filter(|one| one.kind == kind).collect();
    assert!(found.len() > 15, "only {} recordings of {kind:?}", found.len());
    found
}

fn judging() -> Judging {
    let body = Bytes::from_static(br#"{"model":"m","messages":[{"role":"user","content":"q"}]}"#);
    read(&body, shipped(), &Facts::default()).judging()
}

const LIMITS: Limits = Limits { event: 1 << 20, held: 4 << 20, reply: 32 << 20 };

fn judge(form: Form) -> ReplyJudge<Judging> {
    ReplyJudge::new(judging(), form, LIMITS, Options::default())
}

/// How the reply ended, with an error of the upstream's given to the client.
fn ended(judge: &mut dyn Reply<Judging>, out: &mut Vec<Bytes>) -> Ending {
    match judge.finish(NOW_MS, out) {
        Ending::Refused => {
            judge.let_refusal_stand(NOW_MS, out);
            judge.finish(NOW_MS, out)
        }
        ending => ending,
    }
}

#[test]
fn every_recorded_request_is_read_and_sent_as_it_came() {
    for recording in recordings(Kind::Request) {
        let body = Bytes::from(recording.bytes);
        let has_messages = serde_json::from_slice::<serde_json::Value>(&body).unwrap()["messages"].is_array();
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
        calls += judge.judging.record.len();
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
            calls += judge.judging.record.len();
        }
    }
    assert!(calls > 50, "only {calls} calls were judged");
}

/// Gives the stream to the judge in chunks of these sizes, again and again.
fn push(judge: &mut dyn Reply<Judging>, stream: &[u8], sizes: &[usize], out: &mut Vec<Bytes>) {
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
    let unit = |recording: &Recording| {
        recording.name.trim_end_matches(|char: char| !char.is_ascii_digit()).to_owned()
    };
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
fn repeats(judge: &dyn Reply<Judging>) -> bool {
    let mut objected = judge.judging().record.iter().filter(|judged| !judged.objections.is_empty());
    objected.any(|judged| judged.objections[0].0 == "duplicates")
}

/// Whether a request for a response was answered with it: other routes were recorded too, and some recordings have
/// several streams in one file.
fn answers_create(reply: &Recording) -> bool {
    if reply.kind == Kind::Stream {
        return lossy(&reply.bytes).matches("event: response.completed").count() < 2;
    }
    let body: serde_json::Value = serde_json::from_slice(&reply.bytes).unwrap();
    body["output"].is_array() && body["object"] == "response" || is_error(&body)
}

/// Whether an upstream answered a request with this body and an error's status.
fn is_error(body: &serde_json::Value) -> bool {
    body.get("object").is_none() && (body["error"].is_object() || body.get("detail").is_some())
}

/// The judge of the replies to `request`, or to one that says nothing.
fn responses_judge(request: Option<&Bytes>, form: Form, policies: &PolicySet) -> Box<dyn Reply<Judging>> {
    let nothing = Bytes::from_static(br#"{"model":"m","input":"q"}"#);
    let reading = request.and_then(|body| try_read(body, policies, &Facts::default()));
    let reading = reading.unwrap_or_else(|| read(&nothing, policies, &Facts::default()));
    RESPONSES.replies(reading.judging(), form, LIMITS, Options::default())
}

#[test]
fn every_recorded_request_of_the_responses_api_is_read_and_sent_as_it_came() {
    let (mut creates, watchful) = (0, set_of(WATCHFUL));
    for (recording, _) in responses(Kind::Request) {
        let body = Bytes::from(recording.bytes);
        // Other routes, such as that of conversations, have neither.
        let names = serde_json::from_slice::<serde_json::Value>(&body).unwrap();
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
            let (mut judge, mut out) = (responses_judge(request.as_ref(), Form::Whole, policies), Vec::new());
            let is_error = is_error(&serde_json::from_slice(&recording.bytes).unwrap());
            judge.begin(Form::Whole, if is_error { 400 } else { 200 });
            judge.push(Bytes::from(recording.bytes.clone()), NOW_MS, &mut out);
            let ending = ended(&mut *judge, &mut out);
            if repeats(&*judge) {
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
                (responses_judge(request.as_ref(), Form::Streamed, policies), Vec::new());
            push(&mut *judge, &recording.bytes, &sizes, &mut out);
            let ending = ended(&mut *judge, &mut out);
            if repeats(&*judge) {
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
