//! The Messages API of the simulated upstream, after Anthropic's, and a strict validator of its requests. The models decide what
//! is answered, as for chat completions; what is refused is decided by the modules below, in Anthropic's words and error shape.

mod binding;
mod blocks;
mod canonical;
mod conversation;
mod error;
mod generation;
mod head;
mod join;
mod members;
mod merged;
mod order;
mod prefix;
mod prompt_cache;
mod reply;
mod request;
mod service;
mod signature;
mod stream;
#[cfg(test)]
mod tests;
mod thinking;
mod thread;
mod threads;
mod tools;
mod validator;

pub use head::RequestHead;
pub(crate) use join::join;
pub(crate) use service::{MessagesEndpoint, State};
pub use validator::{refusal, sign, violations};
