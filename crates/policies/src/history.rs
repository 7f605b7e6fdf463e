//! A cap on the history: the oldest turns left out when nothing else keeps the conversation within the context.
//!
//! # What it does
//! When the model's input is more than `max_tokens` (or `share` of the context window), or more than `max_chars`
//! characters, whole turns are dropped, the oldest first, until `down_to` of that is left. System messages, messages
//! before the first turn, and the running turn always stay, and no call loses its result. Turns stay too that came
//! before the upstream's own record of them, such as a compaction. One notice, after the
//! message that opens the first remaining turn, says how much is gone.
//!
//! # Why
//! The last resort before the upstream refuses the request: the end of a conversation matters more than its
//! beginning. It is off by default since a model cannot know what is missing from its input; clearing old results
//! first is better. Dropped in batches, it costs the provider's prompt cache little.
//!
//! # State
//! The tokens of each message, and where turns begin. Each request decides again from the same history which turns
//! were dropped when, at every position where a request ended, so the decisions stay the same.
//!
//! # Example
//! With `max_tokens = 60000` and `down_to = 0.7` a chat of 61,000 tokens goes on with its newest turns of at most 42,000
//! tokens, and the next turns are dropped when it has grown to 60,000 again.

use super::about::About;
use super::context::{Context, reaches};
use super::texts::{OwnTexts, Text, Texts};
use super::{ConfigError, Policy, RequestView};
use model::Event;
use model::plan::{Change, Plan};
use serde::Deserialize;
use std::fmt::Display;
use std::ops::Range;

/// After the message that opens the first turn that stays.
const DROPPED: Text = Text {
    key: "dropped",
    default: "[toolrein] {oldest} of this conversation ({messages} {messages:message/messages}) cannot be shown: the conversation grew too \
              long. Ask the user if something from them is needed.",
    placeholders: &["oldest", "turns", "messages"],
};
/// `{oldest}` where one turn is dropped.
const ONE: Text = Text { key: "one", default: "The oldest turn", placeholders: &[] };
/// `{oldest}` where several are.
const SEVERAL: Text = Text { key: "several", default: "The {turns} oldest turns", placeholders: &["turns"] };

/// See the module.
pub struct History {
    config: Config,
    texts: Texts,
}

/// `[policy.history]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The most tokens of the model's input, the declared tools included; 0: `share` of the context window.
    max_tokens: u64,
    /// The most characters of it, without the declared tools; 0: no limit.
    max_chars: u64,
    /// The share of the context window that may be filled.
    share: f64,
    /// The share of the limit that is left when turns are dropped.
    down_to: f64,
    /// The context window of models about which nothing else is known, in tokens.
    context_window: u32,
    /// The operator's own texts.
    texts: OwnTexts,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_tokens: 0,
            max_chars: 0,
            share: 0.9,
            down_to: 0.7,
            context_window: 128_000,
            texts: OwnTexts::default(),
        }
    }
}

/// What is known of one conversation.
#[derive(Clone, Default)]
pub struct State {
    context: Context,
    /// The same in characters, where these are limited.
    characters: Option<Context>,
    /// The model's context window, in tokens.
    window: u64,
    /// The upstream refused the request for its length.
    overflowed: bool,
    /// How many messages earlier requests had that were too long: what was dropped for them is dropped again. Those
    /// still ahead, the next one last.
    overflows: Vec<usize>,
    /// Nothing can happen: the request is far too small.
    idle: bool,
    /// Where turns begin that are not dropped.
    turns: Vec<usize>,
    /// The positions of system messages.
    systems: Vec<usize>,
    /// How many turns and messages are dropped so far.
    gone: (usize, usize),
}

/// The oldest turns, which are dropped.
struct Batch {
    turns: usize,
    /// Their messages; system messages are between the ranges.
    messages: Vec<Range<usize>>,
    /// Where the first remaining turn begins.
    next: usize,
}

