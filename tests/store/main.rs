//! The state store that replicas share, over a real Redis: what two programs know of each other, that Redis and
//! memory fulfil the same contract, and every fault of a Redis, one test for each.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail by panicking")]

#[path = "../support/mod.rs"]
mod support;

mod away;
mod contract;
mod faults;
mod reservations;
mod server;
mod sharing;
