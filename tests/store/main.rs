//! The state store that replicas share, over a real Redis: what two programs know of each other, that Redis and
//! memory fulfil the same contract, and every fault of a Redis, one test for each.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail by panicking")]

#[path = "../support/mod.rs"]
mod support;
#[allow(dead_code, reason = "shared with tests/rulings; each uses a part")]
#[path = "../rulings/talk.rs"]
mod talk;

mod away;
mod contract;
mod faults;
mod server;
mod sharing;
