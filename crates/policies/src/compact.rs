//! Compaction: old tool results cleared in batches when the context fills up.
//!
//! # What it does
//! When the model's input reaches `trigger` of its context window, all tool results but the newest `keep` and the
//! `exempt` ones are cleared at once, if that frees `min_gain` tokens and a fifth of the window. A cleared result is
//! replaced by a marker: tool, size, how to get it again, and its first 200 characters. Results that the model has
//! not read yet, small results, and results that another policy blocks stay; so do results before the upstream's own
//! record of what came before, such as a compaction. Calls and their order stay. With `style
//! = "summary"` the newest marker of a batch also holds a summary of all its results, if another model made one in
//! time.
//!
//! # Why
//! Most of a long conversation is old tool output, which each request pays for again and which makes models worse.
//! Cleared rarely and in big batches, it costs the provider's prompt cache little; a window that slides with every
//! request costs more than it saves. On recorded coding agents, cutting results at 8,000 characters and clearing in
//! batches together save about half of the cost.
//!
//! # State
//! The tokens of each message, and the results that may be cleared. Each request decides again from the same history
//! which results were cleared when, at every position where a request ended, so the decisions stay the same.
//!
//! # Example
//! With `context_window = 128000`, the first request over 102,400 tokens clears all but the newest two results, and the
//! next batch comes when the context is that full again.

mod marker;
mod summary;

use super::about::{About, EngineService, Service, list_tools};
use super::context::{CLEARED, Context, ResultText, reaches};
use super::pattern::Pattern;
use super::texts::{OwnTexts, Text, Texts};
use super::{ConfigError, Policy, RequestView};
use marker::{AGAIN, AGAIN_UNKNOWN, OF, Old, READABLE, SUMMARY_BEGINS, SUMMARY_ENDS, longest_note};
use model::identity::Hash;
pub use model::plan::work::step;
use model::plan::{BatchSummary, Finding, Plan, SummaryTerms};
use model::summaries::Pin;
use model::tokens::Estimate;
use model::{Event, ToolResult, View};
use serde::Deserialize;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use summary::{Pinned, Settings, Style};

/// Smaller texts stay: their marker would be half of them, and errors, which models learn from, are mostly small.
const LEAST: Estimate = Estimate::of_tokens(250);
/// The longest note in place of a cleared result that the operator's texts may make, in characters: with what it quotes
/// it must stay near the size that is assumed for it.
const MOST_NOTE: usize = 400;
/// The share of the context window that a batch must free at least.
const LEAST_SHARE: u64 = 5;

/// See the module.
pub struct Compact {
    config: Config,
    terms: Arc<SummaryTerms>,
    texts: Texts,
}

/// `[policy.compact]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The share of the context window at which results are cleared.
    trigger: f64,
    /// The newest results that stay.
    keep: usize,
    /// The tokens that a batch must free; never less than a fifth of the window.
    min_gain: u64,
    /// The context window of models about which nothing else is known, in tokens.
    context_window: u32,
    /// Tools whose results stay, by name or pattern.
    exempt: Vec<Pattern>,
    /// What replaces them.
    style: Style,
    /// Used only with style "summary".
    summary: Settings,
    /// The operator's own texts.
    texts: OwnTexts,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            trigger: 0.8,
            keep: 2,
            min_gain: 4_000,
            context_window: 128_000,
            exempt: Vec::new(),
            style: Style::default(),
            summary: Settings::default(),
            texts: OwnTexts::default(),
        }
    }
}

/// What is known of one conversation.
#[derive(Clone, Default)]
pub struct State {
    context: Context,
    /// The model's context window, in tokens.
    window: u64,
    /// The upstream refused the request for its length.
    overflowed: bool,
    /// How many messages earlier requests had that were too long: what was cleared for them is cleared again. Those
    /// still ahead, the next one last.
    overflows: Vec<usize>,
    /// Nothing can happen: the request is far too small.
    idle: bool,
    /// Texts that may be cleared, oldest first.
    old: Vec<Old>,
    /// The tokens that clearing all of them would free.
    potential: Estimate,
    /// The positions of the newest `keep` results, oldest first.
    newest: Vec<usize>,
    /// The tool of ours by which the model reads what is cleared.
    reader: Option<&'static str>,
    /// The message after the last reply: from here on the model has read nothing yet.
    unread: usize,
    /// Summaries, where they are wanted.
    pinned: Option<Pinned>,
}

