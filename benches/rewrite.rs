//! Benchmark: the request written for the upstream: unchanged, by size, and with one long result cut and one notice.

#![allow(clippy::unwrap_used, reason = "a benchmark may stop")]

#[path = "bodies/mod.rs"]
mod bodies;

use bytes::Bytes;
use dialects::variant::{Placement, PlannedRequest, Variant};
use divan::Bencher;
use divan::counter::BytesCount;
use model::plan::{Change, Edit, Plan};
use model::source::ItemId;
use wire::escaped_text::EscapedText;

fn main() {
    divan::main();
}

#[divan::bench(args = ["1KB", "32KB", "256KB", "1MB"], max_time = 1)]
fn untouched(bencher: Bencher<'_, '_>, size: &str) {
    let body = bodies::sized(size).bytes;
    write(bencher, body, &Plan::default());
}

#[divan::bench(args = [60_000], max_time = 1)]
fn cut_and_notice(bencher: Bencher<'_, '_>, bytes: usize) {
    let shorter: EscapedText = "a line that was kept of the long result\n".repeat(400).into();
    let gone_chars = bytes - shorter.len();
    let changes = [
        Change::Shorten { text: 0, by: shorter, gone_chars },
        Change::Notice {
            text: "[toolrein] 12 of 50 tool calls of this turn used.".to_owned(),
            word: "notice",
        },
    ];
    let mut plan = Plan::default();
    plan.edits.extend(changes.map(|change| Edit {
        item: ItemId::of_client(2),
        decided: 2,
        policy: "truncate",
        change,
    }));
    write(bencher, bodies::with_bloated_result(bytes), &plan);
}

fn write(bencher: Bencher<'_, '_>, body: Vec<u8>, plan: &Plan) {
    let body = Bytes::from(body);
    let request = dialects::chat::parse(&body).unwrap();
    let variant = Variant::plain(Placement::System);
    bencher.counter(BytesCount::new(body.len())).bench_local(|| {
        dialects::chat::write(&PlannedRequest::new(divan::black_box(&body), &request, plan), &variant)
    });
}
