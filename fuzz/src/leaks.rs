//! Target: a reply's bytes, whole or as a stream, judged where some tools are forbidden. The tolerant reader of
//! `tests/support`, which counts as a call whatever any client might, finds no forbidden call in what the client gets.

use crate::world::{NOW_MS, choices, judging_by, lossy};
use bytes::Bytes;
use dialects::CHAT;
use dialects::reply::{Ending, Form, Limits, Options};
use engine::judging::Judging;
use engine::pipeline::ReplyPipeline;
use mock::tolerant::{Call, calls_in_reply, calls_in_stream};

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
    judged(Form::Whole, first, std::iter::once(body))
}

/// The same of a stream.
fn streamed(first: u8, stream: &[u8]) -> Vec<u8> {
    judged(Form::Streamed, first, stream.chunks(usize::from(first) * 7 + 1))
}

fn judged<'a>(form: Form, first: u8, chunks: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let limits = Limits { event: 1 << 20, held: 1 << 20, reply: 1 << 20 };
    let mut judge = ReplyPipeline::new(judging(first), CHAT, form, limits, Options::default());
    let mut out = Vec::new();
    for chunk in chunks {
        judge.push(Bytes::copy_from_slice(chunk), NOW_MS, &mut out);
        judge.let_refusal_stand(NOW_MS, &mut out);
    }
    while judge.finish(NOW_MS, &mut out) == Ending::Refused {
        judge.let_refusal_stand(NOW_MS, &mut out);
    }
    out.concat()
}
