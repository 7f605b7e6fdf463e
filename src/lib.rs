//! toolrein: a sidecar proxy that keeps agents' tool calls in hand.

pub mod ledger;
pub mod policy;
pub mod proxy;
pub mod rewrite;
pub mod transcript;
pub mod wire;