impl Policy for Compact {
    const NAME: &'static str = "compact";
    const SUMMARY: &'static str = "clears old tool results, rarely and in batches, when the context fills up";
    const SCOPE: Option<&'static str> = super::OF_WHOLE_HISTORIES;
    const TEXTS: &'static [Text] =
        &[marker::CLEARED, READABLE, OF, AGAIN, AGAIN_UNKNOWN, SUMMARY_BEGINS, SUMMARY_ENDS];
    type Config = Config;
    type State = State;

    fn new(config: Config) -> Result<Self, Vec<ConfigError>> {
        let mut problems = config.summary.problems();
        if !(config.trigger > 0.0 && config.trigger <= 1.0) {
            problems.push(ConfigError::new("trigger", "expected a share above 0, up to 1"));
        }
        if config.context_window < 1_000 {
            problems.push(ConfigError::new("context_window", "expected at least 1000 tokens"));
        }
        let texts = config.texts.clone().check(Self::TEXTS, &mut problems);
        let longest = longest_note(&texts);
        if texts.is_own() && longest > MOST_NOTE {
            let problem =
                format!("with these texts a note has up to {longest} characters; expected {MOST_NOTE}");
            problems.push(ConfigError::new("texts", problem));
        }
        let terms = Arc::new(config.summary.terms());
        if problems.is_empty() { Ok(Self { config, terms, texts }) } else { Err(problems) }
    }

    fn about(&self) -> About {
        let summarises = self.config.style == Style::Summary;
        About {
            named_tools: list_tools("exempt", &self.config.exempt),
            edits_context: true,
            services: vec![Service::CutResults],
            engine: summarises
                .then(|| EngineService::Summarise(self.terms.endpoint.clone()))
                .into_iter()
                .collect(),
            resumes: true,
            ..About::default()
        }
    }

    fn open(&self, request: &RequestView<'_>, state: &mut State, plan: &mut Plan) {
        state.reader = plan.reader();
        state.window = request.transcript.context_window.unwrap_or(self.config.context_window).into();
        state.overflowed = request.transcript.overflowed;
        state.overflows = request.transcript.overflows.iter().rev().copied().collect();
        let is_forced = request.transcript.overflowed || !request.transcript.overflows.is_empty();
        let summarises = self.config.style == Style::Summary;
        state.pinned = summarises.then(|| Pinned::open(request, &self.terms)).flatten();
        state.idle = !is_forced && request.fits(self.trigger(state) as u64);
        if !state.idle {
            state.context = Context::open(request);
            // Of earlier requests, which had room, it has read nothing.
            plan.report(Finding::AllItemsNeeded);
        }
    }

    fn read(&self, event: &Event<'_>, state: &mut State, plan: &mut Plan) {
        if state.idle {
            return;
        }
        state.settle(plan);
        let forced = reaches(&mut state.overflows, event);
        if forced || matches!(event, Event::Assistant(_)) {
            // A request ended here: its decision is made again.
            let why = if forced { Why::Forced } else { Why::History };
            let by = if let Event::Assistant(view) = event { Some(view) } else { None };
            let name = self.clear(state, plan, why, by);
            if let Some(pinned) = &mut state.pinned {
                pinned.pass(name);
            }
            state.settle(plan);
        }
        if let Event::Assistant(view) = event {
            state.unread = view.index + 1;
        }
        if event.seals() {
            state.old.clear();
            state.potential = Estimate::default();
        }
        let new = state.context.read(event, plan);
        if let Event::Result(result) = event {
            self.remember(result, new, state, plan);
        }
    }

    fn close(&self, state: &State, plan: &mut Plan) {
        let forced = state.overflowed || !state.overflows.is_empty();
        if forced || self.is_full(state) {
            let mut state = state.clone();
            state.settle(plan);
            self.clear(&state, plan, if forced { Why::Forced } else { Why::Now }, None);
        }
    }
}

/// Why a batch is cleared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    /// It was cleared for an earlier request.
    History,
    /// The context is full now.
    Now,
    /// A request that ended here was refused for its length.
    Forced,
}

impl Compact {
    /// Whether the context is full.
    fn is_full(&self, state: &State) -> bool {
        state.context.tokens() as f64 > self.trigger(state)
    }

    /// The tokens from which on it is full.
    fn trigger(&self, state: &State) -> f64 {
        self.config.trigger * state.window as f64
    }

