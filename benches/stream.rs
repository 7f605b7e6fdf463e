//! Benchmark: a streamed reply judged while it passes, one event per chunk: 200 chunks of text, and one tool call in
//! 200 chunks. The items counted are chunks.

#![allow(clippy::unwrap_used, reason = "a benchmark may stop")]

#[path = "bodies/mod.rs"]
mod bodies;

use bytes::Bytes;
use dialects::CHAT;
use dialects::reply::{Form, Limits, Options};
use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use engine::judging::{AnswerTools, Judging};
use engine::pipeline::ReplyPipeline;
use model::Transcript;
use model::identity::{Hash, HashKey, Identity};
use model::memo::NoMemo;
use policies::REGISTRY;
use policies::set::PolicySet;
use std::sync::Arc;
use toolrein::config::{Config, Overrides, Source};

const LIMITS: Limits = Limits { event: 1 << 20, held: 4 << 20, reply: 32 << 20 };

fn main() {
    divan::main();
}

#[divan::bench(max_time = 2)]
fn text(bencher: Bencher<'_, '_>) {
    judge(bencher, bodies::text_stream(200));
}

#[divan::bench(max_time = 2)]
fn call(bencher: Bencher<'_, '_>) {
    judge(bencher, bodies::call_stream(200));
}

fn judge(bencher: Bencher<'_, '_>, events: Vec<Vec<u8>>) {
    let chunks: Vec<Bytes> = events.into_iter().map(Bytes::from).collect();
    let bytes: usize = chunks.iter().map(Bytes::len).sum();
    let body = bodies::sized("1KB").bytes;
    let request = dialects::chat::parse(&body).unwrap();
    let identity = Identity { key: HashKey::fixed(1), caller: Hash(1), explicit: None };
    let policies: PolicySet =
        Config::load(Source::Shipped, &Overrides::default(), REGISTRY).unwrap().policies;
    let transcript = Transcript::read(request, body.to_vec(), identity, Arc::new(NoMemo));
    let counted = bencher.counter(BytesCount::new(bytes)).counter(ItemsCount::new(chunks.len()));
    counted
        .with_inputs(|| {
            let (_, judge) = policies.read(&transcript);
            let judging = Judging::new(judge, AnswerTools::default(), false);
            ReplyPipeline::new(judging, CHAT, Form::Streamed, LIMITS, Options::default())
        })
        .bench_local_values(|mut judge| {
            let mut given = 0;
            for chunk in &chunks {
                let mut out = Vec::new();
                judge.push(divan::black_box(chunk).clone(), 1, &mut out);
                given += out.iter().map(Bytes::len).sum::<usize>();
            }
            (judge, given)
        });
}
