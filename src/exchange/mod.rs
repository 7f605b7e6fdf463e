//! One client request from its first byte to its last, without I/O: what is asked of the store, sent to the upstream and
//! given to the client. The proxy, `replay` and the simulation drive it.

pub mod error;
pub mod fallback;
pub mod store;
