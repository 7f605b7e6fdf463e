//! Policies at work, each over real sockets, streamed and whole: what the model reads, what the client gets.
//! Their cases stand with the policies; what all policies share is tested in `rulings`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail by panicking")]

#[path = "../support/mod.rs"]
mod support;
#[path = "../rulings/talk.rs"]
mod talk;

mod loops;
mod turn_limits;
