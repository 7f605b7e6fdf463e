//! The laws: what holds for every conversation, however it is written, cut, sent again or broken. Property tests over
//! generated and recorded conversations, through the public library alone; no sockets, no clock.

mod agent;
mod bound;
mod causality;
mod chunking;
mod crossing;
mod dialects;
mod dialects_messages;
mod generate;
mod generate_messages;
mod leaks;
mod leaks_messages;
mod leaks_responses;
mod memory;
mod panics;
mod recordings;
mod redaction;
mod repair;
mod repetition;
mod sequence;
mod spelling;
mod transparency;
mod world;

use proptest::test_runner::Config;

/// Runs a law with this many cases, or with those that the variable `LAWS_CASES` asks for.
fn with_cases(usual: u32) -> Config {
    let asked = std::env::var("LAWS_CASES").ok().and_then(|cases| cases.parse().ok());
    let cases: u32 = asked.unwrap_or(usual);
    // Generated cases that a law leaves out: proptest allows the same number however many cases it runs.
    Config { max_global_rejects: cases.saturating_mul(20).max(1024), ..Config::with_cases(cases) }
}
