//! toolrein: a sidecar proxy that keeps agents' tool calls in hand.

pub mod admin;
pub mod cli;
pub mod config;
pub mod demo;
pub mod exchange;
pub mod explain;
pub mod ledger;
pub mod policy;
pub mod proxy;
pub mod replay;
pub mod rewrite;
pub mod secret;
pub mod serve;
pub mod telemetry;
pub mod transcript;
pub mod wire;
