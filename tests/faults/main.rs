//! Everything that can go wrong between three sockets, each fault by its name: clients and upstreams that stop, crawl,
//! break off, lie about lengths or attack, and a machine that runs out of something. The built program stands between
//! two ends that the test plays by hand. Whatever happens: memory stays bounded, the next request is answered, and
//! what broke never looks whole.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy knows tests, but not the helpers that they call"
)]

#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tolerant.rs"]
mod tolerant;

mod bombs;
mod crowds;
mod cuts;
mod ends;
mod escapes;
mod hand;
mod http2;
mod labels;
mod lengths;
mod memory;
mod protocol;
mod reload;
mod secrets;
mod slow;
mod smuggling;
mod stalled;
mod targets;
