//! What is fuzzed: every place at which bytes from outside are read, each as a plain function that panics where an
//! invariant breaks. Knows no engine: `main` runs the targets on a stable toolchain, `guided` under libFuzzer.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a broken invariant is told by a panic"
)]

mod admin;
#[allow(dead_code, reason = "tests encode streams as well")]
#[path = "../../tests/support/coded.rs"]
mod coded;
mod coding;
mod config;
mod confirm;
mod leaks;
mod ledger;
pub mod mutate;
mod refusal;
mod replay;
mod reply;
mod request;
pub mod seeds;
mod sse;
mod stream;
#[path = "../../tests/support/strict.rs"]
mod strict;
#[path = "../../tests/support/tolerant.rs"]
mod tolerant;
mod world;

/// One thing that is fuzzed.
#[derive(Clone, Copy)]
pub struct Target {
    pub name: &'static str,
    /// Panics where the input breaks an invariant; tells whether there was anything in it to read.
    pub run: fn(&[u8]) -> bool,
}

/// Every target.
pub const TARGETS: [Target; 12] = [
    Target { name: "request", run: request::run },
    Target { name: "reply", run: reply::run },
    Target { name: "stream", run: stream::run },
    Target { name: "leaks", run: leaks::run },
    Target { name: "sse", run: sse::run },
    Target { name: "coding", run: coding::run },
    Target { name: "config", run: config::run },
    Target { name: "replay", run: replay::run },
    Target { name: "admin", run: admin::run },
    Target { name: "refusal", run: refusal::run },
    Target { name: "confirm", run: confirm::run },
    Target { name: "ledger", run: ledger::run },
];

/// The target of this name.
pub fn named(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|target| target.name == name)
}
