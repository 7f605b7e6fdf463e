//! Recorded traffic of Anthropic's Messages API passes as it came, under the shipped policies and under policies that look at
//! everything and have no cause to act.

use super::{LIMITS, WATCHFUL, ended, objectors, push, random_sizes, repeats, unit};
use crate::recordings::{Kind, Recording, of_messages};
use crate::world::{Facts, NOW_MS, lossy, read_in, set_of, shipped, try_read_in};
use bytes::Bytes;
use dialects::MESSAGES;
use dialects::reply::{Ending, Form, Options};
use dialects::variant::{Placement, Variant};
use engine::pipeline::ReplyPipeline;
use policies::set::PolicySet;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The recordings of a kind, each with the request that it answers where that was recorded too.
fn recordings(kind: Kind) -> Vec<(Recording, Option<Bytes>)> {
    let all = of_messages();
    let requests = all.iter().filter(|one| one.kind == Kind::Request);
    let bodies: BTreeMap<String, Bytes> =
        requests.map(|one| (unit(one), Bytes::from(one.bytes.clone()))).collect();
    let found: Vec<_> = all.into_iter().filter(|one| one.kind == kind).collect();
    assert!(found.len() > 10, "only {} recordings of {kind:?}", found.len());
    found
        .into_iter()
        .map(|one| (bodies.get(&unit(&one)).cloned(), one))
        .map(|(body, one)| (one, body))
        .collect()
}

/// A request that declares the tools which the client finds in `reply`.
fn declaring(reply: &Recording) -> Bytes {
    let calls = match reply.kind {
        Kind::Stream => mock::tolerant::calls_in_message_stream(&reply.bytes),
        _ => mock::tolerant::calls_in_message(&reply.bytes),
    };
    let names: BTreeSet<String> = calls.into_iter().map(|call| call.name).collect();
    let tools = names.iter().map(|name| json!({"name": name, "input_schema": {"type": "object"}}));
    let tools: Vec<Value> = tools.collect();
    json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "q"}], "tools": tools})
        .to_string()
        .into()
}

/// Whether a body has a message that is none, so that Anthropic refuses it and toolrein relays it.
fn is_refused(body: &[u8]) -> bool {
    let body: Value = serde_json::from_slice(body).unwrap();
    body["messages"].as_array().is_none_or(|messages| !messages.iter().all(Value::is_object))
}

/// The judge of `reply` to `request`, or to a request that declares the tools which the reply calls.
fn judge(request: Option<&Bytes>, reply: &Recording, form: Form, policies: &PolicySet) -> ReplyPipeline {
    let reading = request.and_then(|body| try_read_in(MESSAGES, body, policies, &Facts::default()));
    let reading =
        reading.unwrap_or_else(|| read_in(MESSAGES, &declaring(reply), policies, &Facts::default()));
    let options = Options { output_limit: reading.request.output_limit, ..Options::default() };
    ReplyPipeline::new(reading.judging(), MESSAGES, form, LIMITS, options)
}

/// The recorded replies in which the model gave a call another argument than its schema requires.
const INVALID: [&str; 1] = ["test_tool_search_eval[anthropic].4"];

/// What became of recorded replies.
#[derive(Default)]
struct Outcome {
    calls: usize,
    /// The replies that did not reach the client as they came.
    changed: Vec<String>,
    /// The replies with a call whose arguments its schema does not allow.
    invalid: Vec<String>,
}

impl Outcome {
    /// Ends the reply. Calls that repeat an earlier one, and calls with other arguments than their schema has, are blocked
    /// as they should be.
    fn note(&mut self, judge: &mut ReplyPipeline, mut out: Vec<Bytes>, reply: &Recording, how: &str) {
        let ending = ended(judge, &mut out);
        if repeats(judge) {
            return;
        }
        if objectors(judge.judging()).contains("arguments") {
            self.invalid.push(reply.name.clone());
            return;
        }
        if ending != Ending::Complete || judge.is_changed() || out.concat() != reply.bytes {
            self.changed.push(format!(
                "{} {how}: {ending:?}, {}",
                reply.name,
                first_difference(&out.concat(), &reply.bytes)
            ));
        }
        self.calls += judge.judging().record.len();
    }

    fn assert_unchanged(&self, least_calls: usize) {
        assert!(self.changed.is_empty(), "{} changed:\n{}", self.changed.len(), self.changed.join("\n"));
        let invalid = self.invalid.iter().filter(|name| !INVALID.iter().any(|known| name.contains(known)));
        assert_eq!(invalid.collect::<Vec<_>>(), Vec::<&String>::new(), "blocked for their arguments");
        assert!(self.calls > least_calls, "only {} calls were judged", self.calls);
    }
}

