//! Policies at work over real sockets, streamed and whole: each against a scripted model that does what the
//! policy is there for. What a policy decides, case by case, stands with its code.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail by panicking")]

#[path = "../support/mod.rs"]
mod support;
#[allow(dead_code, reason = "shared with tests/rulings; each uses a part")]
#[path = "../rulings/talk.rs"]
mod talk;

mod allow;
mod arguments;