impl Policy for History {
    const NAME: &'static str = "history";
    const SUMMARY: &'static str = "drops the oldest turns of a conversation that outgrows the context";
    const SCOPE: Option<&'static str> = super::OF_WHOLE_HISTORIES;
    const TEXTS: &'static [Text] = &[DROPPED, ONE, SEVERAL];
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
        let texts = config.texts.clone().check(Self::TEXTS, &mut problems);
        if problems.is_empty() { Ok(Self { config, texts }) } else { Err(problems) }
    }

    fn about(&self) -> About {
        About { edits_context: true, ..About::default() }
    }

    fn open(&self, request: &RequestView<'_>, state: &mut State, _plan: &mut Plan) {
        state.window = request.transcript.context_window.unwrap_or(self.config.context_window).into();
        state.overflowed = request.transcript.overflowed;
        state.overflows = request.transcript.overflows.iter().rev().copied().collect();
        let most_chars = self.config.max_chars;
        state.characters = (most_chars > 0).then(Context::by_characters);
        let is_forced = request.transcript.overflowed || !request.transcript.overflows.is_empty();
        let is_short = most_chars == 0 || request.transcript.most_bytes() as u64 <= most_chars;
        state.idle = !is_forced && is_short && request.fits(self.most(state).tokens);
        if !state.idle {
            state.context = Context::open(request);
        }
    }

    fn read(&self, event: &Event<'_>, state: &mut State, plan: &mut Plan) {
        if state.idle {
            return;
        }
        // This comes before the estimate includes what was cleared for the same reason.
        let before = state.context.tokens();
        state.settle(plan);
        let forced = reaches(&mut state.overflows, event);
        if forced || matches!(event, Event::Assistant(_)) {
            // A request ended here: its decision is made again.
            let most = if forced { Most::half_of(before) } else { self.most(state) };
            if let Some(batch) = batch(state, &most) {
                state.drop(&batch, &self.texts, plan);
                state.settle(plan);
            }
        }
        if event.seals() {
            state.turns.clear();
        }
        match event {
            Event::TurnBegins(view) => state.turns.push(view.index),
            Event::System(view) => state.systems.push(view.index),
            Event::Assistant(_)
            | Event::User(_)
            | Event::Hidden(_)
            | Event::Call(_)
            | Event::Result(_)
            | Event::ResultsComplete(_) => {}
        }
        state.contexts().for_each(|context| {
            context.read(event, plan);
        });
    }

    fn close(&self, state: &State, plan: &mut Plan) {
        let before = state.context.tokens();
        let forced = state.overflowed || !state.overflows.is_empty();
        let most = if forced { Most::half_of(before) } else { self.most(state) };
        if !(forced || most.is_passed(state)) {
            return;
        }
        let mut state = state.clone();
        state.settle(plan);
        if let Some(batch) = batch(&state, &most) {
            state.drop(&batch, &self.texts, plan);
        }
    }
}

/// What the model may read.
#[derive(Clone, Copy, Debug)]
struct Most {
    tokens: u64,
    characters: u64,
    /// What is left of it when turns are dropped.
    down_to: f64,
}

impl History {
    fn most(&self, state: &State) -> Most {
        let Config { max_tokens, max_chars, share, down_to, .. } = self.config;
        let tokens = if max_tokens == 0 { (share * state.window as f64) as u64 } else { max_tokens };
        Most { tokens, characters: if max_chars == 0 { u64::MAX } else { max_chars }, down_to }
    }
}

impl Most {
    /// If the estimate of the sent request has proved too small, half of it is a safe assumption.
    fn half_of(tokens: u64) -> Self {
        Self { tokens: tokens / 2, characters: u64::MAX, down_to: 1.0 }
    }

    /// Whether the model's input is larger.
    fn is_passed(&self, state: &State) -> bool {
        let characters = state.characters.as_ref().map_or(0, Context::tokens);
        state.context.tokens() > self.tokens || characters > self.characters
    }

    /// What is left when turns are dropped.
    fn lowered(self) -> Self {
        let low = |most: u64| if most == u64::MAX { most } else { (self.down_to * most as f64) as u64 };
        Self { tokens: low(self.tokens), characters: low(self.characters), ..self }
    }
}

/// The turns to drop now, if the input is larger than `most`: enough to reach the lower mark.
fn batch(state: &State, most: &Most) -> Option<Batch> {
    if state.turns.len() < 2 || !most.is_passed(state) {
        return None;
    }
    let mut left = state.clone();
    let low = most.lowered();
    let mut batch = Batch { turns: 0, messages: Vec::new(), next: 0 };
    for turn in state.turns.windows(2) {
        if !low.is_passed(&left) {
            break;
        }
        let ranges = state.without_systems(turn[0]..turn[1]);
        left.contexts().for_each(|context| ranges.iter().for_each(|range| context.forget(range.clone())));
        batch.messages.extend(ranges);
        batch.turns += 1;
        batch.next = turn[1];
    }
    (batch.turns > 0).then_some(batch)
}

impl State {
    fn contexts(&mut self) -> impl Iterator<Item = &mut Context> {
        std::iter::once(&mut self.context).chain(&mut self.characters)
    }

    fn settle(&mut self, plan: &Plan) {
        self.contexts().for_each(|context| {
            context.settle(plan);
        });
    }

    fn drop(&mut self, batch: &Batch, texts: &Texts, plan: &mut Plan) {
        self.gone.0 += batch.turns;
        self.turns.drain(..batch.turns);
        for messages in &batch.messages {
            self.gone.1 += messages.len();
            plan.drop_turns(messages.clone());
        }
        let (turns, messages) = self.gone;
        let oldest =
            if turns == 1 { texts.fill(&ONE, &[]) } else { texts.fill(&SEVERAL, &[("turns", &turns)]) };
        let values: [(&str, &dyn Display); 3] =
            [("oldest", &oldest), ("turns", &turns), ("messages", &messages)];
        let text = texts.fill(&DROPPED, &values);
        // It replaces the notice of earlier drops.
        plan.edit_earlier(batch.next, Change::Notice { text, word: "notice" });
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
