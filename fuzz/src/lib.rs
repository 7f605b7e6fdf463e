//! The fuzz targets: every parser of outside bytes, each as a plain function that panics where an invariant breaks.
//! Independent of an engine: `main` runs the targets on a stable toolchain, `guided` under libFuzzer.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a broken invariant is reported by a panic"
)]

mod admin;
#[allow(dead_code, reason = "tests encode streams as well")]
#[path = "../../tests/support/coded.rs"]
mod coded;
mod coding;
mod config;
mod confirm;
mod leaks;
mod messages;
pub mod mutate;
mod refusal;
mod replay;
mod reply;
mod request;
mod responses;
pub mod seeds;
mod sse;
mod store;
mod stream;
mod world;

/// One thing that is fuzzed.
#[derive(Clone, Copy)]
pub struct Target {
    pub name: &'static str,
    /// Panics where the input breaks an invariant; returns whether the input could be parsed.
    pub run: fn(&[u8]) -> bool,
}

/// Every target.
pub const TARGETS: [Target; 18] = [
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
    Target { name: "store", run: store::run },
    Target { name: "responses_request", run: responses::request },
    Target { name: "responses_reply", run: responses::reply },
    Target { name: "responses_rounds", run: responses::rounds },
    Target { name: "messages_request", run: messages::request },
    Target { name: "messages_reply", run: messages::reply },
    Target { name: "messages_exchanges", run: messages::exchanges },
];

/// The target of this name.
pub fn named(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|target| target.name == name)
}
