//! toolrein: a sidecar proxy that keeps agents' tool calls in hand.

pub mod demo;
pub mod policy;
pub mod rewrite;
pub mod transcript;
pub mod wire;
