//! Benchmark: the scan of a request's body into spans, by size.

#![allow(clippy::unwrap_used, reason = "a benchmark may stop")]

#[path = "bodies/mod.rs"]
mod bodies;

use divan::Bencher;
use divan::counter::BytesCount;

fn main() {
    divan::main();
}

#[divan::bench(args = ["1KB", "32KB", "256KB", "1MB"], max_time = 2)]
fn request(bencher: Bencher<'_, '_>, size: &str) {
    let body = bodies::sized(size).bytes;
    bencher
        .counter(BytesCount::new(body.len()))
        .bench_local(|| dialects::chat::parse(divan::black_box(&body)).unwrap());
}
