//! toolrein: a sidecar proxy that keeps agents' tool calls in hand.

pub mod cli;
pub mod config;
pub mod policy;
pub mod rewrite;
pub mod transcript;
pub mod wire;
