//! The relay over real sockets: scripted upstreams and clients, byte for byte. Governed requests are
//! tested elsewhere.

mod cuts;
mod drains;
mod failures;
mod identity;
mod protocols;
mod stale;
mod streams;
mod support;
