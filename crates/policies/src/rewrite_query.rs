//! Search queries, tidied before the program runs the search.
//!
//! # What it does
//! The query of a call of `tools`, the first of `argument` that the call has as text, is tidied: words that ask rather
//! than say what is searched for are removed at its beginning and end, and a query for what is latest, current or recent
//! gets the current year. Where a `model` is named, it may then put the query shorter, with words of the query alone. All
//! other bytes of the arguments stay as they are. Left alone are queries of fewer than `min_words` words, and those
//! that hold more than words: addresses, code, quotes, operators, identifiers, several lines.
//!
//! # Why
//! Models write queries as sentences, and their idea of the present is as old as their training. Search engines take
//! both literally. The client's history holds the query that ran, so the model later reads what really was searched,
//! and a search that is repeated in other words of politeness counts as a repeated one.
//!
//! # State
//! What the declared schemas say about the argument, and the arguments of earlier searches, which are not put to the
//! model again. The year is that of the time at which the call is judged, in UTC. A query that was rewritten is not
//! changed by rewriting it again.
//!
//! # Example
//! "Please find me information about the latest Rust release" becomes "the latest Rust release 2026".

mod fillers;
mod plain;
mod query;
mod recency;
mod shortener;
mod splice;

use super::about::{About, EngineService, NO_TOOLS, list_tools};
use super::pattern::{Pattern, any_concerns, problem_of};
use super::texts::{OwnTexts, Text, Texts};
use super::{ConfigError, Policy, RequestView};
use model::Event;
use model::identity::Hash;
use model::plan::{CallEffect, Plan, Proposed, Reworded, Verdict, rfc3339};
use query::{Rules, tidy};
use serde::Deserialize;
use shortener::Model;
use splice::{Found, Shapes};
use std::collections::HashSet;
use std::sync::Arc;

/// See the module.
pub struct RewriteQuery {
    tools: Vec<Pattern>,
    argument: Vec<String>,
    rules: Rules,
    audit: bool,
    model: Option<Model>,
    texts: Texts,
}

/// `[policy.rewrite_query]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The search tools, by name or pattern.
    tools: Vec<Pattern>,
    /// Names of the argument that holds the query; the first that a call has counts.
    argument: Vec<String>,
    /// Add the current year to queries for what is latest, current or recent.
    year: bool,
    /// Remove words that only ask.
    fillers: bool,
    /// Queries of fewer words are left alone.
    min_words: usize,
    /// Write both forms of a query to the audit log.
    audit: bool,
    /// The model that puts queries shorter.
    model: shortener::Settings,
    texts: OwnTexts,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            tools: vec![Pattern::new("*search*")],
            argument: ["query", "q", "search_query"].map(str::to_owned).into(),
            year: true,
            fillers: true,
            min_words: 4,
            audit: true,
            model: shortener::Settings::default(),
            texts: OwnTexts::default(),
        }
    }
}

/// What is known of the searches of a conversation.
#[derive(Clone, Default)]
pub struct State {
    shapes: Arc<Shapes>,
    /// The hashes of the arguments of earlier searches.
    earlier: HashSet<Hash>,
}

impl Policy for RewriteQuery {
    const NAME: &'static str = "rewrite_query";
    const SUMMARY: &'static str =
        "tidies the queries of searches, and adds the year where the newest is wanted";
    const TEXTS: &'static [Text] = &[shortener::INSTRUCTIONS];
    type Config = Config;
    type State = State;

    fn new(config: Config) -> Result<Self, Vec<ConfigError>> {
        let mut problems: Vec<ConfigError> = problem_of("tools", &config.tools).into_iter().collect();
        if config.argument.is_empty() || config.argument.iter().any(|name| name.trim().is_empty()) {
            problems.push(ConfigError::new("argument", "expected names of arguments"));
        }
        if config.min_words == 0 {
            problems.push(ConfigError::new("min_words", "expected at least 1"));
        }
        problems.extend(config.model.problems());
        let texts = config.texts.check(Self::TEXTS, &mut problems);
        if !problems.is_empty() {
            return Err(problems);
        }
        let Config { tools, argument, year, fillers, min_words, audit, model, .. } = config;
        let rules = Rules { year, fillers, min_words };
        Ok(Self { tools, argument, rules, audit, model: Model::of(&model), texts })
    }

    fn about(&self) -> About {
        let does_nothing = !self.rules.year && !self.rules.fillers && self.model.is_none();
        let idle = if self.tools.is_empty() {
            Some(NO_TOOLS)
        } else {
            does_nothing.then_some("year, fillers and model are all off")
        };
        let engine = self.model.iter().map(|model| EngineService::AskModel(model.endpoint())).collect();
        About { named_tools: list_tools("tools", &self.tools), engine, idle, ..About::default() }
    }

    fn open(&self, request: &RequestView<'_>, state: &mut State, _plan: &mut Plan) {
        let searches = request.tools.iter().filter(|tool| any_concerns(&self.tools, &tool.name));
        state.shapes = Arc::new(Shapes::read(searches));
    }

    fn read(&self, event: &Event<'_>, state: &mut State, _plan: &mut Plan) {
        if self.model.is_some()
            && let Event::Call(call) = event
            && any_concerns(&self.tools, &call.name)
        {
            state.earlier.insert(call.arguments);
        }
    }

    fn judge(&self, call: &Proposed<'_>, state: &State) -> Verdict {
        if !any_concerns(&self.tools, call.name) {
            return Verdict::Allow;
        }
        let Some(text) = call.arguments else { return Verdict::NeedsArguments };
        let Some(found) = Found::in_arguments(text, &self.argument) else { return Verdict::Allow };
        let year = year_of(call.now_ms);
        let tidied = tidy(&found.query, self.rules, year);
        let reworded = |query: String| self.reworded(text, &found, query, call.name, state);
        let meanwhile = tidied.clone().and_then(reworded);
        let is_known = call.arguments_hash.is_some_and(|hash| state.earlier.contains(&hash));
        let model = self.model.as_ref().filter(|_| !is_known && self.rules.concern(&found.query));
        let Some(model) = model else { return meanwhile.map_or(Verdict::Allow, Verdict::Reword) };
        let base = tidied.as_deref().unwrap_or(&found.query);
        let question = model.question(&self.texts, base);
        match call.results.answer(&question) {
            None => Verdict::Pending(CallEffect::AskModel { question, meanwhile }),
            Some(answer) => {
                let shorter = answer.and_then(|answer| shortener::accepted(answer, base));
                // The answer may begin or end with a filler, or leave the year out.
                let shorter = shorter.map(|query| tidy(&query, self.rules, year).unwrap_or(query));
                let by_model = shorter.filter(|query| *query != found.query).and_then(reworded);
                by_model.or(meanwhile).map_or(Verdict::Allow, Verdict::Reword)
            }
        }
    }
}

impl RewriteQuery {
    /// The arguments `text` with `query` in place of the one that was found; `None` where the tool's schema may not
    /// accept it.
    fn reworded(
        &self,
        text: &str,
        found: &Found<'_>,
        query: String,
        tool: &str,
        state: &State,
    ) -> Option<Reworded> {
        if !state.shapes.accept(tool, found.name, &query) {
            return None;
        }
        let arguments = found.with(text, &query);
        let shown = self.audit.then(|| (found.query.clone(), query));
        Some(Reworded { arguments, shown })
    }
}

/// The year, in UTC, of a time in ms since the epoch.
fn year_of(now_ms: u64) -> u64 {
    rfc3339(now_ms).get(..4).and_then(|year| year.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
