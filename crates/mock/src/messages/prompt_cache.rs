//! A model of the prompt cache, for the numbers in `usage`: which beginning of a prompt was written by an earlier request. It
//! holds hashes alone, as many as a bound allows, and forgets the oldest.
//!
//! Source: platform.claude.com: the order tools, system, messages; up to four breakpoints; 20 blocks of look-back before each. The
//! model has no least length of a cached prompt and no expiry.

use super::canonical::{block_text, value_text};
use super::members::count_breakpoints;
use super::merged::{MergedMessage, blocks};
use super::prefix::hash;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// The most hashes.
const MAX_ENTRIES: usize = 4_096;
/// The blocks before a breakpoint at which an earlier request may have had its own.
const LOOK_BACK: usize = 20;

/// The prefixes that were written. A std mutex: held for a look-up, never across an await.
#[derive(Debug, Default)]
pub(super) struct PromptCache(Mutex<VecDeque<u64>>);

/// A prompt with the positions at which the cache can hold it.
#[derive(Debug, Default)]
pub(super) struct CachedPrompt {
    boundaries: Vec<Boundary>,
}

/// The end of a block.
#[derive(Debug)]
struct Boundary {
    /// The hash of the prompt up to here.
    hash: u64,
    /// The bytes of the prompt up to here.
    bytes: usize,
    is_breakpoint: bool,
}

/// What the cache had of a prompt, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CacheUsage {
    pub read_bytes: usize,
    pub created_bytes: usize,
}

impl CachedPrompt {
    /// The prompt of the request `body`, whose messages are `messages`.
    pub(super) fn new(body: &Value, messages: &[MergedMessage<'_>]) -> Self {
        let mut prompt = Self::default();
        if count_breakpoints(body, messages) == 0 {
            return prompt;
        }
        for tool in body["tools"].as_array().into_iter().flatten() {
            prompt.push(&value_text(tool), !tool["cache_control"].is_null());
        }
        for block in blocks(&body["system"]) {
            prompt.push(&block_text(&block), has_breakpoint(&block));
        }
        // Another choice or thinking setting voids the messages.
        let setting = [&body["tool_choice"], &body["thinking"]].map(value_text).concat();
        for message in messages {
            for block in &message.blocks {
                let text = [message.role, &setting, &block_text(block)].concat();
                prompt.push(&text, has_breakpoint(block));
            }
        }
        if let Some(last) = prompt.boundaries.last_mut() {
            last.is_breakpoint |= !body["cache_control"].is_null();
        }
        prompt
    }

    fn push(&mut self, text: &str, is_breakpoint: bool) {
        let (before, bytes) = self.boundaries.last().map_or((0, 0), |last| (last.hash, last.bytes));
        let hash = hash([before.to_string().as_str(), text]);
        self.boundaries.push(Boundary { hash, bytes: bytes + text.len(), is_breakpoint });
    }
}

/// Whether the block, or a part of it, has a breakpoint.
fn has_breakpoint(block: &Value) -> bool {
    let parts = block["content"].as_array().into_iter().flatten();
    parts.chain([block]).any(|part| !part["cache_control"].is_null())
}

impl PromptCache {
    /// Looks `prompt` up and writes it to the cache, up to each breakpoint.
    pub(super) fn use_prompt(&self, prompt: &CachedPrompt) -> CacheUsage {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ends = prompt.boundaries.iter().enumerate().filter(|(_, boundary)| boundary.is_breakpoint);
        let ends: Vec<usize> = ends.map(|(index, _)| index).collect();
        let is_cached = |index: &usize| entries.contains(&prompt.boundaries[*index].hash);
        let read = ends.iter().rev().find_map(|end| {
            let first = (end + 1).saturating_sub(LOOK_BACK);
            (first..=*end).rev().find(is_cached)
        });
        let bytes_at = |index: usize| prompt.boundaries[index].bytes;
        let read_bytes = read.map_or(0, bytes_at);
        let written = ends.last().map_or(0, |end| bytes_at(*end));
        for end in ends {
            let hash = prompt.boundaries[end].hash;
            entries.retain(|entry| *entry != hash);
            entries.push_back(hash);
        }
        while entries.len() > MAX_ENTRIES {
            entries.pop_front();
        }
        CacheUsage { read_bytes, created_bytes: written.saturating_sub(read_bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_bounded_and_has_each_prefix_once() {
        let cache = PromptCache::default();
        let prompt = |text: &str| {
            let mut prompt = CachedPrompt::default();
            prompt.push(text, true);
            prompt
        };
        for _ in 0..3 {
            cache.use_prompt(&prompt("first"));
        }
        assert_eq!(cache.0.lock().unwrap().len(), 1);
        for number in 0..MAX_ENTRIES {
            cache.use_prompt(&prompt(&number.to_string()));
        }
        assert_eq!(cache.0.lock().unwrap().len(), MAX_ENTRIES);
        assert_eq!(cache.use_prompt(&prompt("first")).read_bytes, 0, "forgotten");
    }
}
