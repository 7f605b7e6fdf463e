//! The simulated upstream of `upstream.url = "demo:"`, and the demonstration of `toolrein demo`: it uses the wire
//! formats of OpenAI and Anthropic, enforces their rules and misbehaves on request. Answers come from rules, not from a language model. It shares
//! no code with toolrein's policies, so that what it refuses or accepts is an independent check. For the tests it also has
//! strict validators of requests (`strict`, `strict_responses`, and `messages` for Anthropic's API) and a tolerant reader of
//! replies (`tolerant`).

mod agent;
mod check;
mod endpoint;
mod ids;
pub mod messages;
mod model;
mod order;
mod refusal;
mod reply;
mod request;
mod responses;
mod sample;
mod scenes;
mod server;
pub mod strict;
pub mod strict_responses;
mod table;
#[cfg(test)]
mod tests;
pub mod tolerant;
mod world;

pub use scenes::{Addresses, curl_line, run};
pub use server::serve;

use model::Model;
use std::collections::BTreeMap;
use std::ops::Sub;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The simulated upstream: its models, its pace and its statistics.
#[derive(Debug)]
pub struct Upstream {
    /// The pause before each chunk of a stream and before each whole reply.
    pace: Duration,
    /// Statistics by model. A std mutex: held for an addition, never across an await.
    asked: Mutex<BTreeMap<&'static str, Stats>>,
    /// The responses that can be continued.
    responses: responses::Store,
    /// The threads and the prompt cache of the Messages API.
    messages: messages::State,
}

/// Statistics of one model since the start, refused requests included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requests that named the model.
    pub requests: u64,
    /// The sum of their bodies, in bytes.
    pub request_bytes: u64,
    /// The sum of their prompts, in tokens, estimated at four bytes each.
    pub prompt_tokens: u64,
}

impl Upstream {
    /// An upstream that waits `pace` before each chunk of a stream and before each whole reply.
    pub fn new(pace: Duration) -> Self {
        Self {
            pace,
            asked: Mutex::default(),
            responses: responses::Store::default(),
            messages: messages::State::default(),
        }
    }

    /// The statistics so far, by model; a model without requests is missing.
    pub fn stats(&self) -> BTreeMap<&'static str, Stats> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts a request of `bytes` for `model`, which continues a stored history of `history` bytes.
    fn record(&self, model: Model, bytes: usize, history: usize) {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let stats = asked.entry(model.name()).or_default();
        stats.requests += 1;
        stats.request_bytes += bytes as u64;
        stats.prompt_tokens += tokens(bytes + history);
    }
}

impl Sub for Stats {
    type Output = Self;

    /// The statistics since `earlier`.
    fn sub(self, earlier: Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(earlier.requests),
            request_bytes: self.request_bytes.saturating_sub(earlier.request_bytes),
            prompt_tokens: self.prompt_tokens.saturating_sub(earlier.prompt_tokens),
        }
    }
}

/// An estimate of the tokens in `bytes` of text: four bytes each, OpenAI's own rule of thumb for English.
fn tokens(bytes: usize) -> u64 {
    bytes.div_ceil(4) as u64
}
