//! The OpenAI wire format, read and written losslessly. Knows where things stand in the bytes; knows
//! nothing of conversations, policies or sockets.

pub mod assemble;
pub mod beginning;
pub mod body;
pub mod call;
pub mod checkpoint;
pub mod error;
pub mod json;
pub mod markup;
pub mod message;
pub mod others;
pub mod refusal;
pub mod reply;
pub mod request;
pub mod smuggling;
pub mod sniff;
pub mod spelled;
pub mod sse;
pub mod usage;
mod wholeness;
