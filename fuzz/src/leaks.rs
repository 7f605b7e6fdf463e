//! A reply's bytes, whole or as a stream, judged where some tools are forbidden; the second reader of `tests/support`, which
//! takes for a call whatever any client might, finds none of these in what the client gets.

use crate::tolerant::{Call, calls_in_reply, calls_in_stream};
use crate::world::{NOW_MS, choices, judging_by, lossy};
use bytes::Bytes;
use toolrein::rewrite::judging::Judging;
use toolrein::rewrite::reply::WholeJudge;
use toolrein::rewrite::stream::{StreamJudge, StreamLimits};

/// The tools that may not be called.
const FORBIDDEN: [&str; 2] = ["pay_bill", "send_mail"];
const TABLES: [&str; 3] = [
    "[policy.allow]\nexcept = [\"pay_bill\", \"send_mail\"]\nundeclared = \"pass\"\n",
    "[policy.confirm]\ntools = [\"pay_bill\", \"send_mail\"]\n",
    "[policy.allow]\nexcept = [\"pay_bill\", \"send_mail\"]\n[policy.arguments]\n[policy.serial]\ntools = [\"*\"]\n",
];

fn judging(first: u8) -> Judging {
    judging_by(TABLES[usize::from(first) / 2 % TABLES.len()])
}

pub fn run(input: &[u8]) -> bool {
    let (first, bytes) = choices(input);
    let (out, found) = if first % 2 == 0 {
        let out = whole(first, bytes);
        let found = calls_in_reply(&out);
        (out, found)
    } else {
        let out = streamed(first, bytes);
        let found = calls_in_stream(&out);
        (out, found)
    };
    let is_forbidden = |call: &&Call| FORBIDDEN.contains(&call.name.as_str());
    let escaped: Vec<&Call> = found.iter().filter(is_forbidden).collect();
    assert!(escaped.is_empty(), "{escaped:?} in\n{}\nof\n{}", lossy(&out), lossy(bytes));
    !out.is_empty()
}

/// What the client gets of a whole reply before the model is asked again; nothing where it is refused.
fn whole(first: u8, body: &[u8]) -> Vec<u8> {
    let body = Bytes::copy_from_slice(body);
    let Ok(mut judge) = WholeJudge::read(&body, judging(first), NOW_MS) else { return Vec::new() };
    if judge.is_unsafe() || judge.pending().is_some() {
        return Vec::new();
    }
    judge.write().unwrap_or(body).to_vec()
}

/// The same of a stream.
fn streamed(first: u8, stream: &[u8]) -> Vec<u8> {
    let limits = StreamLimits { event: 1 << 20, held: 1 << 20, reply: 1 << 20 };
    let mut judge = StreamJudge::new(judging(first), limits, false);
    let mut out = Vec::new();
    for chunk in stream.chunks(usize::from(first) * 7 + 1) {
        judge.push(Bytes::copy_from_slice(chunk), NOW_MS, &mut out);
    }
    if !judge.spoiled {
        judge.finish(NOW_MS, &mut out);
    }
    out.concat()
}
