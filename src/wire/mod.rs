//! Bytes: JSON as spans and splices, server-sent events, text that hides characters. Read and written losslessly. Knows
//! nothing of any API, of conversations or of sockets.

pub mod beginning;
pub mod body;
pub mod escaped_text;
pub mod hidden_unicode;
pub mod json;
pub mod members;
pub mod sniff;
pub mod splice;
pub mod sse;
pub mod whole_json;
