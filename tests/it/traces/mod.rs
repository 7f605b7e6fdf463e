//! Traces over sockets: the built program, a scripted upstream, and a collector that takes OTLP over HTTP and decodes the
//! published protobufs.

mod collector;
mod contents;
mod requests;
mod sampling;
#[allow(dead_code, reason = "shared with tests/store; each uses a part")]
#[path = "../../store/server.rs"]
mod server;
mod steps;
mod trouble;
