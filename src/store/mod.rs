//! What one process keeps beside the state store, for its own requests: answers of other models, calls that wait for a person,
//! summaries, and how often one request came. Nothing here is shared. `reader` only reads the state store.

pub mod answers;
pub mod equal_requests;
pub mod held;
pub mod reader;
pub mod summaries;
