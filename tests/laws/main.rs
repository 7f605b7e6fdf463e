//! The laws: what holds for every conversation, however it is written, cut, sent again or broken. Property tests over
//! generated and recorded conversations, through the public library alone; no sockets, no clock.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail by panicking")]

mod agent;
mod causality;
mod chunking;
mod crossing;
mod dialects;
mod generate;
mod leaks;
mod leaks_responses;
mod memory;
mod panics;
mod recordings;
mod redaction;
mod repair;
mod repetition;
mod sequence;
mod spelling;
#[path = "../support/strict.rs"]
mod strict;
#[path = "../support/strict_responses.rs"]
mod strict_responses;
#[path = "../support/tolerant.rs"]
mod tolerant;
mod transparency;
mod world;
