//! The rulings on hard cases (ARCHITECTURE.md lists them), each over real sockets, streamed and whole: hidden
//! rounds, counting, landing, one stream out of several replies, several choices, fallbacks. What the relay and
//! single parts do is tested elsewhere.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail by panicking")]

#[path = "../support/mod.rs"]
mod support;

mod choices;
mod counting;
mod crossing;
mod fallback;
mod landing;
mod placement;
mod restoring;
mod talk;
