//! The simulated model behind `upstream.url = "demo:"`, and the demonstration of `toolrein demo`: an upstream
//! that speaks OpenAI's wire format, keeps its rules and misbehaves on request. Answers from rules, not from
//! a language model; knows nothing of toolrein's policies and shares no code with them, so that what it
//! refuses or accepts is a second opinion.

mod agent;
mod check;
mod ids;
mod model;
mod order;
mod refusal;
mod reply;
mod request;
mod sample;
mod scenes;
mod server;
mod table;
#[cfg(test)]
mod tests;
mod world;

pub use scenes::{Places, curl_line, run};
pub use server::serve;

use model::Model;
use std::collections::BTreeMap;
use std::ops::Sub;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The simulated upstream: its models, its pace and what was asked of it.
#[derive(Debug)]
pub struct Upstream {
    /// The pause before each chunk of a stream and before each whole reply.
    pace: Duration,
    /// What each model was asked. A std mutex: held for an addition, never across an await.
    asked: Mutex<BTreeMap<&'static str, Stats>>,
}

/// What was asked of one model since the start, refused requests included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Chat completions requests that named the model.
    pub requests: u64,
    /// The sum of their bodies, in bytes.
    pub request_bytes: u64,
    /// The sum of their prompts, in tokens, estimated at four bytes each.
    pub prompt_tokens: u64,
}

impl Upstream {
    /// An upstream that waits `pace` before each chunk of a stream and before each whole reply.
    pub fn new(pace: Duration) -> Self {
        Self { pace, asked: Mutex::default() }
    }

    /// What each model was asked so far, by its name; a model that was never asked is missing.
    pub fn stats(&self) -> BTreeMap<&'static str, Stats> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts a request of `bytes` for `model`.
    fn record(&self, model: Model, bytes: usize) {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let stats = asked.entry(model.name()).or_default();
        stats.requests += 1;
        stats.request_bytes += bytes as u64;
        stats.prompt_tokens += tokens(bytes);
    }
}

impl Sub for Stats {
    type Output = Self;

    /// What was asked since `earlier`.
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
