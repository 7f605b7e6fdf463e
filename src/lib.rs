//! toolrein: a sidecar proxy that governs the tool calls of LLM agents.

pub mod admin;
pub mod cli;
pub mod config;
pub mod doctor;
pub mod explain;
pub mod proxy;
pub mod recorder;
pub mod replay;
pub mod run;
pub mod secret;
pub mod serve;
pub mod setup;
pub mod state_dir;
pub mod store;
pub mod telemetry;
