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
use recordings::{Kind, Recording, of_corpus, own};
use toolrein::dialect::chat::reply::ReplyJudge;
use toolrein::dialect::reply::{Ending, Form, Limits, Options, Reply as _};
use toolrein::dialect::variant::{Placement, Variant};
use toolrein::exchange::judging::Judging;
use world::{Facts, NOW_MS, lossy, read, shipped};

fn recordings(kind: Kind) -> Vec<Recording> {
    let found: Vec<_> = own().into_iter().chain(of_corpus()).filter(|one| one.kind == kind).collect();
    assert!(found.len() > 15, "only {} recordings of {kind:?}", found.len());
    found
}

fn judging() -> Judging {
    let body = Bytes::from_static(br#"{"model":"m","messages":[{"role":"user","content":"q"}]}"#);
    read(&body, shipped(), &Facts::default()).judging()
}

fn judge(form: Form) -> ReplyJudge<Judging> {
    let limits = Limits { event: 1 << 20, held: 4 << 20, reply: 32 << 20 };
    ReplyJudge::new(judging(), form, limits, Options::default())
}

/// How the reply ended, with an error of the upstream's given to the client.
fn ended(judge: &mut ReplyJudge<Judging>, out: &mut Vec<Bytes>) -> Ending {
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
            let mut rest = recording.bytes.as_slice();
            for size in sizes.iter().cycle() {
                let (chunk, left) = rest.split_at((*size).min(rest.len()));
                judge.push(Bytes::copy_from_slice(chunk), NOW_MS, &mut out);
                judge.let_refusal_stand(NOW_MS, &mut out);
                rest = left;
                if rest.is_empty() {
                    break;
                }
            }
            assert_eq!(ended(&mut judge, &mut out), Ending::Complete, "{}", recording.name);
            assert_eq!(lossy(&out.concat()), lossy(&recording.bytes), "{} by {sizes:?}", recording.name);
            calls += judge.judging.record.len();
        }
    }
    assert!(calls > 50, "only {calls} calls were judged");
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
