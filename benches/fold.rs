//! Benchmark: a conversation read and folded through the shipped policies, by size: at first sight, and with a history
//! that was seen before.

#![allow(clippy::unwrap_used, reason = "a benchmark may stop")]

#[path = "bodies/mod.rs"]
mod bodies;

use bytes::Bytes;
use divan::Bencher;
use divan::counter::BytesCount;
use model::Transcript;
use model::identity::{Hash, HashKey, Identity};
use model::memo::{Memo, NoMemo};
use policies::REGISTRY;
use policies::set::PolicySet;
use state::memo::MemoCache;
use std::sync::Arc;
use toolrein::config::{Config, Overrides, Source};

fn main() {
    divan::main();
}

#[divan::bench(args = ["1KB", "32KB", "256KB", "1MB"], max_time = 2)]
fn cold(bencher: Bencher<'_, '_>, size: &str) {
    fold(bencher, size, &no_memo());
}

#[divan::bench(args = ["1KB", "32KB", "256KB", "1MB"], max_time = 2)]
fn warm(bencher: Bencher<'_, '_>, size: &str) {
    fold(bencher, size, &(Arc::new(MemoCache::new(64 << 20)) as Arc<dyn Memo>));
}

/// With every policy that shapes the context, besides those on by default: results scanned for instructions, history
/// capped.
#[divan::bench(args = ["32KB", "256KB", "1MB"], max_time = 2)]
fn context_cold(bencher: Bencher<'_, '_>, size: &str) {
    fold_by(bencher, (&of_context(), &bodies::sized(size).bytes), &no_memo());
}

/// The same, with a history that was seen before.
#[divan::bench(args = ["32KB", "256KB", "1MB"], max_time = 2)]
fn context_warm(bencher: Bencher<'_, '_>, size: &str) {
    fold_by(
        bencher,
        (&of_context(), &bodies::sized(size).bytes),
        &(Arc::new(MemoCache::new(64 << 20)) as Arc<dyn Memo>),
    );
}

fn no_memo() -> Arc<dyn Memo> {
    Arc::new(NoMemo)
}

fn of_context() -> PolicySet {
    let more = "\n[policy.injection]\n[policy.history]\n";
    let text = format!("{}{more}", include_str!("../proxy.toml"));
    let source = Source::Text { name: "bench".to_owned(), text };
    Config::load(source, &Overrides::default(), REGISTRY).unwrap().policies
}

/// One result of 1 MB, cut at first sight.
#[divan::bench(args = bodies::BLOATED, max_time = 1)]
fn cut(bencher: Bencher<'_, '_>, kind: &str) {
    fold_body(bencher, &bodies::bloated(kind, 1 << 20), &no_memo());
}

/// The same, known from the previous request.
#[divan::bench(args = bodies::BLOATED, max_time = 1)]
fn cut_before(bencher: Bencher<'_, '_>, kind: &str) {
    fold_body(
        bencher,
        &bodies::bloated(kind, 1 << 20),
        &(Arc::new(MemoCache::new(64 << 20)) as Arc<dyn Memo>),
    );
}

fn fold(bencher: Bencher<'_, '_>, size: &str, memo: &Arc<dyn Memo>) {
    fold_body(bencher, &bodies::sized(size).bytes, memo);
}

fn fold_body(bencher: Bencher<'_, '_>, body: &[u8], memo: &Arc<dyn Memo>) {
    let shipped = Config::load(Source::Shipped, &Overrides::default(), REGISTRY).unwrap().policies;
    fold_by(bencher, (&shipped, body), memo);
}

fn fold_by(bencher: Bencher<'_, '_>, (policies, body): (&PolicySet, &[u8]), memo: &Arc<dyn Memo>) {
    let request = Arc::new(dialects::chat::parse(body).unwrap());
    let body = Bytes::copy_from_slice(body);
    let identity = Arc::new(Identity { key: HashKey::fixed(1), caller: Hash(1), explicit: None });
    bencher.counter(BytesCount::new(body.len())).bench_local(|| {
        let read = divan::black_box((Arc::clone(&request), body.clone()));
        let transcript = Transcript::read(read.0, read.1, Arc::clone(&identity), Arc::clone(memo));
        policies.read(&transcript)
    });
}
