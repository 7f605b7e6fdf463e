//! toolrein: a sidecar proxy that keeps agents' tool calls in hand.

pub mod admin;
pub mod policy;
pub mod rewrite;
pub mod telemetry;
pub mod transcript;
pub mod wire;
