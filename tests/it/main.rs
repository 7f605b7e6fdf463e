//! The integration tests of the program, all but those that need real clients (`clients`), a Redis (`store`), a browser
//! (`browser`) or the recorded corpus (`eval`).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy knows tests, but not the helpers that they call"
)]

mod access;
mod admin;
mod check;
mod deploy;
mod docs;
mod doctor;
#[macro_use]
#[path = "../support/each_client.rs"]
mod each_client;
mod explain;
mod faults;
mod governed;
mod house;
mod kit;
mod laws;
mod packages;
mod policies;
mod profiles;
mod prometheus;
mod relay;
mod replay;
mod rulings;
mod simulation;
#[path = "../support/mod.rs"]
mod support;
mod traces;
