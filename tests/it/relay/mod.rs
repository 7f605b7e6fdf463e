//! The relay over real sockets: scripted upstreams and clients, byte for byte. Governed requests are
//! tested elsewhere.

mod cuts;
mod drains;
mod failures;
mod identity;
mod kept;
mod protocols;
mod proxies;
mod stale;
mod streams;
mod support;
mod tls;
