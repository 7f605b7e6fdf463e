//! A cap on the history: the oldest turns left out when nothing else keeps the conversation within the context.
//!
//! # What it does
//! When what the model reads is more than `max_tokens` (or `share` of the context window), whole turns are dropped, the
//! oldest first, until `down_to` of that is left. System messages, what stands before the first turn, and the running
//! turn always stay, and no call loses its result. One notice, behind the message that opens the first turn left, says
//! how much is gone.
//!
//! # Why
//! The last resort before the upstream refuses the request: the end of a conversation matters more than its beginning.
//! It is off as shipped since a model cannot know that something is missing from what it never reads; old results are
//! better cleared first. Dropped in batches, it costs the provider's prompt cache little.
//!
//! # State
//! What the model reads of each message, and where turns begin. What is dropped when is decided again from the same
//! history in each request, at every place at which a request was sent, so it stays dropped and nothing else is.
//!
//! # Example
//! With `max_tokens = 60000` and `down_to = 0.7` a chat of 61,000 tokens goes on with its newest turns of at most 42,000
//! tokens, and the next turns are dropped when it has grown to 60,000 again.

use super::context::Context;
use super::plan::Plan;
use super::{ConfigError, Policy, RequestFacts};
use crate::transcript::Event;
use serde::Deserialize;
use std::ops::Range;

/// See the file's head.
pub struct History {
    config: Config,
}

/// `[policy.history]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The most tokens that the model reads, the declared tools included; 0: `share` of the context window.
    max_tokens: u64,
    /// The share of the context window that may be filled.
    share: f64,
    /// What is left of the most tokens when turns are dropped.
    down_to: f64,
    /// Tokens that a model takes of which nothing else is known.
    context_window: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self { max_tokens: 0, share: 0.9, down_to: 0.7, context_window: 128_000 }
    }
}

/// What is known of one conversation.
#[derive(Clone, Default)]
pub struct State {
    context: Context,
    /// Tokens that the model takes.
    window: u64,
    /// The request was refused for its length.
    overflowed: bool,
    /// Nothing is going to happen: the request is far too small.
    idle: bool,
    /// Where turns begin that are not dropped.
    turns: Vec<usize>,
    /// The places of system messages.
    systems: Vec<usize>,
    /// Turns and messages dropped so far.
    gone: (usize, usize),
}

/// The oldest turns that go.
struct Batch {
    turns: usize,
    /// Their messages; system messages stand between the ranges.
    messages: Vec<Range<usize>>,
    /// Where the first turn left begins.
    next: usize,
}

impl Policy for History {
    const NAME: &'static str = "history";
    const SUMMARY: &'static str = "drops the oldest turns of a conversation that outgrows the context";
    const EDITS_CONTEXT: bool = true;
    type Config = Config;
    type State = State;

    fn new(config: Config) -> Result<Self, Vec<ConfigError>> {
        let shares = [("share", config.share), ("down_to", config.down_to)];
        let wrong = shares.into_iter().filter(|(_, share)| !(*share > 0.0 && *share <= 1.0));
        let mut problems: Vec<ConfigError> =
            wrong.map(|(key, _)| ConfigError::new(key, "expected a share above 0, up to 1")).collect();
        if config.context_window < 1_000 {
            problems.push(ConfigError::new("context_window", "expected at least 1000 tokens"));
        }
        if problems.is_empty() { Ok(Self { config }) } else { Err(problems) }
    }

    fn open(&self, request: &RequestFacts<'_>, state: &mut State, _plan: &mut Plan) {
        state.context = Context::open(request);
        state.window = request.context_window.unwrap_or(self.config.context_window).into();
        state.overflowed = request.overflowed;
        state.idle = !request.overflowed && request.most_tokens.tokens() <= self.most(state);
    }

    fn read(&self, event: &Event<'_>, state: &mut State, plan: &mut Plan) {
        if state.idle {
            return;
        }
        state.context.settle(plan);
        match event {
            // Here a request was sent: what was decided for it is decided again.
            Event::Assistant(_) => {
                if let Some(batch) = self.batch(state, self.most(state), self.config.down_to) {
                    state.drop(&batch, plan);
                    state.context.settle(plan);
                }
            }
            Event::TurnBegins(view) => state.turns.push(view.index),
            Event::System(view) => state.systems.push(view.index),
            Event::User(_) | Event::Call(_) | Event::Result(_) | Event::ResultsComplete(_) => {}
        }
        state.context.read(event, plan);
    }

    fn close(&self, state: &State, plan: &mut Plan) {
        let before = state.context.tokens();
        if !(state.overflowed || before > self.most(state)) {
            return;
        }
        let mut state = state.clone();
        state.context.settle(plan);
        // Where the estimate has proved too small, half of what was sent is a safe guess.
        let (most, down_to) =
            if state.overflowed { (before / 2, 1.0) } else { (self.most(&state), self.config.down_to) };
        if let Some(batch) = self.batch(&state, most, down_to) {
            state.drop(&batch, plan);
        }
    }
}

impl History {
    /// The most tokens that the model reads.
    fn most(&self, state: &State) -> u64 {
        match self.config.max_tokens {
            0 => (self.config.share * state.window as f64) as u64,
            most => most,
        }
    }

    /// The turns to be dropped now, where the model reads more than `most` tokens: so many that `down_to` of these stay.
    fn batch(&self, state: &State, most: u64, down_to: f64) -> Option<Batch> {
        let mut left = state.context.tokens();
        let down_to = (down_to * most as f64) as u64;
        if left <= most {
            return None;
        }
        let mut batch = Batch { turns: 0, messages: Vec::new(), next: 0 };
        for turn in state.turns.windows(2) {
            if left <= down_to {
                break;
            }
            let ranges = state.without_systems(turn[0]..turn[1]);
            left = ranges
                .iter()
                .fold(left, |left, range| left.saturating_sub(state.context.tokens_of(range.clone())));
            batch.messages.extend(ranges);
            batch.turns += 1;
            batch.next = turn[1];
        }
        (batch.turns > 0).then_some(batch)
    }
}

impl State {
    fn drop(&mut self, batch: &Batch, plan: &mut Plan) {
        self.gone.0 += batch.turns;
        self.turns.drain(..batch.turns);
        for messages in &batch.messages {
            self.gone.1 += messages.len();
            plan.drop_turns(messages.clone());
        }
        let (turns, messages) = self.gone;
        let oldest =
            if turns == 1 { "The oldest turn".to_owned() } else { format!("The {turns} oldest turns") };
        let text = format!(
            "[toolrein] {oldest} of this conversation ({messages} messages) cannot be read here: it grew too long. Ask if \
             something from them is needed."
        );
        plan.tell_dropped(batch.next, text);
    }

    /// The ranges of `messages` between system messages.
    fn without_systems(&self, messages: Range<usize>) -> Vec<Range<usize>> {
        let from = self.systems.partition_point(|system| *system < messages.start);
        let inside = self.systems[from..].iter().take_while(|system| **system < messages.end);
        let mut ranges = Vec::new();
        let mut start = messages.start;
        for system in inside {
            ranges.push(start..*system);
            start = system + 1;
        }
        ranges.push(start..messages.end);
        ranges.retain(|range| !range.is_empty());
        ranges
    }
}

#[cfg(test)]
mod tests;
