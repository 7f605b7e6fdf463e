//! The test kit: a scripted upstream, the built program in front of it, and a small HTTP client. Test files include it
//! with `mod support;`. It knows nothing of toolrein's internals: it sees only traffic over sockets, the program's log
//! and its admin port.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "shared by several test crates, each of which uses a part; a test may fail by panicking and says why"
)]

pub mod agent;
pub mod client;
pub mod coded;
pub mod http1;
pub mod messages;
pub mod person;
pub mod player;
pub mod program;
pub mod reply;
pub mod responses;
pub mod responses_kit;
pub mod scripted;
pub mod simulated;
pub mod talk;

use std::time::{Duration, Instant};

/// How long anything may take before a test gives up: long, since two busy cores may run everything at once.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Asks again and again until there is an answer.
///
/// # Panics
/// With `what` if there is none within [`PATIENCE`].
pub fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