fn first_difference(out: &[u8], came: &[u8]) -> String {
    let at = out.iter().zip(came).take_while(|(one, other)| one == other).count();
    let part = |bytes: &[u8]| lossy(&bytes[at..bytes.len().min(at + 120)]);
    format!("at {at}: {:?} became {:?}", part(came), part(out))
}

/// Whether the first event of a stream has blocks already, as where a program of the provider's made the calls. A policy that
/// restricts calls moves these blocks into events of their own.
fn begins_with_blocks(stream: &Recording) -> bool {
    let text = lossy(&stream.bytes);
    let head = text.lines().find_map(|line| line.strip_prefix("data:")).unwrap_or_default();
    let head: Value = serde_json::from_str(head).unwrap_or_default();
    head["message"]["content"].as_array().is_some_and(|blocks| !blocks.is_empty())
}

/// Whether a stream is one reply. Some recordings join several in one file: test data of their projects, and not traffic.
fn is_one_reply(stream: &Recording) -> bool {
    lossy(&stream.bytes).matches("\"type\":\"message_start\"").count() < 2
}

/// The calls that any client finds in a stream, each once.
fn calls(stream: &[u8]) -> BTreeSet<(String, String)> {
    let found = mock::tolerant::calls_in_message_stream(stream).into_iter();
    found.filter(|call| !call.arguments.is_empty()).map(|call| (call.name, call.arguments)).collect()
}

#[test]
fn every_recorded_request_of_the_messages_api_is_read_and_sent_as_it_came() {
    let watchful = set_of(WATCHFUL);
    for (recording, _) in recordings(Kind::Request) {
        let body = Bytes::from(recording.bytes);
        for policies in [shipped(), &watchful] {
            let Some(reading) = try_read_in(MESSAGES, &body, policies, &Facts::default()) else {
                assert!(is_refused(&body), "{} is not read", recording.name);
                continue;
            };
            assert_eq!(reading.plan.edits, [], "{}", recording.name);
            for placement in [Placement::System, Placement::Suffix, Placement::Leading] {
                let sent = reading.write(&Variant::plain(placement));
                assert_eq!(lossy(&sent), lossy(&body), "{}", recording.name);
            }
        }
    }
}

#[test]
fn every_recorded_reply_of_the_messages_api_passes_as_it_came() {
    let (mut outcome, watchful) = (Outcome::default(), set_of(WATCHFUL));
    for (reply, request) in recordings(Kind::Reply) {
        let is_error = serde_json::from_slice::<Value>(&reply.bytes).unwrap()["type"] == "error";
        for policies in [shipped(), &watchful] {
            let (mut judge, mut out) = (judge(request.as_ref(), &reply, Form::Whole, policies), Vec::new());
            judge.begin(Form::Whole, if is_error { 400 } else { 200 });
            judge.push(Bytes::from(reply.bytes.clone()), NOW_MS, &mut out);
            outcome.note(&mut judge, out, &reply, "whole");
        }
    }
    outcome.assert_unchanged(8);
}

#[test]
fn every_recorded_stream_of_the_messages_api_passes_as_it_came_in_any_chunks() {
    let (mut outcome, watchful) = (Outcome::default(), set_of(WATCHFUL));
    for (reply, request) in recordings(Kind::Stream).into_iter().filter(|(one, _)| is_one_reply(one)) {
        for (sizes, policies) in [
            (vec![usize::MAX], shipped()),
            (vec![1], &watchful),
            (vec![3, 1, 50, 7], &watchful),
            (random_sizes(&reply.bytes), &watchful),
        ] {
            let (mut judge, mut out) =
                (judge(request.as_ref(), &reply, Form::Streamed, policies), Vec::new());
            push(&mut judge, &reply.bytes, &sizes, &mut out);
            if begins_with_blocks(&reply) && !std::ptr::eq(policies, shipped()) {
                assert_eq!(ended(&mut judge, &mut out), Ending::Complete, "{}", reply.name);
                assert_eq!(calls(&out.concat()), calls(&reply.bytes), "{}", reply.name);
                continue;
            }
            outcome.note(&mut judge, out, &reply, &format!("by {sizes:?}"));
        }
    }
    outcome.assert_unchanged(20);
}
