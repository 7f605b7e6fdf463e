//! What the policies do to recorded conversations, calls and texts: how many healthy conversations are touched, what is
//! found, cut and saved, and what the bytes of recorded traffic become. The samples in `tests/data` run always; with
//! `TOOLREIN_CORPUS=FOLDER make eval` the whole corpus does, and tables are printed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may fail by panicking, and these report"
)]

mod arguments;
mod ask_user;
mod conversations;
mod cost;
mod dialect_by_body;
mod injection;
mod recorded;
#[path = "../it/laws/recordings.rs"]
mod recordings;
mod redact;
mod replies;
mod states_model;
#[path = "../support/mod.rs"]
mod support;
mod tokens;
mod tutor_model;
#[path = "../it/laws/world.rs"]
#[allow(dead_code, reason = "the laws use the rest")]
mod world;