    /// The results to clear now; empty where clearing is not worth it. `anyway`: however full the context is.
    fn batch<'a>(&self, state: &'a State, anyway: bool) -> Vec<&'a Old> {
        let least = if anyway { 1 } else { self.config.min_gain.max(state.window / LEAST_SHARE) };
        if !(anyway || self.is_full(state)) || state.potential.tokens() < least {
            return Vec::new();
        }
        let kept_from = state.newest.first().copied().unwrap_or(usize::MAX).min(state.unread);
        let old = || state.old.iter().take_while(|old| old.message < kept_from);
        let messages: HashSet<usize> = old().map(|old| old.message).collect();
        // A pointer to a result that stays is smaller than its marker.
        let texts = state.context.texts();
        let stays =
            |old: &&Old| texts[old.at].points.is_none_or(|(original, _)| messages.contains(&original));
        let batch: Vec<&Old> = old().filter(stays).collect();
        if state.frees(&batch, least) { batch } else { Vec::new() }
    }

    /// Clears the batch of this position, if there is one; returns its name if it may have a summary. `by`: the
    /// message under which derived values are remembered.
    fn clear(&self, state: &State, plan: &mut Plan, why: Why, by: Option<&View<'_>>) -> Option<Hash> {
        let batch = self.batch(state, why == Why::Forced);
        let (newest, older) = batch.split_last()?;
        for old in older {
            let quote = old.quote(by);
            plan.edit_earlier(old.message, old.clear(&quote, &self.texts));
        }
        let quote = newest.quote(by);
        plan.edit_earlier(newest.message, newest.clear(&quote, &self.texts));
        let pinned = state.pinned.as_ref()?;
        let name = pinned.name(&batch)?;
        let blank = newest.blank(&self.texts);
        match (pinned.pin(name), why) {
            (Some(Pin::Summary(summary)), _) => plan.summarise(BatchSummary::Pinned { blank, summary }),
            (None, Why::History) => plan.summarise(BatchSummary::Lost(name)),
            (None, Why::Now) => plan.summarise(BatchSummary::Wanted(pinned.wanted(name, &batch, blank))),
            // What is forced must be quick.
            (None, Why::Forced) | (Some(Pin::Cleared), _) => {}
        }
        Some(name)
    }

    /// Remembers which texts of a result may be cleared later.
    fn remember(&self, result: &ToolResult<'_>, new: Range<usize>, state: &mut State, plan: &Plan) {
        let view = &result.view;
        state.newest.push(view.index);
        if state.newest.len() > self.config.keep {
            state.newest.remove(0);
        }
        if view.message.odd || self.config.exempt.iter().any(|pattern| pattern.matches(result.tool())) {
            return;
        }
        let facts = plan.facts_here();
        for (at, written) in new.zip(view.message.content.texts()) {
            step();
            let text = state.context.texts()[at];
            let size = text.alone();
            let facts = facts.text(text.text);
            // A marker would quote what the model must not read.
            if size < LEAST || facts.is_some_and(|facts| facts.blocked) {
                continue;
            }
            let instead = facts.and_then(|facts| facts.replaced).map(|by| &**by);
            let mut old = Old::read(result, (at, text.text, written), (instead, state.reader));
            old.suspicious = facts.is_some_and(|facts| facts.flagged);
            state.potential += size.saturating_sub(CLEARED);
            state.old.push(old);
        }
    }
}

impl State {
    /// Whether the batch frees at least `least` tokens.
    fn frees(&self, batch: &[&Old], least: u64) -> bool {
        let texts = self.context.texts();
        let freed: Estimate = batch.iter().map(|old| texts[old.at].shown).sum();
        let freed = freed.saturating_sub(batch.iter().map(|_| CLEARED).sum());
        if freed.tokens() < least {
            return false;
        }
        // A pointer to one of its results becomes the full text again.
        let messages: HashSet<usize> = batch.iter().map(|old| old.message).collect();
        let cleared: HashSet<usize> = batch.iter().map(|old| old.at).collect();
        let points =
            |text: &ResultText| text.points.is_some_and(|(original, _)| messages.contains(&original));
        let grown =
            texts.iter().enumerate().filter(|(at, text)| !text.gone && points(text) && !cleared.contains(at));
        let grown: Estimate = grown.map(|(_, text)| text.alone().saturating_sub(text.shown)).sum();
        freed.saturating_sub(grown).tokens() >= least
    }

    /// Applies what was cleared and dropped.
    fn settle(&mut self, plan: &Plan) {
        if self.context.settle(plan) {
            let texts = self.context.texts();
            self.old.retain(|old| !texts[old.at].gone);
            self.potential = self.old.iter().map(|old| texts[old.at].alone().saturating_sub(CLEARED)).sum();
        }
    }
}

#[cfg(test)]
mod tests;
