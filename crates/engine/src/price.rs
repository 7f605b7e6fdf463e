//! What tokens cost.

use dialects::usage::Usage;
use std::sync::Arc;

/// Millionths of a dollar for a million tokens, times tokens, are this many parts of a billionth of a dollar.
const PARTS: u128 = 1_000;

/// What a model costs. Rates are in millionths of a dollar for a million tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Price {
    /// The name or the pattern under which the price was found: a closed set, for metrics.
    pub name: Arc<str>,
    /// Of the prompt.
    pub input: u64,
    /// Of the part of the prompt that is read from the provider's cache.
    pub cached_input: u64,
    /// Of the part of the prompt that is written to the provider's cache.
    pub cache_write: u64,
    /// Of the part of that which the cache keeps for an hour.
    pub cache_write_hour: u64,
    /// Of the completion.
    pub output: u64,
    /// Of the part of the completion that is reasoning.
    pub reasoning: u64,
}

/// What the replies with these usages cost, in billionths of a dollar: as the provider says, else by `price`. `None` where
/// neither is known.
pub fn cost_of(usages: &[Usage], price: Option<&Price>) -> Option<u64> {
    let costs = usages.iter().filter_map(|usage| match usage.cost {
        0 => Some(price?.of(usage)),
        own => Some(own),
    });
    costs.reduce(u64::saturating_add)
}

impl Price {
    /// What the tokens of `usage` cost, in billionths of a dollar.
    pub fn of(&self, usage: &Usage) -> u64 {
        let cached = usage.cached.min(usage.prompt);
        let written = usage.cache_written.min(usage.prompt - cached);
        let written_hour = usage.cache_written_hour.min(written);
        let thoughts = usage.reasoning.min(usage.completion);
        let parts = [
            (usage.prompt - cached - written, self.input),
            (cached, self.cached_input),
            (written - written_hour, self.cache_write),
            (written_hour, self.cache_write_hour),
            (usage.completion - thoughts, self.output),
            (thoughts, self.reasoning),
        ];
        let sum: u128 = parts.iter().map(|(tokens, rate)| u128::from(*tokens) * u128::from(*rate)).sum();
        u64::try_from(sum / PARTS).unwrap_or(u64::MAX)
    }
}
